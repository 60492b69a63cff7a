/* SPDX-License-Identifier: BSD-3-Clause */
/* core/map_struct.h - the inside of a map, for map.c, map_share.c and
 * meta.c alone. */
#ifndef TMSG_CORE_MAP_STRUCT_H
#define TMSG_CORE_MAP_STRUCT_H

#include <stdatomic.h>

#include "core/arena.h"
#include "core/index.h"
#include "core/map.h"
#include "core/refs.h"

struct tmsg_map {
    tmsg_refs_t refs; /* the application's and one for each send in flight */

    tmsg_map_entry_t *entries;
    size_t size;
    size_t capacity;
    tmsg_index_t index;

    tmsg_map_meta_entry_t *meta;
    size_t meta_size;
    size_t meta_capacity;
    tmsg_index_t meta_index;

    tmsg_arena_t arena; /* names, shapes, strides, keys, values */
    size_t wasted;      /* of it, by what was removed or set anew */

    atomic_uint_least64_t stamp; /* of the layout; 0: nobody asked for it */
    const tmsg_map_t *layout;    /* whose index, names and shapes these are */

    /* What `entries` are as long as none is written, also while it has none. */
    const tmsg_map_t *placed; /* the layout, which it holds */
    const void *placed_at;    /* the memory; NULL: they are something else */

    tmsg_release_fn release; /* of the memory that all tensors share */
    void *release_arg;
    tmsg_release_fn recycle; /* takes it in place of its end */
    void *recycle_arg;
    bool spans;    /* there are some; see tmsg_map_has_spans() */
    bool borrowed; /* its entries are those of `layout` until one is written */
    bool laid;     /* recycled as it is, not emptied */
    bool bare;  /* its tensors are those of `layout`, and none has data yet */
    bool host;  /* all lie in the host's memory; not known of each map */
    bool mixed; /* some tensors are not in the memory that all share */
    bool lent;  /* tensors have release functions, whosever the layout is */
    atomic_bool apart; /* the tensors' memory is known not to overlap */
    /* Of a layout, what was measured for maps that share it. */
    atomic_uint_least64_t measured_bytes;
    atomic_uint_least64_t measured_out; /* and 1 more; 0: nothing was */
};

/* INVALID_PARAM where the caller gave NULL. */
tmsg_status_t tmsg_map_check_given(const tmsg_map_t *map);

/* Likewise, and BUSY while somebody holds the map. */
tmsg_status_t tmsg_map_check_idle(const tmsg_map_t *map);

/* The entries, for who is to write one: they are copied from the layout if they
 * are still borrowed of it. */
tmsg_map_entry_t *tmsg_map_own_entries(tmsg_map_t *map);

/* A name or key: 1 to TMSG_NAME_BYTES_MAX bytes of UTF-8 without NUL. `what`
 * is "tensor name" or "key". */
tmsg_status_t tmsg_map_check_name(const char *what, const char *name,
                                  size_t name_bytes);

/* Makes room for one more than `size` items of `stride` bytes and says where
 * they are now; NULL when there is no memory. */
void *tmsg_map_grow(void *items, size_t *capacity, size_t size, size_t stride);

/* Copies what an entry's descriptor points to into the map's arena; the name,
 * too. False: no memory. */
bool tmsg_map_adopt(tmsg_map_t *map, tmsg_map_entry_t *entry);

/* Has an entry that has its tensor be the span of that, by a view in the map's
 * arena. False: no memory. */
bool tmsg_map_make_span(tmsg_map_t *map, tmsg_map_entry_t *entry,
                        uint64_t packed_bytes);

/* As tmsg_map_adopt() of an entry that is a span. */
bool tmsg_map_adopt_view(tmsg_map_t *map, tmsg_map_entry_t *entry);

/* The layout is another from now on. */
void tmsg_map_restamp(tmsg_map_t *map);

/* Frees the index, which may be another's, and lets go of that one. */
void tmsg_map_drop_index(tmsg_map_t *map);

/* Lets go of the layout that it was placed by. */
void tmsg_map_drop_placed(tmsg_map_t *map);

/* A copy in the map's arena with a NUL after it, or NULL. */
char *tmsg_map_copy(tmsg_map_t *map, const void *data, size_t bytes);

/* Notes that so much of the arena (tmsg_arena_size() of each piece) is dead,
 * and packs it when most of it is: keys, names and values then move. */
void tmsg_map_waste(tmsg_map_t *map, size_t bytes);

#endif
