/* SPDX-License-Identifier: MIT
 *
 * One thing that happened, in samekey's own words: made from the fields of a line, kept as a compact record while the
 * logs are sorted by operation, and read back when its operation is judged.
 */
#ifndef SAMEKEY_FORENSICS_EVENT_H
#define SAMEKEY_FORENSICS_EVENT_H

#include "base/buffer.h"
#include "forensics/field.h"
#include "forensics/moment.h"

enum event_kind {
#define KIND(id, order, text) KIND_##id,
#define WORD(id, name)
#include "forensics/kind.def"
#undef KIND
#undef WORD
    KIND_COUNT
};

/* What a receipt or a call's ending says; the words of CONTRACT section 4. */
enum event_state {
    EVENT_STATE_ABSENT,
    EVENT_STATE_NOT_RECEIVED,
    EVENT_STATE_RECEIVED,
    EVENT_STATE_PROCESSING,
    EVENT_STATE_SUCCESS,
    EVENT_STATE_FAILED,
    EVENT_STATE_UNKNOWN
};

enum event_text {
    TEXT_BUSINESS, /* the intention */
    TEXT_KEY,      /* the idempotency key */
    TEXT_CALL,
    TEXT_EXEC,
    TEXT_CONNECTION,
    TEXT_PEER,
    TEXT_NODE,
    TEXT_AGENT,
    TEXT_VIA,
    TEXT_UPSTREAM,
    TEXT_UPSTREAM_STATUS,
    TEXT_METHOD,
    TEXT_PATH,
    TEXT_WHAT, /* the event's name in the log */
    TEXT_COUNT
};

enum {
    EVENT_SHIPPED = 1,   /* a shipper added a field */
    EVENT_FINE = 2,      /* its time has milliseconds or better */
    EVENT_UNPLACED = 4,  /* its time is local and its zone is not known */
    EVENT_WEAK_CALL = 8, /* the callId is a request id, which may be new with every try */
    EVENT_WEAK_KEY = 16, /* the business key is only "who asked for what": no id was in the line */
    EVENT_GUESSED = 32,  /* the kind was guessed from words */
    EVENT_REDELIVERED = 64,
    EVENT_TIME_ENDS = 128 /* ACCESS, PROXY, ATTEMPT_ENDED: the time is the end, not the beginning */
};

#define EVENT_TEXT_BYTES_MAX 255 /* longer texts keep their beginning and a digest of the whole */
#define EVENT_ATTEMPT_ABSENT 0

struct event {
    int64_t us;       /* unix microseconds, or MOMENT_NONE */
    uint64_t place;   /* digest of the line's place at its origin; 0: not known */
    uint64_t group;   /* what it is sorted by */
    uint32_t raw;     /* digest of the line's bytes */
    uint32_t line;    /* from 1 */
    uint32_t nth;     /* place among its connection's requests; 0: not known */
    int32_t took_ms;  /* -1: not known */
    uint16_t file;    /* of the files that were read */
    uint16_t origin;  /* whose clock it is */
    uint16_t status;  /* 0: none */
    uint16_t attempt; /* 0: the line has none */
    uint16_t retries; /* said by a proxy */
    uint16_t copies;  /* further copies of the line that were taken out; not in a record */
    uint8_t kind, flags, state;
    struct slice text[TEXT_COUNT];
};

/* 64 well-mixed bits of the bytes; the same on every run and machine. */
uint64_t event_digest(struct slice s, uint64_t seed);

/* Remembers what the event names of the log mean. Zero it to begin. */
struct event_words {
    struct {
        uint64_t digest;
        uint8_t kind, guessed;
    } cache[128];
};

/* What became of a line. */
enum event_use {
    EVENT_KEPT,     /* it belongs to an operation */
    EVENT_READ_ONLY /* it was read, but changes nothing or names nothing */
};

/*
 * Makes an event of the fields. Texts borrow from the fields; a text that had to be made (a callId out of a path, a
 * long text) is in scratch, which is cleared first. The time was read already. `time_ends` is for lines with a duration.
 */
enum event_use event_make(struct event *e, const struct fields *f, struct event_words *words,
                          struct buffer *scratch);

/* Appends the event as a record: its size in the first four bytes, little more than its texts behind. */
void event_write(struct buffer *out, const struct event *e);

/* Reads the record at p back; texts borrow from it. Returns its size. */
size_t event_read(struct event *e, const char *p);

/* The group of a record, and its size, without reading it all; and giving it another group. */
uint64_t event_record_group(const char *p);
uint32_t event_record_size(const char *p);
void event_record_regroup(char *p, uint64_t group);

const char *event_kind_text(enum event_kind kind);
int event_kind_order(enum event_kind kind);
const char *event_state_text(enum event_state state);

/* The state a word stands for; EVENT_STATE_ABSENT if none. */
enum event_state event_state_find(struct slice word);

#endif
