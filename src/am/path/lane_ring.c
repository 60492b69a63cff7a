/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/lane_ring.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/carrier.h"
#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/path/boxes.h"
#include "am/shm/ring.h"
#include "core/bytes.h"
#include "core/log.h"

static bool may_be_taken(const tmsg_endpoint_t *endpoint)
{
    return tmsg_carrier_may_find(endpoint, TMSG_FEATURE_RINGS) &&
           (endpoint->lane == NULL ||
            (endpoint->lane->fd < 0 && !endpoint->lane->lost));
}

/* NULL: no memory. */
static tmsg_lane_t *lane_of(tmsg_endpoint_t *endpoint)
{
    if (endpoint->lane == NULL) {
        tmsg_lane_t *lane = calloc(1, sizeof(*lane));

        if (lane == NULL) {
            tmsg_error_memory("a lane");
            return NULL;
        }
        lane->endpoint = endpoint;
        lane->fd = -1;
        lane->source.fd = -1;
        endpoint->lane = lane;
    }
    return endpoint->lane;
}

static void go_without(tmsg_endpoint_t *endpoint, const char *why)
{
    endpoint->ringless = true;
    tmsg_lane_go_without(endpoint, "ring", why);
}

bool tmsg_lane_ring_sends(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->lane;

    return lane != NULL && lane->ring_out != NULL && !lane->lost &&
           !endpoint->ringless;
}

bool tmsg_lane_ring_may_send(const tmsg_endpoint_t *endpoint)
{
    return endpoint->carrier == TMSG_CARRIER_SHM && may_be_taken(endpoint) &&
           !endpoint->ringless;
}

bool tmsg_lane_ring_make(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane;

    if (!tmsg_lane_ring_may_send(endpoint) || tmsg_lane_ring_sends(endpoint)) {
        return tmsg_lane_ring_sends(endpoint);
    }
    lane = lane_of(endpoint);
    if (lane == NULL || tmsg_ring_create(&lane->ring_out) != TMSG_OK) {
        go_without(endpoint, tmsg_error_message());
        return false;
    }
    if (!tmsg_control_offer(endpoint, TMSG_RING_WORD_OFFER,
                            tmsg_ring_shared(lane->ring_out))) {
        go_without(endpoint, "no memory to tell the peer of it");
        return false;
    }
    return true;
}

bool tmsg_lane_ring_receives(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->lane;

    return lane != NULL && lane->ring_in != NULL && !lane->lost;
}

static bool take(tmsg_endpoint_t *endpoint, const uint8_t *offer)
{
    tmsg_lane_t *lane;

    if (!may_be_taken(endpoint)) {
        tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                       "no memory is shared here, or there is no socket");
        return false;
    }
    lane = lane_of(endpoint);
    return lane != NULL && tmsg_ring_open((pid_t)endpoint->peer_hello.pid,
                                          (int)tmsg_get_le(offer, 4), offer + 4,
                                          &lane->ring_in) == TMSG_OK;
}

/* Once a connection, whatever comes of it. */
static void offered(tmsg_endpoint_t *endpoint, const uint8_t *offer)
{
    bool taken;

    if (endpoint->ring_offered) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, "a second ring");
        return;
    }
    endpoint->ring_offered = true;
    taken = take(endpoint, offer);
    if (!taken) {
        tmsg_log(TMSG_LOG_INFO, "%s: large payloads come by UCX: %s",
                 endpoint->peer, tmsg_error_message());
    }
    tmsg_control_ring(endpoint,
                      taken ? TMSG_RING_WORD_TAKEN : TMSG_RING_WORD_REFUSED);
}

/* The first answer to an offer counts. */
static void answered(tmsg_endpoint_t *endpoint, bool taken)
{
    tmsg_shared_t *shared;

    if (!tmsg_lane_ring_sends(endpoint)) {
        return;
    }
    shared = tmsg_ring_shared(endpoint->lane->ring_out);
    if (shared->fd < 0) {
        return;
    }
    tmsg_shared_close_fd(shared);
    if (!taken) {
        go_without(
            endpoint,
            "the peer does not take this side's ring, and its log says why");
    }
}

static bool is_offer(uint8_t word)
{
    return word == TMSG_RING_WORD_OFFER || word == TMSG_RING_WORD_BOX;
}

ucs_status_t tmsg_ring_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    size_t bytes = arrival->head.body_bytes;

    if (endpoint == NULL) {
        return UCS_OK;
    }
    if (bytes == 0 ||
        (is_offer(arrival->body[0]) && bytes != TMSG_RING_OFFER_BYTES)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a word of a ring is of a length that cannot be");
        return UCS_OK;
    }
    switch (arrival->body[0]) {
    case TMSG_RING_WORD_MOVED:
        tmsg_lane_stir(endpoint);
        break;
    case TMSG_RING_WORD_OFFER:
        offered(endpoint, arrival->body + 1);
        break;
    case TMSG_RING_WORD_TAKEN:
    case TMSG_RING_WORD_REFUSED:
        answered(endpoint, arrival->body[0] == TMSG_RING_WORD_TAKEN);
        break;
    case TMSG_RING_WORD_BOX:
        tmsg_boxes_offered(endpoint, arrival->body + 1);
        break;
    case TMSG_RING_WORD_BOX_TAKEN:
    case TMSG_RING_WORD_BOX_REFUSED:
        tmsg_boxes_answered(endpoint,
                            arrival->body[0] == TMSG_RING_WORD_BOX_TAKEN);
        break;
    default: /* of a version to come */
        break;
    }
    return UCS_OK;
}

static size_t judge(tmsg_lane_t *lane, size_t moved)
{
    if (moved == TMSG_RING_WRONG) {
        tmsg_lane_lose(lane, TMSG_ERR_MALFORMED,
                       "the peer says what cannot be of its ring");
        return 0;
    }
    return moved;
}

size_t tmsg_lane_ring_write(tmsg_lane_t *lane, const struct iovec *from,
                            size_t count)
{
    return lane->ring_out == NULL
               ? 0
               : judge(lane, tmsg_ring_write(lane->ring_out, from, count));
}

size_t tmsg_lane_ring_read(tmsg_lane_t *lane, const struct iovec *into,
                           size_t count, uint64_t most)
{
    if (lane->ring_in == NULL) {
        return 0;
    }
    return judge(lane, count == 0 ? tmsg_ring_skip(lane->ring_in, most)
                                  : tmsg_ring_read(lane->ring_in, into, count));
}

bool tmsg_lane_ring_await(tmsg_lane_t *lane)
{
    return (lane->ring_in == NULL || tmsg_ring_await(lane->ring_in)) &&
           (!tmsg_lane_has_output(lane) || tmsg_ring_await(lane->ring_out));
}

bool tmsg_lane_ring_has_work(const tmsg_lane_t *lane)
{
    return (lane->ring_in != NULL && tmsg_ring_is_movable(lane->ring_in)) ||
           (tmsg_lane_has_output(lane) && lane->ring_out != NULL &&
            tmsg_ring_is_movable(lane->ring_out));
}

void tmsg_lane_ring_wake(tmsg_lane_t *lane)
{
    bool of_out =
        lane->ring_out != NULL && tmsg_ring_is_awaited(lane->ring_out);
    bool of_in = lane->ring_in != NULL && tmsg_ring_is_awaited(lane->ring_in);

    if (of_out || of_in) {
        tmsg_control_ring(lane->endpoint, TMSG_RING_WORD_MOVED);
    }
}
