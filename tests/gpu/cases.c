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
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels.h"
#include "sides.h"

#define FAILURES 2  /* of one UCX, which is then left alone */
#define NO_DRIVER 4 /* all is well, and nothing was measured */

static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
static tmsg_stream_t own_stream; /* of the side that runs a case */

static int bound_ms(void) { return 1000 * number_of("TMSG_GPU_WAIT_S", 60); }

static tmsg_stream_t gpu_stream(void)
{
    int (*create)(void **stream, unsigned flags);
    void *stream;

    find("cuStreamCreate", &create);
    enter_gpu();
    EXPECT(create(&stream, 1) == 0);
    leave_gpu();
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
    int (*load)(void **module, const void *image);
    int (*get)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned,
                  unsigned, unsigned, unsigned shared, void *stream,
                  void **arguments, void **extra);
    void *module, *function;

    find("cuModuleLoadData", &load);
    find("cuModuleGetFunction", &get);
    find("cuLaunchKernel", &launch);
    enter_gpu();
    EXPECT(load(&module, fault_ptx) == 0);
    EXPECT(get(&function, module, "fault") == 0);
    EXPECT(launch(function, 1, 1, 1, 1, 1, 1, 0, (void *)(uintptr_t)stream,
                  NULL, NULL) == 0);
    leave_gpu();
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
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph);
    int (*destroy)(void *graph);
    void *stream = (void *)(uintptr_t)gpu_stream().handle, *graph;

    find("cuStreamBeginCapture_v2", &begin);
    find("cuStreamEndCapture", &end);
    find("cuGraphDestroy", &destroy);
    enter_gpu();
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

/* Both processes of a case; only what is received may lie on the host. */
static void begin_side(side_t *side, const case_t *of, bool receives)
{
    tmsg_worker_params_t params = {.field_mask = 0};

    alarm((unsigned)number_of("TMSG_GPU_CASE_S", 300));
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
    open_side(side, &params);
}

static void end_side(side_t *side, const case_t *of)
{
    close_side(side);
    if (of->after != NULL) {
        of->after();
    }
}

static void receiver(side_t *side, const void *arg)
{
    const case_t *of = arg;
    char byte;

    begin_side(side, of, true);
    listen_side(side);
    of->take(side);
    while (tmsg_endpoint_status(side->endpoint) == TMSG_OK) {
        struct pollfd closed = {.fd = side->from, .events = POLLIN};

        tmsg_worker_progress(side->worker);
        if (poll(&closed, 1, 0) > 0 && read(side->from, &byte, 1) <= 0) {
            break;
        }
    }
    end_side(side, of);
}

static void sender(side_t *side, const void *arg)
{
    const case_t *of = arg;
    char url[URL_BYTES], why[300];
    tmsg_request_t *over;

    await_url(side, url);
    begin_side(side, of, false);
    CHECK(tmsg_endpoint_connect(side->worker, url, NULL, &side->endpoint));
    of->send(side);
    CHECK(tmsg_endpoint_close(side->endpoint, &over));
    (void)finish(over, why, sizeof(why)); /* the peer may have gone before */
    end_side(side, of);
}

int main(void)
{
    int found, failures = 0;
    bool fake;

    setvbuf(stdout, NULL, _IOLBF, 0); /* a time limit loses no line */
    found = look_for_gpu();
    if (found != 0) {
        return found;
    }
    fake = has_function("fake_cuda");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *outcome = "ok";

        if ((cases[i].kernels && fake) ||
            (cases[i].needs != NULL && !has_function(cases[i].needs))) {
            outcome = "not run";
        } else if (failures == FAILURES) {
            outcome = "not run: two failed";
        } else if (!run_sides(receiver, sender, &cases[i])) {
            outcome = "FAILED";
            failures++;
        }
        printf("case|%s|%s\n", cases[i].name, outcome);
    }
    return failures > 0 ? 1 : fake ? NO_DRIVER : 0;
}
