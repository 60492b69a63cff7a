/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are lent: their receiver reads the sender's memory, and the
 * sender hears when that is over. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/path/loans_struct.h"
#include "core/dlpack.h"
#include "core/map.h"
#include "support/device_maps.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/session_pair.h"
#include "support/simulated_devices.h"

enum { MIB = 1 << 20 };

static const side_options_t borrows = {
    .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
               .flags = TMSG_WORKER_BORROW}};

static bool has_descriptors = true; /* for eventfd() */

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);

int __wrap_eventfd(unsigned count, int flags)
{
    errno = EMFILE;
    return has_descriptors ? __real_eventfd(count, flags) : -1;
}

static void open_pair(pair_t *pair, link_t link)
{
    pair_open(pair, link, DRIVE_POLLING, &borrows, NULL);
}

static void add_bytes(tmsg_map_t *map, const char *name, void *data,
                      size_t count)
{
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};

    must(tmsg_map_add(map, name, &tensor, NULL));
}

static tmsg_map_t *map_of(void *data, size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    add_bytes(map, "x", data, count);
    return map;
}

static uint8_t *shareable(size_t bytes)
{
    void *memory;

    must(tmsg_shareable_alloc(bytes, NULL, &memory));
    memset(memory, 3, bytes);
    return memory;
}

/* Counts calls of on_release. */
static void count_release(void *arg) { ++*(unsigned *)arg; }

static tmsg_request_t *lend(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                            uint32_t flags, unsigned *releases)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = flags | TMSG_SEND_LEND,
                                       .on_release = count_release,
                                       .on_release_arg = releases};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static bool is_nonzero(void *arg) { return *(unsigned *)arg > 0; }

static const uint8_t *data_of(const tmsg_message_t *message, const char *name)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(tmsg_message_map(message), name, &tensor));
    return tensor.data;
}

static bool is_read_only(const tmsg_message_t *message, size_t index)
{
    return tmsg_map_entry_is_read_only(
        &tmsg_map_entries(tmsg_message_map(message))[index]);
}

/* Drives the pair for some rounds, in which nothing is to happen. */
static bool has_counted(void *arg)
{
    unsigned *left = arg;

    return (*left)-- == 0;
}

static void drive(pair_t *pair, unsigned rounds)
{
    pair_await(pair, has_counted, &rounds, "rounds");
}

/* For pair_await(): no loan of the endpoint is out. */
static bool has_none_out(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->out.count == 0;
}

/* For pair_await(): the endpoint has no segment of its peer. */
static bool has_none_borrowed(void *arg)
{
    return tmsg_loans_borrowed_bytes(arg) == 0;
}

static uint64_t loans_sent(const pair_t *pair)
{
    return pair->to_a->stats.sent_by_loan;
}

Test(loans, shareable_memory_is_read_where_it_lies)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    const uint8_t *view;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    view = data_of(message, "x");
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(is_read_only(message, 0));
    cr_expect(view != memory && view[0] == 3 && view[MIB - 1] == 3);
    memory[MIB - 1] = 4; /* which a well-behaved owner does not do */
    cr_expect_eq(view[MIB - 1], 4);
    must(pair_finish(&pair, request));
    cr_expect_eq(loans_sent(&pair), 1);
    drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    cr_expect(tmsg_shareable_is_lent(memory));
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_close(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

Test(loans, other_memory_is_copied_once)
{
    uint8_t *memory = malloc(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    memset(memory, 5, MIB);
    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    pair_await(&pair, is_nonzero, &releases, "a release");
    memset(memory, 6, MIB); /* it is the application's again */
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(is_read_only(message, 0));
    cr_expect_eq(data_of(message, "x")[MIB - 1], 5);
    cr_expect_eq(loans_sent(&pair), 1);
    pair_drop(&pair);
    cr_expect_eq(data_of(message, "x")[0], 5);
    tmsg_message_destroy(message);
    free(memory);
}

/* Sends a map that cannot be lent, or not where it lies: its bytes come. */
static tmsg_message_t *pass(pair_t *pair, tmsg_map_t *map, uint32_t flags)
{
    unsigned releases = 0;
    tmsg_request_t *request = lend(pair->to_a, map, flags, &releases);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    must(pair_finish(pair, request));
    pair_await(pair, is_nonzero, &releases, "a release");
    return message;
}

static void check_fill(const tmsg_message_t *message, const char *name,
                       int value, size_t count)
{
    const uint8_t *data = data_of(message, name);

    for (size_t i = 0; i < count; i++) {
        must_eq(data[i], value);
    }
}

/* What tmsg_endpoint_describe() says of loans. */
static void describe_loans(const tmsg_endpoint_t *endpoint, char *words,
                           size_t bytes)
{
    char text[256];

    tmsg_worker_lock(endpoint->worker);
    snprintf(words, bytes, "%s",
             tmsg_loans_words(endpoint, text, sizeof(text)));
    tmsg_worker_unlock(endpoint->worker);
}

static void expect_words(const tmsg_endpoint_t *endpoint, const char *part)
{
    char words[256];

    describe_loans(endpoint, words, sizeof(words));
    must_say(words, part);
}

static void expect_usual(link_t link, const side_options_t *a,
                         const char *words)
{
    uint8_t *memory = shareable(MIB);
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, a, NULL);
    message = pass(&pair, map_of(memory, MIB), 0);
    cr_expect(!tmsg_message_is_lent(message));
    cr_expect(!is_read_only(message, 0));
    cr_expect(!tmsg_shareable_is_lent(memory));
    check_fill(message, "x", 3, MIB);
    cr_expect_eq(loans_sent(&pair), 0);
    expect_words(pair.to_a, words);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(loans, tcp_copies_and_says_why)
{
    expect_usual(LINK_SHM, &borrows, "none: descriptors pass by unix://");
}

Test(loans, a_side_that_does_not_borrow_gets_a_copy)
{
    expect_usual(LINK_UNIX, NULL, "none: the peer does not borrow");
}

Test(loans, few_bytes_go_by_the_usual_ways)
{
    uint8_t *memory = shareable(4096);
    tmsg_message_t *message;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    message = pass(&pair, map_of(memory, 4096), 0);
    cr_expect(!tmsg_message_is_lent(message));
    check_fill(message, "x", 3, 4096);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* A descriptor lends its whole file: what the application did not send is not
 * to be seen. */
Test(loans, a_part_of_a_block_is_copied)
{
    uint8_t *memory = shareable(2 * MIB);
    tmsg_message_t *message;
    tmsg_map_t *map;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    message = pass(&pair, map_of(memory, MIB), 0);
    cr_expect(tmsg_message_is_lent(message));
    cr_expect(!tmsg_shareable_is_lent(memory));
    memory[0] = 4;
    check_fill(message, "x", 3, MIB);
    tmsg_message_destroy(message);

    memory[0] = 3;
    map = map_of(memory, MIB); /* both halves, one of them twice */
    add_bytes(map, "y", memory, MIB);
    message = pass(&pair, map, 0);
    cr_expect(!tmsg_shareable_is_lent(memory));
    check_fill(message, "y", 3, MIB);
    tmsg_message_destroy(message);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* Many small gaps are no licence for a large one. */
Test(loans, a_block_with_other_bytes_is_copied)
{
    enum { TENSORS = 1000, EACH = 128, BYTES = TENSORS * EACH + 60000 };
    uint8_t *memory = shareable(BYTES);
    char name[16];
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (size_t shift = 0; shift <= 60000; shift += 60000) {
        tmsg_message_t *message;
        tmsg_map_t *map;

        must(tmsg_map_create(&map));
        for (size_t i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof(name), "%zu", i);
            add_bytes(map, name, memory + shift + i * EACH, EACH);
        }
        message = pass(&pair, map, 0);
        cr_expect(tmsg_message_is_lent(message));
        cr_expect(!tmsg_shareable_is_lent(memory));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* What an earlier message left beside the tensors is gone. */
Test(loans, memory_that_is_used_again_shows_no_earlier_message)
{
    enum { FEW = 100, LESS = 600000 };
    uint8_t *memory = malloc(MIB);
    tmsg_message_t *message;
    const uint8_t *x, *y;
    tmsg_map_t *map;
    pair_t pair;

    memset(memory, 5, MIB);
    open_pair(&pair, LINK_UNIX);
    message = pass(&pair, map_of(memory, MIB), 0);
    x = data_of(message, "x");
    tmsg_message_destroy(message);
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    map = map_of(memory, FEW);
    add_bytes(map, "y", memory, LESS);
    message = pass(&pair, map, 0);
    must_true(data_of(message, "x") == x);
    y = data_of(message, "y");
    check_fill(message, "y", 5, LESS);
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

/* What a send lends is of its map's layout, not of an address: another map may
 * come to lie there. */
Test(loans, a_lending_is_of_a_layout)
{
    uint8_t *memory = shareable(MIB);
    tmsg_map_t *map = map_of(memory, MIB), *same;
    tmsg_lending_t *lending;

    lending = tmsg_lending_of(map);
    must_true(lending != NULL);
    cr_expect(tmsg_lending_is_of(lending, map));
    must(tmsg_map_copy_layout(map, &same));
    cr_expect(tmsg_lending_is_of(lending, same));
    tmsg_map_clear(map);
    add_bytes(map, "x", memory, MIB / 2);
    cr_expect(!tmsg_lending_is_of(lending, map));
    tmsg_lending_drop(lending);
    tmsg_map_destroy(map);
    tmsg_map_destroy(same);
    must(tmsg_shareable_free(memory));
}

/* Peers take no loan whose tensors have more bytes than its memory. */
Test(loans, tensors_in_the_same_bytes_are_copied)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (size_t at = 0; at <= MIB / 2; at += MIB / 4) {
        map = map_of(memory, MIB);
        add_bytes(map, "y", memory + at, MIB / 2);
        message = pass(&pair, map, TMSG_SEND_VERIFY);
        cr_expect(tmsg_message_is_lent(message));
        cr_expect(!tmsg_shareable_is_lent(memory));
        check_fill(message, "x", 3, MIB);
        check_fill(message, "y", 3, MIB / 2);
        tmsg_message_destroy(message);
    }
    map = map_of(memory, MIB / 2);
    add_bytes(map, "y", memory + MIB / 2, MIB / 2);
    request = lend(pair.to_a, map, TMSG_SEND_VERIFY, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_shareable_is_lent(memory));
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    must_eq(loans_sent(&pair), 4);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

Test(loans, a_block_of_several_tensors_is_lent_whole)
{
    uint8_t *memory = shareable(2 * MIB), *other = shareable(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    map = map_of(memory + MIB, MIB);
    add_bytes(map, "y", other, MIB);
    add_bytes(map, "none", NULL, 0);
    add_bytes(map, "z", memory, MIB - 64);
    request = lend(pair.to_a, map, TMSG_SEND_ACKED, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_shareable_is_lent(memory) && tmsg_shareable_is_lent(other));
    cr_expect_eq(data_of(message, "x") - data_of(message, "z"), MIB);
    check_fill(message, "x", 3, MIB);
    check_fill(message, "y", 3, MIB);
    check_fill(message, "z", 3, MIB - 64);
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
    must(tmsg_shareable_free(other));
}

Test(loans, checksums_are_those_of_the_lent_bytes)
{
    uint8_t *memory = shareable(MIB), *other = malloc(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    memset(other, 9, MIB);
    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), TMSG_SEND_VERIFY, &releases);
    message = pair_take(&pair, &pair.a);
    cr_expect(tmsg_message_is_lent(message));
    must(pair_finish(&pair, request));
    tmsg_message_destroy(message);
    message = pass(&pair, map_of(other, MIB), TMSG_SEND_VERIFY);
    cr_expect(tmsg_message_is_lent(message));
    check_fill(message, "x", 9, MIB);
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    pair_close(&pair);
    free(other);
    must(tmsg_shareable_free(memory));
}

/* Sends tensors with checksums, writes to their memory when they have come, or
 * does not, and receives them into `place`. */
static tmsg_status_t receive_late(pair_t *pair, tmsg_map_t *map, uint8_t *at,
                                  tmsg_map_t *place)
{
    unsigned releases = 0;
    receiving_t receiving = {.pair = pair, .map = place};
    tmsg_request_t *request = lend(
        pair->to_a, map, TMSG_SEND_VERIFY | TMSG_SEND_KEEP_STRIDES, &releases);

    while (pair->to_b->ready.count == 0) {
        (void)tmsg_worker_progress(pair->a.worker);
        (void)tmsg_worker_progress(pair->b.worker);
    }
    if (at != NULL) {
        *at = 9;
    }
    pair_await(pair, receiving_has_ended, &receiving, "a receive");
    if (receiving.message != NULL) {
        tmsg_message_destroy(receiving.message);
    }
    (void)pair_finish(pair, request);
    pair_await(pair, is_nonzero, &releases, "a release");
    tmsg_map_destroy(place);
    return receiving.status;
}

static tmsg_map_t *map_with_gaps(uint8_t *data, size_t rows, size_t columns,
                                 int64_t stride)
{
    const int64_t shape[] = {(int64_t)rows, (int64_t)columns};
    const int64_t strides[] = {stride, 1};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

/* Checksums are of what the receiver has, also where it was copied late. */
Test(loans, what_is_copied_late_is_checked)
{
    enum { ROWS = 1024, COLUMNS = MIB / ROWS, FEW = COLUMNS - 8 };
    uint8_t *place = malloc(MIB);
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (int i = 0; i < 2; i++) {
        uint8_t *memory = shareable(MIB);
        uint8_t *changed = i == 0 ? NULL : memory + MIB / 2;
        tmsg_status_t wanted = i == 0 ? TMSG_OK : TMSG_ERR_CORRUPT;
        tmsg_map_t *map = map_of(memory, MIB / 2);

        must_be(receive_late(&pair, map_of(memory, MIB), changed,
                             map_of(place, MIB)),
                wanted);
        memset(memory, 3, MIB);
        must_be(receive_late(&pair, map_with_gaps(memory, ROWS, FEW, COLUMNS),
                             changed, map_with_gaps(place, ROWS, FEW, FEW)),
                wanted);
        memset(memory, 3, MIB);
        /* What stays a view was checked, and is not looked at again. */
        add_bytes(map, "y", memory + MIB / 2, MIB / 2);
        must_be(receive_late(&pair, map, changed, map_of(place, MIB / 2)),
                TMSG_OK);
        must(tmsg_shareable_free(memory));
    }
    must_eq(loans_sent(&pair), 6);
    pair_close(&pair);
    free(place);
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
    open_pair(&pair, LINK_UNIX);
    for (unsigned flags = 0; flags <= TMSG_SEND_KEEP_STRIDES;
         flags += TMSG_SEND_KEEP_STRIDES) {
        tmsg_message_t *message;
        tmsg_tensor_t tensor;
        tmsg_map_t *map;

        must(tmsg_map_create(&map));
        must(tmsg_map_add(map, "gaps", &with_gaps, NULL));
        must(tmsg_map_add(map, "repeats", &broadcast, NULL));
        message = pass(&pair, map, flags);
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

    open_pair(&pair, LINK_UNIX);
    for (int round = 0; round < 3; round++) { /* the last by a schema */
        memset(memory, round, TENSORS * BYTES);
        must(tmsg_map_create(&map));
        for (size_t i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof(name), "a tensor of a thousand %zu", i);
            add_bytes(map, name, memory + i * BYTES, BYTES);
        }
        message = pass(&pair, map, 0);
        cr_expect(tmsg_message_is_lent(message));
        check_fill(message, "a tensor of a thousand 999", round, BYTES);
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

    open_pair(&pair, LINK_UNIX);
    for (int i = 0; i < MESSAGES; i++) {
        const size_t bytes = i % 3 == 2 ? 64 : 100000;
        tmsg_map_t *map;

        memory[i] = malloc(bytes);
        memset(memory[i], i, bytes);
        map = map_of(memory[i], bytes);
        requests[i] = i % 3 == 0 ? lend(pair.to_a, map, 0, &releases)
                                 : send_map(pair.to_a, map, 0);
    }
    for (int i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        cr_expect_eq(tmsg_message_is_lent(message), i % 3 == 0);
        must_eq(data_of(message, "x")[0], i);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, requests[i]));
        free(memory[i]);
    }
    pair_close(&pair);
}

/* What is received into a map is copied there, and given back. */
Test(loans, a_receive_into_a_map_copies)
{
    uint8_t *memory = shareable(MIB), *place = malloc(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    receiving_t receiving;
    tmsg_map_t *map;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    map = map_of(place, MIB);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    receiving = (receiving_t){.pair = &pair, .map = map};
    pair_await(&pair, receiving_has_ended, &receiving, "a receive");
    must(receiving.status);
    cr_expect(place[0] == 3 && place[MIB - 1] == 3);
    must(pair_finish(&pair, request));
    tmsg_message_destroy(receiving.message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    tmsg_map_destroy(map);
    pair_close(&pair);
    free(place);
    must(tmsg_shareable_free(memory));
}

typedef struct {
    uint8_t *place;
    bool refuses;
} header_t;

static void on_header(void *arg, tmsg_incoming_t *incoming)
{
    const header_t *header = arg;

    if (header->refuses) {
        must(tmsg_incoming_refuse(incoming, TMSG_ERR_REFUSED, "not now"));
    } else if (header->place != NULL) {
        must(tmsg_incoming_place(incoming, 0, header->place, MIB, NULL));
    }
}

/* A header callback may place tensors, and those are copied; the others are
 * views. A refusal gives the loan back. */
Test(loans, a_header_callback_places_and_refuses)
{
    uint8_t *memory = shareable(2 * MIB);
    header_t header = {.place = malloc(MIB)};
    const side_options_t a = {
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_ON_HEADER,
                   .flags = TMSG_WORKER_BORROW,
                   .on_header = on_header,
                   .on_header_arg = &header}};
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &a, NULL);
    map = map_of(memory, MIB);
    add_bytes(map, "y", memory + MIB, MIB);
    request = lend(pair.to_a, map, 0, &releases);
    message = pair_take(&pair, &pair.a);
    cr_expect_eq(data_of(message, "x"), header.place);
    cr_expect(!is_read_only(message, 0) && is_read_only(message, 1));
    check_fill(message, "x", 3, MIB);
    check_fill(message, "y", 3, MIB);
    must(pair_finish(&pair, request));
    cr_expect_eq(releases, 0);
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");

    header.refuses = true;
    releases = 0;
    map = map_of(memory, 2 * MIB);
    request = lend(pair.to_a, map, TMSG_SEND_ACKED, &releases);
    must_be(pair_finish(&pair, request), TMSG_ERR_REFUSED);
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_close(&pair);
    free(header.place);
    must(tmsg_shareable_free(memory));
}

/* Chooses a device for so many tensors. */
static void choose_devices(void *arg, tmsg_incoming_t *incoming)
{
    const size_t *count = arg;

    for (size_t i = 0; i < *count; i++) {
        must(tmsg_incoming_choose(incoming, i, device_at(0),
                                  (tmsg_stream_t){0}));
    }
}

/* Tensors that go to a device are copied, and those that stay on the host are
 * views. Without views the loan goes back when all are copied. */
Test(loans, devices_get_copies_and_the_host_views)
{
    uint8_t *memory = shareable(2 * MIB);
    size_t chosen = 1;
    const side_options_t a = {
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_ON_HEADER,
                   .flags = TMSG_WORKER_BORROW,
                   .on_header = choose_devices,
                   .on_header_arg = &chosen}};
    uint8_t *copy = malloc(MIB);
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &a, NULL);
    for (; chosen <= 2; chosen++) {
        unsigned releases = 0;
        tmsg_map_t *map = map_of(memory, MIB);
        tmsg_message_t *message;
        tmsg_request_t *request;

        add_bytes(map, "y", memory + MIB, MIB);
        request = lend(pair.to_a, map, 0, &releases);
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        cr_expect_eq(tmsg_message_is_lent(message), chosen == 1);
        cr_expect_eq(is_read_only(message, 1), chosen == 1);
        device_peek(copy, data_of(message, "x"), MIB);
        cr_expect(copy[0] == 3 && copy[MIB - 1] == 3);
        if (chosen == 1) {
            check_fill(message, "y", 3, MIB);
            drive(&pair, 1000);
            cr_expect_eq(releases, 0);
            tmsg_message_destroy(message);
        }
        pair_await(&pair, is_nonzero, &releases, "a release");
        if (chosen == 2) {
            device_peek(copy, data_of(message, "y"), MIB);
            cr_expect(copy[0] == 3 && copy[MIB - 1] == 3);
            tmsg_message_destroy(message);
        }
    }
    pair_close(&pair);
    device_maps_end();
    free(copy);
    must(tmsg_shareable_free(memory));
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
Test(loans, of_a_borrower_without_descriptors_are_refused)
{
    enum { BYTES = 65536 };
    uint8_t *memory = shareable(BYTES);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    must_true(tmsg_loans_of(pair.to_a) != NULL);
    must_true(pair.to_b->paths.loans == NULL);
    has_descriptors = false; /* for the borrower's record */
    request = lend(pair.to_a, map_of(memory, BYTES), 0, &releases);
    pair_await(&pair, is_refused, pair.to_a, "a refusal");
    has_descriptors = true;
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    cr_expect(!tmsg_message_is_lent(message));
    check_fill(message, "x", 3, BYTES);
    expect_words(pair.to_a, "no descriptor left for loans");
    tmsg_message_destroy(message);
    pair_close(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* Connects to a listener of `owner`, with a key of that number; name NULL: with
 * none. */
static void open_borrower(side_t *side, side_t *owner, const char *name,
                          uint8_t number, tmsg_endpoint_t **to_it)
{
    side_options_t options = borrows;
    pair_t both = {.sides = {owner, side}};
    unsigned accepts = owner->accepts;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;

    options.keyring = name == NULL ? NULL : ring(name, number);
    side_open(side, &options);
    if (name != NULL) {
        tmsg_keyring_destroy(options.keyring);
    }
    endpoint = side_dial(side, owner);
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(pair_finish(&both, ready));
    while (owner->accepts == accepts) {
        (void)tmsg_worker_progress(owner->worker);
    }
    *to_it = owner->accepted;
}

/* A borrower that keeps all it gets costs a bounded amount of memory. */
Test(loans, a_borrower_that_keeps_all_gets_copies_in_the_end)
{
    enum { MESSAGES = 80, BYTES = 65536 };
    uint8_t *memory = malloc(BYTES);
    tmsg_message_t *messages[MESSAGES];
    unsigned lent = 0;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (int i = 0; i < MESSAGES; i++) {
        memset(memory, i, BYTES);
        messages[i] = pass(&pair, map_of(memory, BYTES), 0);
        lent += (unsigned)tmsg_message_is_lent(messages[i]);
    }
    cr_expect_eq(lent, 32);
    expect_words(pair.to_a, "keeps half of the copies");
    for (int i = 0; i < MESSAGES; i++) {
        check_fill(messages[i], "x", i, BYTES);
        tmsg_message_destroy(messages[i]);
    }
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    messages[0] = pass(&pair, map_of(memory, BYTES), 0);
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
        blocks[i] = blocks[i] == NULL ? shareable(BYTES) : blocks[i];
        snprintf(name, sizeof(name), "%u", i);
        add_bytes(map, name, blocks[i], BYTES);
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
Test(loans, a_message_of_more_segments_than_have_room_is_copied)
{
    enum { KEPT = 241, EACH = 1, WANTED = 16 };
    uint8_t *blocks[KEPT * EACH] = {NULL}, *wanted[WANTED] = {NULL};
    tmsg_message_t *kept[KEPT], *message;
    unsigned releases = 0, others = 0;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (unsigned i = 0; i < KEPT; i++) {
        request = lend(pair.to_a, map_of_blocks(blocks + i * EACH, EACH), 0,
                       &releases);
        kept[i] = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        must_true(tmsg_message_is_lent(kept[i]));
    }
    must_eq(pair.to_a->paths.loans->offered_count, KEPT * EACH);
    for (int i = 0; i < 3; i++) {
        request = lend(pair.to_a, map_of_blocks(wanted, WANTED), 0, &others);
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        cr_expect(!tmsg_message_is_lent(message));
        tmsg_message_destroy(message);
        pair_await(&pair, has_answered, pair.to_a, "answers");
    }
    expect_words(pair.to_a, "as many segments as it may have");
    cr_expect_eq(others, 3);
    for (unsigned i = 0; i < KEPT; i++) {
        tmsg_message_destroy(kept[i]);
    }
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    request = lend(pair.to_a, map_of_blocks(wanted, WANTED), 0, &others);
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
Test(loans, a_borrower_that_hangs_up_and_keeps_all_gets_copies_in_the_end)
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

        open_borrower(&sides[i], &owner, NULL, 0, &to_it);
        for (unsigned j = 0; j < MESSAGES; j++) {
            tmsg_message_t **message_p = &messages[i * MESSAGES + j];
            unsigned releases = 0;
            tmsg_request_t *request =
                lend(to_it, map_of(memory, BYTES), 0, &releases);

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
Test(loans, idle_copies_stay_where_they_make_no_room)
{
    uint8_t *memory = calloc(1, MIB);
    tmsg_copy_segment_t *copy;
    tmsg_list_t *copies;
    const char *why;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    tmsg_message_destroy(pass(&pair, map_of(memory, MIB), 0));
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    tmsg_worker_lock(pair.b.worker);
    copies = &pair.b.worker->paths.lender->copies;
    cr_expect_eq(copies->count, 1);
    copies->count += TMSG_COPIES_MOST; /* as if others had so many */
    copy = tmsg_copies_take(pair.to_a, 8 * MIB, 0, &why);
    copies->count -= TMSG_COPIES_MOST;
    cr_expect_null(copy);
    must_say(why, "too many copies");
    cr_expect_eq(copies->count, 1);
    tmsg_worker_unlock(pair.b.worker);
    pair_close(&pair);
    free(memory);
}

/* Copies lie in the same memory again once they were given back. */
Test(loans, memory_of_copies_is_used_again)
{
    uint8_t *memory = malloc(MIB);
    const uint8_t *first = NULL;
    unsigned again = 0;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (int i = 0; i < 20; i++) {
        tmsg_message_t *message;

        memset(memory, i, MIB);
        message = pass(&pair, map_of(memory, MIB), 0);
        check_fill(message, "x", i, MIB);
        first = first == NULL ? data_of(message, "x") : first;
        again += data_of(message, "x") == first;
        tmsg_message_destroy(message);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    }
    cr_expect_eq(again, 20);
    cr_expect_eq(tmsg_loans_lent_bytes(pair.to_a), MIB);
    pair_close(&pair);
    free(memory);
}

/* A canceled message that the peer has not taken is given back. */
Test(loans, a_canceled_message_is_given_back)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    (void)tmsg_request_cancel(request);
    must_be(pair_finish(&pair, request), TMSG_ERR_CANCELED);
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* The connection is gone, the peer lives, and reads: nobody says that the
 * memory is free, until the worker ends. */
Test(loans, views_outlive_the_connection)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    (void)pair_end_of(&pair, pair.to_a);
    drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    check_fill(message, "x", 3, MIB);
    tmsg_message_destroy(message);
    drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    pair_drop(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* Borrows what comes, says so, and keeps it. */
static void keep(pipes_t *pipes, void *arg)
{
    char line[16];
    side_t side;

    (void)arg;
    side_open(&side, &borrows);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    check_fill(side_take(&side), "x", 3, MIB);
    check_fill(side_take(&side), "x", 4, MIB);
    line_put(pipes->out, "borrows");
    line_get(pipes->in, line, sizeof(line)); /* for ever */
}

Test(loans, of_a_borrower_that_is_killed_come_back)
{
    unsigned releases = 0, copied = 0;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    char url[256], line[16];
    uint8_t *memory, *other = malloc(MIB);
    child_t child;
    side_t side;

    child_start(&child, keep, NULL);
    line_get(child.in, url, sizeof(url));
    memory = shareable(MIB);
    memset(other, 4, MIB);
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    request = lend(endpoint, map_of(memory, MIB), 0, &releases);
    must(side_finish(&side, request));
    request = lend(endpoint, map_of(other, MIB), 0, &copied);
    must(side_finish(&side, request));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    cr_expect(tmsg_shareable_is_lent(memory));
    cr_expect_eq(releases, 0);
    tmsg_endpoint_destroy(endpoint);
    cr_expect_eq(side.worker->paths.lender->copies.count, 1);
    child_kill(&child);
    side_await(&side, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    cr_expect_eq(side.worker->paths.lender->copies.count, 0);
    side_close(&side);
    must(tmsg_shareable_free(memory));
    free(other);
}

/* Lends a block and a copy. */
static void give(pipes_t *pipes, void *arg)
{
    uint8_t *copied = malloc(MIB);
    tmsg_endpoint_t *endpoint;
    char url[256], line[16];
    unsigned releases = 0;
    side_t side;

    (void)arg;
    memset(copied, 4, MIB);
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(side_finish(
        &side, lend(endpoint, map_of(shareable(MIB), MIB), 0, &releases)));
    must(side_finish(&side, lend(endpoint, map_of(copied, MIB), 0, &releases)));
    line_get(pipes->in, line, sizeof(line)); /* for ever */
}

Test(loans, views_outlive_their_owner)
{
    tmsg_message_t *messages[2];
    child_t child;
    side_t side;

    child_start(&child, give, NULL);
    side_open(&side, &borrows);
    side_listen_link(&side, LINK_UNIX);
    line_put(child.out, tmsg_listener_url(side.listener));
    messages[0] = side_take(&side);
    messages[1] = side_take(&side);
    child_kill(&child);
    for (int i = 0; i < 2; i++) {
        cr_expect(tmsg_message_is_lent(messages[i]));
        check_fill(messages[i], "x", 3 + i, MIB);
    }
    side_close(&side);
    for (int i = 0; i < 2; i++) {
        check_fill(messages[i], "x", 3 + i, MIB);
        tmsg_message_destroy(messages[i]);
    }
}

/* A message that may not wait goes by the usual ways while the peer has yet to
 * take the segment. */
Test(loans, a_send_that_may_not_wait_does_not)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    message = pass(&pair, map_of(memory, MIB), TMSG_SEND_TRY);
    cr_expect(!tmsg_message_is_lent(message));
    tmsg_message_destroy(message);
    drive(&pair, 1000);
    request = lend(pair.to_a, map_of(memory, MIB), TMSG_SEND_TRY, &releases);
    message = pair_take(&pair, &pair.a);
    cr_expect(tmsg_message_is_lent(message));
    must(pair_finish(&pair, request));
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* A freed block is told, and its number is gone at the peer. */
Test(loans, a_freed_block_is_gone_at_the_peer)
{
    unsigned releases = 0;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    for (int i = 0; i < 3; i++) {
        uint8_t *memory = shareable(MIB);
        tmsg_request_t *request =
            lend(pair.to_a, map_of(memory, MIB), 0, &releases);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must(pair_finish(&pair, request));
        must(tmsg_shareable_free(memory)); /* the view stays */
        check_fill(message, "x", 3, MIB);
        tmsg_message_destroy(message);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
        cr_expect_eq(tmsg_loans_lent_bytes(pair.to_a), 0);
    }
    drive(&pair, 1000);
    cr_expect_eq(tmsg_loans_borrowed_bytes(pair.to_b), 0);
    cr_expect_eq(releases, 3);
    pair_close(&pair);
}

/* It is told as soon as the peer reads again. */
Test(loans, a_freed_block_is_told_later)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    uint64_t most;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, request));
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    must(tmsg_shareable_free(memory));
    tmsg_worker_lock(pair.b.worker);
    most = pair.to_a->link.stream.max_bytes;
    pair.to_a->link.stream.max_bytes = 0; /* as if much waited there */
    tmsg_loans_forget_freed(pair.to_a, NULL);
    cr_expect_eq(pair.to_a->paths.loans->offered_count, 1);
    pair.to_a->link.stream.max_bytes = most;
    tmsg_worker_unlock(pair.b.worker);
    pair_await(&pair, has_none_borrowed, pair.to_b, "that it is gone");
    cr_expect_eq(pair.to_a->paths.loans->offered_count, 0);
    pair_close(&pair);
}

/* What is given out of a lent message is read-only, for whoever gets it. */
Test(loans, dlpack_says_read_only)
{
    uint8_t *memory = shareable(MIB);
    struct DLManagedTensorVersioned *managed;
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    must(
        tmsg_map_to_dlpack_versioned(tmsg_message_map(message), "x", &managed));
    cr_expect(managed->flags & TMSG_DLPACK_READ_ONLY);
    tmsg_message_destroy(message); /* the tensor keeps the loan */
    drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    tmsg_dlpack_destroy_versioned(managed);
    pair_await(&pair, is_nonzero, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

typedef struct {
    pthread_t thread;
    tmsg_message_t *message;
} giver_t;

static void *destroy(void *arg)
{
    tmsg_message_destroy(((giver_t *)arg)->message);
    return NULL;
}

/* Any thread may give a loan back, and wakes the worker. */
Test(loans, other_threads_give_back)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_FD, &borrows, NULL);
    for (int i = 0; i < 20; i++) {
        tmsg_request_t *request =
            lend(pair.to_a, map_of(memory, MIB), 0, &releases);
        giver_t giver = {.message = pair_take(&pair, &pair.a)};

        must(pair_finish(&pair, request));
        must_eq(pthread_create(&giver.thread, NULL, destroy, &giver), 0);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
        pthread_join(giver.thread, NULL);
    }
    pair_close(&pair);
    cr_expect_eq(releases, 20);
    must(tmsg_shareable_free(memory));
}

/* A message is forwarded: lent once more, by a copy, for its memory is none of
 * this process's to lend. */
Test(loans, a_lent_message_is_sent_on)
{
    uint8_t *memory = shareable(MIB);
    const side_options_t both = borrows;
    tmsg_message_t *message, *second;
    tmsg_request_t *request;
    unsigned releases = 0;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_LEND};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, &both);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                            tmsg_message_map(message), &params, &request));
    tmsg_message_destroy(message);
    second = pair_take(&pair, &pair.b);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_message_is_lent(second));
    check_fill(second, "x", 3, MIB);
    pair_await(&pair, is_nonzero, &releases, "a release");
    tmsg_message_destroy(second);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* Opens a session over which descriptors pass. */
static void open_session(joined_t *joined)
{
    const how_t how = {.link = LINK_UNIX, .a = borrows, .direct = true};

    joined_open(joined, &how);
}

/* Breaks the connection of a session, which soon has another one. */
static void break_session(pair_t *pair)
{
    must_eq(shutdown(pair->to_a->link.fd, SHUT_RDWR), 0);
    pair_await(pair, joined_is_away, pair->to_a, "a break");
}

/* Takes the next message, which is to be a loan of a MiB. */
static tmsg_message_t *take_lent(pair_t *pair, int value)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    cr_expect(tmsg_message_is_lent(message));
    check_fill(message, "x", value, MIB);
    return message;
}

/* What is sent while a session is broken is lent by its next connection. What
 * was lent before stays. */
Test(loans, a_session_lends_again)
{
    uint8_t *memory = shareable(MIB), *copied = malloc(MIB);
    unsigned releases = 0, others = 0;
    tmsg_message_t *messages[3];
    tmsg_request_t *requests[3];
    joined_t joined;
    pair_t *pair = &joined.pair;

    memset(copied, 4, MIB);
    open_session(&joined);
    requests[0] =
        lend(pair->to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    messages[0] = take_lent(pair, 3);
    must(pair_finish(pair, requests[0]));
    break_session(pair);
    requests[1] =
        lend(pair->to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    requests[2] =
        lend(pair->to_a, map_of(copied, MIB), TMSG_SEND_ACKED, &others);
    for (int i = 1; i < 3; i++) {
        messages[i] = take_lent(pair, 2 + i);
        must(pair_finish(pair, requests[i]));
    }
    must_eq(loans_sent(pair), 3);
    check_fill(messages[0], "x", 3, MIB);
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(messages[i]);
    }
    pair_await(pair, is_nonzero, &others, "a release of a copied map");
    pair_await(pair, is_nonzero, &releases, "a release");
    /* Nobody says that the first came back, whose connection is over. */
    joined_close(&joined);
    cr_expect_eq(releases, 2);
    free(copied);
    must(tmsg_shareable_free(memory));
}

/* So is what was posted before, and has not come. Each comes once. */
Test(loans, a_session_lends_again_what_was_posted)
{
    enum { MESSAGES = 240 }; /* more than the way holds */
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *requests[MESSAGES];
    joined_t joined;
    pair_t *pair = &joined.pair;

    open_session(&joined);
    requests[0] =
        lend(pair->to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    tmsg_message_destroy(take_lent(pair, 3));
    must(pair_finish(pair, requests[0]));
    for (int i = 0; i < MESSAGES; i++) {
        requests[i] =
            lend(pair->to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    }
    while (loans_sent(pair) < 1 + MESSAGES) { /* a reads nothing */
        (void)tmsg_worker_progress(pair->b.worker);
    }
    must_eq(shutdown(pair->to_a->link.fd, SHUT_RDWR), 0);
    while (!joined_is_away(pair->to_a)) {
        (void)tmsg_worker_progress(pair->b.worker);
    }
    for (int i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(pair, &pair->a);

        must_eq(tmsg_message_is_lent(message), 1);
        must_eq(data_of(message, "x")[MIB - 1], 3);
        must(pair_finish(pair, requests[i]));
        tmsg_message_destroy(message);
    }
    cr_expect(loans_sent(pair) > 1 + MESSAGES);
    joined_drop(&joined);
    cr_expect_eq(releases, 1 + MESSAGES);
    must(tmsg_shareable_free(memory));
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
Test(loans, subscribers_share_one_copy)
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
        side_open(&sides[i], &borrows);
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
        map = map_of(memory, MIB);
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
            check_fill(message, "x", 7 + round, MIB);
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

/* What was given back before the connection was ended at once counts. */
Test(loans, what_was_given_back_before_the_end_counts)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    must(pair_finish(&pair, request));
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_drop(&pair);
    must(tmsg_shareable_free(memory));
}

/* For pair_await(): a has a message that was not taken yet. */
static bool has_unread(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->ready.count > 0;
}

/* Nobody will read it any more. */
Test(loans, what_was_not_read_before_the_end_goes_back)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    pair_await(&pair, has_unread, pair.to_b, "a message");
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    must(pair_finish(&pair, request));
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_drop(&pair);
    must(tmsg_shareable_free(memory));
}

/* What the borrower said lies in the owner's socket. */
Test(loans, what_has_come_back_before_the_owners_end_counts)
{
    uint8_t *memory = shareable(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), TMSG_SEND_ACKED, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    must_eq(releases, 0);
    tmsg_endpoint_destroy(pair.to_a);
    pair.to_a = NULL;
    pair_await(&pair, is_nonzero, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    tmsg_request_destroy(request);
    pair_drop(&pair);
    must(tmsg_shareable_free(memory));
}

static void expect_segment(side_t *owner, side_t *to, tmsg_endpoint_t *endpoint,
                           uint8_t *memory, uint64_t segments)
{
    pair_t both = {.sides = {owner, to}};
    unsigned releases = 0;
    tmsg_request_t *request = lend(endpoint, map_of(memory, MIB), 0, &releases);
    tmsg_message_t *message = pair_take(&both, to);

    must(pair_finish(&both, request));
    cr_expect(tmsg_message_is_lent(message));
    check_fill(message, "x", memory[0], MIB);
    tmsg_message_destroy(message);
    pair_await(&both, has_none_out, endpoint, "what was lent");
    cr_expect_eq(tmsg_loans_lent_bytes(endpoint), segments * MIB);
}

/* Whoever had a copy may still have it mapped: what is for one principal never
 * comes to lie where another one reads. */
Test(loans, copies_are_of_one_principal)
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
    open_borrower(&alice, &owner, "alice", 1, &to_alice);
    open_borrower(&bob, &owner, "bob", 2, &to_bob);
    memset(memory, 1, MIB);
    expect_segment(&owner, &alice, to_alice, memory, 1);
    copies = &owner.worker->paths.lender->copies;
    cr_expect_eq(copies->count, 1);
    memset(memory, 2, MIB);
    expect_segment(&owner, &bob, to_bob, memory, 1);
    cr_expect_eq(copies->count, 2);
    open_borrower(&alice_again, &owner, "alice", 1, &to_alice_again);
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
Test(loans, copies_are_of_one_process_without_keys)
{
    side_t owner, one, other;
    tmsg_endpoint_t *to_one, *to_other;
    uint8_t *memory = malloc(MIB);
    const tmsg_list_t *copies;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    open_borrower(&one, &owner, NULL, 0, &to_one);
    open_borrower(&other, &owner, NULL, 0, &to_other);
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
Test(loans, a_copy_that_did_not_come_back_is_not_used_again)
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
    open_borrower(&one, &owner, NULL, 0, &to_one);
    open_borrower(&other, &owner, NULL, 0, &to_other);
    memset(memory, 1, MIB);
    both = (pair_t){.sides = {&owner, &one}};
    request = lend(to_one, map_of(memory, MIB), 0, &releases);
    message = pair_take(&both, &one);
    must(pair_finish(&both, request));
    tmsg_endpoint_destroy(to_one); /* the view stays */
    memset(memory, 2, MIB);
    for (int i = 0; i < 3; i++) {
        expect_segment(&owner, &other, to_other, memory, 1);
        check_fill(message, "x", 1, MIB);
    }
    /* It counts as long as the process may read it. */
    cr_expect_eq(owner.worker->paths.lender->copies.count, 2);
    side_close(&one);
    check_fill(message, "x", 1, MIB);
    tmsg_message_destroy(message);
    side_close(&other);
    side_close(&owner);
    free(memory);
}

/* A setting rules loans out. */
Test(loans, a_threshold_rules_them_out)
{
    setenv("TENSORMSG_THRESHOLDS", "shm.lend_bytes=never", 1);
    expect_usual(LINK_UNIX, &borrows, "fewer bytes than shm.lend_bytes");
}

/* A process that connects anew and keeps all it gets takes one record. */
Test(loans, a_process_that_keeps_all_has_one_record)
{
    enum { TIMES = 3 };
    uint8_t *memory = shareable(MIB);
    tmsg_message_t *messages[TIMES + 1];
    tmsg_endpoint_t *to[TIMES + 1];
    side_t owner, sides[TIMES + 1];
    tmsg_orphans_t *orphans = NULL;
    unsigned releases = 0;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    for (int i = 0; i <= TIMES; i++) {
        pair_t both = {.sides = {&owner, &sides[i]}};
        tmsg_request_t *request;

        open_borrower(&sides[i], &owner, NULL, 0, &to[i]);
        if (i == TIMES) { /* as if it kept more than may be */
            orphans->loans.count = TMSG_LOANS_MOST;
        }
        request = lend(to[i], map_of(memory, MIB), 0, &releases);
        messages[i] = pair_take(&both, &sides[i]);
        must(pair_finish(&both, request));
        cr_expect_eq(tmsg_message_is_lent(messages[i]), i < TIMES);
        if (i == TIMES) {
            expect_words(to[i], "was not given back");
            orphans->loans.count = TIMES;
        }
        tmsg_endpoint_destroy(to[i]);
        must_eq(owner.worker->paths.lender->orphans.count, 1);
        orphans = TMSG_CONTAINER_OF(owner.worker->paths.lender->orphans.head,
                                    tmsg_orphans_t, node);
        cr_expect_eq(orphans->loans.count, i < TIMES ? i + 1 : TIMES);
        cr_expect(orphans->process >= 0);
    }
    cr_expect_eq(releases, 1);
    for (int i = 0; i <= TIMES; i++) {
        check_fill(messages[i], "x", 3, MIB);
        tmsg_message_destroy(messages[i]);
        side_close(&sides[i]);
    }
    side_close(&owner);
    cr_expect_eq(releases, TIMES + 1);
    must(tmsg_shareable_free(memory));
}

/* For pair_await(): the kernel tells of the end of the peer's process. */
static bool is_watched(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->process >= 0;
}

/* A lack of descriptors does not last. */
Test(loans, the_peers_process_is_watched_later)
{
    uint8_t *memory = shareable(MIB);
    struct rlimit few, usual;
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_loans_t *loans;
    pair_t pair;

    open_pair(&pair, LINK_UNIX);
    request = lend(pair.to_a, map_of(memory, MIB), 0, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, request));
    pair_await(&pair, is_nonzero, &releases, "a release");
    releases = 0;
    loans = pair.to_a->paths.loans;
    must_true(loans->watched && loans->process >= 0);
    close(loans->process);
    loans->process = -1;
    loans->watched = false;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = usual;
    few.rlim_cur = 3;
    must_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    tmsg_request_destroy(lend(pair.to_a, map_of(memory, MIB), 0, &releases));
    cr_expect_eq(loans->out.count, 1);
    cr_expect(!loans->watched);
    must_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    pair_await(&pair, is_watched, pair.to_a, "a watch");
    message = pair_take(&pair, &pair.a);
    tmsg_message_destroy(message);
    pair_await(&pair, is_nonzero, &releases, "a release");
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}
