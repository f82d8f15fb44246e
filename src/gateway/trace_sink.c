/* SPDX-License-Identifier: MIT */
#include "gateway/trace_sink.h"

#include <curl/curl.h>
#include <jansson.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 3000
#define REQUEST_TIMEOUT_MS 10000
#define ANSWER_BYTES_MAX   65536 /* of a collector's answer that is looked at */
#define FILE_MODE          0640

struct trace_sink {
    char *path; /* of a file; NULL: a collector */
    int fd;
    CURL *curl;
    struct curl_slist *headers;
    struct buffer answer;
    trace_sink_leave *leave;
    void *context;
    char why[CURL_ERROR_SIZE + 64];
};

/* ---- a file -------------------------------------------------------------------------------------------------- */

/* Only a regular file: in a pipe half a line could not be taken back, and a reader that sleeps would hold up the thread. */
static int open_file(const char *path, const char **why)
{
    struct stat about;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, FILE_MODE);
    *why = fd < 0 ? strerror(errno) : NULL;
    if (fd >= 0 && (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))) {
        *why = "it is not a regular file";
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A file that was moved away (logrotate) is begun anew under its name. */
static bool follow(struct trace_sink *sink)
{
    struct stat named, held;
    if (sink->fd >= 0 && stat(sink->path, &named) == 0 && fstat(sink->fd, &held) == 0 &&
        named.st_ino == held.st_ino && named.st_dev == held.st_dev)
        return true;
    const char *why;
    int fd = open_file(sink->path, &why);
    if (fd < 0) {
        snprintf(sink->why, sizeof sink->why, "%.200s: %s", sink->path, why);
        return false;
    }
    if (sink->fd >= 0)
        close(sink->fd);
    sink->fd = fd;
    return true;
}

static bool write_all(int fd, struct slice s)
{
    while (s.len) {
        ssize_t n = write(fd, s.data, s.len);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            s = slice_of(s.data + n, s.len - (size_t)n);
    }
    return true;
}

static enum trace_sent append(struct trace_sink *sink, struct slice document)
{
    if (!follow(sink))
        return TRACE_LATER;
    off_t before = lseek(sink->fd, 0, SEEK_END);
    if (before >= 0 && write_all(sink->fd, document) && write_all(sink->fd, slice_of("\n", 1)))
        return TRACE_SENT;
    snprintf(sink->why, sizeof sink->why, "%.200s: %s", sink->path, strerror(errno));
    /* Where even this fails, the next line begins behind half a line; better than none. */
    return before >= 0 && ftruncate(sink->fd, before) == 0 ? TRACE_LATER : TRACE_REFUSED;
}

/* ---- a collector --------------------------------------------------------------------------------------------- */

static size_t on_answer(char *data, size_t size, size_t count, void *context)
{
    struct trace_sink *sink = context;
    size_t room = ANSWER_BYTES_MAX - sink->answer.len;
    buffer_append(&sink->answer, data, size * count < room ? size * count : room);
    return size * count; /* what is too long is read and forgotten */
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct trace_sink *sink = context;
    (void)a, (void)b, (void)c, (void)d;
    return sink->leave(sink->context);
}

/* {"partialSuccess":{"rejectedSpans":"3",...}}: the protocol's 64-bit numbers are texts, some collectors write numbers. */
static uint64_t rejected_in(struct slice answer)
{
    json_t *document = json_loadb(answer.data, answer.len, 0, NULL);
    const json_t *count = json_object_get(json_object_get(document, "partialSuccess"), "rejectedSpans");
    long long n = json_is_string(count)    ? strtoll(json_string_value(count), NULL, 10)
                  : json_is_integer(count) ? json_integer_value(count)
                                           : 0;
    json_decref(document);
    return n > 0 ? (uint64_t)n : 0;
}

static enum trace_sent post(struct trace_sink *sink, struct slice document, uint64_t *rejected)
{
    long status = 0;
    char error[CURL_ERROR_SIZE] = "";
    buffer_clear(&sink->answer);
    curl_easy_setopt(sink->curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(sink->curl, CURLOPT_POSTFIELDS, document.data);
    curl_easy_setopt(sink->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)document.len);
    CURLcode code = curl_easy_perform(sink->curl);
    curl_easy_getinfo(sink->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(sink->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK && status >= 200 && status <= 299) {
        *rejected = rejected_in(buffer_view(&sink->answer));
        return TRACE_SENT;
    }
    if (code != CURLE_OK)
        snprintf(sink->why, sizeof sink->why, "%s", error[0] ? error : curl_easy_strerror(code));
    else
        snprintf(sink->why, sizeof sink->why, "the collector answers with status %ld", status);
    bool later = code != CURLE_OK || status == 429 || status == 502 || status == 503 || status == 504;
    return later ? TRACE_LATER : TRACE_REFUSED;
}

static bool add_header(struct trace_sink *sink, const char *line)
{
    struct curl_slist *longer = curl_slist_append(sink->headers, line);
    if (longer)
        sink->headers = longer;
    return longer != NULL;
}

static bool prepare(struct trace_sink *sink, const char *url, const struct text_list *headers)
{
    bool good = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && (sink->curl = curl_easy_init()) != NULL;
    /* Without "Expect:" curl waits a second for a leave that collectors do not give. */
    good = good && add_header(sink, "Content-Type: application/json") && add_header(sink, "Expect:");
    for (size_t i = 0; good && headers && i < headers->count; i++)
        good = add_header(sink, headers->items[i]);
    if (!good)
        return false;
    curl_easy_setopt(sink->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(sink->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(sink->curl, CURLOPT_HTTPHEADER, sink->headers);
    curl_easy_setopt(sink->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(sink->curl, CURLOPT_TIMEOUT_MS, (long)REQUEST_TIMEOUT_MS);
    curl_easy_setopt(sink->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(sink->curl, CURLOPT_WRITEDATA, sink);
    curl_easy_setopt(sink->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(sink->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(sink->curl, CURLOPT_XFERINFODATA, sink);
    return curl_easy_setopt(sink->curl, CURLOPT_URL, url) == CURLE_OK;
}

/* ---- both ---------------------------------------------------------------------------------------------------- */

enum status trace_sink_open(struct trace_sink **out, const char *target, const struct text_list *headers,
                            trace_sink_leave *leave, void *context, struct buffer *error)
{
    static const char file[] = "file:";
    struct trace_sink *sink = calloc(1, sizeof *sink);
    enum status status = STATUS_OK;
    if (!sink)
        return STATUS_NO_MEMORY;
    sink->fd = -1;
    sink->leave = leave;
    sink->context = context;
    if (strncmp(target, file, sizeof file - 1) == 0) {
        sink->path = strdup(target + sizeof file - 1);
        if (!sink->path) {
            status = STATUS_NO_MEMORY;
        } else {
            const char *why;
            sink->fd = open_file(sink->path, &why);
            if (sink->fd < 0) {
                buffer_format(error, "%s: %s", sink->path, why);
                status = STATUS_INVALID;
            }
        }
    } else if (!prepare(sink, target, headers)) {
        status = STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK)
        trace_sink_close(sink);
    else
        *out = sink;
    return status;
}

void trace_sink_close(struct trace_sink *sink)
{
    if (!sink)
        return;
    if (sink->fd >= 0)
        close(sink->fd);
    if (sink->curl)
        curl_easy_cleanup(sink->curl);
    if (sink->headers) /* where nothing was sent by libcurl, it is not loaded for this */
        curl_slist_free_all(sink->headers);
    buffer_fini(&sink->answer);
    free(sink->path);
    free(sink);
}

enum trace_sent trace_sink_send(struct trace_sink *sink, struct slice document, uint64_t *rejected,
                                const char **why)
{
    *rejected = 0;
    *why = sink->why;
    return sink->path ? append(sink, document) : post(sink, document, rejected);
}
