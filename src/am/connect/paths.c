/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/paths.h"

#include <stdio.h>

#include "am/connect/counted.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/net/sock.h"
#include "am/net/unacked.h"
#include "am/path/bulk.h"
#include "am/path/fastboxes.h"
#include "am/ucx/ucx_events.h"
#include "am/ucx/ucx_pipe.h"
#include "am/worker/engine.h"

#define WHY_BYTES 160
#define NAME_BYTES 64
#define PATHS_MOST (TMSG_EP_SOCKETS_MOST + TMSG_BULK_SUBFLOWS_MOST)
#define TRIES 4 /* looks in the time after which a path is silent */

/* A TCP connection of an endpoint. */
typedef struct {
    const tmsg_unacked_t *unacked;
    int fd;
    tmsg_bulk_t *bulk; /* a subflow; NULL: it is none */
} path_t;

void tmsg_paths_begin(tmsg_endpoint_t *endpoint)
{
    uint32_t timeout_ms = endpoint->worker->context->peer_timeout_ms;

    if (timeout_ms > 0) {
        tmsg_ep_sockets_hasten(&endpoint->conn.sockets, timeout_ms);
    }
}

bool tmsg_paths_are_watched(const tmsg_endpoint_t *endpoint)
{
    return endpoint->ucxx == NULL &&
           (endpoint->state == TMSG_EP_OPEN ||
            endpoint->state == TMSG_EP_CLOSING) &&
           endpoint->worker->context->peer_timeout_ms > 0;
}

/* Looks at all TCP connections of an endpoint, and returns their number. */
static unsigned look_at_all(tmsg_endpoint_t *endpoint, path_t paths[PATHS_MOST])
{
    tmsg_ep_sockets_t *sockets = &endpoint->conn.sockets;
    tmsg_bulk_path_t subflows[TMSG_BULK_SUBFLOWS_MOST];
    unsigned subflow_count = tmsg_bulk_sockets(endpoint, subflows), count = 0;

    tmsg_bulk_look(endpoint);
    tmsg_ep_sockets_look(sockets);
    for (; count < sockets->count; count++) {
        paths[count] =
            (path_t){&sockets->of[count].unacked, sockets->of[count].fd, NULL};
    }
    for (unsigned i = 0; i < subflow_count; i++) {
        tmsg_unacked_look(&subflows[i].bulk->unacked, subflows[i].fd);
        paths[count++] = (path_t){&subflows[i].bulk->unacked, subflows[i].fd,
                                  subflows[i].bulk};
    }
    return count;
}

/* Handles what the peer sent by UCX before. False: the peer has told why it
 * ends, or is no longer there. */
static bool hear_out(tmsg_endpoint_t *endpoint)
{
    if (endpoint->ep != NULL) {
        tmsg_ucx_events.drain(endpoint->ucx);
    }
    return endpoint->broken == TMSG_OK;
}

static void lose_path(tmsg_endpoint_t *endpoint, const path_t *path)
{
    char why[WHY_BYTES], name[NAME_BYTES];

    snprintf(why, sizeof(why),
             "%s to %s: nothing was acknowledged there for %.1f s%s",
             path->bulk != NULL ? "the connection for large payloads"
             : endpoint->ucx->pipes != NULL ? "the stream of messages"
                                            : "UCX's connection",
             tmsg_sock_peer_name(path->fd, name, sizeof(name)),
             (double)path->unacked->ns / 1e9,
             endpoint->link.fd >= 0
                 ? ", though the peer is alive: is there a firewall?"
                 : ": its host, or the network, is down");
    if (!hear_out(endpoint)) {
        return;
    }
    if (path->bulk != NULL) {
        tmsg_bulk_give_up(path->bulk, why);
    } else {
        tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

/* Ends an endpoint whose peer does not get what goes by the stream. */
static void lose_stuck(tmsg_endpoint_t *endpoint, uint64_t ns)
{
    char why[WHY_BYTES], name[NAME_BYTES];
    int fd = tmsg_pipe_fd(tmsg_ucx_pipe_of(endpoint->ep));

    snprintf(why, sizeof(why),
             "the stream of messages to %s: the peer has received nothing for "
             "%.1f s, though it is alive: does a relay hold the stream back?",
             tmsg_sock_peer_name(fd, name, sizeof(name)), (double)ns / 1e9);
    if (hear_out(endpoint)) {
        tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

/* Ends the connection. A session goes on with another connection, which has
 * memory of its own. */
static void end_overwritten(tmsg_endpoint_t *endpoint, const char *what)
{
    char why[WHY_BYTES];

    snprintf(why, sizeof(why),
             "somebody else wrote to %s in shared memory: messages in it are "
             "lost",
             what);
    if (!hear_out(endpoint)) {
        return;
    }
    tmsg_engine.end(endpoint,
                    tmsg_resume_keeps(endpoint) ? TMSG_ERR_PEER_LOST
                                                : TMSG_ERR_CORRUPT,
                    why);
}

static uint64_t sooner_ns(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* If the peer has hung up, or gives no sign of life, this does not end the
 * endpoint: that happens elsewhere, with a better reason. */
uint64_t tmsg_paths_look(tmsg_endpoint_t *endpoint, uint64_t most_ns,
                         bool lives)
{
    path_t paths[PATHS_MOST];
    unsigned count = look_at_all(endpoint, paths);
    uint64_t left = most_ns, stuck_ns;

    if (endpoint->broken != TMSG_OK || !lives || !tmsg_link_alive(endpoint)) {
        return most_ns / TRIES;
    }
    for (unsigned i = 0; i < count; i++) {
        const tmsg_unacked_t *unacked = paths[i].unacked;

        if (unacked->ns >= most_ns && unacked->again) {
            lose_path(endpoint, &paths[i]);
            return left;
        }
        left = sooner_ns(left, unacked->ns < most_ns ? most_ns - unacked->ns
                                                     : most_ns / TRIES);
    }
    stuck_ns = tmsg_counted_stuck_ns(endpoint, TRIES);
    if (stuck_ns > 0) {
        lose_stuck(endpoint, stuck_ns);
        return left;
    }
    left = sooner_ns(left, tmsg_counted_ask(endpoint, most_ns / TRIES));
    if (!tmsg_fastboxes_are_intact(endpoint)) {
        end_overwritten(endpoint, "a fast box");
    } else if (!tmsg_bulk_is_intact(endpoint)) {
        end_overwritten(endpoint, "a ring");
    }
    return left;
}

static uint64_t longer_ns(uint64_t ns, const tmsg_unacked_t *unacked)
{
    return unacked->again && unacked->ns > ns ? unacked->ns : ns;
}

/* Works on copies, because the endpoint's own looks must not change. */
uint64_t tmsg_paths_unacked_ns(const tmsg_endpoint_t *endpoint)
{
    tmsg_ep_sockets_t sockets = endpoint->conn.sockets;
    tmsg_bulk_path_t subflows[TMSG_BULK_SUBFLOWS_MOST];
    unsigned subflow_count = tmsg_bulk_sockets(endpoint, subflows);
    uint64_t longest = 0;

    tmsg_ep_sockets_look(&sockets);
    for (unsigned i = 0; i < sockets.count; i++) {
        longest = longer_ns(longest, &sockets.of[i].unacked);
    }
    for (unsigned i = 0; i < subflow_count; i++) {
        tmsg_unacked_t unacked = subflows[i].bulk->unacked;

        tmsg_unacked_look(&unacked, subflows[i].fd);
        longest = longer_ns(longest, &unacked);
    }
    return longest;
}
