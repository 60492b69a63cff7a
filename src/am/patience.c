/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/patience.h"

#define LONGER 4      /* times spin_ns */
#define SHORT_OF 8    /* times spin_ns: had both polled, it would have been */
#define TRIES 3       /* in a row */
#define WARY_AFTER 64 /* short waits, once all were in vain */

uint64_t tmsg_patience_ns(const tmsg_patience_t *patience)
{
    return patience->longer > 0 ? LONGER * patience->spin_ns
                                : patience->spin_ns;
}

void tmsg_patience_polled(tmsg_patience_t *patience)
{
    if (patience->longer > 0) {
        patience->longer = TRIES;
    }
}

void tmsg_patience_slept(tmsg_patience_t *patience, uint64_t ns)
{
    if (ns >= SHORT_OF * patience->spin_ns) {
        patience->longer = 0;
    } else if (patience->longer > 0) {
        if (--patience->longer == 0) {
            patience->wary = WARY_AFTER;
        }
    } else if (patience->wary > 0) {
        patience->wary--;
    } else {
        patience->longer = TRIES;
    }
}

void tmsg_patience_gave_up(tmsg_patience_t *patience) { patience->longer = 0; }
