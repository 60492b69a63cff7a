/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/compare/pump.h - maps over a connection that moves bytes in their
 * order, and nothing else: a prefix, the head, the small tensors together, each
 * large one as it lies. */
#ifndef TMSG_BENCH_PUMP_H
#define TMSG_BENCH_PUMP_H

#include <sys/uio.h>

#include "way.h"

typedef struct compare_pump compare_pump_t;

struct compare_pump {
    compare_framed_t framed;
    int fd;
    double spin_s; /* how long a reader spins before it sleeps, */
    double began;  /* from when it began to read */
    /* Write all of these pieces, which may be changed, or read so many bytes.
     */
    void (*write)(compare_pump_t *pump, struct iovec *iov, size_t count);
    void (*read)(compare_pump_t *pump, void *data, size_t bytes);
    struct iovec *iov; /* of what is sent, and its small tensors; grow */
    size_t iov_room;
    uint8_t *small;
    size_t small_room;
    uint8_t *head; /* of the message that arrived last; grow */
    size_t head_room;
    uint8_t *data;
    size_t data_room;
};

/* Makes the side's functions, but for close(), and connects `fd`. */
void compare_pump_open(compare_pump_t *pump, const bench_run_t *run,
                       bool dialling, int socket);
void compare_pump_close(compare_pump_t *pump);

/* recv(), which spins as long as the pump says before it sleeps. */
ssize_t compare_pump_recv(const compare_pump_t *pump, void *data, size_t bytes);

#endif
