/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages wait for no credit and for no payload, and carry everything
 * in their header. */
#include "am/endpoint/control.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/shown.h"

/* The body of CREDIT has this many bytes: u64 edge of the bytes. */
#define CREDIT_BYTES 8
/* Records for messages up to this many bytes are kept. */
#define SMALL 128

/* These bound the answers that wait in UCX. A message is answered by ACK,
 * SCHEMA, PULL and READ at most, a turn of its fragments by RING, and half a
 * window by CREDIT, without which the peer may send no more than a window. A
 * peer that lets more than that pile up does not read. */
#define ANSWERS_MOST 7
#define ANSWERS_MORE 64

/* Holds a control message on its way through UCX, which needs its bytes until
 * it is sent. */
typedef struct {
    tmsg_op_t op;
    tmsg_spare_t spare; /* kept, if the record has room for SMALL bytes */
    tmsg_endpoint_t *endpoint;
    size_t header_bytes;
    size_t payload_bytes;
    uint8_t bytes[]; /* header, then payload */
} posted_t;

/* Holds an answer that waits until UCX may be called. */
typedef struct {
    tmsg_node_t node;
    uint8_t kind;
    tmsg_preamble_t head;
    size_t body_bytes;
    uint8_t body[];
} control_t;

void tmsg_control_free_spare(tmsg_spare_t *spare)
{
    free(TMSG_CONTAINER_OF(spare, posted_t, spare));
}

/* Returns a record with room for `bytes`, or NULL. */
static posted_t *get_posted(tmsg_endpoint_t *endpoint, size_t bytes)
{
    tmsg_spares_t *spares = tmsg_budget_controls(endpoint->worker->budget);
    tmsg_spare_t *spare = bytes > SMALL ? NULL : tmsg_spares_take(spares);

    return spare != NULL ? TMSG_CONTAINER_OF(spare, posted_t, spare)
                         : malloc(sizeof(posted_t) +
                                  (bytes < SMALL ? (size_t)SMALL : bytes));
}

static void keep_posted(posted_t *posted)
{
    if (posted->header_bytes + posted->payload_bytes > SMALL) {
        free(posted);
        return;
    }
    posted->spare.bytes = sizeof(*posted) + SMALL;
    tmsg_spares_give(tmsg_budget_controls(posted->endpoint->worker->budget),
                     &posted->spare);
}

static void posted_over(tmsg_op_t *op)
{
    posted_t *posted = TMSG_CONTAINER_OF(op, posted_t, op);
    tmsg_endpoint_t *endpoint = posted->endpoint;

    tmsg_op_over(endpoint, op);
    keep_posted(posted);
    endpoint->controls.in_ucx--;
    if (endpoint->state == TMSG_EP_CLOSING) {
        /* The message may be the last. */
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_reported(endpoint);
}

static void posted_reported(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    (void)ucs; /* a broken connection shows elsewhere */
    tmsg_ucx_request_free(request);
    posted_over(&((posted_t *)arg)->op);
}

/* Returns a record with the bytes of a message in it, or NULL. */
static posted_t *pack_posted(tmsg_endpoint_t *endpoint, uint8_t kind,
                             const tmsg_preamble_t *head, const void *body,
                             size_t body_bytes, const void *payload,
                             size_t payload_bytes)
{
    size_t header_bytes = TMSG_PREAMBLE_BYTES + body_bytes;
    tmsg_preamble_t full = *head;
    posted_t *posted = get_posted(endpoint, header_bytes + payload_bytes);

    if (posted == NULL) {
        tmsg_error_memory("a control message");
        return NULL;
    }
    posted->endpoint = endpoint;
    posted->header_bytes = header_bytes;
    posted->payload_bytes = payload_bytes;
    full.kind = kind;
    full.body_bytes = (uint32_t)body_bytes;
    full.payload_bytes = payload_bytes;
    tmsg_preamble_encode(&full, posted->bytes);
    if (body_bytes > 0) {
        memcpy(posted->bytes + TMSG_PREAMBLE_BYTES, body, body_bytes);
    }
    if (payload_bytes > 0) {
        memcpy(posted->bytes + header_bytes, payload, payload_bytes);
    }
    return posted;
}

static const uint8_t *posted_payload(const posted_t *posted)
{
    return posted->payload_bytes == 0 ? NULL
                                      : posted->bytes + posted->header_bytes;
}

tmsg_status_t tmsg_control_post(tmsg_endpoint_t *endpoint, uint8_t kind,
                                const tmsg_preamble_t *head, const void *body,
                                size_t body_bytes, const void *payload,
                                size_t payload_bytes)
{
    posted_t *posted = pack_posted(endpoint, kind, head, body, body_bytes,
                                   payload, payload_bytes);
    tmsg_ucx_send_t send = {.flags = TMSG_UCX_SEND_EAGER | TMSG_UCX_SEND_REPLY};
    tmsg_ucx_status_t ucs;

    if (posted == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    tmsg_op_begin(endpoint, &posted->op, posted_over);
    endpoint->controls.in_ucx++;
    send.header = posted->bytes;
    send.header_bytes = posted->header_bytes;
    send.data = posted_payload(posted);
    send.bytes = posted->payload_bytes;
    ucs = tmsg_endpoint_send_am(endpoint, &send, posted_reported, posted);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        posted_over(&posted->op);
    }
    return tmsg_ucx_is_error(ucs) ? tmsg_ucx_am_unsent(endpoint->ep, ucs)
                                  : TMSG_OK;
}

tmsg_status_t tmsg_control_try(tmsg_endpoint_t *endpoint, uint8_t kind,
                               const tmsg_preamble_t *head, const void *body,
                               size_t body_bytes, const void *payload,
                               size_t payload_bytes)
{
    posted_t *posted = pack_posted(endpoint, kind, head, body, body_bytes,
                                   payload, payload_bytes);
    tmsg_ucx_status_t ucs;

    if (posted == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    ucs =
        tmsg_ucx_am_send_now(endpoint->ep, posted->bytes, posted->header_bytes,
                             posted_payload(posted), posted->payload_bytes);
    keep_posted(posted);
    if (ucs == TMSG_UCX_NO_RESOURCE) {
        return TMSG_IN_PROGRESS;
    }
    if (ucs != TMSG_UCX_OK) {
        return tmsg_ucx_am_unsent(endpoint->ep, ucs);
    }
    tmsg_endpoint_sent_am(endpoint);
    return TMSG_OK;
}

static void post_or_break(tmsg_endpoint_t *endpoint, uint8_t kind,
                          const tmsg_preamble_t *head, const void *body,
                          size_t body_bytes)
{
    tmsg_status_t status;
    uint64_t windows =
        (uint64_t)endpoint->channels.count * endpoint->worker->queue_depth;

    if (endpoint->controls.in_ucx > ANSWERS_MOST * windows + ANSWERS_MORE) {
        tmsg_endpoint_break(
            endpoint, TMSG_ERR_LIMIT_EXCEEDED,
            "the peer goes on sending without taking its answers");
        return;
    }
    status = tmsg_control_post(endpoint, kind, head, body, body_bytes, NULL, 0);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
    }
}

static bool may_post(const tmsg_endpoint_t *endpoint)
{
    return !endpoint->worker->inside && endpoint->ep != NULL &&
           (endpoint->state == TMSG_EP_OPEN ||
            endpoint->state == TMSG_EP_CLOSING);
}

static control_t *pop_control(tmsg_endpoint_t *endpoint)
{
    return TMSG_CONTAINER_OF(tmsg_list_pop(&endpoint->controls.waiting),
                             control_t, node);
}

void tmsg_control_flush(tmsg_endpoint_t *endpoint)
{
    while (endpoint->controls.waiting.count > 0 && may_post(endpoint)) {
        control_t *control = pop_control(endpoint);

        /* The peer's id may be newer by now. */
        control->head.endpoint_id = endpoint->peer_id;
        post_or_break(endpoint, control->kind, &control->head, control->body,
                      control->body_bytes);
        free(control);
    }
}

void tmsg_control_discard(tmsg_endpoint_t *endpoint)
{
    while (endpoint->controls.waiting.count > 0) {
        free(pop_control(endpoint));
    }
}

/* Queues a control message. False: no memory. */
static bool put_control(tmsg_endpoint_t *endpoint, uint8_t kind,
                        const tmsg_preamble_t *head, const void *body,
                        size_t body_bytes)
{
    control_t *control = malloc(sizeof(*control) + body_bytes);

    if (control == NULL) {
        return false;
    }
    control->kind = kind;
    control->head = *head;
    control->body_bytes = body_bytes;
    memcpy(control->body, body, body_bytes);
    tmsg_list_push(&endpoint->controls.waiting, &control->node);
    tmsg_control_flush(endpoint);
    if (endpoint->controls.waiting.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    return true;
}

void tmsg_control_answer(tmsg_endpoint_t *endpoint, uint8_t kind,
                         const tmsg_preamble_t *head, const void *body,
                         size_t body_bytes)
{
    if (!put_control(endpoint, kind, head, body, body_bytes)) {
        /* The peer would wait for ever for an answer that cannot be given. */
        tmsg_endpoint_break(endpoint, TMSG_ERR_NO_MEMORY,
                            "no memory for an answer");
    }
}

/* Sends an answer at once if UCX may be called, as it mostly may; there is
 * mostly a record at hand. */
static void answer_at_once(tmsg_endpoint_t *endpoint, uint8_t kind,
                           const tmsg_preamble_t *head, const void *body,
                           size_t body_bytes)
{
    if (may_post(endpoint)) {
        post_or_break(endpoint, kind, head, body, body_bytes);
    } else {
        tmsg_control_answer(endpoint, kind, head, body, body_bytes);
    }
}

/* Writes [status i32][text]. Returns the bytes. */
static size_t put_words(uint8_t *body, tmsg_status_t status, const char *words)
{
    size_t text = tmsg_shown_cut(words, TMSG_ACK_TEXT_MAX);

    tmsg_put_le(body, (uint32_t)status, 4);
    memcpy(body + 4, words, text);
    return 4 + text;
}

void tmsg_control_ack(tmsg_endpoint_t *endpoint, uint32_t message_id,
                      tmsg_status_t status, const char *error)
{
    uint8_t body[4 + TMSG_ACK_TEXT_MAX];
    const tmsg_preamble_t head = {.message_id = message_id};

    tmsg_control_answer(endpoint, TMSG_KIND_ACK, &head, body,
                        put_words(body, status, error));
}

/* If there is no memory for the ABORT, the message goes its way. */
void tmsg_control_abort(const tmsg_channel_t *channel, uint32_t message_id,
                        uint32_t sequence, tmsg_status_t status,
                        const char *words)
{
    uint8_t body[4 + TMSG_ACK_TEXT_MAX];
    const tmsg_preamble_t head = {.channel = channel->number,
                                  .message_id = message_id,
                                  .sequence = sequence};

    (void)put_control(channel->endpoint, TMSG_KIND_ABORT, &head, body,
                      put_words(body, status, words));
}

/* If there is no memory for the UNCALL, the call goes its way. */
void tmsg_control_uncall(tmsg_endpoint_t *endpoint, const void *body,
                         size_t body_bytes)
{
    const tmsg_preamble_t head = {.message_id = 0};

    (void)put_control(endpoint, TMSG_KIND_UNCALL, &head, body, body_bytes);
}

void tmsg_control_read(tmsg_endpoint_t *endpoint, uint8_t word, uint64_t token)
{
    uint8_t body[TMSG_READ_ANSWER_BYTES];
    const tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id};

    body[0] = word;
    tmsg_put_le(body + 1, token, 8);
    if (endpoint->controls.waiting.count == 0) {
        answer_at_once(endpoint, TMSG_KIND_READ, &head, body, sizeof(body));
    } else { /* the answer must go after the text of a refusal */
        tmsg_control_answer(endpoint, TMSG_KIND_READ, &head, body,
                            sizeof(body));
    }
}

void tmsg_control_pong(tmsg_endpoint_t *endpoint, uint32_t message_id)
{
    const tmsg_preamble_t head = {.message_id = message_id};

    tmsg_control_answer(endpoint, TMSG_KIND_PONG, &head, "", 0);
}

void tmsg_control_schema(tmsg_channel_t *channel, uint8_t slot,
                         uint8_t generation, bool kept)
{
    const uint8_t body[] = {slot, generation, kept};
    const tmsg_preamble_t head = {.channel = channel->number};

    tmsg_control_answer(channel->endpoint, TMSG_KIND_SCHEMA, &head, body,
                        sizeof(body));
}

void tmsg_control_pull(const tmsg_channel_t *channel, uint32_t message_id,
                       uint8_t how)
{
    const tmsg_preamble_t head = {.channel = channel->number,
                                  .message_id = message_id,
                                  .endpoint_id = channel->endpoint->peer_id};

    answer_at_once(channel->endpoint, TMSG_KIND_PULL, &head, &how, sizeof(how));
}

void tmsg_control_ring(tmsg_endpoint_t *endpoint, uint8_t what)
{
    const tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id};

    answer_at_once(endpoint, TMSG_KIND_RING, &head, &what, sizeof(what));
}

bool tmsg_control_offer(tmsg_endpoint_t *endpoint, uint8_t word,
                        const tmsg_segment_t *segment)
{
    const tmsg_preamble_t head = {.channel = 0};
    uint8_t body[TMSG_RING_OFFER_BYTES] = {word};

    tmsg_put_le(body + 1, (uint32_t)segment->fd, 4);
    memcpy(body + 5, segment->memory, TMSG_SEGMENT_MARK_BYTES);
    return put_control(endpoint, TMSG_KIND_RING, &head, body, sizeof(body));
}

/* Returns the number that the peer is told as consumed. A message that was
 * delivered before its turn gives no credit beyond the turn: otherwise the peer
 * could go ahead for ever of a message that does not come. */
static uint32_t consumed_messages(const tmsg_channel_t *channel)
{
    bool ahead = (int32_t)(channel->rx_sequence - channel->rx_consumed) < 0;

    return ahead ? channel->rx_sequence : channel->rx_consumed;
}

/* Returns whether the peer is to be told of credit. Credit in bytes, which all
 * channels share, goes with that of any channel. */
static bool credit_is_due(const tmsg_channel_t *channel, uint32_t news)
{
    return (news > 0 &&
            news >= tmsg_worker_credit_batch(channel->endpoint->worker)) ||
           (channel->number == 0 && tmsg_credit_is_due(channel->endpoint));
}

void tmsg_control_credit(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    uint32_t credited = consumed_messages(channel);
    uint64_t edge;
    uint8_t body[CREDIT_BYTES];
    size_t body_bytes = 0;
    tmsg_preamble_t head;

    if (!credit_is_due(channel, credited - channel->rx_credited)) {
        return;
    }
    edge = tmsg_credit_edge(endpoint);
    head = (tmsg_preamble_t){.channel = channel->number,
                             .endpoint_id = endpoint->peer_id,
                             .sequence = credited};
    if (!may_post(endpoint)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
        return;
    }
    channel->rx_credited = credited;
    if (endpoint->peer_hello.eager_bytes != TMSG_CREDIT_UNBOUNDED) {
        endpoint->credit.rx_edge = edge;
        tmsg_put_le(body, edge, CREDIT_BYTES);
        body_bytes = CREDIT_BYTES;
    }
    post_or_break(endpoint, TMSG_KIND_CREDIT, &head, body, body_bytes);
}

tmsg_endpoint_t *tmsg_control_receiver(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint =
        tmsg_endpoint_by_id(arrival->ucx->worker, arrival->head.endpoint_id);

    if (endpoint == NULL || endpoint->ucx != arrival->ucx ||
        endpoint->ep == NULL || endpoint->state == TMSG_EP_ENDED ||
        tmsg_admit_is_half(endpoint)) {
        return NULL;
    }
    return endpoint;
}

tmsg_channel_t *tmsg_control_channel(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_channel_t *channel =
        endpoint == NULL ? NULL
                         : tmsg_channel_find(endpoint, arrival->head.channel);

    if (endpoint != NULL && channel == NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an answer on a channel that was never used");
    }
    return channel;
}

tmsg_ucx_status_t tmsg_credit_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_channel_t *channel = tmsg_control_channel(arrival);
    tmsg_endpoint_t *endpoint;
    uint32_t taken = arrival->head.sequence, window;

    if (channel == NULL) {
        return TMSG_UCX_OK;
    }
    endpoint = channel->endpoint;
    if ((int32_t)(channel->tx_sequence - taken) < 0) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "credit for messages that were never sent");
        return TMSG_UCX_OK;
    }
    window = taken + endpoint->peer_hello.queue_depth;
    /* A CREDIT may overtake another: only a larger window counts. */
    if ((int32_t)(window - channel->tx_window) > 0) {
        channel->tx_window = window;
    }
    if (arrival->head.body_bytes >= CREDIT_BYTES) {
        uint64_t edge = tmsg_get_le(arrival->body, CREDIT_BYTES);

        if (edge > endpoint->credit.tx_edge) {
            endpoint->credit.tx_edge = edge;
        }
    }
    tmsg_worker_chore(endpoint->worker, endpoint);
    return TMSG_UCX_OK;
}

bool tmsg_ping_is_known(const tmsg_endpoint_t *endpoint)
{
    return (endpoint->peer_hello.features & TMSG_FEATURE_PING) != 0;
}

tmsg_status_t tmsg_ping_send(tmsg_endpoint_t *endpoint)
{
    const tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id,
                                  .message_id = endpoint->ping_id + 1};
    uint64_t now = tmsg_now_ns();
    tmsg_status_t status =
        tmsg_control_post(endpoint, TMSG_KIND_PING, &head, NULL, 0, NULL, 0);

    if (status == TMSG_OK) {
        endpoint->ping_id++;
        endpoint->ping_ns = now;
    }
    return status;
}
