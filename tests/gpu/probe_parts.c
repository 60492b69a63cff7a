/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions of probe.c that one process asks alone. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/probe.h"

#define MIB (1u << 20)

static void nothing(void *arg) { (void)arg; }

static void nothing_more(void *stream, int status, void *arg)
{
    (void)stream;
    (void)status;
    (void)arg;
}

/* What may be called with no context current. */
void ask_contexts(void)
{
    uint64_t memory, more, base;
    void *context, *stream, *event, *other;
    int device, type;
    size_t bytes;
    char *host = aligned_alloc(4096, 4096);

    ASK("before cuInit: cuDeviceGetCount", cu.cuDeviceGetCount(&device));
    begin();
    stream = new_stream();
    event = new_event();
    memory = new_memory(MIB);
    NEED(cu.cuCtxPopCurrent_v2(&context));
    ASK("no context: cuCtxPopCurrent", cu.cuCtxPopCurrent_v2(&other));
    ASK("no context: cuCtxGetCurrent", cu.cuCtxGetCurrent(&other));
    answer("no context: current", "%s", other == NULL ? "none" : "one");
    ASK("no context: cuCtxGetDevice", cu.cuCtxGetDevice(&device));
    ASK("no context: cuMemAlloc", cu.cuMemAlloc_v2(&more, MIB));
    ASK("no context: cuMemAllocAsync", cu.cuMemAllocAsync(&more, MIB, stream));
    ASK("no context: cuMemcpyAsync",
        cu.cuMemcpyAsync(memory, memory + 4096, 64, stream));
    ASK("no context: cuMemcpyDtoDAsync",
        cu.cuMemcpyDtoDAsync_v2(memory, memory + 4096, 64, stream));
    ASK("no context: cuMemHostRegister",
        cu.cuMemHostRegister_v2(host, 4096, 1));
    ASK("no context: cuMemGetAddressRange",
        cu.cuMemGetAddressRange_v2(&base, &bytes, memory));
    ASK("no context: cuPointerGetAttribute",
        cu.cuPointerGetAttribute(&type, 2, memory));
    ASK("no context: cuStreamCreate", cu.cuStreamCreate(&other, 1));
    ASK("no context: cuStreamGetCtx", cu.cuStreamGetCtx(stream, &other));
    ASK("no context: cuStreamQuery", cu.cuStreamQuery(stream));
    ASK("no context: cuStreamSynchronize", cu.cuStreamSynchronize(stream));
    ASK("no context: cuStreamWaitEvent",
        cu.cuStreamWaitEvent(stream, event, 0));
    ASK("no context: cuLaunchHostFunc",
        cu.cuLaunchHostFunc(stream, nothing, NULL));
    ASK("no context: cuStreamAddCallback",
        cu.cuStreamAddCallback(stream, nothing_more, NULL, 0));
    ASK("no context: cuEventCreate", cu.cuEventCreate(&other, 2));
    ASK("no context: cuEventRecord", cu.cuEventRecord(event, stream));
    ASK("no context: cuEventQuery", cu.cuEventQuery(event));
    ASK("no context: cuEventSynchronize", cu.cuEventSynchronize(event));
    ASK("no context: cuEventDestroy", cu.cuEventDestroy_v2(event));
    ASK("no context: cuStreamDestroy", cu.cuStreamDestroy_v2(stream));
    ASK("no context: cuMemFree", cu.cuMemFree_v2(memory));
}

static void tell_kind(const char *kind, uint64_t address)
{
    static const int attributes[] = {1, 2, 8, 9, 10, 14, 17, 11, 12};
    uint64_t context = 0, types = 0, pool = 0, base = 0, bytes = 0, handle;
    unsigned type = 0, managed = 0, legacy = 0;
    int ordinal = -9, alone = 0, result;
    void *values[] = {&context, &type, &managed, &ordinal, &legacy,
                      &types,   &pool, &base,    &bytes};
    char question[80];
    ipc_handle_t ipc;

    result = cu.cuPointerGetAttributes(9, attributes, values, address);
    snprintf(question, sizeof(question), "kind: %s", kind);
    answer(question,
           "%s, context %d, type %u, managed %u, ordinal %d, legacy IPC %u, "
           "handle types %u, pool %d, begins there %d, %llu bytes",
           named(result), context != 0, type, managed, ordinal, legacy & 1,
           (unsigned)types, pool != 0, base == address,
           (unsigned long long)bytes);
    snprintf(question, sizeof(question), "kind: %s, its type asked alone",
             kind);
    ASK(question, cu.cuPointerGetAttribute(&alone, 2, address));
    snprintf(question, sizeof(question), "kind: %s, retained", kind);
    result =
        cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    ASK(question, result);
    snprintf(question, sizeof(question), "kind: %s, exported", kind);
    ASK(question, cu.cuIpcGetMemHandle(&ipc, address));
    snprintf(question, sizeof(question), "kind: %s, its range", kind);
    ASK(question, cu.cuMemGetAddressRange_v2(&base, &bytes, address));
}

static uint64_t map_memory(int handle_types)
{
    const struct {
        int type, handle_types, location_type, location_id;
        uint64_t rest[3];
    } props = {1, handle_types, 1, 0, {0}};
    const int access[] = {1, 0, 3};
    uint64_t handle, address;

    NEED(cu.cuMemCreate(&handle, 2 * MIB, &props, 0));
    NEED(cu.cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    NEED(cu.cuMemMap(address, 2 * MIB, 0, handle, 0));
    NEED(cu.cuMemSetAccess(address, 2 * MIB, access, 1));
    NEED(cu.cuMemRelease(handle));
    return address;
}

void ask_kinds(void)
{
    static char pageable[4096];
    uint64_t pooled, managed;
    void *host, *stream;

    begin();
    stream = new_stream();
    NEED(cu.cuMemAllocAsync(&pooled, 3 * MIB, stream));
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuMemAllocManaged(&managed, 65536, 1));
    NEED(cu.cuMemHostAlloc(&host, 65536, 0));
    tell_kind("cuMemAlloc of 1000 B", new_memory(1000));
    tell_kind("cuMemAlloc of 3 MiB", new_memory(3 * MIB));
    tell_kind("cuMemAllocAsync", pooled);
    tell_kind("cuMemAllocManaged", managed);
    tell_kind("cuMemMap, no handle", map_memory(0));
    tell_kind("cuMemMap, file descriptor", map_memory(1));
    tell_kind("cuMemHostAlloc", (uint64_t)(uintptr_t)host);
    tell_kind("pageable", (uint64_t)(uintptr_t)pageable);
    ASK("free: a pool's memory by cuMemFree", cu.cuMemFree_v2(pooled));
    ASK("free: NULL", cu.cuMemFree_v2(0));
    ASK("free: what is none", cu.cuMemFree_v2(4096));
    ASK("alloc: 0 bytes", cu.cuMemAlloc_v2(&pooled, 0));
}

static int inside_said;

static void call_inside(void *arg) { inside_said = cu.cuStreamQuery(arg); }

static void note(void *arg) { *(volatile int *)arg = 1; }

/* Order of work, and who waits. */
void ask_order(void)
{
    volatile int noted = 0;
    uint64_t memory, other;
    void *held, *free_one, *blocking, *event, *context;
    char host[64] = {1}, back[64] = {0};
    int *go;

    context = begin();
    go = new_go();
    held = new_stream();
    free_one = new_stream();
    NEED(cu.cuStreamCreate(&blocking, 0));
    event = new_event();
    memory = new_memory(4096);
    other = new_memory(4096);
    NEED(cu.cuCtxSynchronize());
    ASK("order: an event that was never recorded", cu.cuEventQuery(event));
    *go = 1;
    NEED(hold(held, go)); /* a module may be loaded now */
    NEED(cu.cuStreamSynchronize(held));
    *go = 0;
    NEED(hold(held, go));
    NEED(cu.cuMemcpyDtoDAsync_v2(other, memory, 64, held));
    NEED(cu.cuEventRecord(event, held));
    ASK("order: an event behind a waiting kernel", cu.cuEventQuery(event));
    ASK("order: the stream of that kernel", cu.cuStreamQuery(held));
    NEED(cu.cuLaunchHostFunc(free_one, note, (void *)&noted));
    ASK("order: another stream beside it", cu.cuStreamSynchronize(free_one));
    answer("order: its function", "%s", noted ? "was called" : "was not");
    ASK("order: the legacy stream beside it", cu.cuStreamSynchronize(NULL));
    NEED(cu.cuStreamWaitEvent(free_one, event, 0));
    ASK("order: a stream that waits for the event", cu.cuStreamQuery(free_one));
    *go = 1;
    ASK("order: once it is let go", cu.cuStreamSynchronize(free_one));
    ASK("order: the event then", cu.cuEventQuery(event));
    *go = 0;
    NEED(hold(blocking, go));
    NEED(cu.cuMemsetD8_v2(memory, 7, 64)); /* in the legacy stream */
    ASK("order: the legacy stream behind a blocking one",
        cu.cuStreamQuery((void *)1));
    *go = 1;
    ASK("order: both let go", cu.cuCtxSynchronize());
    NEED(cu.cuMemcpyHtoDAsync_v2(memory, host, 64, held));
    host[0] = 2;
    NEED(cu.cuMemcpyDtoHAsync_v2(back, memory, 64, held));
    answer("order: pageable memory that is changed after the call", "%d",
           back[0]);
    NEED(cu.cuLaunchHostFunc(held, call_inside, held));
    NEED(cu.cuStreamSynchronize(held));
    ASK("order: a call within a host function", inside_said);
    noted = 0;
    NEED(hold(held, go));
    NEED(cu.cuLaunchHostFunc(held, note, (void *)&noted));
    ASK("order: a stream that is destroyed", cu.cuStreamDestroy_v2(held));
    NEED(cu.cuCtxSynchronize());
    answer("order: its work", "%s", noted ? "was done" : "was not done");
    ASK("order: a flag of cuStreamCreate that is none",
        cu.cuStreamCreate(&held, 64));
    (void)context;
}

static void read_memory(uint64_t address)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)address == 1 ? 1 : 0);
    }
    waitpid(pid, &status, 0);
    answer("host: reading cuMemAlloc's memory", "%s",
           WIFSIGNALED(status) ? "kills" : "works");
}

/* Memory of the host, and the host's hand on the device's. */
void ask_host(void)
{
    char *host = aligned_alloc(4096, 16384);
    uint64_t managed;
    void *stream;

    begin();
    stream = new_stream();
    read_memory(new_memory(4096));
    NEED(cu.cuMemAllocManaged(&managed, 65536, 1));
    *(volatile char *)(uintptr_t)managed = 1;
    answer("host: writing managed memory", "works");
    ASK("host: registered", cu.cuMemHostRegister_v2(host, 8192, 1));
    ASK("host: again", cu.cuMemHostRegister_v2(host, 8192, 1));
    ASK("host: overlapping", cu.cuMemHostRegister_v2(host + 4096, 8192, 1));
    ASK("host: unregistered from its middle",
        cu.cuMemHostUnregister(host + 4096));
    ASK("host: unregistered", cu.cuMemHostUnregister(host));
    ASK("host: again unregistered", cu.cuMemHostUnregister(host));
    ASK("host: a copy to what is no device's",
        cu.cuMemcpyDtoDAsync_v2((uint64_t)(uintptr_t)host,
                                (uint64_t)(uintptr_t)host + 64, 64, stream));
}

/* A thread that calls one function beside a capture. */
typedef struct {
    const char *name;
    int (*call)(void);
} beside_t;

static struct {
    void *context, *other, *event, *blocking;
    uint64_t memory, more, freed;
    char *host;
    int mode, said;
} scene;

static int query_event(void) { return cu.cuEventQuery(scene.event); }
static int query_stream(void) { return cu.cuStreamQuery(scene.other); }
static int wait_stream(void) { return cu.cuStreamSynchronize(scene.other); }
static int wait_event(void) { return cu.cuEventSynchronize(scene.event); }
static int alloc(void) { return cu.cuMemAlloc_v2(&scene.more, 4096); }
static int alloc_async(void)
{
    return cu.cuMemAllocAsync(&scene.more, 4096, scene.other);
}
static int copy_async(void)
{
    return cu.cuMemcpyDtoDAsync_v2(scene.memory, scene.memory + 512, 64,
                                   scene.other);
}
static int record(void) { return cu.cuEventRecord(scene.event, scene.other); }
static int stream_waits(void)
{
    return cu.cuStreamWaitEvent(scene.other, scene.event, 0);
}
static int pin(void) { return cu.cuMemHostRegister_v2(scene.host, 4096, 1); }
static int make_event(void)
{
    void *event;

    return cu.cuEventCreate(&event, 2);
}
static int make_stream(void)
{
    void *stream;

    return cu.cuStreamCreate(&stream, 1);
}
static int host_function(void)
{
    return cu.cuLaunchHostFunc(scene.other, nothing, NULL);
}
static int attributes(void)
{
    static const int asked[] = {2};
    unsigned type;
    void *values[] = {&type};

    return cu.cuPointerGetAttributes(1, asked, values, scene.memory);
}
static int copy_sync(void)
{
    return cu.cuMemcpyDtoH_v2(scene.host, scene.memory, 64);
}
static int wait_context(void) { return cu.cuCtxSynchronize(); }
static int is_capturing(void)
{
    int status;

    return cu.cuStreamIsCapturing(scene.other, &status);
}

static const beside_t calls[] = {
    {"cuEventQuery", query_event},
    {"cuStreamQuery", query_stream},
    {"cuStreamSynchronize", wait_stream},
    {"cuEventSynchronize", wait_event},
    {"cuMemAlloc", alloc},
    {"cuMemAllocAsync", alloc_async},
    {"cuMemcpyDtoDAsync", copy_async},
    {"cuEventRecord", record},
    {"cuStreamWaitEvent", stream_waits},
    {"cuMemHostRegister", pin},
    {"cuEventCreate", make_event},
    {"cuStreamCreate", make_stream},
    {"cuLaunchHostFunc", host_function},
    {"cuPointerGetAttributes", attributes},
    {"cuMemcpyDtoH", copy_sync},
    {"cuCtxSynchronize", wait_context},
    {"cuStreamIsCapturing", is_capturing},
};

static void *call_beside(void *arg)
{
    const beside_t *call = arg;

    NEED(cu.cuCtxPushCurrent_v2(scene.context));
    NEED(cu.cuThreadExchangeStreamCaptureMode(&scene.mode));
    scene.said = call->call();
    return NULL;
}

static void one_beside(const beside_t *call, int mode, const char *how)
{
    void *stream = new_stream(), *graph;
    char question[100];
    pthread_t thread;
    int ended;

    NEED(cu.cuStreamBeginCapture_v2(stream, 0));
    scene.mode = mode;
    if (pthread_create(&thread, NULL, call_beside, (void *)(uintptr_t)call)) {
        _exit(1);
    }
    pthread_join(thread, NULL);
    ended = cu.cuStreamEndCapture(stream, &graph);
    snprintf(question, sizeof(question), "capture: beside it, %s, %s", how,
             call->name);
    answer(question, "%s, and the capture %s", named(scene.said),
           ended == 0 ? "goes on" : named(ended));
    cu.cuStreamDestroy_v2(stream);
    cu.cuStreamSynchronize(scene.other);
    cu.cuMemHostUnregister(scene.host);
}

static void ask_captured(void)
{
    void *stream = new_stream(), *event = new_event(), *graph;
    int status = -1, relaxed = 2;

    NEED(cu.cuStreamBeginCapture_v2(stream, 0));
    ASK("captured: cuStreamIsCapturing",
        cu.cuStreamIsCapturing(stream, &status));
    answer("captured: status", "%d", status);
    ASK("captured: a copy",
        cu.cuMemcpyDtoDAsync_v2(scene.memory, scene.memory + 512, 64, stream));
    ASK("captured: an event is recorded", cu.cuEventRecord(event, stream));
    ASK("captured: end", cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuThreadExchangeStreamCaptureMode(&relaxed));
    answer("captured: the thread's mode was", "%d", relaxed);
    NEED(cu.cuStreamBeginCapture_v2(stream, 0));
    NEED(cu.cuEventRecord(event, stream));
    ASK("captured: the event is asked, RELAXED", cu.cuEventQuery(event));
    ASK("captured: end after it", cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuStreamBeginCapture_v2(stream, 0));
    ASK("captured: the stream is waited for, RELAXED",
        cu.cuStreamSynchronize(stream));
    ASK("captured: end after that", cu.cuStreamEndCapture(stream, &graph));
    ASK("captured: end without a capture",
        cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuStreamBeginCapture_v2(scene.blocking, 0));
    ASK("captured: cuStreamIsCapturing of the legacy stream",
        cu.cuStreamIsCapturing((void *)1, &status));
    ASK("captured: a fill in the legacy stream",
        cu.cuMemsetD8_v2(scene.memory, 1, 64));
    ASK("captured: end of a blocking stream",
        cu.cuStreamEndCapture(scene.blocking, &graph));
    ASK("captured: the legacy stream itself",
        cu.cuStreamBeginCapture_v2((void *)1, 0));
}

void ask_capture(void)
{
    scene.context = begin();
    scene.other = new_stream();
    scene.event = new_event();
    scene.memory = new_memory(4096);
    scene.host = aligned_alloc(4096, 4096);
    NEED(cu.cuStreamCreate(&scene.blocking, 0));
    NEED(cu.cuEventRecord(scene.event, scene.other));
    NEED(cu.cuStreamSynchronize(scene.other));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        one_beside(&calls[i], 0, "GLOBAL");
    }
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        one_beside(&calls[i], 2, "RELAXED");
    }
    ask_captured();
}

/* cudaDeviceReset() of an application, while another part has the context. */
void ask_reset(void)
{
    unsigned long long id = 0, after = 0;
    unsigned flags;
    void *context, *again, *stream, *event;
    uint64_t memory;
    int active = -1;

    context = begin();
    stream = new_stream();
    event = new_event();
    memory = new_memory(4096);
    NEED(cu.cuEventRecord(event, stream));
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuCtxGetId(context, &id));
    ASK("reset: cuDevicePrimaryCtxReset", cu.cuDevicePrimaryCtxReset_v2(0));
    NEED(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    answer("reset: active", "%d", active);
    ASK("reset: cuCtxGetId", cu.cuCtxGetId(context, &after));
    ASK("reset: cuMemAlloc in the old context",
        cu.cuMemAlloc_v2(&memory, 4096));
    ASK("reset: retained again", cu.cuDevicePrimaryCtxRetain(&again, 0));
    NEED(cu.cuCtxGetId(again, &after));
    answer("reset: its id", "%s", id == after ? "is the same" : "is another");
    ASK("reset: cuMemAlloc", cu.cuMemAlloc_v2(&memory, 4096));
    ASK("reset: released", cu.cuDevicePrimaryCtxRelease_v2(0));
    ASK("reset: released again", cu.cuDevicePrimaryCtxRelease_v2(0));
    NEED(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    answer("reset: active then", "%d", active);
}

void ask_fork(void)
{
    pid_t pid;
    int count;

    begin();
    pid = fork();
    if (pid == 0) {
        ASK("fork: cuDeviceGetCount of the child", cu.cuDeviceGetCount(&count));
        ASK("fork: cuInit of the child", cu.cuInit(0));
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    ASK("fork: cuCtxSynchronize of the parent", cu.cuCtxSynchronize());
}

/* After a kernel's illegal address. */
void ask_sticky(void)
{
    void *context, *stream, *other, *done, *pending, *now;
    unsigned long long id;
    uint64_t memory, more;
    unsigned flags;
    char host[64];
    int active, device;

    context = begin();
    stream = new_stream();
    other = new_stream();
    done = new_event();
    pending = new_event();
    memory = new_memory(4096);
    NEED(cu.cuEventRecord(done, stream));
    NEED(cu.cuStreamSynchronize(stream));
    NEED(fault(stream));
    cu.cuEventRecord(pending, stream);
    ASK("sticky: cuStreamSynchronize", cu.cuStreamSynchronize(stream));
    ASK("sticky: of another stream", cu.cuStreamSynchronize(other));
    ASK("sticky: cuStreamQuery", cu.cuStreamQuery(stream));
    ASK("sticky: cuEventQuery of one that was done", cu.cuEventQuery(done));
    ASK("sticky: cuEventQuery of one behind it", cu.cuEventQuery(pending));
    ASK("sticky: cuEventSynchronize", cu.cuEventSynchronize(pending));
    ASK("sticky: cuMemAlloc", cu.cuMemAlloc_v2(&more, 4096));
    ASK("sticky: cuMemcpyDtoHAsync",
        cu.cuMemcpyDtoHAsync_v2(host, memory, 64, other));
    ASK("sticky: cuLaunchHostFunc", cu.cuLaunchHostFunc(other, nothing, NULL));
    ASK("sticky: cuStreamCreate", cu.cuStreamCreate(&now, 1));
    ASK("sticky: cuEventCreate", cu.cuEventCreate(&now, 2));
    ASK("sticky: cuPointerGetAttribute",
        cu.cuPointerGetAttribute(&active, 2, memory));
    ASK("sticky: cuStreamGetCtx", cu.cuStreamGetCtx(other, &now));
    ASK("sticky: cuCtxGetCurrent", cu.cuCtxGetCurrent(&now));
    ASK("sticky: cuCtxPushCurrent", cu.cuCtxPushCurrent_v2(context));
    ASK("sticky: cuCtxPopCurrent", cu.cuCtxPopCurrent_v2(&now));
    ASK("sticky: cuCtxGetDevice", cu.cuCtxGetDevice(&device));
    ASK("sticky: cuCtxGetId", cu.cuCtxGetId(context, &id));
    ASK("sticky: cuDevicePrimaryCtxGetState",
        cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    ASK("sticky: cuDevicePrimaryCtxRetain",
        cu.cuDevicePrimaryCtxRetain(&now, 0));
    ASK("sticky: cuEventDestroy", cu.cuEventDestroy_v2(done));
    ASK("sticky: cuMemFree", cu.cuMemFree_v2(memory));
    ASK("sticky: cuStreamDestroy", cu.cuStreamDestroy_v2(stream));
}
