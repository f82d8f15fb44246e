/* SPDX-License-Identifier: MIT */
#include "gateway/admin_guess.h"

#include <arpa/inet.h>
#include <stdio.h>

static void name_of(struct slice peer, char name[GUESS_NAME_BYTES])
{
    size_t len = peer.len < GUESS_NAME_BYTES - 1 ? peer.len : GUESS_NAME_BYTES - 1;
    unsigned char address[16];
    memset(name, 0, GUESS_NAME_BYTES);
    memcpy(name, peer.data, len);
    if (inet_pton(AF_INET6, name, address) != 1)
        return;
    int at = 0;
    for (int i = 0; i < 8; i++)
        at += snprintf(name + at, (size_t)(GUESS_NAME_BYTES - at), "%02x", address[i]);
    snprintf(name + at, (size_t)(GUESS_NAME_BYTES - at), "/64");
}

static const struct guess *find(const struct guesses *g, const char *name)
{
    for (size_t i = 0; i < GUESS_ADDRESSES_MAX; i++)
        if (strncmp(g->list[i].name, name, GUESS_NAME_BYTES) == 0)
            return &g->list[i];
    return NULL;
}

/* The place of a new address: a free one, or that of the address that was wrong longest ago. Those who wait keep theirs, and
 * fewer can wait than there are places. */
static struct guess *place(struct guesses *g)
{
    struct guess *oldest = NULL;
    for (size_t i = 0; i < GUESS_ADDRESSES_MAX; i++) {
        struct guess *each = &g->list[i];
        if (!each->name[0])
            return each;
        if (!each->waiting && (!oldest || each->last_ms < oldest->last_ms))
            oldest = each;
    }
    return oldest;
}

bool guess_crowded(const struct guesses *g, struct slice peer)
{
    char name[GUESS_NAME_BYTES];
    if (g->waiting < GUESS_WAITING_MAX)
        return false;
    if (g->waiting >= GUESS_ADDRESSES_MAX)
        return true;
    name_of(peer, name);
    const struct guess *guess = find(g, name);
    return guess && guess->waiting >= GUESS_WAITING_MAX;
}

int64_t guess_wrong(struct guesses *g, struct slice peer, int64_t now_ms)
{
    char name[GUESS_NAME_BYTES];
    name_of(peer, name);
    struct guess *guess = (struct guess *)find(g, name);
    if (!guess) {
        guess = place(g);
        if (!guess)
            return GUESS_WAIT_MAX_MS;
        memset(guess, 0, sizeof *guess);
        memcpy(guess->name, name, sizeof name);
    } else if (now_ms - guess->last_ms > GUESS_FORGET_MS) {
        guess->wrong = 0;
    }
    int64_t wait = GUESS_WAIT_MS;
    for (unsigned i = 0; i < guess->wrong && wait < GUESS_WAIT_MAX_MS; i++)
        wait *= 2;
    guess->wrong++;
    guess->last_ms = now_ms;
    guess->waiting++;
    g->waiting++;
    return wait < GUESS_WAIT_MAX_MS ? wait : GUESS_WAIT_MAX_MS;
}

void guess_over(struct guesses *g, struct slice peer)
{
    char name[GUESS_NAME_BYTES];
    name_of(peer, name);
    struct guess *guess = (struct guess *)find(g, name);
    if (!guess || !guess->waiting)
        return;
    guess->waiting--;
    g->waiting--;
}
