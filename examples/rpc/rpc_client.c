/* SPDX-License-Identifier: MIT
 *
 * The step interface with a transport of one's own: RPC frames over a Unix socket, in the program's own poll(2) loop.
 * libsamekey decides and never touches the socket; this program sends, waits and asks, and decides nothing.
 *
 *     rpc_client SOCKET KEY        exit 0 SUCCESS, 3 FAILED, 4 UNKNOWN
 *
 * rpc_server.c is the other side; it can lose a reply on purpose.
 */
#include "attachments.h"

#include <samekey/samekey.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, strlen(path));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Sends one frame and waits for the answer's line. Fills what the event needs to know of the wire. */
static void exchange(const char *path, const char *frame, int64_t timeout_ms, struct samekey_event *event,
                     char answer[FRAME_BYTES_MAX])
{
    int fd = dial(path);
    size_t len = 0;
    int64_t until = clock_ms(CLOCK_BOOTTIME) + timeout_ms;
    answer[0] = 0;
    event->end = SAMEKEY_END_REFUSED;
    event->sent_bytes = 0; /* the proof that nothing left */
    if (fd < 0)
        return;
    ssize_t sent = send(fd, frame, strlen(frame), MSG_NOSIGNAL);
    event->sent_bytes = sent > 0 ? (uint64_t)sent : 1;
    event->request_complete = sent == (ssize_t)strlen(frame);
    event->end = SAMEKEY_END_RESET;
    while (sent > 0 && !strchr(answer, '\n')) {
        int64_t left = until - clock_ms(CLOCK_BOOTTIME);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&wait, 1, (int)left) <= 0) {
            event->end = SAMEKEY_END_TIMEOUT;
            break;
        }
        ssize_t got = recv(fd, answer + len, FRAME_BYTES_MAX - 1 - len, 0);
        if (got <= 0) {
            event->end = got == 0 ? SAMEKEY_END_EOF : SAMEKEY_END_RESET;
            break;
        }
        len += (size_t)got;
        answer[len] = 0;
    }
    if (strchr(answer, '\n'))
        event->end = SAMEKEY_END_ANSWER;
    close(fd);
}

/* The callee's word for what an answer means. */
static int outcome_of(const char *word)
{
    for (int outcome = SAMEKEY_OUTCOME_NOT_EXECUTED; outcome <= SAMEKEY_OUTCOME_UNKNOWN; outcome++) {
        if (strcmp(word, samekey_outcome_text(outcome)) == 0)
            return outcome;
    }
    return SAMEKEY_OUTCOME_UNKNOWN;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rpc_client SOCKET KEY\n");
        return 64;
    }
    struct samekey_error error = {0};
    struct samekey *handle;
    struct samekey_run *run;
    struct samekey_options options;
    samekey_options_init(&options);
    options.key = argv[2];
    options.receipt = "rpc"; /* asked by our own means */
    options.attempt_timeout_ms = 300;
    options.backoff_base_ms = 20;
    options.flags = SAMEKEY_RECEIPTS_RUN_ONCE;
    options.error = &error;
    if (samekey_open(&handle, NULL) != SAMEKEY_OK || samekey_run_new(&run, handle, &options) != SAMEKEY_OK) {
        fprintf(stderr, "rpc_client: %s\n", error.text);
        return 64;
    }
    struct samekey_event event;
    struct samekey_effect effect = {.size = sizeof effect};
    char frame[FRAME_BYTES_MAX], answer[FRAME_BYTES_MAX], word[64], echoed[SAMEKEY_CALL_ID_SIZE],
        document[512];
    samekey_event_init(&event);
    event.type = SAMEKEY_EVENT_START;
    for (;;) {
        event.now_ms = clock_ms(CLOCK_BOOTTIME);
        event.unix_now_ms = clock_ms(CLOCK_REALTIME);
        event.random = drand48();
        if (samekey_run_step(run, &event, &effect) != SAMEKEY_OK)
            return 70;
        samekey_event_init(&event);
        if (effect.type == SAMEKEY_EFFECT_END)
            break;
        if (effect.type == SAMEKEY_EFFECT_SEND) {
            snprintf(frame, sizeof frame, "do=charge;x-call-id=%s;x-idempotency-key=%s;x-call-attempt=%d\n",
                     effect.call_id, effect.key, effect.attempt);
            printf("send %d %s\n", effect.attempt, effect.call_id);
            event.type = SAMEKEY_EVENT_ATTEMPT;
            exchange(argv[1], frame, effect.timeout_ms, &event, answer);
            if (event.end == SAMEKEY_END_ANSWER) {
                event.status = 200;
                event.outcome = attachment(answer, "outcome", word, sizeof word) ? outcome_of(word)
                                                                                 : SAMEKEY_OUTCOME_UNKNOWN;
                /* The callee gives the callId back; another one would prove nothing. */
                if (attachment(answer, "x-call-id", echoed, sizeof echoed))
                    event.echoed_call_id = echoed;
            }
        } else if (effect.type == SAMEKEY_EFFECT_ASK || effect.type == SAMEKEY_EFFECT_FENCE) {
            snprintf(frame, sizeof frame, "do=%s;x-call-id=%s\n",
                     effect.type == SAMEKEY_EFFECT_ASK ? "receipt" : "fence", effect.call_id);
            exchange(argv[1], frame, effect.timeout_ms, &event, answer);
            samekey_event_init(&event);
            event.type = SAMEKEY_EVENT_ANSWER;
            if (attachment(answer, "state", word, sizeof word) &&
                attachment(answer, "x-call-id", echoed, sizeof echoed)) {
                event.status = 200;
                event.body_len = (size_t)snprintf(document, sizeof document,
                                                  "{\"call_id\":\"%s\",\"state\":\"%s\"}", echoed, word);
                event.body = document;
            }
            printf("ask %s: %s\n", effect.call_id, event.status ? word : "no answer");
        } else { /* WAIT: until_ms is the loop's next deadline */
            int64_t left = effect.until_ms - clock_ms(CLOCK_BOOTTIME);
            if (left > 0)
                poll(NULL, 0, (int)left);
            event.type = SAMEKEY_EVENT_TIMER;
        }
    }
    const struct samekey_result *result = samekey_run_result(run);
    int state = samekey_result_state(result);
    printf("%s: %s\n", samekey_state_text(state), samekey_result_sentence(result));
    samekey_run_free(run);
    samekey_close(handle);
    return state == SAMEKEY_SUCCESS ? 0 : state == SAMEKEY_FAILED ? 3 : 4;
}
