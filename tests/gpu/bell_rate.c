/* SPDX-License-Identifier: BSD-3-Clause */
/* bell_rate.c - how long a map of a CUDA tensor takes from a stream or a kernel
 * to another process on that GPU, with bells and without.
 *
 * Prints a line for each measurement as it ends:
 *
 *   bell|what|bytes|maps|p50 us|p99 us
 *
 *   launch and send  a fill of the tensor is launched, and the map sent in the
 *                    stream's order: from before that until the peer has it
 *   stream bell      the same, and the stream rings a bell
 *   ... and back     until the stream has gone on behind tmsg_bell_await()
 *   kernel bell      from a word of the program's, for which the kernel waits,
 *                    until the peer has the map: one way over the bus more than
 *                    what a kernel does by itself
 *   ... and back     by the kernel's clock: until it may write the next map
 *
 * The fill is of 64 bytes. The kernel is bell_kernel.cu, as bell_kernel.ptx
 * beside the program; without that, or where the driver loads no kernels, that
 * part is not run. Each map is sent when the one before is there. Both
 * processes spin. TMSG_GPU_BELL_MAPS: how many maps (1000). TMSG_GPU_WAIT_S
 * bounds each wait (60).
 *
 *   gpu_bell_rate [most=BYTES]: the longest tensor, 8 MiB by default */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sides.h"

enum { MOST_MAPS = 100000, FILL = 64 };

/* Both processes see it. */
static struct {
    _Atomic uint64_t count; /* maps that the peer has */
    double at[MOST_MAPS + 1];
} * arrived;

static struct {
    int (*fill)(uint64_t to, unsigned char value, size_t bytes, void *stream);
    int (*query)(void *stream);
    int (*alloc_host)(void **data, size_t bytes);
    int (*free_host)(void *data);
    int (*launch)(void *kernel, unsigned grid_x, unsigned grid_y,
                  unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared, void *stream, void **args,
                  void **extra);
    void *stream;
    void *kernel; /* NULL: none can be run */
} device;

typedef struct {
    uint64_t bytes;
    unsigned maps; /* the first of them is not measured */
} job_t;

static int bound_ms;
static unsigned count_of_maps;

static tmsg_map_t *make_map(uint64_t bytes, void *data, bool in_order)
{
    const int64_t shape = (int64_t)bytes;
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = gpu,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM,
        .stream = {TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)device.stream}};
    tmsg_map_t *map;

    CHECK(tmsg_map_create(&map));
    CHECK(tmsg_map_add(map, "x", &tensor, in_order ? &params : NULL));
    return map;
}

/* ---- the receiver */

static void receiver(side_t *side, const void *arg)
{
    tmsg_message_t *message;
    tmsg_map_t *map;
    void *data;
    job_t job;

    (void)arg;
    open_driver();
    open_side(side, NULL);
    listen_side(side);
    while (read(side->from, &job, sizeof(job)) == (ssize_t)sizeof(job)) {
        data = gpu_alloc(job.bytes);
        map = make_map(job.bytes, data, false);
        EXPECT(write(side->to, "", 1) == 1);
        for (unsigned i = 0; i < job.maps; i++) {
            CHECK(tmsg_endpoint_recv_into(side->endpoint, map, bound_ms,
                                          &message));
            arrived->at[i] = seconds();
            atomic_store(&arrived->count, i + 1);
            tmsg_message_destroy(message);
        }
        tmsg_map_destroy(map);
        gpu_free(data);
    }
    close_side(side);
}

/* ---- the sender */

typedef struct {
    side_t *side;
    job_t job;
    void *data;
    tmsg_map_t *map;
    tmsg_bell_t *bell; /* NULL: maps are sent */
    double *took;
} run_t;

/* Drives the worker until it is over. */
static void drive(run_t *run, bool (*over)(void *arg), void *arg)
{
    double until = seconds() + bound_ms / 1e3;

    while (!over(arg)) {
        tmsg_worker_progress(run->side->worker);
        expect(seconds() < until, "a map is sent in time");
    }
}

static bool has_arrived(void *arg)
{
    return atomic_load(&arrived->count) >= *(unsigned *)arg;
}

static bool has_gone_on(void *arg)
{
    int result;

    (void)arg;
    enter_gpu();
    result = device.query(device.stream);
    leave_gpu();
    return result == 0;
}

static void open_run(run_t *run, side_t *side, uint64_t bytes, bool bell)
{
    const job_t job = {bytes, count_of_maps + 1};
    char ready;

    *run = (run_t){.side = side,
                   .job = job,
                   .data = gpu_alloc(bytes),
                   .took = calloc(count_of_maps, sizeof(double))};
    EXPECT(run->took != NULL);
    run->map = make_map(bytes, run->data, !bell);
    atomic_store(&arrived->count, 0);
    EXPECT(write(side->to, &job, sizeof(job)) == (ssize_t)sizeof(job));
    EXPECT(read(side->from, &ready, 1) == 1);
    if (bell) {
        CHECK(tmsg_bell_create(side->endpoint, run->map, NULL, &run->bell));
        CHECK(tmsg_bell_warm(run->bell, bound_ms));
    }
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void print_run(run_t *run, const char *what)
{
    qsort(run->took, count_of_maps, sizeof(double), by_size);
    printf("bell|%s|%llu|%u|%.2f|%.2f\n", what,
           (unsigned long long)run->job.bytes, count_of_maps,
           run->took[count_of_maps / 2] * 1e6,
           run->took[(uint64_t)count_of_maps * 99 / 100] * 1e6);
}

static void close_run(run_t *run)
{
    tmsg_bell_destroy(run->bell);
    tmsg_map_destroy(run->map);
    gpu_free(run->data);
    free(run->took);
}

static void fill(const run_t *run, unsigned n)
{
    enter_gpu();
    EXPECT(device.fill((uint64_t)(uintptr_t)run->data, (unsigned char)n, FILL,
                       device.stream) == 0);
    leave_gpu();
}

static void send_map(run_t *run)
{
    tmsg_request_t *request;

    CHECK(tmsg_endpoint_send(run->side->endpoint, run->map, NULL, &request));
    CHECK(tmsg_request_wait(request, bound_ms));
    tmsg_request_destroy(request);
}

static void by_send(side_t *side, uint64_t bytes)
{
    run_t run;

    open_run(&run, side, bytes, false);
    send_map(&run);
    for (unsigned n = 1; n <= count_of_maps; n++) {
        double began;
        unsigned wanted = n + 1;

        drive(&run, has_arrived, &n);
        began = seconds();
        fill(&run, n);
        send_map(&run);
        drive(&run, has_arrived, &wanted);
        run.took[n - 1] = arrived->at[n] - began;
    }
    print_run(&run, "launch and send");
    close_run(&run);
}

static void by_stream(side_t *side, uint64_t bytes, bool back)
{
    const tmsg_stream_t on = {TMSG_STREAM_CUDA,
                              (uint64_t)(uintptr_t)device.stream};
    run_t run;

    open_run(&run, side, bytes, true);
    for (unsigned n = 1; n <= count_of_maps; n++) {
        double began;
        unsigned wanted = n + 1;

        drive(&run, has_arrived, &n);
        began = seconds();
        fill(&run, n);
        CHECK(tmsg_bell_ring(run.bell, on));
        CHECK(tmsg_bell_await(run.bell, on));
        if (back) {
            drive(&run, has_gone_on, NULL);
            run.took[n - 1] = seconds() - began;
        }
        drive(&run, has_arrived, &wanted);
        drive(&run, has_gone_on, NULL);
        if (!back) {
            run.took[n - 1] = arrived->at[n] - began;
        }
    }
    print_run(&run, back ? "stream bell, and back" : "stream bell");
    close_run(&run);
}

static void *alloc_host(size_t bytes)
{
    void *data = NULL;

    enter_gpu();
    EXPECT(device.alloc_host(&data, bytes) == 0);
    leave_gpu();
    memset(data, 0, bytes);
    return data;
}

static void free_host(void *data)
{
    enter_gpu();
    EXPECT(device.free_host(data) == 0);
    leave_gpu();
}

static void launch(run_t *run, uint64_t *go, uint64_t *took_ns)
{
    uint64_t maps = count_of_maps;
    void *line;
    void *args[] = {&line, &go, &run->data, &maps, &took_ns};

    CHECK(tmsg_bell_device(run->bell, &line));
    enter_gpu();
    EXPECT(device.launch(device.kernel, 1, 1, 1, 1, 1, 1, 0, device.stream,
                         args, NULL) == 0);
    leave_gpu();
}

static void by_kernel(side_t *side, uint64_t bytes)
{
    uint64_t *go = alloc_host(sizeof(*go));
    uint64_t *took_ns = alloc_host(count_of_maps * sizeof(*took_ns));
    run_t run;

    open_run(&run, side, bytes, true);
    launch(&run, go, took_ns);
    for (unsigned n = 1; n <= count_of_maps; n++) {
        double began;
        unsigned wanted = n + 1;

        drive(&run, has_arrived, &n);
        began = seconds();
        __atomic_store_n(go, n, __ATOMIC_RELEASE);
        drive(&run, has_arrived, &wanted);
        run.took[n - 1] = arrived->at[n] - began;
    }
    drive(&run, has_gone_on, NULL);
    CHECK(tmsg_bell_status(run.bell));
    print_run(&run, "kernel bell");
    for (unsigned n = 0; n < count_of_maps; n++) {
        run.took[n] = (double)took_ns[n] / 1e9;
    }
    print_run(&run, "kernel bell, and back");
    close_run(&run);
    free_host(go);
    free_host(took_ns);
}

/* ---- both */

/* Loads the kernel beside this program, if there is one and the driver takes
 * it. */
static void load_kernel(void)
{
    static char ptx[1 << 20], path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 40);
    int (*load)(void **module, const void *image);
    int (*get)(void **kernel, void *module, const char *name);
    FILE *file = NULL;
    void *module;

    if (length > 0) {
        strcpy(strrchr(path, '/'), "/bell_kernel.ptx");
        file = fopen(path, "r");
    }
    if (file == NULL) {
        printf("bell|kernel bell not run: no bell_kernel.ptx was packed\n");
        return;
    }
    EXPECT(fread(ptx, 1, sizeof(ptx) - 1, file) > 0);
    fclose(file);
    find("cuModuleLoadData", &load);
    find("cuModuleGetFunction", &get);
    enter_gpu();
    if (load(&module, ptx) != 0 || get(&device.kernel, module, "ring") != 0) {
        printf("bell|kernel bell not run: the driver does not load it\n");
        device.kernel = NULL;
    }
    leave_gpu();
}

static void open_device(void)
{
    int (*create_stream)(void **stream, unsigned flags);

    find("cuStreamCreate", &create_stream);
    find("cuMemsetD8Async", &device.fill);
    find("cuStreamQuery", &device.query);
    find("cuMemAllocHost_v2", &device.alloc_host);
    find("cuMemFreeHost", &device.free_host);
    find("cuLaunchKernel", &device.launch);
    enter_gpu();
    EXPECT(create_stream(&device.stream, 1) == 0);
    leave_gpu();
    load_kernel();
}

/* Where streams cannot wait for a word, that is said. */
static bool can_await(side_t *side)
{
    void *data = gpu_alloc(FILL);
    tmsg_map_t *map = make_map(FILL, data, false);
    const tmsg_stream_t on = {TMSG_STREAM_CUDA,
                              (uint64_t)(uintptr_t)device.stream};
    tmsg_status_t status;
    tmsg_bell_t *bell;

    CHECK(tmsg_bell_create(side->endpoint, map, NULL, &bell));
    status = tmsg_bell_await(bell, on);
    if (status != TMSG_OK) {
        printf("bell|stream bell not run: %s\n", tmsg_error_message());
    }
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    gpu_free(data);
    return status == TMSG_OK;
}

static void sender(side_t *side, const void *arg)
{
    static const uint64_t sizes[] = {FILL, 64 << 10, 8 * MIB};
    const uint64_t most = *(const uint64_t *)arg;
    tmsg_request_t *ready;
    char url[URL_BYTES];
    bool streams;

    await_url(side, url);
    open_driver();
    open_device();
    open_side(side, NULL);
    CHECK(tmsg_endpoint_connect(side->worker, url, NULL, &side->endpoint));
    CHECK(tmsg_endpoint_ready(side->endpoint, &ready));
    CHECK(tmsg_request_wait(ready, bound_ms));
    tmsg_request_destroy(ready);
    streams = can_await(side);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] > most) {
            break;
        }
        by_send(side, sizes[i]);
        if (streams) {
            by_stream(side, sizes[i], false);
            by_stream(side, sizes[i], true);
        }
        if (device.kernel != NULL) {
            by_kernel(side, sizes[i]);
        }
    }
    close(side->to); /* it was the last */
    close_side(side);
}

int main(int count, char **words)
{
    uint64_t most = 8 * MIB;
    int found;

    if (count == 2 && strncmp(words[1], "most=", 5) == 0) {
        most = strtoull(words[1] + 5, NULL, 0);
    } else if (count > 1) {
        fprintf(stderr, "gpu_bell_rate [most=BYTES]\n");
        return 2;
    }
    bound_ms = 1000 * number_of("TMSG_GPU_WAIT_S", 60);
    count_of_maps = (unsigned)number_of("TMSG_GPU_BELL_MAPS", 1000);
    EXPECT(count_of_maps <= MOST_MAPS);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a time limit loses no line */
    signal(SIGPIPE, SIG_IGN);
    found = look_for_gpu();
    if (found != 0) {
        return found;
    }
    if (!has_function("cuMemsetD8Async") || !has_function("cuLaunchKernel")) {
        printf("bell|not run: this driver launches nothing\n");
        return 0;
    }
    arrived = mmap(NULL, sizeof(*arrived), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(arrived != MAP_FAILED);
    return run_sides(receiver, sender, &most) ? 0 : 1;
}
