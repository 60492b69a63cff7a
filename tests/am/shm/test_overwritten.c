/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody who is neither side writes to the memory of a fast box or a ring, so
 * that a message which lies there is lost: the connection ends, and says so,
 * where it would else wait for ever. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/path/bulk_ring.h"
#include "am/shm/fastbox.h"
#include "am/shm/ring.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { SMALL = 100, LARGE = 3 << 20, TURNS = 1000 };

/* docs/wire/connection.md, "Fast boxes" and "Rings". */
enum {
    FASTBOX_TAKEN = 64,
    PLACES_AT = 4096,
    PLACE_BYTES = 2560,
    PLACE_AFTER = 4,
    RING_WRITTEN = 64,
    RING_READ = 128,
    RING_READER_WAITS = 136,
    RING_BYTES = 1 << 20
};

static void give(pair_t *pair, uint64_t seed)
{
    const sample_t sample = sample_plain(seed, SMALL);

    tmsg_request_destroy(send_on(pair->to_a, 0, sample_make(&sample), 0));
}

static void get(pair_t *pair, uint64_t seed)
{
    const sample_t sample = sample_plain(seed, SMALL);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check(&sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* b's messages go by its fast box, and so many have. */
static void warm_up(pair_t *pair, uint64_t messages)
{
    for (uint64_t i = 0; pair->to_a->stats.sent_by_fastbox < messages; i++) {
        must_true(i < 1000 + messages);
        give(pair, i);
        get(pair, i);
        tmsg_worker_progress(pair->b.worker);
    }
}

static uint8_t *fastbox_of(const pair_t *pair)
{
    return tmsg_fastbox_segment(pair->to_a->fastboxes.out)->memory;
}

/* Of the message that was put last. */
static uint8_t *place_of(const pair_t *pair)
{
    uint64_t last = pair->to_a->stats.sent_by_fastbox - 1;

    return fastbox_of(pair) + PLACES_AT +
           last % TMSG_FASTBOX_PLACES * (uint64_t)PLACE_BYTES;
}

static void put(uint8_t *place, uint32_t value)
{
    memcpy(place, &value, sizeof(value));
}

static void say_another_number(const pair_t *pair) { put(place_of(pair), 7); }
static void say_no_number(const pair_t *pair) { put(place_of(pair), 0); }

static void say_it_waits(const pair_t *pair)
{
    put(place_of(pair) + PLACE_AFTER, pair->to_a->fastboxes.sent + 1);
}

static void say_others_were_taken(const pair_t *pair)
{
    put(fastbox_of(pair) + FASTBOX_TAKEN, 3);
}

/* Both have sealed it, so nobody can punch a hole (am/segment). */
static void say_zeros(const pair_t *pair)
{
    memset(fastbox_of(pair) + PLACES_AT, 0,
           (size_t)TMSG_FASTBOX_PLACES * PLACE_BYTES);
}

typedef struct {
    const char *what;
    void (*write)(const pair_t *pair);
    uint64_t before; /* messages that went by it, at least */
    bool arrives;    /* the message, all the same */
} change_t;

static const change_t changes[] = {
    {"another number, in the first round", say_another_number, 1, false},
    {"no number, in the first round", say_no_number, 1, false},
    {"another number", say_another_number, 100, false},
    {"no number", say_no_number, 100, false},
    {"what it comes after", say_it_waits, 1, false},
    {"how many were taken", say_others_were_taken, 1, true},
    {"zeros in all places", say_zeros, 70, false},
};

static void drive(pair_t *pair)
{
    for (int turn = 0; turn < TURNS; turn++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

/* Nothing comes any more, and it is time to look at the paths (connect/paths.h
 * and connect/liveness.h). */
static void look(pair_t *pair)
{
    drive(pair);
    for (size_t i = 0; i < 2; i++) {
        tmsg_timer_t *timer = &pair->sides[i]->worker->liveness;

        timer->expired(timer);
    }
}

static void must_end(pair_t *pair, const char *words)
{
    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_CORRUPT);
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_CORRUPT);
    must_say(tmsg_endpoint_error(pair->to_a), words);
    must_say(tmsg_endpoint_error(pair->to_b), words);
}

static void overwrite_fastbox(const change_t *change)
{
    const sample_t sample = sample_plain(1, SMALL);
    tmsg_request_t *sent;
    uint64_t by_fastbox;
    pair_t pair;

    printf("%s\n", change->what);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, change->before);
    by_fastbox = pair.to_a->stats.sent_by_fastbox;
    sent = send_on(pair.to_a, 0, sample_make(&sample), TMSG_SEND_ACKED);
    must_eq(pair.to_a->stats.sent_by_fastbox, by_fastbox + 1);
    change->write(&pair);
    look(&pair);
    must_end(&pair, "somebody else wrote to a fast box in shared memory");
    cr_expect(eq(u64, pair.to_b->stats.received_by_fastbox,
                 by_fastbox + change->arrives));
    must_be(pair_finish(&pair, sent), TMSG_ERR_CORRUPT);
    pair_drop(&pair);
}

Test(overwritten, a_fastbox_ends_the_connection)
{
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        overwrite_fastbox(&changes[i]);
    }
}

static uint8_t *ring_of(const pair_t *pair)
{
    return tmsg_ring_segment(tmsg_bulk_ring_of(pair->to_a->paths.bulk)->out)
        ->memory;
}

static uint64_t position(const pair_t *pair, size_t place)
{
    uint64_t at;

    memcpy(&at, ring_of(pair) + place, sizeof(at));
    return at;
}

static void put_position(const pair_t *pair, size_t place, uint64_t at)
{
    memcpy(ring_of(pair) + place, &at, sizeof(at));
}

/* Until b has written more to its ring, which a has not read. */
static void write_more(pair_t *pair)
{
    uint64_t before;

    for (int turn = 0; turn < 100 * TURNS; turn++) {
        tmsg_worker_progress(pair->a.worker);
        before = tmsg_bulk_ring_of(pair->to_a->paths.bulk)->out == NULL
                     ? 0
                     : position(pair, RING_WRITTEN);
        tmsg_worker_progress(pair->b.worker);
        if (tmsg_bulk_ring_of(pair->to_a->paths.bulk)->out != NULL &&
            position(pair, RING_WRITTEN) > before) {
            return;
        }
    }
    die("nothing is written");
}

static bool has_written_all(const pair_t *pair)
{
    return !pair->to_a->paths.bulk->out.busy && pair->to_a->pulled.count == 0;
}

static tmsg_request_t *begin_large(pair_t *pair, unsigned flags)
{
    tmsg_request_t *sent;

    pair_open(pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_on(pair->to_a, 0, sample_bytes(1, LARGE), flags);
    write_more(pair);
    return sent;
}

Test(overwritten, a_ring_whose_end_is_lost_ends_the_connection)
{
    pair_t pair;
    tmsg_request_t *sent = begin_large(&pair, TMSG_SEND_ACKED);
    uint64_t written, read;

    while (!has_written_all(&pair)) {
        write_more(&pair);
    }
    written = position(&pair, RING_WRITTEN);
    read = position(&pair, RING_READ);
    must_true(read < written);
    put_position(&pair, RING_WRITTEN, read + (written - read) / 2);
    look(&pair);
    must_end(&pair, "somebody else wrote to a ring in shared memory");
    must_be(pair_finish(&pair, sent), TMSG_ERR_CORRUPT);
    pair_drop(&pair);
}

Test(overwritten, a_ring_that_seems_full_ends_the_connection)
{
    pair_t pair;
    tmsg_request_t *sent = begin_large(&pair, TMSG_SEND_ACKED);

    while (position(&pair, RING_READ) < position(&pair, RING_WRITTEN)) {
        tmsg_worker_progress(pair.a.worker);
    }
    put_position(&pair, RING_READ, position(&pair, RING_WRITTEN) - RING_BYTES);
    look(&pair);
    must_end(&pair, "somebody else wrote to a ring in shared memory");
    must_be(pair_finish(&pair, sent), TMSG_ERR_CORRUPT);
    pair_drop(&pair);
}

/* Who has nothing to read is to be woken; that it waits is lost. */
Test(overwritten, a_lost_wish_to_be_woken_is_late_and_no_more)
{
    const uint32_t no = 0;
    pair_t pair;
    tmsg_request_t *sent = begin_large(&pair, 0);

    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    sent = send_on(pair.to_a, 0, sample_bytes(2, LARGE), 0);
    while (pair.to_a->pulled.count == 0) { /* a has asked for it */
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        tmsg_worker_progress(pair.a.worker);
    }
    memcpy(ring_of(&pair) + RING_READER_WAITS, &no, sizeof(no));
    drive(&pair);
    must_true(pair.to_a->paths.bulk->out.busy);
    look(&pair);
    large_take(&pair, &pair.a, 2, LARGE);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

/* A session goes on, and what was acknowledged by nobody comes. */
Test(overwritten, a_fastbox_breaks_a_session_and_does_not_end_it)
{
    const sample_t sample = sample_plain(1, SMALL);
    tmsg_request_t *sent;
    joined_t joined;

    joined_open(&joined, &(how_t){.link = LINK_SHM});
    warm_up(&joined.pair, 3);
    sent = send_on(joined.pair.to_a, 0, sample_make(&sample), TMSG_SEND_ACKED);
    say_no_number(&joined.pair);
    look(&joined.pair);
    get(&joined.pair, 1);
    must(pair_finish(&joined.pair, sent));
    cr_expect(eq(long, described(joined.pair.to_a, "reconnected"), 1));
    joined_close(&joined);
}

/* What was written there by its owners is found right, whatever was taken. */
Test(overwritten, nothing_is_while_all_goes_well)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t count = 1; count < 200; count += 7) {
        warm_up(&pair, count);
        give(&pair, 1);
        look(&pair);
        get(&pair, 1);
        look(&pair);
    }
    large_exchange(&pair);
    look(&pair);
    pair_close(&pair);
}
