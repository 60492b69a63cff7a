/* SPDX-License-Identifier: BSD-3-Clause */
/* camera_loan: a camera lends 4K frames to three viewers, each a process, that
 * take 0, 20 and 70 ms for a frame. They read the frames in the camera's
 * memory. The same once more with copies shows what these cost. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tensormsg/tensormsg.h>
#include <time.h>
#include <unistd.h>

enum { VIEWERS = 3, FRAMES = 30, RATE_HZ = 60, BLOCKS = 8 };
enum { HEIGHT = 2160, WIDTH = 3840, COLORS = 3 };

#define FRAME_BYTES ((size_t)HEIGHT * WIDTH * COLORS)

/* A frame's memory, and the publication that had it last. */
typedef struct {
    void *memory;
    tmsg_request_t *published; /* NULL: none */
} block_t;

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "camera_loan: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static double cpu_ms(int who)
{
    struct rusage used;

    getrusage(who, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

/* Looks at some rows of a frame, and takes its time. The camera draws frames of
 * one value, so that a frame that changes meanwhile is noticed. */
static bool look_at(const tmsg_message_t *message, int takes_ms)
{
    const unsigned char *pixels;
    tmsg_tensor_t image;
    unsigned char value;

    check(tmsg_map_find(tmsg_message_map(message), "image", &image));
    pixels = image.data;
    value = pixels[0];
    nap(takes_ms);
    for (size_t i = 0; i < FRAME_BYTES; i += 100 * WIDTH * COLORS) {
        if (pixels[i] != value) {
            return false;
        }
    }
    return pixels[FRAME_BYTES - 1] == value;
}

/* The process of a viewer, which says how it went by its exit code. */
static void view(const char *url, int number, int takes_ms)
{
    const tmsg_worker_params_t borrows = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                          .flags = TMSG_WORKER_BORROW};
    const tmsg_endpoint_params_t newest = {.field_mask =
                                               TMSG_ENDPOINT_PARAM_SUBSCRIBE,
                                           .subscribe = TMSG_SUBSCRIBE_NEWEST};
    unsigned seen = 0, lent = 0, torn = 0;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *camera;
    tmsg_message_t *message;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &borrows, &worker));
    check(tmsg_endpoint_connect(worker, url, &newest, &camera));
    while (tmsg_endpoint_recv(camera, -1, &message) == TMSG_OK) {
        lent += (unsigned)tmsg_message_is_lent(message);
        torn += !look_at(message, takes_ms);
        seen++;
        tmsg_message_destroy(message); /* gives the frame back */
    }
    printf("  viewer %d saw %u frames, %s lent, %u torn\n", number, seen,
           lent == seen ? "all"
           : lent == 0  ? "none"
                        : "some",
           torn);
    fflush(stdout);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    _exit(torn > 0 || seen == 0);
}

/* A frame that waits for a viewer is not lent yet; so ask for both. */
static bool is_free(block_t *block)
{
    if (block->published != NULL &&
        tmsg_request_test(block->published) == TMSG_IN_PROGRESS) {
        return false;
    }
    return !tmsg_shareable_is_lent(block->memory);
}

static block_t *next_free(block_t *blocks)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (is_free(&blocks[i])) {
            return &blocks[i];
        }
    }
    return NULL;
}

/* Stands for the camera's hardware, which writes into memory it is given. */
static void draw(block_t *block, int frame)
{
    memset(block->memory, 1 + frame % 250, FRAME_BYTES);
}

static void publish(tmsg_publisher_t *publisher, block_t *block, bool lends)
{
    const int64_t shape[] = {HEIGHT, WIDTH, COLORS};
    const tmsg_tensor_t image = {
        .data = block->memory,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 3,
        .shape = shape,
    };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = lends ? TMSG_SEND_LEND : 0};
    tmsg_map_t *map;

    tmsg_request_destroy(block->published);
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "image", &image, NULL));
    check(tmsg_publisher_publish(publisher, map, &params, &block->published));
    tmsg_map_destroy(map);
}

static void await_next(struct timespec *next)
{
    next->tv_nsec += 1000000000L / RATE_HZ;
    if (next->tv_nsec >= 1000000000L) {
        next->tv_nsec -= 1000000000L;
        next->tv_sec++;
    }
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL);
}

/* Publishes the frames, and says how much processor time that took beside
 * drawing them. */
static void run_camera(tmsg_publisher_t *publisher, bool lends)
{
    block_t blocks[BLOCKS] = {{0}};
    double drawing = 0, begun = cpu_ms(RUSAGE_SELF);
    struct timespec next;
    int skipped = 0;

    for (int i = 0; i < BLOCKS; i++) {
        check(tmsg_shareable_alloc(FRAME_BYTES, NULL, &blocks[i].memory));
    }
    drawing = cpu_ms(RUSAGE_SELF) - begun; /* the pages of the blocks */
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int i = 0; i < FRAMES; i++) {
        block_t *block = next_free(blocks);
        double before = cpu_ms(RUSAGE_THREAD);

        if (block == NULL) {
            skipped++;
        } else {
            draw(block, i);
            drawing += cpu_ms(RUSAGE_THREAD) - before;
            publish(publisher, block, lends);
        }
        await_next(&next);
    }
    for (int i = 0; i < BLOCKS; i++) {
        while (!is_free(&blocks[i])) {
            nap(1);
        }
    }
    printf("%s: %d frames of %.1f MB, %d skipped; the camera took %.0f ms of "
           "processor time beside drawing\n",
           lends ? "lent" : "copied", FRAMES, (double)FRAME_BYTES / 1e6,
           skipped, cpu_ms(RUSAGE_SELF) - begun - drawing);
    for (int i = 0; i < BLOCKS; i++) {
        tmsg_request_destroy(blocks[i].published);
        check(tmsg_shareable_free(blocks[i].memory));
    }
}

/* The camera's process, for one run. */
static void show(const char *url, bool lends)
{
    const tmsg_worker_params_t threaded = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS, .flags = TMSG_WORKER_THREAD};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_publisher_t *publisher;
    tmsg_listener_t *listener;
    tmsg_request_t *closed;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &threaded, &worker));
    check(tmsg_publisher_create(worker, NULL, &publisher));
    door.on_accept_arg = publisher;
    check(tmsg_listener_create(worker, url, &door, &listener));
    while (tmsg_publisher_size(publisher) < VIEWERS) {
        nap(1);
    }
    run_camera(publisher, lends);
    check(tmsg_publisher_close(publisher, &closed));
    check(tmsg_request_wait(closed, 30000));
    tmsg_request_destroy(closed);
    tmsg_worker_destroy(worker); /* with its publisher and listener */
    tmsg_context_destroy(context);
    fflush(stdout);
    _exit(0);
}

static pid_t start(void (*body)(const char *url, int, int), const char *url,
                   int number, int takes_ms)
{
    pid_t pid = fork();

    if (pid == 0) {
        body(url, number, takes_ms);
    }
    return pid;
}

static void be_camera(const char *url, int lends, int unused)
{
    (void)unused;
    show(url, lends);
}

/* Each is a process from the start, before any has a context. */
static int run(const char *directory, bool lends)
{
    static const int takes_ms[VIEWERS] = {0, 20, 70};
    char url[256];
    int failed = 0, status;
    double begun = cpu_ms(RUSAGE_CHILDREN);

    snprintf(url, sizeof(url), "unix://%s/%s", directory,
             lends ? "lent" : "copied");
    start(be_camera, url, lends, 0);
    while (access(url + strlen("unix://"), F_OK) != 0) {
        nap(1);
    }
    for (int i = 0; i < VIEWERS; i++) {
        start(view, url, i + 1, takes_ms[i]);
    }
    for (int i = 0; i < VIEWERS + 1; i++) {
        if (wait(&status) < 0 || status != 0) {
            failed = 1;
        }
    }
    printf("  all four processes took %.0f ms\n",
           cpu_ms(RUSAGE_CHILDREN) - begun);
    fflush(stdout);
    unlink(url + strlen("unix://"));
    return failed;
}

int main(void)
{
    char directory[] = "/tmp/camera_loan-XXXXXX";
    int failed;

    if (mkdtemp(directory) == NULL) {
        perror("camera_loan");
        return 1;
    }
    failed = run(directory, true);
    failed |= run(directory, false);
    rmdir(directory);
    return failed;
}
