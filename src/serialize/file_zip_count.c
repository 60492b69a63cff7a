/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the members of an archive in its directory (PKWARE's APPNOTE.TXT,
 * sections 4.3.12 to 4.3.16). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/error.h"
#include "serialize/file_npz.h"

#define ENTRY_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define SIGNATURE_BYTES 4
#define TAIL_BYTES (END_BYTES + UINT16_MAX) /* includes the longest comment */
#define PIECE_BYTES (64u << 10)

/* Holds the state of a count. All bytes are copied before they are looked
 * at. */
typedef struct {
    const tmsg_file_input_t *input;
    uint8_t *tail;     /* last bytes of the file, inside `copy` */
    size_t tail_bytes; /* at most TAIL_BYTES */
    uint8_t copy[LOCATOR_BYTES +
                 TAIL_BYTES]; /* the tail, and the bytes before it */
    uint64_t piece_at;        /* file offset of `piece` */
    uint64_t piece_bytes;
    uint8_t piece[PIECE_BYTES]; /* copied bytes of the directory */
} counter_t;

/* Holds the range of the archive's bytes in which the directory lies. */
typedef struct {
    uint64_t begin, end;
} directory_t;

static bool is_signed(const uint8_t *at, const char *signature)
{
    return memcmp(at, signature, SIGNATURE_BYTES) == 0;
}

/* Finds the directory to which an end record in the tail refers. *directory is
 * empty if the record refers to none. */
static tmsg_status_t find_directory(const counter_t *counter,
                                    const uint8_t *record,
                                    directory_t *directory)
{
    const tmsg_file_input_t *input = counter->input;
    uint64_t offset = tmsg_get_le(record + 16, 4);
    uint64_t bytes = tmsg_get_le(record + 12, 4);
    uint64_t most =
        input->size - counter->tail_bytes + (uint64_t)(record - counter->tail);

    *directory = (directory_t){0, 0};
    if (most >= LOCATOR_BYTES && is_signed(record - LOCATOR_BYTES, "PK\6\7")) {
        uint64_t end64 = tmsg_get_le(record - LOCATOR_BYTES + 8, 8);
        uint8_t copy[END64_BYTES];
        tmsg_status_t status;

        most -= LOCATOR_BYTES;
        if (end64 > most || most - end64 < END64_BYTES) {
            return TMSG_OK;
        }
        status = tmsg_file_read(input, end64, copy, END64_BYTES);
        if (status != TMSG_OK || !is_signed(copy, "PK\6\6")) {
            return status;
        }
        bytes = tmsg_get_le(copy + 40, 8);
        offset = tmsg_get_le(copy + 48, 8);
        most = end64;
    }
    if (offset <= most && bytes <= most - offset) {
        *directory = (directory_t){offset, offset + bytes};
    }
    return TMSG_OK;
}

/* Finds the entry at `at`. If it was not copied yet, copies it together with
 * the entries that follow. The first entry is copied alone, because many end
 * records may refer to bytes that are not a directory. */
static tmsg_status_t read_directory_entry(counter_t *counter, uint64_t at,
                                          uint64_t end, bool first,
                                          const uint8_t **entry_p)
{
    uint64_t bytes = first                    ? ENTRY_BYTES
                     : end - at < PIECE_BYTES ? end - at
                                              : PIECE_BYTES;
    tmsg_status_t status = TMSG_OK;

    if (first || at - counter->piece_at > counter->piece_bytes - ENTRY_BYTES) {
        status = tmsg_file_read(counter->input, at, counter->piece, bytes);
        counter->piece_at = at;
        counter->piece_bytes = bytes;
    }
    *entry_p = counter->piece + (at - counter->piece_at);
    return status;
}

static tmsg_status_t count_entries(counter_t *counter,
                                   const directory_t *directory,
                                   uint64_t *count_p)
{
    uint64_t at = directory->begin, end = directory->end;

    *count_p = 0;
    while (end - at >= ENTRY_BYTES) {
        const uint8_t *entry;
        uint64_t bytes;
        tmsg_status_t status =
            read_directory_entry(counter, at, end, *count_p == 0, &entry);

        if (status != TMSG_OK || !is_signed(entry, "PK\1\2")) {
            return status;
        }
        bytes = ENTRY_BYTES + tmsg_get_le(entry + 28, 2) +
                tmsg_get_le(entry + 30, 2) + tmsg_get_le(entry + 32, 2);
        ++*count_p;
        if (bytes > end - at) {
            break;
        }
        at += bytes;
    }
    return TMSG_OK;
}

/* Copies the tail, and the bytes before it that a locator may take. */
static tmsg_status_t read_tail(counter_t *counter)
{
    uint64_t size = counter->input->size, copied = sizeof(counter->copy);

    copied = size < copied ? size : copied;
    counter->tail_bytes = size < TAIL_BYTES ? size : TAIL_BYTES;
    counter->tail = counter->copy + (copied - counter->tail_bytes);
    return tmsg_file_read(counter->input, size - copied, counter->copy, copied);
}

static tmsg_status_t count_all(counter_t *counter, uint64_t *count_p)
{
    const uint8_t *at = counter->tail, *end = at + counter->tail_bytes;

    while (end - at >= END_BYTES) {
        directory_t directory;
        uint64_t count = 0;
        tmsg_status_t status;

        at = memmem(at, (size_t)(end - at) - END_BYTES + SIGNATURE_BYTES,
                    "PK\5\6", SIGNATURE_BYTES);
        if (at == NULL) {
            break;
        }
        status = find_directory(counter, at, &directory);
        if (status == TMSG_OK) {
            status = count_entries(counter, &directory, &count);
        }
        if (status != TMSG_OK) {
            return status;
        }
        if (count > 0 && *count_p > 0) {
            return tmsg_file_fail(&counter->input->where, TMSG_ERR_MALFORMED,
                                  "has two directories of members");
        }
        *count_p += count;
        at++;
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_zip_count(const tmsg_file_input_t *input, uint64_t *count_p)
{
    counter_t *counter = malloc(sizeof(*counter));
    tmsg_status_t status;

    if (counter == NULL) {
        return tmsg_error_memory("the directory of a file");
    }
    *count_p = 0;
    counter->input = input;
    status = read_tail(counter);
    if (status == TMSG_OK) {
        status = count_all(counter, count_p);
    }
    free(counter);
    return status;
}
