/* SPDX-License-Identifier: MIT
 *
 * Any path against a table with a guarded pattern beside an open one. The harness plays a forgiving upstream: it decodes
 * percent-encodings twice, cuts path parameters, takes backslashes for slashes, drops empty segments, resolves dots and
 * ignores letter case. A POST that such an upstream would run as /orders must not have passed by the open route.
 */
#include "gateway/route.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct settings *settings;
static struct routes *routes;

static void add(const char *name, const char *path, const char *mode)
{
    struct route_settings *r = NULL;
    struct buffer why = {0};
    struct slice p = slice_text(path), m = slice_text(mode);
    if (settings_add_route(settings, slice_text(name), 1, &r, &why) != STATUS_OK ||
        settings_set(settings, r, &settings_table[SETTING_ID_path], &p, 1, (struct setting_origin){0},
                     &why) != STATUS_OK ||
        settings_set(settings, r, &settings_table[SETTING_ID_mode], &m, 1, (struct setting_origin){0},
                     &why) != STATUS_OK)
        abort();
    buffer_fini(&why);
}

static size_t decode(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] == '%' && i + 2 < n && isxdigit((unsigned char)s[i + 1]) &&
            isxdigit((unsigned char)s[i + 2])) {
            char hex[3] = {s[i + 1], s[i + 2], 0};
            s[out++] = (char)strtol(hex, NULL, 16);
            i += 2;
        } else {
            s[out++] = s[i];
        }
    return out;
}

/* What the forgiving upstream reads: segments joined by one slash each. */
static void forgive(char *s, size_t n, char *out)
{
    char *segments[256];
    size_t count = 0;
    n = decode(s, decode(s, n));
    s[n] = '\0';
    n = strlen(s);
    s[strcspn(s, "#?")] = '\0';
    for (char *p = s; *p; p++)
        *p = *p == '\\' ? '/' : (char)tolower((unsigned char)*p);
    for (char *p = strtok(s, "/"); p; p = strtok(NULL, "/")) {
        p[strcspn(p, ";")] = '\0';
        if (strcmp(p, "..") == 0)
            count -= count > 0;
        else if (*p && strcmp(p, ".") != 0 && count < 256)
            segments[count++] = p;
    }
    *out = '\0';
    for (size_t i = 0; i < count; i++) {
        strcat(out, "/");
        strcat(out, segments[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!routes) {
        if (settings_new(&settings) != STATUS_OK)
            abort();
        add("orders", "/orders", "guard");
        add("rest", "/{*}", "off");
        if (routes_compile(&routes, settings, NULL, NULL) != STATUS_OK)
            abort();
    }
    if (size > 1000)
        return 0;
    char copy[1001], read[2100];
    struct route_match m;
    if (size)
        memcpy(copy, data, size);
    if (routes_match(routes, slice_text("POST"), slice_of(copy, size), &m) == STATUS_OK && !m.guarded) {
        forgive(copy, size, read);
        if (strcmp(read, "/orders") == 0)
            abort();
    }
    return 0;
}
