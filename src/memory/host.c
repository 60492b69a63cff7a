/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "memory/domain.h"

/* Huge pages make the first touch of fresh memory twice as fast, and freeing it
 * ten times as fast. */
static void ask_for_huge_pages(void *data, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + bytes) & ~(page - 1);

    if (begin < end) { /* if the block holds at least one whole page */
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    }
}

tmsg_status_t tmsg_host_alloc(uint64_t bytes, uint64_t alignment,
                              uint64_t huge_least, void **data_p)
{
    uint64_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    void *data =
        rounded < bytes /* the sum exceeds 2^64 */
            ? NULL
            : aligned_alloc(alignment, rounded == 0 ? alignment : rounded);

    if (data == NULL) {
        return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                              "no memory for %llu bytes of tensors",
                              (unsigned long long)bytes);
    }
    if (huge_least > 0 && bytes >= huge_least) {
        ask_for_huge_pages(data, bytes);
    }
    *data_p = data;
    return TMSG_OK;
}

void tmsg_host_free(void *data) { free(data); }

/* Only the driver of the GPU distinguishes pinned memory from other host
 * memory. */
static int holds_host(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == TMSG_DEVICE_CPU ||
           device.type == TMSG_DEVICE_CUDA_HOST;
}

/* The CPU has done its work when a call returns. It waits for no stream. */
static tmsg_status_t refuse_streams(tmsg_stream_t stream)
{
    if (stream.kind == TMSG_STREAM_NONE) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "host memory has no streams, but a stream of kind %d was given",
        stream.kind);
}

static tmsg_status_t host_domain_alloc(void *arg, tmsg_device_t device,
                                       uint64_t bytes, uint64_t alignment,
                                       tmsg_stream_t stream, void **data_p)
{
    tmsg_status_t status = refuse_streams(stream);

    (void)arg;
    (void)device;
    return status == TMSG_OK
               ? tmsg_host_alloc(bytes, alignment, TMSG_HUGE_LEAST, data_p)
               : status;
}

static void host_domain_free(void *arg, tmsg_device_t device, void *data,
                             uint64_t bytes, tmsg_stream_t stream)
{
    (void)arg;
    (void)device;
    (void)bytes;
    (void)stream;
    tmsg_host_free(data);
}

static tmsg_status_t host_domain_copy(void *arg, tmsg_device_t device, void *to,
                                      const void *from, uint64_t bytes,
                                      tmsg_stream_t stream)
{
    tmsg_status_t status = refuse_streams(stream);

    (void)arg;
    (void)device;
    if (status == TMSG_OK && bytes > 0) {
        memcpy(to, from, bytes);
    }
    return status;
}

const tmsg_domain_t tmsg_domain_host = {
    .table_bytes = sizeof(tmsg_domain_t),
    .name = "host",
    .transport = "host",
    .holds = holds_host,
    .alloc = host_domain_alloc,
    .free = host_domain_free,
    .copy_in = host_domain_copy,
    .copy_out = host_domain_copy,
    .copy_within = host_domain_copy,
};
