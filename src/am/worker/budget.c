/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/budget.h"

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

struct tmsg_budget {
    tmsg_refs_t refs;
    tmsg_allocator_t allocator; /* alloc NULL: the library's own memory */
    uint64_t limit;
    atomic_ullong held; /* only the sum with held_inside means anything */
    /* Holds what the thread inside has added and taken. */
    atomic_ullong held_inside;
    /* Counts the bytes besides `held` that came with headers and that nobody
     * has yet. */
    atomic_ullong noted;
    atomic_bool missed; /* somebody waits for memory */
    int event_fd;
    bool shared; /* threads come in turns, with the worker's lock */
    /* Names the only thread inside; 0: that is not known. */
    _Atomic(pthread_t) inside;
    tmsg_pool_t pool;
    tmsg_device_allocator_t device_allocator; /* alloc NULL: none */
    tmsg_device_pool_t device_pool;
    tmsg_spares_t messages;
    tmsg_spares_t sends;
    tmsg_spares_t controls;
};

tmsg_status_t tmsg_budget_create(const tmsg_allocator_t *allocator,
                                 uint64_t limit, int event_fd,
                                 void (*free_message)(tmsg_spare_t *spare),
                                 void (*free_send)(tmsg_spare_t *spare),
                                 void (*free_control)(tmsg_spare_t *spare),
                                 tmsg_budget_t **budget_p)
{
    uint64_t lasting = limit < POOL_BYTES ? limit : POOL_BYTES;
    tmsg_budget_t *budget = calloc(1, sizeof(*budget));

    if (budget == NULL) {
        return tmsg_error_memory("a worker's memory budget");
    }
    budget->event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 0);
    if (budget->event_fd < 0) {
        free(budget);
        return tmsg_error_errno(TMSG_ERR_LIMIT_EXCEEDED, "dup");
    }
    tmsg_refs_init(&budget->refs, 1);
    budget->limit = limit;
    tmsg_pool_init(&budget->pool, limit, lasting);
    tmsg_device_pool_init(&budget->device_pool, lasting);
    tmsg_spares_init(&budget->messages, SPARE_MESSAGE_BYTES, free_message);
    tmsg_spares_init(&budget->sends, SPARE_SEND_BYTES, free_send);
    tmsg_spares_init(&budget->controls, SPARE_CONTROL_BYTES, free_control);
    if (allocator != NULL) {
        budget->allocator = *allocator;
    }
    *budget_p = budget;
    return TMSG_OK;
}

void tmsg_budget_share(tmsg_budget_t *budget) { budget->shared = true; }

void tmsg_budget_hold(tmsg_budget_t *budget) { tmsg_refs_take(&budget->refs); }

void tmsg_budget_drop(tmsg_budget_t *budget)
{
    if (tmsg_refs_drop(&budget->refs)) {
        close(budget->event_fd);
        tmsg_pool_free(&budget->pool);
        tmsg_device_pool_free(&budget->device_pool);
        free(budget);
    }
}

void tmsg_budget_close(tmsg_budget_t *budget)
{
    tmsg_budget_leave(budget);
    tmsg_spares_close(&budget->messages);
    tmsg_spares_close(&budget->sends);
    tmsg_spares_close(&budget->controls);
    tmsg_budget_drop(budget);
}

void tmsg_budget_enter(tmsg_budget_t *budget)
{
    atomic_store_explicit(&budget->inside, pthread_self(),
                          memory_order_relaxed);
}

void tmsg_budget_leave(tmsg_budget_t *budget)
{
    atomic_store_explicit(&budget->inside, 0, memory_order_relaxed);
}

static inline bool is_inside(const tmsg_budget_t *budget)
{
    return atomic_load_explicit(&budget->inside, memory_order_relaxed) ==
           pthread_self();
}

bool tmsg_budget_is_inside(const tmsg_budget_t *budget)
{
    return is_inside(budget);
}

void tmsg_budget_keep(tmsg_budget_t *budget, tmsg_spares_t *spares,
                      tmsg_spare_t *spare)
{
    if (is_inside(budget)) {
        tmsg_spares_put_back(spares, spare);
    } else {
        tmsg_spares_give(spares, spare);
    }
}

bool tmsg_budget_asks(const tmsg_budget_t *budget)
{
    return budget->allocator.alloc != NULL;
}

bool tmsg_budget_fits(const tmsg_budget_t *budget, uint64_t bytes,
                      uint64_t spill)
{
    return (tmsg_budget_asks(budget) ? spill : bytes) <= budget->limit;
}

uint64_t tmsg_budget_limit(const tmsg_budget_t *budget)
{
    return budget->limit;
}

tmsg_status_t tmsg_budget_too_small(const tmsg_budget_t *budget, uint64_t bytes)
{
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "payload of %llu bytes exceeds held_bytes %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)budget->limit);
}

bool tmsg_budget_is_missed(const tmsg_budget_t *budget)
{
    return atomic_load(&budget->missed);
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

static tmsg_status_t alloc_theirs(tmsg_budget_t *budget, uint64_t bytes,
                                  tmsg_block_t *block)
{
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    tmsg_status_t status;

    expect_theirs();
    status = budget->allocator.alloc(budget->allocator.arg, cpu, bytes,
                                     TMSG_PAYLOAD_ALIGNMENT, &block->data,
                                     &block->token);
    return judge_theirs(status, block->data, bytes);
}

static uint64_t sum_held(const tmsg_budget_t *budget)
{
    return atomic_load(&budget->held) + atomic_load(&budget->held_inside);
}

uint64_t tmsg_budget_held(const tmsg_budget_t *budget)
{
    return sum_held(budget);
}

uint64_t tmsg_budget_noted(const tmsg_budget_t *budget)
{
    return atomic_load(&budget->noted);
}

/* Adds to a sum that nobody else changes meanwhile. */
static inline uint64_t add_alone(atomic_ullong *sum, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(sum, memory_order_relaxed) + bytes;

    atomic_store_explicit(sum, now, memory_order_relaxed);
    return now;
}

static inline void add_held(tmsg_budget_t *budget, uint64_t bytes)
{
    if (is_inside(budget)) {
        add_alone(&budget->held_inside, bytes);
    } else {
        atomic_fetch_add(&budget->held, bytes);
    }
}

static bool try_reserve(tmsg_budget_t *budget, uint64_t bytes)
{
    atomic_fetch_add(&budget->held, bytes);
    if (sum_held(budget) <= budget->limit) {
        return true;
    }
    atomic_fetch_sub(&budget->held, bytes);
    return false;
}

tmsg_status_t tmsg_budget_reserve(tmsg_budget_t *budget, uint64_t bytes)
{
    if (try_reserve(budget, bytes)) {
        return TMSG_OK;
    }
    /* The flag is set before the second try, so that a release in between is
     * either seen or signals. */
    atomic_store(&budget->missed, true);
    return try_reserve(budget, bytes) ? TMSG_OK : TMSG_IN_PROGRESS;
}

void tmsg_budget_signal(const tmsg_budget_t *budget)
{
    tmsg_loop_signal(budget->event_fd);
}

static inline void tell_of_room(tmsg_budget_t *budget)
{
    if (atomic_load(&budget->missed) &&
        atomic_exchange(&budget->missed, false)) {
        tmsg_loop_signal(budget->event_fd);
    }
}

void tmsg_budget_discharge(tmsg_budget_t *budget, uint64_t bytes)
{
    add_held(budget, -bytes);
    tell_of_room(budget);
}

void tmsg_budget_give_back(tmsg_budget_t *budget, tmsg_spare_t *message,
                           uint64_t bytes)
{
    if (is_inside(budget)) {
        add_alone(&budget->held_inside, -bytes);
        tell_of_room(budget);
        tmsg_spares_put_back(&budget->messages, message);
    } else {
        tmsg_budget_discharge(budget, bytes);
        /* This may free the memory budget. */
        tmsg_spares_give(&budget->messages, message);
    }
}

/* Adds to `noted`, which only the worker's own thread changes, or threads with
 * and without the lock of a shared worker. */
static inline uint64_t add_noted(tmsg_budget_t *budget, uint64_t bytes)
{
    return is_inside(budget) && !budget->shared
               ? add_alone(&budget->noted, bytes)
               : atomic_fetch_add(&budget->noted, bytes) + bytes;
}

__attribute__((cold)) static tmsg_status_t too_much(const tmsg_budget_t *budget,
                                                    uint64_t bytes)
{
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "names, shapes and metadata of %llu bytes exceed "
                          "held_bytes %llu by more than %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)budget->limit, TMSG_BUDGET_SLACK);
}

/* Returns how much may be noted. Payloads do not wait for noted bytes, and may
 * therefore use the whole budget besides. */
static uint64_t noted_most(const tmsg_budget_t *budget)
{
    return budget->limit / 4 + TMSG_BUDGET_SLACK;
}

tmsg_status_t tmsg_budget_note(tmsg_budget_t *budget, uint64_t bytes, bool more)
{
    uint64_t noted = add_noted(budget, bytes);

    if (!more && noted - bytes > noted_most(budget)) {
        tmsg_budget_forget(budget, bytes);
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "names, shapes and metadata of waiting messages "
                              "take %llu bytes already, of %llu",
                              (unsigned long long)(noted - bytes),
                              (unsigned long long)noted_most(budget));
    }
    if (noted + sum_held(budget) <= budget->limit + TMSG_BUDGET_SLACK) {
        return TMSG_OK;
    }
    tmsg_budget_forget(budget, bytes);
    return too_much(budget, bytes);
}

tmsg_status_t tmsg_budget_charge(tmsg_budget_t *budget, uint64_t bytes)
{
    add_held(budget, bytes);
    if (sum_held(budget) + atomic_load(&budget->noted) <=
        budget->limit + TMSG_BUDGET_SLACK) {
        return TMSG_OK;
    }
    tmsg_budget_discharge(budget, bytes);
    return too_much(budget, bytes);
}

void tmsg_budget_forget(tmsg_budget_t *budget, uint64_t bytes)
{
    add_noted(budget, -bytes);
}

void tmsg_budget_move(tmsg_budget_t *budget, uint64_t bytes)
{
    add_noted(budget, -bytes);
    add_held(budget, bytes);
}

/* Shrinks the pool, so that kept and held memory together are within the
 * budget, except for the little that is always kept. */
static void make_pool_room(tmsg_budget_t *budget)
{
    if (tmsg_pool_hoards(&budget->pool)) {
        uint64_t now = sum_held(budget);

        tmsg_pool_shrink(&budget->pool,
                         now < budget->limit ? budget->limit - now : 0);
    }
}

bool tmsg_budget_claim(tmsg_budget_t *budget, uint64_t bytes)
{
    if (tmsg_budget_is_missed(budget)) {
        return false;
    }
    add_held(budget, bytes);
    if (sum_held(budget) + atomic_load(&budget->noted) > budget->limit) {
        tmsg_budget_discharge(budget, bytes);
        return false;
    }
    make_pool_room(budget);
    return true;
}

tmsg_status_t tmsg_budget_alloc(tmsg_budget_t *budget, const void *liked,
                                uint64_t bytes, tmsg_block_t *block_p)
{
    tmsg_block_t block = {NULL, bytes, 0, NULL};
    tmsg_pool_block_t ours;
    tmsg_status_t status;

    if (tmsg_budget_asks(budget)) {
        status = alloc_theirs(budget, bytes, &block);
    } else {
        status = tmsg_budget_reserve(budget, bytes);
        if (status != TMSG_OK) {
            return status;
        }
        status = tmsg_pool_take_at(&budget->pool, liked, bytes, &ours);
        if (status == TMSG_OK) {
            block.data = ours.data;
            block.capacity = ours.capacity;
            make_pool_room(budget);
        } else {
            tmsg_budget_discharge(budget, bytes);
        }
    }
    if (status == TMSG_OK) {
        *block_p = block;
    }
    return status;
}

void tmsg_budget_free(tmsg_budget_t *budget, const tmsg_block_t *block)
{
    if (block->data == NULL) {
        return;
    }
    if (tmsg_budget_asks(budget)) {
        budget->allocator.release(budget->allocator.arg, block->data,
                                  block->bytes, block->token);
        return;
    }
    tmsg_pool_give(&budget->pool,
                   (tmsg_pool_block_t){block->data, block->capacity});
    tmsg_budget_discharge(budget, block->bytes);
}

void tmsg_budget_set_devices(tmsg_budget_t *budget,
                             const tmsg_device_allocator_t *allocator)
{
    if (allocator != NULL) {
        budget->device_allocator = *allocator;
    }
}

static tmsg_status_t device_alloc_theirs(tmsg_budget_t *budget, uint64_t bytes,
                                         tmsg_device_memory_t *memory)
{
    tmsg_device_block_t *block = &memory->block;
    tmsg_status_t status;

    expect_theirs();
    status = budget->device_allocator.alloc(
        budget->device_allocator.arg, block->device, bytes,
        TMSG_PAYLOAD_ALIGNMENT, block->stream, &block->data, &memory->token);
    status = judge_theirs(status, block->data, bytes);
    if (status == TMSG_OK) {
        memory->theirs = true;
        block->capacity = bytes;
    }
    return status;
}

tmsg_status_t tmsg_budget_device_alloc(tmsg_budget_t *budget, uint64_t bytes,
                                       tmsg_device_memory_t *memory_p)
{
    tmsg_device_memory_t memory = *memory_p;
    tmsg_status_t status = TMSG_ERR_UNSUPPORTED;

    if (budget->device_allocator.alloc != NULL) {
        status = device_alloc_theirs(budget, bytes, &memory);
    }
    if (status == TMSG_ERR_UNSUPPORTED) {
        if (bytes > budget->limit) {
            return tmsg_budget_too_small(budget, bytes);
        }
        status = tmsg_budget_reserve(budget, bytes);
        if (status != TMSG_OK) {
            return status;
        }
        status =
            tmsg_device_pool_take(&budget->device_pool, bytes, &memory.block);
        if (status != TMSG_OK) {
            tmsg_budget_discharge(budget, bytes);
        }
    }
    if (status == TMSG_OK) {
        memory.bytes = bytes;
        *memory_p = memory;
    }
    return status;
}

void tmsg_budget_device_free(tmsg_budget_t *budget,
                             tmsg_device_memory_t *memory)
{
    const tmsg_device_block_t *block = &memory->block;

    if (memory->bytes == 0) {
        return;
    }
    if (memory->theirs) {
        budget->device_allocator.release(
            budget->device_allocator.arg, block->device, block->data,
            memory->bytes, block->stream, memory->token);
    } else {
        tmsg_device_pool_give(&budget->device_pool, *block);
        tmsg_budget_discharge(budget, memory->bytes);
    }
    memory->bytes = 0;
}

tmsg_spares_t *tmsg_budget_messages(tmsg_budget_t *budget)
{
    return &budget->messages;
}

tmsg_spares_t *tmsg_budget_sends(tmsg_budget_t *budget)
{
    return &budget->sends;
}

tmsg_spares_t *tmsg_budget_controls(tmsg_budget_t *budget)
{
    return &budget->controls;
}

tmsg_pool_t *tmsg_budget_pool(tmsg_budget_t *budget) { return &budget->pool; }
