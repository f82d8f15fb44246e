/* SPDX-License-Identifier: MIT
 *
 * samekey: remote calls that are safe to retry. The public C API of libsamekey.
 *
 * One call is one intention. It gets a callId before its first byte leaves, keeps it over all its attempts, and ends in
 * SUCCESS, FAILED or UNKNOWN. After an attempt that may have run, nothing is sent again before the receipt was asked.
 *
 * Always true:
 *  (1) A function that returns a status leaves its results untouched unless it returns SAMEKEY_OK.
 *  (2) SAMEKEY_OK from samekey_call() says that the call has an ending, not that it succeeded: ask
 *      samekey_result_state(). Every other status says that nothing was sent by that function.
 *  (3) callId and key are the same bytes on every attempt of a call.
 *  (4) UNKNOWN is never reported as FAILED.
 *
 * Threads: a handle may be used by any number of threads at once. Options, a result and a run belong to one thread at a
 * time. After fork() a child opens a handle of its own and leaves its parent's alone. The library writes to no log,
 * installs no signal handler and never exits; SIGPIPE is held back inside its own calls only.
 *
 * Times are milliseconds. Texts are NUL-terminated UTF-8 unless said otherwise; what a getter returns is never NULL and
 * is borrowed until its object is freed.
 */
#ifndef SAMEKEY_SAMEKEY_H
#define SAMEKEY_SAMEKEY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SAMEKEY_API __attribute__((visibility("default")))
#else
#define SAMEKEY_API
#endif

/* ---- words -------------------------------------------------------------------------------------------------- */

enum samekey_status {
    SAMEKEY_OK = 0,
    SAMEKEY_INVALID = 1,    /* an option breaks a rule; samekey_error says which */
    SAMEKEY_NO_MEMORY = 2,  /* nothing was sent */
    SAMEKEY_JOURNAL = 3,    /* the journal cannot be opened or written; nothing was sent */
    SAMEKEY_KEY_REUSED = 4, /* the journal knows the key or callId with another request; nothing was sent */
    SAMEKEY_NOT_FOUND = 5,  /* no such call in the journal */
    SAMEKEY_TRANSPORT = 6,  /* libcurl cannot be started; nothing was sent */
    SAMEKEY_MISUSE = 7      /* an event that does not follow from the last effect; the run is as before */
};

/* Why a function did not return SAMEKEY_OK. Owned by the caller; point options or config at one to have it filled. */
struct samekey_error {
    int status;     /* enum samekey_status */
    char text[240]; /* a sentence, with the remedy where there is one */
};

/* How a call stands. */
enum samekey_state {
    SAMEKEY_PROCESSING = 2, /* another process works on it and did not end within our deadline */
    SAMEKEY_SUCCESS = 3,    /* it took effect, once */
    SAMEKEY_FAILED = 4,     /* it did not take effect through this call; samekey_result_final(): for good? */
    SAMEKEY_UNKNOWN = 5     /* it may have taken effect: never send it under a new key */
};

/* What one attempt proved. */
enum samekey_outcome {
    SAMEKEY_OUTCOME_NONE = 0, /* it has not ended */
    SAMEKEY_OUTCOME_NOT_EXECUTED = 1,
    SAMEKEY_OUTCOME_SUCCESS = 2,
    SAMEKEY_OUTCOME_REJECTED = 3,
    SAMEKEY_OUTCOME_FAILED = 4,
    SAMEKEY_OUTCOME_PENDING = 5,
    SAMEKEY_OUTCOME_UNKNOWN = 6
};

/* What to do next. */
enum samekey_next {
    SAMEKEY_NEXT_NONE = 0,
    SAMEKEY_NEXT_WAIT = 1,
    SAMEKEY_NEXT_QUERY_RECEIPT = 2,
    SAMEKEY_NEXT_RETRY_SAME_CALL = 3, /* the same key; with a journal the same callId comes by itself */
    SAMEKEY_NEXT_FIX_REQUEST = 4,
    SAMEKEY_NEXT_ASK_OPERATOR = 5
};

/* What a receipt query said. */
enum samekey_answer {
    SAMEKEY_ANSWER_QUERY_FAILED = 0, /* no answer, or one that is not to be believed */
    SAMEKEY_ANSWER_NOT_RECEIVED = 1,
    SAMEKEY_ANSWER_RUNNING = 2,
    SAMEKEY_ANSWER_SUCCESS = 3,
    SAMEKEY_ANSWER_FAILED_FINAL = 4,
    SAMEKEY_ANSWER_FAILED_OPEN = 5, /* it failed without effect, and the same call may run again */
    SAMEKEY_ANSWER_UNKNOWN = 6
};

/* "0.1.0" */
SAMEKEY_API const char *samekey_version(void);
/* "SUCCESS", "not_executed", "query_receipt", "NOT_RECEIVED"; "" for a number that is none of ours. */
SAMEKEY_API const char *samekey_state_text(int state);
SAMEKEY_API const char *samekey_outcome_text(int outcome);
SAMEKEY_API const char *samekey_next_text(int next);
SAMEKEY_API const char *samekey_answer_text(int answer);
SAMEKEY_API const char *samekey_status_text(int status);

/* ---- the handle --------------------------------------------------------------------------------------------- */

/* Connections, the journal, the makers of callIds, the retry budget and the breakers. */
struct samekey;

/* Fill it with samekey_config_init() and change what you want. */
struct samekey_config {
    size_t size; /* set by samekey_config_init(); tells the library which members you know */
    const char
        *journal; /* a path; "" is $XDG_STATE_HOME/samekey/journal.db; NULL (default) is none: then nothing
                            outlives the process, and budget and breakers are this handle's alone */
    const char *prefix; /* of callIds; default "call" */
    const char *node;   /* of callIds; default: the host's name */

    int retry_budget;       /* retries, in percent of the calls of the last ten seconds; default 20 */
    int retry_budget_floor; /* and this many a second; default 10 */
    int retries_in_flight;  /* at once; default 10; 0 is no limit */
    int calls_in_flight;    /* attempts at once; default 256; 0 is no limit */

    int breaker_failures; /* percent of attempts to one origin that open its breaker; 0 is off; default 50 */
    int breaker_calls;    /* fewer attempts in the window decide nothing; default 20 */
    int64_t breaker_window_ms; /* default 60000 */
    int64_t breaker_open_ms;   /* how long it stays open; default 5000 */
    int breaker_probes;        /* attempts let through then, and good ones needed to close it; default 1 */

    struct samekey_error *error; /* or NULL */
};

/* Sets the defaults. `size` is sizeof(struct samekey_config) of the header the program was compiled with. */
SAMEKEY_API void samekey_config_init_sized(struct samekey_config *config, size_t size);
#define samekey_config_init(config) samekey_config_init_sized((config), sizeof(struct samekey_config))

/* Opens a handle; config may be NULL. With a journal its directory is made (0700) and the file is its owner's only
 * (0600). SAMEKEY_INVALID, SAMEKEY_NO_MEMORY, SAMEKEY_JOURNAL, SAMEKEY_TRANSPORT. */
SAMEKEY_API int samekey_open(struct samekey **out, const struct samekey_config *config);

/* Closes it; no call or run of it may be alive. NULL is accepted. */
SAMEKEY_API void samekey_close(struct samekey *handle);

#define SAMEKEY_CALL_ID_SIZE 129 /* bytes of a callId, with its NUL */

/* Makes a callId `<prefix>-<unix ms>-<12 hex>-<node>` that no thread or process of this node makes again. prefix may be
 * NULL: the handle's. SAMEKEY_INVALID: the prefix holds other bytes than A-Z a-z 0-9 . _ : - or is too long. */
SAMEKEY_API int samekey_make_id(struct samekey *handle, const char *prefix, char out[SAMEKEY_CALL_ID_SIZE]);

/* ---- one call ----------------------------------------------------------------------------------------------- */

struct samekey_header {
    const char *name;
    const char *value;
};

enum samekey_flag {
    SAMEKEY_CALLEE_IDEMPOTENT = 1 << 0,   /* the callee runs a callId or key once, whatever arrives */
    SAMEKEY_SERVER_ERROR_FAILED = 1 << 1, /* 5xx but 502, 503, 504, 52x failed without effect; else unknown */
    SAMEKEY_ACCEPTED_SUCCESS = 1 << 2,    /* 202 is success; else pending */
    SAMEKEY_REDIRECT_303_SUCCESS = 1 << 3, /* 303 is success; else unknown */
    SAMEKEY_NO_JOURNAL = 1 << 4,           /* this call is not written down */
    SAMEKEY_NO_JOURNAL_BODY = 1 << 5,      /* its body is not; who re-sends it must give it again */
    SAMEKEY_RECEIPTS_RUN_ONCE = 1 << 6, /* the receipts are written in the business transaction, so a callId
                                              runs once; implied by samekey's own receipts */
    SAMEKEY_EXPECT_CONTINUE = 1 << 7,   /* hold the body back for a 100: what fails before it is proved not to
                                              have run */
    SAMEKEY_HTTP2 = 1 << 8,             /* HTTP/2 (in plain, with prior knowledge); else HTTP/1.1 */
    SAMEKEY_RESEND_NEEDS_KEY = 1 << 9,  /* without a key: never again after unknown, whatever the callId */
    SAMEKEY_QUICK_EXIT = 1 << 10        /* the program ends now: do not wait for a hanging name look-up */
};

enum samekey_progress_what {
    SAMEKEY_PROGRESS_RESUMED = 1, /* the journal knows the call; it goes on under its callId */
    SAMEKEY_PROGRESS_JOINED = 2,  /* another process works on the key; we wait for its ending */
    SAMEKEY_PROGRESS_SENDING = 3,
    SAMEKEY_PROGRESS_ATTEMPT_ENDED = 4,
    SAMEKEY_PROGRESS_REFUSED = 5, /* our own limits let no attempt out */
    SAMEKEY_PROGRESS_ASKING = 6,
    SAMEKEY_PROGRESS_ANSWERED = 7,
    SAMEKEY_PROGRESS_WAITING = 8,
    SAMEKEY_PROGRESS_FENCING = 9,
    SAMEKEY_PROGRESS_ENDED = 10
};

/* What a progress callback is told. Borrowed until it returns. */
struct samekey_progress {
    size_t size;
    int what;           /* enum samekey_progress_what */
    int64_t elapsed_ms; /* since the call began */
    const char *call_id;
    int attempt;      /* the last one begun; 0: none yet */
    int outcome;      /* ATTEMPT_ENDED */
    int answer;       /* ANSWERED */
    int64_t wait_ms;  /* WAITING */
    const char *text; /* the evidence, or why a query is not believed, or the closing sentence; never NULL */
};

/* A call's options. Fill it with samekey_options_init() and change what you want. All is borrowed until the function it
 * is given to returns. */
struct samekey_options {
    size_t size; /* set by samekey_options_init() */

    /* The request. Control headers (X-Call-Id, Idempotency-Key, X-Call-Attempt, X-Call-Budget-Ms, traceparent,
     * X-Business-Ref) are ours and refused in `headers`. */
    const char *method; /* default "POST" */
    const char *url;    /* http or https; NULL only for a run whose transport is the program's own */
    const struct samekey_header *headers;
    size_t header_count;
    const void *body;
    size_t body_len;

    /* Identity. */
    const char *key;          /* names the operation; 1 to 255 bytes of visible ASCII, quoted or bare */
    const char *call_id;      /* NULL: made by the library */
    const char *prefix;       /* of a callId we make; NULL: the handle's */
    const char *business_ref; /* sent as X-Business-Ref */
    const char *traceparent;  /* W3C; each attempt gets a child of it; NULL: none is sent */

    /* Policy. */
    int retries;                /* attempts after the first; default 3 */
    int64_t attempt_timeout_ms; /* default 3000 */
    int64_t deadline_ms;        /* over all attempts, waits and queries; default 30000 */
    int64_t backoff_base_ms;    /* default 500 */
    int64_t backoff_cap_ms;     /* default 4000 */
    double jitter_low;          /* a wait is multiplied by a random number from low to high; default 0.5 */
    double jitter_high;         /* default 1 */
    int64_t retry_after_max_ms; /* the longest Retry-After that is followed; default 300000 */
    int64_t
        upstream_key_life_ms; /* nothing is sent again later than this after the first attempt; default 24 h */

    /* Receipts. */
    const char *receipt; /* a URL template with {origin} {call_id} {key} {method}; NULL: samekey's own,
                            "{origin}/.samekey/receipts/{call_id}"; "none": nobody can be asked */
    const struct samekey_header
        *receipt_headers; /* NULL: those of the request but Content-*, if the origin is its */
    size_t receipt_header_count;
    const char *receipt_map;    /* "DONE=SUCCESS, GONE=FAILED": a callee's own words for states; or NULL */
    int64_t receipt_timeout_ms; /* default 1000 */
    int receipt_queries;        /* at most this many after one attempt; default 5 */
    int64_t
        resend_after_ms; /* -1 (default): the attempt timeout. A callee that does not run a callId once gets the
                                    same request again only this long after the last connection was closed. */

    int64_t
        result_bytes_max; /* a longer answer counts as complete and its body is not kept; default 16 MiB */
    const char *ca_file;  /* PEM certificates to trust instead of the system's; or NULL */
    unsigned flags;       /* enum samekey_flag, joined by | */

    void (*progress)(void *context,
                     const struct samekey_progress *progress); /* on the calling thread; or NULL */
    int (*cancelled)(
        void *
            context); /* asked ten times a second or more; not 0 ends the call as what is proved so far; or NULL */
    void *context;               /* for both */
    struct samekey_error *error; /* or NULL */
};

/* Sets the defaults. */
SAMEKEY_API void samekey_options_init_sized(struct samekey_options *options, size_t size);
#define samekey_options_init(options) samekey_options_init_sized((options), sizeof(struct samekey_options))

struct samekey_result;

/* Makes one call to its end: blocks for at most deadline_ms and 200 ms more. With a journal, the intention is on disk
 * before the first byte; an open call with the same key and URL is taken up under its callId, after asking its receipt;
 * a call that ended SUCCESS is answered from the journal and nothing is sent; while another thread or process works on
 * the key we wait and get its ending.
 * SAMEKEY_OK: *out is yours. Others: nothing was sent: SAMEKEY_INVALID, SAMEKEY_NO_MEMORY, SAMEKEY_JOURNAL,
 * SAMEKEY_KEY_REUSED, SAMEKEY_TRANSPORT. */
SAMEKEY_API int samekey_call(struct samekey *handle, const struct samekey_options *options,
                             struct samekey_result **out);

/* Takes up an open call of the journal by its callId, under the policy it was made with; `options` gives callbacks,
 * error and, where the journal keeps no body, the body; its other members are ignored. NULL is accepted. A call that has
 * ended gives its ending. Also SAMEKEY_NOT_FOUND. */
SAMEKEY_API int samekey_resume(struct samekey *handle, const char *call_id,
                               const struct samekey_options *options, struct samekey_result **out);

/* What the journal knows of a call, without sending anything: an open one is PROCESSING or UNKNOWN. SAMEKEY_NOT_FOUND,
 * SAMEKEY_JOURNAL, SAMEKEY_NO_MEMORY. */
SAMEKEY_API int samekey_lookup(struct samekey *handle, const char *call_id, struct samekey_result **out);

/* ---- the result --------------------------------------------------------------------------------------------- */

SAMEKEY_API void samekey_result_free(struct samekey_result *result);       /* NULL is accepted */
SAMEKEY_API int samekey_result_state(const struct samekey_result *result); /* enum samekey_state */
/* Whether the ending can change no more. FAILED that is not final: every attempt is proved not to have run, and the same
 * call may be made again. */
SAMEKEY_API int samekey_result_final(const struct samekey_result *result);
/* Why, in one word ("receipt", "deadline", "breaker_open"); "" for a plain success. */
SAMEKEY_API const char *samekey_result_reason(const struct samekey_result *result);
/* What is known, what is not, and what to do, for a worried operator. */
SAMEKEY_API const char *samekey_result_sentence(const struct samekey_result *result);
SAMEKEY_API const char *samekey_result_call_id(const struct samekey_result *result);
SAMEKEY_API const char *samekey_result_key(const struct samekey_result *result); /* "" without one */
/* 1 only if a new key for the same business action cannot run it twice. */
SAMEKEY_API int samekey_result_safe_new_key(const struct samekey_result *result);
SAMEKEY_API int samekey_result_next_action(const struct samekey_result *result); /* enum samekey_next */
/* Milliseconds after which it may be tried again, or -1 where nobody said. */
SAMEKEY_API int64_t samekey_result_retry_in_ms(const struct samekey_result *result);
SAMEKEY_API int64_t samekey_result_elapsed_ms(const struct samekey_result *result);
/* 0: a new call. 1: the journal knew it as open, and this run went on with it. 2: the journal had its ending, or another
 * process wrote it while we waited; nothing was sent. */
SAMEKEY_API int samekey_result_resumed(const struct samekey_result *result);
/* 1: the ending could not be written to the journal; a later run will ask the receipt again. */
SAMEKEY_API int samekey_result_journal_failed(const struct samekey_result *result);
/* How often the call was taken up again while it was open. */
SAMEKEY_API int samekey_result_rounds(const struct samekey_result *result);

/* The service's answer: status 0 where there is none to show (a bare receipt settled the call). */
SAMEKEY_API int samekey_result_status(const struct samekey_result *result);
SAMEKEY_API const void *samekey_result_body(const struct samekey_result *result, size_t *len);
/* 0: the answer was complete, but longer than result_bytes_max. */
SAMEKEY_API int samekey_result_body_kept(const struct samekey_result *result);
/* The value of the n-th (from 0) header line of this name, without regard to case; "" if there is none. */
SAMEKEY_API const char *samekey_result_header(const struct samekey_result *result, const char *name,
                                              size_t n);

/* One attempt, borrowed from the result. */
struct samekey_attempt {
    size_t size; /* to be set to sizeof(struct samekey_attempt) before asking */
    int n;       /* from 1 */
    int outcome; /* enum samekey_outcome */
    int status;  /* of a complete answer, or 0 */
    uint64_t sent_bytes;
    int64_t wait_before_ms;
    int64_t started_unix_ms;
    const char *evidence; /* what happened on the wire, in words */
};
SAMEKEY_API size_t samekey_result_attempts(const struct samekey_result *result);
/* SAMEKEY_OK, or SAMEKEY_NOT_FOUND for an index past the last. */
SAMEKEY_API int samekey_result_attempt(const struct samekey_result *result, size_t index,
                                       struct samekey_attempt *out);
SAMEKEY_API size_t samekey_result_queries(const struct samekey_result *result);
/* The answer of the index-th receipt query and the attempt it followed. */
SAMEKEY_API int samekey_result_query(const struct samekey_result *result, size_t index, int *answer,
                                     int *after_attempt);
/* All of it as one JSON document (the form of `samekey call --format json`). */
SAMEKEY_API const char *samekey_result_json(const struct samekey_result *result);

/* ---- the step interface: your own event loop and transport -------------------------------------------------- */

/* The same decisions without any I/O: give an event, get the one thing to do, do it, and give the event that came of
 * it. No clock is read and no byte is sent. The handle's journal is not used; its budget and breakers (those of this
 * process) are. */
struct samekey_run;

enum samekey_event_type {
    SAMEKEY_EVENT_START = 1,
    SAMEKEY_EVENT_ATTEMPT = 2, /* the attempt of the last SEND ended */
    SAMEKEY_EVENT_ANSWER = 3,  /* the query of the last ASK, or the last FENCE, was answered or failed */
    SAMEKEY_EVENT_TIMER = 4,   /* until_ms of the last WAIT has come */
    SAMEKEY_EVENT_CANCEL = 5   /* during a WAIT: end now with what is proved */
};

/* How an attempt ended on the wire. The first six prove that nothing ran. */
enum samekey_end {
    SAMEKEY_END_NAME = 1,            /* the name was not found */
    SAMEKEY_END_REFUSED = 2,         /* no connection */
    SAMEKEY_END_CONNECT_TIMEOUT = 3, /* no connection in time */
    SAMEKEY_END_TLS = 4,             /* the handshake failed before our first byte */
    SAMEKEY_END_TLS_CERTIFICATE = 5, /* the certificate is bad; not tried again */
    SAMEKEY_END_REFUSED_STREAM = 6,  /* the callee said that it did not process it */
    SAMEKEY_END_ANSWER = 7,          /* a complete answer */
    SAMEKEY_END_TIMEOUT = 8,
    SAMEKEY_END_RESET = 9,
    SAMEKEY_END_EOF = 10,
    SAMEKEY_END_MALFORMED = 11,
    SAMEKEY_END_ABORTED = 12
};

struct samekey_event {
    size_t size;         /* set by samekey_event_init() */
    int type;            /* enum samekey_event_type */
    int64_t now_ms;      /* a monotonic clock, the same in all events */
    int64_t unix_now_ms; /* wall clock: for callIds, dates in Retry-After and receipts */
    double random;       /* in [0, 1) */

    /* START, for a call that an earlier process began; leave 0 for a fresh one. */
    int past_attempts;
    int past_maybe_ran;  /* one of them was unknown or pending, or its ending is not known */
    int64_t past_age_ms; /* since the first attempt */

    /* ATTEMPT */
    int end;             /* enum samekey_end */
    uint64_t sent_bytes; /* of the request; 0 proves that nothing left */
    int request_complete;
    int outcome; /* 0: worked out from the status; else the callee's own word (enum samekey_outcome) */
    const char *echoed_call_id; /* what the callee says it answered; NULL: it said nothing */
    const char *detail;         /* words for the evidence, or NULL */

    /* ATTEMPT and ANSWER: the answer. ANSWER with status 0 is a failed query. */
    int status; /* HTTP's, or a number that means the same */
    const struct samekey_header *headers;
    size_t header_count;
    const void *body;
    size_t body_len;
};
SAMEKEY_API void samekey_event_init_sized(struct samekey_event *event, size_t size);
#define samekey_event_init(event) samekey_event_init_sized((event), sizeof(struct samekey_event))

enum samekey_effect_type {
    SAMEKEY_EFFECT_SEND = 1,
    SAMEKEY_EFFECT_ASK = 2,
    SAMEKEY_EFFECT_WAIT = 3,
    SAMEKEY_EFFECT_FENCE = 4,
    SAMEKEY_EFFECT_END = 5
};

/* What to do. Borrowed from the run until its next step. */
struct samekey_effect {
    size_t size;
    int type;            /* enum samekey_effect_type */
    int attempt;         /* SEND */
    int64_t timeout_ms;  /* SEND, ASK, FENCE: give up after this */
    int64_t until_ms;    /* WAIT: the next deadline, on the clock of the events */
    const char *call_id; /* SEND, ASK, FENCE */
    const char *key;     /* as the caller spelled it; NULL without one */
    const char *url;     /* SEND: of the request; ASK, FENCE: of the receipt; "" where there is none */
    const struct samekey_header *headers; /* SEND: the control headers of this attempt */
    size_t header_count;
};

/* Makes a run. Without `url` the receipt is asked by the program's own means; then receipt must not be NULL, and is
 * "none" or any text. SAMEKEY_INVALID, SAMEKEY_NO_MEMORY. */
SAMEKEY_API int samekey_run_new(struct samekey_run **out, struct samekey *handle,
                                const struct samekey_options *options);
/* One step. effect->size is set before, to sizeof(struct samekey_effect). SAMEKEY_OK with *effect filled, or SAMEKEY_MISUSE. */
SAMEKEY_API int samekey_run_step(struct samekey_run *run, const struct samekey_event *event,
                                 struct samekey_effect *effect);
/* After END: the result, borrowed from the run. NULL before. */
SAMEKEY_API const struct samekey_result *samekey_run_result(const struct samekey_run *run);
SAMEKEY_API void samekey_run_free(struct samekey_run *run); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
