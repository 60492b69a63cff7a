/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane.h - a way of its own for the parts of large messages, which no
 * small message waits behind. What moves them is a mover (mover.h): a second
 * TCP connection, or rings of shared memory. The rules are docs/connection.md,
 * "The lane" and "Rings".
 *
 * Both sides of an endpoint go without a lane where none can be had. */
#ifndef TMSG_AM_PATH_LANE_H
#define TMSG_AM_PATH_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/fragments.h"
#include "am/endpoint/measures.h"
#include "am/net/unacked.h"
#include "am/path/lane_user.h"
#include "am/path/mover.h"
#include "core/list.h"

#define TMSG_LANE_HEADER_BYTES 24 /* before the bytes of each part */
#define TMSG_LANE_AHEAD_MOST ((uint64_t)64 * 1024 * 1024)

/* Bytes that are written or read: of a list, or of one piece. */
typedef struct {
    struct iovec one;
    const struct iovec *at;
    size_t done; /* of *at */
    uint64_t left;
} tmsg_lane_bytes_t;

/* What is being written. */
typedef struct {
    bool busy;
    tmsg_parts_piece_t piece;
    uint8_t header[TMSG_LANE_HEADER_BYTES];
    size_t header_left;
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
} tmsg_lane_in_t;

/* Of an endpoint. The room path alone changes it. */
struct tmsg_lane {
    const tmsg_mover_t *mover; /* moves its bytes, and may wrap the maker */
    const tmsg_mover_t *maker; /* has allocated it */
    tmsg_endpoint_t *endpoint;
    bool stands;      /* it can be told to move parts */
    bool used;        /* bytes went or came by it */
    bool lost;        /* and the endpoint ends, unless nothing was lost */
    tmsg_node_t node; /* worker's lanes, while something is expected */
    bool listed;
    unsigned quiet;       /* turns in a row that moved nothing, */
    unsigned silent;      /* and that read nothing */
    tmsg_others_t others; /* small messages of the endpoint */
    tmsg_unacked_t unacked;
    uint64_t written; /* in all */
    tmsg_lane_out_t out;
    tmsg_lane_in_t in;
};

/* Whether parts may go by it, and be asked for by it. */
bool tmsg_lane_sends(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_receives(const tmsg_endpoint_t *endpoint);

/* Whether a message may be meant for it, which make() then decides. Inside UCX,
 * too. */
bool tmsg_lane_may_send(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_make(tmsg_endpoint_t *endpoint);

/* In words: that of its mover, or why there is none. */
const char *tmsg_lane_words(const tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: what carries an open endpoint is known. */
void tmsg_lane_begin(tmsg_endpoint_t *endpoint);

/* So many bytes may be on their way to a receiver when it asks for the next
 * message by it. */
uint64_t tmsg_lane_ahead(const tmsg_endpoint_t *endpoint);

/* Something is to be written, or will come. Inside UCX, too. */
void tmsg_lane_stir(tmsg_endpoint_t *endpoint);

/* Lock held, in progress: moves some bytes of each that is stirred. Gives the
 * number of those where some were moved. */
unsigned tmsg_lanes_turn(tmsg_worker_t *worker);

/* Before the worker sleeps: it is woken for all that lanes wait for. False:
 * there is something to be done. */
bool tmsg_lanes_arm(tmsg_worker_t *worker);

/* tmsg_unacked_look() at its socket, which is given; < 0: it has none, or does
 * not stand. A lane whose wake-up was lost goes on. */
int tmsg_lane_look(tmsg_endpoint_t *endpoint, const tmsg_unacked_t **unacked_p);

/* The same, but nothing is changed: *unacked is what a look would find. */
int tmsg_lane_peek(const tmsg_endpoint_t *endpoint, tmsg_unacked_t *unacked);

/* Whether nobody else wrote to its memory. */
bool tmsg_lane_is_intact(const tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: gives it up, and mostly the endpoint with it, since
 * the peer does not answer there. */
void tmsg_lane_give_up(tmsg_endpoint_t *endpoint, const char *why);

/* Lock held, outside UCX: with the connection, once its messages were
 * abandoned. */
void tmsg_lane_end(tmsg_endpoint_t *endpoint);

/* The endpoint's next connection tries again what failed in this one. */
void tmsg_lane_forget(tmsg_endpoint_t *endpoint);

/* Whether a connection's socket is, or was to be, another's lane; or came too
 * late for that. */
bool tmsg_lane_is_one(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_was_claimed(const tmsg_endpoint_t *endpoint);

/* A ping was answered: inside UCX. */
void tmsg_lane_ponged(tmsg_endpoint_t *endpoint);

/* For movers. Large payloads go another way than they might, which is no error:
 * there is no `what`. */
void tmsg_lane_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why);

/* A new lane is its endpoint's. */
void tmsg_lane_adopt(tmsg_lane_t *lane, const tmsg_mover_t *mover,
                     tmsg_endpoint_t *endpoint);

/* It has ended (PEER_LOST), or says what cannot be (MALFORMED). */
void tmsg_lane_lose(tmsg_lane_t *lane, tmsg_status_t status, const char *why);

/* lane_io.c: whether there are bytes that could be written now. */
bool tmsg_lane_has_output(const tmsg_lane_t *lane);

/* How many bytes make a turn; moves them, and gives how many there were. */
size_t tmsg_lane_turn_bytes(tmsg_lane_t *lane);
size_t tmsg_lane_write(tmsg_lane_t *lane, size_t most);
size_t tmsg_lane_read(tmsg_lane_t *lane, size_t most);

/* What is under way goes back. */
void tmsg_lane_drop(tmsg_lane_t *lane);

#endif
