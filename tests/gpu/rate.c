/* SPDX-License-Identifier: BSD-3-Clause */
/* rate.c - how fast maps of CUDA tensors go between two processes on one GPU.
 *
 *   gpu_rate [unposted] [pool | shareable] [most=BYTES]
 *
 * unposted: the receiver takes messages as they come, in memory of the library;
 * else it receives into tensors of its own (tmsg_endpoint_recv_into()). pool:
 * what is sent lies in memory of a stream-ordered pool; shareable: of
 * tmsg_shareable_alloc(); else of cuMemAlloc(). most: the longest tensor,
 * 256 MiB by default.
 *
 * Prints a line for each measurement as it ends:
 *
 *   rate|what|bytes|GB/s|us a map|GB/s of a copy|counters
 *
 * what: "1 ahead" and "4 ahead" are maps of one tensor, each acknowledged, so
 * many in flight; "latency" and "latency x8" are half of a round trip of a map
 * of 1 tensor and of 8. The copy is the driver's, of as many bytes on that GPU,
 * in this run. Counters are those of device tensors that grew meanwhile, at the
 * sender. Both processes spin. TMSG_GPU_RATE_MS: how long each is measured
 * (250), after 3 maps to get warm. TMSG_GPU_WAIT_S bounds each wait (60). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sides.h"

#define MOST_AHEAD 4
#define MOST_TENSORS 8
#define WARM 3

static bool unposted, pool, shareable;
static int bound_ms;

/* ---- memory */

/* cudaMalloc()'s memory, cudaMallocAsync()'s, or the library's. */
static void *alloc(uint64_t bytes)
{
    const tmsg_shareable_params_t params = {
        .field_mask = TMSG_SHAREABLE_PARAM_DEVICE, .device = gpu};
    int (*alloc_async)(uint64_t * address, size_t bytes, void *stream);
    int (*wait_for)(void *stream);
    uint64_t address = 0;
    void *data;

    if (shareable) {
        CHECK(tmsg_shareable_alloc(bytes, &params, &data));
        return data;
    }
    if (!pool) {
        return gpu_alloc(bytes);
    }
    find("cuMemAllocAsync", &alloc_async);
    find("cuStreamSynchronize", &wait_for);
    enter_gpu();
    EXPECT(alloc_async(&address, bytes, NULL) == 0);
    EXPECT(wait_for(NULL) == 0);
    leave_gpu();
    return (void *)(uintptr_t)address;
}

static void give_back(void *data)
{
    if (shareable) {
        CHECK(tmsg_shareable_free(data));
    } else {
        gpu_free(data);
    }
}

/* The first and the last MiB are looked at. */
static void edges(const tmsg_tensor_t *tensor, bool fill)
{
    uint64_t bytes, length, at[2];
    uint8_t *host, *wanted;

    CHECK(tmsg_tensor_bytes(tensor, &bytes));
    length = bytes < MIB ? bytes : MIB;
    at[0] = 0;
    at[1] = bytes - length;
    host = malloc(length);
    wanted = malloc(length);
    EXPECT(host != NULL && wanted != NULL);
    for (int i = 0; i < 2; i++) {
        uint8_t *there = (uint8_t *)tensor->data + at[i];

        for (uint64_t k = 0; k < length; k++) {
            wanted[k] = (uint8_t)((at[i] + k) * 7 + (at[i] + k) / 251);
        }
        if (fill) {
            CHECK(cuda->copy_in(cuda->arg, gpu, there, wanted, length, none));
        } else {
            CHECK(cuda->copy_out(cuda->arg, gpu, host, there, length, none));
            expect(memcmp(host, wanted, length) == 0, "holds what was sent");
        }
    }
    free(host);
    free(wanted);
}

/* ---- what is measured */

typedef struct {
    const char *name;
    uint64_t bytes; /* of each tensor */
    unsigned tensors, ahead, rounds;
    bool back; /* each map is answered by one */
} job_t;

static tmsg_map_t *make_map(const job_t *job)
{
    const int64_t shape = (int64_t)job->bytes;
    tmsg_tensor_t tensor = {.device = gpu,
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1,
                            .shape = &shape};
    tmsg_map_t *map;
    char name[20];

    CHECK(tmsg_map_create(&map));
    for (unsigned i = 0; i < job->tensors; i++) {
        tmsg_map_add_params_t params = {
            .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = give_back};

        tensor.data = alloc(job->bytes);
        params.release_arg = tensor.data;
        edges(&tensor, true);
        snprintf(name, sizeof(name), "x%u", i);
        CHECK(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static struct {
    tmsg_map_t *out, *in;
} maps; /* of the job */

static void take(side_t *side, bool look)
{
    tmsg_message_t *message;
    tmsg_tensor_t tensor;

    if (unposted) {
        CHECK(tmsg_endpoint_recv(side->endpoint, bound_ms, &message));
    } else {
        CHECK(tmsg_endpoint_recv_into(side->endpoint, maps.in, bound_ms,
                                      &message));
    }
    if (look) {
        CHECK(tmsg_map_find(tmsg_message_map(message), "x0", &tensor));
        EXPECT(tensor.device.type == TMSG_DEVICE_CUDA);
        edges(&tensor, false);
    }
    tmsg_message_destroy(message);
}

static tmsg_request_t *post(side_t *side, uint32_t flags)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_POLICY |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_request_t *request;

    CHECK(tmsg_endpoint_send(side->endpoint, maps.out, &params, &request));
    return request;
}

static void finish(tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_wait(request, bound_ms);

    if (status != TMSG_OK) {
        fprintf(stderr, "request: %s: %s\n", tmsg_status_name(status),
                tmsg_request_error(request));
        exit(1);
    }
    tmsg_request_destroy(request);
}

/* The sender's part; the seconds of a map. */
static double send_all(side_t *side, const job_t *job)
{
    tmsg_request_t *requests[MOST_AHEAD] = {NULL};
    double began = seconds();

    for (unsigned i = 0; i < job->rounds + job->ahead; i++) {
        tmsg_request_t **place = &requests[i % job->ahead];

        if (*place != NULL) {
            finish(*place);
            *place = NULL;
        }
        if (i < job->rounds) {
            *place = post(side, job->back ? 0 : TMSG_SEND_ACKED);
            if (job->back) {
                take(side, false);
            }
        }
    }
    return (seconds() - began) / job->rounds;
}

static void take_all(side_t *side, const job_t *job)
{
    for (unsigned i = 0; i < job->rounds; i++) {
        take(side, i == 0);
        if (job->back) {
            finish(post(side, 0));
        }
    }
}

/* The other side is told, and has its memory. */
static void agree(side_t *side, const job_t *job)
{
    char ready;

    EXPECT(write(side->to, job, sizeof(*job)) == (ssize_t)sizeof(*job));
    EXPECT(read(side->from, &ready, 1) == 1);
}

static double copy_alone(uint64_t bytes, double limit)
{
    void *from = alloc(bytes), *to = alloc(bytes);
    double began = 0, now = 0;
    unsigned rounds = 0;

    for (int warm = 0; warm < 2 || now - began < limit; rounds++) {
        CHECK(cuda->copy_within(cuda->arg, gpu, to, from, bytes, none));
        now = seconds();
        if (warm < 2) {
            warm++;
            rounds = 0;
            began = now;
        }
    }
    give_back(from);
    give_back(to);
    return rounds <= 1
               ? 0
               : (double)(rounds - 1) * (double)bytes / (now - began) / 1e9;
}

/* ---- counters */

#define COUNTERS 32

typedef struct {
    char name[40];
    unsigned long long value;
} counter_t;

/* Those of the object "device_tensors". */
static unsigned read_counters(side_t *side, counter_t *counters)
{
    unsigned count = 0;
    char *json, *at, *end;

    CHECK(tmsg_endpoint_describe(side->endpoint, &json));
    at = strstr(json, "\"device_tensors\"");
    EXPECT(at != NULL);
    at = strchr(at, '{');
    EXPECT(at != NULL);
    end = at + strcspn(at, "}");
    while (count < COUNTERS && (at = strchr(at, '"')) != NULL && at < end) {
        if (sscanf(at, "\"%39[^\"]\": %llu", counters[count].name,
                   &counters[count].value) == 2) {
            count++;
        }
        at = strchr(at, ':');
    }
    tmsg_string_free(json);
    return count;
}

static void print_grown(const counter_t *before, const counter_t *after,
                        unsigned count)
{
    const char *between = "";

    for (unsigned i = 0; i < count; i++) {
        if (after[i].value > before[i].value &&
            strstr(after[i].name, "_bytes") == NULL) {
            printf("%s%s", between, after[i].name);
            between = " ";
        }
    }
    printf("\n");
}

/* ---- both sides */

static void measure(side_t *side, job_t job)
{
    const double limit = number_of("TMSG_GPU_RATE_MS", 250) / 1e3;
    counter_t before[COUNTERS], after[COUNTERS];
    char copy[20] = "-";
    unsigned count;
    double time;

    maps.out = make_map(&job);
    maps.in = job.back ? make_map(&job) : NULL;
    count = read_counters(side, before);
    job.rounds = WARM;
    agree(side, &job);
    time = send_all(side, &job);
    job.rounds = (unsigned)(limit / time);
    job.rounds = job.rounds < 2 ? 2 : job.rounds > 5000 ? 5000 : job.rounds;
    agree(side, &job);
    time = send_all(side, &job);
    if (read_counters(side, after) != count) {
        count = 0;
    }
    tmsg_map_destroy(maps.out);
    tmsg_map_destroy(maps.in);
    if (!job.back) {
        snprintf(copy, sizeof(copy), "%.2f", copy_alone(job.bytes, limit / 5));
    }
    time /= job.back ? 2 : 1;
    printf("rate|%s|%llu|%.3f|%.2f|%s|", job.name,
           (unsigned long long)job.bytes,
           (double)job.bytes * job.tensors / time / 1e9, time * 1e6, copy);
    print_grown(before, after, count);
}

static void begin_side(side_t *side)
{
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_SPIN_US, .spin_us = 1000};

    open_driver();
    open_side(side, &params);
}

static void receiver(side_t *side, const void *arg)
{
    job_t job;

    (void)arg;
    pool = shareable = false; /* that is the sender's memory */
    begin_side(side);
    listen_side(side);
    while (read(side->from, &job, sizeof(job)) == (ssize_t)sizeof(job)) {
        maps.in = make_map(&job);
        maps.out = job.back ? make_map(&job) : NULL;
        EXPECT(write(side->to, "", 1) == 1);
        take_all(side, &job);
        tmsg_map_destroy(maps.in);
        tmsg_map_destroy(maps.out);
    }
    close_side(side);
}

/* Where CUDA's IPC is barred, as in a part of a GPU, there is none. */
static bool can_share(void)
{
    const tmsg_shareable_params_t params = {
        .field_mask = TMSG_SHAREABLE_PARAM_DEVICE, .device = gpu};
    void *data;

    if (tmsg_shareable_alloc(1, &params, &data) != TMSG_OK) {
        printf("rate|not run: %s\n", tmsg_error_message());
        return false;
    }
    tmsg_shareable_free(data);
    return true;
}

static void measure_all(side_t *side, uint64_t most)
{
    static const uint64_t sizes[] = {64,       4096,     64 << 10, MIB,
                                     16 * MIB, 64 * MIB, 256 * MIB};
    static const job_t latencies[] = {{"latency", 64, 1, 1, 0, true},
                                      {"latency x8", 64, 8, 1, 0, true},
                                      {"latency", 4096, 1, 1, 0, true},
                                      {"latency", 64 << 10, 1, 1, 0, true},
                                      {"latency", MIB, 1, 1, 0, true}};

    for (size_t i = 0; i < sizeof(latencies) / sizeof(latencies[0]); i++) {
        if (latencies[i].bytes <= most) {
            measure(side, latencies[i]);
        }
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] <= most) {
            measure(side, (job_t){"1 ahead", sizes[i], 1, 1, 0, false});
            measure(side, (job_t){"4 ahead", sizes[i], 1, 4, 0, false});
        }
    }
}

static void sender(side_t *side, const void *arg)
{
    tmsg_request_t *ready;
    char url[URL_BYTES];

    await_url(side, url);
    begin_side(side);
    CHECK(tmsg_endpoint_connect(side->worker, url, NULL, &side->endpoint));
    CHECK(tmsg_endpoint_ready(side->endpoint, &ready));
    finish(ready);
    if (!shareable || can_share()) {
        measure_all(side, *(const uint64_t *)arg);
    }
    close(side->to); /* it was the last */
    close_side(side);
}

int main(int count, char **words)
{
    uint64_t most = 256 * MIB;
    int found;

    for (int i = 1; i < count; i++) {
        if (strncmp(words[i], "most=", 5) == 0) {
            most = strtoull(words[i] + 5, NULL, 0);
        } else if (strcmp(words[i], "unposted") == 0) {
            unposted = true;
        } else if (strcmp(words[i], "pool") == 0) {
            pool = true;
        } else if (strcmp(words[i], "shareable") == 0) {
            shareable = true;
        } else {
            fprintf(stderr, "gpu_rate [unposted] [pool | shareable] "
                            "[most=BYTES]\n");
            return 2;
        }
    }
    bound_ms = 1000 * number_of("TMSG_GPU_WAIT_S", 60);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a time limit loses no line */
    signal(SIGPIPE, SIG_IGN);
    found = look_for_gpu();
    if (found != 0) {
        return found;
    }
    return run_sides(receiver, sender, &most) ? 0 : 1;
}
