/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/raw_bootstrap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "am/boot/frame.h"
#include "core/bytes.h"
#include "support/must.h"

#define FRAME_HELLO 1

int raw_dial(const char *url)
{
    int fd = raw_try_dial(url);

    must_true(fd >= 0);
    return fd;
}

int raw_try_dial(const char *url)
{
    bool refused;
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd;

    if (strncmp(url, "unix://", 7) == 0) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        snprintf(un.sun_path, sizeof(un.sun_path), "%s", url + 7);
        refused = connect(fd, (struct sockaddr *)&un, sizeof(un)) != 0;
    } else {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        in.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        refused = connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0;
    }
    if (refused) {
        close(fd);
    }
    return refused ? -1 : fd;
}

int raw_listen(char *url, size_t bytes)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t size = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must_eq(bind(fd, (struct sockaddr *)&in, size), 0);
    must_eq(listen(fd, 16), 0);
    must_eq(getsockname(fd, (struct sockaddr *)&in, &size), 0);
    snprintf(url, bytes, "tcp://127.0.0.1:%u", ntohs(in.sin_port));
    return fd;
}

void raw_send(int fd, const void *data, size_t bytes)
{
    must_eq(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
}

void raw_send_magic(int fd)
{
    raw_send(fd, TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
}

void raw_send_frame(int fd, uint8_t type, const void *data, size_t bytes)
{
    uint8_t header[TMSG_FRAME_HEADER_BYTES];

    *tmsg_put_le(header, bytes, 4) = type;
    raw_send(fd, header, sizeof(header));
    if (bytes > 0) {
        raw_send(fd, data, bytes);
    }
}

void raw_hello(tmsg_hello_t *hello)
{
    static const uint8_t instance[TMSG_INSTANCE_BYTES] = "a raw test peer";

    tmsg_hello_fill_local(instance, hello);
    hello->ucx_major = 1;
    hello->ucx_minor = 2;
    hello->ucx_patch = 3;
    hello->max_am_header = 8000;
    hello->queue_depth = 16;
    hello->max_tensors = 1000;
    hello->max_ndim = 64;
    hello->max_name_bytes = 4096;
    hello->max_metadata_bytes = 1 << 20;
    hello->max_metadata_keys = 1000;
    hello->max_header_bytes = 1 << 20;
    hello->max_message_bytes = 1 << 30;
}

void raw_send_hello(int fd, const tmsg_hello_t *hello)
{
    uint8_t data[TMSG_HELLO_BYTES_MAX];
    size_t bytes;

    must(tmsg_hello_encode(hello, data, sizeof(data), &bytes));
    raw_send_frame(fd, FRAME_HELLO, data, bytes);
}

bool raw_closed(void *arg)
{
    raw_reader_t *reader = arg;
    uint8_t chunk[512];
    ssize_t got = recv(reader->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

    if (got < 0) {
        return errno == ECONNRESET || errno == EPIPE;
    }
    for (ssize_t i = 0; i < got && reader->bytes < sizeof(reader->data) - 1;
         i++) {
        reader->data[reader->bytes++] = chunk[i];
    }
    return got == 0;
}

const char *raw_find_frame(const raw_reader_t *reader, uint8_t type,
                           size_t skip)
{
    static char text[sizeof(reader->data) + 1];
    size_t at = TMSG_FRAME_MAGIC_BYTES;

    while (at + TMSG_FRAME_HEADER_BYTES <= reader->bytes) {
        const uint8_t *header = reader->data + at;
        size_t bytes = (size_t)tmsg_get_le(header, 4);

        at += TMSG_FRAME_HEADER_BYTES + bytes;
        if (header[4] == type && at <= reader->bytes && skip <= bytes) {
            memcpy(text, header + TMSG_FRAME_HEADER_BYTES + skip, bytes - skip);
            text[bytes - skip] = '\0';
            return text;
        }
    }
    return NULL;
}

size_t raw_frame_bytes(const raw_reader_t *reader, uint8_t type)
{
    size_t at = TMSG_FRAME_MAGIC_BYTES;

    while (at + TMSG_FRAME_HEADER_BYTES <= reader->bytes) {
        size_t bytes = (size_t)tmsg_get_le(reader->data + at, 4);

        if (reader->data[at + 4] == type) {
            return bytes;
        }
        at += TMSG_FRAME_HEADER_BYTES + bytes;
    }
    return 0;
}
