/* SPDX-License-Identifier: BSD-3-Clause */
/* core/list.h - doubly linked lists. The elements embed a node. */
#ifndef TMSG_CORE_LIST_H
#define TMSG_CORE_LIST_H

#include <stddef.h>

/* Returns the struct in which `pointer` points to the member. */
#define TMSG_CONTAINER_OF(pointer, type, member)                               \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

typedef struct tmsg_node {
    struct tmsg_node *next;
    struct tmsg_node *previous;
} tmsg_node_t;

/* Links nodes from `head` to `tail`. All zero bits: the list is empty. */
typedef struct {
    tmsg_node_t *head;
    tmsg_node_t *tail;
    size_t count;
} tmsg_list_t;

/* Inserts a node behind `before`, or at the head if `before` is NULL. */
static inline void tmsg_list_insert(tmsg_list_t *list, tmsg_node_t *before,
                                    tmsg_node_t *node)
{
    node->previous = before;
    node->next = before == NULL ? list->head : before->next;
    if (node->next == NULL) {
        list->tail = node;
    } else {
        node->next->previous = node;
    }
    if (before == NULL) {
        list->head = node;
    } else {
        before->next = node;
    }
    list->count++;
}

static inline void tmsg_list_push(tmsg_list_t *list, tmsg_node_t *node)
{
    tmsg_node_t *tail = list->tail;

    node->next = NULL;
    node->previous = tail;
    list->tail = node;
    if (tail == NULL) {
        list->head = node;
    } else {
        tail->next = node;
    }
    list->count++;
}

static inline void tmsg_list_remove(tmsg_list_t *list, tmsg_node_t *node)
{
    if (node->previous == NULL) {
        list->head = node->next;
    } else {
        node->previous->next = node->next;
    }
    if (node->next == NULL) {
        list->tail = node->previous;
    } else {
        node->next->previous = node->previous;
    }
    list->count--;
}

/* Takes the first node off and returns it; NULL if the list is empty. */
static inline tmsg_node_t *tmsg_list_pop(tmsg_list_t *list)
{
    tmsg_node_t *node = list->head;

    if (node != NULL) {
        list->head = node->next;
        if (node->next == NULL) {
            list->tail = NULL;
        } else {
            node->next->previous = NULL;
        }
        list->count--;
    }
    return node;
}

#endif
