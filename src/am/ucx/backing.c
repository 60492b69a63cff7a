/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/backing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define POSIX "posix,mm,sm,shm"
/* UCX's defaults in 1.13 to 1.22. */
#define SEGMENTS 512
#define SEGMENT_BYTES 8256
#define QUEUED 256

#define SEGMENT_HEAD 192 /* at most */
#define QUEUED_BYTES 128
#define MORE_BYTES 32768
/* Bounds beyond any memory there is, whose product still has 64 bits. */
#define NUMBER_MOST (1u << 24)
#define SEGMENT_MOST UINT32_MAX

const char *tmsg_backing_path(const tmsg_ucx_keys_t *keys)
{
    const tmsg_ucx_key_t *key = tmsg_ucx_config_key(keys, "UCX_POSIX_DIR");

    return key == NULL ? "/dev/shm" : key->value;
}

/* Returns a number of the environment's or the application's, for posix or its
 * family, at most NUMBER_MOST. 0: it is not set. */
static uint64_t read_pool_number(const tmsg_ucx_keys_t *keys, const char *name)
{
    static const char *const heads[] = {"UCX_POSIX_", "UCX_MM_"};
    uint64_t value = 0;

    for (size_t i = 0; i < 2 && value == 0; i++) {
        char full[64];
        const tmsg_ucx_key_t *key;
        const char *text;

        snprintf(full, sizeof(full), "%s%s", heads[i], name);
        key = tmsg_ucx_config_key(keys, full);
        text = key == NULL ? getenv(full) : key->value;
        value = text == NULL ? 0 : strtoull(text, NULL, 10);
    }
    return value < NUMBER_MOST ? value : NUMBER_MOST;
}

tmsg_backing_pool_t tmsg_backing_pool(const tmsg_ucx_keys_t *keys)
{
    uint64_t queued = read_pool_number(keys, "FIFO_SIZE");
    uint64_t grows = read_pool_number(keys, "RX_BUFS_GROW");

    return (tmsg_backing_pool_t){
        .queued = 1 + (queued == 0 ? QUEUED : queued),
        .grows = grows == 0 ? SEGMENTS : grows,
    };
}

uint64_t tmsg_backing_needs(const tmsg_ucx_keys_t *keys)
{
    tmsg_backing_pool_t pool = tmsg_backing_pool(keys);
    uint64_t segment = tmsg_ucx_config_bytes(keys, "UCX_POSIX_SEG_SIZE");
    uint64_t least = tmsg_ucx_config_bytes(keys, "UCX_POSIX_SHM_MIN_SIZE");
    uint64_t segments =
        (pool.queued + pool.grows - 1) / pool.grows * pool.grows;

    if (!tmsg_ucx_config_takes(keys, POSIX)) {
        return 0;
    }
    segment = segment == 0             ? SEGMENT_BYTES
              : segment < SEGMENT_MOST ? segment
                                       : SEGMENT_MOST;
    return segments * (segment + SEGMENT_HEAD) + pool.queued * QUEUED_BYTES +
           MORE_BYTES + (least < UINT64_MAX / 2 ? least : UINT64_MAX / 2);
}

/* Returns how many bytes are free in the folder. UINT64_MAX: not known. */
static uint64_t free_bytes(const tmsg_ucx_keys_t *keys)
{
    struct statvfs room;

    return statvfs(tmsg_backing_path(keys), &room) != 0
               ? UINT64_MAX
               : (uint64_t)room.f_bavail * room.f_bsize;
}

bool tmsg_backing_suffices(const tmsg_ucx_keys_t *keys)
{
    return free_bytes(keys) >= tmsg_backing_needs(keys);
}

/* Returns the variable in force that makes UCX take its shared memory from
 * elsewhere than its file system. NULL: none does. A value that begins with
 * "md" does not. */
static const char *alloc_variable(void)
{
    static const char *const names[] = {"UCX_POSIX_ALLOC", "UCX_MM_ALLOC",
                                        "UCX_SM_ALLOC", "UCX_ALLOC"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value != NULL) {
            return strncmp(value, "md", 2) == 0 ? NULL : names[i];
        }
    }
    return NULL;
}

/* If enough bytes are free, UCX lacks something else. */
tmsg_lack_t tmsg_backing_lack(const tmsg_ucx_keys_t *keys)
{
    return !tmsg_backing_suffices(keys) ? TMSG_LACK_BYTES
           : alloc_variable() != NULL   ? TMSG_LACK_ALLOC
                                        : TMSG_LACK_OTHER;
}

const char *tmsg_backing_apart(tmsg_lack_t lack)
{
    static const char *const words[TMSG_LACKS] = {
        [TMSG_LACK_BYTES] = "no room for UCX's shared memory here (/dev/shm, "
                            "or what UCX_POSIX_DIR names)",
        [TMSG_LACK_ALLOC] = "UCX gets no shared memory here, where a variable "
                            "UCX_*ALLOC is set",
        [TMSG_LACK_OTHER] = "UCX gets no shared memory here (rights, inodes or "
                            "limits: see the log)",
    };

    return words[lack];
}

const char *tmsg_backing_text(const tmsg_ucx_keys_t *keys, char *text,
                              size_t bytes)
{
    uint64_t free = free_bytes(keys), needed = tmsg_backing_needs(keys);
    const char *alloc = alloc_variable();

    if (free < needed) {
        snprintf(text, bytes,
                 "no room for UCX's shared memory in %.80s: %llu KiB are free, "
                 "%llu KiB are needed",
                 tmsg_backing_path(keys), (unsigned long long)(free / 1024),
                 (unsigned long long)(needed / 1024));
    } else if (alloc != NULL) {
        snprintf(text, bytes,
                 "UCX gets no shared memory with %s=%.80s, which has it taken "
                 "from elsewhere: leave it unset",
                 alloc, getenv(alloc));
    } else {
        snprintf(text, bytes,
                 "UCX gets no shared memory, of System V (kernel.shmmni, "
                 "kernel.shmall) or in %.80s (its rights, its inodes)",
                 tmsg_backing_path(keys));
    }
    return text;
}
