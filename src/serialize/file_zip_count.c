/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the members of an archive in its directory, in place (PKWARE's
 * APPNOTE.TXT, sections 4.3.12 to 4.3.16). */
#include <inttypes.h>
#include <string.h>

#include "core/bytes.h"
#include "serialize/file_npz.h"

#define ENTRY_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define SIGNATURE_BYTES 4

/* Bytes of the archive. */
typedef struct {
    const uint8_t *begin, *end;
} directory_t;

static bool is_signed(const uint8_t *at, const char *signature)
{
    return memcmp(at, signature, SIGNATURE_BYTES) == 0;
}

/* Finds the directory that an end record refers to; empty if it is none. */
static directory_t find_directory(const tmsg_zip_input_t *input,
                                  const uint8_t *record)
{
    uint64_t offset = tmsg_get_le(record + 16, 4);
    uint64_t bytes = tmsg_get_le(record + 12, 4);
    uint64_t most = (uint64_t)(record - input->bytes);

    if (most >= LOCATOR_BYTES && is_signed(record - LOCATOR_BYTES, "PK\6\7")) {
        uint64_t end64 = tmsg_get_le(record - LOCATOR_BYTES + 8, 8);

        most -= LOCATOR_BYTES;
        if (end64 > most || most - end64 < END64_BYTES ||
            !is_signed(input->bytes + end64, "PK\6\6")) {
            return (directory_t){NULL, NULL};
        }
        bytes = tmsg_get_le(input->bytes + end64 + 40, 8);
        offset = tmsg_get_le(input->bytes + end64 + 48, 8);
        most = end64;
    }
    if (offset > most || bytes > most - offset) {
        return (directory_t){NULL, NULL};
    }
    return (directory_t){input->bytes + offset, input->bytes + offset + bytes};
}

static uint64_t count_entries(const directory_t *directory)
{
    const uint8_t *at = directory->begin;
    uint64_t count = 0;

    while (directory->end - at >= ENTRY_BYTES && is_signed(at, "PK\1\2")) {
        uint64_t bytes = ENTRY_BYTES + tmsg_get_le(at + 28, 2) +
                         tmsg_get_le(at + 30, 2) + tmsg_get_le(at + 32, 2);

        count++;
        if (bytes > (uint64_t)(directory->end - at)) {
            break;
        }
        at += bytes;
    }
    return count;
}

tmsg_status_t tmsg_zip_count(const tmsg_file_where_t *where,
                             const tmsg_zip_input_t *input, uint64_t *count_p)
{
    const uint8_t *end = input->bytes + input->size, *at = input->bytes;
    uint64_t most = END_BYTES + UINT16_MAX; /* with the longest comment */

    *count_p = 0;
    at += input->size > most ? input->size - most : 0;
    while (end - at >= END_BYTES) {
        directory_t directory;
        uint64_t count;

        at = memmem(at, (size_t)(end - at) - END_BYTES + SIGNATURE_BYTES,
                    "PK\5\6", SIGNATURE_BYTES);
        if (at == NULL) {
            break;
        }
        directory = find_directory(input, at);
        count = count_entries(&directory);
        if (count > 0 && *count_p > 0) {
            return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                                  "has two directories of members");
        }
        *count_p += count;
        at++;
    }
    return TMSG_OK;
}
