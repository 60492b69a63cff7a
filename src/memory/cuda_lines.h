/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/cuda_lines.h - what CUDA does with lines (memory/lines.h). */
#ifndef TMSG_MEMORY_CUDA_LINES_H
#define TMSG_MEMORY_CUDA_LINES_H

#include <stdbool.h>

#include <tensormsg/domain.h>

/* Maps host memory for the kernels and streams of all devices, at *address_p.
 * Errors: those of tmsg_cuda_enter(). */
tmsg_status_t tmsg_cuda_map_lines(tmsg_device_t device, void *host,
                                  uint64_t bytes, uint64_t *address_p);
/* Sets *device_p to a CUDA device that is in use. It stays as it is if there is
 * none. */
void tmsg_cuda_find_used(tmsg_device_t *device_p);

/* Returns whether work that runs on a device sees what other devices have
 * written to its memory (GPUDirect RDMA) only after tmsg_cuda_flush_writes().
 */
bool tmsg_cuda_needs_flush(tmsg_device_t device);
tmsg_status_t tmsg_cuda_flush_writes(tmsg_device_t device);

/* Returns false if the driver still has that memory mapped. */
bool tmsg_cuda_unmap_lines(void *host);

/* Has a stream wait until the line at that address is free, and then write 1 if
 * it `writes`. Errors: those of tmsg_cuda_enter_to_record(), UNSUPPORTED. */
tmsg_status_t tmsg_cuda_give_line(tmsg_device_t device, tmsg_stream_t stream,
                                  uint64_t address, bool writes);

#endif
