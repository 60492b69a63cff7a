/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that a stranger's first bytes reach: frames, hello, sealed
 * address, blob. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include "am/boot/blob.h"
#include "am/boot/frame.h"
#include "core/bytes.h"

#define BLOB_HEADER_BYTES 14
#define CHECKSUM_BYTES 8

static void try_hello(const uint8_t *data, size_t size)
{
    uint8_t buffer[TMSG_HELLO_BYTES_MAX];
    tmsg_hello_t hello, again;
    char why[16];
    size_t bytes;
    tmsg_status_t status = tmsg_hello_decode(data, size, &hello);

    if (status != TMSG_OK) {
        assert(status == TMSG_ERR_MALFORMED);
        return;
    }
    status = tmsg_hello_encode(&hello, buffer, sizeof(buffer), &bytes);
    assert(status == TMSG_OK);
    status = tmsg_hello_decode(buffer, bytes, &again);
    assert(status == TMSG_OK);
    status = tmsg_hello_check(&hello, &again, false);
    assert(status == TMSG_OK || status == TMSG_ERR_INCOMPATIBLE);
    tmsg_hello_same_machine(&hello, &again, why, sizeof(why));
}

static void seal(uint8_t *data, size_t size)
{
    if (size >= CHECKSUM_BYTES) {
        size -= CHECKSUM_BYTES;
        tmsg_put_le(data + size, XXH3_64bits(data, size), CHECKSUM_BYTES);
    }
}

/* As they are, and once more with checksums that match, which no fuzzer
 * finds. */
static void try_sealed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + !size);
    tmsg_sealed_t sealed;
    tmsg_blob_t blob;

    (void)tmsg_sealed_decode(data, size, &sealed);
    (void)tmsg_blob_decode(data, size, &blob);
    memcpy(copy, data != NULL ? data : copy, size);
    seal(copy, size);
    if (tmsg_sealed_decode(copy, size, &sealed) == TMSG_OK) {
        assert(sealed.address_bytes == size - TMSG_SEALED_EXTRA_BYTES);
    }
    if (size >= BLOB_HEADER_BYTES + CHECKSUM_BYTES) {
        size_t hello_bytes = (size_t)tmsg_get_le(copy + 10, 4);
        size_t left = size - BLOB_HEADER_BYTES - CHECKSUM_BYTES;

        if (hello_bytes <= left) {
            seal(copy + BLOB_HEADER_BYTES + hello_bytes, left - hello_bytes);
            seal(copy, size);
        }
        if (tmsg_blob_decode(copy, size, &blob) == TMSG_OK) {
            XXH64_hash_t all =
                XXH3_64bits(blob.whole.address, blob.whole.address_bytes) ^
                XXH3_64bits(blob.net.address, blob.net.address_bytes);
            (void)all; /* every byte of it can be read */
        }
    }
    free(copy);
}

static void try_frames(const uint8_t *data, size_t size)
{
    size_t piece = size > 0 ? 1u + data[size - 1] : 1, sent = 0;
    tmsg_frame_stream_t stream;
    const uint8_t *payload;
    tmsg_status_t status;
    size_t bytes;
    uint8_t type;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) {
        return;
    }
    tmsg_frame_init(&stream, fds[1], 1000);
    /* Half of the inputs are spared the magic, to get past it at once. */
    if (size > 0 && (data[0] & 1)) {
        (void)!write(fds[0], TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
    }
    if (size > 0 && (data[0] & 2)) { /* no fuzzer finds a MAC */
        static const uint8_t key[TMSG_KEY_BYTES] = {1};

        tmsg_frame_protect(&stream, key, key, 1000);
    }
    do {
        if (sent < size) {
            ssize_t n = write(fds[0], data + sent,
                              piece < size - sent ? piece : size - sent);
            sent += n > 0 ? (size_t)n : 0;
        } else {
            shutdown(fds[0], SHUT_WR);
        }
        status = tmsg_frame_read(&stream, &type, &payload, &bytes);
        if (status == TMSG_OK) {
            try_hello(payload, bytes);
            assert(bytes <= 1000);
        }
        assert(stream.in.capacity <= 4096);
    } while (status >= 0);
    tmsg_frame_free(&stream);
    close(fds[0]);
    close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_hello(data, size);
    try_sealed(data, size);
    try_frames(data, size);
    return 0;
}
