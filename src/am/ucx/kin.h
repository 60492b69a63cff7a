/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/kin.h - UCX workers of one process that know each other.
 *
 * UCX opens a peer's shared memory by /proc/<pid>/fd/<number>, when it first
 * needs it: to write, and to answer what the peer's UCX has asked. Within one
 * process the numbers of a UCX worker that was closed are in use again at once,
 * by the next one's shared memory as like as not, and a peer in another thread
 * would write into that. Nor can the one who ends wait for the peer, as it does
 * for one of another process (linger.h): that may be waiting for this very
 * thread. So a UCX worker that is closed is kept until each that it knew in
 * this process has no connection to it any more, and has read whatever it was
 * sent. Another copy of the library in the process is another process in this.
 */
#ifndef TMSG_AM_UCX_KIN_H
#define TMSG_AM_UCX_KIN_H

#include "am/ucx/ucx.h"

/* What is said of a peer that has left. */
extern const char tmsg_kin_gone[];

/* Gives a UCX worker that was opened its ucx_id, and makes it known. */
void tmsg_kin_enter(tmsg_ucx_t *ucx);

/* Before a UCX endpoint to a peer is made: if that is of this process, the two
 * know each other from now on. Errors: PEER_LOST (it was closed), NO_MEMORY. */
tmsg_status_t tmsg_kin_meet(tmsg_ucx_t *ucx, const tmsg_hello_t *peer);

/* Nobody works with it any more: before its own holder lets go. */
void tmsg_kin_leave(tmsg_ucx_t *ucx);

static inline bool tmsg_kin_is_to_tend(const tmsg_ucx_t *ucx)
{
    return ucx->waits ||
           atomic_load_explicit(&ucx->bereaved, memory_order_relaxed);
}

/* Lock held, outside UCX: looks which of those that have left nothing of this
 * one deals with any more. Whether there are any; ucx->waits for the others. */
bool tmsg_kin_look(tmsg_ucx_t *ucx,
                   bool (*deals_with)(const tmsg_ucx_t *ucx, uint64_t peer));

/* Whether the one with that ucx_id has left. */
bool tmsg_kin_has_gone(const tmsg_ucx_t *ucx, uint64_t peer);

/* Lets go of those that tmsg_kin_look() found. */
void tmsg_kin_let_go(tmsg_ucx_t *ucx);

#endif
