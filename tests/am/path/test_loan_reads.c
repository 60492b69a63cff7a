/* SPDX-License-Identifier: BSD-3-Clause */
/* What a receiver does with a message that is lent: it checks it, copies it,
 * places it, reads it, sends it on, and gives it back. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/device_maps.h"
#include "support/lent_maps.h"
#include "support/simulated_devices.h"
#include "test_loan_tools.h"

enum { MIB = 1 << 20 };

Test(loan_reads, checksums_are_those_of_the_lent_bytes)
{
    uint8_t *other = malloc(MIB);
    tmsg_message_t *message;
    lent_t lent;

    memset(other, 9, MIB);
    lent_begin(&lent, MIB, TMSG_SEND_VERIFY);
    message = pair_take(&lent.pair, &lent.pair.a);
    cr_expect(tmsg_message_is_lent(message));
    must(pair_finish(&lent.pair, lent.request));
    tmsg_message_destroy(message);
    message = lent_pass(&lent.pair, lent_map(other, MIB), TMSG_SEND_VERIFY);
    cr_expect(tmsg_message_is_lent(message));
    lent_check(message, "x", 9, MIB);
    tmsg_message_destroy(message);
    lent_end(&lent);
    free(other);
}

/* Sends tensors with checksums, writes to their memory when they have come, or
 * does not, and receives them into `place`. */
static tmsg_status_t receive_late(pair_t *pair, tmsg_map_t *map, uint8_t *at,
                                  tmsg_map_t *place)
{
    unsigned releases = 0;
    receiving_t receiving = {.pair = pair, .map = place};
    tmsg_request_t *request = lent_send(
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
    /* The sender hears the same. */
    must_be(pair_wait(pair, request), receiving.status);
    if (receiving.status != TMSG_OK) {
        must_say(tmsg_request_error(request),
                 "refused by the receiver: tensor");
    }
    tmsg_request_destroy(request);
    pair_await(pair, lent_is_back, &releases, "a release");
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
Test(loan_reads, what_is_copied_late_is_checked)
{
    enum { ROWS = 1024, COLUMNS = MIB / ROWS, FEW = COLUMNS - 8 };
    uint8_t *place = malloc(MIB);
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < 2; i++) {
        uint8_t *memory = lent_block(MIB);
        uint8_t *changed = i == 0 ? NULL : memory + MIB / 2;
        tmsg_status_t wanted = i == 0 ? TMSG_OK : TMSG_ERR_CORRUPT;
        tmsg_map_t *map = lent_map(memory, MIB / 2);

        must_be(receive_late(&pair, lent_map(memory, MIB), changed,
                             lent_map(place, MIB)),
                wanted);
        memset(memory, 3, MIB);
        must_be(receive_late(&pair, map_with_gaps(memory, ROWS, FEW, COLUMNS),
                             changed, map_with_gaps(place, ROWS, FEW, FEW)),
                wanted);
        memset(memory, 3, MIB);
        /* What stays a view was checked, and is not looked at again. */
        lent_add(map, "y", memory + MIB / 2, MIB / 2);
        must_be(receive_late(&pair, map, changed, lent_map(place, MIB / 2)),
                TMSG_OK);
        must(tmsg_shareable_free(memory));
    }
    must_eq(lent_count(&pair), 6);
    pair_close(&pair);
    free(place);
}

/* What is received into a map is copied there, and given back. */
Test(loan_reads, a_receive_into_a_map_copies)
{
    uint8_t *place = malloc(MIB);
    tmsg_map_t *map = lent_map(place, MIB);
    receiving_t receiving;
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    receiving = (receiving_t){.pair = &lent.pair, .map = map};
    pair_await(&lent.pair, receiving_has_ended, &receiving, "a receive");
    must(receiving.status);
    cr_expect(place[0] == 3 && place[MIB - 1] == 3);
    must(pair_finish(&lent.pair, lent.request));
    tmsg_message_destroy(receiving.message);
    tmsg_map_destroy(map);
    lent_end(&lent);
    free(place);
}

/* So is what came before it was asked for. Nothing of it is read-only then, but
 * what has no place there stays a view. */
Test(loan_reads, a_late_receive_into_a_map_gives_back_at_once)
{
    uint8_t *memory = lent_block(2 * MIB), *places = malloc(2 * MIB);
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < 3; i++) { /* all, with gaps, the first half */
        bool some = i == 2;
        unsigned releases = 0;
        receiving_t receiving = {.pair = &pair};
        tmsg_map_t *sent = i == 1 ? map_with_gaps(memory, 1024, 2040, 2048)
                                  : lent_map(memory, MIB);
        tmsg_map_t *place = i == 1 ? map_with_gaps(places, 1024, 2040, 2040)
                                   : lent_map(places, MIB);
        tmsg_request_t *request;

        if (i != 1) {
            lent_add(sent, "y", memory + MIB, MIB);
        }
        if (i == 0) {
            lent_add(place, "y", places + MIB, MIB);
        }
        memset(places, 0, 2 * MIB);
        request = lent_send(pair.to_a, sent, TMSG_SEND_KEEP_STRIDES, &releases);
        while (pair.to_b->ready.count == 0) {
            (void)tmsg_worker_progress(pair.a.worker);
            (void)tmsg_worker_progress(pair.b.worker);
        }
        must_true(tmsg_shareable_is_lent(memory));
        receiving.map = place;
        pair_await(&pair, receiving_has_ended, &receiving, "a receive");
        must(receiving.status);
        must(pair_finish(&pair, request));
        cr_expect_eq(tmsg_message_is_lent(receiving.message), some);
        cr_expect(!is_read_only(receiving.message, 0));
        if (some) {
            cr_expect(is_read_only(receiving.message, 1));
            lent_drive(&pair, 1000);
            cr_expect_eq(releases, 0);
            lent_check(receiving.message, "y", 3, MIB);
            tmsg_message_destroy(receiving.message);
        }
        pair_await(&pair, lent_is_back, &releases, "a release");
        cr_expect(places[0] == 3 && places[MIB - 1] == 3);
        if (!some) {
            tmsg_message_destroy(receiving.message);
        }
        tmsg_map_destroy(place);
    }
    must_eq(lent_count(&pair), 3);
    pair_close(&pair);
    free(places);
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
Test(loan_reads, a_header_callback_places_and_refuses)
{
    uint8_t *memory = lent_block(2 * MIB);
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
    map = lent_map(memory, MIB);
    lent_add(map, "y", memory + MIB, MIB);
    request = lent_send(pair.to_a, map, 0, &releases);
    message = pair_take(&pair, &pair.a);
    cr_expect_eq(lent_data(message, "x"), header.place);
    cr_expect(!is_read_only(message, 0) && is_read_only(message, 1));
    lent_check(message, "x", 3, MIB);
    lent_check(message, "y", 3, MIB);
    must(pair_finish(&pair, request));
    cr_expect_eq(releases, 0);
    tmsg_message_destroy(message);
    pair_await(&pair, lent_is_back, &releases, "a release");

    header.refuses = true;
    releases = 0;
    map = lent_map(memory, 2 * MIB);
    request = lent_send(pair.to_a, map, TMSG_SEND_ACKED, &releases);
    must_be(pair_finish(&pair, request), TMSG_ERR_REFUSED);
    pair_await(&pair, lent_is_back, &releases, "a release");
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
Test(loan_reads, devices_get_copies_and_the_host_views)
{
    uint8_t *memory = lent_block(2 * MIB);
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
        tmsg_map_t *map = lent_map(memory, MIB);
        tmsg_message_t *message;
        tmsg_request_t *request;

        lent_add(map, "y", memory + MIB, MIB);
        request = lent_send(pair.to_a, map, 0, &releases);
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        cr_expect_eq(tmsg_message_is_lent(message), chosen == 1);
        cr_expect_eq(is_read_only(message, 1), chosen == 1);
        device_peek(copy, lent_data(message, "x"), MIB);
        cr_expect(copy[0] == 3 && copy[MIB - 1] == 3);
        if (chosen == 1) {
            lent_check(message, "y", 3, MIB);
            lent_drive(&pair, 1000);
            cr_expect_eq(releases, 0);
            tmsg_message_destroy(message);
        }
        pair_await(&pair, lent_is_back, &releases, "a release");
        if (chosen == 2) {
            device_peek(copy, lent_data(message, "y"), MIB);
            cr_expect(copy[0] == 3 && copy[MIB - 1] == 3);
            tmsg_message_destroy(message);
        }
    }
    pair_close(&pair);
    device_maps_end();
    free(copy);
    must(tmsg_shareable_free(memory));
}

/* What is given out of a lent message is read-only, for whoever gets it. */
Test(loan_reads, dlpack_says_read_only)
{
    struct DLManagedTensorVersioned *managed;
    tmsg_message_t *message;
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    message = pair_take(&lent.pair, &lent.pair.a);
    must(pair_finish(&lent.pair, lent.request));
    must(
        tmsg_map_to_dlpack_versioned(tmsg_message_map(message), "x", &managed));
    cr_expect(managed->flags & TMSG_DLPACK_READ_ONLY);
    tmsg_message_destroy(message); /* the tensor keeps the loan */
    lent_drive(&lent.pair, 1000);
    cr_expect_eq(lent.releases, 0);
    tmsg_dlpack_destroy_versioned(managed);
    lent_end(&lent);
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
Test(loan_reads, other_threads_give_back)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_FD, &lent_borrower, NULL);
    for (int i = 0; i < 20; i++) {
        tmsg_request_t *request =
            lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
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
Test(loan_reads, a_lent_message_is_sent_on)
{
    uint8_t *memory = lent_block(MIB);
    const side_options_t both = lent_borrower;
    tmsg_message_t *message, *second;
    tmsg_request_t *request;
    unsigned releases = 0;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_LEND};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &lent_borrower, &both);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                            tmsg_message_map(message), &params, &request));
    tmsg_message_destroy(message);
    second = pair_take(&pair, &pair.b);
    must(pair_finish(&pair, request));
    cr_expect(tmsg_message_is_lent(second));
    lent_check(second, "x", 3, MIB);
    pair_await(&pair, lent_is_back, &releases, "a release");
    tmsg_message_destroy(second);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}
