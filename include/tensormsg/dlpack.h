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

/* This header does not need dlpack.h, and the library does not ship it. A
 * program that fills in or reads these structs includes its own, of any
 * version. DLManagedTensor is known everywhere. DLManagedTensorVersioned
 * (DLPack 1.0) can also say that a tensor is read-only. */

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
 * Describes a managed tensor for as long as it lives, with byte_offset added to
 * data. Nothing is copied, and the tensor stays the caller's. The caller calls
 * its deleter when the descriptor is no longer used (or has
 * tmsg_map_add_dlpack() do that). *tensor_p points to the tensor's shape and
 * strides. flags_p, which may be NULL, gets its flags. The caller has to see
 * that nothing is received into read-only memory. From any thread.
 * Errors:
 *   INVALID_PARAM - a NULL, or what tmsg_tensor_check() refuses
 *   UNSUPPORTED - a dtype that is not in tensormsg/dtype.h; a device type that
 *     is not in tensormsg/device.h; a byte_offset if data is no address but a
 *     handle, as with OpenCL; a major version of DLPack other than 1; padded
 *     values of less than 8 bits; a flag that is not listed above
 *   LIMIT_EXCEEDED */
TMSG_API tmsg_status_t tmsg_tensor_from_dlpack(
    const struct DLManagedTensor *managed, tmsg_tensor_t *tensor_p);
TMSG_API tmsg_status_t tmsg_tensor_from_dlpack_versioned(
    const struct DLManagedTensorVersioned *managed, tmsg_tensor_t *tensor_p,
    uint64_t *flags_p);

/* In: owning
 *
 * Appends a managed tensor to a map, as tmsg_map_add() does, and takes it: its
 * deleter (if it has one) is called exactly once. If this fails, that is before
 * it returns, on this thread. Else it is when the tensor leaves the map, inside
 * the call that releases it:
 *  - tmsg_map_remove(), tmsg_map_clear() or tmsg_map_destroy()
 *  - if the map was still being sent then, the call that finds its last send
 *    ended: tmsg_worker_progress(), a wait, the worker's own thread
 *  - tmsg_request_destroy() or tmsg_message_destroy()
 *
 * The library holds no lock then. So a deleter may wait for a lock of its own,
 * such as that of Python's interpreter, which another thread holds inside this
 * library. A thread that waits here (tmsg_request_wait(), tmsg_worker_destroy()
 * of a worker with its own thread) must not hold that lock. The deleter must
 * not use that map.
 *
 * A read-only tensor can be sent; tmsg_endpoint_recv_into() refuses it. The
 * data of a device have to be there already, because they have no stream. With
 * a stream, describe the tensor, and give it to tmsg_map_add() with the stream
 * and a release function that calls the deleter ("Streams" in
 * docs/reference/domains.md).
 * Errors: those of describing and of tmsg_map_add(), with the tensor's name,
 * and:
 *   INVALID_PARAM - managed is NULL */
TMSG_API tmsg_status_t tmsg_map_add_dlpack(tmsg_map_t *map, const char *name,
                                           struct DLManagedTensor *managed);
TMSG_API tmsg_status_t
tmsg_map_add_dlpack_versioned(tmsg_map_t *map, const char *name,
                              struct DLManagedTensorVersioned *managed);

/* Out: a tensor of a map
 *
 * Makes a managed tensor of the tensor called `name`. Nothing is copied. The
 * managed tensor holds the map until its deleter is called, once and from any
 * thread. Until then changes to the map return BUSY, and it outlives
 * tmsg_map_destroy(). The map of a message outlives tmsg_message_destroy(), its
 * endpoint and its worker, and its memory counts against held_bytes. Data that
 * were borrowed when they were added are the caller's to keep for that time.
 * Each call makes one more managed tensor.
 *
 * The map of a tmsg_incoming_t gives out none. tmsg_endpoint_recv_into() does
 * not receive into a map that has given one out: wrap the memory itself with
 * tmsg_tensor_to_dlpack().
 *
 * The version is 1.3, the strides are always given, and a tensor without bytes
 * has NULL data. It is read-only if it was added so. No other flag is set. From
 * any thread that may read the map.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL
 *   NOT_FOUND - no tensor has this name
 *   NO_MEMORY
 *   UNSUPPORTED - without `versioned`: a read-only tensor, which only that can
 *     say */
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
    uint64_t flags;          /* READ_ONLY and COPIED; default 0. Without
                              * `versioned` COPIED is left out */
    tmsg_release_fn release; /* called by the deleter; default NULL */
    void *release_arg;       /* passed to release; set with it */
} tmsg_dlpack_params_t;

/* Makes a managed tensor of a descriptor, for memory of the caller. Shape and
 * strides are copied. The data are borrowed until the deleter is called, from
 * any thread; it calls `release`. On failure release is not called. From any
 * thread.
 * Errors:
 *   INVALID_PARAM - a NULL, an unknown bit or flag, or what tmsg_tensor_check()
 *     refuses
 *   UNSUPPORTED - the dtype; READ_ONLY without `versioned`
 *   LIMIT_EXCEEDED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_tensor_to_dlpack(
    const tmsg_tensor_t *tensor, const tmsg_dlpack_params_t *params,
    struct DLManagedTensor **managed_p);
TMSG_API tmsg_status_t tmsg_tensor_to_dlpack_versioned(
    const tmsg_tensor_t *tensor, const tmsg_dlpack_params_t *params,
    struct DLManagedTensorVersioned **managed_p);

/* Calls the deleter, if there is one, for programs that have no dlpack.h. NULL
 * is allowed. From any thread that may call the deleter. */
TMSG_API void tmsg_dlpack_destroy(struct DLManagedTensor *managed);
TMSG_API void
tmsg_dlpack_destroy_versioned(struct DLManagedTensorVersioned *managed);

#ifdef __cplusplus
}
#endif

#endif
