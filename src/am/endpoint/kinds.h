/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/kinds.h - the kinds of message and who handles each. */
#ifndef TMSG_AM_ENDPOINT_KINDS_H
#define TMSG_AM_ENDPOINT_KINDS_H

#include <stdbool.h>
#include <stddef.h>

#include "am/shm/fastbox.h"
#include "am/ucx/ucx.h"
#include "serialize/header.h"

/* Lists the kinds of message, in the order of their numbers on the wire, a line
 * each:
 *
 *   KIND(name, number, handler, where)
 *
 * tmsg_<handler>_arrived(), of whichever room, gets the message. `where` is
 * CONNECTION; or CHANNEL, if the message belongs to a channel; or MAP, if it is
 * a map, which belongs to a channel, too. */
#define TMSG_KINDS(KIND)                                                       \
    KIND(MAP, TMSG_PREAMBLE_MAP, map, MAP)                                     \
    /* Wireup, the second round of joining UCX endpoints, and its reply. */    \
    KIND(WIREUP, 2, wireup, CONNECTION)                                        \
    KIND(WIREUP_REPLY, 3, wireup_reply, CONNECTION)                            \
    /* A message was taken, or was refused and why. */                         \
    KIND(ACK, 4, ack, CONNECTION)                                              \
    /* Tells how many messages were consumed. */                               \
    KIND(CREDIT, 5, credit, CHANNEL)                                           \
    /* Without a socket: say that no more follow, and that all came. */        \
    KIND(BYE, 6, bye, CONNECTION)                                              \
    KIND(FIN, 7, fin, CONNECTION)                                              \
    /* Goes to its own sender: its body is a token; see retire.c. */           \
    KIND(PROBE, 8, probe, CONNECTION)                                          \
    /* The first round of joining UCX endpoints, and its reply; wireup.c. */   \
    KIND(CONNECT_REQUEST, 9, connect_request, CONNECTION)                      \
    KIND(CONNECT_REPLY, 10, connect_reply, CONNECTION)                         \
    /* Says whether a schema that was defined is kept. */                      \
    KIND(SCHEMA, 11, schema, CHANNEL)                                          \
    /* Carries a fragment of a map: bytes of a large tensor, or a slice. */    \
    KIND(FRAGMENT, 12, fragment, CHANNEL)                                      \
    /* A message that was begun is given up. */                                \
    KIND(ABORT, 13, abort, CHANNEL)                                            \
    /* A pong answers a ping at once, with the same message id. */             \
    KIND(PING, 14, ping, CONNECTION)                                           \
    KIND(PONG, 15, pong, CONNECTION)                                           \
    /* Carries a map that is a call, or the reply to a call. */                \
    KIND(CALL, 16, map, MAP)                                                   \
    /* The caller no longer waits for a reply. */                              \
    KIND(UNCALL, 17, uncall, CONNECTION)                                       \
    /* Carry a map on a stream's channel; or a side has let go of it. */       \
    KIND(STREAM, 18, map, MAP)                                                 \
    KIND(STREAM_OVER, 19, map, MAP)                                            \
    /* Says that the fragments of a message may come, and how. */              \
    KIND(PULL, 20, pull, CHANNEL)                                              \
    /* Offers a ring or fast box, answers that, or says that it moved. */      \
    KIND(RING, 22, ring, CONNECTION)                                           \
    /* A payload was read out of our memory. */                                \
    KIND(READ, 23, read, CONNECTION)                                           \
    /* Loans are given back; by a fast box alone. */                           \
    KIND(LOAN_BACK, 24, loan_back, CONNECTION)                                 \
    /* A new one comes here, with the next number. */

#define TMSG_KIND_NUMBER(name, number, handler, where)                         \
    TMSG_KIND_##name = (number),

typedef enum { TMSG_KINDS(TMSG_KIND_NUMBER) TMSG_KIND_COUNT } tmsg_kind_t;

/* These bits tell where a message belongs: 1 for a channel, 2 for a map. */
#define TMSG_KIND_IS_CONNECTION 0
#define TMSG_KIND_IS_CHANNEL 1
#define TMSG_KIND_IS_MAP 3

#define TMSG_KIND_ON_CHANNEL(name, number, handler, where)                     \
    | ((TMSG_KIND_IS_##where & 1u) << (number))
#define TMSG_KIND_OF_MAP(name, number, handler, where)                         \
    | ((TMSG_KIND_IS_##where & 2u) >> 1 << (number))

_Static_assert(TMSG_KIND_COUNT <= 32, "a kind is a bit of a word");

/* Returns whether messages of a kind belong to a channel, whose handlers look
 * for it. */
static inline bool tmsg_kind_is_on_channel(uint8_t kind)
{
    return kind < TMSG_KIND_COUNT &&
           ((0u TMSG_KINDS(TMSG_KIND_ON_CHANNEL)) >> kind & 1u) != 0;
}

/* Returns whether messages of a kind are maps. */
static inline bool tmsg_kind_is_map(uint8_t kind)
{
    return kind < TMSG_KIND_COUNT &&
           ((0u TMSG_KINDS(TMSG_KIND_OF_MAP)) >> kind & 1u) != 0;
}

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_cma_in tmsg_cma_in_t;

typedef struct tmsg_arrival tmsg_arrival_t;

/* Declares the handlers. Each runs inside UCX, or in the turn of a fast box,
 * which is the same to it, with the worker's lock held. It takes notes and
 * leaves the rest to chores. IN_PROGRESS keeps arrival->data. */
#define TMSG_KIND_HANDLER(name, number, handler, where)                        \
    tmsg_ucx_status_t tmsg_##handler##_arrived(const tmsg_arrival_t *arrival);

TMSG_KINDS(TMSG_KIND_HANDLER)

/* Describes an active message as UCX brought it, or a message as it lay in a
 * fast box. */
struct tmsg_arrival {
    tmsg_ucx_t *ucx;
    tmsg_preamble_t head;
    const uint8_t *body; /* part of the header; gone when the handler returns */
    void *data;          /* payload, or UCX's descriptor of a rendezvous */
    size_t data_bytes;
    bool rendezvous;
    /* Points to the memory to read, in a rendezvous of this library; NULL: it
     * is UCX's. */
    const tmsg_cma_in_t *to_read;
    bool by_fastbox;        /* the message came by a fast box */
    bool fleeting;          /* data cannot be kept */
    tmsg_ucx_ep_t reply_ep; /* NULL: the sender did not ask for it */
};

#endif
