/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/workload.h - what maps are sent, in turn: the names, shapes and
 * metadata. */
#ifndef TMSG_BENCH_WORKLOAD_H
#define TMSG_BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/dtype.h>

#define BENCH_NDIM_MAX 8

typedef struct {
    char *name;
    tmsg_dtype_t dtype;
    int ndim;
    int64_t shape[BENCH_NDIM_MAX];
    size_t bytes;
} bench_tensor_t;

/* A word of metadata; text, or (NULL) a number. */
typedef struct {
    char *name;
    char *text;
    double number;
    bool is_whole; /* the number: an integer */
} bench_meta_t;

typedef struct {
    bench_tensor_t *tensors;
    size_t count;
    bench_meta_t *meta;
    size_t meta_count;
    size_t bytes; /* of all tensors */
} bench_map_t;

typedef struct {
    char *name;
    bench_map_t *maps;
    size_t count;
    size_t bytes; /* of all maps */
} bench_workload_t;

/* One map of so many tensors of so many bytes. */
void bench_workload_uniform(size_t tensors, size_t bytes,
                            bench_workload_t *workload);

/* Reads a file as bench/workloads/ has them; dies of what is wrong with it,
 * which it names. */
void bench_workload_read(const char *path, bench_workload_t *workload);

void bench_workload_free(bench_workload_t *workload);

#endif
