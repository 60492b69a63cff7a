/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/accept_blob.h - connections that come by blob, without a socket. */
#ifndef TMSG_AM_LISTEN_ACCEPT_BLOB_H
#define TMSG_AM_LISTEN_ACCEPT_BLOB_H

#include "am/endpoint/kinds.h"
#include "am/listen/listener.h"

/* Handles the connect request of a peer that has the listener's blob: accepts
 * it, keeps it until there is room, or ignores it. Lock held; the caller may be
 * inside UCX. */
void tmsg_accept_by_blob(const tmsg_arrival_t *arrival,
                         tmsg_listener_t *listener);

#endif
