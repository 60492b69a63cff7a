/* SPDX-License-Identifier: BSD-3-Clause */
/* scheduler.c - the library inside of a pipeline SDK: two operators, each with
 * an allocator, a stream and a worker of its own, on a scheduler that owns the
 * only thread, sleeps on descriptors and never lets an operator wait.
 *
 * `scheduler [ROUNDS] [cuda]` starts and stops the pipeline so often, 3 times
 * if nothing is said; with `cuda` the frames lie on the first GPU. The
 * operators of examples/embed/holoscan are for Holoscan's scheduler. */
#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tensormsg/tensormsg.h>

enum { FRAMES = 40, BUFFERS = 6, FRAME_BYTES = 300000, OPERATORS = 2 };

static const tmsg_stream_t no_stream;
static tmsg_device_t device = {TMSG_DEVICE_CPU, 0};

static void fail(const char *what)
{
    fprintf(stderr, "scheduler: %s: %s\n", what, tmsg_error_message());
    exit(1);
}

#define CHECK(call) ((call) == TMSG_OK ? (void)0 : fail(#call))

/* An operator as SDKs have it. None of these may wait. */
typedef struct operator operator_t;
struct operator
{
    const char *name;
    void (*start)(operator_t * self);
    /* Moves what it can. */
    void (*compute)(operator_t * self);
    /* Where it is to be called again; false: at once. */
    bool (*sleep)(operator_t * self, struct pollfd * wake);
    bool (*is_done)(const operator_t *self);
    void (*stop)(operator_t * self);
    double longest; /* call of compute, in seconds */
};

/* An allocator of an operator's own: some buffers on its device. */
typedef struct {
    const tmsg_domain_t *domain;
    void *spare[BUFFERS];
    int spares;
} pool_t;

static void pool_open(pool_t *pool)
{
    CHECK(tmsg_domain_find(device, &pool->domain));
    for (pool->spares = 0; pool->spares < BUFFERS; pool->spares++) {
        CHECK(pool->domain->alloc(pool->domain->arg, device, FRAME_BYTES, 64,
                                  no_stream, &pool->spare[pool->spares]));
    }
}

static void pool_close(pool_t *pool)
{
    if (pool->spares != BUFFERS) {
        fail("a buffer did not come back");
    }
    while (pool->spares > 0) {
        pool->domain->free(pool->domain->arg, device,
                           pool->spare[--pool->spares], FRAME_BYTES, no_stream);
    }
}

/* Each operator lives on the scheduler's thread, and so do the calls that give
 * its buffers back: no lock is needed. */
static void *pool_take(pool_t *pool)
{
    return pool->spares == 0 ? NULL : pool->spare[--pool->spares];
}

static void pool_give(pool_t *pool, void *data)
{
    pool->spare[pool->spares++] = data;
}

/* What both operators have. */
typedef struct {
    operator_t op;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_stream_t stream;
    pool_t pool;
    int64_t frames;
} base_t;

static void base_start(base_t *base, const tmsg_worker_params_t *params)
{
    pool_open(&base->pool);
    base->frames = 0;
    CHECK(tmsg_context_create(NULL, &base->context));
    CHECK(tmsg_worker_create(base->context, params, &base->worker));
}

static void base_stop(operator_t *self)
{
    base_t *base = (base_t *)self;

    tmsg_worker_destroy(base->worker); /* all that it holds comes back */
    tmsg_context_destroy(base->context);
    pool_close(&base->pool);
}

static bool base_sleep(operator_t *self, struct pollfd *wake)
{
    base_t *base = (base_t *)self;

    *wake =
        (struct pollfd){.fd = tmsg_worker_fd(base->worker), .events = POLLIN};
    return tmsg_worker_arm(base->worker) == TMSG_OK;
}

/* The receiver. Payload comes into its own buffers. */
typedef struct {
    base_t base;
    tmsg_listener_t *listener;
} receiver_t;

/* More than there are buffers is not taken: then it is the library's pool that
 * has memory, and its bounds that hold the sender up. */
static tmsg_status_t device_alloc(void *arg, tmsg_device_t on, uint64_t bytes,
                                  uint64_t alignment, tmsg_stream_t stream,
                                  void **data_p, void **token_p)
{
    receiver_t *receiver = arg;
    void *data = bytes <= FRAME_BYTES ? pool_take(&receiver->base.pool) : NULL;

    (void)on;
    (void)alignment;
    (void)stream; /* spare buffers have no work under way */
    *token_p = NULL;
    *data_p = data;
    return data == NULL ? TMSG_ERR_UNSUPPORTED : TMSG_OK;
}

static void device_release(void *arg, tmsg_device_t on, void *data,
                           uint64_t bytes, tmsg_stream_t stream, void *token)
{
    receiver_t *receiver = arg;

    (void)on;
    (void)bytes;
    (void)stream;
    (void)token;
    pool_give(&receiver->base.pool, data);
}

/* The same for a pipeline in the host's memory, where a payload of several
 * tensors comes in one piece. */
static tmsg_status_t host_alloc(void *arg, tmsg_device_t on, uint64_t bytes,
                                uint64_t alignment, void **data_p,
                                void **token_p)
{
    void *own = NULL;

    if (device_alloc(arg, on, bytes, alignment, no_stream, data_p, &own) !=
        TMSG_OK) {
        *data_p = own = malloc(bytes);
    }
    *token_p = own;
    return *data_p == NULL ? TMSG_ERR_NO_MEMORY : TMSG_OK;
}

static void host_release(void *arg, void *data, uint64_t bytes, void *token)
{
    if (token != NULL) {
        free(token);
    } else {
        device_release(arg, device, data, bytes, no_stream, NULL);
    }
}

/* What comes is ordered before this operator's own work. */
static void on_header(void *arg, tmsg_incoming_t *incoming)
{
    const receiver_t *receiver = arg;

    CHECK(tmsg_incoming_choose_all(incoming, device, receiver->base.stream));
}

static void receiver_start(operator_t *self)
{
    receiver_t *receiver = (receiver_t *)self;
    const tmsg_allocator_t host = {host_alloc, host_release, receiver};
    const tmsg_device_allocator_t own = {device_alloc, device_release,
                                         receiver};
    bool on_host = device.type == TMSG_DEVICE_CPU;
    const tmsg_worker_params_t params = {
        .field_mask = on_host ? TMSG_WORKER_PARAM_ALLOCATOR
                              : TMSG_WORKER_PARAM_DEVICE_ALLOCATOR |
                                    TMSG_WORKER_PARAM_ON_HEADER,
        .allocator = &host,
        .device_allocator = &own,
        .on_header = on_header,
        .on_header_arg = receiver};

    base_start(&receiver->base, &params);
    CHECK(tmsg_listener_create(receiver->base.worker, "tcp://127.0.0.1:0", NULL,
                               &receiver->listener));
}

static void use_frame(receiver_t *receiver, const tmsg_map_t *map)
{
    const tmsg_domain_t *domain = receiver->base.pool.domain;
    tmsg_tensor_t tensor;
    int64_t number;
    uint8_t byte;

    CHECK(tmsg_map_find(map, "frame", &tensor));
    CHECK(tmsg_map_get_i64(map, TMSG_META_FRAME, &number));
    CHECK(domain->copy_out(domain->arg, tensor.device, &byte,
                           (const uint8_t *)tensor.data + FRAME_BYTES - 1, 1,
                           no_stream));
    if (number != receiver->base.frames || byte != (uint8_t)number ||
        tensor.device.type != device.type) {
        fail("a frame is not as it was sent");
    }
    receiver->base.frames++;
}

static void receiver_compute(operator_t *self)
{
    receiver_t *receiver = (receiver_t *)self;
    tmsg_message_t *message;

    tmsg_worker_progress(receiver->base.worker);
    while (tmsg_worker_recv(receiver->base.worker, 0, &message) == TMSG_OK) {
        use_frame(receiver, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static bool receiver_is_done(const operator_t *self)
{
    return ((const base_t *)self)->frames == FRAMES;
}

/* The sender. */
typedef struct {
    base_t base;
    const receiver_t *to;
    tmsg_endpoint_t *endpoint;
} sender_t;

typedef struct {
    sender_t *sender;
    void *data;
} lent_t;

static void give_back(void *arg)
{
    lent_t *lent = arg;

    pool_give(&lent->sender->base.pool, lent->data);
    free(lent);
}

static void sender_start(operator_t *self)
{
    sender_t *sender = (sender_t *)self;

    base_start(&sender->base, NULL);
    CHECK(tmsg_endpoint_connect(sender->base.worker,
                                tmsg_listener_url(sender->to->listener), NULL,
                                &sender->endpoint));
}

/* A frame is filled on the operator's stream and sent at once: the library
 * waits for the stream, the operator does not. */
static void send_frame(sender_t *sender, void *data)
{
    static uint8_t pixels[FRAMES][FRAME_BYTES];
    static const int64_t shape[] = {FRAME_BYTES};
    const tmsg_domain_t *domain = sender->base.pool.domain;
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = device,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = shape};
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE |
                                                  TMSG_MAP_ADD_PARAM_STREAM,
                                    .stream = sender->base.stream,
                                    .release = give_back};
    lent_t *lent = malloc(sizeof(*lent));
    int64_t number = sender->base.frames++;
    tmsg_map_t *map;

    if (lent == NULL) {
        fail("memory");
    }
    *lent = (lent_t){sender, data};
    params.release_arg = lent;
    memset(pixels[number], (int)number, FRAME_BYTES);
    CHECK(domain->copy_in(domain->arg, device, data, pixels[number],
                          FRAME_BYTES, sender->base.stream));
    CHECK(tmsg_map_create(&map));
    CHECK(tmsg_map_add(map, "frame", &tensor, &params));
    CHECK(tmsg_map_set_i64(map, TMSG_META_FRAME, number));
    CHECK(tmsg_endpoint_send(sender->endpoint, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void sender_compute(operator_t *self)
{
    sender_t *sender = (sender_t *)self;
    void *data;

    tmsg_worker_progress(sender->base.worker);
    while (sender->base.frames < FRAMES &&
           (data = pool_take(&sender->base.pool)) != NULL) {
        send_frame(sender, data);
    }
}

static bool sender_is_done(const operator_t *self)
{
    const base_t *base = (const base_t *)self;

    return base->frames == FRAMES && base->pool.spares == BUFFERS;
}

/* The scheduler. */
static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void call(operator_t *each)
{
    double began = seconds();

    each->compute(each);
    began = seconds() - began;
    each->longest = began > each->longest ? began : each->longest;
}

static void run(operator_t *const *operators)
{
    bool done = false;

    for (int i = 0; i < OPERATORS; i++) {
        operators[i]->start(operators[i]);
    }
    while (!done) {
        struct pollfd wakes[OPERATORS];
        bool all_sleep = true;

        done = true;
        for (int i = 0; i < OPERATORS; i++) {
            call(operators[i]);
            done = operators[i]->is_done(operators[i]) && done;
        }
        for (int i = 0; i < OPERATORS; i++) {
            all_sleep =
                operators[i]->sleep(operators[i], &wakes[i]) && all_sleep;
        }
        if (!done && all_sleep && poll(wakes, OPERATORS, 60000) == 0) {
            fail("nothing happened for a minute");
        }
    }
    for (int i = OPERATORS - 1; i >= 0; i--) {
        operators[i]->stop(operators[i]);
    }
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

/* As an SDK gives each operator one. */
static tmsg_stream_t make_stream(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *const names[] = {"cuDevicePrimaryCtxRetain",
                                 "cuCtxPushCurrent_v2", "cuStreamCreate",
                                 "cuCtxPopCurrent_v2"};
    int (*retain)(void **, int), (*push)(void *), (*pop)(void **);
    int (*create)(void **, unsigned);
    void *found[4] = {NULL}, *context, *stream;

    for (int i = 0; i < 4; i++) {
        found[i] = library == NULL ? NULL : dlsym(library, names[i]);
        if (found[i] == NULL) {
            fail(names[i]);
        }
    }
    memcpy(&retain, &found[0], sizeof(retain));
    memcpy(&push, &found[1], sizeof(push));
    memcpy(&create, &found[2], sizeof(create));
    memcpy(&pop, &found[3], sizeof(pop));
    if (retain(&context, 0) != 0 || push(context) != 0 ||
        create(&stream, 1) != 0 || pop(&context) != 0) {
        fail("a stream");
    }
    return (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)stream};
}

int main(int count, char **arguments)
{
    static receiver_t receiver = {.base.op = {"receiver", receiver_start,
                                              receiver_compute, base_sleep,
                                              receiver_is_done, base_stop, 0}};
    static sender_t sender = {.base.op = {"sender", sender_start,
                                          sender_compute, base_sleep,
                                          sender_is_done, base_stop, 0},
                              .to = &receiver};
    operator_t *const operators[] = {&receiver.base.op, &sender.base.op};
    int rounds = count > 1 ? atoi(arguments[1]) : 3, descriptors = 0;

    if (count > 2 && strcmp(arguments[2], "cuda") == 0) {
        device.type = TMSG_DEVICE_CUDA;
        CHECK(tmsg_domain_use(device));
        receiver.base.stream = make_stream();
        sender.base.stream = make_stream();
    }
    for (int i = 0; i < rounds; i++) {
        run(operators);
        if (i == 0) {
            descriptors = count_descriptors();
        }
    }
    if (rounds > 0 && count_descriptors() != descriptors) {
        fail("descriptors were left open");
    }
    printf("%d rounds of %d frames\n", rounds, FRAMES);
    for (int i = 0; i < OPERATORS; i++) {
        printf("longest call of the %s: %.1f ms\n", operators[i]->name,
               operators[i]->longest * 1e3);
    }
    return 0;
}
