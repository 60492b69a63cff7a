/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of the CUDA driver fails in turn while a map is sent and received:
 * it arrives whole, where it may lie, or nobody has any of it and both are
 * told. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/staging/vital.h"
#include "am/worker/worker.h"
#include "memory/cuda.h"
#include "memory/domain.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

#define UNKNOWN 999 /* CUDA_ERROR_UNKNOWN */
#define COUNT 4
#define ALL 3000

static const fake_cuda_t *fake;

void __wrap_tmsg_vital_watch(tmsg_worker_t *worker, tmsg_vital_t *vital);
void __wrap_tmsg_vital_watch(tmsg_worker_t *worker, tmsg_vital_t *vital)
{
    (void)worker;
    (void)vital;
}

/* How a run goes. */
typedef struct {
    int result; /* of the call that fails */
    fake_failing_t how;
    int32_t policy;
    bool pooled;         /* the receiver's memory */
    tmsg_stream_t wrote; /* that the first tensor is sent with */
    tmsg_stream_t reads; /* that it is received with; none: not chosen */
    int refused;         /* how often the receiver was told */
    int lost;            /* what could not be freed */
    int on_host;         /* tensors that came there and were a device's */
} run_t;

static void choose(void *arg, tmsg_incoming_t *incoming)
{
    const run_t *run = arg;

    if (run->reads.kind != TMSG_STREAM_NONE) {
        (void)tmsg_incoming_choose(incoming, 0, device_at(2), run->reads);
    }
}

static void note_refusal(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                         uint32_t sequence, tmsg_status_t status,
                         const char *error)
{
    run_t *run = arg;

    (void)endpoint;
    (void)channel;
    (void)sequence;
    must_true(status < 0 && error[0] != '\0');
    run->refused++;
}

/* Asks the driver each time, as the library's pool does not. */
static tmsg_status_t own_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                               uint64_t alignment, tmsg_stream_t stream,
                               void **data_p, void **token_p)
{
    (void)arg;
    *token_p = NULL;
    return tmsg_domain_cuda.alloc(NULL, device, bytes, alignment, stream,
                                  data_p);
}

static void own_free(void *arg, tmsg_device_t device, void *data,
                     uint64_t bytes, tmsg_stream_t stream, void *token)
{
    (void)arg;
    (void)token;
    tmsg_domain_cuda.free(NULL, device, data, bytes, stream);
}

static bool is_one_of(const char *name, const char *list)
{
    size_t bytes = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at++) {
        if (at[bytes] == ' ' || at[bytes] == '\0') {
            return true;
        }
    }
    return false;
}

/* What is done without, or done in another way; or what had to be done after
 * the message had arrived. */
static const char done_without[] =
    "cuCtxPopCurrent_v2 cuCtxGetCurrent cuCtxGetDevice cuDeviceGet "
    "cuDeviceGetAttribute cuMemHostRegister_v2 cuMemFreeAsync cuMemFree_v2 "
    "cuMemcpyBatchAsync "
    "cuEventDestroy_v2 cuCtxPushCurrent_v2 cuEventCreate cuEventRecord "
    "cuStreamGetCtx cuStreamIsCapturing cuThreadExchangeStreamCaptureMode "
    "cuMemPoolCreate cuMemPoolSetAttribute cuMemPoolDestroy "
    "cuDevicePrimaryCtxGetState cuCtxGetId";

/* What may leave a block or an event behind: nothing can be freed without. */
static const char loses[] =
    "cuMemFreeAsync cuMemFree_v2 cuEventDestroy_v2 cuCtxPushCurrent_v2 "
    "cuStreamGetCtx cuStreamIsCapturing cuThreadExchangeStreamCaptureMode";

/* What such a call makes, and says that it did not, stays for good. */
static const char makes[] =
    "cuMemAllocFromPoolAsync cuMemAllocAsync cuMemAlloc_v2 cuEventCreate";

/* On the devices, or, where that may be, on the host: all of it. */
static void check(run_t *run, uint64_t seed, const device_tensor_t *tensors,
                  const tmsg_message_t *message)
{
    device_tensor_t there[COUNT];
    tmsg_tensor_t tensor;

    for (size_t i = 0; i < COUNT; i++) {
        there[i] = tensors[i];
        must(tmsg_map_at(tmsg_message_map(message), i, NULL, &tensor));
        if (tensor.device.type == TMSG_DEVICE_CPU) {
            must_true(tensors[i].device == ON_HOST ||
                      (run->policy == TMSG_POLICY_HOST_FALLBACK &&
                       (i > 0 || run->reads.kind == TMSG_STREAM_NONE)));
            run->on_host += tensors[i].device != ON_HOST;
            there[i].device = ON_HOST;
        } else {
            there[i].device = tensor.device.id;
        }
    }
    device_map_check(seed, there, COUNT, tmsg_message_map(message));
}

static bool is_over(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

static bool is_free(void *arg)
{
    (void)arg;
    return device_held() == 0;
}

static bool was_told(void *arg) { return ((run_t *)arg)->refused > 0; }

static tmsg_status_t finish(pair_t *pair, tmsg_request_t *sent, char *why,
                            tmsg_message_t **message_p)
{
    tmsg_status_t status;

    while (!is_over(sent)) {
        tmsg_worker_progress(pair->b.worker);
        if (*message_p == NULL) {
            status = tmsg_worker_recv(pair->a.worker, 0, message_p);
            must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
        }
    }
    status = tmsg_request_test(sent);
    snprintf(why, 300, "%s", status == TMSG_OK ? "" : tmsg_request_error(sent));
    tmsg_request_destroy(sent);
    return status;
}

/* "cuMemAlloc" of "cuMemAlloc_v2". */
static void say(const char *words, const char *failed)
{
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(failed, "_"), failed);
    must_say(words, name);
}

/* False: no call failed, for there are not so many. */
static bool fail_one(pair_t *pair, run_t *run, unsigned long n)
{
    const device_tensor_t tensors[COUNT] = {
        {.device = 1, .bytes = 1200000, .stream = run->wrote},
        {.device = ON_HOST, .bytes = 100},
        {.device = 0, .bytes = 64},
        {.device = 0, .bytes = 640}};
    const uint64_t before = pair->to_a->stats.sent_messages;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_POLICY |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = run->policy};
    tmsg_map_t *map = device_map(n, tensors, COUNT);
    tmsg_message_t *message = NULL;
    tmsg_request_t *sent;
    tmsg_status_t status;
    const char *failed;
    char why[300];
    bool begun;

    run->refused = 0;
    fake->arm(n, run->result, run->how);
    status = tmsg_endpoint_send(pair->to_a, map, &params, &sent);
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    begun = status == TMSG_OK;
    if (begun) {
        status = finish(pair, sent, why, &message);
    }
    failed = fake->disarm();
    if (fake->fault() != NULL) {
        die("%s failed: %s", failed, fake->fault());
    }
    tmsg_map_destroy(map);
    must_eq(fake->depth(), 0);
    pair_await(pair, is_free, NULL, "the map to be given back");
    if (status == TMSG_OK) {
        must_true(message != NULL);
        check(run, n, tensors, message);
        if (failed != NULL && !is_one_of(failed, done_without) &&
            run->policy != 0) {
            die("%s failed, and nobody was told", failed);
        }
    } else {
        must_true(failed != NULL && message == NULL);
        say(why, failed);
        /* Small tensors are copied before there is a message. */
        if (begun && pair->to_a->stats.sent_messages > before) {
            pair_await(pair, was_told, run, "the receiver to be told");
        }
    }
    tmsg_message_destroy(message);
    run->lost += failed != NULL &&
                 (is_one_of(failed, loses) ||
                  (run->how != FAKE_REFUSED && is_one_of(failed, makes)));
    devices_finish();
    return failed != NULL;
}

static void fail_all(run_t run)
{
    const tmsg_device_allocator_t allocator = {own_alloc, own_free, NULL};
    const side_options_t options = {
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_ON_HEADER |
                       TMSG_WORKER_PARAM_ON_REFUSED |
                       (run.pooled ? 0 : TMSG_WORKER_PARAM_DEVICE_ALLOCATOR),
                   .device_allocator = &allocator,
                   .on_header = choose,
                   .on_header_arg = &run,
                   .on_refused = note_refusal,
                   .on_refused_arg = &run}};
    unsigned long n = 1;
    char counted[40], *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    while (fail_one(&pair, &run, n)) {
        must_true(++n < ALL);
    }
    must_true(n > 50);
    must_true(!fail_one(&pair, &run, ALL)); /* it goes on as before */
    must_eq(run.refused, 0);
    must_true((run.on_host > 0) == (run.reads.kind == TMSG_STREAM_NONE &&
                                    run.policy == TMSG_POLICY_HOST_FALLBACK));
    snprintf(counted, sizeof(counted), "\"received_on_host\":\t%d",
             run.on_host);
    must(tmsg_endpoint_describe(pair.to_b, &json));
    must_say(json, counted);
    tmsg_string_free(json);
    pair_close(&pair);
    device_free(device_alloc(0, 1, 0)); /* frees what waited for a stream */
    devices_finish();
    must_true(tmsg_cuda_settle(20000));
    must_true(fake->blocks() + fake->events() <= run.lost);
}

static void begin(void)
{
    devices_begin();
    fake = devices_driver();
}

TestSuite(failing, .init = begin);

static const tmsg_stream_t none;

static void strict(fake_failing_t how)
{
    fail_all((run_t){.result = UNKNOWN,
                     .how = how,
                     .policy = TMSG_POLICY_STRICT,
                     .pooled = true,
                     .wrote = device_stream(1)});
}

static void fall_back(fake_failing_t how)
{
    fail_all((run_t){.result = TMSG_CU_OUT_OF_MEMORY,
                     .how = how,
                     .policy = TMSG_POLICY_HOST_FALLBACK,
                     .wrote = none});
}

static void with_streams(fake_failing_t how)
{
    fail_all((run_t){.result = UNKNOWN,
                     .how = how,
                     .policy = TMSG_POLICY_HOST_FALLBACK,
                     .pooled = true,
                     .wrote = device_stream(1),
                     .reads = device_stream(2)});
}

Test(failing, is_told_or_done_without_where_the_policy_is_strict)
{
    strict(FAKE_REFUSED);
}
Test(failing, falls_back_where_that_is_allowed) { fall_back(FAKE_REFUSED); }
Test(failing, is_told_where_the_receiver_has_a_stream)
{
    with_streams(FAKE_REFUSED);
}

/* The same for calls that are done, and answer what went wrong before. */
Test(failing, late_is_told_or_done_without_where_the_policy_is_strict)
{
    strict(FAKE_DONE);
}
Test(failing, late_falls_back_where_that_is_allowed) { fall_back(FAKE_DONE); }
Test(failing, late_is_told_where_the_receiver_has_a_stream)
{
    with_streams(FAKE_DONE);
}
