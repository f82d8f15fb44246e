/* SPDX-License-Identifier: MIT
 *
 * RabbitMQ: rabbitmq.conf (how long a delivery may stay unacknowledged, which is a lease) and exported
 * definitions (how often a quorum queue delivers a message again). A classic queue cannot count deliveries and
 * its file says nothing either way, so nothing is said about it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "review/reader.h"

#include <pcre2.h>
#include <stdlib.h>

/* Since 4.0 a quorum queue without a limit delivers a message again 20 times; before, without end. */
#define DELIVERY_LIMIT_DEFAULT 20
/* Steps one match of a policy's pattern may take. */
#define MATCH_STEPS_MAX 20000
/* Policies that are matched against each queue. */
#define POLICIES_MATCHED_MAX 200

bool rabbitmq_read(struct review *r, struct source *s)
{
    for (unsigned i = 1; i <= s->lines; i++) {
        struct slice line = slice_trim(source_line(s, i));
        const char *equals = line.len ? memchr(line.data, '=', line.len) : NULL;
        if (!equals || line.data[0] == '#')
            continue;
        struct slice name = slice_trim(slice_of(line.data, (size_t)(equals - line.data)));
        struct slice value = slice_of(equals + 1, line.len - (size_t)(equals + 1 - line.data));
        const char *hash = memchr(value.data, '#', value.len);
        if (hash)
            value.len = (size_t)(hash - value.data);
        int64_t ms;
        if (!slice_is(name, "consumer_timeout") || !span_parse(&ms, value, 1))
            continue;
        struct review_policy *p = review_policy_new(r, FORMAT_RABBITMQ, s, i, "consumer_timeout");
        if (p)
            p->lease_ms = fact_at(ms, s, i);
    }
    return true;
}

static bool matches(struct slice pattern, struct slice name)
{
    int error;
    PCRE2_SIZE at;
    bool found = false;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.len, 0, &error, &at, NULL);
    if (!code)
        return false;
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (data && context) {
        pcre2_set_match_limit(context, MATCH_STEPS_MAX);
        pcre2_set_depth_limit(context, 1000);
        found = pcre2_match(code, (PCRE2_SPTR)name.data, name.len, 0, 0, data, context) >= 0;
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found;
}

/* A setting of the policy with the highest priority that matches the queue. */
static struct fact from_policies(struct source *s, struct tree *root, struct tree *queue, const char *setting)
{
    struct fact best = {0};
    int64_t best_priority = INT64_MIN;
    int tried = 0;
    struct slice name = tree_text(tree_get(queue, "name")), vhost = tree_text(tree_get(queue, "vhost"));
    for (struct tree *p = tree_children(tree_get(root, "policies")); p && tried < POLICIES_MATCHED_MAX;
         p = p->next) {
        struct fact value = tree_number(tree_get(tree_get(p, "definition"), setting), s);
        struct fact priority = tree_number(tree_get(p, "priority"), s);
        struct slice apply = tree_text(tree_get(p, "apply-to")), of = tree_text(tree_get(p, "vhost"));
        struct slice pattern = tree_text(tree_get(p, "pattern"));
        if (!value.known || slice_is(apply, "exchanges") || slice_is(apply, "classic_queues") ||
            !slice_equal(of, vhost))
            continue;
        tried++;
        int64_t rank = priority.known ? priority.value : 0;
        if (rank > best_priority && matches(pattern, name)) {
            best = value;
            best_priority = rank;
        }
    }
    return best;
}

static void queue_read(struct review *r, struct source *s, struct tree *root, struct tree *queue)
{
    struct tree *arguments = tree_get(queue, "arguments"), *name_node = tree_get(queue, "name");
    struct tree *type = tree_get(arguments, "x-queue-type");
    if (!name_node)
        return;
    struct slice version = tree_text(tree_get(root, "rabbitmq_version"));
    if (!version.len)
        version = tree_text(tree_get(root, "rabbit_version"));
    bool old = version.len && version.data[0] >= '0' && version.data[0] <= '3' &&
               (version.len < 2 || version.data[1] == '.');
    struct fact limit = tree_number(tree_get(arguments, "x-delivery-limit"), s);
    struct fact ttl = tree_duration(tree_get(arguments, "x-message-ttl"), s, 1);
    struct fact lease = tree_duration(tree_get(arguments, "x-consumer-timeout"), s, 1);
    bool quorum = slice_is(tree_text(type), "quorum");
    if (!limit.known)
        limit = from_policies(s, root, queue, "delivery-limit");
    if (!ttl.known)
        ttl = from_policies(s, root, queue, "message-ttl");
    if (ttl.known && (ttl.value < 0 || ttl.value > SPAN_MAX_MS))
        ttl.known = false;
    if (!quorum && !ttl.known && !lease.known)
        return;
    struct review_policy *p = review_policy_new(
        r, FORMAT_RABBITMQ, s, name_node->line,
        pool_format(&r->pool, "queue %.*s", (int)name_node->text.len, name_node->text.data));
    if (!p)
        return;
    p->redelivery_ms = ttl;
    p->lease_ms = lease;
    if (!quorum)
        return;
    unsigned line = limit.known ? limit.line : type->line;
    if (limit.known ? limit.value < 0 : old)
        p->attempts = fact_at(ATTEMPTS_ENDLESS, s, line);
    else
        p->attempts = fact_at(span_add(limit.known ? limit.value : DELIVERY_LIMIT_DEFAULT, 1), s, line);
}

void rabbitmq_definitions_read(struct review *r, struct source *s, struct tree *root)
{
    for (struct tree *q = tree_children(tree_get(root, "queues")); q; q = q->next)
        queue_read(r, s, root, tree_resolve(q));
}
