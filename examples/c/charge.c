/* SPDX-License-Identifier: MIT
 *
 * One safe call from C:
 *
 *     cc charge.c $(pkg-config --cflags --libs samekey) -o charge
 *     ./charge http://127.0.0.1:8080/orders order-42
 *
 * The key names the business action. Run it again, after a crash or by mistake: it goes on with the same callId, and the
 * order is made once. The exit codes are those of `samekey call`.
 */
#include <samekey/samekey.h>

#include <stdio.h>

static int explain(const struct samekey_result *result)
{
    printf("%s\n", samekey_result_sentence(result));
    for (size_t i = 0; i < samekey_result_attempts(result); i++) {
        struct samekey_attempt attempt = {.size = sizeof attempt};
        samekey_result_attempt(result, i, &attempt);
        printf("  attempt %d: %s: %s\n", attempt.n, samekey_outcome_text(attempt.outcome), attempt.evidence);
    }
    switch (samekey_result_state(result)) {
    case SAMEKEY_SUCCESS:
        return 0;
    case SAMEKEY_FAILED: /* nothing took effect: tell the user, or try again as next_action says */
        return 3;
    default: /* unknown, or another process is at it: never a new key; run this program again later */
        return 4;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: charge URL ORDER [RECEIPT-TEMPLATE]\n");
        return 64;
    }
    struct samekey_error error = {0};
    struct samekey_config config;
    samekey_config_init(&config);
    config.journal = ""; /* $XDG_STATE_HOME/samekey/journal.db: it survives this process */
    config.prefix = "ord";
    config.error = &error;
    struct samekey *handle;
    if (samekey_open(&handle, &config) != SAMEKEY_OK) {
        fprintf(stderr, "charge: %s\n", error.text);
        return 74;
    }

    char key[128], body[256];
    snprintf(key, sizeof key, "order:%s:create", argv[2]);
    int length = snprintf(body, sizeof body, "{\"order\":\"%s\",\"amount\":1200}", argv[2]);
    struct samekey_header headers[] = {{"Content-Type", "application/json"}};
    struct samekey_options options;
    samekey_options_init(&options);
    options.url = argv[1];
    options.key = key;
    options.headers = headers;
    options.header_count = 1;
    options.body = body;
    options.body_len = (size_t)length;
    options.receipt = argc > 3 ? argv[3] : NULL; /* NULL: a samekey gateway's own receipts */
    options.error = &error;

    struct samekey_result *result;
    int code;
    if (samekey_call(handle, &options, &result) == SAMEKEY_OK) {
        code = explain(result);
        samekey_result_free(result);
    } else {
        fprintf(stderr, "charge: %s\n", error.text); /* nothing was sent */
        code = error.status == SAMEKEY_JOURNAL ? 74 : 64;
    }
    samekey_close(handle);
    return code;
}
