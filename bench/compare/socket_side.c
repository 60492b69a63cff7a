/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps by writev() and recv() on a stream socket, and nothing else: what one
 * would write without a library. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "pump.h"

static void write_pieces(compare_pump_t *pump, struct iovec *iov, size_t count)
{
    while (count > 0) {
        ssize_t n =
            writev(pump->fd, iov, count > IOV_MAX ? IOV_MAX : (int)count);

        if (n < 0) {
            bench_die("a socket: writev: %s", strerror(errno));
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

static void read_whole(compare_pump_t *pump, void *data, size_t bytes)
{
    uint8_t *to = data;

    while (bytes > 0) {
        ssize_t n = compare_pump_recv(pump, to, bytes);

        to += n;
        bytes -= (size_t)n;
    }
}

static void close_side(bench_side_t *side)
{
    compare_pump_close((compare_pump_t *)side);
    free(side);
}

bench_side_t *compare_socket_open(const bench_run_t *run, bool dialling,
                                  int socket)
{
    compare_pump_t *pump = bench_memory(sizeof(*pump));

    pump->write = write_pieces;
    pump->read = read_whole;
    compare_pump_open(pump, run, dialling, socket);
    pump->framed.side.close = close_side;
    return &pump->framed.side;
}
