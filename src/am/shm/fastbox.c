/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/fastbox.h"

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

#define PLACES TMSG_FASTBOX_PLACES
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
    uint8_t bytes[TMSG_FASTBOX_HEADER_BYTES + TMSG_FASTBOX_PAYLOAD_BYTES];
} place_t;

typedef struct {
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES];
    _Atomic uint32_t wakes; /* WAKES; 0: the sender knows of no naps */
    _Atomic uint32_t core;  /* core of the sender, plus 1; 0: not said */
    _Alignas(64) _Atomic uint32_t taken; /* written every TELL_EVERY messages */
    _Alignas(64) _Atomic uint32_t sleeps;
    _Atomic uint32_t naps; /* the sender clears it, too */
} head_t;

struct tmsg_fastbox {
    tmsg_segment_t segment;
    head_t *head;
    place_t *places;
    uint32_t at;        /* messages put or taken, whatever the memory says */
    uint32_t taken;     /* of the messages put, as far as is known */
    uint32_t core;      /* the sender's: what it said last */
    uint32_t word;      /* header_bytes of the message that is being put */
    uint64_t like;      /* of the last header that was put whole */
    size_t whole_bytes; /* the receiver's: bytes of the last header */
    /* Holds the last header, at the receiver. */
    uint8_t whole[TMSG_FASTBOX_HEADER_BYTES];
};

_Static_assert(offsetof(head_t, taken) == 64 &&
                   offsetof(head_t, sleeps) == 128 &&
                   offsetof(head_t, naps) == 132 &&
                   offsetof(head_t, wakes) == 16 &&
                   offsetof(head_t, core) == 20 &&
                   sizeof(head_t) <= HEAD_BYTES && sizeof(place_t) == 2560 &&
                   offsetof(place_t, bytes) == 16,
               "the peer looks elsewhere");
_Static_assert((offsetof(place_t, bytes) + TMSG_FASTBOX_HEADER_BYTES) %
                       ALIGNMENT ==
                   0,
               "all of both fits");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be this process's alone");

static tmsg_fastbox_t *new_fastbox(void)
{
    tmsg_fastbox_t *fastbox = calloc(1, sizeof(*fastbox));

    if (fastbox == NULL) {
        tmsg_error_memory("a fast box");
    }
    return fastbox;
}

/* Finishes a fast box whose memory is there, or frees it if `status` is an
 * error. */
static tmsg_status_t finish_fastbox(tmsg_fastbox_t *fastbox,
                                    tmsg_status_t status,
                                    tmsg_fastbox_t **fastbox_p)
{
    if (status != TMSG_OK) {
        free(fastbox);
        return status;
    }
    fastbox->head = (head_t *)(void *)fastbox->segment.memory;
    fastbox->places = (place_t *)(void *)(fastbox->segment.memory + HEAD_BYTES);
    *fastbox_p = fastbox;
    return TMSG_OK;
}

tmsg_status_t tmsg_fastbox_create(tmsg_fastbox_t **fastbox_p)
{
    tmsg_fastbox_t *fastbox = new_fastbox();
    tmsg_status_t status;

    if (fastbox == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = finish_fastbox(
        fastbox, tmsg_segment_create(&fastbox->segment, ALL_BYTES), fastbox_p);
    if (status == TMSG_OK) {
        atomic_store_explicit(&fastbox->head->wakes, WAKES,
                              memory_order_relaxed);
    }
    return status;
}

tmsg_status_t tmsg_fastbox_open(const tmsg_segment_offer_t *offer,
                                tmsg_fastbox_t **fastbox_p)
{
    tmsg_fastbox_t *fastbox = new_fastbox();

    return fastbox == NULL ? TMSG_ERR_NO_MEMORY
                           : finish_fastbox(fastbox,
                                            tmsg_segment_open(&fastbox->segment,
                                                              ALL_BYTES, offer),
                                            fastbox_p);
}

tmsg_segment_t *tmsg_fastbox_segment(tmsg_fastbox_t *fastbox)
{
    return &fastbox->segment;
}

void tmsg_fastbox_free(tmsg_fastbox_t *fastbox)
{
    if (fastbox != NULL) {
        tmsg_segment_free(&fastbox->segment);
        free(fastbox);
    }
}

static place_t *current_place(const tmsg_fastbox_t *fastbox)
{
    return &fastbox->places[fastbox->at % PLACES];
}

/* Returns whether there is no room. A count that cannot be means no room. */
static bool fastbox_is_full(tmsg_fastbox_t *fastbox)
{
    if (fastbox->at - fastbox->taken >= PLACES) {
        fastbox->taken =
            atomic_load_explicit(&fastbox->head->taken, memory_order_acquire);
    }
    return fastbox->at - fastbox->taken >= PLACES;
}

bool tmsg_fastbox_has_room(tmsg_fastbox_t *fastbox)
{
    return atomic_load_explicit(&fastbox->head->sleeps, memory_order_relaxed) ==
               0 &&
           !fastbox_is_full(fastbox);
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

uint8_t *tmsg_fastbox_begin(tmsg_fastbox_t *fastbox, size_t header_bytes,
                            uint64_t like)
{
    uint32_t pieces = pieces_bytes(header_bytes);

    if (like != 0 && like == fastbox->like && pieces > 0) {
        fastbox->word = pieces | AGAIN;
        return payload_in_place(current_place(fastbox), pieces);
    }
    fastbox->word = (uint32_t)header_bytes;
    fastbox->like = like;
    return payload_in_place(current_place(fastbox), header_bytes);
}

void tmsg_fastbox_write_header(tmsg_fastbox_t *fastbox, const uint8_t *header)
{
    uint8_t *to = current_place(fastbox)->bytes;

    if ((fastbox->word & AGAIN) == 0) {
        memcpy(to, header, fastbox->word);
        return;
    }
    memcpy(to, header + PIECE_AT, PIECE_BYTES);
    if (fastbox->word > (PIECE_BYTES | AGAIN)) {
        memcpy(to + PIECE_BYTES, header + SECOND_AT, PIECE_BYTES);
    }
}

/* Tells, now and then, on which core this side runs, if that has changed. */
static void tell_core(tmsg_fastbox_t *fastbox)
{
    uint32_t core = (uint32_t)sched_getcpu() + 1;

    if (core != fastbox->core) {
        fastbox->core = core;
        atomic_store_explicit(&fastbox->head->core, core, memory_order_relaxed);
    }
}

static long call_futex(_Atomic uint32_t *word, int operation, uint32_t value,
                       const struct timespec *until)
{
    return syscall(SYS_futex, word, operation, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

void tmsg_fastbox_rouse(tmsg_fastbox_t *fastbox)
{
    atomic_store_explicit(&fastbox->head->naps, 0, memory_order_relaxed);
    call_futex(&fastbox->head->naps, FUTEX_WAKE, 1, NULL);
}

static inline void wake_napper(tmsg_fastbox_t *fastbox)
{
    if (atomic_load(&fastbox->head->naps) != 0) {
        tmsg_fastbox_rouse(fastbox);
    }
}

void tmsg_fastbox_call(tmsg_fastbox_t *fastbox)
{
    /* The sender has written its message elsewhere before it reads `naps`. */
    atomic_thread_fence(memory_order_seq_cst);
    wake_napper(fastbox);
}

bool tmsg_fastbox_put(tmsg_fastbox_t *fastbox, size_t payload_bytes,
                      uint32_t after)
{
    place_t *place = current_place(fastbox);

    place->after = after;
    place->payload_bytes = (uint32_t)payload_bytes;
    place->header_bytes = fastbox->word;
    if (fastbox->at % TELL_EVERY == 0) {
        tell_core(fastbox);
    }
    fastbox->at++;
    /* The message is there before `naps` and `sleeps` are read. */
    atomic_store(&place->number, fastbox->at);
    wake_napper(fastbox);
    return atomic_load(&fastbox->head->sleeps) != 0;
}

/* Copies what stands there of a header. Returns its bytes in the place, or
 * SIZE_MAX if it cannot be. */
static size_t read_fastbox_header(tmsg_fastbox_t *fastbox, const place_t *place)
{
    uint32_t word = *(const volatile uint32_t *)&place->header_bytes;
    uint32_t bytes = word & ~AGAIN;

    if (word == bytes) {
        if (bytes > TMSG_FASTBOX_HEADER_BYTES) {
            return SIZE_MAX;
        }
        memcpy(fastbox->whole, place->bytes, bytes);
        fastbox->whole_bytes = bytes;
        return bytes;
    }
    if (bytes == 0 || bytes != pieces_bytes(fastbox->whole_bytes)) {
        return SIZE_MAX;
    }
    memcpy(fastbox->whole + PIECE_AT, place->bytes, PIECE_BYTES);
    if (bytes > PIECE_BYTES) {
        memcpy(fastbox->whole + SECOND_AT, place->bytes + PIECE_BYTES,
               PIECE_BYTES);
    }
    return bytes;
}

tmsg_fastbox_state_t tmsg_fastbox_look(tmsg_fastbox_t *fastbox,
                                       tmsg_fastbox_message_t *fastboxed_p)
{
    place_t *place = current_place(fastbox);
    size_t header_bytes;

    if (atomic_load_explicit(&place->number, memory_order_acquire) !=
        fastbox->at + 1) {
        return TMSG_FASTBOX_EMPTY;
    }
    fastboxed_p->after = *(const volatile uint32_t *)&place->after;
    fastboxed_p->payload_bytes =
        *(const volatile uint32_t *)&place->payload_bytes;
    header_bytes = read_fastbox_header(fastbox, place);
    if (header_bytes == SIZE_MAX ||
        fastboxed_p->payload_bytes > TMSG_FASTBOX_PAYLOAD_BYTES) {
        return TMSG_FASTBOX_WRONG;
    }
    fastboxed_p->payload = payload_in_place(place, header_bytes);
    fastboxed_p->header_bytes = fastbox->whole_bytes;
    fastboxed_p->header = fastbox->whole;
    return TMSG_FASTBOX_FULL;
}

void tmsg_fastbox_take(tmsg_fastbox_t *fastbox)
{
    fastbox->at++;
    if (fastbox->at % TELL_EVERY == 0) {
        atomic_store_explicit(&fastbox->head->taken, fastbox->at,
                              memory_order_release);
    }
}

void tmsg_fastbox_sleep(tmsg_fastbox_t *fastbox)
{
    atomic_store(&fastbox->head->sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void tmsg_fastbox_wake(tmsg_fastbox_t *fastbox)
{
    atomic_store_explicit(&fastbox->head->sleeps, 0, memory_order_relaxed);
}

bool tmsg_fastbox_may_nap(const tmsg_fastbox_t *fastbox)
{
    return atomic_load_explicit(&fastbox->head->wakes, memory_order_relaxed) ==
           WAKES;
}

int tmsg_fastbox_core(const tmsg_fastbox_t *fastbox)
{
    uint32_t core =
        atomic_load_explicit(&fastbox->head->core, memory_order_relaxed);

    return core > INT_MAX ? -1 : (int)core - 1;
}

void tmsg_fastbox_nap_begin(tmsg_fastbox_t *fastbox)
{
    atomic_store(&fastbox->head->naps, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void tmsg_fastbox_nap_word(tmsg_fastbox_t *fastbox, tmsg_nap_t *nap)
{
    nap->words[nap->count++] = &fastbox->head->naps;
}

void tmsg_fastbox_nap_end(tmsg_fastbox_t *fastbox)
{
    atomic_store_explicit(&fastbox->head->naps, 0, memory_order_relaxed);
}

/* Waits for several words, which Linux can since 5.16. */
static long wait_for_any(const tmsg_nap_t *nap, const struct timespec *until)
{
#ifdef SYS_futex_waitv
    struct futex_waitv waiters[TMSG_FASTBOX_NAPS] = {{0}};

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

tmsg_status_t tmsg_fastbox_nap(const tmsg_nap_t *nap, uint64_t until_ns)
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
bool tmsg_fastbox_is_intact_out(const tmsg_fastbox_t *fastbox, uint32_t sent)
{
    uint32_t count = fastbox->at < PLACES ? fastbox->at : PLACES;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t message = fastbox->at - 1 - i;
        const place_t *place = &fastbox->places[message % PLACES];
        uint32_t number =
            atomic_load_explicit(&place->number, memory_order_relaxed);
        uint32_t after = *(const volatile uint32_t *)&place->after;

        if (number != message + 1 || (int32_t)(sent - after) < 0) {
            return false;
        }
    }
    return true;
}

bool tmsg_fastbox_is_intact_in(const tmsg_fastbox_t *fastbox)
{
    uint32_t number = atomic_load_explicit(&current_place(fastbox)->number,
                                           memory_order_relaxed);
    uint32_t next = fastbox->at + 1;
    bool is_new = number == 0 && fastbox->at < PLACES;

    return (number == next || number == next - PLACES || is_new) &&
           atomic_load_explicit(&fastbox->head->taken, memory_order_relaxed) ==
               fastbox->at / TELL_EVERY * TELL_EVERY;
}
