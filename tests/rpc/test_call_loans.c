/* SPDX-License-Identifier: BSD-3-Clause */
/* Loans of calls and streams: replies to callers who ask, what servers who
 * borrow are called with, and items. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "rpc/server.h"
#include "support/lent_maps.h"
#include "support/session_pair.h"

enum { BYTES = 1 << 18 };

static uint8_t *shareable(uint8_t value)
{
    return memset(lent_block(BYTES), value, BYTES);
}

/* A map of one tensor that borrows the memory. */
static tmsg_map_t *map_of(uint8_t *memory)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    lent_add(map, "data", memory, BYTES);
    return map;
}

static bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

static const uint8_t *view_of(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(map, "data", &tensor));
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

/* What a handler replies with. */
typedef struct {
    uint8_t *memory;
    uint8_t flags; /* TMSG_CALL_SEND_* that the library would not set */
    unsigned releases;
} lender_t;

static void count_release(void *arg) { ++*(unsigned *)arg; }

static void lend_reply(void *arg, tmsg_task_t *task)
{
    lender_t *lender = arg;
    const tmsg_reply_params_t params = {
        .field_mask = TMSG_REPLY_PARAM_FLAGS | TMSG_REPLY_PARAM_ON_RELEASE,
        .flags = TMSG_SEND_LEND,
        .on_release = count_release,
        .on_release_arg = &lender->releases};
    tmsg_map_t *map = map_of(lender->memory);

    task->how.flags |= lender->flags;
    must(tmsg_task_reply(task, map, &params));
    tmsg_map_destroy(map);
}

static tmsg_server_t *serve(pair_t *pair, lender_t *lender)
{
    tmsg_server_t *server;

    must(tmsg_server_create(pair->a.worker, NULL, &server));
    must(tmsg_server_register(server, "lend", lend_reply, lender, NULL));
    return server;
}

static tmsg_call_t *call_lender(pair_t *pair)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "lend", NULL, NULL, &call));
    pair_await(pair, has_ended, call, "the end of a call");
    return call;
}

Test(call_loans, replies_are_lent_to_callers_who_borrow)
{
    lender_t lender = {.memory = shareable(7)};
    tmsg_server_t *server;
    tmsg_call_t *call;
    pair_t pair;

    for (int i = 0; i < 2; i++) {
        pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL,
                  i == 0 ? NULL : &lent_borrower);
        server = serve(&pair, &lender);
        call = call_lender(&pair);
        must_be(tmsg_call_status(call), TMSG_OK);
        cr_expect_eq(tmsg_call_reply_is_lent(call), i);
        cr_expect(is_all(view(call), 7));
        cr_expect_eq(tmsg_shareable_is_lent(lender.memory), i);
        if (i == 1) {
            cr_expect_eq(lender.releases, 0);
        }
        tmsg_call_destroy(call);
        pair_await(&pair, lent_is_back, &lender.releases, "the release");
        lender.releases = 0;
        tmsg_server_destroy(server);
        pair_close(&pair);
    }
    must(tmsg_shareable_free(lender.memory));
}

static tmsg_call_t *call_with(pair_t *pair, const tmsg_call_params_t *params)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "lend", NULL, params, &call));
    pair_await(pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_OK);
    cr_expect(is_all(view(call), 7));
    return call;
}

/* A caller asks for the loan of one reply. Others are copied, and so is what
 * goes into memory of its own. */
Test(call_loans, a_reply_is_lent_to_a_call_that_borrows)
{
    lender_t lender = {.memory = shareable(7)};
    uint8_t *own = calloc(1, BYTES);
    tmsg_map_t *into = map_of(own);
    tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_FLAGS |
                                               TMSG_CALL_PARAM_RETRY,
                                 .flags = TMSG_CALL_BORROW,
                                 .retry = {.attempts = 2}};
    tmsg_server_t *server;
    tmsg_call_t *call;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    server = serve(&pair, &lender);
    for (int i = 0; i < 4; i++) { /* the last two with retries */
        params.field_mask =
            TMSG_CALL_PARAM_FLAGS | (i < 2 ? 0 : TMSG_CALL_PARAM_RETRY);
        call = call_with(&pair, i % 2 == 0 ? &params : NULL);
        cr_expect_eq(tmsg_call_reply_is_lent(call), i % 2 == 0);
        cr_expect_eq(tmsg_shareable_is_lent(lender.memory), i % 2 == 0);
        tmsg_call_destroy(call);
        pair_await(&pair, lent_is_back, &lender.releases, "the release");
        lender.releases = 0;
    }
    params.field_mask = TMSG_CALL_PARAM_FLAGS | TMSG_CALL_PARAM_REPLY_INTO;
    params.reply_into = into;
    call = call_with(&pair, &params);
    cr_expect(!tmsg_call_reply_is_lent(call));
    cr_expect(is_all(own, 7));
    pair_await(&pair, lent_is_back, &lender.releases, "the release");
    tmsg_call_destroy(call);
    tmsg_map_destroy(into);
    params.field_mask = TMSG_CALL_PARAM_FLAGS;
    params.flags = 1 << 4;
    must_be(tmsg_endpoint_call(pair.to_a, "lend", NULL, &params, &call),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown flags 0x10");
    tmsg_server_destroy(server);
    pair_close(&pair);
    free(own);
    must(tmsg_shareable_free(lender.memory));
}

static void lend_twice(void *arg, tmsg_task_t *task)
{
    lender_t *lender = arg;
    const tmsg_reply_params_t params = {
        .field_mask = TMSG_REPLY_PARAM_FLAGS | TMSG_REPLY_PARAM_ON_RELEASE,
        .flags = TMSG_SEND_LEND,
        .on_release = count_release,
        .on_release_arg = &lender->releases};
    const int64_t shape[] = {2, BYTES}, repeats[] = {0, 1};
    const tmsg_tensor_t tensor = {
        lender->memory, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape,
        repeats};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_task_reply(task, map, &params));
    tmsg_map_destroy(map);
}

/* A reply that is written out, into memory of the caller's, goes back before
 * its call is destroyed. */
Test(call_loans, a_reply_that_is_copied_goes_back_at_once)
{
    lender_t lender = {.memory = shareable(7)};
    uint8_t *own = malloc(2 * BYTES);
    const int64_t shape[] = {2, BYTES};
    const tmsg_tensor_t tensor = {
        own, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, NULL};
    tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_REPLY_INTO};
    tmsg_server_t *server;
    tmsg_call_t *call;
    tmsg_map_t *into;
    pair_t pair;

    must(tmsg_map_create(&into));
    must(tmsg_map_add(into, "data", &tensor, NULL));
    params.reply_into = into;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, &lent_borrower);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "twice", lend_twice, &lender, NULL));
    must(tmsg_endpoint_call(pair.to_a, "twice", NULL, &params, &call));
    pair_await(&pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_OK);
    must_eq(described(pair.to_b, "sent_by_loan"), 1);
    cr_expect(!tmsg_call_reply_is_lent(call));
    cr_expect(is_all(own, 7) && is_all(own + BYTES, 7));
    pair_await(&pair, lent_is_back, &lender.releases, "the release");
    tmsg_call_destroy(call);
    tmsg_map_destroy(into);
    tmsg_server_destroy(server);
    pair_close(&pair);
    free(own);
    must(tmsg_shareable_free(lender.memory));
}

/* What a handler has of its call: whether it is a loan. */
typedef struct {
    bool keeps;
    tmsg_task_t *kept;
} taker_t;

static void take_arguments(void *arg, tmsg_task_t *task)
{
    taker_t *taker = arg;

    must_true(is_all(view_of(tmsg_task_map(task)), 7));
    if (taker->keeps) {
        taker->kept = tmsg_task_keep(task);
    }
    must(tmsg_task_reply(task, NULL, NULL));
}

/* The memory of a call's map is free when its handler is done with it, which
 * may be later than its reply. */
Test(call_loans, arguments_are_lent_to_servers_who_borrow)
{
    uint8_t *memory = shareable(7);
    unsigned releases = 0;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_FLAGS |
                                                     TMSG_CALL_PARAM_ON_RELEASE,
                                       .flags = TMSG_CALL_LEND,
                                       .on_release = count_release,
                                       .on_release_arg = &releases};
    tmsg_server_t *server;
    tmsg_call_t *call;
    pair_t pair;

    for (int i = 0; i < 3; i++) { /* copied, lent and kept, lent */
        taker_t taker = {.keeps = i == 1};
        tmsg_map_t *map = map_of(memory);

        pair_open(&pair, LINK_UNIX, DRIVE_POLLING,
                  i == 0 ? NULL : &lent_borrower, NULL);
        must(tmsg_server_create(pair.a.worker, NULL, &server));
        must(
            tmsg_server_register(server, "take", take_arguments, &taker, NULL));
        must(tmsg_endpoint_call(pair.to_a, "take", map, &params, &call));
        tmsg_map_destroy(map);
        pair_await(&pair, has_ended, call, "the end of a call");
        must_be(tmsg_call_status(call), TMSG_OK);
        must_eq(described(pair.to_a, "sent_by_loan"), i > 0);
        tmsg_call_destroy(call);
        if (taker.keeps) {
            cr_expect_eq(releases, 0);
            cr_expect(tmsg_shareable_is_lent(memory));
            must_true(is_all(view_of(tmsg_task_map(taker.kept)), 7));
            tmsg_task_destroy(taker.kept);
        }
        pair_await(&pair, lent_is_back, &releases, "the release");
        cr_expect_eq(releases, 1);
        cr_expect(!tmsg_shareable_is_lent(memory));
        releases = 0;
        tmsg_server_destroy(server);
        pair_close(&pair);
    }
    must(tmsg_shareable_free(memory));
}

static void lend_item(void *arg, tmsg_call_stream_t *stream)
{
    lender_t *lender = arg;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = TMSG_SEND_LEND,
                                       .on_release = count_release,
                                       .on_release_arg = &lender->releases};
    tmsg_map_t *map = map_of(lender->memory);

    must(tmsg_call_stream_send(stream, map, &params, NULL));
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
    tmsg_map_destroy(map);
}

typedef struct {
    tmsg_call_stream_t *stream;
    tmsg_message_t *item;
} reading_t;

static bool has_item(void *arg)
{
    reading_t *reading = arg;

    return tmsg_call_stream_try_recv(reading->stream, &reading->item) ==
           TMSG_OK;
}

Test(call_loans, items_of_streams_are_lent)
{
    lender_t lender = {.memory = shareable(7)};
    tmsg_server_t *server;
    reading_t reading;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, &lent_borrower);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register_stream(server, "lend", lend_item, &lender, NULL));
    must(tmsg_endpoint_open_stream(pair.to_a, "lend", NULL, NULL,
                                   &reading.stream));
    pair_await(&pair, has_item, &reading, "an item");
    must_true(reading.item != NULL);
    cr_expect(tmsg_message_is_lent(reading.item));
    cr_expect(is_all(view_of(tmsg_message_map(reading.item)), 7));
    tmsg_call_stream_destroy(reading.stream);
    cr_expect_eq(lender.releases, 0);
    tmsg_message_destroy(reading.item);
    pair_await(&pair, lent_is_back, &lender.releases, "the release");
    tmsg_server_destroy(server);
    pair_close(&pair);
    must(tmsg_shareable_free(lender.memory));
}

/* Fetches a loan, so that this side takes some. */
static void ask_otherwise(pair_t *pair, uint8_t *memory, tmsg_offer_t **offer_p)
{
    const tmsg_offer_params_t offered = {.field_mask = TMSG_OFFER_PARAM_NAME |
                                                       TMSG_OFFER_PARAM_FLAGS,
                                         .name = "data",
                                         .flags = TMSG_OFFER_LEND};
    const tmsg_fetch_params_t fetched = {.field_mask = TMSG_FETCH_PARAM_FLAGS,
                                         .flags = TMSG_FETCH_BORROW};
    tmsg_map_t *map = map_of(memory);
    tmsg_call_t *call;

    must(tmsg_offer_create(pair->a.worker, map, &offered, offer_p));
    tmsg_map_destroy(map);
    must(tmsg_endpoint_fetch_name(pair->to_a, "data", 0, &fetched, &call));
    pair_await(pair, has_ended, call, "the end of a fetch");
    cr_expect(tmsg_call_reply_is_lent(call));
    tmsg_call_destroy(call);
}

/* A peer that answers a call with a loan, which was asked for elsewhere. */
Test(call_loans, who_has_not_asked_takes_no_loan)
{
    lender_t lender = {.memory = shareable(7), .flags = TMSG_CALL_SEND_ASKED};
    uint8_t *memory = shareable(1);
    tmsg_server_t *server;
    tmsg_call_t *call;
    tmsg_offer_t *offer;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    server = serve(&pair, &lender);
    call = call_lender(&pair);
    must_be(tmsg_call_status(call), TMSG_OK);
    cr_expect(!tmsg_call_reply_is_lent(call)); /* the segment was refused */
    tmsg_call_destroy(call);
    tmsg_server_destroy(server);
    pair_close(&pair);

    lender.releases = 0;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    server = serve(&pair, &lender);
    ask_otherwise(&pair, memory, &offer);
    call = call_lender(&pair);
    cr_expect_neq(tmsg_call_status(call), TMSG_OK);
    cr_expect_eq(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
    tmsg_call_destroy(call);
    tmsg_server_destroy(server);
    tmsg_offer_destroy(offer);
    pair_drop(&pair);
    must(tmsg_shareable_free(memory));
    must(tmsg_shareable_free(lender.memory));
}
