/* SPDX-License-Identifier: BSD-3-Clause */
/* A random walk through the states of streams: some open at once, each step one
 * thing that either side may do. What a side reads is always the next that the
 * other one sent; each ends once on each side; at the end all places are free.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "rpc/stream.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { STREAMS = 8, STEPS = 6000 };

typedef struct {
    tmsg_call_stream_t *stream; /* NULL: it has given its handle back */
    uint64_t sent, got;
    bool finished, ended; /* it said so */
    bool read_end;        /* a read said that there is no more */
    unsigned overs;
} end_t;

typedef struct {
    bool used, served;
    uint64_t seed;
    end_t here, there;
} pipe_t;

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    uint64_t random;
    pipe_t pipes[STREAMS];
    unsigned opened, done;
} walk_t;

static unsigned pick(walk_t *walk, unsigned below)
{
    return (unsigned)(sample_random(&walk->random) % below);
}

static void on_over(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    end_t *end = arg;

    must_true(end->stream == stream);
    must_be(tmsg_call_stream_status(stream), status);
    must_true(!end->ended);
    must_eq(++end->overs, 1);
}

static void watch(end_t *end, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = on_over,
                                              .arg = end};

    end->stream = stream;
    must(tmsg_call_stream_set_events(stream, &events));
}

static void serve(void *arg, tmsg_call_stream_t *stream)
{
    walk_t *walk = arg;
    int64_t index, seed;
    pipe_t *pipe;

    must(tmsg_map_get_i64(tmsg_call_stream_map(stream), "pipe", &index));
    must(tmsg_map_get_i64(tmsg_call_stream_map(stream), "seed", &seed));
    pipe = &walk->pipes[index];
    if (!pipe->used || pipe->served || pipe->seed != (uint64_t)seed) {
        return; /* its opener has let go of it */
    }
    pipe->served = true;
    watch(&pipe->there, tmsg_call_stream_keep(stream));
}

static void open_one(walk_t *walk, pipe_t *pipe)
{
    const tmsg_call_stream_params_t params = {
        .field_mask =
            TMSG_CALL_STREAM_PARAM_TIMEOUT | TMSG_CALL_STREAM_PARAM_QUEUE,
        .timeout_ms = pick(walk, 8) == 0 ? 1 + (int)pick(walk, 5) : -1,
        .queue = 1 + pick(walk, 4)};
    tmsg_call_stream_t *stream;
    tmsg_map_t *map;

    memset(pipe, 0, sizeof(*pipe));
    pipe->used = true;
    pipe->seed = 1000 * ++walk->opened;
    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "pipe", pipe - walk->pipes));
    must(tmsg_map_set_i64(map, "seed", (int64_t)pipe->seed));
    must(tmsg_endpoint_open_stream(walk->pair.to_a, "serve", map, &params,
                                   &stream));
    tmsg_map_destroy(map);
    watch(&pipe->here, stream);
}

static void send_one(pipe_t *pipe, end_t *end)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    uint64_t seed =
        pipe->seed + (end == &pipe->there ? UINT64_C(1) << 40 : 0) + end->sent;
    tmsg_map_t *map = sample_bytes(seed, seed % 5 == 0 ? 20000 : seed % 100);
    tmsg_status_t status =
        tmsg_call_stream_send(end->stream, map, &params, NULL);
    tmsg_status_t is = tmsg_call_stream_status(end->stream);

    tmsg_map_destroy(map);
    end->sent += status == TMSG_OK;
    if (is < 0) {
        must_be(status, is);
    } else if (end->finished || is == TMSG_OK) {
        must_be(status, TMSG_ERR_CLOSED);
    } else {
        must_true(status == TMSG_OK || status == TMSG_ERR_WOULD_BLOCK);
    }
}

static void read_one(pipe_t *pipe, end_t *end, const end_t *other)
{
    uint64_t seed =
        pipe->seed + (end == &pipe->here ? UINT64_C(1) << 40 : 0) + end->got;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = tmsg_call_stream_try_recv(end->stream, &message);

    if (message != NULL) {
        must_true(!end->read_end && end->got < other->sent);
        sample_check_bytes(seed, seed % 5 == 0 ? 20000 : seed % 100,
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
        end->got++;
    } else if (status == TMSG_OK && !end->ended) { /* all of it has come */
        must_true(other->finished || other->ended);
        must_eq(end->got, other->sent);
        end->read_end = true;
    } else if (status == TMSG_IN_PROGRESS) {
        must_true(!end->read_end);
    } else {
        must_be(status, tmsg_call_stream_status(end->stream));
    }
}

static void finish(end_t *end)
{
    tmsg_status_t before = tmsg_call_stream_status(end->stream);
    tmsg_status_t status = tmsg_call_stream_finish(end->stream);

    must_be(status, before < 0 ? before
                    : end->finished || before != TMSG_IN_PROGRESS
                        ? TMSG_ERR_CLOSED
                        : TMSG_OK);
    end->finished = end->finished || status == TMSG_OK;
}

static void end_it(walk_t *walk, end_t *end, bool serves)
{
    tmsg_status_t before = tmsg_call_stream_status(end->stream);
    tmsg_status_t wanted = pick(walk, 2) == 0 ? TMSG_OK : TMSG_ERR_APPLICATION;
    tmsg_status_t status =
        tmsg_call_stream_end(end->stream, wanted, 3, "so", NULL);

    if (!serves) {
        must_be(status, TMSG_ERR_INVALID_PARAM);
    } else if (end->ended) {
        must_be(status, TMSG_ERR_ALREADY_EXISTS);
    } else if (before == TMSG_IN_PROGRESS) {
        must(status);
        must_be(tmsg_call_stream_status(end->stream), wanted);
        end->ended = true;
    } else {
        must_be(status, before);
    }
}

static void drop(end_t *end)
{
    tmsg_call_stream_t *stream = end->stream;

    end->stream = NULL;
    tmsg_call_stream_destroy(stream);
}

static void act(walk_t *walk, pipe_t *pipe)
{
    bool serves = pick(walk, 2) == 0;
    end_t *end = serves ? &pipe->there : &pipe->here;
    const end_t *other = serves ? &pipe->here : &pipe->there;

    if (end->stream == NULL) {
        return;
    }
    switch (pick(walk, 40)) {
    case 0:
        finish(end);
        break;
    case 1:
        end_it(walk, end, serves);
        break;
    case 2:
        tmsg_call_stream_cancel(end->stream);
        must_true(tmsg_call_stream_status(end->stream) != TMSG_IN_PROGRESS);
        break;
    case 3:
        drop(end);
        break;
    case 4:
        must(tmsg_call_stream_set_events(end->stream, NULL));
        watch(end, end->stream);
        break;
    default:
        if (pick(walk, 2) == 0) {
            send_one(pipe, end);
        } else {
            read_one(pipe, end, other);
        }
    }
}

/* Both sides have let go of it. */
static void tidy(walk_t *walk, pipe_t *pipe)
{
    bool here = pipe->here.stream != NULL &&
                tmsg_call_stream_status(pipe->here.stream) == TMSG_IN_PROGRESS;

    if (!here && pipe->there.stream == NULL) {
        walk->done++;
        if (pipe->here.stream != NULL) {
            drop(&pipe->here);
        }
        pipe->used = false;
    }
}

static void step(walk_t *walk)
{
    pipe_t *pipe = &walk->pipes[pick(walk, STREAMS)];

    if (!pipe->used) {
        open_one(walk, pipe);
    } else {
        act(walk, pipe);
        tidy(walk, pipe);
    }
    if (pick(walk, 2) == 0) {
        tmsg_worker_progress(walk->pair.a.worker);
    }
    if (pick(walk, 2) == 0) {
        tmsg_worker_progress(walk->pair.b.worker);
    }
}

static bool is_free(void *arg)
{
    const walk_t *walk = arg;
    const tmsg_rpc_peer_t *here = walk->pair.to_a->calls_peer;
    const tmsg_rpc_peer_t *there = walk->pair.to_b->calls_peer;
    uint32_t used = 0;

    for (uint32_t i = 0; i < here->stream_count; i++) {
        used += here->streams[i] != NULL;
    }
    for (uint32_t i = 0; i < there->slot_count; i++) {
        used += there->slots[i].stream != NULL;
    }
    return used == 0 && here->calls.count == 0 && there->tasks.count == 0 &&
           walk->server->load.inside == 0 && walk->server->load.running == 0 &&
           walk->server->all.count == 0;
}

static void run(uint64_t seed, link_t link)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 4}};
    static walk_t walk;

    memset(&walk, 0, sizeof(walk));
    walk.random = seed;
    pair_open(&walk.pair, link, DRIVE_POLLING, &options, &options);
    must(tmsg_server_create(walk.pair.a.worker, NULL, &walk.server));
    must(tmsg_server_register_stream(walk.server, "serve", serve, &walk, NULL));
    for (int i = 0; i < STEPS; i++) {
        step(&walk);
    }
    for (int i = 0; i < STREAMS; i++) {
        drop(&walk.pipes[i].here);
    }
    for (int i = 0; i < STREAMS; i++) {
        drop(&walk.pipes[i].there);
    }
    pair_await(&walk.pair, is_free, &walk, "all places to be free");
    must_true(walk.done > 50);
    tmsg_server_destroy(walk.server);
    pair_close(&walk.pair);
}

Test(stream_walk, over_shared_memory)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run(seed, LINK_SHM);
    }
}

Test(stream_walk, over_tcp) { run(4, LINK_TCP); }
