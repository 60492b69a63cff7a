/* SPDX-License-Identifier: BSD-3-Clause */
/* When the memory of an offer is free: fetchers and owners that are killed or
 * stand still at a random moment, over shared memory, TCP, a blob, through a
 * session, and with loans. Whoever gets a map gets it whole and right, and
 * nobody overwrites what may still be read. Started by hand it ends 63
 * processes in each way. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/struck_processes.h"
#include "support/test_scale.h"

enum {
    BYTES = 8 << 20,
    FETCH_MS = 100,
    GIVE_UP_MS = 50, /* of a session, less than FETCH_MS */
    MOST = 63        /* of one signal over one way: 500 owners in all */
};

/* How a fetcher comes to its owner. */
typedef enum { WAY_SHM, WAY_TCP, WAY_BLOB, WAY_SESSION, WAY_LOAN } way_t;

typedef struct {
    tmsg_offer_t *offer;
    unsigned releases;
} owned_t;

static void on_release(void *arg) { ((owned_t *)arg)->releases++; }

static bool is_released(void *arg) { return ((owned_t *)arg)->releases > 0; }

static void release_nothing(void *arg) { (void)arg; }

/* A map that borrows the buffer, or owns it as far as the library knows. */
static tmsg_map_t *map_of(uint8_t *buffer, bool owns)
{
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = release_nothing};
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, owns ? &params : NULL));
    return map;
}

/* Memory that is offered; it is lent where it lies. Made after all children. */
static uint8_t *make_buffer(way_t way)
{
    void *buffer;

    if (way != WAY_LOAN) {
        return malloc(BYTES);
    }
    must(tmsg_shareable_alloc(BYTES, NULL, &buffer));
    return buffer;
}

static void free_buffer(uint8_t *buffer, way_t way)
{
    if (way != WAY_LOAN) {
        free(buffer);
    } else {
        must(tmsg_shareable_free(buffer));
    }
}

/* Offers the buffer, all of one value, as "data". The map owns odd values. */
static void offer(tmsg_worker_t *worker, owned_t *owned, uint8_t *buffer,
                  uint8_t value, way_t way)
{
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_ON_RELEASE |
                      TMSG_OFFER_PARAM_FLAGS,
        .name = "data",
        .on_release = on_release,
        .on_release_arg = owned,
        .flags = way == WAY_LOAN ? TMSG_OFFER_LEND : 0};
    tmsg_map_t *map = map_of(buffer, value % 2 == 1);

    memset(buffer, value, BYTES);
    owned->releases = 0;
    must(tmsg_offer_create(worker, map, &params, &owned->offer));
    tmsg_map_destroy(map);
}

static tmsg_call_t *fetch(tmsg_endpoint_t *endpoint, int32_t timeout_ms,
                          way_t way)
{
    const tmsg_fetch_params_t params = {
        .field_mask = TMSG_FETCH_PARAM_TIMEOUT | TMSG_FETCH_PARAM_FLAGS,
        .timeout_ms = timeout_ms,
        .flags = way == WAY_LOAN ? TMSG_FETCH_BORROW : 0};
    tmsg_call_t *call;
    tmsg_status_t status =
        tmsg_endpoint_fetch_name(endpoint, "data", 0, &params, &call);

    return status == TMSG_OK ? call : NULL;
}

/* Every byte must be the same. */
static void check_uniform(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;

    must(tmsg_map_find(map, "data", &tensor));
    must_eq(tensor.shape[0], BYTES);
    bytes = tensor.data;
    must_true(bytes[0] != 0);
    must_true(memcmp(bytes, bytes + 1, BYTES - 1) == 0);
}

static bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

static link_t link_of(way_t way)
{
    return way == WAY_SHM    ? LINK_SHM
           : way == WAY_BLOB ? LINK_BLOB
           : way == WAY_LOAN ? LINK_UNIX
                             : LINK_TCP;
}

static void open_by(side_t *side, way_t way)
{
    const side_options_t options = {.ucx_config = link_config(link_of(way))};

    side_open(side, &options);
}

static void listen_by(side_t *side, way_t way)
{
    if (way == WAY_SESSION) {
        joined_listen(side, "tcp://127.0.0.1:0", -1);
    } else {
        side_listen_link(side, link_of(way));
    }
}

/* A process that is killed while it writes into a queue of UCX's in shared
 * memory may leave a place there at which its reader waits for ever, and no
 * peer by blob is heard any more. So each has a new reader. */
static bool needs_new_queue(way_t way, size_t i)
{
    return way == WAY_BLOB && i > 0;
}

/* These tell another process where a side listens, and connect to there. */
static void tell_where(int fd, const side_t *side, way_t way)
{
    if (way == WAY_BLOB) {
        blob_put(fd, side->listener);
    } else {
        line_put(fd, tmsg_listener_url(side->listener));
    }
}

static tmsg_endpoint_t *connect_by(side_t *side, int fd, way_t way)
{
    const tmsg_reconnect_t reconnect = {1, 20, GIVE_UP_MS};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    char url[256];

    if (way == WAY_BLOB) {
        return blob_connect(side, fd);
    }
    line_get(fd, url, sizeof(url));
    if (way != WAY_SESSION) {
        return side_connect(side, url);
    }
    endpoint = joined_dial(side, url, reconnect);
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(side, ready));
    return endpoint;
}

/* Starts processes, before this one opens UCX. */
static void start_all(child_t *children, size_t count,
                      void (*body)(pipes_t *pipes, void *arg), way_t way)
{
    for (size_t i = 0; i < count; i++) {
        child_start(&children[i], body, &way);
    }
}

/* A seed for the moments, printed. */
static uint64_t begin_random(void)
{
    uint64_t seed = (uint64_t)time(NULL);

    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Fetches until the offer is over. */
static void fetch_all(pipes_t *pipes, void *arg)
{
    struct pollfd turn = {pipes->in, POLLIN, 0};
    way_t way = *(way_t *)arg;
    tmsg_status_t status = TMSG_OK;
    tmsg_endpoint_t *endpoint;
    side_t side;

    must_eq(poll(&turn, 1, -1), 1); /* after those of many others */
    open_by(&side, way);
    endpoint = connect_by(&side, pipes->in, way);
    while (status != TMSG_ERR_NOT_FOUND) {
        tmsg_call_t *call = fetch(endpoint, -1, way);

        must_true(call != NULL);
        side_await(&side, has_ended, call, "the end of a fetch");
        status = tmsg_call_status(call);
        if (status == TMSG_OK) {
            must_eq(tmsg_call_reply_is_lent(call), way == WAY_LOAN);
            check_uniform(tmsg_call_reply(call));
        } else {
            must_true(status == TMSG_ERR_CANCELED ||
                      status == TMSG_ERR_NOT_FOUND);
        }
        tmsg_call_destroy(call);
    }
    side_close(&side);
}

static void progress_some(side_t *side, uint64_t *random)
{
    for (uint64_t turns = sample_random(random) % 9000; turns > 0; turns--) {
        tmsg_worker_progress(side->worker);
    }
}

static bool has_fetched(void *arg)
{
    const owned_t *owned = arg;
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(owned->offer, &stats);
    return stats.fetches + stats.under_way > 0;
}

/* `slow`: each may take a second, of a withdrawal, or until UCX, which alone
 * watches by blob, sees that somebody is dead. */
static size_t how_many(bool slow) { return whole_run() ? MOST : slow ? 1 : 2; }

/* One fetcher after the other is sent a signal in the midst of it. */
static void end_fetchers(way_t way, int signal_number)
{
    static child_t children[MOST];
    uint8_t *buffer;
    size_t count = how_many(way == WAY_BLOB || signal_number == SIGSTOP);
    uint64_t random = begin_random();
    size_t in_time = 0;
    owned_t owned;
    side_t side;

    start_all(children, count, fetch_all, way);
    buffer = make_buffer(way);
    open_by(&side, way);
    listen_by(&side, way);
    for (size_t i = 0; i < count; i++) {
        tmsg_status_t status;

        if (needs_new_queue(way, i)) {
            side_close(&side);
            open_by(&side, way);
            listen_by(&side, way);
        }
        offer(side.worker, &owned, buffer,
              (uint8_t)(1 + (i + sample_random(&random)) % 250), way);
        tell_where(children[i].out, &side, way);
        side_await(&side, has_fetched, &owned, "a fetch");
        progress_some(&side, &random);
        if (signal_number == SIGKILL) {
            child_kill(&children[i]); /* UCX believes that a zombie lives */
        } else {
            must_eq(kill(children[i].pid, signal_number), 0);
            side_await(&side, child_is_stopped, &children[i], "a standstill");
        }
        status = tmsg_offer_withdraw(owned.offer,
                                     20 * (int)(sample_random(&random) % 2));
        in_time += status == TMSG_OK;
        must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
        must_eq(owned.releases, status == TMSG_OK);
        if (status == TMSG_OK) {
            memset(buffer, 0, BYTES); /* it is mine again */
        }
        if (signal_number == SIGSTOP) {
            must_eq(kill(children[i].pid, SIGCONT), 0);
        }
        side_await(&side, is_released, &owned, "the memory to be free");
        memset(buffer, 0, BYTES);
        tmsg_offer_destroy(owned.offer);
        must_eq(owned.releases, 1);
        if (signal_number == SIGSTOP) {
            child_await(&side, &children[i]); /* it has seen the end of it */
            child_join(&children[i]);
        }
    }
    printf("%zu of %zu withdrawn in time\n", in_time, count);
    side_close(&side);
    free_buffer(buffer, way);
}

static void *continue_soon(void *child)
{
    pause_us(60000);
    must_eq(kill(((child_t *)child)->pid, SIGCONT), 0);
    return NULL;
}

/* A fetcher answers that it reads no more after the time of a withdrawal, but
 * soon. */
Test(offer_lives, are_withdrawn_from_fetchers_that_answer_late)
{
    uint8_t *buffer = malloc(BYTES);
    child_t children[6];
    uint64_t random = begin_random();
    size_t count = sizeof(children) / sizeof(*children);
    owned_t owned;
    side_t side;

    start_all(children, count, fetch_all, WAY_SHM);
    open_by(&side, WAY_SHM);
    listen_by(&side, WAY_SHM);
    for (size_t i = 0; i < count; i++) {
        pthread_t thread;

        offer(side.worker, &owned, buffer, (uint8_t)(9 + i), WAY_SHM);
        tell_where(children[i].out, &side, WAY_SHM);
        side_await(&side, has_fetched, &owned, "a fetch");
        progress_some(&side, &random);
        must_eq(kill(children[i].pid, SIGSTOP), 0);
        must_eq(pthread_create(&thread, NULL, continue_soon, &children[i]), 0);
        must(tmsg_offer_withdraw(owned.offer, 20));
        must_eq(owned.releases, 1);
        memset(buffer, 0, BYTES);
        must_eq(pthread_join(thread, NULL), 0);
        tmsg_offer_destroy(owned.offer);
        child_await(&side, &children[i]);
        child_join(&children[i]);
    }
    side_close(&side);
    free(buffer);
}

Test(offer_lives, outlast_fetchers_that_are_killed)
{
    end_fetchers(WAY_SHM, SIGKILL);
}

Test(offer_lives, outlast_fetchers_that_are_killed_tcp)
{
    end_fetchers(WAY_TCP, SIGKILL);
}

Test(offer_lives, outlast_fetchers_that_are_killed_blob)
{
    end_fetchers(WAY_BLOB, SIGKILL);
}

Test(offer_lives, outlast_fetchers_that_are_killed_session)
{
    end_fetchers(WAY_SESSION, SIGKILL);
}

Test(offer_lives, outlast_fetchers_that_are_killed_loan)
{
    end_fetchers(WAY_LOAN, SIGKILL);
}

Test(offer_lives, outlast_fetchers_that_stand_still)
{
    end_fetchers(WAY_SHM, SIGSTOP);
}

Test(offer_lives, outlast_fetchers_that_stand_still_tcp)
{
    end_fetchers(WAY_TCP, SIGSTOP);
}

Test(offer_lives, outlast_fetchers_that_stand_still_blob)
{
    end_fetchers(WAY_BLOB, SIGSTOP);
}

Test(offer_lives, outlast_fetchers_that_stand_still_session)
{
    end_fetchers(WAY_SESSION, SIGSTOP);
}

Test(offer_lives, outlast_fetchers_that_stand_still_loan)
{
    end_fetchers(WAY_LOAN, SIGSTOP);
}

/* An owner's process, until it is killed. */
static void own(pipes_t *pipes, void *arg)
{
    way_t way = *(way_t *)arg;
    uint8_t *buffer = make_buffer(way);
    owned_t owned;
    side_t side;

    open_by(&side, way);
    listen_by(&side, way);
    offer(side.worker, &owned, buffer, 7, way);
    tell_where(pipes->out, &side, way);
    for (;;) {
        (void)tmsg_worker_wait(side.worker, -1);
    }
}

/* Owners are sent a signal while they are fetched from. */
static void end_owners(way_t way, int signal_number)
{
    static child_t children[MOST];
    size_t count = how_many(false), whole = 0;
    uint64_t random = begin_random();
    side_t side;

    start_all(children, count, own, way);
    open_by(&side, way);
    for (size_t i = 0; i < count; i++) {
        tmsg_endpoint_t *endpoint;
        tmsg_call_t *call;
        uint64_t begun;

        if (needs_new_queue(way, i)) {
            side_close(&side);
            open_by(&side, way);
        }
        endpoint = connect_by(&side, children[i].in, way);
        call = fetch(endpoint, FETCH_MS, way);
        begun = now_ms();
        must_true(call != NULL);
        progress_some(&side, &random);
        must_eq(kill(children[i].pid, signal_number), 0);
        side_await(&side, has_ended, call, "the end of a fetch");
        must_true(now_ms() < begun + FETCH_MS + PEERS_BOUND_MS / 2);
        if (tmsg_call_status(call) == TMSG_OK) {
            check_uniform(tmsg_call_reply(call));
            whole++;
        } else if (signal_number == SIGSTOP) {
            must_be(tmsg_call_status(call), TMSG_ERR_TIMED_OUT);
        } else {
            must_true(tmsg_call_status(call) == TMSG_ERR_PEER_LOST ||
                      tmsg_call_status(call) == TMSG_ERR_TIMED_OUT);
        }
        tmsg_call_destroy(call);
        tmsg_endpoint_destroy(endpoint);
        child_kill(&children[i]);
    }
    printf("%zu of %zu came whole\n", whole, count);
    side_close(&side);
}

Test(offer_lives, end_with_owners_that_are_killed)
{
    end_owners(WAY_SHM, SIGKILL);
}

Test(offer_lives, end_with_owners_that_are_killed_tcp)
{
    end_owners(WAY_TCP, SIGKILL);
}

Test(offer_lives, end_with_owners_that_are_killed_blob)
{
    end_owners(WAY_BLOB, SIGKILL);
}

Test(offer_lives, end_with_owners_that_are_killed_session)
{
    end_owners(WAY_SESSION, SIGKILL);
}

Test(offer_lives, end_with_owners_that_are_killed_loan)
{
    end_owners(WAY_LOAN, SIGKILL);
}

Test(offer_lives, end_in_time_with_owners_that_stand_still)
{
    end_owners(WAY_SHM, SIGSTOP);
}

Test(offer_lives, end_in_time_with_owners_that_stand_still_tcp)
{
    end_owners(WAY_TCP, SIGSTOP);
}

Test(offer_lives, end_in_time_with_owners_that_stand_still_blob)
{
    end_owners(WAY_BLOB, SIGSTOP);
}

Test(offer_lives, end_in_time_with_owners_that_stand_still_session)
{
    end_owners(WAY_SESSION, SIGSTOP);
}

Test(offer_lives, end_in_time_with_owners_that_stand_still_loan)
{
    end_owners(WAY_LOAN, SIGSTOP);
}

static void make_some(side_t *side, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++) {
        char name[32];
        const tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_TTL,
            .name = name,
            .ttl_ms = 100000};
        tmsg_map_t *map = sample_bytes(i, 64);
        tmsg_offer_t *made;

        snprintf(name, sizeof(name), "name %u", i);
        must(tmsg_offer_create(side->worker, map, &params, &made));
        tmsg_map_destroy(map);
        if (i % 2 == 0) {
            must(tmsg_offer_withdraw(made, 0));
        }
        tmsg_offer_destroy(made);
        if (i % 100 == 0) {
            tmsg_worker_progress(side->worker);
        }
    }
}

/* Many are made and withdrawn, and nothing is left of them. */
Test(offer_lives, leave_nothing)
{
    unsigned many = whole_run() ? 1000000 : 10000;
    side_t side;
    size_t before, after;

    side_open(&side, NULL);
    make_some(&side, 0, 3000); /* the memory of the last thousand among it */
    before = mallinfo2().uordblks;
    make_some(&side, 3000, many);
    after = mallinfo2().uordblks;
    must_true(after < before + 16384);
    side_close(&side);
}
