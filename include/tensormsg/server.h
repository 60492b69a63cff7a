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

/* Answers the calls (tensormsg/call.h) that come over the endpoints of one
 * worker, whichever side dialled. A worker has at most one server; without one
 * its peers' calls end with UNSUPPORTED, except fetches (tensormsg/offer.h). */
typedef struct tmsg_server tmsg_server_t;

/* One call, as its server sees it. The handle is the handler's until that
 * returns, and whoever's who asked for it with tmsg_task_keep(). The functions
 * of a task may be called from any thread on a worker that is shared, else from
 * the worker's own. */
typedef struct tmsg_task tmsg_task_t;

/* Runs a call. It answers with tmsg_task_reply() or tmsg_task_fail(), before it
 * returns or, if it took tmsg_task_keep(), later. A call that nobody can answer
 * any more, for the last handle on it is gone, ends with INTERNAL at its
 * caller. Thread: that which progresses, with no lock held, where it may do
 * what a message's handler may; or one of the server's own
 * (TMSG_SERVER_PARAM_THREADS), where it may also wait. */
typedef void (*tmsg_handler_fn)(void *arg, tmsg_task_t *task);

enum {
    TMSG_SERVER_PARAM_CONCURRENCY = 1 << 0,
    TMSG_SERVER_PARAM_QUEUE = 1 << 1,
    TMSG_SERVER_PARAM_THREADS = 1 << 2,
    TMSG_SERVER_PARAM_FLAGS = 1 << 3
};

enum {
    TMSG_SERVER_NO_METHODS = 1 << 0, /* it does not list its methods, */
    TMSG_SERVER_NO_HEALTH = 1 << 1,  /* nor say how it is (reflect.h) */
    TMSG_SERVER_NOT_READY = 1 << 2   /* its health is NOT_SERVING at first,
                                      * until tmsg_server_set_health(); till
                                      * it is SERVING for the first time, calls
                                      * of methods that it does not have end
                                      * with UNAVAILABLE, not NOT_FOUND */
};

/* A call is *running* from when its handler begins until the handler has
 * returned and has answered, in vain perhaps, or the last handle on its task is
 * gone; it waits before that. Handles that are kept longer hold the memory of
 * its map, which counts against the limit held_bytes, and no place here. A call
 * that still waits shortly before its caller's time is up (a sixteenth of it,
 * 50 ms at most) ends with TIMED_OUT, and words that say what runs. Where calls
 * of a method wait and none has begun for a second the log says so, once a
 * minute at most, and the method is STALLED (tensormsg/reflect.h). */
typedef struct tmsg_server_params {
    uint64_t field_mask;  /* TMSG_SERVER_PARAM_*; unset: defaults */
    uint32_t concurrency; /* calls that may run at once, of all methods; 1 or
                           * more, default 1024 */
    uint32_t queue;       /* calls that may wait beside them; further ones end
                           * at once with RESOURCE_EXHAUSTED. Default 1024 */
    uint32_t threads;     /* handlers run on so many threads of the server's,
                           * 1 to 1024, which takes a shared worker; 0, the
                           * default: on the thread that progresses */
    uint32_t flags;       /* TMSG_SERVER_*; default 0 */
} tmsg_server_params_t;

/* Creates the server of a worker; it serves from now on. *params (NULL:
 * defaults) is copied. The caller frees *server_p with tmsg_server_destroy(),
 * before the worker. Errors: INVALID_PARAM (a field; threads on a worker that
 * is not shared), ALREADY_EXISTS (the worker has one), CLOSED, NO_MEMORY, IO
 * (no thread). */
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
    TMSG_METHOD_IDEMPOTENT = 1 << 0 /* to run it twice is as once: callers that
                                     * retry may do so whatever failed */
};

enum { TMSG_METHOD_DESCRIPTION_MAX = 1024 }; /* bytes */

typedef struct tmsg_method_params {
    uint64_t field_mask;  /* TMSG_METHOD_PARAM_*; unset: defaults */
    uint32_t concurrency; /* as of the server, for this method alone; default:
                           * as many as that */
    uint32_t queue;       /* likewise */
    /* What it takes and gives, as text (docs/reference/signatures.md,
     * tensormsg/ signature.h); default, or NULL: any map. A call with another
     * map ends with INVALID_PARAM and words that say which tensor is wrong and
     * how, and reaches no handler; one whose handler replies with another map
     * ends with INTERNAL, and such words. Of a stream each message is held
     * against it by itself: what its opener sends, which ends it with
     * INVALID_PARAM before it can be read, and what its server sends, which is
     * then not sent; the map that it is opened with, and the details of its
     * end, are not. */
    const char *signature;
    /* One line for people, UTF-8 without control characters; default none. Both
     * are told to peers that ask (tensormsg/reflect.h). */
    const char *description;
    /* Who may call it: names, as of tmsg_endpoint_principal(), with a space
     * between two; "*" is whoever has proved a key. Calls of others end with
     * REFUSED, before the handler. It keeps apart peers that do not lie to UCX:
     * one that does can speak under another's endpoint on the same worker
     * (docs/understand/security.md). Default NULL: anybody. */
    const char *principals;
    uint32_t flags; /* TMSG_METHOD_*; default 0 */
} tmsg_method_params_t;

/* Offers a method from now on. `method` is UTF-8, 1 to 128 bytes; names that
 * begin with "tensormsg." are the library's. All is copied. `params` may be
 * NULL. Errors: INVALID_PARAM (for a signature with line and column),
 * LIMIT_EXCEEDED (a signature, a description), ALREADY_EXISTS, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_server_register(tmsg_server_t *server,
                                            const char *method,
                                            tmsg_handler_fn handler, void *arg,
                                            const tmsg_method_params_t *params);

/* Takes no further calls (they end with UNAVAILABLE) and drives the worker
 * until those that are here have been answered, for at most timeout_ms (0: not
 * at all; -1: no limit). Then what is left ends with UNAVAILABLE, and its
 * handlers are told. Answers may still be on their way then: to have them
 * arrive, close the endpoints in order (tmsg_endpoint_close()). Errors:
 * TIMED_OUT (there was something left), WOULD_BLOCK (in a callback, where
 * something was left). A server that was drained stays so. */
TMSG_API tmsg_status_t tmsg_server_drain(tmsg_server_t *server, int timeout_ms);

/* Drains it at once, waits for the handlers that run on its threads, and frees
 * it. Tasks that were kept stay valid; answers to them say UNAVAILABLE. Not
 * inside a handler that runs on a thread of the server's. To be called before
 * its worker is destroyed. NULL is allowed. */
TMSG_API void tmsg_server_destroy(tmsg_server_t *server);

/* The map of the call: to read, to send on, and to answer with; valid as long
 * as the task. */
TMSG_API const tmsg_map_t *tmsg_task_map(const tmsg_task_t *task);

/* The method's name; as long as the task. */
TMSG_API const char *tmsg_task_method(const tmsg_task_t *task);

/* Who called; as that of a message, as long as the task. */
TMSG_API tmsg_endpoint_t *tmsg_task_endpoint(const tmsg_task_t *task);

/* Whose key the caller has proved: tmsg_endpoint_principal() of that endpoint;
 * NULL where none was asked for. */
TMSG_API const char *tmsg_task_principal(const tmsg_task_t *task);

/* Milliseconds that are left of the caller's time, 0 when it is up; -1 where it
 * set no limit. */
TMSG_API int tmsg_task_remaining_ms(const tmsg_task_t *task);

/* OK while an answer is awaited; ALREADY_EXISTS after one; else why none is
 * wanted any more: CANCELED (by the caller), TIMED_OUT, PEER_LOST, UNAVAILABLE
 * (drained). */
TMSG_API tmsg_status_t tmsg_task_status(const tmsg_task_t *task);

/* Called once if no answer is wanted any more, with the status of
 * tmsg_task_status(); not after an answer. On the thread that progresses, with
 * no lock held. */
typedef void (*tmsg_task_fn)(void *arg, tmsg_task_t *task,
                             tmsg_status_t status);

/* Asks for that call. Where the task is over already it does not come: look at
 * tmsg_task_status() afterwards. The task is valid during the call; `arg` must
 * be as long as a handle is kept. */
TMSG_API void tmsg_task_on_over(tmsg_task_t *task, tmsg_task_fn on_over,
                                void *arg);

enum { TMSG_REPLY_PARAM_ON_RELEASE = 1 << 0, TMSG_REPLY_PARAM_FLAGS = 1 << 1 };

typedef struct tmsg_reply_params {
    uint64_t field_mask;        /* TMSG_REPLY_PARAM_*; unset: defaults */
    tmsg_release_fn on_release; /* default none: called once, when no byte of
                                 * what the map borrows can be read any more */
    void *on_release_arg;
    uint32_t flags; /* TMSG_SEND_LEND (tensormsg/endpoint.h): a caller who
                     * borrows, by TMSG_CALL_BORROW or as its worker does, gets
                     * a loan; default 0 */
} tmsg_reply_params_t;

/* Answers with a map (NULL: an empty one), that of the call, too. What it
 * borrows is lent until on_release. `params` may be NULL. Errors, after which
 * nothing is lent and on_release is not called: what tmsg_task_status() says,
 * where no answer is awaited, and that harms nobody; INVALID_PARAM; and, with
 * which the call then ends at its caller, INTERNAL (the map is not what the
 * method's signature gives) and those of tmsg_endpoint_send(). */
TMSG_API tmsg_status_t tmsg_task_reply(tmsg_task_t *task, const tmsg_map_t *map,
                                       const tmsg_reply_params_t *params);

/* Answers that it failed: with a status that is a failure, for what only the
 * application knows TMSG_ERR_APPLICATION, a number of its own (or 0), words
 * (UTF-8, cut at 199 bytes; NULL: none), and details (NULL: none), lent as by
 * tmsg_task_reply(). Errors: as there; INVALID_PARAM (a status that is no
 * failure). */
TMSG_API tmsg_status_t tmsg_task_fail(tmsg_task_t *task, tmsg_status_t status,
                                      int32_t code, const char *words,
                                      const tmsg_map_t *details);

/* Keeps the task beyond its handler's return, as one more handle, which is
 * given back with tmsg_task_destroy(). Returns `task`. */
TMSG_API tmsg_task_t *tmsg_task_keep(tmsg_task_t *task);

/* For a handler that puts its task into a queue of its own, for whoever works
 * on it later. tmsg_task_put_off() says that nobody does yet: the call waits
 * again, and ends in time, or in a drain, as one that no handler saw.
 * tmsg_task_begin() ends that, before the work begins; for a task that was not
 * put off it does nothing else. Errors of the latter: those of
 * tmsg_task_status(), where nobody waits for an answer any more: the work is
 * not to begin. */
TMSG_API void tmsg_task_put_off(tmsg_task_t *task);
TMSG_API tmsg_status_t tmsg_task_begin(tmsg_task_t *task);

/* Gives a handle of tmsg_task_keep() back; with the last one the memory of the
 * call's map. After the worker is gone from any thread. NULL is allowed. */
TMSG_API void tmsg_task_destroy(tmsg_task_t *task);

#ifdef __cplusplus
}
#endif

#endif
