/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/caller.h - calls that this side has made. */
#ifndef TMSG_RPC_CALLER_H
#define TMSG_RPC_CALLER_H

#include "rpc/hub.h"

/* Lock held: a reply to one of a peer's calls begins to come. */
tmsg_status_t tmsg_reply_begins(tmsg_rpc_peer_t *peer,
                                const tmsg_call_head_t *head,
                                tmsg_call_in_t **in_p);

/* tmsg_calls_ops_t's `bounced`. */
bool tmsg_call_bounces(void *peer, uint32_t message_id, bool sent,
                       tmsg_status_t status, const char *error);

/* The hub's lock held: the peer's endpoint has ended. */
void tmsg_calls_lost(tmsg_rpc_peer_t *peer, tmsg_status_t status,
                     const char *error);

#endif
