/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/paired_races.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/seeded_maps.h"
#include "support/soak_progress.h"

#define SLICE 10000 /* rounds */
#define SLOTS_OF_DRAINS 4
#define TIMEOUT_MOST_MS 50
#define SPINS 200        /* before a thread leaves the processor to others */
#define BEFORE_NS 600000 /* so much before it expires to so much behind, a */
#define BEHIND_NS 100000 /* slot is raced: what travels takes its time */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Until the other thread is there, too. */
static void keep_step(races_t *races, bool second, uint64_t step)
{
    unsigned spins = 0;

    atomic_store(&races->steps[second], step);
    while (atomic_load(&races->steps[!second]) < step) {
        if (++spins % SPINS == 0) {
            sched_yield();
        }
    }
}

/* So that now the one thread is first, now the other. */
static void stumble(uint64_t *seed)
{
    for (uint64_t i = sample_random(seed) % 256; i > 0; i--) {
        atomic_signal_fence(memory_order_seq_cst);
    }
}

static void await_time(uint64_t at_ns, uint64_t *seed)
{
    uint64_t wanted =
        at_ns - BEFORE_NS + sample_random(seed) % (BEFORE_NS + BEHIND_NS);
    uint64_t now = now_ns();

    if (now + BEHIND_NS < wanted) {
        const struct timespec rest = {.tv_nsec =
                                          (long)(wanted - now - BEHIND_NS)};

        nanosleep(&rest, NULL);
    }
    while (now_ns() < wanted) {
        sched_yield();
    }
}

static void go_through(races_t *races, bool second)
{
    for (unsigned i = 0; i < races->slots; i++) {
        if (races->at_ns[i] != 0) {
            await_time(races->at_ns[i], &races->seeds[second]);
        }
        keep_step(races, second, races->step + i + 1);
        stumble(&races->seeds[second]);
        races->ops->act(races->arg, i, races->deeds[second], second);
    }
}

static void *be_second(void *arg)
{
    races_t *races = arg;

    for (;;) {
        pthread_barrier_wait(&races->begin);
        if (races->stop) {
            return NULL;
        }
        go_through(races, true);
        pthread_barrier_wait(&races->end);
    }
}

static void open_sides(races_t *races, uint64_t seed)
{
    const side_options_t shared = {.drive = DRIVE_THREAD};

    races->seeds[0] = seed;
    races->seeds[1] = seed + 1;
    pthread_barrier_init(&races->begin, NULL, 2);
    pthread_barrier_init(&races->end, NULL, 2);
    side_open(&races->a, &shared);
    side_open(&races->b, &shared);
    side_listen(&races->a, "tcp://127.0.0.1:0");
    must_eq(pthread_create(&races->thread, NULL, be_second, races), 0);
}

static void close_sides(races_t *races)
{
    races->stop = true;
    pthread_barrier_wait(&races->begin);
    pthread_join(races->thread, NULL);
    side_close(&races->b);
    side_close(&races->a);
    pthread_barrier_destroy(&races->begin);
    pthread_barrier_destroy(&races->end);
}

static void join(races_t *races)
{
    races->to_a = side_dial(&races->b, &races->a);
    races->to_b = side_accept(&races->a);
}

static void part(races_t *races)
{
    tmsg_endpoint_destroy(races->to_a);
    tmsg_endpoint_destroy(races->to_b);
}

void races_meet(races_t *races)
{
    if (races->at_ns[0] != 0) {
        races->usual_ns =
            (races->usual_ns * 7 + now_ns() - races->begun_ns) / 8;
    }
    pthread_barrier_wait(&races->begin);
    go_through(races, false);
    pthread_barrier_wait(&races->end);
    races->step += races->slots;
    memset(races->at_ns, 0, sizeof(races->at_ns));
}

int32_t races_timeout(races_t *races, unsigned slot)
{
    uint64_t now = now_ns();
    int32_t ms = 2 + (int32_t)(races->usual_ns * 5 / 4 / 1000000);

    if (!races_have(races, races->ops->deadline)) {
        return -1;
    }
    if (slot == 0) {
        races->begun_ns = now;
    }
    ms = ms < TIMEOUT_MOST_MS ? ms : TIMEOUT_MOST_MS;
    races->at_ns[slot] = now + (uint64_t)ms * 1000000;
    return ms;
}

static tmsg_hub_t *hub_of(const side_t *side)
{
    void *start;

    must(tmsg_calls_start(side->worker, &tmsg_hub_ops, &start));
    return start;
}

/* No call has a slot, none waits for its deadline or to be told of. */
static bool has_nothing(const side_t *side)
{
    tmsg_hub_t *hub = hub_of(side);
    bool nothing;

    tmsg_hub_lock(hub);
    nothing = hub->events.count == 0 && hub->deadlines.count == 0;
    for (uint32_t i = 0; i < hub->slot_count; i++) {
        nothing = nothing && hub->slots[i].call == NULL;
    }
    tmsg_hub_unlock(hub);
    return nothing;
}

static bool is_empty(void *arg)
{
    races_t *races = arg;
    const tmsg_server_t *server = races->server;
    bool empty;

    tmsg_hub_lock(server->hub);
    empty = server->load.inside == 0 && server->load.running == 0 &&
            server->all.count == 0 && server->ready.count == 0;
    tmsg_hub_unlock(server->hub);
    return empty && has_nothing(&races->a) && has_nothing(&races->b);
}

static void serve(races_t *races)
{
    must(tmsg_server_create(races->a.worker, NULL, &races->server));
    races->ops->offer(races->arg);
}

static void unserve(races_t *races)
{
    side_await(&races->a, is_empty, races, "the end of all tasks");
    tmsg_server_destroy(races->server);
}

uint64_t races_late(races_t *races)
{
    tmsg_hub_t *hub = hub_of(&races->b);
    uint64_t late;

    tmsg_hub_lock(hub);
    late = hub->late_replies;
    tmsg_hub_unlock(hub);
    return late;
}

bool races_whole(void) { return getenv("TMSG_WHOLE") != NULL; }

bool races_have(const races_t *races, int deed)
{
    return races->deeds[0] == deed || races->deeds[1] == deed;
}

static void play_slice(races_t *races)
{
    bool drains = races_have(races, races->ops->drain);
    bool cuts = races_have(races, races->ops->disconnect);
    size_t most = cuts ? 1 : drains ? SLOTS_OF_DRAINS : RACE_SLOTS;

    races->ops->begin(races->arg);
    join(races);
    serve(races);
    for (races->from = 0; races->from < races->rounds;
         races->from += races->slots) {
        size_t left = races->rounds - races->from;

        races->slots = (unsigned)(left < most ? left : most);
        races->ops->play(races->arg);
        if (drains) {
            unserve(races);
            serve(races);
        }
        if (cuts) {
            part(races);
            join(races);
        }
    }
    side_await(&races->b, races->ops->has_all, races->arg, "what was sent");
    unserve(races);
    part(races);
    races->ops->end(races->arg);
}

static void play_pair(races_t *races, const race_pair_t *pair, uint64_t *slice,
                      uint64_t first)
{
    for (size_t left = pair->rounds; left > 0; left -= races->rounds) {
        races->deeds[0] = pair->deeds[0];
        races->deeds[1] = pair->deeds[1];
        races->rounds = left < SLICE ? left : SLICE;
        if ((*slice)++ >= first) {
            play_slice(races);
            if (races_whole()) {
                soak_keep(races->ops->name, *slice);
            }
        }
    }
}

void races_run(const races_ops_t *ops, races_t *races, void *arg,
               const race_pair_t *pairs, size_t count)
{
    uint64_t slice = 0, first = races_whole() ? soak_place(ops->name) : 0;

    races->ops = ops;
    races->arg = arg;
    open_sides(races, soak_seed() + first);
    for (size_t i = 0; i < count; i++) {
        play_pair(races, &pairs[i], &slice, first);
    }
    close_sides(races);
    if (races_whole()) {
        soak_keep(ops->name, 0);
    }
}
