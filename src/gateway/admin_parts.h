/* SPDX-License-Identifier: MIT
 *
 * What the parts of the admin listener know of each other. Nobody else includes this.
 *
 *   admin.c           addresses, who may ask, the console's files
 *   admin_session.c   sessions            admin_guess.c    wrong tokens
 *   admin_find.c      which call, which task a path names
 *   admin_members.c   the members that documents share
 *   admin_inquiry.c   one request: parameters, body, store, answer
 *   admin_sign.c      /v1/session         admin_overview.c /v1/overview
 *   admin_calls.c     /v1/calls           admin_call.c     /v1/calls/ID, erase
 *   admin_tasks.c     /v1/compensations   admin_resolve.c  settling one or many by hand
 *   admin_audit.c     /v1/audit           admin_suspects.c /v1/suspects
 *
 * An inquiry is one request that is past the question who asks. It is answered at most once, and its memory goes when
 * neither the request nor a job of the store refers to it any more.
 */
#ifndef SAMEKEY_GATEWAY_ADMIN_PARTS_H
#define SAMEKEY_GATEWAY_ADMIN_PARTS_H

#include "core/problem.h"
#include "gateway/admin.h"
#include "gateway/admin_guess.h"
#include "gateway/admin_session.h"
#include "gateway/latency.h"

#include <jansson.h>

#define INQUIRY_BODY_MAX  (64u << 10)
#define INQUIRY_ARENA_MAX (256u << 10)
/* Work of one page, so that it takes well under 200 ms on a busy machine (bench/admin_bench): rows looked at, of calls and of
 * tasks, whose calls are read with them. */
#define CALLS_LOOK_MAX   10000
#define TASKS_LOOK_MAX   2000
#define INQUIRY_TEXT_MAX 2048 /* bytes of one parameter, or of one text of a body */

struct admin {
    struct shard *shard; /* home: every inquiry is served on its loop */
    struct sessions sessions;
    struct guesses guesses;
    int64_t started_ms; /* unix ms */
    struct net_timer tick;
    struct latency latency;
};

enum access_by { ACCESS_NOBODY, ACCESS_LOCAL, ACCESS_TOKEN, ACCESS_SESSION };

/* Who asks. */
struct access {
    enum role role;
    enum access_by by;
    struct session session; /* by ACCESS_SESSION: a copy */
};

struct inquiry {
    struct guest guest;
    struct admin *admin;
    struct outlets *outlets; /* a hold */
    struct request *request; /* NULL: answered, or gone */
    unsigned holds;
    struct access access;
    struct arena arena;
    struct buffer body;
    json_t *json;                   /* of the body, an object */
    struct slice id;                /* of the path, in the arena */
    void (*act)(struct inquiry *q); /* once the body is there */
    void (*found)(struct job *job); /* of inquiry_find_call(): ends the job, as it likes */
    void *state;                    /* of who acts; freed with `state_free` */
    void (*state_free)(void *state);
};

/* admin_inquiry.c */
/* Begins an inquiry as the request's guest; reads a body, then acts. NULL: no memory, and the request is cut. */
void inquiry_begin(struct admin *admin, struct request *request, const struct access *access, struct slice id,
                   void (*act)(struct inquiry *q));
struct inquiry *inquiry_hold(struct inquiry *q);
void inquiry_drop(struct inquiry *q);
/* Memory of the acting part, zeroed and freed with the inquiry. NULL: refused already. */
void *inquiry_state(struct inquiry *q, size_t size);
/* A job of the store whose owner is the inquiry, with a hold on it that inquiry_done() gives back. NULL: refused already. */
struct job *inquiry_job(struct inquiry *q, enum store_kind kind, void (*then)(struct job *job));
void inquiry_done(struct job *job);
/* Whether an operation that reads went well and somebody still listens; otherwise it is answered where it can be. */
bool inquiry_read_well(struct inquiry *q, const struct job *job);

/* Answers with a JSON document and ends the inquiry. */
void inquiry_answer(struct inquiry *q, int status, struct buffer *document);
/* Answers with a problem. `parameter` (may be NULL) names what is at fault. */
void inquiry_refuse(struct inquiry *q, enum problem problem, const char *parameter, const char *detail);
/* The same about a call: its state is told. */
void inquiry_refuse_state(struct inquiry *q, enum problem problem, const char *detail, enum call_state state);

/* What a request may have behind its question mark. TEXT takes '+' for a space, as forms do; WORD, for what has no spaces,
 * takes it as it is. */
enum param_kind {
    PARAM_TEXT,   /* struct slice */
    PARAM_WORD,   /* struct slice */
    PARAM_TIME,   /* int64_t, unix ms */
    PARAM_LIMIT,  /* size_t, 1 to STORE_PAGE_MAX; 50 if it is not there */
    PARAM_CURSOR, /* int64_t */
    PARAM_STATE,  /* unsigned, bit mask 1 << state */
    PARAM_STATUS, /* unsigned, bit mask 1 << status of a task */
};
#define LIST_LIMIT_DEFAULT 50
struct param {
    const char *name;
    enum param_kind kind;
    void *to;
    bool *given; /* may be NULL */
};
/* Reads a whole number in decimal. False: it is none, or out of range. */
bool param_number(struct slice text, int64_t least, int64_t most, int64_t *out);
/* Reads one value. NULL: taken; else what it must be, for a sentence. */
const char *param_read(const struct param *param, struct slice text);
/* Reads the query. False: it was refused, for a parameter that is unknown, given twice, or not what it must be. */
bool inquiry_params(struct inquiry *q, const struct param *params, size_t count);
/* The body's text of this name, at most INQUIRY_TEXT_MAX bytes, in the arena. False, and refused: missing, blank, too
 * long, not a text. */
bool inquiry_text(struct inquiry *q, const char *name, struct slice *out);
/* Refuses a body with a member that is none of these (NULL at the end). */
bool inquiry_members(struct inquiry *q, const json_t *object, const char *within, const char *const *names);
/* The address the request came from, in the arena's keeping. */
struct slice inquiry_peer(struct inquiry *q);
const struct lane *inquiry_lane(const struct inquiry *q, struct slice route);

/* Writing documents: a member after any byte but an opening brace gets a comma before it. */
void member_text(struct buffer *out, const char *name, struct slice text); /* null when empty */
void member_time(struct buffer *out, const char *name, int64_t unix_ms);   /* null for 0 and for never */
void member_id(struct buffer *out, const char *name, int64_t id);          /* "4711"; null for 0 */
void member_number(struct buffer *out, const char *name, int64_t n);
void member_bool(struct buffer *out, const char *name, bool value);
void member_tenant(struct buffer *out, struct slice tenant);           /* "" is a tenant */
void member_begin(struct buffer *out, const char *name, char bracket); /* the caller closes it */
/* The members of one call as lists show it, without braces. */
void call_members(struct buffer *out, const struct call_row *row);
/* "next_cursor" and "reached", and the closing brace of a list. */
void list_end(struct buffer *out, int64_t next_before_id, int64_t reached_ms);
/* The first half of a credential's digest, as hexadecimal: tells callers apart and is no secret. */
#define CREDENTIAL_MARK_BYTES 17
void credential_mark(const struct digest *credential, char text[CREDENTIAL_MARK_BYTES]);

/* Finds the call of the path, of the tenant in ?tenant= or in the header that names it, or of whichever tenant alone has it.
 * `found` gets the rows, with or without the call; otherwise the inquiry is refused. */
void inquiry_find_call(struct inquiry *q, void (*found)(struct job *job));
/* The number of the task in the path; false: refused, there is none. */
bool inquiry_task_id(struct inquiry *q, int64_t *id);
/* Reads a task into `page` and answers with it, or that there is none. `page` begins the state of the inquiry. */
void inquiry_tell_task(struct inquiry *q, int64_t id, struct task_page *page);
/* Refuses a person's change of a task because of what stands, as the operation tells it. */
void inquiry_refuse_task(struct inquiry *q, const struct job *job);
/* The members of one task as lists show it; of its rounds; of an audit row: without braces. */
void task_members(struct buffer *out, const struct inquiry *q, const struct task_row *task);
void task_history(struct buffer *out, const struct task_page *page);
void audit_members(struct buffer *out, const struct audit_row *audit);
void audit_list(struct buffer *out, const struct task_page *page);

/* What each address does; all on the home loop. */
void admin_session_show(struct inquiry *q);
void admin_session_begin(struct inquiry *q);
void admin_session_end(struct inquiry *q);
void admin_overview(struct inquiry *q);
void admin_calls(struct inquiry *q);
void admin_call(struct inquiry *q);
void admin_call_erase(struct inquiry *q);
void admin_tasks(struct inquiry *q);
void admin_task(struct inquiry *q);
void admin_task_resolve(struct inquiry *q);
void admin_task_run(struct inquiry *q);
void admin_tasks_resolve(struct inquiry *q);
void admin_audit(struct inquiry *q);
void admin_suspects(struct inquiry *q);

/* admin.c: the role a token has; ROLE_NONE: neither fits. In constant time. */
enum role admin_token_role(const struct setup *setup, struct slice token);
/* A mark of the token of this role as it is now, so that sessions end when it changes. */
uint64_t admin_token_mark(const struct setup *setup, enum role role);
/* Answers any request of this listener with a problem. */
void admin_problem(struct request *request, enum problem problem, const struct problem_facts *facts);
/* A wrong token: logs it and refuses it after its wait. */
void admin_refuse_token(struct admin *admin, struct request *request);

#endif
