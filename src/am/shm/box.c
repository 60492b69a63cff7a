/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/box.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"

#define PLACES TMSG_BOX_PLACES
#define ALIGNMENT 64u /* of places, and of payloads in them */

/* AGAIN in a header's length says that only pieces of the header are put,
 * because the rest is as in the one before. */
#define AGAIN 0x80000000u
#define PIECE_BYTES 16u
#define PIECE_AT 8   /* ids and sequence of a preamble */
#define SECOND_AT 40 /* fields of a call that differ */

/* The receiver tells only after so many messages what it took, because telling
 * costs a line of the cache. */
#define TELL_EVERY 16u

#define WAKES 1u /* the sender wakes a receiver that naps */

#define HEAD_BYTES 4096
#define ALL_BYTES (HEAD_BYTES + PLACES * sizeof(place_t))

/*        0           8           16                    64
 *      +-----------+-----------+---------------------+
 *    0 |         mark          |wakes| core|         |  the sender's
 *      +-----+-----+-----------+-----+-----+---------+
 *   64 |taken|                                       |  the receiver's
 *      +-----+-----+---------------------------------+
 *  128 |sleep|naps |                                 |  the receiver's
 *      +-----+-----+---------------------------------+
 *                           ...
 *      +-----+-----+-----+-----+---------------------+
 * 4096 |numb.|after|paylo|heade| header ...          |  the sender's
 *      +-----+-----+-----+-----+---------------------+
 *      | payload, from the next multiple of 64 on    |
 *      +---------------------------------------------+
 *        the n-th message is in place n mod 64, of 2560 bytes;
 *        bit 31 of the header's length (AGAIN): only its pieces are put
 */

/* Holds a message, which is there when `number` is its own. The sender writes
 * `number` last. */
typedef struct {
    _Alignas(ALIGNMENT) _Atomic uint32_t number;
    uint32_t after;
    uint32_t payload_bytes;
    uint32_t header_bytes;
    uint8_t bytes[TMSG_BOX_HEADER_BYTES + TMSG_BOX_PAYLOAD_BYTES];
} place_t;

typedef struct {
    uint8_t mark[TMSG_SHARED_MARK_BYTES];
    _Atomic uint32_t wakes; /* WAKES; 0: the sender knows of no naps */
    _Atomic uint32_t core;  /* core of the sender, plus 1; 0: not said */
    _Alignas(64) _Atomic uint32_t taken; /* written every TELL_EVERY messages */
    _Alignas(64) _Atomic uint32_t sleeps;
    _Atomic uint32_t naps; /* the sender clears it, too */
} head_t;

struct tmsg_box {
    tmsg_shared_t shared;
    head_t *head;
    place_t *places;
    uint32_t at;        /* messages put or taken, whatever the memory says */
    uint32_t taken;     /* of the messages put, as far as is known */
    uint32_t core;      /* the sender's: what it said last */
    uint32_t word;      /* header_bytes of the message that is being put */
    uint64_t like;      /* of the last header that was put whole */
    size_t whole_bytes; /* the receiver's: bytes of the last header */
    uint8_t whole[TMSG_BOX_HEADER_BYTES]; /* the receiver's: the last header */
};

_Static_assert(offsetof(head_t, taken) == 64 &&
                   offsetof(head_t, sleeps) == 128 &&
                   offsetof(head_t, naps) == 132 &&
                   offsetof(head_t, wakes) == 16 &&
                   offsetof(head_t, core) == 20 &&
                   sizeof(head_t) <= HEAD_BYTES && sizeof(place_t) == 2560 &&
                   offsetof(place_t, bytes) == 16,
               "the peer looks elsewhere");
_Static_assert((offsetof(place_t, bytes) + TMSG_BOX_HEADER_BYTES) % ALIGNMENT ==
                   0,
               "all of both fits");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be this process's alone");

static tmsg_box_t *new_box(void)
{
    tmsg_box_t *box = calloc(1, sizeof(*box));

    if (box == NULL) {
        tmsg_error_memory("a box");
    }
    return box;
}

/* Finishes a box whose memory is there, or frees it if `status` is an error. */
static tmsg_status_t finish_box(tmsg_box_t *box, tmsg_status_t status,
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
    tmsg_box_t *box = new_box();
    tmsg_status_t status;

    if (box == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status =
        finish_box(box, tmsg_shared_create(&box->shared, ALL_BYTES), box_p);
    if (status == TMSG_OK) {
        atomic_store_explicit(&box->head->wakes, WAKES, memory_order_relaxed);
    }
    return status;
}

tmsg_status_t tmsg_box_open(pid_t pid, int fd, const uint8_t *mark,
                            tmsg_box_t **box_p)
{
    tmsg_box_t *box = new_box();

    return box == NULL ? TMSG_ERR_NO_MEMORY
                       : finish_box(box,
                                    tmsg_shared_open(&box->shared, ALL_BYTES,
                                                     pid, fd, mark),
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

static place_t *current_place(const tmsg_box_t *box)
{
    return &box->places[box->at % PLACES];
}

/* Returns whether there is no room. A count that cannot be means no room. */
static bool box_is_full(tmsg_box_t *box)
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
           !box_is_full(box);
}

static uint8_t *payload_in_place(place_t *place, size_t header_bytes)
{
    size_t at = offsetof(place_t, bytes) + header_bytes;

    return (uint8_t *)place + (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Returns the bytes of a header's pieces; 0: it is too short to have any. */
static uint32_t pieces_bytes(size_t header_bytes)
{
    return header_bytes >= SECOND_AT + PIECE_BYTES  ? 2 * PIECE_BYTES
           : header_bytes >= PIECE_AT + PIECE_BYTES ? PIECE_BYTES
                                                    : 0;
}

uint8_t *tmsg_box_begin(tmsg_box_t *box, size_t header_bytes, uint64_t like)
{
    uint32_t pieces = pieces_bytes(header_bytes);

    if (like != 0 && like == box->like && pieces > 0) {
        box->word = pieces | AGAIN;
        return payload_in_place(current_place(box), pieces);
    }
    box->word = (uint32_t)header_bytes;
    box->like = like;
    return payload_in_place(current_place(box), header_bytes);
}

void tmsg_box_write_header(tmsg_box_t *box, const uint8_t *header)
{
    uint8_t *to = current_place(box)->bytes;

    if ((box->word & AGAIN) == 0) {
        memcpy(to, header, box->word);
        return;
    }
    memcpy(to, header + PIECE_AT, PIECE_BYTES);
    if (box->word > (PIECE_BYTES | AGAIN)) {
        memcpy(to + PIECE_BYTES, header + SECOND_AT, PIECE_BYTES);
    }
}

/* Tells, now and then, on which core this side runs, if that has changed. */
static void tell_core(tmsg_box_t *box)
{
    uint32_t core = (uint32_t)sched_getcpu() + 1;

    if (core != box->core) {
        box->core = core;
        atomic_store_explicit(&box->head->core, core, memory_order_relaxed);
    }
}

static long call_futex(_Atomic uint32_t *word, int operation, uint32_t value,
                       const struct timespec *until)
{
    return syscall(SYS_futex, word, operation, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

void tmsg_box_rouse(tmsg_box_t *box)
{
    atomic_store_explicit(&box->head->naps, 0, memory_order_relaxed);
    call_futex(&box->head->naps, FUTEX_WAKE, 1, NULL);
}

static inline void wake_napper(tmsg_box_t *box)
{
    if (atomic_load(&box->head->naps) != 0) {
        tmsg_box_rouse(box);
    }
}

void tmsg_box_call(tmsg_box_t *box)
{
    /* The sender has written its message elsewhere before it reads `naps`. */
    atomic_thread_fence(memory_order_seq_cst);
    wake_napper(box);
}

bool tmsg_box_put(tmsg_box_t *box, size_t payload_bytes, uint32_t after)
{
    place_t *place = current_place(box);

    place->after = after;
    place->payload_bytes = (uint32_t)payload_bytes;
    place->header_bytes = box->word;
    if (box->at % TELL_EVERY == 0) {
        tell_core(box);
    }
    box->at++;
    /* The message is there before `naps` and `sleeps` are read. */
    atomic_store(&place->number, box->at);
    wake_napper(box);
    return atomic_load(&box->head->sleeps) != 0;
}

/* Copies what stands there of a header. Returns its bytes in the place, or
 * SIZE_MAX if it cannot be. */
static size_t read_box_header(tmsg_box_t *box, const place_t *place)
{
    uint32_t word = *(const volatile uint32_t *)&place->header_bytes;
    uint32_t bytes = word & ~AGAIN;

    if (word == bytes) {
        if (bytes > TMSG_BOX_HEADER_BYTES) {
            return SIZE_MAX;
        }
        memcpy(box->whole, place->bytes, bytes);
        box->whole_bytes = bytes;
        return bytes;
    }
    if (bytes == 0 || bytes != pieces_bytes(box->whole_bytes)) {
        return SIZE_MAX;
    }
    memcpy(box->whole + PIECE_AT, place->bytes, PIECE_BYTES);
    if (bytes > PIECE_BYTES) {
        memcpy(box->whole + SECOND_AT, place->bytes + PIECE_BYTES, PIECE_BYTES);
    }
    return bytes;
}

tmsg_box_state_t tmsg_box_look(tmsg_box_t *box, tmsg_boxed_t *boxed_p)
{
    place_t *place = current_place(box);
    size_t header_bytes;

    if (atomic_load_explicit(&place->number, memory_order_acquire) !=
        box->at + 1) {
        return TMSG_BOX_EMPTY;
    }
    boxed_p->after = *(const volatile uint32_t *)&place->after;
    boxed_p->payload_bytes = *(const volatile uint32_t *)&place->payload_bytes;
    header_bytes = read_box_header(box, place);
    if (header_bytes == SIZE_MAX ||
        boxed_p->payload_bytes > TMSG_BOX_PAYLOAD_BYTES) {
        return TMSG_BOX_WRONG;
    }
    boxed_p->payload = payload_in_place(place, header_bytes);
    boxed_p->header_bytes = box->whole_bytes;
    boxed_p->header = box->whole;
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

bool tmsg_box_may_nap(const tmsg_box_t *box)
{
    return atomic_load_explicit(&box->head->wakes, memory_order_relaxed) ==
           WAKES;
}

int tmsg_box_core(const tmsg_box_t *box)
{
    uint32_t core =
        atomic_load_explicit(&box->head->core, memory_order_relaxed);

    return core > INT_MAX ? -1 : (int)core - 1;
}

void tmsg_box_nap_begin(tmsg_box_t *box)
{
    atomic_store(&box->head->naps, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void tmsg_box_nap_word(tmsg_box_t *box, tmsg_nap_t *nap)
{
    nap->words[nap->count++] = &box->head->naps;
}

void tmsg_box_nap_end(tmsg_box_t *box)
{
    atomic_store_explicit(&box->head->naps, 0, memory_order_relaxed);
}

/* Waits for several words, which Linux can since 5.16. */
static long wait_for_any(const tmsg_nap_t *nap, const struct timespec *until)
{
#ifdef SYS_futex_waitv
    struct futex_waitv waiters[TMSG_BOX_NAPS] = {{0}};

    for (unsigned i = 0; i < nap->count; i++) {
        waiters[i] = (struct futex_waitv){
            .val = 1,
            .uaddr = (uint64_t)(uintptr_t)nap->words[i],
            .flags = FUTEX_32,
        };
    }
    return syscall(SYS_futex_waitv, waiters, nap->count, 0, until,
                   CLOCK_MONOTONIC);
#else
    (void)nap;
    (void)until;
    errno = ENOSYS;
    return -1;
#endif
}

tmsg_status_t tmsg_box_nap(const tmsg_nap_t *nap, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    long waited = nap->count == 1
                      ? call_futex(nap->words[0], FUTEX_WAIT_BITSET, 1, &until)
                      : wait_for_any(nap, &until);

    if (waited < 0 && errno == ETIMEDOUT) {
        return TMSG_ERR_TIMED_OUT;
    }
    return waited < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL)
               ? TMSG_ERR_UNSUPPORTED
               : TMSG_OK; /* EFAULT: another thread has ended an endpoint */
}

/* If fewer than PLACES messages were put, only their places are checked. */
bool tmsg_box_is_intact_out(const tmsg_box_t *box, uint32_t sent)
{
    uint32_t count = box->at < PLACES ? box->at : PLACES;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t message = box->at - 1 - i;
        const place_t *place = &box->places[message % PLACES];
        uint32_t number =
            atomic_load_explicit(&place->number, memory_order_relaxed);
        uint32_t after = *(const volatile uint32_t *)&place->after;

        if (number != message + 1 || (int32_t)(sent - after) < 0) {
            return false;
        }
    }
    return true;
}

bool tmsg_box_is_intact_in(const tmsg_box_t *box)
{
    uint32_t number =
        atomic_load_explicit(&current_place(box)->number, memory_order_relaxed);
    uint32_t next = box->at + 1;
    bool is_new = number == 0 && box->at < PLACES;

    return (number == next || number == next - PLACES || is_new) &&
           atomic_load_explicit(&box->head->taken, memory_order_relaxed) ==
               box->at / TELL_EVERY * TELL_EVERY;
}
