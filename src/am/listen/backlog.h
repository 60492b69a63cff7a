/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/backlog.h - connect requests by blob that wait until the listener
 * has room.
 *
 * While a listener has as many handshakes as it may, peers that come by socket
 * wait in the kernel's queue. There is no such queue by blob, so the connect
 * requests themselves wait here, without a UCX endpoint. As many may wait as in
 * that queue. */
#ifndef TMSG_AM_LISTEN_BACKLOG_H
#define TMSG_AM_LISTEN_BACKLOG_H

#include "am/endpoint/kinds.h"
#include "am/listen/listener.h"

/* Copies a connect request, which is handled when its turn comes. False: too
 * many wait, or there is no memory. Lock held. */
bool tmsg_backlog_keep(tmsg_listener_t *listener,
                       const tmsg_arrival_t *arrival);

/* Has the next connect requests handled soon, because there is room. Lock
 * held. */
void tmsg_backlog_call(tmsg_listener_t *listener);

/* Forgets all connect requests that wait. Lock held. */
void tmsg_backlog_free(tmsg_listener_t *listener);

#endif
