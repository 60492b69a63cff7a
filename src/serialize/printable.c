/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/printable.h"

#include <stdint.h>
#include <string.h>

#include "core/utf8.h"

#define BYTES_MAX 64

/* Bytes of the character at `text`, 0 if there is none that may be printed. */
static size_t character(const char *text, size_t bytes)
{
    uint8_t lead = (uint8_t)*text;
    size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

    if (lead < 0x20 || lead == 0x7f || length > bytes ||
        !tmsg_utf8_valid(text, length)) {
        return 0;
    }
    return length;
}

const char *tmsg_printable(const char *text, size_t bytes, char *printable)
{
    size_t used = 0;

    while (bytes > 0) {
        size_t known = character(text, bytes);
        size_t length = known == 0 ? 1 : known;

        if (used + length > BYTES_MAX) {
            memcpy(printable + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(printable + used, known == 0 ? "?" : text, length);
        used += length;
        text += length;
        bytes -= length;
    }
    printable[used] = '\0';
    return printable;
}
