/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/incoming.h - a message before its payload is received.
 *
 * A worker with on_header asks the application where the tensors of each
 * message go. These are the calls of such a callback.
 *
 *     described = tmsg_incoming_map(incoming); // names, dtypes, shapes
 *     tmsg_incoming_place(incoming, 0, data, capacity, NULL);
 *     tmsg_incoming_choose_name(incoming, "mask", device, stream);
 *     tmsg_incoming_refuse(incoming, TMSG_ERR_BUSY, "no room for images");
 */
#ifndef TENSORMSG_INCOMING_H
#define TENSORMSG_INCOMING_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/message.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A message of which what describes it has come and no byte of its tensors was
 * taken yet. It is valid until the callback that gets it returns, in that
 * callback's thread. */
typedef struct tmsg_incoming tmsg_incoming_t;

/* Called for each message that arrives and is well-formed, before any byte of
 * its payload is taken, to say where its tensors go (tmsg_incoming_place()), or
 * that it is not wanted (tmsg_incoming_refuse()). Tensors that it does not
 * place go where they would go without it; a callback that does nothing accepts
 * the message. Messages come in the order of their arrival, which need not be
 * that of their delivery where they differ in size or channel; that they will
 * be delivered is not certain yet. Where names and metadata are too many for
 * one header of UCX's they come with the payload, which is then in the
 * library's memory already: what is placed is copied. Not called for calls,
 * replies and messages of streams, which go where they would go without it.
 * Thread and calls as for an allocator: on the thread that progresses, with no
 * lock held, on a worker of several threads perhaps while a callback runs on
 * another. It may call the library, destroy included; a call that would have to
 * wait answers WOULD_BLOCK. */
typedef void (*tmsg_header_fn)(void *arg, tmsg_incoming_t *incoming);

/* The map as it will be delivered, to be read and not to be sent: the data of
 * its tensors are NULL until they are placed. But one that comes with gaps
 * (TMSG_SEND_KEEP_STRIDES) is the memory that it needs here, a tensor of one
 * dimension, and gets its own shape and strides when it is delivered. */
TMSG_API const tmsg_map_t *tmsg_incoming_map(const tmsg_incoming_t *incoming);

/* The endpoint that it comes over. Valid as that of a message. */
TMSG_API tmsg_endpoint_t *
tmsg_incoming_endpoint(const tmsg_incoming_t *incoming);

/* Bytes of the payload: all tensors with the gaps between them. */
TMSG_API uint64_t tmsg_incoming_bytes(const tmsg_incoming_t *incoming);

/* Says on which device tensor `index` of the map is to lie, wherever it was
 * sent from (tmsg_context_device() knows it by its index in a device table);
 * where nothing is said that is the device that it was sent from, if
 * there is such memory here, or the host. Memory for it is found there as for
 * others: the application's allocator, the library's pool; there is no falling
 * back to the host from a device that was chosen, the message is refused. With
 * a stream (none: all zeros) the memory is allocated and freed in its order,
 * and the data are written after what it holds now; it lives as long as the
 * message. When the message is delivered the data are there, for any stream.
 * Errors: NOT_FOUND (index; no domain holds that device), ALREADY_EXISTS (it is
 * placed), NO_MEMORY, LIMIT_EXCEEDED. */
TMSG_API tmsg_status_t tmsg_incoming_choose(tmsg_incoming_t *incoming,
                                            size_t index, tmsg_device_t device,
                                            tmsg_stream_t stream);

/* The same for the tensor of that name. Errors: NOT_FOUND (no such tensor), and
 * those of tmsg_incoming_choose(). */
TMSG_API tmsg_status_t tmsg_incoming_choose_name(tmsg_incoming_t *incoming,
                                                 const char *name,
                                                 tmsg_device_t device,
                                                 tmsg_stream_t stream);

/* The same for each tensor that is not placed. */
TMSG_API tmsg_status_t tmsg_incoming_choose_all(tmsg_incoming_t *incoming,
                                                tmsg_device_t device,
                                                tmsg_stream_t stream);

/* Has tensor `index` of the map received into `data`, memory of the CPU, or
 * of the device that was chosen for it before, with room for `capacity` bytes,
 * at least as many as its elements take packed, each once where a stride is 0.
 * It is written to from now on and lent until the message is destroyed (and no
 * send of it is under way) or, where the message is not delivered, until no
 * byte can be written to it any more. Then *params' release, if any, is called,
 * once, from whatever thread, with no lock held; it does not call the library
 * for that message. `params` (NULL: no release) are those of tmsg_map_add().
 * Such memory does not count against held_bytes. Nothing is copied where UCX
 * can receive into it: one tensor of its own, or tensors that follow each other
 * without gaps. Errors: NOT_FOUND (index), INVALID_PARAM (NULL, capacity too
 * small, unknown bit), ALREADY_EXISTS (it is placed), and then release is not
 * called. */
TMSG_API tmsg_status_t tmsg_incoming_place(tmsg_incoming_t *incoming,
                                           size_t index, void *data,
                                           uint64_t capacity,
                                           const tmsg_map_add_params_t *params);

/* Refuses the message: its sender, if it still waits, hears `status` and `why`
 * (at most 240 bytes of it, copied), as of any refusal; here on_refused is
 * called in the message's turn, and memory that was placed is given back. A
 * peer of ucx:// hears nothing. Errors: INVALID_PARAM (a status that is no
 * failure, or CLOSED; `why` is NULL). */
TMSG_API tmsg_status_t tmsg_incoming_refuse(tmsg_incoming_t *incoming,
                                            tmsg_status_t status,
                                            const char *why);

#ifdef __cplusplus
}
#endif

#endif
