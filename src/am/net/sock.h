/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/sock.h - the bootstrap's sockets: nonblocking, closed on exec. */
#ifndef TMSG_AM_NET_SOCK_H
#define TMSG_AM_NET_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/status.h>

#include "am/net/resolve.h"
#include "am/net/url.h"

/* Errors here begin with the URL they are about and end with the system's
 * words: "tcp://127.0.0.1:4000: Address already in use". Running out of
 * descriptors is LIMIT_EXCEEDED everywhere and names the limit. */

typedef struct {
    int fd;
    char path[TMSG_URL_PATH_BYTES]; /* of the file we made; "" for tcp */
    dev_t device;                   /* its identity, so that we remove */
    ino_t inode;                    /* ours and no one else's */
} tmsg_sock_listener_t;

/* Opens a listening socket. tcp takes `address` (one that was resolved); an
 * IPv6 socket serves IPv6 alone. unix takes url->path, with mode 0600: a
 * socket file that nobody listens on is replaced; anything else there is kept.
 * Looking may take up to a second while another process does the same in that
 * folder. On OK the caller ends *listener_p with tmsg_sock_listener_close().
 * Errors: ALREADY_EXISTS (port, live socket or other file), NOT_FOUND (the
 * address is not of this machine; no such folder), LIMIT_EXCEEDED, IO. */
tmsg_status_t tmsg_sock_listen(const tmsg_url_t *url,
                               const tmsg_address_t *address, int backlog,
                               tmsg_sock_listener_t *listener_p);

/* Closes it and removes its file, if that is still the one it made. */
void tmsg_sock_listener_close(tmsg_sock_listener_t *listener);

/* Takes one connection that waits. Ready for frames: TCP_NODELAY, keepalive.
 * Errors: IN_PROGRESS (none waits), LIMIT_EXCEEDED (it keeps waiting, and the
 * listener stays readable: stop polling it for a while), IO. */
tmsg_status_t tmsg_sock_accept(const tmsg_sock_listener_t *listener, int *fd_p);

/* Starts to connect. OK: connected. IN_PROGRESS: *fd_p becomes writable when
 * tmsg_sock_connect_result() knows more. Either way the caller closes *fd_p.
 * At a Unix socket that refuses, and was made just now, it may wait a second
 * for who is about to listen. Errors: UNREACHABLE, BUSY (a Unix listener's
 * queue is full: try later), LIMIT_EXCEEDED, IO. */
tmsg_status_t tmsg_sock_connect(const tmsg_url_t *url,
                                const tmsg_address_t *address, int *fd_p);

/* What became of it. `url` is named in errors. Errors: IN_PROGRESS,
 * UNREACHABLE. */
tmsg_status_t tmsg_sock_connect_result(int fd, const char *url);

/* The time after which TCP gives up a peer that does not answer, as near as the
 * kernel can: 2 s at least. 0: the kernel's own. Not of a Unix socket. */
void tmsg_sock_set_patience(int fd, uint32_t timeout_ms);

/* Of a connection that may be idle, or not be read, for as long as its peer
 * likes: those between do not forget it, and the kernel gives it up as late as
 * it can. */
void tmsg_sock_keep_alive(int fd);

/* The address of this end, and of the other. Errors: IO (not connected). */
tmsg_status_t tmsg_sock_local(int fd, tmsg_address_t *address_p);
tmsg_status_t tmsg_sock_peer(int fd, tmsg_address_t *address_p);

/* Whether the other end has an address of this machine, or of this network
 * namespace, by the kernel's word. True where that does not tell, as with its
 * setting ip_nonlocal_bind. */
bool tmsg_sock_is_local(int fd);

/* The other end in words, as tmsg_url_format_sockaddr(); of a Unix socket the
 * path that either end is bound to. Returns `text`. */
const char *tmsg_sock_peer_name(int fd, char *text, size_t bytes);

#endif
