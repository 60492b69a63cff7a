/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ep_sockets.h - the TCP sockets below a UCX endpoint, to watch and to
 * cut them.
 *
 * If an endpoint is closed by force, UCX's TCP leaves its socket in the epoll
 * set until the peer has said farewell on it. If something was still to be sent
 * then, the farewell finds the socket writable too. UCX (1.13 to 1.22) then
 * frees the endpoint for the first event and uses it for the second. A peer
 * that was stopped, and wakes after it was given up, causes this. So we cut a
 * socket before its endpoint is closed: UCX closes a socket without a
 * connection in order.
 *
 * UCX does not say which sockets belong to which endpoint. Its epoll sets do,
 * by what is in them before and after an endpoint is made (/proc/self/fdinfo).
 * A socket that another thread of UCX accepts meanwhile has the port of a
 * listening one, by which it is told apart. If /proc cannot be read, no socket
 * is known, watched or cut. */
#ifndef TMSG_AM_UCX_EP_SOCKETS_H
#define TMSG_AM_UCX_EP_SOCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "am/net/unacked.h"

#define TMSG_EP_SOCKETS_MOST 4
#define TMSG_SOCKET_SETS_MOST 8

/* The sockets below one UCX endpoint. The inode tells whether a descriptor is
 * still the same socket: UCX may have closed it since. */
typedef struct {
    unsigned count;
    struct {
        int fd;
        uint64_t inode;
        tmsg_unacked_t unacked;
    } of[TMSG_EP_SOCKETS_MOST];
} tmsg_ep_sockets_t;

/* The epoll sets of one UCX worker, and the ports at which it listens. */
typedef struct {
    unsigned count;
    int fds[TMSG_SOCKET_SETS_MOST];
    unsigned ports;
    uint16_t port[TMSG_SOCKET_SETS_MOST];
} tmsg_socket_sets_t;

/* The descriptors that there were before a step of UCX. */
typedef struct tmsg_watched tmsg_watched_t;

/* Find the epoll sets and ports that ucp_worker_create() opens: the first is
 * called before it, the second after it. The second frees `before`, which may
 * be NULL. If another library opens such a descriptor at the same time, it is
 * found, too. */
tmsg_watched_t *tmsg_socket_sets_before(void);
void tmsg_socket_sets_find(tmsg_watched_t *before, tmsg_socket_sets_t *sets);

/* Find the sockets that ucp_ep_create() opens or takes over: the first is
 * called before it, the second after it. `worker_fd` is the UCX worker's own
 * epoll set; only sets in it count. The second frees `before`, which may be
 * NULL. */
tmsg_watched_t *tmsg_ep_sockets_before(const tmsg_socket_sets_t *sets);
void tmsg_ep_sockets_find(tmsg_watched_t *before,
                          const tmsg_socket_sets_t *sets, int worker_fd,
                          tmsg_ep_sockets_t *sockets);

/* Find the socket that a UCX endpoint took over after it had been accepted,
 * which the epoll sets do not tell (UCX 1.22). The first is called before a
 * message is sent by the endpoint, the second after it: the socket is the one
 * that has sent new bytes. `others` are descriptors that are known to belong to
 * other endpoints; the first function sorts them. The second frees `before`,
 * which may be NULL. */
tmsg_watched_t *tmsg_ep_sockets_before_send(const tmsg_socket_sets_t *sets,
                                            int worker_fd, int *others,
                                            size_t count);
void tmsg_ep_sockets_find_sent(tmsg_watched_t *before,
                               tmsg_ep_sockets_t *sockets);

/* Calls tmsg_unacked_look() for each socket; for one that UCX has closed, with
 * -1. */
void tmsg_ep_sockets_look(tmsg_ep_sockets_t *sockets);

/* Calls tmsg_unacked_hasten() for each socket that UCX still has. */
void tmsg_ep_sockets_hasten(const tmsg_ep_sockets_t *sockets,
                            uint32_t timeout_ms);

/* Shuts the sockets down, discards what they hold, and forgets them. */
void tmsg_ep_sockets_cut(tmsg_ep_sockets_t *sockets);

#endif
