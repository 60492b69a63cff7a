/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are lent: what is lent where it lies, what is copied first, and
 * what goes by the usual ways. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/lent_maps.h"
#include "test_loan_tools.h"

enum { MIB = 1 << 20 };

Test(loans, shareable_memory_is_read_where_it_lies)
{
    tmsg_message_t *message;
    const uint8_t *view;
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    message = pair_take(&lent.pair, &lent.pair.a);
    view = lent_data(message, "x");
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(is_read_only(message, 0));
    cr_expect(view != lent.memory && view[0] == 3 && view[MIB - 1] == 3);
    lent.memory[MIB - 1] = 4; /* which a well-behaved owner does not do */
    cr_expect_eq(view[MIB - 1], 4);
    must(pair_finish(&lent.pair, lent.request));
    cr_expect_eq(lent_count(&lent.pair), 1);
    lent_drive(&lent.pair, 1000);
    cr_expect_eq(lent.releases, 0);
    cr_expect(tmsg_shareable_is_lent(lent.memory));
    tmsg_message_destroy(message);
    lent_end(&lent);
}

Test(loans, other_memory_is_copied_once)
{
    uint8_t *memory = malloc(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    memset(memory, 5, MIB);
    lent_open(&pair, LINK_UNIX);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    pair_await(&pair, lent_is_back, &releases, "a release");
    memset(memory, 6, MIB); /* it is the application's again */
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(is_read_only(message, 0));
    cr_expect_eq(lent_data(message, "x")[MIB - 1], 5);
    cr_expect_eq(lent_count(&pair), 1);
    pair_drop(&pair);
    cr_expect_eq(lent_data(message, "x")[0], 5);
    tmsg_message_destroy(message);
    free(memory);
}

static void expect_usual(link_t link, const side_options_t *a,
                         const char *words)
{
    uint8_t *memory = lent_block(MIB);
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, a, NULL);
    message = lent_pass(&pair, lent_map(memory, MIB), 0);
    cr_expect(!tmsg_message_is_lent(message));
    cr_expect(!is_read_only(message, 0));
    cr_expect(!tmsg_shareable_is_lent(memory));
    lent_check(message, "x", 3, MIB);
    cr_expect_eq(lent_count(&pair), 0);
    lent_must_say(pair.to_a, words);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(loans, tcp_copies_and_says_why)
{
    expect_usual(LINK_SHM, &lent_borrower, "none: descriptors pass by unix://");
}

Test(loans, a_side_that_does_not_borrow_gets_a_copy)
{
    expect_usual(LINK_UNIX, NULL, "none: the peer does not borrow");
}

/* A setting rules loans out. */
Test(loans, a_threshold_rules_them_out)
{
    setenv("TENSORMSG_THRESHOLDS", "shm.lend_bytes=never", 1);
    expect_usual(LINK_UNIX, &lent_borrower, "fewer bytes than shm.lend_bytes");
}

Test(loans, few_bytes_go_by_the_usual_ways)
{
    uint8_t *memory = lent_block(4096);
    tmsg_message_t *message;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    message = lent_pass(&pair, lent_map(memory, 4096), 0);
    cr_expect(!tmsg_message_is_lent(message));
    lent_check(message, "x", 3, 4096);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* A descriptor lends its whole file: what the application did not send is not
 * to be seen. */
Test(loans, a_part_of_a_block_is_copied)
{
    uint8_t *memory = lent_block(2 * MIB);
    tmsg_message_t *message;
    tmsg_map_t *map;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    message = lent_pass(&pair, lent_map(memory, MIB), 0);
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(!tmsg_shareable_is_lent(memory));
    memory[0] = 4;
    lent_check(message, "x", 3, MIB);
    tmsg_message_destroy(message);

    memory[0] = 3;
    map = lent_map(memory, MIB); /* both halves, one of them twice */
    lent_add(map, "y", memory, MIB);
    message = lent_pass(&pair, map, 0);
    cr_expect(!tmsg_shareable_is_lent(memory));
    lent_check(message, "y", 3, MIB);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* Many small gaps are no licence for a large one. */
Test(loans, a_block_with_other_bytes_is_copied)
{
    enum { TENSORS = 1000, EACH = 128, BYTES = TENSORS * EACH + 60000 };
    uint8_t *memory = lent_block(BYTES);
    char name[16];
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (size_t shift = 0; shift <= 60000; shift += 60000) {
        tmsg_message_t *message;
        tmsg_map_t *map;

        must(tmsg_map_create(&map));
        for (size_t i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof(name), "%zu", i);
            lent_add(map, name, memory + shift + i * EACH, EACH);
        }
        message = lent_pass(&pair, map, 0);
        cr_expect(tmsg_message_is_lent(message));
        lent_must_say(pair.to_a, "its tensors do not fill their block");
        cr_expect(!tmsg_shareable_is_lent(memory));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* What a send lends is of its map's layout, not of an address: another map may
 * come to lie there. */
Test(loans, a_lending_is_of_a_layout)
{
    uint8_t *memory = lent_block(MIB);
    tmsg_map_t *map = lent_map(memory, MIB), *same;
    tmsg_lending_t *lending;
    const char *why;

    lending = tmsg_lending_of(map, &why);
    must_true(lending != NULL);
    cr_expect(tmsg_lending_is_of(lending, map));
    must(tmsg_map_copy_layout(map, &same));
    cr_expect(tmsg_lending_is_of(lending, same));
    tmsg_map_clear(map);
    lent_add(map, "x", memory, MIB / 2);
    cr_expect(!tmsg_lending_is_of(lending, map));
    tmsg_lending_drop(lending);
    tmsg_map_destroy(map);
    tmsg_map_destroy(same);
    must(tmsg_shareable_free(memory));
}

/* Peers take no loan whose tensors have more bytes than its memory. */
Test(loans, tensors_in_the_same_bytes_are_copied)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (size_t at = 0; at <= MIB / 2; at += MIB / 4) {
        map = lent_map(memory, MIB);
        lent_add(map, "y", memory + at, MIB / 2);
        message = lent_pass(&pair, map, TMSG_SEND_VERIFY);
        cr_expect(tmsg_message_is_lent(message));
        lent_must_say(pair.to_a, "as a copy: two of its tensors share bytes");
        cr_expect(!tmsg_shareable_is_lent(memory));
        lent_check(message, "x", 3, MIB);
        lent_check(message, "y", 3, MIB / 2);
        tmsg_message_destroy(message);
    }
    map = lent_map(memory, MIB / 2);
    lent_add(map, "y", memory + MIB / 2, MIB / 2);
    request = lent_send(pair.to_a, map, TMSG_SEND_VERIFY, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_shareable_is_lent(memory));
    tmsg_message_destroy(message);
    pair_await(&pair, lent_is_back, &releases, "a release");
    must_eq(lent_count(&pair), 4);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(loans, a_block_of_several_tensors_is_lent_whole)
{
    uint8_t *memory = lent_block(2 * MIB), *other = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    map = lent_map(memory + MIB, MIB);
    lent_add(map, "y", other, MIB);
    lent_add(map, "none", NULL, 0);
    lent_add(map, "z", memory, MIB - 64);
    request = lent_send(pair.to_a, map, TMSG_SEND_ACKED, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_shareable_is_lent(memory) && tmsg_shareable_is_lent(other));
    cr_expect_eq(lent_data(message, "x") - lent_data(message, "z"), MIB);
    lent_check(message, "x", 3, MIB);
    lent_check(message, "y", 3, MIB);
    lent_check(message, "z", 3, MIB - 64);
    tmsg_message_destroy(message);
    pair_await(&pair, lent_is_back, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
    must(tmsg_shareable_free(other));
}

/* A tensor with gaps is packed or, if asked, goes as its span. A broadcast one
 * goes without what repeats. */
Test(loans, strides)
{
    enum { ROWS = 512, COLUMNS = 1024 };
    int32_t *memory = malloc(ROWS * COLUMNS * sizeof(*memory));
    const int64_t shape[] = {ROWS, COLUMNS / 2}, gaps[] = {COLUMNS, 2};
    const int64_t wide[] = {3, ROWS * COLUMNS}, repeats[] = {0, 1};
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    const tmsg_dtype_t i32 = {TMSG_DTYPE_INT, 32, 1};
    const tmsg_tensor_t with_gaps = {memory, cpu, i32, 2, shape, gaps};
    const tmsg_tensor_t broadcast = {memory, cpu, i32, 2, wide, repeats};
    pair_t pair;

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        memory[i] = i;
    }
    lent_open(&pair, LINK_UNIX);
    for (unsigned flags = 0; flags <= TMSG_SEND_KEEP_STRIDES;
         flags += TMSG_SEND_KEEP_STRIDES) {
        tmsg_message_t *message;
        tmsg_tensor_t tensor;
        tmsg_map_t *map;

        must(tmsg_map_create(&map));
        must(tmsg_map_add(map, "gaps", &with_gaps, NULL));
        must(tmsg_map_add(map, "repeats", &broadcast, NULL));
        message = lent_pass(&pair, map, flags);
        cr_expect(tmsg_message_is_lent(message));
        must(tmsg_map_find(tmsg_message_map(message), "gaps", &tensor));
        cr_expect_eq(tensor.strides != NULL, flags != 0);
        for (int64_t row = 0; row < ROWS; row++) {
            const int32_t *at = (const int32_t *)tensor.data +
                                row * (flags ? COLUMNS : COLUMNS / 2);

            must_eq(at[flags ? 6 : 3], memory[row * COLUMNS + 6]);
        }
        must(tmsg_map_find(tmsg_message_map(message), "repeats", &tensor));
        cr_expect(tensor.strides != NULL && tensor.strides[0] == 0);
        must_eq(((const int32_t *)tensor.data)[ROWS * COLUMNS - 1],
                ROWS * COLUMNS - 1);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    free(memory);
}

/* A body that is too long for a header goes before the payload, which then is
 * nothing else. */
Test(loans, of_a_thousand_tensors)
{
    enum { TENSORS = 1000, BYTES = 128 };
    uint8_t *memory = malloc(TENSORS * BYTES);
    tmsg_message_t *message;
    tmsg_map_t *map;
    char name[64];
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int round = 0; round < 3; round++) { /* the last by a schema */
        memset(memory, round, TENSORS * BYTES);
        must(tmsg_map_create(&map));
        for (size_t i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof(name), "a tensor of a thousand %zu", i);
            lent_add(map, name, memory + i * BYTES, BYTES);
        }
        message = lent_pass(&pair, map, 0);
        cr_expect(tmsg_message_is_lent(message));
        lent_check(message, "a tensor of a thousand 999", round, BYTES);
        tmsg_message_destroy(message);
    }
    cr_expect(pair.to_a->stats.sent_by_schema > 0);
    pair_close(&pair);
    free(memory);
}

/* Lent and other messages arrive in the order in which they were sent. */
Test(loans, order)
{
    enum { MESSAGES = 40 };
    uint8_t *memory[MESSAGES];
    tmsg_request_t *requests[MESSAGES];
    unsigned releases = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < MESSAGES; i++) {
        const size_t bytes = i % 3 == 2 ? 64 : 100000;
        tmsg_map_t *map;

        memory[i] = malloc(bytes);
        memset(memory[i], i, bytes);
        map = lent_map(memory[i], bytes);
        requests[i] = i % 3 == 0 ? lent_send(pair.to_a, map, 0, &releases)
                                 : send_map(pair.to_a, map, 0);
    }
    for (int i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        cr_expect_eq(tmsg_message_is_lent(message), i % 3 == 0);
        must_eq(lent_data(message, "x")[0], i);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, requests[i]));
        free(memory[i]);
    }
    pair_close(&pair);
}

/* A message that may not wait goes by the usual ways while the peer has yet to
 * take the segment. */
Test(loans, a_send_that_may_not_wait_does_not)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    message = lent_pass(&pair, lent_map(memory, MIB), TMSG_SEND_TRY);
    cr_expect(!tmsg_message_is_lent(message));
    tmsg_message_destroy(message);
    lent_drive(&pair, 1000);
    request =
        lent_send(pair.to_a, lent_map(memory, MIB), TMSG_SEND_TRY, &releases);
    message = pair_take(&pair, &pair.a);
    cr_expect(tmsg_message_is_lent(message));
    must(pair_finish(&pair, request));
    tmsg_message_destroy(message);
    pair_await(&pair, lent_is_back, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}
