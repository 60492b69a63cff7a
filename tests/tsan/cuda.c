/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that use two devices of the CUDA domain at once, by streams of their
 * own and by none, and one that asks whose memory is whose. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "memory/cuda.h"
#include "support/must.h"

#define THREADS 4
#define TURNS 60

static const tmsg_stream_t none;
static const tmsg_stream_t per_thread = {TMSG_STREAM_CUDA, 2};
static const tmsg_domain_t *const cuda = &tmsg_domain_cuda;

static void turn(tmsg_device_t device, tmsg_stream_t stream, int number)
{
    int to = -1;
    tmsg_status_t status;
    void *data, *event;

    must(cuda->alloc(NULL, device, sizeof(number), 64, stream, &data));
    must(cuda->copy_in(NULL, device, data, &number, sizeof(number), stream));
    must(cuda->copy_out(NULL, device, &to, data, sizeof(number), stream));
    if (stream.kind != TMSG_STREAM_NONE) {
        must(cuda->event_record(NULL, device, stream, &event));
        while ((status = cuda->event_query(NULL, event)) == TMSG_IN_PROGRESS) {
        }
        must(status);
        cuda->event_free(NULL, event);
    }
    must_eq(to, number);
    cuda->free(NULL, device, data, sizeof(number), stream);
}

static void *use(void *arg)
{
    int first = *(int *)arg;
    tmsg_memory_t memory;

    for (int i = 0; i < TURNS; i++) {
        tmsg_device_t device = {TMSG_DEVICE_CUDA, (first + i) % 2};

        must(tmsg_domain_use(device));
        turn(device, i % 3 == 0 ? none : per_thread, first * TURNS + i);
        must(tmsg_memory_query(arg, &memory));
        must_eq(memory.kind, TMSG_MEMORY_HOST);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];

    if (tmsg_cuda_driver()->outcome != TMSG_CUDA_READY) {
        die("%s", tmsg_cuda_driver()->why);
    }
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        must_eq(pthread_create(&threads[i], NULL, use, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    return 0;
}
