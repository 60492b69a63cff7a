/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "memory/domain.h"

/* Fewer and larger pages: the first touch of fresh memory then takes half the
 * time, and giving it back a tenth. */
static void ask_for_huge_pages(void *data, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + bytes) & ~(page - 1);

    if (begin < end) { /* a page of it at least */
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    }
}

tmsg_status_t tmsg_host_alloc(uint64_t bytes, uint64_t alignment,
                              uint64_t huge_least, void **data_p)
{
    uint64_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    void *data =
        rounded < bytes /* beyond 2^64 */
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

/* Pinned memory is host memory to everyone but the GPU's driver. */
static int holds(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == TMSG_DEVICE_CPU ||
           device.type == TMSG_DEVICE_CUDA_HOST;
}

/* What the CPU does is done when the call returns; it waits for no stream. */
static tmsg_status_t check_stream(tmsg_stream_t stream)
{
    if (stream.kind == TMSG_STREAM_NONE) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "host memory knows no streams, and kind %d was given",
                          stream.kind);
}

static tmsg_status_t alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p)
{
    tmsg_status_t status = check_stream(stream);

    (void)arg;
    (void)device;
    return status == TMSG_OK
               ? tmsg_host_alloc(bytes, alignment, TMSG_HUGE_LEAST, data_p)
               : status;
}

static void give_back(void *arg, tmsg_device_t device, void *data,
                      uint64_t bytes, tmsg_stream_t stream)
{
    (void)arg;
    (void)device;
    (void)bytes;
    (void)stream;
    tmsg_host_free(data);
}

static tmsg_status_t copy(void *arg, tmsg_device_t device, void *to,
                          const void *from, uint64_t bytes,
                          tmsg_stream_t stream)
{
    tmsg_status_t status = check_stream(stream);

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
    .holds = holds,
    .alloc = alloc,
    .free = give_back,
    .copy_in = copy,
    .copy_out = copy,
    .copy_within = copy,
};
