/* SPDX-License-Identifier: BSD-3-Clause */
/* "Virtual Memory Management" of the simulated driver: each piece of physical
 * memory is a memfd of its own, which its file descriptor shares. */
#include "gpu/sim/inside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x506879736963616cull

typedef struct {
    uint64_t magic;
    int fd, device, refs;
    size_t bytes;
    uint64_t handle_types;
} physical_t;

typedef struct range {
    address_t base;
    size_t bytes;
    struct range *next;
} range_t;

static range_t *ranges;

/* CUmemAllocationProp */
typedef struct {
    int type, handle_types, location_type, location_id;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} props_t;

/* CUmemAccessDesc */
typedef struct {
    int location_type, location_id, flags;
} access_t;

static physical_t *physical_of(uint64_t handle)
{
    physical_t *physical = (physical_t *)(uintptr_t)handle;

    return physical != NULL && physical->magic == HANDLE_MAGIC ? physical
                                                               : NULL;
}

uint64_t sim_handle_types(const block_t *block)
{
    return block->kind == POOLED ? sim_pool_handle_types(block->pool)
           : block->kind == MAPPED
               ? ((physical_t *)block->physical)->handle_types
               : 0;
}

/* Only memory of a device, which a file descriptor may share: no fabric. */
static int check(const props_t *props)
{
    if (props->type != 1 || props->location_type != 1 ||
        props->location_id < 0 || props->location_id >= sim_devices) {
        return INVALID_VALUE;
    }
    return (props->handle_types & ~1) == 0 ? OK : NOT_SUPPORTED;
}

API int cuMemGetAllocationGranularity(size_t *bytes, const void *props,
                                      int option)
{
    (void)option;
    ANYWHERE;
    *bytes = CHUNK;
    return check(props);
}

static physical_t *keep(int fd, size_t bytes, int device, uint64_t types)
{
    physical_t *physical = malloc(sizeof(*physical));

    if (physical != NULL) {
        *physical = (physical_t){HANDLE_MAGIC, fd, device, 1, bytes, types};
    }
    return physical;
}

API int cuMemCreate(uint64_t *handle, size_t bytes, const void *wanted,
                    uint64_t flags)
{
    const props_t *props = wanted;
    physical_t *physical;
    int result, fd;

    ANYWHERE;
    result = check(props);
    if (result != OK || flags != 0 || bytes == 0 || bytes % CHUNK != 0) {
        return result != OK ? result : INVALID_VALUE;
    }
    fd = memfd_create("simulated-cuda-vmm", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        return OUT_OF_MEMORY;
    }
    physical =
        keep(fd, bytes, props->location_id, (uint64_t)props->handle_types);
    *handle = (uint64_t)(uintptr_t)physical;
    COUNT(allocs_vmm);
    return physical == NULL ? OUT_OF_MEMORY : OK;
}

static void release(physical_t *physical)
{
    if (--physical->refs == 0) {
        physical->magic = 0;
        close(physical->fd);
        free(physical);
    }
}

/* "The memory will be freed when all outstanding mappings are unmapped and all
 * outstanding references to the handle are released." */
API int cuMemRelease(uint64_t handle)
{
    ANYWHERE;
    if (physical_of(handle) == NULL) {
        return INVALID_VALUE;
    }
    release(physical_of(handle));
    return OK;
}

API int cuMemAddressReserve(address_t *base, size_t bytes, size_t alignment,
                            address_t wanted, uint64_t flags)
{
    range_t *range;
    uintptr_t at, first;
    void *all;

    (void)wanted;
    ANYWHERE;
    if (bytes == 0 || bytes % CHUNK != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0 || alignment > CHUNK) {
        return INVALID_VALUE;
    }
    all = mmap(NULL, bytes + CHUNK, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range = malloc(sizeof(*range));
    if (all == MAP_FAILED || range == NULL) {
        return OUT_OF_MEMORY;
    }
    first = (uintptr_t)all;
    at = (first + CHUNK - 1) / CHUNK * CHUNK;
    if (at > first) {
        munmap(all, at - first);
    }
    munmap((void *)(at + bytes), first + CHUNK - at);
    *range = (range_t){at, bytes, ranges};
    ranges = range;
    *base = at;
    return OK;
}

API int cuMemAddressFree(address_t base, size_t bytes)
{
    ANYWHERE;
    for (range_t **at = &ranges; *at != NULL; at = &(*at)->next) {
        range_t *range = *at;

        if (range->base == base && range->bytes == bytes) {
            *at = range->next;
            free(range);
            munmap((void *)(uintptr_t)base, bytes);
            return OK;
        }
    }
    return INVALID_VALUE;
}

static bool is_reserved(address_t base, size_t bytes)
{
    for (const range_t *each = ranges; each != NULL; each = each->next) {
        if (base >= each->base && base - each->base < each->bytes &&
            bytes <= each->bytes - (base - each->base)) {
            return true;
        }
    }
    return false;
}

API int cuMemMap(address_t base, size_t bytes, size_t offset, uint64_t handle,
                 uint64_t flags)
{
    physical_t *physical;

    ANYWHERE;
    physical = physical_of(handle);
    if (physical == NULL || offset != 0 || flags != 0 ||
        bytes > physical->bytes || !is_reserved(base, bytes) ||
        sim_find(base) != NULL) {
        return INVALID_VALUE;
    }
    physical->refs++;
    return sim_add(&(block_t){.base = base,
                              .bytes = bytes,
                              .kind = MAPPED,
                              .device = physical->device,
                              .physical = physical}) == NULL
               ? OUT_OF_MEMORY
               : OK;
}

/* Before it the memory cannot be touched at all. */
API int cuMemSetAccess(address_t base, size_t bytes, const void *wanted,
                       size_t many)
{
    const access_t *access = wanted;
    block_t *block;
    void *view;

    ANYWHERE;
    block = sim_find(base);
    if (block == NULL || block->kind != MAPPED || block->base != base ||
        block->bytes != bytes || many == 0 || access->location_type != 1) {
        return INVALID_VALUE;
    }
    if (block->view == NULL && access->flags != 0) {
        view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                    ((physical_t *)block->physical)->fd, 0);
        if (view == MAP_FAILED) {
            return OUT_OF_MEMORY;
        }
        block->view = view;
    }
    return OK;
}

API int cuMemUnmap(address_t base, size_t bytes)
{
    block_t *block;

    ANYWHERE;
    block = sim_find(base);
    if (block == NULL || block->kind != MAPPED || block->base != base ||
        block->bytes != bytes) {
        return INVALID_VALUE;
    }
    if (sim_current() != NULL) {
        sim_wait_context(sim_current());
    }
    if (block->view != NULL) {
        munmap(block->view, bytes);
    }
    release(block->physical);
    sim_remove(block);
    return OK;
}

/* "The address must be in a mapped address range": not of cuMemAlloc() or a
 * pool, which tells them apart (UCX, cuda_copy_md.c,
 * uct_cuda_copy_detect_vmm()). */
API int cuMemRetainAllocationHandle(uint64_t *handle, void *data)
{
    block_t *block;

    ANYWHERE;
    block = sim_find((address_t)(uintptr_t)data);
    if (block == NULL || block->kind != MAPPED) {
        return INVALID_VALUE;
    }
    ((physical_t *)block->physical)->refs++;
    *handle = (uint64_t)(uintptr_t)block->physical;
    return OK;
}

API int cuMemGetAllocationPropertiesFromHandle(void *props, uint64_t handle)
{
    const physical_t *physical;

    ANYWHERE;
    physical = physical_of(handle);
    if (physical == NULL) {
        return INVALID_VALUE;
    }
    *(props_t *)props = (props_t){.type = 1,
                                  .handle_types = (int)physical->handle_types,
                                  .location_type = 1,
                                  .location_id = physical->device};
    return OK;
}

API int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                     uint64_t flags)
{
    const physical_t *physical;
    int fd;

    ANYWHERE;
    physical = physical_of(handle);
    if (physical == NULL || flags != 0 || type != 1 ||
        (physical->handle_types & 1) == 0) {
        return INVALID_VALUE;
    }
    fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    memcpy(shareable, &fd, sizeof(fd));
    return fd < 0 ? OUT_OF_MEMORY : OK;
}

API int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable,
                                       int type)
{
    int fd = (int)(intptr_t)shareable;
    physical_t *physical;
    struct stat info;

    ANYWHERE;
    if (type != 1 || fstat(fd, &info) != 0) {
        return INVALID_VALUE;
    }
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return OUT_OF_MEMORY;
    }
    physical = keep(fd, (size_t)info.st_size, 0, 1);
    *handle = (uint64_t)(uintptr_t)physical;
    return physical == NULL ? OUT_OF_MEMORY : OK;
}
