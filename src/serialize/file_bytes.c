/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and maps the bytes of a file that is loaded. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/map.h"
#include "serialize/file.h"

typedef struct {
    void *bytes;
    size_t size;
} mapping_t;

static tmsg_status_t measure(tmsg_file_input_t *input)
{
    struct stat about;

    if (fstat(input->fd, &about) != 0) {
        return tmsg_file_fail(&input->where, TMSG_ERR_IO, "stat: %m");
    }
    if (!S_ISREG(about.st_mode)) {
        return tmsg_file_fail(&input->where, TMSG_ERR_UNSUPPORTED,
                              "is not a regular file");
    }
    if (about.st_size == 0) {
        return tmsg_file_fail(&input->where, TMSG_ERR_MALFORMED, "is empty");
    }
    input->size = (uint64_t)about.st_size;
    return TMSG_OK;
}

tmsg_status_t tmsg_file_open(tmsg_file_input_t *input)
{
    tmsg_status_t status;

    /* Without O_NONBLOCK, open() would wait for the other end of a FIFO. */
    input->fd = open(input->where.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (input->fd < 0) {
        return tmsg_file_fail(
            &input->where, errno == ENOENT ? TMSG_ERR_NOT_FOUND : TMSG_ERR_IO,
            "%m");
    }
    input->opened = true;
    status = measure(input);
    if (status != TMSG_OK) {
        tmsg_file_close(input);
    }
    return status;
}

void tmsg_file_close(tmsg_file_input_t *input)
{
    close(input->fd);
    input->opened = false;
}

tmsg_status_t tmsg_file_read(const tmsg_file_input_t *input, uint64_t at,
                             void *memory, uint64_t bytes)
{
    uint8_t *to = memory;

    if (!input->opened) {
        memcpy(memory, input->bytes + at, bytes);
        return TMSG_OK;
    }
    while (bytes > 0) {
        ssize_t got = pread(input->fd, to, bytes, (off_t)at);

        if (got == 0) {
            return tmsg_file_fail(&input->where, TMSG_ERR_IO,
                                  "was cut while it was read: it had %llu "
                                  "bytes, and byte %llu is missing",
                                  (unsigned long long)input->size,
                                  (unsigned long long)at);
        }
        if (got < 0 && errno != EINTR) {
            return tmsg_file_fail(&input->where, TMSG_ERR_IO, "read: %m");
        }
        if (got > 0) {
            to += got;
            at += (uint64_t)got;
            bytes -= (uint64_t)got;
        }
    }
    return TMSG_OK;
}

static void unmap(void *arg)
{
    mapping_t *mapping = arg;

    munmap(mapping->bytes, mapping->size);
    free(mapping);
}

/* Maps a file privately and writable, so that an application can work on
 * tensors in place; the file never changes. MAP_NORESERVE admits files that are
 * larger than memory. */
static void *map_bytes(int fd, uint64_t from, size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)from);

    if (mapped == MAP_FAILED && errno == ENOMEM) {
        /* Under strict overcommit, a writable mapping counts as memory in spite
         * of MAP_NORESERVE. A read-only mapping does not. */
        mapped = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)from);
    }
    return mapped;
}

tmsg_status_t tmsg_file_map(tmsg_file_input_t *input, uint64_t from)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    mapping_t *mapping;

    if (!input->opened) {
        return TMSG_OK;
    }
    /* mmap() does not map zero bytes, so at least the last byte is mapped. */
    from -= from == input->size;
    from -= from % page;
    mapping = malloc(sizeof(*mapping));
    if (mapping == NULL) {
        return tmsg_error_memory("a file's mapping");
    }
    mapping->size = (size_t)(input->size - from);
    mapping->bytes = map_bytes(input->fd, from, mapping->size);
    if (mapping->bytes == MAP_FAILED) {
        size_t size = mapping->size;
        int error = errno;

        free(mapping);
        errno = error;
        return tmsg_file_fail(
            &input->where, error == ENOMEM ? TMSG_ERR_NO_MEMORY : TMSG_ERR_IO,
            "map %zu bytes: %m", size);
    }
    input->bytes = mapping->bytes;
    input->mapped_from = from;
    tmsg_map_own(input->map, unmap, mapping);
    return TMSG_OK;
}
