/* SPDX-License-Identifier: MIT */
#include "gateway/suspects.h"

#include <pthread.h>
#include <stdlib.h>

struct suspects {
    pthread_mutex_t lock;
    size_t count;
    struct suspect list[SUSPECTS_MAX];
};

enum status suspects_new(struct suspects **out)
{
    struct suspects *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return STATUS_OK;
}

void suspects_free(struct suspects *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void keep(char *text, size_t size, struct slice from)
{
    size_t len = from.len < size - 1 ? from.len : size - 1;
    if (len)
        memcpy(text, from.data, len);
    text[len] = '\0';
}

/* What keep() would have kept. */
static bool is_kept(const char *text, size_t size, struct slice from)
{
    return slice_is(slice_of(from.data, from.len < size - 1 ? from.len : size - 1), text);
}

static bool same_client(const struct suspect *each, const struct suspicion *seen)
{
    if (each->has_credential != seen->has_credential ||
        !is_kept(each->tenant, sizeof each->tenant, seen->tenant))
        return false;
    return seen->has_credential ? digest_equal(&each->credential, &seen->credential)
                                : is_kept(each->address, sizeof each->address, seen->address);
}

static struct suspect *place(struct suspects *s, const struct suspicion *seen, int64_t now_ms)
{
    struct suspect *oldest = &s->list[0];
    for (size_t i = 0; i < s->count; i++) {
        if (same_client(&s->list[i], seen))
            return &s->list[i];
        if (s->list[i].last_ms < oldest->last_ms)
            oldest = &s->list[i];
    }
    struct suspect *each = s->count < SUSPECTS_MAX ? &s->list[s->count++] : oldest;
    memset(each, 0, sizeof *each);
    each->has_credential = seen->has_credential;
    each->credential = seen->credential;
    keep(each->address, sizeof each->address, seen->address);
    keep(each->tenant, sizeof each->tenant, seen->tenant);
    each->first_ms = now_ms;
    return each;
}

static void note_route(struct suspect *each, struct slice route)
{
    for (size_t i = 0; i < SUSPECT_ROUTES_MAX; i++) {
        if (each->routes[i][0] && !is_kept(each->routes[i], sizeof each->routes[i], route))
            continue;
        keep(each->routes[i], sizeof each->routes[i], route);
        return;
    }
}

void suspects_note(struct suspects *s, const struct suspicion *seen, int64_t now_ms)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    struct suspect *each = place(s, seen, now_ms);
    each->last_ms = now_ms;
    each->count++;
    each->duplicates += seen->problem == PROBLEM_SUSPECTED_DUPLICATE;
    each->ids_reused += seen->problem == PROBLEM_CALL_ID_REUSED;
    each->keys_reused += seen->problem == PROBLEM_KEY_REUSED;
    note_route(each, seen->route);
    struct suspect_example *e = &each->examples[each->example_count++ % SUSPECT_EXAMPLES_MAX];
    e->at_ms = now_ms;
    e->problem = seen->problem;
    keep(e->route, sizeof e->route, seen->route);
    keep(e->call_id, sizeof e->call_id, seen->call_id);
    keep(e->key, sizeof e->key, seen->key);
    keep(e->other_call_id, sizeof e->other_call_id, seen->other_call_id);
    keep(e->other_key, sizeof e->other_key, seen->other_key);
    pthread_mutex_unlock(&s->lock);
}

static int more_often(const void *a, const void *b)
{
    const struct suspect *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return (x->last_ms < y->last_ms) - (x->last_ms > y->last_ms);
}

size_t suspects_copy(struct suspects *s, struct suspect *out)
{
    pthread_mutex_lock(&s->lock);
    size_t count = s->count;
    memcpy(out, s->list, count * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    qsort(out, count, sizeof *out, more_often);
    return count;
}
