/* SPDX-License-Identifier: MIT */
#include "caller/ids.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    _Atomic(pid_t) pid; /* whose maker it is; 0: nobody's yet */
    struct callid_maker maker;
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define MIDDLE_BYTES 26 /* 13 digits, a dash, 12 hex */

/* What all processes of one boot and pid namespace share, and others do not. */
static uint64_t make_salt(void)
{
    char boot[64] = "";
    struct stat ns = {0};
    uint64_t salt = UINT64_C(14695981039346656037);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, boot, sizeof boot) : 0;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < len; i++)
        salt = (salt ^ (unsigned char)boot[i]) * UINT64_C(1099511628211);
    if (stat("/proc/self/ns/pid", &ns) == 0)
        salt = (salt ^ (uint64_t)ns.st_ino) * UINT64_C(1099511628211);
    return salt;
}

/* Makes the maker of this process, once. A fork during this in another thread leaves a locked mutex in the child; the
 * header asks a child to open handles of its own, after which nobody else holds it. */
static enum status begin(pid_t pid, int64_t unix_ms)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&process.mutex);
    if (atomic_load(&process.pid) != pid) {
        uint32_t start;
        if (getrandom(&start, sizeof start, 0) != (ssize_t)sizeof start)
            status = STATUS_IO;
        else
            status = callid_maker_init(&process.maker, slice_text("x"), slice_text("x"),
                                       callid_tag((uint32_t)pid, make_salt()), start & 0xFFFFFF, unix_ms);
        if (status == STATUS_OK)
            atomic_store(&process.pid, pid);
    }
    pthread_mutex_unlock(&process.mutex);
    return status;
}

enum status ids_make(struct slice prefix, struct slice node, int64_t unix_ms, char out[CALLID_BYTES_MAX + 1])
{
    char middle[CALLID_BYTES_MAX + 1];
    int64_t inside;
    pid_t pid = getpid();
    if (prefix.len == 0 || node.len == 0 || prefix.len + node.len > CALLID_NAMES_BYTES_MAX ||
        callid_check(prefix) != STATUS_OK || callid_check(node) != STATUS_OK ||
        callid_time(prefix, &inside) == STATUS_OK)
        return STATUS_INVALID;
    if (atomic_load(&process.pid) != pid) {
        enum status status = begin(pid, unix_ms);
        if (status != STATUS_OK)
            return status;
    }
    callid_make(&process.maker, unix_ms, middle);
    /* "x-<middle>-x": between its dashes lies what never comes twice. */
    char *p = out;
    memcpy(p, prefix.data, prefix.len);
    p += prefix.len;
    memcpy(p, middle + 1, MIDDLE_BYTES + 2);
    p += MIDDLE_BYTES + 2;
    memcpy(p, node.data, node.len);
    p[node.len] = 0;
    return STATUS_OK;
}

void ids_host_node(char out[IDS_NODE_BYTES_MAX + 1])
{
    char name[IDS_NODE_BYTES_MAX + 1] = "";
    if (gethostname(name, sizeof name - 1) != 0 || !name[0])
        snprintf(name, sizeof name, "node");
    for (char *p = name; *p; p++) {
        if (callid_check(slice_of(p, 1)) != STATUS_OK || *p == ':')
            *p = '-';
    }
    memcpy(out, name, sizeof name);
}
