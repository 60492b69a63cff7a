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

/* Interceptors stand between the application and its calls and streams: to
 * refuse, to log, to count, to add metadata. Those of TMSG_SIDE_CALLER see what
 * this worker's endpoints call and open, those of TMSG_SIDE_SERVER what its
 * server is asked for, the library's own methods included. See
 * docs/reference/interceptors.md; tensormsg/span.h is one that is there
 * already. */

/* A call, or a stream, as an interceptor sees it; the library's, and valid
 * until the hook returns, as is what it points to. It may grow at its end. */
typedef struct tmsg_intercepted {
    tmsg_side_t side;          /* which one this is */
    int32_t is_stream;         /* 1: it is opened, 0: called */
    const char *method;        /* its name */
    tmsg_endpoint_t *endpoint; /* the other side: tmsg_endpoint_peer() */
    const char *principal;     /* at a server, whose key it has proved, as
                                * tmsg_task_principal(); else NULL */
    const tmsg_map_t *map;     /* that it was made with, for its metadata and
                                * what tensors there are; at a caller NULL but
                                * in `begin`, and in `refused` */
    int32_t remaining_ms;      /* of its time; -1: it has no limit */
    void *state;               /* this interceptor's own, for this call: NULL
                                * in `begin`, and then what that left there */
    /* So far; in `end`, at all: */
    uint64_t elapsed_ns;     /* since the first `begin` was called */
    uint64_t sent_bytes;     /* of tensors, by this side, */
    uint64_t received_bytes; /* and by the other */
    uint64_t sent;           /* messages of a stream, likewise; the map that it
                              * was made with, and the reply or the details of
                              * its end, count in bytes alone */
    uint64_t received;
    uint32_t attempts; /* at a caller: tmsg_call_attempts() */
    /* In `end` and `refused` alone: */
    tmsg_status_t status; /* how it ended: of a call as tmsg_call_status(), of
                           * a stream as tmsg_call_stream_status(); at a server
                           * as it was answered, or why nobody wants that */
    const char *error;    /* in one line; "" where it did not fail */
} tmsg_intercepted_t;

enum {
    TMSG_INTERCEPTOR_BEGIN = 1 << 0,
    TMSG_INTERCEPTOR_MESSAGE = 1 << 1,
    TMSG_INTERCEPTOR_END = 1 << 2,
    TMSG_INTERCEPTOR_REFUSED = 1 << 3
};

/* Hooks, of which it has those that field_mask names; one that is NULL is as
 * one that it does not name. Of one call they come in this order and one after
 * the other, but for `message`, of which several may run at once where
 * several threads use one stream.
 *
 * What they may do: as the on_done of a call, all but wait and destroy the
 * worker; who calls from a hook is intercepted, too. The caller's `begin` runs
 * inside tmsg_endpoint_call() or tmsg_endpoint_open_stream(), and may wait
 * where its caller may. The server's runs on the thread that progresses, when
 * the request is here: before it is held against the method's signature and
 * waits for its turn. No lock is held. */
typedef struct tmsg_interceptor {
    uint64_t field_mask; /* TMSG_INTERCEPTOR_*: hooks that are set */
    /* One is made, or is about to be handled; `state` may be set. OK lets it
     * go on. A failure ends it with that status: at a caller nothing leaves,
     * and tmsg_endpoint_call() returns it; at a server the handler does not
     * run, and the caller is told so. tmsg_intercepted_refuse() gives words to
     * it. What is no failure counts as INTERNAL. Once for all attempts of a
     * call that is retried. */
    tmsg_status_t (*begin)(void *arg, tmsg_intercepted_t *call);
    /* A message of a stream was sent (1; from the thread that did; its data may
     * be the application's again, and is not to be read), or has come
     * (0; on the thread that progresses, before it can be read). */
    void (*message)(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map);
    /* It has ended, in whatever way; the last hook of it. Called once for each
     * `begin` that gave OK, and where there is none once for each call that
     * came so far. At a caller on the thread that progresses, before on_done
     * (in a call that fails at once, inside that); at a server on the thread
     * that answers it, after the answer was handed over, or on that which
     * progresses where nobody does. Of a stream of which a `message` runs on
     * another thread just then it comes when that has returned, on the thread
     * that progresses, and on_over behind it. */
    void (*end)(void *arg, const tmsg_intercepted_t *call);
    /* A server's: one that it was asked for has ended before `begin`, so that
     * no handler and no other hook sees it: refused as it came (no such method,
     * for other principals, beyond the bounds, draining), or when it was whole
     * (a map beyond the limits), or given up by its caller, or lost, on its
     * way. `status` and `error` are as in `end`; `method` is what the caller
     * said, up to 199 bytes of UTF-8, be it registered or not; `map` is NULL.
     * On the thread that progresses, in the order of `end`. Where 1,024 wait to
     * be told of, or 512 of one endpoint's, further ones are counted
     * (tensormsg/metrics.h) and not told. */
    void (*refused)(void *arg, const tmsg_intercepted_t *call);
    void *arg; /* passed to all; must be there until the worker was destroyed */
} tmsg_interceptor_t;

/* On each side of a worker. */
enum { TMSG_INTERCEPTORS_MOST = 8 };

/* Has all calls and streams that begin from now on seen on that side;
 * *interceptor is copied. Of several the first that was given is the outermost:
 * `begin`, and `message` of what this side sends, come in that order, `end`,
 * and `message` of what has come, in the opposite one; behind one that refuses
 * no other is asked. Any thread, on a worker that is shared; else its own.
 * Errors: INVALID_PARAM (a NULL, side, unknown bit), LIMIT_EXCEEDED, CLOSED,
 * NO_MEMORY. */
TMSG_API tmsg_status_t
tmsg_worker_intercept(tmsg_worker_t *worker, tmsg_side_t side,
                      const tmsg_interceptor_t *interceptor);

/* In a caller's `begin`: gives the request that key, too, as
 * tmsg_map_set_meta(), in place of what the application's map or an outer
 * interceptor has under it; that map stays as it is. A method with a signature
 * refuses a key that this does not name (`@token?: string`), unless it takes
 * further ones. Errors: those of tmsg_map_set_meta(); UNSUPPORTED
 * (elsewhere). */
TMSG_API tmsg_status_t tmsg_intercepted_set_meta(tmsg_intercepted_t *call,
                                                 const char *key,
                                                 const tmsg_meta_t *value);

/* The same for a string that a NUL ends. */
TMSG_API tmsg_status_t tmsg_intercepted_set_string(tmsg_intercepted_t *call,
                                                   const char *key,
                                                   const char *text);

/* In `begin`: looks a key up, in what outer interceptors have given first, then
 * in the application's map. What *value_p points to is valid until the hook
 * returns. Errors: NOT_FOUND, INVALID_PARAM (a NULL). */
TMSG_API tmsg_status_t tmsg_intercepted_get_meta(const tmsg_intercepted_t *call,
                                                 const char *key,
                                                 tmsg_meta_t *value_p);

/* For `begin` to return: `status`, with words (UTF-8, cut at 199 bytes; NULL:
 * none) for whoever called. */
TMSG_API tmsg_status_t tmsg_intercepted_refuse(tmsg_intercepted_t *call,
                                               tmsg_status_t status,
                                               const char *words);

#ifdef __cplusplus
}
#endif

#endif
