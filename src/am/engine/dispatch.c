/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "am/connect/wireup.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/log.h"
#include "am/engine/retire.h"
#include "am/path/cma.h"
#include "am/path/fastboxes.h"
#include "am/path/ipc.h"
#include "am/recv/template_in.h"
#include "core/error.h"
#include "core/log.h"

_Static_assert((int)TMSG_POLICY_HOST_FALLBACK == TMSG_PREAMBLE_HOST_FALLBACK &&
                   (int)TMSG_POLICY_STRICT == TMSG_PREAMBLE_STRICT,
               "a policy is the byte on the wire");

/* A turn takes at most this many messages from each fast box. */
#define FASTBOX_TURN 16

#define HANDLER(name, number, handler, where)                                  \
    [number] = tmsg_##handler##_arrived,

typedef tmsg_ucx_status_t (*handler_t)(const tmsg_arrival_t *arrival);

static const handler_t handlers[TMSG_KIND_COUNT] = {TMSG_KINDS(HANDLER)};

/* Ignores a message. Only a rendezvous may be answered with an error: UCX
 * aborts on an error from an eager callback. */
static tmsg_ucx_status_t ignore_arrival(const tmsg_arrival_t *arrival,
                                        const char *why)
{
    tmsg_log_of(TMSG_LOG_IGNORED_KIND, TMSG_LOG_UNKNOWN, TMSG_LOG_WARN,
                "an active message is ignored: %s", why);
    return arrival->rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
}

/* Ends the endpoint that a message names if nobody can take the message. Its
 * number is missing from its channel, which would wait for it for ever. */
static tmsg_ucx_status_t end_connection(const tmsg_arrival_t *arrival,
                                        uint32_t id, tmsg_status_t status,
                                        const char *why)
{
    tmsg_endpoint_t *endpoint = tmsg_endpoint_by_id(arrival->ucx->worker, id);

    if (endpoint != NULL && endpoint->ucx == arrival->ucx &&
        endpoint->ep != NULL && !tmsg_endpoint_is_down(endpoint) &&
        !tmsg_admit_is_half(endpoint)) {
        tmsg_endpoint_break(endpoint, status, why);
    }
    return ignore_arrival(arrival, why);
}

/* Handles a message whose payload stays in the sender's memory until it is
 * read. It differs from UCX's own rendezvous in who is told what became of
 * it. */
static tmsg_ucx_status_t handle_read(tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_cma_in_t in;
    tmsg_ucx_status_t ucs;

    if (endpoint == NULL || !(tmsg_ipc_is_place(arrival)
                                  ? tmsg_ipc_arrival(endpoint, arrival, &in)
                                  : tmsg_cma_arrival(endpoint, arrival, &in))) {
        return ignore_arrival(arrival, "an impossible payload to read");
    }
    arrival->to_read = &in;
    arrival->rendezvous = true;
    arrival->data = NULL;
    arrival->data_bytes = arrival->head.payload_bytes;
    ucs = handlers[arrival->head.kind](arrival);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        tmsg_cma_drop(endpoint, &in, ucs != TMSG_UCX_OK);
    }
    return TMSG_UCX_OK; /* nothing is left of the active message */
}

/* Handles a message whose head is not known yet. */
static tmsg_ucx_status_t handle_arrival(tmsg_arrival_t *arrival,
                                        const void *header, size_t header_bytes)
{
    tmsg_preamble_t *head = &arrival->head;
    tmsg_status_t status = tmsg_preamble_decode(header, header_bytes, head);

    if (status != TMSG_OK) {
        char why[TMSG_ERROR_BYTES];
        uint32_t id;

        snprintf(why, sizeof(why), "%s", tmsg_error_message());
        return tmsg_preamble_names(header, header_bytes, &id)
                   ? end_connection(arrival, id, status, why)
                   : ignore_arrival(arrival, why);
    }
    arrival->body = (const uint8_t *)header + head->bytes;
    if (head->kind >= TMSG_KIND_COUNT || handlers[head->kind] == NULL) {
        return ignore_arrival(arrival, "unknown kind");
    }
    if (head->channel != 0 && !tmsg_kind_is_on_channel(head->kind)) {
        return end_connection(arrival, head->endpoint_id, TMSG_ERR_MALFORMED,
                              "a message on a channel that has no channel");
    }
    if (arrival->by_fastbox && !tmsg_kind_is_map(head->kind) &&
        head->kind != TMSG_KIND_LOAN_BACK) {
        return end_connection(arrival, head->endpoint_id, TMSG_ERR_MALFORMED,
                              "a fast box is for maps, and loans that are "
                              "given back");
    }
    if (!tmsg_kind_is_map(head->kind) && head->kind != TMSG_KIND_FRAGMENT &&
        (arrival->rendezvous ||
         (head->flags & (TMSG_HEADER_SPILLED | TMSG_HEADER_READ)) != 0)) {
        return ignore_arrival(arrival, "a control message by rendezvous");
    }
    if (head->flags & TMSG_HEADER_READ) {
        return handle_read(arrival);
    }
    return handlers[head->kind](arrival);
}

/* Handles a message from UCX that is no template message. */
__attribute__((noinline)) static tmsg_ucx_status_t
handle_ucx_arrival(tmsg_ucx_t *ucx, const void *header, size_t header_bytes,
                   void *data, size_t data_bytes,
                   const tmsg_ucx_am_info_t *info)
{
    tmsg_arrival_t arrival = {
        .ucx = ucx,
        .data = data,
        .data_bytes = data_bytes,
        .rendezvous = tmsg_ucx_am_is_rendezvous(info),
        .fleeting = tmsg_ucx_am_is_fleeting(info),
        .reply_ep = tmsg_ucx_am_reply_ep(info),
    };

    return handle_arrival(&arrival, header, header_bytes);
}

/* Handles a message that came by a fast box and is no template message. It is
 * copied first: the sender could change shared memory between two looks. */
__attribute__((noinline)) static void
came_by_fastbox(tmsg_endpoint_t *endpoint,
                const tmsg_fastbox_message_t *fastboxed)
{
    _Alignas(64) uint8_t data[TMSG_FASTBOX_PAYLOAD_BYTES];
    tmsg_arrival_t arrival = {.ucx = endpoint->ucx,
                              .data = data,
                              .data_bytes = fastboxed->payload_bytes,
                              .by_fastbox = true,
                              .fleeting = true};

    memcpy(data, fastboxed->payload, fastboxed->payload_bytes);
    (void)handle_arrival(&arrival, fastboxed->header, fastboxed->header_bytes);
}

/* Takes at most `most` messages out of the peer's fast box, which must exist.
 * worker->inside is set. */
static unsigned empty_fastbox(tmsg_endpoint_t *endpoint, unsigned most)
{
    tmsg_fastbox_message_t fastboxed;
    unsigned count = 0;

    for (; count < most && tmsg_fastboxes_next(endpoint, &fastboxed); count++) {
        if (tmsg_fastboxes_check(endpoint, &fastboxed) &&
            !tmsg_template_arrived(endpoint->ucx, fastboxed.header,
                                   fastboxed.header_bytes, fastboxed.payload,
                                   fastboxed.payload_bytes)) {
            came_by_fastbox(endpoint, &fastboxed);
        }
        tmsg_fastboxes_take(endpoint);
    }
    if (count > 0) {
        tmsg_fastboxes_note_core(endpoint);
    }
    return count;
}

unsigned tmsg_kinds_poll(tmsg_worker_t *worker)
{
    unsigned count = 0;

    tmsg_fastboxes_wake(worker);
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        count += empty_fastbox(tmsg_fastboxes_endpoint(node), FASTBOX_TURN);
    }
    return count;
}

/* Returns whether a message came from the peer of the endpoint that it names:
 * by the UCX endpoint of that connection. A peer of an older version tells the
 * UCX endpoint with some messages only. */
static bool is_from_peer(const tmsg_endpoint_t *endpoint, const void *header,
                         size_t bytes, tmsg_ucx_ep_t by)
{
    if (by != NULL && by == endpoint->ep) {
        return true;
    }
    if (by == NULL && endpoint->ep != NULL &&
        !(endpoint->peer_hello.features & TMSG_FEATURE_REPLIES)) {
        return true;
    }
    return tmsg_wireup_is_first(endpoint, header, bytes);
}

/* Ends the connection of a peer that speaks under the id of another endpoint:
 * nothing that it says is that endpoint's. */
__attribute__((noinline)) static tmsg_ucx_status_t
refuse_borrowed_id(const tmsg_ucx_t *ucx, tmsg_ucx_ep_t by, bool rendezvous)
{
    const tmsg_arrival_t arrival = {.rendezvous = rendezvous};
    tmsg_endpoint_t *endpoint = NULL;
    uint32_t i = 0;

    while (by != NULL &&
           (endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (endpoint->ep == by && endpoint->broken == TMSG_OK &&
            !tmsg_endpoint_is_down(endpoint)) {
            tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                                "a message under the id of another endpoint");
        }
    }
    return ignore_arrival(&arrival, "it did not come from its endpoint's peer");
}

/* Counts a message that UCX brings, after taking what was put into the fast box
 * before it. */
static void hear_fastbox_first(tmsg_endpoint_t *endpoint)
{
    if (endpoint->fastboxes.in != NULL) {
        (void)empty_fastbox(endpoint, TMSG_FASTBOX_PLACES);
    }
    tmsg_fastboxes_count(endpoint);
}

tmsg_ucx_status_t tmsg_kinds_arrived(void *arg, const void *header,
                                     size_t header_bytes, void *data,
                                     size_t data_bytes,
                                     const tmsg_ucx_am_info_t *info)
{
    tmsg_ucx_t *ucx = arg;
    tmsg_endpoint_t *endpoint;

    if (ucx->worker == NULL) { /* the UCX worker is being closed */
        return tmsg_ucx_am_is_rendezvous(info) ? TMSG_UCX_REJECTED
                                               : TMSG_UCX_OK;
    }
    if (ucx->suspect) {
        tmsg_probe_note(ucx, header, header_bytes);
    }
    endpoint = tmsg_fastboxes_receiver(ucx, header, header_bytes);
    if (endpoint != NULL) {
        tmsg_ucx_ep_t by = tmsg_ucx_am_reply_ep(info);

        if (!is_from_peer(endpoint, header, header_bytes, by)) {
            return refuse_borrowed_id(ucx, by, tmsg_ucx_am_is_rendezvous(info));
        }
        hear_fastbox_first(endpoint);
    }
    if (!tmsg_ucx_am_is_rendezvous(info) &&
        tmsg_template_arrived(ucx, header, header_bytes, data, data_bytes)) {
        return TMSG_UCX_OK;
    }
    return handle_ucx_arrival(ucx, header, header_bytes, data, data_bytes,
                              info);
}
