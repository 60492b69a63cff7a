/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ep_sockets.h"

#include <dirent.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A descriptor and a number. In an epoll set the number is the word that its
 * owner gave; before a send it is how many bytes went by the socket. */
typedef struct {
    int fd;
    uint64_t data;
} watch_t;

struct tmsg_watched {
    size_t count;
    size_t capacity;
    watch_t *of;
};

static bool add_watch(tmsg_watched_t *watched, watch_t watch)
{
    if (watched->count == watched->capacity) {
        size_t capacity = watched->capacity * 2 + 16;
        watch_t *of = reallocarray(watched->of, capacity, sizeof(*of));

        if (of == NULL) {
            return false;
        }
        watched->of = of;
        watched->capacity = capacity;
    }
    watched->of[watched->count++] = watch;
    return true;
}

static void free_watched(tmsg_watched_t *watched)
{
    if (watched != NULL) {
        free(watched->of);
        free(watched);
    }
}

static bool has_fd(const tmsg_watched_t *watched, int fd)
{
    for (size_t i = 0; i < watched->count; i++) {
        if (watched->of[i].fd == fd) {
            return true;
        }
    }
    return false;
}

/* Returns whether a descriptor is an epoll set. An epoll set that is asked to
 * remove `stranger`, a descriptor that is in no set, answers ENOENT; any other
 * descriptor answers another error. Nothing is changed, and no file system is
 * asked, which may hang. The system call is made directly because another
 * thread may open or close the descriptor just now: ThreadSanitizer takes that
 * for a race if epoll_ctl() is called. */
static bool is_epoll(int fd, int stranger)
{
    return syscall(SYS_epoll_ctl, fd, EPOLL_CTL_DEL, stranger, NULL) < 0 &&
           errno == ENOENT;
}

static bool is_listening(int fd)
{
    socklen_t bytes = sizeof(int);
    int listening = 0;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 &&
           listening != 0;
}

/* Returns the port of a socket, in network byte order. 0: it has none. */
static uint16_t port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);

    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0) {
        return 0;
    }
    return address.ss_family == AF_INET
               ? ((const struct sockaddr_in *)&address)->sin_port
           : address.ss_family == AF_INET6
               ? ((const struct sockaddr_in6 *)&address)->sin6_port
               : 0;
}

tmsg_watched_t *tmsg_socket_sets_before(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int stranger = eventfd(0, EFD_CLOEXEC); /* a descriptor in no epoll set */
    tmsg_watched_t *found = NULL;
    struct dirent *entry;
    bool whole = true;

    if (directory != NULL && stranger >= 0) {
        found = calloc(1, sizeof(*found));
    }
    while (found != NULL && whole && (entry = readdir(directory)) != NULL) {
        int fd = atoi(entry->d_name);

        whole = (!is_epoll(fd, stranger) && !is_listening(fd)) ||
                add_watch(found, (watch_t){.fd = fd});
    }
    if (directory != NULL) {
        closedir(directory);
    }
    if (stranger >= 0) {
        close(stranger);
    }
    if (!whole) {
        free_watched(found);
        found = NULL;
    }
    return found;
}

static void add_to_sets(tmsg_socket_sets_t *sets, int fd)
{
    if (!is_listening(fd)) {
        if (sets->count < TMSG_SOCKET_SETS_MOST) {
            sets->fds[sets->count++] = fd;
        }
    } else if (port_of(fd) != 0 && sets->ports < TMSG_SOCKET_SETS_MOST) {
        sets->port[sets->ports++] = port_of(fd);
    }
}

void tmsg_socket_sets_find(tmsg_watched_t *before, tmsg_socket_sets_t *sets)
{
    tmsg_watched_t *after = before == NULL ? NULL : tmsg_socket_sets_before();

    *sets = (tmsg_socket_sets_t){0};
    for (size_t i = 0; after != NULL && i < after->count; i++) {
        int fd = after->of[i].fd;

        if (!has_fd(before, fd)) {
            add_to_sets(sets, fd);
        }
    }
    free_watched(after);
    free_watched(before);
}

/* Reads a line such as "tfd: 5 events: 19 data: 55d0c0 ...". sscanf() takes ten
 * times as long, and a thousand endpoints have as many lines each time. */
static bool parse_watch(const char *line, watch_t *watch_p)
{
    const char *data = strstr(line, " data:");

    if (strncmp(line, "tfd:", 4) != 0 || data == NULL) {
        return false;
    }
    watch_p->fd = (int)strtol(line + 4, NULL, 10);
    watch_p->data = strtoull(data + 6, NULL, 16);
    return true;
}

static bool read_set(int set, tmsg_watched_t *watched)
{
    char path[64], line[256];
    bool whole = true;
    watch_t watch;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", set);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (whole && fgets(line, sizeof(line), file) != NULL) {
        if (parse_watch(line, &watch)) {
            whole = add_watch(watched, watch);
        }
    }
    fclose(file);
    return whole;
}

static int compare_watches(const void *left, const void *right)
{
    const watch_t *a = left, *b = right;

    if (a->fd != b->fd) {
        return a->fd < b->fd ? -1 : 1;
    }
    return a->data == b->data ? 0 : a->data < b->data ? -1 : 1;
}

static const watch_t *find_watch(const tmsg_watched_t *watched, watch_t watch,
                                 int (*by)(const void *left, const void *right))
{
    return watched->count == 0 ? NULL
                               : bsearch(&watch, watched->of, watched->count,
                                         sizeof(watch), by);
}

static int compare_fds(const void *left, const void *right)
{
    const watch_t *a = left, *b = right;

    return (a->fd > b->fd) - (a->fd < b->fd);
}

static bool is_accepted(const tmsg_socket_sets_t *sets, int fd)
{
    uint16_t port = port_of(fd);

    for (unsigned i = 0; i < sets->ports; i++) {
        if (sets->port[i] == port) {
            return true;
        }
    }
    return false;
}

/* Returns whether a new entry of a set belongs to the new endpoint. The
 * endpoint opened the socket, or took it over after it had been accepted
 * before. */
static bool is_of_endpoint(const tmsg_watched_t *before,
                           const tmsg_socket_sets_t *sets, watch_t watch)
{
    return find_watch(before, watch, compare_watches) == NULL &&
           (find_watch(before, watch, compare_fds) != NULL ||
            !is_accepted(sets, watch.fd));
}

tmsg_watched_t *tmsg_ep_sockets_before(const tmsg_socket_sets_t *sets)
{
    tmsg_watched_t *watched =
        sets->count == 0 ? NULL : calloc(1, sizeof(*watched));

    for (unsigned i = 0; watched != NULL && i < sets->count; i++) {
        if (!read_set(sets->fds[i], watched)) {
            free_watched(watched);
            return NULL;
        }
    }
    if (watched != NULL && watched->count > 0) {
        qsort(watched->of, watched->count, sizeof(watched->of[0]),
              compare_watches);
    }
    return watched;
}

static void claim_socket(tmsg_ep_sockets_t *sockets, int fd)
{
    struct stat stat;

    if (sockets->count < TMSG_EP_SOCKETS_MOST && fstat(fd, &stat) == 0 &&
        S_ISSOCK(stat.st_mode)) {
        sockets->of[sockets->count].fd = fd;
        sockets->of[sockets->count].inode = stat.st_ino;
        sockets->of[sockets->count].unacked = (tmsg_unacked_t){0};
        sockets->count++;
    }
}

/* Reads those epoll sets that are in the UCX worker's own set, as far as they
 * can be read. */
static void read_own_sets(const tmsg_socket_sets_t *sets, int worker_fd,
                          tmsg_watched_t *watched)
{
    tmsg_watched_t own = {0};

    if (read_set(worker_fd, &own)) {
        for (unsigned i = 0; i < sets->count; i++) {
            if (has_fd(&own, sets->fds[i])) {
                read_set(sets->fds[i], watched);
            }
        }
    }
    free(own.of);
}

void tmsg_ep_sockets_find(tmsg_watched_t *before,
                          const tmsg_socket_sets_t *sets, int worker_fd,
                          tmsg_ep_sockets_t *sockets)
{
    tmsg_watched_t now = {0};

    sockets->count = 0;
    if (before != NULL) {
        read_own_sets(sets, worker_fd, &now);
        for (size_t i = 0; i < now.count; i++) {
            if (is_of_endpoint(before, sets, now.of[i])) {
                claim_socket(sockets, now.of[i].fd);
            }
        }
    }
    free(now.of);
    free_watched(before);
}

/* Returns how many bytes went by a TCP connection, each counted once. 0: the
 * descriptor is no such connection, or Linux (before 4.19) does not count
 * them. */
static uint64_t sent_bytes(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0
               ? info.tcpi_bytes_sent - info.tcpi_bytes_retrans
               : 0;
}

static int compare_numbers(const void *left, const void *right)
{
    const int *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

tmsg_watched_t *tmsg_ep_sockets_before_send(const tmsg_socket_sets_t *sets,
                                            int worker_fd, int *others,
                                            size_t count)
{
    tmsg_watched_t now = {0}, *watched = calloc(1, sizeof(*watched));

    qsort(others, count, sizeof(*others), compare_numbers);
    read_own_sets(sets, worker_fd, &now);
    for (size_t i = 0; watched != NULL && i < now.count; i++) {
        int fd = now.of[i].fd;

        if (bsearch(&fd, others, count, sizeof(fd), compare_numbers) == NULL &&
            is_accepted(sets, fd) &&
            !add_watch(watched, (watch_t){fd, sent_bytes(fd)})) {
            free_watched(watched);
            watched = NULL;
        }
    }
    free(now.of);
    return watched;
}

void tmsg_ep_sockets_find_sent(tmsg_watched_t *before,
                               tmsg_ep_sockets_t *sockets)
{
    int found = -1;
    unsigned count = 0;

    for (size_t i = 0; before != NULL && i < before->count; i++) {
        if (sent_bytes(before->of[i].fd) != before->of[i].data) {
            found = before->of[i].fd;
            count++;
        }
    }
    if (count == 1) {
        claim_socket(sockets, found);
    }
    free_watched(before);
}

/* Returns whether UCX still has the socket. */
static bool is_there(const tmsg_ep_sockets_t *sockets, unsigned i)
{
    struct stat stat;

    return fstat(sockets->of[i].fd, &stat) == 0 &&
           stat.st_ino == sockets->of[i].inode && S_ISSOCK(stat.st_mode);
}

void tmsg_ep_sockets_look(tmsg_ep_sockets_t *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++) {
        tmsg_unacked_look(&sockets->of[i].unacked,
                          is_there(sockets, i) ? sockets->of[i].fd : -1);
    }
}

void tmsg_ep_sockets_hasten(const tmsg_ep_sockets_t *sockets,
                            uint32_t timeout_ms)
{
    for (unsigned i = 0; i < sockets->count; i++) {
        if (is_there(sockets, i)) {
            tmsg_unacked_hasten(sockets->of[i].fd, timeout_ms);
        }
    }
}

/* The kernel refuses what comes after the shutdown, so that UCX finds nothing
 * more to read but the end. */
void tmsg_ep_sockets_cut(tmsg_ep_sockets_t *sockets)
{
    const size_t any = (size_t)1 << 30;

    for (unsigned i = 0; i < sockets->count; i++) {
        int fd = sockets->of[i].fd;

        if (is_there(sockets, i)) {
            shutdown(fd, SHUT_RDWR);
            while (recv(fd, NULL, any, MSG_DONTWAIT | MSG_TRUNC) > 0) {
            }
        }
    }
    sockets->count = 0;
}
