/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/patience.h"

#define LONGER 4      /* times spin_ns */
#define SHORT_OF 8    /* times spin_ns: had both polled, it would have been */
#define TRIES 3       /* in a row */
#define WARY_AFTER 64 /* short waits, once all were in vain */

static unsigned get(const atomic_uint *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void set(atomic_uint *count, unsigned to)
{
    atomic_store_explicit(count, to, memory_order_relaxed);
}

uint64_t tmsg_patience_ns(const tmsg_patience_t *patience)
{
    return get(&patience->longer) > 0 ? LONGER * patience->spin_ns
                                      : patience->spin_ns;
}

void tmsg_patience_polled(tmsg_patience_t *patience)
{
    if (get(&patience->longer) > 0) {
        set(&patience->longer, TRIES);
    }
}

void tmsg_patience_slept(tmsg_patience_t *patience, uint64_t ns)
{
    unsigned longer = get(&patience->longer), wary = get(&patience->wary);

    if (ns >= SHORT_OF * patience->spin_ns) {
        set(&patience->longer, 0);
    } else if (longer > 0) {
        set(&patience->longer, longer - 1);
        if (longer == 1) {
            set(&patience->wary, WARY_AFTER);
        }
    } else if (wary > 0) {
        set(&patience->wary, wary - 1);
    } else {
        set(&patience->longer, TRIES);
    }
}

void tmsg_patience_gave_up(tmsg_patience_t *patience)
{
    set(&patience->longer, 0);
}
