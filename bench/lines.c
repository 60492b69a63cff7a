/* SPDX-License-Identifier: BSD-3-Clause */
/* A side that has nothing but memory which both processes see: the bytes of a
 * payload, and a number in each line of the cache that tells whether they are
 * there. No names, no queue, nobody to wait for; no software that moves the
 * same bytes between the same two cores and looks at them takes less. Where
 * sides sleep, a futex on the last line wakes the receiver: the least that a
 * hand-over by the kernel takes. */
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "side.h"

#define LINE 64
#define HELD (LINE - sizeof(uint64_t)) /* bytes of a payload in a line */

typedef struct {
    _Alignas(LINE) uint8_t bytes[HELD];
    _Atomic uint64_t number; /* of the message whose bytes these are */
} line_t;

typedef struct {
    bench_side_t side;
    line_t *out, *in;
    size_t lines; /* each way */
    uint64_t sent;
    uint8_t *arrived; /* the payload, put together where it is compared */
    size_t bytes;
    int fd;
    bool sleeps; /* on the number of the last line */
} lines_side_t;

static void futex(_Atomic uint64_t *number, int operation, uint32_t value)
{
    syscall(SYS_futex, number, operation, value, NULL, NULL, 0);
}

static void put(lines_side_t *self, const uint8_t *data, size_t bytes)
{
    uint64_t number = ++self->sent;

    for (size_t i = 0; i < self->lines; i++) {
        size_t some = bytes < HELD ? bytes : HELD;

        memcpy(self->out[i].bytes, data, some);
        atomic_store_explicit(&self->out[i].number, number,
                              memory_order_release);
        data += some;
        bytes -= some;
    }
    if (self->sleeps) {
        futex(&self->out[self->lines - 1].number, FUTEX_WAKE, 1);
    }
}

static void send_payload(bench_side_t *side)
{
    const bench_payload_t *payload = bench_side_next(side);

    put((lines_side_t *)side, payload->whole, payload->map->bytes);
}

/* A word of each line is looked at as it comes: its number. */
static bool has_come(const lines_side_t *self)
{
    uint64_t awaited = self->side.received + 1;

    for (size_t i = 0; i < self->lines; i++) {
        if (atomic_load_explicit(&self->in[i].number, memory_order_acquire) !=
            awaited) {
            return false;
        }
    }
    return true;
}

static void check(lines_side_t *self)
{
    const bench_payload_t *payload = bench_side_expected(&self->side);
    const uint8_t *at = self->arrived;

    for (size_t i = 0; i < self->lines; i++) {
        size_t done = i * HELD, left = self->bytes - done;

        memcpy(self->arrived + done, self->in[i].bytes,
               left < HELD ? left : HELD);
    }
    for (size_t i = 0; i < payload->map->count; i++) {
        bench_payload_check(payload, i, at);
        at += payload->map->tensors[i].bytes;
    }
    self->side.checked++;
}

static void progress(bench_side_t *side)
{
    lines_side_t *self = (lines_side_t *)side;

    if (has_come(self)) {
        if (side->check) {
            check(self);
        }
        side->received++;
    } else if (self->sleeps) { /* on the low half: little-endian */
        futex(&self->in[self->lines - 1].number, FUTEX_WAIT,
              (uint32_t)side->received);
    }
}

static void close_lines(bench_side_t *side)
{
    lines_side_t *self = (lines_side_t *)side;
    line_t *first = self->out < self->in ? self->out : self->in;

    munmap(first, 2 * self->lines * sizeof(line_t));
    close(self->fd);
    free(self->arrived);
    bench_side_unload(side);
    free(self);
}

/* The dialling side makes the memory, and has the other open it by its name. */
static int share(bool dialling, int socket, size_t bytes)
{
    char path[64];
    int fd;

    if (dialling) {
        fd = memfd_create("lines", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
            bench_die("memory for both sides: memfd_create() failed");
        }
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
        bench_tell(socket, path, sizeof(path));
    } else {
        bench_hear(socket, path, sizeof(path));
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    bench_meet(socket);
    return fd;
}

bench_side_t *bench_lines_open(const bench_run_t *run, bool dialling,
                               int socket)
{
    lines_side_t *self = bench_memory(sizeof(*self));
    size_t bytes;
    line_t *both;

    bench_side_load(&self->side, run, true);
    self->bytes = self->side.payloads[0].map->bytes;
    self->sleeps = run->sleeps;
    self->lines = (self->bytes + HELD - 1) / HELD;
    self->arrived = bench_memory(self->bytes);
    bytes = 2 * self->lines * sizeof(line_t);
    self->fd = share(dialling, socket, bytes);
    both = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, 0);
    if (both == MAP_FAILED) {
        bench_die("memory for both sides cannot be mapped");
    }
    self->out = both + (dialling ? 0 : self->lines);
    self->in = both + (dialling ? self->lines : 0);
    self->side.send = send_payload;
    self->side.progress = progress;
    self->side.close = close_lines;
    return &self->side;
}
