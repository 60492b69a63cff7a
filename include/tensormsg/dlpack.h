/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/dlpack.h - tensors from and to other libraries, by DLPack.
 *
 * A tensor of another library goes into a map without a copy, and a tensor of a
 * map goes out to another library without one.
 *
 *     tmsg_map_add_dlpack(map, "image", managed);
 *     tmsg_endpoint_send_wait(endpoint, map, NULL, 1000);
 *     tmsg_map_to_dlpack(tmsg_message_map(message), "image", &managed);
 *     tmsg_message_destroy(message); // the tensor keeps the memory
 *     tmsg_dlpack_destroy(managed);
 */
#ifndef TENSORMSG_DLPACK_H
#define TENSORMSG_DLPACK_H

#include <stdint.h>

#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dlpack.h itself is not needed here, nor shipped: whoever fills in or reads
 * these structs includes one of his own, of any version. DLManagedTensor is
 * what everybody knows; DLManagedTensorVersioned (DLPack 1.0) can say in
 * addition that a tensor is read-only. */

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* The flags of DLManagedTensorVersioned. */
enum {
    TMSG_DLPACK_READ_ONLY = 1 << 0, /* nobody may write to the data */
    TMSG_DLPACK_COPIED = 1 << 1,    /* a copy, which is the consumer's alone */
    TMSG_DLPACK_PADDED = 1 << 2 /* types below 8 bits: a byte or more each */
};

/* In: describing
 *
 * Describes a managed tensor for as long as it lives, byte_offset added to
 * data; nothing is copied and it stays the caller's, who calls its deleter when
 * what has the descriptor is done (or has tmsg_map_add_dlpack() do that).
 * *tensor_p points to its shape and strides. flags_p, which may be NULL, is
 * told its flags: memory that is read-only must not be received into, which is
 * for the caller to see to. From any thread.
 *
 * Errors: INVALID_PARAM (a NULL, what tmsg_tensor_check() refuses), UNSUPPORTED
 * (a dtype that is none of tensormsg/dtype.h; a device type that is none of
 * tensormsg/device.h; a byte_offset where data is no address but a handle, as
 * with OpenCL; a major version of DLPack other than 1; padded values of less
 * than 8 bits; a flag that is none of the above), LIMIT_EXCEEDED. */
TMSG_API tmsg_status_t tmsg_tensor_from_dlpack(
    const struct DLManagedTensor *managed, tmsg_tensor_t *tensor_p);
TMSG_API tmsg_status_t tmsg_tensor_from_dlpack_versioned(
    const struct DLManagedTensorVersioned *managed, tmsg_tensor_t *tensor_p,
    uint64_t *flags_p);

/* In: owning
 *
 * Appends a managed tensor to a map, as tmsg_map_add() does, and takes it: its
 * deleter (if it has one) is called exactly once. Where this fails that is
 * before it returns, on this thread; else it is when the tensor leaves the map,
 * inside the call that lets it go: tmsg_map_remove(), tmsg_map_clear(),
 * tmsg_map_destroy() or, where the map was still being sent by then, whatever
 * call finds its last send ended (tmsg_worker_progress(), a wait, the worker's
 * own thread) or tmsg_request_destroy() or tmsg_message_destroy(). No lock of
 * the library's is held then, so a deleter may wait for a lock of its own, such
 * as that of Python's interpreter, which some other thread holds that is inside
 * this library; one that waits here (tmsg_request_wait(), tmsg_worker_destroy()
 * of a worker with a thread of its own) must not hold it. It must not use that
 * map.
 *
 * A read-only tensor can be sent; tmsg_endpoint_recv_into() refuses it. A
 * device's data have to be there, for no stream is known of them: who has one
 * describes the tensor, and gives it to tmsg_map_add() with the stream and a
 * release function that calls the deleter (docs/reference/domains.md,
 * "Streams").
 *
 * Errors: as of describing and of tmsg_map_add(), with the tensor's name; a
 * `managed` that is NULL is INVALID_PARAM. */
TMSG_API tmsg_status_t tmsg_map_add_dlpack(tmsg_map_t *map, const char *name,
                                           struct DLManagedTensor *managed);
TMSG_API tmsg_status_t
tmsg_map_add_dlpack_versioned(tmsg_map_t *map, const char *name,
                              struct DLManagedTensorVersioned *managed);

/* Out: a tensor of a map
 *
 * Makes a managed tensor of the one called `name`; nothing is copied. It holds
 * the map: until its deleter is called, once and from any thread, the map
 * answers BUSY to changes and outlives tmsg_map_destroy() and, where it is a
 * message's, tmsg_message_destroy(), its endpoint and its worker. Memory of a
 * message counts against held_bytes until then. Data that was borrowed when it
 * was added is the caller's to keep as long. Each call makes one more. The map
 * of a tmsg_incoming_t gives none out, and one that does is not received into
 * by tmsg_endpoint_recv_into(): wrap the memory itself for that, by
 * tmsg_tensor_to_dlpack().
 *
 * Its version is 1.3, its strides are always given, and a tensor without bytes
 * has NULL data. It is read-only where it was added so; nothing else sets a
 * flag. From any thread that may read the map.
 *
 * Errors: INVALID_PARAM (a NULL), NOT_FOUND (name), NO_MEMORY; UNSUPPORTED
 * without `versioned` (a read-only tensor, which only that can say). */
TMSG_API tmsg_status_t tmsg_map_to_dlpack(const tmsg_map_t *map,
                                          const char *name,
                                          struct DLManagedTensor **managed_p);
TMSG_API tmsg_status_t
tmsg_map_to_dlpack_versioned(const tmsg_map_t *map, const char *name,
                             struct DLManagedTensorVersioned **managed_p);

/* Out: any tensor */

enum { TMSG_DLPACK_PARAM_FLAGS = 1 << 0, TMSG_DLPACK_PARAM_RELEASE = 1 << 1 };

typedef struct tmsg_dlpack_params {
    uint64_t field_mask;     /* TMSG_DLPACK_PARAM_*; unset: defaults */
    uint64_t flags;          /* READ_ONLY and COPIED; default 0. COPIED is
                              * lost without `versioned` */
    tmsg_release_fn release; /* called by the deleter; default NULL */
    void *release_arg;       /* passed to release; set with it */
} tmsg_dlpack_params_t;

/* Makes a managed tensor of a descriptor, for memory that the caller has: shape
 * and strides are copied, data are borrowed until its deleter is called, from
 * whatever thread, which calls `release`. On failure release is not called.
 * From any thread. Errors: INVALID_PARAM (a NULL, an unknown bit or flag, what
 * tmsg_tensor_check() refuses), UNSUPPORTED (dtype; READ_ONLY without
 * `versioned`), LIMIT_EXCEEDED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_tensor_to_dlpack(
    const tmsg_tensor_t *tensor, const tmsg_dlpack_params_t *params,
    struct DLManagedTensor **managed_p);
TMSG_API tmsg_status_t tmsg_tensor_to_dlpack_versioned(
    const tmsg_tensor_t *tensor, const tmsg_dlpack_params_t *params,
    struct DLManagedTensorVersioned **managed_p);

/* Calls the deleter, if it has one, for those who have no dlpack.h. NULL is
 * allowed. From any thread that the deleter can be called from. */
TMSG_API void tmsg_dlpack_destroy(struct DLManagedTensor *managed);
TMSG_API void
tmsg_dlpack_destroy_versioned(struct DLManagedTensorVersioned *managed);

#ifdef __cplusplus
}
#endif

#endif
