/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once: what is said to it is ours, and not UCX's. */
/* Who dials a listener that breaks the rules, by its socket or by UCX, gets an
 * error in time that says who it was and what, loses nothing by it, and is
 * served by the next listener. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "am/ucx/deferred.h"
#include "am/worker/worker.h"
#include "support/forged_listener.h"
#include "support/numbered_keys.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum {
    LONG_MS = 10000, /* for what ends at once */
    SHORT_MS = 200,  /* for what ends when its time is over */
    HONEST_EACH = 8, /* the honest listener is dialled after so many others */
    SEED = 20261123
};

typedef enum { EITHER, PLAIN, KEYED } admission_t;

/* Correct beginnings of a conversation. */
#define MET SAY_MAGIC, HEAR_HELLO
#define GREETED MET, SAY_HELLO
#define PROVED GREETED, HEAR_PROOF, SAY_PROOF
#define WIRED_UP GREETED, SAY_ADDRESS, HEAR_ADDRESS
#define PROVED_AND_WIRED_UP PROVED, SAY_ADDRESS, HEAR_ADDRESS

/* What a conversation comes to; 0: whatever it may, by UCX. */
typedef struct {
    admission_t admission;
    tmsg_status_t status;
    const char *words; /* NULL: any */
    false_step_t steps[FALSE_STEPS_MOST];
} row_t;

#define ROW(admission_, status_, words_, ...)                                  \
    {                                                                          \
        .admission = (admission_), .status = (status_), .words = (words_),     \
        .steps = {                                                             \
            __VA_ARGS__                                                        \
        }                                                                      \
    }

static const row_t rows[] = {
    ROW(EITHER, TMSG_ERR_PEER_LOST, NULL, HANG_UP),
    ROW(EITHER, 0, NULL, HANG_UP_BY_RESET),
    ROW(EITHER, TMSG_ERR_PEER_LOST, NULL, SAY_MAGIC),
    ROW(EITHER, TMSG_ERR_PEER_LOST, NULL, SAY_MAGIC, SHUT_WRITING),
    ROW(EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished",
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished", SAY_MAGIC,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "does not speak tensormsg", SAY_NOISE,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "does not speak tensormsg", SAY_HELLO,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_LIMIT_EXCEEDED, "announces a frame", SAY_MAGIC,
        SAY_NOISE, AWAIT_END),
    ROW(EITHER, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 4294967295 bytes",
        SAY_MAGIC, SAY_HUGE_LENGTH, AWAIT_END),
    ROW(EITHER, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 65553 bytes", SAY_MAGIC,
        SAY_LENGTH_TOO_LONG, AWAIT_END),
    ROW(EITHER, TMSG_ERR_LIMIT_EXCEEDED, "announces a frame", SAY_MAGIC,
        SAY_MAGIC, AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "hello", SAY_MAGIC, SAY_EMPTY_HELLO,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "hello", SAY_MAGIC, SAY_ZERO_HELLO,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "unknown type 4 in the handshake", SAY_MAGIC,
        SAY_HEARTBEAT, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "unknown type 200 in the handshake",
        SAY_MAGIC, SAY_UNKNOWN_TYPE, AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "type 200 before admission", SAY_MAGIC,
        SAY_UNKNOWN_TYPE, AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, NULL, SAY_MAGIC, SAY_EACH_TYPE, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "an address out of turn", MET, SAY_ADDRESS,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "type 3 before admission", MET, SAY_ADDRESS,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "a proof out of turn", MET, SAY_PROOF,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "an end out of turn", MET, SAY_BYE,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "an end out of turn", MET, SAY_FIN,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, MET, SAY_RESUME, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, MET, SAY_RESUMED, AWAIT_END),
    ROW(EITHER, TMSG_ERR_UNSUPPORTED, "refused by the peer: for no reason", MET,
        SAY_REFUSE, AWAIT_END),
    ROW(EITHER, TMSG_ERR_UNSUPPORTED, "refused by the peer: for no reason", MET,
        SAY_REFUSE, SAY_REFUSE),
    ROW(EITHER, TMSG_ERR_REFUSED, "refused by the peer", MET, SAY_SHORT_REFUSE,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_MALFORMED, "a second hello", GREETED, SAY_HELLO,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished", GREETED,
        AWAIT_END),
    ROW(EITHER, TMSG_ERR_UNSUPPORTED, "refused by the peer: for no reason",
        GREETED, SAY_REFUSE, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "unknown type 200 in the handshake", GREETED,
        SAY_UNKNOWN_TYPE, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "a proof out of turn", GREETED, SAY_PROOF,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, GREETED, SAY_RESUME, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, GREETED, SAY_RESUMED, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "an end out of turn", GREETED, SAY_BYE,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "type 3 before admission", GREETED,
        SAY_ADDRESS, AWAIT_END),
    ROW(KEYED, TMSG_ERR_INSECURE, "has proved no key", GREETED, SAY_PROOF,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished", GREETED,
        HEAR_PROOF, AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "type 200 before admission", GREETED,
        HEAR_PROOF, SAY_UNKNOWN_TYPE, AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "a proof out of turn", PROVED, SAY_PROOF,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished", PROVED,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "a second hello", PROVED, SAY_HELLO,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "unknown type 200", PROVED, SAY_UNKNOWN_TYPE,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_CORRUPT, NULL, PROVED, SAY_NOISE, AWAIT_END),
    ROW(KEYED, TMSG_ERR_CORRUPT, "a frame of 4294967295 bytes", PROVED,
        SAY_HUGE_LENGTH, AWAIT_END),
    ROW(KEYED, TMSG_ERR_UNSUPPORTED, "refused by the peer: for no reason",
        PROVED, SAY_REFUSE, AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, "an end out of turn", PROVED, SAY_BYE,
        AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, NULL, PROVED, SAY_RESUME, AWAIT_END),
    ROW(KEYED, TMSG_ERR_MALFORMED, NULL, PROVED, SAY_RESUMED, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_PEER_LOST, "the connection broke", WIRED_UP),
    ROW(PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time", WIRED_UP,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "an address out of turn", WIRED_UP,
        SAY_ADDRESS, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, "a second hello", WIRED_UP, SAY_HELLO,
        AWAIT_END),
    ROW(PLAIN, TMSG_ERR_UNSUPPORTED, "refused by the peer: for no reason",
        WIRED_UP, SAY_REFUSE, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 4294967295 bytes", WIRED_UP,
        SAY_HUGE_LENGTH, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, WIRED_UP, SAY_RESUME, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_MALFORMED, NULL, WIRED_UP, SAY_RESUMED, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time", WIRED_UP,
        SAY_UNKNOWN_TYPE, AWAIT_END),
    ROW(PLAIN, 0, NULL, WIRED_UP, SAY_BYE, SAY_HEARTBEAT, AWAIT_END),
    ROW(PLAIN, 0, NULL, WIRED_UP, SAY_FIN, SAY_HEARTBEAT, AWAIT_END),
    ROW(PLAIN, 0, NULL, WIRED_UP, SAY_BYE, SAY_FIN, AWAIT_END),
    ROW(KEYED, TMSG_ERR_PEER_LOST, "the connection broke", PROVED_AND_WIRED_UP),
    ROW(KEYED, TMSG_ERR_MALFORMED, "an address out of turn",
        PROVED_AND_WIRED_UP, SAY_ADDRESS, AWAIT_END),
    ROW(KEYED, 0, NULL, PROVED_AND_WIRED_UP, SAY_BYE, SAY_FIN, AWAIT_END),
    /* By UCX: before it was told, before there is an endpoint, twice. */
    ROW(EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished", SAY_MAGIC,
        POST_CONNECT_REPLY, HEAR_HELLO, POST_CONNECT_REPLY, SAY_HELLO,
        POST_CONNECT_REPLY, AWAIT_END),
    ROW(KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished", PROVED,
        POST_CONNECT_REPLY, AWAIT_END),
    ROW(EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished", MET,
        POST_WIREUP_REPLY, POST_EACH_KIND, SAY_HELLO, POST_WIREUP_REPLY,
        POST_EACH_KIND, AWAIT_END),
    ROW(PLAIN, 0, NULL, GREETED, SAY_DEAD_ADDRESS, HEAR_ADDRESS,
        POST_CONNECT_REPLY, POST_CONNECT_REPLY, POST_EACH_KIND, AWAIT_END),
    ROW(KEYED, 0, NULL, PROVED, SAY_DEAD_ADDRESS, HEAR_ADDRESS,
        POST_CONNECT_REPLY, POST_CONNECT_REPLY, POST_EACH_KIND, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time", WIRED_UP,
        POST_CONNECT_REPLY, AWAIT_END),
    ROW(KEYED, TMSG_ERR_TIMED_OUT, "no answer by UCX in time",
        PROVED_AND_WIRED_UP, POST_CONNECT_REPLY, POST_CONNECT_REPLY, AWAIT_END),
    ROW(PLAIN, TMSG_ERR_PEER_LOST, "the connection broke", WIRED_UP,
        POST_CONNECT_REPLY),
    ROW(PLAIN, 0, NULL, WIRED_UP, POST_WIREUP_REPLY, AWAIT_END),
    ROW(PLAIN, 0, NULL, WIRED_UP, POST_CONNECT_REPLY, POST_WIREUP_REPLY,
        POST_WIREUP_REPLY, AWAIT_END),
    ROW(KEYED, 0, NULL, PROVED_AND_WIRED_UP, POST_CONNECT_REPLY,
        POST_WIREUP_REPLY, POST_WIREUP_REPLY, AWAIT_END),
    ROW(PLAIN, 0, NULL, WIRED_UP, POST_EACH_KIND, AWAIT_END),
    ROW(KEYED, 0, NULL, PROVED_AND_WIRED_UP, POST_CONNECT_REPLY, POST_EACH_KIND,
        AWAIT_END),
};

/* Two processes, of which this one dials. */
typedef struct {
    false_host_t *host;
    side_t side;
    bool keyed;
    unsigned dialled;
    int descriptors;
} scene_t;

/* How many connections, all of the same host, are told to be left behind. */
static atomic_uint left_behind;

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    const char *count = strrchr(line, '(');
    unsigned several;

    (void)arg;
    (void)level;
    if (strstr(line, "left behind") != NULL) {
        left_behind +=
            count != NULL && sscanf(count, "(%u connections)", &several) == 1
                ? several
                : 1;
    }
}

static void open_scene(scene_t *scene, false_host_t *host)
{
    side_options_t options = {.ucx_config = link_config(host->link)};

    *scene = (scene_t){
        .host = host, .keyed = host->keyed, .descriptors = count_descriptors()};
    left_behind = 0;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    options.keyring = host->keyed ? ring("server", 1) : NULL;
    side_open(&scene->side, &options);
    tmsg_keyring_destroy(options.keyring);
    false_host_meet(host);
}

/* Nothing is left of those that broke the rules, unless one of them was too
 * slow to hang up: then it may still write to shared memory (ucx/linger.h). */
static void close_scene(scene_t *scene)
{
    false_host_honest(scene->host, &scene->side);
    side_close(&scene->side);
    for (int i = 0; left_behind == 0 && i < PEERS_BOUND_MS &&
                    count_descriptors() > scene->descriptors;
         i++) {
        poll(NULL, 0, 1);
    }
    if (left_behind == 0) {
        must_eq(count_descriptors(), scene->descriptors);
    }
    false_host_end(scene->host);
}

static tmsg_status_t dial(scene_t *scene, const false_talk_t *talk,
                          int timeout_ms, char *words, size_t bytes)
{
    tmsg_status_t status = false_host_dial(scene->host, &scene->side, talk,
                                           timeout_ms, words, bytes);

    if (++scene->dialled % HONEST_EACH == 0) {
        false_host_honest(scene->host, &scene->side);
    }
    return status;
}

static void expect(scene_t *scene, const row_t *row)
{
    const false_talk_t talk = {.steps = row->steps, .cut = -1};
    bool waits = row->status == TMSG_ERR_TIMED_OUT || row->status == 0;
    char words[512];
    tmsg_status_t status =
        dial(scene, &talk, waits ? SHORT_MS : LONG_MS, words, sizeof(words));

    if (row->status != 0 && status != row->status) {
        die("%s: %s (%s)", false_steps_text(row->steps),
            tmsg_status_name(status), words);
    }
    if (row->words != NULL && strstr(words, row->words) == NULL) {
        die("%s: not '%s' in '%s'", false_steps_text(row->steps), row->words,
            words);
    }
}

/* The first conversation tells the false one where this side's UCX is. With
 * TCP and with shared memory, without a key and with one; all children are made
 * before UCX is here. */
static void run(void (*body)(scene_t *scene))
{
    static const row_t firsts[2] = {
        ROW(PLAIN, TMSG_ERR_PEER_LOST, NULL, WIRED_UP),
        ROW(KEYED, TMSG_ERR_PEER_LOST, NULL, PROVED_AND_WIRED_UP)};
    static false_host_t hosts[4];
    scene_t scene;

    for (size_t i = 0; i < COUNT(hosts); i++) {
        if (is_due(i)) {
            false_host_start(&hosts[i], i / 2 == 0 ? LINK_TCP : LINK_UNIX,
                             i % 2 == 1);
        }
    }
    for (size_t i = 0; i < COUNT(hosts); i++) {
        if (is_due(i)) {
            open_scene(&scene, &hosts[i]);
            expect(&scene, &firsts[scene.keyed]);
            body(&scene);
            close_scene(&scene);
        }
    }
}

static void expect_rows(scene_t *scene)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (rows[i].admission == EITHER ||
            (rows[i].admission == KEYED) == scene->keyed) {
            expect(scene, &rows[i]);
        }
    }
}

Test(hostile_listener, breaks_the_rules) { run(expect_rows); }

/* About where a frame begins or ends, and some of what is between. */
static void expect_cuts(scene_t *scene)
{
    static const false_step_t steps[2][FALSE_STEPS_MOST] = {
        {WIRED_UP, AWAIT_END}, {PROVED_AND_WIRED_UP, AWAIT_END}};
    false_talk_t talk = {.steps = steps[scene->keyed]};
    tmsg_status_t status = TMSG_ERR_PEER_LOST;
    char words[512];

    while (status == TMSG_ERR_PEER_LOST) {
        status = dial(scene, &talk, 2000, words, sizeof(words));
        talk.cut += talk.cut < 32 ? 1 : whole_run() ? 5 : 37;
        must_true(talk.cut < 4000);
    }
    must_be(status, TMSG_ERR_TIMED_OUT); /* it said all of it */
    must_true(talk.cut > 300);
}

Test(hostile_listener, hangs_up_at_any_byte) { run(expect_cuts); }

/* What it does first is right, and what follows is not. */
static void make_steps(uint64_t *state, bool keyed, false_step_t *steps)
{
    static const false_step_t right[2][FALSE_STEPS_MOST] = {
        {WIRED_UP, POST_CONNECT_REPLY},
        {PROVED_AND_WIRED_UP, POST_CONNECT_REPLY}};
    static const false_step_t wrong[] = {
        SAY_MAGIC,           SAY_HELLO,        SAY_PROOF,
        SAY_ADDRESS,         SAY_DEAD_ADDRESS, POST_CONNECT_REPLY,
        POST_WIREUP_REPLY,   POST_EACH_KIND,   SAY_NOISE,
        SAY_EMPTY_HELLO,     SAY_ZERO_HELLO,   SAY_HUGE_LENGTH,
        SAY_LENGTH_TOO_LONG, SAY_UNKNOWN_TYPE, SAY_EACH_TYPE,
        SAY_REFUSE,          SAY_SHORT_REFUSE, SAY_RESUME,
        SAY_RESUMED,         SAY_BYE,          SAY_FIN,
        SAY_HEARTBEAT,       SHUT_WRITING,     HEAR_HELLO,
        HEAR_ADDRESS};
    size_t most = keyed ? 8 : 6;
    size_t kept = sample_random(state) % (most + 1);
    size_t more = 1 + sample_random(state) % 5;

    must_true(right[keyed][most - 1] == POST_CONNECT_REPLY);
    memcpy(steps, right[keyed], kept * sizeof(steps[0]));
    for (size_t i = 0; i < more; i++) {
        steps[kept + i] = wrong[sample_random(state) % COUNT(wrong)];
    }
    steps[kept + more] = HANG_UP;
}

static void expect_any(scene_t *scene)
{
    uint64_t state = SEED + scene->keyed;
    unsigned count = whole_run() ? 200 : 40;
    false_step_t steps[FALSE_STEPS_MOST];
    char words[512];
    const false_talk_t talk = {.steps = steps, .cut = -1};

    for (unsigned i = 0; i < count; i++) {
        make_steps(&state, scene->keyed, steps);
        dial(scene, &talk, SHORT_MS, words, sizeof(words));
    }
}

Test(hostile_listener, says_things_in_any_order) { run(expect_any); }

/* A conversation as it should be, but for a frame or two. */
static void expect_changed(scene_t *scene)
{
    static const false_step_t steps[2][FALSE_STEPS_MOST] = {
        {WIRED_UP, POST_CONNECT_REPLY, SAY_HEARTBEAT},
        {PROVED_AND_WIRED_UP, POST_CONNECT_REPLY, SAY_HEARTBEAT}};
    false_talk_t talk = {.steps = steps[scene->keyed], .cut = -1, .one_in = 4};
    unsigned count = whole_run() ? 150 : 50;
    char words[512];

    for (unsigned i = 0; i < count; i++) {
        talk.seed = SEED + i;
        dial(scene, &talk, SHORT_MS, words, sizeof(words));
    }
}

Test(hostile_listener, changes_what_it_says) { run(expect_changed); }

enum {
    DIALS = 100,
    KEPT_UCX = 16, /* at most, that wait for peers to hang up; deferred.c */
    KEPT_PEERS = 64,
    DESCRIPTORS_EACH = 24, /* more than a UCX worker takes */
    KEPT_YOUNG = 4,        /* whose peers have time left to hang up */
    KEPT_MOST = (KEPT_UCX + KEPT_YOUNG) * DESCRIPTORS_EACH + KEPT_PEERS,
    HASTE_MS = 40 /* for a handshake that is not to be finished */
};

/* Dials once more, and dies where too many descriptors are open. True: it was
 * told that shared memory is given to nobody now. */
static bool dial_stubborn(scene_t *scene, const false_step_t *steps,
                          int timeout_ms, tmsg_status_t status)
{
    const false_talk_t talk = {.steps = steps, .cut = -1};
    char words[512];
    tmsg_status_t got = false_host_dial(scene->host, &scene->side, &talk,
                                        timeout_ms, words, sizeof(words));

    if (got == TMSG_ERR_LIMIT_EXCEEDED && scene->host->link == LINK_UNIX) {
        must_say(words, "have not hung up");
    } else if (got == TMSG_ERR_MALFORMED && scene->host->link == LINK_SHM) {
        /* It is another host's then, and tells of shared memory all the same.
         */
        must_say(words, "not to be shared");
    } else if (got != status) {
        die("%s: %s (%s)", false_steps_text(steps), tmsg_status_name(got),
            words);
    }
    must_true(count_descriptors() - scene->descriptors < KEPT_MOST);
    return got == TMSG_ERR_LIMIT_EXCEEDED;
}

static bool may_share(void *arg)
{
    const scene_t *scene = arg;

    return !tmsg_deferred_is_full(scene->side.worker->ucx);
}

/* Nothing is left. */
static void close_whole(scene_t *scene)
{
    false_host_honest(scene->host, &scene->side);
    side_close(&scene->side);
    await_descriptors(scene->descriptors);
    false_host_end(scene->host);
}

/* Once it has hung up on all, shared memory is given again. */
static void relent(scene_t *scene)
{
    static const false_step_t steps[] = {HANG_UP_ON_KEPT, HANG_UP};

    dial_stubborn(scene, steps, LONG_MS, TMSG_ERR_PEER_LOST);
    side_await(&scene->side, may_share, scene, "peers that have hung up");
    close_whole(scene);
}

static const false_step_t keeps_and_refuses[] = {WIRED_UP, KEEP_CONNECTION,
                                                 SAY_PEER_LOST, HANG_UP};
static const false_step_t keeps_and_waits[] = {WIRED_UP, KEEP_CONNECTION,
                                               AWAIT_END, HANG_UP};

/* A redial loop, of what ends as `status`. */
static void redial(link_t link, const false_step_t *steps, int timeout_ms,
                   tmsg_status_t status)
{
    static false_host_t host;
    unsigned refused = 0;
    scene_t scene;

    false_host_start(&host, link, false);
    open_scene(&scene, &host);
    for (int i = 0; i < DIALS || (link != LINK_TCP && may_share(&scene)); i++) {
        must_true(i < 4 * DIALS);
        refused += dial_stubborn(&scene, steps, timeout_ms, status);
    }
    must_eq(refused > 0, link == LINK_UNIX);
    if (link == LINK_TCP) {
        must_eq(left_behind, 0);
        must_true(may_share(&scene));
        close_whole(&scene);
        must_eq(left_behind, 0);
    } else {
        relent(&scene);
    }
}

/* Who says why it ends and stays has had the whole address. */
Test(hostile_listener, does_not_hang_up_by_tcp)
{
    redial(LINK_TCP, keeps_and_refuses, LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_hang_up_by_shm)
{
    redial(LINK_SHM, keeps_and_refuses, LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_hang_up_by_unix)
{
    redial(LINK_UNIX, keeps_and_refuses, LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_answer_nor_hang_up_by_tcp)
{
    redial(LINK_TCP, keeps_and_waits, HASTE_MS, TMSG_ERR_TIMED_OUT);
}

Test(hostile_listener, does_not_answer_nor_hang_up_by_shm)
{
    redial(LINK_SHM, keeps_and_waits, HASTE_MS, TMSG_ERR_TIMED_OUT);
}

static bool are_told(void *arg)
{
    (void)arg;
    return left_behind >= KEPT_UCX;
}

/* A worker of its own for each dial leaves as little. */
Test(hostile_listener, does_not_hang_up_on_any_worker)
{
    static false_host_t host;
    scene_t scene, next;
    unsigned refused = 0;

    false_host_start(&host, LINK_UNIX, false);
    open_scene(&scene, &host);
    for (unsigned i = 0; refused < 4; i++) {
        must_true(i < DIALS);
        next = scene;
        side_open(&next.side, NULL);
        refused +=
            dial_stubborn(&next, keeps_and_waits, SHORT_MS, TMSG_ERR_TIMED_OUT);
        side_close(&next.side);
    }
    side_await(&scene.side, are_told, NULL, "the log");
    must_true(left_behind < KEPT_UCX + KEPT_YOUNG);
    relent(&scene);
}
