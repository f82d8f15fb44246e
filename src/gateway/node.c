/* SPDX-License-Identifier: MIT */
#include "gateway/node.h"

#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

size_t node_clean(struct slice name, char out[NODE_BYTES_MAX + 1])
{
    size_t n = 0;
    for (; n < name.len && n < NODE_BYTES_MAX && name.data[n] != '.'; n++) {
        char c = name.data[n];
        bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        out[n] = fine ? c : '-';
    }
    if (n == 0) {
        memcpy(out, "node", 4);
        n = 4;
    }
    out[n] = '\0';
    return n;
}

size_t node_name(char out[NODE_BYTES_MAX + 1])
{
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    return node_clean(slice_text(host), out);
}

/* FNV-1a; the salt only has to differ, not to be secret. */
static uint64_t mix(uint64_t h, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)data[i]) * UINT64_C(1099511628211);
    return h;
}

/* What the processes of one pid namespace share and others do not: boot, namespace, node. */
static uint64_t salt_of(struct slice node)
{
    uint64_t h = UINT64_C(14695981039346656037);
    char text[128];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, text, sizeof(text));
        h = mix(h, text, n > 0 ? (size_t)n : 0);
        close(fd);
    }
    ssize_t n = readlink("/proc/self/ns/pid", text, sizeof(text));
    h = mix(h, text, n > 0 ? (size_t)n : 0);
    return mix(h, node.data, node.len);
}

enum status node_callid_maker(struct callid_maker *m, struct slice prefix, struct slice node)
{
    char name[NODE_BYTES_MAX + 1];
    uint32_t start = 0;
    struct timespec now;
    if (node.len == 0)
        node = slice_of(name, node_name(name));
    if (getrandom(&start, sizeof(start), 0) != (ssize_t)sizeof(start))
        return STATUS_IO;
    clock_gettime(CLOCK_REALTIME, &now);
    return callid_maker_init(m, prefix, node, callid_tag((uint32_t)getpid(), salt_of(node)), start & 0xffffff,
                             (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
}
