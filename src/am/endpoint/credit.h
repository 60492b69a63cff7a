/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/credit.h - how many bytes a peer may send before this side has
 * found memory for them. docs/wire/connection.md, "Bytes", has the rules. Lock
 * held, for all functions here. */
#ifndef TMSG_AM_ENDPOINT_CREDIT_H
#define TMSG_AM_ENDPOINT_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/message.h>

#include "am/endpoint/kinds.h"

/* A peer that does not count bytes has this window. */
#define TMSG_CREDIT_UNBOUNDED UINT64_MAX

/* Holds the credit in bytes of an endpoint. tx_charged and rx_charged count
 * from the start of the connection. */
typedef struct {
    uint64_t tx_charged;
    uint64_t tx_edge;     /* upper limit of tx_charged */
    uint64_t tx_deferred; /* messages whose payload waited for credit */
    bool has_window;      /* the window counts in the worker's windows */
    uint64_t rx_window;   /* bytes that the peer may be ahead */
    uint64_t rx_charged;
    uint64_t rx_freed; /* part of rx_charged that UCX no longer has */
    uint64_t rx_edge;  /* upper limit of rx_charged that the peer was told */
} tmsg_credit_t;

/* Returns whether the peer counts what is sent ahead. */
bool tmsg_credit_counts(const tmsg_hello_t *hello);

/* Returns what a payload costs that travels eagerly; 0: it is too small to be
 * counted. */
uint64_t tmsg_credit_cost(uint64_t payload_bytes, bool spilled);

/* Returns whether a payload may travel eagerly now. */
bool tmsg_credit_has_room(const tmsg_endpoint_t *endpoint,
                          uint64_t payload_bytes, bool spilled);

/* tmsg_credit_open() returns this side's share for a peer, for the hello that
 * tells it. tmsg_credit_close() takes the share back when the endpoint has
 * ended. */
uint64_t tmsg_credit_open(tmsg_endpoint_t *endpoint);
void tmsg_credit_close(tmsg_endpoint_t *endpoint);

/* Used when a session has lost its connection and UCX has nothing of it any
 * more. tmsg_credit_reset() clears the credit. tmsg_credit_move() gives the
 * session the connection's credit that another endpoint has begun. */
void tmsg_credit_reset(tmsg_endpoint_t *endpoint);
void tmsg_credit_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from);

/* Takes what the peer's hello allows, when the connection stands. If the peer
 * was not told this side's share yet (the hello of a blob is for many), it will
 * be told. */
void tmsg_credit_opened(tmsg_endpoint_t *endpoint);

/* Counts the bytes of an arrived message. False: the peer was not allowed to
 * send them, and the endpoint is to end. Inside UCX. */
bool tmsg_credit_count(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                       uint64_t *charged_p);

/* Counts charged bytes as free: UCX no longer has them. Sets *charged to 0. */
void tmsg_credit_free(tmsg_endpoint_t *endpoint, uint64_t *charged);

/* These two charge and free the bytes of a template message, which is copied at
 * once. tmsg_credit_allows() returns whether the window has room for `charge`.
 * tmsg_credit_pass() counts the bytes and frees them. */
bool tmsg_credit_allows(const tmsg_endpoint_t *endpoint, uint64_t charge);
void tmsg_credit_pass(tmsg_endpoint_t *endpoint, uint64_t charge);

/* tmsg_credit_is_due() returns whether the peer is to be told of new credit.
 * tmsg_credit_edge() returns the limit that it is told. */
bool tmsg_credit_is_due(const tmsg_endpoint_t *endpoint);
uint64_t tmsg_credit_edge(const tmsg_endpoint_t *endpoint);

/* Returns the bytes that all peers of a worker together may send ahead. */
uint64_t tmsg_credit_given(const tmsg_worker_t *worker);

#endif
