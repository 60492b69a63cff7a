/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps by writev() and read() on a stream socket, and nothing else: what one
 * would write without a library. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "way.h"

#define SPIN_S                                                                 \
    50e-6 /* before a reader sleeps, as all that spin here; where              \
             processors are shared it sleeps at once */
#define BUFFER_BYTES (4 << 20)

/* Goes before every message. */
typedef struct {
    uint64_t head_bytes; /* 0: an answer */
    uint64_t bytes;      /* of all tensors */
} prefix_t;

typedef struct {
    compare_framed_t framed;
    int fd;
    double spin_s;
    struct iovec *iov; /* of what is sent, and its small tensors; grow */
    size_t iov_room;
    uint8_t *small;
    size_t small_room;
    uint8_t *head; /* of the message that arrived last; grow */
    size_t head_room;
    uint8_t *data;
    size_t data_room;
} socket_side_t;

__attribute__((noreturn)) static void fail(const char *what)
{
    bench_die("socket: %s: %s", what, strerror(errno));
}

static void *grown(void *memory, size_t *room, size_t bytes)
{
    if (bytes > *room) {
        free(memory);
        memory = bench_memory(bytes);
        *room = bytes;
    }
    return memory;
}

static void write_pieces(const socket_side_t *self, struct iovec *iov,
                         size_t count)
{
    while (count > 0) {
        ssize_t n =
            writev(self->fd, iov, count > IOV_MAX ? IOV_MAX : (int)count);

        if (n < 0) {
            fail("writev");
        }
        for (; count > 0 && (size_t)n >= iov->iov_len; iov++, count--) {
            n -= (ssize_t)iov->iov_len;
        }
        if (count > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
}

static void send_payload(bench_side_t *side)
{
    socket_side_t *self = (socket_side_t *)side;
    const framing_out_t *out = compare_framed_next(&self->framed);
    prefix_t prefix = {out->head.bytes, out->payload->map->bytes};
    struct iovec *iov = grown(self->iov, &self->iov_room,
                              (out->large_count + 3) * sizeof(*iov));

    self->iov = iov;
    self->small = grown(self->small, &self->small_room, out->small_bytes);
    framing_gather(out, self->small);
    *iov++ = (struct iovec){&prefix, sizeof(prefix)};
    *iov++ = (struct iovec){out->head.data, out->head.bytes};
    *iov++ = (struct iovec){self->small, out->small_bytes};
    for (size_t i = 0; i < out->large_count; i++) {
        *iov++ = (struct iovec){out->large[i].data, out->large[i].bytes};
    }
    write_pieces(self, self->iov, (size_t)(iov - self->iov));
}

static void send_answer(bench_side_t *side)
{
    prefix_t prefix = {0, 0};
    struct iovec iov = {&prefix, sizeof(prefix)};

    write_pieces((socket_side_t *)side, &iov, 1);
}

static void read_whole(const socket_side_t *self, void *data, size_t bytes)
{
    double begin = bench_now();

    for (size_t done = 0; done < bytes;) {
        bool spins = bench_now() - begin < self->spin_s;
        ssize_t n = recv(self->fd, (uint8_t *)data + done, bytes - done,
                         spins ? MSG_DONTWAIT : 0);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            fail("the other side is gone");
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

/* The small ones come first, then each large one in its order. */
static void place(socket_side_t *self)
{
    framing_in_t *in = &self->framed.in;
    const uint8_t *data = self->data + in->small_bytes;
    size_t next = 0;

    framing_place_small(in, self->data);
    while (data < self->data + in->bytes) {
        framing_place_large(in, &next, data);
        data += in->tensors[next - 1].bytes;
    }
}

static void progress(bench_side_t *side)
{
    socket_side_t *self = (socket_side_t *)side;
    prefix_t prefix;

    read_whole(self, &prefix, sizeof(prefix));
    if (prefix.head_bytes == 0) {
        compare_framed_answered(&self->framed);
        return;
    }
    self->head = grown(self->head, &self->head_room, prefix.head_bytes);
    self->data = grown(self->data, &self->data_room, prefix.bytes);
    read_whole(self, self->head, prefix.head_bytes);
    framing_read(&self->framed.in, self->head, prefix.head_bytes);
    if (self->framed.in.bytes != prefix.bytes) {
        bench_die("socket: a message of another length");
    }
    read_whole(self, self->data, prefix.bytes);
    place(self);
    compare_framed_arrived(&self->framed);
}

static void close_side(bench_side_t *side)
{
    socket_side_t *self = (socket_side_t *)side;

    close(self->fd);
    free(self->iov);
    free(self->small);
    free(self->head);
    free(self->data);
    compare_framed_unload(&self->framed);
    free(self);
}

/* Where to listen: at a path of the run's folder, or at any port. */
static socklen_t choose_address(const bench_run_t *run,
                                struct sockaddr_storage *address)
{
    struct sockaddr_un *unix_address = (struct sockaddr_un *)address;
    struct sockaddr_in *inet_address = (struct sockaddr_in *)address;

    memset(address, 0, sizeof(*address));
    if (run->transport == BENCH_TCP) {
        inet_address->sin_family = AF_INET;
        inet_address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof(*inet_address);
    }
    unix_address->sun_family = AF_UNIX;
    snprintf(unix_address->sun_path, sizeof(unix_address->sun_path),
             "%s/socket", run->folder);
    return sizeof(*unix_address);
}

static int accept_one(const bench_run_t *run, int socket_to_peer)
{
    struct sockaddr_storage address;
    socklen_t bytes = choose_address(run, &address);
    int listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd;

    if (listener < 0 ||
        bind(listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0) {
        fail("listen");
    }
    bench_tell(socket_to_peer, &address, bytes);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        fail("accept");
    }
    close(listener);
    return fd;
}

static int dial(int socket_to_peer)
{
    struct sockaddr_storage address;
    socklen_t bytes =
        (socklen_t)bench_hear(socket_to_peer, &address, sizeof(address));
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        fail("connect");
    }
    return fd;
}

bench_side_t *compare_socket_open(const bench_run_t *run, bool dialling,
                                  int socket)
{
    socket_side_t *self = bench_memory(sizeof(*self));
    int bytes = BUFFER_BYTES, on = 1;

    self->framed.side.send = send_payload;
    self->framed.side.answer = send_answer;
    self->framed.side.progress = progress;
    self->framed.side.close = close_side;
    compare_framed_load(&self->framed, run);
    self->spin_s = run->sleeps ? 0 : SPIN_S;
    self->fd = dialling ? dial(socket) : accept_one(run, socket);
    if (run->transport == BENCH_TCP) { /* whose buffers the kernel tunes */
        setsockopt(self->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    } else {
        setsockopt(self->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
        setsockopt(self->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    }
    return &self->framed.side;
}
