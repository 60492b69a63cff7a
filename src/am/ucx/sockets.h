/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/sockets.h - the TCP sockets below a UCX endpoint, to watch and to cut
 * them.
 *
 * UCX's TCP leaves the socket of an endpoint that was closed by force in its
 * epoll set until the peer has said farewell on it. Where something was still
 * to be sent then, the farewell finds the socket writable too, and UCX (1.13 to
 * 1.22) frees the endpoint for the first event and uses it for the second. A
 * peer that was stopped and wakes after it was given up does just that. So a
 * socket is cut before: a socket without a connection is closed in order.
 *
 * UCX does not say which sockets are whose; its epoll sets do, by what is in
 * them before and after an endpoint is made (/proc/self/fdinfo). What another
 * thread of UCX's accepts meanwhile has the port of one that listens. Where
 * /proc cannot be read nothing is known, and nothing watched or cut. */
#ifndef TMSG_AM_UCX_SOCKETS_H
#define TMSG_AM_UCX_SOCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "am/net/unacked.h"

#define TMSG_SOCKETS_MOST 4
#define TMSG_SOCKET_SETS_MOST 8

/* Sockets are known again by their inodes: UCX may have closed one since. */
typedef struct {
    unsigned count;
    struct {
        int fd;
        uint64_t inode;
        tmsg_unacked_t unacked;
    } of[TMSG_SOCKETS_MOST];
} tmsg_sockets_t;

/* The epoll sets of one UCX worker, and the ports at which it listens. */
typedef struct {
    unsigned count;
    int fds[TMSG_SOCKET_SETS_MOST];
    unsigned ports;
    uint16_t port[TMSG_SOCKET_SETS_MOST];
} tmsg_socket_sets_t;

/* What there was before. */
typedef struct tmsg_watched tmsg_watched_t;

/* Around ucp_worker_create(): finds what came meanwhile, something of another
 * library's too where it makes one just then. */
tmsg_watched_t *tmsg_socket_sets_before(void);
void tmsg_socket_sets_find(tmsg_watched_t *before, tmsg_socket_sets_t *sets);

/* Around ucp_ep_create(): finds the sockets that it opened or took over.
 * `worker_fd` is the UCX worker's own set, in which those that count are. */
tmsg_watched_t *tmsg_sockets_before(const tmsg_socket_sets_t *sets);
void tmsg_sockets_find(tmsg_watched_t *before, const tmsg_socket_sets_t *sets,
                       int worker_fd, tmsg_sockets_t *sockets);

/* Around a message by a UCX endpoint that took over a socket which had been
 * accepted before, so that the sets do not tell (UCX 1.22): finds the one by
 * which new bytes went meanwhile. `others` are descriptors that are known to be
 * somebody else's; they are sorted here. */
tmsg_watched_t *tmsg_sockets_before_send(const tmsg_socket_sets_t *sets,
                                         int worker_fd, int *others,
                                         size_t count);
void tmsg_sockets_find_sent(tmsg_watched_t *before, tmsg_sockets_t *sockets);

/* tmsg_unacked_look() at each that UCX has yet. */
void tmsg_sockets_look(tmsg_sockets_t *sockets);

/* tmsg_unacked_hasten() of each. */
void tmsg_sockets_hasten(const tmsg_sockets_t *sockets, uint32_t timeout_ms);

/* Shuts them down and discards what they hold. */
void tmsg_sockets_cut(tmsg_sockets_t *sockets);

#endif
