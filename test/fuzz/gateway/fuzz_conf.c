/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a configuration file: it is read or refused with a reason, never half of both. What was read is printed
 * and read again, to the same values. The file is a memfd, so nothing is written to a disk.
 */
#include "gateway/conf.h"
#include "gateway/route.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum status load(struct settings **out, const void *data, size_t size, struct buffer *said)
{
    char path[40];
    int fd = memfd_create("conf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    enum status status = conf_load(out, path, NULL, said);
    close(fd);
    return status;
}

static void same(const struct settings *a, const struct settings *b)
{
    struct buffer x = {0}, y = {0};
    if (a->route_count != b->route_count)
        abort();
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        for (size_t k = 0; k < (settings_table[i].scope == SETTING_SCOPE_ROUTE ? a->route_count : 1); k++) {
            bool in_route = settings_table[i].scope == SETTING_SCOPE_ROUTE;
            /* What is hidden in print comes back as what was printed. */
            buffer_clear(&x);
            buffer_clear(&y);
            settings_value_shown(&x, a, in_route ? a->routes[k] : NULL, &settings_table[i]);
            settings_value_shown(&y, b, in_route ? b->routes[k] : NULL, &settings_table[i]);
            if (!slice_equal(buffer_view(&x), buffer_view(&y)))
                abort();
        }
    buffer_fini(&x);
    buffer_fini(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings *s = NULL, *again = NULL;
    struct buffer said = {0}, printed = {0};
    enum status status = load(&s, data, size, &said);
    if (status == STATUS_OK) {
        settings_print(&printed, s);
        if (load(&again, printed.data, printed.len, &said) != STATUS_OK)
            abort();
        same(s, again);
    } else if (s || !said.len || !strstr(buffer_cstring(&said), "error")) {
        abort();
    }
    conf_free(s);
    conf_free(again);
    buffer_fini(&said);
    buffer_fini(&printed);
    return 0;
}
