/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions of probe.c about CUDA IPC, which two processes ask: the child
 * exports, the parent opens. Neither has a driver before they part. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/probe.h"

#define MIB (1u << 20)

static int to_child[2], to_parent[2];

static void put(int fd, const void *data, size_t bytes)
{
    if (write(fd, data, bytes) != (ssize_t)bytes) {
        _exit(1);
    }
}

static void get(int fd, void *data, size_t bytes)
{
    if (read(fd, data, bytes) != (ssize_t)bytes) {
        _exit(1);
    }
}

/* One tells the other to go on, and waits for it. */
static void turn_over(int out, int in)
{
    char byte = 0;

    put(out, &byte, 1);
    get(in, &byte, 1);
}

static pid_t part(void)
{
    pid_t pid;

    if (pipe(to_child) != 0 || pipe(to_parent) != 0) {
        _exit(1);
    }
    pid = fork();
    if (pid == 0) {
        alarm(20);
        close(to_parent[0]);
        close(to_child[1]);
    } else {
        close(to_parent[1]);
        close(to_child[0]);
    }
    return pid;
}

typedef struct {
    ipc_handle_t large, small, neighbour, inner, freed;
    uint64_t id;
} exported_t;

static void export_memory(void)
{
    exported_t out;
    uint64_t large, small, freed, opened;
    char byte = 0;

    memset(&out, 0, sizeof(out));
    begin();
    large = new_memory(4 * MIB);
    small = new_memory(1000);
    freed = new_memory(4 * MIB);
    NEED(cu.cuMemsetD8_v2(large, 5, 4 * MIB));
    NEED(cu.cuMemsetD8_v2(small, 6, 1000));
    NEED(cu.cuCtxSynchronize());
    NEED(cu.cuIpcGetMemHandle(&out.large, large));
    NEED(cu.cuIpcGetMemHandle(&out.small, small));
    NEED(cu.cuIpcGetMemHandle(&out.neighbour, new_memory(1000)));
    ASK("share: exported from its middle",
        cu.cuIpcGetMemHandle(&out.inner, large + MIB));
    NEED(cu.cuIpcGetMemHandle(&out.freed, freed));
    NEED(cu.cuMemFree_v2(freed));
    NEED(cu.cuPointerGetAttribute(&out.id, 7, large));
    ASK("share: opened by the process that exports",
        cu.cuIpcOpenMemHandle_v2(&opened, out.large, 1));
    put(to_parent[1], &out, sizeof(out));
    get(to_child[0], &byte, 1); /* it has written */
    NEED(cu.cuMemcpyDtoH_v2(&byte, large + 7, 1));
    answer("share: what the other process wrote", "%d", byte);
    put(to_parent[1], &byte, 1);
    get(to_child[0], &byte, 1);
    _exit(0);
}

static int peek(uint64_t address)
{
    unsigned char byte = 0;

    return cu.cuMemcpyDtoH_v2(&byte, address, 1) == 0 ? byte : -1;
}

static void tell_opened(uint64_t address, uint64_t id_there)
{
    static const int attributes[] = {1, 2, 9, 10, 7};
    uint64_t context = 0, id = 0;
    unsigned type = 0, legacy = 0;
    int ordinal = -9;
    void *values[] = {&context, &type, &ordinal, &legacy, &id};
    ipc_handle_t again;

    NEED(cu.cuPointerGetAttributes(5, attributes, values, address));
    answer("share: its kind here",
           "context %d, type %u, ordinal %d, legacy IPC %u", context != 0, type,
           ordinal, legacy & 1);
    answer("share: its BUFFER_ID here", "%s",
           id == id_there ? "is the same" : "is another");
    ASK("share: exported again", cu.cuIpcGetMemHandle(&again, address));
}

void ask_sharing(void)
{
    uint64_t large = 0, small = 0, neighbour = 0, inner = 0, other = 0;
    pid_t pid = part();
    exported_t from;
    int status;

    if (pid == 0) {
        export_memory();
    }
    get(to_parent[0], &from, sizeof(from));
    begin();
    ASK("share: opened with flags 0",
        cu.cuIpcOpenMemHandle_v2(&large, from.large, 0));
    ASK("share: opened", cu.cuIpcOpenMemHandle_v2(&large, from.large, 1));
    answer("share: what lies there", "%d", peek(large));
    tell_opened(large, from.id);
    ASK("share: opened again", cu.cuIpcOpenMemHandle_v2(&other, from.large, 1));
    answer("share: the pointer", "%s",
           other == large ? "is the same" : "is another");
    ASK("share: from its middle",
        cu.cuIpcOpenMemHandle_v2(&inner, from.inner, 1));
    answer("share: its middle", "%s",
           inner == large         ? "is opened at the beginning"
           : inner == large + MIB ? "is opened there"
                                  : "is elsewhere");
    ASK("share: a small piece",
        cu.cuIpcOpenMemHandle_v2(&small, from.small, 1));
    answer("share: what lies in it", "%d", peek(small));
    ASK("share: its neighbour",
        cu.cuIpcOpenMemHandle_v2(&neighbour, from.neighbour, 1));
    answer("share: neighbours", "%s",
           neighbour - small < 2 * MIB || small - neighbour < 2 * MIB
               ? "are in one mapping"
               : "are apart");
    ASK("share: what was freed",
        cu.cuIpcOpenMemHandle_v2(&other, from.freed, 1));
    NEED(cu.cuMemsetD8_v2(large, 9, 64));
    NEED(cu.cuCtxSynchronize());
    turn_over(to_child[1], to_parent[0]);
    ASK("share: closed", cu.cuIpcCloseMemHandle(large));
    answer("share: once closed of several", "%d", peek(large));
    ASK("share: closed again", cu.cuIpcCloseMemHandle(large));
    ASK("share: the middle closed", cu.cuIpcCloseMemHandle(inner));
    ASK("share: closed once more", cu.cuIpcCloseMemHandle(large));
    put(to_child[1], "", 1);
    waitpid(pid, &status, 0);
    ASK("share: opened when the process is gone",
        cu.cuIpcOpenMemHandle_v2(&other, from.large, 1));
    memset(&from.large, 0x11, sizeof(from.large));
    ASK("share: a handle of nothing",
        cu.cuIpcOpenMemHandle_v2(&other, from.large, 1));
}

static void export_event(void)
{
    void *stream, *event, *plain, *opened;
    ipc_handle_t handle;
    char byte;
    int *go;

    begin();
    stream = new_stream();
    go = new_go();
    *go = 1;
    NEED(hold(stream, go));
    NEED(cu.cuStreamSynchronize(stream));
    ASK("share: an interprocess event with times", cu.cuEventCreate(&event, 4));
    NEED(cu.cuEventCreate(&event, 6));
    plain = new_event();
    ASK("share: a plain event exported",
        cu.cuIpcGetEventHandle(&handle, plain));
    ASK("share: an event exported", cu.cuIpcGetEventHandle(&handle, event));
    ASK("share: the event opened by the process that exports",
        cu.cuIpcOpenEventHandle(&opened, handle));
    *go = 0;
    NEED(hold(stream, go));
    NEED(cu.cuEventRecord(event, stream));
    put(to_parent[1], &handle, sizeof(handle));
    get(to_child[0], &byte, 1);
    *go = 1;
    NEED(cu.cuStreamSynchronize(stream));
    put(to_parent[1], &byte, 1);
    get(to_child[0], &byte, 1);
    _exit(0);
}

void ask_sharing_events(void)
{
    pid_t pid = part();
    ipc_handle_t handle;
    void *stream, *event;
    char byte;

    if (pid == 0) {
        export_event();
    }
    get(to_parent[0], &handle, sizeof(handle));
    begin();
    stream = new_stream();
    ASK("share: the event opened", cu.cuIpcOpenEventHandle(&event, handle));
    ASK("share: asked while it is not reached", cu.cuEventQuery(event));
    NEED(cu.cuStreamWaitEvent(stream, event, 0));
    ASK("share: a stream that waits for it", cu.cuStreamQuery(stream));
    turn_over(to_child[1], to_parent[0]);
    ASK("share: once it is reached", cu.cuStreamSynchronize(stream));
    ASK("share: asked then", cu.cuEventQuery(event));
    ASK("share: the event exported again",
        cu.cuIpcGetEventHandle(&handle, event));
    ASK("share: the event destroyed", cu.cuEventDestroy_v2(event));
    byte = 0;
    put(to_child[1], &byte, 1);
    waitpid(pid, NULL, 0);
}
