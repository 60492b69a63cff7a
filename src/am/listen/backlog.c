/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/backlog.h"

#include <stdlib.h>
#include <string.h>

#include "am/listen/accept.h"
#include "am/listen/accept_blob.h"

#define BACKLOG_MOST 1024             /* as many as in a socket's queue */
#define BACKLOG_BYTES_MOST (8u << 20) /* limit of all of them together */
/* A dialler usually waits as long: times a handshake's timeout. */
#define PATIENCE 2
#define NS_PER_MS UINT64_C(1000000)

typedef struct {
    tmsg_node_t node;
    uint64_t came_ns;
    tmsg_preamble_t head;
    size_t data_bytes;
    uint8_t bytes[]; /* body, data */
} connect_request_t;

static void forget_connect_request(tmsg_listener_t *listener,
                                   connect_request_t *connect_request)
{
    listener->backlog_bytes -=
        connect_request->head.body_bytes + connect_request->data_bytes;
    free(connect_request);
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
    connect_request_t *connect_request = NULL;

    if (listener->backlog.count < BACKLOG_MOST &&
        listener->backlog_bytes + bytes <= BACKLOG_BYTES_MOST) {
        connect_request = malloc(sizeof(*connect_request) + bytes);
    }
    if (connect_request == NULL) {
        return false;
    }
    *connect_request = (connect_request_t){.came_ns = tmsg_now_ns(),
                                           .head = arrival->head,
                                           .data_bytes = arrival->data_bytes};
    memcpy(connect_request->bytes, arrival->body, body_bytes);
    memcpy(connect_request->bytes + body_bytes, arrival->data,
           arrival->data_bytes);
    listener->backlog_bytes += bytes;
    tmsg_list_push(&listener->backlog, &connect_request->node);
    return true;
}

/* Returns whether a connect request has waited so long that its peer has gone
 * by now, or will soon. */
static bool is_stale(const tmsg_listener_t *listener,
                     const connect_request_t *connect_request)
{
    return tmsg_now_ns() - connect_request->came_ns >
           PATIENCE * (uint64_t)listener->handshake_timeout_ms * NS_PER_MS;
}

static void answer_connect_request(tmsg_listener_t *listener,
                                   connect_request_t *connect_request)
{
    const tmsg_arrival_t arrival = {
        .ucx = listener->ucx,
        .head = connect_request->head,
        .body = connect_request->bytes,
        .data = connect_request->bytes + connect_request->head.body_bytes,
        .data_bytes = connect_request->data_bytes,
    };

    tmsg_wireup_request(&arrival, listener);
}

static void hear_connect_requests(tmsg_timer_t *timer)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(timer, tmsg_listener_t, backlog_timer);
    connect_request_t *connect_request;

    while (!tmsg_accept_is_full(listener) &&
           (connect_request = take_connect_request(listener)) != NULL) {
        if (is_stale(listener, connect_request)) {
            listener->timed_out++;
        } else {
            answer_connect_request(listener, connect_request);
        }
        forget_connect_request(listener, connect_request);
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
    connect_request_t *connect_request;

    tmsg_loop_clear_timer(&listener->worker->loop, &listener->backlog_timer);
    while ((connect_request = take_connect_request(listener)) != NULL) {
        forget_connect_request(listener, connect_request);
    }
}
