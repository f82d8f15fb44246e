/* SPDX-License-Identifier: MIT
 *
 * samekey receipt --trace: the calls of one trace together, oldest first, asked of the gateway's admin address. One trace
 * has many callIds: a try, a later call, a reversal.
 */
#include "cli/trace.h"

#include "cli/desk.h"
#include "core/receipt.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 10000

enum { EXIT_FINE = 0, EXIT_FAILED_CALL = 3, EXIT_NOT_KNOWN = 4, EXIT_NOT_RECEIVED = 5 };

static void print_call(const json_t *call)
{
    printf("%-11s %.23s  ", desk_text(call, "state"), desk_text(call, "created_at"));
    desk_print(desk_text(call, "route"));
    printf("  ");
    desk_print(desk_text(call, "call_id"));
    if (*desk_text(call, "key")) {
        printf("  key ");
        desk_print(desk_text(call, "key"));
    }
    static const struct {
        const char *member, *words;
    } links[] = {{"original_call_id", "same as"}, {"reverses", "reverses"}, {"reversed_by", "reversed by"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (*desk_text(call, links[i].member)) {
            printf("  %s ", links[i].words);
            desk_print(desk_text(call, links[i].member));
        }
    putchar('\n');
}

/* As for one call; of many, what is least certain counts. */
static int exit_code(const json_t *items)
{
    size_t i;
    json_t *call;
    bool failed = false;
    json_array_foreach((json_t *)items, i, call)
    {
        const char *state = desk_text(call, "state");
        if (strcmp(state, state_text(STATE_FAILED)) == 0)
            failed = true;
        else if (strcmp(state, state_text(STATE_SUCCESS)) != 0)
            return EXIT_NOT_KNOWN;
    }
    return !json_array_size(items) ? EXIT_NOT_RECEIVED : failed ? EXIT_FAILED_CALL : EXIT_FINE;
}

int trace_show(struct desk *desk, const char *trace_id, const char *tenant, bool json)
{
    json_t *items = json_array();
    char cursor[32] = "";
    int code = EXIT_FINE;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    bool good = desk_open(desk);
    while (good) {
        struct buffer path = {0};
        struct desk_answer answer;
        buffer_text(&path, "/v1/calls");
        desk_query(&path, "trace_id", trace_id);
        desk_query(&path, "tenant", tenant);
        desk_query(&path, "limit", "200");
        desk_query(&path, "cursor", *cursor ? cursor : NULL);
        good = desk_ask(desk, buffer_cstring(&path), NULL, &answer);
        if (good) {
            json_array_extend(items, json_object_get(answer.document, "items"));
            snprintf(cursor, sizeof cursor, "%s", desk_text(answer.document, "next_cursor"));
        }
        json_decref(answer.document);
        buffer_fini(&path);
        if (!*cursor || json_array_size(items) >= CALLS_MAX)
            break;
    }
    if (!good) {
        fprintf(stderr, "samekey receipt: nothing was learned about the trace: %s\n",
                buffer_cstring(&desk->why));
        code = EXIT_NOT_KNOWN;
    } else if (json) {
        json_t *document = json_pack("{s:s, s:O}", "trace_id", trace_id, "items", items);
        char *text = json_dumps(document, JSON_COMPACT | JSON_PRESERVE_ORDER);
        puts(text ? text : "{}");
        free(text);
        json_decref(document);
    } else {
        for (size_t i = json_array_size(items); i-- > 0;)
            print_call(json_array_get(items, i));
        if (!json_array_size(items))
            fputs("No call of this trace is known.\n", stderr);
    }
    if (good)
        code = exit_code(items);
    json_decref(items);
    desk_close(desk);
    curl_global_cleanup();
    return code;
}
