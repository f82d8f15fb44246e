/* SPDX-License-Identifier: MIT
 *
 * A configuration made ready for work: routes compiled, templates compiled, limits standing. One setup is shared
 * read-only by all loops and counted: a reload makes a new one, and calls that began under the old one end under it.
 */
#ifndef SAMEKEY_GATEWAY_SETUP_H
#define SAMEKEY_GATEWAY_SETUP_H

#include "core/call.h"
#include "core/fingerprint.h"
#include "core/template.h"
#include "gateway/admission.h"
#include "gateway/ledger.h"
#include "gateway/route.h"
#include "net/client.h"

#include <stdatomic.h>

/* `json.code = 0`: holds when the value at the path has exactly this text. */
struct success_rule {
    bool set;
    struct slice path;
    struct slice value;
    char number[64]; /* of a value that is a number: its normal form */
};

/* One route, ready. */
struct lane {
    const struct route_settings *s;
    size_t index;
    size_t series; /* its number in the metrics: stays the route's over reloads (metrics_route) */
    bool call_id_in_header, key_in_header, has_business_ref;
    struct template call_id, key, business_ref, receipt_path, fence_path, reversal_path;
    struct slice fence_method,
        reversal_method; /* empty: the callee cannot be fenced so; there is no reversal */
    bool keeps_requests; /* still_wanted, or a reversal (CONTRACT section 5) */
    struct fingerprint_rules rules;
    struct origin *origins;
    size_t origin_count;
    struct call_policy policy; /* has_identity is the call's own */
    struct outcome_rules outcome_rules;
    struct success_rule success;
    enum proof proof;
    struct admission *admission;
    struct ledger *ledger; /* of receipt = "sql ...", or NULL */
};

struct setup {
    atomic_int holds;
    struct settings *settings;
    struct routes *routes;
    struct lane *lanes; /* settings->route_count of them, in the same order */
    bool has_tenant, has_credential;
    struct template tenant, credential;
    struct buffer admin_token, admin_read_token, report_token; /* empty: none */
    struct buffer notify_secret;                               /* the same */
};

/* Makes a setup with one hold; takes the settings on success (they are freed with it). STATUS_INVALID with sentences
 * in errors: a template, a pattern, an address or a token file is not right; the settings stay the caller's. */
enum status setup_new(struct setup **out, struct settings *settings, struct buffer *errors);
struct setup *setup_hold(struct setup *setup);
/* Gives a hold back; the last one frees. NULL is accepted. */
void setup_release(struct setup *setup);

#endif
