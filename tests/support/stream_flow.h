/* SPDX-License-Identifier: BSD-3-Clause */
/* support/stream_flow.h - one side of a stream that sends so many maps, reads
 * all that comes and checks it, driven by its events alone. */
#ifndef TMSG_TESTS_STREAM_FLOW_H
#define TMSG_TESTS_STREAM_FLOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/tensormsg.h>

typedef struct {
    uint64_t out, in; /* seeds: of what it sends, of what it is sent */
    unsigned sends;   /* maps */
    size_t bytes;     /* of the largest; 64 of most */
    bool serves;      /* it ends the stream, with code 7, when both are done */
    bool stalls;      /* it does not read, until flow_read() */
    pthread_mutex_t lock;
    tmsg_call_stream_t *stream;
    unsigned sent, released;
    bool finished;          /* it has said so */
    atomic_uint got;        /* maps */
    atomic_uint full;       /* sends that had to wait */
    atomic_bool peer_ended; /* all of the other side's is read */
    atomic_uint overs;
    atomic_int status; /* of on_over */
} flow_t;

void flow_init(flow_t *flow, uint64_t out, uint64_t in, unsigned sends);

/* Bytes of the map of that number. */
size_t flow_bytes(const flow_t *flow, unsigned number);

/* It is that stream from now on, whose handle it keeps. */
void flow_start(flow_t *flow, tmsg_call_stream_t *stream);

/* Reads from now on, where it stalled. */
void flow_read(flow_t *flow);

/* The same as a handler; the stream's method has the flow as its argument. */
void flow_handler(void *flow, tmsg_call_stream_t *stream);

/* Gives the stream back. */
void flow_drop(flow_t *flow);

/* Has read all and heard of its end; for await(). */
bool flow_is_over(void *flow);

#endif
