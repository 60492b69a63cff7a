/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/played_kernels.h"

#include <sched.h>

/* As with a kernel, whoever waits leaves the processor to others. */
#include <tensormsg/device/bell.h>

#include "support/must.h"

tmsg_map_t *played_map(uint8_t *data, size_t bytes)
{
    int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {.data = data,
                                  .ndim = 1,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .shape = shape};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

void played_fill(const played_t *kernel, uint64_t n)
{
    for (size_t i = 0; i < kernel->bytes; i++) {
        kernel->data[i] = (uint8_t)(n * 31 + i);
    }
}

void played_check(const played_t *kernel, uint64_t n)
{
    for (size_t i = 0; i < kernel->bytes; i++) {
        must_eq(kernel->data[i], (uint8_t)(n * 31 + i));
    }
}

static bool weak;

void played_weakly(void) { weak = true; }

static void ring(const played_t *kernel, uint64_t n)
{
    tmsg_bell_line_t *line = kernel->line;

    if (weak) {
        __atomic_store_n(&line->posted, n, __ATOMIC_RELAXED);
    } else if (kernel->receives) {
        tmsg_bell_consumed(line, n);
    } else {
        tmsg_bell_post(line, n);
    }
}

static int wait_for(const tmsg_bell_line_t *line, uint64_t n)
{
    while (tmsg_bell_load(&line->done) < n) {
        sched_yield();
    }
    return tmsg_bell_wait(line, n);
}

static void *run_sender(void *arg)
{
    played_t *kernel = arg;

    for (uint64_t n = 1; n <= kernel->rounds && kernel->status == 0; n++) {
        played_fill(kernel, n);
        ring(kernel, n);
        kernel->status = wait_for(kernel->line, n);
        kernel->done += kernel->status == 0;
    }
    return NULL;
}

static void *run_receiver(void *arg)
{
    played_t *kernel = arg;

    for (uint64_t n = 1; n <= kernel->rounds && kernel->status == 0; n++) {
        kernel->status = wait_for(kernel->line, n);
        if (kernel->status == 0) {
            played_check(kernel, n);
            ring(kernel, n);
            kernel->done++;
        }
    }
    return NULL;
}

static void start(played_t *kernel, tmsg_bell_t *bell, uint8_t *data,
                  size_t bytes, uint64_t rounds, void *(*run)(void *))
{
    *kernel = (played_t){.bell = bell,
                         .data = data,
                         .bytes = bytes,
                         .rounds = rounds,
                         .receives = run == run_receiver};
    must(tmsg_bell_device(bell, &kernel->line));
    must_eq(pthread_create(&kernel->thread, NULL, run, kernel), 0);
}

void played_send(played_t *kernel, tmsg_bell_t *bell, uint8_t *data,
                 size_t bytes, uint64_t rounds)
{
    start(kernel, bell, data, bytes, rounds, run_sender);
}

void played_receive(played_t *kernel, tmsg_bell_t *bell, uint8_t *data,
                    size_t bytes, uint64_t rounds)
{
    start(kernel, bell, data, bytes, rounds, run_receiver);
}

int played_join(played_t *kernel)
{
    must_eq(pthread_join(kernel->thread, NULL), 0);
    return kernel->status;
}
