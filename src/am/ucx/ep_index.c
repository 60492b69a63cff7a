/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ep_index.h"

#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/ucx_ep.h"
#include "am/ucx/ucx_events.h"
#include "core/error.h"

/* A UCX worker whose address is in a blob cannot make way for another. It meets
 * at most this many. */
#define PEERS_MOST (16 * TMSG_UCX_PEERS)

static void ucx_failed(void *arg, tmsg_ucx_ep_t ep, ucs_status_t ucs)
{
    tmsg_ucx_t *ucx = arg;

    if (ucx->worker != NULL) { /* otherwise it is being closed */
        tmsg_ucx_events.lost(ucx, ep, ucs);
    }
}

static tmsg_status_t has_no_memory(void)
{
    return tmsg_error_set(TMSG_ERR_PEER_LOST,
                          "the peer's shared memory is not there");
}

static tmsg_status_t create_ep(tmsg_ucx_t *ucx,
                               const tmsg_peer_address_t *address,
                               tmsg_ucx_ep_t *ep_p, tmsg_ep_sockets_t *sockets)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = tmsg_peer_address_bytes(address),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ucx_failed, .arg = ucx},
    };
    tmsg_watched_t *before = tmsg_ep_sockets_before(&ucx->sets);
    ucs_status_t ucs = tmsg_ucx_ep_create(ucx, &params, ep_p);

    tmsg_ep_sockets_find(before, &ucx->sets, ucx->fd, sockets);
    if (ucs == UCS_OK) {
        return TMSG_OK;
    }
    /* UCX tells a TCP port at which nobody listens as a loss. */
    if (ucs == UCS_ERR_UNREACHABLE || tmsg_ucx_is_loss(ucs)) {
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "no transport of UCX's leads there (UCX_TLS, "
                              "UCX_NET_DEVICES, /dev/shm), or the peer has "
                              "ended%s%s",
                              ucx->elsewhere[0] == '\0' ? "" : "; ",
                              ucx->elsewhere);
    }
    if (ucs == UCS_ERR_SHMEM_SEGMENT) {
        return has_no_memory();
    }
    if (ucs == UCS_ERR_EXCEEDS_LIMIT) { /* its table of configurations */
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "UCX has met too many kinds of peers here; "
                              "connect again");
    }
    return tmsg_error_set(TMSG_ERR_INTERNAL, "ucp_ep_create: %s",
                          ucs_status_string(ucs));
}

static tmsg_status_t add_peer(tmsg_ucx_t *ucx, uint64_t id, uint64_t uuid)
{
    if (ucx->peer_count == PEERS_MOST) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "this side's UCX has met %d peers, and takes no "
                              "others: a new blob is of another",
                              PEERS_MOST);
    }
    if (ucx->peer_count == ucx->peer_capacity) {
        size_t capacity = ucx->peer_capacity == 0 ? 8 : ucx->peer_capacity * 2;
        tmsg_ucx_peer_t *peers =
            reallocarray(ucx->peers, capacity, sizeof(*peers));

        if (peers == NULL) {
            return tmsg_error_memory("the table of peers");
        }
        ucx->peers = peers;
        ucx->peer_capacity = capacity;
    }
    ucx->peers[ucx->peer_count++] = (tmsg_ucx_peer_t){id, uuid, 0};
    if (ucx->peer_count >= TMSG_UCX_PEERS && !ucx->retired) {
        tmsg_ucx_events.supersede(ucx); /* a new one counts anew */
    }
    return TMSG_OK;
}

/* Finds a peer, or adds it. UCX pairs endpoints by `uuid` and this side by
 * `id`, so one goes with the other. A peer that has gone stays in the table: it
 * may come back, and UCX goes on counting. Whoever knows the id of another peer
 * may have come with it first, so a conflict says nothing against the second:
 * it is told BUSY, and meets an empty table when it comes again. */
static tmsg_status_t find_peer(tmsg_ucx_t *ucx, uint64_t id, uint64_t uuid,
                               tmsg_ucx_peer_t **peer_p)
{
    tmsg_status_t status;

    for (size_t i = 0; i < ucx->peer_count; i++) {
        bool has_id = ucx->peers[i].id == id;

        if (has_id && ucx->peers[i].uuid == uuid) {
            *peer_p = &ucx->peers[i];
            return TMSG_OK;
        }
        if (has_id || (uuid != 0 && ucx->peers[i].uuid == uuid)) {
            return tmsg_error_set(TMSG_ERR_BUSY,
                                  "another peer came with the id or the "
                                  "worker address of this one; connect again");
        }
    }
    status = add_peer(ucx, id, uuid);
    if (status == TMSG_OK) {
        *peer_p = &ucx->peers[ucx->peer_count - 1];
    }
    return status;
}

/* UCX also counts endpoints that it fails to make. */
tmsg_status_t tmsg_ep_index_make(tmsg_ucx_t *ucx, uint64_t peer_id,
                                 const tmsg_peer_address_t *address,
                                 tmsg_ucx_ep_t *ep_p,
                                 tmsg_ep_sockets_t *sockets, uint32_t *number_p)
{
    tmsg_ucx_peer_t *peer;
    tmsg_status_t status =
        find_peer(ucx, peer_id, tmsg_peer_address_uuid(address), &peer);

    if (status == TMSG_OK && !tmsg_peer_address_holds(address)) {
        status = has_no_memory();
    }
    if (status != TMSG_OK) {
        return status;
    }
    *number_p = peer->made++;
    return create_ep(ucx, address, ep_p, sockets);
}

void tmsg_ep_index_keep(tmsg_ucx_t *ucx, uint64_t peer, uint32_t number,
                        tmsg_ucx_ep_t ep, const tmsg_ep_sockets_t *sockets)
{
    if (ucx->spare_count == TMSG_UCX_SPARES) {
        tmsg_ucx_ep_abandon(ep);
        return;
    }
    ucx->spares[ucx->spare_count++] =
        (tmsg_ucx_spare_t){peer, number, ep, *sockets};
}

static bool take_spare(tmsg_ucx_t *ucx, uint64_t peer, uint32_t number,
                       tmsg_ucx_ep_t *ep_p, tmsg_ep_sockets_t *sockets)
{
    for (size_t i = 0; i < ucx->spare_count; i++) {
        if (ucx->spares[i].peer == peer && ucx->spares[i].number == number) {
            *ep_p = ucx->spares[i].ep;
            *sockets = ucx->spares[i].sockets;
            ucx->spare_count--;
            memmove(&ucx->spares[i], &ucx->spares[i + 1],
                    (ucx->spare_count - i) * sizeof(ucx->spares[0]));
            return true;
        }
    }
    return false;
}

tmsg_status_t tmsg_ep_index_match(tmsg_ucx_t *ucx, uint64_t peer_id,
                                  const tmsg_peer_address_t *address,
                                  uint32_t number, tmsg_ucx_ep_t *ep_p,
                                  tmsg_ep_sockets_t *sockets)
{
    tmsg_ucx_peer_t *peer;
    tmsg_status_t status =
        find_peer(ucx, peer_id, tmsg_peer_address_uuid(address), &peer);
    uint32_t made;

    if (status != TMSG_OK) {
        return status;
    }
    if (number < peer->made) {
        return take_spare(ucx, peer_id, number, ep_p, sockets)
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_MALFORMED,
                                    "connection %u of this peer was there "
                                    "before, or comes too late",
                                    number);
    }
    if (number - peer->made > TMSG_UCX_SPARES - ucx->spare_count) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "this side has given up too many connections "
                              "(%u at once); connect again",
                              number - peer->made);
    }
    while (status == TMSG_OK && peer->made < number) {
        tmsg_ucx_ep_t spare;

        status =
            tmsg_ep_index_make(ucx, peer_id, address, &spare, sockets, &made);
        if (status == TMSG_OK) {
            tmsg_ep_index_keep(ucx, peer_id, made, spare, sockets);
        }
    }
    return status != TMSG_OK ? status
                             : tmsg_ep_index_make(ucx, peer_id, address, ep_p,
                                                  sockets, &made);
}

void tmsg_ep_index_free(tmsg_ucx_t *ucx) { free(ucx->peers); }
