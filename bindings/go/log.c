/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - the library's lines go into a pipe, which Go reads. */
#include "hub.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int to = -1;
static atomic_uint lost; /* lines for which there was no room */

static int write_line(char from, tmsg_log_level_t level, const char *line)
{
    char text[PIPE_BUF]; /* which is written whole, or not at all */
    int bytes =
        snprintf(text, sizeof(text) - 1, "%c%d%s", from, (int)level, line);
    if (bytes > (int)sizeof(text) - 2) {
        bytes = (int)sizeof(text) - 2;
    }
    for (int i = 0; i < bytes; i++) {
        if (text[i] == '\n') {
            text[i] = ' ';
        }
    }
    text[bytes] = '\n';
    return write(atomic_load(&to), text, (size_t)bytes + 1) > 0;
}

static void log_line(char from, tmsg_log_level_t level, const char *line)
{
    unsigned count = atomic_exchange(&lost, 0);
    if (count > 0) {
        char words[64];
        (void)snprintf(words, sizeof(words), "%u lines were lost here", count);
        if (!write_line('t', TMSG_LOG_WARN, words)) {
            atomic_fetch_add(&lost, count);
        }
    }
    if (!write_line(from, level, line)) {
        atomic_fetch_add(&lost, 1);
    }
}

static void ours(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    log_line('t', level, line);
}

static void theirs(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    log_line('u', level, line);
}

void tmsggo_log(int fd, tmsg_log_level_t level)
{
    if (fd >= 0) {
        atomic_store(&to, fd);
    }
    tmsg_log_set(level, fd >= 0 ? ours : NULL, NULL);
    tmsg_log_set_ucx(fd >= 0 ? theirs : NULL, NULL);
}
