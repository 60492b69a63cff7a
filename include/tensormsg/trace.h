/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/trace.h - what happens to each message, and when.
 *
 * A context with on_trace calls the application at each step of each message.
 *
 *     context_params.on_trace = on_trace; // with TMSG_CONTEXT_PARAM_ON_TRACE
 *     tmsg_context_create(&context_params, &context);
 */
#ifndef TENSORMSG_TRACE_H
#define TENSORMSG_TRACE_H

#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tmsg_endpoint;

/* The steps of a message, in their order. A send that waits for nothing is
 * queued, posted and done within its call. A send without TMSG_SEND_ACKED has
 * no ACKED. */
typedef enum {
    TMSG_TRACE_SEND_QUEUED = 1,   /* tmsg_endpoint_send() was called */
    TMSG_TRACE_SEND_POSTED = 2,   /* given to UCX; its sequence is known now */
    TMSG_TRACE_SEND_DONE = 3,     /* UCX needs its memory no more */
    TMSG_TRACE_SEND_ACKED = 4,    /* the peer's application took it, or the peer
                                   * refused it: see status */
    TMSG_TRACE_SEND_FAILED = 5,   /* it failed: see status */
    TMSG_TRACE_RECV_ARRIVED = 17, /* its header is here */
    TMSG_TRACE_RECV_FETCHED = 18, /* its payload is here and was checked */
    TMSG_TRACE_RECV_DELIVERED = 19, /* its turn has come: it waits for the
                                     * application */
    TMSG_TRACE_RECV_TAKEN = 20,     /* the application has it */
    TMSG_TRACE_RECV_REFUSED = 21    /* it was refused: see status */
} tmsg_trace_step_t;

typedef struct tmsg_trace_event {
    uint32_t step;       /* tmsg_trace_step_t; later versions may have more */
    int32_t status;      /* tmsg_status_t; OK except for FAILED, REFUSED, and an
                            ACKED that refuses */
    uint64_t time_ns;    /* of CLOCK_MONOTONIC */
    uint64_t bytes;      /* of the payload; 0 while QUEUED, and without
                          * fragments (docs/understand/paths.md) when ARRIVED */
    uint32_t message_id; /* of its sender's; the same at both ends */
    uint32_t sequence;   /* among those of its channel; 0 while QUEUED */
    uint32_t channel;
    uint32_t connection; /* a number of this side's for the endpoint */
    const struct tmsg_endpoint *endpoint; /* to tell it by, not to be used */
    const char *peer;                     /* as tmsg_endpoint_peer() */
} tmsg_trace_event_t;

/* Receives each step. Called on the thread where the step happens, and by
 * several threads at once if several drive workers of the context. It must not
 * call the library and must not block: every message waits for it. `event` is
 * valid until it returns. */
typedef void (*tmsg_trace_fn)(void *arg, const tmsg_trace_event_t *event);

#ifdef __cplusplus
}
#endif

#endif
