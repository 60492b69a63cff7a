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

/* One call: a map to a method of the peer's server (tensormsg/server.h), and
 * what comes back: a map, or a failure. Either side of a connection may call
 * the other, with any number of calls under way at once, which are answered in
 * any order. Calls travel beside messages, in no order with them or with each
 * other, and take no credits of theirs. See docs/reference/calls.md.
 *
 * Threads: as for a request. To wait and to cancel belong to the thread of the
 * worker (any thread, where it is shared); to ask what came of it and to
 * destroy it, any thread may, also after its worker is gone, which ends it with
 * CANCELED. */
typedef struct tmsg_call tmsg_call_t;

enum { TMSG_METHOD_BYTES_MAX = 128 }; /* of a method's name */

/* Called once when the call has ended, on the thread that progresses, with no
 * lock held; but not where it was destroyed before. It may call the library,
 * not wait in it. `call` is valid until it returns, and longer where the caller
 * kept its handle. */
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
    TMSG_CALL_IDEMPOTENT = 1 << 0, /* to run it twice is as once */
    /* The reply may come as views of the server's memory, which cannot be
     * written to, and which stay as they are if the server dies. It is a loan
     * if its handler lends it (TMSG_SEND_LEND of tmsg_reply_params_t), the
     * server knows of this flag, and the connection passes descriptors
     * (docs/reference/loans.md); else, and with reply_into, a copy. A worker
     * with TMSG_WORKER_BORROW gets loans without it. tmsg_call_reply_is_lent()
     * says which it is. */
    TMSG_CALL_BORROW = 1 << 1,
    /* The tensors of `map` are lent, as with TMSG_SEND_LEND, to a server on a
     * worker that borrows. Then on_release may come after the reply: when the
     * server has given back its handles of the task. */
    TMSG_CALL_LEND = 1 << 2,
    /* The call waits for a server that is not ready: while the peer answers
     * UNAVAILABLE and no handler saw the call, it is made again, as below.
     * Calls with TMSG_CALL_PARAM_RETRY do so in any case. See
     * docs/reference/calls.md, "Waiting for a server". */
    TMSG_CALL_WAIT = 1 << 3
};

/* Makes a call again that failed for a while only: with RESOURCE_EXHAUSTED,
 * UNAVAILABLE, NO_MEMORY or BUSY, or with PEER_LOST where the endpoint begins a
 * new session (tmsg_reconnect_t). One that no handler saw always is; one that
 * may have run only where the call is TMSG_CALL_IDEMPOTENT or the server
 * declares its method so (TMSG_METHOD_IDEMPOTENT): after PEER_LOST, in a reply
 * to an earlier call with retries. Each attempt waits twice as
 * long as the one before, all less a random part, at most half; none is made
 * that would begin after the deadline, or without budget
 * (tmsg_endpoint_set_retry_budget()). An attempt that found the server not
 * ready, so that it was answered UNAVAILABLE and no handler saw it, counts
 * neither as one of `attempts` nor in the budget: the call waits so until its
 * deadline, without one for a minute. The application sees the last outcome
 * only. Fields that are 0 take their defaults. */
typedef struct tmsg_retry {
    uint32_t attempts;        /* with the first: 2 to 100; no default */
    int32_t first_backoff_ms; /* before the second; default 20 */
    int32_t most_backoff_ms;  /* default 1000 */
} tmsg_retry_t;

typedef struct tmsg_call_params {
    uint64_t field_mask;  /* TMSG_CALL_PARAM_*; unset: defaults */
    int32_t timeout_ms;   /* above 0: how long the whole call may take, from
                           * here on, connecting included; the server is told
                           * what is left. -1, the default: no limit */
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

/* A reply can be received into memory of the caller's, so that a loop of calls
 * of one signature allocates nothing. `reply_into` is a map whose tensors are
 * that memory, as tmsg_endpoint_recv_into() takes one: a tensor of the reply
 * that it has, too, by name, goes there, without a copy where UCX can do it;
 * one that comes with a stride of 0 is written out there; others go where they
 * would go without. If dtype, shape or order of elements differ the call ends
 * with INVALID_PARAM, which names the tensor: the method has run, its reply is
 * lost. The details of a failure are not received into it.
 *
 * The map's memory is lent from here on, and the map answers BUSY to changes
 * and to another use like this, until the call was destroyed, and beyond that
 * while a reply that nobody waits for any more is still being written there,
 * which ends by itself; a call with that map answers BUSY until then. The map
 * itself may be destroyed at any time: the release functions of its tensors
 * tell when their memory is free.
 *
 * After a call that failed, was canceled or was destroyed the memory may be
 * written until then, and longest until the connection has ended. The library
 * knows maps, not memory: it does not see that another map has the same bytes.
 * A call with a second map of them may end with OK and bytes of the first
 * reply in them. So use one map for it, or wait for the release functions. */

/* Calls `method` of the peer's with `map` (NULL: an empty one) and returns at
 * once. `method` is UTF-8, 1 to 128 bytes, and is copied. What `map` borrows is
 * lent as to a send, until on_release, which a reply never comes before, but
 * with TMSG_CALL_LEND. The map itself may be destroyed at any time.
 *
 * With call_p NULL nobody waits (on_done tells of the end); else *call_p is the
 * caller's, freed with tmsg_call_destroy(). `params` may be NULL. Errors here:
 * INVALID_PARAM, UNSUPPORTED (an older peer; ucx://; as
 * tmsg_endpoint_send()), LIMIT_EXCEEDED, BUSY (the endpoint's send queue is
 * full, whatever its policy; reply_into is in use), CLOSED, NO_MEMORY, and the
 * endpoint's own where it has failed. UNSUPPORTED is also a tensor of
 * reply_into that cannot be received into. */
TMSG_API tmsg_status_t tmsg_endpoint_call(tmsg_endpoint_t *endpoint,
                                          const char *method,
                                          const tmsg_map_t *map,
                                          const tmsg_call_params_t *params,
                                          tmsg_call_t **call_p);

/* IN_PROGRESS, or the outcome:
 *  OK                  there is a reply;
 *  TIMED_OUT           its time is up, here or at the server;
 *  CANCELED            by tmsg_call_cancel(), or with the endpoint;
 *  PEER_LOST, CLOSED   the connection ended first;
 *  UNSUPPORTED         the peer is an older one;
 *  NOT_FOUND           the server has no such method;
 *  RESOURCE_EXHAUSTED  it has as many calls as it takes;
 *  UNAVAILABLE         nobody serves there, or the server is not ready yet,
 *                      or is being shut down;
 *  INTERNAL            its handler let go of the call without an answer;
 *  APPLICATION         its handler says that it failed, tmsg_call_code() how;
 * and whatever else the handler or the way there and back answered. */
TMSG_API tmsg_status_t tmsg_call_status(const tmsg_call_t *call);

/* Drives the worker until the call has ended or timeout_ms passed (0: look
 * once; -1: no limit). Returns the outcome, which is also put in
 * tmsg_error_message(); when the wait's time is up the call goes on. Errors:
 * TIMED_OUT, WOULD_BLOCK (in a callback of that worker), and all that the call
 * may end with. */
TMSG_API tmsg_status_t tmsg_call_wait(tmsg_call_t *call, int timeout_ms);

/* Gives the call up: it ends with CANCELED now, the server's handler is told,
 * and a reply that still comes is dropped. What has ended stays as it was. */
TMSG_API void tmsg_call_cancel(tmsg_call_t *call);

/* The reply, or the details that came with a failure; NULL where nothing came.
 * To read, and to send on; valid until the call is destroyed. */
TMSG_API const tmsg_map_t *tmsg_call_reply(const tmsg_call_t *call);

/* Returns 1 if the reply's tensors lie in memory of the peer's that it lends,
 * as tmsg_message_is_lent() says of messages, else 0. The loan is given back
 * when the call is destroyed. */
TMSG_API int tmsg_call_reply_is_lent(const tmsg_call_t *call);

/* As tmsg_message_give_back(), of the reply. Errors: those, and INVALID_PARAM
 * where there is none. */
TMSG_API tmsg_status_t tmsg_call_give_back(tmsg_call_t *call, size_t index);

/* Why it failed, in one line that names the peer and the method; "" while it
 * goes on or when it succeeded. Valid until the call is destroyed. */
TMSG_API const char *tmsg_call_error(const tmsg_call_t *call);

/* The number that the handler gave with its failure; else 0. */
TMSG_API int32_t tmsg_call_code(const tmsg_call_t *call);

/* Of a call that failed: 0 where it is certain that no handler saw it, so that
 * it can be made again whatever it does; else 1. It is 0, too, of a call whose
 * time was up while its request waited on this side. */
TMSG_API int tmsg_call_may_have_run(const tmsg_call_t *call);

/* How often it was made; above 1 where it was retried. */
TMSG_API uint32_t tmsg_call_attempts(const tmsg_call_t *call);

/* Bounds the retries of an endpoint, so that they do not add to what makes its
 * peer fail: of `tokens` (1 to 1,000; 0: no bound), which it begins with and
 * never has more of, each attempt of a call with retries takes one where it
 * fails as above, but for PEER_LOST and a server that is not ready, and gives
 * `thousandths` of one back (at most 1,000,000) where it succeeds. Nothing is
 * retried while there are not more than half. By default there are 10 and 100
 * thousandths. Errors: INVALID_PARAM, CLOSED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_endpoint_set_retry_budget(tmsg_endpoint_t *endpoint,
                                                      uint32_t tokens,
                                                      uint32_t thousandths);

/* Gives the handle and the reply back; one that goes on is canceled, and its
 * on_done not called any more; one that another thread is just about to call
 * is not waited for, so that what its arg names must outlast it. Who has to
 * know when arg is free leaves the handle alone until on_done has come, which
 * it does once: calls tmsg_call_cancel(), waits for that, then destroys both.
 * From any thread where the call has ended. NULL is allowed.
 *
 * on_done may destroy it, too, where no other thread uses the handle; which one
 * that cancels does, for the call may end by itself just then. The two need a
 * lock of the application's: held while the call is made and while it is
 * canceled, and taken by on_done, which notes there that the handle is gone. No
 * function here calls on_done inside. */
TMSG_API void tmsg_call_destroy(tmsg_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
