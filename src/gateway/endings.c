/* SPDX-License-Identifier: MIT */
#include "gateway/endings.h"

#include "gateway/gateway.h"
#include "gateway/redis.h"

#define LIE_GAP_MS 60000 /* one line of the log a minute about entries that are not to be believed */

static void on_link(void *context, bool up, const char *why)
{
    struct shard *shard = context;
    gateway_cache_link(shard->gateway, up);
    if (shard->index != 0)
        return; /* one loop tells for all */
    if (up)
        log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "cache_ready",
                  LOG_STRING("detail", "Redis answers"));
    else
        log_event(shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "cache_unavailable",
                  LOG_STRING("why", why), LOG_STRING("detail", "served without it, from the store"));
}

static void on_lie(void *context)
{
    struct shard *shard = context;
    int64_t now = net_loop_now(shard->loop);
    if (shard->lie_told_ms && now - shard->lie_told_ms < LIE_GAP_MS)
        return;
    shard->lie_told_ms = now;
    log_event(shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "cache_entry_refused",
              LOG_STRING("detail",
                         "an entry in Redis was not written by a gateway of this store for this call; "
                         "it was removed and the store was asked. Who else writes there?"));
}

enum status endings_open(struct shard *shard, const struct settings *settings, const uint8_t *secret)
{
    struct redis_settings s = {
        .life_ms = settings->cache_life_ms,
        .patience_ms = settings->cache_timeout_ms,
        .secret = secret,
        .random = &shard->random,
        .counts = shard->counts,
        .on_link = on_link,
        .on_lie = on_lie,
        .context = shard,
    };
    if (!settings->cache[0])
        return STATUS_OK;
    struct buffer why = {0};
    enum status status = cache_address_parse(&s.address, slice_text(settings->cache), &why);
    buffer_fini(&why);
    return status == STATUS_OK ? redis_new(&shard->redis, shard->loop, &s) : status;
}

bool endings_near(struct shard *shard, const struct digest *call, struct rows *rows)
{
    bool found = cache_get(shard->cache, call, net_loop_now(shard->loop), rows);
    metrics_add(shard->counts, found ? METRIC_cache_hits : METRIC_cache_misses, 0, CACHE_LAYER_MEMORY, 1);
    return found;
}

void endings_keep(struct shard *shard, const struct rows *rows)
{
    cache_put(shard->cache, rows, net_loop_now(shard->loop));
    if (rows->call.id && rows->call.reversed_by.len)
        redis_forget(shard->redis, &rows->call.call_digest);
    else
        redis_put(shard->redis, rows);
}

void endings_keep_near(struct shard *shard, const struct rows *rows)
{
    cache_put(shard->cache, rows, net_loop_now(shard->loop));
}

void endings_forget(struct shard *shard, const struct digest *call)
{
    cache_drop(shard->cache, call);
    redis_forget(shard->redis, call);
    gateway_forget(shard->gateway, call);
}

bool endings_document_stands(const struct setup *setup, const struct call_row *row)
{
    if (row->state != STATE_SUCCESS)
        return false;
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        const struct route_settings *s = setup->lanes[i].s;
        if (slice_is(row->route, s->name))
            return !s->reversal[0];
    }
    return false; /* a route that is no more: what may happen to its calls is not known here */
}

void endings_ratios(struct metrics *metrics)
{
    for (size_t layer = 0; layer < CACHE_LAYER_COUNT; layer++) {
        int64_t hits = metrics_sum(metrics, METRIC_cache_hits, 0, layer);
        int64_t all = hits + metrics_sum(metrics, METRIC_cache_misses, 0, layer) +
                      metrics_sum(metrics, METRIC_cache_errors, 0, layer);
        metrics_set(metrics, METRIC_cache_hit_percent, 0, layer, all ? hits * 100 / all : 0);
    }
}
