/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const tmsg_domain_t *cuda;

static struct {
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*alloc)(uint64_t *address, size_t bytes);
    int (*free)(uint64_t address);
    void *context;
} driver;

void check(tmsg_status_t status, const char *what)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, tmsg_status_name(status),
                tmsg_error_message());
        exit(1);
    }
}

void expect(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "not as it should be: %s\n", what);
        exit(1);
    }
}

int number_of(const char *name, int standard)
{
    const char *set = getenv(name);
    int number = set == NULL ? standard : atoi(set);

    expect(number > 0, name);
    return number;
}

double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *find_function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    return library == NULL ? NULL : dlsym(library, name);
}

bool has_function(const char *name) { return find_function(name) != NULL; }

void find(const char *name, void *function_p)
{
    void *found = find_function(name);

    expect(found != NULL, name);
    memcpy(function_p, &found, sizeof(found));
}

void open_driver(void)
{
    int (*retain)(void **context, int device);

    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxPushCurrent_v2", &driver.push);
    find("cuCtxPopCurrent_v2", &driver.pop);
    find("cuMemAlloc_v2", &driver.alloc);
    find("cuMemFree_v2", &driver.free);
    CHECK(tmsg_domain_use(gpu));
    CHECK(tmsg_domain_find(gpu, &cuda));
    EXPECT(retain(&driver.context, 0) == 0);
}

void enter_gpu(void) { EXPECT(driver.push(driver.context) == 0); }

void leave_gpu(void)
{
    void *context;

    EXPECT(driver.pop(&context) == 0);
}

void *gpu_alloc(uint64_t bytes)
{
    uint64_t address = 0;

    enter_gpu();
    EXPECT(driver.alloc(&address, bytes == 0 ? 1 : bytes) == 0);
    leave_gpu();
    return (void *)(uintptr_t)address;
}

void gpu_free(void *data)
{
    enter_gpu();
    EXPECT(driver.free((uint64_t)(uintptr_t)data) == 0);
    leave_gpu();
}

void open_side(side_t *side, const tmsg_worker_params_t *params)
{
    CHECK(tmsg_context_create(NULL, &side->context));
    CHECK(tmsg_worker_create(side->context, params, &side->worker));
}

void close_side(side_t *side)
{
    tmsg_endpoint_destroy(side->endpoint);
    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((side_t *)arg)->endpoint = endpoint;
}

void listen_side(side_t *side)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = side};
    tmsg_listener_t *listener;
    char url[URL_BYTES] = "";

    CHECK(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", &params,
                               &listener));
    snprintf(url, sizeof(url), "%s", tmsg_listener_url(listener));
    EXPECT(write(side->to, url, sizeof(url)) == (ssize_t)sizeof(url));
    while (side->endpoint == NULL) {
        tmsg_worker_progress(side->worker);
    }
}

void await_url(side_t *side, char url[URL_BYTES])
{
    EXPECT(read(side->from, url, URL_BYTES) == URL_BYTES);
}

bool run_sides(part_fn listens, part_fn dials, const void *arg)
{
    int there[2], back[2], status;
    bool well = true;
    pid_t pids[2], ended;

    EXPECT(pipe(there) == 0 && pipe(back) == 0);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        EXPECT(pids[i] >= 0);
        if (pids[i] == 0) {
            side_t side = {.from = i == 0 ? back[0] : there[0],
                           .to = i == 0 ? there[1] : back[1]};

            close(i == 0 ? back[1] : there[1]);
            close(i == 0 ? there[0] : back[0]);
            (i == 0 ? listens : dials)(&side, arg);
            fflush(stdout);
            _exit(0);
        }
    }
    close(there[0]);
    close(there[1]);
    close(back[0]);
    close(back[1]);
    while ((ended = wait(&status)) > 0) {
        if (status != 0 && well) { /* the other would wait for it */
            well = false;
            kill(ended == pids[0] ? pids[1] : pids[0], SIGKILL);
        }
    }
    return well;
}

int look_for_gpu(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (tmsg_domain_use(gpu) != TMSG_OK) {
            printf("no GPU can be used: %s\n", tmsg_error_message());
            fflush(stdout);
            _exit(NO_GPU);
        }
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}
