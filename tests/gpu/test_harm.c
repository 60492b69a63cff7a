/* SPDX-License-Identifier: BSD-3-Clause */
/* What an application does to its device, or does wrong there, while a UCX that
 * knows CUDA moves its memory, on the simulated driver. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "gpu/sim_driver.h"
#include "memory/device_ipc.h"
#include "memory/domain.h"
#include "support/must.h"
#include "support/peers.h"

#define BYTES ((size_t)3 << 20)
#define NOT_READY 600
#define GLOBAL 0 /* CU_STREAM_CAPTURE_MODE_GLOBAL */

static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};
static const sim_cuda_t *sim;

/* The driver, as an application has it. */
static struct {
    int (*reset)(int device);
    int (*alloc)(uint64_t *address, size_t bytes);
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*query)(void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
} driver;

/* Called by each process of a test. */
static void begin(void)
{
    const sim_symbol_t symbols[] = {
        {"cuDevicePrimaryCtxReset_v2", &driver.reset},
        {"cuMemAlloc_v2", &driver.alloc},
        {"cuStreamCreate", &driver.create},
        {"cuStreamDestroy_v2", &driver.destroy},
        {"cuStreamQuery", &driver.query},
        {"cuStreamBeginCapture_v2", &driver.begin},
        {"cuStreamEndCapture", &driver.end},
        {NULL, NULL}};

    sim = sim_open(symbols);
    sim_enter();
}

static tmsg_map_t *new_map_behind(tmsg_stream_t stream)
{
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = stream};
    const int64_t shape = (int64_t)BYTES;
    tmsg_tensor_t tensor = {.device = gpu,
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1,
                            .shape = &shape};
    uint64_t address;
    tmsg_map_t *map;

    must_eq(driver.alloc(&address, BYTES), 0);
    tensor.data = (void *)(uintptr_t)address;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, &params));
    return map;
}

static tmsg_map_t *new_map(void)
{
    return new_map_behind((tmsg_stream_t){TMSG_STREAM_NONE, 0});
}

/* torch.cuda.graph() does so, in the mode that is the default. */
typedef struct {
    pthread_t thread;
    atomic_int stage; /* 1: it captures, 2: it may end */
    int result;
} capture_t;

static void *capture(void *arg)
{
    capture_t *as = arg;
    void *stream, *graph;

    sim_enter();
    must_eq(driver.create(&stream, 1), 0);
    must_eq(driver.begin(stream, GLOBAL), 0);
    as->stage = 1;
    while (as->stage != 2) {
    }
    as->result = driver.end(stream, &graph);
    return NULL;
}

static capture_t other = {.result = -1};

static void begin_capture(void)
{
    must_eq(pthread_create(&other.thread, NULL, capture, &other), 0);
    while (other.stage != 1) {
    }
}

static void end_capture(void)
{
    other.stage = 2;
    must_eq(pthread_join(other.thread, NULL), 0);
    must_eq(other.result, 0);
}

/* What the other process does, which receives until the connection ends. */
typedef enum {
    NO_HARM,
    CAPTURES,      /* another thread does, while UCX copies */
    FAULTS,        /* while UCX copies the second message */
    FAULTED_BEFORE /* before it comes */
} harm_t;

static void do_harm(harm_t harm, tmsg_worker_t *worker)
{
    void *stream;

    if (harm == CAPTURES) {
        begin_capture();
        return;
    }
    must_eq(driver.create(&stream, 1), 0);
    if (harm == FAULTS) {
        sim->set_delay(200000);
    }
    must_eq(sim->fault(stream), 0);
    while (harm == FAULTED_BEFORE && driver.query(stream) == NOT_READY) {
        tmsg_worker_progress(worker);
    }
}

static void receive(pipes_t *pipes, void *arg)
{
    harm_t harm = *(harm_t *)arg;
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    tmsg_status_t status;
    tmsg_map_t *map;
    side_t side;

    begin();
    map = new_map();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (int i = 0; (status = tmsg_endpoint_recv_into(
                         endpoint, map, PEERS_BOUND_MS, &message)) == TMSG_OK;
         i++) {
        tmsg_message_destroy(message);
        if (i == 0 && harm != NO_HARM) {
            do_harm(harm, side.worker);
            line_put(pipes->out, "harmed");
        } else if (harm == CAPTURES) {
            end_capture();
            line_put(pipes->out, "unharmed");
        }
    }
    if (harm > CAPTURES) {
        must_be(status, TMSG_ERR_IO);
        must_say(tmsg_error_message(), "illegal memory access");
    }
    side_close(&side);
}

typedef struct {
    child_t child;
    side_t side;
    tmsg_endpoint_t *endpoint;
} run_t;

static void start(run_t *run, harm_t harm)
{
    /* Who polls for a while before it sleeps asks a lot meanwhile. */
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_SPIN_US, .spin_us = 0}};
    char url[300];

    child_start(&run->child, receive, &harm);
    line_get(run->child.in, url, sizeof(url));
    begin();
    side_open(&run->side, &options);
    run->endpoint = side_connect(&run->side, url);
}

static void stop(run_t *run)
{
    tmsg_endpoint_destroy(run->endpoint);
    child_join(&run->child);
    side_close(&run->side);
    must_eq(sim->counts->undefined, 0);
}

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    if (level <= TMSG_LOG_ERROR) {
        *(bool *)arg |= strstr(line, "no active messages transport") != NULL;
    }
}

/* A kernel faults at the receiver, whose UCX copies. That UCX does not close
 * its endpoint: it asks the sender's, which is closed, whether it lives. */
static void faults(harm_t harm)
{
    bool complained = false;
    tmsg_request_t *sent;
    char line[20];
    run_t run;

    start(&run, harm);
    tmsg_log_set_ucx(hear, &complained);
    must(side_finish(&run.side,
                     send_map(run.endpoint, new_map(), TMSG_SEND_ACKED)));
    child_await(&run.side, &run.child);
    line_get(run.child.in, line, sizeof(line));
    sent = send_map(run.endpoint, new_map(), TMSG_SEND_ACKED);
    must_be(side_wait(&run.side, sent), TMSG_ERR_IO);
    must_say(tmsg_request_error(sent), "illegal memory access");
    tmsg_request_destroy(sent);
    must_be(side_end_of(&run.side, run.endpoint), TMSG_ERR_IO);
    stop(&run);
    tmsg_log_set_ucx(NULL, NULL);
    must_true(!complained);
}

Test(harm, of_a_kernel_that_faults_is_told) { faults(FAULTS); }
Test(harm, of_a_kernel_that_faulted_before_is_told) { faults(FAULTED_BEFORE); }

/* UCX copies at the receiver, while another thread of it captures. */
Test(harm, is_not_done_to_the_capture_of_another_thread)
{
    char line[20];
    run_t run;

    start(&run, CAPTURES);
    for (int i = 0; i < 2; i++) {
        must(side_finish(&run.side,
                         send_map(run.endpoint, new_map(), TMSG_SEND_ACKED)));
        child_await(&run.side, &run.child);
        line_get(run.child.in, line, sizeof(line));
        cr_expect_str_eq(line, i == 0 ? "harmed" : "unharmed");
    }
    stop(&run);
}

/* cudaDeviceReset(): the message on its way fails, and others follow when the
 * application uses the device again. */
Test(harm, of_a_reset_is_told_and_over_then)
{
    tmsg_request_t *sent;
    tmsg_stream_t stream = {.kind = TMSG_STREAM_CUDA};
    tmsg_status_t status;
    void *handle;
    run_t run;

    start(&run, NO_HARM);
    must(side_finish(&run.side,
                     send_map(run.endpoint, new_map(), TMSG_SEND_ACKED)));
    must_eq(driver.create(&handle, 1), 0);
    stream.handle = (uint64_t)(uintptr_t)handle;
    sim->set_delay(300000);
    sent = send_map(run.endpoint, new_map_behind(stream), TMSG_SEND_ACKED);
    must_eq(driver.reset(0), 0);
    sim->set_delay(0);
    status = side_wait(&run.side, sent);
    must_be(status, TMSG_ERR_IO);
    must_say(tmsg_request_error(sent), "cudaDeviceReset()");
    tmsg_request_destroy(sent);
    sim_enter();
    must(side_finish(&run.side,
                     send_map(run.endpoint, new_map(), TMSG_SEND_ACKED)));
    stop(&run);
}

/* The library's own memory that others open goes with the context: its address
 * may be the application's then. */
Test(harm, of_a_reset_frees_nothing_twice)
{
    tmsg_ipc_memory_t *memory;
    uint64_t frees;

    begin();
    must(tmsg_ipc_alloc(&tmsg_domain_cuda, gpu, BYTES, "all", &memory));
    must_true(tmsg_ipc_stands(memory));
    must_eq(driver.reset(0), 0);
    sim_enter();
    must_true(!tmsg_ipc_stands(memory));
    frees = sim->counts->frees;
    tmsg_ipc_free(memory);
    must_true(tmsg_cuda_settle(PEERS_BOUND_MS));
    must_eq(sim->counts->frees, frees);
}

/* A stream that was destroyed is refused by the driver's words. */
Test(harm, of_a_stream_that_was_destroyed_is_told)
{
    tmsg_stream_t stream = {.kind = TMSG_STREAM_CUDA};
    tmsg_request_t *sent = NULL;
    tmsg_map_t *map;
    void *handle;
    run_t run;

    start(&run, NO_HARM);
    must_eq(driver.create(&handle, 1), 0);
    stream.handle = (uint64_t)(uintptr_t)handle;
    map = new_map_behind(stream);
    must_eq(driver.destroy(handle), 0);
    must_be(tmsg_endpoint_send(run.endpoint, map, NULL, &sent), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "tensor 'x': cuStreamGetCtx: ");
    tmsg_map_destroy(map);
    must(side_finish(&run.side,
                     send_map(run.endpoint, new_map(), TMSG_SEND_ACKED)));
    tmsg_endpoint_destroy(run.endpoint);
    child_join(&run.child);
    side_close(&run.side);
}

/* A thread that sleeps is woken by the driver, and does not ask all the time
 * before. */
typedef struct {
    pthread_t thread;
    volatile int go;
    uint64_t queries; /* in 300 ms */
} hold_t;

/* A timer of 2 ms asks 150 times. The device is asked 3 times whether it works,
 * by an event that is looked at 7 times each. */
#define QUIET 60

/* Waits until the sender sleeps: on a busy machine that may be late. */
static void *let_go(void *arg)
{
    hold_t *hold = arg;

    hold->queries = UINT64_MAX;
    for (int i = 0; i < 20 && hold->queries > QUIET; i++) {
        uint64_t before = sim->counts->events_queried;

        usleep(300000);
        hold->queries = sim->counts->events_queried - before;
    }
    hold->go = 1;
    return NULL;
}

Test(harm, is_no_sleep_that_a_timer_ends)
{
    tmsg_stream_t stream = {.kind = TMSG_STREAM_CUDA};
    hold_t hold = {.go = 0};
    tmsg_request_t *sent;
    tmsg_map_t *map;
    void *handle;
    run_t run;

    start(&run, NO_HARM);
    must_eq(driver.create(&handle, 1), 0);
    stream.handle = (uint64_t)(uintptr_t)handle;
    map = new_map_behind(stream);
    must_eq(sim->hold(&hold.go, handle), 0);
    sent = send_map(run.endpoint, map, TMSG_SEND_ACKED);
    must_eq(pthread_create(&hold.thread, NULL, let_go, &hold), 0);
    must(tmsg_request_wait(sent, PEERS_BOUND_MS));
    must_eq(pthread_join(hold.thread, NULL), 0);
    if (hold.queries > QUIET) {
        die("asked %llu times", (unsigned long long)hold.queries);
    }
    must_true(sim->counts->host_functions > 0);
    tmsg_request_destroy(sent);
    stop(&run);
}
