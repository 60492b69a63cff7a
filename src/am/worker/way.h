/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/way.h - thresholds of the ways in which messages travel, and how
 * settings change them. */
#ifndef TMSG_AM_WORKER_WAY_H
#define TMSG_AM_WORKER_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

/* Names the transport of an endpoint. */
typedef enum {
    TMSG_TRANSPORT_UNKNOWN = 0, /* unknown yet, or not measured by us */
    TMSG_TRANSPORT_SHM = 1,     /* shared memory; large payloads by CMA */
    TMSG_TRANSPORT_TCP = 2,
    TMSG_TRANSPORT_RDMA = 3, /* InfiniBand, RoCE */
    TMSG_TRANSPORT_COUNT
} tmsg_transport_t;

/* A tensor is not cut into fragments smaller than this: they would not be worth
 * their messages. */
#define TMSG_CHUNK_BYTES_LEAST 4096

/* UCX has at most this many fragments of one endpoint at a time. */
#define TMSG_FRAGMENTS_SENT 4

/* Holds the sizes, in bytes, from which one way is better than another. */
typedef struct {
    /* Up to here gathering the payload costs less than a list. */
    uint64_t gather_bytes;
    /* Tensors with a smaller mean size are gathered, up to
     * gather_most_bytes. */
    uint64_t gather_mean_bytes;
    /* Gathering because of gather_mean_bytes ends at this size. */
    uint64_t gather_most_bytes;
    /* A tensor of this size or more travels in fragments. */
    uint64_t fragment_bytes;
    uint64_t chunk_bytes; /* upper limit for one fragment */
    /* Upper limit for sending contiguous bytes eagerly. */
    uint64_t eager_bytes;
    /* Limits eager sends of a single tensor that the peer reads from where it
     * lies. Overrides eager_bytes when smaller. */
    uint64_t eager_single_bytes;
    /* Contiguous bytes of this size or more go by rendezvous. */
    uint64_t rndv_bytes;
    /* These work as eager_bytes and rndv_bytes, for a scatter list. */
    uint64_t eager_list_bytes;
    uint64_t rndv_list_bytes;
    /* What is left beside the tensors in fragments travels in slices if it is
     * longer than this. */
    uint64_t slice_bytes;
    /* Used instead of chunk_bytes, when larger, if no small message has passed
     * lately. */
    uint64_t lone_chunk_bytes;
    /* Used instead of chunk_bytes for tensors of a device that UCX reads. */
    uint64_t device_chunk_bytes;
    /* Tensors of a device with fewer bytes are gathered: send/gather.h. */
    uint64_t device_gather_bytes;
    /* A message of this size or more goes by the bulk stream. */
    uint64_t bulk_bytes;
    /* Works as bulk_bytes, for a single tensor that the peer reads from where
     * it lies. Overrides bulk_bytes when larger. */
    uint64_t bulk_single_bytes;
    /* With TMSG_SEND_LEND a message of this size or more is lent. That of
     * shared memory counts, whatever carries the messages. */
    uint64_t lend_bytes;
    /* With so many bytes of devices or more, that UCX does not reach, a message
     * goes by memory of the devices that the peer opens. */
    uint64_t device_ipc_bytes;
    uint64_t fastbox_bytes; /* a message up to this size goes by a fast box */
} tmsg_thresholds_t;

/* Holds the thresholds of each transport. */
typedef struct {
    tmsg_thresholds_t of[TMSG_TRANSPORT_COUNT];
} tmsg_tuning_t;

/* Returns the default thresholds, which were measured for each transport. Those
 * of RDMA are estimates of docs/understand/untested-networks.md. */
tmsg_tuning_t tmsg_tuning_usual(void);

/* A threshold that no size reaches has this value, and a setting writes it
 * so. */
#define TMSG_THRESHOLD_NEVER UINT64_MAX
#define TMSG_THRESHOLD_NEVER_WORD "never"

/* Returns a transport's name in settings: "shm", "tcp", "rdma" or "other". */
const char *tmsg_transport_name(tmsg_transport_t transport);

/* Returns the name of threshold number `i`, and writes its value; NULL: there
 * are fewer thresholds. */
const char *tmsg_threshold_at(const tmsg_thresholds_t *thresholds, size_t i,
                              uint64_t *value_p);

/* Changes thresholds as `text` says, for example
 * "tcp.eager_bytes=65536,shm.fragment_bytes=2097152". A transport is "shm",
 * "tcp", "rdma" or "other". On error *tuning_p is untouched. Errors:
 * INVALID_PARAM (the message names what is wrong). */
tmsg_status_t tmsg_tuning_read(const char *text, tmsg_tuning_t *tuning_p);

#endif
