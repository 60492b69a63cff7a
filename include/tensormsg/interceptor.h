/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/interceptor.h - hooks that see every call and stream of a
 * worker.
 *
 * An interceptor stands between the application and its calls: it refuses,
 * logs, counts, or adds metadata. See docs/reference/interceptors.md.
 *
 *     tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &hooks);
 *     // in its `begin`
 *     tmsg_intercepted_get_meta(seen, "token", &value);
 *     tmsg_intercepted_set_string(seen, "token", "4711");
 *     tmsg_intercepted_refuse(seen, TMSG_ERR_REFUSED, "no token");
 */
#ifndef TENSORMSG_INTERCEPTOR_H
#define TENSORMSG_INTERCEPTOR_H

#include <stdint.h>

#include <tensormsg/meta.h>
#include <tensormsg/metrics.h>
#include <tensormsg/server.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Interceptors of TMSG_SIDE_CALLER see the calls and streams that this worker's
 * endpoints begin. Those of TMSG_SIDE_SERVER see what its server is asked for,
 * the library's own methods included. tensormsg/span.h is an interceptor that
 * exists already. */

/* A call or a stream, as an interceptor sees it. It belongs to the library. It
 * and what it points to are valid until the hook returns. Later versions may
 * add fields at its end. */
typedef struct tmsg_intercepted {
    tmsg_side_t side;          /* which side this is */
    int32_t is_stream;         /* 1: a stream, 0: a call */
    const char *method;        /* its name */
    tmsg_endpoint_t *endpoint; /* the other side: tmsg_endpoint_peer() */
    const char *principal;     /* at a server, of the caller, as
                                * tmsg_task_principal(); else NULL */
    const tmsg_map_t *map;     /* that it was made with, for its metadata and
                                * the list of its tensors. At a caller NULL
                                * except in `begin`; NULL in `refused` */
    int32_t remaining_ms;      /* of its time; -1: it has no limit */
    void *state;               /* this interceptor's own, for this call: NULL in
                                * `begin`, and then what `begin` left there */
    /* So far; in `end`, in total: */
    uint64_t elapsed_ns;     /* since the first `begin` was called */
    uint64_t sent_bytes;     /* of tensors, by this side */
    uint64_t received_bytes; /* and by the other side */
    uint64_t sent;           /* messages of a stream, by this side. The map that
                              * it was made with, and the reply or the details
                              * of its end, count in bytes only */
    uint64_t received;
    uint32_t attempts; /* at a caller: tmsg_call_attempts() */
    /* In `end` and `refused` only: */
    tmsg_status_t
        status;        /* how it ended: a call as tmsg_call_status(), a stream
                        * as tmsg_call_stream_status(); at a server how it
                        * was answered, or why nobody wants an answer */
    const char *error; /* in one line; "" if it did not fail */
} tmsg_intercepted_t;

enum {
    TMSG_INTERCEPTOR_BEGIN = 1 << 0,
    TMSG_INTERCEPTOR_MESSAGE = 1 << 1,
    TMSG_INTERCEPTOR_END = 1 << 2,
    TMSG_INTERCEPTOR_REFUSED = 1 << 3
};

/* Hooks. An interceptor has those that field_mask names and that are not NULL.
 * Of one call they run in this order, one after the other; only several
 * `message` may run at once, if several threads use one stream.
 *
 * A hook may do what the on_done of a call may: everything but wait and destroy
 * the worker. A call that a hook makes is intercepted, too. No lock is held.
 * The caller's `begin` runs inside tmsg_endpoint_call() or
 * tmsg_endpoint_open_stream(), and may wait if its caller may. The server's
 * `begin` runs on the thread that drives the worker, when the request is here:
 * before the request is checked against the method's signature and waits for
 * its turn. */
typedef struct tmsg_interceptor {
    uint64_t field_mask; /* TMSG_INTERCEPTOR_*: hooks that are set */
    /* A call begins, or its handler is about to run; the hook may set `state`.
     * OK lets it go on. A failure ends it with that status. At a caller nothing
     * is sent, and tmsg_endpoint_call() returns the status. At a server the
     * handler does not run, and the caller gets the status.
     * tmsg_intercepted_refuse() adds words. A status that is no failure counts
     * as INTERNAL. Called once for all attempts of a call that is retried. */
    tmsg_status_t (*begin)(void *arg, tmsg_intercepted_t *call);
    /* A message of a stream was sent (`sent` is 1), or has come (0). The first
     * runs on the thread that sent it. Its data may be the application's again:
     * do not read them. The second runs on the thread that drives the worker,
     * before the message can be read. */
    void (*message)(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map);
    /* The call has ended, in whatever way; this is its last hook. Called once
     * for each `begin` that returned OK; without `begin`, once for each call
     * that came so far.
     *
     * At a caller it runs on the thread that drives the worker, before on_done;
     * for a call that fails at once, inside that call. At a server it runs on
     * the thread that answers, after the answer was handed over; if nobody
     * answers, on the thread that drives the worker. If a `message` of the
     * stream runs on another thread, it waits for that. Then it runs on the
     * thread that drives the worker, and on_over after it. */
    void (*end)(void *arg, const tmsg_intercepted_t *call);
    /* At a server: a call has ended before `begin`, and no handler and no other
     * hook sees it. It was refused when it came: there is no such method, it is
     * for other principals, the server is full or drains. Or it was refused
     * when it was whole: its map is beyond the limits. Or its caller gave it
     * up, or it was lost on its way. `status` and `error` are as in `end`.
     * `method` is what the caller said, registered or not, up to 199 bytes of
     * UTF-8. `map` is NULL.
     *
     * It runs on the thread that drives the worker, in the order of `end`. If
     * 1,024 calls wait to be reported, or 512 of one endpoint, further ones are
     * only counted (tensormsg/metrics.h). */
    void (*refused)(void *arg, const tmsg_intercepted_t *call);
    void *arg; /* passed to all; must live until the worker was destroyed */
} tmsg_interceptor_t;

/* Interceptors of one side of a worker. */
enum { TMSG_INTERCEPTORS_MOST = 8 };

/* Adds an interceptor for all calls and streams of that side that begin from
 * now on. *interceptor is copied. Of several the first one is the outermost:
 * `begin`, and `message` of what this side sends, run in that order; `end`, and
 * `message` of what has come, in the opposite one. If one refuses, those after
 * it are not asked. From any thread, if the worker is shared; else from its
 * own.
 * Errors:
 *   INVALID_PARAM - a NULL, the side, or an unknown bit
 *   LIMIT_EXCEEDED - the side has TMSG_INTERCEPTORS_MOST
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t
tmsg_worker_intercept(tmsg_worker_t *worker, tmsg_side_t side,
                      const tmsg_interceptor_t *interceptor);

/* In a caller's `begin`: gives the request that key, as tmsg_map_set_meta()
 * does, in place of what the application's map or an outer interceptor has
 * under it. The map itself stays as it is. A method with a signature refuses a
 * key that the signature does not name (`@token?: string`), unless it takes
 * further ones.
 * Errors: those of tmsg_map_set_meta(), and:
 *   UNSUPPORTED - not in a caller's `begin` */
TMSG_API tmsg_status_t tmsg_intercepted_set_meta(tmsg_intercepted_t *call,
                                                 const char *key,
                                                 const tmsg_meta_t *value);

/* Does the same for a NUL-terminated string. */
TMSG_API tmsg_status_t tmsg_intercepted_set_string(tmsg_intercepted_t *call,
                                                   const char *key,
                                                   const char *text);

/* In `begin`: finds a key, first in what outer interceptors have given, then in
 * the application's map. *value_p is valid until the hook
 * returns.
 * Errors:
 *   NOT_FOUND - there is no such key
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_intercepted_get_meta(const tmsg_intercepted_t *call,
                                                 const char *key,
                                                 tmsg_meta_t *value_p);

/* Returns `status`, for `begin` to return, and keeps words (UTF-8, cut at 199
 * bytes; NULL: none) for the caller. */
TMSG_API tmsg_status_t tmsg_intercepted_refuse(tmsg_intercepted_t *call,
                                               tmsg_status_t status,
                                               const char *words);

#ifdef __cplusplus
}
#endif

#endif
