/* SPDX-License-Identifier: BSD-3-Clause */
/* am/pipe/pipe.h - a pipe: one connection of this library's own that
 * carries whole messages, as UCX's active messages do. It knows no endpoint.
 *
 * A message has a header and a payload. A small payload goes with its header. A
 * large one is offered: it stays in the sender's memory until the receiver asks
 * for it, and then comes in pieces, between which small messages pass.
 *
 * The bytes, each frame behind a header of 16, little-endian:
 *
 *      0     1     2     3     4     5     6     7
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 0 | type|  0  |  header   |          id           |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 8 |                     bytes                     |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 *
 *   EAGER  message header, payload of `bytes`; id 0
 *   OFFER  message header; the payload of `bytes` is the offer `id`
 *   GET    the receiver asks for the payload of an offer; bytes 0
 *   DROP   the receiver does not; bytes 1: it refuses the message, else 0
 *   DATA   `bytes` of the payload of an offer that was asked for
 *   LOST   the sender cannot read the rest of that payload; bytes 0
 *
 * An id is free again when its offer was dropped, has come whole or was lost.
 *
 * An operation is over when its function returns, with the status that it
 * returns. IN_PROGRESS means instead that its callback is called at its end, by
 * tmsg_pipes_progress() or tmsg_pipe_close(). Nothing here locks. */
#ifndef TMSG_AM_PIPE_PIPE_H
#define TMSG_AM_PIPE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tensormsg/status.h>

#include "am/net/io.h"
#include "am/net/loop.h"
#include "core/list.h"

/* The values are those of UCX for the same (ucx/ucx_pipe.c asserts it). */
typedef int8_t tmsg_pipe_status_t;

enum {
    TMSG_PIPE_IN_PROGRESS = 1,
    TMSG_PIPE_OK = 0,
    TMSG_PIPE_NO_MEMORY = -4,
    TMSG_PIPE_INVALID_PARAM = -5,
    TMSG_PIPE_UNREADABLE = -7, /* memory of the sender */
    TMSG_PIPE_CANCELED = -16,
    TMSG_PIPE_REJECTED = -23, /* by the receiver */
    TMSG_PIPE_LOST = -25
};

/* A message header has at most this many bytes. */
#define TMSG_PIPE_HEADER_MOST 8192
/* A payload may come along up to this length: twice what a peer may send ahead
 * (endpoint/credit.h). */
#define TMSG_PIPE_EAGER_MOST ((size_t)8 * 1024 * 1024)
/* A longer payload is offered, unless the sender asks for EAGER. */
#define TMSG_PIPE_EAGER_USUAL ((size_t)256 * 1024)
/* A payload that was asked for comes in pieces of so many bytes at most. */
#define TMSG_PIPE_PIECE_MOST ((size_t)128 * 1024)
/* Each side has at most so many offers that are not over. */
#define TMSG_PIPE_OFFERS_MOST ((uint32_t)1 << 17)

typedef struct tmsg_pipe tmsg_pipe_t;
typedef struct tmsg_pipe_offer tmsg_pipe_offer_t;

/* `request` is NULL: the callbacks have the form of UCX's. */
typedef void (*tmsg_pipe_sent_t)(void *request, tmsg_pipe_status_t status,
                                 void *arg);
typedef void (*tmsg_pipe_received_t)(void *request, tmsg_pipe_status_t status,
                                     size_t bytes, void *arg);

/* Describes a message that has come. */
typedef struct {
    tmsg_pipe_t *pipe;
    const void *header; /* gone when the function returns */
    size_t header_bytes;
    void *data; /* the payload, if it came along */
    size_t bytes;
    tmsg_pipe_offer_t *offer; /* the payload is offered; NULL: it came along */
    bool fleeting;            /* `data` is gone when the function returns */
} tmsg_pipe_message_t;

/* Holds the pipes of one user, who sets the first three fields. */
typedef struct {
    /* Called for a message, within tmsg_pipes_progress(). With IN_PROGRESS
     * the offer is kept until tmsg_pipe_fetch() or tmsg_pipe_drop(); data
     * that is not fleeting is the caller's, to be freed with free(). An error
     * refuses an offer. */
    tmsg_pipe_status_t (*arrived)(void *arg,
                                  const tmsg_pipe_message_t *message);
    /* Called once, within tmsg_pipes_progress(), when no more will come:
     * PEER_LOST (the peer closed it, or it broke), MALFORMED, NO_MEMORY. The
     * pipe stays until tmsg_pipe_close(). */
    void (*ended)(void *arg, tmsg_pipe_t *pipe, tmsg_status_t status,
                  const char *why);
    void *arg;
    /* An epoll set. It is readable if tmsg_pipes_progress() has something to
     * do, and tmsg_pipes_arm() has returned true. */
    int fd;
    tmsg_list_t all;
    tmsg_list_t
        busy; /* pipes that have something to do, and `fd` does not tell */
    uint8_t *buffer; /* what is read goes here first */
} tmsg_pipes_t;

/* Bytes by a socket as they are: `io` is tmsg_pipe_socket(fd). */
extern const tmsg_io_t tmsg_pipe_plain_io;

static inline void *tmsg_pipe_socket(int fd) { return (void *)(intptr_t)fd; }

/* tmsg_pipes_init() prepares an object, whose first fields are set.
 * tmsg_pipes_free() frees what it has, when its pipes are closed. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_pipes_init(tmsg_pipes_t *pipes);
void tmsg_pipes_free(tmsg_pipes_t *pipes);

/* Reads and writes what can be, a bounded amount. Returns how much was done; 0:
 * nothing. */
unsigned tmsg_pipes_progress(tmsg_pipes_t *pipes);

/* Returns whether `fd` tells of all that comes from now on. False: there is
 * something to do. */
bool tmsg_pipes_arm(const tmsg_pipes_t *pipes);

/* Makes a pipe of a connected nonblocking socket, whose bytes `io` moves.
 * `come` are bytes that were read from it already. On error the socket is the
 * caller's. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_pipe_open(tmsg_pipes_t *pipes, int fd, const tmsg_io_t *io,
                             void *io_arg, const void *come, size_t come_bytes,
                             tmsg_pipe_t **pipe_p);

/* Closes a pipe and frees it. What is unfinished ends with CANCELED, before
 * this returns; the memory is free then. Kept offers stay, and can only be
 * given back. */
void tmsg_pipe_close(tmsg_pipe_t *pipe);

/* Counts the bytes of a pipe, before they are encrypted. What one end has
 * written is at last what the other has read. */
typedef struct {
    uint64_t written, read;
} tmsg_pipe_moved_t;

tmsg_pipe_moved_t tmsg_pipe_moved(const tmsg_pipe_t *pipe);

int tmsg_pipe_fd(const tmsg_pipe_t *pipe);

/* Returns whether the socket moves the bytes as they are. */
bool tmsg_pipe_is_plain(const tmsg_pipe_t *pipe);

/* The bits of `flags`; neither: the pipe chooses. */
enum { TMSG_PIPE_EAGER = 2, TMSG_PIPE_OFFERED = 4 };

/* A message to be sent. Header, payload and list stay until it is sent. */
typedef struct {
    const void *header;
    size_t header_bytes; /* TMSG_PIPE_HEADER_MOST at most, and not 0 */
    const void *data;    /* the payload, or a list of struct iovec */
    size_t bytes;        /* of the payload, unless it is a list */
    size_t pieces;       /* number of list entries, not 1; 0: no list */
    uint32_t flags;
} tmsg_pipe_send_t;

/* Sends a message. Errors: INVALID_PARAM (the header's length), NO_MEMORY,
 * UNREADABLE, LOST. */
tmsg_pipe_status_t tmsg_pipe_send(tmsg_pipe_t *pipe,
                                  const tmsg_pipe_send_t *send,
                                  tmsg_pipe_sent_t sent, void *arg);

/* Fetches the payload of an offer into `data`, or into a list of `pieces`
 * (not 1), which stay until `received`. The offer is gone. Errors:
 * INVALID_PARAM (too little room), CANCELED (the pipe was closed). */
tmsg_pipe_status_t tmsg_pipe_fetch(tmsg_pipe_offer_t *offer, void *data,
                                   size_t bytes, size_t pieces,
                                   tmsg_pipe_received_t received, void *arg);

/* Gives an offer back: the sender's memory is free. */
void tmsg_pipe_drop(tmsg_pipe_offer_t *offer);

#endif
