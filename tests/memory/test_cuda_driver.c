/* SPDX-License-Identifier: BSD-3-Clause */
/* What is met where the CUDA driver and NVML should be. FAKES is the folder of
 * those that are none (tests/fakes). */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fakes/cuda.h"
#include "memory/cuda_driver.h"
#include "memory/domain.h"
#include "support/must.h"

static tmsg_cuda_driver_t driver;
static tmsg_nvml_t nvml;

static void met(const char *age, tmsg_cuda_outcome_t outcome, const char *why)
{
    char path[512];

    snprintf(path, sizeof(path), FAKES "/%s/libcuda.so.1", age);
    tmsg_cuda_driver_open(&driver, path);
    cr_assert_eq(driver.outcome, outcome, "%s: %s", age, driver.why);
    must_say(driver.why, why);
}

static const fake_cuda_t *control(const char *age)
{
    char path[512];
    void *library, *found;
    fake_cuda_fn fn;

    snprintf(path, sizeof(path), FAKES "/%s/libcuda.so.1", age);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    must_true(library != NULL);
    found = dlsym(library, "fake_cuda");
    memcpy(&fn, &found, sizeof(fn));
    return fn();
}

Test(cuda_driver, of_today)
{
    /* The streams of this driver go on when they are asked alone. */
    void *const lacks[] = {
        &driver.fn.cuLaunchHostFunc, &driver.fn.cuMemHostGetDevicePointer,
        &driver.fn.cuStreamWaitValue64, &driver.fn.cuStreamWriteValue32,
        &driver.fn.cuFlushGPUDirectRDMAWrites};

    met("new", TMSG_CUDA_READY,
        "a driver of CUDA 13.0 with 2 GPUs; it has all");
    cr_expect_eq(driver.version, 13000);
    cr_expect_eq(driver.devices, 2);
    for (size_t i = 0; i < sizeof(driver.fn) / sizeof(void *); i++) {
        void **function = &((void **)&driver.fn)[i];
        bool lacking = false;

        for (size_t j = 0; j < sizeof(lacks) / sizeof(lacks[0]); j++) {
            lacking |= function == lacks[j];
        }
        cr_expect_eq(*function == NULL, lacking, "function %zu", i);
    }
    cr_expect_str_eq(tmsg_cuda_outcome_name(driver.outcome), "ready");
}

/* Functions exist there under newer versions of another shape, and are asked
 * for by the version whose shape is known. */
Test(cuda_driver, is_asked_for_the_shapes_that_are_known)
{
    void *context;
    int device;

    met("new", TMSG_CUDA_READY, "13.0");
    cr_assert_eq(driver.fn.cuDevicePrimaryCtxRetain(&context, 0), 0);
    cr_assert_eq(driver.fn.cuCtxPushCurrent(context), 0);
    cr_assert_eq(driver.fn.cuCtxGetDevice(&device), 0);
    cr_assert_eq(driver.fn.cuStreamGetCtx((void *)1, &context), 0);
}

/* UCX hears of memory that is freed by patching what the library exports. */
Test(cuda_driver, frees_memory_where_ucx_hears_of_it)
{
    void *library;

    met("new", TMSG_CUDA_READY, "13.0");
    library = dlopen(FAKES "/new/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    must_true(library != NULL);
    cr_expect_eq((void *)driver.fn.cuMemFree, dlsym(library, "cuMemFree_v2"));
}

Test(cuda_driver, newer_than_is_known)
{
    setenv("FAKE_CUDA_VERSION", "14010", 1);
    met("new", TMSG_CUDA_READY, "CUDA 14.1 with 2 GPUs; newer");
}

Test(cuda_driver, with_one_gpu)
{
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    met("new", TMSG_CUDA_READY, "with 1 GPU;");
}

Test(cuda_driver, whose_lookup_does_not_tell_why)
{
    met("middle", TMSG_CUDA_READY, "CUDA 11.4 with 2 GPUs; it has all");
    cr_expect_neq(driver.fn.cuMemAllocAsync, NULL);
    cr_expect_neq(driver.fn.cuDeviceGetUuid, NULL);
}

Test(cuda_driver, without_what_can_be_done_without)
{
    met("old", TMSG_CUDA_READY, "CUDA 9.0 with 2 GPUs; without memory pools");
    cr_expect_eq(driver.fn.cuMemAllocAsync, NULL);
    cr_expect_eq(driver.fn.cuStreamGetCtx, NULL);
    cr_expect_eq(driver.fn.cuMemRetainAllocationHandle, NULL);
    cr_expect_eq(driver.fn.cuDeviceGetUuid, NULL);
    cr_expect_neq(driver.fn.cuDevicePrimaryCtxRelease, NULL);
}

Test(cuda_driver, without_what_is_needed)
{
    met("ancient", TMSG_CUDA_OLD_DRIVER,
        "the driver is of CUDA 6.5 and has no cuDevicePrimaryCtxGetState; GPUs "
        "are not used until");
    cr_expect_str_eq(tmsg_cuda_outcome_name(driver.outcome), "old driver");
    setenv("FAKE_CUDA_MISSING", "cuEventRecord", 1);
    met("new", TMSG_CUDA_OLD_DRIVER, "has no cuEventRecord");
}

Test(cuda_driver, that_lacks_even_what_starts_it)
{
    setenv("FAKE_CUDA_MISSING", "cuInit,cuDriverGetVersion", 1);
    met("new", TMSG_CUDA_OLD_DRIVER, "of CUDA 0.0 and has no cuInit");
}

Test(cuda_driver, without_each_function_in_turn)
{
    static const char *const optional[] = {
        "cuDeviceGetUuid",   "cuMemRetainAllocationHandle",
        "cuMemRelease",      "cuMemAllocAsync",
        "cuMemFreeAsync",    "cuMemAllocFromPoolAsync",
        "cuMemPoolCreate",   "cuMemPoolSetAttribute",
        "cuMemPoolDestroy",  "cuStreamGetCtx",
        "cuMemcpyBatchAsync"};
    static const char *const needed[] = {
        "cuGetErrorString",    "cuDeviceGetCount",    "cuDeviceGet",
        "cuDeviceGetName",     "cuDeviceGetPCIBusId", "cuCtxPushCurrent",
        "cuCtxPopCurrent",     "cuCtxGetCurrent",     "cuCtxGetDevice",
        "cuMemAlloc",          "cuMemFree",           "cuMemHostRegister",
        "cuMemHostUnregister", "cuMemcpyHtoDAsync",   "cuMemcpyDtoHAsync",
        "cuMemcpyAsync",       "cuStreamCreate",      "cuStreamDestroy",
        "cuStreamSynchronize", "cuStreamWaitEvent",   "cuEventCreate",
        "cuEventDestroy",      "cuEventQuery"};

    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        setenv("FAKE_CUDA_MISSING", optional[i], 1);
        met("new", TMSG_CUDA_READY, "13.0");
    }
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        setenv("FAKE_CUDA_MISSING", needed[i], 1);
        met("new", TMSG_CUDA_OLD_DRIVER, needed[i]);
    }
}

Test(cuda_driver, that_is_none)
{
    tmsg_cuda_driver_open(&driver, "libcuda-of-nobody.so.1");
    cr_assert_eq(driver.outcome, TMSG_CUDA_NO_DRIVER);
    must_say(driver.why, "no CUDA driver: libcuda-of-nobody.so.1: cannot open");
    must_say(driver.why, "; GPUs are not used");
}

Test(cuda_driver, that_is_the_stub)
{
    setenv("FAKE_CUDA_INIT", "34", 1);
    met("new", TMSG_CUDA_STUB, "is the stub of the CUDA toolkit, no driver");
    met("ancient", TMSG_CUDA_STUB, "stub");
}

/* The toolkit's own, where it is installed. */
Test(cuda_driver, that_is_the_toolkits_stub)
{
    static const char stub[] = "/usr/local/cuda/lib64/stubs/libcuda.so";

    if (access(stub, R_OK) == 0) {
        tmsg_cuda_driver_open(&driver, stub);
        cr_assert_eq(driver.outcome, TMSG_CUDA_STUB, "%s", driver.why);
    }
}

Test(cuda_driver, that_shows_no_device)
{
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    met("new", TMSG_CUDA_NO_DEVICE, "shows no GPU (CUDA_VISIBLE_DEVICES");
    setenv("FAKE_CUDA_INIT", "100", 1);
    met("new", TMSG_CUDA_NO_DEVICE, "shows no GPU");
    unsetenv("FAKE_CUDA_INIT");
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    setenv("FAKE_CUDA_COUNT", "0", 1);
    met("new", TMSG_CUDA_NO_DEVICE, "shows no GPU");
}

Test(cuda_driver, that_does_not_start)
{
    setenv("FAKE_CUDA_INIT", "999", 1);
    met("new", TMSG_CUDA_INIT_FAILED,
        "does not work, cuInit returned 999: something went wrong; GPUs are "
        "not");
    setenv("FAKE_CUDA_INIT", "998", 1);
    met("new", TMSG_CUDA_INIT_FAILED, "998: an unnamed error");
    setenv("FAKE_CUDA_MISSING", "cuGetErrorString", 1);
    met("new", TMSG_CUDA_INIT_FAILED, "998: an unnamed error");
}

Test(cuda_driver, whose_calls_fail_in_turn)
{
    const fake_cuda_t *fake = control("new");

    fake->arm(1, 3, FAKE_REFUSED);
    met("new", TMSG_CUDA_INIT_FAILED, "cuInit returned 3");
    fake->arm(2, 3, FAKE_REFUSED);
    met("new", TMSG_CUDA_READY, "CUDA 0.0");
    fake->arm(3, 3, FAKE_REFUSED);
    met("new", TMSG_CUDA_INIT_FAILED, "cuDeviceGetCount returned 3");
    cr_expect_eq(driver.devices, 0);
    cr_expect_str_eq(fake->disarm(), "cuDeviceGetCount");
}

Test(cuda_driver, explains_its_errors)
{
    met("new", TMSG_CUDA_READY, "13.0");
    must(tmsg_cuda_check(&driver, 0, "cuMemAlloc"));
    must_be(tmsg_cuda_check(&driver, 2, "cuMemAlloc"), TMSG_ERR_NO_MEMORY);
    cr_expect_str_eq(tmsg_error_message(), "cuMemAlloc: out of memory (2)");
    must_be(tmsg_cuda_check(&driver, 700, "cuEventQuery"), TMSG_ERR_IO);
}

/* As the process finds it: here there is none, or a real one. */
Test(cuda_driver, of_the_process_is_opened_once)
{
    const tmsg_cuda_driver_t *first = tmsg_cuda_driver();

    cr_expect_eq(tmsg_cuda_driver(), first);
    cr_expect_neq(first->why[0], '\0');
    cr_expect_str_eq(tmsg_cuda_report(), first->why);
    cr_expect_eq(tmsg_nvml(), tmsg_nvml());
    cr_expect_str_eq(tmsg_nvml_report(), tmsg_nvml()->why);
}

static void nvml_met(const char *age, int ready, const char *why)
{
    char path[512];

    snprintf(path, sizeof(path), FAKES "/%s/libnvidia-ml.so.1", age);
    tmsg_nvml_open(&nvml, path);
    must_say(nvml.why, why);
    cr_assert_eq(nvml.ready, ready, "%s", nvml.why);
}

static void identify(const char *age)
{
    tmsg_nvml_pci_t pci = {9, 9, 9};
    void *device;
    unsigned count;
    char text[96];

    nvml_met(age, 1, "NVML of driver");
    cr_assert_eq(nvml.fn.nvmlDeviceGetCount(&count), 0);
    cr_assert_eq(count, 2);
    cr_assert_eq(nvml.fn.nvmlDeviceGetHandleByIndex(1, &device), 0);
    cr_assert_eq(nvml.fn.pci(device, &pci), 0);
    cr_expect_eq(pci.domain, 0);
    cr_expect_eq(pci.bus, 0x34);
    cr_expect_eq(pci.device, 0);
    cr_assert_eq(nvml.fn.nvmlDeviceGetUUID(device, text, sizeof(text)), 0);
    cr_expect_str_eq(text, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    cr_expect_neq(nvml.fn.pci((void *)100, &pci), 0);
}

Test(nvml, of_today)
{
    identify("new");
    cr_expect_neq(nvml.fn.nvmlDeviceGetNumaNodeId, NULL);
    cr_expect_str_eq(nvml.version, "13.1");
}

Test(nvml, whose_structure_is_of_version_2)
{
    identify("old");
    cr_expect_eq(nvml.fn.nvmlDeviceGetNumaNodeId, NULL);
}

Test(nvml, that_is_not_ready)
{
    nvml_met("ancient", 0, "NVML is too old: it has no nvmlDeviceGetPciInfo");
    tmsg_nvml_open(&nvml, "libnvidia-ml-of-nobody.so.1");
    must_say(nvml.why, "no NVML: libnvidia-ml-of-nobody.so.1: cannot open");
    setenv("FAKE_NVML_INIT", "9", 1);
    nvml_met("new", 0, "nvmlInit returned 9: something went wrong");
}

Test(nvml, whose_version_is_unknown)
{
    setenv("FAKE_NVML_VERSION", "1", 1);
    nvml_met("new", 1, "NVML of driver unknown");
}
