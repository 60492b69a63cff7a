/* SPDX-License-Identifier: BSD-3-Clause */
/* FROZEN, see frozen.h */
#include "older/frozen.h"

#include <string.h>

static void put(uint8_t *to, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get(const uint8_t *from, unsigned width)
{
    uint64_t value = 0;

    for (unsigned i = width; i > 0; i--) {
        value = value << 8 | from[i - 1];
    }
    return value;
}

void frozen_write_preamble(const frozen_preamble_t *preamble,
                           uint8_t to[FROZEN_PREAMBLE_BYTES])
{
    memcpy(to, "TM\0\x20", 4);
    to[4] = preamble->kind;
    to[5] = preamble->flags;
    put(to + 6, preamble->channel, 2);
    put(to + 8, preamble->message_id, 4);
    put(to + 12, preamble->endpoint_id, 4);
    put(to + 16, preamble->sequence, 4);
    put(to + 20, preamble->body_bytes, 4);
    put(to + 24, preamble->payload_bytes, 8);
}

const char *frozen_read_preamble(const uint8_t *from, size_t bytes,
                                 frozen_preamble_t *preamble_p)
{
    frozen_preamble_t preamble;
    uint64_t room;

    if (bytes < FROZEN_PREAMBLE_BYTES || memcmp(from, "TM", 2) != 0) {
        return "no preamble";
    }
    if (from[2] != 0) {
        return "not of wire version 0";
    }
    preamble = (frozen_preamble_t){
        .length = from[3],
        .kind = from[4],
        .flags = from[5],
        .channel = (uint16_t)get(from + 6, 2),
        .message_id = (uint32_t)get(from + 8, 4),
        .endpoint_id = (uint32_t)get(from + 12, 4),
        .sequence = (uint32_t)get(from + 16, 4),
        .body_bytes = (uint32_t)get(from + 20, 4),
        .payload_bytes = get(from + 24, 8),
    };
    if (preamble.length < FROZEN_PREAMBLE_BYTES || preamble.length > bytes) {
        return "the preamble's length is wrong";
    }
    if (preamble.length > FROZEN_PREAMBLE_BYTES) {
        preamble.policy = from[32];
    }
    if (preamble.policy > 1) {
        return "a policy that is not known";
    }
    if (preamble.flags & 0x0c) {
        return "a critical flag that is not known";
    }
    room = preamble.flags & 1 ? preamble.payload_bytes & ~(uint64_t)63
                              : bytes - preamble.length;
    if (preamble.body_bytes > room) {
        return "the body does not lie inside";
    }
    *preamble_p = preamble;
    return NULL;
}
