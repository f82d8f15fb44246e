/* SPDX-License-Identifier: MIT
 *
 * The callee of rpc_client.c: runs each key once, remembers callIds, and loses the replies it is told to lose.
 *
 *     rpc_server SOCKET [lose-reply|lose-request]     prints "ready", and a line for each effect
 */
#include "attachments.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CALLS_MAX 1000

static struct {
    char call_id[130], key[256];
} calls[CALLS_MAX];
static int call_count;

static int find(const char *call_id, const char *key)
{
    for (int i = 0; i < call_count; i++) {
        if ((call_id && strcmp(calls[i].call_id, call_id) == 0) || (key && strcmp(calls[i].key, key) == 0))
            return i;
    }
    return -1;
}

static void answer(int fd, const char *name, const char *value, const char *call_id)
{
    char frame[FRAME_BYTES_MAX];
    int len = snprintf(frame, sizeof frame, "%s=%s;x-call-id=%s\n", name, value, call_id);
    send(fd, frame, (size_t)len, MSG_NOSIGNAL);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc < 2 || strlen(argv[1]) >= sizeof address.sun_path)
        return 64;
    int lose = argc < 3 ? 0 : strcmp(argv[2], "lose-reply") == 0 ? 1 : 2;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, argv[1], strlen(argv[1]));
    unlink(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 16) != 0)
        return 69;
    puts("ready");
    fflush(stdout);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        char frame[FRAME_BYTES_MAX] = "", what[32] = "", call_id[130] = "", key[256] = "";
        ssize_t len = recv(fd, frame, sizeof frame - 1, 0);
        if (len <= 0 || !attachment(frame, "do", what, sizeof what) ||
            !attachment(frame, "x-call-id", call_id, sizeof call_id))
            continue;
        if (strcmp(what, "receipt") == 0) {
            answer(fd, "state", find(call_id, NULL) >= 0 ? "SUCCESS" : "NOT_RECEIVED", call_id);
        } else if (strcmp(what, "charge") == 0 && attachment(frame, "x-idempotency-key", key, sizeof key)) {
            if (lose == 2) {
                lose = 0;
                continue;
            }
            if (find(NULL, key) < 0 && call_count < CALLS_MAX) {
                snprintf(calls[call_count].call_id, sizeof calls->call_id, "%s", call_id);
                snprintf(calls[call_count++].key, sizeof calls->key, "%s", key);
                printf("effect %s\n", key);
                fflush(stdout);
            }
            if (lose == 1) {
                lose = 0;
                continue;
            }
            answer(fd, "outcome", "success", call_id);
        }
    }
    return 0;
}
