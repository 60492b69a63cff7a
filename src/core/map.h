/* SPDX-License-Identifier: BSD-3-Clause */
/* core/map.h - the map as the other rooms see it. */
#ifndef TMSG_CORE_MAP_H
#define TMSG_CORE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>
#include <tensormsg/meta.h>

#define TMSG_NAME_BYTES_MAX 4096 /* of a tensor or a key that we write */

/* How a tensor looks that travels as its span: all memory from its lowest
 * element to its highest. */
typedef struct {
    int64_t elements; /* of the span, first: it is that one's shape */
    int64_t before;   /* of these, before the first of the tensor */
    int32_t ndim;
    const int64_t *shape; /* these belong to the map */
    const int64_t *strides;
    uint64_t bytes; /* of the tensor's elements, packed */
} tmsg_map_view_t;

typedef struct {
    const char *name; /* UTF-8, with a NUL after it */
    size_t name_bytes;
    tmsg_tensor_t tensor; /* shape and strides belong to the map */
    uint64_t bytes;       /* of the elements, packed, each once */
    tmsg_release_fn release;
    void *release_arg;
    tmsg_stream_t stream; /* that its data are ready on */
} tmsg_map_entry_t;

/* The strides of a span, told from others by where they are: entries are copied
 * for each message, and have no room for what few of them need. */
extern const int64_t tmsg_map_span_strides[1];

static inline bool tmsg_map_entry_is_on_host(const tmsg_map_entry_t *entry)
{
    return entry->tensor.device.type == TMSG_DEVICE_CPU;
}

/* NULL, or on its way, where `tensor` is the span, of one dimension. */
static inline const tmsg_map_view_t *
tmsg_map_view(const tmsg_map_entry_t *entry)
{
    return entry->tensor.strides == tmsg_map_span_strides
               ? (const tmsg_map_view_t *)(const void *)entry->tensor.shape
               : NULL;
}

typedef struct {
    const char *key; /* UTF-8, with a NUL after it */
    size_t key_bytes;
    tmsg_meta_t value;
} tmsg_map_meta_entry_t;

/* The entries in insertion order: tmsg_map_size() of them. */
const tmsg_map_entry_t *tmsg_map_entries(const tmsg_map_t *map);

/* The tensor, of those without gaps, whose memory has this address; NULL: none
 * has. */
const tmsg_map_entry_t *tmsg_map_find_at(const tmsg_map_t *map,
                                         const void *address);
const tmsg_map_meta_entry_t *tmsg_map_meta_entries(const tmsg_map_t *map);

/* Whether a key of another map's is one of those that this (NULL: none) has. */
bool tmsg_map_meta_has(const tmsg_map_t *map, const tmsg_map_meta_entry_t *key);

/* The position of the tensor of that name, or SIZE_MAX. */
size_t tmsg_map_position(const tmsg_map_t *map, const char *name,
                         size_t name_bytes);

/* As tmsg_map_add(), for a decoder: the name need not end in NUL, and a tensor
 * without data is taken as it is, for tmsg_map_place() to place later. The
 * name is checked for UTF-8 and uniqueness but not for length. */
tmsg_status_t tmsg_map_append(tmsg_map_t *map, const char *name,
                              size_t name_bytes, const tmsg_tensor_t *tensor);

/* The same of a tensor that travels as its span, which has strides and elements
 * of whole bytes. */
tmsg_status_t tmsg_map_append_span(tmsg_map_t *map, const char *name,
                                   size_t name_bytes,
                                   const tmsg_tensor_t *tensor);

/* Whether two tensors of one span, or none (NULL), are seen alike. */
bool tmsg_map_same_view(const tmsg_map_view_t *a, const tmsg_map_view_t *b);

/* Whether a tensor is there as its span. */
bool tmsg_map_has_spans(const tmsg_map_t *map);

/* Has the tensors that are spans be what these are to be seen as. The map has
 * a layout of its own from then on. */
void tmsg_map_show(tmsg_map_t *map);

/* One tensor of a map as that would have it. */
tmsg_map_entry_t tmsg_map_shown(const tmsg_map_entry_t *entry);

/* What a tensor takes where nothing of it is broadcast, or the elements of its
 * span come more often than once: what a limit is for. */
uint64_t tmsg_map_bytes_out(const tmsg_map_entry_t *entry);

/* For a map of which other threads read names, shapes and bytes while its
 * tensors are placed: copies these now, if they are still its layout's. */
void tmsg_map_settle(tmsg_map_t *map);

/* Gives tensor `index` its data, or says where that will be. */
void tmsg_map_place(tmsg_map_t *map, size_t index, void *data);

/* For who gives all of them their data: the entries. */
tmsg_map_entry_t *tmsg_map_placing(tmsg_map_t *map);

/* The same, and each entry is to be copied from *from_p on the way, so that
 * many small tensors are passed once and not twice. */
tmsg_map_entry_t *tmsg_map_placing_from(tmsg_map_t *map,
                                        const tmsg_map_entry_t **from_p);

/* Notes that all tensors of a layout were placed by their order alone, from
 * `base` on; and whether a bare map had these tensors there when it was
 * recycled last: it then has them again. */
void tmsg_map_note_placed(tmsg_map_t *map, const void *base);
bool tmsg_map_place_again(tmsg_map_t *map, void *base);

/* Where that saves more than other memory for its `bytes` could: the `base` to
 * give a bare map. NULL: any. */
const void *tmsg_map_liked(const tmsg_map_t *map, uint64_t bytes);

/* Whether it shares a layout and no tensor has data yet. */
bool tmsg_map_is_bare(const tmsg_map_t *map);

/* Whether all lie in the host's memory; false: it is not known. */
bool tmsg_map_is_of_host(const tmsg_map_t *map);

/* What tmsg_layout_measure() finds of a map, noted with the layout that it
 * shares, as long as it is as that. False: nothing is noted. Thread-safe. */
bool tmsg_map_measured(const tmsg_map_t *map, uint64_t *bytes_p,
                       uint64_t *out_p);
void tmsg_map_note_measured(const tmsg_map_t *map, uint64_t bytes,
                            uint64_t out);

/* The same for memory that tmsg_map_add()'s params give back when the map lets
 * go of its tensors. Errors: INVALID_PARAM (unknown bit). */
tmsg_status_t tmsg_map_lend(tmsg_map_t *map, size_t index, void *data,
                            const tmsg_map_add_params_t *params);

/* Gives tensor `index` the data, strides and bytes of one of the same shape.
 * The strides must last as long as the map has its tensors. */
void tmsg_map_replace(tmsg_map_t *map, size_t index,
                      const tmsg_map_entry_t *entry);

void tmsg_map_set_device(tmsg_map_t *map, size_t index, tmsg_device_t device);

/* Calls release(release_arg) when the map lets go of all its tensors: by
 * tmsg_map_clear() or at the end of its life. At most one such owner. */
void tmsg_map_own(tmsg_map_t *map, tmsg_release_fn release, void *release_arg);

/* Empties a map that only the caller has, and that is not to be recycled, and
 * frees what tmsg_map_clear() keeps for the next tensors. */
void tmsg_map_shed(tmsg_map_t *map);

/* Has recycle(recycle_arg) called in place of the map's end: by then it is
 * empty again, has the memory that it had, and one owner, which that is. Once.
 */
void tmsg_map_recycle(tmsg_map_t *map, tmsg_release_fn recycle,
                      void *recycle_arg);

/* The same, but it is not emptied, unless a tensor is placed anew: the tensors
 * stay, with their places and the layout that they share. Of a map that owns
 * nothing and has no metadata. */
void tmsg_map_recycle_laid(tmsg_map_t *map, tmsg_release_fn recycle,
                           void *recycle_arg);

/* The layout that a map shares, or NULL. */
const tmsg_map_t *tmsg_map_layout(const tmsg_map_t *map);

/* A number that no map of this process with another layout (names, dtypes,
 * shapes, strides, devices) ever has or had. Data and metadata do not count.
 * Thread-safe, as reading is. */
uint64_t tmsg_map_stamp(const tmsg_map_t *map);

/* The same, without giving one to a map that nobody asked before: 0. */
uint64_t tmsg_map_stamp_known(const tmsg_map_t *map);

/* Whether a map has that layout to the last stride. It then has its stamp from
 * now on. */
bool tmsg_map_has_layout(const tmsg_map_t *map, const tmsg_map_t *layout);

/* A copy of the layout alone, with its stamp and without data and metadata.
 * Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_layout(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* A copy in which nothing is broadcast: such tensors are in C order there and
 * have no data yet, the others have those of `map`. With the metadata. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_map_copy_out(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* A copy in which what would have to be packed is its span, with the data that
 * it has and the metadata. Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_spans(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* Gives a map without tensors those of a copied layout, which it keeps alive
 * and which is not changed any more: names, shapes and index stay there. The
 * map takes no more tensors and loses none until tmsg_map_clear(). Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_map_share(tmsg_map_t *map, const tmsg_map_t *layout);

/* Gives tensor `index`, which has no strides, another shape of as many
 * dimensions. Errors: tmsg_tensor_check()'s for the shape, NO_MEMORY. */
tmsg_status_t tmsg_map_reshape(tmsg_map_t *map, size_t index,
                               const int64_t *shape);

/* The type that a key of the reserved ones must have, 0 for other keys. */
int32_t tmsg_meta_reserved(const char *key, size_t key_bytes);

/* As tmsg_map_set_meta(), for a decoder: lengths are explicit and unknown
 * reserved keys are taken, for a newer writer may know them. A key that exists
 * is ALREADY_EXISTS. */
tmsg_status_t tmsg_map_append_meta(tmsg_map_t *map, const char *key,
                                   size_t key_bytes, const tmsg_meta_t *value);

/* Whether each tensor has memory of its own; each lies without gaps. It is
 * remembered. Thread-safe, as reading is. Errors: INVALID_PARAM, with the names
 * of two that overlap; NO_MEMORY. */
tmsg_status_t tmsg_map_check_apart(const tmsg_map_t *map);

/* Bytes that it takes without its tensors' data, as an estimate. */
uint64_t tmsg_map_memory(const tmsg_map_t *map);

/* Makes room for so many tensors at once. */
tmsg_status_t tmsg_map_reserve(tmsg_map_t *map, size_t tensors);

/* A send in flight, or a tensor given out: while there is one, changes answer
 * BUSY, and the map outlives tmsg_map_destroy(). Thread-safe. To count is not
 * to change. */
void tmsg_map_hold(const tmsg_map_t *map);

/* Takes that back, where nobody but its owner has the map: it ends like others.
 * False: somebody has it. */
bool tmsg_map_unrecycle(tmsg_map_t *map);

/* Whether nobody but its owner has it. */
bool tmsg_map_is_idle(const tmsg_map_t *map);

/* True: nobody has it any more, the caller is to tmsg_map_free() it, where it
 * may call the application's release functions. */
bool tmsg_map_unhold(const tmsg_map_t *map);
void tmsg_map_free(const tmsg_map_t *map);

/* Whether some tensor's data stays the caller's, who is to be told when it may
 * be changed; no release function gives it back. */
bool tmsg_map_borrows(const tmsg_map_t *map);

#endif
