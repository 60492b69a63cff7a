/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A broadcast tensor (strides of 0) travels with each element once, and arrives
 * as it was. It is written out if the peer cannot read broadcast tensors, or
 * receives it into memory of its own. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/send/broadcast.h"
#include "support/failing_alloc.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/strided_views.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What travels is each element once. */
static const view_t views[] = {
    {"rows", 3, 3, {1000, 5, 6}, {0, 6, 1}, 30},
    {"columns", 0, 3, {5, 6, 1000}, {6, 1, 0}, 30},
    {"between", 8, 3, {5, 100, 6}, {6, 0, 1}, 30},
    {"Fortran", 0, 3, {5, 6, 7}, {1, 5, 0}, 30},
    {"one element", 9, 3, {10, 20, 30}, {0, 0, 0}, 1},
    {"one of a row", 9, 1, {400}, {0}, 1},
    {"with gaps", 3, 3, {4, 5, 6}, {0, 6, 0}, 5},
    {"backwards", 29, 3, {4, 5, 6}, {0, -6, -1}, 30},
    {"sliced", 1, 3, {4, 5, 3}, {0, 12, 2}, 15},
    {"windows", 0, 3, {4, 5, 6}, {0, 1, 1}, 30},
    {"extent 1", 2, 3, {1, 5, 6}, {0, 6, 1}, 30},
    {"extents 1", 2, 3, {1, 5, 1}, {0, 0, 0}, 1},
    {"empty", 2, 3, {4, 0, 6}, {0, 0, 1}, 0},
    {"0-d", 7, 0, {0}, {0}, 1},
    {"C order", 0, 3, {4, 5, 6}, {30, 6, 1}, 120},
    {"permuted", 0, 3, {4, 5, 6}, {6, 24, 1}, 120},
    {"large", 5, 3, {10, 300, 200}, {0, 200, 1}, 60000},
    {"large columns", 5, 3, {300, 200, 10}, {1, 300, 0}, 60000},
};

#define VIEWS COUNT(views)

/* Returns the bytes of a payload of such int32 tensors, each at a multiple of
 * 16. `once`: each element counts once. */
static uint64_t payload_of(const view_t *first, size_t count, bool once)
{
    uint64_t end = 0;

    for (size_t i = 0; i < count; i++) {
        const tmsg_tensor_t tensor = view_tensor(&first[i]);
        uint64_t bytes;

        must(tmsg_tensor_bytes(&tensor, &bytes));
        if (once) {
            bytes = (uint64_t)first[i].travels * sizeof(int32_t);
        }
        end = bytes == 0 ? end : (end + 15) / 16 * 16 + bytes;
    }
    return end;
}

/* The tensor is broadcast as it was, or not at all. */
static void check_strides(const view_t *view, const tmsg_tensor_t *tensor,
                          bool once)
{
    for (int32_t i = 0; i < view->ndim && view->travels > 0; i++) {
        if (view->shape[i] > 1 && view->strides[i] == 0) {
            must_eq(tensor->strides != NULL && tensor->strides[i] == 0, once);
        }
    }
}

static void check_map(const view_t *first, size_t count, const tmsg_map_t *map,
                      bool once)
{
    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_find(map, first[i].name, &tensor));
        check_strides(&first[i], &tensor, once);
        view_check(&first[i], &tensor);
    }
}

/* Makes the peer's hello that of an older peer. */
static void forget_feature(tmsg_endpoint_t *endpoint)
{
    endpoint->peer_hello.features &= ~TMSG_FEATURE_BROADCAST;
}

typedef struct {
    uint32_t flags;
    int32_t way;
    int32_t protocol;
} manner_t;

static void exchange(pair_t *pair, const view_t *first, size_t count,
                     manner_t how, bool once)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_WAY,
                                       .flags = how.flags,
                                       .way = how.way,
                                       .protocol = how.protocol};
    uint64_t before = pair->to_a->stats.sent_bytes;
    tmsg_map_t *map = views_map(first, count);
    tmsg_message_t *message;
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
    message = pair_take(pair, &pair->a);
    must_eq(pair->to_a->stats.sent_bytes - before,
            payload_of(first, count, once));
    check_map(first, count, tmsg_message_map(message), once);
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    tmsg_map_destroy(map);
}

static void every_way(link_t link, drive_t drive, bool once)
{
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    if (!once) {
        forget_feature(pair.to_a);
    }
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        for (int32_t protocol = TMSG_PROTOCOL_AUTO;
             protocol <= TMSG_PROTOCOL_RNDV; protocol++) {
            const manner_t how = {way % 2 == 0 ? TMSG_SEND_VERIFY : 0, way,
                                  protocol};

            exchange(&pair, views, VIEWS, how, once);
        }
    }
    for (size_t i = 0; i < VIEWS; i++) {
        exchange(&pair, &views[i], 1, (manner_t){TMSG_SEND_VERIFY, 0, 0}, once);
    }
    pair_close(&pair);
}

Test(broadcast, travels_once_shm) { every_way(LINK_SHM, DRIVE_POLLING, true); }
Test(broadcast, travels_once_tcp) { every_way(LINK_TCP, DRIVE_THREAD, true); }
Test(broadcast, travels_once_unix) { every_way(LINK_UNIX, DRIVE_FD, true); }

Test(broadcast, is_written_out_for_an_older_peer_shm)
{
    every_way(LINK_SHM, DRIVE_POLLING, false);
}

Test(broadcast, is_written_out_for_an_older_peer_tcp)
{
    every_way(LINK_TCP, DRIVE_THREAD, false);
}

/* The names do not fit into a header, so the body heads the payload. */
Test(broadcast, travels_behind_a_spilled_body)
{
    enum { TENSORS = 300 };
    static view_t many[TENSORS];
    pair_t pair;

    views_repeat(many, TENSORS, views, 12);
    for (int older = 0; older < 2; older++) {
        tmsg_map_t *map = views_map(many, TENSORS);
        tmsg_message_t *message;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        if (older) {
            forget_feature(pair.to_a);
        }
        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        message = pair_take(&pair, &pair.a);
        check_map(many, TENSORS, tmsg_message_map(message), !older);
        tmsg_message_destroy(message);
        tmsg_map_destroy(map);
        pair_close(&pair);
    }
}

/* A layout with other strides is another schema. */
Test(broadcast, goes_by_schema)
{
    static const view_t turned[] = {
        {"x", 3, 2, {6, 6}, {0, 1}, 6},  {"x", 3, 2, {6, 6}, {1, 0}, 6},
        {"x", 8, 2, {6, 6}, {0, -1}, 6}, /* travels as the first */
        {"x", 3, 2, {6, 6}, {6, 1}, 36}, {"x", 3, 2, {9, 6}, {0, 1}, 6},
    };
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT(turned); i++) {
            exchange(&pair, &turned[i], 1, (manner_t){TMSG_SEND_ACKED, 0, 0},
                     true);
        }
    }
    must_true(pair.to_a->stats.sent_by_schema >= COUNT(turned));
    pair_close(&pair);
}

/* A received map is sent on as it is. */
Test(broadcast, is_sent_on)
{
    tmsg_message_t *message, *back;
    tmsg_map_t *map = views_map(views, VIEWS);
    uint64_t before;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
    message = pair_take(&pair, &pair.a);
    before = pair.to_b->stats.sent_bytes;
    must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(message), NULL, NULL));
    tmsg_message_destroy(message);
    back = pair_take(&pair, &pair.b);
    must_eq(pair.to_b->stats.sent_bytes - before,
            payload_of(views, VIEWS, true));
    check_map(views, VIEWS, tmsg_message_map(back), true);
    tmsg_message_destroy(back);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* A published map is encoded once for the peers that can read it, and written
 * out once for those that cannot. */
Test(broadcast, is_published_to_peers_of_both_kinds)
{
    enum { EACH = 2 };
    tmsg_endpoint_t *dialled[2 * EACH];
    tmsg_publisher_t *publisher;
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_publisher_create(pair.b.worker, NULL, &publisher));
    for (size_t i = 0; i < 2 * EACH; i++) {
        dialled[i] = side_dial(&pair.b, &pair.a);
        tmsg_request_destroy(send_map(dialled[i], sample_bytes(1, 10), 0));
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        if (i % 2 == 1) {
            forget_feature(dialled[i]);
        }
        must(tmsg_publisher_add(publisher, dialled[i], NULL));
    }
    for (int round = 0; round < 3; round++) {
        size_t written = 0;

        must(tmsg_publisher_publish(publisher, map, NULL, &sent));
        for (size_t i = 0; i < 2 * EACH; i++) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);
            tmsg_tensor_t tensor;
            bool once;

            must(tmsg_map_find(tmsg_message_map(message), "rows", &tensor));
            once = tensor.strides != NULL;
            written += !once;
            check_map(views, VIEWS, tmsg_message_map(message), once);
            tmsg_message_destroy(message);
        }
        must_eq(written, EACH);
        must(pair_finish(&pair, sent));
    }
    tmsg_publisher_destroy(publisher);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Messages that were under way when the connection broke are prepared again. */
static void over_a_break(link_t link, bool older)
{
    enum { MESSAGES = 6 };
    const how_t how = {.link = link};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_WAY,
                                       .flags = TMSG_SEND_VERIFY,
                                       .way = TMSG_WAY_FRAGMENTS};
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_request_t *sent[MESSAGES];
    joined_t joined;

    joined_open(&joined, &how);
    if (older) {
        forget_feature(joined.pair.to_a);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            joined_break(&joined);
        }
        must(tmsg_endpoint_send(joined.pair.to_a, map, &params, &sent[i]));
    }
    joined_mend(&joined);
    for (size_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&joined.pair, &joined.pair.a);

        for (size_t j = 0; j < VIEWS; j++) {
            tmsg_tensor_t tensor;

            must(tmsg_map_find(tmsg_message_map(message), views[j].name,
                               &tensor));
            view_check(&views[j], &tensor);
        }
        tmsg_message_destroy(message);
        must(pair_finish(&joined.pair, sent[i]));
    }
    tmsg_map_destroy(map);
    joined_close(&joined);
}

Test(broadcast, outlives_a_break)
{
    over_a_break(LINK_SHM, false);
    over_a_break(LINK_TCP, false);
}
Test(broadcast, outlives_a_break_written_out) { over_a_break(LINK_SHM, true); }

/* Some lie in one order only. */
static void place_alike(const view_t *view, tmsg_tensor_t *tensor)
{
    if (strcmp(view->name, "permuted") == 0) {
        tensor->strides = view->strides; /* it is as it is */
    } else if (strcmp(view->name, "C order") == 0 ||
               strcmp(view->name, "extent 1") == 0) {
        tensor->strides = NULL;
    }
}

/* A map to receive into whose tensor has the full shape gets all elements. */
static void received_into(link_t link, bool fortran, bool early, int32_t way)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = way};
    tmsg_map_t *map = views_map(views, VIEWS),
               *room = views_room(views, VIEWS, fortran, place_alike);
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        receiving_t receiving = {.pair = &pair, .map = room};

        if (early) {
            must_true(!receiving_has_ended(&receiving));
        }
        must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
        pair_await(&pair, receiving_has_ended, &receiving,
                   "a map in its place");
        must(receiving.status);
        check_map(views, VIEWS, tmsg_message_map(receiving.message), false);
        for (size_t i = 0; i < VIEWS; i++) {
            tmsg_tensor_t place, tensor;

            must(tmsg_map_at(room, i, NULL, &place));
            must(tmsg_map_find(tmsg_message_map(receiving.message),
                               views[i].name, &tensor));
            must_true(place.data == tensor.data);
            view_check(&views[i], &place);
        }
        must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(receiving.message),
                                NULL, &sent));
        message = pair_take(&pair, &pair.b);
        check_map(views, VIEWS, tmsg_message_map(message), false);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
        tmsg_message_destroy(receiving.message);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
    tmsg_map_destroy(room);
}

Test(broadcast, is_received_into_c_order)
{
    received_into(LINK_SHM, false, false, TMSG_WAY_AUTO);
    received_into(LINK_SHM, false, true, TMSG_WAY_AUTO);
}

Test(broadcast, is_received_into_fortran_order)
{
    received_into(LINK_TCP, true, false, TMSG_WAY_AUTO);
    received_into(LINK_TCP, true, true, TMSG_WAY_FRAGMENTS);
}

Test(broadcast, memory_to_receive_into_is_not)
{
    tmsg_map_t *map = views_map(views, 1);
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 0, &message),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "'rows'");
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* A place for each element once is enough, and one element less is not. */
static void place_once(void *arg, tmsg_incoming_t *incoming)
{
    static int32_t place[2][60000];
    const uint64_t bytes[] = {30 * sizeof(int32_t), 60000 * sizeof(int32_t)};

    for (size_t i = 0; i < 2; i++) {
        must_be(tmsg_incoming_place(incoming, i, place[i], bytes[i] - 1, NULL),
                TMSG_ERR_INVALID_PARAM);
        must(tmsg_incoming_place(incoming, i, place[i], bytes[i], NULL));
    }
    ++*(int *)arg;
}

Test(broadcast, is_placed_once)
{
    static const view_t two[] = {
        {"rows", 3, 3, {1000, 5, 6}, {0, 6, 1}, 30},
        {"large", 5, 3, {10, 300, 200}, {0, 200, 1}, 60000},
    };
    int placed = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = place_once,
                   .on_header_arg = &placed}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    exchange(&pair, two, 2, (manner_t){0, 0, 0}, true);
    exchange(&pair, two, 2, (manner_t){0, TMSG_WAY_FRAGMENTS, 0}, true);
    must_eq(placed, 2);
    pair_close(&pair);
}

/* Each allocation of writing a map out fails in turn. */
Test(broadcast, is_not_written_out_without_memory)
{
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_written_t written = {.map = NULL};
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsg_pool_t pool;

    tmsg_pool_init(&pool, 0, 0);
    must(tmsg_map_set_string(map, "a key", "and a value"));
    for (unsigned long n = 1; status != TMSG_OK; n++) {
        failing_alloc_arm(n);
        status = tmsg_broadcast_write(map, &pool, &written);
        must_be(status, failing_alloc_disarm() ? TMSG_ERR_NO_MEMORY : TMSG_OK);
        must_eq(written.map != NULL, status == TMSG_OK);
        must_true(n < 1000);
    }
    check_map(views, VIEWS, written.map, false);
    must_eq(tmsg_map_meta_size(written.map), 1);
    tmsg_written_free(&written, &pool);
    tmsg_pool_free(&pool);
    tmsg_map_destroy(map);
}
