/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/unacked.h - tells whether the host at the other end of a TCP
 * connection still acknowledges what it is sent.
 *
 * A host acknowledges whatever its application does. An application that does
 * not read fills its window; then the kernel here sends probes, and the kernel
 * there answers them. So a connection without any answer is cut, by a firewall
 * or a router, or the host is gone. TCP_USER_TIMEOUT is no substitute: it also
 * ends a connection whose probes are answered (Linux, tcp_probe_timer()). */
#ifndef TMSG_AM_NET_UNACKED_H
#define TMSG_AM_NET_UNACKED_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_info;

/* Describes one connection, as it was last looked at. All zero bits: nothing
 * waits to be acknowledged. */
typedef struct {
    uint64_t since_ns; /* since then something has waited; 0: nothing has */
    uint64_t bytes;    /* acknowledged by then, in all */
    uint64_t ns;       /* for how long nothing has been acknowledged */
    bool again;        /* what waits was sent again more than once */
} tmsg_unacked_t;

/* Looks at a TCP connection. On any other descriptor nothing waits. */
void tmsg_unacked_look(tmsg_unacked_t *unacked, int fd);

/* Judges a connection by what the kernel says of it, TCP_INFO. */
void tmsg_unacked_judge(tmsg_unacked_t *unacked, const struct tcp_info *info,
                        uint64_t now_ns);

/* Has the kernel send again at least four times in `timeout_ms`, so that a
 * connection recovers, or is found dead, in time. By itself the kernel waits up
 * to two minutes between two tries. Linux has this from 6.15 on; before, the
 * function does nothing. */
void tmsg_unacked_hasten(int fd, uint32_t timeout_ms);

#endif
