/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/dispatch.h - finds who handles a message. */
#ifndef TMSG_AM_ENGINE_DISPATCH_H
#define TMSG_AM_ENGINE_DISPATCH_H

#include "am/endpoint/kinds.h"

/* UCX calls this for every active message. It checks the preamble and calls the
 * handler of the message's kind. Inside UCX, lock held. */
tmsg_ucx_status_t tmsg_kinds_arrived(void *arg, const void *header,
                                     size_t header_bytes, void *data,
                                     size_t data_bytes,
                                     const tmsg_ucx_am_info_t *info);

/* Takes what has come by the fast boxes of the peers. Called in progress, lock
 * held. Returns how many messages were taken. */
unsigned tmsg_kinds_poll(tmsg_worker_t *worker);

#endif
