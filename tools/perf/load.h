/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h - the maps that are sent, and their memory. */
#ifndef TMSG_PERF_LOAD_H
#define TMSG_PERF_LOAD_H

#include "measure/workload.h"
#include "perf.h"

typedef struct {
    workload_t workload;
    char name[80]; /* "8x64B", or what the file says */
    perf_memory_t memory;
    const tmsg_domain_t *domain;
    bool verify;
    size_t copies;     /* of all maps, for what is under way at a time */
    size_t copy_bytes; /* of memory */
    uint8_t **data;    /* of each copy */
    tmsg_map_t **maps; /* of each copy all of the workload's, one by one */
} load_t;

/* Who reaches memory of that kind. False: it was said why nobody does. */
bool perf_memory_find(const perf_memory_t *memory,
                      const tmsg_domain_t **domain_p);

/* Makes the memory and the maps of load->workload, which it takes over. False:
 * it was said why; what was made is freed by perf_load_close() all the same. */
bool perf_load_open(load_t *load, const perf_memory_t *memory, size_t copies,
                    bool verify);

/* Other bytes in all of them; for load->verify alone. False: it was said why.
 */
bool perf_load_refill(load_t *load, uint64_t seed);

/* The map that a copy sends as the nth message; NULL only after
 * perf_load_renew(). */
tmsg_map_t *perf_load_map(const load_t *load, size_t copy, uint64_t n);

/* Makes that one anew; NULL: it was said why. */
tmsg_map_t *perf_load_renew(load_t *load, size_t copy, uint64_t n);

/* When nothing of it is being sent any more. */
void perf_load_close(load_t *load);

#endif
