/* SPDX-License-Identifier: BSD-3-Clause */
/* core/map.h - the map as the other rooms see it. */
#ifndef TMSG_CORE_MAP_H
#define TMSG_CORE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>
#include <tensormsg/meta.h>

/* Names of tensors, and keys, that we write have at most this many bytes. */
#define TMSG_NAME_BYTES_MAX 4096

/* Describes a tensor that travels as its span: all memory from its lowest
 * element to its highest. */
typedef struct {
    /* Counts the elements of the span. The span's shape points here, so that
     * this must be the first field, see tmsg_map_view(). */
    int64_t elements;
    int64_t before; /* elements of the span before the tensor's first */
    int32_t ndim;
    const int64_t *shape; /* shape and strides belong to the map */
    const int64_t *strides;
    uint64_t bytes; /* bytes of the tensor's elements, packed */
} tmsg_map_view_t;

typedef struct {
    const char *name; /* UTF-8, with a NUL after it */
    size_t name_bytes;
    tmsg_tensor_t tensor; /* shape and strides belong to the map */
    uint64_t bytes;       /* bytes of the elements, packed, each once */
    tmsg_release_fn release;
    void *release_arg;
    tmsg_stream_t stream; /* the stream on which its data become ready */
} tmsg_map_entry_t;

/* Marks a tensor as a span by its address: entries are copied for each message,
 * and have no room for what few of them need. */
extern const int64_t tmsg_map_span_strides[1];

static inline bool tmsg_map_entry_is_on_host(const tmsg_map_entry_t *entry)
{
    return entry->tensor.device.type == TMSG_DEVICE_CPU;
}

/* Returns the view if the entry travels as its span (`tensor` is then the span,
 * of one dimension); else NULL. */
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

/* Returns the entries in insertion order: tmsg_map_size() of them. */
const tmsg_map_entry_t *tmsg_map_entries(const tmsg_map_t *map);

/* Returns the tensor without gaps whose memory has this address; NULL: none
 * has. */
const tmsg_map_entry_t *tmsg_map_find_at(const tmsg_map_t *map,
                                         const void *address);
const tmsg_map_meta_entry_t *tmsg_map_meta_entries(const tmsg_map_t *map);

/* Returns whether the map has the key of another map. `map` may be NULL: then
 * it has none. */
bool tmsg_map_meta_has(const tmsg_map_t *map, const tmsg_map_meta_entry_t *key);

/* Returns the position of the tensor with that name, or SIZE_MAX. */
size_t tmsg_map_position(const tmsg_map_t *map, const char *name,
                         size_t name_bytes);

/* Adds a tensor as tmsg_map_add() does, for a decoder. The name need not end in
 * NUL. A tensor without data is taken as it is, and tmsg_map_place() places it
 * later. The name is checked for UTF-8 and uniqueness, but not for length. */
tmsg_status_t tmsg_map_append(tmsg_map_t *map, const char *name,
                              size_t name_bytes, const tmsg_tensor_t *tensor);

/* Adds a tensor that travels as its span, as tmsg_map_append() does. The tensor
 * must have strides, and elements of whole bytes. */
tmsg_status_t tmsg_map_append_span(tmsg_map_t *map, const char *name,
                                   size_t name_bytes,
                                   const tmsg_tensor_t *tensor);

/* Returns whether two tensors of one span have the same view. Either may be
 * NULL: the tensor is not a span. */
bool tmsg_map_same_view(const tmsg_map_view_t *a, const tmsg_map_view_t *b);

/* Returns whether the map has a tensor as its span. */
bool tmsg_map_has_spans(const tmsg_map_t *map);

/* Gives the tensors that are spans the shapes that their views describe. From
 * then on the map has a layout of its own. */
void tmsg_map_show(tmsg_map_t *map);

/* Returns one entry of a map as tmsg_map_show() would make it. */
tmsg_map_entry_t tmsg_map_shown(const tmsg_map_entry_t *entry);

/* Returns the bytes that a tensor takes if nothing of it is broadcast, or if
 * elements of its span come more than once. Limits apply to this number. */
uint64_t tmsg_map_bytes_out(const tmsg_map_entry_t *entry);

/* Copies the entries that the map still borrows from its layout. For a map
 * whose names, shapes and bytes other threads read while its tensors are
 * placed. */
void tmsg_map_settle(tmsg_map_t *map);

/* Gives tensor `index` its data, or the address where the data will be. */
void tmsg_map_place(tmsg_map_t *map, size_t index, void *data);

/* Returns the entries, for a caller that gives all of them their data. */
tmsg_map_entry_t *tmsg_map_placing(tmsg_map_t *map);

/* Works as tmsg_map_placing(), but the caller copies each entry from *from_p on
 * the way. Many small tensors are then passed once and not twice. */
tmsg_map_entry_t *tmsg_map_placing_from(tmsg_map_t *map,
                                        const tmsg_map_entry_t **from_p);

/* tmsg_map_note_placed() notes that all tensors of a layout were placed by
 * their order alone, from `base` on. tmsg_map_place_again() returns whether a
 * bare map had these tensors there when it was last recycled; if so, it has
 * them again, from its `base` on. */
void tmsg_map_note_placed(tmsg_map_t *map, const void *base);
bool tmsg_map_place_again(tmsg_map_t *map, void *base);

/* Returns the `base` to give a bare map, if that saves more than other memory
 * for its `bytes` could. NULL: any address will do. */
const void *tmsg_map_liked(const tmsg_map_t *map, uint64_t bytes);

/* Returns whether the map shares a layout and no tensor has data yet. */
bool tmsg_map_is_bare(const tmsg_map_t *map);

/* Returns whether all tensors lie in the host's memory; false: that is not
 * known. */
bool tmsg_map_is_of_host(const tmsg_map_t *map);

/* These two note what tmsg_layout_measure() finds of a map, with the layout
 * that the map shares, as long as the map is like that layout. False: nothing
 * is noted. Thread-safe. */
bool tmsg_map_measured(const tmsg_map_t *map, uint64_t *bytes_p,
                       uint64_t *out_p);
void tmsg_map_note_measured(const tmsg_map_t *map, uint64_t bytes,
                            uint64_t out);

/* Works as tmsg_map_place(), for memory that is given back as tmsg_map_add()'s
 * params say when the map drops its tensors. Errors: INVALID_PARAM (unknown
 * bit). */
tmsg_status_t tmsg_map_lend(tmsg_map_t *map, size_t index, void *data,
                            const tmsg_map_add_params_t *params);

/* Works as tmsg_map_place(), for memory that nobody may write to, and that
 * outlives the map's tensors. */
void tmsg_map_place_read_only(tmsg_map_t *map, size_t index, const void *data);

/* Marks a tensor as read-only by its address: the entry's `release`. */
void tmsg_map_read_only(void *unused);

/* Takes that mark away: the tensor gets a place that may be written to. */
void tmsg_map_end_read_only(tmsg_map_t *map, size_t index);

/* Gives tensor `index` the data, strides and bytes of an entry of the same
 * shape. The strides must last as long as the map has its tensors. */
void tmsg_map_replace(tmsg_map_t *map, size_t index,
                      const tmsg_map_entry_t *entry);

void tmsg_map_set_device(tmsg_map_t *map, size_t index, tmsg_device_t device);

/* Has release(release_arg) called when the map drops all its tensors: by
 * tmsg_map_clear() or at its end. A map has at most one such owner. */
void tmsg_map_own(tmsg_map_t *map, tmsg_release_fn release, void *release_arg);

/* Empties a map and frees what tmsg_map_clear() keeps for the next tensors.
 * Only the caller may have the map, and it must not be recycled. */
void tmsg_map_shed(tmsg_map_t *map);

/* Has recycle(recycle_arg) called once, in place of the map's end. By then the
 * map is empty again, has the memory that it had, and has one owner: the
 * callee. */
void tmsg_map_recycle(tmsg_map_t *map, tmsg_release_fn recycle,
                      void *recycle_arg);

/* Works as tmsg_map_recycle(), but the map is not emptied, unless a tensor is
 * placed anew. The tensors stay, with their places and the layout that they
 * share. The map must own nothing and have no metadata. */
void tmsg_map_recycle_laid(tmsg_map_t *map, tmsg_release_fn recycle,
                           void *recycle_arg);

/* Returns the layout that a map shares, or NULL. */
const tmsg_map_t *tmsg_map_layout(const tmsg_map_t *map);

/* Returns the stamp of the map's layout (names, dtypes, shapes, strides,
 * devices). No map of this process with another layout ever has or had that
 * number. Data and metadata do not count. Thread-safe, as reading is. */
uint64_t tmsg_map_stamp(const tmsg_map_t *map);

/* Works as tmsg_map_stamp(), but returns 0 for a map that nobody asked
 * before. */
uint64_t tmsg_map_stamp_known(const tmsg_map_t *map);

/* Returns whether a map has that layout, to the last stride. If so, the map has
 * the layout's stamp from now on. */
bool tmsg_map_has_layout(const tmsg_map_t *map, const tmsg_map_t *layout);

/* Copies the layout alone, with its stamp and without data and metadata.
 * Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_layout(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* Copies a map, with its metadata, so that nothing is broadcast. In the copy,
 * broadcast tensors are in C order and have no data yet; the others have those
 * of `map`. Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_out(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* Copies a map, with its data, which it borrows, and metadata. No tensor of the
 * copy has a stream. Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_ready(const tmsg_map_t *map, tmsg_map_t **copy_p);

/* Copies a map, with its data and metadata. A tensor that would have to be
 * packed is its span in the copy; in the other function only if it lies in the
 * memory of a device. Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_copy_spans(const tmsg_map_t *map, tmsg_map_t **copy_p);
tmsg_status_t tmsg_map_copy_device_spans(const tmsg_map_t *map,
                                         tmsg_map_t **copy_p);

/* Gives a map without tensors those of a copied layout. The map keeps the
 * layout alive; names, shapes and index stay there, and nobody changes the
 * layout any more. The map takes no more tensors and loses none until
 * tmsg_map_clear(). Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_share(tmsg_map_t *map, const tmsg_map_t *layout);

/* Gives tensor `index`, which has no strides, another shape with as many
 * dimensions. Errors: tmsg_tensor_check()'s for the shape, NO_MEMORY. */
tmsg_status_t tmsg_map_reshape(tmsg_map_t *map, size_t index,
                               const int64_t *shape);

/* Returns the type that a reserved key must have, 0 for other keys. */
int32_t tmsg_meta_reserved(const char *key, size_t key_bytes);

/* Adds metadata as tmsg_map_set_meta() does, for a decoder. Lengths are
 * explicit. Unknown reserved keys are taken, because a newer writer may know
 * them. Errors also: ALREADY_EXISTS (the map has the key). */
tmsg_status_t tmsg_map_append_meta(tmsg_map_t *map, const char *key,
                                   size_t key_bytes, const tmsg_meta_t *value);

/* Checks that each tensor has memory of its own. Each must lie without gaps.
 * The result is remembered. Thread-safe, as reading is. Errors: INVALID_PARAM
 * (the message names two tensors that overlap), NO_MEMORY. */
tmsg_status_t tmsg_map_check_apart(const tmsg_map_t *map);

/* Returns whether that check has passed, and the map did not change since. */
bool tmsg_map_is_apart(const tmsg_map_t *map);

/* Returns an estimate of the bytes that a map takes without its tensors'
 * data. */
uint64_t tmsg_map_memory(const tmsg_map_t *map);

/* Makes room for this number of tensors at once. Errors: NO_MEMORY. */
tmsg_status_t tmsg_map_reserve(tmsg_map_t *map, size_t tensors);

/* Takes a reference, for a send in flight or a tensor that was given out. While
 * there is one, changes return BUSY, and the map outlives tmsg_map_destroy().
 * Counting references does not change the map. Thread-safe. */
void tmsg_map_hold(const tmsg_map_t *map);

/* Takes tmsg_map_recycle_laid() back if nobody but the owner has the map, which
 * then ends like others. False: somebody else has it, or its tensors have been
 * placed elsewhere since. */
bool tmsg_map_unrecycle(tmsg_map_t *map);

/* Returns whether nobody but the owner has the map. */
bool tmsg_map_is_idle(const tmsg_map_t *map);

/* Drops a reference. True: nobody has the map any more. The caller then calls
 * tmsg_map_free(), where it may call the application's release functions. */
bool tmsg_map_unhold(const tmsg_map_t *map);
void tmsg_map_free(const tmsg_map_t *map);

/* Returns whether some tensor's data stay the caller's, so that no release
 * function gives them back. The caller is to be told when it may change
 * them. */
bool tmsg_map_borrows(const tmsg_map_t *map);

#endif
