/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/nap.h - a worker naps on the boxes that it shares with all of its
 * peers. */
#ifndef TMSG_AM_WORKER_NAP_H
#define TMSG_AM_WORKER_NAP_H

#include "am/shm/box.h"
#include "am/worker/worker.h"

/* Before the worker naps, see box.h: what is there already is looked for once
 * this was called, by UCX too. False: one of the peers would not wake it. Then
 * it naps on these words; and after. Lock held. */
bool tmsg_worker_nap_begin(tmsg_worker_t *worker);

void tmsg_worker_nap_words(const tmsg_worker_t *worker, tmsg_nap_t *nap);

void tmsg_worker_nap_end(tmsg_worker_t *worker);

/* Ends the nap of a thread of this worker. Lock held. */
void tmsg_worker_rouse(tmsg_worker_t *worker);

#endif
