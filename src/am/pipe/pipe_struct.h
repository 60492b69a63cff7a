/* SPDX-License-Identifier: BSD-3-Clause */
/* am/pipe/pipe_struct.h - what a pipe holds. For this room alone. */
#ifndef TMSG_AM_PIPE_PIPE_STRUCT_H
#define TMSG_AM_PIPE_PIPE_STRUCT_H

#include "am/pipe/pipe.h"
#include "core/pieces.h"

#define TMSG_PIPE_FRAME_BYTES 16
#define TMSG_PIPE_BUFFER_BYTES ((size_t)64 * 1024)

enum {
    TMSG_PIPE_FRAME_EAGER = 1,
    TMSG_PIPE_FRAME_OFFER = 2,
    TMSG_PIPE_FRAME_GET = 3,
    TMSG_PIPE_FRAME_DROP = 4,
    TMSG_PIPE_FRAME_DATA = 5,
    TMSG_PIPE_FRAME_LOST = 6,
};

/* Describes a frame that waits to be written, with what follows it. */
typedef struct tmsg_pipe_out {
    tmsg_node_t node;
    uint8_t frame[TMSG_PIPE_FRAME_BYTES];
    const void *header; /* of a message */
    size_t header_bytes;
    size_t head_done; /* bytes of frame and header that were written */
    tmsg_pieces_t payload;
    /* Called when all of it is written, or with CANCELED. */
    void (*written)(tmsg_pipe_t *pipe, struct tmsg_pipe_out *out,
                    tmsg_pipe_status_t status);
    tmsg_pipe_sent_t sent;
    void *arg;
} tmsg_pipe_out_t;

/* Describes a payload of this side that is offered. */
typedef struct {
    tmsg_pipe_out_t out; /* OFFER; later in pipe->granted, or LOST */
    tmsg_pieces_t payload;
    uint32_t id;
    bool told; /* OFFER was written */
    bool granted;
} tmsg_pipe_offered_t;

/* Describes a payload that the peer offers. */
struct tmsg_pipe_offer {
    tmsg_pipe_out_t out; /* GET or DROP */
    tmsg_pipe_t *pipe;   /* NULL: it was closed */
    uint32_t id;
    bool asked; /* GET is queued, or was written */
    bool told;  /* GET was written */
    uint64_t bytes;
    tmsg_pieces_t place;
    tmsg_pipe_received_t received;
    void *arg;
};

/* Describes the piece of DATA that is being written. */
typedef struct {
    tmsg_pipe_offered_t *offered; /* NULL: none */
    uint8_t frame[TMSG_PIPE_FRAME_BYTES];
    size_t frame_left;
    size_t left;
    bool fills; /* its memory cannot be read: zeros go instead, then LOST */
} tmsg_pipe_piece_t;

/* Describes the payload that is being read. */
typedef struct {
    size_t left;              /* 0: a frame is read */
    tmsg_pieces_t *into;      /* of an offer, or `eager` */
    tmsg_pipe_offer_t *offer; /* NULL: EAGER */
    tmsg_pieces_t eager;
    uint8_t *data; /* of an EAGER */
    size_t bytes;
    uint8_t *header; /* has room for TMSG_PIPE_HEADER_MOST; NULL: none yet */
    size_t header_bytes;
} tmsg_pipe_in_t;

struct tmsg_pipe {
    tmsg_pipes_t *pipes;
    tmsg_node_t node;      /* of pipes->all */
    tmsg_node_t busy_node; /* of pipes->busy, if `busy` */
    bool busy;
    const tmsg_io_t *io;
    void *io_arg;
    int fd;
    tmsg_pipe_moved_t moved;
    bool waits;      /* for room in the socket */
    bool over;       /* `ended` was called */
    char broken[96]; /* why nothing can be written any more; "": it can */

    tmsg_list_t out;     /* frames to be written */
    tmsg_list_t granted; /* payloads to be written */
    bool after_out;      /* a piece has its turn */
    tmsg_pipe_piece_t piece;
    void **offered; /* tmsg_pipe_offered_t by id; NULL: the id is free */
    uint32_t offered_room;
    uint32_t offered_next; /* where to look for a free id first */
    uint32_t offered_count;

    uint8_t *kept; /* the begin of a frame */
    size_t kept_bytes;
    size_t kept_room;
    tmsg_pipe_in_t in;
    void **offers; /* tmsg_pipe_offer_t by the peer's id */
    uint32_t offers_room;
    unsigned gets; /* offers that were asked for */
};

/* Writes what can be, up to a bound. Returns how many bytes. */
size_t tmsg_pipe_write(tmsg_pipe_t *pipe);

/* Reads what can be, up to a bound. Returns how many bytes; *more_p: there may
 * be more. */
size_t tmsg_pipe_read(tmsg_pipe_t *pipe, bool *more_p);

/* Returns whether something could be written now. */
bool tmsg_pipe_has_output(const tmsg_pipe_t *pipe);

/* Writes a frame that nobody waits for, or queues it. */
void tmsg_pipe_put(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out);

/* Has the next tmsg_pipes_progress() look at the pipe. */
void tmsg_pipe_stir(tmsg_pipe_t *pipe);

/* Has the loop tell when the socket is writable, or not any more. */
void tmsg_pipe_wait(tmsg_pipe_t *pipe, bool waits);

/* Ends a pipe: nothing is read from it any more. */
void tmsg_pipe_end(tmsg_pipe_t *pipe, tmsg_status_t status, const char *why);

/* Takes the peer's answer to an offer. Returns what is wrong with it, or
 * NULL. */
const char *tmsg_pipe_answered(tmsg_pipe_t *pipe, uint32_t id, bool get,
                               bool refused);

/* Leaves the offers that are kept to those who keep them: they do not write
 * any more when they are given back. */
void tmsg_pipe_leave_offers(tmsg_pipe_t *pipe);

/* Give back what is unfinished, when the pipe is closed. */
void tmsg_pipe_cancel_out(tmsg_pipe_t *pipe);
void tmsg_pipe_cancel_in(tmsg_pipe_t *pipe);

/* Grows a table so that it has `at`. False: no memory. */
bool tmsg_pipe_grow(void ***table, uint32_t *room, uint32_t at);

void tmsg_pipe_fill_frame(uint8_t frame[TMSG_PIPE_FRAME_BYTES], uint8_t type,
                          size_t header_bytes, uint32_t id, uint64_t bytes);

#endif
