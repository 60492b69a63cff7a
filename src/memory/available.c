/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/available.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define TEXT_BYTES 8192
#define PATH_BYTES 1024

/* Where a version of cgroups tells of memory. */
typedef struct {
    const char *line; /* how the process's own begins in /proc/self/cgroup */
    const char *mounted;
    const char *limit;
    const char *used;
    const char *dropped[2]; /* lines of memory.stat */
} cgroups_t;

static const cgroups_t versions[] = {
    {":memory:",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
    {"0::",
     "/sys/fs/cgroup",
     "memory.max",
     "memory.current",
     {"inactive_file ", "active_file "}},
};

/* Reads the beginning of a file as text. Returns false if there is none. */
static bool read_text(const char *root, const char *folder, const char *name,
                      char text[TEXT_BYTES])
{
    char path[PATH_BYTES];
    ssize_t bytes;
    int fd;

    if (snprintf(path, sizeof(path), "%s%s/%s", root, folder, name) >=
        (int)sizeof(path)) {
        return false;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bytes = read(fd, text, TEXT_BYTES - 1);
    close(fd);
    text[bytes < 0 ? 0 : bytes] = '\0';
    return bytes > 0;
}

/* Returns what follows `key` in the line that begins with it, or NULL. */
static const char *find_line(const char *text, const char *key)
{
    size_t bytes = strlen(key);

    while (text != NULL && strncmp(text, key, bytes) != 0) {
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    return text == NULL ? NULL : text + bytes;
}

/* Returns the number in that line; 0 if there is none. */
static uint64_t find_number(const char *text, const char *key)
{
    const char *number = find_line(text, key);

    return number == NULL ? 0 : strtoull(number, NULL, 10);
}

static void lessen(tmsg_available_t *available, uint64_t bytes,
                   const char *what)
{
    if (bytes < available->bytes) {
        *available = (tmsg_available_t){bytes, what};
    }
}

/* A sandbox may hide /proc. What the machine has in all is a bound as well. */
static void look_at_machine(const char *root, tmsg_available_t *available)
{
    char text[TEXT_BYTES];
    struct sysinfo about;

    if (read_text(root, "/proc", "meminfo", text) &&
        find_line(text, "MemAvailable:") != NULL) {
        lessen(available,
               (find_number(text, "MemAvailable:") +
                find_number(text, "SwapFree:")) *
                   1024,
               "the machine");
    } else if (sysinfo(&about) == 0) {
        lessen(available,
               ((uint64_t)about.totalram + about.freeswap) * about.mem_unit,
               "the machine");
    }
}

/* A limit that is none is "max", or in version 1 a number beyond all memory. */
static void look_at_cgroup(const char *root, const cgroups_t *version,
                           const char *folder, tmsg_available_t *available)
{
    char text[TEXT_BYTES];
    uint64_t limit, used, dropped = 0;

    if (!read_text(root, folder, version->limit, text) || text[0] < '0' ||
        text[0] > '9') {
        return;
    }
    limit = strtoull(text, NULL, 10);
    if (!read_text(root, folder, version->used, text)) {
        return;
    }
    used = strtoull(text, NULL, 10);
    if (read_text(root, folder, "memory.stat", text)) {
        dropped = find_number(text, version->dropped[0]) +
                  find_number(text, version->dropped[1]);
    }
    used = used > dropped ? used - dropped : 0;
    lessen(available, limit > used ? limit - used : 0, "the process's cgroup");
}

/* Finds the process's own cgroup in the text of /proc/self/cgroup, whose lines
 * are NUMBER:CONTROLLERS:PATH. */
static bool find_cgroup(const char *text, const char *line,
                        char path[PATH_BYTES])
{
    const char *found =
        line[0] == ':' ? strstr(text, line) : find_line(text, line);
    size_t bytes;

    if (found == NULL) {
        return false;
    }
    found += line[0] == ':' ? strlen(line) : 0;
    bytes = strcspn(found, "\n");
    if (bytes >= PATH_BYTES) {
        return false;
    }
    memcpy(path, found, bytes);
    path[bytes] = '\0';
    return true;
}

/* Looks at the cgroup and at all above it. A container may see its own as the
 * root, while the text names it by its path outside; that is not there then. */
static void look_at_cgroups(const char *root, const cgroups_t *version,
                            const char *text, tmsg_available_t *available)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    char *slash = path;

    if (!find_cgroup(text, version->line, path)) {
        return;
    }
    while (slash != NULL) {
        if (snprintf(folder, sizeof(folder), "%s%s", version->mounted, path) <
            (int)sizeof(folder)) {
            look_at_cgroup(root, version, folder, available);
        }
        slash = strrchr(path, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
}

tmsg_available_t tmsg_available_look(const char *root)
{
    tmsg_available_t available = {UINT64_MAX, "nothing"};
    char text[TEXT_BYTES];

    look_at_machine(root, &available);
    if (read_text(root, "/proc/self", "cgroup", text)) {
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
            look_at_cgroups(root, &versions[i], text, &available);
        }
    }
    return available;
}

bool tmsg_available_is_strict(const char *root)
{
    char text[TEXT_BYTES];

    return read_text(root, "/proc/sys/vm", "overcommit_memory", text) &&
           text[0] == '2';
}
