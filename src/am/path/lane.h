/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane.h - a way of its own for the parts of large messages, which no
 * small message waits behind: a second TCP connection to a peer that UCX
 * reaches by TCP, where the kernel reads and writes them where they lie, or
 * rings to one that memory is shared with (lane_ring.h). The rules are
 * docs/connection.md, "The lane" and "Rings".
 *
 * The connection is dialled by the dialling side once the endpoint is open, at
 * the listener that it has dialled before; both go without where that fails. */
#ifndef TMSG_AM_PATH_LANE_H
#define TMSG_AM_PATH_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/boot/frame.h"
#include "am/endpoint/fragments.h"
#include "am/endpoint/measures.h"
#include "am/net/loop.h"
#include "am/net/unacked.h"
#include "am/path/lane_user.h"
#include "core/list.h"

#define TMSG_LANE_HEADER_BYTES 24 /* before the bytes of each part */

/* Bytes that are written or read: of a list, or of one piece. */
typedef struct {
    ucp_dt_iov_t one;
    const ucp_dt_iov_t *at;
    size_t done; /* of *at */
    uint64_t left;
} tmsg_lane_bytes_t;

/* What is being written. */
typedef struct {
    bool busy;
    tmsg_parts_piece_t piece;
    uint8_t header[TMSG_LANE_HEADER_BYTES];
    size_t header_left;
    size_t segment; /* bytes of a segment of the connection; 0: not known */
    tmsg_lane_bytes_t bytes;
    /* The rest of a part that could not be read is zeros, which are not written
     * before the peer is known to drop its message: */
    bool fills;
    bool waits;    /* for that, */
    bool asked;    /* by a ping behind the ABORT, */
    uint32_t ping; /* which is this one */
} tmsg_lane_out_t;

/* What is being read. */
typedef struct {
    uint8_t header[TMSG_LANE_HEADER_BYTES];
    size_t header_read;
    tmsg_lane_place_t place;
    tmsg_lane_bytes_t bytes;
    int low; /* bytes from which on the socket counts as readable; 0: 1 */
} tmsg_lane_in_t;

/* Of an endpoint; lane.c and lane_io.c alone change it. */
typedef struct tmsg_lane {
    tmsg_endpoint_t *endpoint;
    tmsg_source_t source;
    int fd;                     /* < 0: it is one of rings */
    tmsg_frame_stream_t stream; /* until it stands */
    bool connected;
    bool stands;
    bool used;        /* bytes went or came by it */
    bool lost;        /* and the endpoint ends, unless nothing was lost */
    bool writes;      /* the loop tells when it can be written to */
    tmsg_node_t node; /* worker's lanes, while something is expected */
    bool listed;
    unsigned quiet;       /* turns in a row that moved nothing, */
    unsigned silent;      /* and that read nothing */
    tmsg_others_t others; /* small messages of the endpoint */
    tmsg_unacked_t unacked;
    uint64_t written; /* in all */
    uint64_t ahead;   /* 0: not known */
    tmsg_lane_out_t out;
    tmsg_lane_in_t in;
    /* One over shared memory has no socket, but these, each where it is. */
    struct tmsg_ring *ring_out, *ring_in;
} tmsg_lane_t;

/* Whether parts may go by it, and be asked for by it: of a socket's that is the
 * same. */
bool tmsg_lane_sends(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_receives(const tmsg_endpoint_t *endpoint);

/* Whether a message may be meant for it, which make() then decides. Inside UCX,
 * too. */
bool tmsg_lane_may_send(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_make(tmsg_endpoint_t *endpoint);

/* In words: "stands" or "ring", or why there is none. */
const char *tmsg_lane_words(const tmsg_endpoint_t *endpoint);

/* Large payloads go another way than they might, which is no error: there is no
 * lane or ring. */
void tmsg_lane_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why);

/* Lock held, outside UCX: what carries an open endpoint is known. */
void tmsg_lane_begin(tmsg_endpoint_t *endpoint);

/* A connection that was accepted says that it is another's lane, which it then
 * is: it ends as an endpoint. Errors: MALFORMED, REFUSED (nobody here waits for
 * it), NO_MEMORY, IO. */
tmsg_status_t tmsg_lane_claim(tmsg_endpoint_t *connection, const uint8_t *data,
                              size_t bytes);

/* So many bytes may be on their way to a receiver when it asks for the next
 * message by it: what a network has under way while it does, and a little. */
uint64_t tmsg_lane_ahead(const tmsg_endpoint_t *endpoint);

/* Something is to be written, or will come. Inside UCX, too. */
void tmsg_lane_stir(tmsg_endpoint_t *endpoint);

/* Lock held, in progress: moves some bytes of each that is stirred. Gives the
 * number of those where some were moved. */
unsigned tmsg_lanes_turn(tmsg_worker_t *worker);

/* Before the worker sleeps: it is woken for all that lanes wait for. False:
 * there is something to be done. */
bool tmsg_lanes_arm(tmsg_worker_t *worker);

/* tmsg_unacked_look() at its socket; NULL: it has none, or does not stand. Of
 * rings: goes on where a word was lost that should have woken this side. */
const tmsg_unacked_t *tmsg_lane_look(tmsg_endpoint_t *endpoint);

/* Whether nobody else wrote to the memory of its rings, see ring.h. */
bool tmsg_lane_is_intact(const tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: gives it up, and mostly the endpoint with it, since
 * the peer does not answer there. */
void tmsg_lane_give_up(tmsg_endpoint_t *endpoint, const char *why);

/* Lock held, outside UCX: with the connection, once its messages were
 * abandoned. */
void tmsg_lane_end(tmsg_endpoint_t *endpoint);

/* A ping was answered: inside UCX. */
void tmsg_lane_ponged(tmsg_endpoint_t *endpoint);

/* lane_io.c: whether there are bytes that could be written now. */
bool tmsg_lane_has_output(const tmsg_lane_t *lane);

/* How many bytes make a turn; moves them, and gives how many there
 * were. Where the socket has ended the lane is lost. */
size_t tmsg_lane_turn_bytes(tmsg_lane_t *lane);
size_t tmsg_lane_write(tmsg_lane_t *lane, size_t most);
size_t tmsg_lane_read(tmsg_lane_t *lane, size_t most);

/* And what is under way goes back. */
void tmsg_lane_drop(tmsg_lane_t *lane);

/* The socket has ended (PEER_LOST), or says what cannot be (MALFORMED). */
void tmsg_lane_lose(tmsg_lane_t *lane, tmsg_status_t status, const char *why);

#endif
