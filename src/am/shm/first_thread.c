/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/first_thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The fields between the state and the number of threads; see proc(5). */
#define BETWEEN                                                                \
    "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"

bool tmsg_first_thread_has_ended(pid_t pid)
{
    char path[64], text[1024];
    const char *rest;
    char state = '?';
    long threads = 0;
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[bytes < 0 ? 0 : bytes] = '\0';
    rest = strrchr(text, ')'); /* behind the name, which may hold anything */
    return rest != NULL &&
           sscanf(rest, ") %c " BETWEEN " %ld", &state, &threads) == 2 &&
           state == 'Z' && threads > 1;
}
