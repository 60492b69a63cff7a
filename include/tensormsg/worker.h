/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/worker.h - the progress engine that owns every endpoint.
 *
 * A worker moves the messages of its listeners and endpoints. Nothing happens
 * unless somebody drives it: a call that waits, a loop, or a thread of its own.
 *
 *     tmsg_worker_create(NULL, NULL, &worker);
 *     tmsg_listener_create(worker, "tcp://:4000", NULL, NULL);
 *     tmsg_worker_recv(worker, -1, &message); // drives it, and waits
 *     tmsg_message_destroy(message);
 *     tmsg_worker_destroy(worker);
 */
#ifndef TENSORMSG_WORKER_H
#define TENSORMSG_WORKER_H

#include <stdint.h>

#include <tensormsg/context.h>
#include <tensormsg/incoming.h>
#include <tensormsg/message.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A worker moves the messages of its listeners and endpoints. Nothing happens
 * unless the worker is driven, in one of three ways:
 *  - polling: call tmsg_worker_progress() in a loop;
 *  - by file descriptor: put tmsg_worker_fd() in your own poll or epoll loop,
 *    call tmsg_worker_arm() before you sleep and progress() when it wakes;
 *  - by a thread of the library (TMSG_WORKER_THREAD).
 * The calls that wait (tmsg_request_wait(), tmsg_worker_recv(), ...) drive it
 * too.
 *
 * A worker and everything on it belong to one thread at a time. With
 * TMSG_WORKER_SHARED or TMSG_WORKER_THREAD any thread may call. One of the
 * threads that wait drives the worker for all. While that thread runs a
 * callback, another one drives.
 *
 * Callbacks run one after the other, in the order in which they came up, each
 * on the thread that drives. So a callback that takes long, or waits for what
 * another thread waits for, delays its thread and the callbacks after it. Only
 * the allocator and the release functions of maps may be called meanwhile. */
typedef struct tmsg_worker tmsg_worker_t;

enum {
    TMSG_WORKER_SHARED = 1 << 0,    /* callable from several threads */
    TMSG_WORKER_THREAD = 1 << 1,    /* driven by its own thread; SHARED */
    TMSG_WORKER_CAPTURE = 1 << 2,   /* messages keep their header's bytes */
    TMSG_WORKER_HOST_ONLY = 1 << 3, /* tensors of devices come to host memory,
                                     * if their sender allows it. A tensor that
                                     * the application places goes to its
                                     * place */
    TMSG_WORKER_BORROW = 1 << 4     /* messages that their sender lends
                                     * (TMSG_SEND_LEND) come as read-only views
                                     * of the sender's memory: see
                                     * tmsg_message_is_lent() */
};

/* Receives each message as it arrives, in the order of its channel, on the
 * thread that drives the worker, with no lock held. The message belongs to the
 * handler, which destroys it now or later. The handler may call the library,
 * destroy functions included. A call that would have to wait returns
 * WOULD_BLOCK. */
typedef void (*tmsg_message_fn)(void *arg, tmsg_message_t *message);

/* Called for each message of a peer that could not be delivered. The status
 * says why:
 *   LIMIT_EXCEEDED  it is beyond a limit
 *   MALFORMED       it breaks its format
 *   REFUSED         its sender's policy is strict, and there is no memory of a
 *                   tensor's kind here; or on_header refused it
 *   NO_MEMORY       there is no memory for it
 *   IO              its payload cannot be read
 *   CORRUPT         it was damaged on the way
 *   CANCELED, TIMED_OUT  its sender gave it up
 * and others. `sequence` is the message's number on `channel`, from 0 and
 * modulo 2^32. The call comes in the message's turn: all messages before it
 * have been handed over or queued, and the later ones follow.
 *
 * The sender gets the same status, if it still waits. This function is not
 * called if the endpoint ends before that turn, or after its handle was
 * destroyed. `error` is valid until it returns. Thread, and what it may call:
 * as for a message handler. */
typedef void (*tmsg_refused_fn)(void *arg, tmsg_endpoint_t *endpoint,
                                uint16_t channel, uint32_t sequence,
                                tmsg_status_t status, const char *error);

/* The application's own memory for payloads.
 *
 * alloc gives `bytes` of memory of `device` (always the CPU), aligned to
 * `alignment` (a power of two, 64 at most). It may leave a value of its own in
 * *token_p. With any other status than OK the message is refused with that
 * status, and with the words of tmsg_domain_fail() (domain.h), if alloc left
 * some. The sender gets both, too.
 *
 * release gets the same values back when the message is destroyed, on the
 * thread that destroys it.
 *
 * Both are called with no lock held. alloc is called by one thread at a time;
 * if several threads use the worker, a callback may run on another thread at
 * that time. Memory from alloc does not count against held_bytes. Names, shapes
 * and metadata do. */
typedef struct tmsg_allocator {
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p);
    void (*release)(void *arg, void *data, uint64_t bytes, void *token);
    void *arg;
} tmsg_allocator_t;

/* The application's own memory on devices, for tensors that come to a device.
 *
 * alloc gives `bytes` of memory of `device`, aligned to `alignment` (64). Work
 * that comes later on `stream` may use the memory (tmsg_incoming_choose(); no
 * stream: any work may). Its status means:
 *   UNSUPPORTED     the library allocates on that device
 *   NOT_FOUND       there is no such device
 *   NO_MEMORY, IO   there is no memory now: the tensor comes to the host, if
 *                   its sender allows it
 * With any other status the message is refused.
 *
 * release gets the same values back when the message is destroyed. Threads, and
 * what both may call: as for tmsg_allocator_t. Memory from alloc does not count
 * against held_bytes. */
typedef struct tmsg_device_allocator {
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p, void **token_p);
    void (*release)(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream, void *token);
    void *arg;
} tmsg_device_allocator_t;

/* The policy for a send that finds no room in the queue of its endpoint. Sends
 * wait there for the connection, for the peer to take what it has, or for
 * earlier sends. A send that has begun is never dropped. Calls, replies,
 * streams and publishers are never dropped here: streams and publishers have
 * bounds of their own and take no room in this queue. */
typedef enum {
    TMSG_QUEUE_REJECT = 0, /* tmsg_endpoint_send() returns BUSY */
    TMSG_QUEUE_BLOCK = 1,  /* it drives the worker until there is room, at most
                            * for the send's timeout_ms; in a callback it
                            * returns WOULD_BLOCK */
    TMSG_QUEUE_DROP_OLDEST = 2, /* the oldest waiting sends make room: they end
                                 * with DROPPED */
    TMSG_QUEUE_DROP_NEWEST = 3, /* the new send is accepted, and ends at once
                                 * with DROPPED */
    TMSG_QUEUE_NEWEST = 4 /* live: only the newest send waits. It goes when
                           * the peer's application has taken the one
                           * before. Stands for messages 1, window 1,
                           * DROP_OLDEST */
} tmsg_queue_policy_t;

enum {
    TMSG_QUEUE_PARAM_MESSAGES = 1 << 0,
    TMSG_QUEUE_PARAM_BYTES = 1 << 1,
    TMSG_QUEUE_PARAM_POLICY = 1 << 2,
    TMSG_QUEUE_PARAM_WINDOW = 1 << 3,
    TMSG_QUEUE_PARAM_MOST_MS = 1 << 4
};

/* How much may wait to be sent on one endpoint. A send finds room if all of
 * this holds:
 *  - fewer than `messages` sends wait;
 *  - their bytes and its own are `bytes` at most; a single send is never too
 *    large;
 *  - no send has waited for `most_ms`.
 * With DROP_OLDEST, a send that has waited for `most_ms` ends with DROPPED,
 * whether others follow or not.
 *
 * With a `window`, a send also waits while that many earlier ones have gone
 * that the peer's application has not taken. Each send then behaves as with
 * TMSG_SEND_ACKED. Calls, streams, publishers and ucx:// peers have no window.
 *
 * `bytes` bounds what the application keeps for waiting maps that borrow their
 * data. Such a map costs the library one kilobyte while it waits. */
typedef struct tmsg_queue_params {
    uint64_t field_mask; /* TMSG_QUEUE_PARAM_*; unset: defaults */
    uint32_t messages;   /* 1 or more; default 65536 */
    int32_t policy;      /* tmsg_queue_policy_t; default REJECT */
    uint64_t bytes;      /* of tensors, 1 or more; default UINT64_MAX */
    uint32_t window;     /* 1 or more; default UINT32_MAX: as many go as the
                          * peer has room for */
    uint32_t most_ms;    /* 1 or more; default UINT32_MAX, no bound */
} tmsg_queue_params_t;

enum {
    TMSG_WORKER_PARAM_FLAGS = 1 << 0,
    TMSG_WORKER_PARAM_HANDLER = 1 << 1,
    TMSG_WORKER_PARAM_QUEUE_DEPTH = 1 << 2,
    TMSG_WORKER_PARAM_ALLOCATOR = 1 << 3,
    TMSG_WORKER_PARAM_SPIN_US = 1 << 4,
    TMSG_WORKER_PARAM_ON_REFUSED = 1 << 5,
    TMSG_WORKER_PARAM_SEND_QUEUE = 1 << 6,
    TMSG_WORKER_PARAM_ON_HEADER = 1 << 7,
    TMSG_WORKER_PARAM_CHANNELS = 1 << 8,
    TMSG_WORKER_PARAM_DEVICE_ALLOCATOR = 1 << 9
};

typedef struct tmsg_worker_params {
    uint64_t field_mask;     /* TMSG_WORKER_PARAM_*; unset: defaults */
    uint32_t flags;          /* TMSG_WORKER_*; default 0 */
    tmsg_message_fn handler; /* default NULL: messages are pulled */
    void *handler_arg;       /* passed to handler; set with it */
    uint32_t queue_depth;    /* messages that may wait to be pulled, for each
                              * channel of each endpoint. At this number the
                              * sender pauses; it may pause from half of it on.
                              * It goes on when half of the queue is free. 1 to
                              * 2^20, default 256 */
    const tmsg_allocator_t *allocator; /* NULL: the library's own memory */
    uint32_t spin_us;           /* how long a wait, or the library's thread,
                                 * polls before it sleeps; default 50. Four
                                 * times as long if earlier waits ended shortly
                                 * after that time. Shorter, or not at all, if
                                 * the peer or another busy process uses this
                                 * core. 0: it never polls */
    tmsg_refused_fn on_refused; /* default NULL: refusals show in the log and
                                 * in tmsg_endpoint_describe() */
    void *on_refused_arg;       /* passed to on_refused; set with it */
    tmsg_header_fn on_header;   /* says where tensors go; default NULL */
    void *on_header_arg;        /* passed to on_header; set with it */
    tmsg_queue_params_t send_queue; /* of every endpoint of this worker, unless
                                     * tmsg_endpoint_set_queue() changes it */
    uint32_t channels; /* each peer may use channels 0 to channels - 1. 1 to
                        * 1024, default 64 */
    const tmsg_device_allocator_t *device_allocator; /* NULL: the library's
                                                      * own pool, which counts
                                                      * against held_bytes */
} tmsg_worker_params_t;

/* Creates a worker. With `context` NULL the worker gets its own context with
 * all defaults. *params (NULL: all defaults) is copied with what it points to.
 * On TMSG_OK the caller frees *worker_p with tmsg_worker_destroy().
 *
 * This call opens no network port: the first listener or endpoint does. It
 * opens UCX, which runs a thread of its own ("async") from then on.
 * Errors: with `context` NULL those of tmsg_context_create(), and:
 *   INVALID_PARAM - an unknown bit or flag, or a field that is out of range
 *   NO_MEMORY
 *   IO
 *   UNSUPPORTED - this process was forked, and UCX cannot be used in it ("Fork"
 *     in docs/understand/threads.md); or its first thread has ended by
 *     pthread_exit() */
TMSG_API tmsg_status_t tmsg_worker_create(tmsg_context_t *context,
                                          const tmsg_worker_params_t *params,
                                          tmsg_worker_t **worker_p);

/* Ends the worker. Every listener and endpoint on it is closed at once and its
 * handle is freed: do not use or destroy these handles any more. Pending
 * requests end with CANCELED. Undelivered messages are destroyed. The worker's
 * thread is joined. Messages and requests that the application holds stay
 * valid. NULL is allowed.
 *
 * In a callback of the worker, this takes effect when the calls on the worker
 * have returned. From another thread it ends the waits of the others with
 * CLOSED, and waits until they have left. No new call on the worker may begin.
 *
 * This call does not wait for peers that do not hang up. Memory that they may
 * still write to is closed later, by a thread of the library that lives at most
 * 250 ms after the last such call. With TMSG_CONTEXT_NO_THREAD the caller waits
 * instead. exit() and fork() wait for that thread, 1 s at most. fork() waits as
 * long for other threads that open or close UCX. */
TMSG_API void tmsg_worker_destroy(tmsg_worker_t *worker);

/* Starts a thread of the library that drives the worker from now on, as if the
 * worker had been created with TMSG_WORKER_THREAD. Other threads may still
 * drive it and use its descriptor. Does nothing if there is such a thread. From
 * any thread.
 * Errors:
 *   INVALID_PARAM - the worker is not shared
 *   IO - the system gives no thread
 *   CLOSED - the worker is being destroyed */
TMSG_API tmsg_status_t tmsg_worker_start_thread(tmsg_worker_t *worker);

/* Moves what can be moved now and runs the callbacks that are due. Returns the
 * number of events handled. 0 means that this call found nothing: to be fast,
 * it looks at UCX each time, but at sockets and timers only now and then. It
 * waits for nobody. A connection that is the first of its kind opens UCX here,
 * which takes some 25 ms. */
TMSG_API unsigned tmsg_worker_progress(tmsg_worker_t *worker);

/* For a loop that polls, when tmsg_worker_progress() has returned 0. Yields the
 * processor if that may help, for instance if the peer runs on the same one.
 * The library's own waits do so. From the thread that calls
 * tmsg_worker_progress().
 *
 * Returns 1 if the loop may poll on. Returns 0 if the loop should sleep
 * (tmsg_worker_wait(), tmsg_worker_arm()), and goes on to do so until something
 * comes: the peer, or a process that computes, uses this processor. The kernel
 * runs a process that was just woken before one that computes, but not one that
 * polls. */
TMSG_API int tmsg_worker_pause(tmsg_worker_t *worker);

/* One descriptor for the worker's life, readable when progress() has work. */
TMSG_API int tmsg_worker_fd(const tmsg_worker_t *worker);

/* Asks for the descriptor to become readable at the next event. Call it each
 * time before you sleep on the descriptor, by one thread at a time. Errors:
 *   BUSY - there is work: progress, and arm again instead of sleeping
 *   INTERNAL - UCX failed */
TMSG_API tmsg_status_t tmsg_worker_arm(tmsg_worker_t *worker);

/* Returns a number that changes whenever something has come that a receive may
 * wait for, on any endpoint: a message to be pulled, or an endpoint's end.
 *
 * A loop that receives by tmsg_worker_fd() compares this number before it
 * sleeps with that of the last time. Calls that send or wait also receive, and
 * neither the descriptor nor tmsg_worker_progress() reports what they received.
 * From any thread. */
TMSG_API uint64_t tmsg_worker_arrivals(const tmsg_worker_t *worker);

/* Returns 1 if a message waits for memory (`held_bytes`) that earlier messages
 * hold which the application has not destroyed; else 0. Until it destroys them
 * nothing more comes. The counter `starved_messages` counts messages that
 * waited so. The first one is logged, and the error of a receive that times out
 * reports it. From any thread. */
TMSG_API int tmsg_worker_starves(tmsg_worker_t *worker);

/* Drives the worker until something has been handled or timeout_ms has passed
 * (0: looks once; -1: no limit). Errors:
 *   TIMED_OUT
 *   WOULD_BLOCK - in a callback
 *   CLOSED - another thread destroys the worker */
TMSG_API tmsg_status_t tmsg_worker_wait(tmsg_worker_t *worker, int timeout_ms);

/* Describes the worker as a JSON object. It has the numbers of endpoints that
 * are connecting, open and ended; the counters and histograms of
 * tmsg_endpoint_describe(), summed over all endpoints that the worker ever had;
 * and:
 *  - "held_bytes": memory of received messages that counts against the limit of
 *    that name
 *  - "header_bytes": beside it, names, shapes and metadata that the application
 *    does not have yet
 *  - "ahead_bytes": what all peers may send ahead
 *  - "unfetched_messages": messages whose payloads wait at their senders,
 *    except for what was sent ahead
 *  - "unpinned_buffers": host buffers for device memory that a driver did not
 *    pin; "unpinned_why" has its words, if any
 *  - "offers", "offered_bytes": offers (tensormsg/offer.h) that are not over
 *  - "lent_bytes": bytes of offers that are not released
 *  - "fetches" (under way), "waiting_fetches", "fetched_maps" and
 *    "fetched_bytes": of these offers
 *  - "running_calls", "waiting_calls": calls and streams that the worker serves
 *  - "held_calls": those that were answered and are kept
 *  - "stalls": how often calls of a method waited and none began for a second
 *  - "loans": loans that have not come back
 *  - "loan_copies", "loan_copy_bytes": copies for loans that the library still
 *    has
 *
 * *json_p is freed with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_worker_describe(tmsg_worker_t *worker,
                                            char **json_p);

/* Describes what is on the worker, in one JSON object:
 *  - "version", "pid": of the library and the process
 *  - "worker": as tmsg_worker_describe()
 *  - "endpoints": an array. Each has "id", "peer", "principal" (if the peer has
 *    proved a key), "state" ("connecting", "connected", "away" or "closing"),
 *    "transport" and "unacknowledged_ms". It also has "waiting_messages" (to be
 *    sent), "ready_messages" (to be taken by the application from this
 *    endpoint), its counters, and the count, p50 and p99 of "send_ns" and
 *    "ack_ns"
 *  - "publishers": an array. Each is as tmsg_publisher_describe(), with
 *    "more_subscribers"
 *  - "more_endpoints", "more_publishers", "more_subscribers": how many are not
 *    listed. 256 endpoints, 256 publishers, and 256 subscribers of all
 *    publishers together are listed.
 *
 * Peers that call TMSG_METHOD_DESCRIBE (tensormsg/reflect.h) get the same.
 * *json_p is freed with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_worker_overview(tmsg_worker_t *worker,
                                            char **json_p);

/* Pulls the oldest message that arrived over any endpoint. Waits up to
 * timeout_ms (0: looks once; -1: no limit). *message_p is the caller's, freed
 * with tmsg_message_destroy(). Errors:
 *   TIMED_OUT
 *   INVALID_PARAM - the worker has a handler
 *   WOULD_BLOCK - in a callback
 *   CLOSED - another thread destroys the worker */
TMSG_API tmsg_status_t tmsg_worker_recv(tmsg_worker_t *worker, int timeout_ms,
                                        tmsg_message_t **message_p);

#ifdef __cplusplus
}
#endif

#endif
