/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.c - questions to a CUDA driver, by its API alone. One line each,
 * "question | answer"; a line that begins with "fact" differs by machine. On a
 * GPU the answers are what the simulated driver (gpu/sim) has to give as well:
 * probe.txt holds them, and each line that differs is a defect of the
 * simulation.
 *
 * Exit: 0 all were asked, 1 a process of the questions' ended early, 3 there is
 * no driver or no GPU. */
#include "gpu/probe.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOUND_S 20 /* for the questions of one process */

driver_t cu;

static const char kernels[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry fault()\n{\n"
    " .reg .b64 %a;\n .reg .b32 %v;\n"
    " mov.u64 %a, 8;\n mov.u32 %v, 1;\n st.global.u32 [%a], %v;\n ret;\n}\n"
    ".visible .entry hold(.param .u64 go)\n{\n"
    " .reg .pred %p;\n .reg .b32 %v;\n .reg .b64 %g, %t0, %t;\n"
    " ld.param.u64 %g, [go];\n mov.u64 %t0, %globaltimer;\n"
    "again:\n ld.volatile.global.u32 %v, [%g];\n"
    " setp.ne.u32 %p, %v, 0;\n @%p bra done;\n"
    " mov.u64 %t, %globaltimer;\n sub.u64 %t, %t, %t0;\n"
    " setp.lt.u64 %p, %t, 5000000000;\n @%p bra again;\n"
    "done:\n ret;\n}\n";

const char *named(int result)
{
    static char number[32];
    const char *name = NULL;

    cu.cuGetErrorName(result, &name);
    if (name == NULL) {
        snprintf(number, sizeof(number), "error %d", result);
        return number;
    }
    return name + (strncmp(name, "CUDA_ERROR_", 11) == 0 ? 11 : 5);
}

void answer(const char *question, const char *format, ...)
{
    va_list args;

    printf("%s | ", question);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void need(int result, const char *call)
{
    if (result != 0) {
        answer("needed", "%s said %s", call, named(result));
        _exit(1);
    }
}

void *begin(void)
{
    void *context;

    NEED(cu.cuInit(0));
    NEED(cu.cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cu.cuCtxPushCurrent_v2(context));
    return context;
}

void *new_stream(void)
{
    void *stream;

    NEED(cu.cuStreamCreate(&stream, 1));
    return stream;
}

void *new_event(void)
{
    void *event;

    NEED(cu.cuEventCreate(&event, 2));
    return event;
}

uint64_t new_memory(size_t bytes)
{
    uint64_t address;

    NEED(cu.cuMemAlloc_v2(&address, bytes));
    return address;
}

int *new_go(void)
{
    void *go;

    NEED(cu.cuMemHostAlloc(&go, sizeof(int), 0));
    *(int *)go = 0;
    return go;
}

static int launch(const char *name, void *stream, void **args)
{
    static void *module;
    void *function;

    if (module == NULL) {
        NEED(cu.cuModuleLoadData(&module, kernels));
    }
    NEED(cu.cuModuleGetFunction(&function, module, name));
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

int hold(void *stream, int *go)
{
    uint64_t address = (uint64_t)(uintptr_t)go;
    void *args[] = {&address};

    return launch("hold", stream, args);
}

int fault(void *stream) { return launch("fault", stream, NULL); }

static int open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *found;

    if (library == NULL) {
        printf("no driver: %s\n", dlerror());
        return 3;
    }
#define PROBE_FUNCTION(name, args)                                             \
    found = dlsym(library, #name);                                             \
    if (found == NULL) {                                                       \
        printf("the driver has no %s\n", #name);                               \
        return 3;                                                              \
    }                                                                          \
    memcpy(&cu.name, &found, sizeof(found));
    PROBE_FUNCTIONS(PROBE_FUNCTION)
#undef PROBE_FUNCTION
    return 0;
}

/* UCX's hooks are on the exported functions; the library calls what
 * cuGetProcAddress() says. */
static void ask_symbols(void)
{
    static const struct {
        const char *name, *symbol;
        int version;
    } asked[] = {{"cuMemAlloc", "cuMemAlloc_v2", 3020},
                 {"cuMemFree", "cuMemFree_v2", 3020},
                 {"cuMemAllocAsync", "cuMemAllocAsync", 11020},
                 {"cuMemFreeAsync", "cuMemFreeAsync", 11020},
                 {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000}};
    char question[80];
    void *found;
    int why = -1;

    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        cu.cuGetProcAddress_v2(asked[i].name, &found, asked[i].version, 1,
                               &why);
        snprintf(question, sizeof(question), "symbols: %s", asked[i].name);
        answer(question, "%s",
               found == dlsym(RTLD_DEFAULT, asked[i].symbol)
                   ? "is the exported one"
                   : "is another function");
    }
    ASK("symbols: one that is not there",
        cu.cuGetProcAddress_v2("cuNoSuchThing", &found, 13000, 0, &why));
    answer("symbols: why", "%d", why);
}

static void ask_facts(void)
{
    char name[100] = "";
    int version = 0, count = 0;

    NEED(cu.cuInit(0));
    cu.cuDriverGetVersion(&version);
    cu.cuDeviceGetCount(&count);
    cu.cuDeviceGetName(name, sizeof(name), 0);
    answer("fact: driver", "%d", version);
    answer("fact: devices", "%d, %s", count, name);
}

static int run(void (*ask)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(BOUND_S);
        ask();
        fflush(stdout);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        printf("ended early | %#x\n", (unsigned)status);
        fflush(stdout);
        return 1;
    }
    return 0;
}

static void look(void) { _exit(cu.cuInit(0) == 0 ? 0 : 3); }

int main(void)
{
    static void (*const parts[])(void) = {
        ask_facts, ask_symbols, ask_contexts,       ask_kinds,
        ask_order, ask_host,    ask_capture,        ask_reset,
        ask_fork,  ask_sharing, ask_sharing_events, ask_sticky};
    int failed = 0;

    if (open_driver() != 0) {
        return 3;
    }
    if (run(look) != 0) {
        return 3;
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        failed |= run(parts[i]);
    }
    return failed;
}
