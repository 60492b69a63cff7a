/* SPDX-License-Identifier: BSD-3-Clause */
/* Two things done to one stream at the same time, every pair of them: a send
 * and a read on both sides, a server that finishes, or ends it, a cancel of
 * either, its deadline, the end of the server, the end of the connection. Each
 * stream is over once on each side, as the one said that was first, and nothing
 * is left behind. */
#include <stdio.h>
#include <stdlib.h>

#include "support/paired_races.h"
#include "support/seeded_maps.h"

typedef enum {
    SEND,
    FINISH,
    RECV,
    END,
    CANCEL,
    REFUSE, /* a cancel of the server's */
    DEADLINE,
    DRAIN,
    DISCONNECT,
    DEEDS
} deed_t;

static const char *const names[] = {"send",     "finish", "recv",
                                    "end",      "cancel", "refuse",
                                    "deadline", "drain",  "disconnect"};

typedef struct {
    tmsg_call_stream_t *here, *there;
    atomic_int state;
    atomic_uint ends, overs, ended, sends, releases, finishes, wins;
    atomic_int won; /* the status of the end that was */
} round_t;

/* What came of the rounds of a slice. */
typedef struct {
    unsigned long overs, ended, ok, canceled, timed_out, unavailable, other;
} tally_t;

typedef struct {
    races_t races;
    round_t *rounds; /* of the slice */
    tally_t tally;
} scene_t;

static round_t *round_of(const scene_t *scene, unsigned slot)
{
    return &scene->rounds[scene->races.from + slot];
}

static void on_over(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    must_be(tmsg_call_stream_status(stream), status);
    atomic_fetch_add(&((round_t *)arg)->overs, 1);
}

static void on_end(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    must_be(tmsg_call_stream_status(stream), status);
    atomic_fetch_add(&((round_t *)arg)->ends, 1);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((round_t *)arg)->releases, 1);
}

static bool send_one(round_t *round, tmsg_call_stream_t *stream)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = TMSG_SEND_TRY,
                                       .on_release = on_release,
                                       .on_release_arg = round};
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_status_t status = tmsg_call_stream_send(stream, map, &params, NULL);

    tmsg_map_destroy(map);
    if (status == TMSG_OK) {
        atomic_fetch_add(&round->sends, 1);
    }
    return status == TMSG_OK;
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;
    tmsg_call_stream_events_t events = {
        .field_mask = TMSG_CALL_STREAM_EVENT_OVER, .on_over = on_over};
    round_t *round;
    int64_t index;
    int open = RACE_OPEN;

    must(tmsg_map_get_i64(tmsg_call_stream_map(stream), "round", &index));
    round = &scene->rounds[index];
    events.arg = round;
    must(tmsg_call_stream_set_events(stream, &events));
    round->there = tmsg_call_stream_keep(stream);
    (void)send_one(round, stream);
    if (!atomic_compare_exchange_strong(&round->state, &open, RACE_TAKEN)) {
        tmsg_call_stream_destroy(stream); /* it is over at its opener */
    }
}

static void recv_one(tmsg_call_stream_t *stream)
{
    tmsg_message_t *message = NULL;

    if (tmsg_call_stream_try_recv(stream, &message) == TMSG_OK &&
        message != NULL) {
        sample_check_bytes(1, 100, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void end_it(round_t *round, tmsg_status_t with)
{
    tmsg_status_t status =
        tmsg_call_stream_end(round->there, with, 0, NULL, NULL);

    if (status != TMSG_ERR_ALREADY_EXISTS) {
        atomic_fetch_add(&round->ended, 1);
    }
    if (status == TMSG_OK) {
        atomic_store(&round->won, with);
        atomic_fetch_add(&round->wins, 1);
    }
}

/* `with`: what it is ended with. */
static void act_on(scene_t *scene, unsigned slot, int deed, tmsg_status_t with)
{
    round_t *round = round_of(scene, slot);

    switch (deed) {
    case SEND:
        (void)send_one(round, round->here);
        (void)send_one(round, round->there);
        break;
    case FINISH:
        if (tmsg_call_stream_finish(round->there) == TMSG_OK) {
            atomic_fetch_add(&round->finishes, 1);
        }
        break;
    case RECV:
        recv_one(round->here);
        recv_one(round->there);
        break;
    case END:
        end_it(round, with);
        break;
    case CANCEL:
        tmsg_call_stream_cancel(round->here);
        break;
    case REFUSE:
        tmsg_call_stream_cancel(round->there);
        break;
    case DRAIN:
        (void)tmsg_server_drain(scene->races.server, 0);
        break;
    case DISCONNECT:
        must(tmsg_endpoint_abort(scene->races.to_b, TMSG_ERR_PEER_LOST, "so"));
        break;
    default:
        break; /* comes by itself */
    }
}

static bool is_taken(round_t *round)
{
    return atomic_load(&round->state) == RACE_TAKEN;
}

static void act(void *arg, unsigned slot, int deed, bool second)
{
    scene_t *scene = arg;

    if (slot > 0 && (deed == DRAIN || deed == DISCONNECT)) {
        return; /* it was done to all */
    }
    if (is_taken(round_of(scene, slot))) {
        act_on(scene, slot, deed, second ? TMSG_ERR_APPLICATION : TMSG_OK);
    }
}

static bool has_ended(round_t *round) { return atomic_load(&round->ends) > 0; }

static bool is_over(round_t *round)
{
    return !is_taken(round) ||
           tmsg_call_stream_status(round->there) != TMSG_IN_PROGRESS;
}

static bool is_free(round_t *round)
{
    return atomic_load(&round->releases) == atomic_load(&round->sends);
}

static bool is_there(round_t *round)
{
    return is_taken(round) || has_ended(round);
}

static bool of_all(const scene_t *scene, bool (*is)(round_t *round))
{
    bool all = true;

    for (unsigned i = 0; i < scene->races.slots; i++) {
        all = all && is(round_of(scene, i));
    }
    return all;
}

static bool are_there(void *arg) { return of_all(arg, is_there); }
static bool are_over(void *arg) { return of_all(arg, is_over); }
static bool have_ended(void *arg) { return of_all(arg, has_ended); }

static bool are_free(void *arg)
{
    scene_t *scene = arg;
    const tmsg_server_t *server = scene->races.server;
    bool empty;

    tmsg_hub_lock(server->hub);
    empty = server->load.inside == 0 && server->load.running == 0;
    tmsg_hub_unlock(server->hub);
    return empty && of_all(scene, is_free);
}

static void open_one(scene_t *scene, unsigned slot, int32_t timeout_ms)
{
    round_t *round = round_of(scene, slot);
    int64_t index = round - scene->rounds;
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = timeout_ms};
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = on_end,
                                              .arg = round};
    tmsg_map_t *map = sample_bytes((uint64_t)index, 100);

    must(tmsg_map_set_i64(map, "round", index));
    must(tmsg_endpoint_open_stream(scene->races.to_a, "keep", map, &params,
                                   &round->here));
    tmsg_map_destroy(map);
    must(tmsg_call_stream_set_events(round->here, &events));
    (void)send_one(round, round->here);
}

static void open_all(scene_t *scene)
{
    races_t *races = &scene->races;

    for (unsigned i = 0; i < races->slots; i++) {
        open_one(scene, i, races_timeout(races, i));
    }
    side_await(&races->b, are_there, scene, "the streams");
    for (unsigned i = 0; i < races->slots; i++) {
        int open = RACE_OPEN;

        atomic_compare_exchange_strong(&round_of(scene, i)->state, &open,
                                       RACE_SHUT);
    }
}

static bool finishes_twice(const scene_t *scene)
{
    return scene->races.deeds[0] == FINISH && scene->races.deeds[1] == FINISH;
}

/* Of one that its server had. */
static void settle_there(const scene_t *scene, round_t *round)
{
    must_true(round->wins <= 1);
    if (round->wins > 0) {
        must_be(tmsg_call_stream_status(round->there), round->won);
    }
    must_true(tmsg_call_stream_end(round->there, TMSG_OK, 0, NULL, NULL) !=
              TMSG_OK);
    must_true(!finishes_twice(scene) || round->finishes <= 1);
    tmsg_call_stream_destroy(round->there);
}

static void count(tally_t *tally, tmsg_status_t status)
{
    switch (status) {
    case TMSG_OK:
        tally->ok++;
        break;
    case TMSG_ERR_CANCELED:
        tally->canceled++;
        break;
    case TMSG_ERR_TIMED_OUT:
        tally->timed_out++;
        break;
    case TMSG_ERR_UNAVAILABLE:
        tally->unavailable++;
        break;
    default:
        tally->other++;
    }
}

/* Both deeds at once, and then the end of what goes on yet. */
static void play(void *arg)
{
    scene_t *scene = arg;
    races_t *races = &scene->races;

    open_all(scene);
    races_meet(races);
    for (unsigned i = 0; i < races->slots && races->deeds[1] <= RECV; i++) {
        round_t *round = round_of(scene, i);

        must_true(!finishes_twice(scene) || !send_one(round, round->there));
        act_on(scene, i, END, TMSG_OK);
    }
    side_await(&races->a, are_over, scene, "the end at the server");
    for (unsigned i = 0; i < races->slots; i++) {
        if (is_taken(round_of(scene, i))) {
            settle_there(scene, round_of(scene, i));
        }
    }
    side_await(&races->b, have_ended, scene, "the end of the streams");
    for (unsigned i = 0; i < races->slots; i++) {
        count(&scene->tally, tmsg_call_stream_status(round_of(scene, i)->here));
        tmsg_call_stream_destroy(round_of(scene, i)->here);
    }
    side_await(&races->a, are_free, scene, "nothing of them to be left");
}

static void offer(void *arg)
{
    scene_t *scene = arg;

    must(tmsg_server_register_stream(scene->races.server, "keep", keep, scene,
                                     NULL));
}

static void begin(void *arg)
{
    scene_t *scene = arg;

    scene->tally = (tally_t){.ok = 0};
    scene->rounds = calloc(scene->races.rounds, sizeof(*scene->rounds));
}

static bool has_all(void *arg)
{
    (void)arg;
    return true; /* each batch saw to it */
}

static void end(void *arg)
{
    scene_t *scene = arg;
    const races_t *races = &scene->races;
    tally_t *tally = &scene->tally;

    for (size_t i = 0; i < races->rounds; i++) {
        must_eq(scene->rounds[i].ends, 1);
        must_true(scene->rounds[i].overs <= 1);
        tally->overs += scene->rounds[i].overs;
        tally->ended += scene->rounds[i].ended;
    }
    fprintf(stderr,
            "%s and %s: %zu rounds, %lu OK, %lu canceled, %lu timed out, %lu "
            "unavailable, %lu otherwise; %lu ended, %lu servers told\n",
            names[races->deeds[0]], names[races->deeds[1]], races->rounds,
            tally->ok, tally->canceled, tally->timed_out, tally->unavailable,
            tally->other, tally->ended, tally->overs);
    free(scene->rounds);
}

/* Ends are raced as calls' are, other pairs a twentieth as often. */
static size_t rounds_of(int first, int second)
{
    size_t rounds = races_whole() ? 100000 : 1000;

    if (first < END || first == REFUSE || first == second || second == REFUSE) {
        rounds /= 20;
    }
    if (second == DISCONNECT) {
        rounds = rounds < 100 ? 1 : rounds / 100;
    }
    return rounds;
}

int main(void)
{
    static const races_ops_t ops = {.name = "streams",
                                    .offer = offer,
                                    .begin = begin,
                                    .play = play,
                                    .act = act,
                                    .has_all = has_all,
                                    .end = end,
                                    .deadline = DEADLINE,
                                    .drain = DRAIN,
                                    .disconnect = DISCONNECT};
    race_pair_t pairs[DEEDS * DEEDS];
    size_t pair_count = 0;
    scene_t scene = {.rounds = NULL};

    for (int first = SEND; first < DEEDS; first++) {
        for (int second = first + (first > END); second < DEEDS; second++) {
            pairs[pair_count++] =
                (race_pair_t){{first, second}, rounds_of(first, second)};
        }
    }
    races_run(&ops, &scene.races, &scene, pairs, pair_count);
    return 0;
}
