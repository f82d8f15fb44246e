/* SPDX-License-Identifier: MIT */
#include "caller/limits.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUSY_MS      2000
#define FORMAT       1
#define NAME_MAX_LEN 300
/* Bytes of the lock file: attempts from 0, retries from 2^20, probes by their origin from 2^32. */
#define SLOT_RETRIES (UINT64_C(1) << 20)
#define SLOT_PROBES  (UINT64_C(1) << 32)

static const char *const WHY_BUDGET = "the retry budget is used up";
static const char *const WHY_BREAKER =
    "the breaker of this service is open, since too many attempts failed lately";
static const char *const WHY_PROBE = "the breaker of this service is half open and another attempt probes it";
static const char *const WHY_CALLS = "too many attempts are in flight";
static const char *const WHY_RETRIES = "too many retries are in flight";

struct origin {
    char name[NAME_MAX_LEN + 8];
    struct breaker breaker;
    int64_t used_ms;
};

struct limits {
    struct limits_rule rule;
    pthread_mutex_t mutex;
    /* memory */
    struct budget budget;
    bool budget_begun;
    struct origin *origins[LIMITS_ORIGINS_MAX];
    size_t origin_count;
    unsigned calls, retries;
    /* shared */
    char *path, *lock_path;
    char boot[64];
    sqlite3 *db;
};

static void read_boot(char *out, size_t size)
{
    out[0] = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, out, size - 1);
    out[len > 0 ? len : 0] = 0;
    close(fd);
}

/* ---- limits.db ---------------------------------------------------------------------------------------------- */

static bool db_run(struct limits *l, const char *sql)
{
    return sqlite3_exec(l->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static void db_close(struct limits *l)
{
    sqlite3_close(l->db);
    l->db = NULL;
}

/* Whether the file itself is at fault. Then it is removed: the next opening makes it anew. */
static bool db_damaged(struct limits *l)
{
    char name[4096];
    int code = sqlite3_errcode(l->db) & 0xFF;
    if (code != SQLITE_CORRUPT && code != SQLITE_NOTADB)
        return false;
    db_close(l);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", l->path, ends[i]);
        unlink(name);
    }
    return true;
}

static bool db_try_open(struct limits *l, bool *damaged)
{
    *damaged = false;
    int fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); /* SQLite would make it 0644 */
    if (fd < 0)
        return false;
    close(fd);
    if (sqlite3_open_v2(l->path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        db_close(l);
        return false;
    }
    sqlite3_busy_timeout(l->db, BUSY_MS);
    /* Unsynced, but with a write-ahead log: a killed process leaves a whole file behind. */
    if (db_run(l, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
                  "CREATE TABLE IF NOT EXISTS counts(name TEXT PRIMARY KEY, boot TEXT, format INT, used INT,"
                  " value BLOB) WITHOUT ROWID"))
        return true;
    *damaged = db_damaged(l);
    db_close(l);
    return false;
}

/* Opens it, and makes it anew when it is damaged. */
static bool db_open(struct limits *l)
{
    if (l->db)
        return true;
    if (!l->path)
        return false;
    bool damaged;
    return db_try_open(l, &damaged) || (damaged && db_try_open(l, &damaged));
}

static bool db_load(struct limits *l, const char *name, void *value, size_t size)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    if (sqlite3_prepare_v2(l->db, "SELECT value FROM counts WHERE name=?1 AND boot=?2 AND format=?3", -1,
                           &statement, NULL) == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, l->boot, -1, SQLITE_STATIC);
        sqlite3_bind_int(statement, 3, FORMAT);
        if (sqlite3_step(statement) == SQLITE_ROW && (size_t)sqlite3_column_bytes(statement, 0) == size) {
            memcpy(value, sqlite3_column_blob(statement, 0), size);
            found = true;
        }
    }
    sqlite3_finalize(statement);
    return found;
}

static bool db_save(struct limits *l, const char *name, const void *value, size_t size, int64_t now_ms)
{
    sqlite3_stmt *statement = NULL;
    bool saved = false;
    if (sqlite3_prepare_v2(l->db, "INSERT OR REPLACE INTO counts VALUES(?1, ?2, ?3, ?4, ?5)", -1, &statement,
                           NULL) == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, l->boot, -1, SQLITE_STATIC);
        sqlite3_bind_int(statement, 3, FORMAT);
        sqlite3_bind_int64(statement, 4, now_ms);
        sqlite3_bind_blob(statement, 5, value, (int)size, SQLITE_STATIC);
        saved = sqlite3_step(statement) == SQLITE_DONE;
    }
    sqlite3_finalize(statement);
    return saved;
}

/* ---- the counts of one decision ----------------------------------------------------------------------------- */

struct counts {
    struct budget *budget;
    struct breaker *breaker;
    struct budget kept_budget;
    struct breaker kept_breaker;
    char name[NAME_MAX_LEN + 8];
    uint64_t probe; /* the origin's byte of the lock file */
    bool shared;
};

static bool same_rule(const struct breaker_rule *a, const struct breaker_rule *b)
{
    return a->failures_percent == b->failures_percent && a->calls_min == b->calls_min &&
           a->window_ms == b->window_ms && a->open_ms == b->open_ms && a->probes == b->probes;
}

static struct breaker *memory_breaker(struct limits *l, const char *name, int64_t now_ms)
{
    size_t oldest = 0;
    for (size_t i = 0; i < l->origin_count; i++) {
        if (strcmp(l->origins[i]->name, name) == 0) {
            l->origins[i]->used_ms = now_ms;
            return &l->origins[i]->breaker;
        }
        if (l->origins[i]->used_ms < l->origins[oldest]->used_ms)
            oldest = i;
    }
    struct origin *o;
    if (l->origin_count < LIMITS_ORIGINS_MAX && (o = calloc(1, sizeof *o)) != NULL)
        l->origins[l->origin_count++] = o;
    else if (l->origin_count > 0)
        o = l->origins[oldest];
    else
        return NULL;
    snprintf(o->name, sizeof o->name, "%s", name);
    o->used_ms = now_ms;
    breaker_init(&o->breaker, &l->rule.breaker, now_ms);
    return &o->breaker;
}

/* Finds the counts and keeps everybody else away from them until counts_end(). */
static bool counts_begin(struct limits *l, struct slice origin, int64_t now_ms, bool shared, struct counts *c)
{
    pthread_mutex_lock(&l->mutex);
    int len = origin.len < NAME_MAX_LEN - 1 ? (int)origin.len : NAME_MAX_LEN - 1;
    snprintf(c->name, sizeof c->name, "b:%.*s", len, origin.len ? origin.data : "");
    c->shared = shared && db_open(l) && db_run(l, "BEGIN IMMEDIATE");
    if (shared && !c->shared && l->db)
        db_close(l); /* damaged, or locked for too long: our own counts, this time */
    if (!c->shared) {
        if (!l->budget_begun)
            budget_init(&l->budget, l->rule.budget_percent, l->rule.budget_floor, now_ms);
        l->budget_begun = true;
        c->budget = &l->budget;
        c->breaker = memory_breaker(l, c->name, now_ms);
        return c->breaker != NULL;
    }
    uint64_t hash =
        UINT64_C(14695981039346656037); /* FNV-1a: a place among 2^61 bytes of a file, not a secret */
    for (const char *p = c->name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
    c->probe = SLOT_PROBES + (hash >> 3);
    c->budget = &c->kept_budget;
    c->breaker = &c->kept_breaker;
    if (!db_load(l, "budget", c->budget, sizeof *c->budget) || c->budget->floor_ms > now_ms)
        budget_init(c->budget, l->rule.budget_percent, l->rule.budget_floor, now_ms);
    c->budget->percent = l->rule.budget_percent;
    c->budget->floor_a_second = l->rule.budget_floor;
    if (!db_load(l, c->name, c->breaker, sizeof *c->breaker) || !breaker_invariant(c->breaker) ||
        !same_rule(&c->breaker->rule, &l->rule.breaker))
        breaker_init(c->breaker, &l->rule.breaker, now_ms);
    return true;
}

static void counts_end(struct limits *l, struct counts *c, int64_t now_ms)
{
    if (c->shared) {
        bool kept = db_save(l, "budget", c->budget, sizeof *c->budget, now_ms) &&
                    db_save(l, c->name, c->breaker, sizeof *c->breaker, now_ms) && db_run(l, "COMMIT");
        if (!kept && !db_damaged(l))
            db_close(l); /* rolls back */
    }
    pthread_mutex_unlock(&l->mutex);
}

/* A probe whose process was killed never reports: its lock is free, so the place is given back for it. */
static void bury_lost_probes(struct limits *l, struct counts *c, int64_t now_ms)
{
    struct breaker *b = c->breaker;
    if (!c->shared || breaker_state_now(b, now_ms) != BREAKER_HALF_OPEN || b->state != BREAKER_HALF_OPEN)
        return;
    unsigned alive = 0;
    for (unsigned i = 0; i < b->rule.probes; i++) {
        struct slot slot = SLOT_NONE;
        alive += slot_take(&slot, l->lock_path, c->probe + i) == STATUS_CONFLICT;
        slot_release(&slot);
    }
    while (b->probes_running > alive)
        breaker_report(b, now_ms, (struct breaker_ticket){b->generation}, BREAKER_NEUTRAL, 0);
}

/* ---- entering ----------------------------------------------------------------------------------------------- */

static bool take_places(struct limits *l, struct counts *c, bool is_retry, struct limits_pass *pass,
                        const char **why)
{
    const struct limits_rule *rule = &l->rule;
    if (!c->shared) {
        *why = rule->calls_in_flight && l->calls >= rule->calls_in_flight                     ? WHY_CALLS
               : is_retry && rule->retries_in_flight && l->retries >= rule->retries_in_flight ? WHY_RETRIES
                                                                                              : NULL;
        return !*why;
    }
    /* A lock file that cannot be used is as no limit: the attempts are this user's own. */
    if (rule->calls_in_flight &&
        slot_take_any(&pass->call, l->lock_path, 0, rule->calls_in_flight) == STATUS_CONFLICT) {
        *why = WHY_CALLS;
        return false;
    }
    if (is_retry && rule->retries_in_flight &&
        slot_take_any(&pass->retry_slot, l->lock_path, SLOT_RETRIES, rule->retries_in_flight) ==
            STATUS_CONFLICT) {
        *why = WHY_RETRIES;
        return false;
    }
    return true;
}

static void release_places(struct limits_pass *pass)
{
    slot_release(&pass->call);
    slot_release(&pass->retry_slot);
    slot_release(&pass->probe);
}

bool limits_enter(struct limits *l, struct slice origin, bool is_retry, int64_t now_ms,
                  struct limits_pass *pass, enum call_denial *denial, int64_t *retry_in_ms, const char **why)
{
    struct counts c = {0};
    *pass = (struct limits_pass){
        .retry = is_retry, .call = SLOT_NONE, .retry_slot = SLOT_NONE, .probe = SLOT_NONE};
    *retry_in_ms = -1;
    *denial = CALL_DENIED_BUDGET;
    *why = NULL;
    if (!counts_begin(l, origin, now_ms, l->path != NULL, &c)) {
        *why = WHY_CALLS; /* no memory for a breaker: nothing is let out unwatched */
        pthread_mutex_unlock(&l->mutex);
        return false;
    }
    pass->shared = c.shared;
    bury_lost_probes(l, &c, now_ms);
    if (!is_retry)
        budget_call(c.budget, now_ms);
    if (is_retry && !budget_has(c.budget, now_ms)) {
        *why = WHY_BUDGET;
    } else if (take_places(l, &c, is_retry, pass, why)) {
        if (breaker_admit(c.breaker, now_ms, &pass->ticket)) {
            if (is_retry)
                budget_take(c.budget, now_ms);
        } else {
            *denial = CALL_DENIED_BREAKER;
            *retry_in_ms = breaker_wait_ms(c.breaker, now_ms);
            *why = c.breaker->state == BREAKER_HALF_OPEN ? WHY_PROBE : WHY_BREAKER;
        }
    }
    if (!*why && c.shared && c.breaker->state == BREAKER_HALF_OPEN)
        slot_take_any(&pass->probe, l->lock_path, c.probe, c.breaker->rule.probes);
    if (!*why && !c.shared) {
        l->calls++;
        l->retries += is_retry;
    }
    counts_end(l, &c, now_ms);
    if (*why)
        release_places(pass);
    return !*why;
}

void limits_leave(struct limits *l, struct slice origin, int64_t now_ms, struct limits_pass *pass,
                  enum breaker_verdict verdict, double u)
{
    struct counts c = {0};
    if (counts_begin(l, origin, now_ms, pass->shared, &c)) {
        /* A generation of counts that are not those it was given by moves nothing. */
        bool lost = pass->shared != c.shared ||
                    (c.breaker->state == BREAKER_HALF_OPEN && c.breaker->probes_running == 0);
        if (!lost)
            breaker_report(c.breaker, now_ms, pass->ticket, verdict, u);
        if (!pass->shared) {
            l->calls--;
            l->retries -= pass->retry;
        }
        /* The probe's lock goes before the others may look: inside the counts' own lock. */
        release_places(pass);
        counts_end(l, &c, now_ms);
    } else {
        release_places(pass);
        pthread_mutex_unlock(&l->mutex);
    }
}

/* ---- life --------------------------------------------------------------------------------------------------- */

enum status limits_open(struct limits **out, const struct limits_rule *rule, const char *path)
{
    struct limits *l = calloc(1, sizeof *l);
    if (!l)
        return STATUS_NO_MEMORY;
    l->rule = *rule;
    read_boot(l->boot, sizeof l->boot);
    if (path) {
        size_t len = strlen(path) + 8;
        l->path = malloc(len);
        l->lock_path = malloc(len);
        if (!l->path || !l->lock_path) {
            free(l->path);
            free(l->lock_path);
            free(l);
            return STATUS_NO_MEMORY;
        }
        snprintf(l->path, len, "%s", path);
        snprintf(l->lock_path, len, "%s.lock", path);
    }
    pthread_mutex_init(&l->mutex, NULL);
    *out = l;
    return STATUS_OK;
}

void limits_close(struct limits *l)
{
    if (!l)
        return;
    db_close(l);
    for (size_t i = 0; i < l->origin_count; i++)
        free(l->origins[i]);
    pthread_mutex_destroy(&l->mutex);
    free(l->path);
    free(l->lock_path);
    free(l);
}
