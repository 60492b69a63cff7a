/* SPDX-License-Identifier: BSD-3-Clause */
/* Loans of offers: who asks gets views of the owner's memory, who cannot have
 * them a copy, and the owner hears when its memory is free. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "am/endpoint/endpoint.h"
#include "rpc/offer.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { BYTES = 1 << 18, FETCHERS = 8 };

static const side_options_t borrows = {
    .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
               .flags = TMSG_WORKER_BORROW}};

/* What the application has of one offer. */
typedef struct {
    tmsg_offer_t *offer;
    unsigned releases;
} owned_t;

static void on_release(void *arg) { ((owned_t *)arg)->releases++; }

static bool is_released(void *arg) { return ((owned_t *)arg)->releases > 0; }

static uint8_t *shareable(uint8_t value)
{
    void *memory;

    must(tmsg_shareable_alloc(BYTES, NULL, &memory));
    memset(memory, value, BYTES);
    return memory;
}

static uint8_t *ordinary(uint8_t value)
{
    uint8_t *memory = malloc(BYTES);

    memset(memory, value, BYTES);
    return memory;
}

/* A map of one tensor that borrows the memory. */
static tmsg_map_t *map_of(uint8_t *memory)
{
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        memory, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

/* Offers the memory as "data", to be lent. */
static void offer_times(tmsg_worker_t *worker, owned_t *owned, uint8_t *memory,
                        uint64_t version, uint32_t fetches)
{
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                      TMSG_OFFER_PARAM_FETCHES | TMSG_OFFER_PARAM_ON_RELEASE |
                      TMSG_OFFER_PARAM_FLAGS,
        .name = "data",
        .version = version,
        .fetches = fetches,
        .on_release = on_release,
        .on_release_arg = owned,
        .flags = TMSG_OFFER_LEND};
    tmsg_map_t *map = map_of(memory);

    owned->releases = 0;
    must(tmsg_offer_create(worker, map, &params, &owned->offer));
    tmsg_map_destroy(map);
}

static void offer(tmsg_worker_t *worker, owned_t *owned, uint8_t *memory)
{
    offer_times(worker, owned, memory, 0, 0);
}

static tmsg_call_t *start(tmsg_endpoint_t *endpoint,
                          const tmsg_fetch_params_t *params)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch_name(endpoint, "data", 0, params, &call));
    return call;
}

static const tmsg_fetch_params_t loan = {.field_mask = TMSG_FETCH_PARAM_FLAGS,
                                         .flags = TMSG_FETCH_BORROW};

static bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

static tmsg_call_t *fetch(pair_t *pair, const tmsg_fetch_params_t *params)
{
    tmsg_call_t *call = start(pair->to_a, params);

    pair_await(pair, has_ended, call, "the end of a fetch");
    must_be(tmsg_call_status(call), TMSG_OK);
    return call;
}

static const uint8_t *view_of(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(map, "data", &tensor));
    must_eq(tensor.shape[0], BYTES);
    return tensor.data;
}

static const uint8_t *view(const tmsg_call_t *call)
{
    return view_of(tmsg_call_reply(call));
}

static bool is_all(const uint8_t *bytes, uint8_t value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, BYTES - 1) == 0;
}

/* Ends the offer once the loans have come back. */
static void end_offer(pair_t *pair, owned_t *owned)
{
    must(tmsg_offer_end(owned->offer, 1000));
    pair_await(pair, is_released, owned, "the release");
    tmsg_offer_destroy(owned->offer);
}

static uint64_t under_way(const owned_t *owned)
{
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(owned->offer, &stats);
    return stats.under_way;
}

Test(offer_loans, shareable_memory_is_read_where_it_lies)
{
    uint8_t *memory = shareable(3);
    tmsg_offer_stats_t stats;
    tmsg_call_t *call, *second;
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    offer(pair.a.worker, &owned, memory);
    call = fetch(&pair, &loan);
    cr_expect(tmsg_call_reply_is_lent(call));
    cr_expect(is_all(view(call), 3));
    memory[7] = 4; /* which a well-behaved owner does not do */
    cr_expect_eq(view(call)[7], 4);
    second = fetch(&pair, &loan);
    tmsg_offer_stats(owned.offer, &stats);
    cr_expect_eq(stats.fetches, 2);
    cr_expect_eq(stats.bytes, 2 * BYTES);
    cr_expect_eq(stats.under_way, 2);
    tmsg_call_destroy(second);

    cr_expect_eq(tmsg_offer_withdraw(owned.offer, 0), TMSG_ERR_TIMED_OUT);
    cr_expect_eq(owned.releases, 0);
    cr_expect(tmsg_shareable_is_lent(memory));
    cr_expect_eq(view(call)[7], 4);
    tmsg_call_destroy(call);
    pair_await(&pair, is_released, &owned, "the release");
    cr_expect_eq(under_way(&owned), 0);
    cr_expect(!tmsg_shareable_is_lent(memory));
    tmsg_offer_destroy(owned.offer);
    pair_close(&pair);
    cr_expect_eq(owned.releases, 1);
    must(tmsg_shareable_free(memory));
}

/* What comes is no loan, and right. The memory is free at once. */
static void is_copied(pair_t *pair, owned_t *owned, tmsg_call_t *call)
{
    must_be(tmsg_call_status(call), TMSG_OK);
    cr_expect(!tmsg_call_reply_is_lent(call));
    cr_expect(is_all(view(call), 9));
    end_offer(pair, owned);
    tmsg_call_destroy(call);
}

static void copies_by(link_t link, const tmsg_fetch_params_t *params)
{
    uint8_t *memory = shareable(9);
    owned_t owned;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    offer(pair.a.worker, &owned, memory);
    is_copied(&pair, &owned, fetch(&pair, params));
    cr_expect_eq(pair.to_b->stats.sent_by_loan, 0);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(offer_loans, who_does_not_ask_gets_a_copy) { copies_by(LINK_UNIX, NULL); }

Test(offer_loans, tcp_copies) { copies_by(LINK_SHM, &loan); }

Test(offer_loans, slices_are_copied)
{
    const tmsg_slice_t slice = {.name = "data"};
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_FLAGS |
                                                      TMSG_FETCH_PARAM_SLICES,
                                        .flags = TMSG_FETCH_BORROW,
                                        .slices = &slice,
                                        .slice_count = 1};

    copies_by(LINK_UNIX, &params);
}

Test(offer_loans, into_is_copied)
{
    uint8_t *memory = shareable(9), *place = ordinary(0);
    tmsg_map_t *into = map_of(place);
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_FLAGS |
                                                      TMSG_FETCH_PARAM_INTO,
                                        .flags = TMSG_FETCH_BORROW,
                                        .into = into};
    tmsg_call_t *call;
    owned_t owned;
    pair_t pair;

    /* Once the fetcher asks for no loan, and once the worker takes any. */
    for (int i = 0; i < 2; i++) {
        memset(place, 0, BYTES);
        pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL,
                  i == 0 ? NULL : &borrows);
        offer(pair.a.worker, &owned, memory);
        call = fetch(&pair, &params);
        cr_expect(is_all(place, 9));
        is_copied(&pair, &owned, call);
        cr_expect_eq(pair.to_b->stats.sent_by_loan, (uint64_t)i);
        pair_close(&pair);
    }
    tmsg_map_destroy(into);
    free(place);
    must(tmsg_shareable_free(memory));
}

Test(offer_loans, a_worker_that_borrows_need_not_ask)
{
    uint8_t *memory = shareable(5);
    tmsg_call_t *call;
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, &borrows);
    offer(pair.a.worker, &owned, memory);
    call = fetch(&pair, NULL);
    cr_expect(tmsg_call_reply_is_lent(call));
    tmsg_call_destroy(call);
    end_offer(&pair, &owned);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(offer_loans, unknown_flags_are_refused)
{
    const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_FLAGS,
                                        .flags = 2};
    const tmsg_fetch_params_t wrong = {.field_mask = TMSG_FETCH_PARAM_FLAGS,
                                       .flags = 2};
    tmsg_map_t *map = sample_bytes(1, 8);
    tmsg_offer_t *made;
    tmsg_call_t *call;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must_be(tmsg_offer_create(pair.a.worker, map, &params, &made),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_fetch_name(pair.to_a, "data", 0, &wrong, &call),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown flags 0x2");
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* A fetch that waits for its name is lent what comes. */
Test(offer_loans, who_waits_is_lent_what_comes)
{
    const tmsg_fetch_params_t waits = {.field_mask = TMSG_FETCH_PARAM_FLAGS |
                                                     TMSG_FETCH_PARAM_WAIT,
                                       .flags = TMSG_FETCH_BORROW,
                                       .wait_ms = -1};
    uint8_t *memory = shareable(6);
    tmsg_call_t *call;
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    call = start(pair.to_a, &waits);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    offer(pair.a.worker, &owned, memory);
    pair_await(&pair, has_ended, call, "the end of a fetch");
    cr_expect(tmsg_call_reply_is_lent(call));
    cr_expect(is_all(view(call), 6));
    tmsg_call_destroy(call);
    end_offer(&pair, &owned);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* An offer that may be fetched so often is over then. Its memory is free when
 * the last loan has come back. */
Test(offer_loans, are_counted_as_fetches)
{
    uint8_t *memory = shareable(2);
    tmsg_call_t *calls[2];
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    offer_times(pair.a.worker, &owned, memory, 0, 2);
    calls[0] = fetch(&pair, &loan);
    calls[1] = fetch(&pair, &loan);
    {
        tmsg_call_t *late = start(pair.to_a, &loan);

        pair_await(&pair, has_ended, late, "the end of a fetch");
        cr_expect_eq(tmsg_call_status(late), TMSG_ERR_NOT_FOUND);
        tmsg_call_destroy(late);
    }
    cr_expect_eq(owned.releases, 0);
    tmsg_call_destroy(calls[0]);
    tmsg_call_destroy(calls[1]);
    pair_await(&pair, is_released, &owned, "the release");
    tmsg_offer_destroy(owned.offer);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* An owner and those who fetch from it, in one process. */
typedef struct {
    side_t owner, fetchers[FETCHERS];
    side_t *sides[1 + FETCHERS];
    tmsg_endpoint_t *to_owner[FETCHERS];
    tmsg_call_t *calls[FETCHERS];
} scene_t;

static bool are_connected(void *arg)
{
    scene_t *scene = arg;

    for (int i = 0; i < FETCHERS; i++) {
        if (tmsg_endpoint_status(scene->to_owner[i]) != TMSG_OK) {
            return false;
        }
    }
    return true;
}

static void open_scene(scene_t *scene)
{
    memset(scene, 0, sizeof(*scene));
    side_open(&scene->owner, NULL);
    side_listen_link(&scene->owner, LINK_UNIX);
    scene->sides[0] = &scene->owner;
    for (int i = 0; i < FETCHERS; i++) {
        side_open(&scene->fetchers[i], NULL);
        scene->sides[1 + i] = &scene->fetchers[i];
        scene->to_owner[i] = side_dial(&scene->fetchers[i], &scene->owner);
    }
    await(scene->sides, 1 + FETCHERS, are_connected, scene, "connections");
}

static void close_scene(scene_t *scene)
{
    for (int i = 0; i < FETCHERS; i++) {
        tmsg_call_destroy(scene->calls[i]);
        side_close(&scene->fetchers[i]);
    }
    side_close(&scene->owner);
}

static bool have_all_ended(void *arg)
{
    scene_t *scene = arg;

    for (int i = 0; i < FETCHERS; i++) {
        if (!has_ended(scene->calls[i])) {
            return false;
        }
    }
    return true;
}

/* Counts the files without a name that this process has mapped to read. */
static unsigned count_segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long inode, seen[2 * FETCHERS];
    char line[512], mode[8];
    unsigned count = 0;

    must_true(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned i = 0;

        if (strstr(line, "/memfd:") == NULL ||
            sscanf(line, "%*s %7s %*s %*s %llu", mode, &inode) != 2 ||
            strcmp(mode, "r--s") != 0) {
            continue;
        }
        while (i < count && seen[i] != inode) {
            i++;
        }
        if (i == count) {
            must_true(count < 2 * FETCHERS);
            seen[count++] = inode;
        }
    }
    fclose(maps);
    return count;
}

static bool is_without_segments(void *none)
{
    (void)none;
    return count_segments() == 0;
}

/* Memory that cannot be lent is copied once. The memory itself is free at once,
 * and the copy when the last loan has come back. */
Test(offer_loans, eight_fetchers_share_one_copy)
{
    uint8_t *memory = ordinary(8);
    static scene_t scene;
    owned_t owned;

    open_scene(&scene);
    offer(scene.owner.worker, &owned, memory);
    for (int i = 0; i < FETCHERS; i++) {
        scene.calls[i] = start(scene.to_owner[i], &loan);
    }
    await(scene.sides, 1 + FETCHERS, have_all_ended, &scene, "fetches");
    for (int i = 0; i < FETCHERS; i++) {
        must_be(tmsg_call_status(scene.calls[i]), TMSG_OK);
        cr_expect(tmsg_call_reply_is_lent(scene.calls[i]));
    }
    cr_expect_eq(count_segments(), 1);
    must(tmsg_offer_end(owned.offer, 1000));
    await(scene.sides, 1 + FETCHERS, is_released, &owned, "the release");
    tmsg_offer_destroy(owned.offer);
    memset(memory, 0, BYTES);
    for (int i = 0; i < FETCHERS; i++) {
        cr_expect(is_all(view(scene.calls[i]), 8));
        tmsg_call_destroy(scene.calls[i]);
        scene.calls[i] = NULL;
    }
    await(scene.sides, 1 + FETCHERS, is_without_segments, NULL,
          "the end of the copy");
    close_scene(&scene);
    free(memory);
}

/* Fetchers who keep copies of offers that are over cost a bounded number of
 * them. What is fetched beyond is copied in the usual ways. */
Test(offer_loans, keepers_cost_a_bounded_number_of_copies)
{
    enum { MANY = 80 };
    uint8_t *memory = ordinary(0);
    static tmsg_call_t *calls[MANY];
    unsigned lent = 0;
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (uint8_t i = 0; i < MANY; i++) {
        memset(memory, i, BYTES);
        offer_times(pair.a.worker, &owned, memory, i, 0);
        calls[i] = fetch(&pair, &loan);
        lent += (unsigned)tmsg_call_reply_is_lent(calls[i]);
        end_offer(&pair, &owned);
    }
    cr_expect_eq(lent, 64);
    for (uint8_t i = 0; i < MANY; i++) {
        cr_expect(is_all(view(calls[i]), i));
        tmsg_call_destroy(calls[i]);
    }
    offer(pair.a.worker, &owned, memory);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.b.worker);
        tmsg_worker_progress(pair.a.worker);
    }
    calls[0] = fetch(&pair, &loan);
    cr_expect(tmsg_call_reply_is_lent(calls[0]));
    tmsg_call_destroy(calls[0]);
    tmsg_offer_destroy(owned.offer);
    pair_close(&pair);
    free(memory);
}

/* Opens a session without a relay, which would pass no descriptors. */
static void open_session(joined_t *joined)
{
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .most_backoff_ms = 20};
    pair_t *pair = &joined->pair;
    char url[256];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("kept"));
    memset(joined, 0, sizeof(*joined));
    side_open(&pair->a, NULL);
    side_open(&pair->b, NULL);
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    joined_listen(&pair->a, url, -1);
    pair->to_a = joined_dial(&pair->b, url, reconnect);
    pair_await(pair, joined_is_open, joined, "a connection");
    pair->to_b = pair->a.accepted;
}

static bool is_back(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) == TMSG_OK;
}

static void break_session(pair_t *pair)
{
    must_eq(shutdown(pair->to_a->link.fd, SHUT_RDWR), 0);
    pair_await(pair, joined_is_away, pair->to_a, "a break");
}

/* Views outlive a break. A fetch that begins during it is a loan of the next
 * connection. Memory that was lent on the broken one stays lent, for its peer
 * cannot give it back any more: here until the worker's end, since the peer is
 * this process. */
static void breaks(bool lies_there)
{
    uint8_t *memory = lies_there ? shareable(4) : ordinary(4);
    static joined_t joined;
    pair_t *pair = &joined.pair;
    tmsg_call_t *calls[2];
    owned_t owned;

    open_session(&joined);
    offer(pair->a.worker, &owned, memory);
    calls[0] = fetch(pair, &loan);
    break_session(pair);
    calls[1] = start(pair->to_a, &loan);
    pair_await(pair, is_back, pair->to_a, "the next connection");
    pair_await(pair, has_ended, calls[1], "the end of a fetch");
    must_be(tmsg_call_status(calls[1]), TMSG_OK);
    for (int i = 0; i < 2; i++) {
        cr_expect(tmsg_call_reply_is_lent(calls[i]));
        cr_expect(is_all(view(calls[i]), 4));
        tmsg_call_destroy(calls[i]);
    }
    if (lies_there) {
        for (int i = 0; i < 1000; i++) {
            tmsg_worker_progress(pair->b.worker);
            tmsg_worker_progress(pair->a.worker);
        }
        cr_expect_eq(tmsg_offer_withdraw(owned.offer, 0), TMSG_ERR_TIMED_OUT);
        tmsg_offer_destroy(owned.offer);
    } else {
        end_offer(pair, &owned);
    }
    pair_drop(pair);
    cr_expect_eq(owned.releases, 1);
    if (lies_there) {
        must(tmsg_shareable_free(memory));
    } else {
        free(memory);
    }
}

Test(offer_loans, of_a_copy_on_a_session_that_breaks) { breaks(false); }

Test(offer_loans, of_a_block_on_a_session_that_breaks) { breaks(true); }

/* Offers for some principals are lent to them alone. */
Test(offer_loans, to_a_principal)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};
    side_options_t options = {.keyring = NULL};
    uint8_t *memory = shareable(4);
    tmsg_map_t *map = map_of(memory);
    tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_PRINCIPALS |
                                                TMSG_OFFER_PARAM_FLAGS,
                                  .flags = TMSG_OFFER_LEND};
    static const char *const names[] = {"bob", "alice"};
    pair_t pair;

    must(tmsg_keyring_create(&options.keyring));
    must(tmsg_keyring_add(options.keyring, "alice", key));
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &options, &options);
    tmsg_keyring_destroy(options.keyring);
    for (int i = 0; i < 2; i++) {
        tmsg_offer_key_t name;
        tmsg_offer_t *made;
        tmsg_call_t *call;

        params.principals = names[i];
        must(tmsg_offer_create(pair.a.worker, map, &params, &made));
        tmsg_offer_key(made, &name);
        must(tmsg_endpoint_fetch(pair.to_a, &name, &loan, &call));
        pair_await(&pair, has_ended, call, "the end of a fetch");
        cr_expect_eq(tmsg_call_status(call),
                     i == 0 ? TMSG_ERR_REFUSED : TMSG_OK);
        cr_expect_eq(tmsg_call_reply_is_lent(call), i);
        tmsg_call_destroy(call);
        tmsg_offer_destroy(made);
    }
    pair_close(&pair);
    tmsg_map_destroy(map);
    must(tmsg_shareable_free(memory));
}

/* Whoever gives a loan back, and whoever ends the offer, is another thread than
 * the workers'. */
Test(offer_loans, between_workers_with_threads)
{
    uint8_t *memories[] = {shareable(3), ordinary(3)};
    owned_t owned;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_THREAD, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        tmsg_call_t *calls[2];

        offer_times(pair.a.worker, &owned, memories[i % 2], (uint64_t)i, 0);
        for (int j = 0; j < 2; j++) {
            calls[j] = start(pair.to_a, &loan);
            must(tmsg_call_wait(calls[j], PEERS_BOUND_MS));
            cr_expect(tmsg_call_reply_is_lent(calls[j]));
        }
        tmsg_call_destroy(calls[0]);
        cr_expect(is_all(view(calls[1]), 3));
        tmsg_call_destroy(calls[1]);
        must(tmsg_offer_withdraw(owned.offer, PEERS_BOUND_MS));
        tmsg_offer_destroy(owned.offer);
    }
    pair_close(&pair);
    must(tmsg_shareable_free(memories[0]));
    free(memories[1]);
}

/* An owner's process, until it is killed. */
static void own(pipes_t *pipes, void *arg)
{
    uint8_t *memory = *(bool *)arg ? shareable(7) : ordinary(7);
    owned_t owned;
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    offer(side.worker, &owned, memory);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    for (;;) {
        (void)tmsg_worker_wait(side.worker, -1);
    }
}

Test(offer_loans, views_outlive_an_owner_that_is_killed)
{
    for (int i = 0; i < 2; i++) {
        bool lies_there = i == 0;
        tmsg_endpoint_t *endpoint;
        tmsg_call_t *call;
        child_t owner;
        char url[256];
        side_t side;

        child_start(&owner, own, &lies_there);
        side_open(&side, NULL);
        line_get(owner.in, url, sizeof(url));
        endpoint = side_connect(&side, url);
        call = start(endpoint, &loan);
        side_await(&side, has_ended, call, "the end of a fetch");
        must_be(tmsg_call_status(call), TMSG_OK);
        must_true(tmsg_call_reply_is_lent(call));
        child_kill(&owner);
        cr_expect_eq(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
        cr_expect(is_all(view(call), 7));
        tmsg_call_destroy(call);
        side_close(&side);
    }
}

/* A fetcher that keeps what it has fetched, until it is killed. */
static void keep_for_ever(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    tmsg_call_t *call;
    char url[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    call = start(endpoint, &loan);
    side_await(&side, has_ended, call, "the end of a fetch");
    must_true(tmsg_call_reply_is_lent(call));
    line_put(pipes->out, "kept");
    for (;;) {
        (void)tmsg_worker_wait(side.worker, -1);
    }
}

Test(offer_loans, memory_is_free_when_its_keeper_was_killed)
{
    child_t fetcher;
    uint8_t *memory;
    owned_t owned;
    side_t side;

    child_start(&fetcher, keep_for_ever, NULL);
    memory = shareable(3);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    offer(side.worker, &owned, memory);
    line_put(fetcher.out, tmsg_listener_url(side.listener));
    child_await(&side, &fetcher);
    cr_expect_eq(tmsg_offer_withdraw(owned.offer, 0), TMSG_ERR_TIMED_OUT);
    cr_expect_eq(owned.releases, 0);
    cr_expect_eq(under_way(&owned), 1);
    child_kill(&fetcher);
    side_await(&side, is_released, &owned, "the release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    tmsg_offer_destroy(owned.offer);
    side_close(&side);
    must(tmsg_shareable_free(memory));
}

/* Fetches until the owner has gone, and looks at each map when it comes and
 * after a while. */
static void fetch_until_lost(pipes_t *pipes, void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg;
    tmsg_status_t status = TMSG_OK;
    tmsg_endpoint_t *endpoint;
    unsigned loans = 0;
    char url[256];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    while (tmsg_endpoint_status(endpoint) == TMSG_OK) {
        tmsg_call_t *call;

        if (tmsg_endpoint_fetch_name(endpoint, "data", 0, &loan, &call) !=
            TMSG_OK) {
            break;
        }
        side_await(&side, has_ended, call, "the end of a fetch");
        status = tmsg_call_status(call);
        if (status == TMSG_OK) {
            uint8_t value = view(call)[0];

            loans += (unsigned)tmsg_call_reply_is_lent(call);
            must_true(value != 0 && is_all(view(call), value));
            for (uint64_t turns = sample_random(&random) % 50; turns > 0;
                 turns--) {
                tmsg_worker_progress(side.worker);
            }
            must_true(is_all(view(call), value));
        }
        tmsg_call_destroy(call);
    }
    must_true(loans > 0);
    side_close(&side);
}

/* Whoever overwrites memory after its release harms nobody. */
Test(offer_loans, memory_is_overwritten_under_fetchers_who_borrow)
{
    enum { ROUNDS = 30 };
    child_t children[FETCHERS];
    uint8_t *memory;
    owned_t owned;
    side_t side;

    for (uintptr_t i = 0; i < FETCHERS; i++) {
        child_start(&children[i], fetch_until_lost, (void *)(i + 1));
    }
    memory = shareable(1);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    for (int i = 0; i < FETCHERS; i++) {
        line_put(children[i].out, tmsg_listener_url(side.listener));
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        tmsg_offer_stats_t stats = {.fetches = 0};

        memset(memory, (int)(1 + i % 250), BYTES);
        offer_times(side.worker, &owned, memory, i, 0);
        while (stats.fetches < (i == 0 ? 10 * FETCHERS : FETCHERS)) {
            (void)tmsg_worker_wait(side.worker, 100);
            tmsg_offer_stats(owned.offer, &stats);
        }
        must(tmsg_offer_end(owned.offer, 1000));
        side_await(&side, is_released, &owned, "the release");
        tmsg_offer_destroy(owned.offer);
        memset(memory, 0, BYTES);
    }
    side_close(&side);
    for (int i = 0; i < FETCHERS; i++) {
        child_join(&children[i]);
    }
    must(tmsg_shareable_free(memory));
}
