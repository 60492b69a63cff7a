/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "tool.h"

#define TICKS_MOST 20 /* milliseconds; kernel ticks last 10 ms at most */

typedef struct watched {
    struct watched *next;
    const char *path;
    bool known; /* `about` is valid; a missing file has none */
    struct stat about;
    char *line; /* prepared, as a signal handler can only write */
    size_t line_bytes;
} watched_t;

static watched_t *all;

/* Returns the file that was cut short, or the last one watched. */
static const watched_t *find_cut(void)
{
    struct stat now;

    for (const watched_t *file = all; file != NULL; file = file->next) {
        if (file->known && stat(file->path, &now) == 0 &&
            now.st_size < file->about.st_size) {
            return file;
        }
    }
    return all;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const watched_t *file = find_cut();

    (void)context;
    if (info->si_code != BUS_ADRERR || file == NULL) {
        /* The fault is another bug. The signal comes again when the handler
         * returns. */
        signal(number, SIG_DFL);
        return;
    }
    if (write(STDERR_FILENO, file->line, file->line_bytes) < 0) {
        /* Nobody can be told of the fault. */
    }
    _exit(EXIT_FAILED);
}

static bool time_is_before(struct timespec one, struct timespec other)
{
    return one.tv_sec != other.tv_sec ? one.tv_sec < other.tv_sec
                                      : one.tv_nsec < other.tv_nsec;
}

static bool same_time(struct timespec one, struct timespec other)
{
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

/* Notes the state of a file. The clock of file times may stand still for a
 * tick, so two writes within a tick have the same time. The function therefore
 * waits until the tick of the last write is over. */
static bool look_at_file(const char *path, struct stat *about)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct timespec now;

    for (int i = 0; i < TICKS_MOST; i++) {
        if (stat(path, about) != 0) {
            return false;
        }
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (time_is_before(about->st_mtim, now) &&
            time_is_before(about->st_ctim, now)) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

static bool make_line(watched_t *file)
{
    FILE *text = open_memstream(&file->line, &file->line_bytes);

    if (text == NULL) {
        return false;
    }
    fputs(progress_wanted() ? "\r\033[K" : "", text);
    fputs("tensormsg: ", text);
    put_text(text, file->path);
    fputs(": the file was cut short, or could not be read, while it was in "
          "use\n",
          text);
    return fclose(text) == 0;
}

void fault_watch(const char *path)
{
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO};
    watched_t *file = calloc(1, sizeof(*file));

    if (file == NULL) {
        return;
    }
    file->path = path;
    if (!make_line(file)) {
        free(file->line);
        free(file);
        return;
    }
    file->known = look_at_file(path, &file->about);
    file->next = all;
    all = file;
    sigaction(SIGBUS, &action, NULL);
}

void fault_forget(void)
{
    while (all != NULL) {
        watched_t *file = all;

        all = file->next;
        free(file->line);
        free(file);
    }
}

static const char *compare_watched(const watched_t *file)
{
    struct stat now;

    if (!file->known) {
        return NULL;
    }
    if (stat(file->path, &now) != 0) {
        return "the file was removed while it was in use";
    }
    if (now.st_dev != file->about.st_dev || now.st_ino != file->about.st_ino) {
        return "another file replaced it while it was in use";
    }
    if (now.st_size < file->about.st_size) {
        return "the file was cut short while it was in use";
    }
    if (now.st_size > file->about.st_size) {
        return "the file grew while it was in use";
    }
    if (!same_time(now.st_mtim, file->about.st_mtim)) {
        return "the file changed while it was in use";
    }
    return same_time(now.st_ctim, file->about.st_ctim)
               ? NULL
               : "the file or its attributes changed while it was in use";
}

const char *fault_changed(const char **path_p)
{
    for (const watched_t *file = all; file != NULL; file = file->next) {
        const char *how = compare_watched(file);

        if (how != NULL && path_p != NULL) {
            *path_p = file->path;
        }
        if (how != NULL) {
            return how;
        }
    }
    return NULL;
}
