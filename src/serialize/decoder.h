/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/decoder.h - declares the state of a body that is being decoded into
 * a map. body_decode*.c share it. */
#ifndef TMSG_SERIALIZE_DECODER_H
#define TMSG_SERIALIZE_DECODER_H

#include "serialize/cursor.h"
#include "serialize/header.h"

typedef struct {
    tmsg_cursor_t cursor;
    const tmsg_limits_t *limits;
    tmsg_map_t *map;
    uint64_t metadata_bytes; /* bytes of the keys and values read so far */
    tmsg_body_extra_t *extra;
} tmsg_decoder_t;

/* Sets the name of the field that is read next, unless the cursor already has
 * an error. */
static inline void tmsg_decoder_reading(tmsg_cursor_t *cursor,
                                        const char *field)
{
    if (cursor->error == NULL) {
        cursor->field = field;
    }
}

/* Returns what is wrong with a name or key, or NULL. */
const char *tmsg_decoder_name_error(const char *name, size_t name_bytes);

/* Reads the metadata into the map. */
tmsg_status_t tmsg_decoder_metadata(tmsg_decoder_t *decoder);

#endif
