/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/peer.h - which process is at the other end of a socket. A peer may say
 * anything of itself; the kernel knows.
 *
 * Of a Unix socket the kernel tells the process that connected or, to the side
 * that connected, the one that listens. Of a TCP socket within this machine it
 * tells the number (inode) of the socket at the other end, and /proc tells
 * whether the process that the peer names has that socket. */
#ifndef TMSG_AM_NET_PEER_H
#define TMSG_AM_NET_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* What a peer says of itself. */
typedef struct {
    uint32_t pid;
    uint32_t uid;
    /* 1 + the number of its descriptor of the TCP socket; 0: it does not say */
    uint32_t descriptor;
} tmsg_peer_claim_t;

/* Returns why the kernel does not confirm what the peer says of itself, in
 * words; NULL: it does. */
const char *tmsg_peer_doubt(int fd, const tmsg_peer_claim_t *claim);

/* Returns a descriptor of the process at the other end of a Unix socket, which
 * is readable once that process has ended, and its number; -1: the kernel gives
 * none, and errno tells why. */
int tmsg_peer_process(int fd, uint32_t *pid_p);

/* Returns whether the other end of a Unix socket was opened by a process of
 * that user, as the kernel says. */
bool tmsg_peer_is_user(int fd, uint32_t uid);

#endif
