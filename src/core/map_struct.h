/* SPDX-License-Identifier: BSD-3-Clause */
/* core/map_struct.h - the inside of a map, for the map*.c files and meta.c
 * alone. */
#ifndef TMSG_CORE_MAP_STRUCT_H
#define TMSG_CORE_MAP_STRUCT_H

#include <stdatomic.h>

#include "core/arena.h"
#include "core/index.h"
#include "core/map.h"
#include "core/refs.h"

struct tmsg_map {
    tmsg_refs_t refs; /* one of the application, one of each send in flight */

    tmsg_map_entry_t *entries;
    size_t size;
    size_t capacity;
    tmsg_index_t index;

    tmsg_map_meta_entry_t *meta;
    size_t meta_size;
    size_t meta_capacity;
    tmsg_index_t meta_index;

    tmsg_arena_t arena; /* names, shapes, strides, keys, values */
    size_t wasted;      /* bytes of it that were removed or set anew */

    atomic_uint_least64_t stamp; /* the layout's; 0: nobody asked for it */
    const tmsg_map_t *layout;    /* whose index and names these are, or NULL */

    /* The next fields tell what `entries` hold as long as none is written, even
     * while the map has no tensors. */
    const tmsg_map_t *placed; /* the layout; a reference is held */
    const void *placed_at;    /* the memory; NULL: `entries` hold others */

    tmsg_release_fn release; /* frees the memory that all tensors share */
    void *release_arg;
    tmsg_release_fn recycle; /* called in place of the map's end */
    void *recycle_arg;
    bool spans;    /* some tensors are spans; see tmsg_map_has_spans() */
    bool borrowed; /* the entries are those of `layout` until one is written */
    bool laid;     /* the map is recycled as it is, not emptied */
    /* Its tensors are those of `layout`, and none has data yet. */
    bool bare;
    /* All tensors lie in the host's memory; false: that is not known. */
    bool host;
    bool mixed; /* some tensors are not in the memory that all share */
    /* Tensors have release functions, even if the layout is shared. */
    bool lent;
    atomic_bool apart; /* the tensors' memory is known not to overlap */
    /* The next fields hold the measured sizes of a layout, for the maps that
     * share it. */
    atomic_uint_least64_t measured_bytes;
    atomic_uint_least64_t measured_out; /* plus 1; 0: nothing was measured */
};

/* Returns INVALID_PARAM if the caller gave NULL. */
tmsg_status_t tmsg_map_check_given(const tmsg_map_t *map);

/* Returns INVALID_PARAM if the caller gave NULL, and BUSY while somebody holds
 * the map. */
tmsg_status_t tmsg_map_check_idle(const tmsg_map_t *map);

/* Returns the entries, for a caller that writes one. If they are still borrowed
 * from the layout, they are copied. */
tmsg_map_entry_t *tmsg_map_own_entries(tmsg_map_t *map);

/* Checks a name or key: 1 to TMSG_NAME_BYTES_MAX bytes of UTF-8 without NUL.
 * `what` is "tensor name" or "key". Errors: INVALID_PARAM, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_map_check_name(const char *what, const char *name,
                                  size_t name_bytes);

/* Makes room for one item more than `size`, each of `stride` bytes. Returns
 * where the items are now; NULL: no memory. */
void *tmsg_map_grow(void *items, size_t *capacity, size_t size, size_t stride);

/* Copies the name, and what an entry's descriptor points to, into the map's
 * arena. False: no memory. */
bool tmsg_map_adopt(tmsg_map_t *map, tmsg_map_entry_t *entry);

/* Makes an entry, which has its tensor, the span of that tensor. The view is in
 * the map's arena. False: no memory. */
bool tmsg_map_make_span(tmsg_map_t *map, tmsg_map_entry_t *entry,
                        uint64_t packed_bytes);

/* Works as tmsg_map_adopt(), for an entry that is a span. */
bool tmsg_map_adopt_view(tmsg_map_t *map, tmsg_map_entry_t *entry);

/* Clears the stamp: the layout is another from now on. */
void tmsg_map_restamp(tmsg_map_t *map);

/* Frees the map's index, or drops the layout whose index it is. */
void tmsg_map_drop_index(tmsg_map_t *map);

/* Drops the layout by which the map was placed. */
void tmsg_map_drop_placed(tmsg_map_t *map);

/* Copies bytes into the map's arena, with a NUL after them. Returns NULL if
 * there is no memory. */
char *tmsg_map_copy(tmsg_map_t *map, const void *data, size_t bytes);

/* Notes that bytes of the arena are dead (tmsg_arena_size() of each piece).
 * When most of the arena is dead, it is packed: keys, names and values then
 * move. */
void tmsg_map_waste(tmsg_map_t *map, size_t bytes);

#endif
