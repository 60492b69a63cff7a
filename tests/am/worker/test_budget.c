/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What counts against held_bytes: payloads, and all that came with them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define BUDGET 1000000

#ifdef __SANITIZE_ADDRESS__ /* memory/spares.c */
#define KEEPS_RECORDS 0
#else
#define KEEPS_RECORDS 1
#endif

static bool is_signalled(int fd)
{
    eventfd_t count;

    return eventfd_read(fd, &count) == 0;
}

Test(budget, what_waits_is_signalled_when_memory_comes_free)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_budget_t *budget;
    tmsg_block_t block;

    must(tmsg_budget_create(NULL, BUDGET, fd, NULL, NULL, NULL, &budget));
    must(tmsg_budget_reserve(budget, BUDGET));
    must_be(tmsg_budget_reserve(budget, 1), TMSG_IN_PROGRESS);
    must_be(tmsg_budget_alloc(budget, NULL, 1, &block), TMSG_IN_PROGRESS);
    cr_expect(tmsg_budget_is_missed(budget));
    cr_expect_not(is_signalled(fd));
    tmsg_budget_discharge(budget, BUDGET);
    cr_expect(is_signalled(fd));
    must(tmsg_budget_reserve(budget, 1));
    tmsg_budget_discharge(budget, 1);
    tmsg_budget_drop(budget);
    close(fd);
}

/* A payload that waited for what is behind it would wait for ever. */
Test(budget, what_came_with_a_header_counts_once_it_is_delivered)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_budget_t *budget;

    must(tmsg_budget_create(NULL, BUDGET, fd, NULL, NULL, NULL, &budget));
    must(tmsg_budget_note(budget, BUDGET, false));
    must(tmsg_budget_reserve(budget, BUDGET));
    tmsg_budget_discharge(budget, BUDGET);
    tmsg_budget_move(budget, BUDGET);
    must_be(tmsg_budget_reserve(budget, 1), TMSG_IN_PROGRESS);
    tmsg_budget_discharge(budget, BUDGET);
    must(tmsg_budget_reserve(budget, BUDGET));
    tmsg_budget_discharge(budget, BUDGET);
    tmsg_budget_drop(budget);
    close(fd);
}

Test(budget, all_together_stay_within_the_slack)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_budget_t *budget;

    must(tmsg_budget_create(NULL, BUDGET, fd, NULL, NULL, NULL, &budget));
    must(tmsg_budget_reserve(budget, 1));
    must_be(tmsg_budget_note(budget, BUDGET + TMSG_BUDGET_SLACK, false),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "held_bytes 1000000 by more than 67108864");
    must(tmsg_budget_note(budget, BUDGET + TMSG_BUDGET_SLACK - 1, false));
    tmsg_budget_move(budget, BUDGET + TMSG_BUDGET_SLACK - 1);
    must_be(tmsg_budget_note(budget, 1, false), TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_budget_discharge(budget, 1);
    must(tmsg_budget_note(budget, 1, false));
    tmsg_budget_forget(budget, 1);
    tmsg_budget_discharge(budget, BUDGET + TMSG_BUDGET_SLACK - 1);
    tmsg_budget_drop(budget);
    close(fd);
}

/* Else payloads could come to the budget beside as much again. */
Test(budget, what_nobody_has_yet_stays_within_a_quarter_and_the_slack)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_budget_t *budget;

    must(tmsg_budget_create(NULL, BUDGET, fd, NULL, NULL, NULL, &budget));
    must(tmsg_budget_note(budget, BUDGET / 4 + TMSG_BUDGET_SLACK, false));
    must(
        tmsg_budget_note(budget, 1, false)); /* the last may be of any length */
    must_be(tmsg_budget_note(budget, 1, false), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "67358865 bytes already, of 67358864");
    must(tmsg_budget_note(budget, 1, true)); /* of one that was let in */
    tmsg_budget_forget(budget, 1);
    tmsg_budget_move(budget, 1);
    must(tmsg_budget_note(budget, 1, false));
    must_eq(tmsg_budget_noted(budget), BUDGET / 4 + TMSG_BUDGET_SLACK + 1);
    tmsg_budget_forget(budget, BUDGET / 4 + TMSG_BUDGET_SLACK + 1);
    tmsg_budget_discharge(budget, 1);
    tmsg_budget_drop(budget);
    close(fd);
}

static tmsg_status_t alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p)
{
    (void)arg;
    (void)device;
    (void)token_p;
    *data_p = aligned_alloc(alignment, (bytes + 63) / 64 * 64);
    return TMSG_OK;
}

static void release(void *arg, void *data, uint64_t bytes, void *token)
{
    (void)arg;
    (void)bytes;
    (void)token;
    free(data);
}

static const tmsg_allocator_t allocator = {alloc, release, NULL};

static void ignore(tmsg_spare_t *spare) { (void)spare; }

/* By whichever thread either is. */
Test(budget, what_is_charged_counts_until_its_record_is_back)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_spare_t record = {NULL, 1};
    tmsg_budget_t *budget;

    must(tmsg_budget_create(NULL, BUDGET, fd, ignore, NULL, NULL, &budget));
    for (int i = 0; i < 4; i++) {
        void (*charging)(tmsg_budget_t *) =
            i & 1 ? tmsg_budget_enter : tmsg_budget_leave;
        void (*giving)(tmsg_budget_t *) =
            i & 2 ? tmsg_budget_enter : tmsg_budget_leave;

        charging(budget);
        must(tmsg_budget_charge(budget, BUDGET));
        must_be(tmsg_budget_reserve(budget, 1), TMSG_IN_PROGRESS);
        giving(budget);
        tmsg_budget_give_back(budget, &record, BUDGET);
        cr_expect(is_signalled(fd));
        must(tmsg_budget_reserve(budget, BUDGET));
        tmsg_budget_discharge(budget, BUDGET);
        cr_expect(eq(ptr, tmsg_spares_take(tmsg_budget_messages(budget)),
                     KEEPS_RECORDS ? &record : NULL));
    }
    must_be(tmsg_budget_charge(budget, BUDGET + TMSG_BUDGET_SLACK + 1),
            TMSG_ERR_LIMIT_EXCEEDED);
    must(tmsg_budget_charge(budget, BUDGET + TMSG_BUDGET_SLACK));
    tmsg_budget_discharge(budget, BUDGET + TMSG_BUDGET_SLACK);
    tmsg_budget_drop(budget);
    close(fd);
}

/* What is not to wait is had where the budget has it, and nobody waits. */
Test(budget, what_is_claimed_is_within_the_budget)
{
    int fd = eventfd(0, EFD_NONBLOCK);
    tmsg_budget_t *budget;

    must(tmsg_budget_create(NULL, BUDGET, fd, NULL, NULL, NULL, &budget));
    must(tmsg_budget_note(budget, 100, false));
    cr_expect_not(tmsg_budget_claim(budget, BUDGET - 99));
    cr_expect(eq(u64, tmsg_budget_held(budget), 0));
    cr_expect(tmsg_budget_claim(budget, BUDGET - 100));
    cr_expect_not(tmsg_budget_claim(budget, 1));
    cr_expect_not(tmsg_budget_is_missed(budget));
    must_be(tmsg_budget_reserve(budget, 1000), TMSG_IN_PROGRESS);
    cr_expect(tmsg_budget_is_missed(budget));
    tmsg_budget_forget(budget, 100);
    cr_expect_not(tmsg_budget_claim(budget, 1)); /* for somebody waits */
    tmsg_budget_discharge(budget, BUDGET - 100);
    cr_expect(is_signalled(fd));
    cr_expect(tmsg_budget_claim(budget, BUDGET));
    tmsg_budget_discharge(budget, BUDGET);
    tmsg_budget_drop(budget);
    close(fd);
}

static side_options_t options_of(uint64_t held_bytes, uint64_t params)
{
    return (side_options_t){.limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                                       .held_bytes = held_bytes},
                            .worker = {.field_mask = params,
                                       .flags = TMSG_WORKER_CAPTURE,
                                       .allocator = &allocator}};
}

static tmsg_map_t *talkative(size_t bytes)
{
    uint8_t *words = calloc(1, bytes);
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_bytes(map, "words", words, bytes));
    free(words);
    return map;
}

/* Whether a payload of half the budget waits while a delivered message without
 * payload is held. */
static bool waits_behind(size_t metadata, uint64_t params)
{
    const side_options_t options = options_of(BUDGET, params);
    tmsg_message_t *held, *message = NULL;
    tmsg_request_t *sent[2];
    bool waited;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent[0] = send_map(pair.to_a, talkative(metadata), 0);
    held = pair_take(&pair, &pair.a);
    sent[1] = send_map(pair.to_a, sample_bytes(1, BUDGET / 2), 0);
    for (int i = 0; i < 2000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    waited = tmsg_worker_recv(pair.a.worker, 0, &message) == TMSG_ERR_TIMED_OUT;
    tmsg_message_destroy(held);
    if (waited) {
        message = pair_take(&pair, &pair.a);
    }
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent[0]));
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
    return waited;
}

Test(budget, decoded_maps_and_captured_headers_count)
{
    cr_expect_not(waits_behind(5000, 0));
    cr_expect_not(waits_behind(300000, 0));
    cr_expect(waits_behind(600000, 0)); /* the map counts */
    /* The header counts, too. */
    cr_expect(waits_behind(300000, TMSG_WORKER_PARAM_FLAGS));
}

/* To whom it would look as if the peer sent nothing. */
Test(budget, a_full_one_says_so)
{
    const side_options_t options = options_of(BUDGET, 0);
    tmsg_message_t *held, *message = NULL;
    tmsg_request_t *sent[2];
    pair_t pair;
    char *json;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent[0] = send_map(pair.to_a, sample_bytes(1, BUDGET - 1000), 0);
    held = pair_take(&pair, &pair.a);
    must_be(tmsg_worker_recv(pair.a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
    cr_expect(strstr(tmsg_error_message(), "held_bytes") == NULL);
    cr_expect_not(tmsg_worker_starves(pair.a.worker));
    sent[1] = send_map(pair.to_a, sample_bytes(1, BUDGET / 2), 0);
    for (int i = 0; i < 2000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_be(tmsg_worker_recv(pair.a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(),
             "; a message waits for memory: those that came and were not "
             "released hold ");
    must_say(tmsg_error_message(), " bytes, and held_bytes is 1000000");
    cr_expect(tmsg_worker_starves(pair.a.worker));
    must(tmsg_worker_describe(pair.a.worker, &json));
    must_say(json, "\"starved_messages\":\t1");
    tmsg_string_free(json);
    tmsg_message_destroy(held);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    cr_expect_not(tmsg_worker_starves(pair.a.worker));
    must(pair_finish(&pair, sent[0]));
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
}

/* A spilled body is the library's even where the payload is not. */
Test(budget, a_spilled_body_counts_beside_an_allocator)
{
    const side_options_t options =
        options_of(BUDGET, TMSG_WORKER_PARAM_ALLOCATOR);
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent = send_map(pair.to_a, talkative(BUDGET), TMSG_SEND_ACKED);
    must_be(pair_wait(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_request_error(sent), "held_bytes");
    tmsg_request_destroy(sent);
    sent = send_map(pair.to_a, sample_bytes(1, 3 * BUDGET), 0);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

/* Each message that is over gives back what it took. */
Test(budget, nothing_stays_behind)
{
    const side_options_t options = options_of(BUDGET, TMSG_WORKER_PARAM_FLAGS);
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (int i = 0; i < 50; i++) {
        sent = send_map(pair.to_a, talkative(i % 2 ? 100 : 200000), 0);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent));
        sent = send_map(pair.to_a, sample_bytes(1, 2 * BUDGET), 0);
        must_be(pair_finish(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
    }
    must(tmsg_budget_note(pair.a.worker->budget, BUDGET + TMSG_BUDGET_SLACK,
                          false));
    tmsg_budget_forget(pair.a.worker->budget, BUDGET + TMSG_BUDGET_SLACK);
    pair_close(&pair);
}

static void *destroy(void *message)
{
    tmsg_message_destroy(message);
    return NULL;
}

/* They are destroyed at once, kept while others come and go, or destroyed by
 * another thread. */
Test(budget, nothing_of_template_messages_stays_behind)
{
    enum { MESSAGES = 600, KEPT = 50 };
    const side_options_t options = options_of(BUDGET, 0);
    tmsg_message_t *kept[KEPT] = {NULL};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (unsigned i = 0; i < MESSAGES; i++) {
        const sample_t sample = sample_plain(1, 100);
        tmsg_request_t *sent = send_map(pair.to_a, sample_make(&sample), 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        pthread_t thread;

        must(pair_finish(&pair, sent));
        if (i % 3 == 0) {
            tmsg_message_destroy(kept[i % KEPT]);
            kept[i % KEPT] = message;
        } else if (i % 3 == 1) {
            tmsg_message_destroy(message);
        } else {
            must_eq(pthread_create(&thread, NULL, destroy, message), 0);
            pthread_join(thread, NULL);
        }
    }
    for (unsigned i = 0; i < KEPT; i++) {
        tmsg_message_destroy(kept[i]);
    }
    cr_expect(ge(u64, pair.to_b->stats.received_by_template, MESSAGES / 2));
    must(tmsg_budget_reserve(pair.a.worker->budget, BUDGET));
    must_be(tmsg_budget_reserve(pair.a.worker->budget, 1), TMSG_IN_PROGRESS);
    tmsg_budget_discharge(pair.a.worker->budget, BUDGET);
    pair_close(&pair);
}

Test(budget, a_header_beyond_the_slack_is_refused)
{
    const uint64_t others = BUDGET + TMSG_BUDGET_SLACK - 100;
    const side_options_t options = options_of(BUDGET, TMSG_WORKER_PARAM_FLAGS);
    tmsg_request_t *sent;
    pair_t pair;

    for (size_t bytes = 10; bytes < 100000; bytes *= 100) { /* and spilled */
        pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
        must(tmsg_budget_note(pair.a.worker->budget, others, false));
        sent = send_map(pair.to_a, talkative(bytes), TMSG_SEND_ACKED);
        must_be(pair_wait(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
        must_say(tmsg_request_error(sent), "names, shapes and metadata");
        tmsg_request_destroy(sent);
        tmsg_budget_forget(pair.a.worker->budget, others);
        sent = send_map(pair.to_a, talkative(bytes), TMSG_SEND_ACKED);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent));
        pair_close(&pair);
    }
}

static bool is_tidy(void *arg)
{
    const side_t *side = arg;

    return !tmsg_pool_hoards(tmsg_budget_pool(side->worker->budget));
}

/* Memory is kept while it is used, and then goes back: here it is never
 * touched, so that there need not be as much. */
Test(budget, much_that_lies_unused_is_given_back)
{
    const side_options_t options =
        options_of(4ull << 30, TMSG_WORKER_PARAM_FLAGS);
    side_t side, *sides = &side;
    tmsg_pool_block_t block, again;
    tmsg_pool_t *pool;

    side_open(&side, &options);
    pool = tmsg_budget_pool(side.worker->budget);
    must(tmsg_pool_take(pool, 1ull << 30, &block));
    tmsg_pool_give(pool, block);
    cr_expect(tmsg_pool_hoards(pool));
    must(tmsg_pool_take(pool, 1ull << 30, &again));
    cr_expect(eq(ptr, again.data, block.data));
    tmsg_pool_give(pool, again);
    await(&sides, 1, is_tidy, &side, "what nobody uses to be freed");
    cr_expect(eq(u64, pool->kept, 0));
    side_close(&side);
}
