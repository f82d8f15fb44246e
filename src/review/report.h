/* SPDX-License-Identifier: MIT
 *
 * A finished review as text for people, as JSON, and as SARIF 2.1.0 for code hosts. Bytes that came from the
 * files are cleaned on the way: no control character reaches a terminal, no invalid UTF-8 a JSON document.
 */
#ifndef SAMEKEY_REVIEW_REPORT_H
#define SAMEKEY_REVIEW_REPORT_H

#include "review/review.h"

/* Findings with the offending line, the danger in one sentence and the remedy, then the figures of each policy.
 * colour: escape codes for a terminal. */
void review_report_text(struct buffer *out, const struct review *r, bool colour);

/* {"findings":[{rule,slug,level,question,file,line,place,detail,text,danger,remedy,silenced}],
 *  "policies":[{format,name,file,line,attempts,worst_case_ms,budget_ms,key_life_ms,figures}],
 *  "problems":[{file,line,what}],"notes":[…],"dropped":N} */
enum status review_report_json(struct buffer *out, const struct review *r);

/* SARIF 2.1.0 (OASIS, 27 March 2020): one run, all rules, findings as results with a region, silenced ones with
 * an inSource suppression, problems as notifications of a failed invocation. */
enum status review_report_sarif(struct buffer *out, const struct review *r);

/* Problems and notes for stderr, one line each. */
void review_report_talk(struct buffer *out, const struct review *r);

/* Appends s: control characters as "?", invalid UTF-8 as U+FFFD, at most max bytes of it. */
void review_report_clean(struct buffer *out, struct slice s, size_t max);

#endif
