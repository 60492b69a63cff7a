/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/ipc_wire.h - the bytes of frames about device memory that the peer
 * opens. docs/wire/connection.md, "Device memory", has the format. */
#ifndef TMSG_AM_PATH_IPC_WIRE_H
#define TMSG_AM_PATH_IPC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "memory/device_ipc.h"

/* The first byte of a frame. */
typedef enum {
    TMSG_IPC_OFFER = 0,   /* the owner: here is memory, under a number */
    TMSG_IPC_TAKEN = 1,   /* the peer has opened it */
    TMSG_IPC_REFUSED = 2, /* the peer has not opened it, and why */
    TMSG_IPC_GONE = 3,    /* the owner: it is not used any more */
    TMSG_IPC_CLOSED = 4   /* the peer has closed it */
} tmsg_ipc_word_t;

#define TMSG_IPC_OFFER_BYTES                                                   \
    (1 + 4 + 8 + TMSG_IPC_ID_BYTES + TMSG_IPC_HANDLE_BYTES) /* the UUID next   \
                                                             */
#define TMSG_IPC_FRAME_BYTES (TMSG_IPC_OFFER_BYTES + TMSG_IPC_UUID_BYTES)
#define TMSG_IPC_WORDS_BYTES 150 /* of a refusal */

typedef struct {
    tmsg_ipc_word_t word;
    uint32_t number;      /* of the memory, in this connection; not 0 */
    tmsg_ipc_name_t name; /* of an OFFER */
    const char *why;      /* of a REFUSED; without a 0 at the end */
    size_t why_bytes;
} tmsg_ipc_frame_t;

/* Encodes a frame into TMSG_IPC_FRAME_BYTES. Returns its length. */
size_t tmsg_ipc_frame_encode(const tmsg_ipc_frame_t *frame, uint8_t *to);

/* Errors: MALFORMED. */
tmsg_status_t tmsg_ipc_frame_decode(const uint8_t *data, size_t bytes,
                                    tmsg_ipc_frame_t *frame_p);

#endif
