/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/refuse.h"

#include "rpc/metrics.h"

/* Bytes of the name of a method that there is; else none, so that a peer
 * cannot have counts made for whatever it says. */
static size_t known_bytes(const tmsg_server_t *server,
                          const tmsg_call_head_t *head)
{
    return server != NULL && tmsg_method_find(server, head->text,
                                              head->text_bytes) != NULL
               ? head->text_bytes
               : 0;
}

void tmsg_refuse(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_status_t status)
{
    tmsg_hub_t *hub = peer->hub;

    tmsg_hub_lock(hub);
    tmsg_meter_reject(hub, head->text, known_bytes(hub->server, head), status);
    tmsg_hub_unlock(hub);
}
