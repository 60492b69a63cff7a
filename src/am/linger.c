/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/linger.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_NS 250000000ULL
#define LOOK_NS 200000ULL /* between two looks at all of them */

typedef struct {
    tmsg_node_t node;
    int fd;
    uint64_t deadline_ns;
} socket_t;

void tmsg_linger_begin(tmsg_ucx_t *ucx, int fd)
{
    socket_t *kept = malloc(sizeof(*kept));

    if (kept == NULL) {
        ucx->forsaken = true;
        close(fd);
        return;
    }
    shutdown(fd, SHUT_WR);
    kept->fd = fd;
    kept->deadline_ns = tmsg_now_ns() + LINGER_NS;
    tmsg_list_push(&ucx->lingering, &kept->node);
}

/* Throws away what the peer still says. */
static bool has_hung_up(int fd)
{
    char words[512];
    ssize_t got = recv(fd, words, sizeof(words), MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool tmsg_linger_over(tmsg_ucx_t *ucx)
{
    uint64_t now = ucx->lingering.count == 0 ? 0 : tmsg_now_ns();
    tmsg_node_t *next;

    if (now != 0 && now < ucx->linger_look_ns) {
        return false;
    }
    ucx->linger_look_ns = now + LOOK_NS;
    for (tmsg_node_t *node = ucx->lingering.head; node != NULL; node = next) {
        socket_t *kept = TMSG_CONTAINER_OF(node, socket_t, node);

        next = node->next;
        if (!has_hung_up(kept->fd)) {
            if (now < kept->deadline_ns) {
                continue;
            }
            ucx->forsaken = true;
        }
        tmsg_list_remove(&ucx->lingering, node);
        close(kept->fd);
        free(kept);
    }
    return ucx->lingering.count == 0;
}
