/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/spares.h"

#ifdef __SANITIZE_ADDRESS__ /* which finds what is used after it was freed */
#define KEEPS 0
#else
#define KEEPS 1
#endif

void tmsg_spares_init(tmsg_spares_t *spares, size_t most,
                      void (*free)(tmsg_spare_t *spare))
{
    atomic_init(&spares->given, NULL);
    atomic_init(&spares->bytes, 0);
    spares->taken = NULL;
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

void tmsg_spares_free(tmsg_spares_t *spares)
{
    free_list(spares, atomic_load(&spares->given));
    free_list(spares, spares->taken);
}

void tmsg_spares_give(tmsg_spares_t *spares, tmsg_spare_t *spare)
{
    size_t bytes = spare->bytes;

    if (atomic_fetch_add_explicit(&spares->bytes, bytes, memory_order_relaxed) +
            bytes >
        spares->most) {
        atomic_fetch_sub_explicit(&spares->bytes, bytes, memory_order_relaxed);
        spares->free(spare);
        return;
    }
    spare->next = atomic_load_explicit(&spares->given, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&spares->given, &spare->next,
                                                  spare, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

tmsg_spare_t *tmsg_spares_take(tmsg_spares_t *spares)
{
    tmsg_spare_t *spare = spares->taken;

    if (spare == NULL &&
        atomic_load_explicit(&spares->given, memory_order_relaxed) != NULL) {
        spare = atomic_exchange_explicit(&spares->given, NULL,
                                         memory_order_acquire);
    }
    if (spare != NULL) {
        spares->taken = spare->next;
        atomic_fetch_sub_explicit(&spares->bytes, spare->bytes,
                                  memory_order_relaxed);
    }
    return spare;
}
