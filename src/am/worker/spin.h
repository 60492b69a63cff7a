/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/spin.h - how long a wait polls before it sleeps.
 *
 * Waking a thread costs tens of microseconds, and a peer that sleeps costs as
 * many again. Two processes that answered each other after 60 us took 190 us
 * each, since both had stopped polling after 50 us. If a wait ends soon after
 * it stopped polling, the next waits therefore poll longer, until one of them
 * lasts. Longer polling may be in vain several times in a row: the peer has no
 * processor to answer on while this side polls, or takes a little longer still.
 * Then longer polling is not tried again for a while. */
#ifndef TMSG_AM_WORKER_SPIN_H
#define TMSG_AM_WORKER_SPIN_H

#include <stdatomic.h>
#include <stdint.h>

/* Several threads that take turns to lead may change these counts at the same
 * time. The worst effect is a count that is off by one. */
typedef struct {
    uint64_t spin_ns; /* nanoseconds that every wait polls */
    /* Waits that may poll longer; refilled if one succeeds. */
    atomic_uint longer;
    atomic_uint wary; /* short waits until longer polling is tried again */
} tmsg_spin_t;

/* Returns the nanoseconds that the next wait polls. */
uint64_t tmsg_spin_ns(const tmsg_spin_t *spin);

/* A wait calls one of these when it ends: tmsg_spin_polled() if it ended while
 * it polled, tmsg_spin_slept() if it had to sleep. `ns` is the length of the
 * whole wait. */
void tmsg_spin_polled(tmsg_spin_t *spin);
void tmsg_spin_slept(tmsg_spin_t *spin, uint64_t ns);

/* A wait of a millisecond or more calls this if it times out. */
void tmsg_spin_gave_up(tmsg_spin_t *spin);

#endif
