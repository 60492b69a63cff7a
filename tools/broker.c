/* SPDX-License-Identifier: BSD-3-Clause */
/* In a Landlock domain a process opens nothing in the /proc of processes
 * outside, where UCX finds the shared memory of its peers. So a process outside
 * opens it: a small one, which reads requests of two numbers, and gives away
 * nothing but UCX's segments of this user and the times of processes.
 *
 * UCX cannot be told of it. open(), stat() and readlink() of this file are
 * before the C library's, for UCX as well. */
#include "broker.h"

#ifdef TMSG_HAS_SECCOMP

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In place of a descriptor. */
#define STAT_FILE UINT32_MAX
#define LISTENS (UINT32_MAX - 1) /* the socket file is this process's */

typedef struct {
    uint32_t pid;
    uint32_t number; /* of a descriptor, or STAT_FILE */
} request_t;

typedef struct {
    int32_t error; /* an errno; 0: a descriptor comes with this */
    struct stat about;
    char target[PATH_MAX];
} reply_t;

typedef union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_t;

static int asked_fd = -1; /* of the process inside */
static bool in_use;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Returns whether a link of /proc names a file that UCX has made and
 * unlinked. */
static bool is_segment(const char *target, const struct stat *about)
{
    static const char gone[] = " (deleted)", head[] = "/ucx_shm_posix_";
    size_t length = strlen(target), tail = sizeof(gone) - 1;
    const char *name = strrchr(target, '/');

    return S_ISREG(about->st_mode) && about->st_uid == geteuid() &&
           name != NULL && strncmp(name, head, sizeof(head) - 1) == 0 &&
           length > tail && strcmp(target + length - tail, gone) == 0;
}

/* Looks before it opens: to open a file may do something. */
static int open_segment(const request_t *request, reply_t *reply)
{
    char path[64];
    ssize_t length;
    int found, opened = -1;

    snprintf(path, sizeof(path), "/proc/%u/fd/%u", request->pid,
             request->number);
    found = open(path, O_PATH | O_CLOEXEC);
    if (found < 0) {
        reply->error = errno;
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
    length = readlink(path, reply->target, sizeof(reply->target) - 1);
    reply->target[length < 0 ? 0 : length] = '\0';
    if (fstat(found, &reply->about) == 0 &&
        is_segment(reply->target, &reply->about)) {
        opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        reply->error = opened < 0 ? errno : 0;
    } else {
        reply->error = EACCES;
    }
    close(found);
    return opened;
}

static int open_stat(const request_t *request, reply_t *reply)
{
    char path[64];
    int opened;

    snprintf(path, sizeof(path), "/proc/%u/stat", request->pid);
    opened = open(path, O_RDONLY | O_CLOEXEC);
    reply->error = opened < 0 ? errno : 0;
    return opened;
}

static void give(int sock, reply_t *reply, int fd)
{
    struct iovec part = {reply, sizeof(*reply)};
    control_t control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (reply->error != 0) {
        memset(&reply->about, 0, sizeof(reply->about));
        memset(reply->target, 0, sizeof(reply->target));
    } else {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    sendmsg(sock, &message, MSG_NOSIGNAL);
}

/* Another process may have its socket there by the end. */
static bool is_socket(const char *path, struct stat *about)
{
    return path != NULL && lstat(path, about) == 0 && S_ISSOCK(about->st_mode);
}

static void remove_socket(const char *path, const struct stat *ours)
{
    struct stat about;

    if (is_socket(path, &about) && about.st_ino == ours->st_ino &&
        about.st_dev == ours->st_dev) {
        unlink(path);
    }
}

/* Answers until the process inside has ended. */
static void serve_requests(int sock, const char *socket_path)
{
    struct stat ours = {.st_ino = 0};
    bool listens = false;
    request_t request;

    while (recv(sock, &request, sizeof(request), 0) ==
           (ssize_t)sizeof(request)) {
        reply_t reply = {0};
        int fd;

        if (request.number == LISTENS) {
            listens = listens || is_socket(socket_path, &ours);
            continue;
        }
        fd = request.number == STAT_FILE ? open_stat(&request, &reply)
                                         : open_segment(&request, &reply);

        give(sock, &reply, fd);
        if (fd >= 0) {
            close(fd);
        }
    }
    if (listens) {
        remove_socket(socket_path, &ours);
    }
}

/* Outlives the signals of a terminal: the process inside ends in order. */
static void be_broker(int sock, const char *folder, const char *socket_path)
{
    int null = open("/dev/null", O_RDWR);

    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    sock = dup2(sock, STDERR_FILENO + 1);
    syscall(SYS_close_range, (unsigned)sock + 1, ~0u, 0);
    serve_requests(sock, socket_path);
    if (folder != NULL) {
        rmdir(folder);
    }
    _exit(0);
}

bool broker_start(const char *folder, const char *socket_path)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        be_broker(pair[1], folder, socket_path);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return false;
    }
    asked_fd = pair[0];
    return true;
}

void broker_use(void)
{
    const request_t request = {.number = LISTENS};

    in_use = asked_fd >= 0 && send(asked_fd, &request, sizeof(request),
                                   MSG_NOSIGNAL) == (ssize_t)sizeof(request);
}

/* Reads "/proc/PID/stat" and "/proc/PID/fd/NUMBER". */
static bool is_asked_for(const char *path, request_t *request)
{
    char rest[8];
    int end = 0;

    if (!in_use || path == NULL || strncmp(path, "/proc/", 6) != 0) {
        return false;
    }
    if (sscanf(path, "/proc/%u/fd/%u%n", &request->pid, &request->number,
               &end) == 2 &&
        path[end] == '\0') {
        return true;
    }
    request->number = STAT_FILE;
    return sscanf(path, "/proc/%u/%7s", &request->pid, rest) == 2 &&
           strcmp(rest, "stat") == 0;
}

/* Returns the descriptor, or -1 with errno. */
static int ask(const request_t *request, reply_t *reply)
{
    struct iovec part = {reply, sizeof(*reply)};
    control_t control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t got = -1;
    int fd;

    pthread_mutex_lock(&mutex);
    if (send(asked_fd, request, sizeof(*request), MSG_NOSIGNAL) ==
        (ssize_t)sizeof(*request)) {
        do {
            got = recvmsg(asked_fd, &message, MSG_CMSG_CLOEXEC);
        } while (got < 0 && errno == EINTR);
    }
    pthread_mutex_unlock(&mutex);
    if (got != (ssize_t)sizeof(*reply)) {
        errno = EACCES;
        return -1;
    }
    if (reply->error != 0 || CMSG_FIRSTHDR(&message) == NULL) {
        errno = reply->error;
        return -1;
    }
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

#define SEEN __attribute__((visibility("default")))

SEEN int open(const char *path, int flags, ...)
{
    request_t request;
    reply_t reply;
    mode_t mode = 0;

    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list args;

        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return is_asked_for(path, &request)
               ? ask(&request, &reply)
               : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

SEEN int stat(const char *restrict path, struct stat *restrict about)
{
    request_t request;
    reply_t reply;
    int fd;

    if (!is_asked_for(path, &request)) {
        return fstatat(AT_FDCWD, path, about, 0);
    }
    fd = ask(&request, &reply);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    *about = reply.about;
    return 0;
}

SEEN ssize_t readlink(const char *restrict path, char *restrict target,
                      size_t bytes)
{
    request_t request;
    reply_t reply;
    size_t length;
    int fd;

    if (!is_asked_for(path, &request)) {
        return readlinkat(AT_FDCWD, path, target, bytes);
    }
    fd = ask(&request, &reply);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    length = strnlen(reply.target, sizeof(reply.target));
    length = length < bytes ? length : bytes;
    memcpy(target, reply.target, length);
    return (ssize_t)length;
}

#endif
