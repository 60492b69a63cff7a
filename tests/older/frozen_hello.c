/* SPDX-License-Identifier: BSD-3-Clause */
/* FROZEN, see frozen.h */
#include "older/frozen.h"

#include <string.h>

/* Bytes of each field, by type; 0: as long as it is. */
static const uint8_t widths[FROZEN_HELLO_FIELDS + 1] = {
    0, 1, 2, 2, 2, 16, 4, 4, 0, 0, 8, 8, 8, 8,
    8, 4, 4, 4, 8, 8,  8, 8, 8, 8, 8, 8, 8, 8};

static uint8_t *put(uint8_t *to, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
    return to + width;
}

static uint64_t get(const uint8_t *from, size_t width)
{
    uint64_t value = 0;

    for (size_t i = width; i > 0; i--) {
        value = value << 8 | from[i - 1];
    }
    return value;
}

size_t frozen_write_hello(const frozen_hello_t *hello, uint8_t *to)
{
    uint8_t *at = to;

    for (unsigned type = 1; type <= FROZEN_HELLO_FIELDS; type++) {
        const char *text = type == 8 ? hello->host : hello->boot_id;
        size_t bytes = widths[type] == 0 ? strlen(text) : widths[type];

        at = put(at, type, 2);
        at = put(at, bytes, 2);
        if (widths[type] == 0) {
            memcpy(at, text, bytes);
        } else if (type == 5) {
            memcpy(at, hello->instance_id, bytes);
        } else {
            put(at, hello->number[type], widths[type]);
        }
        at += bytes;
    }
    return (size_t)(at - to);
}

static const char *take(frozen_hello_t *hello, unsigned type,
                        const uint8_t *value, size_t bytes)
{
    char *text = type == 8 ? hello->host : hello->boot_id;
    size_t room = type == 8 ? sizeof(hello->host) : sizeof(hello->boot_id);

    if (widths[type] == 0) {
        if (bytes >= room) {
            return "a text that is too long";
        }
        memcpy(text, value, bytes);
        text[bytes] = '\0';
    } else if (bytes != widths[type]) {
        return "a field of another length";
    } else if (type == 5) {
        memcpy(hello->instance_id, value, bytes);
    } else {
        hello->number[type] = get(value, bytes);
    }
    return NULL;
}

const char *frozen_read_hello(const uint8_t *from, size_t bytes,
                              frozen_hello_t *hello_p)
{
    frozen_hello_t hello = {.number = {0}};
    unsigned last = 0;

    while (bytes > 0) {
        unsigned type = bytes < 4 ? 0 : (unsigned)get(from, 2);
        size_t length = bytes < 4 ? 0 : (size_t)get(from + 2, 2);
        const char *error = NULL;

        if (type <= last || length > bytes - 4 || (last == 0 && type != 1)) {
            return "a hello whose fields are cut off or out of order";
        }
        if (type <= FROZEN_HELLO_FIELDS &&
            (type == 1 || hello.number[1] == 0)) {
            error = take(&hello, type, from + 4, length);
        }
        if (error != NULL) {
            return error;
        }
        last = type;
        from += 4 + length;
        bytes -= 4 + length;
    }
    if (hello.number[1] == 0 && last < FROZEN_HELLO_FIELDS) {
        return "a hello that lacks fields";
    }
    *hello_p = hello;
    return NULL;
}
