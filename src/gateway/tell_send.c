/* SPDX-License-Identifier: MIT */
#include "gateway/tell_send.h"

#include "base/buffer.h"
#include "net/loop.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELL_LOOK_MS    10  /* between two looks whether a command has ended */
#define COMPLAINT_BYTES 160 /* of a command's standard error that are told */

enum status tell_sign(struct slice secret, int64_t now_s, struct slice body, char *out, size_t out_size)
{
    struct buffer text = {0};
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    buffer_format(&text, "%" PRId64 ".", now_s);
    buffer_slice(&text, body);
    bool good = !text.failed && HMAC(EVP_sha256(), secret.data, (int)secret.len,
                                     (const unsigned char *)text.data, text.len, digest, &len) != NULL;
    buffer_fini(&text);
    int used = good ? snprintf(out, out_size, "t=%" PRId64 ",v1=", now_s) : -1;
    if (used < 0 || (size_t)used + 2 * len + 1 > out_size)
        return STATUS_IO;
    for (unsigned i = 0; i < len; i++)
        snprintf(out + used + 2 * i, 3, "%02x", digest[i]);
    return STATUS_OK;
}

/* ---- webhook -------------------------------------------------------------------------------------------------- */

static size_t on_answer(char *data, size_t size, size_t count, void *context)
{
    (void)data, (void)context;
    return size * count; /* what it says does not matter */
}

void tell_ready(const char *target)
{
    if (strncmp(target, "http", 4) == 0)
        curl_slist_free_all(NULL);
}

static bool add_line(struct curl_slist **lines, const char *name, const char *value)
{
    struct buffer line = {0};
    buffer_format(&line, "%s: %s", name, value);
    struct curl_slist *longer = line.failed ? NULL : curl_slist_append(*lines, buffer_cstring(&line));
    buffer_fini(&line);
    if (longer)
        *lines = longer;
    return longer != NULL;
}

static enum status send_webhook(const struct tell_letter *letter, char *why, size_t why_size)
{
    enum status status = STATUS_IO;
    struct curl_slist *lines = NULL;
    char signature[128], error[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    bool good =
        curl &&
        tell_sign(letter->secret, letter->now_s, letter->body, signature, sizeof signature) == STATUS_OK &&
        add_line(&lines, "Content-Type", "application/json") &&
        add_line(&lines, "X-Samekey-Signature", signature) &&
        add_line(&lines, "Idempotency-Key", letter->key) && add_line(&lines, "Expect", "");
    if (!good) {
        snprintf(why, why_size, "no memory for the request");
        goto done;
    }
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_URL, letter->target);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, lines);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, letter->body.data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)letter->body.len);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)TELL_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    CURLcode code = curl_easy_perform(curl);
    long http = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
    if (code != CURLE_OK)
        snprintf(why, why_size, "%s", error[0] ? error : curl_easy_strerror(code));
    else if (http < 200 || http > 299)
        snprintf(why, why_size, "it answered %ld", http);
    else
        status = STATUS_OK;
done:
    curl_slist_free_all(lines);
    curl_easy_cleanup(curl);
    return status;
}

/* ---- command -------------------------------------------------------------------------------------------------- */

extern char **environ;

static enum status start_command(const char *path, int input, int errors, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *argv[] = {strdup(path), NULL};
    int rc = argv[0] ? posix_spawn_file_actions_init(&files) : ENOMEM;
    if (rc == 0) {
        sigemptyset(&none);
        sigfillset(&all);
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setpgroup(&attributes, 0); /* a group of its own, to be killed with what it started */
        posix_spawnattr_setflags(&attributes,
                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
        posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
        posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
        rc = posix_spawn(pid, path, &files, &attributes, argv, environ);
        posix_spawn_file_actions_destroy(&files);
        posix_spawnattr_destroy(&attributes);
    }
    free(argv[0]);
    return rc == 0 ? STATUS_OK : STATUS_IO;
}

/* What a command says on its standard error: the beginning is kept for `why`, the rest is read and dropped, so that it
 * neither waits for a reader nor stands between the lines of our log. */
struct complaint {
    int fd;
    char text[COMPLAINT_BYTES + 1];
    size_t len;
};

static void complaint_read(struct complaint *c)
{
    char piece[4096];
    for (int reads = 0; reads < 64; reads++) { /* one that writes without end still meets its time limit */
        ssize_t n = read(c->fd, piece, sizeof piece);
        if (n <= 0)
            return;
        for (ssize_t i = 0; i < n && c->len < COMPLAINT_BYTES; i++)
            c->text[c->len++] = (unsigned char)piece[i] < ' ' ? ' ' : piece[i];
    }
}

/* Writes what the pipe takes until `end_ms`. A command that reads nothing and exits well has been told all the same. */
static void feed_command(int fd, struct slice body, struct complaint *complaint, int64_t end_ms)
{
    size_t done = 0;
    while (done < body.len && clock_monotonic_ms() < end_ms) {
        ssize_t n = write(fd, body.data + done, body.len - done);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
        complaint_read(complaint);
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        poll(&wait, 1, TELL_LOOK_MS);
    }
}

static enum status run_command(const char *path, struct slice body, int input[2], int errors[2], char *why,
                               size_t why_size)
{
    pid_t pid, ended;
    int state = 0;
    struct complaint complaint = {.fd = errors[0]};
    int64_t end_ms = clock_monotonic_ms() + TELL_TIMEOUT_MS;
    enum status status = start_command(path, input[0], errors[1], &pid);
    close(input[0]);
    close(errors[1]);
    fcntl(input[1], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    if (status == STATUS_OK)
        feed_command(input[1], body, &complaint, end_ms);
    close(input[1]);
    if (status != STATUS_OK) {
        snprintf(why, why_size, "%s cannot be started", path);
        return status;
    }
    while ((ended = waitpid(pid, &state, WNOHANG)) == 0 && clock_monotonic_ms() < end_ms) {
        complaint_read(&complaint);
        poll(NULL, 0, TELL_LOOK_MS);
    }
    complaint_read(&complaint);
    if (ended == 0) {
        kill(-pid, SIGKILL);
        waitpid(pid, &state, 0);
        snprintf(why, why_size, "it did not end within %d s and was killed", TELL_TIMEOUT_MS / 1000);
        return STATUS_IO;
    }
    if (ended == pid && WIFEXITED(state) && WEXITSTATUS(state) == 0)
        return STATUS_OK;
    snprintf(why, why_size, "it ended with %s %d%s%s", WIFSIGNALED(state) ? "signal" : "status",
             WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state), complaint.len ? ": " : "",
             complaint.text);
    return STATUS_IO;
}

static enum status send_command(const struct tell_letter *letter, char *why, size_t why_size)
{
    int input[2], errors[2];
    if (pipe2(input, O_CLOEXEC) != 0) {
        snprintf(why, why_size, "no pipe: %s", strerror(errno));
        return STATUS_IO;
    }
    if (pipe2(errors, O_CLOEXEC) != 0) {
        snprintf(why, why_size, "no pipe: %s", strerror(errno));
        close(input[0]);
        close(input[1]);
        return STATUS_IO;
    }
    enum status status =
        run_command(letter->target + strlen("command "), letter->body, input, errors, why, why_size);
    close(errors[0]);
    return status;
}

enum status tell_send(const struct tell_letter *letter, char *why, size_t why_size)
{
    why[0] = '\0';
    return strncmp(letter->target, "command ", 8) == 0 ? send_command(letter, why, why_size)
                                                       : send_webhook(letter, why, why_size);
}
