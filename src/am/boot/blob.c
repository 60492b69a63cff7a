/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/blob.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "am/boot/proof.h"
#include "core/bytes.h"
#include "core/error.h"

#define MAGIC "TMSGBLOB"
#define MAGIC_BYTES 8
#define PLAIN_VERSION 0
#define PROVED_VERSION 1 /* of a side that has keys */
/* Limit of two addresses, a hello and proofs. A longer blob is refused before
 * it is hashed. */
#define BLOB_BYTES_MOST (192u * 1024u)
#define BLOB_HEADER_BYTES 14 /* magic, u16 version, u32 hello length */
#define CHECKSUM_BYTES TMSG_BLOB_SEAL_BYTES

_Static_assert(TMSG_SEALED_EXTRA_BYTES == TMSG_TOKEN_BYTES + 4 + CHECKSUM_BYTES,
               "token, length, checksum");

static void put_checksum(uint8_t *data, size_t bytes)
{
    tmsg_put_le(data + bytes, XXH3_64bits(data, bytes), CHECKSUM_BYTES);
}

/* Returns whether the last 8 of `bytes` are the checksum of the others. */
static bool has_checksum(const uint8_t *data, size_t bytes)
{
    return bytes >= CHECKSUM_BYTES &&
           XXH3_64bits(data, bytes - CHECKSUM_BYTES) ==
               tmsg_get_le(data + bytes - CHECKSUM_BYTES, CHECKSUM_BYTES);
}

tmsg_status_t tmsg_sealed_encode(const tmsg_sealed_t *sealed, void *buffer,
                                 size_t capacity, size_t *bytes_p)
{
    size_t bytes = sealed->address_bytes + TMSG_SEALED_EXTRA_BYTES;
    uint8_t *to = buffer;

    if (sealed->address_bytes == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the worker address is empty");
    }
    if (sealed->address_bytes > TMSG_ADDRESS_BYTES_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a worker address of %zu bytes exceeds %u",
                              sealed->address_bytes, TMSG_ADDRESS_BYTES_MAX);
    }
    if (bytes > capacity) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a sealed address of %zu bytes does not fit in "
                              "%zu",
                              bytes, capacity);
    }
    memcpy(to, sealed->token, TMSG_TOKEN_BYTES);
    to = tmsg_put_le(to + TMSG_TOKEN_BYTES, sealed->address_bytes, 4);
    memcpy(to, sealed->address, sealed->address_bytes);
    put_checksum(buffer, bytes - CHECKSUM_BYTES);
    *bytes_p = bytes;
    return TMSG_OK;
}

tmsg_status_t tmsg_sealed_decode(const void *data, size_t bytes,
                                 tmsg_sealed_t *sealed_p)
{
    const uint8_t *from = data;
    size_t address_bytes;

    if (bytes <= TMSG_SEALED_EXTRA_BYTES ||
        bytes > TMSG_ADDRESS_BYTES_MAX + TMSG_SEALED_EXTRA_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker address: %zu bytes cannot be one", bytes);
    }
    if (!has_checksum(from, bytes)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker address: its checksum does not match");
    }
    address_bytes = (size_t)tmsg_get_le(from + TMSG_TOKEN_BYTES, 4);
    if (address_bytes != bytes - TMSG_SEALED_EXTRA_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker address: says %zu bytes, has %zu",
                              address_bytes, bytes - TMSG_SEALED_EXTRA_BYTES);
    }
    memcpy(sealed_p->token, from, TMSG_TOKEN_BYTES);
    sealed_p->address = from + TMSG_TOKEN_BYTES + 4;
    sealed_p->address_bytes = address_bytes;
    return TMSG_OK;
}

tmsg_status_t tmsg_blob_encode(const tmsg_blob_t *blob, void **data_p,
                               size_t *bytes_p)
{
    size_t capacity = BLOB_HEADER_BYTES + TMSG_HELLO_BYTES_MAX +
                      blob->whole.address_bytes + blob->net.address_bytes +
                      2 * TMSG_SEALED_EXTRA_BYTES;
    uint8_t *data = malloc(capacity + CHECKSUM_BYTES);
    size_t used = BLOB_HEADER_BYTES;
    size_t bytes;
    tmsg_status_t status;

    if (data == NULL) {
        return tmsg_error_memory("a worker blob");
    }
    status = tmsg_hello_encode(&blob->hello, data + used, TMSG_HELLO_BYTES_MAX,
                               &bytes);
    if (status != TMSG_OK) {
        goto err_free;
    }
    memcpy(data, MAGIC, MAGIC_BYTES);
    tmsg_put_le(data + MAGIC_BYTES,
                blob->asks_for_key ? PROVED_VERSION : PLAIN_VERSION, 2);
    tmsg_put_le(data + MAGIC_BYTES + 2, bytes, 4);
    used += bytes;
    status =
        tmsg_sealed_encode(&blob->whole, data + used, capacity - used, &bytes);
    if (status != TMSG_OK) {
        goto err_free;
    }
    used += bytes;
    status =
        tmsg_sealed_encode(&blob->net, data + used, capacity - used, &bytes);
    if (status != TMSG_OK) {
        goto err_free;
    }
    used += bytes;
    put_checksum(data, used);
    *data_p = data;
    *bytes_p = used + CHECKSUM_BYTES;
    return TMSG_OK;

err_free:
    free(data);
    return status;
}

tmsg_status_t tmsg_blob_prove(const void *blob, size_t proved_bytes,
                              const void *proofs, size_t proof_bytes,
                              void **data_p, size_t *bytes_p)
{
    size_t bytes = proved_bytes + proof_bytes;
    uint8_t *data = malloc(bytes + CHECKSUM_BYTES);

    if (data == NULL) {
        return tmsg_error_memory("a worker blob");
    }
    memcpy(data, blob, proved_bytes);
    memcpy(data + proved_bytes, proofs, proof_bytes);
    put_checksum(data, bytes);
    *data_p = data;
    *bytes_p = bytes + CHECKSUM_BYTES;
    return TMSG_OK;
}

/* Checks what every version of a blob begins and ends with. */
static tmsg_status_t check_frame(const uint8_t *data, size_t bytes)
{
    unsigned version;

    if (bytes > BLOB_BYTES_MOST) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob of %zu bytes, at most %u", bytes,
                              BLOB_BYTES_MOST);
    }
    if (bytes < BLOB_HEADER_BYTES + CHECKSUM_BYTES ||
        memcmp(data, MAGIC, MAGIC_BYTES) != 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "these %zu bytes are not a worker blob", bytes);
    }
    if (!has_checksum(data, bytes)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob: its checksum does not match");
    }
    version = (unsigned)tmsg_get_le(data + MAGIC_BYTES, 2);
    if (version > PROVED_VERSION) {
        return tmsg_error_set(
            TMSG_ERR_INCOMPATIBLE,
            "worker blob of version %u: this side reads %u and %u", version,
            PLAIN_VERSION, PROVED_VERSION);
    }
    return TMSG_OK;
}

/* Returns the length of the sealed address that begins at `from`, as it says
 * itself; this may be more than `bytes`. */
static uint64_t sealed_bytes(const uint8_t *from, size_t bytes)
{
    return bytes < TMSG_SEALED_EXTRA_BYTES
               ? TMSG_SEALED_EXTRA_BYTES
               : TMSG_SEALED_EXTRA_BYTES +
                     tmsg_get_le(from + TMSG_TOKEN_BYTES, 4);
}

static tmsg_status_t address_too_long(uint64_t address_bytes, size_t left)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED,
                          "worker blob: an address of %llu bytes, %zu are "
                          "left",
                          (unsigned long long)address_bytes, left);
}

/* Decodes the proofs, which are behind the addresses. */
static tmsg_status_t decode_proofs(const uint8_t *from, size_t bytes,
                                   tmsg_blob_t *blob)
{
    blob->proofs = from;
    blob->proof_bytes = bytes;
    if (bytes % TMSG_PROOF_BYTES != 0 ||
        bytes > TMSG_KEYS_MOST * TMSG_PROOF_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob: proofs of %zu bytes", bytes);
    }
    if (blob->hello.admission == 0 ||
        blob->hello.admission == TMSG_HELLO_NO_ADMISSION) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob: room for proofs, and its hello "
                              "has none");
    }
    return TMSG_OK;
}

/* Decodes both addresses. Each says its own length. Without proofs behind them
 * they fill `bytes`. */
static tmsg_status_t decode_addresses(const uint8_t *from, size_t bytes,
                                      tmsg_blob_t *blob)
{
    uint64_t whole_bytes = sealed_bytes(from, bytes), net_bytes;
    size_t left;
    tmsg_status_t status;

    if (whole_bytes > bytes) {
        return address_too_long(whole_bytes, bytes);
    }
    left = bytes - (size_t)whole_bytes;
    from += whole_bytes;
    net_bytes = blob->asks_for_key ? sealed_bytes(from, left) : left;
    if (net_bytes > left) {
        return address_too_long(net_bytes, left);
    }
    status = tmsg_sealed_decode(from - whole_bytes, (size_t)whole_bytes,
                                &blob->whole);
    if (status == TMSG_OK) {
        status = tmsg_sealed_decode(from, (size_t)net_bytes, &blob->net);
    }
    if (status == TMSG_OK &&
        memcmp(blob->whole.token, blob->net.token, TMSG_TOKEN_BYTES) != 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob: its addresses have two tokens");
    }
    return status != TMSG_OK || !blob->asks_for_key
               ? status
               : decode_proofs(from + net_bytes, left - (size_t)net_bytes,
                               blob);
}

tmsg_status_t tmsg_blob_decode(const void *data, size_t bytes,
                               tmsg_blob_t *blob_p)
{
    const uint8_t *from = data;
    tmsg_status_t status = check_frame(data, bytes);
    size_t left, hello_bytes;
    tmsg_blob_t blob = {.proofs = NULL};

    if (status != TMSG_OK) {
        return status;
    }
    left = bytes - BLOB_HEADER_BYTES - CHECKSUM_BYTES;
    hello_bytes = (size_t)tmsg_get_le(from + MAGIC_BYTES + 2, 4);
    if (hello_bytes > left) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "worker blob: its hello says %zu bytes, %zu are "
                              "left",
                              hello_bytes, left);
    }
    from += BLOB_HEADER_BYTES;
    status = tmsg_hello_decode(from, hello_bytes, &blob.hello);
    if (status != TMSG_OK) {
        return status;
    }
    blob.asks_for_key =
        tmsg_get_le((const uint8_t *)data + MAGIC_BYTES, 2) == PROVED_VERSION;
    status = decode_addresses(from + hello_bytes, left - hello_bytes, &blob);
    if (status != TMSG_OK) {
        return status;
    }
    blob.proved_bytes = bytes - CHECKSUM_BYTES - blob.proof_bytes;
    *blob_p = blob;
    return TMSG_OK;
}

const tmsg_sealed_t *tmsg_blob_address(const tmsg_blob_t *blob, bool net_only)
{
    return net_only ? &blob->net : &blob->whole;
}
