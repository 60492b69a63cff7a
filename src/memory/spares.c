/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/spares.h"

#ifdef __SANITIZE_ADDRESS__ /* finds use after free */
#define KEEPS 0
#else
#define KEEPS 1
#endif

/* The list `given` points to this record once it is closed. Records that are
 * given back later are freed. */
static tmsg_spare_t closed;

void tmsg_spares_init(tmsg_spares_t *spares, size_t most,
                      void (*free)(tmsg_spare_t *spare))
{
    atomic_init(&spares->given, NULL);
    atomic_init(&spares->given_bytes, 0);
    spares->taken = NULL;
    spares->taken_bytes = 0;
    spares->most = KEEPS * most;
    spares->free = free;
}

static void free_list(tmsg_spares_t *spares, tmsg_spare_t *spare)
{
    while (spare != NULL) {
        tmsg_spare_t *next = spare->next;

        spares->free(spare);
        spare = next;
    }
}

void tmsg_spares_close(tmsg_spares_t *spares)
{
    tmsg_spare_t *taken = spares->taken;

    spares->taken = NULL;
    spares->taken_bytes = 0;
    free_list(spares, atomic_exchange(&spares->given, &closed));
    free_list(spares, taken);
}

void tmsg_spares_give(tmsg_spares_t *spares, tmsg_spare_t *spare)
{
    size_t bytes = spare->bytes;
    tmsg_spare_t *head =
        atomic_load_explicit(&spares->given, memory_order_relaxed);

    if (head == &closed ||
        atomic_fetch_add_explicit(&spares->given_bytes, bytes,
                                  memory_order_relaxed) +
                bytes >
            spares->most) {
        if (head != &closed) {
            atomic_fetch_sub_explicit(&spares->given_bytes, bytes,
                                      memory_order_relaxed);
        }
        spares->free(spare);
        return;
    }
    do {
        if (head == &closed) {
            spares->free(spare);
            return;
        }
        spare->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&spares->given, &head,
                                                    spare, memory_order_release,
                                                    memory_order_relaxed));
}

void tmsg_spares_put_back(tmsg_spares_t *spares, tmsg_spare_t *spare)
{
    if (spares->taken_bytes + spare->bytes > spares->most) {
        spares->free(spare);
        return;
    }
    spares->taken_bytes += spare->bytes;
    spare->next = spares->taken;
    spares->taken = spare;
}

/* Moves the records that were given back to the list of the taker. */
static void collect_given(tmsg_spares_t *spares)
{
    size_t bytes = 0;

    if (atomic_load_explicit(&spares->given, memory_order_relaxed) == NULL) {
        return;
    }
    spares->taken =
        atomic_exchange_explicit(&spares->given, NULL, memory_order_acquire);
    for (tmsg_spare_t *spare = spares->taken; spare != NULL;
         spare = spare->next) {
        bytes += spare->bytes;
    }
    spares->taken_bytes = bytes;
    atomic_fetch_sub_explicit(&spares->given_bytes, bytes,
                              memory_order_relaxed);
}

tmsg_spare_t *tmsg_spares_take(tmsg_spares_t *spares)
{
    tmsg_spare_t *spare;

    if (spares->taken == NULL) {
        collect_given(spares);
    }
    spare = spares->taken;
    if (spare != NULL) {
        spares->taken = spare->next;
        spares->taken_bytes -= spare->bytes;
    }
    return spare;
}
