/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/domain.h - which kinds of memory there are. */
#ifndef TMSG_MEMORY_DOMAIN_H
#define TMSG_MEMORY_DOMAIN_H

#include <tensormsg/domain.h>

/* Those of the library, in the order in which they are asked; each is a file
 * of its own and a line of the list in domain.c. */
extern const tmsg_domain_t tmsg_domain_host;
extern const tmsg_domain_t tmsg_domain_cuda;

/* One line each for people: which driver was met here, and what follows. They
 * open it. */
const char *tmsg_cuda_report(void);
const char *tmsg_nvml_report(void);

/* Host memory without words of a table; alignment is a power of two. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_host_alloc(uint64_t bytes, uint64_t alignment,
                              void **data_p);
void tmsg_host_free(void *data);

/* The domain of a device, if the transfer engine can send from there and
 * receive to there, or NULL. */
const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device);

/* For tests: one more kind of memory that the transfer engine takes for the
 * host's but for its name, unchecked; NULL takes it out again. */
void tmsg_domain_add(const tmsg_domain_t *domain);

#endif
