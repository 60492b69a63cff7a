/* SPDX-License-Identifier: BSD-3-Clause */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/shown.h"
#include "transfer.h"

#define MAPPED_BYTES (32ULL << 20) /* payloads from this size lie in a file */
#define NAME_MAX_BYTES 255
#define PAGE_BYTES 4096ULL

bool store_open_dir(const char *dir)
{
    struct stat about;

    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        complain("%s: %s", dir, strerror(errno));
        return false;
    }
    if (stat(dir, &about) != 0 || !S_ISDIR(about.st_mode)) {
        complain("%s: not a directory", dir);
        return false;
    }
    if (access(dir, W_OK | X_OK) != 0) {
        complain("%s: %s", dir, strerror(errno));
        return false;
    }
    return true;
}

static int open_unnamed(const char *dir)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd;
    }
    snprintf(path, sizeof(path), "%s/.tensormsg-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        unlink(path);
    }
    return fd;
}

/* fallocate() takes the blocks now. Otherwise a full disk would cause a SIGBUS
 * later. */
static void *map_unnamed(const char *dir, uint64_t bytes)
{
    int fd = open_unnamed(dir);
    void *data = MAP_FAILED;
    int flags = MAP_SHARED;

    if (fd < 0) {
        return MAP_FAILED;
    }
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0) {
        data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    } else if (errno == EOPNOTSUPP) {
        /* The payload then uses memory and swap. */
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
        data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    close(fd);
    return data;
}

static tmsg_status_t store_alloc(void *arg, tmsg_device_t device,
                                 uint64_t bytes, uint64_t alignment,
                                 void **data_p, void **token_p)
{
    const store_t *store = arg;
    char text[BYTES_TEXT];
    void *data;

    (void)device; /* always the CPU: the worker is TMSG_WORKER_HOST_ONLY */
    if (bytes < MAPPED_BYTES) {
        data = aligned_alloc(alignment, (bytes + alignment) & ~(alignment - 1));
        if (data == NULL) {
            return TMSG_ERR_NO_MEMORY;
        }
        *data_p = data;
        *token_p = NULL;
        return TMSG_OK;
    }
    data = map_unnamed(store->dir, bytes);
    if (data == MAP_FAILED) {
        complain("%s: no room for a map of %s: %s", store->dir,
                 format_bytes(bytes, text), strerror(errno));
        return TMSG_ERR_IO;
    }
    *data_p = data;
    *token_p = data;
    return TMSG_OK;
}

static void store_release(void *arg, void *data, uint64_t bytes, void *token)
{
    (void)arg;
    if (token == NULL) {
        free(data);
    } else {
        munmap(data, bytes);
    }
}

tmsg_allocator_t store_allocator(store_t *store)
{
    return (tmsg_allocator_t){store_alloc, store_release, store};
}

static bool find_file_format(const char *text, tmsg_file_format_t *format_p)
{
    for (int i = 1; tmsg_file_format_name((tmsg_file_format_t)i) != NULL; i++) {
        if (strcmp(text, tmsg_file_format_name((tmsg_file_format_t)i)) == 0) {
            *format_p = (tmsg_file_format_t)i;
            return true;
        }
    }
    return false;
}

static bool check_file_name(const char *name, const char *format,
                            tmsg_file_format_t *format_p, char *why,
                            size_t why_bytes)
{
    const char *bad = tmsg_shown_bad_name(name, NAME_MAX_BYTES);

    *format_p = TMSG_FILE_AUTO;
    if (bad != NULL) {
        /* The reason comes first: the name may be longer than there is room. */
        tmsg_shown_format(why, why_bytes, "%s: '%s'", bad, name);
        return false;
    }
    if (format != NULL && !find_file_format(format, format_p)) {
        tmsg_shown_format(why, why_bytes, "'%s': unknown file format '%s'",
                          name, format);
        return false;
    }
    return true;
}

static char *join_path(const char *dir, const char *name)
{
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static bool path_exists(const char *path)
{
    struct stat about;

    return lstat(path, &about) == 0;
}

static bool folder_has_room(const char *dir, uint64_t bytes, char *why,
                            size_t why_bytes)
{
    struct statvfs about;
    char need[BYTES_TEXT], have[BYTES_TEXT];
    uint64_t room;

    if (statvfs(dir, &about) != 0) {
        return true;
    }
    room = (uint64_t)about.f_frsize *
           (geteuid() == 0 ? about.f_bfree : about.f_bavail);
    /* A large payload also takes room in the unnamed file until it is saved. */
    bytes += bytes >= MAPPED_BYTES ? bytes : 0;
    if (bytes / PAGE_BYTES <= room / PAGE_BYTES) {
        return true;
    }
    snprintf(why, why_bytes, "%s: disk full: %s are needed, %s are free", dir,
             format_bytes(bytes, need), format_bytes(room, have));
    return false;
}

bool store_would_take(const store_t *store, const char *name,
                      const char *format, uint64_t bytes, char *why,
                      size_t why_bytes)
{
    tmsg_file_format_t known;
    bool taken;
    char *path;

    if (store->dir == NULL) {
        return true;
    }
    if (name != NULL &&
        !check_file_name(name, format, &known, why, why_bytes)) {
        return false;
    }
    path = join_path(store->dir, name == NULL ? "" : name);
    taken = path != NULL && name != NULL && !store->force && path_exists(path);
    if (taken) {
        snprintf(why, why_bytes, "%s: the file exists (recv --force replaces)",
                 path);
    }
    free(path);
    return !taken && folder_has_room(store->dir, bytes, why, why_bytes);
}

char *store_numbered(const char *dir, const char *stem, const char *extension,
                     bool force, unsigned *last_p)
{
    for (;;) {
        char *path = NULL;

        if (asprintf(&path, "%s/%s-%06u.%s", dir, stem, ++*last_p, extension) <
            0) {
            return NULL;
        }
        if (force || !path_exists(path)) {
            return path;
        }
        free(path);
    }
}

bool store_save(store_t *store, const tmsg_map_t *map, char **path_p, char *why,
                size_t why_bytes)
{
    const char *name = transfer_text(map, TMSG_META_FILE_NAME);
    const char *format = transfer_text(map, TMSG_META_FILE_FORMAT);
    tmsg_file_format_t known = TMSG_FILE_SAFETENSORS;
    tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FORMAT | TMSG_FILE_SAVE_PARAM_FLAGS,
        .flags = store->force ? TMSG_SAVE_OVERWRITE : 0,
    };
    tmsg_status_t status;
    tmsg_meta_t value;
    char *path;

    if (name == NULL &&
        tmsg_map_get_meta(map, TMSG_META_FILE_NAME, &value) == TMSG_OK) {
        snprintf(why, why_bytes, "the file name has control characters");
        return false;
    }
    if (name != NULL &&
        !check_file_name(name, format, &known, why, why_bytes)) {
        return false;
    }
    path = name != NULL ? join_path(store->dir, name)
                        : store_numbered(store->dir, "map", "safetensors",
                                         store->force, &store->unnamed);
    if (path == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return false;
    }
    params.format = (int32_t)known;
    status = tmsg_file_save(map, path, &params);
    if (status != TMSG_OK) {
        snprintf(why, why_bytes, "%s%s", tmsg_error_message(),
                 status == TMSG_ERR_ALREADY_EXISTS ? " (recv --force replaces)"
                                                   : "");
        free(path);
        return false;
    }
    *path_p = path;
    return true;
}
