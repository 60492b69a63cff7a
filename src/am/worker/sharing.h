/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/sharing.h - whether a wait that polls keeps others from the
 * processor.
 *
 * If the peer is to run on the same core as a polling wait, the peer answers
 * only when the wait sleeps, tens of microseconds later. sched_yield() lets the
 * peer run at once, but not always. Between groups of processes, sessions or
 * nice values, and beside processes that compute, sched_yield() may hand the
 * core to another process, or to nobody.
 *
 * A wait therefore yields when it has polled for a few microseconds. What the
 * next waits do depends on the result:
 *  - If something came after a yield, the next waits yield at once, until that
 *    is in vain.
 *  - If nobody else wanted the core, yields are not tried again for a while.
 *  - If the yields lasted and nothing came, the next waits sleep at once for a
 *    while: the kernel runs a thread that it wakes before one that computes. */
#ifndef TMSG_AM_WORKER_SHARING_H
#define TMSG_AM_WORKER_SHARING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Holds what a worker knows about its waits, whichever thread leads. Several
 * threads that take turns to lead may change it at the same time, which costs a
 * yield at most. */
typedef struct {
    /* The next fields describe the current wait. */
    _Atomic uint64_t since; /* when it began to poll; 0: something came since */
    atomic_uint yields;     /* yields that others took, and nothing came */
    atomic_uint vain;       /* yields that nobody took */
    atomic_bool over;       /* the wait yields no more */
    atomic_bool sleeps;     /* the wait polls no more and sleeps */
    /* The next fields describe the waits to come. */
    /* Counts the waits that may yield at once in vain before that stops; 0:
     * waits do not yield at once. */
    atomic_uint pays;
    atomic_uint wary;    /* waits before yields are tried again */
    atomic_uint crowded; /* waits that sleep at once */
    atomic_uint lost;    /* recent yields that others took for long */
    /* Counts the waits whose yields paid since `lost` last became smaller. */
    atomic_uint paid;
} tmsg_sharing_t;

/* A wait that polled and found nothing calls this at time `now` (nanoseconds).
 * It may yield. `beside`: the peer was last seen on this core. False: the wait
 * should sleep. No lock held. */
bool tmsg_sharing_pause(tmsg_sharing_t *sharing, uint64_t now, bool beside);

/* Notes that something has come in a wait that has paused. */
void tmsg_sharing_paid(tmsg_sharing_t *sharing);

/* Notes that something has come. */
static inline void tmsg_sharing_moved(tmsg_sharing_t *sharing)
{
    if (atomic_load_explicit(&sharing->since, memory_order_relaxed) != 0) {
        tmsg_sharing_paid(sharing);
    }
}

#endif
