/* SPDX-License-Identifier: MIT
 *
 * What the parts of a visit know of each other: visit.c (arrival, patience, end), visit_decide.c (the store's word and
 * what follows from it), visit_holder.c (asking about another call), visit_answer.c (what the caller hears). Nobody else
 * includes this.
 */
#ifndef SAMEKEY_GATEWAY_VISIT_PARTS_H
#define SAMEKEY_GATEWAY_VISIT_PARTS_H

#include "gateway/visit.h"

struct visit *visit_hold(struct visit *visit);
/* Gives a hold back; the last one frees. */
void visit_drop(struct visit *visit);
/* Monotonic milliseconds of this turn of the loop. */
int64_t visit_now(const struct visit *visit);
/* Gives back whatever the visit has of the admission: a place, a ticket, a seat in the queue. Does no harm twice. */
void visit_leave_admission(struct visit *visit);
/* Asks for a place; visit->refusal tells what came of it. */
void visit_enter_admission(struct visit *visit);
/* Stops waiting for another's run. */
void visit_unjoin(struct visit *visit);
/* Answers that the store could not be asked or could not write. */
void visit_store_failed(struct visit *visit, enum status status);
/* Asks the store for this call and key: with `peek` only looks, else claims where both are new. */
void visit_ask_store(struct visit *visit, bool peek);
/* Performs the keeper's verdict on these rows. */
void visit_decide(struct visit *visit, const struct rows *rows);
/* Asks the receipt of rows->holder, which is UNKNOWN, writes down what it says, and decides again. */
void visit_ask_holder(struct visit *visit, const struct rows *rows);
/* Notes for people that this client swaps keys; `other` is the call it met, or NULL. `request` may be NULL. */
void visit_note_suspicion(struct visit *visit, const struct request *request, enum problem problem,
                          const struct call_row *other);
void visit_on_timer(struct net_timer *timer);

#endif
