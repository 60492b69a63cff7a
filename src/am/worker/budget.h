/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/budget.h - the memory budget of a worker: memory for payloads, from
 * the application's allocator or within a limit (`held_bytes`). */
#ifndef TMSG_AM_WORKER_BUDGET_H
#define TMSG_AM_WORKER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/worker.h>

#include "memory/device_pool.h"
#include "memory/pool.h"
#include "memory/spares.h"

/* A memory budget is shared by a worker and every message that the worker
 * delivered. The last of them to end frees it. */
typedef struct tmsg_budget tmsg_budget_t;

/* Describes the memory of one payload. */
typedef struct {
    void *data;
    uint64_t bytes;
    uint64_t capacity; /* size, if it is a block of the library's pool */
    void *token;       /* token of the application's allocator */
} tmsg_block_t;

/* Creates a memory budget. With `allocator` NULL, payloads are in the library's
 * own memory, at most `limit` bytes at a time. When memory becomes free that
 * somebody waits for, event_fd is signalled; the memory budget has its own
 * dup() of it. The three functions free the records that the memory budget
 * keeps. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_budget_create(const tmsg_allocator_t *allocator,
                                 uint64_t limit, int event_fd,
                                 void (*free_message)(tmsg_spare_t *spare),
                                 void (*free_send)(tmsg_spare_t *spare),
                                 void (*free_control)(tmsg_spare_t *spare),
                                 tmsg_budget_t **budget_p);

/* Takes a reference. Each record of a message or send has one, whether it is in
 * use or kept. */
void tmsg_budget_hold(tmsg_budget_t *budget);
void tmsg_budget_drop(tmsg_budget_t *budget); /* thread-safe */

/* Drops the reference of a worker that ends. The memory budget keeps no more
 * records from then on. */
void tmsg_budget_close(tmsg_budget_t *budget);

/* Has the memory budget belong to a shared worker. */
void tmsg_budget_share(tmsg_budget_t *budget);

/* These two mark the calling thread as the only one inside the worker: it has
 * the lock of a shared one. Between the two calls this thread alone touches
 * what is the worker's. */
void tmsg_budget_enter(tmsg_budget_t *budget);
void tmsg_budget_leave(tmsg_budget_t *budget);

/* Returns whether the caller is the thread that has entered. */
bool tmsg_budget_is_inside(const tmsg_budget_t *budget);

/* Gives back a record. Any thread may call it. */
void tmsg_budget_keep(tmsg_budget_t *budget, tmsg_spares_t *spares,
                      tmsg_spare_t *spare);

/* Returns whether memory for a payload of `bytes` could be had if everything
 * else were free. `spill` of these bytes are a message body, which the library
 * always keeps in its own memory. */
bool tmsg_budget_fits(const tmsg_budget_t *budget, uint64_t bytes,
                      uint64_t spill);

/* tmsg_budget_limit() returns the bytes that may be held at a time,
 * tmsg_budget_held() those that are held now. */
uint64_t tmsg_budget_limit(const tmsg_budget_t *budget);
uint64_t tmsg_budget_held(const tmsg_budget_t *budget);

/* Returns the bytes that were noted and that nobody holds yet. */
uint64_t tmsg_budget_noted(const tmsg_budget_t *budget);

/* Returns LIMIT_EXCEEDED and sets the error message for a payload of
 * `bytes`. */
tmsg_status_t tmsg_budget_too_small(const tmsg_budget_t *budget,
                                    uint64_t bytes);

/* Returns whether somebody waits for memory, and will be signalled. */
bool tmsg_budget_is_missed(const tmsg_budget_t *budget);

/* Returns whether payloads come from the application's allocator, which has to
 * be asked. */
bool tmsg_budget_asks(const tmsg_budget_t *budget);

/* Gets memory for a payload, aligned to 64 bytes. It is at `liked` if that
 * address is free. The function may call the application: no lock may be held.
 * Errors: IN_PROGRESS (over the budget: ask again when signalled), NO_MEMORY,
 * or the status of the application's allocator. */
tmsg_status_t tmsg_budget_alloc(tmsg_budget_t *budget, const void *liked,
                                uint64_t bytes, tmsg_block_t *block_p);
void tmsg_budget_free(tmsg_budget_t *budget, const tmsg_block_t *block);

/* Describes device memory for a tensor. It comes from the application's device
 * allocator if there is one that serves the device, else from a pool that
 * counts in the budget. */
typedef struct {
    tmsg_device_block_t block;
    uint64_t bytes; /* 0: there is no memory */
    void *token;
    bool theirs;
} tmsg_device_memory_t;

void tmsg_budget_set_devices(tmsg_budget_t *budget,
                             const tmsg_device_allocator_t *allocator);

/* Gets device memory for a tensor. The caller sets domain, device and stream in
 * memory_p->block. The function calls the application or a driver: no lock may
 * be held. Errors: IN_PROGRESS (as tmsg_budget_alloc()), LIMIT_EXCEEDED (more
 * than the budget), those of the allocator, those of the domain. */
tmsg_status_t tmsg_budget_device_alloc(tmsg_budget_t *budget, uint64_t bytes,
                                       tmsg_device_memory_t *memory_p);
void tmsg_budget_device_free(tmsg_budget_t *budget,
                             tmsg_device_memory_t *memory);

/* Takes `bytes` of the budget for memory that comes from elsewhere, with an
 * allocator or without. Errors: IN_PROGRESS (as tmsg_budget_alloc()). */
tmsg_status_t tmsg_budget_reserve(tmsg_budget_t *budget, uint64_t bytes);

/* Wakes a thread that sleeps on the worker's descriptor. Thread-safe. */
void tmsg_budget_signal(const tmsg_budget_t *budget);

/* Gives back bytes that were reserved, or moved to the budget. Thread-safe. */
void tmsg_budget_discharge(tmsg_budget_t *budget, uint64_t bytes);

/* Counts memory that came with a header, which cannot wait. Such bytes are
 * counted apart until the application has the message: payloads that wait for
 * memory do not wait for them.
 *
 * Held and noted bytes together may exceed the budget by TMSG_BUDGET_SLACK.
 * Noted bytes may exceed a quarter of the budget by TMSG_BUDGET_SLACK, where
 * the newest are not counted. `more`: the message has noted some bytes already;
 * the second bound is then not checked.
 *
 * Errors: LIMIT_EXCEEDED (nothing is counted). tmsg_budget_forget() takes the
 * noted bytes back. */
#define TMSG_BUDGET_SLACK (64ULL << 20)
tmsg_status_t tmsg_budget_note(tmsg_budget_t *budget, uint64_t bytes,
                               bool more);
void tmsg_budget_forget(tmsg_budget_t *budget, uint64_t bytes);

/* Moves noted bytes to the budget, when the application gets the message. */
void tmsg_budget_move(tmsg_budget_t *budget, uint64_t bytes);

/* Notes bytes and moves them to the budget in one call, for memory that the
 * application is sure to get at once. Errors: LIMIT_EXCEEDED (nothing is
 * counted). */
tmsg_status_t tmsg_budget_charge(tmsg_budget_t *budget, uint64_t bytes);

/* Charges bytes as tmsg_budget_charge() does, if the budget has them left and
 * nobody waits for memory. Returns false, with nothing counted, if not. */
bool tmsg_budget_claim(tmsg_budget_t *budget, uint64_t bytes);

/* Gives back the record of a message and the bytes that were charged for it.
 * Any thread may call it. */
void tmsg_budget_give_back(tmsg_budget_t *budget, tmsg_spare_t *message,
                           uint64_t bytes);

/* These return the kept records: of messages that ended, of sends, and of
 * control messages. */
tmsg_spares_t *tmsg_budget_messages(tmsg_budget_t *budget);
tmsg_spares_t *tmsg_budget_sends(tmsg_budget_t *budget);
tmsg_spares_t *tmsg_budget_controls(tmsg_budget_t *budget);

/* Returns the library's own memory, from which payloads on their way out come,
 * too. */
tmsg_pool_t *tmsg_budget_pool(tmsg_budget_t *budget);

#endif
