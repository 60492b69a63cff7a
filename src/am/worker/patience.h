/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/patience.h - how long a wait polls before it sleeps.
 *
 * To be woken costs tens of microseconds, and a peer that sleeps too costs as
 * many again: two that answered each other after 60 us took 190 each, since
 * both had given up polling after 50. So where a wait turns out to end soon
 * after that, the next ones poll longer, until one lasts. Where that is in vain
 * a few times in a row (the peer has no processor to answer on while we poll,
 * or takes a little longer still), it is not tried again for a while.
 */
#ifndef TMSG_AM_WORKER_PATIENCE_H
#define TMSG_AM_WORKER_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

/* Threads that take turns to lead may meet here, which costs a count at most.
 */
typedef struct {
    uint64_t spin_ns;   /* that every wait polls */
    atomic_uint longer; /* waits that may poll longer, unless one succeeds */
    atomic_uint wary;   /* short waits until that is tried again */
} tmsg_patience_t;

/* What the next wait polls. */
uint64_t tmsg_patience_ns(const tmsg_patience_t *patience);

/* A wait ended while it polled; one that had to sleep ended after so long in
 * all. */
void tmsg_patience_polled(tmsg_patience_t *patience);
void tmsg_patience_slept(tmsg_patience_t *patience, uint64_t ns);

/* One of a millisecond or more was given up. */
void tmsg_patience_gave_up(tmsg_patience_t *patience);

#endif
