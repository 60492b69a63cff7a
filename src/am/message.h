/* SPDX-License-Identifier: BSD-3-Clause */
/* am/message.h - a message on its way in. */
#ifndef TMSG_AM_MESSAGE_H
#define TMSG_AM_MESSAGE_H

#include <ucp/api/ucp.h>

#include <tensormsg/message.h>

#include "am/op.h"
#include "am/worker.h"
#include "serialize/header.h"

typedef enum {
    TMSG_RX_WAITING = 0,   /* for memory */
    TMSG_RX_FETCHING = 1,  /* UCX writes into it */
    TMSG_RX_WHOLE = 2,     /* may be delivered when its turn comes */
    TMSG_RX_FAILED = 3,    /* its turn is skipped */
    TMSG_RX_DELIVERED = 4, /* queued for, or with, the application */
} tmsg_rx_state_t;

typedef struct tmsg_message_links {
    tmsg_message_t *next;
    tmsg_message_t *previous;
} tmsg_message_links_t;

struct tmsg_message {
    tmsg_due_t due; /* the handler */
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;
    tmsg_store_t *store;
    tmsg_block_t block; /* the tensors */
    tmsg_preamble_t head;
    tmsg_rx_state_t state;
    tmsg_ucx_t *ucx;
    void *data; /* UCX's descriptor, until received */
    bool rendezvous;
    tmsg_op_t op;
    uint8_t *raw;  /* with TMSG_WORKER_CAPTURE: preamble and body */
    uint8_t *body; /* a spilled one, padded, on its way */
    ucp_dt_iov_t iov[2];
    tmsg_message_t *next_in_order;
    tmsg_message_links_t queue;     /* worker's fetch, then ready */
    tmsg_message_links_t own_queue; /* endpoint's ready */
};

/* Lists by `queue`. */
void tmsg_message_push(tmsg_message_list_t *list, tmsg_message_t *message);
void tmsg_message_unlink(tmsg_message_list_t *list, tmsg_message_t *message);

/* Bytes that a spilled body takes at the head of the payload. */
uint64_t tmsg_spill_bytes(const tmsg_preamble_t *head);

/* Lock held: takes all messages that wait for memory as far as they go. Lets
 * the lock go while it calls the application's allocator. */
unsigned tmsg_messages_fetch(tmsg_worker_t *worker);

/* Lock held: pulls a message; of one endpoint, or of any if NULL. */
tmsg_message_t *tmsg_message_pull(tmsg_worker_t *worker,
                                  tmsg_endpoint_t *endpoint);

/* Lock held: an endpoint has ended. What is not whole is dropped, but for what
 * UCX still writes into. */
void tmsg_messages_abandon(tmsg_endpoint_t *endpoint);

/* Lock held: drops what was delivered to nobody yet. */
void tmsg_messages_discard(tmsg_endpoint_t *endpoint);

#endif
