/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/workload.h - the maps that are sent in turn: names, shapes,
 * metadata. */
#ifndef TMSG_MEASURE_WORKLOAD_H
#define TMSG_MEASURE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>

#define WORKLOAD_NDIM_MAX 8

typedef struct {
    char *name;
    tmsg_dtype_t dtype;
    int ndim;
    int64_t shape[WORKLOAD_NDIM_MAX];
    size_t bytes;
} workload_tensor_t;

/* Holds a metadata entry, which is a number if `text` is NULL. */
typedef struct {
    char *name;
    char *text;
    double number;
    bool is_whole; /* the number is an integer */
} workload_meta_t;

typedef struct {
    workload_tensor_t *tensors;
    size_t count;
    workload_meta_t *meta;
    size_t meta_count;
    size_t bytes; /* bytes of all tensors */
} workload_map_t;

typedef struct {
    char *name;
    workload_map_t *maps;
    size_t count;
    size_t bytes; /* bytes of all maps */
} workload_t;

#define WORKLOAD_WHY_BYTES 600

/* Makes one map of `tensors` tensors with `bytes` bytes each. Returns false if
 * there is no memory; `why` tells so. */
bool workload_uniform(size_t tensors, size_t bytes, workload_t *workload,
                      char why[WORKLOAD_WHY_BYTES]);

/* Reads a file in the format of bench/workloads/ (docs/reference/perf.md).
 * Returns false if the file is wrong; `why` tells the reason. */
bool workload_read(const char *path, workload_t *workload,
                   char why[WORKLOAD_WHY_BYTES]);

/* Frees a workload. The caller calls it after workload_uniform() or
 * workload_read(), even if that failed. */
void workload_free(workload_t *workload);

/* workload_add() adds one tensor of a workload; the map borrows `data`.
 * workload_add_meta() adds all metadata. Errors: those of tmsg_map_add() and
 * tmsg_map_set_string(). */
tmsg_status_t workload_add(const workload_tensor_t *like, tmsg_device_t device,
                           void *data, tmsg_map_t *map);
tmsg_status_t workload_add_meta(const workload_map_t *like, tmsg_map_t *map);

#endif
