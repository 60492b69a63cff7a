/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "am/net/netif.h"
#include "am/net/peer.h"
#include "core/error.h"

#define HANDSHAKE_TIMEOUT_MS 20000 /* for a host that vanishes */
#define IDLE_TIMEOUT_MS 20000      /* twice the idle time before a probe */
#define KEEPALIVES_MOST 127  /* probes without an answer: the kernel's most */
#define KEEPALIVE_MOST 32767 /* seconds: the kernel's most */
#define LOCK_TRIES 200       /* of 5 ms: the second that sock.h speaks of */
#define NEW_SECONDS 2        /* age up to which a socket file is new */

/* Writes what a call was about: the address, or else the URL. */
static const char *name_of_call(const tmsg_url_t *url,
                                const tmsg_address_t *address,
                                char text[TMSG_URL_TEXT_BYTES])
{
    if (tmsg_url_has_path(url) || address == NULL) {
        return tmsg_url_format(url, text, TMSG_URL_TEXT_BYTES);
    }
    tmsg_url_format_sockaddr(&address->sa.any, address->bytes, text,
                             TMSG_URL_TEXT_BYTES);
    tmsg_url_rename(text, TMSG_URL_TEXT_BYTES, url->kind);
    return text;
}

/* Sets the error, and returns the status, that errno stands for. */
static tmsg_status_t fail_by_errno(const char *name)
{
    switch (errno) {
    case EADDRINUSE:
        return tmsg_error_errno(TMSG_ERR_ALREADY_EXISTS, "%s", name);
    case EADDRNOTAVAIL:
    case ENODEV:
        return tmsg_error_errno(TMSG_ERR_NOT_FOUND, "%s", name);
    case ENOMEM:
    case ENOBUFS:
        return tmsg_error_errno(TMSG_ERR_NO_MEMORY, "%s", name);
    default:
        return tmsg_error_errno(TMSG_ERR_IO, "%s", name);
    }
}

/* Closes a descriptor without changing errno. */
static void close_quietly(int fd)
{
    int error = errno;

    close(fd);
    errno = error;
}

static void set_option(int fd, int level, int option, int value)
{
    /* A failure here is no error: the socket works without the option. */
    setsockopt(fd, level, option, &value, sizeof(value));
}

/* Has probes go out from half the time on, in whole seconds. The probe that
 * finds the time over ends the connection. */
static void set_keepalive(int fd, uint32_t timeout_ms)
{
    int idle = (int)(timeout_ms / 2000), interval = (int)(timeout_ms / 8000);

    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)timeout_ms);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE,
               idle < 1                ? 1
               : idle > KEEPALIVE_MOST ? KEEPALIVE_MOST
                                       : idle);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL,
               interval < 1                ? 1
               : interval > KEEPALIVE_MOST ? KEEPALIVE_MOST
                                           : interval);
}

void tmsg_sock_set_timeout(int fd, uint32_t timeout_ms)
{
    if (timeout_ms > 0) {
        set_keepalive(fd, timeout_ms);
    } else {
        set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
    }
}

void tmsg_sock_keep_alive(int fd)
{
    set_keepalive(fd, IDLE_TIMEOUT_MS);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVES_MOST);
}

/* Linux 6.16 has it; the number is that of most architectures. */
#if !defined(SO_PASSRIGHTS) && !defined(__sparc__) && !defined(__hppa__)
#define SO_PASSRIGHTS 83
#endif

/* At first no descriptor may come. A receiver that has no room for one drops
 * it, and waits for a TCP socket that lingers: a stranger could stop it so.
 * Older kernels know no way to prevent that. */
static void refuse_fds(int fd)
{
#ifdef SO_PASSRIGHTS
    set_option(fd, SOL_SOCKET, SO_PASSRIGHTS, 0);
#else
    (void)fd;
#endif
}

void tmsg_sock_take_fds(int fd)
{
#ifdef SO_PASSRIGHTS
    set_option(fd, SOL_SOCKET, SO_PASSRIGHTS, 1);
#else
    (void)fd;
#endif
}

static void tune_socket(int fd, int family)
{
    if (family == AF_INET || family == AF_INET6) {
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set_keepalive(fd, HANDSHAKE_TIMEOUT_MS);
    }
}

static tmsg_address_t unix_address(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    tmsg_address_t address;

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    memset(&address, 0, sizeof(address));
    address.bytes = sizeof(un);
    if (tmsg_url_is_abstract(path)) { /* all its bytes are the name */
        un.sun_path[0] = '\0';
        address.bytes =
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    }
    memcpy(&address.sa, &un, sizeof(un));
    return address;
}

/* Returns whether the other end may be at an abstract socket: any user may bind
 * or dial its name, so the kernel has to say that the user is this one. */
static bool is_own_user(int fd, const char *path)
{
    return !tmsg_url_is_abstract(path) ||
           tmsg_peer_is_user(fd, (uint32_t)geteuid());
}

/* What is accepted from a Unix socket that listens is as that is. */
static int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && family == AF_UNIX) {
        refuse_fds(fd);
    }
    return fd;
}

static int bind_and_listen(int fd, const tmsg_address_t *address, int backlog)
{
    if (bind(fd, &address->sa.any, address->bytes) != 0) {
        return -1;
    }
    return listen(fd, backlog);
}

static tmsg_status_t listen_tcp(const char *name, const tmsg_address_t *address,
                                int backlog, int *fd_p)
{
    int family = address->sa.any.sa_family;
    int fd = open_socket(family);

    if (fd < 0) {
        return fail_by_errno(name);
    }
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) {
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    if (bind_and_listen(fd, address, backlog) != 0) {
        close_quietly(fd);
        return fail_by_errno(name);
    }
    *fd_p = fd;
    return TMSG_OK;
}

/* Returns whether somebody, or something that must stay, is at the path; errno
 * is then EADDRINUSE. A socket file that nobody listens on does not count: it
 * may go. */
static bool is_taken(const char *path, const tmsg_address_t *address)
{
    struct stat file;
    bool stale;
    int fd;

    if (lstat(path, &file) != 0) {
        return false;
    }
    if (!S_ISSOCK(file.st_mode)) {
        errno = EADDRINUSE;
        return true;
    }
    fd = open_socket(AF_UNIX);
    if (fd < 0) {
        return true;
    }
    stale = connect(fd, &address->sa.any, address->bytes) != 0 &&
            errno == ECONNREFUSED;
    close(fd);
    errno = EADDRINUSE;
    return !stale;
}

/* Locks the folder of a socket file. Between bind() and listen() a socket looks
 * stale, and two processes that find the same stale file must not both replace
 * it. A process that cannot lock the folder goes on without. Returns the lock's
 * descriptor, or -1. */
static int lock_folder(const char *path, int how)
{
    const struct timespec interval = {.tv_nsec = 5 * 1000 * 1000};
    char folder[TMSG_URL_PATH_BYTES];
    int fd;

    snprintf(folder, sizeof(folder), "%s", path);
    *(strrchr(folder, '/') + 1) = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, how | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
            close(fd);
            fd = -1;
        } else {
            nanosleep(&interval, NULL);
        }
    }
    return fd;
}

static int replace_and_listen(int fd, const char *path,
                              const tmsg_address_t *address, int backlog)
{
    if (is_taken(path, address)) {
        return -1;
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        return -1;
    }
    /* The file takes its mode from the socket, so it is never wider. */
    if (fchmod(fd, 0600) != 0) {
        return -1;
    }
    return bind_and_listen(fd, address, backlog);
}

static tmsg_status_t listen_abstract(const char *name, const char *path,
                                     int backlog,
                                     tmsg_sock_listener_t *listener)
{
    tmsg_address_t address = unix_address(path);
    int fd = open_socket(AF_UNIX);

    if (fd < 0) {
        return fail_by_errno(name);
    }
    if (bind_and_listen(fd, &address, backlog) != 0) {
        close_quietly(fd);
        return fail_by_errno(name);
    }
    listener->fd = fd;
    memcpy(listener->path, path, sizeof(listener->path));
    return TMSG_OK;
}

static tmsg_status_t listen_unix(const char *name, const char *path,
                                 int backlog, tmsg_sock_listener_t *listener)
{
    tmsg_address_t address = unix_address(path);
    int fd = open_socket(AF_UNIX);
    struct stat file = {0};
    int lock, result;

    if (fd < 0) {
        return fail_by_errno(name);
    }
    lock = lock_folder(path, LOCK_EX);
    result = replace_and_listen(fd, path, &address, backlog);
    if (result == 0) {
        result = lstat(path, &file);
    }
    if (lock >= 0) {
        close_quietly(lock);
    }
    if (result != 0) {
        close_quietly(fd);
        return errno == ENOENT || errno == ENOTDIR
                   ? tmsg_error_errno(TMSG_ERR_NOT_FOUND, "%s", name)
                   : fail_by_errno(name);
    }
    listener->fd = fd;
    listener->device = file.st_dev;
    listener->inode = file.st_ino;
    memcpy(listener->path, path, sizeof(listener->path));
    return TMSG_OK;
}

tmsg_status_t tmsg_sock_listen(const tmsg_url_t *url,
                               const tmsg_address_t *address, int backlog,
                               tmsg_sock_listener_t *listener_p)
{
    char text[TMSG_URL_TEXT_BYTES];
    const char *name = name_of_call(url, address, text);
    tmsg_sock_listener_t listener = {.fd = -1};
    tmsg_status_t status;

    if (tmsg_url_has_path(url)) {
        status = tmsg_url_is_abstract(url->path)
                     ? listen_abstract(name, url->path, backlog, &listener)
                     : listen_unix(name, url->path, backlog, &listener);
    } else {
        status = listen_tcp(name, address, backlog, &listener.fd);
    }
    if (status == TMSG_OK) {
        *listener_p = listener;
    }
    return status;
}

void tmsg_sock_listener_close(tmsg_sock_listener_t *listener)
{
    struct stat file;

    if (listener->fd < 0) {
        return;
    }
    /* The file is removed first: once the socket is closed another process may
     * take the path. */
    if (listener->path[0] == '/' && lstat(listener->path, &file) == 0 &&
        file.st_dev == listener->device && file.st_ino == listener->inode) {
        unlink(listener->path);
    }
    close(listener->fd);
    listener->fd = -1;
}

/* Returns whether accept() failed for a connection that died in the queue.
 * accept(2) asks to treat the network's errors like that. */
static bool is_lost_connection(int error)
{
    switch (error) {
    case ECONNABORTED:
    case EINTR:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP:
        return true;
    default:
        return false;
    }
}

static tmsg_status_t accept_failed(int fd)
{
    char text[TMSG_URL_TEXT_BYTES];
    int error = errno;
    tmsg_address_t local;

    if (tmsg_sock_local(fd, &local) != TMSG_OK) {
        memset(&local, 0, sizeof(local));
    }
    errno = error;
    return fail_by_errno(tmsg_url_format_sockaddr(&local.sa.any, local.bytes,
                                                  text, sizeof(text)));
}

tmsg_status_t tmsg_sock_accept(const tmsg_sock_listener_t *listener, int *fd_p)
{
    int fd;

    do {
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && is_lost_connection(errno));
    if (fd >= 0 && !is_own_user(fd, listener->path)) {
        close(fd); /* others may wait: the listener stays readable */
        return TMSG_IN_PROGRESS;
    }
    if (fd >= 0) {
        tune_socket(fd, listener->path[0] != '\0' ? AF_UNIX : AF_INET);
        *fd_p = fd;
        return TMSG_OK;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return TMSG_IN_PROGRESS;
    }
    return accept_failed(listener->fd);
}

static tmsg_status_t connect_failed(const char *name)
{
    switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
        return fail_by_errno(name);
    case EAGAIN:
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "%s: its queue of connections is full", name);
    default:
        return tmsg_error_errno(TMSG_ERR_UNREACHABLE, "%s", name);
    }
}

/* Returns whether a socket file is new. A file that was left behind is older,
 * and nobody is about to listen on it. */
static bool is_new(const char *path)
{
    struct stat file;

    return lstat(path, &file) == 0 &&
           time(NULL) - file.st_ctim.tv_sec <= NEW_SECONDS;
}

/* Returns whether an address is link-local and lacks its zone. A name can stand
 * for such an address; an address in a URL has its zone. */
static bool lacks_zone(const tmsg_address_t *address)
{
    struct in6_addr ip;
    uint32_t zone;

    return tmsg_netif_ip(&address->sa.any, &ip, &zone) &&
           IN6_IS_ADDR_LINKLOCAL(&ip) && zone == 0;
}

static tmsg_status_t zone_is_missing(const char *name)
{
    return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                          "%s: a link-local address needs its network device "
                          "as the zone, as in [fe80::1%%eth0]",
                          name);
}

/* Calls connect(). A process that sees a socket file and connects at once may
 * be refused by another that is about to listen. The other one holds the lock,
 * so this call waits for that. */
static int connect_now(int fd, const tmsg_url_t *url,
                       const tmsg_address_t *address)
{
    int lock, result = connect(fd, &address->sa.any, address->bytes);

    if (result == 0 || !tmsg_url_has_path(url) || errno != ECONNREFUSED ||
        tmsg_url_is_abstract(url->path)) {
        return result;
    }
    if (!is_new(url->path)) {
        errno = ECONNREFUSED;
        return result;
    }
    lock = lock_folder(url->path, LOCK_SH);
    result = connect(fd, &address->sa.any, address->bytes);
    if (lock >= 0) {
        close_quietly(lock);
    }
    return result;
}

tmsg_status_t tmsg_sock_connect(const tmsg_url_t *url,
                                const tmsg_address_t *address, int *fd_p)
{
    char text[TMSG_URL_TEXT_BYTES];
    const char *name = name_of_call(url, address, text);
    tmsg_address_t local;
    int fd;

    if (tmsg_url_has_path(url)) {
        local = unix_address(url->path);
        address = &local;
    }
    if (lacks_zone(address)) {
        return zone_is_missing(name);
    }
    fd = open_socket(address->sa.any.sa_family);
    if (fd < 0) {
        return fail_by_errno(name);
    }
    tune_socket(fd, address->sa.any.sa_family);
    if (connect_now(fd, url, address) == 0) {
        if (!is_own_user(fd, url->path)) {
            close(fd);
            return tmsg_error_set(TMSG_ERR_REFUSED,
                                  "%s: another user listens there", name);
        }
        *fd_p = fd;
        return TMSG_OK;
    }
    /* An interrupted connect() goes on by itself. */
    if (errno == EINPROGRESS || errno == EINTR) {
        *fd_p = fd;
        return TMSG_IN_PROGRESS;
    }
    close_quietly(fd);
    return connect_failed(name);
}

/* Returns whether TCP has connected the socket to itself. That happens when a
 * port of the ephemeral range, which nobody listens on, is picked as our
 * own. */
static bool is_self(int fd)
{
    tmsg_address_t local, peer;

    return tmsg_sock_local(fd, &local) == TMSG_OK &&
           tmsg_sock_peer(fd, &peer) == TMSG_OK &&
           local.sa.any.sa_family != AF_UNIX && local.bytes == peer.bytes &&
           memcmp(&local.sa, &peer.sa, local.bytes) == 0;
}

/* Returns whether the socket is neither connected nor on its way. After a reset
 * it has an error that is told once; after a shutdown it never has one. */
static bool is_dead(int fd)
{
    struct pollfd socket = {fd, 0, 0};

    return poll(&socket, 1, 0) > 0 && (socket.revents & POLLHUP) != 0;
}

tmsg_status_t tmsg_sock_connect_result(int fd, const char *url)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    tmsg_address_t peer;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
        error = errno;
    }
    if (error == 0) {
        peer.bytes = sizeof(peer.sa);
        if (getpeername(fd, &peer.sa.any, &peer.bytes) != 0) {
            error = errno;
            if (error == ENOTCONN && !is_dead(fd)) {
                return TMSG_IN_PROGRESS;
            }
        } else if (is_self(fd)) {
            error = ECONNREFUSED;
        }
    }
    if (error != 0) {
        errno = error;
        return connect_failed(url);
    }
    return TMSG_OK;
}

typedef int (*name_fn)(int fd, struct sockaddr *address, socklen_t *bytes);

static tmsg_status_t get_name(int fd, name_fn get, const char *what,
                              tmsg_address_t *address_p)
{
    tmsg_address_t address;

    memset(&address, 0, sizeof(address));
    address.bytes = sizeof(address.sa);
    if (get(fd, &address.sa.any, &address.bytes) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "the address of %s", what);
    }
    *address_p = address;
    return TMSG_OK;
}

tmsg_status_t tmsg_sock_local(int fd, tmsg_address_t *address_p)
{
    return get_name(fd, getsockname, "this end of a connection", address_p);
}

tmsg_status_t tmsg_sock_peer(int fd, tmsg_address_t *address_p)
{
    return get_name(fd, getpeername, "a peer", address_p);
}

/* An address that can be bound to is ours, whether it is a device's or routed
 * to us. */
bool tmsg_sock_is_local(int fd)
{
    tmsg_address_t peer;
    bool local = true;
    int probe;

    if (tmsg_sock_peer(fd, &peer) != TMSG_OK) {
        return true;
    }
    if (peer.sa.any.sa_family == AF_INET) {
        ((struct sockaddr_in *)&peer.sa.storage)->sin_port = 0;
    } else if (peer.sa.any.sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)&peer.sa.storage)->sin6_port = 0;
    } else {
        return true;
    }
    probe = socket(peer.sa.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return true;
    }
    if (bind(probe, &peer.sa.any, peer.bytes) != 0) {
        local = errno != EADDRNOTAVAIL;
    }
    close(probe);
    return local;
}

void tmsg_sock_origin(int fd, tmsg_sock_origin_t *origin)
{
    tmsg_address_t peer;
    struct ucred who;
    socklen_t bytes = sizeof(who);
    struct in6_addr ip;

    memset(origin, 0, sizeof(*origin));
    if (tmsg_sock_peer(fd, &peer) == TMSG_OK &&
        tmsg_netif_ip(&peer.sa.any, &ip, NULL)) {
        memcpy(origin->bytes, &ip, IN6_IS_ADDR_V4MAPPED(&ip) ? 16 : 8);
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0) {
        memcpy(origin->bytes, &who.pid, sizeof(who.pid));
        memcpy(origin->bytes + 8, &who.uid, sizeof(who.uid));
    }
}

const char *tmsg_sock_peer_name(int fd, char *text, size_t bytes)
{
    tmsg_address_t address;

    if (tmsg_sock_peer(fd, &address) != TMSG_OK) {
        snprintf(text, bytes, "unknown address");
        return text;
    }
    tmsg_url_format_sockaddr(&address.sa.any, address.bytes, text, bytes);
    /* The side that connects to a Unix socket has no name, so this end's name
     * tells. */
    if (strcmp(text, "unix://") == 0 &&
        tmsg_sock_local(fd, &address) == TMSG_OK) {
        tmsg_url_format_sockaddr(&address.sa.any, address.bytes, text, bytes);
    }
    return text;
}
