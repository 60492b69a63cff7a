/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane.h - a way of its own for the parts of large messages, so that no
 * small message waits behind them. A mover (mover.h) moves the parts: a second
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

/* Describes bytes that are written or read: a list, or one piece. */
typedef struct {
    struct iovec one;
    const struct iovec *at;
    size_t done; /* bytes of *at */
    uint64_t left;
} tmsg_lane_bytes_t;

/* Describes what is being written. */
typedef struct {
    bool busy;
    tmsg_parts_piece_t piece;
    uint8_t header[TMSG_LANE_HEADER_BYTES];
    size_t header_left;
    tmsg_lane_bytes_t bytes;
    /* If a part cannot be read, its remaining bytes are written as zeros
     * (`fills`), but not before the peer is known to drop the message. */
    bool fills;
    bool waits;    /* with the zeros, until that is known */
    bool asked;    /* a ping was sent behind the ABORT */
    uint32_t ping; /* number of that ping */
} tmsg_lane_out_t;

/* Describes what is being read. */
typedef struct {
    uint8_t header[TMSG_LANE_HEADER_BYTES];
    size_t header_read;
    tmsg_lane_place_t place;
    tmsg_lane_bytes_t bytes;
} tmsg_lane_in_t;

/* Describes the lane of an endpoint. The room path alone changes it. */
struct tmsg_lane {
    const tmsg_mover_t *mover; /* moves its bytes, and may wrap the maker */
    const tmsg_mover_t *maker; /* has allocated it */
    tmsg_endpoint_t *endpoint;
    bool stands;      /* it can be told to move parts */
    bool used;        /* bytes went or came by it */
    bool lost;        /* it ended, and ends the endpoint if bytes were lost */
    tmsg_node_t node; /* in worker's lanes while something is expected */
    bool listed;
    unsigned quiet;       /* turns in a row that moved nothing */
    unsigned silent;      /* turns in a row that read nothing */
    tmsg_others_t others; /* small messages of the endpoint */
    tmsg_unacked_t unacked;
    uint64_t written; /* bytes in all */
    tmsg_lane_out_t out;
    tmsg_lane_in_t in;
};

/* tmsg_lane_sends() returns whether parts may go by the lane.
 * tmsg_lane_receives() returns whether the peer may be asked for parts by
 * it. */
bool tmsg_lane_sends(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_receives(const tmsg_endpoint_t *endpoint);

/* tmsg_lane_may_send() returns whether a message may be meant for the lane.
 * tmsg_lane_make() then decides that, and makes the lane if there is none. Both
 * may be called inside UCX. */
bool tmsg_lane_may_send(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_make(tmsg_endpoint_t *endpoint);

/* Returns the words of the lane's mover, or why there is no lane. */
const char *tmsg_lane_words(const tmsg_endpoint_t *endpoint);

/* Prepares a lane when it is known what carries an open endpoint. Lock held,
 * outside UCX. */
void tmsg_lane_begin(tmsg_endpoint_t *endpoint);

/* Returns how many bytes may be on their way to a receiver when it asks for the
 * next message by the lane. */
uint64_t tmsg_lane_ahead(const tmsg_endpoint_t *endpoint);

/* Gives the lane turns, because something is to be written or will come. May be
 * called inside UCX. */
void tmsg_lane_stir(tmsg_endpoint_t *endpoint);

/* Moves some bytes of each lane that is stirred. Returns the number of lanes
 * where some were moved. Lock held, in progress. */
unsigned tmsg_lanes_turn(tmsg_worker_t *worker);

/* Prepares the lanes for the worker's sleep, so that it is woken for all that
 * they wait for. Returns false if there is something to be done. */
bool tmsg_lanes_arm(tmsg_worker_t *worker);

/* Looks at the lane's socket by tmsg_unacked_look(). Returns the socket, or a
 * negative number if the lane has none or does not stand. A lane whose wake-up
 * was lost goes on. */
int tmsg_lane_look(tmsg_endpoint_t *endpoint, const tmsg_unacked_t **unacked_p);

/* Returns the lane's socket, or a negative number, and changes nothing:
 * *unacked is what tmsg_lane_look() would find. */
int tmsg_lane_peek(const tmsg_endpoint_t *endpoint, tmsg_unacked_t *unacked);

/* Returns whether nobody else wrote to the lane's memory. */
bool tmsg_lane_is_intact(const tmsg_endpoint_t *endpoint);

/* Gives up a lane on which the peer does not answer, and mostly the endpoint
 * with it. Lock held, outside UCX. */
void tmsg_lane_give_up(tmsg_endpoint_t *endpoint, const char *why);

/* Frees the lane of a connection that ends, once the messages of the connection
 * were abandoned. Lock held, outside UCX. */
void tmsg_lane_end(tmsg_endpoint_t *endpoint);

/* Forgets what failed in this connection, so that the endpoint's next one tries
 * it again. */
void tmsg_lane_forget(tmsg_endpoint_t *endpoint);

/* tmsg_lane_is_one() returns whether a connection's socket is another's lane,
 * or was to be. tmsg_lane_was_claimed() is also true if it came too late for
 * that. */
bool tmsg_lane_is_one(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_was_claimed(const tmsg_endpoint_t *endpoint);

/* Stirs a lane that waits for the answer to a ping, which has come. Called
 * inside UCX. */
void tmsg_lane_ponged(tmsg_endpoint_t *endpoint);

/* Movers call this when large payloads go another way than they might, which is
 * no error: there is no `what`. The log says why. */
void tmsg_lane_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why);

/* Makes a new lane its endpoint's. */
void tmsg_lane_adopt(tmsg_lane_t *lane, const tmsg_mover_t *mover,
                     tmsg_endpoint_t *endpoint);

/* Ends a lane that has broken (PEER_LOST), or whose peer says what cannot be
 * (MALFORMED). */
void tmsg_lane_lose(tmsg_lane_t *lane, tmsg_status_t status, const char *why);

/* Returns whether there are bytes that could be written now. In lane_io.c, as
 * all below. */
bool tmsg_lane_has_output(const tmsg_lane_t *lane);

/* tmsg_lane_turn_bytes() returns how many bytes make a turn. The other two move
 * up to `most` bytes, and return how many they moved. */
size_t tmsg_lane_turn_bytes(tmsg_lane_t *lane);
size_t tmsg_lane_write(tmsg_lane_t *lane, size_t most);
size_t tmsg_lane_read(tmsg_lane_t *lane, size_t most);

/* Gives back the parts that are under way, in both directions. */
void tmsg_lane_drop(tmsg_lane_t *lane);

#endif
