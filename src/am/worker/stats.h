/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/stats.h - what an endpoint counts, and how its figures spread. */
#ifndef TMSG_AM_WORKER_STATS_H
#define TMSG_AM_WORKER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

/* Four buckets for each power of two up to 2^41, so that a figure is known
 * within a quarter of itself. What is larger counts in the last one. */
#define TMSG_HISTOGRAM_BUCKETS 164

typedef struct {
    uint64_t count;
    uint64_t sum;
    uint64_t most;
    uint64_t buckets[TMSG_HISTOGRAM_BUCKETS];
} tmsg_histogram_t;

void tmsg_histogram_note(tmsg_histogram_t *histogram, uint64_t value);

/* Takes back one that was noted; the largest stays. */
void tmsg_histogram_forget(tmsg_histogram_t *histogram, uint64_t value);

/* The least value that counts in a bucket. */
uint64_t tmsg_histogram_from(unsigned bucket);

/* The value that `share` (0 to 1) of all are not above, as far as the buckets
 * tell: the upper end of its bucket, or the largest. 0 of an empty one. */
uint64_t tmsg_histogram_quantile(const tmsg_histogram_t *histogram,
                                 double share);

/* A clock costs as much as a tenth of a small message: the time of one in so
 * many is taken, and that of all that are large. */
#define TMSG_TIMED_ONE_IN 16
#define TMSG_TIMED_BYTES (64u * 1024u)

typedef struct {
    uint64_t sent_messages, sent_bytes;
    uint64_t sent_by_schema; /* of these, those whose layout the peer knew */
    uint64_t sent_repeats;   /* of these, those that went by repeat.h */
    uint64_t received_messages, received_bytes;
    uint64_t received_repeats; /* of these, those that came by repeat.h */
    uint64_t sent_by_box, received_by_box;   /* past UCX, by a box */
    uint64_t sent_by_lane, received_by_lane; /* whose parts go by the lane */
    uint64_t received_in_place; /* of all, those that UCX's memory holds */
    uint64_t refused_messages;  /* of the peer's, by us */
    uint64_t aborted_messages;  /* of the peer's, by it */
    uint64_t starved_messages;  /* of the peer's, that waited for memory */
    uint64_t lost_messages;     /* of the peer's, that never came */
    uint64_t canceled_messages, timed_out_messages; /* of ours */
    /* Of tensors in device memory: those that UCX moved itself, those that went
     * through host memory, those that had to come to the host. */
    uint64_t sent_direct, sent_staged, sent_staged_bytes;
    uint64_t received_direct, received_staged, received_staged_bytes;
    uint64_t received_on_host;
    tmsg_histogram_t sent_sizes; /* bytes of payload */
    tmsg_histogram_t received_sizes;
    tmsg_histogram_t send_ns;       /* from the call until memory is free */
    tmsg_histogram_t ack_ns;        /* until the peer's application has it */
    tmsg_histogram_t round_trip_ns; /* of tmsg_endpoint_ping() */
} tmsg_stats_t;

void tmsg_stats_add(tmsg_stats_t *sum, const tmsg_stats_t *more);

/* Into a JSON object. */
bool tmsg_stats_describe(cJSON *object, const tmsg_stats_t *stats);

#endif
