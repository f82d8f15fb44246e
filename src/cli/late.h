/* SPDX-License-Identifier: MIT
 *
 * Libraries that the program loads when it first calls them.
 *
 * libcurl and libpq bring some twenty further libraries (GnuTLS, Kerberos, LDAP, ...), which take four MiB of resident
 * memory and half of the time a command needs to start, although a gateway with a store of its own calls neither. So
 * late_curl.c and late_pq.c define, in the program alone, each function of them that the rest of the tree calls; the
 * definition finds the real one and calls it. The rest of the tree includes the libraries' own headers and knows nothing
 * of this, and libsamekey, the guard's libraries and the unit tests link them as usual.
 *
 * Always true: the functions defined here are all that are called (a missing one makes the linker load the library at
 * the start again; test/e2e/test_late.py tells). A library that is not there ends the program at the first call, with its
 * name, as the dynamic linker would have done at the start.
 */
#ifndef SAMEKEY_CLI_LATE_H
#define SAMEKEY_CLI_LATE_H

#include <pthread.h>
#include <stdatomic.h>

/* A library; starts with its `file` and PTHREAD_MUTEX_INITIALIZER, and stays loaded once it is. */
struct late {
    const char *file; /* its SONAME, of a library that was there when the program was built */
    pthread_mutex_t lock;
    void *handle; /* under lock; NULL: not loaded yet */
};

/* The address of `name` in the library, which is loaded if it is not yet; kept in *known. Any thread may call it.
 * Does not return without one: the program ends with exit code 69 (as for other things that are unavailable). */
void *late_find(struct late *library, const char *name, _Atomic(void *) *known);

/* Defines one function of `library`, with the type that its header gave it. */
#define LATE(library, type, name, parameters, ...)                                                           \
    type name parameters                                                                                     \
    {                                                                                                        \
        static _Atomic(void *) known;                                                                        \
        __typeof__(&name) real;                                                                              \
        LATE_REAL(library, name);                                                                            \
        return real(__VA_ARGS__);                                                                            \
    }
/* Sets `real` of a definition. */
#define LATE_REAL(library, name)                                                                             \
    void *at = atomic_load_explicit(&known, memory_order_acquire);                                           \
    *(void **)&real = at ? at : late_find(library, #name, &known)

#endif
