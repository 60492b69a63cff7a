/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/header.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/bytes.h"
#include "core/error.h"
#include "serialize/wire.h"

#define MAGIC_0 'T'
#define MAGIC_1 'M'
/* A reader must not ignore these flags. */
#define FLAGS_CRITICAL 0x0f
#define FLAGS_KNOWN (TMSG_HEADER_SPILLED | TMSG_HEADER_ACKED | TMSG_HEADER_READ)

/* These are the offsets of the fields. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 2,
    AT_BYTES = 3,
    AT_KIND = 4,
    AT_FLAGS = 5,
    AT_CHANNEL = 6,
    AT_MESSAGE_ID = 8,
    AT_ENDPOINT_ID = 12,
    AT_SEQUENCE = 16,
    AT_BODY_BYTES = 20,
    AT_PAYLOAD_BYTES = 24,
    AT_POLICY = 32
};

void tmsg_preamble_encode(const tmsg_preamble_t *preamble, uint8_t *buffer)
{
    buffer[AT_MAGIC] = MAGIC_0;
    buffer[AT_MAGIC + 1] = MAGIC_1;
    buffer[AT_VERSION] = TMSG_WIRE_VERSION;
    buffer[AT_BYTES] = TMSG_PREAMBLE_BYTES;
    buffer[AT_KIND] = preamble->kind;
    buffer[AT_FLAGS] = preamble->flags;
    tmsg_put_le(buffer + AT_CHANNEL, preamble->channel, 2);
    tmsg_put_le(buffer + AT_MESSAGE_ID, preamble->message_id, 4);
    tmsg_put_le(buffer + AT_ENDPOINT_ID, preamble->endpoint_id, 4);
    tmsg_put_le(buffer + AT_SEQUENCE, preamble->sequence, 4);
    tmsg_put_le(buffer + AT_BODY_BYTES, preamble->body_bytes, 4);
    tmsg_put_le(buffer + AT_PAYLOAD_BYTES, preamble->payload_bytes, 8);
    buffer[AT_POLICY] = preamble->policy;
}

/* Checks magic, version and length. If one of them is wrong, no other field has
 * a meaning. */
static tmsg_status_t check_form(const uint8_t *at, size_t bytes)
{
    if (bytes < AT_KIND) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "preamble: ends after %zu bytes", bytes);
    }
    if (at[AT_MAGIC] != MAGIC_0 || at[AT_MAGIC + 1] != MAGIC_1) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "preamble: magic 0x%02x%02x is not 'TM'",
                              at[AT_MAGIC], at[AT_MAGIC + 1]);
    }
    if (at[AT_VERSION] != TMSG_WIRE_VERSION) {
        return tmsg_error_set(
            TMSG_ERR_INCOMPATIBLE,
            "preamble: the peer's wire version is %u, this side's is %u",
            at[AT_VERSION], TMSG_WIRE_VERSION);
    }
    if (at[AT_BYTES] < TMSG_PREAMBLE_SHORT) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "preamble: length %u is below %u", at[AT_BYTES],
                              TMSG_PREAMBLE_SHORT);
    }
    if (at[AT_BYTES] > bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "preamble: ends after %zu of %u bytes", bytes,
                              at[AT_BYTES]);
    }
    return TMSG_OK;
}

static tmsg_status_t check_fields(const tmsg_preamble_t *preamble, size_t bytes)
{
    unsigned unknown = preamble->flags & FLAGS_CRITICAL & ~FLAGS_KNOWN;
    bool spilled = (preamble->flags & TMSG_HEADER_SPILLED) != 0;
    uint64_t room = spilled ? preamble->payload_bytes &
                                  ~(uint64_t)(TMSG_PAYLOAD_ALIGNMENT - 1)
                            : bytes - preamble->bytes;

    if (unknown != 0) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "preamble: flags 0x%02x are not known here",
                              unknown);
    }
    if (preamble->policy > TMSG_PREAMBLE_STRICT) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "preamble: policy %u is not known here",
                              preamble->policy);
    }
    if (preamble->body_bytes > room) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED,
            "preamble: a body of %" PRIu32 " bytes in %" PRIu64 " bytes of %s",
            preamble->body_bytes, room, spilled ? "payload" : "header");
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_preamble_decode(const void *header, size_t bytes,
                                   tmsg_preamble_t *preamble_p)
{
    const uint8_t *at = header;
    tmsg_preamble_t preamble;
    tmsg_status_t status = check_form(at, bytes);

    if (status != TMSG_OK) {
        return status;
    }
    preamble = (tmsg_preamble_t){
        .version = at[AT_VERSION],
        .bytes = at[AT_BYTES],
        .kind = at[AT_KIND],
        .flags = at[AT_FLAGS],
        .channel = (uint16_t)tmsg_get_le(at + AT_CHANNEL, 2),
        .message_id = (uint32_t)tmsg_get_le(at + AT_MESSAGE_ID, 4),
        .endpoint_id = (uint32_t)tmsg_get_le(at + AT_ENDPOINT_ID, 4),
        .sequence = (uint32_t)tmsg_get_le(at + AT_SEQUENCE, 4),
        .body_bytes = (uint32_t)tmsg_get_le(at + AT_BODY_BYTES, 4),
        .payload_bytes = tmsg_get_le(at + AT_PAYLOAD_BYTES, 8),
        .policy = TMSG_PREAMBLE_HOST_FALLBACK,
    };
    if (preamble.bytes > AT_POLICY) {
        preamble.policy = at[AT_POLICY];
    }
    status = check_fields(&preamble, bytes);
    if (status == TMSG_OK) {
        *preamble_p = preamble;
    }
    return status;
}

bool tmsg_preamble_names(const void *header, size_t bytes, uint32_t *id_p)
{
    const uint8_t *at = header;

    if (check_form(at, bytes) != TMSG_OK) {
        return false;
    }
    *id_p = (uint32_t)tmsg_get_le(at + AT_ENDPOINT_ID, 4);
    return true;
}

bool tmsg_preamble_peek(const void *header, size_t bytes, uint32_t *id_p,
                        uint16_t *channel_p)
{
    const uint8_t *at = header;

    if (bytes < TMSG_PREAMBLE_SHORT) {
        return false;
    }
    *id_p = (uint32_t)tmsg_get_le(at + AT_ENDPOINT_ID, 4);
    *channel_p = (uint16_t)tmsg_get_le(at + AT_CHANNEL, 2);
    return true;
}

bool tmsg_preamble_repeats(const uint8_t *before, const void *header,
                           size_t bytes, uint32_t *message_id_p,
                           uint32_t *sequence_p)
{
    const uint8_t *at = header;

    if (tmsg_get_le(at, 8) != tmsg_get_le(before, 8) ||
        tmsg_get_le(at + AT_ENDPOINT_ID, 4) !=
            tmsg_get_le(before + AT_ENDPOINT_ID, 4) ||
        memcmp(at + AT_BODY_BYTES, before + AT_BODY_BYTES,
               bytes - AT_BODY_BYTES) != 0) {
        return false;
    }
    *message_id_p = (uint32_t)tmsg_get_le(at + AT_MESSAGE_ID, 4);
    *sequence_p = (uint32_t)tmsg_get_le(at + AT_SEQUENCE, 4);
    return true;
}

bool tmsg_preamble_has_numbers(const uint8_t *header, uint32_t message_id,
                               uint32_t sequence)
{
    return tmsg_get_le(header + AT_MESSAGE_ID, 4) == message_id &&
           tmsg_get_le(header + AT_SEQUENCE, 4) == sequence;
}

void tmsg_preamble_renumber(uint8_t *header, uint32_t message_id,
                            uint32_t sequence)
{
    tmsg_put_le(header + AT_MESSAGE_ID, message_id, 4);
    tmsg_put_le(header + AT_SEQUENCE, sequence, 4);
}
