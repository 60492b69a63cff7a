/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of the driver, and every allocation, failed in turn: calls that
 * are refused, and such as are done and answer with the failure of work before.
 */
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

/* How a run goes. */
typedef struct {
    int result; /* of the call that fails */
    fake_failing_t how;
    bool while_let_go;
    tmsg_stream_t stream;
} run_t;

static char host[4096];

/* Memory that is copied to without a stream, and on the library's own. */
static struct {
    char bytes[4];
    bool failed;
} out[2];

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

    memset(out, 0, sizeof(out));
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
        TRY(cuda->copy_out(NULL, gpu, out[0].bytes, held->plain, 4, none));
        out[0].failed = status != TMSG_OK;
    }
    TRY(cuda->stream(NULL, gpu, &own));
    if (held->plain != NULL && own.kind != TMSG_STREAM_NONE) {
        TRY(cuda->copy_out(NULL, gpu, out[1].bytes, held->plain, 4, own));
        out[1].failed = status != TMSG_OK;
    }
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

/* What is copied to memory that was not to be had is another's then. */
static void use_otherwise(void)
{
    for (int i = 0; i < 2; i++) {
        memset(out[i].bytes, out[i].failed ? '*' : 0, 4);
    }
}

static void must_be_untouched(void)
{
    for (int i = 0; i < 2; i++) {
        must_true(!out[i].failed || memcmp(out[i].bytes, "****", 4) == 0);
    }
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
    "cuMemRelease cuThreadExchangeStreamCaptureMode cuStreamIsCapturing "
    "cuMemPoolCreate cuMemPoolSetAttribute cuMemPoolDestroy "
    "cuDevicePrimaryCtxGetState cuCtxGetId";

/* What such a call makes nobody hears of, if it says that it made nothing. */
static const char makes_block[] =
    "cuMemAlloc_v2 cuMemAllocFromPoolAsync cuMemAllocAsync";
static const char makes_event[] = "cuEventCreate";

static void *current; /* of the application's, while all happens, or NULL */

/* One that is not popped at once is popped then. */
static void must_be_restored(void)
{
    void *context;
    int mode = 0;

    if (fn->cuThreadExchangeStreamCaptureMode != NULL) {
        must_eq(fn->cuThreadExchangeStreamCaptureMode(&mode), 0);
        must_eq(mode, 0);
    }
    must_eq(fake->depth(), current != NULL);
    must_eq(fn->cuCtxGetCurrent(&context), 0);
    must_true(context == current);
}

/* The n-th call fails; NULL: there are not so many. */
static const char *fail_call(const run_t *run, unsigned long n)
{
    tmsg_status_t status = TMSG_OK;
    held_t held = {NULL};
    const char *failed;

    if (run->while_let_go) {
        must(use_all(&held, run->stream));
        fake->arm(n, run->result, run->how);
        let_go(&held, run->stream);
        return fake->disarm();
    }
    fake->arm(n, run->result, run->how);
    status = use_all(&held, run->stream);
    failed = fake->disarm();
    must_be_restored();
    use_otherwise();
    let_go(&held, run->stream);
    if (failed == NULL) {
        must(status);
    } else if (status == TMSG_OK && !is_one_of(failed, done_without)) {
        die("%s failed, and nobody said so", failed);
    }
    return failed;
}

/* False: no call failed. */
static bool fail_one(const run_t *run, unsigned long n)
{
    bool done = run->how == FAKE_DONE;
    int blocks, events;
    const char *failed;

    tmsg_cuda_forget();
    blocks = fake->blocks();
    events = fake->events();
    failed = fail_call(run, n);
    must_be_restored();
    cuda->unpin(NULL, host, sizeof(host)); /* if it still is */
    /* what nobody waits for is not in order with what follows */
    if (fake->fault() != NULL &&
        (failed == NULL || !is_one_of(failed, "cuStreamWaitEvent"))) {
        die("%s failed: %s", failed, fake->fault());
    }
    fake->fault_clear();
    settle(run->stream);
    settle(app);
    fake->fault_clear();
    if (failed == NULL) {
        return false;
    }
    if (!run->while_let_go) {
        must_be_untouched();
    }
    tmsg_cuda_forget_events();
    if (!run->while_let_go && run->how != FAKE_DONE_ALWAYS) {
        must_eq(fake->blocks(),
                blocks + (done && is_one_of(failed, makes_block)));
        must_eq(fake->events(),
                events + (done && is_one_of(failed, makes_event)));
    }
    return true;
}

static void fail_all(int result, bool while_let_go, tmsg_stream_t stream)
{
    for (int how = FAKE_REFUSED; how <= FAKE_DONE_ALWAYS; how++) {
        const run_t run = {result, (fake_failing_t)how, while_let_go, stream};
        unsigned long n = 1;

        while (fail_one(&run, n)) {
            must_true(++n < ALL);
        }
        cr_assert(n > 5, "%lu", n);
    }
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
        tmsg_cuda_forget_events();
        must_eq(fake->events(), 0);
        must_eq(fake->blocks(), 0);
    }
}
