/* SPDX-License-Identifier: BSD-3-Clause */
/* What is copied to be lent: how many copies there may be, who may have them,
 * and when their memory is used again. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/lent_maps.h"
#include "support/numbered_keys.h"
#include "test_loan_tools.h"

enum { MIB = 1 << 20 };

static bool has_descriptors = true; /* for eventfd() */

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);

int __wrap_eventfd(unsigned count, int flags)
{
    errno = EMFILE;
    return has_descriptors ? __real_eventfd(count, flags) : -1;
}

/* What an earlier message left beside the tensors is gone. */
Test(loan_copies, memory_that_is_used_again_shows_no_earlier_message)
{
    enum { FEW = 100, LESS = 600000 };
    uint8_t *memory = malloc(MIB);
    tmsg_message_t *message;
    const uint8_t *x, *y;
    tmsg_map_t *map;
    pair_t pair;

    memset(memory, 5, MIB);
    lent_open(&pair, LINK_UNIX);
    message = lent_pass(&pair, lent_map(memory, MIB), 0);
    x = lent_data(message, "x");
    tmsg_message_destroy(message);
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    map = lent_map(memory, FEW);
    lent_add(map, "y", memory, LESS);
    message = lent_pass(&pair, map, 0);
    must_true(lent_data(message, "x") == x);
    y = lent_data(message, "y");
    lent_check(message, "y", 5, LESS);
    for (const uint8_t *at = x + FEW; at < y; at++) {
        must_eq(*at, 0);
    }
    for (const uint8_t *at = y + LESS; at < x + MIB; at++) {
        must_eq(*at, 0);
    }
    tmsg_message_destroy(message);
    pair_close(&pair);
    free(memory);
}

/* For pair_await(): the peer has refused a segment, or the endpoint ended. */
static bool is_refused(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;
    const tmsg_loans_t *loans = endpoint->paths.loans;

    return endpoint->state == TMSG_EP_ENDED ||
           (loans != NULL && loans->refused_until_ns > 0);
}

/* A borrower without descriptors gets copies. */
Test(loan_copies, of_a_borrower_without_descriptors_are_refused)
{
    enum { BYTES = 65536 };
    uint8_t *memory = lent_block(BYTES);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    must_true(tmsg_loans_of(pair.to_a) != NULL);
    must_true(pair.to_b->paths.loans == NULL);
    has_descriptors = false; /* for the borrower's record */
    request = lent_send(pair.to_a, lent_map(memory, BYTES), 0, &releases);
    pair_await(&pair, is_refused, pair.to_a, "a refusal");
    has_descriptors = true;
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(!tmsg_message_is_lent(message));
    lent_check(message, "x", 3, BYTES);
    lent_must_say(pair.to_a, "no descriptor left for loans");
    tmsg_message_destroy(message);
    pair_close(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* A borrower that keeps all it gets costs a bounded amount of memory. */
Test(loan_copies, a_borrower_that_keeps_all_gets_copies_in_the_end)
{
    enum { MESSAGES = 80, BYTES = 65536 };
    uint8_t *memory = malloc(BYTES);
    tmsg_message_t *messages[MESSAGES];
    unsigned lent = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < MESSAGES; i++) {
        memset(memory, i, BYTES);
        messages[i] = lent_pass(&pair, lent_map(memory, BYTES), 0);
        lent += (unsigned)tmsg_message_is_lent(messages[i]);
    }
    cr_expect_eq(lent, 32);
    lent_must_say(pair.to_a, "keeps half of the copies");
    for (int i = 0; i < MESSAGES; i++) {
        lent_check(messages[i], "x", i, BYTES);
        tmsg_message_destroy(messages[i]);
    }
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    messages[0] = lent_pass(&pair, lent_map(memory, BYTES), 0);
    cr_expect(tmsg_message_is_lent(messages[0]));
    tmsg_message_destroy(messages[0]);
    pair_close(&pair);
    free(memory);
}

/* A map of `count` blocks, which are allocated if they are not there yet. */
static tmsg_map_t *map_of_blocks(uint8_t **blocks, unsigned count)
{
    enum { BYTES = 65536 };
    tmsg_map_t *map;
    char name[16];

    must(tmsg_map_create(&map));
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = blocks[i] == NULL ? lent_block(BYTES) : blocks[i];
        snprintf(name, sizeof(name), "%u", i);
        lent_add(map, name, blocks[i], BYTES);
    }
    return map;
}

/* For pair_await(): it has answered about all segments. */
static bool has_answered(void *arg)
{
    const tmsg_loans_t *loans = ((const tmsg_endpoint_t *)arg)->paths.loans;

    for (unsigned i = 0; i < loans->offered_count; i++) {
        if (loans->offered[i].state != TMSG_SEGMENT_TAKEN) {
            return false;
        }
    }
    return true;
}

/* The peer keeps so many segments that those of one message have no room: they
 * do not drive each other out for ever. */
Test(loan_copies, a_message_of_more_segments_than_have_room_is_copied)
{
    enum { KEPT = 241, EACH = 1, WANTED = 16 };
    uint8_t *blocks[KEPT * EACH] = {NULL}, *wanted[WANTED] = {NULL};
    tmsg_message_t *kept[KEPT], *message;
    unsigned releases = 0, others = 0;
    tmsg_request_t *request;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (unsigned i = 0; i < KEPT; i++) {
        request = lent_send(pair.to_a, map_of_blocks(blocks + i * EACH, EACH),
                            0, &releases);
        kept[i] = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        must_true(tmsg_message_is_lent(kept[i]));
    }
    must_eq(pair.to_a->paths.loans->offered_count, KEPT * EACH);
    for (int i = 0; i < 3; i++) {
        request =
            lent_send(pair.to_a, map_of_blocks(wanted, WANTED), 0, &others);
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        cr_expect(!tmsg_message_is_lent(message));
        tmsg_message_destroy(message);
        pair_await(&pair, has_answered, pair.to_a, "answers");
    }
    lent_must_say(pair.to_a, "as many segments as it may have");
    cr_expect_eq(others, 3);
    for (unsigned i = 0; i < KEPT; i++) {
        tmsg_message_destroy(kept[i]);
    }
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    request = lent_send(pair.to_a, map_of_blocks(wanted, WANTED), 0, &others);
    message = pair_take(&pair, &pair.a);
    cr_expect(tmsg_message_is_lent(message));
    must(pair_finish(&pair, request));
    tmsg_message_destroy(message);
    pair_close(&pair);
    for (unsigned i = 0; i < KEPT * EACH; i++) {
        must(tmsg_shareable_free(blocks[i]));
    }
    for (unsigned i = 0; i < WANTED; i++) {
        must(tmsg_shareable_free(wanted[i]));
    }
}

/* To connect anew brings no more of them. */
Test(loan_copies, a_borrower_that_hangs_up_and_keeps_all_gets_copies_in_the_end)
{
    enum { TIMES = 3, MESSAGES = 20, BYTES = 65536 };
    uint8_t *memory = calloc(1, BYTES);
    tmsg_message_t *messages[TIMES * MESSAGES];
    side_t owner, sides[TIMES];
    unsigned lent = 0;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    for (unsigned i = 0; i < TIMES; i++) {
        pair_t both = {.sides = {&owner, &sides[i]}};
        tmsg_endpoint_t *to_it;

        lent_join(&sides[i], &owner, NULL, 0, &to_it);
        for (unsigned j = 0; j < MESSAGES; j++) {
            tmsg_message_t **message_p = &messages[i * MESSAGES + j];
            unsigned releases = 0;
            tmsg_request_t *request =
                lent_send(to_it, lent_map(memory, BYTES), 0, &releases);

            *message_p = pair_take(&both, &sides[i]);
            must(pair_finish(&both, request));
            lent += (unsigned)tmsg_message_is_lent(*message_p);
        }
        tmsg_endpoint_destroy(to_it);
    }
    cr_expect_eq(lent, 32);
    cr_expect_eq(owner.worker->paths.lender->copies.count, 32);
    for (unsigned i = 0; i < TIMES * MESSAGES; i++) {
        tmsg_message_destroy(messages[i]);
    }
    for (unsigned i = 0; i < TIMES; i++) {
        side_close(&sides[i]);
    }
    side_close(&owner);
    free(memory);
}

/* An idle copy is not given up for one that has no room anyway. */
Test(loan_copies, idle_copies_stay_where_they_make_no_room)
{
    uint8_t *memory = calloc(1, MIB);
    tmsg_copy_segment_t *copy, *other;
    tmsg_lender_t *lender;
    const char *why;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    tmsg_message_destroy(lent_pass(&pair, lent_map(memory, MIB), 0));
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    tmsg_worker_lock(pair.b.worker);
    lender = pair.b.worker->paths.lender;
    lender->bytes_most = 8 * MIB;
    copy = tmsg_copies_take(pair.to_a, 4 * MIB, 0, &why);
    cr_expect_eq(lender->copies.count, 2);
    other = tmsg_copies_take(pair.to_a, 8 * MIB, 0, &why);
    cr_expect_null(other);
    must_say(why, "too many copies");
    cr_expect_eq(lender->copies.count, 2);
    tmsg_copies_give(pair.b.worker, copy);
    tmsg_worker_unlock(pair.b.worker);
    pair_close(&pair);
    free(memory);
}

/* Copies that are larger than all others together may be do not make room for
 * these, and have a bound of their own. */
Test(loan_copies, large_ones_are_used_again)
{
    uint8_t *memory = calloc(2, MIB);
    tmsg_message_t *message, *second;
    const uint8_t *first = NULL;
    tmsg_lender_t *lender;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    tmsg_message_destroy(lent_pass(&pair, lent_map(memory, MIB), 0));
    lender = pair.b.worker->paths.lender;
    lender->bytes_most = MIB;
    lender->large_bytes_most = 4 * MIB;
    for (size_t i = 0; i < 8; i++) {
        size_t bytes = i % 2 == 0 ? 2 * MIB : MIB - i * 90000;

        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
        memory[0] = (uint8_t)i;
        message = lent_pass(&pair, lent_map(memory, bytes), 0);
        must_true(tmsg_message_is_lent(message));
        must_eq(lent_data(message, "x")[0], i);
        first = first == NULL ? lent_data(message, "x") : first;
        cr_expect((lent_data(message, "x") == first) == (i % 2 == 0));
        tmsg_message_destroy(message);
    }
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    message = lent_pass(&pair, lent_map(memory, 2 * MIB), 0);
    second = lent_pass(&pair, lent_map(memory, 2 * MIB), 0);
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(!tmsg_message_is_lent(second));
    lent_must_say(pair.to_a, "keeps half of the copies");
    tmsg_message_destroy(message);
    tmsg_message_destroy(second);
    pair_close(&pair);
    free(memory);
}

/* A peer may keep memory mapped that it has given back. */
Test(loan_copies, fresh_memory_is_lent_at_a_bounded_rate)
{
    uint8_t *memory = calloc(1, 8 * MIB);
    tmsg_message_t *message;
    tmsg_lender_t *lender;
    uint64_t before;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    tmsg_message_destroy(lent_pass(&pair, lent_map(memory, MIB), 0));
    lender = pair.b.worker->paths.lender;
    before = lender->fresh_ns;
    cr_expect(before > tmsg_now_ns());
    for (int i = 0; i < 3; i++) { /* memory that it has had */
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
        message = lent_pass(&pair, lent_map(memory, MIB), 0);
        cr_expect(tmsg_message_is_lent(message));
        tmsg_message_destroy(message);
    }
    cr_expect_eq(lender->fresh_ns, before);
    lender->fresh_ns += UINT64_C(3600) * 1000000000;
    message = lent_pass(&pair, lent_map(memory, 8 * MIB), 0);
    cr_expect(!tmsg_message_is_lent(message));
    lent_must_say(pair.to_a, "too much fresh memory");
    tmsg_message_destroy(message);
    lender->fresh_ns = before;
    message = lent_pass(&pair, lent_map(memory, 8 * MIB), 0);
    cr_expect(tmsg_message_is_lent(message));
    tmsg_message_destroy(message);
    pair_close(&pair);
    free(memory);
}

/* Copies lie in the same memory again once they were given back. */
Test(loan_copies, memory_of_copies_is_used_again)
{
    uint8_t *memory = malloc(MIB);
    const uint8_t *first = NULL;
    unsigned again = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < 20; i++) {
        tmsg_message_t *message;

        memset(memory, i, MIB);
        message = lent_pass(&pair, lent_map(memory, MIB), 0);
        lent_check(message, "x", i, MIB);
        first = first == NULL ? lent_data(message, "x") : first;
        again += lent_data(message, "x") == first;
        tmsg_message_destroy(message);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    }
    cr_expect_eq(again, 20);
    cr_expect_eq(tmsg_loans_lent_bytes(pair.to_a), MIB);
    pair_close(&pair);
    free(memory);
}

static uint64_t copies_of(const pair_t *pair)
{
    tmsg_loans_counts_t counts;

    tmsg_worker_lock(pair->b.worker);
    tmsg_loans_count(pair->b.worker, &counts);
    tmsg_worker_unlock(pair->b.worker);
    return counts.copies;
}

/* A call of the owner's copies for a millisecond, so that it serves its
 * other peers meanwhile. A send that is given up has its copy freed. */
Test(loan_copies, a_copy_is_made_in_parts)
{
    enum { PARTS = 64 };
    uint8_t *memory = malloc((size_t)PARTS * MIB);
    unsigned releases = 0, busy = 0;
    tmsg_message_t *message = NULL;
    tmsg_request_t *request;
    pair_t pair;

    memset(memory, 5, (size_t)PARTS * MIB);
    lent_open(&pair, LINK_UNIX);
    request = lent_send(pair.to_a, lent_map(memory, PARTS * MIB), 0, &releases);
    must_true(tmsg_worker_progress(pair.b.worker) > 0);
    cr_expect_eq(copies_of(&pair), 1);
    (void)tmsg_request_cancel(request);
    must_be(pair_finish(&pair, request), TMSG_ERR_CANCELED);
    cr_expect_eq(copies_of(&pair), 0);
    releases = 0;
    request = lent_send(pair.to_a, lent_map(memory, PARTS * MIB), 0, &releases);
    while (pair.to_a->paths.loans->offered_count == 0) {
        busy += tmsg_worker_progress(pair.b.worker) > 0;
    }
    cr_expect(busy >= 3, "%u calls copied", busy);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_message_is_lent(message));
    must_eq(memcmp(lent_data(message, "x"), memory, (size_t)PARTS * MIB), 0);
    tmsg_message_destroy(message);
    pair_close(&pair);
    free(memory);
}

/* Fresh memory is written to as a file, what was used before is written in
 * place. Small and packed tensors lie between larger ones, over the ends of
 * parts. */
Test(loan_copies, copies_of_many_sizes)
{
    enum { SMALL = 300, ROWS = 700, COLUMNS = 1003 };
    const size_t large = 2 * MIB + 77, gaps = sizeof(uint16_t) * ROWS * COLUMNS;
    uint8_t *memory = malloc(large + gaps);
    const int64_t shape[] = {COLUMNS, ROWS / 2}, strides[] = {1, 2 * COLUMNS};
    const tmsg_tensor_t packed = {memory + large + 1,
                                  {TMSG_DEVICE_CPU, 0},
                                  {TMSG_DTYPE_UINT, 8, 1},
                                  2,
                                  shape,
                                  strides};
    pair_t pair;

    for (size_t i = 0; i < large + gaps; i++) {
        memory[i] = (uint8_t)(i * 7 + i / 251);
    }
    lent_open(&pair, LINK_UNIX);
    for (int round = 0; round < 2; round++) {
        tmsg_message_t *message;
        const uint8_t *at;
        tmsg_map_t *map;
        char name[16];

        must(tmsg_map_create(&map));
        for (size_t i = 0; i < SMALL; i++) {
            snprintf(name, sizeof(name), "%zu", i);
            lent_add(map, name, memory + i, i * 5);
        }
        lent_add(map, "large", memory, large);
        must(tmsg_map_add(map, "packed", &packed, NULL));
        lent_add(map, "last", memory, 3);
        message = lent_pass(&pair, map, round == 0 ? 0 : TMSG_SEND_VERIFY);
        cr_expect(tmsg_message_is_lent(message));
        for (size_t i = 1; i < SMALL; i++) {
            snprintf(name, sizeof(name), "%zu", i);
            must_eq(memcmp(lent_data(message, name), memory + i, i * 5), 0);
        }
        must_eq(memcmp(lent_data(message, "large"), memory, large), 0);
        must_eq(memcmp(lent_data(message, "last"), memory, 3), 0);
        at = lent_data(message, "packed");
        for (size_t i = 0; i < COLUMNS; i++) {
            for (size_t j = 0; j < ROWS / 2; j++) {
                must_eq(*at++, memory[large + 1 + i + 2 * COLUMNS * j]);
            }
        }
        memset(memory, round, 16);
        tmsg_message_destroy(message);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    }
    cr_expect_eq(lent_count(&pair), 2);
    cr_expect_eq(copies_of(&pair), 1);
    pair_close(&pair);
    free(memory);
}

static tmsg_endpoint_t *last_of(tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint, *last = NULL;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        last = endpoint;
    }
    return last;
}

/* A publisher makes one copy for all. */
Test(loan_copies, subscribers_share_one_copy)
{
    enum { VIEWERS = 8 };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_LEND};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    uint8_t *memory = malloc(MIB);
    tmsg_publisher_t *publisher;
    tmsg_endpoint_t *to[VIEWERS];
    side_t sides[VIEWERS + 1];
    side_t *all[VIEWERS + 1];
    tmsg_map_t *map;
    char url[256];

    side_open(&sides[VIEWERS], NULL);
    all[VIEWERS] = &sides[VIEWERS];
    must(tmsg_publisher_create(sides[VIEWERS].worker, NULL, &publisher));
    door.on_accept_arg = publisher;
    snprintf(url, sizeof(url), "unix://%s", scratch_path("camera"));
    must(tmsg_listener_create(sides[VIEWERS].worker, url, &door,
                              &sides[VIEWERS].listener));
    for (unsigned i = 0; i < VIEWERS; i++) {
        side_open(&sides[i], &lent_borrower);
        all[i] = &sides[i];
        must(tmsg_endpoint_connect(sides[i].worker, url, NULL, &to[i]));
    }
    while (tmsg_publisher_size(publisher) < VIEWERS) {
        for (unsigned i = 0; i <= VIEWERS; i++) {
            (void)tmsg_worker_progress(sides[i].worker);
        }
    }
    for (int round = 0; round < 4; round++) {
        unsigned lent = 0;

        memset(memory, 7 + round, MIB);
        map = lent_map(memory, MIB);
        must(tmsg_publisher_publish(publisher, map, &params, NULL));
        tmsg_map_destroy(map);
        for (unsigned i = 0; i < VIEWERS; i++) {
            tmsg_message_t *message;

            while (tmsg_worker_recv(sides[i].worker, 0, &message) != TMSG_OK) {
                for (unsigned j = 0; j <= VIEWERS; j++) {
                    (void)tmsg_worker_progress(all[j]->worker);
                }
            }
            lent += (unsigned)tmsg_message_is_lent(message);
            lent_check(message, "x", 7 + round, MIB);
            tmsg_message_destroy(message);
        }
        /* One of another user gets no memory that the others had before. */
        cr_expect_eq(lent, round == 2 ? VIEWERS - 1 : VIEWERS);
        for (int i = 0; i < 1000 * VIEWERS; i++) {
            (void)tmsg_worker_progress(all[i % (VIEWERS + 1)]->worker);
        }
        cr_expect_eq(sides[VIEWERS].worker->paths.lender->copies.count,
                     round < 2);
        if (round == 1) {
            last_of(sides[VIEWERS].worker)->peer_hello.uid++;
        }
    }
    for (unsigned i = 0; i < VIEWERS; i++) {
        tmsg_endpoint_destroy(to[i]);
        side_close(&sides[i]);
    }
    tmsg_publisher_destroy(publisher);
    side_close(&sides[VIEWERS]);
    free(memory);
}

static void expect_segment(side_t *owner, side_t *to, tmsg_endpoint_t *endpoint,
                           uint8_t *memory, uint64_t segments)
{
    pair_t both = {.sides = {owner, to}};
    unsigned releases = 0;
    tmsg_request_t *request =
        lent_send(endpoint, lent_map(memory, MIB), 0, &releases);
    tmsg_message_t *message = pair_take(&both, to);

    must(pair_finish(&both, request));
    cr_expect(tmsg_message_is_lent(message));
    lent_check(message, "x", memory[0], MIB);
    tmsg_message_destroy(message);
    pair_await(&both, has_none_out, endpoint, "what was lent");
    cr_expect_eq(tmsg_loans_lent_bytes(endpoint), segments * MIB);
}

/* Whoever had a copy may still have it mapped: what is for one principal never
 * comes to lie where another one reads. */
Test(loan_copies, copies_are_of_one_principal)
{
    side_t owner, alice, bob, alice_again;
    tmsg_endpoint_t *to_alice, *to_bob, *to_alice_again;
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring};
    uint8_t *memory = malloc(MIB);
    const tmsg_list_t *copies;

    add_key(keyring, "bob", 2);
    side_open(&owner, &options);
    tmsg_keyring_destroy(keyring);
    side_listen_link(&owner, LINK_UNIX);
    lent_join(&alice, &owner, "alice", 1, &to_alice);
    lent_join(&bob, &owner, "bob", 2, &to_bob);
    memset(memory, 1, MIB);
    expect_segment(&owner, &alice, to_alice, memory, 1);
    copies = &owner.worker->paths.lender->copies;
    cr_expect_eq(copies->count, 1);
    memset(memory, 2, MIB);
    expect_segment(&owner, &bob, to_bob, memory, 1);
    cr_expect_eq(copies->count, 2);
    lent_join(&alice_again, &owner, "alice", 1, &to_alice_again);
    memset(memory, 3, MIB);
    expect_segment(&owner, &alice_again, to_alice_again, memory, 1);
    expect_segment(&owner, &alice, to_alice, memory, 1);
    expect_segment(&owner, &bob, to_bob, memory, 1);
    cr_expect_eq(copies->count, 2);
    side_close(&alice);
    side_close(&bob);
    side_close(&alice_again);
    side_close(&owner);
    free(memory);
}

/* Without keys the same holds for the processes at the other ends. */
Test(loan_copies, copies_are_of_one_process_without_keys)
{
    side_t owner, one, other;
    tmsg_endpoint_t *to_one, *to_other;
    uint8_t *memory = malloc(MIB);
    const tmsg_list_t *copies;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    lent_join(&one, &owner, NULL, 0, &to_one);
    lent_join(&other, &owner, NULL, 0, &to_other);
    memset(memory, 1, MIB);
    expect_segment(&owner, &one, to_one, memory, 1);
    expect_segment(&owner, &other, to_other, memory, 1); /* the same process */
    copies = &owner.worker->paths.lender->copies;
    cr_expect_eq(copies->count, 1);
    to_other->peer_hello.pid++; /* as if it were another process */
    expect_segment(&owner, &other, to_other, memory, 2);
    cr_expect_eq(copies->count, 2);
    expect_segment(&owner, &one, to_one, memory, 1);
    expect_segment(&owner, &other, to_other, memory, 2);
    to_other->peer_hello.ns_pid++; /* as if it were in a container */
    expect_segment(&owner, &other, to_other, memory, 3);
    cr_expect_eq(copies->count, 3);
    side_close(&one);
    side_close(&other);
    side_close(&owner);
    free(memory);
}

/* A copy whose loan did not come back is never written again. */
Test(loan_copies, a_copy_that_did_not_come_back_is_not_used_again)
{
    side_t owner, one, other;
    tmsg_endpoint_t *to_one, *to_other;
    uint8_t *memory = malloc(MIB);
    tmsg_message_t *message;
    tmsg_request_t *request;
    unsigned releases = 0;
    pair_t both;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    lent_join(&one, &owner, NULL, 0, &to_one);
    lent_join(&other, &owner, NULL, 0, &to_other);
    memset(memory, 1, MIB);
    both = (pair_t){.sides = {&owner, &one}};
    request = lent_send(to_one, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&both, &one);
    must(pair_finish(&both, request));
    tmsg_endpoint_destroy(to_one); /* the view stays */
    memset(memory, 2, MIB);
    for (int i = 0; i < 3; i++) {
        expect_segment(&owner, &other, to_other, memory, 1);
        lent_check(message, "x", 1, MIB);
    }
    /* It counts as long as the process may read it. */
    cr_expect_eq(owner.worker->paths.lender->copies.count, 2);
    side_close(&one);
    lent_check(message, "x", 1, MIB);
    tmsg_message_destroy(message);
    side_close(&other);
    side_close(&owner);
    free(memory);
}
