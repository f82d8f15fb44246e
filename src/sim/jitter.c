/* SPDX-License-Identifier: MIT */
#include "sim/jitter.h"
#include "sim/agenda.h"
#include "sim/number.h"

#include "base/prng.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    double published_calls;
} STRATEGIES[JITTER_STRATEGY_COUNT] = {
    [JITTER_EXPONENTIAL] = {"exponential", 1853},
    [JITTER_NONE] = {"none", 2421},
    [JITTER_EQUAL] = {"equal", 813},
    [JITTER_FULL] = {"full", 796},
    [JITTER_DECORRELATED] = {"decorrelated", 1002},
    [JITTER_TWENTY] = {"twenty_percent", 0},
};

enum message { READ_ARRIVES, VERSION_ARRIVES, WRITE_ARRIVES, LOST_ARRIVES, WON_ARRIVES };

struct client {
    unsigned waits;
    double last_wait_ms; /* only decorrelated looks back */
};

struct contest {
    const struct jitter_parameters *p;
    enum jitter_strategy strategy;
    struct agenda agenda;
    struct client *clients;
    struct prng random;
    uint64_t version, calls;
};

/* One of two independent normal numbers that two uniform ones give (Box and Muller, 1958). Half of them are thrown
 * away: kept ones would be state that a reader must follow. */
static double normal(struct prng *g, double mean, double deviation)
{
    static const double TURN = 6.283185307179586;
    double u = 1 - prng_double(g); /* (0, 1]: the logarithm is finite */
    return mean + deviation * sqrt(-2 * log(u)) * cos(TURN * prng_double(g));
}

static double message_ms(struct contest *c)
{
    return fabs(normal(&c->random, c->p->delay_mean_ms, c->p->delay_deviation_ms));
}

static double uniform(struct prng *g, double low, double high)
{
    return low + (high - low) * prng_double(g);
}

static double wait_ms(struct contest *c, struct client *client)
{
    double base = c->p->base_ms, cap = c->p->cap_ms;
    double span = fmin(cap, ldexp(base, (int)(client->waits < 1000 ? client->waits : 1000)));
    switch (c->strategy) {
    case JITTER_EXPONENTIAL:
        return span;
    case JITTER_EQUAL:
        return uniform(&c->random, span / 2, span);
    case JITTER_FULL:
        return uniform(&c->random, 0, span);
    case JITTER_DECORRELATED:
        return client->last_wait_ms = fmin(cap, uniform(&c->random, base, client->last_wait_ms * 3));
    case JITTER_TWENTY:
        return uniform(&c->random, span * 0.8, span * 1.2);
    case JITTER_NONE:
    case JITTER_STRATEGY_COUNT:
        break;
    }
    return 0;
}

/* One contest to its end. */
static enum status contest_run(struct contest *c, uint64_t clients, double *completion_ms)
{
    agenda_clear(&c->agenda);
    c->version = 0;
    c->calls = 0;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; !status && i < clients; i++) {
        c->clients[i] = (struct client){.last_wait_ms = c->p->base_ms};
        status = agenda_add(&c->agenda, message_ms(c), READ_ARRIVES, i, 0);
    }
    struct agenda_event now = {0};
    while (!status && agenda_take(&c->agenda, &now)) {
        struct client *client = &c->clients[now.who];
        switch ((enum message)now.kind) {
        case READ_ARRIVES:
            status = agenda_add(&c->agenda, now.time + message_ms(c), VERSION_ARRIVES, now.who, c->version);
            break;
        case VERSION_ARRIVES:
            status = agenda_add(&c->agenda, now.time + message_ms(c), WRITE_ARRIVES, now.who, now.value);
            break;
        case WRITE_ARRIVES: {
            bool won = now.value == c->version;
            c->calls++;
            c->version += won;
            status = agenda_add(&c->agenda, now.time + message_ms(c), won ? WON_ARRIVES : LOST_ARRIVES,
                                now.who, 0);
            break;
        }
        case LOST_ARRIVES: {
            client->waits++;
            double wait = wait_ms(c, client);
            status = agenda_add(&c->agenda, now.time + wait + message_ms(c), READ_ARRIVES, now.who, 0);
            break;
        }
        case WON_ARRIVES:
            break;
        }
    }
    *completion_ms = now.time;
    assert(status || c->version == clients); /* each client won exactly once */
    return status;
}

const char *jitter_name(enum jitter_strategy s)
{
    return STRATEGIES[s].name;
}

double jitter_published_calls(enum jitter_strategy s)
{
    return STRATEGIES[s].published_calls;
}

void jitter_defaults(struct jitter_parameters *p)
{
    *p = (struct jitter_parameters){.clients = 100,
                                    .runs = 100,
                                    .steps = 10,
                                    .base_ms = 5,
                                    .cap_ms = 2000,
                                    .delay_mean_ms = 10,
                                    .delay_deviation_ms = 2,
                                    .seed = 42};
}

enum status jitter_check(const struct jitter_parameters *p, char *message)
{
    if (p->steps > p->clients) {
        snprintf(message, NUMBER_MESSAGE_BYTES, "--steps %llu is more than --clients %llu",
                 (unsigned long long)p->steps, (unsigned long long)p->clients);
        return STATUS_INVALID;
    }
    if (p->base_ms > p->cap_ms) {
        snprintf(message, NUMBER_MESSAGE_BYTES, "--base %g ms is over --cap %g ms", p->base_ms, p->cap_ms);
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

enum status jitter_run(const struct jitter_parameters *p, struct jitter_result *result,
                       struct progress *progress)
{
    struct contest c = {.p = p};
    enum status status = STATUS_NO_MEMORY;
    c.clients = calloc(p->clients, sizeof *c.clients);
    if (!c.clients)
        goto done;
    status = STATUS_OK;
    double work = 0, done = 0; /* a contest costs about the square of its clients */
    for (uint64_t step = 1; step <= p->steps; step++)
        work += (double)(step * step);
    for (uint64_t step = 1; step <= p->steps; step++) {
        uint64_t clients = p->clients * step / p->steps;
        for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++) {
            double calls = 0, calls2 = 0, time = 0, time2 = 0, n = (double)p->runs;
            c.strategy = (enum jitter_strategy)s;
            /* Seeded anew for each cell, so that a table of fewer steps holds the same numbers. */
            prng_seed(&c.random, p->seed + clients * 1000003u + s * 7919u);
            for (uint64_t run = 0; run < p->runs; run++) {
                double completion = 0;
                status = contest_run(&c, clients, &completion);
                if (status)
                    goto done;
                calls += (double)c.calls;
                calls2 += (double)c.calls * (double)c.calls;
                time += completion;
                time2 += completion * completion;
                progress_tell(progress, (done + (double)(step * step) * ((double)s + (double)run / n) /
                                                    JITTER_STRATEGY_COUNT) /
                                            work);
            }
            result->cell[s][step - 1] = (struct jitter_cell){
                .clients = clients,
                .calls = calls / n,
                .completion_ms = time / n,
                .calls_deviation = sqrt(fmax(0, calls2 / n - calls / n * (calls / n))),
                .completion_deviation_ms = sqrt(fmax(0, time2 / n - time / n * (time / n))),
            };
        }
        done += (double)(step * step);
    }
done:
    agenda_fini(&c.agenda);
    free(c.clients);
    return status;
}
