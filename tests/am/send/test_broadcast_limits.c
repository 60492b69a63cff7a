/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What broadcast tensors cost that have more elements than there is memory, and
 * which of them are refused. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "am/endpoint/endpoint.h"
#include "am/send/broadcast.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static tmsg_map_t *bytes_of(uint8_t *data, int64_t extent)
{
    const int64_t shape[] = {extent}, strides[] = {0};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

/* The limit message_bytes holds for the bytes of a copy, written out. */
Test(broadcast_limits, the_limit_is_for_all_of_it)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 1 << 20}};
    uint8_t byte = 7;
    tmsg_map_t *fits = bytes_of(&byte, 1 << 20);
    tmsg_map_t *exceeds = bytes_of(&byte, (1 << 20) + 1);
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must_be(tmsg_endpoint_send(pair.to_a, exceeds, NULL, NULL),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(),
             "payload of 1048577 bytes, the receiver allows 1048576 (its limit "
             "message_bytes) with broadcast dimensions written out, of which 1 "
             "travel: send it without them, or raise the limit there");
    must(tmsg_endpoint_send(pair.to_a, fits, NULL, NULL));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    /* a peer that sends it nevertheless is refused, and costs nothing more */
    pair.to_a->peer_hello.max_message_bytes = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        tmsg_map_destroy(exceeds);
        exceeds = bytes_of(&byte, i == 0 ? (1 << 20) + 1 : INT64_C(1) << 59);
        sent = send_map(pair.to_a, exceeds, TMSG_SEND_ACKED);
        exceeds = NULL;
        must_be(pair_wait(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
        must_say(tmsg_request_error(sent),
                 "bytes with its broadcast dimensions written out from offset "
                 "0 exceed the limit message_bytes 1048576: send it without "
                 "them");
        tmsg_request_destroy(sent);
        must(tmsg_endpoint_send(pair.to_a, fits, NULL, NULL));
        message = pair_take(&pair, &pair.a);
        tmsg_message_destroy(message);
    }
    tmsg_map_destroy(fits);
    pair_close(&pair);
}

/* A tensor as large as the default limit allows: nothing visits every element.
 */
Test(broadcast_limits, a_huge_one_costs_its_bytes)
{
    uint8_t byte = 9;
    tmsg_map_t *map = bytes_of(&byte, INT64_C(1) << 40);
    tmsg_message_t *message;
    tmsg_tensor_t tensor;
    char *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(pair_finish(&pair, send_map(pair.to_a, sample_bytes(1, 1), 0)));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
    message = pair_take(&pair, &pair.a);
    must(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
    must_eq(tensor.shape[0], INT64_C(1) << 40);
    must_eq(tensor.strides[0], 0);
    must_eq(*(uint8_t *)tensor.data, 9);
    must(tmsg_map_to_json(tmsg_message_map(message), &json));
    must_say(json, "\"bytes\":1}");
    tmsg_string_free(json);
    tmsg_message_destroy(message);
    must_eq(pair.to_a->stats.sent_bytes, 2);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Without memory to write a tensor out, its send fails. */
Test(broadcast_limits, too_large_to_write_out_is_an_error)
{
    uint8_t byte = 9;
    tmsg_map_t *map;
    pair_t pair;

#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("a sanitizer ends the process for such an allocation");
#endif
    map = bytes_of(&byte, INT64_C(1) << 59);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_BROADCAST;
    pair.to_a->peer_hello.max_message_bytes = UINT64_MAX;
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL), TMSG_ERR_NO_MEMORY);
    must(tmsg_map_clear(map)); /* it is free */
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, 1), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    tmsg_map_destroy(map);
    pair_close(&pair);
}
