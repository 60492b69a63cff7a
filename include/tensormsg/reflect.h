/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/reflect.h - which methods a peer has, and how its server is.
 *
 * A server tells its peers which methods it has and whether it is healthy.
 *
 *     tmsg_endpoint_methods(endpoint, 1000, &methods);
 *     tmsg_methods_at(methods, 0, &method_info);
 *     tmsg_methods_destroy(methods);
 *     tmsg_endpoint_health(endpoint, NULL, 1000, &health);
 *     tmsg_server_set_health(server, NULL, TMSG_HEALTH_NOT_SERVING);
 */
#ifndef TENSORMSG_REFLECT_H
#define TENSORMSG_REFLECT_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/call.h>
#include <tensormsg/server.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every server answers two methods of the library's own, unless it was told not
 * to (TMSG_SERVER_PARAM_FLAGS): TMSG_METHOD_METHODS lists what was registered,
 * TMSG_METHOD_HEALTH says how the server, or one method, is. They answer on the
 * thread that progresses, whatever the bounds of the server are, and while it
 * drains. What travels is in docs/reference/calls.md. Where a peer does not
 * have them the functions below end as any call to a method that there is not:
 * NOT_FOUND, or UNSUPPORTED where nobody serves or the peer is an older one. */
#define TMSG_METHOD_METHODS "tensormsg.methods"
#define TMSG_METHOD_HEALTH "tensormsg.health"

/* Every worker, with a server or without, answers TMSG_METHOD_DESCRIBE with
 * what goes on there (docs/reference/introspection.md): connections, queues,
 * publishers, and calls, which are counted from the first time on. It is told
 * to whoever may connect without a key, or, where the variable
 * TENSORMSG_OBSERVERS of the process is set, to the principals that it names
 * alone, with a space between two ("*": whoever has proved a key). Others get
 * REFUSED. */
#define TMSG_METHOD_DESCRIBE "tensormsg.describe"

typedef enum {
    TMSG_HEALTH_UNKNOWN = 0, /* a word that this library does not know */
    TMSG_HEALTH_SERVING = 1,
    TMSG_HEALTH_NOT_SERVING = 2, /* says the application */
    TMSG_HEALTH_DRAINING = 3,    /* it takes no further calls */
    TMSG_HEALTH_NOT_FOUND = 4,   /* there is no such method */
    TMSG_HEALTH_STALLED = 5      /* it takes calls, but for a second some have
                                  * waited and none of their method has begun,
                                  * or what comes has had no memory */
} tmsg_health_t;

enum { TMSG_HEALTH_WHY_MAX = 199 }; /* bytes */

/* How a server, or one of its methods, is, and what it does at the moment;
 * streams count as calls. */
typedef struct tmsg_health_report {
    int32_t health;   /* tmsg_health_t */
    int32_t pad;      /* 0 */
    uint64_t running; /* calls whose handlers run, or are still to answer */
    uint64_t waiting; /* calls whose handlers have not begun */
    uint64_t held;    /* calls that were answered and of which handles are kept:
                       * they count against held_bytes alone */
    uint64_t stalls;  /* how often a method was STALLED so far */
    char why[TMSG_HEALTH_WHY_MAX + 1]; /* why it is STALLED; "" else */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_health_report_t;

/* "SERVING", as it travels; "UNKNOWN" for values outside the list. */
TMSG_API const char *tmsg_health_name(tmsg_health_t health);

/* Says how a method (NULL: the whole server) is from now on: SERVING, which it
 * is at first, NOT_SERVING or DRAINING. That is told to those who ask, and
 * refuses no call. From any thread. Errors: INVALID_PARAM (server is NULL,
 * another health), NOT_FOUND (no such method). */
TMSG_API tmsg_status_t tmsg_server_set_health(tmsg_server_t *server,
                                              const char *method,
                                              tmsg_health_t health);

/* How the own server, or one method, is: what a peer would be told. From any
 * thread. Errors: INVALID_PARAM (a NULL). */
TMSG_API tmsg_status_t tmsg_server_report(tmsg_server_t *server,
                                          const char *method,
                                          tmsg_health_report_t *report_p);

/* What a peer says of its methods. Any number of threads may read it. */
typedef struct tmsg_methods tmsg_methods_t;

/* One of them. The texts live as long as the list. */
typedef struct tmsg_method_info {
    const char *name;        /* 1 to 128 bytes of UTF-8 */
    const char *description; /* "" where there is none */
    const char *signature; /* as docs/reference/signatures.md; NULL: any map */
    uint32_t concurrency;  /* calls that may run at once, */
    uint32_t queue;        /* and wait beside them; 0 too if it is not said */
    int32_t health;        /* tmsg_health_t */
    int32_t is_stream;     /* 1: it is opened (tensormsg/stream.h), 0: called */
    int32_t is_idempotent; /* 1: TMSG_METHOD_IDEMPOTENT */
    int32_t needs_principal; /* 1: who has proved no key may not call it; who
                              * has may be another than it is for */
    uint64_t reserved[4];    /* 0; later versions have further fields there */
} tmsg_method_info_t;

/* Asks a peer, and waits for the answer as tmsg_call_wait() does, for
 * timeout_ms at most (above 0, or -1: no limit). *methods_p is freed with
 * tmsg_methods_destroy(). Errors: those of tmsg_endpoint_call() and of the
 * call, with its words (RESOURCE_EXHAUSTED: four lists are on their way to this
 * side); those of tmsg_methods_read(). */
TMSG_API tmsg_status_t tmsg_endpoint_methods(tmsg_endpoint_t *endpoint,
                                             int timeout_ms,
                                             tmsg_methods_t **methods_p);

/* The same of the health of a method, or with NULL of the whole server. That a
 * method is not there is an answer, NOT_FOUND, and no error. */
TMSG_API tmsg_status_t tmsg_endpoint_health(tmsg_endpoint_t *endpoint,
                                            const char *method, int timeout_ms,
                                            tmsg_health_t *health_p);

/* The same with figures. A peer of before them tells none: 0. */
TMSG_API tmsg_status_t
tmsg_endpoint_health_report(tmsg_endpoint_t *endpoint, const char *method,
                            int timeout_ms, tmsg_health_report_t *report_p);

/* For those who must not wait: they call TMSG_METHOD_METHODS with no map, or
 * TMSG_METHOD_HEALTH with the metadata "method" (a string) or without, and have
 * the reply read here. Nothing in it is believed. Errors: INVALID_PARAM (a
 * NULL), MALFORMED (with the method's name), LIMIT_EXCEEDED (more than 65536
 * methods), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_methods_read(const tmsg_map_t *reply,
                                         tmsg_methods_t **methods_p);
TMSG_API tmsg_status_t tmsg_health_read(const tmsg_map_t *reply,
                                        tmsg_health_t *health_p);
TMSG_API tmsg_status_t tmsg_health_report_read(const tmsg_map_t *reply,
                                               tmsg_health_report_t *report_p);

/* How many, in the order in which they were registered; 0 of NULL. */
TMSG_API size_t tmsg_methods_size(const tmsg_methods_t *methods);

/* Errors: NOT_FOUND (index out of range), INVALID_PARAM (a NULL). */
TMSG_API tmsg_status_t tmsg_methods_at(const tmsg_methods_t *methods,
                                       size_t index,
                                       tmsg_method_info_t *info_p);

/* NULL is allowed. */
TMSG_API void tmsg_methods_destroy(tmsg_methods_t *methods);

#ifdef __cplusplus
}
#endif

#endif
