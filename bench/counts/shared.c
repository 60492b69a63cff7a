/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-counts-shared: two processes on one core send each other maps of
 * 8 x 64 B in lock step. Prints how often the kernel switched between them and
 * how often UCX was asked in vain, which is what a wait that keeps the core
 * from its peer does. counts.py runs it; bench/counts/README.md. */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "../bench.h"

#define WARM_UP 2000
#define MESSAGES 20000 /* that each side sends */
#define WAIT_MS 20000
#define URL_BYTES 256

typedef struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;
    unsigned received, awaited;
} side_t;

typedef struct {
    long switches;
    unsigned long vain;
} counted_t;

static unsigned long vain; /* polls of UCX that found nothing */

/* In UCX's place. */
__attribute__((visibility("default"))) unsigned
ucp_worker_progress(void *worker);
unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *worker);
    unsigned count;

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_worker_progress");
    }
    count = real(worker);
    vain += count == 0;
    return count;
}

static void arrived(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    ((side_t *)arg)->received++;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((side_t *)arg)->endpoint = endpoint;
}

static void open_side(side_t *side)
{
    const tmsg_context_params_t context_params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG,
        .ucx_config = "TLS=posix,cma,self"};
    const tmsg_worker_params_t worker_params = {.field_mask =
                                                    TMSG_WORKER_PARAM_HANDLER,
                                                .handler = arrived,
                                                .handler_arg = side};

    bench_must(tmsg_context_create(&context_params, &side->context));
    bench_must(
        tmsg_worker_create(side->context, &worker_params, &side->worker));
    side->map = bench_small_map();
}

static void close_side(side_t *side)
{
    tmsg_map_destroy(side->map);
    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
}

static void listen_for_one(side_t *side, int pipe)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = side};
    char url[URL_BYTES] = "";

    bench_must(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", &params,
                                    &side->listener));
    snprintf(url, sizeof(url), "%s", tmsg_listener_url(side->listener));
    if (write(pipe, url, sizeof(url)) != sizeof(url)) {
        bench_die("the other side is gone");
    }
    while (side->endpoint == NULL) {
        bench_must(tmsg_worker_wait(side->worker, WAIT_MS));
    }
}

static void dial(side_t *side, int pipe)
{
    char url[URL_BYTES];

    if (read(pipe, url, sizeof(url)) != sizeof(url)) {
        bench_die("the other side is gone");
    }
    bench_must(tmsg_endpoint_connect(side->worker, url, NULL, &side->endpoint));
}

static void await_one(side_t *side)
{
    side->awaited++;
    while (side->received < side->awaited) {
        bench_must(tmsg_worker_wait(side->worker, WAIT_MS));
    }
}

static void take_turns(side_t *side, unsigned messages, bool first)
{
    for (unsigned i = 0; i < messages; i++) {
        if (first) {
            bench_must(
                tmsg_endpoint_send(side->endpoint, side->map, NULL, NULL));
        }
        await_one(side);
        if (!first) {
            bench_must(
                tmsg_endpoint_send(side->endpoint, side->map, NULL, NULL));
        }
    }
}

static long switches(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw; /* a yield is one of the latter */
}

static void run(bool first, int from, int to, int result)
{
    side_t side = {0};
    counted_t counted;

    open_side(&side);
    if (first) {
        dial(&side, from);
    } else {
        listen_for_one(&side, to);
    }
    take_turns(&side, WARM_UP, first);
    counted = (counted_t){-switches(), -vain};
    take_turns(&side, MESSAGES, first);
    counted.switches += switches();
    counted.vain += vain;
    if (write(result, &counted, sizeof(counted)) != sizeof(counted)) {
        bench_die("nobody wants the result");
    }
    take_turns(&side, 1, first); /* what is left is not of the counted ones */
    close_side(&side);
}

int main(void)
{
    int url[2], result[2];
    counted_t all = {0}, counted;
    pid_t pid;

    bench_bind_core(0);
    if (pipe(url) != 0 || pipe(result) != 0 || (pid = fork()) < 0) {
        bench_die("no two processes can be started");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    run(pid != 0, url[0], url[1], result[1]);
    if (pid == 0) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (read(result[0], &counted, sizeof(counted)) != sizeof(counted)) {
            bench_die("the other side is gone");
        }
        all.switches += counted.switches;
        all.vain += counted.vain;
    }
    waitpid(pid, NULL, 0);
    printf("8x64B, one core;steady;both;%d;%ld;%lu\n", 2 * MESSAGES,
           all.switches, all.vain);
}
