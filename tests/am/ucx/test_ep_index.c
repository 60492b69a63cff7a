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
