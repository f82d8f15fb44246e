/* SPDX-License-Identifier: MIT
 *
 * Deadline arithmetic: how long a call may still take, and whether one more wait or attempt fits. Times are
 * monotonic milliseconds, and every sum saturates: `forever` plus anything is `forever`. The deadline is the
 * call's, over all its attempts and waits (CONTRACT sections 2 and 3).
 */
#ifndef SAMEKEY_CORE_DEADLINE_H
#define SAMEKEY_CORE_DEADLINE_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define DEADLINE_NO_BUDGET      INT64_C(-1) /* the caller named none */
#define DEADLINE_NONE           INT64_MAX   /* never */
#define DEADLINE_ATTEMPT_MIN_MS 50 /* an attempt shorter than this only makes an unknown; it is not begun */

/* a + b, held at INT64_MAX and INT64_MIN. */
int64_t deadline_add(int64_t a, int64_t b);

/* When a call must have ended: now + the lesser of the route's deadline and the caller's budget (or
 * DEADLINE_NO_BUDGET). */
int64_t deadline_from(int64_t now_ms, int64_t setting_ms, int64_t budget_ms);

/* Milliseconds left, never below 0. DEADLINE_NONE leaves DEADLINE_NONE. This is what goes upstream in
 * X-Call-Budget-Ms. */
int64_t deadline_left(int64_t deadline_ms, int64_t now_ms);

/* Whether need_ms more (0 or more) end not later than the deadline. */
bool deadline_fits(int64_t deadline_ms, int64_t now_ms, int64_t need_ms);

/* How long the next attempt may take: the attempt timeout, or what is left if that is less (the last attempt
 * is shortened, never one already sent); 0, not to be begun, if less than DEADLINE_ATTEMPT_MIN_MS is left. */
int64_t deadline_attempt_ms(int64_t deadline_ms, int64_t now_ms, int64_t attempt_timeout_ms);

/* Whether a wait and then at least a shortened attempt fit: what decides between waiting and ending at once.
 */
bool deadline_fits_wait(int64_t deadline_ms, int64_t now_ms, int64_t wait_ms);

/* Reads X-Call-Budget-Ms: digits only, too many are held at INT64_MAX. STATUS_INVALID: anything else. */
enum status deadline_parse_budget(struct slice value, int64_t *budget_ms);

#endif
