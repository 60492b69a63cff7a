/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/server.h - methods that peers may call.
 *
 * A server answers the calls that come to one worker.
 *
 *     tmsg_server_create(worker, NULL, &server);
 *     tmsg_server_register(server, "infer", infer, NULL, NULL);
 *     tmsg_task_reply(task, tmsg_task_map(task), NULL); // in infer()
 *     tmsg_server_drain(server, 1000);
 *     tmsg_server_destroy(server);
 */
#ifndef TENSORMSG_SERVER_H
#define TENSORMSG_SERVER_H

#include <stdint.h>

#include <tensormsg/call.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A server answers the calls (tensormsg/call.h) that come over the endpoints of
 * one worker, whichever side dialled. A worker has at most one server. Without
 * one its peers' calls end with UNSUPPORTED, except fetches
 * (tensormsg/offer.h). */
typedef struct tmsg_server tmsg_server_t;

/* One call, as its server sees it. The handle is the handler's until the
 * handler returns; tmsg_task_keep() gives another one. On a shared worker any
 * thread may call the functions of a task, else the worker's own. */
typedef struct tmsg_task tmsg_task_t;

/* Runs a call. It answers with tmsg_task_reply() or tmsg_task_fail(), before it
 * returns or, after tmsg_task_keep(), later. If the last handle on a call is
 * gone without an answer, the call ends with INTERNAL at its caller.
 *
 * It runs on the thread that drives the worker, with no lock held, and may do
 * what a message handler may. Or it runs on a thread of the server
 * (TMSG_SERVER_PARAM_THREADS), and may also wait. */
typedef void (*tmsg_handler_fn)(void *arg, tmsg_task_t *task);

enum {
    TMSG_SERVER_PARAM_CONCURRENCY = 1 << 0,
    TMSG_SERVER_PARAM_QUEUE = 1 << 1,
    TMSG_SERVER_PARAM_THREADS = 1 << 2,
    TMSG_SERVER_PARAM_FLAGS = 1 << 3
};

enum {
    TMSG_SERVER_NO_METHODS = 1 << 0, /* it does not list its methods */
    TMSG_SERVER_NO_HEALTH = 1
                            << 1,  /* it does not tell its health (reflect.h) */
    TMSG_SERVER_NOT_READY = 1 << 2 /* its health is NOT_SERVING at first,
                                    * until tmsg_server_set_health(). Before
                                    * it is SERVING for the first time, calls
                                    * of methods that it does not have end
                                    * with UNAVAILABLE, not NOT_FOUND */
};

/* A call waits until its handler begins. Then it is *running*, until the
 * handler has returned and has answered (even if nobody waits for the answer),
 * or until the last handle on its task is gone. Handles that are kept longer
 * take no place here. They hold the memory of the call's map, which counts
 * against held_bytes.
 *
 * A call that still waits shortly before its caller's time is up (a sixteenth
 * of that time, 50 ms at most) ends with TIMED_OUT, and the error says what
 * runs. If calls of a method wait and none has begun for a second, the log says
 * so, once a minute at most, and the method is STALLED
 * (tensormsg/reflect.h). */
typedef struct tmsg_server_params {
    uint64_t field_mask;  /* TMSG_SERVER_PARAM_*; unset: defaults */
    uint32_t concurrency; /* calls that may run at once, of all methods; 1 or
                           * more, default 1024 */
    uint32_t queue;       /* further calls that may wait; others end at once
                           * with RESOURCE_EXHAUSTED. Default 1024 */
    uint32_t threads;     /* handlers run on this many threads of the server, 1
                           * to 1024; the worker has to be shared. 0, the
                           * default: on the thread that drives the worker */
    uint32_t flags;       /* TMSG_SERVER_*; default 0 */
} tmsg_server_params_t;

/* Creates the server of a worker. It serves from now on. *params (NULL:
 * defaults) is copied. The caller frees *server_p with tmsg_server_destroy(),
 * before the worker.
 * Errors:
 *   INVALID_PARAM - a field; threads on a worker that is not shared
 *   ALREADY_EXISTS - the worker has a server
 *   CLOSED
 *   NO_MEMORY
 *   IO - the system gives no thread */
TMSG_API tmsg_status_t tmsg_server_create(tmsg_worker_t *worker,
                                          const tmsg_server_params_t *params,
                                          tmsg_server_t **server_p);

enum {
    TMSG_METHOD_PARAM_CONCURRENCY = 1 << 0,
    TMSG_METHOD_PARAM_QUEUE = 1 << 1,
    TMSG_METHOD_PARAM_SIGNATURE = 1 << 2,
    TMSG_METHOD_PARAM_DESCRIPTION = 1 << 3,
    TMSG_METHOD_PARAM_PRINCIPALS = 1 << 4,
    TMSG_METHOD_PARAM_FLAGS = 1 << 5
};

enum {
    TMSG_METHOD_IDEMPOTENT = 1 << 0 /* it may run twice: callers that retry may
                                     * do so after any failure */
};

enum { TMSG_METHOD_DESCRIPTION_MAX = 1024 }; /* bytes */

typedef struct tmsg_method_params {
    uint64_t field_mask;  /* TMSG_METHOD_PARAM_*; unset: defaults */
    uint32_t concurrency; /* as of the server, for this method; default: that of
                           * the server */
    uint32_t queue;       /* likewise */
    /* The signature of the method, as text (docs/reference/signatures.md,
     * tensormsg/signature.h); default, or NULL: any map. A call with another
     * map reaches no handler and ends with INVALID_PARAM; the error says which
     * tensor is wrong and how. A call whose handler replies with another map
     * ends with INTERNAL and such an error.
     *
     * Of a stream each message is checked by itself. A wrong one of its opener
     * ends the stream with INVALID_PARAM before it can be read. A wrong one of
     * its server is not sent. The map that opens the stream, and the details of
     * its end, are not checked. */
    const char *signature;
    /* One line for people, UTF-8 without control characters; default none.
     * Peers that ask get it and the signature (tensormsg/reflect.h). */
    const char *description;
    /* Who may call the method: names, as of tmsg_endpoint_principal(), with a
     * space between two; "*" is whoever has proved a key. Calls of others end
     * with REFUSED, before the handler. This separates peers that do not lie to
     * UCX: one that does can speak under another's endpoint on the same worker
     * (docs/understand/security.md). Default NULL: anybody. */
    const char *principals;
    uint32_t flags; /* TMSG_METHOD_*; default 0 */
} tmsg_method_params_t;

/* Offers a method from now on. `method` is UTF-8, 1 to 128 bytes; names that
 * begin with "tensormsg." are the library's. Everything is copied. `params` may
 * be NULL.
 * Errors:
 *   INVALID_PARAM - the name or a field; for a signature with line and column
 *   LIMIT_EXCEEDED - the signature or the description is too long
 *   ALREADY_EXISTS - the server has a method of that name
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_server_register(tmsg_server_t *server,
                                            const char *method,
                                            tmsg_handler_fn handler, void *arg,
                                            const tmsg_method_params_t *params);

/* Takes no further calls (they end with UNAVAILABLE) and drives the worker
 * until the calls that are here have been answered, for at most timeout_ms (0:
 * not at all; -1: no limit). Then the calls that are left end with UNAVAILABLE,
 * and their handlers are told. A server that was drained stays so.
 *
 * Answers may still be on their way then. To have them arrive, close the
 * endpoints in order (tmsg_endpoint_close()).
 * Errors:
 *   TIMED_OUT - some calls were left
 *   WOULD_BLOCK - in a callback, and some calls were left */
TMSG_API tmsg_status_t tmsg_server_drain(tmsg_server_t *server, int timeout_ms);

/* Drains the server at once, waits for the handlers that run on its threads,
 * and frees it. Tasks that were kept stay valid; answers to them return
 * UNAVAILABLE. Do not call this in a handler that runs on a thread of the
 * server. Call it before the worker is destroyed. NULL is allowed. */
TMSG_API void tmsg_server_destroy(tmsg_server_t *server);

/* Returns the map of the call. It may be read, sent on, and given as the
 * answer. Valid as long as the task. */
TMSG_API const tmsg_map_t *tmsg_task_map(const tmsg_task_t *task);

/* Returns the method's name. Valid as long as the task. */
TMSG_API const char *tmsg_task_method(const tmsg_task_t *task);

/* Returns the endpoint of the caller, as tmsg_message_endpoint() does. Valid as
 * long as the task. */
TMSG_API tmsg_endpoint_t *tmsg_task_endpoint(const tmsg_task_t *task);

/* Returns the principal of the caller: tmsg_endpoint_principal() of that
 * endpoint; NULL if no key was asked for. */
TMSG_API const char *tmsg_task_principal(const tmsg_task_t *task);

/* Returns the milliseconds that are left of the caller's time, 0 when it is up;
 * -1 if the caller set no limit. */
TMSG_API int tmsg_task_remaining_ms(const tmsg_task_t *task);

/* Returns OK while an answer is wanted, and ALREADY_EXISTS after an answer.
 * Else no answer is wanted any more:
 *   CANCELED - by the caller
 *   TIMED_OUT - the caller's time is up
 *   PEER_LOST - the caller is gone
 *   UNAVAILABLE - the server was drained */
TMSG_API tmsg_status_t tmsg_task_status(const tmsg_task_t *task);

/* Called once if no answer is wanted any more, with the status of
 * tmsg_task_status(); not after an answer. It runs on the thread that drives
 * the worker, with no lock held. */
typedef void (*tmsg_task_fn)(void *arg, tmsg_task_t *task,
                             tmsg_status_t status);

/* Sets that function. If the task is over already, it is not called: look at
 * tmsg_task_status() afterwards. The task is valid during the call. `arg` must
 * live as long as a handle is kept. */
TMSG_API void tmsg_task_on_over(tmsg_task_t *task, tmsg_task_fn on_over,
                                void *arg);

enum { TMSG_REPLY_PARAM_ON_RELEASE = 1 << 0, TMSG_REPLY_PARAM_FLAGS = 1 << 1 };

typedef struct tmsg_reply_params {
    uint64_t field_mask;        /* TMSG_REPLY_PARAM_*; unset: defaults */
    tmsg_release_fn on_release; /* default none: called once, when no byte of
                                 * what the map borrows can be read any more */
    void *on_release_arg;
    uint32_t flags; /* TMSG_SEND_LEND (tensormsg/endpoint.h): a caller that
                     * borrows (TMSG_CALL_BORROW, TMSG_WORKER_BORROW) gets a
                     * loan; default 0 */
} tmsg_reply_params_t;

/* Answers with a map (NULL: an empty one), which may be that of the call.
 * Memory that the map borrows is lent until on_release. `params` may be NULL.
 * After an error nothing is lent, and on_release is not called.
 * Errors: what tmsg_task_status() says, if no answer is wanted, and:
 *   INVALID_PARAM
 *   INTERNAL - the map is not what the method's signature gives
 * and those of tmsg_endpoint_send(). With INTERNAL and these the call also ends
 * at its caller. */
TMSG_API tmsg_status_t tmsg_task_reply(tmsg_task_t *task, const tmsg_map_t *map,
                                       const tmsg_reply_params_t *params);

/* Answers with a failure: a status (TMSG_ERR_APPLICATION for what only the
 * application knows), a number of the application (or 0), words (UTF-8, cut at
 * 199 bytes; NULL: none), and details (NULL: none), which are lent as by
 * tmsg_task_reply().
 * Errors: those of tmsg_task_reply(), and:
 *   INVALID_PARAM - a status that is no failure */
TMSG_API tmsg_status_t tmsg_task_fail(tmsg_task_t *task, tmsg_status_t status,
                                      int32_t code, const char *words,
                                      const tmsg_map_t *details);

/* Keeps the task beyond its handler's return. Returns `task`, as one more
 * handle that is given back with tmsg_task_destroy(). */
TMSG_API tmsg_task_t *tmsg_task_keep(tmsg_task_t *task);

/* For a handler that puts its task into a queue, to be worked on later.
 * tmsg_task_put_off() says that nobody works on it yet. The call waits again,
 * and ends at its time, or in a drain, as a call that no handler saw.
 * tmsg_task_begin() says that the work begins now. It does nothing for a task
 * that was not put off. If it fails, nobody waits for an answer any more: do
 * not begin the work.
 * Errors: those of tmsg_task_status(). */
TMSG_API void tmsg_task_put_off(tmsg_task_t *task);
TMSG_API tmsg_status_t tmsg_task_begin(tmsg_task_t *task);

/* Gives a handle of tmsg_task_keep() back, and with the last one the memory of
 * the call's map. From any thread after the worker is gone. NULL is allowed. */
TMSG_API void tmsg_task_destroy(tmsg_task_t *task);

#ifdef __cplusplus
}
#endif

#endif
