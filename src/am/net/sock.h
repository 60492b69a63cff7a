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

/* Errors of these functions begin with the URL that they are about and end with
 * the system's words: "tcp://127.0.0.1:4000: Address already in use". Running
 * out of descriptors is LIMIT_EXCEEDED everywhere; that error names the
 * limit. */

typedef struct {
    int fd;
    char path[TMSG_URL_PATH_BYTES]; /* of the URL; "" for tcp */
    dev_t device;                   /* of the file: we remove no other */
    ino_t inode;                    /* of that file, likewise */
} tmsg_sock_listener_t;

/* Opens a listening socket. For tcp it takes `address`, which was resolved; an
 * IPv6 socket serves IPv6 alone. For unix it takes url->path, and makes the
 * file with mode 0600. A socket file that nobody listens on is replaced;
 * anything else there is kept. To look may take up to a second while another
 * process does the same in that folder. An abstract name ("@name") has no file,
 * and connections of other users are dropped. On OK the caller ends *listener_p
 * with tmsg_sock_listener_close(). Errors: ALREADY_EXISTS (port, live socket or
 * other file), NOT_FOUND (the address is not of this machine; no such folder),
 * LIMIT_EXCEEDED, IO. */
tmsg_status_t tmsg_sock_listen(const tmsg_url_t *url,
                               const tmsg_address_t *address, int backlog,
                               tmsg_sock_listener_t *listener_p);

/* Closes the listener and removes its file, if that is still the one it
 * made. */
void tmsg_sock_listener_close(tmsg_sock_listener_t *listener);

/* Takes one connection that waits, and makes it ready for frames (TCP_NODELAY,
 * keepalive). Errors: IN_PROGRESS (none waits, or one was dropped),
 * LIMIT_EXCEEDED (the connection keeps waiting, and the listener stays
 * readable: stop polling it for a while), IO. */
tmsg_status_t tmsg_sock_accept(const tmsg_sock_listener_t *listener, int *fd_p);

/* Lets descriptors come by a Unix socket that was accepted or connected here.
 * Before, the kernel refuses them to their sender, if it can (Linux 6.16). */
void tmsg_sock_take_fds(int fd);

/* Starts to connect. Returns OK if the socket is connected. With IN_PROGRESS
 * *fd_p becomes writable when tmsg_sock_connect_result() knows more. Either way
 * the caller closes *fd_p. The file of a Unix socket that refuses may be new:
 * the call then waits up to a second for the process that is about to listen.
 * Errors: UNREACHABLE, REFUSED (another user listens at the abstract name),
 * BUSY (a Unix listener's queue is full: try later), LIMIT_EXCEEDED, IO. */
tmsg_status_t tmsg_sock_connect(const tmsg_url_t *url,
                                const tmsg_address_t *address, int *fd_p);

/* Returns what became of the connection. Errors name `url`: IN_PROGRESS,
 * UNREACHABLE. */
tmsg_status_t tmsg_sock_connect_result(int fd, const char *url);

/* Sets the time after which TCP gives up a peer that does not answer, as near
 * as the kernel can: 2 s at least. 0: the kernel's own time. Not for Unix
 * sockets. */
void tmsg_sock_set_timeout(int fd, uint32_t timeout_ms);

/* Keeps a connection alive that may be idle, or not be read, for as long as its
 * peer likes. Routers and firewalls between do not forget it, and the kernel
 * gives it up as late as it can. */
void tmsg_sock_keep_alive(int fd);

/* tmsg_sock_local() gives the address of this end, tmsg_sock_peer() that of the
 * other. Errors: IO (not connected). */
tmsg_status_t tmsg_sock_local(int fd, tmsg_address_t *address_p);
tmsg_status_t tmsg_sock_peer(int fd, tmsg_address_t *address_p);

/* Returns whether the kernel says that the other end has an address of this
 * machine, or of this network namespace. Returns true where the kernel does not
 * tell, as with its setting ip_nonlocal_bind. */
bool tmsg_sock_is_local(int fd);

/* Tells from where a connection came, so that connections of one origin can be
 * counted: of TCP the host's address, of IPv6 its /64, in which a host may pick
 * addresses; of a Unix socket the process that connected, and its user, as the
 * kernel knows them. */
typedef struct {
    uint8_t bytes[16];
} tmsg_sock_origin_t;
void tmsg_sock_origin(int fd, tmsg_sock_origin_t *origin);

/* Writes the other end in words, as tmsg_url_format_sockaddr() does. Of a Unix
 * socket it writes the path that either end is bound to. Returns `text`. */
const char *tmsg_sock_peer_name(int fd, char *text, size_t bytes);

#endif
