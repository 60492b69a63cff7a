/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/kinds.h - the kinds of message and who handles each. */
#ifndef TMSG_AM_ENDPOINT_KINDS_H
#define TMSG_AM_ENDPOINT_KINDS_H

#include <stdbool.h>
#include <stddef.h>

#include <ucp/api/ucp.h>

#include "am/shm/box.h"
#include "am/ucx/ucx.h"
#include "serialize/header.h"

typedef enum {
    TMSG_KIND_MAP = TMSG_PREAMBLE_MAP,
    TMSG_KIND_ATTACH = 2,   /* the dialling side's second: body is the token */
    TMSG_KIND_ATTACHED = 3, /* the answer to it */
    TMSG_KIND_ACK = 4,      /* a message was taken, or refused and why */
    TMSG_KIND_CREDIT = 5,   /* how many messages were consumed */
    TMSG_KIND_BYE = 6,      /* no more messages follow; only without socket */
    TMSG_KIND_FIN = 7,      /* all have arrived; only without socket */
    TMSG_KIND_PROBE = 8,    /* to oneself: body is a token; see retire.c */
    TMSG_KIND_KNOCK = 9,    /* the dialling side's first: body is the token */
    TMSG_KIND_KNOCKED = 10, /* the answer to it */
    TMSG_KIND_SCHEMA = 11,  /* whether a schema is kept that was defined */
    TMSG_KIND_PART = 12,    /* a piece of a large tensor of a map's */
    TMSG_KIND_ABORT = 13,   /* a message that was begun is given up */
    TMSG_KIND_PING = 14,    /* to be answered at once, by */
    TMSG_KIND_PONG = 15,    /* the same message id */
    TMSG_KIND_CALL = 16,    /* a map that is a call, or the reply to one */
    TMSG_KIND_UNCALL = 17,  /* the caller of one waits no more */
    TMSG_KIND_STREAM = 18,  /* a map on the channel of a stream */
    TMSG_KIND_STREAM_OVER = 19, /* a side has let go of one */
    TMSG_KIND_PULL = 20,        /* the parts of a message may come, and how */
    TMSG_KIND_RING = 22,        /* where a ring is, or that one was moved */
    TMSG_KIND_READ = 23,        /* a payload was read out of our memory */
    TMSG_KIND_COUNT
} tmsg_kind_t;

/* Whether messages of a kind are maps. */
static inline bool tmsg_kind_is_map(uint8_t kind)
{
    return kind == TMSG_KIND_MAP || kind == TMSG_KIND_CALL ||
           kind == TMSG_KIND_STREAM || kind == TMSG_KIND_STREAM_OVER;
}

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_cma_in tmsg_cma_in_t;

/* One AM as UCX brought it, or a message as it lay in a box. */
typedef struct {
    tmsg_ucx_t *ucx;
    tmsg_preamble_t head;
    const uint8_t *body; /* in the header; gone when the handler returns */
    void *data;          /* payload, or UCX's descriptor of a rendezvous */
    size_t data_bytes;
    bool rendezvous;
    const tmsg_cma_in_t *to_read; /* a rendezvous of ours; NULL: UCX's */
    bool boxed;                   /* it came by a box: data cannot be kept */
    ucp_ep_h reply_ep;            /* NULL: the sender did not ask for it */
} tmsg_arrival_t;

#endif
