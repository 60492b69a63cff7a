/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/knocks.h"

#include <stdlib.h>
#include <string.h>

#include "am/listen/accept.h"
#include "am/listen/accept_blob.h"

#define KNOCKS_MOST 1024             /* as many as in a socket's queue */
#define KNOCKS_BYTES_MOST (8u << 20) /* limit of all of them together */
/* A dialler usually waits as long: times a handshake's timeout. */
#define PATIENCE 2
#define NS_PER_MS UINT64_C(1000000)

typedef struct {
    tmsg_node_t node;
    uint64_t came_ns;
    tmsg_preamble_t head;
    size_t data_bytes;
    uint8_t bytes[]; /* body, data */
} knock_t;

static void forget_knock(tmsg_listener_t *listener, knock_t *knock)
{
    listener->knock_bytes -= knock->head.body_bytes + knock->data_bytes;
    free(knock);
}

static knock_t *take_knock(tmsg_listener_t *listener)
{
    tmsg_node_t *node = tmsg_list_pop(&listener->knocks);

    return node == NULL ? NULL : TMSG_CONTAINER_OF(node, knock_t, node);
}

bool tmsg_knocks_keep(tmsg_listener_t *listener, const tmsg_arrival_t *arrival)
{
    size_t body_bytes = arrival->head.body_bytes;
    size_t bytes = body_bytes + arrival->data_bytes;
    knock_t *knock = NULL;

    if (listener->knocks.count < KNOCKS_MOST &&
        listener->knock_bytes + bytes <= KNOCKS_BYTES_MOST) {
        knock = malloc(sizeof(*knock) + bytes);
    }
    if (knock == NULL) {
        return false;
    }
    *knock = (knock_t){.came_ns = tmsg_now_ns(),
                       .head = arrival->head,
                       .data_bytes = arrival->data_bytes};
    memcpy(knock->bytes, arrival->body, body_bytes);
    memcpy(knock->bytes + body_bytes, arrival->data, arrival->data_bytes);
    listener->knock_bytes += bytes;
    tmsg_list_push(&listener->knocks, &knock->node);
    return true;
}

/* Returns whether a knock has waited so long that its peer has gone by now, or
 * will soon. */
static bool is_stale(const tmsg_listener_t *listener, const knock_t *knock)
{
    return tmsg_now_ns() - knock->came_ns >
           PATIENCE * (uint64_t)listener->handshake_timeout_ms * NS_PER_MS;
}

static void answer_knock(tmsg_listener_t *listener, knock_t *knock)
{
    const tmsg_arrival_t arrival = {
        .ucx = listener->ucx,
        .head = knock->head,
        .body = knock->bytes,
        .data = knock->bytes + knock->head.body_bytes,
        .data_bytes = knock->data_bytes,
    };

    tmsg_attach_knock(&arrival, listener);
}

static void hear_knocks(tmsg_timer_t *timer)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(timer, tmsg_listener_t, knock_timer);
    knock_t *knock;

    while (!tmsg_accept_is_full(listener) &&
           (knock = take_knock(listener)) != NULL) {
        if (is_stale(listener, knock)) {
            listener->timed_out++;
        } else {
            answer_knock(listener, knock);
        }
        forget_knock(listener, knock);
    }
}

void tmsg_knocks_call(tmsg_listener_t *listener)
{
    if (listener->knocks.count > 0) {
        listener->knock_timer.expired = hear_knocks;
        tmsg_loop_set_timer(&listener->worker->loop, &listener->knock_timer, 0);
    }
}

void tmsg_knocks_free(tmsg_listener_t *listener)
{
    knock_t *knock;

    tmsg_loop_clear_timer(&listener->worker->loop, &listener->knock_timer);
    while ((knock = take_knock(listener)) != NULL) {
        forget_knock(listener, knock);
    }
}
