/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "core/error.h"
#include "core/tensor.h"
#include "serialize/file.h"

#define BUFFER_BYTES (256u << 10)
#define WRITE_BYTES (1ULL << 30) /* Linux writes at most 2 GiB - 4 KiB */
#define ATTEMPTS 16

static int dir_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? 0 : (int)(slash + 1 - path);
}

/* Chooses a temporary path in the directory of the final path, because rename()
 * does not cross file systems. */
static void choose_temp(tmsg_file_output_t *output)
{
    const char *path = output->where.path;
    uint64_t random;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
        random = (uint64_t)getpid() << 32 ^ output->attempts;
    }
    output->attempts++;
    sprintf(output->temp, "%.*s.tensormsg-%016" PRIx64, dir_bytes(path), path,
            random);
}

/* Creates a file without a name. Such a file leaves nothing behind if the
 * process is killed, and can get a name later through /proc. Returns -1 if
 * files without a name are not possible here. */
static int create_unnamed(const char *path)
{
    char *dir = strndup(path, (size_t)dir_bytes(path));
    int fd = -1;

    if (dir != NULL && access("/proc/self/fd", X_OK) == 0) {
        fd = open(*dir == '\0' ? "." : dir, O_TMPFILE | O_RDWR | O_CLOEXEC,
                  0666);
    }
    free(dir);
    return fd;
}

/* Creates a file with a temporary name. Here and in create_unnamed(), the file
 * gets the mode that open() gives to any new file. */
static int create_named(tmsg_file_output_t *output)
{
    int fd;

    do {
        choose_temp(output);
        fd = open(output->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST && output->attempts < ATTEMPTS);
    return fd;
}

tmsg_status_t tmsg_file_output_open(tmsg_file_output_t *output,
                                    const char *path)
{
    size_t temp_bytes = (size_t)dir_bytes(path) + sizeof(".tensormsg-") + 16;
    tmsg_status_t status;

    *output = (tmsg_file_output_t){.where = {.path = path}, .fd = -1};
    output->temp = calloc(1, temp_bytes);
    output->buffer = malloc(BUFFER_BYTES);
    if (output->temp == NULL || output->buffer == NULL) {
        status = tmsg_error_memory("a file's buffer");
        goto err_free;
    }
    output->fd = create_unnamed(path);
    if (output->fd < 0) {
        output->fd = create_named(output);
    }
    if (output->fd < 0) {
        status = tmsg_file_fail(
            &output->where, errno == ENOENT ? TMSG_ERR_NOT_FOUND : TMSG_ERR_IO,
            "create: %m");
        goto err_free;
    }
    return TMSG_OK;

err_free:
    free(output->temp);
    free(output->buffer);
    return status;
}

void tmsg_file_output_close(tmsg_file_output_t *output)
{
    if (output->fd >= 0) {
        close(output->fd);
        if (output->temp[0] != '\0') {
            unlink(output->temp);
        }
    }
    free(output->temp);
    free(output->buffer);
}

static tmsg_status_t write_out(tmsg_file_output_t *output, const void *data,
                               uint64_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        size_t piece = (size_t)(bytes < WRITE_BYTES ? bytes : WRITE_BYTES);
        ssize_t done = pwrite(output->fd, at, piece, (off_t)output->position);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            return tmsg_file_fail(&output->where, TMSG_ERR_IO,
                                  "write at byte %" PRIu64 ": %m",
                                  output->position);
        }
        at += done;
        bytes -= (uint64_t)done;
        output->position += (uint64_t)done;
    }
    return TMSG_OK;
}

static tmsg_status_t flush_buffer(tmsg_file_output_t *output)
{
    size_t bytes = output->buffered;

    output->buffered = 0;
    return write_out(output, output->buffer, bytes);
}

tmsg_status_t tmsg_file_write(tmsg_file_output_t *output, const void *data,
                              uint64_t bytes)
{
    tmsg_status_t status = TMSG_OK;

    if (bytes == 0) {
        return TMSG_OK;
    }
    if (bytes > BUFFER_BYTES - output->buffered) {
        status = flush_buffer(output);
    }
    if (status == TMSG_OK && bytes >= BUFFER_BYTES) {
        return write_out(output, data, bytes);
    }
    if (status == TMSG_OK) {
        memcpy(output->buffer + output->buffered, data, bytes);
        output->buffered += bytes;
    }
    return status;
}

tmsg_status_t tmsg_file_seek(tmsg_file_output_t *output, uint64_t position)
{
    tmsg_status_t status = flush_buffer(output);

    output->position = position;
    return status;
}

tmsg_status_t tmsg_file_write_tensor(tmsg_file_output_t *output,
                                     const tmsg_tensor_t *tensor)
{
    uint64_t bytes = 0, piece;
    tmsg_status_t status = tmsg_tensor_bytes(tensor, &bytes);

    if (tmsg_tensor_is_contiguous(tensor)) {
        return tmsg_file_write(output, tensor->data, bytes);
    }
    for (uint64_t done = 0; done < bytes && status == TMSG_OK; done += piece) {
        if (output->buffered == BUFFER_BYTES) {
            status = flush_buffer(output);
        }
        piece = BUFFER_BYTES - output->buffered;
        piece = piece < bytes - done ? piece : bytes - done;
        tmsg_tensor_pack_part(tensor, done, piece,
                              output->buffer + output->buffered);
        output->buffered += piece;
    }
    return status;
}

static int link_unnamed(int fd, const char *path)
{
    char here[32];

    snprintf(here, sizeof(here), "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, here, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

/* Returns whether `error` is what a file system or a sandbox returns for a
 * system call that it lacks. */
static bool is_lacking(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS ||
           error == EINVAL;
}

/* Replaces a file without a name by a copy with a temporary name. Where
 * linkat() does not work, a file without a name can never get one. */
static int name_copy(tmsg_file_output_t *output)
{
    int unnamed = output->fd, failed = 0;
    ssize_t done = 1;
    off_t from = 0;

    output->fd = create_named(output);
    if (output->fd < 0) {
        output->temp[0] = '\0';
        output->fd = unnamed;
        return -1;
    }
    while (done > 0) {
        done = sendfile(output->fd, unnamed, &from, (size_t)WRITE_BYTES);
        done = done < 0 && errno == EINTR ? 1 : done;
    }
    failed = done < 0 || fsync(output->fd) != 0;
    close(unnamed);
    return failed ? -1 : 0;
}

/* Gives the file its name if the name is free. This is the last resort: a file
 * that takes the name between the two system calls is lost. */
static int name_if_free(const tmsg_file_output_t *output)
{
    const char *path = output->where.path;

    if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(output->temp, path);
}

/* Gives the file its name unless another file has it. */
static int name_new(tmsg_file_output_t *output)
{
    const char *path = output->where.path;

    if (output->temp[0] == '\0') {
        if (link_unnamed(output->fd, path) == 0) {
            return 0;
        }
        if (!is_lacking(errno) || name_copy(output) != 0) {
            return -1;
        }
    }
    if (renameat2(AT_FDCWD, output->temp, AT_FDCWD, path, RENAME_NOREPLACE) ==
        0) {
        return 0;
    }
    if (!is_lacking(errno)) {
        return -1;
    }
    if (link(output->temp, path) == 0) {
        unlink(output->temp);
        return 0;
    }
    return is_lacking(errno) ? name_if_free(output) : -1;
}

/* Gives a temporary name to a file that has none. */
static int name_temp(tmsg_file_output_t *output)
{
    int failed;

    do {
        choose_temp(output);
        failed = link_unnamed(output->fd, output->temp);
    } while (failed && errno == EEXIST && output->attempts < ATTEMPTS);
    if (failed) {
        output->temp[0] = '\0'; /* a file of that name is not ours */
    }
    return failed && is_lacking(errno) ? name_copy(output) : failed;
}

/* Gives the file its name even if another file has it. Only rename() replaces a
 * file. */
static int name_over(tmsg_file_output_t *output)
{
    if (output->temp[0] == '\0' && name_temp(output) != 0) {
        return -1;
    }
    return rename(output->temp, output->where.path);
}

/* Flushes the directory to disk, so that the name also survives a power cut.
 * Not all file systems can do that, so errors are ignored. */
static void sync_dir(const char *path)
{
    char *dir = strndup(path, (size_t)dir_bytes(path));
    int fd;

    if (dir == NULL) {
        return;
    }
    fd = open(*dir == '\0' ? "." : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

tmsg_status_t tmsg_file_commit(tmsg_file_output_t *output, bool overwrite)
{
    const char *path = output->where.path;
    tmsg_status_t status = flush_buffer(output);
    int failed;

    if (status != TMSG_OK) {
        return status;
    }
    if (fsync(output->fd) != 0) {
        return tmsg_file_fail(&output->where, TMSG_ERR_IO, "flush: %m");
    }
    failed = overwrite ? name_over(output) : name_new(output);
    if (failed) {
        return tmsg_file_fail(&output->where,
                              errno == EEXIST ? TMSG_ERR_ALREADY_EXISTS
                                              : TMSG_ERR_IO,
                              "rename: %m");
    }
    close(output->fd);
    output->fd = -1; /* the close has nothing to remove now */
    sync_dir(path);
    return TMSG_OK;
}
