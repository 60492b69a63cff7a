/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/box.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

#define PLACES TMSG_BOX_PLACES
#define ALIGNMENT 16u /* of payloads */

/* Messages, after which their sender is told that they were taken: it costs a
 * line of the cache. */
#define TELL_EVERY 16u

#define HEAD_BYTES 4096
#define ALL_BYTES (HEAD_BYTES + PLACES * sizeof(place_t))

/*        0           8           16                    64
 *      +-----------+-----------+---------------------+
 *    0 |         mark          |                     |
 *      +-----+-----+-----------+---------------------+
 *   64 |taken|                                       |  the receiver's
 *      +-----+---------------------------------------+
 *  128 |sleeps                                       |  the receiver's
 *      +-----+---------------------------------------+
 *                           ...
 *      +-----+-----+-----+-----+---------------------+
 * 4096 |numb.|after|paylo|heade| header, payload ... |  the sender's
 *      +-----+-----+-----+-----+---------------------+
 *        the n-th message is in place n mod 64, of 2560 bytes
 */

/* A message is there when the number is its own, which comes last. */
typedef struct {
    _Alignas(64) _Atomic uint32_t number;
    uint32_t after;
    uint32_t payload_bytes;
    uint32_t header_bytes;
    uint8_t bytes[TMSG_BOX_HEADER_BYTES + TMSG_BOX_PAYLOAD_BYTES];
} place_t;

typedef struct {
    uint8_t mark[TMSG_SHARED_MARK_BYTES];
    _Alignas(64) _Atomic uint32_t taken; /* now and then */
    _Alignas(64) _Atomic uint32_t sleeps;
} head_t;

struct tmsg_box {
    tmsg_shared_t shared;
    head_t *head;
    place_t *places;
    uint32_t at; /* messages that were put, or taken, whatever stands there */
    uint32_t taken; /* of those that were put, as far as is known */
};

_Static_assert(offsetof(head_t, taken) == 64 &&
                   offsetof(head_t, sleeps) == 128 &&
                   sizeof(head_t) <= HEAD_BYTES && sizeof(place_t) == 2560 &&
                   offsetof(place_t, bytes) == 16,
               "the peer looks elsewhere");
_Static_assert(TMSG_BOX_HEADER_BYTES % ALIGNMENT == 0, "all of both fits");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be this process's alone");

static tmsg_box_t *begin(void)
{
    tmsg_box_t *box = calloc(1, sizeof(*box));

    if (box == NULL) {
        tmsg_error_memory("a box");
    }
    return box;
}

/* Its memory is there, or is not. */
static tmsg_status_t finish(tmsg_box_t *box, tmsg_status_t status,
                            tmsg_box_t **box_p)
{
    if (status != TMSG_OK) {
        free(box);
        return status;
    }
    box->head = (head_t *)(void *)box->shared.memory;
    box->places = (place_t *)(void *)(box->shared.memory + HEAD_BYTES);
    *box_p = box;
    return TMSG_OK;
}

tmsg_status_t tmsg_box_create(tmsg_box_t **box_p)
{
    tmsg_box_t *box = begin();

    return box == NULL
               ? TMSG_ERR_NO_MEMORY
               : finish(box, tmsg_shared_create(&box->shared, ALL_BYTES),
                        box_p);
}

tmsg_status_t tmsg_box_open(pid_t pid, int fd, const uint8_t *mark,
                            tmsg_box_t **box_p)
{
    tmsg_box_t *box = begin();

    return box == NULL ? TMSG_ERR_NO_MEMORY
                       : finish(box,
                                tmsg_shared_open(&box->shared, ALL_BYTES, pid,
                                                 fd, mark),
                                box_p);
}

tmsg_shared_t *tmsg_box_shared(tmsg_box_t *box) { return &box->shared; }

void tmsg_box_free(tmsg_box_t *box)
{
    if (box != NULL) {
        tmsg_shared_free(&box->shared);
        free(box);
    }
}

static place_t *place_of(const tmsg_box_t *box)
{
    return &box->places[box->at % PLACES];
}

/* A count that cannot be says of no room. */
static bool is_full(tmsg_box_t *box)
{
    if (box->at - box->taken >= PLACES) {
        box->taken =
            atomic_load_explicit(&box->head->taken, memory_order_acquire);
    }
    return box->at - box->taken >= PLACES;
}

bool tmsg_box_has_room(tmsg_box_t *box)
{
    return atomic_load_explicit(&box->head->sleeps, memory_order_relaxed) ==
               0 &&
           !is_full(box);
}

uint8_t *tmsg_box_header(const tmsg_box_t *box) { return place_of(box)->bytes; }

static size_t payload_at(size_t header_bytes)
{
    return (header_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint8_t *tmsg_box_payload(const tmsg_box_t *box, size_t header_bytes)
{
    return place_of(box)->bytes + payload_at(header_bytes);
}

bool tmsg_box_put(tmsg_box_t *box, size_t header_bytes, size_t payload_bytes,
                  uint32_t after)
{
    place_t *place = place_of(box);

    place->after = after;
    place->payload_bytes = (uint32_t)payload_bytes;
    place->header_bytes = (uint32_t)header_bytes;
    box->at++;
    atomic_store(&place->number, box->at); /* and before that is asked: */
    return atomic_load(&box->head->sleeps) != 0;
}

tmsg_box_state_t tmsg_box_look(const tmsg_box_t *box, tmsg_boxed_t *boxed_p)
{
    const place_t *place = place_of(box);

    if (atomic_load_explicit(&place->number, memory_order_acquire) !=
        box->at + 1) {
        return TMSG_BOX_EMPTY;
    }
    boxed_p->after = *(const volatile uint32_t *)&place->after;
    boxed_p->payload_bytes = *(const volatile uint32_t *)&place->payload_bytes;
    boxed_p->header_bytes = *(const volatile uint32_t *)&place->header_bytes;
    if (boxed_p->header_bytes > TMSG_BOX_HEADER_BYTES ||
        boxed_p->payload_bytes > TMSG_BOX_PAYLOAD_BYTES) {
        return TMSG_BOX_WRONG;
    }
    boxed_p->payload = place->bytes + payload_at(boxed_p->header_bytes);
    memcpy(boxed_p->header, place->bytes, boxed_p->header_bytes);
    return TMSG_BOX_FULL;
}

void tmsg_box_take(tmsg_box_t *box)
{
    box->at++;
    if (box->at % TELL_EVERY == 0) {
        atomic_store_explicit(&box->head->taken, box->at, memory_order_release);
    }
}

void tmsg_box_sleep(tmsg_box_t *box)
{
    atomic_store(&box->head->sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void tmsg_box_wake(tmsg_box_t *box)
{
    atomic_store_explicit(&box->head->sleeps, 0, memory_order_relaxed);
}
