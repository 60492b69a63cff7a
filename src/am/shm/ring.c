/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/ring.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

#define HEAD_BYTES 4096
#define ROOM_BYTES ((size_t)1024 * 1024) /* stays in the cache */
#define ALL_BYTES (HEAD_BYTES + ROOM_BYTES)
/* Each side publishes its position after this many bytes, so that the other
 * goes on. */
#define STEP_BYTES ((size_t)32 * 1024)

/*        0           8           16                    64
 *      +-----------+-----------+---------------------+
 *    0 |         mark          |                     |
 *      +-----------+-----+-----+---------------------+
 *   64 |  written  |waits|                           |  the sender's
 *      +-----------+-----+---------------------------+
 *  128 |   read    |waits|                           |  the receiver's
 *      +-----------+-----+---------------------------+
 *                           ...
 *      +---------------------------------------------+
 * 4096 |       bytes: the n-th at n mod 1 MiB        |
 *      +---------------------------------------------+
 */

/* Describes one side: how many bytes it has moved ever, and whether it
 * waits. */
typedef struct {
    _Alignas(64) _Atomic uint64_t at;
    _Atomic uint32_t waits;
} end_t;

typedef struct {
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES];
    end_t sender, receiver;
} head_t;

struct tmsg_ring {
    tmsg_segment_t segment;
    uint8_t *room;
    end_t *own, *others;
    uint64_t at; /* our own position, whatever the memory says */
    bool sends;
};

_Static_assert(offsetof(head_t, sender) == 64 &&
                   offsetof(head_t, receiver) == 128 &&
                   offsetof(end_t, waits) == 8,
               "the peer looks elsewhere");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be this process's alone");

static tmsg_ring_t *new_ring(bool sends)
{
    tmsg_ring_t *ring = calloc(1, sizeof(*ring));

    if (ring == NULL) {
        tmsg_error_memory("a ring");
        return NULL;
    }
    ring->sends = sends;
    return ring;
}

/* Finishes a ring whose memory is there, or frees it if `status` is an
 * error. */
static tmsg_status_t finish_ring(tmsg_ring_t *ring, tmsg_status_t status,
                                 tmsg_ring_t **ring_p)
{
    head_t *head = (head_t *)(void *)ring->segment.memory;

    if (status != TMSG_OK) {
        free(ring);
        return status;
    }
    ring->room = ring->segment.memory + HEAD_BYTES;
    ring->own = ring->sends ? &head->sender : &head->receiver;
    ring->others = ring->sends ? &head->receiver : &head->sender;
    *ring_p = ring;
    return TMSG_OK;
}

tmsg_status_t tmsg_ring_create(tmsg_ring_t **ring_p)
{
    tmsg_ring_t *ring = new_ring(true);

    return ring == NULL
               ? TMSG_ERR_NO_MEMORY
               : finish_ring(ring,
                             tmsg_segment_create(&ring->segment, ALL_BYTES),
                             ring_p);
}

tmsg_status_t tmsg_ring_open(const tmsg_segment_offer_t *offer,
                             tmsg_ring_t **ring_p)
{
    tmsg_ring_t *ring = new_ring(false);

    return ring == NULL
               ? TMSG_ERR_NO_MEMORY
               : finish_ring(
                     ring, tmsg_segment_open(&ring->segment, ALL_BYTES, offer),
                     ring_p);
}

tmsg_segment_t *tmsg_ring_segment(tmsg_ring_t *ring) { return &ring->segment; }

void tmsg_ring_free(tmsg_ring_t *ring)
{
    if (ring != NULL) {
        tmsg_segment_free(&ring->segment);
        free(ring);
    }
}

/* Returns the bytes that may be moved now, or TMSG_RING_WRONG. */
static size_t movable_bytes(const tmsg_ring_t *ring)
{
    uint64_t other =
        atomic_load_explicit(&ring->others->at, memory_order_acquire);
    uint64_t used = ring->sends ? ring->at - other : other - ring->at;

    if (used > ROOM_BYTES) {
        return TMSG_RING_WRONG;
    }
    return ring->sends ? ROOM_BYTES - (size_t)used : (size_t)used;
}

/* Tells the other side how far this side is. The other side polls that line of
 * the cache, so it is not written without need. */
static void publish_position(tmsg_ring_t *ring, size_t moved)
{
    if (moved > 0) {
        atomic_store_explicit(&ring->own->at, ring->at, memory_order_release);
    }
}

/* Copies bytes into the ring or out of it. With `bytes` NULL they are thrown
 * away. */
static void copy_step(tmsg_ring_t *ring, uint8_t *bytes, size_t count)
{
    uint8_t *place = ring->room + ring->at % ROOM_BYTES;

    if (ring->sends) {
        memcpy(place, bytes, count);
    } else if (bytes != NULL) {
        memcpy(bytes, place, count);
    }
    ring->at += count;
}

/* Moves one step at most, and returns its bytes; 0: none can be moved. */
static size_t move_step(tmsg_ring_t *ring, uint8_t *bytes, size_t most,
                        size_t *movable_p)
{
    size_t to_end = ROOM_BYTES - (size_t)(ring->at % ROOM_BYTES);
    size_t count = most < STEP_BYTES ? most : STEP_BYTES;

    /* More bytes can be moved by now, perhaps. */
    if (*movable_p < count) {
        *movable_p = movable_bytes(ring);
        if (*movable_p == TMSG_RING_WRONG) {
            return TMSG_RING_WRONG;
        }
    }
    count = count < *movable_p ? count : *movable_p;
    count = count < to_end ? count : to_end;
    copy_step(ring, bytes, count);
    *movable_p -= count;
    return count;
}

static size_t move_list(tmsg_ring_t *ring, const struct iovec *list,
                        size_t count)
{
    size_t left = 0, told = 0, all = 0;

    for (size_t i = 0; i < count; i++) {
        size_t done = 0;

        while (done < list[i].iov_len) {
            uint8_t *bytes = list[i].iov_base == NULL
                                 ? NULL
                                 : (uint8_t *)list[i].iov_base + done;
            size_t some = move_step(ring, bytes, list[i].iov_len - done, &left);

            if (some == TMSG_RING_WRONG) {
                return TMSG_RING_WRONG;
            }
            if (some == 0) {
                publish_position(ring, all - told);
                return all;
            }
            done += some;
            all += some;
            if (all - told >= STEP_BYTES) {
                publish_position(ring, all - told);
                told = all;
            }
        }
    }
    publish_position(ring, all - told);
    return all;
}

size_t tmsg_ring_write(tmsg_ring_t *ring, const struct iovec *from,
                       size_t count)
{
    return move_list(ring, from, count);
}

size_t tmsg_ring_read(tmsg_ring_t *ring, const struct iovec *into, size_t count)
{
    return move_list(ring, into, count);
}

size_t tmsg_ring_skip(tmsg_ring_t *ring, uint64_t most)
{
    const struct iovec nowhere = {NULL, most < ROOM_BYTES ? (size_t)most
                                                          : ROOM_BYTES};

    return move_list(ring, &nowhere, 1);
}

bool tmsg_ring_await(tmsg_ring_t *ring)
{
    atomic_store(&ring->own->waits, 1);
    atomic_thread_fence(memory_order_seq_cst);
    /* TMSG_RING_WRONG is something to be done, too. */
    return movable_bytes(ring) == 0;
}

bool tmsg_ring_is_awaited(tmsg_ring_t *ring)
{
    /* This side has published its position before it reads `waits`. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&ring->others->waits, memory_order_relaxed) !=
               0 &&
           atomic_exchange(&ring->others->waits, 0) != 0;
}

bool tmsg_ring_is_intact(const tmsg_ring_t *ring)
{
    return atomic_load_explicit(&ring->own->at, memory_order_relaxed) ==
               ring->at &&
           movable_bytes(ring) != TMSG_RING_WRONG;
}

bool tmsg_ring_is_movable(const tmsg_ring_t *ring)
{
    return movable_bytes(ring) > 0;
}
