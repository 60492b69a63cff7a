/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/nap.h - a worker naps on the fast boxes that it shares with its
 * peers (see shm/fastbox.h). Lock held, for all functions below. */
#ifndef TMSG_AM_WORKER_NAP_H
#define TMSG_AM_WORKER_NAP_H

#include "am/shm/fastbox.h"
#include "am/worker/worker.h"

/* Tells the peers that the worker is about to nap. After this call the worker
 * has to look for messages that are there already, in UCX too. False: one of
 * the peers would not wake the worker, which must not nap.
 *
 * tmsg_worker_nap_words() lists the words to nap on. tmsg_worker_nap_end()
 * tells the peers that the nap is over. */
bool tmsg_worker_nap_begin(tmsg_worker_t *worker);

void tmsg_worker_nap_words(const tmsg_worker_t *worker, tmsg_nap_t *nap);

void tmsg_worker_nap_end(tmsg_worker_t *worker);

/* Ends the nap of another thread of this worker, if one naps. */
void tmsg_worker_rouse(tmsg_worker_t *worker);

#endif
