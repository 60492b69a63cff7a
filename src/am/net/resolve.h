/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/resolve.h - looks up host names without making anyone wait. */
#ifndef TMSG_AM_NET_RESOLVE_H
#define TMSG_AM_NET_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <tensormsg/status.h>

typedef struct {
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
    } sa;
    socklen_t bytes;
} tmsg_address_t;

typedef struct tmsg_resolve tmsg_resolve_t;

/* Starts to look up `host`, which is copied; "" is 127.0.0.1. A numeric address
 * is there at once. A name is looked up on a short-lived thread of its own,
 * with all signals blocked. `passive` is for listening: IPv4 comes before IPv6,
 * which is otherwise left to the system's preference. On OK the caller ends
 * *resolve_p with tmsg_resolve_abandon(). Errors: NO_MEMORY, LIMIT_EXCEEDED
 * (descriptors), IO (no thread). */
tmsg_status_t tmsg_resolve_start(const char *host, uint16_t port, bool passive,
                                 tmsg_resolve_t **resolve_p);

/* Returns a descriptor that is readable once the answer is there, and from then
 * on; do not read from it. The descriptor is valid until
 * tmsg_resolve_abandon(), which closes it. */
int tmsg_resolve_fd(const tmsg_resolve_t *resolve);

/* Gives the answer, as often as asked: at least one address. The addresses live
 * until tmsg_resolve_abandon(). Errors: IN_PROGRESS, NOT_FOUND ("host 'x' not
 * found: ..."), NO_MEMORY, IO. */
tmsg_status_t tmsg_resolve_take(tmsg_resolve_t *resolve,
                                const tmsg_address_t **addresses_p,
                                size_t *count_p);

/* Waits for the answer, for callers that may block (tmsg_listener_create()).
 * timeout_ms -1: no limit. Errors: TIMED_OUT, else as tmsg_resolve_take(). */
tmsg_status_t tmsg_resolve_wait(tmsg_resolve_t *resolve, int timeout_ms);

/* Frees the lookup, at any time and without waiting. A lookup that still runs
 * ends by itself and throws its answer away. NULL is allowed. */
void tmsg_resolve_abandon(tmsg_resolve_t *resolve);

/* Tests set here what lookups that start from now on call in place of
 * getaddrinfo(); NULL restores it. freeaddrinfo() frees its result. Not
 * thread-safe. */
typedef int (*tmsg_resolve_lookup_fn)(const char *host, const char *service,
                                      const struct addrinfo *hints,
                                      struct addrinfo **result_p);
void tmsg_resolve_set_lookup(tmsg_resolve_lookup_fn lookup);

#endif
