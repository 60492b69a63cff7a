/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of keys. read() puts them into memory of ours: a FILE would leave
 * copies behind. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/boot/key.h"
#include "core/error.h"
#include "core/regular.h"

#define FILE_BYTES_MOST ((size_t)64 * 1024)
#define DIGITS ((size_t)2 * TMSG_KEY_BYTES)
#define NAMELESS "default"

typedef struct {
    const char *path;
    char *text; /* FILE_BYTES_MOST + 1 bytes */
    size_t bytes;
} file_t;

tmsg_status_t tmsg_key_file_check(const char *path, int fd)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "key file %s", path);
    }
    if (stat.st_uid != geteuid() && stat.st_uid != 0) {
        return tmsg_error_set(TMSG_ERR_INSECURE,
                              "key file %s: it belongs to user %u: it must "
                              "belong to this user, %u, or to root",
                              path, (unsigned)stat.st_uid, (unsigned)geteuid());
    }
    return (stat.st_mode & 027) == 0
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INSECURE,
                                "key file %s: its mode %03o lets others read "
                                "or change it: run chmod 600, and replace the "
                                "keys if somebody may have read them",
                                path, (unsigned)stat.st_mode & 0777);
}

static tmsg_status_t read_key_file(file_t *file, int fd)
{
    size_t room = FILE_BYTES_MOST + 1;

    for (;;) {
        ssize_t n = read(fd, file->text + file->bytes, room - file->bytes);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return tmsg_error_errno(TMSG_ERR_IO, "key file %s", file->path);
        }
        if (n == 0) {
            return TMSG_OK;
        }
        file->bytes += (size_t)n;
        if (file->bytes == room) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "key file %s: it exceeds %zu bytes",
                                  file->path, FILE_BYTES_MOST);
        }
    }
}

static tmsg_status_t open_key_file(file_t *file)
{
    int fd;
    tmsg_status_t status = tmsg_regular_open("key file", file->path, &fd);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_key_file_check(file->path, fd);
    if (status == TMSG_OK) {
        status = read_key_file(file, fd);
    }
    close(fd);
    return status;
}

/* Takes a line without its end, "NAME DIGITS" or "DIGITS". An error shows
 * nothing of it: it may be most of a key. */
static tmsg_status_t take_line(const file_t *file, unsigned number,
                               const char *line, size_t bytes,
                               tmsg_keyring_t *keyring)
{
    tmsg_status_t status = TMSG_ERR_MALFORMED;
    size_t name_bytes = bytes < DIGITS ? 0 : bytes - DIGITS;
    bool named = name_bytes > 0;
    tmsg_key_t key = {.principal = NAMELESS};
    size_t length;

    if (memchr(line, '\0', bytes) == NULL && bytes >= DIGITS &&
        name_bytes <= TMSG_PRINCIPAL_MOST + 1 &&
        (!named || line[name_bytes - 1] == ' ') &&
        sodium_hex2bin(key.bytes, sizeof(key.bytes), line + name_bytes, DIGITS,
                       NULL, &length, NULL) == 0 &&
        length == TMSG_KEY_BYTES) {
        if (named) {
            memcpy(key.principal, line, name_bytes - 1);
            key.principal[name_bytes - 1] = '\0';
        }
        status = tmsg_keyring_add(keyring, key.principal, key.bytes);
        status = status == TMSG_ERR_INVALID_PARAM ? TMSG_ERR_MALFORMED : status;
    }
    tmsg_key_wipe(key.bytes);
    if (status == TMSG_ERR_MALFORMED) {
        return tmsg_error_set(status,
                              "key file %s: line %u is not a name, a space and "
                              "%zu hexadecimal digits",
                              file->path, number, DIGITS);
    }
    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(status, "key file %s: line %u: %s", file->path,
                                number, tmsg_error_message());
}

static bool ends_key_line(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static tmsg_status_t take_lines(void *arg, tmsg_keyring_t *keyring)
{
    const file_t *file = arg;
    const char *line = file->text, *end = file->text + file->bytes;
    tmsg_status_t status = TMSG_OK;

    for (unsigned number = 1; line < end && status == TMSG_OK; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)((next == NULL ? end : next) - line);
        size_t used = bytes;

        while (used > 0 && ends_key_line(line[used - 1])) {
            used--;
        }
        if (used > 0 && *line != '#') {
            status = take_line(file, number, line, used, keyring);
        }
        line += bytes + 1;
    }
    return status;
}

tmsg_status_t tmsg_keyring_load(tmsg_keyring_t *keyring, const char *path)
{
    file_t file = {.path = path, .text = malloc(FILE_BYTES_MOST + 1)};
    tmsg_status_t status;

    if (file.text == NULL) {
        return tmsg_error_memory("a file of keys");
    }
    status = open_key_file(&file);
    if (status == TMSG_OK) {
        status = tmsg_keyring_fill(keyring, take_lines, &file);
    }
    sodium_memzero(file.text, file.bytes);
    free(file.text);
    return status;
}

/* Writes all bytes. False, with errno: not all of them were written. */
static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Writes the line of a key file. A file that is cut short is worse than none,
 * so it is removed on error. */
static tmsg_status_t write_line(int fd, const char *path, const char *line)
{
    tmsg_status_t status = TMSG_OK;

    if (!write_all(fd, line, strlen(line)) || fsync(fd) != 0) {
        status = tmsg_error_errno(TMSG_ERR_IO, "key file %s", path);
    }
    if (close(fd) != 0 && status == TMSG_OK) {
        status = tmsg_error_errno(TMSG_ERR_IO, "key file %s", path);
    }
    if (status != TMSG_OK) {
        unlink(path);
    }
    return status;
}

tmsg_status_t tmsg_key_save(const char *path, const char *principal,
                            const uint8_t key[TMSG_KEY_BYTES])
{
    char digits[DIGITS + 1];
    char line[TMSG_PRINCIPAL_BYTES + sizeof(digits) + 1];
    tmsg_status_t status = tmsg_principal_check(principal);
    int fd;

    if (status != TMSG_OK) {
        return status;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tmsg_error_errno(errno == EEXIST ? TMSG_ERR_ALREADY_EXISTS
                                                : TMSG_ERR_IO,
                                "key file %s", path);
    }
    sodium_bin2hex(digits, sizeof(digits), key, TMSG_KEY_BYTES);
    snprintf(line, sizeof(line), "%s %s\n", principal, digits);
    status = write_line(fd, path, line);
    sodium_memzero(digits, sizeof(digits));
    sodium_memzero(line, sizeof(line));
    return status;
}
