/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Fails every allocation of ours in turn while bells are made, rung and
 * destroyed. Each round works or says that memory was missing, releases who
 * waits, lets go of the maps, and leaves nothing behind. */
#include <criterion/criterion.h>

#include <tensormsg/device/bell.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/played_kernels.h"

enum { BYTES = 3000, MAPS = 2, TURNS = 20000, ROUNDS_MAX = 500 };

TestSuite(bell_alloc, .init = watched_alloc_start);

static uint8_t out[BYTES], in[BYTES];

static bool worked(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
    }
    return status == TMSG_OK;
}

static void turn(pair_t *pair)
{
    tmsg_worker_progress(pair->a.worker);
    tmsg_worker_progress(pair->b.worker);
}

/* Until it has been rung n times, or has failed. A map that its receiver had no
 * memory for never comes. */
static bool ring(pair_t *pair, tmsg_bell_t *bell, tmsg_bell_line_t *line,
                 uint64_t n)
{
    for (int i = 0; i < TURNS; i++) {
        turn(pair);
        if (__atomic_load_n(&line->done, __ATOMIC_ACQUIRE) >= n) {
            break;
        }
    }
    return __atomic_load_n(&line->done, __ATOMIC_ACQUIRE) >= n &&
           worked((tmsg_status_t)tmsg_bell_wait(line, n)) &&
           worked(tmsg_bell_status(bell));
}

static bool run(pair_t *pair, const tmsg_map_t *from, const tmsg_map_t *into)
{
    tmsg_bell_t *sends = NULL, *receives = NULL;
    void *sent, *received;
    bool ok = worked(tmsg_bell_create(pair->to_a, from, NULL, &sends)) &&
              worked(tmsg_bell_receive(pair->to_b, into, &receives));

    if (ok) {
        must(tmsg_bell_device(sends, &sent));
        must(tmsg_bell_device(receives, &received));
    }
    for (uint64_t n = 1; ok && n <= MAPS; n++) {
        tmsg_bell_post(sent, n);
        ok = ring(pair, sends, sent, n);
        ok = ok && ring(pair, receives, received, n);
        if (ok) {
            tmsg_bell_consumed(received, n);
        }
    }
    tmsg_bell_destroy(sends);
    tmsg_bell_destroy(receives);
    return ok;
}

/* Returns whether an allocation failed. */
static bool play(const void *arg, unsigned long nth)
{
    tmsg_map_t *from = played_map(out, BYTES), *into = played_map(in, BYTES);
    bool ok, failed;
    pair_t pair;

    (void)arg;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    watched_alloc_arm(nth);
    ok = run(&pair, from, into);
    failed = watched_alloc_disarm() != 0;
    must_true(ok || failed);
    pair_drop(&pair);
    must(tmsg_map_clear(from)); /* nobody holds it */
    must(tmsg_map_clear(into));
    tmsg_map_destroy(from);
    tmsg_map_destroy(into);
    return failed;
}

Test(bell_alloc, every_allocation_may_fail, .timeout = 120)
{
    unsigned long nth = watched_alloc_play_each(play, NULL, ROUNDS_MAX);

    must_true(nth > 10);
}
