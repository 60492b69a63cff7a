/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* TMSG_SEND_NO_PACK: a send that would have to pack a tensor is an error. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

/* A 3-d view into a buffer of int32. */
typedef struct {
    const char *name;
    int64_t first; /* element of the buffer */
    int64_t shape[3];
    int64_t strides[3];
    bool packed;
} view_t;

static const view_t views[] = {
    {"c order", 0, {4, 5, 6}, {30, 6, 1}, false},
    {"fortran", 0, {4, 5, 6}, {1, 4, 20}, false},
    {"permuted", 0, {4, 5, 6}, {6, 24, 1}, false},
    {"broadcast", 3, {4, 5, 6}, {0, 6, 1}, false},
    {"empty", 9, {4, 0, 6}, {-7, 0, 99}, false},
    {"single", 9, {1, 1, 1}, {-7, 0, 99}, false},
    {"sliced", 7, {2, 3, 3}, {60, 12, 2}, true},
    {"reversed", 119, {4, 5, 6}, {-30, -6, -1}, true},
    {"rows", 0, {4, 5, 3}, {30, 6, 1}, true},
};

static int32_t buffer[256];

static void add(tmsg_map_t *map, const view_t *view)
{
    const tmsg_tensor_t tensor = {
        buffer + view->first, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_INT, 32, 1}, 3,
        view->shape,          view->strides};

    must(tmsg_map_add(map, view->name, &tensor, NULL));
}

static tmsg_status_t send_flagged(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, uint32_t flags,
                                  tmsg_request_t **request_p)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};

    return tmsg_endpoint_send(endpoint, map, &params, request_p);
}

static void expect_arrival(pair_t *pair, tmsg_request_t *sent)
{
    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
}

/* Sends a view behind a contiguous tensor, before or after the same map was
 * sent without the flag. */
static void each(pair_t *pair, const view_t *view, bool before)
{
    tmsg_request_t *sent = NULL;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    add(map, &views[0]);
    if (view != &views[0]) {
        add(map, view);
    }
    if (before) {
        must(send_flagged(pair->to_a, map, 0, &sent));
        expect_arrival(pair, sent);
        sent = NULL;
    }
    if (view->packed) {
        must_be(send_flagged(pair->to_a, map, TMSG_SEND_NO_PACK, &sent),
                TMSG_ERR_UNSUPPORTED);
        must_say(tmsg_error_message(), view->name);
        must_say(tmsg_error_message(), "TMSG_SEND_NO_PACK");
        must_true(sent == NULL);
    } else {
        must(send_flagged(pair->to_a, map, TMSG_SEND_NO_PACK, &sent));
        expect_arrival(pair, sent);
    }
    tmsg_map_destroy(map);
}

Test(no_pack, refuses_what_would_be_packed)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        each(&pair, &views[i], false);
        each(&pair, &views[i], true);
    }
    pair_close(&pair);
}

/* The name is the map's, and may be long. */
Test(no_pack, names_a_tensor_with_a_long_name)
{
    static char name[4001];
    view_t view = views[6];
    tmsg_map_t *map;
    pair_t pair;

    memset(name, 'n', sizeof(name) - 1);
    view.name = name;
    must(tmsg_map_create(&map));
    add(map, &view);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_be(send_flagged(pair.to_a, map, TMSG_SEND_NO_PACK, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "TMSG_SEND_NO_PACK");
    pair_close(&pair);
    tmsg_map_destroy(map);
}
