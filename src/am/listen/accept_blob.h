/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/accept_blob.h - connections that come by an address alone. */
#ifndef TMSG_AM_LISTEN_ACCEPT_BLOB_H
#define TMSG_AM_LISTEN_ACCEPT_BLOB_H

#include "am/endpoint/kinds.h"
#include "am/listen/listener.h"

/* A peer knocks by a listener's blob. */
void tmsg_attach_knock(const tmsg_arrival_t *arrival,
                       tmsg_listener_t *listener);

#endif
