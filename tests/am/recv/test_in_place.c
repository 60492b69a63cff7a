/* SPDX-License-Identifier: BSD-3-Clause */
/* Eager payloads that are used in place, where UCX has put them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/in_place.h"
#include "core/map.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define LARGE 300000

static const link_t links[] = {LINK_TCP, LINK_SHM};

static void send_eagerly(pair_t *pair, tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .protocol = TMSG_PROTOCOL_EAGER};

    must(tmsg_endpoint_send(pair->to_a, map, &params, NULL));
    tmsg_map_destroy(map);
}

static tmsg_message_t *deliver(pair_t *pair, uint64_t seed, size_t bytes)
{
    send_eagerly(pair, sample_bytes(seed, bytes));
    return pair_take(pair, &pair->a);
}

/* Returns how many payloads were used in place so far. */
static uint64_t in_place(const pair_t *pair)
{
    return pair->to_b->stats.received_in_place;
}

static void open_link(pair_t *pair, link_t link, const side_options_t *a)
{
    pair_open(pair, link, DRIVE_POLLING, a, NULL);
}

Test(in_place, long_ones_are_not_copied_and_short_ones_are)
{
    static const size_t sizes[] = {1, 577, 5000, TMSG_IN_PLACE_LEAST};
    pair_t pair;

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        tmsg_message_t *message;
        char *json;

        open_link(&pair, links[i], NULL);
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            message = deliver(&pair, j, sizes[j]);
            sample_check_bytes(j, sizes[j], tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        must_eq(in_place(&pair), 0);
        message = deliver(&pair, 9, TMSG_IN_PLACE_LEAST + 1);
        sample_check_bytes(9, TMSG_IN_PLACE_LEAST + 1,
                           tmsg_message_map(message));
        must_eq(in_place(&pair), 1);
        must(tmsg_endpoint_describe(pair.to_b, &json));
        must_say(json, "\"received_in_place\":\t1");
        free(json);
        tmsg_message_destroy(message);
        pair_close(&pair);
    }
}

Test(in_place, tensors_are_aligned_whatever_lies_before_them)
{
    const sample_t sample = {
        .seed = 4, .tensors = 300, .name_bytes = 200, .elements = 1000};
    pair_t pair;

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        tmsg_message_t *message;
        const tmsg_map_t *map;

        open_link(&pair, links[i], NULL);
        send_eagerly(&pair, sample_make(&sample)); /* with a spilled body */
        message = pair_take(&pair, &pair.a);
        map = tmsg_message_map(message);
        sample_check(&sample, map);
        must_eq(in_place(&pair), 1);
        for (size_t j = 0; j < tmsg_map_size(map); j++) {
            const tmsg_map_entry_t *entry = &tmsg_map_entries(map)[j];

            if (entry->bytes > 0) {
                must_eq((uintptr_t)entry->tensor.data %
                            tmsg_layout_alignment(entry->tensor.dtype),
                        0);
            }
        }
        tmsg_message_destroy(message);
        pair_close(&pair);
    }
}

Test(in_place, it_counts_as_held_until_it_is_released)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = 5 * LARGE / 2}};
    tmsg_message_t *first, *second, *third;
    pair_t pair;

    open_link(&pair, LINK_TCP, &options);
    first = deliver(&pair, 1, LARGE);
    second = deliver(&pair, 2, LARGE);
    send_eagerly(&pair, sample_bytes(3, LARGE));
    for (int i = 0; i < 20000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_be(tmsg_worker_recv(pair.a.worker, 0, &third), TMSG_ERR_TIMED_OUT);
    tmsg_message_destroy(first);
    third = pair_take(&pair, &pair.a);
    sample_check_bytes(2, LARGE, tmsg_message_map(second));
    sample_check_bytes(3, LARGE, tmsg_message_map(third));
    tmsg_message_destroy(second);
    tmsg_message_destroy(third);
    pair_close(&pair);
}

static void *destroy(void *message)
{
    tmsg_message_destroy(message);
    return NULL;
}

Test(in_place, it_keeps_its_ucx_worker_alive)
{
    int descriptors = count_descriptors();

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        tmsg_message_t *messages[3];
        pthread_t thread;
        pair_t pair;

        open_link(&pair, links[i], NULL);
        for (size_t j = 0; j < 3; j++) {
            messages[j] = deliver(&pair, j, LARGE);
        }
        tmsg_message_destroy(messages[0]); /* nobody comes to free it */
        pair_drop(&pair);
        for (size_t j = 1; j < 3; j++) {
            sample_check_bytes(j, LARGE, tmsg_message_map(messages[j]));
        }
        tmsg_message_destroy(messages[1]);
        must_eq(pthread_create(&thread, NULL, destroy, messages[2]), 0);
        must_eq(pthread_join(thread, NULL), 0);
    }
    must_eq(count_descriptors(), descriptors);
}

Test(in_place, it_may_be_sent_on_and_outlives_its_connection)
{
    tmsg_message_t *message, *echo;
    pair_t pair;

    open_link(&pair, LINK_TCP, NULL);
    message = deliver(&pair, 1, LARGE);
    must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(message), NULL, NULL));
    tmsg_message_destroy(message);
    echo = pair_take(&pair, &pair.b);
    sample_check_bytes(1, LARGE, tmsg_message_map(echo));
    tmsg_message_destroy(echo);
    message = deliver(&pair, 2, LARGE);
    tmsg_endpoint_destroy(pair.to_b);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    sample_check_bytes(2, LARGE, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_drop(&pair);
}

static tmsg_status_t alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p)
{
    (void)device;
    (void)token_p;
    ++*(unsigned *)arg;
    *data_p = aligned_alloc(alignment, (bytes + 63) / 64 * 64);
    return TMSG_OK;
}

static void release(void *arg, void *data, uint64_t bytes, void *token)
{
    (void)arg;
    (void)bytes;
    (void)token;
    free(data);
}

Test(in_place, the_applications_memory_is_used_instead)
{
    unsigned allocs = 0;
    const tmsg_allocator_t allocator = {alloc, release, &allocs};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ALLOCATOR,
                   .allocator = &allocator}};
    tmsg_message_t *message;
    pair_t pair;

    open_link(&pair, LINK_TCP, &options);
    message = deliver(&pair, 1, LARGE);
    sample_check_bytes(1, LARGE, tmsg_message_map(message));
    must_eq(in_place(&pair), 0);
    must_eq(allocs, 1);
    tmsg_message_destroy(message);
    pair_close(&pair);
}
