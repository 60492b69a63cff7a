/* SPDX-License-Identifier: BSD-3-Clause */
#include "flipper.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "am/endpoint/endpoint.h"
#include "am/path/bulk_ring.h"
#include "am/shm/fastbox.h"
#include "am/shm/ring.h"
#include "support/must.h"
#include "support/seeded_maps.h"

/* docs/wire/connection.md, "Rings" and "Fast boxes". */
enum {
    HEAD_BYTES = 4096,
    PLACE_BYTES = 2560,
    PLACE_HEAD = 16,
    LINE = 64,
    PAGE = 4096,
    RING_BYTES = 1 << 20,
    SLOWEST_US = 16384
};

static uint64_t dice(flipper_t *flipper, uint64_t sides)
{
    return sample_random(&flipper->state) % sides;
}

static bool is_fastbox(const flipper_view_t *view)
{
    return view->bytes < RING_BYTES;
}

static size_t place_at(uint64_t number)
{
    return HEAD_BYTES + number % TMSG_FASTBOX_PLACES * (size_t)PLACE_BYTES;
}

static uint32_t word_at(const flipper_view_t *view, size_t at)
{
    return *(const volatile uint32_t *)(const void *)(view->memory + at);
}

/* The message that was put last has the highest number. */
static uint32_t newest(const flipper_view_t *view)
{
    uint32_t most = 0;

    for (uint64_t i = 0; i < TMSG_FASTBOX_PLACES; i++) {
        uint32_t number = word_at(view, place_at(i));

        most = number > most && (number - 1) % TMSG_FASTBOX_PLACES == i ? number
                                                                        : most;
    }
    return most;
}

static size_t some_place(flipper_t *flipper, const flipper_view_t *view)
{
    return place_at(is_fastbox(view) && dice(flipper, 2) == 0
                        ? newest(view) - 1
                        : dice(flipper, TMSG_FASTBOX_PLACES));
}

/* What lies there. A flipper has a liking for some, for what ends the
 * connection at once hides what would come of others. It spares the mark, by
 * which a view is known. */
enum { WORDS, PLACES, HEADERS, BYTES, FORGED, KINDS };

static size_t find_spot(flipper_t *flipper, const flipper_view_t *view,
                        uint64_t kind)
{
    static const size_t words[] = {16, 20, 64, 72, 128, 132, 136};
    switch (kind) {
    case WORDS:
        return words[dice(flipper, sizeof(words) / sizeof(words[0]))];
    case PLACES:
        return some_place(flipper, view) + 4 * dice(flipper, PLACE_HEAD / 4);
    case HEADERS:
        return some_place(flipper, view) + PLACE_HEAD +
               dice(flipper, TMSG_FASTBOX_HEADER_BYTES);
    default:
        return LINE + dice(flipper, view->bytes - LINE - sizeof(uint64_t));
    }
}

static uint32_t other_word(flipper_t *flipper, uint32_t word)
{
    static const uint32_t odd[] = {
        0,          1,          2,          63,         64,         65,
        496,        497,        2048,       2049,       1u << 20,   0x7fffffff,
        0x80000000, 0x80000010, 0x80000020, 0x800001f0, 0xfffffffe, 0xffffffff};

    switch (dice(flipper, 5)) {
    case 0:
        return odd[dice(flipper, sizeof(odd) / sizeof(odd[0]))];
    case 1:
        return word + 1;
    case 2:
        return word - 1;
    case 3:
        return (uint32_t)sample_random(&flipper->state);
    default:
        return word ^ 1u << dice(flipper, 32);
    }
}

/* A message more, like the newest, that nobody sent: of its words one or two
 * are others, and it is there before its receiver looks. */
static void forge(flipper_t *flipper, const flipper_view_t *view)
{
    uint32_t number = newest(view);
    uint8_t *place = view->memory + place_at(number);

    if (number == 0) {
        return;
    }
    memcpy(place + 4, view->memory + place_at(number - 1) + 4, PLACE_BYTES - 4);
    for (uint64_t i = 1 + dice(flipper, 2); i > 0; i--) {
        size_t at = 4 * (1 + dice(flipper, dice(flipper, 3) == 0 ? 128 : 3));
        uint32_t word;

        memcpy(&word, place + at, sizeof(word));
        word = other_word(flipper, word);
        memcpy(place + at, &word, sizeof(word));
    }
    atomic_store((_Atomic uint32_t *)(void *)place, number + 1);
}

static void flip(flipper_t *flipper, const flipper_view_t *view)
{
    uint64_t kind = flipper->liking < KINDS && dice(flipper, 16) > 0
                        ? flipper->liking
                        : dice(flipper, KINDS);
    size_t at;
    uint32_t word;

    if (kind == FORGED && is_fastbox(view)) {
        forge(flipper, view);
        return;
    }
    at = find_spot(flipper, view, kind);

    if (dice(flipper, 64) == 0) { /* its pages go, and come back empty */
        at -= at % PAGE;
        (void)madvise(view->memory + (at == 0 ? PAGE : at), PAGE, MADV_REMOVE);
        return;
    }
    memcpy(&word, view->memory + at, sizeof(word));
    word = other_word(flipper, word);
    memcpy(view->memory + at, &word, dice(flipper, 3) == 0 ? 1 : sizeof(word));
}

static void *run(void *arg)
{
    flipper_t *flipper = arg;

    while (!flipper->over) {
        unsigned count = flipper->count;
        const struct timespec pause = {
            .tv_nsec = (long)(1000 * dice(flipper, flipper->pause_us))};

        for (uint64_t i = 1 + dice(flipper, flipper->burst); count > 0 && i > 0;
             i--) {
            flip(flipper, &flipper->views[dice(flipper, count)]);
            flipper->flips++;
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void flipper_start(flipper_t *flipper, uint64_t seed)
{
    memset(flipper, 0, sizeof(*flipper));
    flipper->state = seed;
    flipper->pause_us = SLOWEST_US >> dice(flipper, 8);
    flipper->burst = 1u << dice(flipper, 5);
    flipper->liking =
        dice(flipper, 3) == 0 ? FORGED : (unsigned)dice(flipper, KINDS + 1);
    must_eq(pthread_create(&flipper->thread, NULL, run, flipper), 0);
}

/* The memory once more, at another address: of length 0, mremap() leaves the
 * old mapping. No descriptor is needed for it, and a seal does not forbid it.
 */
static void watch_segment(flipper_t *flipper, const tmsg_segment_t *segment)
{
    unsigned count = flipper->count;
    flipper_view_t *view = &flipper->views[count];

    for (unsigned i = 0; i < count; i++) {
        if (memcmp(flipper->views[i].mark, segment->memory,
                   TMSG_SEGMENT_MARK_BYTES) == 0) {
            return;
        }
    }
    if (count == FLIPPER_VIEWS) {
        return;
    }
    view->bytes = segment->bytes;
    view->memory = mremap(segment->memory, 0, view->bytes, MREMAP_MAYMOVE);
    must_true(view->memory != MAP_FAILED);
    memcpy(view->mark, view->memory, TMSG_SEGMENT_MARK_BYTES);
    flipper->count = count + 1;
}

static void watch_ring(flipper_t *flipper, tmsg_ring_t *ring)
{
    if (ring != NULL) {
        watch_segment(flipper, tmsg_ring_segment(ring));
    }
}

void flipper_watch(flipper_t *flipper, const tmsg_endpoint_t *endpoint)
{
    tmsg_fastbox_t *const boxes[] = {endpoint->fastboxes.in,
                                     endpoint->fastboxes.out};
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;

    for (size_t i = 0; i < 2; i++) {
        if (boxes[i] != NULL) {
            watch_segment(flipper, tmsg_fastbox_segment(boxes[i]));
        }
    }
    if (bulk != NULL && bulk->maker == &tmsg_mover_ring) {
        watch_ring(flipper, tmsg_bulk_ring_of(bulk)->in);
        watch_ring(flipper, tmsg_bulk_ring_of(bulk)->out);
    }
}

uint64_t flipper_stop(flipper_t *flipper)
{
    flipper->over = true;
    must_eq(pthread_join(flipper->thread, NULL), 0);
    for (unsigned i = 0; i < flipper->count; i++) {
        munmap(flipper->views[i].memory, flipper->views[i].bytes);
    }
    return flipper->flips;
}
