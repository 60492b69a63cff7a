/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/scatter.h"

#include <stdlib.h>
#include <string.h>

#include "am/path/loans.h"
#include "am/recv/message.h"
#include "am/recv/stage_in.h"
#include "core/error.h"
#include "core/map.h"
#include "serialize/split.h"

uint64_t tmsg_scatter_missing(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);
    uint64_t bytes = 0, out;

    if (tmsg_map_is_bare(map) && tmsg_map_measured(map, &bytes, &out)) {
        return bytes;
    }
    for (size_t i = 0; i < size; i++) {
        if (entries[i].tensor.data == NULL && entries[i].bytes > 0) {
            bytes = tmsg_layout_next(bytes, entries[i].tensor.dtype,
                                     entries[i].bytes) +
                    entries[i].bytes;
        }
    }
    return bytes;
}

void tmsg_scatter_landed(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    size_t size = tmsg_map_size(message->map);
    uint8_t *block = message->block.data;
    uint64_t offset = 0;

    for (size_t i = 0; i < size && block != NULL; i++) {
        offset =
            tmsg_layout_next(offset, entries[i].tensor.dtype, entries[i].bytes);
        if (entries[i].tensor.data == NULL) {
            tmsg_map_place(message->map, i, block + offset);
        } else if (entries[i].bytes > 0 &&
                   !tmsg_stage_in_lies(message, i, block + offset)) {
            memcpy(entries[i].tensor.data, block + offset, entries[i].bytes);
        }
        offset += entries[i].bytes;
    }
}

void tmsg_scatter_loan(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    size_t size = tmsg_map_size(message->map);

    for (size_t i = 0; i < size; i++) {
        const uint8_t *at = tmsg_loan_at(message->loan, i);

        if (at == NULL) {
            continue;
        }
        if (entries[i].tensor.data == NULL) {
            tmsg_map_place_read_only(message->map, i, at);
            entries = tmsg_map_entries(message->map);
            message->views = true;
        } else if (!tmsg_stage_in_lies(message, i, (uint8_t *)(uintptr_t)at)) {
            memcpy(entries[i].tensor.data, at, entries[i].bytes);
        }
    }
    if (message->stage == NULL) { /* else they are still to be copied */
        tmsg_message_copied_loan(message);
    }
}

/* Describes a list of pieces in the making. Pieces beyond `room` are only
 * counted. */
typedef struct {
    tmsg_message_t *message;
    struct iovec *iov;
    size_t room;
    size_t count;
    struct iovec last;
} pieces_t;

static void put_piece(pieces_t *pieces, void *data, size_t bytes)
{
    pieces->last = (struct iovec){data, bytes};
    if (pieces->count < pieces->room) {
        pieces->iov[pieces->count] = pieces->last;
    }
    pieces->count++;
}

static void extend_piece(pieces_t *pieces, size_t bytes)
{
    pieces->last.iov_len += bytes;
    if (pieces->count <= pieces->room) {
        pieces->iov[pieces->count - 1] = pieces->last;
    }
}

/* Returns whether memory is the message's own. A gap there belongs to nobody
 * else. */
static bool is_own(const tmsg_message_t *message, const void *data)
{
    uintptr_t at = (uintptr_t)data;
    uintptr_t block = (uintptr_t)message->block.data;

    return at - block < message->block.bytes ||
           at - (uintptr_t)message->small < sizeof(message->small);
}

/* Adds a tensor that follows `gap` meaningless bytes. With `apart` it begins a
 * new piece, because a tensor that does not travel here lies before it. */
static void put_tensor_piece(pieces_t *pieces, uint64_t gap, bool apart,
                             size_t index)
{
    tmsg_message_t *message = pieces->message;
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    uint8_t *data = message->stage == NULL ? entry->tensor.data
                                           : tmsg_stage_in_host(message, index);

    if (!apart && pieces->count > 0 && pieces->last.iov_base != message->body &&
        data == (uint8_t *)pieces->last.iov_base + pieces->last.iov_len + gap &&
        (gap == 0 ||
         (is_own(message, data) && is_own(message, pieces->last.iov_base)))) {
        extend_piece(pieces, gap + entry->bytes);
        return;
    }
    if (gap > 0) {
        put_piece(pieces, message->gap, gap);
    }
    put_piece(pieces, data, entry->bytes);
}

static void make_pieces(pieces_t *pieces, bool slices)
{
    tmsg_message_t *message = pieces->message;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    size_t size = tmsg_map_size(message->map);
    uint64_t offset = 0;
    bool apart = false;

    pieces->count = 0;
    pieces->last = (struct iovec){NULL, 0};
    if (slices != (message->extra.split.slice > 0)) {
        return; /* this list is empty */
    }
    if (message->body != NULL) {
        /* The tensors behind the body are not known yet. */
        put_piece(pieces, message->body, tmsg_payload_spill(&message->head));
        if (message->block.bytes > 0) {
            put_piece(pieces, message->block.data, message->block.bytes);
        }
        return;
    }
    if (message->in_block) {
        put_piece(pieces, message->block.data, message->block.bytes);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        uint64_t begin =
            tmsg_layout_next(offset, entries[i].tensor.dtype, entries[i].bytes);

        if (tmsg_split_has(&message->extra.split, i, entries[i].bytes)) {
            apart = true;
        } else if (entries[i].bytes > 0) {
            put_tensor_piece(pieces, begin - offset, apart, i);
            offset = begin + entries[i].bytes;
            apart = false;
        }
    }
}

static tmsg_status_t list_pieces(tmsg_message_t *message, bool slices,
                                 const struct iovec **pieces_p, size_t *count_p)
{
    pieces_t pieces = {.message = message,
                       .iov = message->few_pieces,
                       .room = TMSG_MESSAGE_PIECES};

    if (message->piece_room > 0) {
        /* An earlier message needed the longer list. */
        pieces.iov = message->pieces;
        pieces.room = message->piece_room;
    }
    make_pieces(&pieces, slices);
    if (pieces.count > pieces.room) {
        message->piece_room = 0;
        free(message->pieces);
        message->pieces = malloc(pieces.count * sizeof(*message->pieces));
        if (message->pieces == NULL) {
            return tmsg_error_memory("a list of a message's tensors");
        }
        message->piece_room = pieces.count;
        pieces.iov = message->pieces;
        pieces.room = pieces.count;
        make_pieces(&pieces, slices);
    }
    *pieces_p = pieces.iov;
    *count_p = pieces.count;
    return TMSG_OK;
}

tmsg_status_t tmsg_scatter_pieces(tmsg_message_t *message,
                                  const struct iovec **pieces_p,
                                  size_t *count_p)
{
    return list_pieces(message, false, pieces_p, count_p);
}

tmsg_status_t tmsg_scatter_slices(tmsg_message_t *message,
                                  const struct iovec **pieces_p,
                                  size_t *count_p)
{
    return list_pieces(message, true, pieces_p, count_p);
}

tmsg_status_t tmsg_scatter_copy(tmsg_message_t *message, const void *payload)
{
    uint64_t at = tmsg_payload_spill(&message->head);
    const struct iovec *pieces;
    size_t count;
    tmsg_status_t status = tmsg_scatter_pieces(message, &pieces, &count);

    if (status != TMSG_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(pieces[i].iov_base, (const uint8_t *)payload + at,
               pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    return TMSG_OK;
}
