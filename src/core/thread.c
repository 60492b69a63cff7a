/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/thread.h"

#include <signal.h>

int tmsg_thread_start(pthread_t *thread_p, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread_p, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int tmsg_thread_detach(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    int error = tmsg_thread_start(&thread, run, arg);

    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}
