/* SPDX-License-Identifier: MIT */
#include "cli/desk.h"

#include "gateway/conf.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS       5000
#define ANSWER_MS        120000 /* thousands of tasks may be settled by one question */
#define ANSWER_BYTES_MAX (96u << 20)

static bool wrong(struct desk *desk, const char *what, const char *value)
{
    buffer_clear(&desk->why);
    buffer_format(&desk->why, what, value);
    return false;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool read_token(struct desk *desk, const char *path)
{
    buffer_clear(&desk->why);
    return conf_token(path, &desk->token, &desk->why) == STATUS_OK;
}

static void set_address(struct desk *desk, const char *at)
{
    if (begins(at, "unix:")) {
        buffer_text(&desk->socket, at + strlen("unix:"));
        buffer_text(&desk->base, "http://localhost");
        return;
    }
    size_t len = strlen(at);
    while (len && at[len - 1] == '/')
        len--;
    if (!begins(at, "http://") && !begins(at, "https://"))
        buffer_text(&desk->base, "http://");
    /* Where it listens on all addresses, this machine is asked. */
    if (begins(at, "0.0.0.0:"))
        buffer_format(&desk->base, "127.0.0.1:%.*s", (int)(len - strlen("0.0.0.0:")),
                      at + strlen("0.0.0.0:"));
    else if (begins(at, "[::]:"))
        buffer_format(&desk->base, "[::1]:%.*s", (int)(len - strlen("[::]:")), at + strlen("[::]:"));
    else
        buffer_append(&desk->base, at, len);
}

bool desk_open(struct desk *desk)
{
    struct settings *settings = NULL;
    const struct conf_flags none = {0};
    const char *environment = getenv(DESK_TOKEN_ENV);
    bool good = false;
    if (desk->conf && conf_load(&settings, desk->conf, &none, &desk->why) != STATUS_OK) {
        if (!desk->why.len)
            buffer_format(&desk->why, "%s cannot be read", desk->conf);
        return false;
    }
    const char *at = desk->at ? desk->at : settings ? settings->admin : DESK_DEFAULT;
    const char *file = desk->token_file                          ? desk->token_file
                       : environment && *environment             ? environment
                       : settings && *settings->admin_token_file ? settings->admin_token_file
                                                                 : NULL;
    if (!*at)
        wrong(desk, "%s turns the admin listener off (admin = \"\")", desk->conf);
    else
        set_address(desk, at);
    good = *at && (!file || read_token(desk, file));
    conf_free(settings);
    return good;
}

void desk_close(struct desk *desk)
{
    if (desk->token.data)
        memset(desk->token.data, 0, desk->token.capacity);
    buffer_fini(&desk->base);
    buffer_fini(&desk->socket);
    buffer_fini(&desk->token);
    buffer_fini(&desk->why);
}

static size_t take_bytes(char *data, size_t size, size_t count, void *context)
{
    struct buffer *body = context;
    buffer_append(body, data, size * count);
    return body->failed ? 0 : size * count;
}

/* What a refusal says, with the remedy where it is known. */
static bool refused(struct desk *desk, const struct desk_answer *answer)
{
    buffer_clear(&desk->why);
    if (!answer->document || !begins(desk_text(answer->document, "type"), "urn:samekey:"))
        buffer_format(&desk->why, "%s answered %ld and no document: is this the admin address of a gateway?",
                      buffer_cstring(&desk->base), answer->status);
    else if (answer->status == 401)
        buffer_format(&desk->why,
                      "the gateway wants a token: name its file with --token-file or " DESK_TOKEN_ENV " (%s)",
                      desk_text(answer->document, "detail"));
    else
        buffer_format(&desk->why, "%s: %s", desk_text(answer->document, "title"),
                      desk_text(answer->document, "detail"));
    return false;
}

bool desk_ask(struct desk *desk, const char *path, const char *body, struct desk_answer *answer)
{
    struct buffer url = {0}, line = {0}, bytes = {.max = ANSWER_BYTES_MAX};
    struct curl_slist *headers = NULL;
    char problem[CURL_ERROR_SIZE] = "";
    bool came = false;
    *answer = (struct desk_answer){0};
    CURL *curl = curl_easy_init();
    if (!curl)
        return wrong(desk, "libcurl cannot be started%s", "");
    buffer_slice(&url, buffer_view(&desk->base));
    buffer_text(&url, path);
    headers = curl_slist_append(headers, "Accept: application/json");
    if (desk->token.len) {
        buffer_text(&line, "Authorization: Bearer ");
        buffer_slice(&line, buffer_view(&desk->token));
        headers = curl_slist_append(headers, buffer_cstring(&line));
    }
    if (body) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    }
    if (desk->socket.len)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, buffer_cstring(&desk->socket));
    curl_easy_setopt(curl, CURLOPT_URL, buffer_cstring(&url));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "samekey/" SAMEKEY_VERSION);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &bytes);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
    if (code != CURLE_OK) {
        buffer_clear(&desk->why);
        buffer_format(&desk->why, "%s cannot be asked: %s", buffer_cstring(&desk->base),
                      problem[0] ? problem : curl_easy_strerror(code));
    } else {
        answer->document = json_loadb(bytes.data ? bytes.data : "", bytes.len, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(answer->document)) {
            json_decref(answer->document);
            answer->document = NULL;
        }
        came = answer->status / 100 == 2 && answer->document ? true : refused(desk, answer);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (line.data)
        memset(line.data, 0, line.capacity);
    buffer_fini(&url);
    buffer_fini(&line);
    buffer_fini(&bytes);
    return came;
}

void desk_query(struct buffer *path, const char *name, const char *value)
{
    static const char digits[] = "0123456789ABCDEF";
    if (!value)
        return;
    bool any = path->len && memchr(path->data, '?', path->len);
    buffer_byte(path, any ? '&' : '?');
    buffer_text(path, name);
    buffer_byte(path, '=');
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("-._~", c)) {
            buffer_byte(path, (char)c);
        } else {
            buffer_byte(path, '%');
            buffer_byte(path, digits[c >> 4]);
            buffer_byte(path, digits[c & 15]);
        }
    }
}

const char *desk_text(const json_t *document, const char *name)
{
    const char *text = json_string_value(json_object_get(document, name));
    return text ? text : "";
}

void desk_print(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}
