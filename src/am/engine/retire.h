/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/retire.h - UCX workers that take no new connections. */
#ifndef TMSG_AM_ENGINE_RETIRE_H
#define TMSG_AM_ENGINE_RETIRE_H

#include "am/endpoint/kinds.h"

/* A peer that was killed while it wrote to shared memory may have left our
 * queue blocked for everybody: no new connection uses this UCX worker, but for
 * those that come by a blob, whose address stays; and if it is blocked those
 * that do end, and its blobs with them. Lock held, outside UCX. */
void tmsg_ucx_retire(tmsg_ucx_t *ucx);

/* Lock held: another takes the new connections of this one, which has no shared
 * memory. It stays open for those that it has, and for a blob. */
void tmsg_ucx_supersede(tmsg_ucx_t *ucx);

/* Lock held: an endpoint on a retired one has ended, which UCX may never
 * report. */
void tmsg_ucx_watch(tmsg_ucx_t *ucx);

/* Lock held, outside UCX: closes those that are retired and unused. */
void tmsg_worker_close_retired(tmsg_worker_t *worker);

/* Ends what is under way to find that out, if anything. */
void tmsg_probe_close(tmsg_ucx_t *ucx);

/* What a peer sends to one of which that is being found out, by its header. */
void tmsg_probe_note(tmsg_ucx_t *ucx, const void *header, size_t bytes);

#endif
