/* SPDX-License-Identifier: BSD-3-Clause */
/* core/refs.h - counts the references to an object that several threads may
 * hold. The thread that drops the last one frees the object. A count that only
 * changes with a lock held is a plain number instead. */
#ifndef TMSG_CORE_REFS_H
#define TMSG_CORE_REFS_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    atomic_uint count;
} tmsg_refs_t;

static inline void tmsg_refs_init(tmsg_refs_t *refs, unsigned count)
{
    atomic_init(&refs->count, count);
}

/* Takes `count` more references, from any thread. The caller has one already,
 * or knows who has. */
static inline void tmsg_refs_take_some(tmsg_refs_t *refs, unsigned count)
{
    atomic_fetch_add_explicit(&refs->count, count, memory_order_relaxed);
}

static inline void tmsg_refs_take(tmsg_refs_t *refs)
{
    tmsg_refs_take_some(refs, 1);
}

/* Returns whether there are exactly `count` references. If the caller has all
 * of them, nobody can take another meanwhile. */
static inline bool tmsg_refs_are(const tmsg_refs_t *refs, unsigned count)
{
    return atomic_load_explicit(&refs->count, memory_order_acquire) == count;
}

/* Drops `count` references of the caller. True: they were the last; this case
 * costs no locked operation. */
static inline bool tmsg_refs_drop_some(tmsg_refs_t *refs, unsigned count)
{
    return tmsg_refs_are(refs, count) ||
           atomic_fetch_sub_explicit(&refs->count, count,
                                     memory_order_acq_rel) == count;
}

static inline bool tmsg_refs_drop(tmsg_refs_t *refs)
{
    return tmsg_refs_drop_some(refs, 1);
}

/* These two work as tmsg_refs_take() and tmsg_refs_drop(), without a locked
 * operation. No other thread may take or drop references at the same time. */
static inline void tmsg_refs_take_alone(tmsg_refs_t *refs)
{
    unsigned count = atomic_load_explicit(&refs->count, memory_order_relaxed);

    atomic_store_explicit(&refs->count, count + 1, memory_order_relaxed);
}

static inline bool tmsg_refs_drop_alone(tmsg_refs_t *refs)
{
    unsigned count = atomic_load_explicit(&refs->count, memory_order_relaxed);

    atomic_store_explicit(&refs->count, count - 1, memory_order_relaxed);
    return count == 1;
}

#endif
