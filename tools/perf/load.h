/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h - creates the maps that are sent, and their memory. */
#ifndef TMSG_PERF_LOAD_H
#define TMSG_PERF_LOAD_H

#include "measure/workload.h"
#include "perf.h"

typedef struct {
    workload_t workload;
    char name[80]; /* "8x64B", or the name from the workload file */
    perf_memory_t memory;
    const tmsg_domain_t *domain;
    bool verify;
    size_t copies; /* copies of all maps, so that several can be in flight */
    size_t copy_bytes; /* bytes of one copy */
    uint8_t **data;    /* memory of each copy; shared unless `verify` */
    tmsg_map_t **maps; /* all maps of each copy, copy by copy */
} load_t;

/* Finds the domain for that memory. Returns false after a complaint if there is
 * none. */
bool perf_memory_find(const perf_memory_t *memory,
                      const tmsg_domain_t **domain_p);

/* Creates the memory and the maps of load->workload, and owns that workload
 * from now on. Returns false after a complaint. The caller calls
 * perf_load_close() in any case. */
bool perf_load_open(load_t *load, const perf_memory_t *memory, size_t copies,
                    bool verify);

/* Writes other bytes into all maps; only for load->verify. Returns false after
 * a complaint. */
bool perf_load_refill(load_t *load, uint64_t seed);

/* Returns the map that a copy sends as the nth message. The result is never
 * NULL after perf_load_open() has succeeded. */
tmsg_map_t *perf_load_map(const load_t *load, size_t copy, uint64_t n);

/* Creates that map anew, and returns it. Returns NULL after a complaint. */
tmsg_map_t *perf_load_renew(load_t *load, size_t copy, uint64_t n);

/* Frees maps, memory and workload. The caller must not be sending any of
 * them. */
void perf_load_close(load_t *load);

#endif
