/* SPDX-License-Identifier: MIT
 *
 * The agenda of a discrete-event simulation: what will happen, earliest first. Two events at one time come out in
 * the order they went in, so that a run is the same on every machine.
 */
#ifndef SAMEKEY_SIM_AGENDA_H
#define SAMEKEY_SIM_AGENDA_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What `kind`, `who` and `value` mean is the simulation's business. */
struct agenda_event {
    double time;
    uint64_t order; /* set by agenda_add */
    uint32_t kind;
    uint32_t who;
    uint64_t value;
};

/* Starts as zero bytes; owned memory, freed by agenda_fini. */
struct agenda {
    struct agenda_event *heap;
    size_t count, capacity;
    uint64_t next_order;
};

/* Adds an event. STATUS_NO_MEMORY: nothing was added. */
enum status agenda_add(struct agenda *a, double time, uint32_t kind, uint32_t who, uint64_t value);

/* Takes the earliest event; false when there is none. */
bool agenda_take(struct agenda *a, struct agenda_event *out);

/* Forgets all events and starts counting anew; keeps the memory. */
void agenda_clear(struct agenda *a);

/* Frees the memory. */
void agenda_fini(struct agenda *a);

#endif
