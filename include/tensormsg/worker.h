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
 * unless it is driven, in one of three ways:
 *  - polling: call tmsg_worker_progress() in a loop;
 *  - by file descriptor: put tmsg_worker_fd() in your own poll or epoll loop,
 *    call tmsg_worker_arm() before you sleep and progress() when it wakes;
 *  - by a thread of the library's own (TMSG_WORKER_THREAD).
 * The calls that wait (tmsg_request_wait(), tmsg_worker_recv(), ...) drive it
 * too.
 *
 * A worker and everything on it belong to one thread at a time, unless it has
 * TMSG_WORKER_SHARED or TMSG_WORKER_THREAD: then any thread may call. One of
 * those that wait drives it for all, and while that one runs a callback another
 * does: a callback that takes its time, or waits for what another thread waits
 * for, holds up the thread that it was called on and the callbacks after it.
 * They run one after the other, in the order in which they came up, each on
 * whichever thread drives; only the allocator and the release functions of
 * maps may be called meanwhile. */
typedef struct tmsg_worker tmsg_worker_t;

enum {
    TMSG_WORKER_SHARED = 1 << 0,    /* callable from several threads */
    TMSG_WORKER_THREAD = 1 << 1,    /* driven by its own thread; SHARED */
    TMSG_WORKER_CAPTURE = 1 << 2,   /* messages keep their header's bytes */
    TMSG_WORKER_HOST_ONLY = 1 << 3, /* tensors come to the host's memory, if
                                     * their sender allows it, whatever memory
                                     * they were sent from; unless they are
                                     * placed elsewhere one by one */
    TMSG_WORKER_BORROW = 1 << 4     /* messages that their sender lends
                                     * (TMSG_SEND_LEND) come as views of its
                                     * memory, which are read-only: see
                                     * tmsg_message_is_lent() */
};

/* Receives each message as it arrives, in the order of its channel, on the
 * thread that progresses, with no lock held. The message belongs to the
 * handler: it destroys it, now or later. It may call the library, destroy
 * included; a call that would have to wait answers WOULD_BLOCK. */
typedef void (*tmsg_message_fn)(void *arg, tmsg_message_t *message);

/* Called for each message of a peer's that could not be delivered: beyond a
 * limit, malformed, against its sender's policy, without memory for it
 * (NO_MEMORY), unreadable (IO), damaged under way, given up by its sender
 * (CANCELED, TIMED_OUT). `sequence` is its number among those of
 * `channel`, from 0 and modulo 2^32; its turn there has come, so that all
 * before it have been handed out (or queued), and those behind it follow. The
 * sender of such a message hears the same, if it still waits. Not called where
 * the endpoint ends before that turn, or once its handle is destroyed. `error`
 * is valid until it returns. Thread and calls as for a message's handler. */
typedef void (*tmsg_refused_fn)(void *arg, tmsg_endpoint_t *endpoint,
                                uint16_t channel, uint32_t sequence,
                                tmsg_status_t status, const char *error);

/* Memory for payloads of the application's own. alloc gives `bytes` of
 * memory of `device` (the CPU, always) aligned to `alignment` (a power
 * of two, 64 at most) and may leave a word of its own in *token_p; on any other
 * status the message is refused with it, and with the words of
 * tmsg_domain_fail() in domain.h, if it left any: they travel to the sender,
 * too. release gets the same back when the
 * message is destroyed, from whatever thread does that. Both are called with
 * no lock held, alloc by one thread at a time, which on a worker of several
 * threads may be while a callback runs on another; memory from alloc does not
 * count against held_bytes, names, shapes and metadata do. */
typedef struct tmsg_allocator {
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p);
    void (*release)(void *arg, void *data, uint64_t bytes, void *token);
    void *arg;
} tmsg_allocator_t;

/* Memory of devices of the application's own, for tensors that come to one.
 * alloc gives `bytes` of memory of `device`, aligned to `alignment` (64), that
 * may be used by what comes later on `stream` (tmsg_incoming_choose(); none:
 * by anything); UNSUPPORTED leaves that device to the library, NOT_FOUND says
 * that there is none, NO_MEMORY and IO that there is none now: the tensor comes
 * to the host, if its sender allows it; with any other status the message is
 * refused. release gets the same back when
 * the message is destroyed. Thread and calls as for tmsg_allocator_t; what
 * alloc gave does not count against held_bytes. */
typedef struct tmsg_device_allocator {
    tmsg_status_t (*alloc)(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p, void **token_p);
    void (*release)(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream, void *token);
    void *arg;
} tmsg_device_allocator_t;

/* What becomes of a send for which there is no room among those of its endpoint
 * that wait: for the connection, for the peer to take what it has, or for
 * others before them. A send that has begun is never dropped, nor is a call,
 * its reply, or what a stream or a publisher sends: these two have bounds of
 * their own, and take no room here. */
typedef enum {
    TMSG_QUEUE_REJECT = 0, /* tmsg_endpoint_send() answers BUSY */
    TMSG_QUEUE_BLOCK = 1,  /* it drives the worker until there is room, at most
                            * as long as the send's timeout_ms; in a callback
                            * it answers WOULD_BLOCK */
    TMSG_QUEUE_DROP_OLDEST = 2, /* those that have waited longest make room:
                                 * they end with DROPPED */
    TMSG_QUEUE_DROP_NEWEST = 3, /* the new one is taken, and ends at once with
                                 * DROPPED */
    TMSG_QUEUE_NEWEST = 4       /* live: the newest alone waits, and goes when
                                 * the peer's application took the one before.
                                 * Stands for messages 1, window 1, DROP_OLDEST
                                 */
} tmsg_queue_policy_t;

enum {
    TMSG_QUEUE_PARAM_MESSAGES = 1 << 0,
    TMSG_QUEUE_PARAM_BYTES = 1 << 1,
    TMSG_QUEUE_PARAM_POLICY = 1 << 2,
    TMSG_QUEUE_PARAM_WINDOW = 1 << 3,
    TMSG_QUEUE_PARAM_MOST_MS = 1 << 4
};

/* How much may wait to be sent on one endpoint. A send finds room while fewer
 * than `messages` wait, its bytes and theirs are `bytes` at most, and none has
 * waited for `most_ms`; one alone is never too large. With DROP_OLDEST what has
 * waited for so long ends with DROPPED then, whether others follow or not.
 * With a `window` a send waits, too, while so many before it have gone that the
 * peer's application has not taken; each then is as with TMSG_SEND_ACKED.
 * Calls, streams and publishers take no part in that, nor do ucx:// peers. A
 * map that borrows its data costs the library a kilobyte while it waits:
 * `bytes` bounds what the application keeps for it. */
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
    uint32_t queue_depth;    /* messages that may wait to be pulled, for
                              * each channel of each endpoint; beyond it the
                              * sender waits, and it may from half of it on:
                              * it is told of room when half of it is free. 1
                              * to 2^20, default 256 */
    const tmsg_allocator_t *allocator; /* NULL: the library's own memory */
    uint32_t spin_us;           /* how long a wait, or the library's thread,
                                 * polls before it sleeps; default 50. Four
                                 * times as long when the waits before ended
                                 * shortly after that time; shorter or not at
                                 * all when the peer or another busy process
                                 * uses this core. 0: never polls */
    tmsg_refused_fn on_refused; /* default NULL: refusals show in the log and
                                 * in tmsg_endpoint_describe() */
    void *on_refused_arg;       /* passed to on_refused; set with it */
    tmsg_header_fn on_header;   /* says where tensors go; default NULL */
    void *on_header_arg;        /* passed to on_header; set with it */
    tmsg_queue_params_t send_queue; /* of every endpoint of this worker, unless
                                     * tmsg_endpoint_set_queue() says else */
    uint32_t channels; /* that each peer may use: 0 to this less 1. 1 to
                        * 1024, default 64 */
    const tmsg_device_allocator_t *device_allocator; /* NULL: the library's
                                                      * own pool, which counts
                                                      * against held_bytes */
} tmsg_worker_params_t;

/* Creates a worker. With `context` NULL it gets a context of its own, with all
 * defaults. *params (NULL: all defaults) is copied with what it points to. On
 * TMSG_OK the caller frees *worker_p with tmsg_worker_destroy(). Opens no
 * network port before the first listener or endpoint; UCX, which is opened with
 * it, runs a thread of its own ("async") from there on. Errors: INVALID_PARAM,
 * NO_MEMORY, IO, UNSUPPORTED (this process was forked, and UCX cannot be used
 * in it, as docs/understand/threads.md says under "Fork"; or its first thread
 * has ended by pthread_exit()); with `context` NULL also those of
 * tmsg_context_create(). */
TMSG_API tmsg_status_t tmsg_worker_create(tmsg_context_t *context,
                                          const tmsg_worker_params_t *params,
                                          tmsg_worker_t **worker_p);

/* Ends the worker: every listener and endpoint on it is closed at once and its
 * handle freed, so that none may be used or destroyed any more; pending
 * requests end with CANCELED, undelivered messages are destroyed, a thread of
 * its own is joined. Messages and requests that the application holds stay
 * valid. It may be called in a callback of the worker's, and then takes effect
 * when the calls on the worker have returned. From another thread it ends their
 * waits with CLOSED and waits for them to leave. No new call on the worker may
 * begin. NULL is allowed.
 *
 * It does not wait for peers that do not hang up: what they may still write to
 * is closed later, by a thread of the library that lives 250 ms at most after
 * the last such call. With TMSG_CONTEXT_NO_THREAD the caller waits instead.
 * exit() and fork() wait for that thread, 1 s at most, and fork() as long for
 * other threads that open or close UCX. */
TMSG_API void tmsg_worker_destroy(tmsg_worker_t *worker);

/* Starts a thread of the library's own that drives the worker from now on, as
 * if it had been created with TMSG_WORKER_THREAD. Others may go on to drive it,
 * and to use its descriptor. Does nothing if there is such a thread. From any
 * thread. Errors: INVALID_PARAM (the worker is not shared), IO (no thread),
 * CLOSED. */
TMSG_API tmsg_status_t tmsg_worker_start_thread(tmsg_worker_t *worker);

/* Moves what can be moved now and runs the callbacks that are due. Returns the
 * number of events handled. 0 means that nothing was found now: to be fast, it
 * looks at UCX each time, at sockets and timers only every so often. Waits for
 * nobody, but a connection that is the first of its kind opens UCX here, which
 * takes some 25 ms. */
TMSG_API unsigned tmsg_worker_progress(tmsg_worker_t *worker);

/* For a loop that polls, when tmsg_worker_progress() has returned 0: yields the
 * processor where that may help, such as to a peer that is to answer on the
 * same one; else it does nothing. The library's own waits do so. Returns 1 if
 * the loop may poll on. Returns 0, again and again until something comes, if it
 * had better sleep (tmsg_worker_wait(), tmsg_worker_arm()): the peer, or others
 * that compute, use this processor, and the kernel runs a process that was just
 * woken before those that compute, but not one that polls. From the thread that
 * calls tmsg_worker_progress(). */
TMSG_API int tmsg_worker_pause(tmsg_worker_t *worker);

/* One descriptor for the worker's life, readable when progress() has work. */
TMSG_API int tmsg_worker_fd(const tmsg_worker_t *worker);

/* Asks for the descriptor to become readable at the next event. To be called
 * each time before sleeping on it, by one thread at a time. Errors: BUSY (there
 * is work: progress and arm again instead of sleeping), INTERNAL. */
TMSG_API tmsg_status_t tmsg_worker_arm(tmsg_worker_t *worker);

/* A number that is another one whenever something has come that a receive may
 * wait for, on any endpoint: a message to be pulled, or an endpoint's end. Who
 * receives by tmsg_worker_fd() compares it before sleeping with that of the
 * last time: calls that send or wait receive for all, and what they have
 * received neither the descriptor nor progress() tells of. From any thread. */
TMSG_API uint64_t tmsg_worker_arrivals(const tmsg_worker_t *worker);

/* Whether a message waits for memory that messages hold which came before it
 * and were not released (`held_bytes`): 1 or 0. Until they are nothing more
 * comes. The counter `starved_messages` is how many have waited so; the first
 * is logged, and the words of a receive's TIMED_OUT tell of it. From any
 * thread. */
TMSG_API int tmsg_worker_starves(tmsg_worker_t *worker);

/* Drives the worker until something has been handled or timeout_ms passed (0:
 * look once; -1: no limit). Errors: TIMED_OUT, WOULD_BLOCK (in a callback). */
TMSG_API tmsg_status_t tmsg_worker_wait(tmsg_worker_t *worker, int timeout_ms);

/* Describes the worker as a JSON object: how many endpoints are connecting,
 * open and ended, and the counters and histograms of tmsg_endpoint_describe(),
 * summed over all endpoints that it ever had; of the memory that received
 * messages take, in bytes, "held_bytes": what counts against the limit of that
 * name; "header_bytes": of names, shapes and metadata that the application has
 * not yet, beside it; "ahead_bytes": what all peers may send ahead; and
 * "unfetched_messages", whose payloads wait, at their senders but for what was
 * sent ahead; "unpinned_buffers", host buffers for device memory that a driver
 * did not pin, and its words, if there are any, in "unpinned_why"; of offers
 * (tensormsg/offer.h) that are not over "offers" and "offered_bytes", of those
 * that are not released "lent_bytes", and of their fetches "fetches" (under
 * way), "waiting_fetches", "fetched_maps" and "fetched_bytes"; of the calls and
 * streams that it serves "running_calls", "waiting_calls", "held_calls" (that
 * were answered and are kept) and "stalls" (how often calls of a method waited
 * and none began for a second); "loans" that
 * have not come back, and of the copies that the library made for loans and
 * still has "loan_copies" and "loan_copy_bytes". *json_p is freed with
 * tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_worker_describe(tmsg_worker_t *worker,
                                            char **json_p);

/* Describes what is on the worker, in one JSON object: "version" and "pid" of
 * the library and the process; "worker", as tmsg_worker_describe();
 * "endpoints", of which each is an object of "id", "peer", "principal" (if it
 * has proved a key), "state" ("connecting", "connected", "away", "closing"),
 * "transport", "unacknowledged_ms", "waiting_messages" (to be sent),
 * "ready_messages" (to be taken by the application, one by one of this
 * endpoint), its counters, and of "send_ns" and "ack_ns" the count, p50 and
 * p99; and "publishers", each as tmsg_publisher_describe(), with
 * "more_subscribers". It lists 256 endpoints, 256 publishers, and of all these
 * together 256 subscribers; "more_endpoints", "more_publishers" and
 * "more_subscribers" are the numbers of others. It is what peers get that call
 * TMSG_METHOD_DESCRIBE (tensormsg/reflect.h). *json_p is freed with
 * tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_worker_overview(tmsg_worker_t *worker,
                                            char **json_p);

/* Pulls the oldest message that arrived over any endpoint. Waits up to
 * timeout_ms (0: only looks; -1: no limit). *message_p is the caller's, freed
 * with tmsg_message_destroy(). Errors: TIMED_OUT, INVALID_PARAM (the worker
 * has a handler), WOULD_BLOCK (in a callback). */
TMSG_API tmsg_status_t tmsg_worker_recv(tmsg_worker_t *worker, int timeout_ms,
                                        tmsg_message_t **message_p);

#ifdef __cplusplus
}
#endif

#endif
