/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/credit.h - how many bytes a peer may send ahead of our finding
 * memory for them. The rules are docs/connection.md, "Bytes". */
#ifndef TMSG_AM_ENDPOINT_CREDIT_H
#define TMSG_AM_ENDPOINT_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/message.h>

#include "am/endpoint/kinds.h"

#define TMSG_CREDIT_UNBOUNDED UINT64_MAX /* of a peer that does not count */

/* Of an endpoint: bytes that were charged since it began. */
typedef struct {
    uint64_t tx_charged;
    uint64_t tx_edge;     /* which they may not exceed */
    uint64_t tx_deferred; /* messages whose payload waits for that reason */
    bool has_window;      /* it is counted among its worker's */
    uint64_t rx_window;   /* what we let it be ahead */
    uint64_t rx_charged;
    uint64_t rx_freed; /* of these, what has left UCX's hands */
    uint64_t rx_edge;  /* as the peer was last told */
} tmsg_credit_t;

/* Whether the peer counts what is sent ahead. */
bool tmsg_credit_counts(const tmsg_hello_t *hello);

/* What a payload costs that travels eagerly; 0: too little to be counted. */
uint64_t tmsg_credit_cost(uint64_t payload_bytes, bool spilled);

/* Whether it may travel eagerly now. */
bool tmsg_credit_has_room(const tmsg_endpoint_t *endpoint,
                          uint64_t payload_bytes, bool spilled);

/* Our share for a peer, for the hello that tells it; taken back when it has
 * ended. */
uint64_t tmsg_credit_open(tmsg_endpoint_t *endpoint);
void tmsg_credit_close(tmsg_endpoint_t *endpoint);

/* A session has lost its connection, and UCX holds nothing of that any more;
 * it gets the one that another endpoint has begun. */
void tmsg_credit_reset(tmsg_endpoint_t *endpoint);
void tmsg_credit_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from);

/* The connection stands: what the peer's hello allows. One that was not told
 * our share, for a blob's hello is for many, will be. */
void tmsg_credit_opened(tmsg_endpoint_t *endpoint);

/* Counts what has arrived. False: it was not allowed to, and the endpoint is to
 * end. Inside UCX. */
bool tmsg_credit_count(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                       uint64_t *charged_p);

/* What was charged is out of UCX's hands. */
void tmsg_credit_free(tmsg_endpoint_t *endpoint, uint64_t *charged);

/* Both of a repeat's, of which the window has so much left: it is copied at
 * once. */
bool tmsg_credit_allows(const tmsg_endpoint_t *endpoint, uint64_t charge);
void tmsg_credit_pass(tmsg_endpoint_t *endpoint, uint64_t charge);

/* Whether the peer is to be told, and of what. */
bool tmsg_credit_is_due(const tmsg_endpoint_t *endpoint);
uint64_t tmsg_credit_edge(const tmsg_endpoint_t *endpoint);

/* Bytes that a worker's peers may send ahead, all together. */
uint64_t tmsg_credit_given(const tmsg_worker_t *worker);

#endif
