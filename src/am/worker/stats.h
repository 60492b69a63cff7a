/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/stats.h - what an endpoint counts, and how its figures spread. */
#ifndef TMSG_AM_WORKER_STATS_H
#define TMSG_AM_WORKER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

/* A histogram has four buckets for each power of two up to 2^41, so that a
 * value is known within a quarter of itself. Larger values count in the last
 * bucket. */
#define TMSG_HISTOGRAM_BUCKETS 164

typedef struct {
    uint64_t count;
    uint64_t sum;
    uint64_t most;
    uint64_t buckets[TMSG_HISTOGRAM_BUCKETS];
} tmsg_histogram_t;

void tmsg_histogram_note(tmsg_histogram_t *histogram, uint64_t value);

/* Takes back a value that was noted. `most` stays as it is. */
void tmsg_histogram_forget(tmsg_histogram_t *histogram, uint64_t value);

/* Returns the smallest value that counts in a bucket. */
uint64_t tmsg_histogram_from(unsigned bucket);

/* Returns the value that a share (0 to 1) of all values does not exceed, as far
 * as the buckets tell. The result is the upper end of that bucket, or `most` if
 * that is smaller. It is 0 if the histogram is empty. */
uint64_t tmsg_histogram_quantile(const tmsg_histogram_t *histogram,
                                 double share);

/* Reading a clock costs as much as a tenth of a small message. One in
 * TMSG_TIMED_ONE_IN messages is timed, and every message of TMSG_TIMED_BYTES or
 * more. */
#define TMSG_TIMED_ONE_IN 16
#define TMSG_TIMED_BYTES (64u * 1024u)

typedef struct {
    uint64_t sent_messages, sent_bytes;
    uint64_t sent_by_schema;   /* sent messages whose layout the peer knew */
    uint64_t sent_by_template; /* sent template messages; template.h */
    uint64_t received_messages, received_bytes;
    uint64_t received_by_template; /* received template messages */
    /* Count the messages that went past UCX by a fast box. */
    uint64_t sent_by_fastbox, received_by_fastbox;
    /* Count the messages whose fragments went by the bulk stream. */
    uint64_t sent_by_bulk, received_by_bulk;
    /* Count the bytes of fragments, also of messages that are under way. */
    uint64_t sent_fragment_bytes, received_fragment_bytes;
    /* Count the loans, and the bytes of their tensors. */
    uint64_t sent_by_loan, received_by_loan;
    uint64_t sent_loan_bytes, received_loan_bytes;
    uint64_t received_in_place; /* received messages that UCX's memory holds */
    uint64_t refused_messages; /* messages of the peer that this side refused */
    uint64_t aborted_messages; /* messages of the peer that the peer gave up */
    uint64_t starved_messages; /* messages of the peer that waited for memory */
    uint64_t lost_messages;    /* messages of the peer that never came */
    uint64_t canceled_messages, timed_out_messages; /* messages of this side */
    /* The next fields count tensors in device memory. direct: UCX moved them
     * itself. copied: UCX moved copies on the same device. ipc: the receiver
     * copied them out of device memory of the sender's. staged: they went
     * through host memory for want of all these. gathered: so did they, because
     * they are small. on_host: they had to be delivered in host memory. */
    uint64_t sent_direct, sent_copied, sent_copied_bytes, sent_ipc;
    uint64_t sent_staged, sent_staged_bytes;
    uint64_t received_direct, received_ipc;
    uint64_t received_staged, received_staged_bytes;
    uint64_t sent_gathered, received_gathered;
    uint64_t received_on_host;
    tmsg_histogram_t sent_sizes; /* bytes of payload */
    tmsg_histogram_t received_sizes;
    tmsg_histogram_t send_ns; /* time from the call until the memory is free */
    /* Measures from the call until the peer's application has the message. */
    tmsg_histogram_t ack_ns;
    tmsg_histogram_t round_trip_ns; /* round trips of tmsg_endpoint_ping() */
} tmsg_stats_t;

void tmsg_stats_add(tmsg_stats_t *sum, const tmsg_stats_t *more);

/* Adds all counters to a JSON object. False: no memory. */
bool tmsg_stats_describe(cJSON *object, const tmsg_stats_t *stats);

#endif
