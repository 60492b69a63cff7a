/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/spin.h"

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

uint64_t tmsg_spin_ns(const tmsg_spin_t *spin)
{
    return get_count(&spin->longer) > 0 ? LONGER * spin->spin_ns
                                        : spin->spin_ns;
}

void tmsg_spin_polled(tmsg_spin_t *spin)
{
    if (get_count(&spin->longer) > 0) {
        set_count(&spin->longer, TRIES);
    }
}

void tmsg_spin_slept(tmsg_spin_t *spin, uint64_t ns)
{
    unsigned longer = get_count(&spin->longer), wary = get_count(&spin->wary);

    if (ns >= SHORT_OF * spin->spin_ns) {
        set_count(&spin->longer, 0);
    } else if (longer > 0) {
        set_count(&spin->longer, longer - 1);
        if (longer == 1) {
            set_count(&spin->wary, WARY_AFTER);
        }
    } else if (wary > 0) {
        set_count(&spin->wary, wary - 1);
    } else {
        set_count(&spin->longer, TRIES);
    }
}

void tmsg_spin_gave_up(tmsg_spin_t *spin) { set_count(&spin->longer, 0); }
