/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/packed.h"

#include <math.h>
#include <string.h>

#include "core/bytes.h"
#include "core/error.h"

#define NOTHING 0xff /* in place of the first device */
#define EMPTY 0x80u  /* beside a memory domain */
#define LAST 0x80u
#define HAS_PATHS 0x40u     /* beside a device's length */
#define HAS_SYSTEM 0x20u    /* the same */
#define HAS_ENDPOINT 0x40u  /* beside a transport's length */
#define DOMAIN_MASK 0x7fu   /* of v2, and of v1 from UCX 1.19 on */
#define OLD_DOMAIN_MASK 31u /* of v1 before */
#define DEVICE_MASK 31u
#define ENTRY_MASK 63u
#define SEGMENT_UNIT 64u

/* What is left to be read. After the end, all that is read is zero. */
typedef struct {
    const uint8_t *at;
    size_t left;
    bool over; /* more was read than there is */
    bool odd;  /* UCX does not pack this so */
} cursor_t;

static const uint8_t *take(cursor_t *cursor, size_t bytes)
{
    static const uint8_t zeros[UINT8_MAX + 1];
    const uint8_t *from = cursor->at;

    if (cursor->left < bytes) {
        cursor->over = true;
        return zeros;
    }
    cursor->at += bytes;
    cursor->left -= bytes;
    return from;
}

static uint64_t take_number(cursor_t *cursor, unsigned width)
{
    return tmsg_get_le(take(cursor, width), width);
}

/* Reads what has `mask` bits of a byte. The other bits go to *rest_p. */
static uint8_t take_extended(cursor_t *cursor, const tmsg_packed_t *packed,
                             uint8_t mask, uint8_t *rest_p)
{
    uint8_t byte = *take(cursor, 1), value = byte & mask;

    *rest_p = (uint8_t)(byte & ~mask);
    if (packed->version == 1 || value != mask) {
        return value;
    }
    value = *take(cursor, 1);
    cursor->odd |= value < mask;
    return value;
}

static void read_head(cursor_t *cursor, unsigned minor, tmsg_packed_t *packed)
{
    uint8_t byte = *take(cursor, 1);

    packed->version = (uint8_t)((byte & 15) + 1);
    packed->release = TMSG_PACKED_NO_RELEASE;
    if (packed->version == 1) {
        packed->flags = byte >> 4;
    } else {
        packed->flags = *take(cursor, 1);
        if (minor >= 16) {
            packed->release = byte >> 4;
        } else {
            cursor->odd |= byte >> 4 != 0;
        }
    }
    packed->uuid =
        packed->flags & TMSG_PACKED_UUID ? take_number(cursor, 8) : 0;
    if (packed->flags & TMSG_PACKED_CLIENT_ID) {
        take(cursor, 8);
    }
    packed->name_bytes =
        packed->flags & TMSG_PACKED_NAME ? *take(cursor, 1) : 0;
    packed->name = take(cursor, packed->name_bytes);
}

static double get_float(const uint8_t *from)
{
    uint32_t bits = (uint32_t)tmsg_get_le(from, 4);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* UCX's number of 8 bits: 4 of mantissa above 4 of exponent, which is all ones
 * in what is no number. */
static double get_float8(uint8_t byte, double least)
{
    int exponent = byte & 15;

    if (exponent == 15) {
        return NAN;
    }
    return exponent == 0 ? (byte == 0 ? 0 : NAN)
                         : ldexp(1 + (byte >> 4) / 16.0, exponent - 1) * least;
}

static void read_attributes(cursor_t *cursor, tmsg_packed_entry_t *entry,
                            uint8_t version)
{
    const uint8_t *from;

    if (version == 1) {
        from = take(cursor, 16);
        entry->overhead = get_float(from);
        entry->bandwidth = get_float(from + 4);
        entry->latency = get_float(from + 8);
        entry->priority = from[12];
        entry->flags = (uint32_t)tmsg_get_le(from + 13, 3);
        entry->segment = TMSG_PACKED_NO_SEGMENT;
        return;
    }
    from = take(cursor, 8);
    entry->overhead = get_float8(from[0], 1e-9);
    entry->bandwidth = get_float8(from[1], 512e6);
    entry->latency = get_float8(from[2], 16e-9);
    entry->priority = from[3];
    entry->segment = (uint32_t)tmsg_get_le(from + 4, 2) * SEGMENT_UNIT;
    entry->flags = (uint32_t)tmsg_get_le(from + 6, 2);
}

static tmsg_status_t read_entries(cursor_t *cursor, tmsg_packed_t *packed)
{
    uint8_t rest = 0;

    while ((rest & LAST) == 0 && !cursor->over) {
        tmsg_packed_entry_t *entry = &packed->entries[packed->entry_count];

        if (packed->entry_count == TMSG_PACKED_MOST) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "a worker address with more than %d "
                                  "transports",
                                  TMSG_PACKED_MOST);
        }
        entry->transport = (uint16_t)take_number(cursor, 2);
        entry->device = (uint8_t)(packed->device_count - 1);
        read_attributes(cursor, entry, packed->version);
        entry->address_bytes = take_extended(cursor, packed, ENTRY_MASK, &rest);
        entry->address = take(cursor, entry->address_bytes);
        if (rest & HAS_ENDPOINT) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "a worker address with an endpoint's");
        }
        packed->entry_count++;
    }
    return TMSG_OK;
}

/* Reads the empty device that tells the release. It must be the last. */
static void read_release(cursor_t *cursor, tmsg_packed_t *packed,
                         unsigned minor, uint8_t domain)
{
    uint8_t rest = *take(cursor, 1);

    cursor->odd |=
        packed->version != 1 || minor < 16 || domain > 15 || rest != LAST;
    packed->release = domain;
}

static tmsg_status_t read_devices(cursor_t *cursor, tmsg_packed_t *packed,
                                  unsigned minor)
{
    uint8_t mask =
        packed->version == 1 && minor < 19 ? OLD_DOMAIN_MASK : DOMAIN_MASK;
    tmsg_status_t status = TMSG_OK;
    uint8_t rest = 0;

    while (status == TMSG_OK && (rest & LAST) == 0 && !cursor->over) {
        tmsg_packed_device_t *device = &packed->devices[packed->device_count];
        uint8_t domain = take_extended(cursor, packed, mask, &rest);

        if (rest & EMPTY) {
            read_release(cursor, packed, minor, domain);
            return TMSG_OK;
        }
        if (packed->device_count == TMSG_PACKED_MOST) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "a worker address with more than %d devices",
                                  TMSG_PACKED_MOST);
        }
        device->domain = domain;
        device->address_bytes =
            take_extended(cursor, packed, DEVICE_MASK, &rest);
        device->paths = rest & HAS_PATHS ? *take(cursor, 1) : 1;
        device->system =
            rest & HAS_SYSTEM ? *take(cursor, 1) : TMSG_PACKED_NO_SYSTEM;
        cursor->odd |=
            (rest & HAS_PATHS && device->paths < 2) ||
            (rest & HAS_SYSTEM && device->system == TMSG_PACKED_NO_SYSTEM);
        device->address = take(cursor, device->address_bytes);
        packed->device_count++;
        status = read_entries(cursor, packed);
    }
    return status;
}

tmsg_status_t tmsg_packed_read(const void *address, size_t bytes,
                               unsigned minor, tmsg_packed_t *packed)
{
    cursor_t cursor = {.at = address, .left = bytes};
    tmsg_status_t status = TMSG_OK;

    packed->device_count = 0;
    packed->entry_count = 0;
    read_head(&cursor, minor, packed);
    if (packed->version > 2) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a worker address of the unknown version %d",
                              packed->version);
    }
    if (cursor.left > 0 && *cursor.at == NOTHING) {
        take(&cursor, 1);
    } else {
        status = read_devices(&cursor, packed, minor);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (cursor.over || cursor.left > 0) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED, "a worker address of %zu bytes that %s", bytes,
            cursor.over ? "ends too early" : "goes on behind its end");
    }
    return cursor.odd ? tmsg_error_set(TMSG_ERR_MALFORMED,
                                       "a worker address with bytes that no "
                                       "UCX packs")
                      : TMSG_OK;
}

uint16_t tmsg_packed_checksum(const char *name)
{
    uint16_t crc = UINT16_MAX;

    for (const char *c = name; *c != '\0'; c++) {
        crc ^= (uint8_t)*c;
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)(crc & 1 ? crc >> 1 ^ 0x8408 : crc >> 1);
        }
    }
    return (uint16_t)~crc;
}
