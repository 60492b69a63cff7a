/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* An admitted peer that lies about fragments loses the message or the
 * connection. The process and other connections go on. */
#include <criterion/criterion.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum {
    SMALL = 100,
    TENSOR = 9000, /* 3 fragments of CHUNK at most */
    CHUNK = 4096,
    LAST = TENSOR - 2 * CHUNK, /* bytes of fragment 2 */
    SLICE = 3,  /* the fragment that is the small tensor, if sliced */
    WINDOW = 16 /* fragments that a side announces */
};

static tmsg_map_t *make_map(void)
{
    static uint8_t data[TENSOR];
    static const int64_t shapes[] = {SMALL, TENSOR};
    tmsg_map_t *map;

    sample_fill(1, data, sizeof(data));
    must(tmsg_map_create(&map));
    for (int i = 0; i < 2; i++) {
        const tmsg_tensor_t tensor = {
            data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1},
            1,    &shapes[i],           NULL};

        must(tmsg_map_add(map, i == 0 ? "a" : "b", &tensor, NULL));
    }
    return map;
}

/* Forges the head of such a map, whose second tensor travels in fragments. */
static void a_head(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_body_extra_t extra = {.split = {.large = 5000, .chunk = CHUNK}};

    (void)number;
    forged_make_map(pair, make_map(), &extra, SMALL, forged);
    forged->way = BY_EAGER;
}

/* Forges a head whose first tensor travels in a slice, too. */
static void a_sliced_head(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_body_extra_t extra = {
        .split = {.large = 5000, .chunk = CHUNK, .slice = CHUNK}};

    (void)number;
    forged_make_map(pair, make_map(), &extra, 0, forged);
    forged->way = BY_EAGER;
}

static void a_head_without_fragments(const pair_t *pair, uint32_t number,
                                     forged_t *forged)
{
    (void)number;
    forged_make_map(pair, make_map(), NULL, 128 + TENSOR, forged);
    forged_set(forged, SAID_FLAGS, TMSG_HEADER_CHARGED);
    forged->way = BY_EAGER;
}

static const uint8_t tensor_2_of_2[] = {0x06};

static void a_bad_head(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_body_extra_t extra = {.split = {.large = 5000,
                                               .chunk = CHUNK,
                                               .others = tensor_2_of_2,
                                               .others_bytes = 1}};

    (void)number;
    forged_make_map(pair, make_map(), &extra, SMALL, forged);
    forged->way = BY_EAGER;
}

static void a_bad_reference(const pair_t *pair, uint32_t number,
                            forged_t *forged)
{
    const tmsg_body_extra_t extra = {.schema = {.form = TMSG_SCHEMA_REFERS},
                                     .split = {.large = 5000,
                                               .chunk = CHUNK,
                                               .others = tensor_2_of_2,
                                               .others_bytes = 1}};

    (void)number;
    forged_make_map(pair, make_map(), &extra, SMALL, forged);
    forged->way = BY_EAGER;
}

static void a_fragment(const pair_t *pair, uint32_t number, forged_t *forged)
{
    tmsg_preamble_t head = {.kind = TMSG_KIND_FRAGMENT,
                            .message_id = 77,
                            .sequence = pair->to_a->channels.zero.tx_sequence,
                            .payload_bytes = number == 2       ? LAST
                                             : number == SLICE ? SMALL
                                                               : CHUNK};
    static const uint8_t body[4];

    forged_make(pair, head, body, sizeof(body), forged);
    forged_set(forged, SAID_FRAGMENT, number);
    forged->way = BY_RENDEZVOUS;
    memmove(forged->payload, forged->payload + number % 3 * CHUNK,
            forged->payload_bytes);
}

/* Fragments may come in any order, and the head among them. */
static const lie_t orders[] = {
    LIE("the head first", DELIVERED, SAY(a_head), SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 2)),
    LIE("the head after fragment 0", DELIVERED, SAY_NTH(a_fragment, 0),
        SAY(a_head), SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 2)),
    LIE("the head last, fragments backwards", DELIVERED, SAY_NTH(a_fragment, 2),
        SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 0), SAY(a_head)),
    LIE("the head after fragment 2", DELIVERED, SAY_NTH(a_fragment, 2),
        SAY(a_head), SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 0)),
    LIE("the head before fragment 2", DELIVERED, SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1), SAY(a_head), SAY_NTH(a_fragment, 2)),
};

static const lie_t lies[] = {
    LIE("a slice beyond the last", ENDS("does not have"), SAY(a_sliced_head),
        SAY_NTH(a_fragment, SLICE + 1, {PAYLOAD_BYTES, SMALL})),
    LIE("a slice too long", ENDS("of another length"), SAY(a_sliced_head),
        SAY_NTH(a_fragment, SLICE, {PAYLOAD_BYTES, SMALL + 1})),
    LIE("a slice too long before the head", ENDS("of another length"),
        SAY_NTH(a_fragment, SLICE, {PAYLOAD_BYTES, CHUNK}), SAY(a_sliced_head)),
    LIE("a slice twice", ENDS("came twice"), SAY(a_sliced_head),
        SAY_NTH(a_fragment, SLICE), SAY_NTH(a_fragment, SLICE)),
    LIE("a fragment twice", ENDS("came twice"), SAY(a_head),
        SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 1)),
    LIE("a fragment twice before the head", ENDS("came twice"),
        SAY_NTH(a_fragment, 1), SAY_NTH(a_fragment, 1), SAY(a_head)),
    LIE("a fragment too short", ENDS("of another length"), SAY(a_head),
        SAY(a_fragment, {PAYLOAD_BYTES, 100})),
    LIE("a fragment too long", ENDS("of another length"), SAY(a_head),
        SAY_NTH(a_fragment, 2, {PAYLOAD_BYTES, CHUNK})),
    LIE("a fragment too long before the head", ENDS("of another length"),
        SAY_NTH(a_fragment, 2, {PAYLOAD_BYTES, CHUNK}), SAY(a_head)),
    LIE("a fragment of another length than it says",
        ENDS("a malformed fragment"),
        SAY(a_fragment, {SENT_PAYLOAD, CHUNK - 1})),
    LIE("a fragment beyond the last", ENDS("does not have"), SAY(a_head),
        SAY_NTH(a_fragment, 3, {PAYLOAD_BYTES, LAST})),
    LIE("a fragment far beyond", ENDS("does not have"), SAY(a_head),
        SAY_NTH(a_fragment, UINT32_MAX)),
    LIE("a head without fragments that is not counted", ENDS("not counted"),
        SAY_NTH(a_fragment, 0, {ADD(SAID_SEQUENCE), 1}), SAY(a_head),
        SAY_NTH(a_fragment, 0),
        SAY(a_head_without_fragments, {ADD(SAID_SEQUENCE), 1},
            {SAID_FLAGS, 0})),
    LIE("a fragment of another message", ENDS("of another message"),
        SAY(a_head), SAY(a_fragment, {SAID_ID, 78})),
    LIE("a fragment of a message beyond the window", ENDS("beyond the window"),
        SAY(a_fragment, {ADD(SAID_SEQUENCE), 1000})),
    LIE("more fragments than the window",
        ENDS("more fragments than were asked for"),
        SAY_EACH(a_fragment, 0, WINDOW + 1, {PAYLOAD_BYTES, CHUNK})),
    LIE("a fragment sent eagerly", ENDS("a malformed fragment"), SAY(a_head),
        SAY(a_fragment, {SENT_BY, BY_EAGER})),
    LIE("a fragment without its number", ENDS("a malformed fragment"),
        SAY(a_fragment, {BODY_BYTES, 3})),
};

/* A wrong head costs the message alone, and its fragments are rejected whenever
 * they come. */
static const lie_t bad_heads[] = {
    LIE("a fragment, the bad head, the others", REFUSED, SAY_NTH(a_fragment, 0),
        SAY(a_bad_head), SAY_EACH(a_fragment, 1, 2)),
};

static void tell(link_t link, const lie_t *rows, size_t count)
{
    tell_lies(&(telling_t){.link = link}, rows, count);
}

Test(fragments_lies, any_order_is_none_shm)
{
    tell(LINK_SHM, orders, COUNT(orders));
}

Test(fragments_lies, any_order_is_none_tcp)
{
    tell(LINK_TCP, orders, COUNT(orders));
}

Test(fragments_lies, each_ends_the_connection_shm)
{
    tell(LINK_SHM, lies, COUNT(lies));
}

Test(fragments_lies, each_ends_the_connection_tcp)
{
    tell(LINK_TCP, lies, COUNT(lies));
}

Test(fragments_lies, a_bad_head_costs_its_message_shm)
{
    tell(LINK_SHM, bad_heads, COUNT(bad_heads));
}

Test(fragments_lies, a_bad_head_costs_its_message_tcp)
{
    tell(LINK_TCP, bad_heads, COUNT(bad_heads));
}

static void define_schema(pair_t *pair)
{
    tmsg_request_t *sent = send_map(pair->to_a, make_map(), TMSG_SEND_ACKED);

    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
}

/* The body refers to a schema, and its fragments are checked in the same way.
 */
Test(fragments_lies, a_bad_reference_costs_its_message_shm)
{
    const telling_t telling = {.link = LINK_SHM, .prepare = define_schema};
    const lie_t lie = LIE("a bad reference", REFUSED, SAY(a_bad_reference));

    tell_lies(&telling, &lie, 1);
}

static void send_small(pair_t *pair)
{
    static uint8_t data[SMALL];
    static const int64_t shape[] = {SMALL};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "a", &tensor, NULL));
    must(tmsg_endpoint_send(pair->to_a, map, NULL, NULL));
    tmsg_map_destroy(map);
}

/* A small message that is like the one before it is taken without a look at its
 * header's body. A fragment that came for it ends the connection all the same,
 * and is not kept for ever. */
Test(fragments_lies, a_fragment_of_a_template_message_ends_the_connection)
{
    static forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; pair.to_b->stats.received_by_template < 2; i++) {
        must_true(i < 1000);
        send_small(&pair);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    a_fragment(&pair, 0, &forged);
    forged_send(&pair, &forged);
    must_eq(pair.to_b->rx.kept_fragments.count, 1);
    send_small(&pair);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "message");
    pair_drop(&pair);
}
