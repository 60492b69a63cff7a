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

#define TICKS_MOST 20 /* milliseconds; kernels have ticks of 10 at most */

typedef struct watched {
    struct watched *next;
    const char *path;
    bool known; /* what follows; a file that is not there cannot be loaded */
    struct stat about;
    char *line; /* made beforehand: a handler may do little more than write */
    size_t line_bytes;
} watched_t;

static watched_t *all;

/* The one that was cut, or the last. */
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
        signal(number, SIG_DFL); /* another bug: it comes again on return */
        return;
    }
    if (write(STDERR_FILENO, file->line, file->line_bytes) < 0) {
        /* nobody to tell */
    }
    _exit(EXIT_FAILED);
}

static bool is_before(struct timespec one, struct timespec other)
{
    return one.tv_sec != other.tv_sec ? one.tv_sec < other.tv_sec
                                      : one.tv_nsec < other.tv_nsec;
}

static bool same_time(struct timespec one, struct timespec other)
{
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

/* The clock that files are stamped with may stand still for a tick: two writes
 * within one cannot be told apart. So the first of them has to be over. */
static bool look(const char *path, struct stat *about)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct timespec now;

    for (int i = 0; i < TICKS_MOST; i++) {
        if (stat(path, about) != 0) {
            return false;
        }
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (is_before(about->st_mtim, now) && is_before(about->st_ctim, now)) {
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
    file->known = look(path, &file->about);
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

static const char *compare(const watched_t *file)
{
    struct stat now;

    if (!file->known) {
        return NULL;
    }
    if (stat(file->path, &now) != 0) {
        return "the file was removed while it was in use";
    }
    if (now.st_dev != file->about.st_dev || now.st_ino != file->about.st_ino) {
        return "another file took its place while it was in use";
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
        const char *how = compare(file);

        if (how != NULL && path_p != NULL) {
            *path_p = file->path;
        }
        if (how != NULL) {
            return how;
        }
    }
    return NULL;
}
