/* SPDX-License-Identifier: MIT
 *
 * Step 2's second half: an idempotency key that is another one with every try cannot work. The keys of one intention are
 * cut at their punctuation and laid side by side; the pieces that differ say what went into the key by mistake.
 */
#include "forensics/judge_inside.h"

enum { PIECES_MAX = 32 };

struct pieces {
    struct slice piece[PIECES_MAX];
    size_t count;
};

static bool between_pieces(char c)
{
    return c == ':' || c == '/' || c == '_' || c == '.' || c == '|' || c == '#' || c == '-';
}

static bool hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool all(struct slice s, bool (*is)(char))
{
    for (size_t i = 0; i < s.len; i++)
        if (!is(s.data[i]))
            return false;
    return s.len > 0;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 8-4-4-4-12 hexadecimal digits at p. */
static bool uuid_at(const char *p, size_t len)
{
    static const int part[] = {8, 4, 4, 4, 12};
    size_t at = 0;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < part[i]; k++, at++)
            if (at >= len || !hex(p[at]))
                return false;
        if (i < 4 && (at >= len || p[at++] != '-'))
            return false;
    }
    return true;
}

static void cut(struct slice key, struct pieces *out)
{
    out->count = 0;
    for (size_t at = 0; at < key.len && out->count < PIECES_MAX;) {
        size_t n = 0;
        if (uuid_at(key.data + at, key.len - at))
            n = 36;
        while (n == 0 || (n != 36 && at + n < key.len && !between_pieces(key.data[at + n]) &&
                          !between_pieces(key.data[at])))
            n++;
        out->piece[out->count++] = slice_of(key.data + at, n);
        at += n;
        if (at < key.len && between_pieces(key.data[at]))
            at++;
    }
}

static double number(struct slice s)
{
    double n = 0;
    for (size_t i = 0; i < s.len; i++)
        n = n * 10 + (s.data[i] - '0');
    return n;
}

/* Letters and digits mixed: no word looks like that. */
static bool scrambled(struct slice s)
{
    bool digits = false, letters = false;
    for (size_t i = 0; i < s.len; i++) {
        digits = digits || digit(s.data[i]);
        letters = letters || !digit(s.data[i]);
    }
    return digits && letters;
}

/* What two values of one place are; NULL: two words, which may mean two things. */
static const char *kind_of(struct slice a, struct slice b)
{
    if (a.len == 36 && b.len == 36 && uuid_at(a.data, 36) && uuid_at(b.data, 36))
        return "a UUID";
    if (all(a, digit) && all(b, digit)) {
        double x = number(a), y = number(b);
        if (a.len == b.len &&
            ((a.len == 10 && x > 9e8 && x < 5e9) || (a.len == 13 && x > 9e11 && x < 5e12) ||
             (a.len == 14 && x > 1.9e13 && x < 2.2e13) || (a.len == 16 && x > 9e14 && x < 5e15)))
            return "a timestamp";
        if (x - y < 1000 && y - x < 1000)
            return "a counter";
        return "a random part";
    }
    if (a.len >= 19 && a.data[4] == '-' && (a.data[10] == 'T' || a.data[10] == ' '))
        return "a timestamp";
    if (a.len == b.len && a.len >= 4 && all(a, hex) && all(b, hex) && (scrambled(a) || scrambled(b)))
        return "a random part";
    return a.len == b.len && a.len >= 6 && scrambled(a) && scrambled(b) ? "a random part" : NULL;
}

struct volatile_part key_volatile_part(const struct slice *keys, size_t count)
{
    struct volatile_part none = {0}, found = {0};
    struct pieces first, other;
    cut(keys[0], &first);
    bool common = first.count == 1; /* a key that is one piece needs nothing around it */
    for (size_t k = 1; k < count; k++) {
        cut(keys[k], &other);
        if (other.count != first.count)
            return none;
        for (size_t i = 0; i < first.count; i++) {
            if (slice_equal(first.piece[i], other.piece[i])) {
                common = true;
                continue;
            }
            const char *what = kind_of(first.piece[i], other.piece[i]);
            if (!what)
                return none;
            if (!found.what || strcmp(what, "a timestamp") == 0)
                found = (struct volatile_part){what, first.piece[i]};
        }
    }
    return common ? found : none;
}

void judge_keys(struct judge *j)
{
    enum { KEYS_MAX = 8 };
    const struct group *g = j->op.group;
    struct slice keys[KEYS_MAX];
    struct line_refs lines = {0};
    size_t count = 0;
    if (j->op.weak)
        return;
    for (size_t i = 0; i < g->count && count < KEYS_MAX; i++) {
        struct slice key = g->event[i].text[TEXT_KEY];
        bool known = key.len == 0;
        for (size_t k = 0; k < count && !known; k++)
            known = slice_equal(keys[k], key);
        if (known)
            continue;
        keys[count++] = key;
        line_refs_add(&lines, &g->event[i]);
    }
    if (count < 2)
        return;
    /* Two keys under one callId are one intention's. Under one business key they may be two actions on it (create,
     * cancel), unless what differs is volatile. */
    bool one_call = false;
    for (size_t c = 0; c < j->op.calls && !one_call; c++) {
        struct slice first = {0};
        for (size_t i = j->op.call[c].first; i < j->op.call[c].first + j->op.call[c].count; i++) {
            struct slice key = g->event[j->op.order[i]].text[TEXT_KEY];
            if (first.len && key.len && !slice_equal(first, key) && j->op.call[c].id.len)
                one_call = true;
            if (key.len)
                first = key;
        }
    }
    struct volatile_part part = key_volatile_part(keys, count);
    if (part.what)
        judge_find(j, FINDING_KEY_VOLATILE, one_call ? CERTAIN : LIKELY,
                   judge_sayf(j, "%zu keys for one intention differ by %s (%.*s in %.*s)", count, part.what,
                              (int)part.example.len, part.example.data, (int)keys[0].len, keys[0].data),
                   &lines);
    else if (one_call)
        judge_find(j, FINDING_KEY_CHANGED, CERTAIN,
                   judge_sayf(j, "%zu keys under one callId, %.*s and %.*s among them", count,
                              (int)keys[0].len, keys[0].data, (int)keys[1].len, keys[1].data),
                   &lines);
}

void judge_cache(struct judge *j)
{
    const struct operation *op = &j->op;
    for (size_t c = 0; c < op->calls; c++) {
        const struct event *effect = NULL;
        bool asked_before = false;
        for (size_t i = op->call[c].first; i < op->call[c].first + op->call[c].count; i++) {
            const struct event *e = operation_event(op, op->order[i]);
            if (e->kind == KIND_EFFECT && !effect)
                effect = e;
            if (e->kind != KIND_CACHE_ASKED)
                continue;
            if (!effect)
                asked_before = true;
            else if (!asked_before) {
                struct line_refs lines = {0};
                line_refs_add(&lines, effect);
                line_refs_add(&lines, e);
                judge_find(j, FINDING_CACHE_LATE, CERTAIN,
                           judge_say(j, slice_text("the effect was committed and then the cache was asked")),
                           &lines);
                return;
            }
        }
    }
}
