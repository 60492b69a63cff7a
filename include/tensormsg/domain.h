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

/* A domain is memory that one driver reaches: the host's, CUDA's, or another
 * that an application adds. docs/reference/domains.md tells how to add one. */

typedef enum {
    /* No stream. What was done before the call has been done: the data are
     * there, and what the call does is done when it returns. */
    TMSG_STREAM_NONE = 0,
    /* `handle` is a CUstream or cudaStream_t, or DLPack's number for one of the
     * default streams: 1 the legacy one, 2 that of the calling thread. 0 is an
     * error, as nobody can tell what it means. */
    TMSG_STREAM_CUDA = 1,
    /* From here on the numbers of domains that applications add. */
    TMSG_STREAM_OTHER = 1000
} tmsg_stream_kind_t;

/* Where work on memory is put in order: what is given to one stream happens
 * one after the other, each after the last. All zeros is no stream. */
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
    TMSG_MEMORY_MANAGED = 6 /* which moves to whoever touches it */
} tmsg_memory_kind_t;

typedef struct tmsg_memory {
    tmsg_device_t device;
    int32_t kind;   /* tmsg_memory_kind_t */
    int32_t shared; /* 1: another process of this machine can map it, as CUDA's
                     * IPC does; 0: it cannot, or nobody knows */
    void *base;     /* where the allocation starts; NULL: unknown */
    uint64_t bytes; /* of it */
} tmsg_memory_t;

/* What a device is called by the rest of the machine. */
typedef struct tmsg_device_identity {
    char name[96];   /* as its maker says, "" if unknown; so are the others */
    char uuid[64];   /* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
    char bus_id[32]; /* PCI, in lower case: "0000:33:00.0" */
} tmsg_device_identity_t;

/* One copy of several. */
typedef struct tmsg_domain_copy {
    void *to;
    const void *from;
    uint64_t bytes; /* 1 or more */
} tmsg_domain_copy_t;

/* The table. All functions get `arg`, may be called from any thread, several
 * at once, never block on a device longer than their own work takes, and
 * explain a failure with tmsg_domain_fail(). A function that fails leaves its
 * outputs untouched. `data`, `to` and `from` are this domain's memory unless
 * they are called host; ranges do not overlap, and may be of 0 bytes.
 *
 * With a stream, work begins when all that the stream holds is done, and the
 * call returns at once; memory that it reads or writes then stays as it is
 * until an event recorded behind it is done. With TMSG_STREAM_NONE it is done
 * on return. A stream of another kind than the domain knows is
 * INVALID_PARAM. */
typedef struct tmsg_domain {
    /* sizeof(tmsg_domain_t) as the table's author knew it: functions that were
     * added later are missing in it, and are not called. */
    uint64_t table_bytes;
    const char *name; /* "cuda": unique, for people */
    /* By what name UCX knows such memory ("host", which is for memory that the
     * CPU reads and writes, "cuda", "rocm"), or NULL: it does not, and payloads
     * always pass through host memory. */
    const char *transport;
    void *arg;

    /* 1 if tensors that say so lie here, else 0. */
    int (*holds)(void *arg, tmsg_device_t device);

    /* Says what the memory at `data` is. NOT_FOUND: not this domain's, which is
     * no failure and needs no words. May be NULL: nobody can tell. */
    tmsg_status_t (*classify)(void *arg, const void *data,
                              tmsg_memory_t *memory_p);

    /* Memory for `bytes` on a device; `alignment` is a power of two. It may be
     * used by what comes later on `stream`, or, without one, by anything.
     * Errors: NO_MEMORY, NOT_FOUND (no such device), UNSUPPORTED (alignment; a
     * device or driver that cannot be used), IO. */
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p);
    /* Frees what alloc() gave, with the same `bytes`, when the stream's work so
     * far is done; with any stream, or none. It cannot fail. */
    void (*free)(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                 tmsg_stream_t stream);

    /* Copies from host memory in, out to host memory, and within the domain,
     * where the two devices may differ: `device` is that of `to`. Errors: IO
     * (the driver said no). */
    tmsg_status_t (*copy_in)(void *arg, tmsg_device_t device, void *to,
                             const void *host, uint64_t bytes,
                             tmsg_stream_t stream);
    tmsg_status_t (*copy_out)(void *arg, tmsg_device_t device, void *host,
                              const void *from, uint64_t bytes,
                              tmsg_stream_t stream);
    tmsg_status_t (*copy_within)(void *arg, tmsg_device_t device, void *to,
                                 const void *from, uint64_t bytes,
                                 tmsg_stream_t stream);

    /* A stream of the domain's own on that device, for copies that nothing of
     * the application's waits for. It belongs to the domain and is the same
     * every time; a copy without a stream is done after what it holds. May be
     * NULL, and answers TMSG_STREAM_NONE where there are no streams. */
    tmsg_status_t (*stream)(void *arg, tmsg_device_t device,
                            tmsg_stream_t *stream_p);

    /* An event that is done when all that `stream` holds now is done. The four
     * go together: all NULL means that there are no streams. They need one:
     * TMSG_STREAM_NONE is INVALID_PARAM. */
    tmsg_status_t (*event_record)(void *arg, tmsg_device_t device,
                                  tmsg_stream_t stream, void **event_p);
    /* OK: done; IN_PROGRESS: not yet. Any error is for good: the work that it
     * stands for failed. Never blocks. */
    tmsg_status_t (*event_query)(void *arg, void *event);
    /* Has `stream`, of that device, wait for the event, which may be of another
     * one; the caller does not wait. */
    tmsg_status_t (*event_wait)(void *arg, tmsg_device_t device, void *event,
                                tmsg_stream_t stream);
    /* Ends an event, done or not; what waits for it goes on waiting. */
    void (*event_free)(void *arg, void *event);

    /* Registers host memory for transport: copies between it and any of the
     * domain's devices then run beside the CPU. It begins at a multiple of
     * 4096; unpin() gets the same range, when no copy is under way there.
     * ALREADY_EXISTS: someone else has, which does as well, and unpin() is not
     * called; so it is with any error, after which copies may wait. NULL, both:
     * there is nothing to be done for that. */
    tmsg_status_t (*pin)(void *arg, void *host, uint64_t bytes);
    void (*unpin)(void *arg, void *host, uint64_t bytes);

    /* Says what the device is called. May be NULL. Errors: NOT_FOUND. */
    tmsg_status_t (*identify)(void *arg, tmsg_device_t device,
                              tmsg_device_identity_t *identity_p);

    /* Tells that the application uses this device: until then nothing is set
     * up on one that nobody uses. May be NULL. Errors: NOT_FOUND. */
    tmsg_status_t (*use)(void *arg, tmsg_device_t device);

    /* Does `count` copies, as copy_in() does one or, if `out` is not 0, as
     * copy_out() does. They touch different memory, and their order is free.
     * May be NULL: they are made one by one. */
    tmsg_status_t (*copy_batch)(void *arg, tmsg_device_t device, int out,
                                const tmsg_domain_copy_t *copies,
                                uint64_t count, tmsg_stream_t stream);
} tmsg_domain_t;

/* Adds a domain to the process, for good: the table is copied, and what it
 * points to stays as it is. Those of the library are asked first, then the
 * others in the order in which they came. From any thread, before tensors of
 * that memory are handed to the library. Errors: INVALID_PARAM (a table without
 * name, holds, alloc, free, copy_in, copy_out or copy_within, or with some of
 * those that go together), ALREADY_EXISTS (a domain of that name),
 * LIMIT_EXCEEDED (16 of them). */
TMSG_API tmsg_status_t tmsg_domain_register(const tmsg_domain_t *domain);

/* The domain that holds tensors of that device, by its type: whether there is
 * such a device its functions say. It lives as long as the process. From any
 * thread. Errors: NOT_FOUND (nobody does), INVALID_PARAM (NULL). */
TMSG_API tmsg_status_t tmsg_domain_find(tmsg_device_t device,
                                        const tmsg_domain_t **domain_p);

/* Tells that the application uses this device, where its driver cannot know:
 * a CUDA device whose primary context is not active is not touched before. It
 * is needed where the library shall allocate on a device that the application
 * has not used itself yet. From any thread. Errors: NOT_FOUND (no such device),
 * UNSUPPORTED (no working driver; the message says what was met). */
TMSG_API tmsg_status_t tmsg_domain_use(tmsg_device_t device);

/* Says what the memory at `data` is: the first domain that knows it answers,
 * and what none knows is pageable memory of the CPU. It looks nothing up that
 * needs the pointer to be valid. From any thread. Errors: INVALID_PARAM (NULL),
 * those of the drivers asked. */
TMSG_API tmsg_status_t tmsg_memory_query(const void *data,
                                         tmsg_memory_t *memory_p);

/* For the functions of a table, and for allocators (tensormsg/worker.h): sets
 * the words of this thread's tmsg_error_message(), which are copied, and
 * returns `status`. */
TMSG_API tmsg_status_t tmsg_domain_fail(tmsg_status_t status,
                                        const char *words);

#ifdef __cplusplus
}
#endif

#endif
