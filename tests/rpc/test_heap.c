/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "rpc/heap.h"
#include "support/must.h"
#include "support/seeded_maps.h"

enum { NODES = 500, STEPS = 20000 };

typedef struct {
    tmsg_heap_node_t node;
    bool there;
} item_t;

/* The least number of those that are there; UINT64_MAX: none is. */
static uint64_t least_of(const item_t *items)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < NODES; i++) {
        if (items[i].there && items[i].node.number < least) {
            least = items[i].node.number;
        }
    }
    return least;
}

static void check_least(const tmsg_heap_t *heap, const item_t *items)
{
    must_eq(heap->least == NULL ? UINT64_MAX : heap->least->number,
            least_of(items));
}

/* Whatever comes and goes, in whatever order, the least is first. */
Test(heap, has_the_least_first)
{
    static item_t items[NODES];
    tmsg_heap_t heap = {NULL};
    uint64_t random = 7;

    for (int i = 0; i < STEPS; i++) {
        item_t *item = &items[sample_random(&random) % NODES];

        if (item->there) {
            tmsg_heap_remove(&heap, &item->node);
        } else {
            /* Equal numbers are frequent. */
            tmsg_heap_add(&heap, &item->node, sample_random(&random) % 300);
        }
        item->there = !item->there;
        check_least(&heap, items);
    }
    while (heap.least != NULL) {
        item_t *item = (item_t *)heap.least; /* its first member */

        check_least(&heap, items);
        tmsg_heap_remove(&heap, heap.least);
        item->there = false;
    }
    check_least(&heap, items);
}
