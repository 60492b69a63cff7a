/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Fails every allocation of ours in turn while a publisher is made, fed,
 * described and closed. Each round works or says that memory was missing, lets
 * go of every map, and leaves nothing behind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { MAPS = 4, BYTES = 3000, ROUNDS_MAX = 2000 };

TestSuite(publisher_alloc, .init = watched_alloc_start);

static bool worked(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
    }
    return status == TMSG_OK;
}

static void turns(pair_t *pair, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        tmsg_message_t *message;

        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
        while (tmsg_worker_recv(pair->b.worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
}

static bool run(pair_t *pair, tmsg_map_t *const *maps,
                tmsg_request_t *requests[MAPS])
{
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 2};
    tmsg_publisher_t *publisher = NULL;
    char *json = NULL;
    bool ok =
        worked(tmsg_publisher_create(pair->a.worker, &params, &publisher));

    for (int i = 0; ok && i < MAPS; i++) {
        if (i == MAPS / 2) {
            ok = worked(tmsg_publisher_add(publisher, pair->to_b, NULL));
        }
        ok = ok && worked(tmsg_publisher_publish(publisher, maps[i], NULL,
                                                 &requests[i]));
        turns(pair, 3);
    }
    ok = ok && worked(tmsg_publisher_describe(publisher, &json)) &&
         worked(tmsg_publisher_close(publisher, NULL));
    turns(pair, 20);
    tmsg_string_free(json);
    tmsg_publisher_destroy(publisher);
    return ok;
}

/* Returns whether an allocation failed. */
static bool play(const void *arg, unsigned long nth)
{
    tmsg_request_t *requests[MAPS] = {NULL};
    tmsg_map_t *maps[MAPS];
    pair_t pair;
    bool ok, failed;

    (void)arg;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MAPS; i++) {
        maps[i] = sample_bytes(i, BYTES);
    }
    watched_alloc_arm(nth);
    ok = run(&pair, maps, requests);
    failed = watched_alloc_disarm() != 0;
    must_true(ok || failed);
    for (int i = 0; i < MAPS; i++) {
        if (requests[i] != NULL) {
            must(pair_finish(&pair, requests[i]));
        }
    }
    turns(&pair, 20);
    for (int i = 0; i < MAPS; i++) {
        must(tmsg_map_clear(maps[i])); /* nobody holds it */
        tmsg_map_destroy(maps[i]);
    }
    pair_drop(&pair);
    return failed;
}

Test(publisher_alloc, every_allocation_may_fail, .timeout = 120)
{
    unsigned long nth = watched_alloc_play_each(play, NULL, ROUNDS_MAX);

    must_true(nth > 20);
}
