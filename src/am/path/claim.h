/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/claim.h - how a further connection to a listener becomes part of a
 * connection that is there: as its bulk stream, or as its stream of messages.
 *
 *   dialling                      dialled
 *   [claim]         ------------>            (the peer's id, proof)
 *                   <------------ [claim], or REFUSE
 *
 * Both frames have the type of what is claimed (TMSG_FRAME_BULK,
 * TMSG_FRAME_CARRIER). Lock held, for all functions here. */
#ifndef TMSG_AM_PATH_CLAIM_H
#define TMSG_AM_PATH_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/boot/frame.h"
#include "am/endpoint/endpoint.h"
#include "am/net/loop.h"

/* Describes the dialling side's claim. */
typedef struct tmsg_claim {
    tmsg_endpoint_t *endpoint;
    uint8_t frame;
    tmsg_source_t source;
    int fd;
    tmsg_frame_stream_t stream; /* used until the claim is over */
    bool connected;
    bool writes; /* the loop tells when the socket is writable */
    /* Called once, when the peer has answered, or with the error. With OK the
     * socket is the caller's, who calls tmsg_frame_free(); in the stream may be
     * bytes that follow the answer, but not of a bulk stream. The claim may be
     * freed. */
    void (*over)(struct tmsg_claim *claim, tmsg_status_t status);
} tmsg_claim_t;

/* Dials the listener once more, at the address of the endpoint's socket.
 * Errors: UNREACHABLE, BUSY, LIMIT_EXCEEDED, IO. */
tmsg_status_t
tmsg_claim_dial(tmsg_claim_t *claim, tmsg_endpoint_t *endpoint, uint8_t frame,
                void (*over)(tmsg_claim_t *claim, tmsg_status_t status));

/* Has the loop tell when the socket is writable, too, or not. */
void tmsg_claim_want_writing(tmsg_claim_t *claim, bool writing);

/* Continues, if the answer is here. The claim may be over then. */
void tmsg_claim_hear(tmsg_claim_t *claim);

/* Gives up a claim that is not over. */
void tmsg_claim_abandon(tmsg_claim_t *claim);

/* Returns whether an accepted connection may claim something now. Otherwise the
 * error message says so. */
bool tmsg_claim_may_come(const tmsg_endpoint_t *connection);

/* Returns the dialled endpoint that the data of a claim are for, if the proof
 * is right, or NULL. */
tmsg_endpoint_t *tmsg_claim_find(const tmsg_endpoint_t *connection,
                                 uint8_t frame, const uint8_t *data,
                                 size_t bytes);

/* Notes whether a claim that is refused came late: its endpoint is gone, and
 * the side that dialled has done with it. */
void tmsg_claim_note_late(tmsg_endpoint_t *connection, const uint8_t *data,
                          size_t bytes);

/* Takes the socket of a connection whose claim is right. The connection is then
 * to be ended by tmsg_claim_leave(). */
int tmsg_claim_take(tmsg_endpoint_t *connection);

/* Answers a claim. Errors: PEER_LOST, NO_MEMORY, IO. */
tmsg_status_t tmsg_claim_answer(tmsg_endpoint_t *connection, uint8_t frame);

/* Ends the connection whose socket was taken, which is no connection of its
 * own. `what` became of it for `endpoint`. */
void tmsg_claim_leave(tmsg_endpoint_t *connection, const char *what,
                      const tmsg_endpoint_t *endpoint);

#endif
