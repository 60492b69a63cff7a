/* SPDX-License-Identifier: BSD-3-Clause */
/* "Interprocess communication" of the simulated driver: the other process maps
 * the memfd of the one that exports. */
#include "gpu/sim/inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x49504343u

/* CUipcMemHandle and CUipcEventHandle have 64 bytes. */
typedef struct {
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t offset, bytes; /* of chunks in the memfd; offset: of the event */
    uint64_t id, inner;     /* of the chunk; where the memory begins in it */
    uint64_t chunk;         /* its number */
    uint64_t spare;
} handle_t;

_Static_assert(sizeof(handle_t) == 64, "CU_IPC_HANDLE_SIZE");

/* Chunks of another process that are mapped here. */
typedef struct {
    int32_t pid;
    uint64_t id;
    unsigned uses;
    void *face;
    shared_t *shared;
    _Atomic uint32_t *opened; /* the other process's counter */
} peer_t;

static bool is_barred(const char *where)
{
    const char *how = getenv("SIM_CUDA_NO_IPC");

    return how != NULL &&
           (strcmp(how, where) == 0) == (strcmp(where, "open") == 0);
}

/* Memory of a pool, or mapped, has no such handle ("an existing device memory
 * allocation created with cuMemAlloc()"). UCX gives any address within it
 * (cuda_ipc_md.c, uct_cuda_ipc_mem_add_reg()). */
API int cuIpcGetMemHandle(void *handle_p, address_t address)
{
    handle_t handle = {.magic = HANDLE_MAGIC, .pid = getpid()};
    const block_t *block;

    IN_CONTEXT;
    block = sim_find(address);
    if (is_barred("get")) {
        return NOT_SUPPORTED;
    }
    if (block == NULL || block->kind != PLAIN) {
        return INVALID_VALUE;
    }
    sim_shared(&handle.fd);
    handle.device = block->device;
    sim_chunk(block, &handle.chunk, &handle.offset, &handle.bytes, &handle.id);
    handle.inner = sim_offset(block->base) - handle.offset;
    COUNT(ipc_exported);
    memcpy(handle_p, &handle, sizeof(handle));
    return OK;
}

static void *map_peer(const handle_t *handle, uint64_t offset, size_t bytes)
{
    char path[64];
    void *view;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                (off_t)offset);
    close(fd);
    return view == MAP_FAILED ? NULL : view;
}

static shared_t *map_shared(const handle_t *handle)
{
    shared_t *shared = map_peer(handle, 0, sizeof(*shared));

    if (shared != NULL && shared->magic != SHARED_MAGIC) {
        munmap(shared, sizeof(*shared));
        shared = NULL;
    }
    return shared;
}

static bool is_opened(const block_t *block, const void *arg)
{
    const handle_t *handle = arg;

    return block->kind == PEER && block->context == sim_current() &&
           ((peer_t *)block->physical)->pid == handle->pid &&
           ((peer_t *)block->physical)->id == handle->id;
}

static void unmap(peer_t *peer, char *view, size_t bytes)
{
    if (view != NULL) {
        munmap(view, bytes);
    }
    if (peer->face != NULL && peer->face != MAP_FAILED) {
        munmap(peer->face, bytes);
    }
    munmap(peer->shared, sizeof(*peer->shared));
    free(peer);
}

/* The whole chunk is mapped, with all that lies in it. */
static int map_chunk(const handle_t *handle, block_t **block_p)
{
    peer_t *peer = calloc(1, sizeof(*peer));
    shared_t *shared = map_shared(handle);
    char *view;

    if (peer == NULL || shared == NULL) {
        free(peer);
        return INVALID_VALUE; /* the process is gone */
    }
    view = map_peer(handle, handle->offset, handle->bytes);
    *peer = (peer_t){.pid = handle->pid, .id = handle->id, .shared = shared};
    peer->opened = &shared->chunks[handle->device][handle->chunk].opened;
    peer->face = mmap(NULL, handle->bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (view == NULL || peer->face == MAP_FAILED ||
        shared->chunks[handle->device][handle->chunk].id != handle->id) {
        unmap(peer, view, handle->bytes);
        return INVALID_VALUE; /* it was freed */
    }
    atomic_fetch_add(peer->opened, 1);
    *block_p = sim_add(&(block_t){.base = (address_t)(uintptr_t)peer->face,
                                  .bytes = handle->bytes,
                                  .kind = PEER,
                                  .device = handle->device,
                                  .context = sim_current(),
                                  .view = view,
                                  .physical = peer});
    return *block_p == NULL ? OUT_OF_MEMORY : OK;
}

/* "If the memory handle has already been opened by the calling context, the
 * reference count on the handle is incremented by 1 and the existing device
 * pointer is returned." In the process that made it: INVALID_CONTEXT. The only
 * flag is CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS. */
API int cuIpcOpenMemHandle_v2(address_t *address, handle_t handle,
                              unsigned flags)
{
    block_t *block;
    int result = OK;

    IN_CONTEXT;
    if (flags != 1 || handle.magic != HANDLE_MAGIC || handle.device < 0 ||
        handle.device >= DEVICES || handle.chunk >= CHUNKS) {
        return INVALID_VALUE;
    }
    if (handle.pid == getpid()) {
        return INVALID_CONTEXT;
    }
    if (is_barred("open")) {
        return INVALID_VALUE;
    }
    if (handle.device >= sim_devices) {
        return INVALID_DEVICE;
    }
    block = sim_search(is_opened, &handle);
    if (block == NULL) {
        result = map_chunk(&handle, &block);
    }
    if (result != OK) {
        return result;
    }
    COUNT(ipc_opened);
    ((peer_t *)block->physical)->uses++;
    *address = block->base + handle.inner;
    return OK;
}

/* "Decrements the reference count of the returned memory by 1. When the
 * reference count reaches 0, this API unmaps the memory." */
API int cuIpcCloseMemHandle(address_t address)
{
    block_t *block;
    peer_t *peer;

    IN_CONTEXT;
    block = sim_find(address);
    if (block == NULL || block->kind != PEER) {
        return INVALID_VALUE;
    }
    peer = block->physical;
    COUNT(ipc_closed);
    if (--peer->uses > 0) {
        return OK;
    }
    sim_wait_context(sim_current());
    atomic_fetch_sub(peer->opened, 1);
    unmap(peer, block->view, block->bytes);
    sim_remove(block);
    return OK;
}

/* cuIpcGetEventHandle(): "must have been created with CU_EVENT_INTERPROCESS
 * and CU_EVENT_DISABLE_TIMING". */
API int cuIpcGetEventHandle(void *handle_p, void *event_handle)
{
    handle_t handle = {.magic = HANDLE_MAGIC, .pid = getpid()};
    event_t *event = event_handle;
    shared_t *shared;
    int result;

    IN_CONTEXT;
    result = sim_check_event(event);
    if (result != OK) {
        return result;
    }
    if (is_barred("get")) {
        return NOT_SUPPORTED;
    }
    if (event->shared == NULL || event->opened != NULL) {
        return INVALID_HANDLE;
    }
    shared = sim_shared(&handle.fd);
    handle.offset = (uint64_t)(event->shared - shared->events);
    memcpy(handle_p, &handle, sizeof(handle));
    return OK;
}

/* "This function returns a CUevent that behaves like a locally created event
 * with the CU_EVENT_DISABLE_TIMING flag specified." What happens when the
 * exporting process is gone is not written: an event that was recorded and not
 * reached stays so here. */
API int cuIpcOpenEventHandle(void **event_p, handle_t handle)
{
    shared_t *shared;
    event_t *event;

    IN_CONTEXT;
    if (handle.magic != HANDLE_MAGIC || handle.offset >= SHARED_EVENTS) {
        return INVALID_VALUE;
    }
    if (handle.pid == getpid()) {
        return INVALID_CONTEXT;
    }
    shared = is_barred("open") ? NULL : map_shared(&handle);
    event = shared == NULL ? NULL : sim_event_new(2);
    if (event == NULL) {
        return INVALID_HANDLE;
    }
    event->shared = &shared->events[handle.offset];
    event->opened = shared;
    COUNT(ipc_events_opened);
    *event_p = event;
    return OK;
}
