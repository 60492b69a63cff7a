/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said and counted of messages with parts is of all their bytes, and
 * their parts take turns by channel. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint.h"
#include "support/peers.h"
#include "support/sample.h"

#define TENSOR 20000

static void small_parts(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.part_bytes=5000,shm.chunk_bytes=4096,"
           "tcp.part_bytes=5000,tcp.chunk_bytes=4096",
           1);
}

TestSuite(parts_told, .init = small_parts);

/* So many tensors of so many bytes. */
static tmsg_map_t *map_of(size_t tensors, size_t bytes)
{
    const sample_t sample = {.seed = 1,
                             .tensors = tensors,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 4,
                             .elements = bytes};

    return sample_make(&sample);
}

static bool has_arrived(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->ready.count > 0;
}

static bool was_taken_back(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->stats.aborted_messages > 0;
}

/* One that its sender gives up before its application has taken it. */
Test(parts_told, are_not_counted_when_taken_back)
{
    const tmsg_histogram_t *sizes;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, map_of(4, TENSOR), TMSG_SEND_ACKED);
    pair_await(&pair, has_arrived, pair.to_b, "the message");
    sizes = &pair.to_b->stats.received_sizes;
    must_eq(sizes->count, 1);
    must_true(pair.to_b->stats.received_bytes >= 4 * TENSOR);
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    pair_await(&pair, was_taken_back, pair.to_b, "its end");
    must_eq(pair.to_b->stats.received_messages, 0);
    must_eq(pair.to_b->stats.received_bytes, 0);
    must_eq(pair.to_b->channels.zero.received_messages, 0);
    must_eq(sizes->sum, 0);
    for (size_t i = 0; i < TMSG_HISTOGRAM_BUCKETS; i++) {
        must_eq(sizes->buckets[i], 0);
    }
    tmsg_request_destroy(sent);
    pair_close(&pair);
}
