/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/bulk.h - the bulk stream: a way past UCX for the fragments of large
 * messages, so that no small message waits behind them. A mover (mover.h) moves
 * the fragments: by a second TCP connection, or by rings in shared memory.
 * Where one processor is not enough for a TCP connection the bulk stream has
 * several subflows, each a connection. The rules are docs/wire/connection.md,
 * "The bulk stream" and "Rings".
 *
 * Both sides of an endpoint go without a bulk stream where none can be had. */
#ifndef TMSG_AM_PATH_BULK_H
#define TMSG_AM_PATH_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/fragments.h"
#include "am/endpoint/measures.h"
#include "am/net/unacked.h"
#include "am/path/bulk_user.h"
#include "am/path/mover.h"
#include "am/worker/settings.h"
#include "core/list.h"
#include "core/pieces.h"

#define TMSG_BULK_HEADER_BYTES 24 /* before the bytes of each fragment */
#define TMSG_BULK_AHEAD_MOST ((uint64_t)64 * 1024 * 1024)
#define TMSG_BULK_SUBFLOWS_MOST TMSG_BULK_CONNECTIONS_MOST

/* Describes the fragment that is being written. */
typedef struct {
    bool busy;
    tmsg_fragment_t fragment;
    uint8_t header[TMSG_BULK_HEADER_BYTES];
    size_t header_left;
    tmsg_pieces_t bytes;
    /* If a fragment cannot be read, its remaining bytes are written as zeros
     * (`fills`), but not before the peer is known to drop the message. */
    bool fills;
    bool waits;    /* with the zeros, until that is known */
    bool asked;    /* a ping was sent behind the ABORT */
    uint32_t ping; /* number of that ping */
} tmsg_bulk_out_t;

/* Describes the fragment that is being read. */
typedef struct {
    uint8_t header[TMSG_BULK_HEADER_BYTES];
    size_t header_read;
    tmsg_bulk_place_t place;
    tmsg_pieces_t bytes;
} tmsg_bulk_in_t;

/* Describes a subflow of an endpoint's bulk stream, which mostly has only one.
 * Each moves fragments of its own. The room path alone changes it. */
struct tmsg_bulk {
    const tmsg_mover_t *mover; /* moves its bytes, and may wrap the maker */
    const tmsg_mover_t *maker; /* has allocated it */
    tmsg_endpoint_t *endpoint;
    tmsg_bulk_t *next; /* subflow; NULL: none */
    bool stands;       /* it can be told to move fragments */
    bool used;         /* bytes went or came by it */
    bool lost;         /* it ended, and ends the endpoint if bytes were lost */
    tmsg_node_t node;  /* in worker->bulk_streams while something is expected */
    bool listed;
    unsigned quiet;       /* turns in a row that moved nothing */
    unsigned silent;      /* turns in a row that read nothing */
    tmsg_others_t others; /* small messages of the endpoint */
    tmsg_unacked_t unacked;
    uint64_t written, read; /* bytes in all */
    tmsg_bulk_out_t out;
    tmsg_bulk_in_t in;
};

/* Describes the socket of a subflow. */
typedef struct {
    tmsg_bulk_t *bulk;
    int fd;
} tmsg_bulk_path_t;

/* tmsg_bulk_sends() returns whether fragments may go by the bulk stream.
 * tmsg_bulk_receives() returns whether the peer may be asked for fragments by
 * it. */
bool tmsg_bulk_sends(const tmsg_endpoint_t *endpoint);
bool tmsg_bulk_receives(const tmsg_endpoint_t *endpoint);

/* tmsg_bulk_may_send() returns whether a large message may be planned for the
 * bulk stream, which need not stand yet. tmsg_bulk_make() then decides that,
 * and makes the bulk stream if there is none. Both may be called inside UCX. */
bool tmsg_bulk_may_send(const tmsg_endpoint_t *endpoint);
bool tmsg_bulk_make(tmsg_endpoint_t *endpoint);

/* Returns what describe() says of the bulk stream: its mover's words, or why
 * there is none. */
const char *tmsg_bulk_words(const tmsg_endpoint_t *endpoint);

/* Returns how many subflows the bulk stream has that stand; 0 for rings. */
unsigned tmsg_bulk_subflows(const tmsg_endpoint_t *endpoint);

/* Prepares a bulk stream when it is known what carries an open endpoint. Lock
 * held, outside UCX. */
void tmsg_bulk_begin(tmsg_endpoint_t *endpoint);

/* Returns how many bytes may be on their way to a receiver when it asks for the
 * next message by the bulk stream. */
uint64_t tmsg_bulk_ahead(const tmsg_endpoint_t *endpoint);

/* Stirs the bulk stream: gives it turns from now on, because something is to be
 * written or will come. May be called inside UCX. */
void tmsg_bulk_stir(tmsg_endpoint_t *endpoint);

/* Gives each bulk stream of worker->bulk_streams a turn. Returns how many of
 * them moved bytes. Lock held, in progress. */
unsigned tmsg_bulk_turn_all(tmsg_worker_t *worker);

/* Prepares the bulk streams for the worker's sleep, so that it is woken for all
 * that they wait for. Returns false if there is something to be done. Lock
 * held. */
bool tmsg_bulk_arm_all(tmsg_worker_t *worker);

/* Lists the subflows of the bulk stream that stand and have a socket. Returns
 * their number. */
unsigned tmsg_bulk_sockets(const tmsg_endpoint_t *endpoint,
                           tmsg_bulk_path_t paths[TMSG_BULK_SUBFLOWS_MOST]);

/* Stirs a bulk stream whose wake-up was lost. */
void tmsg_bulk_look(const tmsg_endpoint_t *endpoint);

/* Returns whether nobody else wrote to the bulk stream's memory. */
bool tmsg_bulk_is_intact(const tmsg_endpoint_t *endpoint);

/* Gives up a subflow on which the peer does not answer, and mostly the endpoint
 * with it. Lock held, outside UCX. */
void tmsg_bulk_give_up(tmsg_bulk_t *bulk, const char *why);

/* Frees the bulk stream of a connection that ends, once the messages of the
 * connection were abandoned. Lock held, outside UCX. */
void tmsg_bulk_end(tmsg_endpoint_t *endpoint);

/* Forgets what failed in this connection, so that the endpoint's next one tries
 * it again. */
void tmsg_bulk_forget(tmsg_endpoint_t *endpoint);

/* tmsg_bulk_took_socket() returns whether a connection ended because its socket
 * became the bulk stream of another one, or was to. tmsg_bulk_was_claimed() is
 * also true if it came too late for that. */
bool tmsg_bulk_took_socket(const tmsg_endpoint_t *endpoint);
bool tmsg_bulk_was_claimed(const tmsg_endpoint_t *endpoint);

/* Stirs a bulk stream that waits for the answer to a ping, which has come.
 * Called inside UCX. */
void tmsg_bulk_ponged(tmsg_endpoint_t *endpoint);

/* Notes, for describe() and the log, that large payloads go by UCX because
 * there is no `what` ("bulk stream", "ring"). That is no error. Movers call
 * this, too. */
void tmsg_bulk_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why);

/* Makes a new bulk stream its endpoint's, or one more subflow of the one that
 * is there. */
void tmsg_bulk_adopt(tmsg_bulk_t *bulk, const tmsg_mover_t *mover,
                     tmsg_endpoint_t *endpoint);

/* Gives this subflow alone turns from now on. */
void tmsg_bulk_stir_subflow(tmsg_bulk_t *bulk);

/* Frees a further subflow that no fragment went by. */
void tmsg_bulk_free_subflow(tmsg_bulk_t *bulk);

/* Ends a bulk stream that has broken (PEER_LOST), or whose peer wrote what
 * cannot be (MALFORMED). The endpoint ends with it, unless it may go on
 * without. */
void tmsg_bulk_lose(tmsg_bulk_t *bulk, tmsg_status_t status, const char *why);

/* Returns whether there are bytes that could be written now. In bulk_io.c, as
 * all below. */
bool tmsg_bulk_has_output(const tmsg_bulk_t *bulk);

/* tmsg_bulk_turn_bytes() returns how many bytes make a turn. The other two move
 * up to `most` bytes, and return how many they moved. */
size_t tmsg_bulk_turn_bytes(tmsg_bulk_t *bulk);
size_t tmsg_bulk_write(tmsg_bulk_t *bulk, size_t most);
size_t tmsg_bulk_read(tmsg_bulk_t *bulk, size_t most);

/* Do the same for several subflows at once: what begin() has listed in
 * `places`, `room` at most, is moved by the mover's function, and end() is told
 * how that ended, and returns the bytes. begin() returns the number of places;
 * 0: nothing is to be moved. `first`: of a turn. *read_p: bytes of headers, and
 * of what is thrown away, that were read at once. */
size_t tmsg_bulk_begin_write(tmsg_bulk_t *bulk, size_t most, bool first,
                             struct iovec *places, size_t room);
size_t tmsg_bulk_end_write(tmsg_bulk_t *bulk, const struct iovec *places,
                           size_t count, ssize_t moved);
size_t tmsg_bulk_begin_read(tmsg_bulk_t *bulk, size_t most,
                            struct iovec *places, size_t room, size_t *read_p);
size_t tmsg_bulk_end_read(tmsg_bulk_t *bulk, ssize_t moved);

/* Tells the mover what is left to be read of a fragment, `most` of it: that is
 * to wake a thread that sleeps. For a header it is no matter. */
void tmsg_bulk_expect(tmsg_bulk_t *bulk, size_t most);

/* Gives back the fragments that are under way, in both directions. */
void tmsg_bulk_drop(tmsg_bulk_t *bulk);

#endif
