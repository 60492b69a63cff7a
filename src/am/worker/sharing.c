/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/sharing.h"

#include <sched.h>

#include "am/net/loop.h"

#define TRY_AFTER_NS 3000 /* of polling: who runs elsewhere answers sooner */
#define ALONE_NS 1000     /* a yield that nobody takes returns sooner */
#define LOST_NS 1000000   /* one that others take for what is not ours */
#define VAIN 2            /* yields that nobody takes, in a wait */
#define YIELDS 32         /* that others take, and nothing comes, in a wait */
#define PAYS 4
#define WARY 64
#define CROWDED 16  /* four times as many for each that was lost before, */
#define LOST_MOST 4 /* up to so often */
#define FORGET 256  /* waits that paid, for which one of these is forgotten */

#define GET(field) atomic_load_explicit(&sharing->field, memory_order_relaxed)
#define SET(field, to)                                                         \
    atomic_store_explicit(&sharing->field, to, memory_order_relaxed)

/* False: there is none. Who does so at once takes the same one. */
static bool take_one(atomic_uint *count)
{
    unsigned there = atomic_load_explicit(count, memory_order_relaxed);

    if (there > 0) {
        atomic_store_explicit(count, there - 1, memory_order_relaxed);
    }
    return there > 0;
}

/* Yields are no help in this wait, nor in the next ones. */
static void give_up(tmsg_sharing_t *sharing)
{
    unsigned pays = GET(pays);

    SET(over, true);
    if (pays > 0) {
        SET(pays, pays - 1);
    } else {
        SET(wary, WARY);
    }
}

/* False: others took it for long. */
static bool yield(tmsg_sharing_t *sharing, uint64_t now)
{
    uint64_t took;

    sched_yield();
    took = tmsg_now_ns() - now;
    if (took < ALONE_NS) {
        SET(vain, GET(vain) + 1);
        if (GET(vain) >= VAIN) {
            give_up(sharing);
        }
        return true;
    }
    SET(yields, GET(yields) + 1);
    if (took < LOST_NS && GET(yields) < YIELDS) {
        return true;
    }
    SET(sleeps, true);
    SET(yields, 0); /* they were not what brings something, should it come */
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
        SET(sleeps, beside); /* and yields are not what brings something */
        SET(yields, beside ? 0 : GET(yields));
        return !beside;
    }
    return GET(pays) > 0 || beside || now - since >= TRY_AFTER_NS
               ? yield(sharing, now)
               : true;
}

static void forget(tmsg_sharing_t *sharing)
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
        forget(sharing);
    }
    SET(since, 0);
    SET(yields, 0);
    SET(vain, 0);
    SET(over, false);
    SET(sleeps, false);
}
