/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of the driver, and every allocation, failed in turn. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/cuda.h"
#include "memory/cuda.h"
#include "support/failing_alloc.h"
#include "support/must.h"

#define ALL 10000

static const tmsg_stream_t none;
static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};
static const tmsg_domain_t *const cuda = &tmsg_domain_cuda;
static const tmsg_cuda_functions_t *fn;
static const fake_cuda_t *fake;
static tmsg_stream_t app;

/* What a run has, and lets go. */
typedef struct {
    void *plain, *ordered, *event;
    bool pinned;
} held_t;

static char host[4096];

static void open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library == NULL ? NULL : dlsym(library, "fake_cuda");
    void *context, *stream;
    fake_cuda_fn get;

    must_true(found != NULL);
    memcpy(&get, &found, sizeof(get));
    fake = get();
    fn = &tmsg_cuda_driver()->fn;
    must_eq(fn->cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_eq(fn->cuCtxPushCurrent(context), 0);
    must_eq(fn->cuStreamCreate(&stream, 1), 0);
    must_eq(fn->cuCtxPopCurrent(&context), 0);
    app = (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream};
}

TestSuite(cuda_failures, .init = open_cuda);

/* Goes on after a failure, as far as what failed is not needed. */
static tmsg_status_t use_all(held_t *held, tmsg_stream_t stream)
{
    tmsg_device_identity_t identity;
    tmsg_status_t failed = TMSG_OK, status;
    tmsg_stream_t own = none;
    tmsg_memory_t memory;
    static char out[4]; /* a copy may outlive the call that failed */

#define TRY(call)                                                              \
    do {                                                                       \
        status = (call);                                                       \
        if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {                 \
            must_true(tmsg_error_message()[0] != '\0');                        \
            failed = status;                                                   \
        }                                                                      \
    } while (0)

    TRY(cuda->identify(NULL, gpu, &identity));
    TRY(cuda->alloc(NULL, gpu, 100, 64, none, &held->plain));
    TRY(cuda->alloc(NULL, gpu, 100, 64, stream, &held->ordered));
    TRY(cuda->pin(NULL, host, sizeof(host)));
    held->pinned = status == TMSG_OK;
    TRY(tmsg_memory_query(host, &memory));
    if (held->plain != NULL) {
        TRY(tmsg_memory_query(held->plain, &memory));
        TRY(cuda->copy_in(NULL, gpu, held->plain, host, 4, none));
        TRY(cuda->copy_out(NULL, gpu, out, held->plain, 4, none));
    }
    TRY(cuda->stream(NULL, gpu, &own));
    if (held->ordered != NULL) {
        TRY(cuda->copy_in(NULL, gpu, held->ordered, host, 4, stream));
    }
    TRY(cuda->event_record(NULL, gpu, stream, &held->event));
    if (held->event != NULL && own.kind != TMSG_STREAM_NONE) {
        TRY(cuda->event_wait(NULL, gpu, held->event, own));
        TRY(cuda->event_query(NULL, held->event));
    }
    return failed;
}

static void let_go(held_t *held, tmsg_stream_t stream)
{
    if (held->event != NULL) {
        cuda->event_free(NULL, held->event);
    }
    if (held->pinned) {
        cuda->unpin(NULL, host, sizeof(host));
    }
    if (held->ordered != NULL) {
        cuda->free(NULL, gpu, held->ordered, 100, stream);
    }
    if (held->plain != NULL) {
        cuda->free(NULL, gpu, held->plain, 100, none);
    }
}

/* What waits for streams goes, with nothing failing. */
static void settle(tmsg_stream_t stream)
{
    void *event, *data;
    tmsg_stream_t own;

    must(cuda->stream(NULL, gpu, &own));
    for (int i = 0; i < 2; i++) {
        must(cuda->event_record(NULL, gpu, i == 0 ? own : stream, &event));
        while (cuda->event_query(NULL, event) == TMSG_IN_PROGRESS) {
        }
        cuda->event_free(NULL, event);
    }
    must(cuda->alloc(NULL, gpu, 1, 1, none, &data));
    cuda->free(NULL, gpu, data, 1, none);
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

/* Calls that may fail, and what they were for is done in another way. */
static const char done_without[] =
    "cuCtxPopCurrent_v2 cuDeviceGetName cuDeviceGetUuid_v2 cuDeviceGetUuid "
    "cuDeviceGetPCIBusId cuDeviceGetAttribute cuDeviceGet cuCtxGetCurrent "
    "cuCtxGetDevice cuPointerGetAttributes cuMemRetainAllocationHandle "
    "cuMemRelease";

static void *current; /* of the application's, while all happens, or NULL */

/* One that is not popped at once is popped then. */
static void must_be_restored(void)
{
    void *context;

    must_eq(fake->depth(), current != NULL);
    must_eq(fn->cuCtxGetCurrent(&context), 0);
    must_true(context == current);
}

/* The n-th call fails while all is used, or while it is let go. */
static bool fail_one(unsigned long n, int result, bool while_let_go,
                     tmsg_stream_t stream)
{
    held_t held = {NULL};
    tmsg_status_t status = TMSG_OK;
    const char *failed;
    int blocks;

    tmsg_cuda_forget();
    blocks = fake->blocks();
    if (!while_let_go) {
        fake->arm(n, result);
        status = use_all(&held, stream);
        failed = fake->disarm();
        let_go(&held, stream);
    } else {
        must(use_all(&held, stream));
        fake->arm(n, result);
        let_go(&held, stream);
        failed = fake->disarm();
    }
    if (failed == NULL) {
        must(status);
        return false;
    }
    must_be_restored();
    cuda->unpin(NULL, host, sizeof(host)); /* if it still is */
    /* what a wait failed for is not in order with what follows */
    if (!is_one_of(failed, "cuStreamSynchronize cuStreamWaitEvent") &&
        fake->fault() != NULL) {
        die("%s failed: %s", failed, fake->fault());
    }
    fake->fault_clear();
    settle(stream);
    settle(app);
    fake->fault_clear();
    if (!while_let_go) {
        must_eq(fake->blocks(), blocks);
        must_eq(fake->events(), 0);
        if (status == TMSG_OK && !is_one_of(failed, done_without)) {
            die("%s failed, and nobody said so", failed);
        }
    }
    return true;
}

static void fail_all(int result, bool while_let_go, tmsg_stream_t stream)
{
    unsigned long n = 1;

    while (fail_one(n, result, while_let_go, stream)) {
        must_true(++n < ALL);
    }
    cr_assert(n > 5, "%lu", n);
}

static const tmsg_stream_t legacy = {TMSG_STREAM_CUDA, 1};

/* The application has a context of another device current, which it has not
 * named: that stays current, and nothing is made on its device. */
static void fail_beside(tmsg_stream_t stream, bool while_let_go)
{
    void *context;

    current = fake->context(1);
    must_eq(fn->cuCtxPushCurrent(current), 0);
    fail_all(999, while_let_go, stream);
    must_eq(fake->primary_uses(1), 0);
    must_eq(fn->cuCtxPopCurrent(&context), 0);
    must_eq(fake->depth(), 0);
    free(current);
    current = NULL;
}

Test(cuda_failures, of_any_call_are_told) { fail_all(999, false, app); }
Test(cuda_failures, of_memory_are_told) { fail_all(2, false, app); }
Test(cuda_failures, of_values_are_told) { fail_all(1, false, app); }
Test(cuda_failures, on_a_default_stream_are_told)
{
    fail_all(999, false, legacy);
}
Test(cuda_failures, leave_the_context_of_another_device_current)
{
    fail_beside(app, false);
}
Test(cuda_failures, on_a_default_stream_leave_it_current)
{
    fail_beside(legacy, false);
}
Test(cuda_failures, while_things_end_leave_it_current)
{
    fail_beside(app, true);
}
Test(cuda_failures, while_things_end_do_no_harm) { fail_all(999, true, app); }
Test(cuda_failures, while_things_end_on_a_default_stream_do_no_harm)
{
    fail_all(999, true, legacy);
}

Test(cuda_failures, without_pools_are_told)
{
    setenv("FAKE_CUDA_POOLS", "0", 1);
    fail_all(999, false, app);
    fail_all(999, true, app);
}

Test(cuda_failures, of_the_process_to_allocate_are_told)
{
    bool failed = true;

    setenv("FAKE_CUDA_POOLS", "0", 1); /* which needs a record for a free */
    for (unsigned long n = 1; failed; n++) {
        held_t held = {NULL};

        tmsg_cuda_forget();
        failing_alloc_arm(n);
        use_all(&held, app);
        let_go(&held, app);
        failed = failing_alloc_disarm();
        must_eq(fake->depth(), 0);
        must_true(fake->fault() == NULL);
        settle(app);
        must_eq(fake->events(), 0);
        must_eq(fake->blocks(), 0);
    }
}
