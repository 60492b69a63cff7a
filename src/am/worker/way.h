/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/way.h - thresholds of the ways in which messages travel, and how
 * settings change them. */
#ifndef TMSG_AM_WORKER_WAY_H
#define TMSG_AM_WORKER_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

/* What moves the bytes of an endpoint. */
typedef enum {
    TMSG_CARRIER_UNKNOWN = 0, /* not known yet, or not measured by us */
    TMSG_CARRIER_SHM = 1,     /* shared memory, large ones by CMA */
    TMSG_CARRIER_TCP = 2,
    TMSG_CARRIER_RDMA = 3, /* InfiniBand, RoCE */
    TMSG_CARRIER_COUNT
} tmsg_carrier_t;

/* What moves in smaller pieces is not worth their messages. */
#define TMSG_CHUNK_BYTES_LEAST 4096

/* Pieces that an endpoint has with UCX at a time. */
#define TMSG_PARTS_SENT 4

/* Where one way begins to be better than another, in bytes. */
typedef struct {
    uint64_t gather_bytes;      /* up to here copying costs less than a list */
    uint64_t gather_mean_bytes; /* so it does for tensors that are smaller */
    uint64_t gather_most_bytes; /* on average, up to here */
    uint64_t part_bytes;        /* a tensor from here on is a part */
    uint64_t chunk_bytes;       /* and travels in pieces of at most so many */
    uint64_t eager_bytes;       /* one piece up to here goes eagerly */
    uint64_t eager_piece_bytes; /* the same, where it is less, of a tensor that
                                   the peer reads from where it lies */
    uint64_t rndv_bytes;        /* and from here on by rendezvous */
    uint64_t eager_list_bytes;  /* the same of a scatter list */
    uint64_t rndv_list_bytes;
    uint64_t slice_bytes; /* what is longer than this travels in pieces, too */
    uint64_t lone_chunk_bytes; /* instead of chunk_bytes, where it is more and
                                  no small message has passed lately */
    uint64_t lane_bytes;       /* a message from here on goes by the lane */
    uint64_t lane_piece_bytes; /* the same, where it is more, of such one */
    uint64_t box_bytes;        /* one up to here by a box */
} tmsg_thresholds_t;

/* One for each carrier. */
typedef struct {
    tmsg_thresholds_t of[TMSG_CARRIER_COUNT];
} tmsg_tuning_t;

/* What was measured for each; of RDMA, what docs/model.md reckons. */
tmsg_tuning_t tmsg_tuning_usual(void);

/* What a threshold that nothing reaches is, and how that is written. */
#define TMSG_THRESHOLD_NEVER UINT64_MAX
#define TMSG_THRESHOLD_NEVER_WORD "never"

/* The names of settings: "shm", "tcp", "rdma", "other". */
const char *tmsg_carrier_name(tmsg_carrier_t carrier);

/* The i-th threshold, or NULL behind the last. */
const char *tmsg_threshold_at(const tmsg_thresholds_t *thresholds, size_t i,
                              uint64_t *value_p);

/* Changes thresholds as "tcp.eager_bytes=65536,shm.part_bytes=2097152" says; a
 * carrier is "shm", "tcp", "rdma" or "other". On error *tuning_p is untouched.
 * Errors: INVALID_PARAM, which names what is wrong. */
tmsg_status_t tmsg_tuning_read(const char *text, tmsg_tuning_t *tuning_p);

#endif
