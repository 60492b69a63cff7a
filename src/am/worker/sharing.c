/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/sharing.h"

#include <sched.h>

#include "am/net/loop.h"

/* A wait polls for this long before it tries a yield: a peer that runs on
 * another core answers sooner. */
#define TRY_AFTER_NS 3000
/* A yield that returns sooner than this was taken by nobody. */
#define ALONE_NS 1000
/* A yield that takes this long ran others that do not work for us. */
#define LOST_NS 1000000
/* A wait has at most this many yields that nobody takes. */
#define VAIN 2
/* A wait has at most this many yields that others take while nothing comes. */
#define YIELDS 32
#define PAYS 4
#define WARY 64
/* This many waits sleep at once. Their number is four times as large for each
 * yield that was lost before. */
#define CROWDED 16
/* CROWDED grows up to this many times. */
#define LOST_MOST 4
/* After this many waits that paid, one lost yield is forgotten. */
#define FORGET 256

#define GET(field) atomic_load_explicit(&sharing->field, memory_order_relaxed)
#define SET(field, to)                                                         \
    atomic_store_explicit(&sharing->field, to, memory_order_relaxed)

/* Takes one off a count. False: the count is 0. Two threads that do so at the
 * same time may take the same one. */
static bool take_one(atomic_uint *count)
{
    unsigned there = atomic_load_explicit(count, memory_order_relaxed);

    if (there > 0) {
        atomic_store_explicit(count, there - 1, memory_order_relaxed);
    }
    return there > 0;
}

/* Gives up yields in this wait and, if that happens too often, in the next
 * waits. */
static void give_up_yields(tmsg_sharing_t *sharing)
{
    unsigned pays = GET(pays);

    SET(over, true);
    if (pays > 0) {
        SET(pays, pays - 1);
    } else {
        SET(wary, WARY);
    }
}

/* Yields the core. False: others took it for long. */
static bool yield_core(tmsg_sharing_t *sharing, uint64_t now)
{
    uint64_t took;

    sched_yield();
    took = tmsg_now_ns() - now;
    if (took < ALONE_NS) {
        SET(vain, GET(vain) + 1);
        if (GET(vain) >= VAIN) {
            give_up_yields(sharing);
        }
        return true;
    }
    SET(yields, GET(yields) + 1);
    if (took < LOST_NS && GET(yields) < YIELDS) {
        return true;
    }
    SET(sleeps, true);
    SET(yields, 0); /* the yields do not bring what may come now */
    SET(pays, 0);
    SET(crowded, CROWDED);
    if (took >= LOST_NS) {
        unsigned lost = GET(lost);

        lost = lost < LOST_MOST ? lost : LOST_MOST;
        SET(crowded, CROWDED << (2 * lost));
        SET(lost, lost < LOST_MOST ? lost + 1 : LOST_MOST);
    }
    return false;
}

bool tmsg_sharing_pause(tmsg_sharing_t *sharing, uint64_t now, bool beside)
{
    uint64_t since = GET(since);

    if (since == 0) {
        since = now;
        SET(since, now);
        if (take_one(&sharing->wary)) {
            SET(over, true);
        }
        if (take_one(&sharing->crowded)) {
            SET(sleeps, true);
        }
    }
    if (GET(sleeps)) {
        return false;
    }
    if (GET(over)) {
        SET(sleeps, beside); /* the yields do not bring what may come now */
        SET(yields, beside ? 0 : GET(yields));
        return !beside;
    }
    return GET(pays) > 0 || beside || now - since >= TRY_AFTER_NS
               ? yield_core(sharing, now)
               : true;
}

static void forget_lost(tmsg_sharing_t *sharing)
{
    SET(paid, GET(paid) + 1);
    if (GET(paid) >= FORGET) {
        SET(paid, 0);
        (void)take_one(&sharing->lost);
    }
}

void tmsg_sharing_paid(tmsg_sharing_t *sharing)
{
    if (GET(yields) > 0) {
        SET(pays, PAYS);
        SET(crowded, 0);
        forget_lost(sharing);
    }
    SET(since, 0);
    SET(yields, 0);
    SET(vain, 0);
    SET(over, false);
    SET(sleeps, false);
}
