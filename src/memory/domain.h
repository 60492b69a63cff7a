/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/domain.h - the memory domains of the process. */
#ifndef TMSG_MEMORY_DOMAIN_H
#define TMSG_MEMORY_DOMAIN_H

#include <stdbool.h>

#include <tensormsg/domain.h>

/* The library has these domains. Each has a file of its own and a line in the
 * list of domain.c. The list gives the order in which they are asked. */
extern const tmsg_domain_t tmsg_domain_host;
extern const tmsg_domain_t tmsg_domain_cuda;

/* tmsg_cuda_report() and tmsg_nvml_report() return one line of text: which
 * driver was found here, and what follows from it. These two functions and
 * tmsg_cuda_is_ready() open the driver. */
const char *tmsg_cuda_report(void);
bool tmsg_cuda_is_ready(void);
/* Tells whether this process has loaded the CUDA driver, without loading it. A
 * process that has not loaded the driver has no CUDA memory. */
bool tmsg_cuda_is_loaded(void);
/* Calls `call` while a CUDA context is current on this thread, if a device is
 * in use. It is for a library that asks the driver and makes none current. */
void tmsg_cuda_within(void (*call)(void *arg), void *arg);
/* Has the library allocate CUDA memory that other processes can map from here
 * on, for UCX's cuda_ipc: by cuMemAlloc, since memory of a pool cannot be
 * shared so. */
void tmsg_cuda_share(void);
bool tmsg_cuda_shares(void);
/* Waits until what cuMemFree() frees beside its callers is freed, for `ms` at
 * most. Returns whether it is. */
bool tmsg_cuda_settle(uint64_t ms);
/* tmsg_cuda_relax() has this thread's calls of the driver leave the captures of
 * other threads alone, for a library that asks the driver, and returns what
 * tmsg_cuda_restore() takes. The driver is open already. */
int tmsg_cuda_relax(void);
void tmsg_cuda_restore(int mode);
/* Has an eventfd written to when an event of the CUDA domain is done. Returns
 * false if the driver cannot. Nothing is written if work has failed. */
bool tmsg_cuda_signal(const void *event, int event_fd);
/* Counts how often a device's primary context was found destroyed, as by
 * cudaDeviceReset(). Memory of an earlier count is gone, and its address may be
 * another's. */
uint32_t tmsg_cuda_epoch(tmsg_device_t device);
const char *tmsg_nvml_report(void);

/* Blocks of this size in bytes and larger use huge pages unless the owner sets
 * another size. */
#define TMSG_HUGE_LEAST (4u << 20)

/* Allocates host memory without the table of a domain. `alignment` is a power
 * of two. Blocks of `huge_least` bytes or more use huge pages; 0 means never.
 * The caller frees the memory with tmsg_host_free(). Errors: NO_MEMORY. */
tmsg_status_t tmsg_host_alloc(uint64_t bytes, uint64_t alignment,
                              uint64_t huge_least, void **data_p);
void tmsg_host_free(void *data);

/* Does what tmsg_domain_find() does, but sets no error message. Returns NULL if
 * no domain holds memory of that device. */
const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device);

/* Returns the i-th domain of the process, or NULL after the last one. */
const tmsg_domain_t *tmsg_domain_at(size_t i);

/* Makes several copies, as copy_batch() does, also where a domain has no such
 * function. On error some of them may be under way. */
tmsg_status_t tmsg_domain_copy(const tmsg_domain_t *domain,
                               tmsg_device_t device, bool out,
                               const tmsg_domain_copy_t *copies, uint64_t count,
                               tmsg_stream_t stream);

/* Tells whether the CPU can read and write the domain's memory. Such a domain
 * has the UCX memory type "host". */
bool tmsg_domain_is_plain(const tmsg_domain_t *domain);

#endif
