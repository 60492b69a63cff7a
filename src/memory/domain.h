/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/domain.h - which kinds of memory there are. */
#ifndef TMSG_MEMORY_DOMAIN_H
#define TMSG_MEMORY_DOMAIN_H

#include <stdbool.h>

#include <tensormsg/domain.h>

/* Those of the library, in the order in which they are asked; each is a file
 * of its own and a line of the list in domain.c. */
extern const tmsg_domain_t tmsg_domain_host;
extern const tmsg_domain_t tmsg_domain_cuda;

/* One line each for people: which driver was met here, and what follows. They
 * open it. */
const char *tmsg_cuda_report(void);
bool tmsg_cuda_is_ready(void);
/* Whether this process has loaded the driver: whose has not has none of its
 * memory. Does not load it. */
bool tmsg_cuda_is_loaded(void);
const char *tmsg_nvml_report(void);

/* Who is asked for nothing else has blocks of huge pages from here on. */
#define TMSG_HUGE_LEAST (4u << 20)

/* Host memory without words of a table; alignment is a power of two. Of
 * `huge_least` bytes or more it is to be of huge pages; 0: never. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_host_alloc(uint64_t bytes, uint64_t alignment,
                              uint64_t huge_least, void **data_p);
void tmsg_host_free(void *data);

/* tmsg_domain_find() without words: NULL, nobody holds that device. */
const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device);

/* The i-th domain of the process, or NULL behind the last. */
const tmsg_domain_t *tmsg_domain_at(size_t i);

/* Whether the CPU may touch its memory, as it is to UCX. */
bool tmsg_domain_is_plain(const tmsg_domain_t *domain);

#endif
