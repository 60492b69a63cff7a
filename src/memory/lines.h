/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/lines.h - lines of host memory by which the CPU and a GPU tell each
 * other something, each with stores and loads alone.
 *
 * A line that was used is never used again: a CUDA graph may be launched that
 * knows its address. It stays mapped until tmsg_lines_end().
 *
 * A stream of CUDA uses the first 8 bytes of a line as one word. It writes 1 to
 * the lower half (tmsg_line_ring()), and the CPU writes 0 there. Where the CPU
 * has written TMSG_LINE_OPEN to the upper half nothing that a stream writes
 * makes a stream wait. A stream waits until the lower half is 0 or the upper
 * half is TMSG_LINE_OPEN (tmsg_line_await()): that is one comparison of the
 * word with TMSG_LINE_FREE, as CUDA compares, (int64_t)(word - value) >= 0. */
#ifndef TMSG_MEMORY_LINES_H
#define TMSG_MEMORY_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/domain.h>

#define TMSG_LINE_BYTES 128
#define TMSG_LINE_OPEN 0xffffffffu
#define TMSG_LINE_FREE (UINT64_MAX / 2 + 2) /* -(2^63 - 1) */

/* Holds the lines of a context. */
typedef struct {
    pthread_mutex_t lock;
    struct tmsg_line_page *pages;
} tmsg_lines_t;

typedef struct {
    void *host;
    uint64_t address; /* at which the device has it; 0: no device has it */
    tmsg_device_t device;
    bool flushes; /* see tmsg_line_flush() */
} tmsg_line_t;

void tmsg_lines_init(tmsg_lines_t *lines);
void tmsg_lines_end(tmsg_lines_t *lines);

/* Takes a line that no one has used, all bytes 0, which `device` reaches. The
 * host reaches all lines: of it one is of no device. From any thread. Errors:
 * NO_MEMORY, UNSUPPORTED (a device without a driver, or not of CUDA), IO (the
 * driver does not map host memory). */
tmsg_status_t tmsg_line_take(tmsg_lines_t *lines, tmsg_device_t device,
                             tmsg_line_t *line_p);

/* Before a line tells a stream or a kernel that data has come to the memory of
 * the device for which it was taken. A NIC may have written them, and work that
 * was there before does not see that on each device. Errors: IO. */
tmsg_status_t tmsg_line_flush(const tmsg_line_t *line);

/* Have a stream, which may be captured, wait until the line is free, and then,
 * tmsg_line_ring() alone, write 1. From any thread. Errors: UNSUPPORTED (no
 * device has the line; the driver or the device has no such operations),
 * INVALID_PARAM (no stream of CUDA), IO. */
tmsg_status_t tmsg_line_ring(const tmsg_line_t *line, tmsg_stream_t stream);
tmsg_status_t tmsg_line_await(const tmsg_line_t *line, tmsg_stream_t stream);

#endif
