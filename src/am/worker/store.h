/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/store.h - memory for payloads, from the application or under a
 * budget. */
#ifndef TMSG_AM_WORKER_STORE_H
#define TMSG_AM_WORKER_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/worker.h>

#include "memory/device_pool.h"
#include "memory/pool.h"
#include "memory/spares.h"

/* Shared by a worker and every message that it delivered, whichever ends last.
 */
typedef struct tmsg_store tmsg_store_t;

/* One payload's memory. */
typedef struct {
    void *data;
    uint64_t bytes;
    uint64_t capacity; /* of ours */
    void *token;       /* the application's */
} tmsg_block_t;

/* `allocator` NULL: the library's own memory, at most `budget` bytes at once.
 * When memory comes free that was missed, event_fd (which is dup()ed) is
 * signalled. The records that it keeps are freed by these functions. Errors:
 * NO_MEMORY, IO. */
tmsg_status_t tmsg_store_create(const tmsg_allocator_t *allocator,
                                uint64_t budget, int event_fd,
                                void (*free_message)(tmsg_spare_t *spare),
                                void (*free_send)(tmsg_spare_t *spare),
                                void (*free_control)(tmsg_spare_t *spare),
                                tmsg_store_t **store_p);

/* Each record of a message or send holds it, kept or in use. */
void tmsg_store_hold(tmsg_store_t *store);
void tmsg_store_drop(tmsg_store_t *store); /* thread-safe */

/* The worker ends, and drops it: no more records are kept. */
void tmsg_store_close(tmsg_store_t *store);

/* A thread that nobody is beside in an unshared worker, as long as that may
 * touch what is the worker's: between these two. */
void tmsg_store_enter(tmsg_store_t *store);
void tmsg_store_leave(tmsg_store_t *store);

/* Whether the caller is that thread. */
bool tmsg_store_is_inside(const tmsg_store_t *store);

/* Gives back a record, by any thread. */
void tmsg_store_keep(tmsg_store_t *store, tmsg_spares_t *spares,
                     tmsg_spare_t *spare);

/* Whether a payload could be had if everything else were free, of which `spill`
 * bytes are a body, which the library keeps itself. */
bool tmsg_store_fits(const tmsg_store_t *store, uint64_t bytes, uint64_t spill);

/* What may be held at once, and what is. */
uint64_t tmsg_store_budget(const tmsg_store_t *store);
uint64_t tmsg_store_held(const tmsg_store_t *store);

/* What was noted and is held by nobody yet. */
uint64_t tmsg_store_noted(const tmsg_store_t *store);

/* LIMIT_EXCEEDED, with the words to it. */
tmsg_status_t tmsg_store_too_small(const tmsg_store_t *store, uint64_t bytes);

/* Whether somebody waits for memory to come free, and will be signalled. */
bool tmsg_store_is_missed(const tmsg_store_t *store);

/* Whether it asks the application for memory. */
bool tmsg_store_asks(const tmsg_store_t *store);

/* Gets memory aligned to 64, rather that at `liked` if that is free. May call
 * the application: no lock is to be held. Errors: IN_PROGRESS (over the budget:
 * ask again when signalled), NO_MEMORY, or the application's. */
tmsg_status_t tmsg_store_alloc(tmsg_store_t *store, const void *liked,
                               uint64_t bytes, tmsg_block_t *block_p);
void tmsg_store_free(tmsg_store_t *store, const tmsg_block_t *block);

/* Memory of a device for a tensor, by the application's allocator, if that was
 * set and serves the device, else by a pool that counts in the budget. */
typedef struct {
    tmsg_device_block_t block;
    uint64_t bytes; /* 0: none */
    void *token;
    bool theirs;
} tmsg_device_memory_t;

void tmsg_store_set_devices(tmsg_store_t *store,
                            const tmsg_device_allocator_t *allocator);

/* Calls the application or a driver: no lock is to be held. Domain, device and
 * stream are given in memory_p->block. Errors: IN_PROGRESS, as above, the
 * allocator's, the domain's. */
tmsg_status_t tmsg_store_device_alloc(tmsg_store_t *store, uint64_t bytes,
                                      tmsg_device_memory_t *memory_p);
void tmsg_store_device_free(tmsg_store_t *store, tmsg_device_memory_t *memory);

/* Takes `bytes` of the budget for memory from elsewhere, allocator or not.
 * Errors: IN_PROGRESS, as above. */
tmsg_status_t tmsg_store_reserve(tmsg_store_t *store, uint64_t bytes);

/* Thread-safe: wakes whoever sleeps on the worker's descriptor. */
void tmsg_store_signal(const tmsg_store_t *store);

/* Thread-safe: gives back what was reserved or moved to the budget. */
void tmsg_store_discharge(tmsg_store_t *store, uint64_t bytes);

/* What came with a header cannot wait for memory: it counts apart, and the
 * payloads that wait do not wait for it, until the application has it. All
 * together may go TMSG_STORE_SLACK beyond the budget, and what the application
 * has not, but for the last of it, TMSG_STORE_SLACK beyond a quarter of it.
 * `more`: of a message that has some noted, which is let in.
 * Errors: LIMIT_EXCEEDED (and nothing is counted). */
#define TMSG_STORE_SLACK (64ULL << 20)
tmsg_status_t tmsg_store_note(tmsg_store_t *store, uint64_t bytes, bool more);
void tmsg_store_forget(tmsg_store_t *store, uint64_t bytes);

/* The application has it now: it counts in the budget. */
void tmsg_store_move(tmsg_store_t *store, uint64_t bytes);

/* Both in one, for what the application is sure to have at once. Errors:
 * LIMIT_EXCEEDED (and nothing is counted). */
tmsg_status_t tmsg_store_charge(tmsg_store_t *store, uint64_t bytes);

/* The same of what is no more than the budget has left, where nobody waits for
 * that. */
bool tmsg_store_claim(tmsg_store_t *store, uint64_t bytes);

/* Gives back the record of a message and the bytes that were charged for it, by
 * any thread. */
void tmsg_store_give_back(tmsg_store_t *store, tmsg_spare_t *message,
                          uint64_t bytes);

/* Records of messages that ended, and of sends. */
tmsg_spares_t *tmsg_store_messages(tmsg_store_t *store);
tmsg_spares_t *tmsg_store_sends(tmsg_store_t *store);
tmsg_spares_t *tmsg_store_controls(tmsg_store_t *store);

/* Our own memory, for payloads on their way out as well. */
tmsg_pool_t *tmsg_store_pool(tmsg_store_t *store);

#endif
