/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/segment_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_PROC (UINT64_C(1) << 63)
#define IN_SHM (UINT64_C(1) << 62)
#define HUGE (UINT64_C(1) << 61)
#define HAS_NAMESPACE (UINT64_C(1) << 60)
#define PART_BITS 30 /* of a process id, and of a descriptor above it */
#define PART_MASK ((UINT64_C(1) << PART_BITS) - 1)
#define FILE_NAME "/ucx_shm_posix_"

void tmsg_posix_segment_read(uint64_t number, tmsg_posix_segment_t *segment)
{
    uint64_t id = number & ~(IN_PROC | IN_SHM | HUGE | HAS_NAMESPACE);

    *segment = (tmsg_posix_segment_t){
        .in_proc = (number & IN_PROC) != 0,
        .in_shm = (number & IN_SHM) != 0,
        .has_namespace = (number & HAS_NAMESPACE) != 0,
        .id = id,
        .pid = (uint32_t)(id & PART_MASK),
        .fd = (uint32_t)(id >> PART_BITS & PART_MASK),
    };
}

/* Writes the path that UCX opens. False: it is too long. */
static bool write_path(const tmsg_posix_segment_t *segment, char *path)
{
    int length =
        segment->in_proc
            ? snprintf(path, PATH_MAX, "/proc/%u/fd/%u", segment->pid,
                       segment->fd)
            : snprintf(path, PATH_MAX, "%s" FILE_NAME "%llx",
                       segment->folder == NULL ? "/dev/shm" : segment->folder,
                       (unsigned long long)segment->id);

    return length > 0 && length < PATH_MAX;
}

/* Returns whether a descriptor's target is a file that UCX has made and
 * unlinked. */
static bool is_ucx_file(const char *target)
{
    static const char gone[] = " (deleted)";
    const size_t tail = sizeof(gone) - 1;
    const char *name = strrchr(target, '/');
    size_t length = strlen(target);

    return length > tail && name != NULL &&
           strncmp(name, FILE_NAME, sizeof(FILE_NAME) - 1) == 0 &&
           strcmp(target + length - tail, gone) == 0;
}

/* Finds its size. False: it cannot be looked at, as where the peer dies just
 * then. UCX would follow a link that has the name of a segment. */
static bool find_bytes(const tmsg_posix_segment_t *segment, uint64_t *bytes_p)
{
    char path[PATH_MAX], target[PATH_MAX];
    struct stat file;
    ssize_t length = 0;

    if (!write_path(segment, path)) {
        return false;
    }
    if (segment->in_proc) {
        length = readlink(path, target, sizeof(target) - 1);
    }
    if (length < 0 ||
        (segment->in_proc ? stat(path, &file) : lstat(path, &file)) != 0) {
        return false;
    }
    target[length] = '\0';
    *bytes_p = S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
                       (!segment->in_proc || is_ucx_file(target))
                   ? (uint64_t)file.st_size
                   : 0;
    return true;
}

uint64_t tmsg_posix_segment_bytes(const tmsg_posix_segment_t *segment)
{
    uint64_t bytes;

    return find_bytes(segment, &bytes) ? bytes : 0;
}

bool tmsg_posix_segment_holds(const tmsg_posix_segment_t *segment,
                              uint64_t bytes, bool or_gone)
{
    uint64_t found;

    return find_bytes(segment, &found) ? found > 0 && found >= bytes
                                       : or_gone || segment->in_proc;
}

uint64_t tmsg_sysv_segment_bytes(int id)
{
    struct shmid_ds segment;

    return shmctl(id, IPC_STAT, &segment) == 0 ? segment.shm_segsz : 0;
}

bool tmsg_sysv_segment_holds(int id, uint32_t pid, uint64_t bytes, bool or_gone)
{
    struct shmid_ds segment;

    if (shmctl(id, IPC_STAT, &segment) != 0) {
        return or_gone;
    }
    return (uint32_t)segment.shm_cpid == pid &&
           segment.shm_perm.cuid == geteuid() && segment.shm_segsz >= bytes;
}

#define HUGE_PAGE (UINT64_C(2) << 20)
#define PAGE 4096

/* UCX takes huge pages only where they add less than one of them, and no more
 * than was asked for. */
uint64_t tmsg_segment_least(uint64_t bytes)
{
    uint64_t least = bytes / 2;

    if (bytes == 0 || bytes % HUGE_PAGE != 0) {
        return bytes;
    }
    return least > bytes - HUGE_PAGE + PAGE ? least : bytes - HUGE_PAGE + PAGE;
}
