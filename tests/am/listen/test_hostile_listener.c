/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once: what is said to it is ours, and not UCX's. */
/* Who dials a listener that breaks the rules, by its socket or by UCX, gets an
 * error in time that says who it was and what, loses nothing by it, and is
 * served by the next listener. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/ucx/park.h"
#include "am/worker/worker.h"
#include "support/false_host.h"
#include "support/keys.h"
#include "support/sample.h"
#include "support/whole.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum {
    LONG_MS = 10000, /* for what ends at once */
    SHORT_MS = 200,  /* for what ends when its time is over */
    HONEST_EACH = 8, /* the honest listener is dialled after so many others */
    SEED = 20261123
};

typedef enum { EITHER, PLAIN, KEYED } admission_t;

/* What a script comes to; 0: whatever it may, by UCX. */
typedef struct {
    const char *script; /* false_host.h */
    admission_t admission;
    tmsg_status_t status;
    const char *words;
} row_t;

static const row_t rows[] = {
    {"", EITHER, TMSG_ERR_PEER_LOST, NULL},
    {"R", EITHER, 0, NULL},
    {"m", EITHER, TMSG_ERR_PEER_LOST, NULL},
    {"ms", EITHER, TMSG_ERR_PEER_LOST, NULL},
    {"w", EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mw", EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"nw", EITHER, TMSG_ERR_MALFORMED, "does not speak tensormsg"},
    {"hw", EITHER, TMSG_ERR_MALFORMED, "does not speak tensormsg"},
    {"mnw", EITHER, TMSG_ERR_LIMIT_EXCEEDED, "announces a frame"},
    {"mlw", EITHER, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 4294967295 bytes"},
    {"mbw", EITHER, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 65553 bytes"},
    {"mmw", EITHER, TMSG_ERR_LIMIT_EXCEEDED, "announces a frame"},
    {"mew", EITHER, TMSG_ERR_MALFORMED, "hello"},
    {"mzw", EITHER, TMSG_ERR_MALFORMED, "hello"},
    {"mgw", PLAIN, TMSG_ERR_MALFORMED, "unknown type 4 in the handshake"},
    {"muw", PLAIN, TMSG_ERR_MALFORMED, "unknown type 200 in the handshake"},
    {"muw", KEYED, TMSG_ERR_MALFORMED, "type 200 before admission"},
    {"miw", EITHER, TMSG_ERR_MALFORMED, NULL},
    {"mHaw", PLAIN, TMSG_ERR_MALFORMED, "an address out of turn"},
    {"mHaw", KEYED, TMSG_ERR_MALFORMED, "type 3 before admission"},
    {"mHpw", EITHER, TMSG_ERR_MALFORMED, "a proof out of turn"},
    {"mHyw", PLAIN, TMSG_ERR_MALFORMED, "an end out of turn"},
    {"mHfw", PLAIN, TMSG_ERR_MALFORMED, "an end out of turn"},
    {"mHqw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHQw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHrw", EITHER, TMSG_ERR_BUSY, "refused by the peer: for no reason"},
    {"mHrr", EITHER, TMSG_ERR_BUSY, "refused by the peer: for no reason"},
    {"mHvw", EITHER, TMSG_ERR_REFUSED, "refused by the peer"},
    {"mHhhw", EITHER, TMSG_ERR_MALFORMED, "a second hello"},
    {"mHhw", EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHhrw", EITHER, TMSG_ERR_BUSY, "refused by the peer: for no reason"},
    {"mHhuw", PLAIN, TMSG_ERR_MALFORMED, "unknown type 200 in the handshake"},
    {"mHhpw", PLAIN, TMSG_ERR_MALFORMED, "a proof out of turn"},
    {"mHhqw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHhQw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHhyw", PLAIN, TMSG_ERR_MALFORMED, "an end out of turn"},
    {"mHhaw", KEYED, TMSG_ERR_MALFORMED, "type 3 before admission"},
    {"mHhpw", KEYED, TMSG_ERR_INSECURE, "has proved no key"},
    {"mHhPw", KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHhPuw", KEYED, TMSG_ERR_MALFORMED, "type 200 before admission"},
    {"mHhPppw", KEYED, TMSG_ERR_MALFORMED, "a proof out of turn"},
    {"mHhPpw", KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHhPphw", KEYED, TMSG_ERR_MALFORMED, "a second hello"},
    {"mHhPpuw", KEYED, TMSG_ERR_MALFORMED, "unknown type 200"},
    {"mHhPpnw", KEYED, TMSG_ERR_CORRUPT, NULL},
    {"mHhPplw", KEYED, TMSG_ERR_CORRUPT, "a frame of 4294967295 bytes"},
    {"mHhPprw", KEYED, TMSG_ERR_BUSY, "refused by the peer: for no reason"},
    {"mHhPpyw", KEYED, TMSG_ERR_MALFORMED, "an end out of turn"},
    {"mHhPpqw", KEYED, TMSG_ERR_MALFORMED, NULL},
    {"mHhPpQw", KEYED, TMSG_ERR_MALFORMED, NULL},
    {"mHhaA", PLAIN, TMSG_ERR_PEER_LOST, "the connection broke"},
    {"mHhaAw", PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time"},
    {"mHhaAaw", PLAIN, TMSG_ERR_MALFORMED, "an address out of turn"},
    {"mHhaAhw", PLAIN, TMSG_ERR_MALFORMED, "a second hello"},
    {"mHhaArw", PLAIN, TMSG_ERR_BUSY, "refused by the peer: for no reason"},
    {"mHhaAlw", PLAIN, TMSG_ERR_LIMIT_EXCEEDED, "a frame of 4294967295 bytes"},
    {"mHhaAqw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHhaAQw", PLAIN, TMSG_ERR_MALFORMED, NULL},
    {"mHhaAuw", PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time"},
    {"mHhaAygw", PLAIN, 0, NULL},
    {"mHhaAfgw", PLAIN, 0, NULL},
    {"mHhaAyfw", PLAIN, 0, NULL},
    {"mHhPpaA", KEYED, TMSG_ERR_PEER_LOST, "the connection broke"},
    {"mHhPpaAaw", KEYED, TMSG_ERR_MALFORMED, "an address out of turn"},
    {"mHhPpaAyfw", KEYED, 0, NULL},
    /* By UCX: before it was told, before there is an endpoint, twice. */
    {"mkHkhkw", EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHhPpkw", KEYED, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHtjhtjw", EITHER, TMSG_ERR_TIMED_OUT, "the handshake was not finished"},
    {"mHhdAkkjw", PLAIN, 0, NULL},
    {"mHhPpdAkkjw", KEYED, 0, NULL},
    {"mHhaAkw", PLAIN, TMSG_ERR_TIMED_OUT, "no answer by UCX in time"},
    {"mHhPpaAkkw", KEYED, TMSG_ERR_TIMED_OUT, "no answer by UCX in time"},
    {"mHhaAk", PLAIN, TMSG_ERR_PEER_LOST, "the connection broke"},
    {"mHhaAtw", PLAIN, 0, NULL},
    {"mHhaAkttw", PLAIN, 0, NULL},
    {"mHhPpaAkttw", KEYED, 0, NULL},
    {"mHhaAjw", PLAIN, 0, NULL},
    {"mHhPpaAkjw", KEYED, 0, NULL},
};

/* Two processes, of which this one dials. */
typedef struct {
    false_host_t *host;
    side_t side;
    bool keyed;
    unsigned dialled;
    int descriptors;
} scene_t;

static unsigned left_behind;

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    left_behind += strstr(line, "left behind") != NULL;
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
 * slow to hang up: then it may still write to shared memory (am/linger.h). */
static void close_scene(scene_t *scene)
{
    false_host_honest(scene->host, &scene->side);
    side_close(&scene->side);
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
    const false_talk_t talk = {.script = row->script, .cut = -1};
    bool waits = row->status == TMSG_ERR_TIMED_OUT || row->status == 0;
    char words[512];
    tmsg_status_t status =
        dial(scene, &talk, waits ? SHORT_MS : LONG_MS, words, sizeof(words));

    if (row->status != 0 && status != row->status) {
        die("%s: %s (%s)", row->script, tmsg_status_name(status), words);
    }
    if (row->words != NULL && strstr(words, row->words) == NULL) {
        die("%s: not '%s' in '%s'", row->script, row->words, words);
    }
}

/* The first conversation tells the false one where this side's UCX is. With
 * TCP and with shared memory, without a key and with one; all children are made
 * before UCX is here. */
static void run(void (*body)(scene_t *scene))
{
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
            expect(&scene, &(row_t){.script = scene.keyed ? "mHhPpaA" : "mHhaA",
                                    .status = TMSG_ERR_PEER_LOST});
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
    false_talk_t talk = {.script = scene->keyed ? "mHhPpaAw" : "mHhaAw"};
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
static void make_script(uint64_t *state, bool keyed, char *script)
{
    static const char right[2][10] = {"mHhaAk", "mHhPpaAk"};
    static const char wrong[] = "mhpadktjnezlbuirvqQyfgsHA";
    size_t kept = sample_random(state) % (strlen(right[keyed]) + 1);
    size_t more = 1 + sample_random(state) % 5;

    memcpy(script, right[keyed], kept);
    for (size_t i = 0; i < more; i++) {
        script[kept + i] = wrong[sample_random(state) % (sizeof(wrong) - 1)];
    }
    script[kept + more] = '\0';
}

static void expect_any(scene_t *scene)
{
    uint64_t state = SEED + scene->keyed;
    unsigned count = whole_run() ? 200 : 40;
    char script[32], words[512];
    const false_talk_t talk = {.script = script, .cut = -1};

    for (unsigned i = 0; i < count; i++) {
        make_script(&state, scene->keyed, script);
        dial(scene, &talk, SHORT_MS, words, sizeof(words));
    }
}

Test(hostile_listener, says_things_in_any_order) { run(expect_any); }

/* A conversation as it should be, but for a frame or two. */
static void expect_changed(scene_t *scene)
{
    false_talk_t talk = {.script = scene->keyed ? "mHhPpaAkg" : "mHhaAkg",
                         .cut = -1,
                         .one_in = 4};
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
    KEPT_UCX = 16, /* at most, that wait for peers to hang up; am/park.c */
    KEPT_PEERS = 64,
    DESCRIPTORS_EACH = 24, /* more than a UCX worker takes */
    KEPT_MOST = (KEPT_UCX + 2) * DESCRIPTORS_EACH + KEPT_PEERS,
    HASTE_MS = 40 /* for a handshake that is not to be finished */
};

/* Dials once more, and dies where too many descriptors are open. True: it was
 * told that shared memory is given to nobody now. */
static bool dial_stubborn(scene_t *scene, const char *script, int timeout_ms,
                          tmsg_status_t status)
{
    const false_talk_t talk = {.script = script, .cut = -1};
    char words[512];
    tmsg_status_t got = false_host_dial(scene->host, &scene->side, &talk,
                                        timeout_ms, words, sizeof(words));

    if (got == TMSG_ERR_LIMIT_EXCEEDED && scene->host->link == LINK_UNIX) {
        must_say(words, "have not hung up");
    } else if (got != status) {
        die("%s: %s (%s)", script, tmsg_status_name(got), words);
    }
    must_true(count_descriptors() - scene->descriptors < KEPT_MOST);
    return got == TMSG_ERR_LIMIT_EXCEEDED;
}

static bool may_share(void *arg)
{
    const scene_t *scene = arg;

    return !tmsg_park_is_full(scene->side.worker->ucx);
}

/* Nothing is left. */
static void close_whole(scene_t *scene)
{
    false_host_honest(scene->host, &scene->side);
    side_close(&scene->side);
    must_eq(count_descriptors(), scene->descriptors);
    false_host_end(scene->host);
}

/* Once it has hung up on all, shared memory is given again. */
static void relent(scene_t *scene)
{
    dial_stubborn(scene, "U", LONG_MS, TMSG_ERR_PEER_LOST);
    side_await(&scene->side, may_share, scene, "peers that have hung up");
    close_whole(scene);
}

/* A redial loop, of what ends as `status`. */
static void redial(link_t link, const char *script, int timeout_ms,
                   tmsg_status_t status)
{
    static false_host_t host;
    unsigned refused = 0;
    scene_t scene;

    false_host_start(&host, link, false);
    open_scene(&scene, &host);
    for (int i = 0; i < DIALS || (link != LINK_TCP && may_share(&scene)); i++) {
        must_true(i < 4 * DIALS);
        refused += dial_stubborn(&scene, script, timeout_ms, status);
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
    redial(LINK_TCP, "mHhaKo", LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_hang_up_by_shm)
{
    redial(LINK_SHM, "mHhaKo", LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_hang_up_by_unix)
{
    redial(LINK_UNIX, "mHhaKo", LONG_MS, TMSG_ERR_PEER_LOST);
}

Test(hostile_listener, does_not_answer_nor_hang_up_by_tcp)
{
    redial(LINK_TCP, "mHhaKw", HASTE_MS, TMSG_ERR_TIMED_OUT);
}

Test(hostile_listener, does_not_answer_nor_hang_up_by_shm)
{
    redial(LINK_SHM, "mHhaKw", HASTE_MS, TMSG_ERR_TIMED_OUT);
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
        refused += dial_stubborn(&next, "mHhaKw", SHORT_MS, TMSG_ERR_TIMED_OUT);
        side_close(&next.side);
    }
    must_eq(left_behind, KEPT_UCX);
    relent(&scene);
}
