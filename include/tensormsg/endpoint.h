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

/* What carries the messages of a connection. A side that has no wish (AUTO)
 * takes what the other asks for, and UCX if neither asks; if one asks for UCX
 * and one for a stream, the connection is refused with INCOMPATIBLE. */
typedef enum {
    TMSG_CARRIER_AUTO = 0,
    TMSG_CARRIER_UCX = 1, /* RDMA, shared memory, or UCX's TCP */
    /* TCP connections of this library (of unix:// a Unix socket), all of them
     * to the listener's port: the peer meets no port of UCX. For tcp:// and
     * unix://. See docs/wire/connection.md, "The stream carrier" */
    TMSG_CARRIER_STREAM = 2
} tmsg_carrier_t;

/* What an endpoint that connects may be asked for. */
enum {
    /* Waits until somebody listens there. Until connect_timeout_ms has passed
     * (-1: without limit) it dials again, after 10 ms at first and 250 ms at
     * most, while nobody listens, the host's name is not known, or the listener
     * goes away before the connection stands. A refusal (a key, a version) ends
     * it at once. In the end it fails with the status of the last attempt, and
     * with words that say how long nobody listened. For tcp://, tls:// and
     * unix://.
     */
    TMSG_ENDPOINT_WAIT = 1 << 0,

    /* With reconnect: the endpoint ends with PEER_LOST when the process that it
     * was connected to is gone, instead of beginning a new session with the
     * process that comes after it. */
    TMSG_ENDPOINT_SAME_PROCESS = 1 << 1
};

/* What this side asks of the other, should that publish to it (publisher.h). */
enum {
    TMSG_SUBSCRIBE_NEWEST = 1 << 0 /* the newest map alone, not those before */
};

/* How an endpoint comes back by itself after its connection broke. While both
 * processes live (a cable that was out, a restarted network, a proxy that went
 * away, a peer that stood still for too long) the same session goes on; the
 * listener has to keep its side meanwhile: TMSG_LISTENER_PARAM_RESUME. Where
 * the peer was restarted, or keeps no session, a new session begins. In a
 * field, 0 is its default.
 *
 * Until it is back, or has given up, tmsg_endpoint_status() is IN_PROGRESS,
 * with words from tmsg_endpoint_error(); sends wait.
 *
 * The same session: a send with TMSG_SEND_ACKED that was under way is sent
 * again unless the peer has it: it is neither lost nor delivered twice, and
 * keeps its place in the order. Its data stays borrowed until the peer has
 * confirmed. A send without it is delivered at most once: one that had ended
 * here, and was still under way, is lost, which the receiver's on_refused
 * (tensormsg/worker.h) tells in its turn as PEER_LOST, and "lost_messages" of
 * its tmsg_endpoint_describe() counts.
 *
 * A new session begins if another process answers, if the peer has let go of
 * the old session or never kept one, or if the peer shuts down: it ended the
 * connection with UNAVAILABLE, or closed it in order after its server was
 * drained (tmsg_server_drain()). The handle stays the same. Of what was under
 * way:
 *  - sends and calls that still waited here go to the new process;
 *  - sends that were handed over and not confirmed end with PEER_LOST: whether
 *    the old process took them is not known;
 *  - calls that were handed over end with PEER_LOST, and
 *    tmsg_call_may_have_run() is 1; a call with retries that is idempotent is
 *    made again (tensormsg/call.h);
 *  - streams, fetches and the calls of the old process end with PEER_LOST;
 *  - messages that had arrived whole can still be received, and come first;
 *  - subscriptions go on, of this side at the peer (it subscribes again) and of
 *    the peer at publishers of this side (which get the maps that are kept);
 *  - with keys, the new process has to prove the principal of the old one:
 *    else the endpoint ends with INSECURE.
 * tmsg_endpoint_on_session() tells of it. With TMSG_ENDPOINT_SAME_PROCESS the
 * endpoint ends with PEER_LOST instead.
 *
 * It does not come back after the orderly end, nor after another error than
 * these (REFUSED, INSECURE, INCOMPATIBLE, MALFORMED, ...), nor before it has
 * been connected once. */
typedef struct tmsg_reconnect {
    int32_t first_backoff_ms; /* until the first attempt; each further one
                               * waits twice as long as the one before, all
                               * less a random part, at most half; default
                               * 100 */
    int32_t most_backoff_ms;  /* but no longer than this; default 5000 */
    int32_t give_up_ms;       /* from the break on; -1: never; default 60000 */
} tmsg_reconnect_t;

typedef struct tmsg_endpoint_params {
    uint64_t field_mask;        /* TMSG_ENDPOINT_PARAM_*; unset: defaults */
    int32_t connect_timeout_ms; /* resolving, connecting and the hello
                                 * together, of each attempt; default 10000.
                                 * Of several addresses of a host, the next
                                 * one is dialled where one has not answered
                                 * for a quarter of it.
                                 * A listener without a free place is dialled
                                 * again until then; the endpoint then ends
                                 * with BUSY instead of TIMED_OUT. With
                                 * TMSG_ENDPOINT_WAIT the limit of all attempts
                                 * together; -1: none, and 10000 for each */
    const char *devices; /* that UCX may use for this connection, "eth1" or
                          * "eth1,mlx5_0:1", 63 bytes at most; default NULL:
                          * the one of the address at this end. For tcp://
                          * and blobs. See docs/how-to/nothing-arrives.md */
    uint32_t subscribe;  /* TMSG_SUBSCRIBE_*; default 0 */
    tmsg_reconnect_t reconnect; /* default: the end when it breaks */
    tmsg_keyring_t *keyring; /* that the listener has to prove a key of, and of
                              * which this side proves those that come first,
                              * 16 at most (tensormsg/key.h). Default that of
                              * the context; NULL: no key. Peers by ucx://
                              * cannot prove one */
    uint32_t flags;          /* TMSG_ENDPOINT_*; default 0 */
    int32_t carrier;         /* tmsg_carrier_t; default that of the
                              * configuration, which is AUTO */
    tmsg_tls_t *tls;         /* by which both sides of tls:// prove who they are
                              * (tensormsg/tls.h). Default NULL: by the
                              * keyring, of which the first key is proved */
} tmsg_endpoint_params_t;

/* Starts to connect to a listener and returns at once. `url` is
 * "tcp://host:port" (a name, an IPv4 address, or an IPv6 address in brackets,
 * with its device where it is link-local: [fe80::1%eth0]; "host:port" alone
 * means tcp), "tls://host:port", all of which is encrypted, "unix:///path",
 * "unix://@name" (an abstract socket: REFUSED if another user listens), or
 * "ucx://host:port" for a peer that uses UCXX (docs/how-to/ucxx.md: maps of one
 * tensor, nothing ACKED). Sends may follow immediately: they wait for the
 * connection, and fail with its error if it cannot be made. To wait for it, see
 * tmsg_endpoint_ready(). *params (NULL: defaults) is copied. The caller frees
 * *endpoint_p with tmsg_endpoint_destroy(). Errors here: INVALID_PARAM (the
 * URL, a field, tls:// with neither `tls` nor a keyring), NOT_FOUND (a device;
 * those that are here are named), UNSUPPORTED (reconnect to a ucx:// peer, a
 * key, or to wait), NO_MEMORY. Errors of the connection: NOT_FOUND (host),
 * UNREACHABLE, TIMED_OUT, REFUSED (also for want of a key that the listener
 * knows), INSECURE (the listener did not prove a key of the keyring, or by its
 * certificate that it is the one that is meant), CORRUPT (somebody changed what
 * it said), INCOMPATIBLE (both versions are named), PEER_LOST. */
TMSG_API tmsg_status_t tmsg_endpoint_connect(
    tmsg_worker_t *worker, const char *url,
    const tmsg_endpoint_params_t *params, tmsg_endpoint_t **endpoint_p);

/* The same, to the blob of a listener that was carried here by a rendezvous
 * of your own (tmsg_listener_blob()). `blob` is copied. With a keyring nothing
 * in it is believed that a key of it has not proved; without one it is trusted
 * no more than its checksum allows: see docs/understand/security.md. Errors
 * here also: MALFORMED, INCOMPATIBLE, REFUSED (its listener asks for a key, and
 * there is none), INSECURE (it asks for none, or for others), UNSUPPORTED
 * (reconnect, or to wait). A listener whose keyring has changed since does not
 * answer: TIMED_OUT; of one in this process that is gone that is known at once:
 * PEER_LOST. */
TMSG_API tmsg_status_t tmsg_endpoint_connect_blob(
    tmsg_worker_t *worker, const void *blob, size_t blob_bytes,
    const tmsg_endpoint_params_t *params, tmsg_endpoint_t **endpoint_p);

/* Gives a request that ends when the endpoint is connected, or connected again,
 * or has failed. An accepted endpoint is connected from the start. Errors:
 * NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_endpoint_ready(tmsg_endpoint_t *endpoint,
                                           tmsg_request_t **request_p);

enum {
    TMSG_SEND_ACKED = 1 << 0, /* done when the peer's application has it */

    /* The same, with a checksum of each tensor (XXH3, 64 bit), which the peer
     * compares before its application gets the message: a mismatch ends the
     * send with CORRUPT, naming the tensor, and the message is not delivered.
     * Both sides read every byte once more, on the thread that progresses; of
     * device memory it is copied out for that, so that such a message may wait
     * in the send queue (UNSUPPORTED with TMSG_SEND_TRY). A peer that cannot
     * check them fails the send with UNSUPPORTED. */
    TMSG_SEND_VERIFY = 1 << 1,

    /* Delivered as soon as it is whole, whatever is before it on its channel;
     * it may also come in order. It takes its turn in this side's queue, and a
     * credit, as all messages do. */
    TMSG_SEND_UNORDERED = 1 << 2,

    /* WOULD_BLOCK, and nothing is sent, unless it can go at once: the
     * connection stands, the peer takes one more, none waits before it. */
    TMSG_SEND_TRY = 1 << 3,

    /* UNSUPPORTED, and nothing is sent, if a tensor has strides for which it
     * would have to be packed, which takes time and memory; it is named. Its
     * strides are kept, else: what is in C order, a permutation of that, or
     * broadcast. For a ucx:// peer all but C order is packed. */
    TMSG_SEND_NO_PACK = 1 << 4,

    /* A tensor that would have to be packed travels as its span instead, all
     * memory from its lowest element to its highest, and arrives with the
     * strides that it has here, negative ones and those by which elements
     * overlap among them. What lies in its gaps is read, and sent: the peer
     * gets it, so it must be memory that may be read, and nothing that the peer
     * is not to see. A peer of an older version, or of ucx://, gets it packed,
     * unless TMSG_SEND_NO_PACK is given, too, which then fails with
     * UNSUPPORTED. See docs/reference/strides.md for when it
     * pays. */
    TMSG_SEND_KEEP_STRIDES = 1 << 5,

    /* The peer reads the tensors in this process's memory instead of getting a
     * copy, where that can be: on a connection of unix://, to a worker that
     * borrows (TMSG_WORKER_BORROW), for `shm.lend_bytes` or more. Tensors that
     * fill blocks of tmsg_shareable_alloc() are lent where they lie; others are
     * copied once, into memory of the library's. Where the message cannot be
     * lent it goes as without this flag; tmsg_endpoint_describe() says why.
     * The send ends as ever. on_release comes, and the map is let go, when the
     * peer has given all of it back; until then nothing may write to tensors
     * that are lent where they lie. If the connection ends before, that is when
     * the peer's process has ended, or this worker. A block of
     * tmsg_shareable_alloc() is lent as a whole. See docs/reference/loans.md.
     */
    TMSG_SEND_LEND = 1 << 6
};

/* What a receiver does that cannot place a tensor in memory of the kind it
 * came from: put it in host memory, or fail the message at both ends. */
typedef enum {
    TMSG_POLICY_HOST_FALLBACK = 0,
    TMSG_POLICY_STRICT = 1
} tmsg_policy_t;

/* How a message's tensors travel, which the receiver cannot tell; where the
 * automatic choice changes from one to the other is in
 * docs/reference/thresholds.md. A way that cannot be taken
 * (fragments to an older peer, say) is taken as far as it can. */
typedef enum {
    TMSG_WAY_AUTO = 0,     /* by sizes and by the endpoint's transport */
    TMSG_WAY_GATHER = 1,   /* all are copied into one buffer first */
    TMSG_WAY_SCATTER = 2,  /* as one list, each from where it lies */
    TMSG_WAY_FRAGMENTS = 3 /* as messages of their own, into their places */
} tmsg_way_kind_t;

/* Whether what is in no fragment is sent at once, into memory of the receiver's
 * UCX, or waits until the receiver has found memory and fetches it there. */
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
    int32_t timeout_ms; /* above 0: how long the whole operation may take, from
                         * this call on: to wait, to travel and, if asked, to
                         * be acknowledged; -1, the default: no limit */
    tmsg_release_fn on_release; /* default none; see below */
    void *on_release_arg;
    uint16_t channel; /* default 0; below what the peer takes, usually 64 */
} tmsg_send_params_t;

/* Sends a map. Messages on one channel of an endpoint arrive in the order of
 * these calls, each whole and once, or not at all. Those on different channels
 * do not wait for each other: each channel has an order, a queue and credits of
 * its own, made when it is first used. Returns at once, unless the endpoint's
 * queue is full and blocks (tmsg_endpoint_set_queue()); the operation ends
 * when the map's tensors may be reused or freed, and with TMSG_SEND_ACKED or
 * TMSG_SEND_VERIFY when the peer's application has taken the message. Until
 * then the caller keeps borrowed data as it is; the map itself may be destroyed
 * at any time, and a received one with its message, so that it can be sent on.
 * A tensor that is neither in C order nor a permutation of it is packed on the
 * way, or refused (TMSG_SEND_NO_PACK), or sent with all that is between its
 * elements (TMSG_SEND_KEEP_STRIDES).
 *
 * on_release, where it is given, is called once when no byte of what the map
 * borrows can be read any more: before on_done, and long before it where
 * that waits for an acknowledgement; on the thread that progresses, with no
 * lock held, where it may do what on_done may. It is not called where
 * this function fails. When timeout_ms has passed the operation is given up as
 * by tmsg_request_cancel(), and ends with TIMED_OUT.
 *
 * `params` may be NULL. With request_p NULL nobody waits (and a failure
 * shows only in on_done and the log); else *request_p is the caller's.
 * Errors here: INVALID_PARAM, UNSUPPORTED (memory of an unknown kind; a channel
 * that the peer does not take, which is any but 0 of an older or a ucx:// peer;
 * what else a ucx:// peer cannot take; TMSG_SEND_NO_PACK), LIMIT_EXCEEDED (the
 * peer's limits), BUSY (a full queue that rejects), WOULD_BLOCK (TMSG_SEND_TRY;
 * a full queue that blocks, in a callback), TIMED_OUT (waiting for room),
 * CLOSED, NO_MEMORY, and the endpoint's own where it has failed. Errors of the
 * operation: PEER_LOST, REFUSED, LIMIT_EXCEEDED, UNSUPPORTED, CORRUPT,
 * IO (a tensor's memory cannot be read to its end; names the tensor; where the
 * processor copies it, that is SIGSEGV or SIGBUS),
 * TIMED_OUT, CANCELED, DROPPED, CLOSED. */
TMSG_API tmsg_status_t tmsg_endpoint_send(tmsg_endpoint_t *endpoint,
                                          const tmsg_map_t *map,
                                          const tmsg_send_params_t *params,
                                          tmsg_request_t **request_p);

/* Sends a map as tmsg_endpoint_send() does with TMSG_SEND_ACKED, and waits
 * until the peer's application has taken the message. It drives the worker
 * meanwhile. timeout_ms is the send's (above 0; -1: no limit), so that
 * `params`, which may be NULL, must not have TMSG_SEND_PARAM_TIMEOUT. When the
 * time is up, the send is given up as by tmsg_request_cancel().
 *
 * When this returns, with whatever status, the data of the map are the caller's
 * again (those that are lent with TMSG_SEND_LEND: when on_release has run). So
 * after timeout_ms this may wait on until no byte of them can be read any more:
 * usually one round trip; if the peer has stopped, until the connection has
 * ended. Errors:
 *   WOULD_BLOCK - in a callback of this worker; nothing was sent
 *   INVALID_PARAM - also where `params` have a timeout_ms
 *   TIMED_OUT - the peer's application has not taken the message in time; it
 *     may have taken it just before
 *   CLOSED - also where another thread destroyed the worker: the data are free
 *     when tmsg_worker_destroy() has returned
 *   and all that tmsg_endpoint_send() and its operation may end with. */
TMSG_API tmsg_status_t tmsg_endpoint_send_wait(tmsg_endpoint_t *endpoint,
                                               const tmsg_map_t *map,
                                               const tmsg_send_params_t *params,
                                               int timeout_ms);

/* Says how much may wait to be sent on this endpoint, and what becomes of the
 * rest: from the next send on, and whether it was dialled or accepted. Fields
 * that are not set, or all with NULL, are as its worker was made. *params is
 * copied. Errors: INVALID_PARAM, CLOSED (its worker is gone). */
TMSG_API tmsg_status_t tmsg_endpoint_set_queue(
    tmsg_endpoint_t *endpoint, const tmsg_queue_params_t *params);

/* Pulls the oldest message of this endpoint, as tmsg_worker_recv() does of
 * all. Errors: as there, and once all has been pulled CLOSED or the
 * endpoint's own error. */
TMSG_API tmsg_status_t tmsg_endpoint_recv(tmsg_endpoint_t *endpoint,
                                          int timeout_ms,
                                          tmsg_message_t **message_p);

/* Whether tmsg_endpoint_recv() would answer at once, as nothing has to come
 * first: 1 where a message waits to be pulled, or the endpoint has ended, 0
 * where neither is. For who drives a worker of many endpoints and asks, when
 * tmsg_worker_arrivals() has changed, of which something has come. Drives
 * nothing. From any thread. */
TMSG_API int tmsg_endpoint_readable(const tmsg_endpoint_t *endpoint);

/* How many of its messages wait to be pulled. Of an endpoint that has ended no
 * more come: where this is 0 it may be destroyed, and none is lost. 0 with a
 * message handler. Drives nothing. From any thread. */
TMSG_API size_t tmsg_endpoint_waiting(const tmsg_endpoint_t *endpoint);

/* As tmsg_endpoint_recv(), with the tensors that are in `map`, too, received
 * into the memory of those: for a loop that gets the same map for ever, without
 * an allocation and, where UCX can do it (tensormsg/incoming.h), without a
 * copy. What is in `map` alone keeps its data; what is in the message alone
 * goes where it would go without; what on_header has placed stays there. The
 * message's map says where each tensor is. To get the data alone, which costs
 * less, pass NULL as message_p: the message ends before this returns.
 *
 * A message that arrives while this waits is received into `map` at once, one
 * that was here before is copied into it. If a tensor has another dtype, shape
 * or order of elements than the one of its name in `map`, this fails with
 * INVALID_PARAM and tells what came and what `map` has; the message stays where
 * it is and is the next to be received, and its sender hears nothing. A
 * transfer that breaks off may have written into `map`.
 *
 * The data of `map` are CPU memory, or a device's that a domain holds, and lie
 * in some order of their dimensions without gaps, each element in its own
 * place, and no two tensors share a byte: that is looked for once, until `map`
 * changes. A message's tensor that is broadcast (a stride is 0), or came with
 * gaps (TMSG_SEND_KEEP_STRIDES), is written out into them, in whatever order
 * they are, by copying; where it or its place is not CPU memory this fails with
 * UNSUPPORTED as with another shape, and the message stays. They are lent until
 * this returns anything but CANCEL_PENDING, and where it returns a message
 * until that is destroyed; until then `map` answers BUSY to changes, and
 * neither this nor another receive takes it. With CANCEL_PENDING timeout_ms has
 * passed and a message is under way into `map`, of which UCX cannot be made to
 * let go: the memory stays lent until a further call with this map returns
 * something else, or the message is received by another call and destroyed. A
 * peer that dies ends that, too. Until then the message may be written into
 * that memory: a receive by another map of the same bytes is not refused, and
 * would get both.
 *
 * A device's memory is written when the work is done that its stream in `map`
 * held before. Within timeout_ms this waits for that, too, and drives the
 * worker meanwhile; with TIMED_OUT, or the error of a stream, the message stays
 * where it is.
 *
 * Errors: as tmsg_endpoint_recv(), and INVALID_PARAM (a tensor that differs,
 * two of `map` that overlap, both named; map is NULL), UNSUPPORTED (a tensor of
 * `map` that cannot be received into), BUSY (`map` is being sent, belongs to a
 * message, or another map is waited with for this endpoint), NO_MEMORY, CORRUPT
 * (what was copied of a loan is not what its checksums say: its sender wrote
 * there after it had come; the message is lost). */
TMSG_API tmsg_status_t tmsg_endpoint_recv_into(tmsg_endpoint_t *endpoint,
                                               const tmsg_map_t *map,
                                               int timeout_ms,
                                               tmsg_message_t **message_p);

/* Closes in order: no more sends are taken; those begun are finished and what
 * the peer has in flight to us still arrives; then the peer sees CLOSED. The
 * request (which may be NULL) ends when the peer has confirmed. Close is how a
 * sender makes sure that the last message left the machine before it exits.
 * Closing again gives a further request on the same end. An endpoint that is
 * not connected is connected first: where it waits without a limit
 * (TMSG_ENDPOINT_WAIT, give_up_ms), so does its close, which
 * tmsg_endpoint_abort() or tmsg_endpoint_destroy() end. The end waits for this
 * side to take what the peer has sent, where the peer waits for that
 * (TMSG_SEND_ACKED, a publisher, more messages than the queue has room for): go
 * on pulling, or call tmsg_endpoint_discard() first. Errors here:
 * NO_MEMORY, CLOSED (its worker is gone). Errors of the operation: PEER_LOST,
 * CANCELED (destroyed meanwhile), and the endpoint's own where it has
 * failed. */
TMSG_API tmsg_status_t tmsg_endpoint_close(tmsg_endpoint_t *endpoint,
                                           tmsg_request_t **request_p);

/* Closes as tmsg_endpoint_close() does, and waits until the peer has confirmed,
 * up to timeout_ms (0: looks once; -1: no limit). It drives the worker
 * meanwhile. The handle still has to be destroyed. Errors:
 *   WOULD_BLOCK - in a callback of this worker; the endpoint stays open
 *   TIMED_OUT - it has not ended in time. The close goes on: call this again to
 *     wait on, or end the endpoint by tmsg_endpoint_destroy()
 *   and all that tmsg_endpoint_close() and its operation may end with. */
TMSG_API tmsg_status_t tmsg_endpoint_close_wait(tmsg_endpoint_t *endpoint,
                                                int timeout_ms);

/* Takes no more messages from the peer: those that wait to be pulled, and those
 * that still come, are dropped. Their senders are told so: a send with
 * TMSG_SEND_ACKED ends with REFUSED, and a publisher counts the message as
 * failed. `refused_messages` counts them here. Sends, calls and streams go on.
 * A receiver that leaves calls this and then tmsg_endpoint_close(), which so
 * ends promptly. A message on its way is dropped once all of it is here: where
 * it waits for memory (held_bytes), first destroy messages that you keep, or
 * end by tmsg_endpoint_abort(). Receives here find nothing until the endpoint
 * ends. Any thread that may use the endpoint. Errors: INVALID_PARAM (the worker
 * has a message handler), CLOSED (its worker is gone). */
TMSG_API tmsg_status_t tmsg_endpoint_discard(tmsg_endpoint_t *endpoint);

/* Closes at once and says why: this side's operations end with CANCELED (sends
 * that UCX still reads, when it does not any more), the peer's, and
 * its endpoint, with `status`, a failure other than CLOSED and DROPPED, and
 * with the words `why` (UTF-8, cut at 200 bytes). They travel over the
 * bootstrap socket: a peer by blob or ucx:// has none and sees PEER_LOST, as
 * does one that they do not reach. What the peer had under way to here is lost.
 * The handle still has to be destroyed; on_closed is not called. An endpoint
 * that has ended stays as it was. Errors: INVALID_PARAM, CLOSED (its worker is
 * gone). */
TMSG_API tmsg_status_t tmsg_endpoint_abort(tmsg_endpoint_t *endpoint,
                                           tmsg_status_t status,
                                           const char *why);

/* Frees the handle. An endpoint that is still open is closed at once: pending
 * operations end with CANCELED, the peer sees PEER_LOST. To be called before
 * its worker is destroyed, which frees it too. NULL is allowed. */
TMSG_API void tmsg_endpoint_destroy(tmsg_endpoint_t *endpoint);

/* Called once when an endpoint has ended, closed by the peer (CLOSED), failed
 * (PEER_LOST, ...) or given up by the peer, which says why ("refused by the
 * peer: ...", with NO_MEMORY, MALFORMED, LIMIT_EXCEEDED, ...), but not when
 * this side closed it, on the thread that progresses, with no lock held. The
 * handle still has to be destroyed; doing so here is allowed. */
typedef void (*tmsg_closed_fn)(void *arg, tmsg_endpoint_t *endpoint,
                               tmsg_status_t status, const char *error);

/* Called when a peer is there: the on_peer of listeners (listener.h) and of
 * publishers (publisher.h), whose on_lost is a tmsg_closed_fn. On the thread
 * that progresses, with no lock held. The endpoint is whose it was. */
typedef void (*tmsg_peer_fn)(void *arg, tmsg_endpoint_t *endpoint);

/* Asks for that call; NULL takes it back. On an endpoint that has ended
 * already it comes with the next progress. */
TMSG_API void tmsg_endpoint_on_closed(tmsg_endpoint_t *endpoint,
                                      tmsg_closed_fn on_closed, void *arg);

/* What becomes of an endpoint's session. */
typedef enum {
    TMSG_SESSION_AWAY = 0, /* the connection broke; the words say why */
    TMSG_SESSION_BACK = 1, /* the same session goes on: nothing is lost */
    TMSG_SESSION_NEW = 2   /* a new session has begun, with another process or
                            * with a peer that had let go of the old session:
                            * what was under way has ended. The words say with
                            * whom, and how much that was */
} tmsg_session_event_t;

/* Called when the connection of an endpoint with `reconnect`, or of an accepted
 * endpoint whose session is kept, breaks and comes back: on the thread that
 * progresses, with no lock held, in order. NEW comes after the ends of what was
 * under way, and before anything that the new session brings. An event for
 * which there is no memory is left out, and the log alone tells of it. The
 * words are valid during the call. It may do what on_closed may. */
typedef void (*tmsg_session_fn)(void *arg, tmsg_endpoint_t *endpoint,
                                tmsg_session_event_t event, const char *words);

/* Asks for that call from now on; NULL takes it back. An endpoint that keeps no
 * session has none to tell of. */
TMSG_API void tmsg_endpoint_on_session(tmsg_endpoint_t *endpoint,
                                       tmsg_session_fn on_session, void *arg);

/* OK while it is open, IN_PROGRESS while it connects or is to come back,
 * CLOSED, or its error. */
TMSG_API tmsg_status_t tmsg_endpoint_status(const tmsg_endpoint_t *endpoint);

/* The words to that status, naming the peer; "" while all is well. Of an
 * endpoint that has ended they are valid as long as it is; of one that is to
 * come back ("...: reconnecting, attempt 3; why the connection broke: ..."), or
 * that waits until somebody listens ("...: nobody has listened for 2.0 s:
 * ..."), until this thread asks again. */
TMSG_API const char *tmsg_endpoint_error(const tmsg_endpoint_t *endpoint);

/* The peer in words, "tcp://10.0.0.7:4000 (pid 4711 on node7)". Valid as long
 * as the endpoint; of one that has begun a new session, until this thread asks
 * again. */
TMSG_API const char *tmsg_endpoint_peer(const tmsg_endpoint_t *endpoint);

/* Who the peer is: the principal of the key that it proved, by the name that
 * it has in the keyring of this side; NULL where no key is asked for, or as
 * long as it has proved none, which comes before the endpoint is ready. It does
 * not change any more. Valid as long as the endpoint. */
TMSG_API const char *tmsg_endpoint_principal(const tmsg_endpoint_t *endpoint);

/* Measures the way to the peer's library and back, over what carries messages,
 * and past its application, whose worker has only to be driven. The request
 * ends when the answer is here; the time is in "round_trip_ns" of
 * tmsg_endpoint_describe(). One is under way at a time: a further call waits
 * for the same. Errors here: BUSY (not connected yet, or away), UNSUPPORTED (an
 * older peer, or ucx://), CLOSED, NO_MEMORY, and its own where it has failed.
 * Errors of the operation: as of the endpoint; PEER_LOST also where that is to
 * come back: the answer went with the connection. */
TMSG_API tmsg_status_t tmsg_endpoint_ping(tmsg_endpoint_t *endpoint,
                                          tmsg_request_t **request_p);

/* Describes the connection as a JSON object: peer, versions, which transports
 * carry it and why, "transport": which thresholds hold for it (shm, tcp, rdma
 * or other, docs/reference/thresholds.md), "bulk": whether large
 * payloads go by a connection of their own ("stands", "dialled", "lost", or
 * "none", at the side that connected with the reason where TCP carries it) or
 * by rings of shared memory ("ring"), "bulk_connections": how many such
 * connections there are, "fastbox": whether small ones go past UCX ("stands",
 * "offered", or "none" and perhaps why), "reads": whether this side reads large
 * payloads out of the peer's memory ("yes", or "none" and perhaps why),
 * "device_ipc": whether tensors of a device go by device memory that one side
 * opens of the other (likewise; docs/reference/domains.md),
 * "shared_memory": whether a peer can give back pages of the memory of rings
 * and fast boxes, which may be a signal here ("sealed": it cannot; "none": none
 * is in use); "unacknowledged_ms": for how long the peer's host has not
 * acknowledged what was sent to it by a TCP connection, though it was sent
 * again (0: nothing waits so); and counters, among them "waiting_messages":
 * sends that wait for the connection, or for the peer to take what it has;
 * "queue": how many may, under which policy, and how often a send found no
 * room; "canceled_messages" and "timed_out_messages" of this side's,
 * "aborted_messages" of the peer's; "sent_by_schema": messages whose names and
 * shapes went by number; "sent_by_template" and "received_by_template": small
 * ones that were like the last one and took a short way; "sent_by_bulk" and
 * "received_by_bulk": those by the bulk stream; "sent_fragment_bytes" and
 * "received_fragment_bytes": bytes of fragments, which tell how far a large
 * message is that is under way; "sent_by_fastbox" and
 * "received_by_fastbox": those by a fast box; "received_in_place": those whose
 * tensors lie where UCX received them; "device_tensors": those of devices'
 * memory, by the path that they took (docs/reference/domains.md); "reconnects":
 * true where both sides keep the session, with the number of times that it came
 * back in "reconnected", and in "sessions" how many sessions there were, with
 * this one (the counters are of this one); and "deferred_payloads": those that
 * waited here, for the peer had let no more bytes be sent ahead. Where more
 * than channel 0 was used, "channels" counts for each. Histograms, objects of
 * "count", "mean", "p50", "p90", "p99", "most" and "buckets" (pairs of the
 * least value of a bucket and how many are in it; a bucket is a quarter of a
 * power of two), are those of payloads in bytes, "sent_sizes" and
 * "received_sizes"; of the time of sends, "send_ns" until their memory was free
 * and "ack_ns" until the peer's application had an ACKED one, which is taken of
 * one message in 16 and of all from 64 KiB on; and "round_trip_ns". *json_p is
 * freed with tmsg_string_free(). Errors: NO_MEMORY, CLOSED (its worker is
 * gone). */
TMSG_API tmsg_status_t tmsg_endpoint_describe(const tmsg_endpoint_t *endpoint,
                                              char **json_p);

/* A word of the application's own, NULL at first. */
TMSG_API void tmsg_endpoint_set_user(tmsg_endpoint_t *endpoint, void *user);
TMSG_API void *tmsg_endpoint_user(const tmsg_endpoint_t *endpoint);

#ifdef __cplusplus
}
#endif

#endif
