/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/offer.h - how one side tells the other where the memory of its ring
 * or fast box is. Where descriptors pass by the bootstrap socket, the offer is
 * a frame with the memory's descriptor. Elsewhere it is an active message with
 * the descriptor's number, and the other side opens that in /proc. Answers are
 * active messages. The rules are docs/wire/connection.md, "Rings". Lock held,
 * for all functions here. */
#ifndef TMSG_AM_PATH_OFFER_H
#define TMSG_AM_PATH_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/control.h"

/* Offers memory by TMSG_RING_WORD_OFFER or TMSG_RING_WORD_FASTBOX. False: there
 * is no memory to tell the peer of it. May be called inside UCX. */
bool tmsg_offer_send(tmsg_endpoint_t *endpoint, uint8_t word,
                     const tmsg_segment_t *segment);

/* Returns whether a word of a RING message is an offer. */
bool tmsg_offer_is_word(uint8_t word);

/* Takes the body of an offer that came by UCX, of TMSG_RING_OFFER_BYTES. */
void tmsg_offer_arrived(tmsg_endpoint_t *endpoint, const uint8_t *body);

/* Takes an offer that came as a frame, with its descriptor or TMSG_FRAME_FD_*,
 * which it closes. Errors: MALFORMED. */
tmsg_status_t tmsg_offer_frame(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes, int fd);

/* Returns whether the descriptor of an offer that came as a frame is there, and
 * may be the peer's; of other offers true. The thread's error message says why
 * not. */
bool tmsg_offer_is_there(const tmsg_endpoint_t *endpoint,
                         const tmsg_segment_offer_t *offer);

#endif
