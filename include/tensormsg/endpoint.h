/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/endpoint.h - a connection to one peer.
 *
 * An endpoint sends maps to its peer and receives maps from it. It comes from
 * tmsg_endpoint_connect(), or from a listener.
 *
 *     tmsg_endpoint_connect(worker, "tcp://10.0.0.7:4000", NULL, &endpoint);
 *     tmsg_endpoint_send(endpoint, map, NULL, &request);
 *     tmsg_endpoint_recv(endpoint, 1000, &message);
 *     tmsg_endpoint_close_wait(endpoint, 1000); // both sides have everything
 *     tmsg_endpoint_destroy(endpoint);
 */
#ifndef TENSORMSG_ENDPOINT_H
#define TENSORMSG_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/request.h>
#include <tensormsg/tls.h>
#include <tensormsg/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT = 1 << 0,
    TMSG_ENDPOINT_PARAM_RECONNECT = 1 << 1,
    TMSG_ENDPOINT_PARAM_DEVICES = 1 << 2,
    TMSG_ENDPOINT_PARAM_SUBSCRIBE = 1 << 3,
    TMSG_ENDPOINT_PARAM_KEYRING = 1 << 4,
    TMSG_ENDPOINT_PARAM_FLAGS = 1 << 5,
    TMSG_ENDPOINT_PARAM_CARRIER = 1 << 6,
    TMSG_ENDPOINT_PARAM_TLS = 1 << 7
};

/* What carries the messages of a connection. A side with AUTO takes what the
 * other side asks for, and UCX if neither side asks. If one side asks for UCX
 * and the other for a stream, the connection is refused with INCOMPATIBLE. */
typedef enum {
    TMSG_CARRIER_AUTO = 0,
    TMSG_CARRIER_UCX = 1, /* RDMA, shared memory, or UCX's TCP */
    /* TCP connections of this library (at unix:// a Unix socket), all of them
     * to the listener's port: the peer uses no port of UCX. For tcp:// and
     * unix://. See "The stream carrier" in docs/wire/connection.md. */
    TMSG_CARRIER_STREAM = 2
} tmsg_carrier_t;

/* Flags of an endpoint that connects. */
enum {
    /* The endpoint waits until somebody listens. While nobody listens, the
     * host's name is not known, or the listener goes away before the connection
     * is made, it dials again, after 10 ms at first and 250 ms at most. It does
     * so until connect_timeout_ms has passed (-1: without limit), and then
     * fails with the status of the last attempt; the error says how long nobody
     * listened. A refusal (a key, a version) ends the endpoint at once. For
     * tcp://, tls:// and unix://. */
    TMSG_ENDPOINT_WAIT = 1 << 0,

    /* With reconnect: the endpoint ends with PEER_LOST if the process that it
     * was connected to is gone. Without this flag it begins a new session with
     * the next process. */
    TMSG_ENDPOINT_SAME_PROCESS = 1 << 1
};

/* The wishes of this side to a peer that publishes to it (publisher.h). */
enum {
    TMSG_SUBSCRIBE_NEWEST = 1 << 0 /* only the newest map, not earlier ones */
};

/* How an endpoint comes back by itself after its connection broke. Until it is
 * back, or has given up, tmsg_endpoint_status() is IN_PROGRESS,
 * tmsg_endpoint_error() says why, and sends wait. In a field, 0 is its default.
 *
 * The same session goes on while both processes live: a cable was out, a
 * network restarted, a proxy went away, a peer was stopped for too long. The
 * listener has to keep its side meanwhile (TMSG_LISTENER_PARAM_RESUME). Then:
 *  - a send with TMSG_SEND_ACKED that was under way is sent again unless the
 *    peer has it. It is neither lost nor delivered twice, and keeps its place
 * in the order. Its data stay borrowed until the peer has confirmed.
 *  - a send without it is delivered at most once. If it had ended here and was
 *    still under way, it is lost. The receiver's on_refused
 * (tensormsg/worker.h) tells so in its turn, with PEER_LOST, and
 * "lost_messages" of the receiver's tmsg_endpoint_describe() counts it.
 *
 * A new session begins if another process answers, or if the peer has dropped
 * the old session or never kept one. It also begins if the peer shuts down: the
 * peer ended the connection with UNAVAILABLE, or closed it in order after its
 * server was drained (tmsg_server_drain()). The handle stays the same. Then:
 *  - sends and calls that still waited here go to the new process;
 *  - sends that were handed over and not confirmed end with PEER_LOST: whether
 *    the old process took them is not known;
 *  - calls that were handed over end with PEER_LOST, and
 *    tmsg_call_may_have_run() is 1; a call with retries that is idempotent is
 *    made again (tensormsg/call.h);
 *  - streams, fetches and the calls of the old process end with PEER_LOST;
 *  - messages that had arrived whole can still be received, and come first;
 *  - subscriptions go on: this side subscribes again at the peer, and the peer
 *    at publishers of this side gets the maps that are kept;
 *  - with keys, the new process has to prove the principal of the old one, else
 *    the endpoint ends with INSECURE.
 * tmsg_endpoint_on_session() reports it.
 *
 * An endpoint does not come back after an orderly end, after another error than
 * these (REFUSED, INSECURE, INCOMPATIBLE, MALFORMED, ...), or before it has
 * been connected once. */
typedef struct tmsg_reconnect {
    int32_t first_backoff_ms; /* before the first attempt. Each further attempt
                               * waits twice as long as the one before. A random
                               * part, at most half, is subtracted. Default
                               * 100 */
    int32_t most_backoff_ms;  /* upper limit of that; default 5000 */
    int32_t give_up_ms;       /* after the break; -1: never; default 60000 */
} tmsg_reconnect_t;

typedef struct tmsg_endpoint_params {
    uint64_t field_mask;        /* TMSG_ENDPOINT_PARAM_*; unset: defaults */
    int32_t connect_timeout_ms; /* for each attempt: name, connection and hello
                                 * together; default 10000. If a host has
                                 * several addresses and one has not answered
                                 * for a quarter of this time, the next one is
                                 * dialled. A listener without a free place is
                                 * dialled again until then; the endpoint ends
                                 * with BUSY instead of TIMED_OUT. With
                                 * TMSG_ENDPOINT_WAIT the limit of all attempts
                                 * together; -1: no limit, and 10000 for each
                                 * attempt */
    const char *devices;        /* network devices that UCX may use for this
                                 * connection, "eth1" or "eth1,mlx5_0:1", 63
                                 * bytes at most. Default NULL: the device of
                                 * the address at this side. For tcp:// and
                                 * blobs. See docs/how-to/nothing-arrives.md */
    uint32_t subscribe;         /* TMSG_SUBSCRIBE_*; default 0 */
    tmsg_reconnect_t reconnect; /* default: the endpoint ends when the
                                 * connection breaks */
    tmsg_keyring_t *keyring; /* the listener proves a key of it, and this side
                              * proves its first keys, 16 at most
                              * (tensormsg/key.h). Default that of the context;
                              * NULL: no key. Peers of ucx:// cannot prove
                              * one */
    uint32_t flags;          /* TMSG_ENDPOINT_*; default 0 */
    int32_t carrier;         /* tmsg_carrier_t; default that of the
                              * configuration, which is AUTO */
    tmsg_tls_t *tls; /* certificates, by which both sides of tls:// prove
                      * who they are (tensormsg/tls.h). Default NULL:
                      * they prove the first key of the keyring */
} tmsg_endpoint_params_t;

/* Starts to connect to a listener and returns at once. `url` is one of
 *   "tcp://host:port"  a name, an IPv4 address, or an IPv6 address in brackets,
 *                      with its device if it is link-local: [fe80::1%eth0].
 *                      "host:port" alone means tcp
 *   "tls://host:port"  the same, encrypted
 *   "unix:///path"     a socket file
 *   "unix://@name"     an abstract socket; REFUSED if another user listens
 *   "ucx://host:port"  a peer that uses UCXX (docs/how-to/ucxx.md: maps of one
 *                      tensor, nothing ACKED)
 *
 * Sends may follow at once: they wait for the connection, and fail with its
 * error if it cannot be made. tmsg_endpoint_ready() waits for it. *params
 * (NULL: defaults) is copied. The caller frees *endpoint_p with
 * tmsg_endpoint_destroy().
 *
 * Errors here:
 *   INVALID_PARAM - the URL or a field; tls:// with neither `tls` nor a keyring
 *   NOT_FOUND - no such device; the error names those of this machine
 *   UNSUPPORTED - reconnect, a key or TMSG_ENDPOINT_WAIT with a ucx:// peer
 *   NO_MEMORY
 * Errors of the connection:
 *   NOT_FOUND - no such host
 *   UNREACHABLE - nobody listens there
 *   TIMED_OUT - the listener did not answer in time
 *   BUSY - the listener had no free place in that time
 *   REFUSED - by the listener, also if it asks for a key that this side does
 *     not have
 *   INSECURE - the listener did not prove a key of the keyring, or its
 *     certificate is not the one that is expected
 *   CORRUPT - somebody changed what the listener said
 *   INCOMPATIBLE - the versions do not work together; the error names both
 *   PEER_LOST - the connection broke */
TMSG_API tmsg_status_t tmsg_endpoint_connect(
    tmsg_worker_t *worker, const char *url,
    const tmsg_endpoint_params_t *params, tmsg_endpoint_t **endpoint_p);

/* Connects as tmsg_endpoint_connect() does, to the blob of a listener
 * (tmsg_listener_blob()) that you have carried here. `blob` is copied. With a
 * keyring, only what a key of it has proved is believed. Without a keyring the
 * blob is trusted as far as its checksum allows: see
 * docs/understand/security.md.
 *
 * A listener whose keyring has changed since does not answer: TIMED_OUT. If the
 * listener was in this process and is gone, that is known at once: PEER_LOST.
 * Errors here: those of tmsg_endpoint_connect(), and:
 *   MALFORMED - the blob
 *   INCOMPATIBLE - the versions do not work together
 *   REFUSED - the listener asks for a key, and this side has none
 *   INSECURE - the listener asks for no key, or for other keys
 *   UNSUPPORTED - reconnect, or TMSG_ENDPOINT_WAIT */
TMSG_API tmsg_status_t tmsg_endpoint_connect_blob(
    tmsg_worker_t *worker, const void *blob, size_t blob_bytes,
    const tmsg_endpoint_params_t *params, tmsg_endpoint_t **endpoint_p);

/* Gives a request that ends when the endpoint is connected, or connected again,
 * or has failed. An accepted endpoint is connected from the start. Errors:
 *   CLOSED - its worker is gone
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_endpoint_ready(tmsg_endpoint_t *endpoint,
                                           tmsg_request_t **request_p);

enum {
    /* The send ends when the peer's application has the message. */
    TMSG_SEND_ACKED = 1 << 0,

    /* As ACKED, with a checksum of each tensor (XXH3, 64 bit). The peer
     * compares the checksums before its application gets the message. If one
     * differs, the send ends with CORRUPT, the error names the tensor, and the
     * message is not delivered. Both sides read every byte once more, on the
     * thread that drives the worker. Device memory is copied out for that, so
     * that such a message may wait in the send queue (UNSUPPORTED with
     * TMSG_SEND_TRY). With a peer that cannot check them the send fails with
     * UNSUPPORTED. */
    TMSG_SEND_VERIFY = 1 << 1,

    /* The message is delivered as soon as it is whole, whatever is before it on
     * its channel; it may also come in order. It takes its turn in this side's
     * queue, and a credit, as all messages do. */
    TMSG_SEND_UNORDERED = 1 << 2,

    /* Nothing is sent, and the call returns WOULD_BLOCK, unless the message can
     * go at once: the connection exists, the peer takes one more message, and
     * none waits before it. */
    TMSG_SEND_TRY = 1 << 3,

    /* Nothing is sent, and the call returns UNSUPPORTED, if a tensor's strides
     * are such that it would have to be packed, which takes time and memory.
     * The error names the tensor. Tensors in C order, in a permutation of it,
     * or broadcast keep their strides. For a ucx:// peer all but C order is
     * packed. */
    TMSG_SEND_NO_PACK = 1 << 4,

    /* A tensor that would have to be packed travels as its span instead: all
     * memory from its lowest element to its highest. It arrives with the
     * strides that it has here, negative and overlapping ones included. The
     * gaps are read and sent too: they must be readable, and hold nothing that
     * the peer must not see. A peer of an older version, or of ucx://, gets the
     * tensor packed; with TMSG_SEND_NO_PACK the call returns UNSUPPORTED.
     * docs/reference/strides.md says when it pays. */
    TMSG_SEND_KEEP_STRIDES = 1 << 5,

    /* The peer reads the tensors in this process's memory instead of getting a
     * copy. This needs a connection of unix://, a worker there that borrows
     * (TMSG_WORKER_BORROW), and `shm.lend_bytes` or more. Tensors that fill
     * blocks of tmsg_shareable_alloc() are lent where they lie, each block as a
     * whole. Others are copied once, into memory of the library. A message that
     * cannot be lent goes as without this flag; tmsg_endpoint_describe() says
     * why.
     *
     * The send ends as without the flag. on_release comes, and the map is
     * released, when the peer has given all of it back. Until then nothing may
     * write to tensors that are lent where they lie. If the connection ends
     * before, that is when the peer's process has ended, or this worker. See
     * docs/reference/loans.md. */
    TMSG_SEND_LEND = 1 << 6
};

/* How a receiver treats a tensor if it has no memory of the tensor's kind: put
 * the tensor into host memory, or fail the message at both ends. */
typedef enum {
    TMSG_POLICY_HOST_FALLBACK = 0,
    TMSG_POLICY_STRICT = 1
} tmsg_policy_t;

/* How a message's tensors travel. The receiver does not see it.
 * docs/reference/thresholds.md says at which sizes the automatic choice
 * changes. If a way cannot be used (fragments to an older peer, for example),
 * it is used as far as possible. */
typedef enum {
    TMSG_WAY_AUTO = 0,     /* by sizes and by the endpoint's transport */
    TMSG_WAY_GATHER = 1,   /* all are copied into one buffer first */
    TMSG_WAY_SCATTER = 2,  /* as one list, each from its own memory */
    TMSG_WAY_FRAGMENTS = 3 /* as messages of their own, into their memory */
} tmsg_way_kind_t;

/* When the part of a payload goes that is in no fragment. EAGER: at once, into
 * memory of the receiver's UCX. RNDV: when the receiver has found memory and
 * fetches it. */
typedef enum {
    TMSG_PROTOCOL_AUTO = 0,
    TMSG_PROTOCOL_EAGER = 1,
    TMSG_PROTOCOL_RNDV = 2
} tmsg_protocol_t;

enum {
    TMSG_SEND_PARAM_FLAGS = 1 << 0,
    TMSG_SEND_PARAM_POLICY = 1 << 1,
    TMSG_SEND_PARAM_ON_DONE = 1 << 2,
    TMSG_SEND_PARAM_CHANNEL = 1 << 3,
    TMSG_SEND_PARAM_TIMEOUT = 1 << 4,
    TMSG_SEND_PARAM_ON_RELEASE = 1 << 5,
    TMSG_SEND_PARAM_WAY = 1 << 6 /* way and protocol */
};

typedef struct tmsg_send_params {
    uint64_t field_mask;  /* TMSG_SEND_PARAM_*; unset: defaults */
    uint32_t flags;       /* TMSG_SEND_*; default 0 */
    int32_t policy;       /* tmsg_policy_t; default HOST_FALLBACK */
    tmsg_done_fn on_done; /* default none */
    void *on_done_arg;
    int32_t way;        /* tmsg_way_kind_t; default AUTO */
    int32_t protocol;   /* tmsg_protocol_t; default AUTO */
    int32_t timeout_ms; /* above 0: limit for the whole operation from this
                         * call on: waiting, travelling and, if asked for, the
                         * acknowledgement. -1, the default: no limit */
    tmsg_release_fn on_release; /* default none; see below */
    void *on_release_arg;
    uint16_t channel; /* default 0; below what the peer takes, usually 64 */
} tmsg_send_params_t;

/* Sends a map. Messages on one channel of an endpoint arrive in the order of
 * these calls, each whole and once, or not at all. Messages on different
 * channels do not wait for each other: each channel has its own order, queue
 * and credits, made when the channel is first used.
 *
 * This call returns at once, unless the endpoint's queue is full and blocks
 * (tmsg_endpoint_set_queue()). The operation ends when the map's tensors may be
 * reused or freed; with TMSG_SEND_ACKED or TMSG_SEND_VERIFY, when the peer's
 * application has taken the message. Until then the caller keeps borrowed data
 * unchanged. The map itself may be destroyed at any time, and the map of a
 * received message with its message, so that messages can be sent on. A tensor
 * that is neither in C order nor in a permutation of it is packed, refused
 * (TMSG_SEND_NO_PACK), or sent with all that is between its elements
 * (TMSG_SEND_KEEP_STRIDES).
 *
 * on_release, if given, is called once when no byte that the map borrows can be
 * read any more. That is before on_done, and long before it if on_done waits
 * for an acknowledgement. It runs on the thread that drives the worker, with no
 * lock held, and may do what on_done may. It is not called if this function
 * fails. When timeout_ms has passed, the operation is given up as by
 * tmsg_request_cancel(), and ends with TIMED_OUT.
 *
 * `params` may be NULL. With request_p NULL nobody waits, and a failure shows
 * only in on_done and the log. Else *request_p is the caller's.
 *
 * Errors here: the endpoint's own if it has failed, and:
 *   INVALID_PARAM
 *   UNSUPPORTED - memory of an unknown kind; a channel that the peer does not
 *     take, which is any but 0 for an older or a ucx:// peer; what else a
 *     ucx:// peer cannot take; TMSG_SEND_NO_PACK
 *   LIMIT_EXCEEDED - the map is beyond the peer's limits
 *   BUSY - the queue is full and rejects
 *   WOULD_BLOCK - TMSG_SEND_TRY; or the queue is full and blocks, in a callback
 *   TIMED_OUT - there was no room in time
 *   CLOSED
 *   NO_MEMORY
 * Errors of the operation:
 *   PEER_LOST - the connection broke
 *   REFUSED, LIMIT_EXCEEDED, UNSUPPORTED, NO_MEMORY - by the peer
 *   CORRUPT - a checksum differs (TMSG_SEND_VERIFY)
 *   IO - a tensor's memory cannot be read to its end; the error names the
 *     tensor. Where the processor copies the tensor, that is SIGSEGV or SIGBUS.
 *   TIMED_OUT
 *   CANCELED - by tmsg_request_cancel(), or with the endpoint
 *   DROPPED - by the queue's policy
 *   CLOSED */
TMSG_API tmsg_status_t tmsg_endpoint_send(tmsg_endpoint_t *endpoint,
                                          const tmsg_map_t *map,
                                          const tmsg_send_params_t *params,
                                          tmsg_request_t **request_p);

/* Sends a map as tmsg_endpoint_send() does with TMSG_SEND_ACKED, and waits
 * until the peer's application has taken the message. It drives the worker
 * meanwhile. `params` may be NULL, and must not have TMSG_SEND_PARAM_TIMEOUT:
 * timeout_ms is the send's (above 0; -1: no limit). When the time is up, the
 * send is given up as by tmsg_request_cancel().
 *
 * When this returns, with any status, the data of the map are the caller's
 * again; with TMSG_SEND_LEND, when on_release has run. So after timeout_ms this
 * may wait on until no byte of them can be read any more. That is usually one
 * round trip; if the peer has stopped, it is until the connection has ended.
 * Errors: all that tmsg_endpoint_send() and its operation may end with, and:
 *   WOULD_BLOCK - in a callback of this worker; nothing was sent
 *   INVALID_PARAM - also if `params` have a timeout_ms
 *   TIMED_OUT - the peer's application did not take the message in time, or
 *     took it just before
 *   CLOSED - also if another thread destroyed the worker: the data are free
 *     when tmsg_worker_destroy() has returned */
TMSG_API tmsg_status_t tmsg_endpoint_send_wait(tmsg_endpoint_t *endpoint,
                                               const tmsg_map_t *map,
                                               const tmsg_send_params_t *params,
                                               int timeout_ms);

/* Says how much may wait to be sent on this endpoint, dialled or accepted, and
 * what happens to the rest. It holds from the next send on. Fields that are not
 * set, or all with NULL, are as in the worker's parameters. *params is copied.
 * Errors:
 *   INVALID_PARAM - an unknown bit or policy, or a bound of 0
 *   CLOSED - its worker is gone */
TMSG_API tmsg_status_t tmsg_endpoint_set_queue(
    tmsg_endpoint_t *endpoint, const tmsg_queue_params_t *params);

/* Pulls the oldest message of this endpoint, as tmsg_worker_recv() pulls those
 * of all endpoints. Errors: those of tmsg_worker_recv(), and once all messages
 * have been pulled CLOSED or the endpoint's own error. */
TMSG_API tmsg_status_t tmsg_endpoint_recv(tmsg_endpoint_t *endpoint,
                                          int timeout_ms,
                                          tmsg_message_t **message_p);

/* Returns 1 if tmsg_endpoint_recv() would return at once: a message waits to be
 * pulled, or the endpoint has ended. Else 0. A loop that drives a worker with
 * many endpoints asks this when tmsg_worker_arrivals() has changed. It drives
 * nothing. From any thread. */
TMSG_API int tmsg_endpoint_readable(const tmsg_endpoint_t *endpoint);

/* Returns how many messages of this endpoint wait to be pulled; 0 with a
 * message handler. If an endpoint that has ended has none, it may be destroyed,
 * and no message is lost. It drives nothing. From any thread. */
TMSG_API size_t tmsg_endpoint_waiting(const tmsg_endpoint_t *endpoint);

/* Receives as tmsg_endpoint_recv() does, into the memory of `map`: each tensor
 * of the message that `map` has too, by name, goes there. It is for a loop that
 * receives the same map again and again, without an allocation and, where UCX
 * can do it (tensormsg/incoming.h), without a copy. Tensors that only `map` has
 * keep their data. Tensors that only the message has go where they would go
 * otherwise. What on_header has placed stays there. The message's map says
 * where each tensor is. To get only the data, which costs less, pass NULL as
 * message_p: the message ends before this returns.
 *
 * A message that arrives while this waits is received into `map` at once. A
 * message that was here before is copied into it. If a tensor's dtype, shape or
 * order of elements differs from that in `map`, this fails with INVALID_PARAM,
 * and the error says what came and what `map` has. The message then stays, and
 * is the next to be received; its sender is not told. A transfer that breaks
 * off may have written into `map`.
 *
 * The tensors of `map` lie in CPU memory, or in memory of a device that a
 * domain holds. Each fills its memory without gaps, in some order of its
 * dimensions, and no two share a byte. This is checked once, until `map`
 * changes. A tensor of the message that is broadcast (a stride is 0) or came
 * with gaps (TMSG_SEND_KEEP_STRIDES) is copied, written out, into its memory.
 * If either side of that copy is not CPU memory, this fails with UNSUPPORTED,
 * and the message stays.
 *
 * The memory is lent until this returns anything but CANCEL_PENDING; if it
 * returns a message, until that message is destroyed. Until then changes to
 * `map` return BUSY, and no other receive takes it. CANCEL_PENDING means that
 * timeout_ms has passed while a message was on its way into `map`, which UCX
 * cannot stop. The memory then stays lent until a further call with this map
 * returns something else, until another call receives the message and it is
 * destroyed, or until the peer dies. A receive by another map of the same
 * memory is not refused meanwhile, and would mix both messages.
 *
 * Memory of a device is written after the work that its stream in `map` held
 * before. This call also waits for that work, within timeout_ms, and drives the
 * worker meanwhile. With TIMED_OUT, or the error of a stream, the message
 * stays.
 *
 * Errors: those of tmsg_endpoint_recv(), and:
 *   INVALID_PARAM - a tensor differs; two tensors of `map` overlap, which the
 *     error names; map is NULL
 *   UNSUPPORTED - a tensor of `map` cannot be received into
 *   BUSY - `map` is being sent or belongs to a message, or another map is
 *     waited with for this endpoint
 *   NO_MEMORY
 *   CORRUPT - the checksums of a loan do not match the copy: its sender wrote
 *     there after it had come. The message is lost. */
TMSG_API tmsg_status_t tmsg_endpoint_recv_into(tmsg_endpoint_t *endpoint,
                                               const tmsg_map_t *map,
                                               int timeout_ms,
                                               tmsg_message_t **message_p);

/* Closes in order. No more sends are accepted. Sends that have begun are
 * finished, and what the peer has sent still arrives. Then the peer sees
 * CLOSED, and the request (which may be NULL) ends when the peer has confirmed.
 * A sender closes before it exits, to be sure that its last message has
 * arrived. Closing again gives a further request on the same end.
 *
 * An endpoint that is not connected is connected first. If it waits for its
 * peer without a limit (TMSG_ENDPOINT_WAIT, give_up_ms), so does its close;
 * tmsg_endpoint_abort() or tmsg_endpoint_destroy() end both.
 *
 * The peer may wait for this side to take what it has sent: with
 * TMSG_SEND_ACKED, as a publisher, or with more messages than the queue has
 * room for. Then the close waits too: go on pulling, or call
 * tmsg_endpoint_discard() first.
 * Errors here:
 *   NO_MEMORY
 *   CLOSED - its worker is gone
 * Errors of the operation: the endpoint's own if it has failed, and:
 *   PEER_LOST
 *   CANCELED - the endpoint was destroyed meanwhile */
TMSG_API tmsg_status_t tmsg_endpoint_close(tmsg_endpoint_t *endpoint,
                                           tmsg_request_t **request_p);

/* Closes as tmsg_endpoint_close() does, and waits until the peer has confirmed,
 * for at most timeout_ms (0: looks once; -1: no limit). It drives the worker
 * meanwhile. The handle still has to be destroyed.
 * Errors: all that tmsg_endpoint_close() and its operation may end with, and:
 *   WOULD_BLOCK - in a callback of this worker; the endpoint stays open
 *   TIMED_OUT - the endpoint has not ended in time. The close goes on: call
 *     this again to wait on, or end the endpoint with
 *     tmsg_endpoint_destroy() */
TMSG_API tmsg_status_t tmsg_endpoint_close_wait(tmsg_endpoint_t *endpoint,
                                                int timeout_ms);

/* Takes no more messages from the peer. Messages that wait to be pulled, and
 * those that still come, are dropped. Their senders are told: a send with
 * TMSG_SEND_ACKED ends with REFUSED, and a publisher counts the message as
 * failed. `refused_messages` counts them here. Sends, calls and streams go on.
 * Receives here find nothing until the endpoint ends.
 *
 * A receiver that leaves calls this and then tmsg_endpoint_close(), which then
 * ends promptly. A message on its way is dropped once all of it is here. If it
 * waits for memory (held_bytes), first destroy messages that you keep, or end
 * with tmsg_endpoint_abort(). From any thread that may use the endpoint.
 * Errors:
 *   INVALID_PARAM - the worker has a message handler
 *   CLOSED - its worker is gone */
TMSG_API tmsg_status_t tmsg_endpoint_discard(tmsg_endpoint_t *endpoint);

/* Closes at once and says why. This side's operations end with CANCELED; sends
 * that UCX still reads, when it has finished. The peer's operations and its
 * endpoint end with `status`, a failure other than CLOSED and DROPPED, and with
 * the words `why` (UTF-8, cut at 200 bytes). Messages of the peer that are on
 * their way are lost.
 *
 * The status and the words travel over the bootstrap socket. A peer by blob or
 * ucx:// has no such socket and sees PEER_LOST, as does a peer that they do not
 * reach. The handle still has to be destroyed. on_closed is not called. An
 * endpoint that has ended stays as it was. Errors:
 *   INVALID_PARAM - a status that is not allowed
 *   CLOSED - its worker is gone */
TMSG_API tmsg_status_t tmsg_endpoint_abort(tmsg_endpoint_t *endpoint,
                                           tmsg_status_t status,
                                           const char *why);

/* Frees the handle. An endpoint that is still open is closed at once: pending
 * operations end with CANCELED, and the peer sees PEER_LOST. Call this before
 * the worker is destroyed, which frees the endpoint too. NULL is allowed. */
TMSG_API void tmsg_endpoint_destroy(tmsg_endpoint_t *endpoint);

/* Called once when an endpoint has ended. The peer closed it (CLOSED), it
 * failed (PEER_LOST, ...), or the peer gave it up and says why ("refused by the
 * peer: ...", with NO_MEMORY, MALFORMED, LIMIT_EXCEEDED, ...). Not called if
 * this side closed it. Called on the thread that drives the worker, with no
 * lock held. The handle still has to be destroyed, which is allowed here. */
typedef void (*tmsg_closed_fn)(void *arg, tmsg_endpoint_t *endpoint,
                               tmsg_status_t status, const char *error);

/* Called when a peer has come: the on_peer of listeners (listener.h) and of
 * publishers (publisher.h), whose on_lost is a tmsg_closed_fn. Called on the
 * thread that drives the worker, with no lock held. The endpoint's owner stays
 * the same. */
typedef void (*tmsg_peer_fn)(void *arg, tmsg_endpoint_t *endpoint);

/* Sets the function that is called when this endpoint has ended; NULL: none. If
 * it has ended already, the call comes with the next progress. */
TMSG_API void tmsg_endpoint_on_closed(tmsg_endpoint_t *endpoint,
                                      tmsg_closed_fn on_closed, void *arg);

/* What happens to an endpoint's session. */
typedef enum {
    TMSG_SESSION_AWAY = 0, /* the connection broke; the words say why */
    TMSG_SESSION_BACK = 1, /* the same session goes on: nothing is lost */
    TMSG_SESSION_NEW = 2   /* a new session has begun, with another process or
                            * with a peer that had dropped the old session. What
                            * was under way has ended. The words say with whom,
                            * and how much that was */
} tmsg_session_event_t;

/* Called when the connection of an endpoint with `reconnect`, or of an accepted
 * endpoint whose session is kept, breaks and comes back. The calls come in
 * order, on the thread that drives the worker, with no lock held. NEW comes
 * after the ends of what was under way, and before anything of the new session.
 * An event for which there is no memory is left out; only the log has it.
 * The words are valid during the call. It may do what on_closed may. */
typedef void (*tmsg_session_fn)(void *arg, tmsg_endpoint_t *endpoint,
                                tmsg_session_event_t event, const char *words);

/* Sets that function from now on; NULL: none. An endpoint without a session has
 * nothing to tell. */
TMSG_API void tmsg_endpoint_on_session(tmsg_endpoint_t *endpoint,
                                       tmsg_session_fn on_session, void *arg);

/* Returns OK while the endpoint is open, IN_PROGRESS while it connects or waits
 * to come back, CLOSED after an orderly end, or its error. */
TMSG_API tmsg_status_t tmsg_endpoint_status(const tmsg_endpoint_t *endpoint);

/* Returns the words for that status, with the name of the peer; "" while all is
 * well. The words of an endpoint that has ended live as long as the endpoint.
 * The words of one that waits to come back ("...: reconnecting, attempt 3; why
 * the connection broke: ..."), or until somebody listens ("...: nobody has
 * listened for 2.0 s: ..."), live until this thread asks again. */
TMSG_API const char *tmsg_endpoint_error(const tmsg_endpoint_t *endpoint);

/* Returns the peer in words: "tcp://10.0.0.7:4000 (pid 4711 on node7)". Valid
 * as long as the endpoint; after a new session has begun, until this thread
 * asks again. */
TMSG_API const char *tmsg_endpoint_peer(const tmsg_endpoint_t *endpoint);

/* Returns the principal of the key that the peer proved: the name that this key
 * has in the keyring of this side. At tls:// it comes from the certificate
 * (tensormsg/tls.h). NULL if no key is asked for, or before the peer has proved
 * one, which it does before the endpoint is ready. The principal never changes.
 * Valid as long as the endpoint. */
TMSG_API const char *tmsg_endpoint_principal(const tmsg_endpoint_t *endpoint);

/* Measures the round trip to the peer's library, over the path of messages. The
 * peer's application takes no part; its worker has only to be driven. The
 * request ends when the answer is here. The time is in "round_trip_ns" of
 * tmsg_endpoint_describe(). One measurement is under way at a time: a further
 * call waits for the same one.
 * Errors here: the endpoint's own if it has failed, and:
 *   BUSY - the endpoint is not connected yet, or away
 *   UNSUPPORTED - an older peer, or ucx://
 *   CLOSED
 *   NO_MEMORY
 * Errors of the operation: those of the endpoint. PEER_LOST also if the
 * endpoint waits to come back: the answer went with the connection. */
TMSG_API tmsg_status_t tmsg_endpoint_ping(tmsg_endpoint_t *endpoint,
                                          tmsg_request_t **request_p);

/* Describes the connection as a JSON object. It says which peer, which
 * versions, and which transports carry it and why. Further keys:
 *  - "transport": which thresholds hold: shm, tcp, rdma or other
 *    (docs/reference/thresholds.md)
 *  - "bulk": whether large payloads go by a connection of their own: "stands",
 *    "dialled", "lost" or "none". If TCP carries the messages, "none" has the
 *    reason at the side that connected. "ring": they go by shared memory
 *  - "bulk_connections": how many such connections there are
 *  - "fastbox": whether small messages go past UCX: "stands", "offered", or
 *    "none" and perhaps why
 *  - "reads": whether this side reads large payloads out of the peer's memory:
 *    "yes", or "none" and perhaps why
 *  - "device_ipc": whether tensors of a device go by device memory that one
 *    side opens of the other: likewise (docs/reference/domains.md)
 *  - "shared_memory": whether a peer can give back pages of the memory of rings
 *    and fast boxes, which may be a signal here: "sealed" (it cannot), or
 *    "none" (none is in use)
 *  - "unacknowledged_ms": for how long the peer's host has not acknowledged
 *    what a TCP connection sent to it, though it was sent again; 0: nothing
 *    waits so
 *  - "queue": how many sends may wait, under which policy, and how often a send
 *    found no room
 *  - "reconnects": true if both sides keep the session; "reconnected": how
 *    often it came back; "sessions": how many sessions there were, with this
 *    one. The counters are of this one.
 *  - "channels": counters of each channel, if others than 0 were used
 *
 * Counters, among others:
 *  - "waiting_messages": sends that wait for the connection, or for the peer to
 *    take what it has
 *  - "canceled_messages", "timed_out_messages": of this side
 *  - "aborted_messages": of the peer
 *  - "sent_by_schema": messages whose names and shapes went as a number
 *  - "sent_by_template", "received_by_template": small messages that were like
 *    the last one and took a shorter path
 *  - "sent_by_bulk", "received_by_bulk": messages by the bulk stream
 *  - "sent_by_fastbox", "received_by_fastbox": messages by a fast box
 *  - "sent_fragment_bytes", "received_fragment_bytes": bytes of fragments,
 *    which tell how far a large message has got
 *  - "received_in_place": messages whose tensors lie where UCX received them
 *  - "device_tensors": tensors of devices, by the path that they took
 *    (docs/reference/domains.md)
 *  - "deferred_payloads": payloads that waited here, as the peer allowed no
 *    more bytes to be sent ahead
 *
 * Histograms are objects of "count", "mean", "p50", "p90", "p99", "most" and
 * "buckets" (pairs: the least value of a bucket, and how many are in it; a
 * bucket is a quarter of a power of two):
 *  - "sent_sizes", "received_sizes": payloads in bytes
 *  - "send_ns": time of sends until their memory was free
 *  - "ack_ns": time of sends until the peer's application had an ACKED message.
 *    It is taken of one message in 16, and of all messages from 64 KiB on
 *  - "round_trip_ns": tmsg_endpoint_ping()
 *
 * *json_p is freed with tmsg_string_free().
 * Errors:
 *   NO_MEMORY
 *   CLOSED - its worker is gone */
TMSG_API tmsg_status_t tmsg_endpoint_describe(const tmsg_endpoint_t *endpoint,
                                              char **json_p);

/* A pointer of the application, NULL at first. */
TMSG_API void tmsg_endpoint_set_user(tmsg_endpoint_t *endpoint, void *user);
TMSG_API void *tmsg_endpoint_user(const tmsg_endpoint_t *endpoint);

#ifdef __cplusplus
}
#endif

#endif
