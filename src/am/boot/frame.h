/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/frame.h - whole frames over a nonblocking stream socket.
 * docs/wire/bootstrap.md has the format. */
#ifndef TMSG_AM_BOOT_FRAME_H
#define TMSG_AM_BOOT_FRAME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/boot/passing.h"
#include "am/boot/proof.h"
#include "am/net/io.h"

#define TMSG_FRAME_MAGIC "TMSGBOOT" /* the first bytes of either side */
#define TMSG_FRAME_MAGIC_BYTES 8
#define TMSG_FRAME_HEADER_BYTES 5
#define TMSG_FRAME_MAX_BYTES (64u * 1024u) /* of a payload, until admission */

typedef struct {
    uint8_t *data;
    size_t capacity;
    size_t begin; /* first byte that is not used yet */
    size_t end;
    uint64_t used; /* bytes that were used since the stream began */
} tmsg_frame_buffer_t;

/* The MACs of the frames that go in one direction, once the frames have
 * MACs. */
typedef struct {
    bool on;
    uint8_t key[TMSG_KEY_BYTES];
    uint64_t number; /* number of the next frame */
} tmsg_frame_macs_t;

/* One side of a connection. It borrows the socket. One thread at a time
 * uses it; at the same time another thread may call tmsg_frame_beat() and
 * tmsg_frame_listen(). */
typedef struct {
    int socket;
    pthread_mutex_t lock;      /* protects all fields below */
    _Atomic uint64_t heard_ns; /* when the latest byte came; 0: none yet */
    size_t max_bytes;          /* limit of a payload, in either direction */
    bool introduced;           /* our magic is queued, or has gone out */
    bool greeted;              /* the peer's magic has come */
    bool exact;                /* see tmsg_frame_read_exactly() */
    tmsg_status_t read_error;  /* the first error of reading: it stays */
    tmsg_status_t write_error;
    tmsg_frame_buffer_t in;
    tmsg_frame_buffer_t out;
    tmsg_frame_macs_t tx, rx;
    tmsg_passing_t passing; /* descriptors */
    const tmsg_io_t *io;    /* moves the bytes; NULL: the socket does */
    void *io_arg;
    uint64_t seen; /* bytes of the socket that were noticed; with `io` */
} tmsg_frame_stream_t;

/* Begins a stream on a connected or connecting socket. Our magic goes out with
 * the first frame, or with tmsg_frame_flush(). Allocates nothing. */
void tmsg_frame_init(tmsg_frame_stream_t *stream, int fd, size_t max_bytes);

/* Has all bytes moved by `io`, before there are any. `io_arg` is the stream's
 * then; tmsg_frame_take_io() gives it back, and the stream is not used after
 * that. No descriptors pass. */
void tmsg_frame_use_io(tmsg_frame_stream_t *stream, const tmsg_io_t *io,
                       void *io_arg);
void *tmsg_frame_take_io(tmsg_frame_stream_t *stream);

/* From now on every frame has a MAC behind its payload: frames that are queued
 * by `tx_key`, and frames that are read by `rx_key`. A payload has at most
 * `max_bytes`, without its MAC. */
void tmsg_frame_protect(tmsg_frame_stream_t *stream,
                        const uint8_t tx_key[TMSG_KEY_BYTES],
                        const uint8_t rx_key[TMSG_KEY_BYTES], size_t max_bytes);

/* Sets the limit of a payload. */
void tmsg_frame_allow(tmsg_frame_stream_t *stream, size_t max_bytes);

/* From now on no byte is read behind the frame that is awaited: what follows it
 * is for another reader. */
void tmsg_frame_read_exactly(tmsg_frame_stream_t *stream);

/* Moves all that a stream has read and queued, and its socket, to a stream
 * that is not in use. Nobody else uses either stream meanwhile. */
void tmsg_frame_move(tmsg_frame_stream_t *to, tmsg_frame_stream_t *from);

/* Lets descriptors come with frames of some types, from 0 to 63: with those of
 * type n if bit n of `types` is set. At first there are none. A descriptor that
 * comes with another frame, or a second one with the same frame, is closed, and
 * the stream ends with MALFORMED or, with MACs, CORRUPT. */
void tmsg_frame_take_fds(tmsg_frame_stream_t *stream, uint64_t types);

/* Frees the buffers and forgets what was queued. The socket stays open. Other
 * descriptors, that came or were to go, are closed. */
void tmsg_frame_free(tmsg_frame_stream_t *stream);

/* Sends a frame. What the socket does not take at once waits in a buffer, and
 * tmsg_frame_flush() sends it. Errors: LIMIT_EXCEEDED (payload over max_bytes),
 * BUSY (max_bytes of older frames still wait: the peer does not read),
 * NO_MEMORY (these three leave the stream as it was), PEER_LOST, IO. */
tmsg_status_t tmsg_frame_queue(tmsg_frame_stream_t *stream, uint8_t type,
                               const void *data, size_t bytes);

/* Sends a frame and a descriptor with it, on a Unix socket. The stream has a
 * duplicate until the frame's first byte was written. If the kernel does not
 * let the descriptor pass, as where too many are on their way, the frame goes
 * without. Errors: as of tmsg_frame_queue(), but BUSY also if
 * TMSG_PASSING_MOST wait already, and IO or LIMIT_EXCEEDED (RLIMIT_NOFILE)
 * also if there is no duplicate to be had. */
tmsg_status_t tmsg_frame_queue_fd(tmsg_frame_stream_t *stream, uint8_t type,
                                  const void *data, size_t bytes, int fd);

/* Writes what waits. Errors: IN_PROGRESS (call again when the socket is
 * writable), PEER_LOST, NO_MEMORY, IO. */
tmsg_status_t tmsg_frame_flush(tmsg_frame_stream_t *stream);

/* Returns whether tmsg_frame_flush() is worth a call when the socket is
 * writable. */
bool tmsg_frame_wants_writing(tmsg_frame_stream_t *stream);

/* Returns how many bytes wait to be written. */
size_t tmsg_frame_pending(tmsg_frame_stream_t *stream);

/* Returns the next whole frame; *data_p is valid until the next call of this
 * function. One call reads from the socket at most once, and only a bounded
 * amount, so a peer that never stops does not keep the caller here. A frame may
 * be in the buffer already: call until IN_PROGRESS, then poll for input,
 * level-triggered. With an `io` one call reads up to a whole frame, and may
 * write what had to wait for the peer. Memory grows with the bytes that came,
 * not with the length that was announced.
 *
 * Errors: IN_PROGRESS, CLOSED (the peer ended the connection; the message tells
 * if it was inside a frame), MALFORMED (not our magic, or a descriptor where
 * none is taken), LIMIT_EXCEEDED (a
 * length over max_bytes, of a peer that was not admitted), CORRUPT (the frame's
 * MAC is not that of the next frame, or its length is over max_bytes),
 * PEER_LOST (reset), NO_MEMORY, IO. All but IN_PROGRESS and NO_MEMORY are
 * final. */
tmsg_status_t tmsg_frame_read(tmsg_frame_stream_t *stream, uint8_t *type_p,
                              const uint8_t **data_p, size_t *bytes_p);

/* Gives the caller the descriptor that came with the frame that was read last,
 * or TMSG_FRAME_FD_*. A descriptor that is not taken so is closed by the next
 * tmsg_frame_read(). tmsg_frame_fd_words() says why there is none. */
int tmsg_frame_fd(tmsg_frame_stream_t *stream);
const char *tmsg_frame_fd_words(int fd);

/* Drops what was not read, with its descriptors, before the socket is closed:
 * the kernel would close them inside of that, which may last. */
void tmsg_frame_drop_unread(tmsg_frame_stream_t *stream);

/* Sends a frame without payload. If something waits to be written, it tries to
 * write that instead, which is as good a sign of life. Errors are reported by
 * reading. */
void tmsg_frame_beat(tmsg_frame_stream_t *stream, uint8_t type);

/* Looks whether bytes are at the socket, which counts as hearing from the peer.
 * Throws away frames of that type without payload, up to the first other frame.
 * That frame, and what is behind it, stays for tmsg_frame_read(). If a
 * descriptor is among what it looks at, everything stays. */
void tmsg_frame_listen(tmsg_frame_stream_t *stream, uint8_t type);

#endif
