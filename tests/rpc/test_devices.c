/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls, streams and offers with tensors in the memory of devices, as messages
 * have them: beside the host's, both ways, into memory of the caller's. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

static const device_tensor_t small[] = {
    {0, 10, {0}}, {ON_HOST, 20, {0}}, {1, 30, {0}}};
static const device_tensor_t large[] = {{ON_HOST, 3000000, {0}},
                                        {1, 3000000, {0}},
                                        {0, 700000, {0}},
                                        {0, 0, {0}},
                                        {ON_HOST, 9, {0}}};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    const device_tensor_t *wanted;
    size_t count;
    uint64_t seed;
    unsigned handled;
    tmsg_call_stream_t *kept;
} scene_t;

static void check(const scene_t *scene, const tmsg_map_t *map)
{
    device_map_check(scene->seed, scene->wanted, scene->count, map);
}

static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    check(scene, tmsg_task_map(task));
    scene->handled++;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void shrug(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, NULL, NULL));
}

/* Answers with a row that is meant four times, which is copied into any map of
 * the caller's, and with a tensor. */
static void rows(void *arg, tmsg_task_t *task)
{
    static const int64_t shape[] = {4, 100}, strides[] = {0, 1}, bytes = 70000;
    static uint8_t row[100], data[70000];
    const tmsg_tensor_t of_row = {
        row, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, strides};
    const tmsg_tensor_t of_data = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, &bytes, NULL};
    tmsg_map_t *map;

    sample_fill(((scene_t *)arg)->seed, data, sizeof(data));
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "row", &of_row, NULL));
    must(tmsg_map_add(map, "0", &of_data, NULL));
    must(tmsg_task_reply(task, map, NULL));
    tmsg_map_destroy(map);
}

/* Answers what it was opened with, twice. */
static void twice(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_map_t *map = tmsg_call_stream_map(stream);

    check(arg, map);
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    ((scene_t *)arg)->kept = tmsg_call_stream_keep(stream);
}

static void open_scene(scene_t *scene, link_t link, drive_t drive,
                       const side_options_t *server)
{
    memset(scene, 0, sizeof(*scene));
    device_maps_begin();
    pair_open(&scene->pair, link, drive, server, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register(scene->server, "shrug", shrug, NULL, NULL));
    must(tmsg_server_register(scene->server, "rows", rows, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "twice", twice, scene,
                                     NULL));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene, NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
    must_eq(device_held(), 0);
    device_maps_end();
}

static void want(scene_t *scene, const device_tensor_t *tensors, size_t count)
{
    scene->wanted = tensors;
    scene->count = count;
    scene->seed++;
}

static const void *data_of(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, 0, NULL, &tensor));
    return tensor.data;
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_call_t *start(scene_t *scene, const char *method,
                          const device_tensor_t *tensors, size_t count,
                          const tmsg_map_t *into)
{
    const tmsg_call_params_t params = {
        .field_mask = into == NULL ? 0 : TMSG_CALL_PARAM_REPLY_INTO,
        .reply_into = into};
    tmsg_map_t *map = device_map(scene->seed, tensors, count);
    tmsg_call_t *made;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &made));
    tmsg_map_destroy(map);
    return made;
}

static tmsg_call_t *call(scene_t *scene, const device_tensor_t *tensors,
                         size_t count, const tmsg_map_t *into)
{
    tmsg_call_t *made = start(scene, "echo", tensors, count, into);

    pair_await(&scene->pair, has_ended, made, "the end of a call");
    return made;
}

static void go_both_ways(link_t link, drive_t drive)
{
    scene_t scene;

    open_scene(&scene, link, drive, NULL);
    for (unsigned i = 0; i < 6; i++) {
        tmsg_call_t *made;

        want(&scene, i % 2 == 0 ? small : large,
             i % 2 == 0 ? COUNT(small) : COUNT(large));
        made = call(&scene, scene.wanted, scene.count, NULL);
        must_be(tmsg_call_status(made), TMSG_OK);
        check(&scene, tmsg_call_reply(made));
        tmsg_call_destroy(made);
    }
    must_eq(scene.handled, 6);
    close_scene(&scene);
}

Test(devices, go_both_ways_shm) { go_both_ways(LINK_SHM, DRIVE_POLLING); }
Test(devices, go_both_ways_unix) { go_both_ways(LINK_UNIX, DRIVE_FD); }
Test(devices, go_both_ways_tcp) { go_both_ways(LINK_TCP, DRIVE_THREAD); }
Test(devices, go_both_ways_blob) { go_both_ways(LINK_BLOB, DRIVE_FD); }

/* Of each tensor on another device than it comes from, or on the host. */
Test(devices, are_received_into_memory_of_the_callers)
{
    static const device_tensor_t places[] = {{1, 3000000, {0}},
                                             {0, 3000000, {0}},
                                             {ON_HOST, 700000, {0}},
                                             {1, 0, {0}},
                                             {ON_HOST, 9, {0}}};
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, NULL);
    for (unsigned i = 0; i < 3; i++) {
        tmsg_map_t *into = device_map_empty(places, COUNT(places));
        tmsg_call_t *made;

        want(&scene, large, COUNT(large));
        made = call(&scene, large, COUNT(large), into);
        must_be(tmsg_call_status(made), TMSG_OK);
        device_map_check(scene.seed, places, COUNT(places), into);
        tmsg_call_destroy(made);
        tmsg_map_destroy(into);
    }
    close_scene(&scene);
}

/* A reply that is copied into a map waits for the map's stream, and others pass
 * it: the kernel on it may wait for them. `how` 1: the client ends meanwhile.
 */
static void copied_behind_stream(int how)
{
    static const int64_t shape[] = {4, 100};
    static uint8_t row[400];
    const tmsg_tensor_t of_row = {
        row, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, NULL};
    const device_tensor_t place[] = {{1, 70000, device_stream(1)}};
    tmsg_call_t *made, *beside;
    tmsg_map_t *into;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, NULL);
    into = device_map_empty(place, 1);
    must(tmsg_map_add(into, "row", &of_row, NULL));
    device_block(place[0].stream);
    made = start(&scene, "rows", small, COUNT(small), into);
    for (int i = 0; i < 3; i++) {
        beside = start(&scene, "shrug", &small[1], 1, NULL);
        pair_await(&scene.pair, has_ended, beside, "the call beside it");
        must_be(tmsg_call_status(beside), TMSG_OK);
        tmsg_call_destroy(beside);
    }
    must_be(tmsg_call_status(made), TMSG_IN_PROGRESS);
    if (how == 0) {
        device_unblock(place[0].stream);
        pair_await(&scene.pair, has_ended, made, "the end of a call");
        must_be(tmsg_call_status(made), TMSG_OK);
        must_eq(device_compare(scene.seed, data_of(into), 70000), 70000);
        tmsg_server_destroy(scene.server);
        pair_close(&scene.pair);
    } else {
        tmsg_server_destroy(scene.server);
        pair_drop(&scene.pair);
        must_be(tmsg_call_status(made), TMSG_ERR_CANCELED);
    }
    tmsg_call_destroy(made);
    tmsg_map_destroy(into);
    device_unblock(place[0].stream);
    devices_finish();
    must_eq(device_held(), 0);
    device_maps_end();
}

Test(devices, are_copied_behind_the_stream_of_the_callers)
{
    copied_behind_stream(0);
}
Test(devices, are_dropped_while_they_wait_for_the_stream_of_the_callers)
{
    copied_behind_stream(1);
}

/* Where the server has no such memory it sees the same on the host. */
Test(devices, come_to_the_host_of_a_server_that_has_none)
{
    static const device_tensor_t on_host[] = {
        {ON_HOST, 10, {0}}, {ON_HOST, 20, {0}}, {ON_HOST, 30, {0}}};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_HOST_ONLY}};
    scene_t scene;
    tmsg_call_t *made;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &options);
    want(&scene, on_host, COUNT(on_host));
    made = call(&scene, small, COUNT(small), NULL);
    must_be(tmsg_call_status(made), TMSG_OK);
    check(&scene, tmsg_call_reply(made));
    tmsg_call_destroy(made);
    close_scene(&scene);
}

/* Of a tensor that is written when its stream goes on. */
static tmsg_call_t *start_late(const scene_t *scene,
                               const device_tensor_t *written,
                               const tmsg_map_t *map)
{
    static uint8_t host[70000];
    tmsg_tensor_t tensor;
    tmsg_call_t *made;

    must(tmsg_map_at(map, 0, NULL, &tensor));
    device_block(written->stream);
    sample_fill(scene->seed, host, written->bytes);
    must(device_domain()->copy_in(NULL, tensor.device, tensor.data, host,
                                  written->bytes, written->stream));
    must(tmsg_endpoint_call(scene->pair.to_a, "echo", map, NULL, &made));
    return made;
}

/* A call whose data a kernel still writes, to the end or until it is canceled;
 * those of the host's memory pass it. */
Test(devices, wait_for_their_streams)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, NULL);
    for (int i = 0; i < 2; i++) {
        const device_tensor_t written[] = {{0, 70000, device_stream(0)}};
        tmsg_map_t *map = device_map(1000, written, 1);
        tmsg_call_t *made, *beside;

        want(&scene, written, 1);
        made = start_late(&scene, written, map);
        beside = start(&scene, "shrug", &small[1], 1, NULL);
        pair_await(&scene.pair, has_ended, beside, "the call beside it");
        must_be(tmsg_call_status(beside), TMSG_OK);
        must_be(tmsg_call_status(made), TMSG_IN_PROGRESS);
        must_eq(scene.handled, 0);
        tmsg_call_destroy(beside);
        if (i == 0) {
            tmsg_call_cancel(made);
        }
        device_unblock(written[0].stream);
        pair_await(&scene.pair, has_ended, made, "the end of a call");
        must_be(tmsg_call_status(made), i == 0 ? TMSG_ERR_CANCELED : TMSG_OK);
        tmsg_call_destroy(made);
        devices_finish(); /* before its memory is used again */
        tmsg_map_destroy(map);
    }
    must_eq(scene.handled, 1);
    close_scene(&scene);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

Test(devices, go_through_streams)
{
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;
    tmsg_map_t *map;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, NULL);
    want(&scene, large, COUNT(large));
    map = device_map(scene.seed, large, COUNT(large));
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "twice", map, NULL,
                                   &stream));
    tmsg_map_destroy(map);
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), TMSG_OK);
    for (int i = 0; i < 2; i++) {
        must(tmsg_call_stream_try_recv(stream, &message));
        check(&scene, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must(tmsg_call_stream_try_recv(stream, &message));
    must_true(message == NULL);
    tmsg_call_stream_destroy(stream);
    close_scene(&scene);
}

enum { ROWS = 300, COLUMNS = 700, CELLS = ROWS * COLUMNS };

static void fill_cells(uint16_t *cells)
{
    for (size_t i = 0; i < CELLS; i++) {
        cells[i] = (uint16_t)(i * 31);
    }
}

/* Adds uint16 of a device, or of the host, that has all the cells. */
static void add_cells(tmsg_map_t *map, const char *name, int32_t device)
{
    static uint16_t cells[CELLS];
    const int64_t shape[] = {ROWS, COLUMNS};
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                            .dtype = {TMSG_DTYPE_UINT, 16, 1},
                            .ndim = 2,
                            .shape = shape};
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                    .release = device_free};

    fill_cells(cells);
    if (device == ON_HOST) {
        tensor.data = malloc(sizeof(cells));
        memcpy(tensor.data, cells, sizeof(cells));
        params.release = free;
    } else {
        tensor.device = device_at(device);
        tensor.data = device_alloc(device, sizeof(cells), 0);
        device_poke(tensor.data, cells, sizeof(cells));
    }
    params.release_arg = tensor.data;
    must(tmsg_map_add(map, name, &tensor, &params));
}

static const int64_t all_from[] = {0, 0}, all_of[] = {ROWS, COLUMNS};
static const int64_t box_from[] = {17, 100}, box_of[] = {40, 333};
static const int64_t rows_from[] = {250, 0}, rows_of[] = {50, COLUMNS};

/* The box must be of that device. There it lies as the offered one does, packed
 * on the host. */
static void check_cells(const tmsg_map_t *map, const char *name, int32_t device,
                        const int64_t *from, const int64_t *of)
{
    static uint16_t cells[CELLS], got[CELLS];
    tmsg_tensor_t tensor;
    int64_t row;

    must(tmsg_map_find(map, name, &tensor));
    must_eq(tensor.ndim, 2);
    must_eq(tensor.shape[0], of[0]);
    must_eq(tensor.shape[1], of[1]);
    row = tensor.strides == NULL ? of[1] : tensor.strides[0];
    must_true(device != ON_HOST || row == of[1]);
    if (device == ON_HOST) {
        must_eq(tensor.device.type, TMSG_DEVICE_CPU);
        memcpy(got, tensor.data, (size_t)(of[0] * of[1]) * sizeof(*got));
    } else {
        must_eq(tensor.device.type, device_at(device).type);
        must_eq(tensor.device.id, device);
        device_peek(got, tensor.data,
                    (size_t)((of[0] - 1) * row + of[1]) * sizeof(*got));
    }
    fill_cells(cells);
    for (int64_t i = 0; i < of[0]; i++) {
        for (int64_t j = 0; j < of[1]; j++) {
            must_eq(got[i * row + j],
                    cells[(from[0] + i) * COLUMNS + from[1] + j]);
        }
    }
}

static tmsg_call_t *fetch(scene_t *scene, const tmsg_offer_t *offer,
                          const tmsg_slice_t *slices, uint32_t count,
                          const tmsg_map_t *into)
{
    const tmsg_fetch_params_t params = {
        .field_mask =
            (count > 0 ? TMSG_FETCH_PARAM_SLICES : 0) | TMSG_FETCH_PARAM_INTO,
        .slices = slices,
        .slice_count = count,
        .into = into};
    tmsg_offer_key_t key;
    tmsg_call_t *made;

    tmsg_offer_key(offer, &key);
    must(tmsg_endpoint_fetch(scene->pair.to_a, &key, &params, &made));
    pair_await(&scene->pair, has_ended, made, "the end of a fetch");
    return made;
}

/* A map with room for a box, of the host or a device. */
static tmsg_map_t *room_for(const char *name, int32_t device,
                            const int64_t *shape)
{
    size_t bytes = (size_t)(shape[0] * shape[1]) * sizeof(uint16_t);
    bool on_host = device == ON_HOST;
    void *data = on_host ? malloc(bytes) : device_alloc(device, bytes, 0);
    const tmsg_tensor_t tensor = {
        .data = data,
        .device =
            on_host ? (tmsg_device_t){TMSG_DEVICE_CPU, 0} : device_at(device),
        .dtype = {TMSG_DTYPE_UINT, 16, 1},
        .ndim = 2,
        .shape = shape};
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = on_host ? free : device_free,
        .release_arg = data};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, name, &tensor, &params));
    return map;
}

static void fetch_whole(scene_t *scene, const tmsg_offer_t *offer)
{
    tmsg_call_t *made = fetch(scene, offer, NULL, 0, NULL);
    const tmsg_map_t *map = tmsg_call_reply(made);

    must_be(tmsg_call_status(made), TMSG_OK);
    must_eq(tmsg_map_size(map), 3);
    check_cells(map, "on 0", 0, all_from, all_of);
    check_cells(map, "on host", ON_HOST, all_from, all_of);
    check_cells(map, "on 1", 1, all_from, all_of);
    tmsg_call_destroy(made);
}

static void fetch_boxes(scene_t *scene, const tmsg_offer_t *offer)
{
    const tmsg_slice_t boxes[] = {
        {"on 1", "box", 2, box_from, box_of, NULL},
        {"on host", "host box", 2, box_from, box_of, NULL},
        {"on 1", "rows", 2, rows_from, rows_of, NULL},
        {"on 0", NULL, 0, NULL, NULL, NULL},
    };
    tmsg_call_t *made = fetch(scene, offer, boxes, COUNT(boxes), NULL);
    const tmsg_map_t *map = tmsg_call_reply(made);

    must_be(tmsg_call_status(made), TMSG_OK);
    must_eq(tmsg_map_size(map), 4);
    check_cells(map, "box", 1, box_from, box_of);
    check_cells(map, "host box", ON_HOST, box_from, box_of);
    check_cells(map, "rows", 1, rows_from, rows_of);
    check_cells(map, "on 0", 0, all_from, all_of);
    tmsg_call_destroy(made);
}

/* Whole rows leave no gaps, and so come to any memory. */
static void fetch_into(scene_t *scene, const tmsg_offer_t *offer)
{
    const tmsg_slice_t rows = {"on 1", "rows", 1, rows_from, rows_of, NULL};
    const tmsg_slice_t box = {"on 1", "box", 2, box_from, box_of, NULL};
    tmsg_map_t *into;
    tmsg_call_t *made;

    for (int32_t device = ON_HOST; device < 2; device++) {
        into = room_for("rows", device, rows_of);
        made = fetch(scene, offer, &rows, 1, into);
        must_be(tmsg_call_status(made), TMSG_OK);
        check_cells(into, "rows", device, rows_from, rows_of);
        tmsg_call_destroy(made);
        tmsg_map_destroy(into);
    }
    into = room_for("box", ON_HOST, box_of);
    made = fetch(scene, offer, &box, 1, into);
    must_be(tmsg_call_status(made), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_call_error(made), "'box': its strides leave gaps");
    tmsg_call_destroy(made);
    tmsg_map_destroy(into);
}

static void fetch_offers(link_t link, drive_t drive)
{
    tmsg_offer_t *offer;
    tmsg_map_t *map;
    scene_t scene;

    open_scene(&scene, link, drive, NULL);
    must(tmsg_map_create(&map));
    add_cells(map, "on 0", 0);
    add_cells(map, "on host", ON_HOST);
    add_cells(map, "on 1", 1);
    must(tmsg_offer_create(scene.pair.a.worker, map, NULL, &offer));
    tmsg_map_destroy(map);
    fetch_whole(&scene, offer);
    fetch_boxes(&scene, offer);
    fetch_into(&scene, offer);
    must(tmsg_offer_end(offer, -1));
    tmsg_offer_destroy(offer);
    close_scene(&scene);
}

Test(devices, are_fetched_whole_and_in_boxes_shm)
{
    fetch_offers(LINK_SHM, DRIVE_POLLING);
}

Test(devices, are_fetched_whole_and_in_boxes_tcp)
{
    fetch_offers(LINK_TCP, DRIVE_FD);
}

/* A stream's message that its sender wants on a device, or nowhere. */
Test(devices, are_refused_by_the_policy_of_a_streams_message)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_HOST_ONLY}};
    const tmsg_send_params_t strict = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_call_stream_t *stream;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &options);
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "keep", NULL, NULL,
                                   &stream));
    map = device_map(1, small, COUNT(small));
    must(tmsg_call_stream_send(stream, map, &strict, &sent));
    tmsg_map_destroy(map);
    must_be(pair_wait(&scene.pair, sent), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(sent), "and the policy is strict");
    tmsg_request_destroy(sent);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}
