/* SPDX-License-Identifier: MIT */
#include "cli/late.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

enum { EXIT_UNAVAILABLE = 69 };

void *late_find(struct late *library, const char *name, _Atomic(void *) *known)
{
    pthread_mutex_lock(&library->lock);
    if (!library->handle)
        library->handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    void *at = library->handle ? dlsym(library->handle, name) : NULL;
    const char *why = at ? NULL : dlerror();
    pthread_mutex_unlock(&library->lock);
    if (!at) {
        fprintf(stderr,
                "samekey: %s is needed here and cannot be used (%s); install the package that brings it\n",
                library->file, why ? why : name);
        _exit(EXIT_UNAVAILABLE); /* other threads are at work: nothing is left to be cleaned up in order */
    }
    atomic_store_explicit(known, at, memory_order_release);
    return at;
}
