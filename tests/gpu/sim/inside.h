/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/sim/inside.h - what the files of the simulated driver share. */
#ifndef TMSG_TESTS_GPU_SIM_INSIDE_H
#define TMSG_TESTS_GPU_SIM_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/sim/sim.h"

#define API __attribute__((visibility("default")))
#define DEVICES 4
#define MIB (1ull << 20)
#define CHUNK (2 * MIB) /* in which the device's memory is given out */

/* Values of CUresult. */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    MAP_FAILED_ = 205,
    ALREADY_MAPPED = 208,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908
};

typedef uint64_t address_t;
typedef struct stream stream_t;
typedef struct event event_t;
typedef struct pool pool_t;

/* The handle of a primary context stays the same when the context is reset;
 * `id` is another then (cuCtxGetId()). */
typedef struct {
    int device;
    bool primary, alive;
    unsigned uses, flags;
    uint64_t id;
    int sticky; /* the error that all further work returns */
    stream_t *legacy;
} context_t;

/* init.c */
extern pthread_mutex_t sim_lock; /* of all that is in here */
extern sim_counts_t *sim_counts;
extern int sim_devices;
int sim_number(const char *variable, int otherwise);
/* Takes the lock; sim_unlock() is to follow in any case. */
int sim_begin(bool needs_context);
void sim_unlock(int *begun);
__attribute__((format(printf, 1, 2))) void sim_undefined(const char *words,
                                                         ...);
const char *sim_complaint(void); /* the first of those; NULL: none */

/* Each call begins so, and holds the lock until it returns. */
#define BEGIN(needs_context)                                                   \
    __attribute__((cleanup(sim_unlock))) int begun = sim_begin(needs_context); \
    if (begun != OK) {                                                         \
        return begun;                                                          \
    }                                                                          \
    (void)0
#define ANYWHERE BEGIN(false)
#define IN_CONTEXT BEGIN(true)

#define COUNT(name) atomic_fetch_add(&sim_counts->name, 1)
#define COUNT_BYTES(name, bytes) atomic_fetch_add(&sim_counts->name, bytes)

/* context.c */
context_t *sim_current(void); /* NULL: none */
bool sim_is_alive(const context_t *context, uint64_t id);
context_t *sim_primary(int device); /* NULL: it is not active */

int sim_depth(void); /* of this thread's stack */
int sim_primary_uses(int device);

/* memory.c: pieces of memory, and where the CPU reaches them */
typedef enum {
    PLAIN = 1, /* cuMemAlloc() */
    POOLED,    /* cuMemAllocAsync() */
    MANAGED,   /* cuMemAllocManaged(); the CPU may touch it */
    MAPPED,    /* cuMemMap() */
    PEER,      /* cuIpcOpenMemHandle() */
    PINNED,    /* cuMemHostRegister() */
    HOST       /* cuMemHostAlloc() */
} kind_t;

typedef struct {
    address_t base;
    size_t bytes;
    kind_t kind;
    int device;
    context_t *context; /* NULL: memory of none */
    uint64_t context_id, id;
    char *view;     /* NULL: no access */
    pool_t *pool;   /* POOLED */
    void *physical; /* MAPPED: what cuMemCreate() made; PEER: what was opened */
    bool unborn, dying, sync, of_ucx;
} block_t;

/* What a process shares with others: at the beginning of its memfd. */
#define SHARED_MAGIC 0x6d6973616475636eull
#define SHARED_EVENTS 8192
#define CHUNKS 8192 /* at most, of a device */
typedef struct {
    _Atomic uint64_t recorded, done;
} shared_event_t;
typedef struct {
    uint64_t magic;
    shared_event_t events[SHARED_EVENTS];
    struct {
        _Atomic uint64_t id;     /* 0: it is free */
        _Atomic uint32_t opened; /* how often, by other processes */
    } chunks[DEVICES][CHUNKS];
} shared_t;

bool sim_memory_open(size_t bytes_each);
shared_t *sim_shared(int *fd_p);
block_t *sim_find(address_t address);
bool sim_is_device(const block_t *block);
/* Where the CPU reaches that memory. false: an illegal address. NULL in
 * *block_p: memory of the host that CUDA does not know. */
bool sim_reach(address_t address, size_t bytes, char **view_p,
               block_t **block_p);
block_t *sim_add(const block_t *block);
void sim_remove(block_t *block);
block_t *sim_take(int device, size_t bytes, kind_t kind, context_t *context);
void sim_give(block_t *block);
void sim_remove_all(const context_t *context);
block_t *sim_search(bool (*is)(const block_t *block, const void *arg),
                    const void *arg);
void sim_renew(block_t *block); /* another allocation at the same place */
size_t sim_held(int device);
/* That were given and not freed, or are pinned, but what UCX has of its own. */
int sim_blocks(void);
/* Where an address lies in the memfd. */
uint64_t sim_offset(address_t address);
/* The chunk that PLAIN memory lies in, as another process has to map it. */
void sim_chunk(const block_t *block, uint64_t *chunk_p, uint64_t *offset_p,
               uint64_t *bytes_p, uint64_t *id_p);

/* engine.c: the device, which executes streams */
typedef enum {
    COPY,
    FILL,
    KERNEL,
    FAULT,
    HOLD,
    CALL,
    TELL,
    RECORD,
    WAIT,
    BORN,
    GIVE,
    AWAIT_VALUE, /* cuStreamWaitValue64() */
    WRITE_VALUE  /* cuStreamWriteValue32() or 64(): `bytes` says which */
} work_t;

typedef struct op {
    struct op *next;
    work_t work;
    uint64_t order, due_ns;
    address_t to, from;
    size_t bytes;
    void *staged; /* what is copied in place of `from` */
    event_t *event;
    uint64_t ticket;
    union {
        sim_kernel_fn kernel;
        void (*tell)(void *stream, int status, void *arg);
        const volatile int *go;
    };
    void *arg;
    unsigned char value;
    uint64_t word; /* AWAIT_VALUE, WRITE_VALUE */
    unsigned flags;
} op_t;

typedef struct capture {
    stream_t *origin;
    int mode;
    pthread_t thread;
    bool invalid, ended;
    unsigned nodes;
    op_t *first, *last; /* of the graph */
    struct capture *next;
} capture_t;

struct stream {
    uint32_t magic;
    context_t *context;
    uint64_t context_id;
    bool blocking, legacy, dead, running;
    void *handle; /* as the program knows it */
    op_t *first, *last;
    uint64_t given, done;
    capture_t *capture;
    stream_t *next;
};

struct event {
    uint32_t magic;
    context_t *context;
    uint64_t context_id;
    unsigned flags, refs;
    bool dead;
    uint64_t recorded, done; /* tickets */
    shared_event_t *shared;  /* of an interprocess one, in place of those */
    void *opened;            /* the mapping that `shared` lies in */
    capture_t *capture;      /* was last recorded in it */
    event_t *next;
};

stream_t *sim_stream_new(context_t *context, bool blocking, bool legacy);
/* Gives work to a stream that is not captured. */
void sim_submit(stream_t *stream, const op_t *op);
/* Gives work to a stream, or to the graph that it is captured into: `node`. */
void sim_give_work(stream_t *stream, bool node, const op_t *op);
/* Until all that was given has been done. Returns the sticky error if there is
 * one. */
int sim_wait(stream_t *stream);
int sim_wait_context(context_t *context);
void sim_end_context(context_t *context); /* its streams and their work */
/* All that any stream holds, but what waits for the program. */
void sim_finish(void);
void sim_end_capture(capture_t *capture);
bool sim_idle(const stream_t *stream);
bool sim_event_done(const event_t *event, uint64_t ticket);
uint64_t sim_event_recorded(const event_t *event);
extern _Atomic unsigned sim_delay_us;
extern _Thread_local bool sim_on_device; /* within a host function */
/* Waits for something that the device does; the lock is held again after. */
void sim_pause(void);

/* stream.c */
event_t *sim_event_new(unsigned flags); /* of the current context */
int sim_events(void);                   /* that were not destroyed */
/* OK, or why that event cannot be used. */
int sim_check_event(const event_t *event);
/* OK, or why nothing can be given to that handle; what is captured is told by
 * stream->capture. */
int sim_stream(void *handle, stream_t **stream_p);
/* The same for work that is given; what a captured stream gets is a node. */
int sim_stream_for_work(void *handle, stream_t **stream_p, bool *node_p);

/* capture.c */
int sim_unsafe(void); /* a call that may not be made beside a capture */
int sim_check_legacy(context_t *context);
void sim_invalidate(capture_t *capture);

/* vmm.c */
uint64_t sim_handle_types(const block_t *block);

/* pool.c */
pool_t *sim_default_pool(int device);
int sim_take_from_pool(pool_t *pool, size_t bytes, stream_t *stream,
                       address_t *address_p);
void sim_pool_gave(block_t *block);
uint64_t sim_pool_handle_types(const pool_t *pool);

#endif
