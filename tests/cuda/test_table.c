/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA devices by what they are called, and by their numbers in a device table,
 * by which a receiver says where tensors go. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/boot/device_ids.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/simulated_devices.h"

static const tmsg_stream_t none;

#define UUID_2 "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f"
#define TABLE                                                                  \
    "{\"version\": 1, \"devices\": [\n"                                        \
    "  {\"index\": 7, \"kind\": \"cuda\", \"bus_id\": \"0000:33:00.0\"},\n"    \
    "  {\"index\": 0, \"kind\": \"cuda\", \"uuid\": \"" UUID_2 "\"},\n"        \
    "  {\"index\": 3, \"kind\": \"host\"}]}"

static tmsg_status_t create(const char *table, uint32_t flags,
                            tmsg_devices_t **devices_p)
{
    const tmsg_devices_params_t params = {
        .field_mask = TMSG_DEVICES_PARAM_TABLE | TMSG_DEVICES_PARAM_SYSFS |
                      TMSG_DEVICES_PARAM_FLAGS,
        .table = table,
        .sysfs = "/nowhere",
        .flags = flags};

    return tmsg_devices_create(&params, devices_p);
}

TestSuite(table, .init = devices_begin);

Test(table, has_devices_of_the_driver)
{
    tmsg_devices_t *devices;
    tmsg_device_info_t info;

    must(create(TABLE, 0, &devices));
    must_eq(tmsg_devices_size(devices), 5);
    must(tmsg_devices_at(devices, 2, &info));
    must_eq(info.device.type, TMSG_DEVICE_CUDA);
    must_eq(info.device.id, 1);
    cr_expect_str_eq(info.title, "Fake GPU 1");
    cr_expect_str_eq(info.uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    cr_expect_str_eq(info.bus_id, "0000:34:00.0");
    must(tmsg_devices_find(devices, 0, &info));
    must_eq(info.device.id, 2);
    must_eq(devices_driver()->primary_uses(2), 0);
    tmsg_devices_destroy(devices);
}

Test(table, has_no_device_that_no_driver_was_asked_of)
{
    tmsg_devices_t *devices;

    must(create("", TMSG_DEVICES_NO_DRIVERS, &devices));
    must_eq(tmsg_devices_size(devices), 1);
    tmsg_devices_destroy(devices);
    must_be(create(TABLE, TMSG_DEVICES_NO_DRIVERS, &devices),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(),
             "entry 0: '0000:33:00.0' is not a cuda device of this machine");
    must_be(create("", 8, &devices), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "devices: unknown flags 0x8");
}

static tmsg_context_t *with_table(const char *table)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_DEVICE_TABLE, .device_table = table};
    tmsg_context_t *context;

    must(tmsg_context_create(&params, &context));
    return context;
}

Test(table, names_devices_of_a_context)
{
    tmsg_context_t *context = with_table(TABLE);
    tmsg_device_t device;

    must(tmsg_context_device(context, 7, &device));
    must_eq(device.type, TMSG_DEVICE_CUDA);
    must_eq(device.id, 0);
    must(tmsg_context_device(context, 0, &device));
    must_eq(device.id, 2);
    must(tmsg_context_device(context, 3, &device));
    must_eq(device.type, TMSG_DEVICE_CPU);
    must_be(tmsg_context_device(context, 1, &device), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "the device table has no index 1");
    must_be(tmsg_context_device(context, 0, NULL), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_context_device(NULL, 0, &device), TMSG_ERR_INVALID_PARAM);
    tmsg_context_destroy(context);
    context = with_table("");
    must_be(tmsg_context_device(context, 0, &device), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "index 0: the context has no device table");
    tmsg_context_destroy(context);
}

/* NVML knows it, CUDA does not show it to this process. */
Test(table, tells_of_a_device_that_is_hidden)
{
    tmsg_context_t *context;
    tmsg_device_t device;

    setenv("FAKE_NVML_DEVICES", "6", 1);
    context = with_table("{\"version\":1,\"devices\":[{\"index\":1,\"kind\":"
                         "\"cuda\",\"bus_id\":\"0000:38:00.0\"}]}");
    must_be(tmsg_context_device(context, 1, &device), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "index 1 of the device table, cuda "
                                   "0000:38:00.0, is shown by no driver here");
    tmsg_context_destroy(context);
}

/* By message and by name. */
static void choose(void *arg, tmsg_incoming_t *incoming)
{
    tmsg_context_t *const *context = arg;
    tmsg_device_t device;

    must(tmsg_context_device(*context, 7, &device));
    must(tmsg_incoming_choose_all(incoming, device, none));
    must(tmsg_context_device(*context, 0, &device));
    must(tmsg_incoming_choose_name(incoming, "1", device, none));
    must(tmsg_context_device(*context, 3, &device));
    must(tmsg_incoming_choose_name(incoming, "2", device, none));
    must_be(tmsg_incoming_choose_name(incoming, "9", device, none),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_incoming_choose_name(incoming, NULL, device, none),
            TMSG_ERR_INVALID_PARAM);
}

Test(table, says_where_tensors_go)
{
    static const device_tensor_t sent[] = {{.device = 1, .bytes = 400000},
                                           {.device = ON_HOST, .bytes = 99},
                                           {.device = 1, .bytes = 5000},
                                           {.device = ON_HOST, .bytes = 70000}};
    static const device_tensor_t there[] = {{.device = 0, .bytes = 400000},
                                            {.device = 2, .bytes = 99},
                                            {.device = ON_HOST, .bytes = 5000},
                                            {.device = 0, .bytes = 70000}};
    tmsg_context_t *context = with_table(TABLE);
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &context}};
    tmsg_request_t *request;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    request = send_map(pair.to_a, device_map(5, sent, 4), TMSG_SEND_ACKED);
    message = pair_take(&pair, &pair.a);
    device_map_check(5, there, 4, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, request));
    pair_close(&pair);
    tmsg_context_destroy(context);
    devices_end();
}

static bool has_accepted(void *arg)
{
    return ((side_t *)arg)->accepted != NULL;
}

static void open_side(side_t *side, const char *table)
{
    setenv("TENSORMSG_DEVICE_TABLE", table, 1);
    side_open(side, NULL);
    unsetenv("TENSORMSG_DEVICE_TABLE");
}

/* A pair whose sides have tables of their own. */
static void open_pair(pair_t *pair, const char *a, const char *b)
{
    tmsg_request_t *ready;

    memset(pair, 0, sizeof(*pair));
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    open_side(&pair->a, a);
    open_side(&pair->b, b);
    side_listen_link(&pair->a, LINK_SHM);
    pair->to_a = side_dial(&pair->b, &pair->a);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    must(pair_finish(pair, ready));
    pair_await(pair, has_accepted, &pair->a, "an accepted endpoint");
    pair->to_b = pair->a.accepted;
}

#define CUDA(index, bus)                                                       \
    "{\"index\": " #index ", \"kind\": \"cuda\", \"bus_id\": \"" bus ":00."    \
    "0\"}"
#define TABLE_OF(...) "{\"version\": 1, \"devices\": [" __VA_ARGS__ "]}"
#define THEIRS TABLE_OF(CUDA(7, "33") ", " CUDA(0, "34") ", " CUDA(5, "35"))
#define OURS                                                                   \
    TABLE_OF(CUDA(7, "36") ", " CUDA(0, "33") ", " CUDA(                       \
        8, "34") ", {\"index\": 5, \"kind\": \"host\"}")

static void comes_to(pair_t *pair, tmsg_endpoint_t *from, side_t *to,
                     const device_tensor_t *sent, const device_tensor_t *there,
                     size_t count)
{
    tmsg_request_t *request;
    tmsg_message_t *message;

    request = send_map(from, device_map(5, sent, count), TMSG_SEND_ACKED);
    message = pair_take(pair, to);
    device_map_check(5, there, count, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, request));
}

/* What the sender's table calls by a number is what the receiver's calls so;
 * what has none, or none there, keeps its ordinal. Again and again, for what
 * repeats goes by its schema. */
Test(table, of_both_sides_say_where_tensors_go)
{
    static const device_tensor_t sent[] = {{.device = 0, .bytes = 400000},
                                           {.device = 1, .bytes = 99},
                                           {.device = 2, .bytes = 5000},
                                           {.device = 3, .bytes = 70000},
                                           {.device = ON_HOST, .bytes = 64}};
    static const device_tensor_t there[] = {{.device = 3, .bytes = 400000},
                                            {.device = 0, .bytes = 99},
                                            {.device = ON_HOST, .bytes = 5000},
                                            {.device = 3, .bytes = 70000},
                                            {.device = ON_HOST, .bytes = 64}};
    static const device_tensor_t back[] = {{.device = 0, .bytes = 100},
                                           {.device = 1, .bytes = 100},
                                           {.device = 3, .bytes = 100}};
    static const device_tensor_t home[] = {{.device = 1, .bytes = 100},
                                           {.device = 1, .bytes = 100},
                                           {.device = 0, .bytes = 100}};
    pair_t pair;

    open_pair(&pair, OURS, THEIRS);
    for (int i = 0; i < 3; i++) {
        comes_to(&pair, pair.to_a, &pair.a, sent, there, 5);
        comes_to(&pair, pair.to_b, &pair.b, back, home, 3);
    }
    pair_close(&pair);
    devices_end();
}

Test(table, of_one_side_alone_says_nothing_of_the_others)
{
    static const device_tensor_t sent[] = {{.device = 0, .bytes = 400000},
                                           {.device = 1, .bytes = 99}};
    pair_t pair;

    open_pair(&pair, OURS, "");
    comes_to(&pair, pair.to_a, &pair.a, sent, sent, 2);
    comes_to(&pair, pair.to_b, &pair.b, sent, sent, 2);
    pair_close(&pair);
    devices_end();
}

/* One that no driver shows there is none, and not another by its ordinal. */
Test(table, names_a_device_that_is_hidden_there)
{
    static const device_tensor_t sent[] = {{.device = 1, .bytes = 1000}};
    static const device_tensor_t there[] = {{.device = ON_HOST, .bytes = 1000}};
    const tmsg_send_params_t strict = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_request_t *request;
    tmsg_map_t *map;
    pair_t pair;

    setenv("FAKE_NVML_DEVICES", "6", 1);
    open_pair(&pair, TABLE_OF(CUDA(0, "38")), THEIRS);
    comes_to(&pair, pair.to_a, &pair.a, sent, there, 1);
    map = device_map(5, sent, 1);
    must(tmsg_endpoint_send(pair.to_a, map, &strict, &request));
    tmsg_map_destroy(map);
    must_be(pair_wait(&pair, request), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(request),
             "tensor '0': no memory of device type 2 here (index 0 of the "
             "device table, cuda 0000:38:00.0, is shown by no driver here");
    tmsg_request_destroy(request);
    pair_close(&pair);
    devices_end();
}

/* As many as there is room for. */
Test(table, tells_its_numbers)
{
    tmsg_devices_t *devices;
    char text[32];

    must(create(TABLE, 0, &devices));
    tmsg_device_ids_tell(devices, text, sizeof(text));
    cr_expect_str_eq(text, "7=2:0,0=2:2");
    tmsg_device_ids_tell(devices, text, 12);
    cr_expect_str_eq(text, "7=2:0,0=2:2");
    tmsg_device_ids_tell(devices, text, 11);
    cr_expect_str_eq(text, "7=2:0");
    tmsg_device_ids_tell(devices, text, 5);
    cr_expect_str_eq(text, "");
    tmsg_devices_destroy(devices);
    devices_end();
}
