/* SPDX-License-Identifier: BSD-3-Clause */
/* When a wait that polls gives its processor to others, as its clock and
 * sched_yield(), which are these here, have it. */
/* ctest: once */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "am/net/loop.h"
#include "am/worker/sharing.h"
#include "support/must.h"

enum { NOBODY = 300, PEER = 5000, OTHERS = 3000000 }; /* ns of a yield */

static uint64_t now = 1, yield_ns;
static unsigned yields;
static bool beside;

/* The linker has the library call this one (CMakeLists.txt). */
uint64_t __wrap_tmsg_now_ns(void);
uint64_t __wrap_tmsg_now_ns(void) { return now; }

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    now += yield_ns;
    yields++;
    return 0;
}

/* A wait of so many turns that find nothing, 100 ns each, or until a yield has
 * let the peer answer; false: until it had better sleep. */
static bool polls(tmsg_sharing_t *sharing, unsigned turns)
{
    unsigned before = yields;
    bool on = true;

    for (unsigned i = 0; on && i < turns; i++) {
        now += 100;
        on = tmsg_sharing_pause(sharing, now, beside);
        if (yields > before && yield_ns == PEER) {
            break;
        }
    }
    tmsg_sharing_moved(sharing);
    return on;
}

/* How many yields so many such waits have. */
static unsigned yields_of(tmsg_sharing_t *sharing, unsigned waits,
                          unsigned turns)
{
    unsigned before = yields;

    for (unsigned i = 0; i < waits; i++) {
        must_true(polls(sharing, turns));
    }
    return yields - before;
}

Test(sharing, a_short_wait_only_polls)
{
    tmsg_sharing_t sharing = {0};

    yield_ns = PEER;
    cr_assert(eq(uint, yields_of(&sharing, 1000, 20), 0));
}

Test(sharing, where_nobody_takes_it_is_seldom_tried)
{
    tmsg_sharing_t sharing = {0};

    yield_ns = NOBODY;
    cr_assert(eq(uint, yields_of(&sharing, 650, 500), 20));
}

Test(sharing, where_it_pays_it_comes_at_once)
{
    tmsg_sharing_t sharing = {0};

    yield_ns = PEER;
    cr_assert(eq(uint, yields_of(&sharing, 1, 32), 1));
    cr_assert(eq(uint, yields_of(&sharing, 100, 1), 100));
}

Test(sharing, it_ends_and_begins_anew_as_the_peer_goes_and_comes)
{
    tmsg_sharing_t sharing = {0};

    for (int migration = 0; migration < 10; migration++) {
        yield_ns = PEER;
        yields_of(&sharing, 100, 32);
        cr_assert(eq(uint, yields_of(&sharing, 100, 1), 100));
        yield_ns = NOBODY;
        cr_assert(le(uint, yields_of(&sharing, 100, 500), 12));
        cr_assert(le(uint, yields_of(&sharing, 640, 500), 20));
    }
}

Test(sharing, beside_who_computes_waits_sleep_at_once)
{
    tmsg_sharing_t sharing = {0};
    unsigned slept = 0;

    yield_ns = OTHERS;
    must_true(!polls(&sharing, 500));
    for (int i = 0; i < 170; i++) {
        slept += !polls(&sharing, 20);
    }
    cr_assert(eq(uint, slept, 16)); /* then it polls, and would look again */
    cr_assert(eq(uint, yields, 1));
}

/* How many waits sleep before one of them yields again. */
static unsigned sleeps_of(tmsg_sharing_t *sharing)
{
    unsigned before = yields, slept = 0;

    while (yields == before && slept < 100000) {
        slept += !polls(sharing, 31);
    }
    return slept - 1; /* the one that yielded slept, too */
}

Test(sharing, the_longer_somebody_computes_the_less_is_tried)
{
    tmsg_sharing_t sharing = {0};

    yield_ns = OTHERS;
    cr_assert(eq(uint, sleeps_of(&sharing), 0));
    for (unsigned wanted = 16; wanted <= 4096; wanted *= 4) {
        cr_assert(eq(uint, sleeps_of(&sharing), wanted));
    }
    cr_assert(eq(uint, sleeps_of(&sharing), 4096));
    yield_ns = PEER; /* the one who computes is gone */
    while (!polls(&sharing, 31)) {
    }
    yields_of(&sharing, 1024, 1);
    yield_ns = OTHERS;
    cr_assert(eq(uint, sleeps_of(&sharing), 0));
    cr_assert(eq(uint, sleeps_of(&sharing), 16));
}

Test(sharing, beside_the_peer_a_wait_yields_at_once)
{
    tmsg_sharing_t sharing = {0};

    beside = true;
    yield_ns = PEER;
    cr_assert(eq(uint, yields_of(&sharing, 100, 1), 100));
}

/* As between scheduling policies: it never polls the peer's core away. */
Test(sharing, beside_a_peer_that_takes_no_yield_it_sleeps)
{
    tmsg_sharing_t sharing = {0};

    beside = true;
    yield_ns = NOBODY;
    for (int i = 0; i < 650; i++) {
        must_true(!polls(&sharing, 3));
    }
    cr_assert(eq(uint, yields, 20));
    beside = false;
    must_true(polls(&sharing, 500));
}

/* As many as take turns, and none of them answers. */
Test(sharing, many_others_are_no_peer)
{
    tmsg_sharing_t sharing = {0};
    bool on = true;

    yield_ns = PEER - 1;
    for (unsigned i = 0; on && i < 5000; i++) {
        now += 100;
        on = tmsg_sharing_pause(&sharing, now, beside);
    }
    must_true(!on);
    cr_assert(eq(uint, yields, 32));
}
