/* SPDX-License-Identifier: BSD-3-Clause */
/* 1,000 connections made, used and ended in order, by each link, and 300 peers
 * killed while they send: one worker serves them all and loses nothing.
 * A peer killed while it writes to shared memory can block UCX's queue there
 * for good; who comes after it must not notice. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/held_resources.h"
#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"

enum { CONNECTS = 1000, KILLS = 300, AT_ONCE = 20, ROUNDS = KILLS / AT_ONCE };

static pair_t pair;

/* But what a worker's pool keeps for whoever is next. */
static size_t bytes_of_pair(void)
{
    size_t pools =
        left_pool_bytes(pair.a.worker) + left_pool_bytes(pair.b.worker);

    return watched_alloc_bytes() - pools;
}

static void drive_pair(void *arg)
{
    (void)arg;
    tmsg_worker_progress(pair.a.worker);
    tmsg_worker_progress(pair.b.worker);
}

static void connect_many(link_t link)
{
    const left_t first = left_look(watched_alloc_bytes);
    left_t before;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < CONNECTS; i++) {
        tmsg_endpoint_t *endpoint = side_dial(&pair.b, &pair.a);
        tmsg_request_t *closed;
        tmsg_message_t *message;

        tmsg_request_destroy(send_map(endpoint, sample_bytes(1, 3000), 0));
        message = pair_take(&pair, &pair.a);
        sample_check_bytes(1, 3000, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(tmsg_endpoint_close(endpoint, &closed));
        must(pair_finish(&pair, closed));
        must_be(pair_end_of(&pair, pair.a.accepted), TMSG_ERR_CLOSED);
        tmsg_endpoint_destroy(pair.a.accepted);
        tmsg_endpoint_destroy(endpoint);
        if (i == 20) {
            before = left_look(bytes_of_pair);
        }
    }
    left_must_be_none(&before, bytes_of_pair, drive_pair, NULL,
                      "1,000 connections");
    pair_close(&pair);
    left_must_be_none(&first, watched_alloc_bytes, NULL, NULL,
                      "1,000 connections and their workers");
    printf("%s: %d connections\n", link_names[link], CONNECTS);
}

/* Waits to be asked, then listens and sends for ever. */
static void victim(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    const side_options_t options = {.ucx_config = link_config(*link)};
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map = sample_bytes(1, 300);
    char line[8];
    side_t side;

    if (read(pipes->in, line, 1) != 1) {
        _exit(0); /* not needed any more */
    }
    side_open(&side, &options);
    side_listen_link(&side, *link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (;;) {
        tmsg_request_t *sent;

        must(tmsg_endpoint_send(endpoint, map, NULL, &sent));
        side_wait(&side, sent);
        tmsg_request_destroy(sent);
    }
}

static void kill_one(side_t *side, child_t *child, uint64_t *state)
{
    uint64_t messages = 20 + sample_random(state) % 200;
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    char url[256];

    line_put(child->out, "");
    line_get(child->in, url, sizeof(url));
    endpoint = side_connect(side, url);
    while (messages-- > 0) {
        tmsg_message_destroy(side_take(side));
    }
    kill(child->pid, SIGKILL);
    must_be(side_end_of(side, endpoint), TMSG_ERR_PEER_LOST);
    while (tmsg_endpoint_recv(endpoint, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
    tmsg_endpoint_destroy(endpoint);
    child_kill(child);
}

typedef struct {
    link_t link;
    uint64_t seed;
} round_t;

/* Children come first: none may be made once UCX is open here. So a round of
 * them is a process of its own. */
static void kill_round(pipes_t *pipes, void *arg)
{
    static child_t victims[AT_ONCE];
    const round_t *round = arg;
    link_t link = round->link;
    const side_options_t options = {.ucx_config = link_config(link)};
    uint64_t state = round->seed;
    left_t before;
    side_t side;

    (void)pipes;
    for (size_t i = 0; i < AT_ONCE; i++) {
        child_start(&victims[i], victim, &link);
    }
    before = left_look(watched_alloc_bytes);
    /* A victim is three descriptors as well: it, and a pipe each way. */
    before.descriptors -= 3 * AT_ONCE;
    side_open(&side, &options);
    for (size_t i = 0; i < AT_ONCE; i++) {
        kill_one(&side, &victims[i], &state);
    }
    side_close(&side);
    left_must_be_none(&before, watched_alloc_bytes, NULL, NULL,
                      "peers that were killed");
}

static void kill_many(link_t link, uint64_t slice)
{
    round_t round = {link, soak_seed() + slice};
    child_t child;

    child_start(&child, kill_round, &round);
    child_join(&child);
    if (slice % ROUNDS == ROUNDS - 1) {
        printf("%s: %d peers killed\n", link_names[link], KILLS);
    }
}

int main(void)
{
    static const link_t killed[] = {LINK_TCP, LINK_SHM, LINK_UNIX};
    const uint64_t kills = ROUNDS * sizeof(killed) / sizeof(killed[0]);
    const char *name = "peers";

    watched_alloc_start();
    setvbuf(stdout, NULL, _IOLBF, 0);
    soak_seed(); /* printed here, not by every child */
    for (uint64_t slice = soak_place(name); slice < kills + LINKS; slice++) {
        if (slice < kills) {
            kill_many(killed[slice / ROUNDS], slice);
        } else {
            connect_many((link_t)(slice - kills));
        }
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0);
    return 0;
}
