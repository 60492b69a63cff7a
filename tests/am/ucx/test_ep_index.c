/* SPDX-License-Identifier: BSD-3-Clause */
/* The table in which a UCX worker counts the UCX endpoints to each peer: it
 * does not grow for ever. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { TURNS = 200 };

/* As if so many peers had been met. */
static void meet_others(tmsg_ucx_t *ucx, size_t count)
{
    ucx->peers = reallocarray(ucx->peers, count, sizeof(*ucx->peers));
    must_true(ucx->peers != NULL);
    ucx->peer_capacity = count;
    while (ucx->peer_count < count) {
        ucx->peers[ucx->peer_count] = (tmsg_ucx_peer_t){
            .id = ucx->peer_count, .uuid = ucx->peer_count + 1, .made = 1};
        ucx->peer_count++;
    }
}

static void pass(pair_t *pair, tmsg_endpoint_t *by, uint64_t seed)
{
    tmsg_request_t *sent = send_map(by, sample_bytes(seed, 1000), 0);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

/* Another connection of `from`, by which a message passes: a's end of it. */
static tmsg_endpoint_t *come(pair_t *pair, side_t *from, tmsg_endpoint_t **to_p)
{
    tmsg_request_t *ready;

    *to_p = side_dial(from, &pair->a);
    must(tmsg_endpoint_ready(*to_p, &ready));
    must(pair_finish(pair, ready));
    return pair->a.accepted;
}

static void makes_way(link_t link)
{
    side_t others[3];
    side_t *first;
    tmsg_endpoint_t *to_a[4], *to_it[4];
    tmsg_ucx_t *met;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    first = pair.sides[1];
    met = pair.to_b->ucx;
    meet_others(met, TMSG_UCX_PEERS - 2);
    for (int i = 0; i < 3; i++) {
        side_open(&others[i],
                  &(side_options_t){.ucx_config = link_config(link)});
        pair.sides[1] = &others[i];
        to_it[i] = come(&pair, &others[i], &to_a[i]);
        cr_expect(eq(int, to_it[i]->ucx == met, i < 2), "peer %d", i);
        cr_expect(eq(int, met->retired, i > 0), "peer %d", i);
        pass(&pair, to_a[i], (uint64_t)i);
    }
    cr_expect(eq(sz, met->peer_count, TMSG_UCX_PEERS));
    pair.sides[1] = first; /* who was met before, and comes once more */
    to_it[3] = come(&pair, &pair.b, &to_a[3]);
    cr_expect(to_it[3]->ucx != met);
    pass(&pair, to_a[3], 3);
    pass(&pair, pair.to_a, 4);
    for (int i = 0; i < 3; i++) {
        side_close(&others[i]);
    }
    pair_drop(&pair);
}

Test(ep_index, makes_way_for_another) { makes_way(LINK_SHM); }
Test(ep_index, makes_way_for_another_unix) { makes_way(LINK_UNIX); }
Test(ep_index, makes_way_for_another_tcp) { makes_way(LINK_TCP); }

/* It could not make way before, for a blob that is gone now. */
Test(ep_index, makes_way_later)
{
    tmsg_endpoint_t *to_a;
    tmsg_ucx_t *met;
    side_t *first;
    side_t other;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    first = pair.sides[1];
    met = pair.to_b->ucx;
    meet_others(met, TMSG_UCX_PEERS + 1);
    side_open(&other, NULL);
    pair.sides[1] = &other;
    cr_expect(come(&pair, &other, &to_a)->ucx == met);
    cr_expect(met->retired);
    pass(&pair, to_a, 1);
    side_close(&other);
    pair.sides[1] = first;
    pair_drop(&pair);
}

/* Dials again as long as a is busy; a dialler that has not begun its wire-up
 * does so by itself. a's end of it. */
static tmsg_endpoint_t *come_at_last(pair_t *pair, tmsg_endpoint_t **to_p)
{
    tmsg_status_t status = TMSG_ERR_BUSY;
    tmsg_request_t *ready;

    while (status == TMSG_ERR_BUSY) {
        *to_p = side_dial(&pair->b, &pair->a);
        must(tmsg_endpoint_ready(*to_p, &ready));
        status = pair_finish(pair, ready);
        if (status == TMSG_ERR_BUSY) {
            must_say(tmsg_endpoint_error(*to_p), "with the id or the worker");
            tmsg_endpoint_destroy(*to_p);
            usleep(10000);
        }
    }
    must(status);
    return pair->a.accepted;
}

/* Somebody came with the id of a peer before: the peer gets in with another UCX
 * worker. A new one takes some ms, so there is one in a second at most. */
static void is_not_locked_out(link_t link)
{
    enum { TIMES = 2 };
    tmsg_ucx_t *met;
    tmsg_endpoint_t *to_a;
    uint64_t began_ns;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    met = pair.to_b->ucx;
    began_ns = tmsg_now_ns();
    for (int i = 0; i < TIMES; i++) {
        tmsg_endpoint_t *to_it;

        must_true(met->peer_count == 1 && !met->retired);
        met->peers[0].uuid ^= 1;
        to_it = come_at_last(&pair, &to_a);
        cr_expect(to_it->ucx != met, "time %d", i);
        met = to_it->ucx;
        pass(&pair, to_a, (uint64_t)i);
    }
    cr_expect(
        ge(u64, tmsg_now_ns() - began_ns, (TIMES - 1) * UINT64_C(1000000000)));
    pass(&pair, pair.to_a, TIMES);
    pair_drop(&pair);
}

Test(ep_index, who_takes_an_id_locks_nobody_out)
{
    is_not_locked_out(LINK_SHM);
}
Test(ep_index, who_takes_an_id_locks_nobody_out_tcp)
{
    is_not_locked_out(LINK_TCP);
}

/* The address in a blob stays, so others are turned away; who was met before
 * comes again. */
Test(ep_index, of_a_blob_is_bounded)
{
    tmsg_endpoint_t *refused, *again;
    tmsg_ucx_t *met;
    side_t *first;
    side_t other;
    pair_t pair;

    pair_open(&pair, LINK_BLOB, DRIVE_POLLING, NULL, NULL);
    first = pair.sides[1];
    met = pair.to_b->ucx;
    meet_others(met, 16 * TMSG_UCX_PEERS);
    side_open(&other, NULL);
    pair.sides[1] = &other;
    refused = side_dial(&other, &pair.a);
    for (int i = 0; i < TURNS; i++) {
        usleep(1000); /* a connect request is tried each ms */
        tmsg_worker_progress(other.worker);
        tmsg_worker_progress(pair.a.worker);
    }
    must_be(tmsg_endpoint_status(refused), TMSG_IN_PROGRESS); /* in vain */
    cr_expect(eq(sz, met->peer_count, 16 * TMSG_UCX_PEERS));
    cr_expect(eq(u32, pair.a.accepts, 1));
    side_close(&other);
    pair.sides[1] = first;
    cr_expect(come(&pair, &pair.b, &again)->ucx == met);
    pass(&pair, again, 1);
    pair_drop(&pair);
}
