/* SPDX-License-Identifier: MIT */
#include "caller/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

void samekey_config_init_sized(struct samekey_config *config, size_t size)
{
    struct samekey_config defaults = {
        .size = size,
        .prefix = "call",
        .retry_budget = 20,
        .retry_budget_floor = 10,
        .retries_in_flight = 10,
        .calls_in_flight = 256,
        .breaker_failures = 50,
        .breaker_calls = 20,
        .breaker_window_ms = 60000,
        .breaker_open_ms = 5000,
        .breaker_probes = 1,
    };
    memset(config, 0, size);
    memcpy(config, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

int64_t handle_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t handle_unix_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

double handle_random(void)
{
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return 0.5; /* the middle of the jitter, where the system gives no bits */
    return (double)(bits >> 11) * 0x1p-53;
}

static bool bounds(const struct samekey_config *c, struct samekey_error *error)
{
    const char *wrong = NULL;
    if (c->retry_budget < 0 || c->retry_budget > 1000 || c->retry_budget_floor < 0 ||
        c->retry_budget_floor > 100000)
        wrong = "retry_budget must be 0 to 1000 percent and its floor 0 to 100000 a second";
    else if (c->retries_in_flight < 0 || c->retries_in_flight > LIMITS_IN_FLIGHT_MAX ||
             c->calls_in_flight < 0 || c->calls_in_flight > LIMITS_IN_FLIGHT_MAX)
        wrong = "retries_in_flight and calls_in_flight must be 0 to 4096";
    else if (c->breaker_failures < 0 || c->breaker_failures > 100 || c->breaker_calls < 1 ||
             c->breaker_probes < 1 || c->breaker_probes > 100 || c->breaker_window_ms < BREAKER_SLOTS ||
             c->breaker_open_ms < 1)
        wrong = "the breaker needs 0 to 100 percent, 1 or more calls, 1 to 100 probes, and times above 0";
    if (wrong)
        intent_error(error, SAMEKEY_INVALID, "%s", wrong);
    return !wrong;
}

static int open_journal(struct samekey *h, const char *path, struct buffer *limits_path,
                        struct samekey_error *error)
{
    struct buffer place = {0};
    const char *why = "";
    int status = SAMEKEY_OK;
    if (*path)
        buffer_text(&place, path);
    else if (journal_default_path(&place) == STATUS_NOT_FOUND) {
        intent_error(
            error, SAMEKEY_JOURNAL,
            "neither XDG_STATE_HOME nor HOME is set, so there is no place for the journal; name one, or do "
            "without it; nothing was sent");
        return SAMEKEY_JOURNAL;
    }
    enum status opened =
        place.failed ? STATUS_NO_MEMORY : journal_open(&h->journal, buffer_cstring(&place), NULL, &why);
    if (opened == STATUS_NO_MEMORY) {
        status = SAMEKEY_NO_MEMORY;
        intent_error(error, status, "no memory; nothing was sent");
    } else if (opened != STATUS_OK) {
        status = SAMEKEY_JOURNAL;
        intent_error(error, status, "the journal %.120s: %s; nothing was sent", buffer_cstring(&place), why);
    } else {
        /* limits.db beside it. */
        const char *slash = strrchr(buffer_cstring(&place), '/');
        buffer_append(limits_path, place.data, slash ? (size_t)(slash - place.data) + 1 : 0);
        buffer_text(limits_path, "limits.db");
    }
    buffer_fini(&place);
    return status;
}

int samekey_open(struct samekey **out, const struct samekey_config *config)
{
    struct samekey_config c;
    struct buffer limits_path = {0};
    int status = SAMEKEY_NO_MEMORY;
    samekey_config_init_sized(&c, sizeof c);
    if (config)
        memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    if (!bounds(&c, c.error))
        return SAMEKEY_INVALID;
    struct samekey *h = calloc(1, sizeof *h);
    if (!h) {
        intent_error(c.error, SAMEKEY_NO_MEMORY, "no memory");
        return SAMEKEY_NO_MEMORY;
    }
    char host[IDS_NODE_BYTES_MAX + 1], id[CALLID_BYTES_MAX + 1];
    ids_host_node(host);
    const char *prefix = c.prefix && *c.prefix ? c.prefix : "call", *node = c.node && *c.node ? c.node : host;
    if (ids_make(slice_text(prefix), slice_text(node), handle_unix_ms(), id) != STATUS_OK) {
        status = SAMEKEY_INVALID;
        intent_error(c.error, status,
                     "prefix and node must be of A-Z a-z 0-9 . _ : -, 100 bytes together at most");
        goto done;
    }
    snprintf(h->prefix, sizeof h->prefix, "%s", prefix);
    snprintf(h->node, sizeof h->node, "%s", node);
    struct limits_rule rule = {
        .budget_percent = (unsigned)c.retry_budget,
        .budget_floor = (unsigned)c.retry_budget_floor,
        .retries_in_flight = (unsigned)c.retries_in_flight,
        .calls_in_flight = (unsigned)c.calls_in_flight,
        .breaker = {(unsigned)c.breaker_failures, (unsigned)c.breaker_calls, c.breaker_window_ms,
                    c.breaker_open_ms, (unsigned)c.breaker_probes},
    };
    enum status started = transport_open(&h->transport);
    if (started != STATUS_OK) {
        status = started == STATUS_IO ? SAMEKEY_TRANSPORT : SAMEKEY_NO_MEMORY;
        intent_error(c.error, status, "libcurl cannot be started");
        goto done;
    }
    if (c.journal) {
        status = open_journal(h, c.journal, &limits_path, c.error);
        if (status != SAMEKEY_OK)
            goto done;
    }
    status = SAMEKEY_NO_MEMORY;
    if (limits_path.failed || limits_open(&h->process_limits, &rule, NULL) != STATUS_OK ||
        limits_open(&h->limits, &rule, limits_path.len ? buffer_cstring(&limits_path) : NULL) != STATUS_OK) {
        intent_error(c.error, status, "no memory");
        goto done;
    }
    status = SAMEKEY_OK;
    *out = h;
done:
    buffer_fini(&limits_path);
    if (status != SAMEKEY_OK)
        samekey_close(h);
    return status;
}

void samekey_close(struct samekey *h)
{
    if (!h)
        return;
    limits_close(h->limits);
    limits_close(h->process_limits);
    journal_close(h->journal);
    transport_close(h->transport);
    free(h);
}

int samekey_make_id(struct samekey *h, const char *prefix, char out[SAMEKEY_CALL_ID_SIZE])
{
    char id[CALLID_BYTES_MAX + 1];
    _Static_assert(SAMEKEY_CALL_ID_SIZE == CALLID_BYTES_MAX + 1, "the public size");
    if (ids_make(slice_text(prefix ? prefix : h->prefix), slice_text(h->node), handle_unix_ms(), id) !=
        STATUS_OK)
        return SAMEKEY_INVALID;
    memcpy(out, id, sizeof id);
    return SAMEKEY_OK;
}

int handle_call_id(struct samekey *h, const struct intent *intent, int64_t unix_ms,
                   char out[CALLID_BYTES_MAX + 1], struct samekey_error *error)
{
    if (intent->call_id.len) {
        snprintf(out, CALLID_BYTES_MAX + 1, "%.*s", (int)intent->call_id.len, intent->call_id.data);
        return SAMEKEY_OK;
    }
    struct slice prefix = intent->prefix.len ? intent->prefix : slice_text(h->prefix);
    if (ids_make(prefix, slice_text(h->node), unix_ms, out) == STATUS_OK)
        return SAMEKEY_OK;
    intent_error(error, SAMEKEY_INVALID, "the prefix is too long or looks like a whole callId");
    return SAMEKEY_INVALID;
}
