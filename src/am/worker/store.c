/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/net/loop.h"
#include "core/error.h"
#include "core/refs.h"
#include "serialize/header.h"

/* The pool keeps this much memory though nobody uses it. */
#define POOL_BYTES (256ULL << 20)
#define SPARE_SEND_BYTES ((size_t)1 << 20)
#define SPARE_MESSAGE_BYTES ((size_t)4 << 20) /* 4 maps of 10,000 tensors */
#define SPARE_CONTROL_BYTES ((size_t)64 << 10)

struct tmsg_store {
    tmsg_refs_t refs;
    tmsg_allocator_t allocator; /* alloc NULL: the library's own memory */
    uint64_t budget;
    atomic_ullong held; /* only the sum with held_inside means anything */
    /* Holds what the thread inside has added and taken. */
    atomic_ullong held_inside;
    /* Counts the bytes besides `held` that came with headers and that nobody
     * has yet. */
    atomic_ullong noted;
    atomic_bool missed; /* somebody waits for memory */
    int event_fd;
    /* Names the only thread inside; 0: that is not known. */
    _Atomic(pthread_t) inside;
    tmsg_pool_t pool;
    tmsg_device_allocator_t device_allocator; /* alloc NULL: none */
    tmsg_device_pool_t device_pool;
    tmsg_spares_t messages;
    tmsg_spares_t sends;
    tmsg_spares_t controls;
};

tmsg_status_t tmsg_store_create(const tmsg_allocator_t *allocator,
                                uint64_t budget, int event_fd,
                                void (*free_message)(tmsg_spare_t *spare),
                                void (*free_send)(tmsg_spare_t *spare),
                                void (*free_control)(tmsg_spare_t *spare),
                                tmsg_store_t **store_p)
{
    uint64_t lasting = budget < POOL_BYTES ? budget : POOL_BYTES;
    tmsg_store_t *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return tmsg_error_memory("a worker's store");
    }
    store->event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 0);
    if (store->event_fd < 0) {
        free(store);
        return tmsg_error_errno(TMSG_ERR_LIMIT_EXCEEDED, "dup");
    }
    tmsg_refs_init(&store->refs, 1);
    store->budget = budget;
    tmsg_pool_init(&store->pool, budget, lasting);
    tmsg_device_pool_init(&store->device_pool, lasting);
    tmsg_spares_init(&store->messages, SPARE_MESSAGE_BYTES, free_message);
    tmsg_spares_init(&store->sends, SPARE_SEND_BYTES, free_send);
    tmsg_spares_init(&store->controls, SPARE_CONTROL_BYTES, free_control);
    if (allocator != NULL) {
        store->allocator = *allocator;
    }
    *store_p = store;
    return TMSG_OK;
}

void tmsg_store_hold(tmsg_store_t *store) { tmsg_refs_take(&store->refs); }

void tmsg_store_drop(tmsg_store_t *store)
{
    if (tmsg_refs_drop(&store->refs)) {
        close(store->event_fd);
        tmsg_pool_free(&store->pool);
        tmsg_device_pool_free(&store->device_pool);
        free(store);
    }
}

void tmsg_store_close(tmsg_store_t *store)
{
    tmsg_store_leave(store);
    tmsg_spares_close(&store->messages);
    tmsg_spares_close(&store->sends);
    tmsg_spares_close(&store->controls);
    tmsg_store_drop(store);
}

void tmsg_store_enter(tmsg_store_t *store)
{
    atomic_store_explicit(&store->inside, pthread_self(), memory_order_relaxed);
}

void tmsg_store_leave(tmsg_store_t *store)
{
    atomic_store_explicit(&store->inside, 0, memory_order_relaxed);
}

static inline bool is_inside(const tmsg_store_t *store)
{
    return atomic_load_explicit(&store->inside, memory_order_relaxed) ==
           pthread_self();
}

bool tmsg_store_is_inside(const tmsg_store_t *store)
{
    return is_inside(store);
}

void tmsg_store_keep(tmsg_store_t *store, tmsg_spares_t *spares,
                     tmsg_spare_t *spare)
{
    if (is_inside(store)) {
        tmsg_spares_put_back(spares, spare);
    } else {
        tmsg_spares_give(spares, spare);
    }
}

bool tmsg_store_asks(const tmsg_store_t *store)
{
    return store->allocator.alloc != NULL;
}

bool tmsg_store_fits(const tmsg_store_t *store, uint64_t bytes, uint64_t spill)
{
    return (tmsg_store_asks(store) ? spill : bytes) <= store->budget;
}

uint64_t tmsg_store_budget(const tmsg_store_t *store) { return store->budget; }

tmsg_status_t tmsg_store_too_small(const tmsg_store_t *store, uint64_t bytes)
{
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "payload of %llu bytes exceeds held_bytes %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)store->budget);
}

bool tmsg_store_is_missed(const tmsg_store_t *store)
{
    return atomic_load(&store->missed);
}

/* Clears the error message before an allocator of the application is called, so
 * that the message afterwards is the allocator's own, if there is one. */
static void expect_theirs(void) { tmsg_error_set(TMSG_OK, "%s", ""); }

/* Turns the answer of an allocator into a status and an error message. */
static tmsg_status_t judge_theirs(tmsg_status_t status, const void *data,
                                  uint64_t bytes)
{
    if (status > TMSG_OK || (status == TMSG_OK && data == NULL)) {
        status = TMSG_ERR_NO_MEMORY;
    }
    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(status,
                                "the application's allocator gave no %llu "
                                "bytes: %s",
                                (unsigned long long)bytes,
                                tmsg_error_message()[0] != '\0'
                                    ? tmsg_error_message()
                                    : tmsg_status_name(status));
}

static tmsg_status_t alloc_theirs(tmsg_store_t *store, uint64_t bytes,
                                  tmsg_block_t *block)
{
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    tmsg_status_t status;

    expect_theirs();
    status = store->allocator.alloc(store->allocator.arg, cpu, bytes,
                                    TMSG_PAYLOAD_ALIGNMENT, &block->data,
                                    &block->token);
    return judge_theirs(status, block->data, bytes);
}

static uint64_t sum_held(const tmsg_store_t *store)
{
    return atomic_load(&store->held) + atomic_load(&store->held_inside);
}

uint64_t tmsg_store_held(const tmsg_store_t *store) { return sum_held(store); }

uint64_t tmsg_store_noted(const tmsg_store_t *store)
{
    return atomic_load(&store->noted);
}

/* Adds to a sum that nobody else changes meanwhile. */
static inline uint64_t add_alone(atomic_ullong *sum, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(sum, memory_order_relaxed) + bytes;

    atomic_store_explicit(sum, now, memory_order_relaxed);
    return now;
}

static inline void add_held(tmsg_store_t *store, uint64_t bytes)
{
    if (is_inside(store)) {
        add_alone(&store->held_inside, bytes);
    } else {
        atomic_fetch_add(&store->held, bytes);
    }
}

static bool try_reserve(tmsg_store_t *store, uint64_t bytes)
{
    atomic_fetch_add(&store->held, bytes);
    if (sum_held(store) <= store->budget) {
        return true;
    }
    atomic_fetch_sub(&store->held, bytes);
    return false;
}

tmsg_status_t tmsg_store_reserve(tmsg_store_t *store, uint64_t bytes)
{
    if (try_reserve(store, bytes)) {
        return TMSG_OK;
    }
    /* The flag is set before the second try, so that a release in between is
     * either seen or signals. */
    atomic_store(&store->missed, true);
    return try_reserve(store, bytes) ? TMSG_OK : TMSG_IN_PROGRESS;
}

void tmsg_store_signal(const tmsg_store_t *store)
{
    tmsg_loop_signal(store->event_fd);
}

static inline void tell_of_room(tmsg_store_t *store)
{
    if (atomic_load(&store->missed) && atomic_exchange(&store->missed, false)) {
        tmsg_loop_signal(store->event_fd);
    }
}

void tmsg_store_discharge(tmsg_store_t *store, uint64_t bytes)
{
    add_held(store, -bytes);
    tell_of_room(store);
}

void tmsg_store_give_back(tmsg_store_t *store, tmsg_spare_t *message,
                          uint64_t bytes)
{
    if (is_inside(store)) {
        add_alone(&store->held_inside, -bytes);
        tell_of_room(store);
        tmsg_spares_put_back(&store->messages, message);
    } else {
        tmsg_store_discharge(store, bytes);
        /* The store may be freed by this. */
        tmsg_spares_give(&store->messages, message);
    }
}

/* Adds to `noted`, which only the worker's own thread changes. */
static inline uint64_t add_noted(tmsg_store_t *store, uint64_t bytes)
{
    return is_inside(store) ? add_alone(&store->noted, bytes)
                            : atomic_fetch_add(&store->noted, bytes) + bytes;
}

__attribute__((cold)) static tmsg_status_t too_much(const tmsg_store_t *store,
                                                    uint64_t bytes)
{
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "names, shapes and metadata of %llu bytes exceed "
                          "held_bytes %llu by more than %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)store->budget, TMSG_STORE_SLACK);
}

/* Returns how much may be noted. Payloads do not wait for noted bytes, and may
 * therefore use the whole budget besides. */
static uint64_t noted_most(const tmsg_store_t *store)
{
    return store->budget / 4 + TMSG_STORE_SLACK;
}

tmsg_status_t tmsg_store_note(tmsg_store_t *store, uint64_t bytes, bool more)
{
    uint64_t noted = add_noted(store, bytes);

    if (!more && noted - bytes > noted_most(store)) {
        tmsg_store_forget(store, bytes);
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "names, shapes and metadata of messages that "
                              "nobody has yet are %llu bytes already, of %llu",
                              (unsigned long long)(noted - bytes),
                              (unsigned long long)noted_most(store));
    }
    if (noted + sum_held(store) <= store->budget + TMSG_STORE_SLACK) {
        return TMSG_OK;
    }
    tmsg_store_forget(store, bytes);
    return too_much(store, bytes);
}

tmsg_status_t tmsg_store_charge(tmsg_store_t *store, uint64_t bytes)
{
    add_held(store, bytes);
    if (sum_held(store) + atomic_load(&store->noted) <=
        store->budget + TMSG_STORE_SLACK) {
        return TMSG_OK;
    }
    tmsg_store_discharge(store, bytes);
    return too_much(store, bytes);
}

void tmsg_store_forget(tmsg_store_t *store, uint64_t bytes)
{
    add_noted(store, -bytes);
}

void tmsg_store_move(tmsg_store_t *store, uint64_t bytes)
{
    add_noted(store, -bytes);
    add_held(store, bytes);
}

/* Shrinks the pool, so that kept and held memory together are within the
 * budget, except for the little that is always kept. */
static void make_pool_room(tmsg_store_t *store)
{
    if (tmsg_pool_hoards(&store->pool)) {
        uint64_t now = sum_held(store);

        tmsg_pool_shrink(&store->pool,
                         now < store->budget ? store->budget - now : 0);
    }
}

bool tmsg_store_claim(tmsg_store_t *store, uint64_t bytes)
{
    if (tmsg_store_is_missed(store)) {
        return false;
    }
    add_held(store, bytes);
    if (sum_held(store) + atomic_load(&store->noted) > store->budget) {
        tmsg_store_discharge(store, bytes);
        return false;
    }
    make_pool_room(store);
    return true;
}

tmsg_status_t tmsg_store_alloc(tmsg_store_t *store, const void *liked,
                               uint64_t bytes, tmsg_block_t *block_p)
{
    tmsg_block_t block = {NULL, bytes, 0, NULL};
    tmsg_pool_block_t ours;
    tmsg_status_t status;

    if (tmsg_store_asks(store)) {
        status = alloc_theirs(store, bytes, &block);
    } else {
        status = tmsg_store_reserve(store, bytes);
        if (status != TMSG_OK) {
            return status;
        }
        status = tmsg_pool_take_at(&store->pool, liked, bytes, &ours);
        if (status == TMSG_OK) {
            block.data = ours.data;
            block.capacity = ours.capacity;
            make_pool_room(store);
        } else {
            tmsg_store_discharge(store, bytes);
        }
    }
    if (status == TMSG_OK) {
        *block_p = block;
    }
    return status;
}

void tmsg_store_free(tmsg_store_t *store, const tmsg_block_t *block)
{
    if (block->data == NULL) {
        return;
    }
    if (tmsg_store_asks(store)) {
        store->allocator.release(store->allocator.arg, block->data,
                                 block->bytes, block->token);
        return;
    }
    tmsg_pool_give(&store->pool,
                   (tmsg_pool_block_t){block->data, block->capacity});
    tmsg_store_discharge(store, block->bytes);
}

void tmsg_store_set_devices(tmsg_store_t *store,
                            const tmsg_device_allocator_t *allocator)
{
    if (allocator != NULL) {
        store->device_allocator = *allocator;
    }
}

static tmsg_status_t device_alloc_theirs(tmsg_store_t *store, uint64_t bytes,
                                         tmsg_device_memory_t *memory)
{
    tmsg_device_block_t *block = &memory->block;
    tmsg_status_t status;

    expect_theirs();
    status = store->device_allocator.alloc(
        store->device_allocator.arg, block->device, bytes,
        TMSG_PAYLOAD_ALIGNMENT, block->stream, &block->data, &memory->token);
    status = judge_theirs(status, block->data, bytes);
    if (status == TMSG_OK) {
        memory->theirs = true;
        block->capacity = bytes;
    }
    return status;
}

tmsg_status_t tmsg_store_device_alloc(tmsg_store_t *store, uint64_t bytes,
                                      tmsg_device_memory_t *memory_p)
{
    tmsg_device_memory_t memory = *memory_p;
    tmsg_status_t status = TMSG_ERR_UNSUPPORTED;

    if (store->device_allocator.alloc != NULL) {
        status = device_alloc_theirs(store, bytes, &memory);
    }
    if (status == TMSG_ERR_UNSUPPORTED) {
        if (bytes > store->budget) {
            return tmsg_store_too_small(store, bytes);
        }
        status = tmsg_store_reserve(store, bytes);
        if (status != TMSG_OK) {
            return status;
        }
        status =
            tmsg_device_pool_take(&store->device_pool, bytes, &memory.block);
        if (status != TMSG_OK) {
            tmsg_store_discharge(store, bytes);
        }
    }
    if (status == TMSG_OK) {
        memory.bytes = bytes;
        *memory_p = memory;
    }
    return status;
}

void tmsg_store_device_free(tmsg_store_t *store, tmsg_device_memory_t *memory)
{
    const tmsg_device_block_t *block = &memory->block;

    if (memory->bytes == 0) {
        return;
    }
    if (memory->theirs) {
        store->device_allocator.release(
            store->device_allocator.arg, block->device, block->data,
            memory->bytes, block->stream, memory->token);
    } else {
        tmsg_device_pool_give(&store->device_pool, *block);
        tmsg_store_discharge(store, memory->bytes);
    }
    memory->bytes = 0;
}

tmsg_spares_t *tmsg_store_messages(tmsg_store_t *store)
{
    return &store->messages;
}

tmsg_spares_t *tmsg_store_sends(tmsg_store_t *store) { return &store->sends; }

tmsg_spares_t *tmsg_store_controls(tmsg_store_t *store)
{
    return &store->controls;
}

tmsg_pool_t *tmsg_store_pool(tmsg_store_t *store) { return &store->pool; }
