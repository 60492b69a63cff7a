/* SPDX-License-Identifier: BSD-3-Clause */
/* cases.c - maps of CUDA tensors between two processes on one GPU: whether they
 * arrive as they were sent. rate.c measures how fast; all.sh runs both.
 *
 * Prints a line for each case as it ends, "case|name|outcome". After the second
 * failure it runs no more. Exit: 0 all is well, 1 a case failed, 3 there is no
 * GPU here, 4 all is well, but the driver is a simulated one. Uses
 * the public interface alone, and three functions of the driver for what an
 * application has of its own: a context, streams, memory by cuMemAlloc. With
 * TMSG_GPU_KERNELS, which kernels.sh sets, kernels write and check, too.
 *
 * TMSG_GPU_WAIT_S bounds each wait (60), TMSG_GPU_CASE_S each case (300). */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "kernels.h"

#define FAILURES 2 /* of one UCX, which is then left alone */
#define NO_GPU 3
#define NO_DRIVER 4 /* all is well, and nothing was measured */
#define MIB (1ull << 20)

static const tmsg_stream_t none;
static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};
static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
static const tmsg_domain_t *cuda;
static tmsg_stream_t own_stream; /* of the side that runs a case */

static void check(tmsg_status_t status, const char *what)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, tmsg_status_name(status),
                tmsg_error_message());
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

static void expect(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "not as it should be: %s\n", what);
        exit(1);
    }
}

#define EXPECT(condition) expect((condition), #condition)

/* A number of seconds, which whoever has few of them sets lower. */
static int seconds_of(const char *name, int standard)
{
    const char *set = getenv(name);
    int number = set == NULL ? standard : atoi(set);

    expect(number > 0 && number <= 3600, name);
    return number;
}

static int bound_ms(void) { return 1000 * seconds_of("TMSG_GPU_WAIT_S", 60); }

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The driver, as an application has it. */
static struct {
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream)(void **stream, unsigned flags);
    int (*alloc)(uint64_t *address, size_t bytes);
    int (*free)(uint64_t address);
    bool fake;
    void *context;
} driver;

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    expect(found != NULL, name);
    memcpy(function, &found, sizeof(found));
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    EXPECT(library != NULL);
    find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
    find(library, "cuCtxPushCurrent_v2", &driver.push);
    find(library, "cuCtxPopCurrent_v2", &driver.pop);
    find(library, "cuStreamCreate", &driver.stream);
    find(library, "cuMemAlloc_v2", &driver.alloc);
    find(library, "cuMemFree_v2", &driver.free);
    driver.fake = dlsym(library, "fake_cuda") != NULL;
    CHECK(tmsg_domain_use(gpu));
    CHECK(tmsg_domain_find(gpu, &cuda));
    EXPECT(driver.retain(&driver.context, 0) == 0);
}

/* cudaMalloc's kind of memory, which CUDA's IPC can share. */
static void *gpu_alloc(uint64_t bytes)
{
    uint64_t address = 0;
    void *context;

    EXPECT(driver.push(driver.context) == 0);
    EXPECT(driver.alloc(&address, bytes == 0 ? 1 : bytes) == 0);
    EXPECT(driver.pop(&context) == 0);
    return (void *)(uintptr_t)address;
}

static void gpu_free(void *data)
{
    void *context;

    EXPECT(driver.push(driver.context) == 0);
    EXPECT(driver.free((uint64_t)(uintptr_t)data) == 0);
    EXPECT(driver.pop(&context) == 0);
}

static tmsg_stream_t gpu_stream(void)
{
    void *context, *stream;

    EXPECT(driver.push(driver.context) == 0);
    EXPECT(driver.stream(&stream, 1) == 0);
    EXPECT(driver.pop(&context) == 0);
    return (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream};
}

/* What a tensor holds is told by a number. */
static void fill(uint8_t *data, uint64_t bytes, unsigned seed)
{
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 7 + (i >> 8) * 31 + (i >> 20) + seed);
    }
}

static bool holds(const tmsg_tensor_t *tensor, unsigned seed)
{
    uint64_t bytes;
    uint8_t *is, *should;
    bool same;

    CHECK(tmsg_tensor_bytes(tensor, &bytes));
    is = malloc(bytes + 1);
    should = malloc(bytes + 1);
    EXPECT(is != NULL && should != NULL);
    fill(should, bytes, seed);
    if (tensor->device.type != TMSG_DEVICE_CUDA) {
        memcpy(is, tensor->data, bytes);
    } else if (bytes > 0) {
        CHECK(cuda->copy_out(cuda->arg, tensor->device, is, tensor->data, bytes,
                             none));
    }
    same = memcmp(is, should, bytes) == 0;
    free(is);
    free(should);
    return same;
}

typedef struct {
    bool on_gpu, in_pool;
    uint64_t bytes;
    tmsg_stream_t stream; /* that fills it, late */
} piece_t;

static void give_pool_back(void *data)
{
    cuda->free(cuda->arg, gpu, data, 0, none);
}

/* A tensor that holds what `seed` says when its stream has got there. */
static void add(tmsg_map_t *map, const char *name, const piece_t *piece,
                unsigned seed)
{
    const int64_t shape = (int64_t)piece->bytes;
    tmsg_tensor_t tensor = {.device = piece->on_gpu ? gpu : cpu,
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1,
                            .shape = &shape};
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE |
                                                  TMSG_MAP_ADD_PARAM_STREAM,
                                    .stream = piece->stream,
                                    .release = free};
    uint8_t *host = malloc(piece->bytes + 1);

    EXPECT(host != NULL);
    fill(host, piece->bytes, seed);
    tensor.data = host;
    if (piece->on_gpu) {
        params.release = piece->in_pool ? give_pool_back : gpu_free;
        if (piece->in_pool) {
            CHECK(cuda->alloc(cuda->arg, gpu, piece->bytes, 64, none,
                              &tensor.data));
        } else {
            tensor.data = gpu_alloc(piece->bytes);
        }
        if (piece->stream.kind != TMSG_STREAM_NONE) { /* else it may wait */
            CHECK(cuda->pin(cuda->arg, host, piece->bytes));
        }
        CHECK(cuda->copy_in(cuda->arg, gpu, tensor.data, host, piece->bytes,
                            piece->stream));
        if (piece->stream.kind == TMSG_STREAM_NONE) {
            free(host);
        } /* else it is read until the stream is done: it stays */
    }
    params.release_arg = tensor.data;
    CHECK(tmsg_map_add(map, name, &tensor, &params));
}

/* One side of a case. */
typedef struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    int in, out; /* pipes */
} side_t;

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((side_t *)arg)->endpoint = endpoint;
}

/* As fast as a program that does nothing else. */
static tmsg_message_t *take(side_t *side)
{
    tmsg_message_t *message;

    CHECK(tmsg_worker_recv(side->worker, bound_ms(), &message));
    return message;
}

static tmsg_status_t finish(tmsg_request_t *request, char *why, size_t bytes)
{
    tmsg_status_t status = tmsg_request_wait(request, bound_ms());

    snprintf(why, bytes, "%s",
             status == TMSG_OK ? "" : tmsg_request_error(request));
    tmsg_request_destroy(request);
    return status;
}

static tmsg_request_t *post(side_t *side, tmsg_map_t *map, int32_t policy)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_POLICY |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = policy};
    tmsg_request_t *request;

    CHECK(tmsg_endpoint_send(side->endpoint, map, &params, &request));
    return request;
}

static void send_whole(side_t *side, tmsg_map_t *map, int32_t policy)
{
    tmsg_request_t *request = post(side, map, policy);
    char why[300];

    check(finish(request, why, sizeof(why)), why);
    tmsg_map_destroy(map);
}

/* A received tensor, where it should be, with what it should hold. */
static void find_tensor(const tmsg_message_t *message, const char *name,
                        bool on_gpu, unsigned seed)
{
    tmsg_tensor_t tensor;

    CHECK(tmsg_map_find(tmsg_message_map(message), name, &tensor));
    expect((tensor.device.type == TMSG_DEVICE_CUDA) == on_gpu,
           on_gpu ? "lies on the GPU" : "lies on the host");
    expect(holds(&tensor, seed), "holds what was sent");
}

/* Sizes around what takes another way. */
static const uint64_t sizes[] = {1,       64,  4096,     65536,   65537,
                                 1000003, MIB, 16 * MIB, MIB + 1, 5 * MIB + 7};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void send_sizes(side_t *side)
{
    for (unsigned i = 0; i < SIZES; i++) {
        const piece_t piece = {.on_gpu = true, .bytes = sizes[i]};
        tmsg_map_t *map;

        CHECK(tmsg_map_create(&map));
        add(map, "x", &piece, i);
        send_whole(side, map, TMSG_POLICY_STRICT);
    }
}

static void take_sizes(side_t *side)
{
    for (unsigned i = 0; i < SIZES; i++) {
        tmsg_message_t *message = take(side);

        find_tensor(message, "x", true, i);
        tmsg_message_destroy(message);
    }
}

static void send_mixed(side_t *side)
{
    const piece_t large = {.on_gpu = true, .bytes = 3 * MIB + 5};
    const piece_t small = {.on_gpu = true, .bytes = 200};
    const piece_t host = {.bytes = 2 * MIB};
    tmsg_map_t *map;

    CHECK(tmsg_map_create(&map));
    add(map, "large", &large, 1);
    add(map, "host", &host, 2);
    add(map, "small", &small, 3);
    send_whole(side, map, TMSG_POLICY_STRICT);
}

static void take_mixed(side_t *side)
{
    tmsg_message_t *message = take(side);

    find_tensor(message, "large", true, 1);
    find_tensor(message, "host", false, 2);
    find_tensor(message, "small", true, 3);
    tmsg_message_destroy(message);
}

static void send_pool(side_t *side)
{
    const piece_t piece = {.on_gpu = true, .in_pool = true, .bytes = 4 * MIB};
    tmsg_map_t *map;

    CHECK(tmsg_map_create(&map));
    add(map, "x", &piece, 9);
    send_whole(side, map, TMSG_POLICY_STRICT);
}

static void take_pool(side_t *side)
{
    tmsg_message_t *message = take(side);

    find_tensor(message, "x", true, 9);
    tmsg_message_destroy(message);
}

/* Filled on a stream after the call, for all that the host knows. */
static void send_streams(side_t *side)
{
    const tmsg_stream_t stream = gpu_stream();

    for (unsigned i = 0; i < 8; i++) {
        const piece_t piece = {
            .on_gpu = true, .bytes = 8 * MIB, .stream = stream};
        tmsg_map_t *map;

        CHECK(tmsg_map_create(&map));
        add(map, "x", &piece, i);
        send_whole(side, map, TMSG_POLICY_STRICT);
    }
}

static void choose_stream(void *arg, tmsg_incoming_t *incoming)
{
    CHECK(tmsg_incoming_choose(incoming, 0, gpu, *(tmsg_stream_t *)arg));
}

static void take_streams(side_t *side)
{
    for (unsigned i = 0; i < 8; i++) {
        tmsg_message_t *message = take(side);

        find_tensor(message, "x", true, i);
        tmsg_message_destroy(message);
    }
}

/* To a process that wants nothing on its GPU. */
static void send_to_host(side_t *side)
{
    const piece_t piece = {.on_gpu = true, .bytes = 3 * MIB};
    tmsg_request_t *request;
    tmsg_status_t status;
    char why[300];
    tmsg_map_t *map;

    CHECK(tmsg_map_create(&map));
    add(map, "x", &piece, 4);
    request = post(side, map, TMSG_POLICY_STRICT);
    status = finish(request, why, sizeof(why));
    expect(status == TMSG_ERR_REFUSED, why);
    expect(strstr(why, "and the policy is strict") != NULL, why);
    send_whole(side, map, TMSG_POLICY_HOST_FALLBACK);
}

static void take_on_host(side_t *side)
{
    tmsg_message_t *message = take(side);

    find_tensor(message, "x", false, 4);
    tmsg_message_destroy(message);
}

/* The host's tensor to the receiver's GPU, as that chooses. */
static void send_host(side_t *side)
{
    const piece_t piece = {.bytes = 3 * MIB};
    tmsg_map_t *map;

    CHECK(tmsg_map_create(&map));
    add(map, "x", &piece, 6);
    send_whole(side, map, TMSG_POLICY_STRICT);
}

static void choose_gpu(void *arg, tmsg_incoming_t *incoming)
{
    (void)arg;
    CHECK(tmsg_incoming_choose_all(incoming, gpu, none));
}

static void take_from_host(side_t *side)
{
    tmsg_message_t *message = take(side);

    find_tensor(message, "x", true, 6);
    tmsg_message_destroy(message);
}

/* ---- what others do with the GPU meanwhile */

static const char fault_ptx[] = ".version 7.0\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry fault()\n"
                                "{\n"
                                " .reg .b64 %a;\n"
                                " .reg .b32 %v;\n"
                                " mov.u64 %a, 8;\n"
                                " mov.u32 %v, 1;\n"
                                " st.global.u32 [%a], %v;\n"
                                " ret;\n"
                                "}\n";

/* A kernel that writes where nothing is: from then on all calls fail. */
static void launch_fault(uint64_t stream)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*load)(void **module, const void *image);
    int (*get)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned,
                  unsigned, unsigned, unsigned shared, void *stream,
                  void **arguments, void **extra);
    void *context, *module, *function;

    find(library, "cuModuleLoadData", &load);
    find(library, "cuModuleGetFunction", &get);
    find(library, "cuLaunchKernel", &launch);
    EXPECT(driver.push(driver.context) == 0);
    EXPECT(load(&module, fault_ptx) == 0);
    EXPECT(get(&function, module, "fault") == 0);
    EXPECT(launch(function, 1, 1, 1, 1, 1, 1, 0, (void *)(uintptr_t)stream,
                  NULL, NULL) == 0);
    EXPECT(driver.pop(&context) == 0);
}

/* The send behind it ends soon, with the driver's words. */
static void send_behind_fault(side_t *side)
{
    const int64_t shape = MIB;
    const tmsg_tensor_t tensor = {.data = gpu_alloc(MIB),
                                  .device = gpu,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = gpu_stream()};
    double began = seconds();
    tmsg_status_t status;
    char why[300];
    tmsg_map_t *map;

    launch_fault(params.stream.handle);
    CHECK(tmsg_map_create(&map));
    CHECK(tmsg_map_add(map, "x", &tensor, &params));
    status = finish(post(side, map, TMSG_POLICY_STRICT), why, sizeof(why));
    tmsg_map_destroy(map);
    expect(status == TMSG_ERR_IO, why);
    EXPECT(seconds() - began < 5);
}

static void take_nothing(side_t *side) { (void)side; }

/* Graphs are captured, one after the other, until `stop`. */
static struct {
    pthread_t thread;
    _Atomic bool stop;
    _Atomic unsigned captured;
    unsigned broken;
    tmsg_map_t *maps[SIZES + 1]; /* the last one is of the host */
} capturer;

static void *capture(void *arg)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph);
    int (*destroy)(void *graph);
    void *stream = (void *)(uintptr_t)gpu_stream().handle, *graph;

    find(library, "cuStreamBeginCapture_v2", &begin);
    find(library, "cuStreamEndCapture", &end);
    find(library, "cuGraphDestroy", &destroy);
    EXPECT(driver.push(driver.context) == 0);
    while (!capturer.stop) {
        EXPECT(begin(stream, 0) == 0); /* in global mode, as torch's */
        usleep(2000);
        graph = NULL;
        if (end(stream, &graph) == 0 && graph != NULL) {
            capturer.captured++;
            EXPECT(destroy(graph) == 0);
        } else {
            capturer.broken++;
        }
    }
    return arg;
}

/* No thread of the program may take memory while one captures in global mode:
 * what the program itself needs is there before. */
static void begin_captures(void)
{
    for (unsigned i = 0; i < SIZES; i++) {
        const piece_t piece = {.on_gpu = true, .bytes = sizes[i]};

        CHECK(tmsg_map_create(&capturer.maps[i]));
        add(capturer.maps[i], "x", &piece, i);
    }
    CHECK(tmsg_map_create(&capturer.maps[SIZES]));
    add(capturer.maps[SIZES], "x", &(piece_t){.bytes = 3 * MIB}, 6);
    EXPECT(pthread_create(&capturer.thread, NULL, capture, NULL) == 0);
    while (capturer.captured == 0) {
        usleep(1000);
    }
}

static void end_captures(void)
{
    capturer.stop = true;
    EXPECT(pthread_join(capturer.thread, NULL) == 0);
    EXPECT(capturer.broken == 0);
    for (unsigned i = 0; i <= SIZES; i++) {
        tmsg_map_destroy(capturer.maps[i]);
    }
}

static void send_while_captured(side_t *side)
{
    char why[300];

    for (unsigned i = 0; i <= SIZES; i++) {
        check(finish(post(side, capturer.maps[i], TMSG_POLICY_STRICT), why,
                     sizeof(why)),
              why);
    }
}

static void take_while_captured(side_t *side)
{
    tmsg_message_t *message;

    take_sizes(side);
    message = take(side);
    find_tensor(message, "x", false, 6);
    tmsg_message_destroy(message);
}

#ifdef TMSG_GPU_KERNELS
static void check_cuda(int error, const char *what)
{
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, kernels_error(error));
        exit(1);
    }
}

#define CHECK_CUDA(call) check_cuda((call), #call)

#define KERNEL_BYTES (8 * MIB + 3)

/* What the kernel writes is sent, which it does once the program goes on, so
 * the call does not wait for it; and each time by another number than lies
 * there from the time before. */
static void send_by_kernel(side_t *side)
{
    const int64_t shape = KERNEL_BYTES;
    const tmsg_tensor_t tensor = {.data = gpu_alloc(KERNEL_BYTES),
                                  .device = gpu,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = gpu_stream()};
    volatile int *go;
    char why[300];

    CHECK_CUDA(kernels_open(&go, params.stream.handle));
    for (unsigned i = 0; i < 8; i++) {
        double began = seconds();
        tmsg_request_t *request;
        tmsg_map_t *map;

        *go = i % 2 == 0;
        CHECK_CUDA(kernels_write(tensor.data, KERNEL_BYTES, 40 + i, go,
                                 params.stream.handle));
        CHECK(tmsg_map_create(&map));
        CHECK(tmsg_map_add(map, "x", &tensor, &params));
        request = post(side, map, TMSG_POLICY_STRICT);
        for (int turn = 0; *go == 0 && turn < 1000; turn++) {
            tmsg_worker_progress(side->worker);
            EXPECT(tmsg_request_test(request) == TMSG_IN_PROGRESS);
        }
        EXPECT(seconds() - began < 5); /* else somebody waited for it */
        *go = 1;
        check(finish(request, why, sizeof(why)), why);
        tmsg_map_destroy(map);
    }
    gpu_free(tensor.data);
}

/* On the stream that was chosen for what is received, which the program does
 * not wait for in between. */
static void take_by_kernel(side_t *side)
{
    volatile int *go;

    CHECK_CUDA(kernels_open(&go, own_stream.handle));
    for (unsigned i = 0; i < 8; i++) {
        tmsg_message_t *message = take(side);
        unsigned long long wrong;
        tmsg_tensor_t tensor;

        CHECK(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
        EXPECT(tensor.device.type == TMSG_DEVICE_CUDA);
        CHECK_CUDA(kernels_count_wrong(tensor.data, KERNEL_BYTES, 40 + i,
                                       own_stream.handle, &wrong));
        if (wrong != 0) {
            fprintf(stderr,
                    "message %u: %llu bytes are not what the kernel "
                    "wrote\n",
                    i, wrong);
            exit(1);
        }
        CHECK_CUDA(kernels_count_wrong(tensor.data, KERNEL_BYTES, 41 + i,
                                       own_stream.handle, &wrong));
        EXPECT(wrong > 0); /* else it counts nothing */
        tmsg_message_destroy(message);
    }
}
#endif

typedef struct {
    const char *name;
    void (*send)(side_t *side);
    void (*take)(side_t *side);
    uint32_t flags; /* of the receiver */
    tmsg_header_fn on_header;
    bool kernels;      /* which a driver that is none does not run */
    const char *needs; /* a function that not every driver has */
    /* Each process calls them before it opens the library, and at its end. */
    void (*before)(void), (*after)(void);
} case_t;

static const case_t cases[] = {
    {"GPU to GPU, 1 B to 16 MiB", send_sizes, take_sizes, .flags = 0},
    {"GPU and host in one map", send_mixed, take_mixed, .flags = 0},
    {"memory of a pool", send_pool, take_pool, .flags = 0},
    {"streams of sender and receiver", send_streams, take_streams,
     .on_header = choose_stream},
    {"GPU to a host-only receiver", send_to_host, take_on_host,
     .flags = TMSG_WORKER_HOST_ONLY},
    {"host to the receiver's GPU", send_host, take_from_host,
     .on_header = choose_gpu},
    {"graphs that other threads capture", send_while_captured,
     take_while_captured, .needs = "cuGraphDestroy", .before = begin_captures,
     .after = end_captures},
#ifdef TMSG_GPU_KERNELS
    {"a kernel writes, another checks", send_by_kernel, take_by_kernel,
     .on_header = choose_stream, .kernels = true},
#endif
    {"a kernel that faults", send_behind_fault, take_nothing,
     .needs = "cuLaunchKernel"},
};

static void open_side(side_t *side, const case_t *of, bool receives)
{
    tmsg_worker_params_t params = {.field_mask = 0};

    open_driver();
    if (receives) {
        own_stream = gpu_stream();
        params.field_mask = TMSG_WORKER_PARAM_FLAGS;
        params.flags = of->flags;
        if (of->on_header != NULL) {
            params.field_mask |= TMSG_WORKER_PARAM_ON_HEADER;
            params.on_header = of->on_header;
            params.on_header_arg = &own_stream;
        }
    }
    if (of->before != NULL) {
        of->before();
    }
    CHECK(tmsg_context_create(NULL, &side->context));
    CHECK(tmsg_worker_create(side->context, &params, &side->worker));
}

static void close_side(side_t *side, const case_t *of)
{
    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
    if (of->after != NULL) {
        of->after();
    }
}

static void receiver(side_t *side, const case_t *of)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = side};
    tmsg_listener_t *listener;
    char url[200] = "";
    char byte;

    open_side(side, of, true);
    CHECK(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", &params,
                               &listener));
    snprintf(url, sizeof(url), "%s", tmsg_listener_url(listener));
    EXPECT(write(side->out, url, sizeof(url)) == (ssize_t)sizeof(url));
    while (side->endpoint == NULL) {
        tmsg_worker_progress(side->worker);
    }
    of->take(side);
    while (tmsg_endpoint_status(side->endpoint) == TMSG_OK) {
        struct pollfd closed = {.fd = side->in, .events = POLLIN};

        tmsg_worker_progress(side->worker);
        if (poll(&closed, 1, 0) > 0 && read(side->in, &byte, 1) <= 0) {
            break;
        }
    }
    close_side(side, of);
}

static void sender(side_t *side, const case_t *of)
{
    char url[200], why[300];
    tmsg_request_t *over;

    EXPECT(read(side->in, url, sizeof(url)) == (ssize_t)sizeof(url));
    open_side(side, of, false);
    CHECK(tmsg_endpoint_connect(side->worker, url, NULL, &side->endpoint));
    of->send(side);
    CHECK(tmsg_endpoint_close(side->endpoint, &over));
    (void)finish(over, why, sizeof(why)); /* the peer may have gone before */
    tmsg_endpoint_destroy(side->endpoint);
    close_side(side, of);
}

static bool ended_well(pid_t pid)
{
    int status;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* Two processes that never had a driver before. */
static bool run(const case_t *of)
{
    int there[2], back[2];
    pid_t pids[2];
    bool well;

    EXPECT(pipe(there) == 0 && pipe(back) == 0);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        EXPECT(pids[i] >= 0);
        if (pids[i] == 0) {
            side_t side = {.in = i == 0 ? back[0] : there[0],
                           .out = i == 0 ? there[1] : back[1]};

            alarm((unsigned)seconds_of("TMSG_GPU_CASE_S", 300));
            close(i == 0 ? back[1] : there[1]);
            if (i == 0) {
                receiver(&side, of);
            } else {
                sender(&side, of);
            }
            _exit(0);
        }
    }
    close(there[0]);
    close(there[1]);
    close(back[0]);
    close(back[1]);
    well = ended_well(pids[1]);
    if (!well) {
        kill(pids[0], SIGKILL);
    }
    return ended_well(pids[0]) && well;
}

/* In a process of its own: who forks after cuInit() has no CUDA. */
static int look(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (tmsg_domain_use(gpu) != TMSG_OK) {
            printf("no GPU can be used: %s\n", tmsg_error_message());
            fflush(stdout);
            _exit(NO_GPU);
        }
        open_driver();
        _exit(driver.fake ? NO_DRIVER : 0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool driver_has(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    return name == NULL || (library != NULL && dlsym(library, name) != NULL);
}

int main(void)
{
    int found, failures = 0;

    setvbuf(stdout, NULL, _IOLBF, 0); /* a time limit loses no line */
    found = look();
    if (found == NO_GPU || found == 1) {
        return found;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *outcome = "ok";

        if ((cases[i].kernels && found == NO_DRIVER) ||
            !driver_has(cases[i].needs)) {
            outcome = "not run";
        } else if (failures == FAILURES) {
            outcome = "not run: two failed";
        } else if (!run(&cases[i])) {
            outcome = "FAILED";
            failures++;
        }
        printf("case|%s|%s\n", cases[i].name, outcome);
    }
    return failures > 0 ? 1 : found;
}
