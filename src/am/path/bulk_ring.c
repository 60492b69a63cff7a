/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/bulk_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/link_ops.h"
#include "am/endpoint/log.h"
#include "am/endpoint/transport.h"
#include "am/path/fastboxes.h"
#include "am/path/offer.h"
#include "am/path/shared.h"
#include "am/shm/ring.h"

#define AHEAD ((uint64_t)4 * 1024 * 1024)
#define TURN_BYTES ((size_t)64 * 1024)

/* Returns whether the peer may offer a ring here, and answer: the bulk stream
 * is one of rings, or there is none yet. */
static bool may_be_taken(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;

    return tmsg_transport_may_find(endpoint, TMSG_FEATURE_RINGS) &&
           (bulk == NULL || (bulk->maker == &tmsg_mover_ring && !bulk->lost));
}

/* Returns the endpoint's bulk stream, and makes it if there is none; NULL
 * without memory. */
static tmsg_bulk_ring_t *ring_bulk_of(tmsg_endpoint_t *endpoint)
{
    if (endpoint->paths.bulk == NULL) {
        tmsg_bulk_ring_t *ring = calloc(1, sizeof(*ring));

        if (ring == NULL) {
            tmsg_error_memory("a bulk stream");
            return NULL;
        }
        tmsg_bulk_adopt(&ring->bulk, &tmsg_mover_ring, endpoint);
        ring->bulk.stands = true;
    }
    return tmsg_bulk_ring_of(endpoint->paths.bulk);
}

static void go_without_ring(tmsg_endpoint_t *endpoint, const char *why)
{
    endpoint->paths.ringless = true;
    tmsg_bulk_go_without(endpoint, "ring", why);
}

static bool ring_sends(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_ring_of(bulk)->out != NULL &&
           !bulk->endpoint->paths.ringless;
}

static bool ring_receives(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_ring_of(bulk)->in != NULL;
}

static bool may_send_by_ring(const tmsg_endpoint_t *endpoint)
{
    return endpoint->transport == TMSG_TRANSPORT_SHM &&
           may_be_taken(endpoint) && !endpoint->paths.ringless;
}

/* Makes this side's ring and tells the peer of it. The peer's PULL then says
 * whether it has found the ring. */
static bool make_ring(tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_ring_t *ring = ring_bulk_of(endpoint);

    if (ring != NULL && ring->out != NULL) {
        return true;
    }
    if (ring == NULL || tmsg_ring_create(&ring->out) != TMSG_OK) {
        go_without_ring(endpoint, tmsg_error_message());
        return false;
    }
    if (!tmsg_offer_send(endpoint, TMSG_RING_WORD_OFFER,
                         tmsg_ring_segment(ring->out))) {
        go_without_ring(endpoint, "no memory to tell the peer of it");
        return false;
    }
    return true;
}

static bool take_offered_ring(tmsg_endpoint_t *endpoint,
                              const tmsg_segment_offer_t *offer)
{
    tmsg_bulk_ring_t *ring;

    if (!may_be_taken(endpoint)) {
        tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                       "no memory is shared here, or there is no socket");
        return false;
    }
    if (!tmsg_offer_is_there(endpoint, offer)) {
        return false;
    }
    ring = ring_bulk_of(endpoint);
    if (ring == NULL || tmsg_ring_open(offer, &ring->in) != TMSG_OK) {
        return false;
    }
    tmsg_shared_note(endpoint, tmsg_ring_segment(ring->in));
    return true;
}

/* Takes or refuses the ring that the peer offers, once a connection, whatever
 * comes of it. */
void tmsg_ring_offered(tmsg_endpoint_t *endpoint,
                       const tmsg_segment_offer_t *offer)
{
    bool taken;

    if (endpoint->paths.ring_offered) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, "a second ring");
        return;
    }
    endpoint->paths.ring_offered = true;
    taken = take_offered_ring(endpoint, offer);
    if (!taken) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_WITHOUT_KIND, TMSG_LOG_INFO,
                          "large payloads come by UCX: %s",
                          tmsg_error_message());
    }
    tmsg_control_ring(endpoint,
                      taken ? TMSG_RING_WORD_TAKEN : TMSG_RING_WORD_REFUSED);
}

/* Notes the peer's answer. The first answer to an offer counts. */
static void note_ring_answer(tmsg_endpoint_t *endpoint, bool taken)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;
    tmsg_segment_t *segment;

    if (bulk == NULL || bulk->maker != &tmsg_mover_ring || bulk->lost ||
        !ring_sends(bulk)) {
        return;
    }
    segment = tmsg_ring_segment(tmsg_bulk_ring_of(bulk)->out);
    if (segment->fd < 0) {
        return;
    }
    if (!taken) {
        tmsg_segment_close_fd(segment);
        go_without_ring(
            endpoint,
            "the peer does not take this side's ring, and its log says why");
    } else if (tmsg_segment_settle(segment) == TMSG_OK) {
        tmsg_shared_note(endpoint, segment);
        tmsg_bulk_stir(endpoint); /* fragments may wait for this */
    } else {
        go_without_ring(endpoint, tmsg_error_message());
    }
}

tmsg_ucx_status_t tmsg_ring_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    size_t bytes = arrival->head.body_bytes;

    if (endpoint == NULL) {
        return TMSG_UCX_OK;
    }
    if (bytes == 0 || (tmsg_offer_is_word(arrival->body[0]) &&
                       bytes != TMSG_RING_OFFER_BYTES)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a word of a ring with an impossible length");
        return TMSG_UCX_OK;
    }
    switch (arrival->body[0]) {
    case TMSG_RING_WORD_MOVED:
        tmsg_bulk_stir(endpoint);
        break;
    case TMSG_RING_WORD_LOOK:
        tmsg_link_ops.look(endpoint);
        break;
    case TMSG_RING_WORD_OFFER:
    case TMSG_RING_WORD_FASTBOX:
        tmsg_offer_arrived(endpoint, arrival->body);
        break;
    case TMSG_RING_WORD_TAKEN:
    case TMSG_RING_WORD_REFUSED:
        note_ring_answer(endpoint, arrival->body[0] == TMSG_RING_WORD_TAKEN);
        break;
    case TMSG_RING_WORD_FASTBOX_TAKEN:
    case TMSG_RING_WORD_FASTBOX_REFUSED:
        tmsg_fastboxes_answered(endpoint, arrival->body[0] ==
                                              TMSG_RING_WORD_FASTBOX_TAKEN);
        break;
    default: /* a word of a later version */
        break;
    }
    return TMSG_UCX_OK;
}

/* Returns what a mover does for what a ring has moved. */
static ssize_t moved_by_ring(size_t bytes)
{
    return bytes == TMSG_RING_WRONG ? -EPROTO
           : bytes == 0             ? -EAGAIN
                                    : (ssize_t)bytes;
}

static tmsg_status_t explain_ring(const tmsg_bulk_t *bulk, int error)
{
    (void)bulk;
    (void)error;
    return tmsg_error_set(TMSG_ERR_MALFORMED,
                          "the peer says impossible things about its ring");
}

/* Returns this side's ring; NULL: there is none, or the peer has not taken it
 * yet and may still give its pages back. */
static tmsg_ring_t *settled_out(const tmsg_bulk_t *bulk)
{
    tmsg_ring_t *out = tmsg_bulk_ring_of(bulk)->out;

    return out != NULL && tmsg_ring_segment(out)->settled ? out : NULL;
}

static ssize_t write_ring(tmsg_bulk_t *bulk, struct iovec *from, size_t count)
{
    tmsg_ring_t *out = settled_out(bulk);

    return out == NULL ? -EAGAIN
                       : moved_by_ring(tmsg_ring_write(out, from, count));
}

static ssize_t read_ring(tmsg_bulk_t *bulk, struct iovec *into, size_t count,
                         uint64_t most)
{
    tmsg_ring_t *in = tmsg_bulk_ring_of(bulk)->in;

    return in == NULL   ? -EAGAIN
           : count == 0 ? moved_by_ring(tmsg_ring_skip(in, most))
                        : moved_by_ring(tmsg_ring_read(in, into, count));
}

/* Wakes the peer, if it sleeps, for what was moved. */
static void wake_ring_peer(tmsg_bulk_t *bulk)
{
    tmsg_ring_t *out = settled_out(bulk), *in = tmsg_bulk_ring_of(bulk)->in;
    bool of_out = out != NULL && tmsg_ring_is_awaited(out);
    bool of_in = in != NULL && tmsg_ring_is_awaited(in);

    if (of_out || of_in) {
        tmsg_control_ring(bulk->endpoint, TMSG_RING_WORD_MOVED);
    }
}

static bool await_rings(tmsg_bulk_t *bulk)
{
    tmsg_ring_t *out = settled_out(bulk), *in = tmsg_bulk_ring_of(bulk)->in;

    return (in == NULL || tmsg_ring_await(in)) &&
           (!tmsg_bulk_has_output(bulk) || out == NULL || tmsg_ring_await(out));
}

static bool rings_have_work(const tmsg_bulk_t *bulk)
{
    const tmsg_ring_t *out = settled_out(bulk);
    const tmsg_ring_t *in = tmsg_bulk_ring_of(bulk)->in;

    return (in != NULL && tmsg_ring_is_movable(in)) ||
           (tmsg_bulk_has_output(bulk) && out != NULL &&
            tmsg_ring_is_movable(out));
}

static void look_at_rings(tmsg_bulk_t *bulk)
{
    if (rings_have_work(bulk)) {
        tmsg_bulk_stir(bulk->endpoint);
    }
}

static uint64_t ring_ahead(const tmsg_bulk_t *bulk)
{
    (void)bulk;
    return AHEAD;
}

static bool rings_are_intact(const tmsg_bulk_t *bulk)
{
    const tmsg_ring_t *out = settled_out(bulk);
    const tmsg_ring_t *in = tmsg_bulk_ring_of(bulk)->in;

    return (out == NULL || tmsg_ring_is_intact(out)) &&
           (in == NULL || tmsg_ring_is_intact(in));
}

static void shut_ring_bulk(tmsg_bulk_t *bulk)
{
    /* Each side reads and writes for itself, so nothing has to be stopped. */
    (void)bulk;
}

static void free_ring_bulk(tmsg_bulk_t *bulk)
{
    tmsg_bulk_ring_t *ring = tmsg_bulk_ring_of(bulk);

    tmsg_ring_free(ring->out);
    tmsg_ring_free(ring->in);
    free(ring);
}

const tmsg_mover_t tmsg_mover_ring = {
    .ready = "ring",
    .unready = "none",
    .turn_bytes = TURN_BYTES,
    .may_send = may_send_by_ring,
    .make = make_ring,
    .sends = ring_sends,
    .receives = ring_receives,
    .write = write_ring,
    .read = read_ring,
    .explain = explain_ring,
    .moved = wake_ring_peer,
    .await = await_rings,
    .look = look_at_rings,
    .ahead = ring_ahead,
    .is_intact = rings_are_intact,
    .shut = shut_ring_bulk,
    .free = free_ring_bulk,
};
