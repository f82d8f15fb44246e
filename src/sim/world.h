/* SPDX-License-Identifier: MIT
 *
 * The world: callers, a gateway, a network, a callee and a disk in virtual time, all driven by one seed, to find our own
 * faults by the million. The gateway's decisions are the real core (core/keeper.h, core/call.h) and its receipts are in
 * the real store on a simulated disk (sim/world_disk.h); world_gate.c performs what they decide, as src/gateway does.
 *
 *   callers ──▶ faulty network ──▶ gateway ──▶ faulty network ──▶ callee
 *      ▲                            │  core            │
 *      └──────────── answers ───────┤  store ──▶ faulty disk        judge: looks on from outside, after every step
 *
 * Always true:
 *  (1) The same parameters give the same run: the same steps, the same verdict, the same transcript, byte for byte.
 *  (2) After `steps` steps the faults stop, and the world is run until nothing more happens; then everything must have
 *      come to an end.
 *  (3) The judge (world_judge.h) sees messages, effects and answers, and never the gateway's memory.
 */
#ifndef SAMEKEY_SIM_WORLD_H
#define SAMEKEY_SIM_WORLD_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define WORLD_STEPS_MAX  10000000u
#define WORLD_WHAT_BYTES 320

enum world_fault {
#define FAULT(name, text, sentence) WORLD_##name,
#include "sim/world_faults.def"
#undef FAULT
    WORLD_FAULTS
};
#define WORLD_ALL_FAULTS ((1u << WORLD_FAULTS) - 1)

enum world_bug {
    WORLD_NO_BUG,
#define BUG(name, text, sentence) WORLD_BUG_##name,
#include "sim/world_bugs.def"
#undef BUG
    WORLD_BUGS
};

struct world_parameters {
    uint64_t seed;
    uint64_t steps;   /* events before the faults stop */
    unsigned faults;  /* mask of 1 << enum world_fault */
    unsigned callers; /* at most so many; 0: as many as the seed says */
    enum world_bug bug;
};

struct world_result {
    bool broken;                 /* an invariant broke; `what` says which */
    char what[WORLD_WHAT_BYTES]; /* one sentence */
    uint64_t steps;              /* events done, those after the faults stopped too */
    uint64_t calls, attempts, effects, answers, commits, crashes;
    uint64_t rounds; /* compensation rounds that began */
    int64_t virtual_ms;
};

const char *world_fault_text(enum world_fault fault);
const char *world_fault_sentence(enum world_fault fault);
/* Reads "loss,crash" into a mask. STATUS_INVALID: a name that is none. */
enum status world_faults_parse(const char *list, unsigned *mask);
const char *world_bug_text(enum world_bug bug);
/* STATUS_NOT_FOUND: this program has no such bug built in. */
enum status world_bug_parse(const char *text, enum world_bug *bug);
/* 42, 5000 steps, everything that can go wrong. */
void world_defaults(struct world_parameters *p);

/* Runs one world. `transcript` may be NULL; else every event is appended as "[   12] who what". Not for several threads.
 * STATUS_NO_MEMORY; STATUS_IO: SQLite could not be used at all. A broken invariant is STATUS_OK with result->broken. */
enum status world_run(const struct world_parameters *p, struct buffer *transcript,
                      struct world_result *result);

/* Looks for less that still breaks, and be it in another way (one fault of ours shows in many): fewer faults, fewer
 * callers, fewer steps. `p` must break; it is made smaller in
 * place, with `result` of its last run. Returns the runs it took. */
unsigned world_minimise(struct world_parameters *p, struct world_result *result);

#endif
