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

/* A message whose description (names, dtypes, shapes, metadata) has come, and
 * none of whose tensors was received yet. It is valid until the callback that
 * gets it returns, in the thread of that callback. */
typedef struct tmsg_incoming tmsg_incoming_t;

/* Called for each message that arrives and is well-formed, before any byte of
 * its payload is received. It says where tensors go (tmsg_incoming_place(),
 * tmsg_incoming_choose()), or that the message is not wanted
 * (tmsg_incoming_refuse()). A callback that does nothing accepts the message.
 * Tensors that it does not place go where they would go otherwise.
 *
 * The calls come in the order of arrival. Messages of different sizes or
 * channels may be delivered in another order, and it is not certain yet that
 * they will be delivered. If names and metadata are too many for one header of
 * UCX, they come with the payload, which is then in the library's memory
 * already: tensors that are placed are copied. Calls, replies and messages of
 * streams do not come here.
 *
 * It runs on the thread that drives the worker, with no lock held. If several
 * threads use the worker, another callback may run on another thread at that
 * time. It may call the library, destroy functions included. A call that would
 * have to wait returns WOULD_BLOCK. */
typedef void (*tmsg_header_fn)(void *arg, tmsg_incoming_t *incoming);

/* Returns the map as it will be delivered. It may be read, but not sent: the
 * data of its tensors are NULL until they are placed. A tensor that comes with
 * gaps (TMSG_SEND_KEEP_STRIDES) is shown as the memory that it needs here, a
 * tensor of one dimension. It gets its own shape and strides when it is
 * delivered. */
TMSG_API const tmsg_map_t *tmsg_incoming_map(const tmsg_incoming_t *incoming);

/* Returns the endpoint that the message comes over. Valid as long as that of a
 * message. */
TMSG_API tmsg_endpoint_t *
tmsg_incoming_endpoint(const tmsg_incoming_t *incoming);

/* Returns the bytes of the payload: all tensors with the gaps between them. */
TMSG_API uint64_t tmsg_incoming_bytes(const tmsg_incoming_t *incoming);

/* Says on which device tensor `index` of the map is to lie, whatever device it
 * was sent from. (tmsg_context_device() knows a device by its index in a device
 * table.) Without this call it lies on the device that it was sent from, if
 * this process has its memory. Otherwise it lies on the host.
 *
 * Memory for it comes from the application's allocator or the library's pool,
 * as for other tensors. If a chosen device has no memory here, the message is
 * refused: it does not fall back to the host. With a stream (none: all zeros)
 * the memory is allocated and freed in the order of that stream, and the data
 * are written after the work that the stream holds now. The stream lives as
 * long as the message. When the message is delivered, the data are there for
 * any stream.
 * Errors:
 *   NOT_FOUND - the index is out of range, or no domain holds that device
 *   ALREADY_EXISTS - the tensor is placed
 *   NO_MEMORY
 *   LIMIT_EXCEEDED */
TMSG_API tmsg_status_t tmsg_incoming_choose(tmsg_incoming_t *incoming,
                                            size_t index, tmsg_device_t device,
                                            tmsg_stream_t stream);

/* Does the same for the tensor of that name.
 * Errors: those of tmsg_incoming_choose(), and:
 *   NOT_FOUND - no tensor has this name */
TMSG_API tmsg_status_t tmsg_incoming_choose_name(tmsg_incoming_t *incoming,
                                                 const char *name,
                                                 tmsg_device_t device,
                                                 tmsg_stream_t stream);

/* Does the same for each tensor that is not placed. */
TMSG_API tmsg_status_t tmsg_incoming_choose_all(tmsg_incoming_t *incoming,
                                                tmsg_device_t device,
                                                tmsg_stream_t stream);

/* Has tensor `index` of the map received into `data`: memory of the CPU, or of
 * the device that was chosen for it before. It has room for `capacity` bytes,
 * at least as many as the elements take packed, each once if a stride is 0.
 *
 * The memory is lent from now on, and is written to. That ends when the message
 * is destroyed and no send of it is under way. For a message that is not
 * delivered it ends when no byte can arrive there any more. Then the release
 * function of *params, if any, is called once, from any thread, with no lock
 * held. It must not call the library for that message. `params` (NULL: no
 * release) are those of tmsg_map_add(). Such memory does not count against
 * held_bytes.
 *
 * Nothing is copied if UCX can receive into the memory: into that of one
 * tensor, or of tensors that follow each other without gaps. In case of an
 * error release is not called.
 * Errors:
 *   NOT_FOUND - the index is out of range
 *   INVALID_PARAM - a NULL, a capacity that is too small, or an unknown bit
 *   ALREADY_EXISTS - the tensor is placed */
TMSG_API tmsg_status_t tmsg_incoming_place(tmsg_incoming_t *incoming,
                                           size_t index, void *data,
                                           uint64_t capacity,
                                           const tmsg_map_add_params_t *params);

/* Refuses the message. Its sender, if it still waits, gets `status` and `why`
 * (at most 240 bytes of it, copied), as for any refusal. Here on_refused runs
 * in the message's turn, and placed memory is given back. A peer of ucx:// is
 * not told.
 * Errors:
 *   INVALID_PARAM - a status that is no failure, or CLOSED; or why is NULL */
TMSG_API tmsg_status_t tmsg_incoming_refuse(tmsg_incoming_t *incoming,
                                            tmsg_status_t status,
                                            const char *why);

#ifdef __cplusplus
}
#endif

#endif
