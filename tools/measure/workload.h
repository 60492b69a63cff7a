/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/workload.h - what maps are sent, in turn: names, shapes, metadata. */
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

/* A word of metadata; text, or (NULL) a number. */
typedef struct {
    char *name;
    char *text;
    double number;
    bool is_whole; /* the number: an integer */
} workload_meta_t;

typedef struct {
    workload_tensor_t *tensors;
    size_t count;
    workload_meta_t *meta;
    size_t meta_count;
    size_t bytes; /* of all tensors */
} workload_map_t;

typedef struct {
    char *name;
    workload_map_t *maps;
    size_t count;
    size_t bytes; /* of all maps */
} workload_t;

#define WORKLOAD_WHY_BYTES 600

/* One map of so many tensors of so many bytes. False: no memory, and `why` says
 * so. */
bool workload_uniform(size_t tensors, size_t bytes, workload_t *workload,
                      char why[WORKLOAD_WHY_BYTES]);

/* Reads a file as bench/workloads/ has them (docs/perf.md). False: `why` names
 * what is wrong with it. */
bool workload_read(const char *path, workload_t *workload,
                   char why[WORKLOAD_WHY_BYTES]);

/* To be called after either, whatever came of it. */
void workload_free(workload_t *workload);

/* Adds one tensor of a workload, whose data the map borrows, or all metadata.
 * Errors: those of tmsg_map_add() and tmsg_map_set_string(). */
tmsg_status_t workload_add(const workload_tensor_t *like, tmsg_device_t device,
                           void *data, tmsg_map_t *map);
tmsg_status_t workload_add_meta(const workload_map_t *like, tmsg_map_t *map);

#endif
