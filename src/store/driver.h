/* SPDX-License-Identifier: MIT
 *
 * What a kind of store brings: store.c picks one by the scheme of the URL and hands every call of store.h on. A new
 * store is a new driver and a row in store.c; test/unit/store/conformance.c tells whether it keeps its promises.
 */
#ifndef SAMEKEY_STORE_DRIVER_H
#define SAMEKEY_STORE_DRIVER_H

#include "store/secret.h"

struct store_driver {
    void (*batch)(struct store *store, struct store_op **ops, size_t count);
    enum batch_begun (*batch_begin)(struct store *store, struct store_op **ops,
                                    size_t count); /* NULL: the store has no halves */
    void (*batch_sync)(struct store *store);
    void (*batch_end)(struct store *store);
    enum status (*reader_open)(struct store_reader **out, struct store *store, unsigned share,
                               struct buffer *error);
    void (*reader_run)(struct store_reader *reader, struct store_op *op);
    void (*reader_run_all)(struct store_reader *reader, struct store_op **ops, size_t count);   /* or NULL */
    size_t (*reader_run_now)(struct store_reader *reader, struct store_op **ops, size_t count); /* or NULL */
    void (*reader_free)(struct store_reader *reader);
    bool (*idle)(struct store *store);
    void (*stats)(struct store *store, struct store_stats *out);
    enum status (*raise_covers_since)(struct store *store, int64_t covers_since_ms);
    /* As store_secret(); with `anew` a new one is made, whether there was one or not. NULL: it keeps none. */
    enum status (*secret)(struct store *store, bool anew, uint8_t secret[STORE_SECRET_BYTES]);
    /* The store's clock; NULL: settings.now_ms. Callable from every thread. */
    int64_t (*now)(struct store *store);
    /* Of these rows, those that do not run any more or are not there; `ended` holds as many as `ids`. For watches of rows
     * that run on another gateway. NULL: one process owns the store. */
    enum status (*reader_ended)(struct store_reader *reader, const int64_t *ids, size_t count, int64_t *ended,
                                size_t *ended_count);
    void (*close)(struct store *store);
    unsigned writers; /* batches that may run at the same time; 0 is 1 */
    unsigned readers; /* readers that it takes to keep it busy; 0 is 1 */
};

/* First member of every driver's own store and reader. */
struct store {
    const struct store_driver *driver;
    int64_t (*now_ms)(void *context); /* of the settings it was opened with */
    void *context;
};

struct store_reader {
    const struct store_driver *driver;
    void (*waits)(void *context); /* store_reader_tell_waits() */
    void *waits_context;
};

/* `rest` is the URL behind "sqlite:". Errors as store_open(). */
enum status sqlite_store_open(struct store **out, const char *rest, const struct store_settings *settings,
                              struct buffer *error);

/* Makes a new secret of the system's random numbers; false: it gave none. */
bool secret_make(uint8_t secret[STORE_SECRET_BYTES]);
/* Of the SQLite store, in a file of its own. */
enum status sqlite_secret(struct store *store, bool anew, uint8_t secret[STORE_SECRET_BYTES]);

/* The whole URL is in the settings. */
enum status postgres_store_open(struct store **out, const struct store_settings *settings,
                                struct buffer *error);

/* Empties what an operation answers, before it runs (again). Its memory is kept for reuse. */
void store_op_reset(struct store_op *op);

/* True of the operations that change nothing: readers serve them. */
bool store_op_reads(const struct store_op *op);

/* Copies rows out of other memory, pointers and not offsets; memory->failed says that it could not. */
void rows_copy(struct rows *to, struct buffer *memory, const struct rows *from);

#endif
