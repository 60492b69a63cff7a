/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h - what a GPU itself does in the cases, compiled by nvcc where there
 * is one (kernels.sh). Each returns 0, or what CUDA's runtime says is wrong;
 * streams are of device 0's primary context. */
#ifndef TMSG_TESTS_GPU_KERNELS_H
#define TMSG_TESTS_GPU_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before the others, which then do nothing that may wait for the device of its
 * own accord, as taking memory or loading kernels: *go_p is a number 0 that
 * both the program and kernels see. */
int kernels_open(volatile int **go_p, uint64_t stream);

/* Behind the stream's work so far: waits, where `go` is not NULL, until the
 * program has written 1 there, 10 s at most, then writes what fill() of cases.c
 * does. */
int kernels_write(uint8_t *data, uint64_t bytes, unsigned seed,
                  const volatile int *go, uint64_t stream);

/* Behind the stream's work so far: counts the bytes that are others. Returns
 * when it has. */
int kernels_count_wrong(const uint8_t *data, uint64_t bytes, unsigned seed,
                        uint64_t stream, unsigned long long *wrong_p);

/* In words. */
const char *kernels_error(int error);

#ifdef __cplusplus
}
#endif

#endif
