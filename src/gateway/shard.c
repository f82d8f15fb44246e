/* SPDX-License-Identifier: MIT */
#include "gateway/shard.h"

#include "gateway/answer.h"
#include "gateway/pass.h"
#include "gateway/receipts.h"
#include "gateway/visit.h"
#include "net/status_text.h"

#include <stdlib.h>

#define JOBS_IDLE_MAX     256         /* finished jobs kept for the next request */
#define JOB_MEMORY_MAX    (32u << 10) /* bytes of answer memory that a kept job may hold */
#define READS_NOW_MAX     32          /* reads that a turn runs itself: a fraction of a millisecond */
#define UPSTREAM_HEAD_MAX (64u << 10) /* bytes of an upstream's answer head */

/* ---- outlets ------------------------------------------------------------------------------------------------ */

struct outlets *outlets_new(struct shard *shard, struct setup *setup)
{
    struct outlets *o = calloc(1, sizeof *o);
    size_t count = setup->settings->route_count;
    struct client **clients = calloc(count ? count : 1, sizeof *clients);
    if (!o || !clients)
        goto failed;
    o->setup = setup;
    o->holds = 1;
    o->count = count;
    o->clients = clients;
    for (size_t i = 0; i < count; i++) {
        const struct route_settings *s = setup->lanes[i].s;
        struct client_settings settings = {
            .connect_timeout_ms = (uint32_t)s->attempt_timeout_ms,
            .idle_timeout_ms = (uint32_t)s->upstream_idle_ms,
            .idle_max = (uint32_t)s->upstream_connections,
            .headers_bytes_max = UPSTREAM_HEAD_MAX,
            .name_life_ms = (uint32_t)s->upstream_name_life_ms,
            .ca_file = *s->upstream_ca_file ? s->upstream_ca_file : NULL,
            .tls_verify = true,
        };
        if (client_new(&clients[i], shard->loop, &settings) != STATUS_OK)
            goto failed;
    }
    setup_hold(setup);
    return o;
failed:
    for (size_t i = 0; clients && i < count; i++)
        client_free(clients[i]);
    free(clients);
    free(o);
    return NULL;
}

struct outlets *outlets_hold(struct outlets *o)
{
    o->holds++;
    return o;
}

void outlets_release(struct outlets *o)
{
    if (!o || --o->holds)
        return;
    for (size_t i = 0; i < o->count; i++)
        client_free(o->clients[i]);
    free(o->clients);
    setup_release(o->setup);
    free(o);
}

/* ---- jobs --------------------------------------------------------------------------------------------------- */

static void job_opened(struct letter *letter)
{
    struct job *job = LIST_ENTRY(letter, struct job, letter);
    job->shard->jobs_out--;
    job->then(job);
}

/* On a store thread. */
static void job_answered(struct store_op *op)
{
    struct job *job = LIST_ENTRY(op, struct job, op);
    mailbox_put(job->shard->loop, &job->letter); /* rung by the gateway, once for a batch */
}

struct job *job_new(struct shard *shard, enum store_kind kind, void *owner, void (*then)(struct job *job))
{
    struct job *job;
    struct list *idle = list_pop_front(&shard->jobs);
    if (idle) {
        job = LIST_ENTRY(idle, struct job, idle);
        shard->jobs_idle--;
        struct buffer memory = job->op.memory;
        memset(&job->op, 0, offsetof(struct store_op, expired));
        job->op.count = 0;
        buffer_clear(&memory);
        job->op.memory = memory;
    } else {
        job = calloc(1, sizeof *job);
        if (!job)
            return NULL;
        job->shard = shard;
        job->letter.open = job_opened;
        job->op.answered = job_answered;
    }
    list_init(&job->op.link);
    list_init(&job->letter.link);
    list_init(&job->idle);
    job->op.kind = kind;
    job->owner = owner;
    job->then = then;
    return job;
}

/* Looks into the store whatever can be had without waiting; the rest stays in the outbox. What reads hand on to another
 * thread and take back costs more than the look. */
static void read_now(struct shard *shard)
{
    struct store_op *ops[READS_NOW_MAX];
    size_t count = 0;
    for (struct list *l = shard->outbox.next, *next; l != &shard->outbox && count < READS_NOW_MAX; l = next) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        next = l->next;
        if (op->kind == STORE_READ || (op->kind == STORE_LOOKUP && !op->any_tenant)) {
            list_remove(l);
            ops[count++] = op;
        }
    }
    size_t done = count ? store_reader_run_now(shard->reader, ops, count) : 0;
    for (size_t i = done; i < count; i++)
        list_push_back(&shard->outbox, &ops[i]->link);
    for (size_t i = 0; i < done; i++)
        job_opened(&LIST_ENTRY(ops[i], struct job, op)->letter);
}

static void send_jobs(struct shard *shard)
{
    struct list *l;
    if (list_empty(&shard->outbox))
        return;
    if (shard->worker) /* else the store has stopped, and takes nothing */
        worker_submit_all(shard->worker, &shard->outbox);
    while ((l = list_pop_front(&shard->outbox)) != NULL) {
        struct job *job = LIST_ENTRY(l, struct job, op.link);
        job->op.status = STATUS_FULL;
        mailbox_post(shard->loop, &job->letter);
    }
}

void shard_turn(void *context)
{
    struct shard *shard = context;
    if (shard->worker && shard->reader && !list_empty(&shard->outbox))
        read_now(shard);
    send_jobs(shard);
}

void job_submit(struct job *job)
{
    job->shard->jobs_out++;
    list_push_back(&job->shard->outbox, &job->op.link);
    /* One that may be cancelled must be where worker_cancel() looks for it. */
    if (job->op.kind == STORE_WATCH)
        send_jobs(job->shard);
}

void job_free(struct job *job)
{
    if (!job)
        return;
    struct shard *shard = job->shard;
    if (shard->jobs_idle >= JOBS_IDLE_MAX || job->op.memory.capacity > JOB_MEMORY_MAX) {
        store_op_fini(&job->op);
        free(job);
        return;
    }
    shard->jobs_idle++;
    list_push_front(&shard->jobs, &job->idle);
}

double shard_random(struct shard *shard)
{
    return prng_double(&shard->random);
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

static void refuse(struct shard *shard, struct request *request, enum problem problem, const char *detail)
{
    struct problem_facts facts = {.detail = slice_text(detail),
                                  .state = STATE_NOT_RECEIVED,
                                  .next = NEXT_FIX_REQUEST,
                                  .retry_after_s = -1};
    struct answer_facts own = {.outcome = problem_outcome(problem)};
    metrics_add(shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    request_set_user(request, NULL);
    problem_answer(request, problem, &facts, &own);
}

static void on_head(void *context, struct request *request)
{
    struct shard *shard = context;
    const struct request_head *head = request_head(request);
    static const char own[] = RECEIPTS_PREFIX;
    if (head->path.len >= sizeof own - 1 && memcmp(head->path.data, own, sizeof own - 1) == 0) {
        receipts_begin(shard, request, false);
        return;
    }
    struct route_match match;
    struct setup *setup = shard_setup(shard);
    if (routes_match(setup->routes, head->method, head->target, &match) != STATUS_OK) {
        refuse(shard, request, PROBLEM_NO_ROUTE,
               "no pattern of the configuration fits this path as it is spelled");
        return;
    }
    const struct lane *lane = &setup->lanes[match.route_index];
    if (match.guarded && lane->s->mode == MODE_GUARD)
        visit_begin(shard, request, lane, &match);
    else
        pass_begin(shard, request, lane, &match);
}

void guest_body(void *context, struct request *request, struct slice piece)
{
    struct guest *guest = request_user(request);
    (void)context;
    if (guest)
        guest->body(guest, piece);
}

void guest_body_end(void *context, struct request *request)
{
    struct guest *guest = request_user(request);
    (void)context;
    if (guest)
        guest->body_end(guest);
}

void guest_drain(void *context, struct request *request)
{
    struct guest *guest = request_user(request);
    (void)context;
    if (guest)
        guest->drain(guest);
}

void guest_finished(void *context, struct request *request, bool gone)
{
    struct guest *guest = request_user(request);
    (void)context;
    if (guest)
        guest->finished(guest, gone);
}

void guest_refused(void *context, int status, const char *reason, struct buffer *out)
{
    struct shard *shard = context;
    enum problem problem = status == 431   ? PROBLEM_HEADERS_TOO_LARGE
                           : status == 413 ? PROBLEM_BODY_TOO_LARGE
                                           : PROBLEM_REQUEST_INVALID;
    struct problem_facts facts = {.detail = slice_text(reason),
                                  .state = STATE_NOT_RECEIVED,
                                  .next = NEXT_FIX_REQUEST,
                                  .retry_after_s = -1,
                                  .status = problem == PROBLEM_REQUEST_INVALID ? status : 0};
    struct buffer body = {0};
    problem_document(&body, problem, &facts);
    int told = problem_answer_status(problem, &facts);
    buffer_format(out,
                  "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nCall-Outcome: rejected\r\n"
                  "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                  told, status_text(told), body.len);
    buffer_slice(out, buffer_view(&body));
    buffer_fini(&body);
    if (shard)
        metrics_add(shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
}

const struct server_handlers shard_handlers = {on_head,     guest_body,     guest_body_end,
                                               guest_drain, guest_finished, guest_refused};
