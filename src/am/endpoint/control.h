/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/control.h - small messages of the library itself. They wait for
 * no credit. Lock held, for all functions here except
 * tmsg_control_free_spare(). */
#ifndef TMSG_AM_ENDPOINT_CONTROL_H
#define TMSG_AM_ENDPOINT_CONTROL_H

#include "am/endpoint/endpoint.h"
#include "am/shm/segment.h"

/* The text that says why a message was refused has at most this many bytes. */
#define TMSG_ACK_TEXT_MAX 240

/* Frees a record that the memory budget kept. Any thread. */
void tmsg_control_free_spare(tmsg_spare_t *spare);

/* Hands a control message to UCX. Outside UCX. Errors: NO_MEMORY, those of
 * tmsg_ucx_am_unsent(). */
tmsg_status_t tmsg_control_post(tmsg_endpoint_t *endpoint, uint8_t kind,
                                const tmsg_preamble_t *head, const void *body,
                                size_t body_bytes, const void *payload,
                                size_t payload_bytes);

/* Sends a control message if UCX can send it at once, without UCX's own wireup
 * of the two UCX endpoints (wireup.c says why). Outside UCX. IN_PROGRESS: UCX
 * cannot now. Other errors: as tmsg_control_post(). */
tmsg_status_t tmsg_control_try(tmsg_endpoint_t *endpoint, uint8_t kind,
                               const tmsg_preamble_t *head, const void *body,
                               size_t body_bytes, const void *payload,
                               size_t payload_bytes);

/* Sends an answer that is made inside UCX; it goes when UCX may be called. If
 * there is no memory for it, the endpoint ends: the peer would wait for the
 * answer for ever. */
void tmsg_control_answer(tmsg_endpoint_t *endpoint, uint8_t kind,
                         const tmsg_preamble_t *head, const void *body,
                         size_t body_bytes);

/* Tells the peer that a message was taken, or refused and why. */
void tmsg_control_ack(tmsg_endpoint_t *endpoint, uint32_t message_id,
                      tmsg_status_t status, const char *error);

/* Tells the peer that a message of this side, which has a number, is given
 * up. */
void tmsg_control_abort(const tmsg_channel_t *channel, uint32_t message_id,
                        uint32_t sequence, tmsg_status_t status,
                        const char *words);

/* Tells the peer that nobody waits for the reply to a call of this side. */
void tmsg_control_uncall(tmsg_endpoint_t *endpoint, const void *body,
                         size_t body_bytes);

/* Answers a ping. */
void tmsg_control_pong(tmsg_endpoint_t *endpoint, uint32_t message_id);

/* Tells the peer whether a schema that it defined is kept. */
void tmsg_control_schema(tmsg_channel_t *channel, uint8_t slot,
                         uint8_t generation, bool kept);

/* Sends PULL: the fragments of the peer's message may come, and how. */
#define TMSG_PULL_BY_UCX 0
#define TMSG_PULL_BY_BULK 1
void tmsg_control_pull(const tmsg_channel_t *channel, uint32_t message_id,
                       uint8_t how);

/* The first byte of a RING message is one of these words, about rings and fast
 * boxes. tmsg_control_offer() tells the peer where this side's ring or fast box
 * is; false: no memory. tmsg_control_ring() tells that bytes or places of one
 * were moved, or whether the one that the peer offered was taken. */
#define TMSG_RING_WORD_MOVED 0
#define TMSG_RING_WORD_OFFER 1 /* u32 descriptor, mark */
#define TMSG_RING_WORD_TAKEN 2
#define TMSG_RING_WORD_REFUSED 3
#define TMSG_RING_WORD_FASTBOX 4 /* a fast box, in the form of OFFER */
#define TMSG_RING_WORD_FASTBOX_TAKEN 5
#define TMSG_RING_WORD_FASTBOX_REFUSED 6
#define TMSG_RING_WORD_LOOK 7 /* a frame lies in the bootstrap socket */
#define TMSG_RING_OFFER_BYTES (1 + 4 + TMSG_SEGMENT_MARK_BYTES)
bool tmsg_control_offer(tmsg_endpoint_t *endpoint, uint8_t word,
                        const tmsg_segment_t *segment);
void tmsg_control_ring(tmsg_endpoint_t *endpoint, uint8_t what);

/* Tells the peer that this side reads its memory, or what became of a payload
 * that was to be read there. */
#define TMSG_READ_WORD_BEGINS 0
#define TMSG_READ_WORD_DONE 1     /* u64 token */
#define TMSG_READ_WORD_REJECTED 2 /* u64 token */
#define TMSG_READ_ANSWER_BYTES (1 + 8)
void tmsg_control_read(tmsg_endpoint_t *endpoint, uint8_t word, uint64_t token);

/* Tells the peer what was consumed, if that is worth a message. */
void tmsg_control_credit(tmsg_channel_t *channel);

/* Returns whether answers wait to be posted. */
static inline bool tmsg_control_waits(const tmsg_endpoint_t *endpoint)
{
    return endpoint->controls.waiting.count > 0;
}

/* tmsg_control_flush() posts the answers that were made inside UCX.
 * tmsg_control_discard() drops them. */
void tmsg_control_flush(tmsg_endpoint_t *endpoint);
void tmsg_control_discard(tmsg_endpoint_t *endpoint);

/* Returns the endpoint that a control message is for. NULL: there is none, or
 * it may not get the message. */
tmsg_endpoint_t *tmsg_control_receiver(const tmsg_arrival_t *arrival);

/* Returns the channel that a control message is for, on which this side must
 * have sent. NULL: there is none, and the message is to be ignored. */
tmsg_channel_t *tmsg_control_channel(const tmsg_arrival_t *arrival);

/* tmsg_ping_is_known() returns whether the peer answers pings. tmsg_ping_send()
 * sends a ping; none may be under way. Lock held, outside UCX. Errors:
 * NO_MEMORY, PEER_LOST. */
bool tmsg_ping_is_known(const tmsg_endpoint_t *endpoint);

tmsg_status_t tmsg_ping_send(tmsg_endpoint_t *endpoint);

#endif
