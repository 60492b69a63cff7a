/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers whose owner is killed or stopped at random moments, and who withdraws
 * and overwrites what he offered, under eight fetchers: they get a whole right
 * map or an error, never later than their deadline. `soak_offers`, or
 * `ctest -C soak -R soak/offers`, shows all of it in 20 slices:
 *
 * 0 to 9: 50 strikes each, 500 in all, over shared memory and TCP by turns.
 * Each kills the owner (SIGKILL), who is started anew, or stops him (SIGSTOP)
 * and lets him go on. After one in four a fetcher is struck, too. Half of the
 * connections have `reconnect`. All of the processes fork now and then.
 * 10 to 19: 100,000 offers each, 10^6 in all, are made and withdrawn, and leave
 * nothing.
 *
 * $TMSG_OFFERS "small": some of it, less than a minute. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/soak_progress.h"
#include "support/struck_processes.h"

enum {
    STRIKES = 50, /* of a slice: the owner is killed or stopped */
    STRIKE_SLICES = 10,
    MADE = 100000, /* offers of a slice */
    MADE_SLICES = 10,
    SMALL = 20, /* divides both */
    FETCHERS = 8,
    BYTES = 3 << 20,
    TIMEOUT_MS = 300, /* of a peer, and of a fetch */
    KEPT_MS = 800,    /* a session, longer than an owner is stopped */
    LATE_MS = 10000   /* after its deadline: on a machine that is busy */
};

/* What all processes share. */
typedef struct {
    link_t link;
    uint64_t seed;
    char path[64]; /* where the owner writes its URL */
    struct counts {
        _Atomic uint64_t whole, boxes, resumed, failed, withdrawn, late, forks;
    } * counts;
} task_t;

static bool is_set(void *flag) { return *(bool *)flag; }

static void set(void *flag) { *(bool *)flag = true; }

static tmsg_offer_t *offer(side_t *side, uint8_t *buffer, uint64_t version,
                           bool *released)
{
    const int64_t shape[] = {BYTES / 1024, 1024};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, NULL};
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                      TMSG_OFFER_PARAM_ON_RELEASE,
        .name = "data",
        .version = version,
        .on_release = set,
        .on_release_arg = released};
    tmsg_offer_t *made;
    tmsg_map_t *map;

    *released = false;
    memset(buffer, (int)(1 + version % 250), BYTES);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_offer_create(side->worker, map, &params, &made));
    tmsg_map_destroy(map);
    return made;
}

/* What a program does that starts another: the child has the memory as it is,
 * and leaves at once. */
static void fork_at_times(const task_t *task, uint64_t *dice)
{
    pid_t pid;

    if (sample_random(dice) % 16 != 0) {
        return;
    }
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    must_eq(waitpid(pid, NULL, 0), pid);
    task->counts->forks++;
}

static void own(void *arg)
{
    const task_t *task = arg;
    const side_options_t options = {.ucx_config = link_config(task->link),
                                    .peer_timeout_ms = TIMEOUT_MS};
    uint8_t *buffer = malloc(BYTES);
    uint64_t dice = task->seed;
    side_t side;

    side_open(&side, &options);
    joined_listen(&side, "tcp://127.0.0.1:0", KEPT_MS);
    url_write(task->path, tmsg_listener_url(side.listener));
    for (uint64_t version = 1;; version++) {
        bool released;
        tmsg_offer_t *made = offer(&side, buffer, version, &released);
        uint64_t until = now_ms() + sample_random(&dice) % 120;

        fork_at_times(task, &dice);
        while (now_ms() < until) {
            (void)tmsg_worker_wait(side.worker, (int)(until - now_ms()) + 1);
        }
        if (tmsg_offer_withdraw(made, 1 + (int)(sample_random(&dice) % 20)) !=
            TMSG_OK) {
            must_true(!released);
            side_await(&side, is_set, &released, "the memory to be free");
        }
        must_true(released);
        tmsg_offer_destroy(made);
        memset(buffer, 0, BYTES); /* nobody may read it any more */
        task->counts->withdrawn++;
    }
}

static bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

/* Every byte must be what the version says. */
static void check(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;
    int64_t version;
    size_t count;

    must(tmsg_map_find(map, "data", &tensor));
    must(tmsg_map_get_i64(map, TMSG_META_OFFER_VERSION, &version));
    bytes = tensor.data;
    count = (size_t)(tensor.shape[0] * tensor.shape[1]);
    must_eq(bytes[0], 1 + version % 250);
    must_true(memcmp(bytes, bytes + 1, count - 1) == 0);
}

static bool may_be(tmsg_status_t status)
{
    return status == TMSG_ERR_PEER_LOST || status == TMSG_ERR_TIMED_OUT ||
           status == TMSG_ERR_CANCELED || status == TMSG_ERR_NOT_FOUND ||
           status == TMSG_ERR_UNREACHABLE;
}

/* False: the connection is of no use any more. */
static bool fetch_once(side_t *side, tmsg_endpoint_t *endpoint,
                       const task_t *task, uint64_t *dice)
{
    static const int64_t from[] = {100, 17}, of[] = {2000, 900};
    const tmsg_slice_t box = {"data", NULL, 2, from, of, NULL};
    bool boxed = sample_random(dice) % 3 == 0;
    const tmsg_fetch_params_t params = {
        .field_mask = TMSG_FETCH_PARAM_TIMEOUT | TMSG_FETCH_PARAM_WAIT |
                      (boxed ? TMSG_FETCH_PARAM_SLICES : 0),
        .slices = &box,
        .slice_count = 1,
        .wait_ms = 100,
        .timeout_ms = TIMEOUT_MS};
    uint64_t begun = now_ms();
    tmsg_status_t status;
    tmsg_call_t *call;

    if (tmsg_endpoint_fetch_name(endpoint, "data", 0, &params, &call) !=
        TMSG_OK) {
        return false;
    }
    fork_at_times(task, dice);
    side_await(side, has_ended, call, "the end of a fetch");
    task->counts->late += now_ms() > begun + TIMEOUT_MS + LATE_MS;
    status = tmsg_call_status(call);
    if (status == TMSG_OK) {
        check(tmsg_call_reply(call));
        task->counts->whole += !boxed;
        task->counts->boxes += boxed;
        task->counts->resumed += described(endpoint, "reconnected") > 0;
    } else {
        if (!may_be(status)) {
            must_say(tmsg_call_error(call), "words of an owner that is gone");
        }
        task->counts->failed++;
    }
    tmsg_call_destroy(call);
    return status == TMSG_OK || status == TMSG_ERR_CANCELED ||
           status == TMSG_ERR_NOT_FOUND ||
           joined_is_away(endpoint); /* it comes back, or is given up */
}

static void fetch(void *arg)
{
    const task_t *task = arg;
    const side_options_t options = {.ucx_config = link_config(task->link),
                                    .peer_timeout_ms = TIMEOUT_MS};
    const tmsg_endpoint_params_t resumed = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = {1, 20, KEPT_MS},
        .flags = TMSG_ENDPOINT_SAME_PROCESS};
    uint64_t dice = task->seed;
    char url[256];
    side_t side;

    side_open(&side, &options);
    for (;;) {
        bool resumes = sample_random(&dice) % 2 == 0;
        tmsg_endpoint_t *endpoint;

        if (!url_read(task->path, url, sizeof(url)) ||
            tmsg_endpoint_connect(side.worker, url, resumes ? &resumed : NULL,
                                  &endpoint) != TMSG_OK) {
            pause_us(1000);
            continue;
        }
        while (fetch_once(&side, endpoint, task, &dice)) {
        }
        tmsg_endpoint_destroy(endpoint);
        pause_us(1000);
    }
}

/* Strikes at a random moment. Who was stopped goes on when its peers have given
 * it up, or before. */
static void strike(pid_t *pid, void (*run)(void *), task_t *task,
                   uint64_t *dice)
{
    if (process_strike(pid, dice, 2 * TIMEOUT_MS)) {
        task->seed++;
        *pid = process_start(run, task);
    }
}

static void tell(const task_t *task, unsigned strikes, unsigned others)
{
    const struct counts *counts = task->counts;

    printf("%s: owner struck %u times, fetchers %u; %" PRIu64 " maps and "
           "%" PRIu64 " boxes came, %" PRIu64 " of them after the connection "
           "came back; %" PRIu64 " fetches failed; %" PRIu64
           " offers were withdrawn and overwritten; %" PRIu64 " forks\n",
           link_names[task->link], strikes, others, counts->whole,
           counts->boxes, counts->resumed, counts->failed, counts->withdrawn,
           counts->forks);
}

static void strike_all(task_t *task, unsigned strikes)
{
    uint64_t dice = task->seed;
    pid_t owner = process_start(own, task), fetchers[FETCHERS];
    unsigned others = 0;

    for (int i = 0; i < FETCHERS; i++) {
        task->seed += 1000;
        fetchers[i] = process_start(fetch, task);
    }
    pause_us(300000);
    for (unsigned i = 0; i < strikes; i++) {
        pause_us(sample_random(&dice) % 100000);
        strike(&owner, own, task, &dice);
        if (sample_random(&dice) % 4 == 0) {
            others++;
            strike(&fetchers[sample_random(&dice) % FETCHERS], fetch, task,
                   &dice);
        }
        must_eq(task->counts->late, 0);
        must_eq(waitpid(-1, NULL, WNOHANG), 0); /* nobody died by himself */
    }
    for (int i = 0; i < FETCHERS; i++) {
        process_kill(&fetchers[i]);
    }
    process_kill(&owner);
    tell(task, strikes, others);
    must_true(task->counts->whole > 0 && task->counts->boxes > 0);
}

static void make_some(side_t *side, uint64_t *dice, unsigned count)
{
    static tmsg_offer_t *live[64];

    for (unsigned i = 0; i < count; i++) {
        char name[32];
        const tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                          TMSG_OFFER_PARAM_TTL,
            .name = name,
            .version = 1 + sample_random(dice) % 1000000000,
            .ttl_ms = 100000};
        tmsg_offer_t **place = &live[sample_random(dice) % 64];
        tmsg_map_t *map = sample_bytes(i, 64);

        snprintf(name, sizeof(name), "name %u",
                 (unsigned)(sample_random(dice) % 8));
        tmsg_offer_destroy(*place);
        *place = NULL;
        must(tmsg_offer_create(side->worker, map, &params, place));
        tmsg_map_destroy(map);
        if (i % 100 == 0) {
            tmsg_worker_progress(side->worker);
        }
    }
    for (size_t i = 0; i < sizeof(live) / sizeof(*live); i++) {
        tmsg_offer_destroy(live[i]);
        live[i] = NULL;
    }
}

static unsigned offers_to_make;

static void make_offers(void *arg)
{
    const task_t *task = arg;
    uint64_t dice = task->seed;
    size_t before, after;
    side_t side;

    side_open(&side, NULL);
    make_some(&side, &dice, 3000); /* what is remembered of them among it */
    before = mallinfo2().uordblks;
    make_some(&side, &dice, offers_to_make);
    after = mallinfo2().uordblks;
    printf("%u offers made and withdrawn: %zu bytes before, %zu after\n",
           offers_to_make, before, after);
    must_true(after < before + 16384);
    side_close(&side);
}

static void run_slice(task_t *task, uint64_t slice, unsigned divisor)
{
    int status;

    task->seed += slice * 100000;
    if (slice < STRIKE_SLICES) {
        task->link = slice % 2 == 0 ? LINK_SHM : LINK_TCP;
        memset(task->counts, 0, sizeof(*task->counts));
        strike_all(task, STRIKES / divisor + 1);
        unlink(task->path);
        return;
    }
    offers_to_make = MADE / divisor;
    must_true(waitpid(process_start(make_offers, task), &status, 0) > 0);
    must_eq(status, 0);
}

int main(void)
{
    const char *small = getenv("TMSG_OFFERS"), *name = "offers";
    const uint64_t seed = soak_seed();
    task_t task = {.link = LINK_SHM};

    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(task.path, sizeof(task.path), "/tmp/soak-offers-%d", getpid());
    task.counts = mmap(NULL, sizeof(*task.counts), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must_true(task.counts != MAP_FAILED);
    for (uint64_t slice = soak_place(name); slice < STRIKE_SLICES + MADE_SLICES;
         slice++) {
        task.seed = seed;
        run_slice(&task, slice, small != NULL ? SMALL : 1);
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0);
    return 0;
}
