/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/backlog.h"

#include <stdlib.h>
#include <string.h>

#include "am/listen/accept.h"
#include "am/listen/accept_blob.h"

#define BACKLOG_MOST 1024             /* as many as in a socket's queue */
#define BACKLOG_BYTES_MOST (8u << 20) /* limit of all of them together */
/* A connect request is stale after so many timeouts of a handshake: a dialler
 * usually waits no longer. */
#define STALE_TIMEOUTS 2
#define NS_PER_MS UINT64_C(1000000)

typedef struct {
    tmsg_node_t node;
    uint64_t came_ns;
    tmsg_preamble_t head;
    size_t data_bytes;
    uint8_t bytes[]; /* body, data */
} connect_request_t;

static void forget_connect_request(tmsg_listener_t *listener,
                                   connect_request_t *request)
{
    listener->backlog_bytes -= request->head.body_bytes + request->data_bytes;
    free(request);
}

static connect_request_t *take_connect_request(tmsg_listener_t *listener)
{
    tmsg_node_t *node = tmsg_list_pop(&listener->backlog);

    return node == NULL ? NULL
                        : TMSG_CONTAINER_OF(node, connect_request_t, node);
}

bool tmsg_backlog_keep(tmsg_listener_t *listener, const tmsg_arrival_t *arrival)
{
    size_t body_bytes = arrival->head.body_bytes;
    size_t bytes = body_bytes + arrival->data_bytes;
    connect_request_t *request = NULL;

    if (listener->backlog.count < BACKLOG_MOST &&
        listener->backlog_bytes + bytes <= BACKLOG_BYTES_MOST) {
        request = malloc(sizeof(*request) + bytes);
    }
    if (request == NULL) {
        return false;
    }
    *request = (connect_request_t){.came_ns = tmsg_now_ns(),
                                   .head = arrival->head,
                                   .data_bytes = arrival->data_bytes};
    memcpy(request->bytes, arrival->body, body_bytes);
    memcpy(request->bytes + body_bytes, arrival->data, arrival->data_bytes);
    listener->backlog_bytes += bytes;
    tmsg_list_push(&listener->backlog, &request->node);
    return true;
}

/* Returns whether a connect request has waited so long that its peer has gone
 * by now, or will soon. */
static bool is_stale(const tmsg_listener_t *listener,
                     const connect_request_t *request)
{
    return tmsg_now_ns() - request->came_ns >
           STALE_TIMEOUTS * (uint64_t)listener->handshake_timeout_ms *
               NS_PER_MS;
}

static void answer_connect_request(tmsg_listener_t *listener,
                                   connect_request_t *request)
{
    const tmsg_arrival_t arrival = {
        .ucx = listener->ucx,
        .head = request->head,
        .body = request->bytes,
        .data = request->bytes + request->head.body_bytes,
        .data_bytes = request->data_bytes,
    };

    tmsg_accept_by_blob(&arrival, listener);
}

static void hear_connect_requests(tmsg_timer_t *timer)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(timer, tmsg_listener_t, backlog_timer);
    connect_request_t *request;

    while (!tmsg_accept_is_full(listener) &&
           (request = take_connect_request(listener)) != NULL) {
        if (is_stale(listener, request)) {
            listener->timed_out++;
        } else {
            answer_connect_request(listener, request);
        }
        forget_connect_request(listener, request);
    }
}

void tmsg_backlog_call(tmsg_listener_t *listener)
{
    if (listener->backlog.count > 0) {
        listener->backlog_timer.expired = hear_connect_requests;
        tmsg_loop_set_timer(&listener->worker->loop, &listener->backlog_timer,
                            0);
    }
}

void tmsg_backlog_free(tmsg_listener_t *listener)
{
    connect_request_t *request;

    tmsg_loop_clear_timer(&listener->worker->loop, &listener->backlog_timer);
    while ((request = take_connect_request(listener)) != NULL) {
        forget_connect_request(listener, request);
    }
}
