/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A peer that was admitted and then lies about parts: it costs the message or
 * the connection, never the process, and nobody else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "support/peers.h"
#include "support/sample.h"

#define TENSOR 9000 /* 3 parts of CHUNK at most */
#define CHUNK 4096
#define WINDOW 16 /* parts that a side announces */

/* Sends bytes as an AM over b's endpoint, past all that checks them. What the
 * peer keeps does not end. */
static void post(pair_t *pair, const void *header, size_t header_bytes,
                 const void *payload, size_t payload_bytes, unsigned flags)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = flags,
    };
    ucs_status_ptr_t request =
        ucp_am_send_nbx(pair->to_a->ep, TMSG_AM_ID, header, header_bytes,
                        payload, payload_bytes, &param);

    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request); /* it goes on without us */
    }
    for (int i = 0; i < 300; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

/* What UCX may read until the end of the test. */
static uint8_t payload[1 << 16];
static uint8_t headers[64][600];
static unsigned used;
static uint64_t slice; /* of the next heads; 0: they have none */

static tmsg_preamble_t preamble(const pair_t *pair, uint8_t kind)
{
    return (tmsg_preamble_t){
        .kind = kind,
        .message_id = 77,
        .endpoint_id = pair->to_a->peer_id,
        .sequence = pair->to_a->channels.zero.tx_sequence,
    };
}

/* A map of two tensors. */
static tmsg_map_t *make_map(void)
{
    const int64_t small[] = {100}, large[] = {TENSOR};
    const tmsg_tensor_t tensors[] = {
        {payload,
         {TMSG_DEVICE_CPU, 0},
         {TMSG_DTYPE_UINT, 8, 1},
         1,
         small,
         NULL},
        {payload,
         {TMSG_DEVICE_CPU, 0},
         {TMSG_DTYPE_UINT, 8, 1},
         1,
         large,
         NULL},
    };
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "a", &tensors[0], NULL));
    must(tmsg_map_add(map, "b", &tensors[1], NULL));
    return map;
}

/* The head of such a map, of which the second is parts. */
static void post_map(pair_t *pair, const uint8_t *others, uint64_t chunk,
                     tmsg_schema_use_t schema)
{
    const tmsg_body_extra_t extra = {
        .schema = schema,
        .split = {.large = chunk == 0 ? 0 : 5000,
                  .chunk = chunk,
                  .others = others,
                  .others_bytes = others == NULL ? 0 : 1,
                  .slice = slice}};
    tmsg_preamble_t head = preamble(pair, TMSG_KIND_MAP);
    uint8_t *header = headers[used++];
    tmsg_map_t *map = make_map();
    size_t bytes;

    must(tmsg_body_encode(map, &extra, header + TMSG_PREAMBLE_BYTES, 500,
                          &bytes));
    tmsg_map_destroy(map);
    head.body_bytes = (uint32_t)bytes;
    head.payload_bytes = chunk == 0 ? 112 + TENSOR : slice > 0 ? 0 : 100;
    tmsg_preamble_encode(&head, header);
    post(pair, header, TMSG_PREAMBLE_BYTES + bytes, payload, head.payload_bytes,
         UCP_AM_SEND_FLAG_EAGER);
}

static void post_head(pair_t *pair, const uint8_t *others, uint64_t chunk)
{
    post_map(pair, others, chunk, (tmsg_schema_use_t){.count = 0});
}

typedef struct {
    uint32_t number;
    uint64_t bytes; /* said */
    uint64_t sent;
    uint32_t message_id;
    uint32_t ahead; /* of the sequence */
    unsigned flags;
    uint32_t body_bytes;
} part_t;

static part_t right(uint32_t number)
{
    uint64_t bytes = number == 2 ? TENSOR - 2 * CHUNK : CHUNK;

    return (part_t){number, bytes, bytes, 77, 0, UCP_AM_SEND_FLAG_RNDV, 4};
}

static void post_part(pair_t *pair, part_t part)
{
    tmsg_preamble_t head = preamble(pair, TMSG_KIND_PART);
    uint8_t *header = headers[used++];

    head.message_id = part.message_id;
    head.sequence += part.ahead;
    head.body_bytes = part.body_bytes;
    head.payload_bytes = part.bytes;
    tmsg_preamble_encode(&head, header);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES, part.number, 4);
    post(pair, header, TMSG_PREAMBLE_BYTES + part.body_bytes,
         payload + (size_t)part.number % 3 * CHUNK, part.sent, part.flags);
}

static void expect_serves_others(pair_t *pair)
{
    tmsg_endpoint_t *other = side_dial(&pair->b, &pair->a);
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(other, sample_bytes(9, 4000), 0));
    message = pair_take(pair, &pair->a);
    sample_check_bytes(9, 4000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void open_pair(pair_t *pair, link_t link)
{
    slice = 0;
    used = 0;
    sample_fill(1, payload, sizeof(payload));
    pair_open(pair, link, DRIVE_POLLING, NULL, NULL);
}

/* In any order, the head in the middle: that is no lie. */
static void any_order(link_t link)
{
    static const char *const orders[] = {"h012", "0h12", "210h", "2h10",
                                         "01h2"};

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        tmsg_message_t *message;
        tmsg_tensor_t tensor;
        pair_t pair;

        open_pair(&pair, link);
        for (const char *c = orders[i]; *c != '\0'; c++) {
            must_be(tmsg_worker_recv(pair.a.worker, 0, &message),
                    TMSG_ERR_TIMED_OUT);
            if (*c == 'h') {
                post_head(&pair, NULL, CHUNK);
            } else {
                post_part(&pair, right((uint32_t)(*c - '0')));
            }
        }
        message = pair_take(&pair, &pair.a);
        must(tmsg_map_at(tmsg_message_map(message), 1, NULL, &tensor));
        must_eq(sample_compare(1, tensor.data, TENSOR), TENSOR);
        tmsg_message_destroy(message);
        pair.to_a->channels.zero.tx_sequence++;
        expect_serves_others(&pair);
        pair_drop(&pair);
    }
}

Test(parts_lies, any_order_is_none_shm) { any_order(LINK_SHM); }
Test(parts_lies, any_order_is_none_tcp) { any_order(LINK_TCP); }

static void twice(pair_t *pair)
{
    post_head(pair, NULL, CHUNK);
    post_part(pair, right(1));
    post_part(pair, right(1));
}

static void twice_before_the_head(pair_t *pair)
{
    post_part(pair, right(1));
    post_part(pair, right(1));
    post_head(pair, NULL, CHUNK);
}

static void too_short(pair_t *pair)
{
    part_t part = right(0);

    part.bytes = part.sent = 100;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void too_long(pair_t *pair)
{
    part_t part = right(2);

    part.bytes = part.sent = CHUNK;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void too_long_before_the_head(pair_t *pair)
{
    part_t part = right(2);

    part.bytes = part.sent = CHUNK;
    post_part(pair, part);
    post_head(pair, NULL, CHUNK);
}

static void other_length_than_said(pair_t *pair)
{
    part_t part = right(0);

    part.sent = CHUNK - 1;
    post_part(pair, part);
}

static void beyond(pair_t *pair)
{
    part_t part = right(2);

    part.number = 3;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void far_beyond(pair_t *pair)
{
    part_t part = right(0);

    part.number = UINT32_MAX;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void of_a_message_without(pair_t *pair)
{
    part_t part = right(0);

    part.ahead = 1;
    post_part(pair, part);
    post_head(pair, NULL, CHUNK);
    post_part(pair, right(0));
    pair->to_a->channels.zero.tx_sequence++;
    post_head(pair, NULL, 0);
}

static void of_another_message(pair_t *pair)
{
    part_t part = right(0);

    part.message_id = 78;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void beyond_the_window(pair_t *pair)
{
    part_t part = right(0);

    part.ahead = 1000;
    post_part(pair, part);
}

static void too_many(pair_t *pair)
{
    for (uint32_t i = 0; i <= WINDOW; i++) {
        part_t part = right(0);

        part.number = i;
        post_part(pair, part);
    }
}

static void eagerly(pair_t *pair)
{
    part_t part = right(0);

    part.flags = UCP_AM_SEND_FLAG_EAGER;
    post_head(pair, NULL, CHUNK);
    post_part(pair, part);
}

static void without_a_number(pair_t *pair)
{
    part_t part = right(0);

    part.body_bytes = 3;
    post_part(pair, part);
}

/* The one slice, of the small tensor, is part 3. */
static void post_slice(pair_t *pair, uint32_t number, uint64_t bytes)
{
    part_t part = right(0);

    part.number = number;
    part.bytes = part.sent = bytes;
    post_part(pair, part);
}

static void slice_beyond(pair_t *pair)
{
    slice = CHUNK;
    post_head(pair, NULL, CHUNK);
    post_slice(pair, 4, 100);
}

static void slice_too_long(pair_t *pair)
{
    slice = CHUNK;
    post_head(pair, NULL, CHUNK);
    post_slice(pair, 3, 101);
}

static void slice_too_long_before_the_head(pair_t *pair)
{
    slice = CHUNK;
    post_slice(pair, 3, CHUNK);
    post_head(pair, NULL, CHUNK);
}

static void slice_twice(pair_t *pair)
{
    slice = CHUNK;
    post_head(pair, NULL, CHUNK);
    post_slice(pair, 3, 100);
    post_slice(pair, 3, 100);
}

static const struct {
    const char *what;
    void (*tell)(pair_t *pair);
} lies[] = {
    {"a slice beyond the last", slice_beyond},
    {"a slice too long", slice_too_long},
    {"a slice too long before the head", slice_too_long_before_the_head},
    {"a slice twice", slice_twice},
    {"a part twice", twice},
    {"a part twice before the head", twice_before_the_head},
    {"a part too short", too_short},
    {"a part too long", too_long},
    {"a part too long before the head", too_long_before_the_head},
    {"a part of another length than it says", other_length_than_said},
    {"a part beyond the last", beyond},
    {"a part far beyond", far_beyond},
    {"a part of a message without", of_a_message_without},
    {"a part of another message", of_another_message},
    {"a part of a message beyond the window", beyond_the_window},
    {"more parts than the window", too_many},
    {"a part sent eagerly", eagerly},
    {"a part without its number", without_a_number},
};

static void tell_lies(link_t link)
{
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        pair_t pair;

        open_pair(&pair, link);
        lies[i].tell(&pair);
        if (pair_end_of(&pair, pair.to_b) != TMSG_ERR_MALFORMED) {
            die("%s: '%s'", lies[i].what, tmsg_endpoint_error(pair.to_b));
        }
        expect_serves_others(&pair);
        pair_drop(&pair);
    }
}

Test(parts_lies, each_ends_the_connection_shm) { tell_lies(LINK_SHM); }
Test(parts_lies, each_ends_the_connection_tcp) { tell_lies(LINK_TCP); }

/* What is wrong with the head alone costs the message, and its parts are
 * rejected whenever they come. */
static void bad_head(link_t link)
{
    static const uint8_t beyond[] = {0x06}; /* tensor 2 of 2 */
    const part_t ahead = right(0);
    tmsg_message_t *message;
    pair_t pair;

    open_pair(&pair, link);
    post_part(&pair, ahead);
    post_head(&pair, beyond, CHUNK);
    must_eq(pair.to_b->stats.refused_messages, 1);
    post_part(&pair, right(1));
    post_part(&pair, right(2));
    must_eq(pair.to_b->rx.kept_parts.count, 0);
    pair.to_a->channels.zero.tx_sequence++;
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(8, 3000), 0));
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(8, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_drop(&pair);
}

Test(parts_lies, a_bad_head_costs_its_message_shm) { bad_head(LINK_SHM); }
Test(parts_lies, a_bad_head_costs_its_message_tcp) { bad_head(LINK_TCP); }

/* The tensors are known by a schema: what is said of them is checked alike. */
static void bad_reference(link_t link)
{
    static const uint8_t beyond[] = {0x06}; /* tensor 2 of 2 */
    const tmsg_schema_use_t first = {
        .form = TMSG_SCHEMA_REFERS, .slot = 0, .generation = 0};
    tmsg_request_t *sent;
    pair_t pair;

    open_pair(&pair, link);
    sent = send_map(pair.to_a, make_map(), TMSG_SEND_ACKED);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    post_map(&pair, beyond, CHUNK, first);
    must(tmsg_endpoint_status(pair.to_b));
    must_eq(pair.to_b->stats.refused_messages, 1);
    pair_drop(&pair);
}

Test(parts_lies, a_bad_reference_costs_its_message_shm)
{
    bad_reference(LINK_SHM);
}
