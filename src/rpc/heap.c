/* SPDX-License-Identifier: BSD-3-Clause */
/* A pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986). */
#include "rpc/heap.h"

#include <stddef.h>

/* Puts the one of two heaps below the other, and returns that. */
static tmsg_heap_node_t *meld(tmsg_heap_node_t *one, tmsg_heap_node_t *other)
{
    tmsg_heap_node_t *above = one, *below = other;

    if (one == NULL || other == NULL) {
        return one == NULL ? other : one;
    }
    if (other->number < one->number) {
        above = other;
        below = one;
    }
    below->previous = above;
    below->next = above->child;
    if (above->child != NULL) {
        above->child->previous = below;
    }
    above->child = below;
    return above;
}

/* Makes one heap of the nodes below a node that goes: of each two of them, then
 * of these pairs, the last first. */
static tmsg_heap_node_t *meld_all(tmsg_heap_node_t *node)
{
    tmsg_heap_node_t *pairs = NULL, *all = NULL;

    while (node != NULL) {
        tmsg_heap_node_t *other = node->next;
        tmsg_heap_node_t *rest = other == NULL ? NULL : other->next;
        tmsg_heap_node_t *pair = meld(node, other);

        pair->next = pairs;
        pairs = pair;
        node = rest;
    }
    while (pairs != NULL) {
        tmsg_heap_node_t *rest = pairs->next;

        all = meld(all, pairs);
        pairs = rest;
    }
    if (all != NULL) {
        all->next = all->previous = NULL;
    }
    return all;
}

void tmsg_heap_add(tmsg_heap_t *heap, tmsg_heap_node_t *node, uint64_t number)
{
    *node = (tmsg_heap_node_t){.number = number};
    heap->least = meld(heap->least, node);
}

void tmsg_heap_remove(tmsg_heap_t *heap, tmsg_heap_node_t *node)
{
    tmsg_heap_node_t *below = meld_all(node->child);

    if (node == heap->least) {
        heap->least = below;
        return;
    }
    if (node->previous->child == node) {
        node->previous->child = node->next;
    } else {
        node->previous->next = node->next;
    }
    if (node->next != NULL) {
        node->next->previous = node->previous;
    }
    heap->least = meld(heap->least, below);
}
