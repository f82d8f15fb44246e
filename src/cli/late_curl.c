/* SPDX-License-Identifier: MIT
 *
 * libcurl, loaded at its first call; see late.h. */
#define CURL_DISABLE_TYPECHECK
#include "cli/late.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdarg.h>

#undef curl_easy_setopt /* macros around the functions, which would not let them be defined */
#undef curl_easy_getinfo

static struct late curl = {.file = SAMEKEY_CURL_SONAME, .lock = PTHREAD_MUTEX_INITIALIZER};

LATE(&curl, CURLcode, curl_global_init, (long flags), flags)
LATE(&curl, void, curl_global_cleanup, (void), )
LATE(&curl, CURL *, curl_easy_init, (void), )
LATE(&curl, void, curl_easy_cleanup, (CURL * easy), easy)
LATE(&curl, void, curl_easy_reset, (CURL * easy), easy)
LATE(&curl, CURLcode, curl_easy_perform, (CURL * easy), easy)
LATE(&curl, const char *, curl_easy_strerror, (CURLcode code), code)
LATE(&curl, char *, curl_easy_escape, (CURL * easy, const char *text, int len), easy, text, len)
LATE(&curl, void, curl_free, (void *text), text)
LATE(&curl, struct curl_slist *, curl_slist_append, (struct curl_slist * list, const char *text), list, text)
LATE(&curl, void, curl_slist_free_all, (struct curl_slist * list), list)
LATE(&curl, CURLM *, curl_multi_init, (void), )
LATE(&curl, CURLMcode, curl_multi_cleanup, (CURLM * multi), multi)
LATE(&curl, CURLMcode, curl_multi_add_handle, (CURLM * multi, CURL *easy), multi, easy)
LATE(&curl, CURLMcode, curl_multi_remove_handle, (CURLM * multi, CURL *easy), multi, easy)
LATE(&curl, CURLMcode, curl_multi_perform, (CURLM * multi, int *running), multi, running)
LATE(&curl, CURLMsg *, curl_multi_info_read, (CURLM * multi, int *rest), multi, rest)
LATE(&curl, CURLMcode, curl_multi_poll,
     (CURLM * multi, struct curl_waitfd *more, unsigned count, int timeout_ms, int *ready), multi, more,
     count, timeout_ms, ready)

/* The last argument is a long, a curl_off_t or a pointer: one machine word, which is handed on as it is. */
static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *), "one word each");

CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    static _Atomic(void *) known;
    CURLcode (*real)(CURL *, CURLoption, ...);
    LATE_REAL(&curl, curl_easy_setopt);
    va_list rest;
    va_start(rest, option);
    void *word = va_arg(rest, void *);
    va_end(rest);
    return real(easy, option, word);
}

CURLcode curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    static _Atomic(void *) known;
    CURLcode (*real)(CURL *, CURLINFO, ...);
    LATE_REAL(&curl, curl_easy_getinfo);
    va_list rest;
    va_start(rest, info);
    void *to = va_arg(rest, void *);
    va_end(rest);
    return real(easy, info, to);
}
