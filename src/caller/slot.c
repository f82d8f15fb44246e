/* SPDX-License-Identifier: MIT */
#include "caller/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum status slot_take_any(struct slot *slot, const char *path, uint64_t number, unsigned count)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return STATUS_IO;
    enum status status = STATUS_CONFLICT;
    for (unsigned i = 0; i < count && status == STATUS_CONFLICT; i++) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(number + i), .l_len = 1};
        int rc;
        do {
            rc = fcntl(fd, F_OFD_SETLK, &lock);
        } while (rc < 0 && errno == EINTR);
        if (rc == 0)
            status = STATUS_OK;
        else if (errno != EAGAIN && errno != EACCES)
            status = STATUS_IO;
    }
    if (status == STATUS_OK)
        slot->fd = fd;
    else
        close(fd);
    return status;
}

enum status slot_take(struct slot *slot, const char *path, uint64_t number)
{
    return slot_take_any(slot, path, number, 1);
}

void slot_release(struct slot *slot)
{
    if (slot->fd >= 0)
        close(slot->fd);
    slot->fd = -1;
}
