/* SPDX-License-Identifier: MIT
 *
 * A circular doubly linked list that lives inside its members. A head that links to itself is empty. A member
 * that was removed links to itself, so removing it twice does no harm.
 */
#ifndef SAMEKEY_BASE_LIST_H
#define SAMEKEY_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define LIST_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_push_back(struct list *head, struct list *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

static inline void list_push_front(struct list *head, struct list *l)
{
    list_push_back(head->next, l);
}

static inline void list_remove(struct list *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    list_init(l);
}

static inline struct list *list_pop_front(struct list *head)
{
    struct list *l = head->next;
    if (l == head)
        return NULL;
    list_remove(l);
    return l;
}

#endif
