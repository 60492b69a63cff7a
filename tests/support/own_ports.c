/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/own_ports.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether a line of /proc/net/tcp is of a listening socket of this process. */
static bool is_own_port(const char *line)
{
    unsigned long inode;
    unsigned state;
    char name[64], link[64], path[64];
    struct dirent *entry;
    bool own = false;
    DIR *fds;

    if (sscanf(line, "%*d: %*s %*s %x %*s %*s %*s %*d %*d %lu", &state,
               &inode) != 2 ||
        state != 10) {
        return false;
    }
    snprintf(name, sizeof(name), "socket:[%lu]", inode);
    fds = opendir("/proc/self/fd");
    while ((entry = readdir(fds)) != NULL && !own) {
        ssize_t bytes;

        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", entry->d_name);
        bytes = readlink(path, link, sizeof(link) - 1);
        link[bytes < 0 ? 0 : bytes] = '\0';
        own = strcmp(link, name) == 0;
    }
    closedir(fds);
    return own;
}

unsigned count_ports(void)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    unsigned count = 0;
    char line[512];

    for (int i = 0; i < 2; i++) {
        FILE *table = fopen(tables[i], "r");

        while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
            count += is_own_port(line);
        }
        if (table != NULL) {
            fclose(table);
        }
    }
    return count;
}
