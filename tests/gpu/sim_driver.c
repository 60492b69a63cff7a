/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/sim_driver.h"

#include <dlfcn.h>
#include <string.h>

#include "support/must.h"

static void find(const char *name, void *function_p)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library == NULL ? NULL : dlsym(library, name);

    if (found == NULL) {
        die("the simulated driver has no %s", name);
    }
    memcpy(function_p, &found, sizeof(found));
}

const sim_cuda_t *sim_open(const sim_symbol_t *symbols)
{
    sim_cuda_fn get;

    find("sim_cuda", &get);
    for (; symbols->name != NULL; symbols++) {
        find(symbols->name, symbols->function_p);
    }
    return get();
}

void sim_enter(void)
{
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*init)(unsigned flags);
    void *context;

    find("cuInit", &init);
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxPushCurrent_v2", &push);
    must_eq(init(0), 0);
    must_eq(retain(&context, 0), 0);
    must_eq(push(context), 0);
}
