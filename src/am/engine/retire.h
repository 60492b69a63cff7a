/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/retire.h - UCX workers that take no new connections. */
#ifndef TMSG_AM_ENGINE_RETIRE_H
#define TMSG_AM_ENGINE_RETIRE_H

#include "am/endpoint/kinds.h"

/* Retires a UCX worker that has lost a peer. A peer that was killed while it
 * wrote to shared memory may have left our queue blocked for everybody. No new
 * connection uses this UCX worker, except those that come by a blob, whose
 * address stays. If the queue turns out to be blocked, the endpoints that use
 * it end, and its blobs, too. Lock held, outside UCX. */
void tmsg_ucx_retire(tmsg_ucx_t *ucx);

/* Retires a UCX worker because of what a stranger can bring about: one that was
 * told of it was lost, or the UCX worker has no room for a peer. This happens
 * once in a second at most: a new UCX worker takes some milliseconds of a
 * processor. Lock held, outside UCX. */
void tmsg_ucx_doubt(tmsg_ucx_t *ucx);

/* Replaces a UCX worker without shared memory: another takes its new
 * connections. It stays open for the connections that it has, and for a blob.
 * Lock held. */
void tmsg_ucx_supersede(tmsg_ucx_t *ucx);

/* Begins to watch a retired UCX worker: one of its endpoints has ended, which
 * UCX may never report. Lock held. */
void tmsg_ucx_watch(tmsg_ucx_t *ucx);

/* Closes the UCX workers that are retired and unused. Lock held, outside
 * UCX. */
void tmsg_worker_close_retired(tmsg_worker_t *worker);

/* Ends the probe that finds out whether the queue is blocked, if one is under
 * way. */
void tmsg_probe_close(tmsg_ucx_t *ucx);

/* Notes a message that a peer has sent to a UCX worker whose queue is being
 * probed. `header` is the message's. */
void tmsg_probe_note(tmsg_ucx_t *ucx, const void *header, size_t bytes);

#endif
