/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of active messages that UCXX has and that no other test here covers.
 * The table in tests/README.md lists all of UCXX's tests. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

/* Runs body with a polled pair on each link. */
static void on_each_link(void (*body)(pair_t *pair))
{
    for (link_t link = 0; link < LINKS; link++) {
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        body(&pair);
        pair_close(&pair);
    }
}

static bool has_received(void *arg)
{
    static const char key[] = "\"received_messages\":";
    char *json, *from;
    bool found;

    must(tmsg_endpoint_describe(arg, &json));
    from = strstr(json, key);
    must_true(from != NULL);
    found = strtoul(from + strlen(key), NULL, 10) == 1;
    tmsg_string_free(json);
    return found;
}

/* A receive with a timeout of 0 finds nothing before there is a whole message,
 * and finds it once. */
static void looks(pair_t *pair)
{
    tmsg_message_t *message = NULL;

    must_be(tmsg_worker_recv(pair->a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
    must_be(tmsg_endpoint_recv(pair->to_b, 0, &message), TMSG_ERR_TIMED_OUT);
    must_true(message == NULL);
    tmsg_request_destroy(send_map(pair->to_a, sample_bytes(1, 300000), 0));
    pair_await(pair, has_received, pair->to_b, "a message, by the counters");
    must(tmsg_endpoint_recv(pair->to_b, 0, &message));
    sample_check_bytes(1, 300000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_be(tmsg_worker_recv(pair->a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
}

Test(counterparts, a_receiver_may_look_without_waiting) { on_each_link(looks); }

/* A strict send of host memory arrives in host memory, eagerly and by
 * rendezvous. */
static void strict(pair_t *pair)
{
    static const size_t sizes[] = {0, 100, 8000, 300000, 4 << 20};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = TMSG_POLICY_STRICT};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tmsg_map_t *map = sample_bytes(i, sizes[i] + 1);
        tmsg_message_t *message;
        tmsg_request_t *sent;

        must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
        tmsg_map_destroy(map);
        message = pair_take(pair, &pair->a);
        sample_check_bytes(i, sizes[i] + 1, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(pair, sent));
    }
}

Test(counterparts, a_strict_send_of_host_memory_arrives)
{
    on_each_link(strict);
}

/* UCXX has headers of the user's own, of any bytes and length, with or without
 * a payload. Here they are metadata. */
static void user_header(pair_t *pair)
{
    static uint8_t bytes[70000];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i % 3 == 0 ? 0 : i);
    }
    for (size_t length = 0; length <= sizeof(bytes);
         length = length * 7 + (length == 0)) {
        tmsg_map_t *map = length % 2 == 0 ? sample_bytes(2, 5000) : NULL;
        const void *data;
        tmsg_message_t *message;
        size_t got;

        if (map == NULL) {
            must(tmsg_map_create(&map));
        }
        must(tmsg_map_set_bytes(map, "header", bytes, length));
        tmsg_request_destroy(send_map(pair->to_a, map, 0));
        message = pair_take(pair, &pair->a);
        must(tmsg_map_get_bytes(tmsg_message_map(message), "header", &data,
                                &got));
        must_eq(got, length);
        must_true(length == 0 || memcmp(data, bytes, length) == 0);
        tmsg_message_destroy(message);
    }
}

Test(counterparts, a_header_of_any_bytes_arrives) { on_each_link(user_header); }
