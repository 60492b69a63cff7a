/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/domain.h - kinds of memory, each one small table of functions. */
#ifndef TMSG_MEMORY_DOMAIN_H
#define TMSG_MEMORY_DOMAIN_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/tensor.h>

/* Adding a kind is a file with such a table and a line in domain.c. */
typedef struct {
    const char *name;
    /* Whether tensors on that device lie in this memory. */
    bool (*holds)(tmsg_device_t device);
    /* Memory for received tensors; `alignment` is a power of two. Errors:
     * NO_MEMORY. */
    tmsg_status_t (*alloc)(uint64_t bytes, uint64_t alignment, void **data_p);
    void (*free)(void *data, uint64_t bytes);
} tmsg_domain_t;

extern const tmsg_domain_t tmsg_domain_host;

/* The memory that a device's tensors lie in, or NULL: none that this build can
 * reach. */
const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device);

/* For tests: one more kind of memory, which is asked after the others; NULL
 * takes it out again. */
void tmsg_domain_add(const tmsg_domain_t *domain);

#endif
