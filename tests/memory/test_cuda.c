/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA domain on the driver that is none (tests/fakes/cuda.h), which is the
 * first libcuda.so.1 of LD_LIBRARY_PATH. Runs with each of its ages. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/devices.h>

#include "fakes/cuda.h"
#include "memory/cuda.h"
#include "memory/device_pool.h"
#include "support/must.h"

static const tmsg_stream_t none;
static const tmsg_stream_t legacy = {TMSG_STREAM_CUDA, 1};
static const tmsg_stream_t per_thread = {TMSG_STREAM_CUDA, 2};
static const tmsg_device_t gpu0 = {TMSG_DEVICE_CUDA, 0};
static const tmsg_device_t gpu1 = {TMSG_DEVICE_CUDA, 1};

static const tmsg_domain_t *cuda;
static const tmsg_cuda_functions_t *fn;
static const fake_cuda_t *fake;

/* As an application that uses device 0 through the runtime. */
static void *application_context(int device)
{
    void *context;

    must_eq(fn->cuDevicePrimaryCtxRetain(&context, device), 0);
    return context;
}

static void open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library == NULL ? NULL : dlsym(library, "fake_cuda");
    fake_cuda_fn get;

    must_true(found != NULL);
    memcpy(&get, &found, sizeof(get));
    fake = get();
    must_eq(tmsg_cuda_driver()->outcome, TMSG_CUDA_READY);
    fn = &tmsg_cuda_driver()->fn;
    must(tmsg_domain_find(gpu0, &cuda));
    must_true(cuda == &tmsg_domain_cuda);
}

/* Nothing that a test does may leave a context behind. */
static void close_cuda(void)
{
    must_eq(fake->depth(), 0);
    if (fake->fault() != NULL) {
        die("%s", fake->fault());
    }
}

TestSuite(cuda, .init = open_cuda, .fini = close_cuda);

static tmsg_stream_t new_stream(int device)
{
    void *context = application_context(device), *stream;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuStreamCreate(&stream, 1), 0);
    must_eq(fn->cuCtxPopCurrent(&context), 0);
    return (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream};
}

static void *inside(tmsg_stream_t stream) { return (void *)stream.handle; }

static void *new_data(tmsg_device_t device, size_t bytes, tmsg_stream_t stream)
{
    void *data;

    must(cuda->alloc(cuda->arg, device, bytes, 256, stream, &data));
    must_eq((uintptr_t)data % 256, 0);
    return data;
}

static void finish(void *event)
{
    tmsg_status_t status;
    int turns = 0;

    while ((status = cuda->event_query(NULL, event)) == TMSG_IN_PROGRESS) {
        must_true(++turns < 100);
    }
    must(status);
    cuda->event_free(NULL, event);
}

/* Waits for a stream as a program does that never blocks. */
static void drain(tmsg_device_t device, tmsg_stream_t stream)
{
    void *event;

    must(cuda->event_record(NULL, device, stream, &event));
    finish(event);
}

Test(cuda, touches_no_device_that_nobody_uses)
{
    tmsg_device_t third = {TMSG_DEVICE_CUDA, 2};
    void *data;

    must_be(cuda->alloc(NULL, gpu1, 10, 1, none, &data), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "CUDA device 1 is not in use here");
    must_eq(fake->primary_uses(1), 0);
    must(tmsg_domain_use(gpu1));
    must_eq(fake->primary_uses(1), 0); /* not before it is needed */
    data = new_data(gpu1, 10, none);
    must_eq(fake->primary_uses(1), 1);
    must_eq(fake->primary_uses(0), 0);
    cuda->free(NULL, gpu1, data, 10, none);
    tmsg_cuda_forget();
    must_eq(fake->primary_uses(1), 0);
    must_be(tmsg_domain_use(third), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "no CUDA device 2: the driver shows 2");
    third.id = -1;
    must_be(cuda->alloc(NULL, third, 10, 1, none, &data), TMSG_ERR_NOT_FOUND);
}

Test(cuda, uses_the_context_that_is_active)
{
    void *data;

    application_context(0);
    data = new_data(gpu0, 10, none);
    must_eq(fake->primary_uses(0), 2);
    must_eq(fake->primary_uses(1), 0);
    cuda->free(NULL, gpu0, data, 10, none);
}

Test(cuda, leaves_the_current_context_as_it_was)
{
    void *own = fake->context(1), *now = NULL, *data;
    char out[4];

    application_context(0);
    must_eq(fn->cuCtxPushCurrent(own), 0);
    data = new_data(gpu0, 4, none);
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, none));
    must(cuda->copy_out(NULL, gpu0, out, data, 4, none));
    cr_expect_str_eq(out, "abc");
    cuda->free(NULL, gpu0, data, 4, none);
    must_eq(fake->depth(), 1);
    must_eq(fn->cuCtxGetCurrent(&now), 0);
    must_true(now == own);
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    free(own);
}

Test(cuda, takes_the_default_streams_of_the_current_context)
{
    void *own = fake->context(0), *now, *data;

    must_eq(fn->cuCtxPushCurrent(own), 0);
    data = new_data(gpu0, 4, legacy);
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, legacy));
    drain(gpu0, legacy);
    cuda->free(NULL, gpu0, data, 4, legacy);
    drain(gpu0, legacy);
    must_eq(fake->primary_uses(0), 0); /* there was no need of it */
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    free(own);
}

/* What the library does while the application captures, in whatever thread. */
static void work_amid(tmsg_stream_t stream)
{
    void *data = new_data(gpu0, 4, none), *event;
    char out[4];

    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, none));
    must(cuda->copy_out(NULL, gpu0, out, data, 4, none));
    must(cuda->event_record(NULL, gpu0, stream, &event));
    finish(event);
    must(cuda->pin(NULL, out, sizeof(out)));
    cuda->unpin(NULL, out, sizeof(out));
    cuda->free(NULL, gpu0, data, 4, none);
}

Test(cuda, leaves_captures_of_others_alone)
{
    tmsg_stream_t captured = new_stream(0), other = new_stream(0);
    tmsg_cu_address_t data = 0;
    void *context = application_context(0);

    if (fn->cuThreadExchangeStreamCaptureMode == NULL) {
        cr_skip("a driver that cannot be told so");
    }
    fake->capture(inside(captured));
    work_amid(other);
    cr_expect(fake->captured(), "the library invalidated the capture");
    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuMemAlloc(&data, 4), 0);
    cr_expect(!fake->captured(), "the thread is in its own mode again");
    must_eq(fn->cuMemFree(data), 0);
    must_eq(fn->cuCtxPopCurrent(&context), 0);
    fake->capture(NULL);
}

Test(cuda, puts_nothing_into_a_stream_that_is_captured)
{
    tmsg_stream_t stream = new_stream(0);
    void *data = new_data(gpu0, 4, none), *event;

    if (fn->cuStreamIsCapturing == NULL) {
        cr_skip("a driver that cannot tell");
    }
    fake->capture(inside(stream));
    must_be(cuda->copy_in(NULL, gpu0, data, "abc", 4, stream), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "is being captured into a graph");
    must_be(cuda->event_record(NULL, gpu0, legacy, &event), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "another stream of its context is");
    fake->capture(NULL);
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, stream));
    drain(gpu0, stream);
    cuda->free(NULL, gpu0, data, 4, none);
}

/* As by cudaDeviceReset(): all is gone, and may be there again. */
Test(cuda, goes_on_where_the_application_has_reset_a_device)
{
    tmsg_device_block_t block = {.domain = cuda, .device = gpu0}, other;
    tmsg_device_pool_t pool;
    tmsg_stream_t own;
    void *data, *event;

    if (fn->cuCtxGetId == NULL) {
        cr_skip("a driver that cannot tell");
    }
    application_context(0);
    tmsg_device_pool_init(&pool, 1 << 20);
    must(tmsg_device_pool_take(&pool, 4, &block));
    tmsg_device_pool_give(&pool, block);
    must(tmsg_device_pool_take(&pool, 5000, &block));
    other = block;
    must(cuda->stream(NULL, gpu0, &own));
    data = new_data(gpu0, 4, none);
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, own));
    must(cuda->event_record(NULL, gpu0, own, &event));
    fake->reset(0);
    must_be(cuda->event_query(NULL, event), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "as by cudaDeviceReset()");
    must_be(cuda->copy_in(NULL, gpu0, data, "abc", 4, none),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "its primary context is not active");
    cuda->event_free(NULL, event);
    application_context(0);
    data = new_data(gpu0, 4, none); /* where the block of the pool was */
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, none));
    block = (tmsg_device_block_t){.domain = cuda, .device = gpu0};
    must(tmsg_device_pool_take(&pool, 4, &block));
    must_true(block.data != data);
    tmsg_device_pool_give(&pool, block);
    tmsg_device_pool_give(&pool, other); /* which is gone */
    tmsg_device_pool_free(&pool);
    must_eq(fake->blocks(), 1);
    cuda->free(NULL, gpu0, data, 4, none);
}

/* An event that was freed is used again. */
Test(cuda, makes_few_events)
{
    tmsg_stream_t own;
    void *event;

    application_context(0);
    must(cuda->stream(NULL, gpu0, &own));
    for (int i = 0; i < 10; i++) {
        must(cuda->event_record(NULL, gpu0, own, &event));
        finish(event);
    }
    must_eq(fake->calls("cuEventCreate"), 1);
}

static void round_trip(tmsg_stream_t stream)
{
    static char from[70000], to[70000];
    void *a, *b;

    application_context(0);
    memset(from, 'q', sizeof(from));
    a = new_data(gpu0, sizeof(from), stream);
    b = new_data(gpu0, sizeof(from), stream);
    must(cuda->copy_in(NULL, gpu0, a, from, sizeof(from), stream));
    must(cuda->copy_within(NULL, gpu0, b, a, sizeof(from), stream));
    must(cuda->copy_out(NULL, gpu0, to, b, sizeof(to), stream));
    if (stream.kind != TMSG_STREAM_NONE) {
        must_eq(to[69999], 0); /* nothing was waited for */
        drain(gpu0, stream);
    }
    cr_expect_arr_eq(from, to, sizeof(to));
    must(cuda->copy_in(NULL, gpu0, a, NULL, 0, stream));
    cuda->free(NULL, gpu0, a, sizeof(from), stream);
    cuda->free(NULL, gpu0, b, sizeof(from), stream);
    if (stream.kind != TMSG_STREAM_NONE) {
        drain(gpu0, stream);
    }
    a = new_data(gpu0, 0, none); /* which frees what waited for the stream */
    cuda->free(NULL, gpu0, a, 0, none);
    must_eq(fake->blocks(), 0);
}

Test(cuda, copies_at_once_without_a_stream) { round_trip(none); }
Test(cuda, copies_in_order_of_a_stream) { round_trip(new_stream(0)); }
Test(cuda, copies_in_order_of_the_legacy_stream) { round_trip(legacy); }
Test(cuda, copies_in_order_of_the_threads_stream) { round_trip(per_thread); }

/* More than the driver is told of at once. */
static void batch(tmsg_stream_t stream)
{
    enum { COPIES = 300 };
    static uint32_t from[COPIES], to[COPIES];
    tmsg_domain_copy_t in[COPIES], out[COPIES];
    unsigned long before = fake->calls("cuMemcpyBatchAsync");
    bool batches = fn->cuMemcpyBatchAsync != NULL && stream.handle != 1;
    uint32_t *data;

    application_context(0);
    data = new_data(gpu0, sizeof(from), none);
    for (uint32_t i = 0; i < COPIES; i++) {
        from[i] = i + 1;
        in[i] = (tmsg_domain_copy_t){data + COPIES - 1 - i, &from[i], 4};
        out[i] = (tmsg_domain_copy_t){&to[i], data + i, 4};
    }
    memset(to, 0, sizeof(to));
    must(cuda->copy_batch(NULL, gpu0, 0, in, COPIES, stream));
    must(cuda->copy_batch(NULL, gpu0, 1, out, COPIES, stream));
    if (stream.kind != TMSG_STREAM_NONE) {
        must_eq(to[0], 0); /* not yet */
        fake->finish();
    }
    for (uint32_t i = 0; i < COPIES; i++) {
        must_eq(to[i], COPIES - i);
    }
    must_eq(fake->calls("cuMemcpyBatchAsync") - before, batches ? 6 : 0);
    cuda->free(NULL, gpu0, data, sizeof(from), none);
}

Test(cuda, copies_many_at_once) { batch(none); }
Test(cuda, copies_many_in_order_of_a_stream) { batch(new_stream(0)); }
Test(cuda, copies_many_in_order_of_the_legacy_stream) { batch(legacy); }

Test(cuda, copies_between_devices)
{
    void *a, *b;
    char out[6];

    must(tmsg_domain_use(gpu0));
    must(tmsg_domain_use(gpu1));
    a = new_data(gpu0, 6, none);
    b = new_data(gpu1, 6, none);
    must(cuda->copy_in(NULL, gpu0, a, "hello", 6, none));
    must(cuda->copy_within(NULL, gpu1, b, a, 6, none));
    must(cuda->copy_out(NULL, gpu1, out, b, 6, none));
    cr_expect_str_eq(out, "hello");
    cuda->free(NULL, gpu0, a, 6, none);
    cuda->free(NULL, gpu1, b, 6, none);
}

Test(cuda, has_a_stream_of_its_own)
{
    tmsg_stream_t own, again;

    application_context(0);
    must(cuda->stream(NULL, gpu0, &own));
    must(cuda->stream(NULL, gpu0, &again));
    must_eq(own.kind, TMSG_STREAM_CUDA);
    must_true(own.handle > 2 && own.handle == again.handle);
    must_be(cuda->stream(NULL, gpu1, &own), TMSG_ERR_UNSUPPORTED);
}

/* The library's stream goes on where the application's ends, of which nobody
 * waits; and the other way round. */
Test(cuda, hands_over_between_streams_by_events)
{
    tmsg_stream_t app = new_stream(0), own;
    void *data = new_data(gpu0, 6, app), *event, *back;
    char out[6] = "";

    must(cuda->stream(NULL, gpu0, &own));
    must(cuda->copy_in(NULL, gpu0, data, "hello", 6, app));
    must(cuda->event_record(NULL, gpu0, app, &event));
    must(cuda->event_wait(NULL, gpu0, event, own));
    cuda->event_free(NULL, event);
    must(cuda->copy_out(NULL, gpu0, out, data, 6, own));
    must(cuda->event_record(NULL, gpu0, own, &back));
    must_be(cuda->event_query(NULL, back), TMSG_IN_PROGRESS);
    must(cuda->event_wait(NULL, gpu0, back, app));
    finish(back);
    cr_expect_str_eq(out, "hello");
    cuda->free(NULL, gpu0, data, 6, app);
    drain(gpu0, app);
    data = new_data(gpu0, 0, none); /* which frees what waited for the stream */
    tmsg_cuda_forget_events();
    must_eq(fake->events(), 0);
}

Test(cuda, event_of_one_device_holds_up_a_stream_of_another)
{
    tmsg_stream_t first = new_stream(0), second = new_stream(1);
    void *a = new_data(gpu0, 6, first), *b = new_data(gpu1, 6, second), *event;
    char out[6];

    must(cuda->copy_in(NULL, gpu0, a, "hello", 6, first));
    must(cuda->event_record(NULL, gpu0, first, &event));
    must(cuda->event_wait(NULL, gpu1, event, second));
    cuda->event_free(NULL, event);
    must(cuda->copy_within(NULL, gpu1, b, a, 6, second));
    must(cuda->copy_out(NULL, gpu1, out, b, 6, second));
    drain(gpu1, second);
    cr_expect_str_eq(out, "hello");
}

Test(cuda, never_waits_for_a_kernel_that_waits_for_the_program)
{
    tmsg_stream_t app = new_stream(0);
    void *data = new_data(gpu0, 10, none), *other, *event;
    char out[2] = "";

    fake->block(inside(app));
    must(cuda->copy_in(NULL, gpu0, data, "x", 2, app));
    must(cuda->event_record(NULL, gpu0, app, &event));
    other = new_data(gpu0, 10, none);
    must(cuda->copy_in(NULL, gpu0, other, "y", 2, none));
    must(cuda->copy_out(NULL, gpu0, out, other, 2, none));
    cr_expect_str_eq(out, "y");
    cuda->free(NULL, gpu0, data, 10, app);
    if (fn->cuMemFreeAsync != NULL) { /* else the driver itself would wait */
        cuda->free(NULL, gpu0, other, 10, none);
    }
    for (int i = 0; i < 5; i++) {
        must_be(cuda->event_query(NULL, event), TMSG_IN_PROGRESS);
    }
    fake->unblock(inside(app));
    finish(event);
}

Test(cuda, refuses_streams_that_mean_nothing)
{
    const tmsg_stream_t null = {TMSG_STREAM_CUDA, 0},
                        other = {TMSG_STREAM_OTHER, 5};
    void *data, *event;

    application_context(0);
    must_be(cuda->alloc(NULL, gpu0, 1, 1, null, &data), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "handle 0");
    must_be(cuda->copy_in(NULL, gpu0, NULL, NULL, 0, other),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "kind 1000");
    must_be(cuda->event_record(NULL, gpu0, none, &event),
            TMSG_ERR_INVALID_PARAM);
    must(cuda->event_record(NULL, gpu0, legacy, &event));
    must_be(cuda->event_wait(NULL, gpu0, event, none), TMSG_ERR_INVALID_PARAM);
    must_be(cuda->event_wait(NULL, gpu0, event, null), TMSG_ERR_INVALID_PARAM);
    cuda->event_free(NULL, event);
}

Test(cuda, allocates_nothing_but_device_memory)
{
    void *data;

    application_context(0);
    must_be(cuda->alloc(NULL, gpu0, 1, 512, none, &data), TMSG_ERR_UNSUPPORTED);
    must_be(cuda->alloc(NULL, (tmsg_device_t){TMSG_DEVICE_CUDA_MANAGED, 0}, 1,
                        1, none, &data),
            TMSG_ERR_UNSUPPORTED);
    must_be(cuda->alloc(NULL, gpu0, 1ull << 40, 1, none, &data),
            TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), "out of memory (2)");
}

static int32_t kind_of(void *data)
{
    tmsg_memory_t memory;

    must(tmsg_memory_query(data, &memory));
    return memory.kind;
}

static unsigned long pool_allocs(void)
{
    return fake->calls("cuMemAllocFromPoolAsync");
}

Test(cuda, allocates_from_a_pool_of_its_own_that_keeps_what_is_free)
{
    tmsg_stream_t app = new_stream(0);
    void *data = new_data(gpu0, 100, app);

    if (fn->cuMemAllocFromPoolAsync != NULL) {
        must_eq(fake->pool_keeps(0), 256 << 20);
        must_eq(fake->pool_keeps(1), 0);
        must_eq(pool_allocs(), 1);
        must_eq(fake->calls("cuMemAllocAsync"), 0);
    }
    cuda->free(NULL, gpu0, data, 100, app);
    tmsg_cuda_forget();
    must_eq(fake->pool_keeps(0), 0);
}

Test(cuda, allocates_from_the_pool_of_the_device_where_it_gets_none)
{
    void *data;

    setenv("FAKE_CUDA_OWN_POOLS", "0", 1);
    application_context(0);
    data = new_data(gpu0, 100, none);
    must_eq(pool_allocs(), 0);
    must_eq(fake->calls("cuMemAllocAsync"), fn->cuMemAllocAsync != NULL);
    cuda->free(NULL, gpu0, data, 100, none);
}

/* Of a device that other processes may map: also what was allocated before is
 * freed as it must be. */
Test(cuda, allocates_no_memory_of_a_pool_where_it_is_shared)
{
    tmsg_stream_t app = new_stream(0);
    void *before = new_data(gpu0, 100, none), *data, *ordered;

    tmsg_cuda_share();
    data = new_data(gpu0, 100, none);
    ordered = new_data(gpu0, 100, app);
    must_eq(kind_of(data), TMSG_MEMORY_DEVICE);
    must_eq(kind_of(ordered), TMSG_MEMORY_DEVICE);
    must(cuda->copy_in(NULL, gpu0, ordered, "abc", 4, app));
    cuda->free(NULL, gpu0, before, 100, none);
    cuda->free(NULL, gpu0, ordered, 100, app);
    cuda->free(NULL, gpu0, data, 100, none);
    must_true(tmsg_cuda_settle(10000));
    must_eq(fake->blocks(), 1); /* a copy goes to it */
    drain(gpu0, app);
    data = new_data(gpu0, 100, none); /* which frees what waited */
    cuda->free(NULL, gpu0, data, 100, none);
    must_true(tmsg_cuda_settle(10000));
    must_eq(fake->blocks(), 0);
    must_eq(fake->calls("cuMemFreeAsync"), fn->cuMemFreeAsync != NULL);
}

static tmsg_device_block_t take_block(tmsg_device_pool_t *pool,
                                      tmsg_stream_t stream)
{
    tmsg_device_block_t block = {
        .domain = cuda, .device = gpu0, .stream = stream};

    must(tmsg_device_pool_take(pool, 1000, &block));
    return block;
}

/* A block that a stream has used is taken again when the stream is done. */
Test(cuda, keeps_shared_blocks_of_streams)
{
    tmsg_stream_t app = new_stream(0), second = new_stream(0);
    tmsg_device_block_t first, other, again;
    tmsg_device_pool_t pool;

    tmsg_cuda_share();
    tmsg_device_pool_init(&pool, 1 << 20);
    first = take_block(&pool, app);
    fake->block(inside(app));
    must(cuda->copy_in(NULL, gpu0, first.data, "abc", 4, app));
    tmsg_device_pool_give(&pool, first);
    other = take_block(&pool, second);
    must_true(other.data != first.data);
    fake->unblock(inside(app));
    drain(gpu0, app);
    again = take_block(&pool, none);
    must_true(again.data == first.data);
    must_eq(fake->calls("cuMemAlloc_v2"), 2);
    tmsg_device_pool_give(&pool, other);
    tmsg_device_pool_give(&pool, again);
    drain(gpu0, second);
    tmsg_device_pool_free(&pool);
    again.data = new_data(gpu0, 1, none); /* which frees what waited */
    cuda->free(NULL, gpu0, again.data, 1, none);
    must_true(tmsg_cuda_settle(10000));
    must_eq(fake->blocks(), 0);
    tmsg_cuda_forget_events();
    must_eq(fake->events(), 0);
}

/* What the application destroyed cannot be waited for. */
static void free_of_a_destroyed_stream(void)
{
    tmsg_stream_t app = new_stream(0);
    void *data = new_data(gpu0, 100, app), *context = application_context(0);

    if (fn->cuStreamGetCtx == NULL) {
        cr_skip("a driver that does not tell a stream's context");
    }
    drain(gpu0, app);
    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuStreamDestroy(inside(app)), 0);
    must_eq(fn->cuCtxPopCurrent(&context), 0);
    cuda->free(NULL, gpu0, data, 100, app);
    must_true(tmsg_cuda_settle(10000));
    must_eq(fake->blocks(), 0);
}

Test(cuda, frees_what_a_destroyed_stream_used) { free_of_a_destroyed_stream(); }

Test(cuda, frees_shared_memory_that_a_destroyed_stream_used)
{
    tmsg_cuda_share();
    free_of_a_destroyed_stream();
}

/* Nothing can be put in order with a stream that is captured, until the capture
 * is over. */
Test(cuda, frees_what_a_captured_stream_used_afterwards)
{
    tmsg_stream_t app = new_stream(0);
    void *data = new_data(gpu0, 100, app), *other;

    if (fn->cuStreamIsCapturing == NULL) {
        cr_skip("a driver that cannot tell");
    }
    must(cuda->copy_in(NULL, gpu0, data, "abc", 4, app));
    fake->capture(inside(app));
    cuda->free(NULL, gpu0, data, 100, app);
    other = new_data(gpu0, 100, none);
    must_eq(fake->blocks(), 2);
    fake->capture(NULL);
    cuda->free(NULL, gpu0, other, 100, none);
    other = new_data(gpu0, 100, none); /* which asks for the stream */
    drain(gpu0, app);
    cuda->free(NULL, gpu0, other, 100, none);
    other = new_data(gpu0, 100, none);
    must_eq(fake->blocks(), 1);
    cuda->free(NULL, gpu0, other, 100, none);
}

Test(cuda, does_without_pools_where_the_device_has_none)
{
    tmsg_stream_t app;
    void *data;

    setenv("FAKE_CUDA_POOLS", "0", 1);
    app = new_stream(0);
    data = new_data(gpu0, 100, app);
    must(cuda->copy_in(NULL, gpu0, data, "x", 2, app));
    cuda->free(NULL, gpu0, data, 100, app);
    must_eq(fake->blocks(), 1); /* it goes when the stream is done */
    data = new_data(gpu0, 100, none);
    must_eq(fake->blocks(), 2);
    drain(gpu0, app);
    cuda->free(NULL, gpu0, data, 100, none);
    data = new_data(gpu0, 100, none);
    must_eq(fake->blocks(), 1);
    cuda->free(NULL, gpu0, data, 100, none);
    must_eq(fake->calls("cuMemAllocAsync"), 0);
}

static void expect(uintptr_t address, int32_t type, int32_t id, int32_t kind)
{
    tmsg_memory_t memory;

    must(tmsg_memory_query((void *)(address + 5), &memory));
    must_eq(memory.device.type, type);
    must_eq(memory.device.id, id);
    must_eq(memory.kind, kind);
    if (kind == TMSG_MEMORY_HOST ||
        tmsg_cuda_driver()->version < 10020) { /* nobody knows there */
        must_true(memory.base == NULL);
    } else {
        must_true((uintptr_t)memory.base == address);
        must_eq(memory.bytes, 1000);
        must_eq(memory.shared, kind == TMSG_MEMORY_DEVICE);
    }
}

static void tell_apart(void)
{
    static char pinned[1000], plain[1000];
    bool old = tmsg_cuda_driver()->version < 10020;

    expect(fake->alloc(1, 1000, FAKE_PLAIN), TMSG_DEVICE_CUDA, 1,
           TMSG_MEMORY_DEVICE);
    expect(fake->alloc(1, 1000, FAKE_MANAGED), TMSG_DEVICE_CUDA_MANAGED, 1,
           TMSG_MEMORY_MANAGED);
    expect(fake->alloc(0, 1000, FAKE_MAPPED), TMSG_DEVICE_CUDA, 0,
           TMSG_MEMORY_MAPPED);
    if (!old) {
        expect(fake->alloc(0, 1000, FAKE_POOL), TMSG_DEVICE_CUDA, 0,
               TMSG_MEMORY_POOL);
    }
    must(cuda->pin(NULL, pinned, sizeof(pinned)));
    expect((uintptr_t)pinned, TMSG_DEVICE_CUDA_HOST, 0, TMSG_MEMORY_PINNED);
    cuda->unpin(NULL, pinned, sizeof(pinned));
    expect((uintptr_t)pinned, TMSG_DEVICE_CPU, 0, TMSG_MEMORY_HOST);
    expect((uintptr_t)plain, TMSG_DEVICE_CPU, 0, TMSG_MEMORY_HOST);
}

Test(cuda, tells_kinds_of_memory_apart)
{
    application_context(1);
    tell_apart();
    tell_apart();
}

Test(cuda, tells_memory_of_a_context_that_is_current)
{
    void *own = fake->context(0), *now;

    must_eq(fn->cuCtxPushCurrent(own), 0);
    tell_apart();
    must_eq(fake->primary_uses(0), 0);
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    free(own);
}

Test(cuda, knows_no_memory_where_no_device_is_in_use)
{
    int here;

    expect((uintptr_t)&here, TMSG_DEVICE_CPU, 0, TMSG_MEMORY_HOST);
    must_be(cuda->pin(NULL, &here, sizeof(here)), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "no CUDA device is in use here");
    cuda->unpin(NULL, &here, sizeof(here));
    must_eq(fake->primary_uses(0) + fake->primary_uses(1), 0);
}

Test(cuda, registers_host_memory_once)
{
    static char host[5000];

    must(tmsg_domain_use(gpu1));
    must(cuda->pin(NULL, host, sizeof(host)));
    must_be(cuda->pin(NULL, host + 100, 5), TMSG_ERR_ALREADY_EXISTS);
    cuda->unpin(NULL, host, sizeof(host));
    must(cuda->pin(NULL, host, sizeof(host)));
    cuda->unpin(NULL, host, sizeof(host));
}

Test(cuda, says_which_part_of_a_device_it_is)
{
    tmsg_device_identity_t identity;

    setenv("FAKE_CUDA_MIG", "1", 1);
    must(cuda->identify(NULL, gpu1, &identity));
    if (fn->cuDeviceGetUuid != NULL) {
        cr_expect_str_eq(identity.uuid,
                         "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f");
    }
}

Test(cuda, says_which_device_it_is)
{
    tmsg_device_identity_t identity;

    must(cuda->identify(NULL, gpu1, &identity));
    cr_expect_str_eq(identity.name, "Fake GPU 1");
    cr_expect_str_eq(identity.bus_id, "0000:34:00.0");
    if (fn->cuDeviceGetUuid != NULL) {
        cr_expect_str_eq(identity.uuid,
                         "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    } else {
        cr_expect_str_eq(identity.uuid, "");
    }
    must_be(
        cuda->identify(NULL, (tmsg_device_t){TMSG_DEVICE_CUDA, 7}, &identity),
        TMSG_ERR_NOT_FOUND);
    must_eq(fake->primary_uses(1), 0);
}

static void expect_bus_id(const char *domain, const char *bus_id)
{
    tmsg_device_identity_t identity;
    tmsg_device_info_t info;
    tmsg_devices_t *devices;
    int known = 0;

    setenv("FAKE_CUDA_DOMAIN", domain, 1);
    must(cuda->identify(NULL, gpu1, &identity));
    cr_expect_str_eq(identity.bus_id, bus_id);
    must(tmsg_devices_create(NULL, &devices));
    for (size_t i = 0; i < tmsg_devices_size(devices); i++) {
        must(tmsg_devices_at(devices, i, &info));
        known += strcmp(info.bus_id, bus_id) == 0;
    }
    must_eq(known, 1); /* to NVML and to CUDA the same one */
    tmsg_devices_destroy(devices);
}

/* As nvidia-smi and NVML print them, and as sysfs has them. */
Test(cuda, has_bus_ids_as_sysfs_writes_them)
{
    expect_bus_id("0000", "0000:34:00.0");
    expect_bus_id("00000000", "0000:34:00.0");
    expect_bus_id("000000A1", "00a1:34:00.0");
    expect_bus_id("00010000", "10000:34:00.0");
    expect_bus_id("FEDCBA98", "fedcba98:34:00.0");
}

static void *identify_often(void *arg)
{
    void *data;
    char out[2];

    (void)arg;
    for (int i = 0; i < 50; i++) {
        tmsg_device_t device = i % 2 == 0 ? gpu0 : gpu1;

        data = new_data(device, 2, none);
        must(cuda->copy_in(NULL, device, data, "z", 2, none));
        must(cuda->copy_out(NULL, device, out, data, 2, none));
        must_eq(out[0], 'z');
        cuda->free(NULL, device, data, 2, none);
    }
    must_eq(fake->depth(), 0);
    return NULL;
}

Test(cuda, may_be_called_from_several_threads)
{
    pthread_t threads[4];

    must(tmsg_domain_use(gpu0));
    must(tmsg_domain_use(gpu1));
    for (int i = 0; i < 4; i++) {
        must_eq(pthread_create(&threads[i], NULL, identify_often, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
}

/* A thread with a context of its own, and a stream of that. */
typedef struct {
    tmsg_device_t device;
    tmsg_stream_t stream;
    void *data;
} own_t;

static void *use_own_context(void *arg)
{
    own_t *own = arg;
    void *context = fake->context(own->device.id), *now, *handle;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuStreamCreate(&handle, 1), 0);
    own->stream =
        (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)handle};
    own->data = new_data(own->device, 6, own->stream);
    must(cuda->copy_in(NULL, own->device, own->data, "hello", 6, own->stream));
    must_eq(fn->cuCtxGetCurrent(&now), 0);
    must_true(now == context && fake->depth() == 1);
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    return NULL;
}

/* What they began goes on where no context is current, or another. */
static void go_on(const own_t *own)
{
    char out[6] = "";

    must(cuda->copy_out(NULL, own->device, out, own->data, 6, own->stream));
    drain(own->device, own->stream);
    cr_expect_str_eq(out, "hello");
    cuda->free(NULL, own->device, own->data, 6, own->stream);
    drain(own->device, own->stream);
}

Test(cuda, works_in_the_contexts_of_the_applications_streams)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    own_t owns[THREADS];
    void *other, *now;

    if (fn->cuStreamGetCtx == NULL) {
        return; /* no driver before CUDA 9.2 tells it */
    }
    other = fake->context(1);
    for (int i = 0; i < THREADS; i++) {
        owns[i] = (own_t){.device = i % 2 == 0 ? gpu0 : gpu1};
        must_eq(pthread_create(&threads[i], NULL, use_own_context, &owns[i]),
                0);
    }
    for (int i = 0; i < THREADS; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
        if (i == THREADS / 2) {
            must_eq(fn->cuCtxPushCurrent(other), 0);
        }
        go_on(&owns[i]);
    }
    must_eq(fn->cuCtxGetCurrent(&now), 0);
    must_true(now == other);
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    free(other);
    must_eq(fake->primary_uses(0) + fake->primary_uses(1), 0);
}

/* There CUDA is not to be had: all is refused, and what the parent had goes. */
static void use_in_child(void *data, void *event)
{
    static char host[64];
    tmsg_memory_t memory;
    char out[6];
    void *more;

    must_be(cuda->copy_out(NULL, gpu0, out, data, 6, none),
            TMSG_ERR_UNSUPPORTED);
    must_be(cuda->alloc(NULL, gpu0, 6, 1, none, &more), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "start the child by exec()");
    must_be(cuda->event_query(NULL, event), TMSG_ERR_UNSUPPORTED);
    must_be(cuda->pin(NULL, host, sizeof(host)), TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_memory_query(data, &memory),
            TMSG_ERR_UNSUPPORTED); /* not: the host's */
    cuda->event_free(NULL, event);
    cuda->free(NULL, gpu0, data, 6, none);
    must_true(fake->depth() == 0 && fake->fault() == NULL);
}

Test(cuda, is_refused_in_the_child_of_a_fork)
{
    tmsg_stream_t app = new_stream(0);
    void *data = new_data(gpu0, 6, none), *event;
    char out[6];
    int status;
    pid_t pid;

    must(cuda->copy_in(NULL, gpu0, data, "hello", 6, none));
    must(cuda->event_record(NULL, gpu0, app, &event));
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        use_in_child(data, event);
        _exit(0);
    }
    must_true(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    must(cuda->copy_out(NULL, gpu0, out, data, 6, none)); /* as before */
    cr_expect_str_eq(out, "hello");
    finish(event);
    cuda->free(NULL, gpu0, data, 6, none);
}

/* A test of its own, with a driver that says so. */
Test(cuda_without, devices_is_refused_with_what_was_met)
{
    const tmsg_domain_t *domain;
    tmsg_memory_t memory;
    void *data, *library;

    setenv("FAKE_CUDA_DEVICES", "0", 1);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    must_true(library != NULL);
    must(tmsg_domain_find(gpu0, &domain));
    must_be(domain->alloc(NULL, gpu0, 1, 1, none, &data), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "shows no GPU");
    must_be(tmsg_domain_use(gpu0), TMSG_ERR_UNSUPPORTED);
    must_be(domain->pin(NULL, &data, 8), TMSG_ERR_UNSUPPORTED);
    must(tmsg_memory_query(&data, &memory));
    must_eq(memory.kind, TMSG_MEMORY_HOST);
}

/* The driver that is none is as strict as the domain needs it to be. */

TestSuite(fake_cuda, .init = open_cuda);

static void faulted(const char *what)
{
    must_say(fake->fault(), what);
    fake->fault_clear();
}

Test(fake_cuda, fails_without_a_context)
{
    uint64_t address;

    must_eq(fn->cuMemAlloc(&address, 10), 201);
    faulted("cuMemAlloc_v2 was called with no context current");
}

Test(fake_cuda, fails_on_the_wrong_device)
{
    tmsg_stream_t second = new_stream(1);
    void *context = application_context(0), *event;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuEventCreate(&event, 2), 0);
    must_eq(fn->cuEventRecord(event, inside(second)), 400);
    faulted("a stream of device 1, and 0 is current");
}

Test(fake_cuda, fails_on_memory_of_another_device)
{
    tmsg_stream_t first = new_stream(0);
    void *context = application_context(1), *data;
    char out[6];

    data = new_data(gpu1, 6, none);
    context = application_context(0);
    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuMemcpyDtoHAsync(out, (uintptr_t)data, 6, inside(first)), 1);
    faulted("cuMemcpyDtoHAsync_v2: memory of device 1, and 0 is current");
    must_eq(fn->cuMemcpyHtoDAsync((uintptr_t)out, "hello", 6, inside(first)),
            1);
    faulted("cuMemcpyHtoDAsync_v2: no memory of a device at");
    must_eq(fn->cuMemFree((uintptr_t)data), 1);
    faulted("cuMemFree_v2: memory of device 1, and 0 is current");
}

Test(fake_cuda, fails_on_an_event_of_another_device)
{
    void *context = application_context(1), *event;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuEventCreate(&event, 2), 0);
    context = application_context(0);
    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuEventQuery(event), 400);
    faulted("cuEventQuery: an event of device 1, and 0 is current");
}

Test(fake_cuda, fails_on_a_freed_event)
{
    void *context = application_context(0), *event;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuEventCreate(&event, 2), 0);
    must_eq(fn->cuEventDestroy(event), 0);
    must_eq(fn->cuEventQuery(event), 400);
    faulted("the event was destroyed");
}

Test(fake_cuda, fails_on_a_context_that_is_gone)
{
    void *context = application_context(0);
    uint64_t address;

    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuDevicePrimaryCtxRelease(0), 0);
    must_eq(fn->cuMemAlloc(&address, 10), 709);
    faulted("the context is gone");
}

Test(fake_cuda, fails_on_work_out_of_order)
{
    tmsg_stream_t first = new_stream(0), second = new_stream(0);
    void *data = new_data(gpu0, 6, none), *event;
    tmsg_status_t status;
    char out[6];

    must(cuda->copy_in(NULL, gpu0, data, "hello", 6, first));
    must(cuda->copy_out(NULL, gpu0, out, data, 6, second));
    must(cuda->event_record(NULL, gpu0, second, &event));
    while ((status = cuda->event_query(NULL, event)) == TMSG_IN_PROGRESS) {
    }
    must_be(status, TMSG_ERR_IO);
    faulted("unordered");
    cuda->event_free(NULL, event);
}

Test(fake_cuda, fails_on_a_deadlock)
{
    tmsg_stream_t app = new_stream(0);
    void *context = application_context(0);

    must_eq(fn->cuCtxPushCurrent(context), 0);
    fake->block(inside(app));
    must_eq(fn->cuStreamSynchronize(inside(app)), 700);
    faulted("deadlock");
}

Test(fake_cuda, has_memory_that_is_not_the_cpus)
{
    application_context(0);
    cr_expect(fake_untouchable(new_data(gpu0, 10, none)));
    cr_expect(fake_untouchable((void *)fake->alloc(0, 10, FAKE_MAPPED)));
    cr_expect_not(fake_untouchable((void *)fake->alloc(0, 10, FAKE_MANAGED)));
}
