/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/fragments.h - sends large tensors, and the rest of large messages, in
 * fragments. The rules are docs/wire/connection.md, "Fragments". Lock held, for
 * all functions here. */
#ifndef TMSG_AM_SEND_FRAGMENTS_H
#define TMSG_AM_SEND_FRAGMENTS_H

#include "am/endpoint/fragments.h"
#include "am/endpoint/measures.h"
#include "am/recv/message.h"
#include "am/send/send.h"
#include "am/worker/way.h"

/* Makes the fragments of a payload whose way has some, and writes their
 * checksums. Tensors that have to be packed are packed a fragment at a time,
 * when it is handed over. payload->extra->split says
 * which tensors travel in fragments. Errors: NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_fragments_make(tmsg_send_t *send,
                                  const tmsg_payload_t *payload);

/* Cuts the send's plan into slices, behind the bytes of a body that heads it.
 * Only that body is left in send->plan. Errors: NO_MEMORY. */
tmsg_status_t tmsg_fragments_slice(tmsg_send_t *send,
                                   const tmsg_payload_t *payload);

/* Returns whether the peer keeps enough fragments that messages may wait for
 * its PULL: the fragments that it asks for need a place beside those that it
 * has no memory for. */
bool tmsg_fragments_may_be_asked(const tmsg_endpoint_t *endpoint);

/* Begins the fragments of a send whose head goes to UCX now. Returns how many
 * bytes of the payload they have; 0: there are none. */
uint64_t tmsg_fragments_begin(tmsg_send_t *send);

/* Hands over to UCX as many fragments as may be. Outside UCX. */
void tmsg_fragments_flush(tmsg_endpoint_t *endpoint);

/* tmsg_fragments_next() gives the bulk stream the next fragment that the peer
 * wants by it. The memory of the fragment stays as it is until
 * tmsg_fragments_handed() is called. Returns false if there is none. */
bool tmsg_fragments_next(tmsg_endpoint_t *endpoint, tmsg_fragment_t *fragment);
void tmsg_fragments_handed(const tmsg_fragment_t *fragment,
                           tmsg_ucx_status_t ucs);

/* Fails the message of a fragment whose memory at `at` cannot be read; the
 * error names the tensor. The fragment counts as handed over. Never called in
 * the middle of other work on the endpoint. */
void tmsg_fragments_unreadable(const tmsg_fragment_t *fragment, const void *at);

/* Returns whether some fragments are with UCX, are being copied from a device,
 * or are to be handed over. */
bool tmsg_fragments_pending(const tmsg_send_t *send);

/* Returns how many fragments UCX, or the bulk stream, has. */
unsigned tmsg_fragments_in_ucx(const tmsg_send_t *send);

/* Stops the fragments of a send: no more of them are handed over. */
void tmsg_fragments_stop(tmsg_send_t *send);

void tmsg_fragments_free(tmsg_send_t *send);

/* Returns the bytes of the record that send->fragments_kept keeps for the next
 * use of this send's record. */
size_t tmsg_fragments_spare(const tmsg_send_t *send);

#endif
