/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the simulated devices. All devices lie one behind the other in one
 * memfd, behind what the process shares. It is mapped twice: `face` gives the
 * addresses, where the CPU may touch nothing, `inside` is where the bytes are
 * moved. Memory is given out in chunks of 2 MiB; small pieces of cuMemAlloc()
 * share one, as the programming guide says ("Interprocess Communication":
 * "cudaMalloc() may be sub-allocated from a larger block of memory"). */
#include "gpu/sim/inside.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL (1 * MIB)
#define KEPT 16384    /* bytes of the host's memory that are not given back */
#define ALIGNMENT 512 /* cuMemAlloc(): "suitably aligned for any variable" */

typedef struct {
    uint32_t pieces; /* that lie in it; of a large piece's other chunks 1 */
    size_t used;     /* bytes from its beginning, of small pieces */
} chunk_t;

static char *face, *inside;
static int memory_fd = -1;
static size_t chunks_each; /* of a device */
static chunk_t chunks[DEVICES][CHUNKS];
static size_t small[DEVICES]; /* 1 + the chunk that small pieces come from */
static block_t **blocks;      /* in the order of their addresses */
static size_t count, room;
static size_t held[DEVICES]; /* bytes that are given out */
static uint64_t ids;

static size_t shared_bytes(void)
{
    return (sizeof(shared_t) + CHUNK - 1) / CHUNK * CHUNK;
}

static size_t device_bytes(void) { return chunks_each * CHUNK; }

bool sim_memory_open(size_t bytes_each)
{
    size_t bytes;

    chunks_each = bytes_each / CHUNK;
    chunks_each = chunks_each > CHUNKS ? CHUNKS : chunks_each;
    bytes = shared_bytes() + (size_t)sim_devices * device_bytes();
    memory_fd = memfd_create("simulated-cuda", MFD_CLOEXEC);
    if (memory_fd < 0 || ftruncate(memory_fd, (off_t)bytes) != 0) {
        return false;
    }
    face =
        mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, memory_fd, 0);
    inside = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_NORESERVE, memory_fd, 0);
    if (face == MAP_FAILED || inside == MAP_FAILED) {
        return false;
    }
    ((shared_t *)inside)->magic = SHARED_MAGIC;
    ids = (uint64_t)getpid() << 32; /* BUFFER_ID is of the whole system */
    return true;
}

shared_t *sim_shared(int *fd_p)
{
    *fd_p = memory_fd;
    return (shared_t *)inside;
}

/* The number of the first block behind an address. */
static size_t place(address_t address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (blocks[middle]->base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

block_t *sim_find(address_t address)
{
    size_t at = place(address);
    block_t *block = at == 0 ? NULL : blocks[at - 1];

    return block != NULL && address - block->base < block->bytes ? block : NULL;
}

bool sim_is_device(const block_t *block)
{
    return block != NULL && block->kind != PINNED && block->kind != HOST;
}

bool sim_reach(address_t address, size_t bytes, char **view_p,
               block_t **block_p)
{
    block_t *block = sim_find(address);
    size_t all = shared_bytes() + (size_t)sim_devices * device_bytes();

    *block_p = block;
    *view_p = (char *)(uintptr_t)address;
    if (block == NULL) {
        return address - (address_t)(uintptr_t)face >= all;
    }
    if (block->view == NULL || bytes > block->bytes - (address - block->base)) {
        return false;
    }
    *view_p = block->view + (address - block->base);
    return true;
}

block_t *sim_add(const block_t *from)
{
    block_t *block = malloc(sizeof(*block));
    size_t at = place(from->base);

    if (count == room) {
        block_t **more = realloc(blocks, (room * 2 + 64) * sizeof(*more));

        if (more == NULL) {
            free(block);
            return NULL;
        }
        blocks = more;
        room = room * 2 + 64;
    }
    if (block == NULL) {
        return NULL;
    }
    *block = *from;
    block->id = ++ids;
    block->context_id = block->context == NULL ? 0 : block->context->id;
    memmove(blocks + at + 1, blocks + at, (count - at) * sizeof(*blocks));
    blocks[at] = block;
    count++;
    return block;
}

void sim_remove(block_t *block)
{
    size_t at = place(block->base) - 1;

    memmove(blocks + at, blocks + at + 1, (count - at - 1) * sizeof(*blocks));
    count--;
    free(block);
}

/* As many chunks as that, the first that are free: an address comes again
 * soon, as a real driver's does. SIZE_MAX: there are none. */
static size_t find_chunks(int device, size_t wanted)
{
    const chunk_t *of = chunks[device];

    for (size_t at = 0, free_ones = 0; at < chunks_each; at++) {
        free_ones = of[at].pieces == 0 ? free_ones + 1 : 0;
        if (free_ones == wanted) {
            return at + 1 - wanted;
        }
    }
    return SIZE_MAX;
}

static size_t offset_of(int device, size_t chunk)
{
    return shared_bytes() + (size_t)device * device_bytes() + chunk * CHUNK;
}

/* An allocation has an id that no other has, and chunks tell it to others. */
static void set_id(int device, size_t chunk, uint64_t id)
{
    atomic_store(&((shared_t *)inside)->chunks[device][chunk].id, id);
}

static bool take_small(int device, size_t bytes, size_t *offset_p)
{
    size_t at = small[device] - 1;
    chunk_t *chunk = &chunks[device][small[device] == 0 ? 0 : at];

    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (small[device] == 0 || chunk->pieces == 0 ||
        chunk->used + bytes > CHUNK) {
        at = find_chunks(device, 1);
        if (at == SIZE_MAX) {
            return false;
        }
        chunk = &chunks[device][at];
        chunk->used = 0;
        set_id(device, at, ++ids);
        small[device] = at + 1;
    }
    *offset_p = offset_of(device, at) + chunk->used;
    chunk->used += bytes;
    chunk->pieces++;
    return true;
}

static bool take_large(int device, size_t bytes, size_t *offset_p)
{
    size_t wanted = (bytes + CHUNK - 1) / CHUNK;
    size_t at = find_chunks(device, wanted);

    if (at == SIZE_MAX) {
        return false;
    }
    ids++;
    for (size_t i = 0; i < wanted; i++) {
        chunks[device][at + i].pieces = 1;
        set_id(device, at + i, ids);
    }
    *offset_p = offset_of(device, at);
    return true;
}

static void count_held(int device, size_t bytes)
{
    uint64_t peak = atomic_load(&sim_counts->peak_bytes);

    held[device] += bytes;
    COUNT_BYTES(held_bytes, bytes);
    while (held[device] > peak &&
           !atomic_compare_exchange_weak(&sim_counts->peak_bytes, &peak,
                                         held[device])) {
    }
}

block_t *sim_take(int device, size_t bytes, kind_t kind, context_t *context)
{
    block_t block = {
        .bytes = bytes, .kind = kind, .device = device, .context = context};
    size_t offset;
    bool found = kind == PLAIN && bytes <= SMALL
                     ? take_small(device, bytes, &offset)
                     : take_large(device, bytes, &offset);

    if (!found) {
        return NULL;
    }
    block.base = (address_t)(uintptr_t)face + offset;
    block.view = inside + offset;
    if (kind == MANAGED) { /* cuMemAllocManaged(): the CPU may touch it */
        mprotect(face + offset, (bytes + CHUNK - 1) / CHUNK * CHUNK,
                 PROT_READ | PROT_WRITE);
    }
    COUNT_BYTES(alloc_bytes, bytes);
    count_held(device, bytes);
    return sim_add(&block);
}

static void find_chunk(const block_t *block, size_t *first_p, size_t *count_p)
{
    size_t offset = (size_t)(block->base - (address_t)(uintptr_t)face) -
                    offset_of(block->device, 0);

    *first_p = offset / CHUNK;
    *count_p = (offset % CHUNK + block->bytes + CHUNK - 1) / CHUNK;
}

void sim_chunk(const block_t *block, uint64_t *chunk_p, uint64_t *offset_p,
               uint64_t *bytes_p, uint64_t *id_p)
{
    size_t first, many;

    find_chunk(block, &first, &many);
    *chunk_p = first;
    *offset_p = offset_of(block->device, first);
    *bytes_p = many * CHUNK;
    *id_p = ((shared_t *)inside)->chunks[block->device][first].id;
}

void sim_give(block_t *block)
{
    shared_t *shared = (shared_t *)inside;
    size_t first, many, offset;

    find_chunk(block, &first, &many);
    offset = offset_of(block->device, first);
    if (atomic_load(&shared->chunks[block->device][first].opened) > 0) {
        COUNT(freed_while_open);
    }
    count_held(block->device, -block->bytes);
    for (size_t i = 0; i < many; i++) {
        chunk_t *chunk = &chunks[block->device][first + i];

        if (--chunk->pieces == 0) {
            set_id(block->device, first + i, 0);
            if (first + i + 1 == small[block->device]) {
                small[block->device] = 0;
            }
            if (block->kind == MANAGED) {
                mprotect(face + offset + i * CHUNK, CHUNK, PROT_NONE);
            }
            if (block->bytes > KEPT &&
                fallocate(memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          (off_t)(offset + i * CHUNK), CHUNK) != 0) {
                abort();
            }
        }
    }
    sim_remove(block);
}

int sim_blocks(void)
{
    int many = 0;

    for (size_t i = 0; i < count; i++) {
        many += !blocks[i]->dying && !blocks[i]->of_ucx;
    }
    return many;
}

size_t sim_held(int device) { return held[device]; }

void sim_renew(block_t *block) { block->id = ++ids; }

uint64_t sim_offset(address_t address)
{
    return address - (address_t)(uintptr_t)face;
}

block_t *sim_search(bool (*is)(const block_t *block, const void *arg),
                    const void *arg)
{
    for (size_t i = 0; i < count; i++) {
        if (is(blocks[i], arg)) {
            return blocks[i];
        }
    }
    return NULL;
}

/* What belongs to a context ends with it. */
void sim_remove_all(const context_t *context)
{
    for (size_t i = count; i-- > 0;) {
        block_t *block = blocks[i];

        if (block->context != context) {
            continue;
        }
        if (block->kind == PLAIN || block->kind == MANAGED) {
            sim_give(block);
        } else {
            sim_remove(block);
        }
    }
}
