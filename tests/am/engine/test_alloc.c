/* SPDX-License-Identifier: BSD-3-Clause */
/* Fails every allocation of ours, and those made for us by msgpack-c and
 * cJSON, in turn: the 1st, the 2nd, ... until a round needs no more. Each
 * round either works all the same or says that memory was missing, ends within
 * a bound, leaves both workers serving, and leaves nothing behind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/path/bulk.h"
#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define CONNECT_MS 5000
#define SENDS 5             /* of a layout, with schemas */
#define BLOB_CONNECT_MS 300 /* a wireup that is dropped is not told */

typedef struct {
    const struct scene *scene;
    pair_t pair;
    tmsg_map_t *map;
    tmsg_map_t *more[SENDS]; /* with scene->schemas */
    tmsg_message_t *message; /* that arrived */
    tmsg_keyring_t *keyring;
    char words[8192]; /* of every error and warning */
    pthread_mutex_t lock;
} round_t;

typedef enum { NOTHING, LISTENING, CONNECTED } stage_t;

/* What is done in each round; `run` says whether all of it worked. */
typedef struct scene {
    const char *name;
    stage_t stage; /* what there is before */
    link_t link;
    drive_t drive;
    bool schemas; /* headers go by number, and are not captured */
    bool (*run)(round_t *round);
    sample_t sample; /* of what is sent */
    unsigned flags;
    bool keys; /* both sides ask for one */
} scene_t;

TestSuite(alloc, .init = watched_alloc_start);

static char doing[128]; /* what, for whoever waits in vain */

static void note(round_t *round, const char *words)
{
    size_t used;

    pthread_mutex_lock(&round->lock);
    used = strlen(round->words);
    snprintf(round->words + used, sizeof(round->words) - used, "%s\n", words);
    pthread_mutex_unlock(&round->lock);
}

static void log_line(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)level;
    note(arg, line);
}

static bool has_words(round_t *round)
{
    bool has;

    pthread_mutex_lock(&round->lock);
    has = strstr(round->words, "memory") != NULL;
    pthread_mutex_unlock(&round->lock);
    return has;
}

/* Whether the call worked; if not, it was for want of memory. */
static bool worked(round_t *round, tmsg_status_t status)
{
    if (status == TMSG_OK) {
        return true;
    }
    must_be(status, TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), "memory");
    note(round, tmsg_error_message());
    return false;
}

static bool create_all(round_t *round)
{
    static const char *const urls[] = {"tcp://127.0.0.1:0", "tcp://localhost:0",
                                       "unix://", "blob://"};
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG,
        .ucx_config = "TLS=posix,cma,self,tcp"};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL, *alone = NULL;
    bool ok = worked(round, tmsg_context_create(&params, &context)) &&
              worked(round, tmsg_worker_create(context, NULL, &worker)) &&
              worked(round, tmsg_worker_create(NULL, NULL, &alone));

    for (size_t i = 0; ok && i < sizeof(urls) / sizeof(urls[0]); i++) {
        tmsg_listener_t *listener = NULL;
        char url[160];

        snprintf(url, sizeof(url), "%s%s", urls[i],
                 i == 2 ? scratch_path("alloc") : "");
        ok = worked(round, tmsg_listener_create(worker, url, NULL, &listener));
        must_true(ok == (listener != NULL));
        tmsg_listener_destroy(listener);
    }
    tmsg_worker_destroy(alone);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return ok;
}

static tmsg_status_t dial(round_t *round)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms =
            round->scene->link == LINK_BLOB ? BLOB_CONNECT_MS : CONNECT_MS};
    const pair_t *pair = &round->pair;
    const void *blob;
    size_t bytes;

    if (round->scene->link == LINK_BLOB) {
        must(tmsg_listener_blob(pair->a.listener, &blob, &bytes));
        return tmsg_endpoint_connect_blob(pair->b.worker, blob, bytes, &params,
                                          &round->pair.to_a);
    }
    return tmsg_endpoint_connect(pair->b.worker,
                                 tmsg_listener_url(pair->a.listener), &params,
                                 &round->pair.to_a);
}

static bool connect_settled(void *arg)
{
    const round_t *round = arg;
    tmsg_status_t status = tmsg_endpoint_status(round->pair.to_a);

    return status < 0 || (status == TMSG_OK && round->pair.a.accepts > 0);
}

static bool connect_one(round_t *round)
{
    pair_t *pair = &round->pair;
    tmsg_request_t *ready = NULL;
    bool ok = worked(round, dial(round));

    if (!ok) {
        return false;
    }
    ok = worked(round, tmsg_endpoint_ready(pair->to_a, &ready));
    pair_await(pair, connect_settled, round, doing);
    if (tmsg_endpoint_status(pair->to_a) != TMSG_OK) {
        note(round, tmsg_endpoint_error(pair->to_a));
        ok = false;
    }
    if (ready != NULL) {
        must_be(pair_finish(pair, ready), tmsg_endpoint_status(pair->to_a));
    }
    return ok;
}

typedef struct {
    round_t *round;
    tmsg_request_t *sent;
} sending_t;

/* The send has ended, and what it sent has come or never will. */
static bool send_settled(void *arg)
{
    const sending_t *sending = arg;
    round_t *round = sending->round;
    const pair_t *pair = &round->pair;
    tmsg_status_t status;

    if (round->message == NULL) {
        status = tmsg_worker_recv(pair->a.worker, 0, &round->message);
        must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
    }
    status = tmsg_request_test(sending->sent);
    return status < 0 ||
           (status == TMSG_OK && (round->message != NULL || has_words(round) ||
                                  tmsg_endpoint_status(pair->to_b) < 0));
}

static bool send_it(round_t *round, const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = round->scene->flags};
    sending_t sending = {round, NULL};
    bool ok = worked(round, tmsg_endpoint_send(round->pair.to_a, map, &params,
                                               &sending.sent));

    if (!ok) {
        return false;
    }
    pair_await(&round->pair, send_settled, &sending, doing);
    ok = tmsg_request_test(sending.sent) == TMSG_OK;
    if (!ok) {
        note(round, tmsg_request_error(sending.sent));
    }
    if (!ok && round->scene->link != LINK_BLOB) { /* whose memory it was */
        must_say(tmsg_request_error(sending.sent), "memory");
    }
    must_true(!ok || round->message != NULL || round->scene->flags == 0);
    tmsg_request_destroy(sending.sent);
    return ok && round->message != NULL;
}

static bool send_one(round_t *round) { return send_it(round, round->map); }

/* Compares two maps without allocating. */
static void check_same(const tmsg_map_t *sent, const tmsg_map_t *got)
{
    const char *name, *wanted_name;
    tmsg_tensor_t tensor, wanted;

    must_eq(tmsg_map_size(got), 1);
    must(tmsg_map_at(sent, 0, &wanted_name, &wanted));
    must(tmsg_map_at(got, 0, &name, &tensor));
    must_eq(strcmp(name, wanted_name), 0);
    must_eq(tensor.shape[0], wanted.shape[0]);
    must_eq(memcmp(tensor.data, wanted.data, (size_t)tensor.shape[0]), 0);
}

/* A layout that is defined, defined again with an extent that varies, and
 * referred to. */
static bool send_schemas(round_t *round)
{
    bool ok = true;

    for (size_t i = 0; ok && i < SENDS; i++) {
        ok = send_it(round, round->more[i]);
        if (round->message != NULL) {
            check_same(round->more[i], tmsg_message_map(round->message));
            tmsg_message_destroy(round->message);
            round->message = NULL;
        }
    }
    return ok;
}

/* messages of the last round that went by a fast box */
static uint64_t fastboxed;

/* Sends until messages go by a fast box. */
static bool send_small(round_t *round)
{
    bool ok = true;

    for (size_t i = 0; ok && i < 40; i++) {
        ok = send_it(round, round->map);
        if (round->message != NULL) {
            check_same(round->map, tmsg_message_map(round->message));
            tmsg_message_destroy(round->message);
            round->message = NULL;
        }
        tmsg_worker_progress(round->pair.b.worker); /* hears of the fast box */
    }
    fastboxed = round->pair.to_a->stats.sent_by_fastbox;
    return ok;
}

typedef struct {
    round_t *round;
    tmsg_request_t *closed;
} closing_t;

static bool close_settled(void *arg)
{
    const closing_t *closing = arg;

    return tmsg_request_test(closing->closed) != TMSG_IN_PROGRESS &&
           tmsg_endpoint_status(closing->round->pair.to_b) < 0;
}

static bool close_one(round_t *round)
{
    pair_t *pair = &round->pair;
    closing_t closing = {round, NULL};
    bool ok = worked(round, tmsg_endpoint_close(pair->to_a, &closing.closed));

    if (!ok) {
        return false;
    }
    pair_await(pair, close_settled, &closing, doing);
    note(round, tmsg_endpoint_error(pair->to_a));
    note(round, tmsg_endpoint_error(pair->to_b));
    ok = tmsg_request_test(closing.closed) == TMSG_OK &&
         tmsg_endpoint_status(pair->to_b) == TMSG_ERR_CLOSED;
    tmsg_request_destroy(closing.closed);
    return ok;
}

static void give_key(round_t *round)
{
    static const uint8_t key[TMSG_KEY_BYTES] = "a key of the tests";

    must(tmsg_keyring_create(&round->keyring));
    must(tmsg_keyring_add(round->keyring, "peer", key));
}

/* Returns whether the side that dials has its bulk stream, or will have none.
 */
static bool bulk_settled(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;
    bool settled;

    tmsg_worker_lock(endpoint->worker); /* a thread may be at it */
    settled = tmsg_bulk_sends(endpoint) ||
              (!endpoint->carried.asked && endpoint->paths.bulk == NULL);
    tmsg_worker_unlock(endpoint->worker);
    return settled;
}

/* Waits for the bulk stream, or until it is known that there is none. */
static void await_bulk(round_t *round)
{
    if (round->scene->link == LINK_TCP) {
        pair_await(&round->pair, bulk_settled, round->pair.to_a, doing);
    }
}

static bool connect_and_bulk(round_t *round)
{
    bool ok = connect_one(round);

    if (ok) {
        await_bulk(round);
    }
    return ok;
}

static void open_round(round_t *round)
{
    const scene_t *scene = round->scene;
    side_options_t options = {
        .drive = scene->drive,
        .ucx_config = link_config(scene->link),
        .worker = {
            .field_mask = TMSG_WORKER_PARAM_FLAGS,
            .flags = (scene->schemas ? 0 : TMSG_WORKER_CAPTURE) |
                     (scene->flags & TMSG_SEND_LEND ? TMSG_WORKER_BORROW : 0)}};
    pair_t *pair = &round->pair;

    if (scene->keys) {
        give_key(round);
        options.keyring = round->keyring;
    }
    if (scene->stage == CONNECTED) {
        pair_open(pair, scene->link, scene->drive, &options, &options);
        await_bulk(round);
        round->map = sample_make(&scene->sample);
        for (size_t i = 0; scene->schemas && i < SENDS; i++) {
            round->more[i] = sample_bytes(i, 100 * (i + 1));
        }
    } else if (scene->stage == LISTENING) {
        pair->sides[0] = &pair->a;
        pair->sides[1] = &pair->b;
        side_open(&pair->a, &options);
        side_open(&pair->b, &options);
        side_listen_link(&pair->a, scene->link);
    }
}

/* The workers go on as if nothing had been: a new connection carries. */
static void expect_serves(round_t *round)
{
    pair_t *pair = &round->pair;
    tmsg_endpoint_t *endpoint = side_dial(&pair->b, &pair->a);
    tmsg_request_t *sent =
        send_map(endpoint, sample_bytes(7, 20000), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(7, 20000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

static void close_round(round_t *round)
{
    if (round->message != NULL) {
        sample_check(&round->scene->sample, tmsg_message_map(round->message));
        tmsg_message_destroy(round->message);
    }
    tmsg_keyring_destroy(round->keyring);
    tmsg_map_destroy(round->map);
    for (size_t i = 0; i < SENDS; i++) {
        tmsg_map_destroy(round->more[i]);
    }
    if (round->scene->stage != NOTHING) {
        expect_serves(round);
        pair_drop(&round->pair);
    }
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
}

/* Lookups end in threads of their own. */
static void expect_live(size_t wanted)
{
    struct timespec nap = {0, 1000000};

    for (int i = 0; watched_alloc_live() != wanted; i++) {
        if (i > 2000) {
            watched_alloc_report();
            die("%s: %zu allocations are left, %zu were there", doing,
                watched_alloc_live(), wanted);
        }
        nanosleep(&nap, NULL);
    }
}

/* Runs a scene with its n-th allocation failing. False: it has not as many. */
static bool fail_nth(const scene_t *scene, unsigned long n, bool *ok_p)
{
    round_t round = {.scene = scene, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t live = watched_alloc_live();
    uintptr_t failed;

    snprintf(doing, sizeof(doing), "%s, allocation %lu", scene->name, n);
    open_round(&round);
    tmsg_log_set(TMSG_LOG_WARN, log_line, &round);
    watched_alloc_arm(n);
    *ok_p = scene->run(&round);
    failed = watched_alloc_disarm();
    if (!*ok_p && (failed == 0 || !has_words(&round))) {
        die("%s, at %#zx: no word of memory in\n%s", doing, failed,
            round.words);
    }
    snprintf(doing, sizeof(doing), "%s, allocation %lu, at %#zx, and then",
             scene->name, n, failed);
    close_round(&round);
    expect_live(live);
    return failed != 0;
}

static void fail_each(const scene_t *scene)
{
    unsigned long n = 0, errors = 0;
    bool ok;

    fail_nth(scene, 0, &ok); /* what is made once and kept for ever */
    must_true(ok);
    while (fail_nth(scene, ++n, &ok)) {
        errors += !ok;
    }
    must_true(ok);
    must_true(errors > 0);
    fprintf(stderr, "%s: %lu allocations, %lu errors\n", scene->name, n - 1,
            errors);
}

Test(alloc, contexts_workers_and_listeners)
{
    const scene_t scene = {.name = "create", .run = create_all};

    scratch_path("alloc"); /* made once, not in a round */
    fail_each(&scene);
}

Test(alloc, connecting_by_each_url)
{
    for (link_t link = 0; link < LINKS; link++) {
        const scene_t scene = {.name = link_names[link],
                               .stage = LISTENING,
                               .link = link,
                               .run = connect_and_bulk};

        if (is_due(link)) {
            fail_each(&scene);
        }
    }
}

Test(alloc, connecting_with_a_key)
{
    static const link_t links[] = {LINK_UNIX};

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        const scene_t scene = {.name = link_names[links[i]],
                               .stage = LISTENING,
                               .link = links[i],
                               .run = connect_one,
                               .keys = true};

        fail_each(&scene);
    }
}

static void send_by(link_t link, drive_t drive, const char *name,
                    const sample_t *sample, unsigned flags)
{
    char words[64];
    const scene_t scene = {.name = words,
                           .stage = CONNECTED,
                           .link = link,
                           .drive = drive,
                           .run = send_one,
                           .sample = *sample,
                           .flags = flags};

    snprintf(words, sizeof(words), "%s by %s, flags %u", name, link_names[link],
             flags);
    fail_each(&scene);
}

/* A copy is lent; without memory for that the message goes by the usual ways.
 */
Test(alloc, lending)
{
    const sample_t sample = {.seed = 3,
                             .tensors = 2,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .elements = 400000}; /* of a bit */

    send_by(LINK_UNIX, DRIVE_POLLING, "a loan", &sample,
            TMSG_SEND_ACKED | TMSG_SEND_LEND);
}

/* Sends over each transport: unix:// and blobs are only other ways to connect.
 */
static void send_each(const char *name, const sample_t *sample)
{
    link_t links = whole_run() ? LINKS : LINK_UNIX;

    for (link_t link = 0; link < links; link++) {
        for (unsigned flags = 0; flags <= TMSG_SEND_ACKED; flags++) {
            if (is_due(link + flags)) {
                send_by(link, DRIVE_POLLING, name, sample, flags);
            }
        }
    }
}

Test(alloc, a_small_map)
{
    const sample_t sample = {.seed = 1, .tensors = 3};

    for (link_t link = 0; link < LINKS; link++) {
        for (unsigned flags = 0; flags <= TMSG_SEND_ACKED; flags++) {
            if (is_due(link + flags)) {
                send_by(link, DRIVE_POLLING, "small", &sample, flags);
            }
        }
    }
    if (is_due(0)) {
        send_by(LINK_SHM, DRIVE_THREAD, "small", &sample, TMSG_SEND_ACKED);
    }
    if (is_due(1)) {
        send_by(LINK_TCP, DRIVE_THREAD, "small", &sample, 0);
        send_by(LINK_SHM, DRIVE_POLLING, "small", &sample, TMSG_SEND_VERIFY);
    }
}

Test(alloc, a_thousand_tensors_whose_header_spills)
{
    const sample_t sample = {.seed = 2, .tensors = 1000};

    send_each("1000 tensors", &sample);
    if (is_due(0)) {
        send_by(LINK_SHM, DRIVE_POLLING, "1000 tensors", &sample,
                TMSG_SEND_VERIFY);
    }
}

Test(alloc, eight_mebibytes_by_rendezvous)
{
    const sample_t sample = {.seed = 3,
                             .tensors = 1,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .elements = 8 << 20};

    send_each("8 MiB", &sample);
}

Test(alloc, large_tensors_in_fragments)
{
    const sample_t sample = {.seed = 4,
                             .tensors = 3,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .elements = 20000};

    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=1000,shm.chunk_bytes=4096,"
           "tcp.fragment_bytes=1000,tcp.chunk_bytes=4096,"
           "other.fragment_bytes=1000,other.chunk_bytes=4096",
           1);
    send_each("fragments", &sample);
    if (is_due(1)) {
        send_by(LINK_SHM, DRIVE_POLLING, "fragments", &sample,
                TMSG_SEND_VERIFY);
    }
}

Test(alloc, layouts_that_travel_once)
{
    const scene_t scene = {.name = "layouts",
                           .stage = CONNECTED,
                           .link = LINK_UNIX,
                           .schemas = true,
                           .run = send_schemas,
                           .flags = TMSG_SEND_ACKED};

    fail_each(&scene);
}

Test(alloc, closing)
{
    for (link_t link = 0; link < LINKS; link++) {
        const scene_t scene = {.name = link_names[link],
                               .stage = CONNECTED,
                               .link = link,
                               .run = close_one};

        if (is_due(link)) {
            fail_each(&scene);
        }
    }
}

/* Returns a description, which is the same twice: nothing of it is kept. */
static tmsg_status_t describe(const pair_t *pair, size_t which, char **json_p)
{
    switch (which) {
    case 0:
        return tmsg_context_describe(pair->a.context, json_p);
    case 1:
        return tmsg_listener_describe(pair->a.listener, json_p);
    default:
        return tmsg_endpoint_describe(pair->to_a, json_p);
    }
}

Test(alloc, small_messages_until_they_go_by_a_fastbox)
{
    const scene_t scene = {.name = "a fast box",
                           .stage = CONNECTED,
                           .link = LINK_SHM,
                           .run = send_small,
                           .schemas = true,
                           .sample = sample_plain(1, 100)};

    fail_each(&scene);
    cr_expect(ge(u64, fastboxed, 10));
}

Test(alloc, describing)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t which = 0; which < 3; which++) {
        char *whole, *json;
        unsigned long n = 0;
        bool more = true;
        size_t live;

        must(describe(&pair, which, &whole));
        live = watched_alloc_live();
        while (more) {
            tmsg_status_t status;

            watched_alloc_arm(++n);
            status = describe(&pair, which, &json);
            more = watched_alloc_disarm() != 0;
            must_true(more || status == TMSG_OK);
            if (status == TMSG_OK) {
                cr_expect(eq(str, json, whole));
                tmsg_string_free(json);
            } else {
                must_be(status, TMSG_ERR_NO_MEMORY);
            }
            expect_live(live);
        }
        cr_expect(ge(ulong, n, which == 1 ? 11 : 51));
        tmsg_string_free(whole);
    }
    pair_close(&pair);
}
