/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/sharing.h - whether a wait that polls keeps others from the
 * processor.
 *
 * Where the peer is to run on the very core that a wait polls on, it answers
 * when the wait sleeps, tens of microseconds later. sched_yield() lets it run
 * at once, but not always: between groups of processes, sessions or nice
 * values, and beside others that compute, it hands the core to somebody else,
 * or to nobody. So a wait tries it when it has polled for a few microseconds.
 * Where something has come after a yield, the waits that follow yield at once,
 * until that is in vain; where nobody else wanted the core, yields are not
 * tried again for a while; and where they lasted and nothing came, waits sleep
 * at once for a while: the kernel has a sleeper that is woken run before who
 * computes.
 */
#ifndef TMSG_AM_WORKER_SHARING_H
#define TMSG_AM_WORKER_SHARING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a worker's waits, whoever leads. Threads that take turns may meet here,
 * which costs a yield at most. */
typedef struct {
    /* Of the wait at hand: */
    _Atomic uint64_t since; /* it polls, or 0: something has come since */
    atomic_uint yields;     /* that took somebody's turn, and nothing came */
    atomic_uint vain;       /* that nobody took */
    atomic_bool over;       /* no more of them; */
    atomic_bool sleeps;     /* nor does it poll on */
    /* Of those to come: */
    atomic_uint pays;    /* how often yields may be in vain at once */
    atomic_uint wary;    /* waits before that is tried again */
    atomic_uint crowded; /* waits that sleep at once; and what comes after */
    atomic_uint lost;    /* yields that others took for long, of late */
    atomic_uint paid;    /* waits whose yields paid, since one of these was
                          * forgotten */
} tmsg_sharing_t;

/* In a wait that polled and found nothing, at `now`; `beside`: the peer was
 * last seen on this core. May yield. False: it had better sleep. No lock held.
 */
bool tmsg_sharing_pause(tmsg_sharing_t *sharing, uint64_t now, bool beside);

/* Something has come in a wait that has paused. */
void tmsg_sharing_paid(tmsg_sharing_t *sharing);

/* Something has come. */
static inline void tmsg_sharing_moved(tmsg_sharing_t *sharing)
{
    if (atomic_load_explicit(&sharing->since, memory_order_relaxed) != 0) {
        tmsg_sharing_paid(sharing);
    }
}

#endif
