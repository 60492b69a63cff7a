/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-counts-devices: two processes on the simulated CUDA driver
 * (tests/gpu/sim) send maps from a GPU's memory into a GPU's memory. Prints how
 * often work was given to a device and how many active messages UCX sent.
 * counts.py runs it; bench/counts/README.md. */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "../bench.h"
#include "gpu/sim/sim.h"

#define WARM_UP 8
#define MESSAGES 16
#define WAIT_MS 20000

static const struct {
    const char *name;
    size_t tensors;
    uint64_t bytes;
} shapes[] = {{"8x64B, GPU", 8, 64},
              {"100x1KiB, GPU", 100, 1 << 10},
              {"1x16MiB, GPU", 1, 16 << 20},
              {"8x2MiB, GPU", 8, 2 << 20}};

static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};

/* Of both processes. */
static _Atomic uint64_t *sent;

/* In UCX's place. */
__attribute__((visibility("default"))) void *
ucp_am_send_nbx(void *ep, unsigned id, const void *header, size_t header_bytes,
                const void *data, size_t count, const void *param);
void *ucp_am_send_nbx(void *ep, unsigned id, const void *header,
                      size_t header_bytes, const void *data, size_t count,
                      const void *param)
{
    static void *(*real)(void *, unsigned, const void *, size_t, const void *,
                         size_t, const void *);

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_am_send_nbx");
    }
    atomic_fetch_add(sent, 1);
    return real(ep, id, header, header_bytes, data, count, param);
}

static tmsg_map_t *map_on_gpu(size_t tensors, uint64_t bytes)
{
    static const tmsg_stream_t none;
    const int64_t shape = (int64_t)bytes;
    const tmsg_domain_t *domain;
    tmsg_map_t *map;

    bench_must(tmsg_domain_find(gpu, &domain));
    bench_must(tmsg_map_create(&map));
    for (size_t i = 0; i < tensors; i++) {
        tmsg_tensor_t tensor = {.device = gpu,
                                .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                .ndim = 1,
                                .shape = (int64_t *)(uintptr_t)&shape};
        char name[32];

        snprintf(name, sizeof(name), "x%zu", i);
        bench_must(
            domain->alloc(domain->arg, gpu, bytes, 256, none, &tensor.data));
        bench_must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static tmsg_worker_t *open_worker(void)
{
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    bench_must(tmsg_domain_use(gpu));
    bench_must(tmsg_context_create(NULL, &context));
    bench_must(tmsg_worker_create(context, NULL, &worker));
    return worker;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    *(tmsg_endpoint_t **)arg = endpoint;
}

static void receive_all(const char *url, int ready)
{
    tmsg_endpoint_t *endpoint = NULL;
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = &endpoint};
    tmsg_worker_t *worker = open_worker();
    tmsg_listener_t *listener;

    bench_must(tmsg_listener_create(worker, url, &params, &listener));
    if (write(ready, "", 1) != 1) {
        bench_die("the other side is gone");
    }
    while (endpoint == NULL) {
        bench_must(tmsg_worker_wait(worker, WAIT_MS));
    }
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        tmsg_map_t *map = map_on_gpu(shapes[s].tensors, shapes[s].bytes);

        for (unsigned i = 0; i < WARM_UP + MESSAGES; i++) {
            tmsg_message_t *message;

            bench_must(
                tmsg_endpoint_recv_into(endpoint, map, WAIT_MS, &message));
            tmsg_message_destroy(message);
        }
    }
    (void)tmsg_worker_wait(worker, WAIT_MS); /* until the other side ends */
}

static void send_one(tmsg_endpoint_t *endpoint, const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    tmsg_request_t *request;

    bench_must(tmsg_endpoint_send(endpoint, map, &params, &request));
    bench_must(tmsg_request_wait(request, WAIT_MS));
    tmsg_request_destroy(request);
}

static void send_all(const char *url, sim_cuda_fn simulated)
{
    tmsg_worker_t *worker = open_worker();
    const sim_counts_t *counts = simulated()->counts;
    tmsg_endpoint_t *endpoint;

    bench_must(tmsg_endpoint_connect(worker, url, NULL, &endpoint));
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        tmsg_map_t *map = map_on_gpu(shapes[s].tensors, shapes[s].bytes);
        uint64_t launches, messages;

        for (unsigned i = 0; i < WARM_UP; i++) {
            send_one(endpoint, map);
        }
        launches = counts->launches;
        messages = *sent;
        for (unsigned i = 0; i < MESSAGES; i++) {
            send_one(endpoint, map);
        }
        printf("%s;steady;both;%d;%llu;%llu\n", shapes[s].name, MESSAGES,
               (unsigned long long)(counts->launches - launches),
               (unsigned long long)(*sent - messages));
    }
}

int main(void)
{
    char path[] = "/tmp/tensormsg-counts-XXXXXX", url[64], byte;
    int ready[2], file = mkstemp(path);
    void *driver;
    sim_cuda_fn simulated;
    pid_t pid;

    sent = mmap(NULL, sizeof(*sent), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(url, sizeof(url), "unix:///tmp/tensormsg-counts-%d", getpid());
    setenv("SIM_CUDA_COUNTS", path, 1);
    if (file < 0 || sent == MAP_FAILED || pipe(ready) != 0 ||
        (pid = fork()) < 0) {
        bench_die("no two processes can be started");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        receive_all(url, ready[1]);
        _exit(0);
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&simulated = driver == NULL ? NULL : dlsym(driver, "sim_cuda");
    if (simulated == NULL || read(ready[0], &byte, 1) != 1) {
        bench_die("this needs the simulated driver");
    }
    send_all(url, simulated);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(path);
    fflush(stdout);
    _exit(0);
}
