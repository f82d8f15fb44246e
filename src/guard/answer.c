/* SPDX-License-Identifier: MIT */
#include "guard/answer.h"

#include "core/id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 255 /* key, fingerprint, route, tenant */

int guard_verdict(const char *word)
{
    static const char *const words[] = {"",         "run",    "replay",  "in_progress",
                                        "mismatch", "fenced", "expired", "retry_transaction"};
    for (int i = 1; i < (int)(sizeof words / sizeof words[0]); i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return 0;
}

int guard_state(const char *text)
{
    static const struct {
        const char *text;
        int state;
    } states[] = {{"NOT_RECEIVED", SAMEKEY_GUARD_STATE_NOT_RECEIVED},
                  {"PROCESSING", SAMEKEY_GUARD_STATE_PROCESSING},
                  {"SUCCESS", SAMEKEY_GUARD_STATE_SUCCESS},
                  {"FAILED", SAMEKEY_GUARD_STATE_FAILED}};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(text, states[i].text) == 0)
            return states[i].state;
    return SAMEKEY_GUARD_STATE_UNKNOWN;
}

int guard_fail(struct samekey_guard_error *error, int status, const char *code, const char *text)
{
    if (!error)
        return status;
    guard_copy(error->code, sizeof error->code, code);
    guard_copy(error->text, sizeof error->text, text);
    size_t len = strlen(error->text);
    while (len && error->text[len - 1] == '\n')
        error->text[--len] = '\0';
    return status;
}

static bool too_long(const char *text)
{
    return text && strlen(text) > NAME_BYTES_MAX;
}

const char *guard_call_wrong(const struct samekey_guard_call *call)
{
    if (!call->call_id || callid_check(slice_text(call->call_id)) != STATUS_OK)
        return "call_id is 1 to 128 of A-Z a-z 0-9 . _ : -";
    if (call->key) {
        size_t len = strlen(call->key);
        bool visible = len > 0 && len <= NAME_BYTES_MAX;
        for (size_t i = 0; visible && i < len; i++)
            visible = call->key[i] > ' ' && call->key[i] < 0x7f;
        if (!visible)
            return "key is 1 to 255 bytes of visible ASCII";
    }
    if (too_long(call->fingerprint) || too_long(call->route) || too_long(call->tenant))
        return "fingerprint, route and tenant are at most 255 bytes each; for a fingerprint give a digest";
    if (call->wait_ms < 0)
        return "wait_ms is 0 or more";
    return NULL;
}

const char *guard_ending_wrong(const struct samekey_guard_ending *ending)
{
    if (ending->state != SAMEKEY_GUARD_STATE_SUCCESS && ending->state != SAMEKEY_GUARD_STATE_FAILED)
        return "a call ends as SUCCESS or FAILED";
    if (ending->state == SAMEKEY_GUARD_STATE_SUCCESS && ending->may_run_again)
        return "a call that took effect cannot run again";
    if (ending->status && (ending->status < 100 || ending->status > 999))
        return "a result has a status of three digits";
    if (!ending->status && (ending->headers || ending->body_len))
        return "a result without a status is not kept; give one, or no headers and no body";
    if (ending->body_len && !ending->body)
        return "the body is missing";
    return NULL;
}

int64_t guard_id_time(const char *call_id)
{
    int64_t ms = 0;
    return callid_time(slice_text(call_id), &ms) == STATUS_OK ? ms : 0;
}

void guard_copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

void *guard_bytes(const void *bytes, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        return NULL;
    if (len)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

void guard_answer_clear(struct samekey_guard_answer *answer)
{
    if (!answer)
        return;
    free(answer->headers);
    free(answer->body);
    memset(answer, 0, sizeof *answer);
}

void guard_receipt_clear(struct samekey_guard_receipt *receipt)
{
    if (!receipt)
        return;
    free(receipt->document);
    memset(receipt, 0, sizeof *receipt);
}
