/* SPDX-License-Identifier: MIT
 *
 * samekey receipt, fence, cancel: asking a gateway (or a service with our receipts) about one call.
 *
 * An answer is believed only when it is complete JSON, has a state that we know, and speaks of the call that was asked
 * for (CONTRACT section 3). Anything else, a plain 404 page or a friendly 200 too, says nothing about the call: exit 4.
 * With --store no gateway is asked: cli/stored.c reads the store and the archive.
 */
#include "cli/command.h"

#include "base/buffer.h"
#include "base/duration.h"
#include "base/json_text.h"
#include "cli/desk.h"
#include "cli/stored.h"
#include "cli/trace.h"
#include "core/id.h"
#include "core/receipt.h"
#include "gateway/conf.h"

#include <assert.h>
#include <curl/curl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_FINE = 0,
    EXIT_TOOK_EFFECT = 1, /* fence and cancel came too late */
    EXIT_FAILED_CALL = 3,
    EXIT_NOT_KNOWN = 4,
    EXIT_NOT_RECEIVED = 5,
    EXIT_USAGE = 64,
    EXIT_MEMORY = 71,
};

/* Bytes of an answer that are read at most: a body of 64 MiB in base64, and its document. */
#define ANSWER_BYTES_MAX (96u << 20)
#define CONNECT_MS       5000
#define ANSWER_MS        10000
#define WAIT_MS_MAX      60000
#define HEADERS_MAX      64

enum action { ACTION_RECEIPT, ACTION_FENCE, ACTION_CANCEL };
static const char *const action_names[] = {"receipt", "fence", "cancel"};

struct request {
    enum action action;
    const char *call_id, *at, *tenant, *tenant_header, *route, *key;
    const char *trace, *token_file;     /* of a whole trace, asked of the admin address */
    const char *store, *archive, *conf; /* read without a gateway */
    int64_t wait_ms;
    bool json, help;
    struct curl_slist *headers;
};

/* What came back, judged. */
struct answer {
    long status;
    struct buffer body;
    json_t *document;      /* the believed document or problem, else NULL */
    enum call_state state; /* of a believed answer */
    char why[300];         /* why it is not believed */
};

static void print_help(FILE *to, enum action action)
{
    switch (action) {
    case ACTION_RECEIPT:
        fputs(
            "usage: samekey receipt CALLID --at URL [--wait 5s] [FLAGS]\n"
            "       samekey receipt CALLID --store URL [--archive DIR] [--tenant T] [--format F]\n"
            "       samekey receipt --trace TRACEID [--at ADMIN] [--token-file FILE] [--tenant T] [--format "
            "F]\n\n"
            "Tells what became of a call, or of all calls of a trace.\n\n"
            "  --wait D              let the gateway wait this long for the call to end (60s at most)\n"
            "  --store URL           read this store (`store` in samekey.conf) and ask no gateway; changes "
            "nothing\n"
            "  --archive DIR         with --store or alone: where answers past their result_life are "
            "(`archive`)\n"
            "  -c, --conf FILE       take both from this samekey.conf; the tenant is then a name and no "
            "header\n"
            "  --trace ID            all calls of this trace (32 hexadecimal digits); --at is then the admin "
            "address\n"
            "                        (" DESK_DEFAULT "), and the tenant is a name and no header\n"
            "  --token-file FILE     with --trace: file whose first line is the admin token (or\n"
            "                        " DESK_TOKEN_ENV ")\n",
            to);
        break;
    case ACTION_FENCE:
        fputs("usage: samekey fence CALLID --at URL [--route R --key K] [FLAGS]\n\n"
              "Gives a call up: after that it can never run, and a new call is safe.\n\n"
              "  --route R, --key K    the operation, so that the answer can say whether a new call is safe "
              "although\n"
              "                        this one was never received\n",
              to);
        break;
    case ACTION_CANCEL:
        fputs("usage: samekey cancel CALLID --at URL [FLAGS]\n\n"
              "Gives a call up as fence does; a call that took effect is undone where its route has a "
              "reversal.\n\n",
              to);
        break;
    }
    fputs("  --at URL              the gateway, http://HOST:PORT; or a whole receipt address with {call_id} "
          "in it\n"
          "  -H, --header LINE     a header to send, such as 'Authorization: Bearer ...'; may be repeated\n"
          "  --tenant T            the tenant, sent as X-Tenant (or as --tenant-header NAME says)\n"
          "  --format text|json    for people (text) or the document as it came (json)\n\n",
          to);
    fputs(action == ACTION_RECEIPT ? "Exit: 0 SUCCESS; 3 FAILED; 4 UNKNOWN, still running, or no answer to "
                                     "believe; 5 NOT_RECEIVED; 64 usage.\n"
                                   : "Exit: 0 given up; 1 it had taken effect before; 3 it had failed "
                                     "before; 4 it may be running, or no answer\n"
                                     "to believe; 64 usage.\n",
          to);
}

static int usage(const struct request *r, const char *message)
{
    fprintf(stderr, "samekey %s: %s\n`samekey help %s` tells its flags.\n", action_names[r->action], message,
            action_names[r->action]);
    return EXIT_USAGE;
}

static bool add_header(struct request *r, const char *line)
{
    struct curl_slist *list = curl_slist_append(r->headers, line);
    if (list)
        r->headers = list;
    return list != NULL;
}

static int read_flags(struct request *r, int argc, char **argv)
{
    static const struct option options[] = {{"at", required_argument, NULL, 'a'},
                                            {"wait", required_argument, NULL, 'w'},
                                            {"trace", required_argument, NULL, 'x'},
                                            {"token-file", required_argument, NULL, 'F'},
                                            {"store", required_argument, NULL, 's'},
                                            {"archive", required_argument, NULL, 'A'},
                                            {"conf", required_argument, NULL, 'c'},
                                            {"header", required_argument, NULL, 'H'},
                                            {"tenant", required_argument, NULL, 't'},
                                            {"tenant-header", required_argument, NULL, 'T'},
                                            {"route", required_argument, NULL, 'r'},
                                            {"key", required_argument, NULL, 'k'},
                                            {"format", required_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int headers = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "H:hc:", options, NULL)) != -1;) {
        switch (c) {
        case 'a':
            r->at = optarg;
            break;
        case 'w':
            if (r->action != ACTION_RECEIPT)
                return usage(r, "--wait belongs to receipt");
            if (duration_parse(slice_text(optarg), &r->wait_ms) != STATUS_OK || r->wait_ms > WAIT_MS_MAX)
                return usage(r, "--wait takes a duration of at most 60s, such as 5s");
            break;
        case 'x':
        case 'F':
            if (r->action != ACTION_RECEIPT)
                return usage(r, "--trace and --token-file belong to receipt");
            *(c == 'x' ? &r->trace : &r->token_file) = optarg;
            break;
        case 's':
        case 'A':
        case 'c':
            if (r->action != ACTION_RECEIPT)
                return usage(r, "--store, --archive and --conf belong to receipt");
            *(c == 's' ? &r->store : c == 'A' ? &r->archive : &r->conf) = optarg;
            break;
        case 'H':
            if (!strchr(optarg, ':') || strpbrk(optarg, "\r\n") || ++headers > HEADERS_MAX)
                return usage(r, "-H takes one header line, NAME: VALUE, and at most 64 of them");
            if (!add_header(r, optarg))
                return EXIT_MEMORY;
            break;
        case 't':
            r->tenant = optarg;
            break;
        case 'T':
            r->tenant_header = optarg;
            break;
        case 'r':
        case 'k':
            if (r->action != ACTION_FENCE)
                return usage(r, "--route and --key belong to fence");
            *(c == 'r' ? &r->route : &r->key) = optarg;
            break;
        case 'f':
            r->json = strcmp(optarg, "json") == 0;
            if (!r->json && strcmp(optarg, "text") != 0)
                return usage(r, "--format is text or json");
            break;
        case 'h':
            r->help = true;
            return 0;
        default:
            return usage(r, "what was given is not one of its flags");
        }
    }
    if (r->trace)
        return optind == argc && !r->headers && !r->wait_ms
                   ? 0
                   : usage(r, "--trace stands for a callId and takes neither --wait nor -H");
    if (r->token_file)
        return usage(r, "--token-file goes with --trace");
    if (optind + 1 != argc)
        return usage(r, optind == argc ? "which call? Give its callId" : "one callId at a time");
    r->call_id = argv[optind];
    if (callid_check(slice_text(r->call_id)) != STATUS_OK)
        return usage(r, "a callId has 1 to 128 letters, digits, `.`, `_`, `:` and `-`");
    if (r->store || r->archive || r->conf)
        return r->at || r->headers || r->wait_ms || r->tenant_header
                   ? usage(r,
                           "--store, --archive and --conf ask no gateway: leave out --at, --wait and headers")
                   : 0;
    if (!r->at)
        return usage(r,
                     r->action == ACTION_RECEIPT
                         ? "where? Give the gateway with --at http://HOST:PORT, or a store with --store URL"
                         : "where? Give the gateway with --at http://HOST:PORT");
    if (strncmp(r->at, "http://", 7) != 0 && strncmp(r->at, "https://", 8) != 0)
        return usage(r, "--at takes an address that begins with http:// or https://");
    if (!r->route != !r->key)
        return usage(r, "--route and --key go together");
    return 0;
}

static size_t take_bytes(char *data, size_t size, size_t count, void *context)
{
    struct buffer *body = context;
    buffer_append(body, data, size * count);
    return body->failed ? 0 : size * count;
}

/* The address: --at with {call_id} in it is whole, any other is a gateway's. */
static void write_url(const struct request *r, struct buffer *url)
{
    const char *place = strstr(r->at, "{call_id}");
    if (place) {
        buffer_append(url, r->at, (size_t)(place - r->at));
        buffer_text(url, r->call_id);
        buffer_text(url, place + strlen("{call_id}"));
    } else {
        size_t n = strlen(r->at);
        while (n > 0 && r->at[n - 1] == '/')
            n--;
        buffer_append(url, r->at, n);
        buffer_format(url, "/.samekey/receipts/%s", r->call_id);
    }
    if (r->action != ACTION_RECEIPT)
        buffer_format(url, "/%s", action_names[r->action]);
    if (r->wait_ms > 0) {
        buffer_text(url, strchr(url->data, '?') ? "&wait=" : "?wait=");
        duration_print(r->wait_ms, url);
    }
}

/* Asks once. A query may be asked again, so nothing here needs to be sure that it arrived. */
static bool ask(struct request *r, struct answer *a)
{
    struct buffer url = {0}, body = {0};
    char problem[CURL_ERROR_SIZE] = "";
    bool came = false;
    CURL *curl = curl_easy_init();
    if (!curl)
        goto done;
    write_url(r, &url);
    if (r->tenant) {
        struct buffer line = {0};
        buffer_format(&line, "%s: %s", r->tenant_header ? r->tenant_header : "X-Tenant", r->tenant);
        add_header(r, buffer_cstring(&line));
        buffer_fini(&line);
    }
    add_header(r, "Accept: application/json");
    if (r->action != ACTION_RECEIPT) {
        add_header(r, "Expect:");
        if (r->key) {
            buffer_text(&body, "{\"route\":");
            json_text(&body, slice_text(r->route));
            buffer_text(&body, ",\"key\":");
            json_text(&body, slice_text(r->key));
            buffer_text(&body, "}");
            add_header(r, "Content-Type: application/json");
        }
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.len);
        curl_easy_setopt(curl, CURLOPT_COPYPOSTFIELDS, buffer_cstring(&body));
    }
    a->body.max = ANSWER_BYTES_MAX;
    curl_easy_setopt(curl, CURLOPT_URL, buffer_cstring(&url));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(CONNECT_MS + ANSWER_MS + r->wait_ms));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "samekey/" SAMEKEY_VERSION);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &a->body);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
    came = code == CURLE_OK;
    if (!came && a->body.failed)
        snprintf(a->why, sizeof(a->why), "the answer is larger than %u MiB", ANSWER_BYTES_MAX >> 20);
    else if (!came)
        snprintf(a->why, sizeof(a->why), "%s", problem[0] ? problem : curl_easy_strerror(code));
done:
    if (!came && !a->why[0])
        snprintf(a->why, sizeof(a->why), "no memory");
    curl_easy_cleanup(curl);
    buffer_fini(&url);
    buffer_fini(&body);
    return came;
}

/* The same from the store and the archive. */
static bool look(const struct request *r, struct answer *a)
{
    struct stored asked = {.store = r->store,
                           .archive = r->archive,
                           .tenant = r->tenant ? r->tenant : "",
                           .call_id = r->call_id};
    struct settings *settings = NULL;
    struct buffer note = {0}, why = {0};
    bool read = false;
    if (r->conf && conf_load(&settings, r->conf, NULL, &why) != STATUS_OK) {
        snprintf(a->why, sizeof(a->why), "%s", buffer_cstring(&why));
        goto done;
    }
    buffer_clear(&why); /* what it warned of is the gateway's */
    if (settings && !asked.store)
        asked.store = settings->store;
    if (settings && !asked.archive && settings->archive[0])
        asked.archive = settings->archive;
    read = stored_read(&asked, &a->body, &note, &why);
    if (!read)
        snprintf(a->why, sizeof(a->why), "%s", buffer_cstring(&why));
    else if (note.len)
        fprintf(stderr, "samekey receipt: %s\n", buffer_cstring(&note));
    a->status = 200;
done:
    conf_free(settings);
    buffer_fini(&note);
    buffer_fini(&why);
    return read;
}

static const char *text_of(json_t *document, const char *name)
{
    const char *text = json_string_value(json_object_get(document, name));
    return text ? text : "";
}

/* Decides whether the answer is to be believed; if so, a->document and a->state are set. */
static void judge(const struct request *r, struct answer *a)
{
    json_error_t error;
    json_t *document = json_loadb(a->body.data ? a->body.data : "", a->body.len,
                                  JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json_is_object(document)) {
        snprintf(a->why, sizeof(a->why),
                 "the answer (status %ld) is not a receipt; is this the address of a gateway?", a->status);
        json_decref(document);
        return;
    }
    const char *id = text_of(document, "call_id");
    if (!id[0])
        id = text_of(document, "callId");
    const char *state = text_of(document, "state");
    bool problem = strncmp(text_of(document, "type"), "urn:samekey:", 12) == 0;
    enum call_state known = STATE_UNKNOWN;
    bool has_state = state_parse(slice_text(state), &known);
    if (problem && !has_state) {
        /* It speaks about our question, not about the call: the call's state stays not known. */
        snprintf(a->why, sizeof(a->why), "%s", text_of(document, "title"));
        a->document = document;
        a->state = STATE_UNKNOWN;
        return;
    }
    if (!has_state)
        snprintf(a->why, sizeof(a->why), "the answer (status %ld) has no state that is known", a->status);
    else if (strcmp(id, r->call_id) != 0)
        snprintf(a->why, sizeof(a->why), "the answer speaks of another call");
    if (a->why[0]) {
        json_decref(document);
        return;
    }
    a->document = document;
    a->state = known;
}

/* Whether this call can never run, by our word or an earlier one. */
static bool is_fenced(const struct answer *a)
{
    return a->state == STATE_FAILED && strcmp(text_of(a->document, "reason"), "fenced") == 0;
}

static int exit_code(const struct request *r, const struct answer *a)
{
    if (!a->document)
        return EXIT_NOT_KNOWN;
    switch (a->state) {
    case STATE_SUCCESS:
        if (r->action == ACTION_RECEIPT)
            return EXIT_FINE;
        return r->action == ACTION_CANCEL && text_of(a->document, "reversed_by")[0] ? EXIT_FINE
                                                                                    : EXIT_TOOK_EFFECT;
    case STATE_FAILED:
        return r->action != ACTION_RECEIPT && is_fenced(a) ? EXIT_FINE : EXIT_FAILED_CALL;
    case STATE_NOT_RECEIVED:
        return r->action == ACTION_RECEIPT ? EXIT_NOT_RECEIVED : EXIT_NOT_KNOWN;
    default:
        return EXIT_NOT_KNOWN;
    }
}

/* Text of somebody else on a terminal: control bytes could rewrite what stands above. */
static void print_text(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_line(const char *label, const char *text)
{
    if (!text[0])
        return;
    printf("  %-12s ", label);
    print_text(text);
    putchar('\n');
}

static const char *yes_or_no(json_t *value)
{
    return json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "not known";
}

static void print_attempts(json_t *attempts)
{
    size_t i;
    json_t *attempt;
    json_array_foreach(attempts, i, attempt)
    {
        printf("  attempt %-4lld ", (long long)json_integer_value(json_object_get(attempt, "n")));
        print_text(text_of(attempt, "outcome"));
        printf(": ");
        print_text(text_of(attempt, "evidence"));
        printf(" (");
        print_text(text_of(attempt, "started_at"));
        printf(")\n");
    }
}

static const char *advice(const char *next_action)
{
    static const struct {
        const char *action, *advice;
    } table[] = {
        {"none", "Nothing needs to be done."},
        {"wait", "Wait, and ask again; do not send it under a new key."},
        {"query_receipt", "Ask again in a moment; do not send it under a new key."},
        {"retry_same_call", "Send the same request again, with the same callId and the same key."},
        {"fix_request", "Mend the request, then send it as a new call."},
        {"ask_operator", "Ask the operator of the service; until then do not send it under a new key."},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(next_action, table[i].action) == 0)
            return table[i].advice;
    return "";
}

static void print_document(const struct request *r, const struct answer *a)
{
    json_t *d = a->document, *result = json_object_get(d, "result"), *final = json_object_get(d, "final");
    printf("%s: %s\n", r->call_id, state_text(a->state));
    if (r->action != ACTION_RECEIPT && is_fenced(a))
        puts("  The call is given up: it has not run and can never run.");
    else if (r->action == ACTION_CANCEL && a->state == STATE_SUCCESS && text_of(d, "reversed_by")[0])
        puts("  It took effect, and is being undone.");
    else if (r->action != ACTION_RECEIPT && a->state == STATE_SUCCESS)
        puts("  Too late to give it up: the operation took effect, once.");
    else if (r->action != ACTION_RECEIPT && a->state != STATE_FAILED)
        puts("  It was not given up: it may be running. Nothing was changed.");
    else
        printf("  %s\n", state_sentence(a->state));
    if (a->state == STATE_FAILED && json_is_false(final))
        puts("  This ending is not final: the same call may still be sent again.");
    print_line("title", text_of(d, "title"));
    print_line("detail", text_of(d, "detail"));
    print_line("reason", text_of(d, "reason"));
    if (json_object_get(d, "received")) {
        print_line("received", yes_or_no(json_object_get(d, "received")));
        print_line("executed", yes_or_no(json_object_get(d, "executed")));
    }
    print_line("route", text_of(d, "route"));
    print_line("key", text_of(d, "key"));
    print_line("business ref", text_of(d, "business_ref"));
    print_line("trace", text_of(d, "trace_id"));
    print_attempts(json_object_get(d, "attempts"));
    if (json_is_object(result))
        printf("  %-12s status %lld, %zu bytes%s\n", "result",
               (long long)json_integer_value(json_object_get(result, "status")),
               json_string_length(json_object_get(result, "body")),
               strcmp(text_of(result, "body_encoding"), "base64") == 0 ? " in base64" : "");
    print_line("same as", text_of(d, "original_call_id"));
    print_line("reverses", text_of(d, "reverses"));
    print_line("reversed by", text_of(d, "reversed_by"));
    print_line("created", text_of(d, "created_at"));
    print_line("updated", text_of(d, "updated_at"));
    print_line("kept until", text_of(d, "expires_at"));
    print_line("do now", advice(text_of(d, "next_action")));
    if (json_is_boolean(json_object_get(d, "safe_new_key")) && a->state != STATE_SUCCESS)
        print_line("new call",
                   json_is_true(json_object_get(d, "safe_new_key"))
                       ? "safe: this operation has not taken effect and no call on it is open"
                   : !*text_of(d, "key")
                       ? "not known: the receipt names no key, so other calls on the operation are not seen"
                       : "not safe: it could run the operation a second time");
}

static void print_disbelief(const struct request *r, const struct answer *a)
{
    if (r->json) {
        struct buffer out = {0};
        buffer_text(&out, "{\"call_id\":");
        json_text(&out, slice_text(r->call_id));
        buffer_text(&out, ",\"state\":\"UNKNOWN\",\"final\":false,\"reason\":\"no-answer\",\"detail\":");
        json_text(&out, slice_text(a->why));
        buffer_text(&out, ",\"safe_new_key\":false,\"next_action\":\"query_receipt\"}");
        puts(buffer_cstring(&out));
        buffer_fini(&out);
    }
    fprintf(stderr,
            "samekey %s: nothing was learned about %s: %s\n"
            "The call may or may not have run. Ask again; do not send it under a new key.\n",
            action_names[r->action], r->call_id, a->why);
}

static int run(enum action action, int argc, char **argv)
{
    struct request r = {.action = action};
    struct answer a = {0};
    int code = read_flags(&r, argc, argv);
    if (code)
        goto done;
    if (r.help) {
        print_help(stdout, action);
        goto done;
    }
    if (r.trace) {
        struct desk desk = {.at = r.at, .token_file = r.token_file};
        code = trace_show(&desk, r.trace, r.tenant, r.json);
        goto done;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (r.store || r.archive || r.conf ? look(&r, &a) : ask(&r, &a))
        judge(&r, &a);
    code = exit_code(&r, &a);
    if (!a.document) {
        print_disbelief(&r, &a);
    } else if (r.json) {
        fwrite(a.body.data, 1, a.body.len, stdout);
        if (a.body.data[a.body.len - 1] != '\n')
            putchar('\n');
    } else {
        print_document(&r, &a);
    }
    curl_global_cleanup();
done:
    json_decref(a.document);
    buffer_fini(&a.body);
    if (r.headers) /* else libcurl need not be there */
        curl_slist_free_all(r.headers);
    return code;
}

int command_receipt(int argc, char **argv)
{
    return run(ACTION_RECEIPT, argc, argv);
}

int command_fence(int argc, char **argv)
{
    return run(ACTION_FENCE, argc, argv);
}

int command_cancel(int argc, char **argv)
{
    return run(ACTION_CANCEL, argc, argv);
}
