/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"

static const char *const level_names[] = {"none", "error", "warn", "info",
                                          "debug"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threshold = TMSG_LOG_NONE;
static tmsg_log_fn sink;
static void *sink_arg;

static void read_environment(void)
{
    const char *wanted = getenv("TENSORMSG_LOG");

    for (int i = 0; wanted != NULL && i <= TMSG_LOG_DEBUG; i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            atomic_store(&threshold, i);
        }
    }
}

void tmsg_log_set(tmsg_log_level_t level, tmsg_log_fn fn, void *arg)
{
    pthread_once(&once, read_environment);
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_arg = arg;
    atomic_store(&threshold, (int)level);
    pthread_mutex_unlock(&lock);
}

int tmsg_log_wanted(tmsg_log_level_t level)
{
    pthread_once(&once, read_environment);
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void tmsg_log(tmsg_log_level_t level, const char *format, ...)
{
    char line[1024];
    va_list args;
    int length;

    if (!tmsg_log_wanted(level)) {
        return;
    }
    va_start(args, format);
    length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (length < 0) {
        return;
    }
    (void)tmsg_shown_fit(line, sizeof(line), (size_t)length >= sizeof(line));
    pthread_mutex_lock(&lock);
    if (sink != NULL) {
        sink(sink_arg, level, line);
    } else {
        fprintf(stderr, "tensormsg %s: %s\n", level_names[level], line);
    }
    pthread_mutex_unlock(&lock);
}
