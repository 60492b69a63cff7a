/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of the library's log, and of UCX's, on their way to `logging`. Whoever
 * writes one may hold the interpreter's lock, or wait for somebody who does:
 * the lines wait for a thread of Python's. */
#include "hub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/log.h>

#define LINES_MOST 1000

typedef struct line {
    struct line *next;
    tmsgpy_line_t what;
} line_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static line_t *first, **last = &first;
static unsigned waiting, left_out;

static void note(int of_ucx, tmsg_log_level_t level, const char *text)
{
    line_t *line = malloc(sizeof(*line));

    if (line != NULL) {
        *line = (line_t){NULL, {of_ucx, (int)level, 0, ""}};
        strncpy(line->what.text, text, sizeof(line->what.text) - 1);
    }
    pthread_mutex_lock(&lock);
    if (line == NULL || waiting == LINES_MOST) {
        left_out++;
        free(line);
    } else {
        *last = line;
        last = &line->next;
        waiting++;
        pthread_cond_signal(&some);
    }
    pthread_mutex_unlock(&lock);
}

static void note_own(void *arg, tmsg_log_level_t level, const char *text)
{
    (void)arg;
    note(0, level, text);
}

static void note_ucx(void *arg, tmsg_log_level_t level, const char *text)
{
    (void)arg;
    note(1, level, text);
}

/* Another thread may have been in here. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&some, NULL);
    first = NULL;
    last = &first;
    waiting = left_out = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

void tmsgpy_log_take(int own_level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    if (own_level >= 0) {
        tmsg_log_set((tmsg_log_level_t)own_level, note_own, NULL);
    }
    tmsg_log_set_ucx(note_ucx, NULL);
}

int tmsgpy_log_next(int waits, tmsgpy_line_t *line_p)
{
    line_t *line;

    pthread_mutex_lock(&lock);
    while (first == NULL && waits) {
        pthread_cond_wait(&some, &lock);
    }
    line = first;
    if (line != NULL) {
        first = line->next;
        last = first == NULL ? &first : last;
        waiting--;
        *line_p = line->what;
        line_p->left_out = left_out;
        left_out = 0;
    }
    pthread_mutex_unlock(&lock);
    free(line);
    return line != NULL;
}
