/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/siblings.h - siblings: UCX workers of one process that are connected
 * to each other.
 *
 * UCX opens a peer's shared memory by /proc/<pid>/fd/<number> when it first
 * needs it: to write, and to answer what the peer's UCX has asked. Within one
 * process the descriptor numbers of a closed UCX worker are reused at once,
 * often by the shared memory of the next UCX worker. A peer in another thread
 * would then write into that. The side that ends cannot wait for the peer, as
 * it does for a peer in another process (linger.h): that peer may be waiting
 * for this very thread.
 *
 * So a closed UCX worker is kept for each UCX worker of this process that it
 * knew. It is freed when each of them has no connection to it any more, and has
 * read whatever was sent to it. Another copy of the library in the same process
 * counts as another process here. */
#ifndef TMSG_AM_UCX_SIBLINGS_H
#define TMSG_AM_UCX_SIBLINGS_H

#include "am/ucx/ucx.h"

/* The error text for a sibling that has left. */
extern const char tmsg_siblings_gone[];

/* Gives an opened UCX worker its ucx_id, and makes it known. */
void tmsg_siblings_enter(tmsg_ucx_t *ucx);

/* Introduces two UCX workers, before a UCX endpoint to a peer is made. If the
 * peer is of this process, the two are siblings from now on. Errors: PEER_LOST
 * (the peer's UCX worker was closed), MALFORMED (the peer claims to be this
 * side), NO_MEMORY. */
tmsg_status_t tmsg_siblings_meet(tmsg_ucx_t *ucx, const tmsg_hello_t *peer);

/* Returns whether the address that a peer gave is that of the UCX worker of
 * this process that the peer claims to be. Then nobody is between the two:
 * whatever is sent to it comes to that UCX worker. */
bool tmsg_siblings_have(const tmsg_hello_t *peer, const void *address,
                        size_t bytes);

/* Makes a UCX worker leave, because nobody works with it any more. Called
 * before its own holder lets go. */
void tmsg_siblings_leave(tmsg_ucx_t *ucx);

/* Returns whether the engine is to look at the siblings of `ucx`: one of them
 * has left since, or had left and was still needed. */
static inline bool tmsg_siblings_want_tending(const tmsg_ucx_t *ucx)
{
    return ucx->waits ||
           atomic_load_explicit(&ucx->sibling_gone, memory_order_relaxed);
}

/* Looks which siblings of `ucx` have left and are not needed by it any more:
 * those for which `deals_with` returns false. Returns whether there are any.
 * Sets ucx->waits if others that have left are still needed. Lock held, outside
 * UCX. */
bool tmsg_siblings_look(tmsg_ucx_t *ucx,
                        bool (*deals_with)(const tmsg_ucx_t *ucx,
                                           uint64_t peer));

/* Returns whether the sibling of `ucx` with the ucx_id `peer` has left. */
bool tmsg_sibling_has_gone(const tmsg_ucx_t *ucx, uint64_t peer);

/* Lets go of those that tmsg_siblings_look() found. */
void tmsg_siblings_let_go(tmsg_ucx_t *ucx);

#endif
