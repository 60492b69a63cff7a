/* SPDX-License-Identifier: BSD-3-Clause */
/* core/thread.h - starts the library's threads. They block all signals: the
 * application's are for its own threads. */
#ifndef TMSG_CORE_THREAD_H
#define TMSG_CORE_THREAD_H

#include <pthread.h>

/* Returns as pthread_create() does. */
int tmsg_thread_start(pthread_t *thread_p, void *(*run)(void *arg), void *arg);

/* Starts a thread that nobody waits for. */
int tmsg_thread_detach(void *(*run)(void *arg), void *arg);

#endif
