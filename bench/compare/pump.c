/* SPDX-License-Identifier: BSD-3-Clause */
#include "pump.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SPIN_S                                                                 \
    50e-6 /* before a reader sleeps, as all that spin here; where              \
             processors are shared it sleeps at once */
#define BUFFER_BYTES (4 << 20)

/* Goes before every message. */
typedef struct {
    uint64_t head_bytes; /* 0: an answer */
    uint64_t bytes;      /* of all tensors */
} prefix_t;

__attribute__((noreturn)) static void fail(const char *what)
{
    bench_die("a socket: %s: %s", what, strerror(errno));
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

static void send_payload(bench_side_t *side)
{
    compare_pump_t *self = (compare_pump_t *)side;
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
    self->write(self, self->iov, (size_t)(iov - self->iov));
}

static void send_answer(bench_side_t *side)
{
    compare_pump_t *self = (compare_pump_t *)side;
    prefix_t prefix = {0, 0};
    struct iovec iov = {&prefix, sizeof(prefix)};

    self->write(self, &iov, 1);
}

static void read_whole(compare_pump_t *self, void *data, size_t bytes)
{
    self->began = bench_now();
    self->read(self, data, bytes);
}

/* The small ones come first, then each large one in its order. */
static void place(compare_pump_t *self)
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
    compare_pump_t *self = (compare_pump_t *)side;
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
        bench_die("a message of another length");
    }
    read_whole(self, self->data, prefix.bytes);
    place(self);
    compare_framed_arrived(&self->framed);
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

void compare_pump_open(compare_pump_t *pump, const bench_run_t *run,
                       bool dialling, int socket)
{
    int bytes = BUFFER_BYTES, on = 1;

    pump->framed.side.send = send_payload;
    pump->framed.side.answer = send_answer;
    pump->framed.side.progress = progress;
    compare_framed_load(&pump->framed, run);
    pump->spin_s = run->sleeps ? 0 : SPIN_S;
    pump->fd = dialling ? dial(socket) : accept_one(run, socket);
    if (run->transport == BENCH_TCP) { /* whose buffers the kernel tunes */
        setsockopt(pump->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    } else {
        setsockopt(pump->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
        setsockopt(pump->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    }
}

void compare_pump_close(compare_pump_t *pump)
{
    close(pump->fd);
    free(pump->iov);
    free(pump->small);
    free(pump->head);
    free(pump->data);
    compare_framed_unload(&pump->framed);
}

ssize_t compare_pump_recv(const compare_pump_t *pump, void *data, size_t bytes)
{
    for (;;) {
        bool spins = bench_now() - pump->began < pump->spin_s;
        ssize_t n = recv(pump->fd, data, bytes, spins ? MSG_DONTWAIT : 0);

        if (n > 0) {
            return n;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail("the other side is gone");
        }
    }
}
