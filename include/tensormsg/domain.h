/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/domain.h - kinds of memory, each one table of functions.
 *
 * A domain is memory that one driver reaches: the host's, CUDA's, or another
 * one that an application adds. docs/reference/domains.md tells how to add one.
 *
 *     tmsg_domain_register(&table);     // a domain of the application's own
 *     tmsg_domain_use(device);          // the library may allocate there
 *     tmsg_memory_query(data, &memory); // what is this memory?
 *     tmsg_domain_find(memory.device, &domain);
 */
#ifndef TENSORMSG_DOMAIN_H
#define TENSORMSG_DOMAIN_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>
#include <tensormsg/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    /* No stream. Work that was given to the device before the call has been
     * done: the data are there, and the work of the call is done when it
     * returns. */
    TMSG_STREAM_NONE = 0,
    /* `handle` is a CUstream or cudaStream_t, or DLPack's number for a default
     * stream: 1 the legacy one, 2 that of the calling thread. 0 is an error, as
     * nobody can tell what it means. */
    TMSG_STREAM_CUDA = 1,
    /* Numbers from here on are for domains that applications add. */
    TMSG_STREAM_OTHER = 1000
} tmsg_stream_kind_t;

/* Puts work on memory in order: what is given to one stream happens in the
 * order in which it was given. All zeros is no stream. */
typedef struct tmsg_stream {
    int32_t kind; /* tmsg_stream_kind_t */
    uint64_t handle;
} tmsg_stream_t;

/* What memory is, beyond its device. */
typedef enum {
    TMSG_MEMORY_UNKNOWN = 0,
    TMSG_MEMORY_HOST = 1,   /* pageable memory of the CPU */
    TMSG_MEMORY_PINNED = 2, /* page-locked for a device's driver */
    TMSG_MEMORY_DEVICE = 3, /* a device's, in one piece (cudaMalloc) */
    TMSG_MEMORY_POOL = 4,   /* from a memory pool (cudaMallocAsync) */
    /* Mapped by pieces (cuMemMap; PyTorch's expandable_segments). */
    TMSG_MEMORY_MAPPED = 5,
    TMSG_MEMORY_MANAGED = 6 /* it moves to the device that touches it */
} tmsg_memory_kind_t;

typedef struct tmsg_memory {
    tmsg_device_t device;
    int32_t kind;   /* tmsg_memory_kind_t */
    int32_t shared; /* 1: another process of this machine can map it, as with
                     * CUDA's IPC; 0: it cannot, or that is not known */
    void *base;     /* where the allocation starts; NULL: unknown */
    uint64_t bytes; /* of it */
} tmsg_memory_t;

/* Names of a device that are the same for every process of the machine. */
typedef struct tmsg_device_identity {
    char name[96];   /* its maker's name; "" if unknown, as the others */
    char uuid[64];   /* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
    char bus_id[32]; /* PCI, in lower case: "0000:33:00.0" */
} tmsg_device_identity_t;

/* One copy of several. */
typedef struct tmsg_domain_copy {
    void *to;
    const void *from;
    uint64_t bytes; /* 1 or more */
} tmsg_domain_copy_t;

/* The table. All functions get `arg`, and may be called from any thread,
 * several at once. They never block on a device longer than their own work
 * takes, and explain a failure with tmsg_domain_fail(). A function that fails
 * leaves its outputs untouched. `data`, `to` and `from` are this domain's
 * memory unless they are called host. Ranges do not overlap, and may be of 0
 * bytes.
 *
 * With a stream, work begins when all earlier work of the stream is done, and
 * the call returns at once. Memory that it reads or writes then stays until an
 * event recorded after it is done. With TMSG_STREAM_NONE the work is done on
 * return. A stream of a kind that the domain does not know is INVALID_PARAM. */
typedef struct tmsg_domain {
    /* sizeof(tmsg_domain_t) when the table was written: functions that were
     * added later are missing in it, and are not called. */
    uint64_t table_bytes;
    const char *name; /* "cuda": unique, for people */
    /* UCX's name for such memory ("host", which is for memory that the CPU
     * reads and writes, "cuda", "rocm"), or NULL: UCX does not know it, and
     * payloads always pass through host memory. */
    const char *transport;
    void *arg;

    /* Returns 1 if tensors of that device lie in this domain, else 0. */
    int (*holds)(void *arg, tmsg_device_t device);

    /* Says what the memory at `data` is. NOT_FOUND means that it is not this
     * domain's, which is no failure and needs no words. May be NULL: it cannot
     * be told. */
    tmsg_status_t (*classify)(void *arg, const void *data,
                              tmsg_memory_t *memory_p);

    /* Gives memory of `bytes` on a device; `alignment` is a power of two. Work
     * that comes later on `stream` may use the memory; without a stream, any
     * work may.
     * Errors:
     *   NO_MEMORY
     *   NOT_FOUND - no such device
     *   UNSUPPORTED - the alignment; a device or driver that cannot be used
     *   IO */
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p);
    /* Frees what alloc() gave, with the same `bytes`, when the earlier work of
     * the stream is done. Any stream, or none, may be given. It cannot fail. */
    void (*free)(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                 tmsg_stream_t stream);

    /* Copy from host memory in, out to host memory, and within the domain,
     * where the two devices may differ: `device` is that of `to`.
     * Errors:
     *   IO - the driver refused */
    tmsg_status_t (*copy_in)(void *arg, tmsg_device_t device, void *to,
                             const void *host, uint64_t bytes,
                             tmsg_stream_t stream);
    tmsg_status_t (*copy_out)(void *arg, tmsg_device_t device, void *host,
                              const void *from, uint64_t bytes,
                              tmsg_stream_t stream);
    tmsg_status_t (*copy_within)(void *arg, tmsg_device_t device, void *to,
                                 const void *from, uint64_t bytes,
                                 tmsg_stream_t stream);

    /* Gives a stream of the domain itself on that device, for copies that no
     * work of the application waits for. It belongs to the domain and is the
     * same every time. A copy without a stream is done after the work of this
     * stream. May be NULL; gives TMSG_STREAM_NONE if there are no streams. */
    tmsg_status_t (*stream)(void *arg, tmsg_device_t device,
                            tmsg_stream_t *stream_p);

    /* Makes an event that is done when all present work of `stream` is done.
     * The four functions go together: all NULL means that there are no streams.
     * They need a stream: TMSG_STREAM_NONE is INVALID_PARAM. */
    tmsg_status_t (*event_record)(void *arg, tmsg_device_t device,
                                  tmsg_stream_t stream, void **event_p);
    /* Returns OK if the event is done, IN_PROGRESS if not. An error is final:
     * the work that the event stands for failed. Never blocks. */
    tmsg_status_t (*event_query)(void *arg, void *event);
    /* Makes `stream`, of that device, wait for the event, which may be of
     * another device. The caller does not wait. */
    tmsg_status_t (*event_wait)(void *arg, tmsg_device_t device, void *event,
                                tmsg_stream_t stream);
    /* Ends an event, done or not. Streams that wait for it go on waiting. */
    void (*event_free)(void *arg, void *event);

    /* Registers host memory for transfers: copies between it and any of the
     * domain's devices then run beside the CPU. It begins at a multiple of
     * 4096. unpin() gets the same range, when no copy is under way there.
     * ALREADY_EXISTS: somebody else has registered it, which is as good. After
     * that or another error unpin() is not called, and copies may wait. Both
     * NULL: there is nothing to do. */
    tmsg_status_t (*pin)(void *arg, void *host, uint64_t bytes);
    void (*unpin)(void *arg, void *host, uint64_t bytes);

    /* Gives the device's names. May be NULL. Errors: NOT_FOUND. */
    tmsg_status_t (*identify)(void *arg, tmsg_device_t device,
                              tmsg_device_identity_t *identity_p);

    /* Says that the application uses this device. Before that nothing is set up
     * on it. May be NULL. Errors: NOT_FOUND. */
    tmsg_status_t (*use)(void *arg, tmsg_device_t device);

    /* Does `count` copies, each as copy_in() does or, if `out` is not 0, as
     * copy_out() does. They touch different memory, and may be done in any
     * order. May be NULL: they are done one by one. */
    tmsg_status_t (*copy_batch)(void *arg, tmsg_device_t device, int out,
                                const tmsg_domain_copy_t *copies,
                                uint64_t count, tmsg_stream_t stream);
} tmsg_domain_t;

/* Adds a domain to the process, for good. The table is copied; what it points
 * to has to stay. The library's domains are asked first, then the others in the
 * order in which they were added. From any thread, before tensors of that
 * memory are given to the library.
 * Errors:
 *   INVALID_PARAM - a table without name, holds, alloc, free, copy_in, copy_out
 *     or copy_within, or with only some of those that go together
 *   ALREADY_EXISTS - there is a domain of that name
 *   LIMIT_EXCEEDED - there are 16 */
TMSG_API tmsg_status_t tmsg_domain_register(const tmsg_domain_t *domain);

/* Gives the domain that holds tensors of that device's type. The functions of
 * the domain say whether there is such a device. The domain lives as long as
 * the process. From any thread.
 * Errors:
 *   NOT_FOUND - no domain holds it
 *   INVALID_PARAM - domain_p is NULL */
TMSG_API tmsg_status_t tmsg_domain_find(tmsg_device_t device,
                                        const tmsg_domain_t **domain_p);

/* Says that the application uses this device, if its driver cannot know it: a
 * CUDA device whose primary context is not active is not touched otherwise.
 * Call it if the library is to allocate on a device that the application has
 * not used itself yet. From any thread.
 * Errors:
 *   NOT_FOUND - no such device
 *   UNSUPPORTED - no working driver; the error says what was found */
TMSG_API tmsg_status_t tmsg_domain_use(tmsg_device_t device);

/* Says what the memory at `data` is. The first domain that knows it answers.
 * Memory that none knows is pageable memory of the CPU. The pointer need not be
 * valid. From any thread.
 * Errors: those of the drivers, and:
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_memory_query(const void *data,
                                         tmsg_memory_t *memory_p);

/* Sets the words of this thread's tmsg_error_message(), which are copied, and
 * returns `status`. It is for the functions of a table, and for allocators
 * (tensormsg/worker.h). */
TMSG_API tmsg_status_t tmsg_domain_fail(tmsg_status_t status,
                                        const char *words);

#ifdef __cplusplus
}
#endif

#endif
