/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/patience.h"

/* Longer polling takes this many times spin_ns. */
#define LONGER 4
/* A wait below this many times spin_ns would have ended while both sides polled
 * longer. */
#define SHORT_OF 8
/* Longer polling is tried in this many waits in a row. */
#define TRIES 3
/* Once all tries were in vain, this many short waits pass before the next. */
#define WARY_AFTER 64

static unsigned get_count(const atomic_uint *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void set_count(atomic_uint *count, unsigned to)
{
    atomic_store_explicit(count, to, memory_order_relaxed);
}

uint64_t tmsg_patience_ns(const tmsg_patience_t *patience)
{
    return get_count(&patience->longer) > 0 ? LONGER * patience->spin_ns
                                            : patience->spin_ns;
}

void tmsg_patience_polled(tmsg_patience_t *patience)
{
    if (get_count(&patience->longer) > 0) {
        set_count(&patience->longer, TRIES);
    }
}

void tmsg_patience_slept(tmsg_patience_t *patience, uint64_t ns)
{
    unsigned longer = get_count(&patience->longer),
             wary = get_count(&patience->wary);

    if (ns >= SHORT_OF * patience->spin_ns) {
        set_count(&patience->longer, 0);
    } else if (longer > 0) {
        set_count(&patience->longer, longer - 1);
        if (longer == 1) {
            set_count(&patience->wary, WARY_AFTER);
        }
    } else if (wary > 0) {
        set_count(&patience->wary, wary - 1);
    } else {
        set_count(&patience->longer, TRIES);
    }
}

void tmsg_patience_gave_up(tmsg_patience_t *patience)
{
    set_count(&patience->longer, 0);
}
