/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/call.h - calls: a map to a method of the peer, and its reply.
 *
 * A call sends a map to a method by its name, and gets a map back.
 *
 *     tmsg_endpoint_call(endpoint, "infer", map, NULL, &call);
 *     tmsg_call_wait(call, 1000);
 *     reply = tmsg_call_reply(call);
 *     tmsg_call_destroy(call); // and the reply
 */
#ifndef TENSORMSG_CALL_H
#define TENSORMSG_CALL_H

#include <stdint.h>

#include <tensormsg/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A call sends a map to a method of the peer's server (tensormsg/server.h) and
 * gets a map, or a failure. Either side of a connection may call the other,
 * with any number of calls under way at once. They are answered in any order.
 * Calls travel beside messages, in no order with them or with each other, and
 * use no credits of messages. See docs/reference/calls.md.
 *
 * Threads: as for a request. To wait and to cancel belong to the thread of the
 * worker (any thread, if it is shared). Any thread may ask for the outcome and
 * destroy the call, also after its worker is gone, which ends the call with
 * CANCELED. */
typedef struct tmsg_call tmsg_call_t;

enum { TMSG_METHOD_BYTES_MAX = 128 }; /* of a method's name */

/* Called once when the call has ended, unless it was destroyed before. It runs
 * on the thread that drives the worker, with no lock held. It may call the
 * library, but not wait in it. `call` is valid until it returns, and longer if
 * the caller kept its handle. */
typedef void (*tmsg_call_fn)(void *arg, tmsg_call_t *call);

enum {
    TMSG_CALL_PARAM_TIMEOUT = 1 << 0,
    TMSG_CALL_PARAM_ON_DONE = 1 << 1,
    TMSG_CALL_PARAM_ON_RELEASE = 1 << 2,
    TMSG_CALL_PARAM_REPLY_INTO = 1 << 3,
    TMSG_CALL_PARAM_FLAGS = 1 << 4,
    TMSG_CALL_PARAM_RETRY = 1 << 5
};

enum {
    TMSG_CALL_IDEMPOTENT = 1 << 0, /* it may run twice */
    /* The reply may come as read-only views of the server's memory, which stay
     * even if the server dies. It is such a loan if its handler lends it
     * (TMSG_SEND_LEND in tmsg_reply_params_t), the server knows of this flag,
     * and the connection passes descriptors (docs/reference/loans.md). Else,
     * and with reply_into, it is a copy. A worker with TMSG_WORKER_BORROW gets
     * loans without this flag. tmsg_call_reply_is_lent() tells. */
    TMSG_CALL_BORROW = 1 << 1,
    /* The tensors of `map` are lent, as with TMSG_SEND_LEND, if the server's
     * worker borrows. Then on_release may come after the reply: when the server
     * has given back its handles of the task. */
    TMSG_CALL_LEND = 1 << 2,
    /* The call waits for a server that is not ready: while the peer answers
     * UNAVAILABLE and no handler saw the call, it is made again, as below.
     * Calls with TMSG_CALL_PARAM_RETRY do so in any case. See "Waiting for a
     * server" in docs/reference/calls.md. */
    TMSG_CALL_WAIT = 1 << 3
};

/* A call with retries is made again after a failure that may pass:
 * RESOURCE_EXHAUSTED, UNAVAILABLE, NO_MEMORY or BUSY, or PEER_LOST if the
 * endpoint begins a new session (tmsg_reconnect_t). If no handler saw the call,
 * it is always made again. If it may have run, it is made again only if it may
 * run twice: the call is TMSG_CALL_IDEMPOTENT, or the server declares the
 * method TMSG_METHOD_IDEMPOTENT. After PEER_LOST the server must have declared
 * it before, in a reply to an earlier call with retries.
 *
 * Each attempt waits twice as long as the one before, minus a random part, at
 * most half. No attempt begins after the deadline, or without budget
 * (tmsg_endpoint_set_retry_budget()). If the server was not ready, so that the
 * attempt was answered UNAVAILABLE and no handler saw it, the attempt counts
 * neither in `attempts` nor in the budget. The call waits for such a server
 * until its deadline, or for a minute without one. The application sees the
 * last outcome only. A field that is 0 has its default. */
typedef struct tmsg_retry {
    uint32_t attempts;        /* with the first: 2 to 100; no default */
    int32_t first_backoff_ms; /* before the second; default 20 */
    int32_t most_backoff_ms;  /* default 1000 */
} tmsg_retry_t;

typedef struct tmsg_call_params {
    uint64_t field_mask;  /* TMSG_CALL_PARAM_*; unset: defaults */
    int32_t timeout_ms;   /* above 0: limit for the whole call from now on,
                           * connecting included; the server is told what is
                           * left. -1, the default: no limit */
    tmsg_call_fn on_done; /* default none */
    void *on_done_arg;
    tmsg_release_fn on_release; /* default none: called once, when no byte of
                                 * what `map` borrows can be read any more; as
                                 * in tmsg_send_params_t */
    void *on_release_arg;
    const tmsg_map_t *reply_into; /* default none: see below */
    uint32_t flags;               /* TMSG_CALL_*; default 0 */
    tmsg_retry_t retry; /* default: it is made once. With it `map` is lent, and
                         * answers BUSY to changes, until the call has ended */
} tmsg_call_params_t;

/* A reply can be received into the caller's memory, so that a loop of calls
 * allocates nothing. `reply_into` is a map whose tensors are that memory, as
 * for tmsg_endpoint_recv_into(). A tensor of the reply whose name it has goes
 * there, without a copy where UCX can do it. A tensor that comes with a stride
 * of 0 is written out there. Other tensors go where they would go otherwise. If
 * dtype, shape or order of elements differ, the call ends with INVALID_PARAM,
 * and the error names the tensor: the method has run, and its reply is lost.
 * The details of a failure are not received into it.
 *
 * The map's memory is lent from this call on, and the map returns BUSY to
 * changes and to another use like this. That ends when the call is destroyed.
 * If a reply is still being written there, which ends by itself, a call with
 * that map returns BUSY until then. The map itself may be destroyed at any
 * time: the release functions of its tensors tell when their memory is free.
 *
 * After a call that failed, or that you canceled or destroyed, the library may
 * still write the memory until then; at the latest until the connection has
 * ended. The library knows maps, not memory: it does not see that another map
 * has the same memory. A call with a second map of it may end with OK and have
 * bytes of the first reply. So use one map for it, or wait for the release
 * functions. */

/* Calls `method` of the peer with `map` (NULL: an empty one) and returns at
 * once. `method` is UTF-8, 1 to 128 bytes, and is copied. The memory of
 * the map's tensors is lent as to a send, until on_release, which comes before
 * the reply, except with TMSG_CALL_LEND. The map itself may be destroyed at any
 * time.
 *
 * With call_p NULL nobody waits; on_done reports the end. Else *call_p is the
 * caller's, freed with tmsg_call_destroy(). `params` may be NULL.
 * Errors here: the endpoint's own if it has failed, and:
 *   INVALID_PARAM
 *   UNSUPPORTED - an older peer; ucx://; a tensor of reply_into that cannot be
 *     received into; as for tmsg_endpoint_send()
 *   LIMIT_EXCEEDED - the map is beyond the peer's limits
 *   BUSY - the endpoint's send queue is full, whatever its policy; or
 *     reply_into is in use
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_endpoint_call(tmsg_endpoint_t *endpoint,
                                          const char *method,
                                          const tmsg_map_t *map,
                                          const tmsg_call_params_t *params,
                                          tmsg_call_t **call_p);

/* Returns IN_PROGRESS, or the outcome:
 *   OK - there is a reply
 *   TIMED_OUT - the time is up, here or at the server
 *   CANCELED - by tmsg_call_cancel(), or with the endpoint
 *   PEER_LOST, CLOSED - the connection ended first
 *   UNSUPPORTED - the peer is an older one
 *   NOT_FOUND - the server has no such method
 *   RESOURCE_EXHAUSTED - the server has as many calls as it takes
 *   UNAVAILABLE - there is no server, or it is not ready yet, or it is being
 *     shut down
 *   INTERNAL - the handler dropped the call without an answer
 *   APPLICATION - the handler says that it failed; tmsg_call_code() says how
 * It may also be another failure that the handler, or the way there and back,
 * gave. */
TMSG_API tmsg_status_t tmsg_call_status(const tmsg_call_t *call);

/* Drives the worker until the call has ended or timeout_ms has passed (0: looks
 * once; -1: no limit). Returns the outcome, whose words are also in
 * tmsg_error_message(). A timeout ends the wait, not the call.
 * Errors: all that the call may end with, and:
 *   TIMED_OUT - the call goes on
 *   WOULD_BLOCK - in a callback of that worker */
TMSG_API tmsg_status_t tmsg_call_wait(tmsg_call_t *call, int timeout_ms);

/* Gives the call up. It ends with CANCELED now, the server's handler is told,
 * and a reply that still comes is dropped. A call that has ended stays as it
 * was. */
TMSG_API void tmsg_call_cancel(tmsg_call_t *call);

/* Returns the reply, or the details that came with a failure; NULL if nothing
 * came. It may be read and sent on. Valid until the call is destroyed. */
TMSG_API const tmsg_map_t *tmsg_call_reply(const tmsg_call_t *call);

/* Returns 1 if the reply's tensors lie in memory that the peer lends, as
 * tmsg_message_is_lent() says of messages; else 0. The loan is given back when
 * the call is destroyed. */
TMSG_API int tmsg_call_reply_is_lent(const tmsg_call_t *call);

/* Gives a tensor of the reply back, as tmsg_message_give_back() does.
 * Errors: those, and:
 *   INVALID_PARAM - there is no reply */
TMSG_API tmsg_status_t tmsg_call_give_back(tmsg_call_t *call, size_t index);

/* Returns why the call failed, in one line that names the peer and the method;
 * "" while it goes on or if it succeeded. Valid until the call is destroyed. */
TMSG_API const char *tmsg_call_error(const tmsg_call_t *call);

/* Returns the number that the handler gave with its failure; else 0. */
TMSG_API int32_t tmsg_call_code(const tmsg_call_t *call);

/* For a call that failed: returns 0 if it is certain that no handler saw the
 * call, so that it can be made again whatever it does; else 1. It is also 0 for
 * a call whose time was up while its request waited on this side. */
TMSG_API int tmsg_call_may_have_run(const tmsg_call_t *call);

/* Returns how often the call was made; above 1 if it was retried. */
TMSG_API uint32_t tmsg_call_attempts(const tmsg_call_t *call);

/* Bounds the retries of an endpoint, so that they do not make its peer fail
 * even more. The budget begins with `tokens` (1 to 1,000; 0: no bound), and
 * never has more. An attempt of a call with retries takes one token if it fails
 * as above, except for PEER_LOST and a server that is not ready. It gives
 * `thousandths` of a token back (at most 1,000,000) if it succeeds. Nothing is
 * retried while half of the tokens or fewer are left. Default: 10 tokens, 100
 * thousandths.
 * Errors:
 *   INVALID_PARAM - a number that is out of range
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_endpoint_set_retry_budget(tmsg_endpoint_t *endpoint,
                                                      uint32_t tokens,
                                                      uint32_t thousandths);

/* Gives the handle and the reply back. From any thread if the call has ended.
 * NULL is allowed.
 *
 * A call that goes on is canceled, and its on_done is not called any more. If
 * another thread is just about to call on_done, this does not wait for that:
 * what `arg` names must live longer. To know when `arg` is free, keep the
 * handle until on_done has come, which it does once: call tmsg_call_cancel(),
 * wait for on_done, then destroy both.
 *
 * on_done may destroy the call, if no other thread uses the handle. A thread
 * that cancels does use it, for the call may end by itself at that moment. The
 * two then need a lock of the application. The library holds it while it makes
 * the call and while it cancels it. on_done takes it, and notes there that the
 * handle is gone. No function here calls on_done inside. */
TMSG_API void tmsg_call_destroy(tmsg_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
