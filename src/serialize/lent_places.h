/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/lent_places.h - where the tensors of a loan lie. */
#ifndef TMSG_SERIALIZE_LENT_PLACES_H
#define TMSG_SERIALIZE_LENT_PLACES_H

#include "serialize/cursor.h"
#include "serialize/header.h"

/* Reads the places of a loan. Errors: MALFORMED. If cursor->error is set, the
 * caller reports that. */
tmsg_status_t tmsg_lent_places_read(tmsg_cursor_t *cursor,
                                    tmsg_body_extra_t *extra);

/* Checks that there is a place for each tensor, and that a tensor without bytes
 * has none. Errors: MALFORMED. */
tmsg_status_t tmsg_lent_places_check(const tmsg_lent_places_t *lent,
                                     const tmsg_map_t *map);

/* Returns a cursor before the first place of a decoded body, and reads the next
 * one. */
tmsg_cursor_t tmsg_lent_places_begin(const tmsg_lent_places_t *lent);
tmsg_lent_place_t tmsg_lent_places_next(tmsg_cursor_t *cursor);

#endif
