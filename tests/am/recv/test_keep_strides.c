/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A tensor with gaps that is sent with TMSG_SEND_KEEP_STRIDES travels as its
 * span, and arrives as it was. It is packed if the peer cannot read spans, or
 * receives it into memory of its own. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "core/map.h"
#include "support/device_maps.h"
#include "support/failing_alloc.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/simulated_devices.h"
#include "support/strided_views.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KEEP TMSG_SEND_KEEP_STRIDES

/* The last number counts the elements of the span that travels; 0: the tensor
 * travels as without the flag. */
static const view_t views[] = {
    {"columns", 1, 3, {4, 5, 3}, {60, 12, 2}, 180 + 48 + 4 + 1},
    {"rows", 3, 2, {10, 6}, {64, 1}, 9 * 64 + 6},
    {"backwards", 119, 3, {4, 5, 6}, {-30, -6, -1}, 120},
    {"one way back", 25, 2, {5, 6}, {-6, 1}, 30},
    {"back in steps", 500, 2, {3, 7}, {100, -3}, 200 + 18 + 1},
    {"windows", 2, 2, {30, 8}, {1, 1}, 37},
    {"windows back", 50, 2, {30, 8}, {-1, 1}, 37},
    {"overlapping rows", 0, 2, {9, 16}, {10, 1}, 96},
    {"of a column", 7, 2, {50, 1}, {40, 0}, 49 * 40 + 1},
    {"broadcast rows", 4, 3, {8, 5, 3}, {0, 12, 2}, 48 + 4 + 1},
    {"broadcast", 3, 3, {1000, 5, 6}, {0, 6, 1}, 0},
    {"C order", 0, 3, {4, 5, 6}, {30, 6, 1}, 0},
    {"permuted", 0, 3, {4, 5, 6}, {6, 24, 1}, 0},
    {"empty", 2, 3, {4, 0, 6}, {0, 0, 2}, 0},
    {"0-d", 7, 0, {0}, {0}, 0},
    {"extents 1", 2, 3, {1, 1, 1}, {9, -9, 0}, 0},
    {"large", 5, 2, {200, 300}, {310, 1}, 199 * 310 + 300},
    {"large steps", 5, 2, {100, 300}, {600, 2}, 99 * 600 + 598 + 1},
};

#define VIEWS COUNT(views)

/* Returns the bytes of a payload of such int32 tensors, each at a multiple of
 * 16. */
static uint64_t payload_of(const view_t *first, size_t count)
{
    uint64_t end = 0;

    for (size_t i = 0; i < count; i++) {
        const tmsg_tensor_t tensor = view_tensor(&first[i]);
        uint64_t bytes;

        must(tmsg_tensor_bytes(&tensor, &bytes));
        if (strcmp(first[i].name, "broadcast") == 0) {
            bytes = 30 * sizeof(int32_t);
        }
        if (first[i].travels > 0) {
            bytes = (uint64_t)first[i].travels * sizeof(int32_t);
        }
        end = bytes == 0 ? end : (end + 15) / 16 * 16 + bytes;
    }
    return end;
}

static bool has_strides(const view_t *view, const tmsg_tensor_t *tensor)
{
    return tensor->strides != NULL &&
           memcmp(tensor->strides, view->strides,
                  (size_t)view->ndim * sizeof(int64_t)) == 0;
}

/* Checks every element and, if the tensor came as its span, its strides and the
 * bytes in the gaps. */
static void check_tensor(const view_t *view, const tmsg_tensor_t *tensor,
                         bool kept)
{
    const int32_t *data = tensor->data;
    int64_t lowest = 0;

    view_check(view, tensor);
    if (view->travels == 0) {
        return;
    }
    must_eq(has_strides(view, tensor), kept);
    for (int32_t i = 0; i < view->ndim; i++) {
        lowest +=
            view->strides[i] < 0 ? (view->shape[i] - 1) * view->strides[i] : 0;
    }
    for (int64_t i = lowest; kept && i < lowest + view->travels; i++) {
        must_eq(data[i], view->first + i);
    }
}

static void check_map(const view_t *first, size_t count, const tmsg_map_t *map,
                      bool kept)
{
    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_find(map, first[i].name, &tensor));
        check_tensor(&first[i], &tensor, kept);
    }
}

/* Makes the peer's hello that of an older peer. */
static void forget_feature(tmsg_endpoint_t *endpoint)
{
    endpoint->peer_hello.features &= ~TMSG_FEATURE_SPANS;
}

typedef struct {
    uint32_t flags;
    int32_t way;
    int32_t protocol;
} manner_t;

static tmsg_status_t send_like(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               manner_t how, tmsg_request_t **request_p)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_WAY,
                                       .flags = how.flags,
                                       .way = how.way,
                                       .protocol = how.protocol};

    return tmsg_endpoint_send(endpoint, map, &params, request_p);
}

static void exchange(pair_t *pair, const view_t *first, size_t count,
                     manner_t how, bool kept)
{
    uint64_t before = pair->to_a->stats.sent_bytes;
    tmsg_map_t *map = views_map(first, count);
    tmsg_message_t *message;
    tmsg_request_t *sent;

    must(tmsg_map_set_string(map, "a key", "and a value"));
    must(send_like(pair->to_a, map, how, &sent));
    message = pair_take(pair, &pair->a);
    if (kept) {
        must_eq(pair->to_a->stats.sent_bytes - before,
                payload_of(first, count));
    }
    check_map(first, count, tmsg_message_map(message), kept);
    must_eq(tmsg_map_meta_size(tmsg_message_map(message)), 1);
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    tmsg_map_destroy(map);
}

static void every_way(link_t link, drive_t drive, bool kept)
{
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    if (!kept) {
        forget_feature(pair.to_a);
    }
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        for (int32_t protocol = TMSG_PROTOCOL_AUTO;
             protocol <= TMSG_PROTOCOL_RNDV; protocol++) {
            const uint32_t verify = way % 2 == 0 ? TMSG_SEND_VERIFY : 0;

            exchange(&pair, views, VIEWS,
                     (manner_t){KEEP | verify, way, protocol}, kept);
        }
    }
    for (size_t i = 0; i < VIEWS; i++) {
        exchange(&pair, &views[i], 1, (manner_t){KEEP, 0, 0}, kept);
        exchange(&pair, &views[i], 1, (manner_t){0, 0, 0}, false);
        exchange(&pair, &views[i], 1, (manner_t){KEEP | TMSG_SEND_VERIFY, 0, 0},
                 kept);
    }
    pair_close(&pair);
}

Test(keep_strides, arrive_shm) { every_way(LINK_SHM, DRIVE_POLLING, true); }
Test(keep_strides, arrive_tcp) { every_way(LINK_TCP, DRIVE_THREAD, true); }
Test(keep_strides, arrive_unix) { every_way(LINK_UNIX, DRIVE_FD, true); }

Test(keep_strides, are_packed_for_an_older_peer)
{
    every_way(LINK_SHM, DRIVE_POLLING, false);
}

/* With TMSG_SEND_NO_PACK, strides are kept or the map is not sent. */
Test(keep_strides, are_kept_or_refused)
{
    const manner_t how = {KEEP | TMSG_SEND_NO_PACK, 0, 0};
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_map_t *dense = views_map(&views[10], 6);
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    exchange(&pair, views, VIEWS, how, true);
    forget_feature(pair.to_a);
    must_be(send_like(pair.to_a, map, how, NULL), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "'columns'");
    must_say(tmsg_error_message(), "TMSG_SEND_NO_PACK");
    must(send_like(pair.to_a, dense, how, &sent));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    tmsg_map_destroy(map);
    tmsg_map_destroy(dense);
    pair_close(&pair);
}

/* When a send waits for the connection, the peer is not known yet. */
Test(keep_strides, of_what_was_sent_before_there_was_a_connection)
{
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_message_t *message;
    tmsg_endpoint_t *to_a;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    to_a = side_dial(&pair.b, &pair.a);
    must(
        send_like(to_a, map, (manner_t){KEEP | TMSG_SEND_NO_PACK, 0, 0}, NULL));
    message = pair_take(&pair, &pair.a);
    check_map(views, VIEWS, tmsg_message_map(message), true);
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* The names do not fit into a header, so the body heads the payload. */
Test(keep_strides, behind_a_spilled_body)
{
    enum { TENSORS = 300 };
    static view_t many[TENSORS];
    tmsg_message_t *message;
    tmsg_map_t *map;
    pair_t pair;

    views_repeat(many, TENSORS, views, 10);
    map = views_map(many, TENSORS);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        must(send_like(pair.to_a, map, (manner_t){KEEP, way, 0}, NULL));
        message = pair_take(&pair, &pair.a);
        check_map(many, TENSORS, tmsg_message_map(message), true);
        tmsg_message_destroy(message);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Each layout is a schema of its own: spans of one length, one span with two
 * shapes, the same without spans, and others whose extents vary beside a span.
 */
Test(keep_strides, go_by_schema)
{
    static const view_t turned[][2] = {
        {{"x", 0, 2, {6, 6}, {8, 1}, 46}, {"y", 0, 1, {4}, {1}, 0}},
        {{"x", 0, 2, {6, 6}, {1, 8}, 46}, {"y", 0, 1, {4}, {1}, 0}},
        {{"x", 5, 2, {4, 2}, {15, 0}, 46}, {"y", 0, 1, {4}, {1}, 0}},
        {{"x", 0, 2, {6, 6}, {6, 1}, 0}, {"y", 0, 1, {4}, {1}, 0}},
        {{"x", 0, 2, {6, 6}, {8, 1}, 46}, {"y", 0, 1, {7}, {1}, 0}},
        {{"x", 0, 2, {6, 6}, {8, 1}, 46}, {"y", 0, 1, {9}, {1}, 0}},
        {{"x", 45, 2, {6, 6}, {-8, -1}, 46}, {"y", 0, 1, {9}, {1}, 0}},
    };
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT(turned); i++) {
            exchange(&pair, turned[i], 2,
                     (manner_t){KEEP | TMSG_SEND_ACKED, 0, 0}, true);
            exchange(&pair, turned[i], 2, (manner_t){TMSG_SEND_ACKED, 0, 0},
                     false);
        }
    }
    must_true(pair.to_a->stats.sent_by_schema >= 2 * COUNT(turned));
    pair_close(&pair);
}

/* Small messages, again and again, with and without spans: templates must not
 * confuse them. */
Test(keep_strides, again_and_again)
{
    tmsg_message_t *before = NULL; /* is kept, so that the next is another */
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 60; i++) {
        bool kept = i / 10 % 2 == 0 || i % 3 == 0;
        tmsg_map_t *map = views_map(&views[i % 2], 1);
        tmsg_message_t *message;
        tmsg_request_t *sent;

        must(send_like(pair.to_a, map, (manner_t){kept ? KEEP : 0, 0, 0},
                       &sent));
        message = pair_take(&pair, &pair.a);
        check_map(&views[i % 2], 1, tmsg_message_map(message), kept);
        if (i % 4 < 3) {
            tmsg_message_destroy(before);
            before = message;
        } else {
            tmsg_message_destroy(message);
        }
        must(pair_finish(&pair, sent));
        tmsg_map_destroy(map);
    }
    tmsg_message_destroy(before);
    pair_close(&pair);
}

/* A received tensor is sent like any other: packed, or with its strides. */
Test(keep_strides, are_sent_on)
{
    tmsg_message_t *message, *back;
    tmsg_map_t *map = views_map(views, VIEWS);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int kept = 0; kept < 2; kept++) {
        must(send_like(pair.to_a, map, (manner_t){KEEP, 0, 0}, NULL));
        message = pair_take(&pair, &pair.a);
        must(send_like(pair.to_b, tmsg_message_map(message),
                       (manner_t){kept ? KEEP : 0, 0, 0}, NULL));
        tmsg_message_destroy(message);
        back = pair_take(&pair, &pair.b);
        check_map(views, VIEWS, tmsg_message_map(back), kept);
        tmsg_message_destroy(back);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* One map to peers that take spans and peers that do not. */
Test(keep_strides, are_published_to_peers_of_both_kinds)
{
    enum { EACH = 2 };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = KEEP | TMSG_SEND_VERIFY};
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
        size_t kept = 0;

        must(tmsg_publisher_publish(publisher, map, &params, &sent));
        for (size_t i = 0; i < 2 * EACH; i++) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);
            tmsg_tensor_t tensor;
            bool has;

            must(tmsg_map_find(tmsg_message_map(message), "rows", &tensor));
            has = has_strides(&views[1], &tensor);
            kept += has;
            check_map(views, VIEWS, tmsg_message_map(message), has);
            tmsg_message_destroy(message);
        }
        must_eq(kept, EACH);
        must(pair_finish(&pair, sent));
    }
    tmsg_publisher_destroy(publisher);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Messages that were under way when the connection broke are prepared again. */
static void over_a_break(link_t link)
{
    enum { MESSAGES = 6 };
    const how_t how = {.link = link};
    tmsg_map_t *map = views_map(views, VIEWS);
    tmsg_request_t *sent[MESSAGES];
    joined_t joined;

    joined_open(&joined, &how);
    for (size_t i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            joined_break(&joined);
        }
        must(
            send_like(joined.pair.to_a, map,
                      (manner_t){KEEP | TMSG_SEND_VERIFY,
                                 i % 2 ? TMSG_WAY_FRAGMENTS : TMSG_WAY_AUTO, 0},
                      &sent[i]));
    }
    joined_mend(&joined);
    for (size_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&joined.pair, &joined.pair.a);

        check_map(views, VIEWS, tmsg_message_map(message), true);
        tmsg_message_destroy(message);
        must(pair_finish(&joined.pair, sent[i]));
    }
    tmsg_map_destroy(map);
    joined_close(&joined);
}

Test(keep_strides, outlive_a_break)
{
    over_a_break(LINK_SHM);
    over_a_break(LINK_TCP);
}

/* Makes a tensor as long as the span. */
static void place_flat(const view_t *view, tmsg_tensor_t *tensor)
{
    tensor->ndim = 1;
    tensor->shape = &view->travels;
    tensor->strides = NULL;
}

#define LOOSE 10 /* of the views: those with a span */

/* Memory without gaps gets the elements alone. */
static void received_into(link_t link, bool fortran, bool early, int32_t way)
{
    tmsg_map_t *map = views_map(views, LOOSE);
    tmsg_map_t *room = views_room(views, LOOSE, fortran, NULL);
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        receiving_t receiving = {.pair = &pair, .map = room};

        if (early) {
            must_true(!receiving_has_ended(&receiving));
        }
        must(send_like(pair.to_a, map, (manner_t){KEEP, way, 0}, NULL));
        pair_await(&pair, receiving_has_ended, &receiving,
                   "a map in its place");
        must(receiving.status);
        check_map(views, LOOSE, tmsg_message_map(receiving.message), false);
        for (size_t i = 0; i < LOOSE; i++) {
            tmsg_tensor_t place, tensor;

            must(tmsg_map_at(room, i, NULL, &place));
            must(tmsg_map_find(tmsg_message_map(receiving.message),
                               views[i].name, &tensor));
            must_true(place.data == tensor.data);
            check_tensor(&views[i], &place, false);
        }
        tmsg_message_destroy(receiving.message);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
    tmsg_map_destroy(room);
}

Test(keep_strides, are_received_into_c_order)
{
    received_into(LINK_SHM, false, false, TMSG_WAY_AUTO);
    received_into(LINK_SHM, false, true, TMSG_WAY_AUTO);
}

Test(keep_strides, are_received_into_fortran_order)
{
    received_into(LINK_TCP, true, false, TMSG_WAY_AUTO);
    received_into(LINK_TCP, true, true, TMSG_WAY_FRAGMENTS);
}

/* Memory as long as the span is not of the shape that was sent. */
Test(keep_strides, are_not_received_into_their_span)
{
    tmsg_map_t *map = views_map(views, LOOSE);
    tmsg_map_t *room = views_room(views, LOOSE, false, place_flat);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int early = 0; early < 2; early++) {
        receiving_t receiving = {.pair = &pair, .map = room};

        if (early) {
            must_true(!receiving_has_ended(&receiving));
        }
        must(send_like(pair.to_a, map, (manner_t){KEEP, 0, 0}, NULL));
        pair_await(&pair, receiving_has_ended, &receiving,
                   "a map that does not fit");
        must_be(receiving.status, TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "'columns'");
        receiving.message = pair_take(&pair, &pair.a);
        check_map(views, LOOSE, tmsg_message_map(receiving.message), true);
        tmsg_message_destroy(receiving.message);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
    tmsg_map_destroy(room);
}

/* Room for the span is enough, and an element less is not. */
static void place_span(void *arg, tmsg_incoming_t *incoming)
{
    static int32_t place[2][70000];
    static const size_t which[] = {0, 17};

    for (size_t i = 0; i < 2; i++) {
        const uint64_t bytes =
            (uint64_t)views[which[i]].travels * sizeof(int32_t);
        tmsg_tensor_t tensor;
        uint64_t said;

        must(tmsg_map_at(tmsg_incoming_map(incoming), i, NULL, &tensor));
        must(tmsg_tensor_bytes(&tensor, &said));
        must_eq(said, bytes);
        must_be(tmsg_incoming_place(incoming, i, place[i], bytes - 1, NULL),
                TMSG_ERR_INVALID_PARAM);
        must(tmsg_incoming_place(incoming, i, place[i], bytes, NULL));
    }
    ++*(int *)arg;
}

Test(keep_strides, are_placed)
{
    const view_t two[] = {views[0], views[17]};
    int placed = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = place_span,
                   .on_header_arg = &placed}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    exchange(&pair, two, 2, (manner_t){KEEP, 0, 0}, true);
    exchange(&pair, two, 2, (manner_t){KEEP, TMSG_WAY_FRAGMENTS, 0}, true);
    must_eq(placed, 2);
    pair_close(&pair);
}

static tmsg_map_t *windows_of(uint8_t *data, int64_t rows)
{
    const int64_t shape[] = {rows, 1 << 10}, strides[] = {1, 1};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

/* The limit message_bytes holds for the bytes of a packed copy. */
Test(keep_strides, the_limit_is_for_all_elements)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 1 << 20}};
    static uint8_t data[1 << 12];
    tmsg_map_t *fits = windows_of(data, 1 << 10);
    tmsg_map_t *exceeds = windows_of(data, (1 << 10) + 1);
    const manner_t how = {KEEP | TMSG_SEND_ACKED, 0, 0};
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must_be(send_like(pair.to_a, exceeds, how, NULL), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "payload of 1049600 bytes");
    must_say(tmsg_error_message(), "of which 2048 travel");
    /* a peer that sends it nevertheless is refused */
    pair.to_a->peer_hello.max_message_bytes = UINT64_MAX;
    must(send_like(pair.to_a, exceeds, how, &sent));
    must_be(pair_finish(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
    must(send_like(pair.to_a, fits, how, &sent));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    tmsg_map_destroy(exceeds);
    tmsg_map_destroy(fits);
    pair_close(&pair);
}

/* Other strides over the same span are another layout. */
Test(keep_strides, tell_layouts_apart)
{
    static const view_t seen[] = {{"x", 0, 2, {6, 6}, {8, 1}, 46},
                                  {"x", 0, 2, {6, 6}, {1, 8}, 46},
                                  {"x", 0, 2, {4, 2}, {15, 0}, 46},
                                  {"x", 45, 2, {6, 6}, {-8, -1}, 46},
                                  {"x", 0, 1, {46}, {1}, 0}};

    for (size_t i = 0; i < COUNT(seen); i++) {
        for (size_t j = 0; j < COUNT(seen); j++) {
            tmsg_map_t *a = views_map(&seen[i], 1), *b = views_map(&seen[j], 1);
            tmsg_map_t *spans[2], *layout;

            must(tmsg_map_copy_spans(a, &spans[0]));
            must(tmsg_map_copy_spans(b, &spans[1]));
            must(tmsg_map_copy_layout(spans[1], &layout));
            must_eq(tmsg_map_has_layout(spans[0], layout), i == j);
            tmsg_map_destroy(layout);
            tmsg_map_destroy(spans[0]);
            tmsg_map_destroy(spans[1]);
            tmsg_map_destroy(a);
            tmsg_map_destroy(b);
        }
    }
}

/* Each allocation of making spans fails in turn. */
Test(keep_strides, are_not_kept_without_memory)
{
    tmsg_map_t *map = views_map(views, VIEWS), *copy = NULL;
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    must(tmsg_map_set_string(map, "a key", "and a value"));
    for (unsigned long n = 1; status != TMSG_OK; n++) {
        failing_alloc_arm(n);
        status = tmsg_map_copy_spans(map, &copy);
        must_be(status, failing_alloc_disarm() ? TMSG_ERR_NO_MEMORY : TMSG_OK);
        must_eq(copy != NULL, status == TMSG_OK);
        must_true(n < 1000);
    }
    must_true(tmsg_map_has_spans(copy));
    tmsg_map_show(copy);
    must_true(!tmsg_map_has_spans(copy));
    check_map(views, VIEWS, copy, true);
    must_true(tmsg_map_has_layout(copy, map));
    tmsg_map_destroy(copy);
    tmsg_map_destroy(map);
}

/* Device memory, which the CPU could not pack, keeps its strides, too. */
static void of_a_device(link_t link, int64_t rows)
{
    const int64_t shape[] = {rows, 100}, strides[] = {-128, 1};
    const size_t bytes = (size_t)(rows - 1) * 128 + 100;
    const uint64_t seed = (uint64_t)rows;
    uint8_t *data;
    tmsg_tensor_t tensor;
    tmsg_map_t *map;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    data = device_alloc(1, bytes, seed);
    tensor = (tmsg_tensor_t){.data = data + (rows - 1) * 128,
                             .device = device_at(1),
                             .dtype = {TMSG_DTYPE_UINT, 8, 1},
                             .ndim = 2,
                             .shape = shape,
                             .strides = strides};
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    must_be(send_like(pair.to_a, map, (manner_t){0, 0, 0}, NULL),
            TMSG_ERR_UNSUPPORTED);
    must(send_like(pair.to_a, map, (manner_t){KEEP, 0, 0}, &sent));
    message = pair_take(&pair, &pair.a);
    must(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
    must_eq(tensor.device.id, device_at(1).id);
    must_eq(tensor.strides[0], -128);
    must_eq(
        device_compare(seed, (uint8_t *)tensor.data - (rows - 1) * 128, bytes),
        bytes);
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    device_free(data);
    pair_close(&pair);
    device_maps_end();
}

Test(keep_strides, of_device_memory)
{
    of_a_device(LINK_SHM, 5);
    of_a_device(LINK_TCP, 30000);
}
