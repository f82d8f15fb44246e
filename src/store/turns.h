/* SPDX-License-Identifier: MIT
 *
 * Asks that this thread runs soon after each of its sleeps, for no longer. The store's writer sleeps several times in
 * every sync, and all calls in flight wait until it runs again: measured on two busy cores, it waited for a core twice as
 * long as it ran. It gets no more time by this, and needs no privilege. From Linux 6.12 on; before, nothing changes.
 */
#ifndef SAMEKEY_STORE_TURNS_H
#define SAMEKEY_STORE_TURNS_H

void short_turns(void);

#endif
