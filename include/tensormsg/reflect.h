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

/* Every server answers two methods of the library, unless it was told not to
 * (TMSG_SERVER_PARAM_FLAGS). TMSG_METHOD_METHODS lists the methods that were
 * registered. TMSG_METHOD_HEALTH says how the server, or one method, is. They
 * are answered on the thread that drives the worker, whatever the server's
 * bounds are, and while it drains. docs/reference/calls.md says what travels.
 * If a peer does not have them, the functions below end as any call to a method
 * that does not exist. The status is NOT_FOUND, or UNSUPPORTED if nobody serves
 * or the peer is an older one. */
#define TMSG_METHOD_METHODS "tensormsg.methods"
#define TMSG_METHOD_HEALTH "tensormsg.health"

/* Every worker, with a server or without, answers TMSG_METHOD_DESCRIBE with
 * what is going on there (docs/reference/introspection.md): connections,
 * queues, publishers, and calls, which are counted from the first time on.
 * Every peer that may connect gets it, also without a key. If the variable
 * TENSORMSG_OBSERVERS of the process is set, only the principals that it names
 * get it, with a space between two ("*": whoever has proved a key). Others get
 * REFUSED. */
#define TMSG_METHOD_DESCRIBE "tensormsg.describe"

typedef enum {
    TMSG_HEALTH_UNKNOWN = 0, /* a word that this library does not know */
    TMSG_HEALTH_SERVING = 1,
    TMSG_HEALTH_NOT_SERVING = 2, /* the application says so */
    TMSG_HEALTH_DRAINING = 3,    /* it takes no further calls */
    TMSG_HEALTH_NOT_FOUND = 4,   /* there is no such method */
    TMSG_HEALTH_STALLED = 5      /* it takes calls. Some have waited for a
                                  * second while none of their method has begun,
                                  * or there was no memory for what comes */
} tmsg_health_t;

enum { TMSG_HEALTH_WHY_MAX = 199 }; /* bytes */

/* How a server, or one of its methods, is, and what it does at the moment.
 * Streams count as calls. */
typedef struct tmsg_health_report {
    int32_t health;   /* tmsg_health_t */
    int32_t pad;      /* 0 */
    uint64_t running; /* calls whose handlers run, or have not answered yet */
    uint64_t waiting; /* calls whose handlers have not begun */
    uint64_t held; /* calls that were answered and whose handles are kept: they
                    * only count against held_bytes */
    uint64_t stalls; /* how often a method was STALLED so far */
    char why[TMSG_HEALTH_WHY_MAX + 1]; /* why it is STALLED; "" else */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_health_report_t;

/* Returns the name as it travels: "SERVING"; "UNKNOWN" for values that are not
 * in the list. */
TMSG_API const char *tmsg_health_name(tmsg_health_t health);

/* Says how a method (NULL: the whole server) is from now on: SERVING, which it
 * is at first, NOT_SERVING or DRAINING. Peers that ask are told, and no call is
 * refused for it. From any thread.
 * Errors:
 *   INVALID_PARAM - server is NULL, or another health
 *   NOT_FOUND - no such method */
TMSG_API tmsg_status_t tmsg_server_set_health(tmsg_server_t *server,
                                              const char *method,
                                              tmsg_health_t health);

/* Gives the health of this side's server, or of one method, as a peer would be
 * told. From any thread.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_server_report(tmsg_server_t *server,
                                          const char *method,
                                          tmsg_health_report_t *report_p);

/* The list of a peer's methods. Any number of threads may read it. */
typedef struct tmsg_methods tmsg_methods_t;

/* One method. The texts live as long as the list. */
typedef struct tmsg_method_info {
    const char *name;        /* 1 to 128 bytes of UTF-8 */
    const char *description; /* "" if it has no description */
    const char *signature; /* as docs/reference/signatures.md; NULL: any map */
    uint32_t concurrency;  /* calls that may run at once; 0: not told */
    uint32_t queue;        /* further calls that may wait; 0: not told */
    int32_t health;        /* tmsg_health_t */
    int32_t is_stream;     /* 1: a stream (tensormsg/stream.h), 0: a call */
    int32_t is_idempotent; /* 1: TMSG_METHOD_IDEMPOTENT */
    int32_t needs_principal; /* 1: only peers that have proved a key may call
                              * it, and perhaps not all of them */
    uint64_t reserved[4];    /* 0; later versions have further fields there */
} tmsg_method_info_t;

/* Asks a peer for its methods, and waits for the answer as tmsg_call_wait()
 * does, for at most timeout_ms (above 0, or -1: no limit). *methods_p is freed
 * with tmsg_methods_destroy().
 * Errors: those of tmsg_endpoint_call() and of the call, with its words, those
 * of tmsg_methods_read(), and:
 *   RESOURCE_EXHAUSTED - four lists are on their way to this side */
TMSG_API tmsg_status_t tmsg_endpoint_methods(tmsg_endpoint_t *endpoint,
                                             int timeout_ms,
                                             tmsg_methods_t **methods_p);

/* Asks a peer for the health of a method (NULL: of the whole server), likewise.
 * That a method does not exist is an answer, NOT_FOUND, and no error. */
TMSG_API tmsg_status_t tmsg_endpoint_health(tmsg_endpoint_t *endpoint,
                                            const char *method, int timeout_ms,
                                            tmsg_health_t *health_p);

/* Asks likewise for the health with figures. An older peer tells no figures:
 * 0. */
TMSG_API tmsg_status_t
tmsg_endpoint_health_report(tmsg_endpoint_t *endpoint, const char *method,
                            int timeout_ms, tmsg_health_report_t *report_p);

/* For applications that must not wait. They call TMSG_METHOD_METHODS with no
 * map, or TMSG_METHOD_HEALTH with or without the metadata "method" (a string),
 * and read the reply with these functions. Nothing in it is trusted.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL
 *   MALFORMED - the reply; the error names the method
 *   LIMIT_EXCEEDED - more than 65536 methods
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_methods_read(const tmsg_map_t *reply,
                                         tmsg_methods_t **methods_p);
TMSG_API tmsg_status_t tmsg_health_read(const tmsg_map_t *reply,
                                        tmsg_health_t *health_p);
TMSG_API tmsg_status_t tmsg_health_report_read(const tmsg_map_t *reply,
                                               tmsg_health_report_t *report_p);

/* Returns the number of methods, which are in the order in which they were
 * registered; 0 if methods is NULL. */
TMSG_API size_t tmsg_methods_size(const tmsg_methods_t *methods);

/* Gives the method at `index`.
 * Errors:
 *   NOT_FOUND - the index is out of range
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_methods_at(const tmsg_methods_t *methods,
                                       size_t index,
                                       tmsg_method_info_t *info_p);

/* Frees the list. NULL is allowed. */
TMSG_API void tmsg_methods_destroy(tmsg_methods_t *methods);

#ifdef __cplusplus
}
#endif

#endif
