/* SPDX-License-Identifier: MIT
 *
 * The four steps over one operation at a time. Step 1: did the callId change? Step 2: did one key run more than once,
 * and can the key work at all? Step 3: do receipts and effects agree? Step 4: was each repeat lawful? What only many
 * operations together can show (waves, waits that do not grow) is collected in `policy` and judged at the end.
 *
 * Rules of law are CONTRACT section 3's: after an unclear ending nothing is sent again before a receipt said
 * NOT_RECEIVED or FAILED; a definite rejection is not repeated; what was proved not executed may be sent again.
 */
#ifndef SAMEKEY_FORENSICS_JUDGE_H
#define SAMEKEY_FORENSICS_JUDGE_H

#include "forensics/diagnosis.h"
#include "forensics/facts.h"
#include "forensics/operation.h"
#include "forensics/policy.h"

/* Two callIds of one intention within this time, the first unanswered, were sent by one program at once. */
#define DOUBLE_DISPATCH_US 500000
/* A new call this long after the first one's success is another occasion and no repeat. */
#define SAME_OCCASION_US INT64_C(600000000)

struct judge {
    struct diagnosis *d;
    const struct facts *facts; /* or NULL */
    struct operation op;
    struct arena scratch; /* sentences about the operation being judged */
    struct policy policy;
    bool receipts_seen;   /* somebody in these logs asks for receipts */
    uint64_t with_effect; /* operations that succeeded and whose effect is in the logs */
    struct no_effect {    /* succeeded, and no effect is in the logs: judged at the end */
        struct slice key, text;
        struct line_refs *lines;
    } no_effect[64];
    uint64_t no_effect_count;
};

/* Begins; d and facts (or NULL) stay the caller's. */
void judge_init(struct judge *j, struct diagnosis *d, const struct facts *facts);

/* Judges one operation. STATUS_NO_MEMORY. */
enum status judge_group(struct judge *j, struct group *group);

/* Adds what the look at the key's column showed (step 2). */
struct key_column;
void judge_key_column(struct judge *j, const char *table, const char *column, const struct key_column *k);

/* What the operations show together. Call once, behind the last group. */
enum status judge_end(struct judge *j);

void judge_fini(struct judge *j);

/* The part of idempotency keys of one intention that differs, and what it is; see key_step.c. */
struct volatile_part {
    const char *
        what; /* "a timestamp", "a UUID", "a counter", "a random part" or NULL: the keys have nothing in common */
    struct slice example; /* of the first key; borrowed */
};
struct volatile_part key_volatile_part(const struct slice *keys, size_t count);

#endif
