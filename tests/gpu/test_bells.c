/* SPDX-License-Identifier: BSD-3-Clause */
/* Bells that streams ring, on the simulated driver. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/sim/sim.h"
#include "memory/cuda.h"
#include "support/peers.h"
#include "support/played_kernels.h"

enum { BYTES = 256, LARGE = 300000, LAUNCHES = 10000 };

static const tmsg_stream_t none;
static const sim_cuda_t *sim;
static const tmsg_cuda_functions_t *fn;
static const tmsg_domain_t *cuda;
static int (*begin_capture)(void *stream, int mode);
static int (*end_capture)(void *stream, void **graph);
static int (*instantiate)(void **exec, void *graph, uint64_t flags);
static int (*launch_graph)(void *exec, void *stream);

static tmsg_device_t gpu(int32_t id)
{
    return (tmsg_device_t){TMSG_DEVICE_CUDA, id};
}

static void find(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);

    must_true(found != NULL);
    memcpy(to, &found, sizeof(found));
}

static void begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
    sim_cuda_fn get;

    must_true(library != NULL);
    find(library, "sim_cuda", &get);
    find(library, "cuStreamBeginCapture_v2", &begin_capture);
    find(library, "cuStreamEndCapture", &end_capture);
    find(library, "cuGraphInstantiateWithFlags", &instantiate);
    find(library, "cuGraphLaunch", &launch_graph);
    sim = get();
    must(tmsg_domain_use(gpu(0)));
    must(tmsg_domain_find(gpu(0), &cuda));
    fn = &tmsg_cuda_driver()->fn;
    must_eq(fn->cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_eq(fn->cuCtxPushCurrent(context), 0);
}

static void end(void)
{
    if (sim->complaint() != NULL) {
        die("%s", sim->complaint());
    }
    must_eq(sim->counts->undefined, 0);
}

static tmsg_stream_t as_stream(void *stream)
{
    return (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream};
}

/* A graph of what `record` gives to the stream. */
static void *capture(void *stream, void (*record)(void *arg, void *stream),
                     void *arg)
{
    void *graph, *exec;

    must_eq(begin_capture(stream, 0), 0);
    record(arg, stream);
    must_eq(end_capture(stream, &graph), 0);
    must_eq(instantiate(&exec, graph, 0), 0);
    return exec;
}

/* b sends what a stream rings for, a handles it. */
typedef struct {
    pair_t pair;
    uint8_t data[BYTES];
    tmsg_map_t *map;
    tmsg_bell_t *bell;
    void *stream, *graph;
    played_t kernel;
    uint64_t written; /* rounds of the kernel */
    _Atomic uint64_t received;
} scene_t;

static void write_round(void *arg)
{
    scene_t *scene = arg;

    scene->written++;
    played_fill(&scene->kernel, scene->written);
}

/* Each message is that of the next round, whole. */
static void check_round(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;
    played_t got = {.bytes = BYTES};
    tmsg_tensor_t tensor;

    must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
    got.data = tensor.data;
    played_check(&got, scene->received + 1);
    atomic_fetch_add(&scene->received, 1);
    tmsg_message_destroy(message);
}

/* One launch: a kernel writes the map, the bell rings, and what comes next may
 * write it again. */
static void record_round(void *arg, void *stream)
{
    scene_t *scene = arg;

    must_eq(sim->launch(write_round, scene, stream), 0);
    must(tmsg_bell_ring(scene->bell, as_stream(stream)));
    must(tmsg_bell_await(scene->bell, as_stream(stream)));
}

static void open_scene(scene_t *scene, link_t link)
{
    const side_options_t handles = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = check_round,
                   .handler_arg = scene}};

    memset(scene, 0, sizeof(*scene));
    begin();
    pair_open(&scene->pair, link, DRIVE_THREAD, &handles, NULL);
    scene->kernel = (played_t){.data = scene->data, .bytes = BYTES};
    scene->map = played_map(scene->data, BYTES);
    must(tmsg_bell_create(scene->pair.to_a, scene->map, NULL, &scene->bell));
    must_eq(fn->cuStreamCreate(&scene->stream, 1), 0);
    scene->graph = capture(scene->stream, record_round, scene);
}

static void close_scene(scene_t *scene)
{
    must_eq(fn->cuStreamSynchronize(scene->stream), 0);
    must_eq(fn->cuStreamDestroy(scene->stream), 0);
    tmsg_bell_destroy(scene->bell);
    tmsg_map_destroy(scene->map);
    pair_drop(&scene->pair);
    end();
}

static void launch(scene_t *scene, int times)
{
    for (int i = 0; i < times; i++) {
        must_eq(launch_graph(scene->graph, scene->stream), 0);
    }
}

static bool has_received(void *arg)
{
    const scene_t *scene = arg;

    return scene->received == scene->written;
}

/* Nobody waits between the launches. */
Test(bells, each_launch_of_a_graph_sends_its_map)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    launch(&scene, LAUNCHES);
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    must_eq(scene.written, LAUNCHES);
    pair_await(&scene.pair, has_received, &scene, "the last map");
    must(tmsg_bell_status(scene.bell));
    close_scene(&scene);
}

/* The graph stays, and no launch of it hangs, whatever becomes of the bell. */
static void check_released(scene_t *scene)
{
    launch(scene, 100);
    must_eq(fn->cuStreamSynchronize(scene->stream), 0);
}

static void await_flow(scene_t *scene)
{
    while (scene->received < 20) {
        sched_yield();
    }
}

Test(bells, launches_go_on_when_sends_fail)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    launch(&scene, LAUNCHES);
    await_flow(&scene);
    must(tmsg_endpoint_abort(scene.pair.to_b, TMSG_ERR_REFUSED, "no more"));
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    check_released(&scene);
    must_be(tmsg_bell_status(scene.bell), TMSG_ERR_REFUSED);
    must_be(tmsg_bell_ring(scene.bell, as_stream(scene.stream)),
            TMSG_ERR_REFUSED);
    must_say(tmsg_error_message(), "no more");
    close_scene(&scene);
}

Test(bells, launches_go_on_when_the_peer_dies)
{
    scene_t scene;

    open_scene(&scene, LINK_TCP);
    launch(&scene, LAUNCHES);
    await_flow(&scene);
    side_close(&scene.pair.a);
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    check_released(&scene);
    must_be(tmsg_bell_status(scene.bell), TMSG_ERR_PEER_LOST);
    close_scene(&scene);
}

Test(bells, launches_go_on_when_the_bell_is_destroyed)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    launch(&scene, LAUNCHES);
    await_flow(&scene);
    tmsg_bell_destroy(scene.bell);
    scene.bell = NULL;
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    check_released(&scene);
    close_scene(&scene);
}

Test(bells, launches_go_on_when_the_worker_is_destroyed)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    launch(&scene, LAUNCHES);
    await_flow(&scene);
    tmsg_worker_destroy(scene.pair.b.worker);
    scene.pair.b.worker = NULL;
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    check_released(&scene);
    must_be(tmsg_bell_status(scene.bell), TMSG_ERR_CANCELED);
    close_scene(&scene);
}

/* Both sides are graphs, and the tensors are on the device. */
typedef struct {
    void *from, *to; /* of the device */
    uint8_t *seen;   /* of the host */
    tmsg_bell_t *sends, *receives;
    size_t bytes;
    uint64_t written, read;
} flow_t;

static void write_device(void *arg)
{
    flow_t *flow = arg;

    flow->written++;
    memset(sim->reach((uint64_t)(uintptr_t)flow->from, flow->bytes),
           (int)(flow->written % 251), flow->bytes);
}

static void read_device(void *arg)
{
    flow_t *flow = arg;
    const uint8_t *at = sim->reach((uint64_t)(uintptr_t)flow->to, flow->bytes);

    flow->read++;
    for (size_t i = 0; i < flow->bytes; i++) {
        must_eq(at[i], (uint8_t)(flow->read % 251));
    }
}

static void record_sending(void *arg, void *stream)
{
    const flow_t *flow = arg;

    must_eq(sim->launch(write_device, arg, stream), 0);
    must(tmsg_bell_ring(flow->sends, as_stream(stream)));
    must(tmsg_bell_await(flow->sends, as_stream(stream)));
}

static void record_receiving(void *arg, void *stream)
{
    const flow_t *flow = arg;

    must(tmsg_bell_await(flow->receives, as_stream(stream)));
    must_eq(sim->launch(read_device, arg, stream), 0);
    must(tmsg_bell_ring(flow->receives, as_stream(stream)));
}

/* `stream` is the one that rings: a send that waited for it would not end. */
static tmsg_map_t *device_map_of(void *data, size_t bytes, int32_t device,
                                 void *stream)
{
    tmsg_map_t *map;
    int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {.data = data,
                                  .ndim = 1,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .device = gpu(device),
                                  .shape = shape};
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = as_stream(stream)};

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, &params));
    return map;
}

static void flow(link_t link, size_t bytes, int rounds)
{
    void *sending, *receiving, *from_graph, *to_graph;
    flow_t flow = {.bytes = bytes};
    tmsg_map_t *from, *to;
    pair_t pair;

    pair_open(&pair, link, DRIVE_THREAD, NULL, NULL);
    must(cuda->alloc(cuda->arg, gpu(0), bytes, 64, none, &flow.from));
    must(cuda->alloc(cuda->arg, gpu(0), bytes, 64, none, &flow.to));
    must_eq(fn->cuStreamCreate(&sending, 1), 0);
    must_eq(fn->cuStreamCreate(&receiving, 1), 0);
    from = device_map_of(flow.from, bytes, 0, sending);
    to = device_map_of(flow.to, bytes, 0, receiving);
    must(tmsg_bell_create(pair.to_a, from, NULL, &flow.sends));
    must(tmsg_bell_receive(pair.to_b, to, &flow.receives));
    from_graph = capture(sending, record_sending, &flow);
    to_graph = capture(receiving, record_receiving, &flow);
    for (int i = 0; i < rounds; i++) {
        must_eq(launch_graph(to_graph, receiving), 0);
        must_eq(launch_graph(from_graph, sending), 0);
    }
    must_eq(fn->cuStreamSynchronize(sending), 0);
    must_eq(fn->cuStreamSynchronize(receiving), 0);
    must_eq(flow.read, rounds);
    must(tmsg_bell_status(flow.receives));
    tmsg_bell_destroy(flow.sends);
    tmsg_bell_destroy(flow.receives);
    pair_drop(&pair);
    tmsg_map_destroy(from);
    tmsg_map_destroy(to);
    cuda->free(cuda->arg, gpu(0), flow.from, bytes, none);
    cuda->free(cuda->arg, gpu(0), flow.to, bytes, none);
}

Test(bells, graphs_send_and_receive_memory_of_a_device)
{
    begin();
    flow(LINK_SHM, BYTES, 100);
    flow(LINK_TCP, LARGE, 10);
    flow(LINK_UNIX, LARGE, 10);
    end();
}

/* A kernel that waits sees what a NIC wrote before the bell tells it. */
Test(bells, what_came_is_flushed_where_the_device_says_so)
{
    uint64_t before;

    setenv("SIM_CUDA_UNORDERED", "1", 1);
    begin();
    before = sim->counts->flushes;
    flow(LINK_TCP, BYTES, 10);
    must_eq(sim->counts->flushes - before, 10);
    unsetenv("SIM_CUDA_UNORDERED");
    flow(LINK_TCP, BYTES, 10);
    must_eq(sim->counts->flushes - before, 10);
    end();
}

/* Page-locking may wait for the device, and so for streams that wait for a
 * bell: the worker answers them meanwhile. */
Test(bells, are_made_while_a_stream_waits_for_another)
{
    enum { MORE = 33 }; /* than a page has lines */
    tmsg_bell_t *more[MORE];
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    setenv("SIM_CUDA_PIN_WAITS", "1", 1);
    launch(&scene, 1000);
    for (int i = 0; i < MORE; i++) {
        must(tmsg_bell_create(scene.pair.to_a, scene.map, NULL, &more[i]));
    }
    for (int i = 0; i < MORE; i++) {
        tmsg_bell_destroy(more[i]);
    }
    close_scene(&scene);
}

/* A stream that is not captured, and one bell for many rings of it. */
Test(bells, a_stream_rings_it_without_a_graph)
{
    scene_t scene;

    open_scene(&scene, LINK_UNIX);
    for (int i = 0; i < 100; i++) {
        record_round(&scene, scene.stream);
    }
    must_eq(fn->cuStreamSynchronize(scene.stream), 0);
    pair_await(&scene.pair, has_received, &scene, "the last map");
    must_eq(scene.received, 100);
    close_scene(&scene);
}

Test(bells, streams_that_cannot_wait_are_refused)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM);
    must_be(tmsg_bell_ring(scene.bell, none), TMSG_ERR_INVALID_PARAM);
    setenv("SIM_CUDA_NO_MEMOPS", "1", 1);
    must_be(tmsg_bell_ring(scene.bell, as_stream(scene.stream)),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "CAN_USE_64_BIT_STREAM_MEM_OPS");
    close_scene(&scene);
}

Test(bells, memory_that_no_bell_moves_is_refused)
{
    int64_t shape[] = {BYTES};
    tmsg_tensor_t tensor = {.ndim = 1,
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .device = gpu(1),
                            .shape = shape};
    tmsg_map_t *map, *foreign;
    tmsg_bell_t *bell;
    void *data[2];
    pair_t pair;

    setenv("SIM_CUDA_DEVICES", "2", 1);
    begin();
    must(tmsg_domain_use(gpu(1)));
    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        must(cuda->alloc(cuda->arg, gpu(i), BYTES, 64, none, &data[i]));
    }
    map = device_map_of(data[0], BYTES, 0, (void *)2);
    tensor.data = data[1];
    must(tmsg_map_add(map, "other", &tensor, NULL));
    must_be(tmsg_bell_create(pair.to_a, map, NULL, &bell),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "'data' and 'other'");
    tensor.device.type = TMSG_DEVICE_ROCM;
    must(tmsg_map_create(&foreign));
    must(tmsg_map_add(foreign, "data", &tensor, NULL));
    must_be(tmsg_bell_create(pair.to_a, foreign, NULL, &bell),
            TMSG_ERR_UNSUPPORTED);
    pair_drop(&pair);
    tmsg_map_destroy(map);
    tmsg_map_destroy(foreign);
    for (int i = 0; i < 2; i++) {
        cuda->free(cuda->arg, gpu(i), data[i], BYTES, none);
    }
    end();
}
