/* SPDX-License-Identifier: BSD-3-Clause */
/* Wakes a thread that sleeps when an event is done: a stream of the domain's
 * own waits for the event, and then has the driver call a function. The stream
 * that the event was recorded on is not touched. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "memory/cuda.h"

#define NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */
#define BELLS 16

/* Each event that is awaited has a stream for itself: one may never be done. */
typedef struct {
    void *stream; /* NULL: not made yet */
    void *context;
    uint64_t id; /* of the context */
    atomic_bool busy;
    int fd; /* an own descriptor: whoever is to be woken may be gone by then */
} bell_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bell_t bells[BELLS];

/* Called by the driver on a thread of its own. */
static void ring_bell(void *arg)
{
    bell_t *bell = arg;
    const uint64_t one = 1;
    ssize_t put = write(bell->fd, &one, sizeof(one));

    (void)put;
    close(bell->fd);
    atomic_store_explicit(&bell->busy, false, memory_order_release);
}

/* The driver may call ring_bell() after all else of the library has ended. */
static void stay_loaded(void)
{
    Dl_info info;

    if (dladdr(bells, &info) != 0) {
        (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

static bool is_free(const bell_t *bell)
{
    return !atomic_load_explicit(&bell->busy, memory_order_acquire);
}

/* Finds a free bell of the context, or one that was of no context, or of one
 * that is gone: its stream has ended with that. */
static bell_t *find_bell(const void *context, uint64_t id)
{
    bell_t *found = NULL;

    for (bell_t *bell = bells; bell < bells + BELLS; bell++) {
        bool gone = bell->context == context && bell->id != id;

        if (!is_free(bell)) {
            continue;
        }
        if (bell->stream != NULL && bell->context == context && !gone) {
            return bell;
        }
        if (bell->stream == NULL || gone) {
            bell->stream = NULL;
            found = bell;
        }
    }
    return found;
}

static bell_t *take_bell(const tmsg_cuda_scope_t *scope, uint64_t id)
{
    bell_t *bell;

    pthread_mutex_lock(&lock);
    bell = find_bell(scope->context, id);
    if (bell != NULL && bell->stream == NULL) {
        bell->context = scope->context;
        bell->id = id;
        if (scope->fn->cuStreamCreate(&bell->stream, NON_BLOCKING) !=
            TMSG_CU_SUCCESS) {
            bell->stream = NULL;
            bell = NULL;
        }
    }
    if (bell != NULL) {
        atomic_store_explicit(&bell->busy, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return bell;
}

/* If the driver refuses, it may call ring_bell() all the same, so that the bell
 * is not used again. */
bool tmsg_cuda_ring(const tmsg_cuda_scope_t *scope, uint64_t id, void *event,
                    int event_fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bell_t *bell;

    if (scope->fn->cuLaunchHostFunc == NULL) {
        return false;
    }
    pthread_once(&once, stay_loaded);
    bell = take_bell(scope, id);
    if (bell == NULL) {
        return false;
    }
    bell->fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 0);
    if (bell->fd < 0) {
        atomic_store_explicit(&bell->busy, false, memory_order_relaxed);
        return false;
    }
    return scope->fn->cuStreamWaitEvent(bell->stream, event, 0) ==
               TMSG_CU_SUCCESS &&
           scope->fn->cuLaunchHostFunc(bell->stream, ring_bell, bell) ==
               TMSG_CU_SUCCESS;
}
