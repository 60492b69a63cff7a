/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/heap.h - a heap of records that are ordered by a number, the least first.
 * It needs no memory of its own. Adding takes a few steps, removing on average
 * as many as the logarithm of the count. */
#ifndef TMSG_RPC_HEAP_H
#define TMSG_RPC_HEAP_H

#include <stdint.h>

/* A node is embedded in its record. */
typedef struct tmsg_heap_node {
    uint64_t number;
    struct tmsg_heap_node *child; /* the first of those below it */
    struct tmsg_heap_node *next;  /* the next with the same node above */
    /* the one before it with the same node above, or else the node above */
    struct tmsg_heap_node *previous;
} tmsg_heap_node_t;

/* The node with the least number; NULL: the heap is empty. */
typedef struct {
    tmsg_heap_node_t *least;
} tmsg_heap_t;

void tmsg_heap_add(tmsg_heap_t *heap, tmsg_heap_node_t *node, uint64_t number);
void tmsg_heap_remove(tmsg_heap_t *heap, tmsg_heap_node_t *node);

#endif
