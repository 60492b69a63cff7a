/* SPDX-License-Identifier: BSD-3-Clause */
/* Deleters that take a lock, as those of Python's arrays take the
 * interpreter's, which other threads hold while they are inside the library, on
 * workers with a thread of their own. Every deleter is called, once, and nobody
 * waits for ever. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/dlpack.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { THREADS = 3, EACH = 40, VIEWS = 2 };

static pthread_mutex_t interpreter; /* its owner may take it again */
static atomic_uint deleted, received, dropped;
static atomic_bool over;

static void lock(void) { must_eq(pthread_mutex_lock(&interpreter), 0); }

static void unlock(void) { must_eq(pthread_mutex_unlock(&interpreter), 0); }

typedef struct {
    struct DLManagedTensorVersioned managed;
    int64_t shape[1];
    atomic_uint deletes;
} array_t;

static void delete_array(struct DLManagedTensorVersioned *self)
{
    array_t *array = self->manager_ctx;

    lock();
    must_eq(atomic_fetch_add(&array->deletes, 1), 0);
    atomic_fetch_add(&deleted, 1);
    unlock();
    free(self->dl_tensor.data);
    free(array);
}

static struct DLManagedTensorVersioned *new_array(uint64_t seed, size_t bytes)
{
    array_t *array = calloc(1, sizeof(*array));

    must_true(array != NULL);
    array->shape[0] = (int64_t)bytes;
    array->managed = (struct DLManagedTensorVersioned){
        .major = 1,
        .manager_ctx = array,
        .deleter = delete_array,
        .dl_tensor = {.data = malloc(bytes),
                      .device = {TMSG_DEVICE_CPU, 0},
                      .ndim = 1,
                      .dtype = {TMSG_DTYPE_UINT, 8, 1},
                      .shape = array->shape}};
    must_true(array->managed.dl_tensor.data != NULL);
    sample_fill(seed, array->managed.dl_tensor.data, bytes);
    return &array->managed;
}

static size_t bytes_of(unsigned i)
{
    static const size_t sizes[] = {10, 9000, 300000, 2000000};

    return sizes[i % 4];
}

/* Sends, gives some of it up, and lets go of the maps, all with the lock. */
static void *send_arrays(void *arg)
{
    tmsg_endpoint_t *endpoint = arg;

    for (unsigned i = 0; i < EACH; i++) {
        tmsg_request_t *request;
        tmsg_map_t *map;

        lock();
        must(tmsg_map_create(&map));
        must(
            tmsg_map_add_dlpack_versioned(map, "x", new_array(i, bytes_of(i))));
        must(tmsg_endpoint_send(endpoint, map, NULL, &request));
        tmsg_map_destroy(map);
        if (i % 5 == 4) {
            tmsg_request_cancel(request);
        }
        tmsg_request_destroy(request);
        unlock();
    }
    return NULL;
}

/* What came is given out twice; the message goes first. */
static void take(tmsg_message_t *message,
                 struct DLManagedTensorVersioned *views[VIEWS])
{
    const tmsg_map_t *map = tmsg_message_map(message);

    for (unsigned i = 0; i < VIEWS; i++) {
        must(tmsg_map_to_dlpack_versioned(map, "x", &views[i]));
    }
    tmsg_message_destroy(message);
}

static void *drop_view(void *view)
{
    struct DLManagedTensorVersioned *managed = view;

    managed->deleter(managed);
    atomic_fetch_add(&dropped, 1);
    return NULL;
}

static void *receive_arrays(void *arg)
{
    tmsg_worker_t *worker = arg;

    while (!atomic_load(&over)) {
        struct DLManagedTensorVersioned *views[VIEWS];
        tmsg_message_t *message;
        tmsg_status_t status;
        pthread_t thread;

        status = tmsg_worker_recv(worker, 20, &message);
        if (status == TMSG_ERR_TIMED_OUT) {
            continue;
        }
        must(status);
        lock();
        take(message, views);
        must_eq(pthread_create(&thread, NULL, drop_view, views[0]), 0);
        unlock();
        drop_view(views[1]);
        must_eq(pthread_join(thread, NULL), 0);
        atomic_fetch_add(&received, 1);
    }
    return NULL;
}

static bool all_deleted(void *arg)
{
    (void)arg;
    return atomic_load(&deleted) == THREADS * EACH;
}

int main(void)
{
    const side_options_t options = {
        .drive = DRIVE_THREAD,
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 5000000}};
    pthread_t senders[THREADS], receiver;
    pthread_mutexattr_t again;
    pair_t pair;

    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&interpreter, &again);
    pair_open(&pair, LINK_SHM, DRIVE_THREAD, &options, &options);
    must_eq(pthread_create(&receiver, NULL, receive_arrays, pair.a.worker), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        must_eq(pthread_create(&senders[i], NULL, send_arrays, pair.to_a), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        must_eq(pthread_join(senders[i], NULL), 0);
    }
    pair_await(&pair, all_deleted, NULL, "every deleter");
    atomic_store(&over, true);
    must_eq(pthread_join(receiver, NULL), 0);
    pair_drop(&pair);
    must_eq(atomic_load(&deleted), THREADS * EACH);
    must_eq(atomic_load(&dropped), VIEWS * atomic_load(&received));
    printf("%u arrays, %u received\n", atomic_load(&deleted),
           atomic_load(&received));
    pthread_mutex_destroy(&interpreter);
    pthread_mutexattr_destroy(&again);
    return 0;
}
