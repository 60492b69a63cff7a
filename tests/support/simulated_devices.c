/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/simulated_devices.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "memory/cuda.h"
#include "memory/device_ipc.h"
#include "memory/domain.h"
#include "support/must.h"
#include "support/simulated_device.h"

bool devices_are_cuda(void)
{
    const char *which = getenv("TEST_DEVICES");

    return which != NULL && strcmp(which, "cuda") == 0;
}

const fake_cuda_t *devices_driver(void)
{
    static const fake_cuda_t *fake;
    fake_cuda_fn get;
    void *library, *found;

    if (fake == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        found = library == NULL ? NULL : dlsym(library, "fake_cuda");
        must_true(found != NULL);
        memcpy(&get, &found, sizeof(get));
        fake = get();
    }
    return fake;
}

tmsg_device_t device_at(int32_t id)
{
    return devices_are_cuda() ? (tmsg_device_t){TMSG_DEVICE_CUDA, id}
                              : accelerator_device(id);
}

const tmsg_domain_t *device_domain(void)
{
    const tmsg_domain_t *domain;

    must(tmsg_domain_find(device_at(0), &domain));
    return domain;
}

void devices_begin(void)
{
    const tmsg_domain_t *domain;

    if (devices_are_cuda()) {
        setenv("FAKE_CUDA_DEVICES", "4", 1);
        for (int32_t id = 0; id < FAKE_DEVICES; id++) {
            must(tmsg_domain_use(device_at(id)));
        }
    } else if (tmsg_domain_find(device_at(0), &domain) != TMSG_OK) {
        must(tmsg_domain_register(&accelerator));
    }
}

void devices_finish(void)
{
    (devices_are_cuda() ? devices_driver()->finish : fake_finish)();
}

/* Memory that was freed behind a stream, and comes from no pool, is freed when
 * memory is next asked for, and beside the caller. */
static void give_back(void)
{
    static const tmsg_stream_t none;
    void *data;

    if (device_domain()->alloc(NULL, device_at(0), 1, 64, none, &data) ==
        TMSG_OK) {
        device_domain()->free(NULL, device_at(0), data, 1, none);
    }
    must_true(tmsg_ipc_settle(10000) && tmsg_cuda_settle(10000));
    devices_finish();
}

void devices_end(void)
{
    const char *fault =
        devices_are_cuda() ? devices_driver()->fault() : fake_fault();

    if (fault != NULL) {
        die("%s", fault);
    }
    devices_finish();
    /* What is freed on threads beside: the first gives it to the second. */
    must_true(tmsg_ipc_settle(20000) && tmsg_cuda_settle(20000));
    if (devices_are_cuda()) {
        give_back();
        tmsg_cuda_forget_events();
    }
    must_eq(devices_are_cuda() ? devices_driver()->events() : fake_events(), 0);
    must_eq(devices_are_cuda() ? devices_driver()->blocks() : fake_blocks(), 0);
}

static void *inside(tmsg_stream_t stream)
{
    return (void *)(uintptr_t)stream.handle;
}

tmsg_stream_t device_stream(int32_t id)
{
    return devices_are_cuda()
               ? (tmsg_stream_t){TMSG_STREAM_CUDA,
                                 (uint64_t)(uintptr_t)devices_driver()->stream(
                                     id)}
               : accelerator_stream(id);
}

void device_block(tmsg_stream_t stream)
{
    if (devices_are_cuda()) {
        devices_driver()->block(inside(stream));
    } else {
        fake_block(accelerator_inside(stream));
    }
}

void device_unblock(tmsg_stream_t stream)
{
    if (devices_are_cuda()) {
        devices_driver()->unblock(inside(stream));
    } else {
        fake_unblock(accelerator_inside(stream));
    }
}

void device_peek(void *to, const void *from, size_t bytes)
{
    (devices_are_cuda() ? devices_driver()->peek
                        : fake_peek)(to, (uintptr_t)from, bytes);
}

void device_poke(void *to, const void *from, size_t bytes)
{
    (devices_are_cuda() ? devices_driver()->poke : fake_poke)((uintptr_t)to,
                                                              from, bytes);
}
