/* SPDX-License-Identifier: BSD-3-Clause */
/* inference.c - an inference loop on a GPU that never synchronizes.
 *
 * One CUDA graph waits for a frame, runs the model, and sends the result. The
 * loop only launches it. The frames come from a client, and the results go back
 * to it: here a thread with a worker of its own, over TCP.
 *
 * This program opens the driver by itself, to be built without CUDA. Yours has
 * cuda.h, or CUDA's runtime, and a model in place of the copy. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

enum { FRAMES = 200, BYTES = 1 << 16, WAIT_MS = 20000 };

static struct {
    int (*cuInit)(unsigned flags);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuMemAlloc_v2)(uint64_t *address, size_t bytes);
    int (*cuMemFree_v2)(uint64_t address);
    int (*cuMemcpyDtoDAsync_v2)(uint64_t to, uint64_t from, size_t bytes,
                                void *stream);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **exec, void *graph,
                                       uint64_t flags);
    int (*cuGraphLaunch)(void *exec, void *stream);
} cu;

static void check(tmsg_status_t status)
{
    if (status < 0) {
        fprintf(stderr, "inference: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void check_cuda(int result)
{
    if (result != 0) {
        fprintf(stderr, "inference: CUDA says %d\n", result);
        exit(1);
    }
}

static void check_bell(const tmsg_bell_t *bell)
{
    if (tmsg_bell_status(bell) != TMSG_OK) {
        fprintf(stderr, "inference: %s\n", tmsg_bell_error(bell));
        exit(1);
    }
}

static void find(void *driver, const char *name, void *function)
{
    void *found = dlsym(driver, name);

    if (found == NULL) {
        fprintf(stderr, "inference: no %s in libcuda.so.1\n", name);
        exit(1);
    }
    memcpy(function, &found, sizeof(found));
}

static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;

    if (driver == NULL) {
        fprintf(stderr, "inference: this example needs a GPU: %s\n", dlerror());
        exit(1);
    }
    find(driver, "cuInit", &cu.cuInit);
    find(driver, "cuDevicePrimaryCtxRetain", &cu.cuDevicePrimaryCtxRetain);
    find(driver, "cuCtxPushCurrent_v2", &cu.cuCtxPushCurrent_v2);
    find(driver, "cuMemAlloc_v2", &cu.cuMemAlloc_v2);
    find(driver, "cuMemFree_v2", &cu.cuMemFree_v2);
    find(driver, "cuMemcpyDtoDAsync_v2", &cu.cuMemcpyDtoDAsync_v2);
    find(driver, "cuStreamCreate", &cu.cuStreamCreate);
    find(driver, "cuStreamSynchronize", &cu.cuStreamSynchronize);
    find(driver, "cuStreamBeginCapture_v2", &cu.cuStreamBeginCapture_v2);
    find(driver, "cuStreamEndCapture", &cu.cuStreamEndCapture);
    find(driver, "cuGraphInstantiateWithFlags",
         &cu.cuGraphInstantiateWithFlags);
    find(driver, "cuGraphLaunch", &cu.cuGraphLaunch);
    check_cuda(cu.cuInit(0));
    check_cuda(cu.cuDevicePrimaryCtxRetain(&context, 0));
    check_cuda(cu.cuCtxPushCurrent_v2(context));
}

static tmsg_map_t *make_map(const char *name, void *data, int32_t device_type)
{
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = {device_type, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = shape};
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, name, &tensor, NULL));
    return map;
}

static tmsg_worker_t *make_worker(tmsg_context_t *context)
{
    const tmsg_worker_params_t params = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_THREAD};
    tmsg_worker_t *worker;

    check(tmsg_worker_create(context, &params, &worker));
    return worker;
}

typedef struct {
    char *url;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
} client_t;

/* Who sends frames, and gets a result for each. It stays connected: bells fail
 * when their peer goes. */
static void *run_client(void *arg)
{
    client_t *client = arg;
    static uint8_t frame[BYTES], result[BYTES];
    tmsg_map_t *frames = make_map("frame", frame, TMSG_DEVICE_CPU);
    tmsg_map_t *results = make_map("result", result, TMSG_DEVICE_CPU);
    tmsg_endpoint_t *server;
    tmsg_request_t *sent;
    tmsg_message_t *message;

    check(tmsg_context_create(NULL, &client->context));
    client->worker = make_worker(client->context);
    check(tmsg_endpoint_connect(client->worker, client->url, NULL, &server));
    for (int i = 0; i < FRAMES; i++) {
        memset(frame, i, BYTES);
        check(tmsg_endpoint_send(server, frames, NULL, &sent));
        check(tmsg_endpoint_recv_into(server, results, WAIT_MS, &message));
        tmsg_message_destroy(message);
        if (result[0] != (uint8_t)i || result[BYTES - 1] != (uint8_t)i) {
            fprintf(stderr, "inference: result %d is of another frame\n", i);
            exit(1);
        }
        check(tmsg_request_wait(sent, WAIT_MS));
        tmsg_request_destroy(sent);
    }
    tmsg_map_destroy(frames);
    tmsg_map_destroy(results);
    return NULL;
}

/* The bells of one client, and the memory that they are for. */
typedef struct {
    uint64_t frame, result;
    tmsg_bell_t *frames, *results;
} loop_t;

/* One round: a frame in, a result out. The stream waits for both bells, the
 * thread that launches the graph for neither. */
static void *capture_round(const loop_t *loop, void *cuda_stream)
{
    const tmsg_stream_t stream = {TMSG_STREAM_CUDA,
                                  (uint64_t)(uintptr_t)cuda_stream};
    void *graph, *exec;

    check_cuda(cu.cuStreamBeginCapture_v2(cuda_stream, 0));
    check(tmsg_bell_await(loop->frames, stream));  /* a frame is here */
    check(tmsg_bell_await(loop->results, stream)); /* the last result went */
    check_cuda(cu.cuMemcpyDtoDAsync_v2(loop->result, loop->frame, BYTES,
                                       cuda_stream)); /* the model */
    check(tmsg_bell_ring(loop->frames, stream));  /* the next frame may come */
    check(tmsg_bell_ring(loop->results, stream)); /* and the result go */
    check_cuda(cu.cuStreamEndCapture(cuda_stream, &graph));
    check_cuda(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void serve(tmsg_endpoint_t *client)
{
    tmsg_map_t *frames, *results;
    void *stream, *round;
    loop_t loop;

    check_cuda(cu.cuMemAlloc_v2(&loop.frame, BYTES));
    check_cuda(cu.cuMemAlloc_v2(&loop.result, BYTES));
    frames = make_map("frame", (void *)(uintptr_t)loop.frame, TMSG_DEVICE_CUDA);
    results =
        make_map("result", (void *)(uintptr_t)loop.result, TMSG_DEVICE_CUDA);
    check(tmsg_bell_receive(client, frames, &loop.frames));
    check(tmsg_bell_create(client, results, NULL, &loop.results));
    check_cuda(cu.cuStreamCreate(&stream, 1)); /* not the default stream */
    round = capture_round(&loop, stream);
    for (int i = 0; i < FRAMES; i++) {
        check_cuda(cu.cuGraphLaunch(round, stream));
    }
    /* The program ends: the last result is to have gone. */
    check(tmsg_bell_await(
        loop.results,
        (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream}));
    check_cuda(cu.cuStreamSynchronize(stream));
    check_bell(loop.frames);
    check_bell(loop.results);
    tmsg_bell_destroy(loop.frames);
    tmsg_bell_destroy(loop.results);
    tmsg_map_destroy(frames);
    tmsg_map_destroy(results);
    check_cuda(cu.cuMemFree_v2(loop.frame));
    check_cuda(cu.cuMemFree_v2(loop.result));
}

static void on_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    __atomic_store_n((tmsg_endpoint_t **)arg, endpoint, __ATOMIC_RELEASE);
}

int main(void)
{
    tmsg_endpoint_t *connected = NULL, *accepted = NULL;
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = on_accept,
                                           .on_accept_arg = &accepted};
    tmsg_context_t *context;
    tmsg_listener_t *listener;
    tmsg_worker_t *worker;
    client_t client = {NULL};
    pthread_t thread;

    open_driver();
    check(tmsg_context_create(NULL, &context));
    worker = make_worker(context);
    check(
        tmsg_listener_create(worker, "tcp://127.0.0.1:0", &params, &listener));
    client.url = strdup(tmsg_listener_url(listener));
    if (client.url == NULL ||
        pthread_create(&thread, NULL, run_client, &client) != 0) {
        return 1;
    }
    while (connected == NULL) {
        (void)tmsg_worker_wait(worker, 100);
        connected = __atomic_load_n(&accepted, __ATOMIC_ACQUIRE);
    }
    serve(connected);
    pthread_join(thread, NULL);
    tmsg_worker_destroy(client.worker);
    tmsg_context_destroy(client.context);
    free(client.url);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    printf("%d frames, each with its result\n", FRAMES);
    return 0;
}
