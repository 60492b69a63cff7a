/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/forged_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/path/bulk_tcp.h"
#include "core/bytes.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

/* sample_fill(1), made once. */
static const uint8_t *sample(void)
{
    static uint8_t bytes[FORGED_PAYLOAD_MOST];
    static bool made;

    if (!made) {
        sample_fill(1, bytes, sizeof(bytes));
        made = true;
    }
    return bytes;
}

void forged_make(const pair_t *pair, tmsg_preamble_t head, const void *body,
                 size_t body_bytes, forged_t *forged)
{
    forged->way = BY_UCX;
    head.endpoint_id = pair->to_a->peer_id;
    head.body_bytes = (uint32_t)body_bytes;
    must_true(body_bytes <= sizeof(forged->header) - TMSG_PREAMBLE_BYTES);
    must_true(head.payload_bytes <= sizeof(forged->payload));
    tmsg_preamble_encode(&head, forged->header);
    if (body_bytes > 0) {
        memcpy(forged->header + TMSG_PREAMBLE_BYTES, body, body_bytes);
    }
    forged->header_bytes = TMSG_PREAMBLE_BYTES + body_bytes;
    memcpy(forged->payload, sample(), sizeof(forged->payload));
    forged->payload_bytes = (size_t)head.payload_bytes;
}

void forged_make_map(const pair_t *pair, tmsg_map_t *map,
                     const tmsg_body_extra_t *extra, uint64_t payload_bytes,
                     forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = TMSG_KIND_MAP,
                                  .message_id = 77,
                                  .sequence =
                                      pair->to_a->channels.zero.tx_sequence,
                                  .payload_bytes = payload_bytes};
    uint8_t body[FORGED_HEADER_MOST - TMSG_PREAMBLE_BYTES];
    size_t bytes;

    must(tmsg_body_encode(map, extra, body, sizeof(body), &bytes));
    tmsg_map_destroy(map);
    forged_make(pair, head, body, bytes, forged);
}

void forged_make_call(const pair_t *pair, const tmsg_preamble_t *head,
                      const tmsg_call_head_t *call, forged_t *forged)
{
    forged_make(pair, *head, NULL, 0, forged);
    forged->way = BY_EAGER;
    tmsg_call_encode(call, forged->header);
    forged->header_bytes = tmsg_call_preamble_bytes(call);
    forged->header[forged->header_bytes++] = 0x80; /* an empty body */
    forged_set(forged, SAID_BODY, 1);
}

void forged_make_end(const pair_t *pair, uint8_t kind, uint32_t sequence,
                     const void *list, size_t list_bytes, forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = kind, .sequence = sequence};
    bool framed = pair->to_a->link.fd >= 0;
    uint8_t number[4];

    tmsg_put_le(number, sequence, sizeof(number));
    forged_make(pair, head, number, framed ? sizeof(number) : 0, forged);
    forged->way = framed ? BY_FRAME : BY_EAGER;
    forged_set(forged, PAYLOAD_BYTES, (int64_t)list_bytes);
    if (list_bytes > 0) {
        memcpy(forged->payload, list, list_bytes);
    }
}

/* Where the fields are that are bytes of the message. */
static const struct {
    uint8_t at, bytes;
} fields[FORGED_FIELDS] = {
    [SAID_LENGTH] = {3, 1},       [SAID_KIND] = {4, 1},
    [SAID_FLAGS] = {5, 1},        [SAID_CHANNEL] = {6, 2},
    [SAID_ID] = {8, 4},           [SAID_ENDPOINT] = {12, 4},
    [SAID_SEQUENCE] = {16, 4},    [SAID_BODY] = {20, 4},
    [SAID_PAYLOAD] = {24, 8},     [SAID_POLICY] = {32, 1},
    [SAID_CALL_TYPE] = {33, 1},   [SAID_CALL_FLAGS] = {34, 1},
    [SAID_CALL_TEXT] = {35, 1},   [SAID_CALL_STATUS] = {36, 4},
    [SAID_CALL_ID] = {40, 8},     [SAID_CALL_LEFT_US] = {48, 8},
    [SAID_CALL_STREAM] = {52, 2}, [SAID_FRAGMENT] = {TMSG_PREAMBLE_BYTES, 4},
    [SAID_ADDRESS] = {0, 8},
};

void forged_set(forged_t *forged, int field, int64_t value)
{
    bool added = (field & ADD(0)) != 0;
    forged_field_t which = (forged_field_t)(field & ~ADD(0));
    uint8_t *at = which == SAID_ADDRESS ? forged->payload : forged->header;

    switch (which) {
    case SENT_HEADER:
        forged->header_bytes =
            (size_t)value + (added ? forged->header_bytes : 0);
        break;
    case SENT_PAYLOAD:
        forged->payload_bytes =
            (size_t)value + (added ? forged->payload_bytes : 0);
        break;
    case SENT_BY:
        forged->way = (forged_way_t)value;
        break;
    case FLIPPED:
        forged->header[value / 8] ^= (uint8_t)(1u << value % 8);
        break;
    case BODY_BYTES:
        forged_set(forged, added ? ADD(SAID_BODY) : SAID_BODY, value);
        forged->header_bytes =
            TMSG_PREAMBLE_BYTES + (size_t)tmsg_get_le(forged->header + 20, 4);
        break;
    case PAYLOAD_BYTES:
        forged_set(forged, added ? ADD(SAID_PAYLOAD) : SAID_PAYLOAD, value);
        forged_set(forged, added ? ADD(SENT_PAYLOAD) : SENT_PAYLOAD, value);
        break;
    default:
        must_true(fields[which].bytes > 0);
        at += fields[which].at;
        if (added) {
            value += (int64_t)tmsg_get_le(at, fields[which].bytes);
        }
        tmsg_put_le(at, (uint64_t)value, fields[which].bytes);
    }
    must_true(forged->header_bytes <= sizeof(forged->header) &&
              forged->payload_bytes <= sizeof(forged->payload));
}

void forged_edit(forged_t *forged, const forged_edit_t *edits)
{
    for (size_t i = 0; i < FORGED_EDITS && edits[i].field != AS_MADE; i++) {
        forged_set(forged, edits[i].field, edits[i].value);
    }
}

/* A copy for UCX, which may read it until the process ends: a peer that
 * refuses a rendezvous never tells that it is over. */
static const void *keep(const void *data, size_t bytes)
{
    static struct kept {
        struct kept *next;
        uint8_t data[];
    } * all;
    struct kept *kept = malloc(sizeof(*kept) + bytes + 1);

    must_true(kept != NULL);
    kept->next = all;
    all = kept;
    if (bytes > 0) {
        memcpy(kept->data, data, bytes);
    }
    return kept->data;
}

static void forget_send(void *request, tmsg_ucx_status_t status, void *arg)
{
    (void)status;
    (void)arg;
    tmsg_ucx_request_free(request);
}

/* By UCX, or by the stream that carries the pair. */
static void put_to_carrier(const pair_t *pair, const forged_t *forged)
{
    static const uint32_t flags[] = {
        [BY_UCX] = 0,
        [BY_EAGER] = TMSG_UCX_SEND_EAGER,
        [BY_RENDEZVOUS] = TMSG_UCX_SEND_RENDEZVOUS,
    };
    const tmsg_ucx_send_t send = {
        .header = keep(forged->header, forged->header_bytes),
        .header_bytes = forged->header_bytes,
        .data = keep(forged->payload, forged->payload_bytes),
        .bytes = forged->payload_bytes,
        .flags = flags[forged->way] | TMSG_UCX_SEND_REPLY};

    (void)tmsg_ucx_am_send(pair->to_a->ep, &send, forget_send, NULL);
}

/* A length beyond the fast box's place is said, but not written. */
static void put_into_fastbox(const pair_t *pair, const forged_t *forged)
{
    tmsg_fastbox_t *fastbox = pair->to_a->fastboxes.out;
    size_t written = forged->payload_bytes < TMSG_FASTBOX_PAYLOAD_BYTES
                         ? forged->payload_bytes
                         : TMSG_FASTBOX_PAYLOAD_BYTES;

    must_true(tmsg_fastbox_has_room(fastbox));
    memcpy(tmsg_fastbox_begin(fastbox, forged->header_bytes, 0),
           forged->payload, written);
    tmsg_fastbox_write_header(fastbox, forged->header);
    (void)tmsg_fastbox_put(fastbox, forged->payload_bytes,
                           pair->to_a->fastboxes.sent);
}

static void put_in_frame(const pair_t *pair, const forged_t *forged)
{
    size_t body_bytes = forged->header_bytes - TMSG_PREAMBLE_BYTES;
    uint8_t data[FORGED_HEADER_MOST + 64];

    must_true(body_bytes + forged->payload_bytes <= sizeof(data));
    memcpy(data, forged->header + TMSG_PREAMBLE_BYTES, body_bytes);
    memcpy(data + body_bytes, forged->payload, forged->payload_bytes);
    raw_send_frame(pair->to_a->link.fd, forged->header[4], data,
                   body_bytes + forged->payload_bytes);
}

void forged_put(pair_t *pair, const forged_t *forged)
{
    int fd;

    switch (forged->way) {
    case BY_FASTBOX:
        put_into_fastbox(pair, forged);
        break;
    case BY_FRAME:
        put_in_frame(pair, forged);
        break;
    case BY_BULK:
        fd = tmsg_bulk_tcp_of(pair->to_a->paths.bulk)->claim.fd;
        raw_send(fd, forged->header, forged->header_bytes);
        if (forged->payload_bytes > 0) {
            raw_send(fd, forged->payload, forged->payload_bytes);
        }
        break;
    default:
        put_to_carrier(pair, forged);
    }
}

/* The socket is looked at once in many turns. */
enum { SETTLE_TURNS = 200, FRAME_TURNS = 5000 };

void forged_settle(pair_t *pair)
{
    for (int i = 0; i < SETTLE_TURNS; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

void forged_send(pair_t *pair, const forged_t *forged)
{
    forged_put(pair, forged);
    forged_settle(pair);
}

void forged_send_still(pair_t *pair, const forged_t *forged)
{
    int turns = forged->way == BY_FRAME ? FRAME_TURNS : SETTLE_TURNS;

    forged_put(pair, forged);
    for (int i = 0; i < turns; i++) {
        tmsg_worker_progress(pair->a.worker);
    }
}

static void exchange(pair_t *pair, tmsg_endpoint_t *endpoint, size_t bytes)
{
    tmsg_request_t *sent =
        send_map(endpoint, sample_bytes(8, bytes), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    if (endpoint == pair->to_a) {
        must_true(tmsg_message_endpoint(message) == pair->to_b);
    }
    sample_check_bytes(8, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

void expect_goes_on(pair_t *pair) { exchange(pair, pair->to_a, 3000); }

void expect_serves_others(pair_t *pair)
{
    exchange(pair, side_dial(&pair->b, &pair->a), 4000);
}

/* A lie under way, and what a's application hears of it. */
typedef struct {
    const lie_t *lie;
    link_t link;
    pair_t pair;
    unsigned heard;
    tmsg_endpoint_t *endpoint;
    uint32_t sequence;
    tmsg_status_t status;
    char words[TMSG_ERROR_BYTES];
    verdict_t got;
} told_t;

static void hear(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                 uint32_t sequence, tmsg_status_t status, const char *error)
{
    told_t *told = arg;

    (void)channel;
    told->heard++;
    told->endpoint = endpoint;
    told->sequence = sequence;
    told->status = status;
    snprintf(told->words, sizeof(told->words), "%s", error);
}

static void open_told(told_t *told, const telling_t *telling, const lie_t *lie)
{
    side_options_t a = telling->a;

    *told = (told_t){.lie = lie, .link = telling->link, .got = IGNORED};
    a.worker.field_mask |= TMSG_WORKER_PARAM_ON_REFUSED;
    a.worker.on_refused = hear;
    a.worker.on_refused_arg = told;
    pair_open(&told->pair, telling->link, DRIVE_POLLING, &a, &telling->b);
    if (telling->prepare != NULL) {
        telling->prepare(&told->pair);
    }
}

/* Nothing is delivered before the last of them. b answers nothing meanwhile:
 * what comes of an answer could be taken for what comes of the lie. */
static void say(told_t *told, const said_t *said)
{
    forged_t forged;

    for (uint32_t i = 0; i < (said->times == 0 ? 1 : said->times); i++) {
        tmsg_message_t *message;

        must_be(tmsg_worker_recv(told->pair.a.worker, 0, &message),
                TMSG_ERR_TIMED_OUT);
        said->forge(&told->pair, said->number + i, &forged);
        forged_edit(&forged, said->edits);
        forged_send_still(&told->pair, &forged);
    }
}

static void check_delivered(tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_tensor_t tensor;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        must(tmsg_map_at(map, i, NULL, &tensor));
        must_eq(tensor.ndim, 1);
        must_eq(sample_compare(1, tensor.data, (size_t)tensor.shape[0]),
                tensor.shape[0]);
    }
    tmsg_message_destroy(message);
}

static bool has_outcome(void *arg)
{
    told_t *told = arg;
    tmsg_message_t *message;

    if (tmsg_worker_recv(told->pair.a.worker, 0, &message) == TMSG_OK) {
        check_delivered(message);
        told->got = DELIVERED;
    } else if (tmsg_endpoint_status(told->pair.to_b) < 0) {
        told->got = ENDED;
    } else if (told->heard > 0) {
        told->got = REFUSED;
    }
    return told->got != IGNORED;
}

static tmsg_status_t wanted_status(const lie_t *lie)
{
    return lie->status == TMSG_OK ? TMSG_ERR_MALFORMED : lie->status;
}

static void check_words(const lie_t *lie, tmsg_status_t status,
                        const char *words)
{
    if (status != wanted_status(lie) || strlen(words) <= 10 ||
        (lie->words != NULL && strstr(words, lie->words) == NULL)) {
        die("%s: %s, '%s'", lie->what, tmsg_status_name(status), words);
    }
}

static void check_refused(const told_t *told)
{
    check_words(told->lie, told->status, told->words);
    must_eq(told->heard, 1);
    must_eq(told->pair.to_b->stats.refused_messages, 1);
    must_eq(told->pair.to_b->rx.kept_fragments.count, 0);
    must_true(told->endpoint == told->pair.to_b);
    must_eq(told->sequence, told->pair.to_a->channels.zero.tx_sequence);
}

/* The side that is lied to says why, to its application and to the peer. */
static void check_ended(told_t *told)
{
    pair_t *pair = &told->pair;

    check_words(told->lie, tmsg_endpoint_status(pair->to_b),
                tmsg_endpoint_error(pair->to_b));
    if (told->link != LINK_BLOB) {
        must_be(pair_end_of(pair, pair->to_a), wanted_status(told->lie));
        must_say(tmsg_endpoint_error(pair->to_a), "refused by the peer");
    }
}

static void check_outcome(told_t *told)
{
    const lie_t *lie = told->lie;

    if (lie->wanted != IGNORED) {
        pair_await(&told->pair, has_outcome, told, lie->what);
    } else {
        forged_settle(&told->pair);
        (void)has_outcome(told);
    }
    if (told->got != lie->wanted) {
        die("%s: verdict %d, not %d: %s '%s'", lie->what, (int)told->got,
            (int)lie->wanted, told->words,
            tmsg_endpoint_error(told->pair.to_b));
    }
    if (told->got == REFUSED) {
        check_refused(told);
    } else {
        must_eq(told->heard, 0);
    }
    if (told->got == ENDED) {
        check_ended(told);
        return;
    }
    if (told->got != IGNORED) {
        told->pair.to_a->channels.zero.tx_sequence++; /* it took a number */
    }
    expect_goes_on(&told->pair);
    exchange(&told->pair, told->pair.to_a, 100000);
}

void tell_lies(const telling_t *telling, const lie_t *lies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        told_t told;

        open_told(&told, telling, &lies[i]);
        for (size_t j = 0; j < SAID_MOST && lies[i].said[j].forge != NULL;
             j++) {
            say(&told, &lies[i].said[j]);
        }
        check_outcome(&told);
        expect_serves_others(&told.pair);
        pair_drop(&told.pair);
    }
}
