/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of one call at the same time, every pair of them: its answer, a
 * cancel, its deadline, the end of the server, the end of the connection. Each
 * call ends once and as one of the two said, each handler that kept its task
 * has answered it or learns why no answer is wanted, each reply was waited for
 * or counted as late, and nothing is left behind. */
#include <stdio.h>
#include <stdlib.h>

#include "support/paired_races.h"
#include "support/seeded_maps.h"

enum { REPLY, CANCEL, DEADLINE, DRAIN, DISCONNECT, ENDS };

static const char *const names[ENDS] = {"reply", "cancel", "deadline", "drain",
                                        "disconnect"};
static const tmsg_status_t statuses[ENDS] = {
    TMSG_OK, TMSG_ERR_CANCELED, TMSG_ERR_TIMED_OUT, TMSG_ERR_UNAVAILABLE,
    TMSG_ERR_PEER_LOST};

typedef struct {
    tmsg_task_t *task;
    tmsg_call_t *call;
    atomic_int state, why; /* the latter: what its handler was told */
    atomic_uint ends, overs, answers, releases;
} round_t;

/* What came of the rounds of a slice. */
typedef struct {
    unsigned long ends[ENDS];    /* of calls, by what ended them */
    unsigned long answers, told; /* of handlers */
    unsigned long turned_out;    /* told that the server is drained */
    unsigned long late;          /* replies */
} tally_t;

typedef struct {
    races_t races;
    round_t *rounds;      /* of the slice */
    atomic_ulong useless; /* answers to what was over at its caller */
    uint64_t late;        /* replies, before the slice */
    tally_t tally;
} scene_t;

static void on_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    round_t *round = arg;

    must_be(tmsg_task_status(task), status);
    atomic_store(&round->why, status);
    atomic_fetch_add(&round->overs, 1);
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    round_t *round;
    int64_t index;
    int open = RACE_OPEN;

    must(tmsg_map_get_i64(tmsg_task_map(task), "round", &index));
    round = &scene->rounds[index];
    tmsg_task_on_over(task, on_over, round);
    round->task = tmsg_task_keep(task);
    if (!atomic_compare_exchange_strong(&round->state, &open, RACE_TAKEN)) {
        if (tmsg_task_reply(task, NULL, NULL) == TMSG_OK) {
            atomic_fetch_add(&scene->useless, 1);
        }
        tmsg_task_destroy(task); /* it is over at its caller */
    }
}

static void on_done(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    atomic_fetch_add(&((round_t *)arg)->ends, 1);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((round_t *)arg)->releases, 1);
}

static round_t *round_of(const scene_t *scene, unsigned slot)
{
    return &scene->rounds[scene->races.from + slot];
}

static bool is_taken(round_t *round)
{
    return atomic_load(&round->state) == RACE_TAKEN;
}

/* What ends all of them is done to the first. */
static void act(void *arg, unsigned slot, int end, bool second)
{
    scene_t *scene = arg;
    round_t *round = round_of(scene, slot);

    (void)second;
    if (end == REPLY && is_taken(round)) {
        if (tmsg_task_reply(round->task, tmsg_task_map(round->task), NULL) ==
            TMSG_OK) {
            atomic_fetch_add(&round->answers, 1);
        }
    } else if (end == CANCEL) {
        tmsg_call_cancel(round->call);
    } else if (end == DRAIN && slot == 0) {
        (void)tmsg_server_drain(scene->races.server, 0);
    } else if (end == DISCONNECT && slot == 0) {
        must(tmsg_endpoint_abort(scene->races.to_b, TMSG_ERR_PEER_LOST, "so"));
    }
}

static bool has_ended(const round_t *round)
{
    return atomic_load(&round->ends) > 0 && atomic_load(&round->releases) > 0;
}

static bool have_tasks(void *arg)
{
    scene_t *scene = arg;
    bool all = true;

    for (unsigned i = 0; i < scene->races.slots; i++) {
        round_t *round = round_of(scene, i);

        all = all && (is_taken(round) || has_ended(round));
    }
    return all;
}

/* An answer may find that the connection is gone, which its handler hears. */
static bool is_over(round_t *round)
{
    return atomic_load(&round->overs) > 0 ||
           tmsg_task_status(round->task) == TMSG_ERR_ALREADY_EXISTS;
}

static bool are_over(void *arg)
{
    scene_t *scene = arg;
    bool all = true;

    for (unsigned i = 0; i < scene->races.slots; i++) {
        round_t *round = round_of(scene, i);

        all = all && has_ended(round) && (!is_taken(round) || is_over(round));
    }
    return all;
}

static void call(scene_t *scene, unsigned slot, int32_t timeout_ms)
{
    round_t *round = round_of(scene, slot);
    int64_t index = round - scene->rounds;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT |
                                                     TMSG_CALL_PARAM_ON_DONE |
                                                     TMSG_CALL_PARAM_ON_RELEASE,
                                       .timeout_ms = timeout_ms,
                                       .on_done = on_done,
                                       .on_done_arg = round,
                                       .on_release = on_release,
                                       .on_release_arg = round};
    tmsg_map_t *map =
        sample_bytes((uint64_t)index, index % 5 == 0 ? 50000 : 100);

    must(tmsg_map_set_i64(map, "round", index));
    must(tmsg_endpoint_call(scene->races.to_a, "keep", map, &params,
                            &round->call));
    tmsg_map_destroy(map);
}

/* The end of a round, whose numbers are final. */
static void settle(scene_t *scene, round_t *round)
{
    const races_t *races = &scene->races;
    tmsg_status_t status = tmsg_call_status(round->call);
    bool cut = races_have(races, DISCONNECT);
    int end = races->deeds[status != statuses[races->deeds[0]]];
    tally_t *tally = &scene->tally;

    must_true(status == statuses[end] || cut);
    tally->ends[end]++;
    if (is_taken(round)) {
        must_true(tmsg_task_reply(round->task, NULL, NULL) != TMSG_OK);
        tally->turned_out += atomic_load(&round->why) == TMSG_ERR_UNAVAILABLE;
        tmsg_task_destroy(round->task);
        must_true(round->answers + round->overs == 1 ||
                  (cut && round->answers + round->overs == 0));
    }
    tally->answers += round->answers;
    tally->told += round->overs;
    tmsg_call_destroy(round->call);
}

static void play(void *arg)
{
    scene_t *scene = arg;
    races_t *races = &scene->races;

    for (unsigned i = 0; i < races->slots; i++) {
        call(scene, i, races_timeout(races, i));
    }
    side_await(&races->b, have_tasks, scene, "the tasks");
    for (unsigned i = 0; i < races->slots; i++) {
        int open = RACE_OPEN;

        atomic_compare_exchange_strong(&round_of(scene, i)->state, &open,
                                       RACE_SHUT);
    }
    races_meet(races);
    side_await(&races->b, are_over, scene, "the end of all calls");
    for (unsigned i = 0; i < races->slots; i++) {
        settle(scene, round_of(scene, i));
    }
}

static void offer(void *arg)
{
    scene_t *scene = arg;

    must(tmsg_server_register(scene->races.server, "keep", keep, scene, NULL));
}

static void begin(void *arg)
{
    scene_t *scene = arg;

    scene->tally = (tally_t){.late = 0};
    scene->late = races_late(&scene->races);
    atomic_store(&scene->useless, 0);
    scene->rounds = calloc(scene->races.rounds, sizeof(*scene->rounds));
}

/* Whether each reply that was sent has come: it ended its call, or was late.
 * Those of a connection that is gone are lost; and of a task that waits for its
 * turn when the server is drained nobody here is told. */
static bool has_all_replies(void *arg)
{
    scene_t *scene = arg;
    races_t *races = &scene->races;
    tally_t *tally = &scene->tally;
    unsigned long sent =
        tally->answers + tally->turned_out + atomic_load(&scene->useless);
    unsigned long used = tally->ends[REPLY] + tally->ends[DRAIN];

    tally->late = races_late(races) - scene->late;
    if (races_have(races, DISCONNECT) ||
        (races_have(races, DEADLINE) && races_have(races, DRAIN))) {
        return true;
    }
    if (races_have(races, DEADLINE)) {
        /* A server answers itself for a task whose turn has not come in time,
         * and such an answer may be late as well. */
        return used + tally->late >= sent;
    }
    return used + tally->late == sent;
}

static void end(void *arg)
{
    scene_t *scene = arg;
    const races_t *races = &scene->races;
    const tally_t *tally = &scene->tally;
    int first = races->deeds[0], second = races->deeds[1];

    for (size_t i = 0; i < races->rounds; i++) {
        must_eq(scene->rounds[i].ends, 1);
        must_eq(scene->rounds[i].releases, 1);
    }
    fprintf(stderr,
            "%s and %s: %zu rounds, %lu ended by %s, %lu by %s, %lu answers "
            "taken, %lu handlers told, %lu replies late\n",
            names[first], names[second], races->rounds, tally->ends[first],
            names[first], tally->ends[second], names[second], tally->answers,
            tally->told, tally->late);
    free(scene->rounds);
}

int main(void)
{
    static const races_ops_t ops = {.name = "calls",
                                    .offer = offer,
                                    .begin = begin,
                                    .play = play,
                                    .act = act,
                                    .has_all = has_all_replies,
                                    .end = end,
                                    .deadline = DEADLINE,
                                    .drain = DRAIN,
                                    .disconnect = DISCONNECT};
    race_pair_t pairs[ENDS * ENDS];
    size_t count = 0, many = races_whole() ? 100000 : 1000;
    scene_t scene = {.rounds = NULL};

    for (int first = REPLY; first < ENDS; first++) {
        for (int second = first + 1; second < ENDS; second++) {
            pairs[count++] = (race_pair_t){
                {first, second}, second == DISCONNECT ? many / 100 : many};
        }
    }
    races_run(&ops, &scene.races, &scene, pairs, count);
    return 0;
}
