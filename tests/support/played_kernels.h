/* SPDX-License-Identifier: BSD-3-Clause */
/* support/played_kernels.h - threads of the CPU that play kernels which ring
 * bells. */
#ifndef TMSG_TESTS_PLAYED_KERNELS_H
#define TMSG_TESTS_PLAYED_KERNELS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/tensormsg.h>

/* One kernel: it writes or reads the tensor of a map of one, `rounds` times. */
typedef struct {
    tmsg_bell_t *bell;
    void *line;
    uint8_t *data;
    size_t bytes;
    uint64_t rounds;
    bool receives;
    int status; /* by which the bell ended it; 0: it did all rounds */
    uint64_t done;
    pthread_t thread;
} played_t;

/* From now on kernels publish and give back without a release, which
 * ThreadSanitizer is to find. */
void played_weakly(void);

/* A map of one uint8 tensor that lies in `data`. */
tmsg_map_t *played_map(uint8_t *data, size_t bytes);

/* Fills the tensor as round `n` does, or dies where it is not so. */
void played_fill(const played_t *kernel, uint64_t n);
void played_check(const played_t *kernel, uint64_t n);

/* Starts a kernel that fills, posts and waits; or one that waits for a map,
 * checks it, and consumes it. */
void played_send(played_t *kernel, tmsg_bell_t *bell, uint8_t *data,
                 size_t bytes, uint64_t rounds);
void played_receive(played_t *kernel, tmsg_bell_t *bell, uint8_t *data,
                    size_t bytes, uint64_t rounds);

/* Waits for its end. Returns its status. */
int played_join(played_t *kernel);

#endif
