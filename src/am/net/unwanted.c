/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/unwanted.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/thread.h"

#define WAITING_MOST 8

typedef struct unwanted {
    struct unwanted *next;
    int fd;
} unwanted_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unwanted_t *first; /* what the thread has not begun to close */
static bool running;      /* the thread is there */

static atomic_uint waiting; /* of these, and of what it closes */

static void *close_them(void *arg)
{
    unwanted_t *unwanted;

    for (;;) {
        pthread_mutex_lock(&lock);
        unwanted = first;
        running = unwanted != NULL;
        first = running ? unwanted->next : NULL;
        pthread_mutex_unlock(&lock);
        if (unwanted == NULL) {
            return arg;
        }
        close(unwanted->fd);
        free(unwanted);
        atomic_fetch_sub(&waiting, 1);
    }
}

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The thread is not in the child. Its next one closes what is left. */
static void in_child(void)
{
    unsigned count = 0;

    for (const unwanted_t *next = first; next != NULL; next = next->next) {
        count++;
    }
    atomic_store(&waiting, count);
    running = false;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

/* Starts the thread. `lock` held. */
static bool start(void)
{
    running = tmsg_thread_detach(close_them, NULL) == 0;
    return running;
}

static bool leave_to_thread(unwanted_t *unwanted)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool taken;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    taken = running || start();
    if (taken) {
        unwanted->next = first;
        first = unwanted;
        atomic_fetch_add(&waiting, 1);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* Files of memory can be asked for their seals, and others cannot, without a
 * question to their file system. */
static bool is_memory(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

void tmsg_unwanted_close(int fd)
{
    unwanted_t *unwanted =
        fd < 0 || is_memory(fd) ? NULL : malloc(sizeof(*unwanted));

    if (unwanted != NULL) {
        unwanted->fd = fd;
        if (leave_to_thread(unwanted)) {
            return;
        }
        free(unwanted);
    }
    if (fd >= 0) {
        close(fd);
    }
}

bool tmsg_unwanted_is_full(void)
{
    return atomic_load(&waiting) >= WAITING_MOST;
}
