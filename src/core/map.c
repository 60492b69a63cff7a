/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include <tensormsg/map.h>

#include "core/error.h"
#include "core/map_struct.h"
#include "core/params.h"
#include "core/tensor.h"
#include "core/utf8.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_MAP_ADD_PARAM_RELEASE | TMSG_MAP_ADD_PARAM_STREAM))

tmsg_status_t tmsg_map_create(tmsg_map_t **map_p)
{
    /* calloc() would go past the thread's cache of free blocks. */
    tmsg_map_t *map = malloc(sizeof(*map));

    if (map == NULL) {
        return tmsg_error_memory("a map");
    }
    *map = (tmsg_map_t){.refs = {1}};
    *map_p = map;
    return TMSG_OK;
}

static void release_all(tmsg_map_t *map)
{
    size_t owned = map->layout == NULL || map->lent ? map->size : 0;

    for (size_t i = 0; i < owned; i++) {
        if (map->entries[i].release != NULL) {
            map->entries[i].release(map->entries[i].release_arg);
        }
    }
    map->size = 0;
    map->lent = false;
    map->mixed = false;
    if (map->release != NULL) {
        map->release(map->release_arg);
        map->release = NULL;
    }
}

static tmsg_map_t *writable_map(const tmsg_map_t *map)
{
    return (tmsg_map_t *)(uintptr_t)map;
}

bool tmsg_map_unhold(const tmsg_map_t *map)
{
    return tmsg_refs_drop(&writable_map(map)->refs);
}

/* Resets a map that has no tensors. */
static void reset_map(tmsg_map_t *map)
{
    if (map->layout != NULL) {
        tmsg_map_drop_index(map);
    }
    tmsg_map_restamp(map);
    map->meta_size = 0;
    map->wasted = 0;
    map->spans = false;
    map->borrowed = false;
    map->bare = false;
    map->host = false;
    tmsg_arena_reset(&map->arena);
}

static void free_rooms(tmsg_map_t *map)
{
    tmsg_map_drop_index(map);
    tmsg_map_drop_placed(map);
    tmsg_index_free(&map->meta_index);
    tmsg_arena_free(&map->arena);
    free(map->entries);
    free(map->meta);
}

void tmsg_map_shed(tmsg_map_t *map)
{
    release_all(map);
    free_rooms(map);
    *map = (tmsg_map_t){.refs = {1}};
}

void tmsg_map_free(const tmsg_map_t *unused)
{
    tmsg_map_t *map = writable_map(unused);
    tmsg_release_fn recycle = map->recycle;

    if (!map->laid) {
        release_all(map);
    }
    if (recycle != NULL) {
        map->recycle = NULL;
        if (!map->laid) {
            reset_map(map);
        }
        map->laid = false;
        tmsg_refs_init(&map->refs, 1);
        recycle(map->recycle_arg);
        return;
    }
    free_rooms(map);
    free(map);
}

void tmsg_map_destroy(tmsg_map_t *map)
{
    if (map != NULL && tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
}

void tmsg_map_hold(const tmsg_map_t *map)
{
    tmsg_refs_take(&writable_map(map)->refs);
}

bool tmsg_map_borrows(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    if (map->release != NULL && !map->mixed) {
        return false;
    }
    for (size_t i = 0; i < map->size; i++) {
        if (entries[i].release == NULL && entries[i].bytes > 0) {
            return true;
        }
    }
    return false;
}

void tmsg_map_own(tmsg_map_t *map, tmsg_release_fn release, void *release_arg)
{
    map->release = release;
    map->release_arg = release_arg;
}

void tmsg_map_recycle(tmsg_map_t *map, tmsg_release_fn recycle,
                      void *recycle_arg)
{
    map->recycle = recycle;
    map->recycle_arg = recycle_arg;
}

void tmsg_map_recycle_laid(tmsg_map_t *map, tmsg_release_fn recycle,
                           void *recycle_arg)
{
    tmsg_map_recycle(map, recycle, recycle_arg);
    map->laid = true;
}

bool tmsg_map_unrecycle(tmsg_map_t *map)
{
    if (!map->laid || !tmsg_map_is_idle(map)) {
        return false;
    }
    map->recycle = NULL;
    map->laid = false;
    return true;
}

const tmsg_map_t *tmsg_map_layout(const tmsg_map_t *map) { return map->layout; }

tmsg_status_t tmsg_map_check_given(const tmsg_map_t *map)
{
    return map != NULL ? TMSG_OK
                       : tmsg_error_set(TMSG_ERR_INVALID_PARAM, "map is NULL");
}

bool tmsg_map_is_idle(const tmsg_map_t *map)
{
    return tmsg_refs_are(&map->refs, 1);
}

tmsg_status_t tmsg_map_check_idle(const tmsg_map_t *map)
{
    if (map == NULL) {
        return tmsg_map_check_given(map);
    }
    if (!tmsg_map_is_idle(map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the map is being sent, or one of its tensors is "
                              "exported: change it after that");
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_check_name(const char *what, const char *name,
                                  size_t name_bytes)
{
    if (name_bytes == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is empty", what);
    }
    if (name_bytes > TMSG_NAME_BYTES_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s '%s' has %zu bytes, at most %d", what,
                              tmsg_error_name(name, name_bytes).text,
                              name_bytes, TMSG_NAME_BYTES_MAX);
    }
    if (!tmsg_utf8_valid(name, name_bytes)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s '%s' is not UTF-8",
                              what, tmsg_error_name(name, name_bytes).text);
    }
    return TMSG_OK;
}

void *tmsg_map_grow(void *items, size_t *capacity, size_t size, size_t stride)
{
    size_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    size_t bytes;
    void *grown;

    if (size < *capacity) {
        return items;
    }
    wanted = wanted <= size ? size + 1 : wanted;
    grown = __builtin_mul_overflow(wanted, stride, &bytes)
                ? NULL
                : realloc(items, bytes);
    if (grown == NULL) {
        tmsg_error_memory("the entries of a map");
        return NULL;
    }
    *capacity = wanted;
    return grown;
}

static tmsg_status_t make_entry_room(tmsg_map_t *map, size_t size)
{
    tmsg_map_entry_t *entries =
        tmsg_map_grow(map->entries, &map->capacity, size, sizeof(*entries));

    if (entries == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    map->entries = entries;
    return TMSG_OK;
}

tmsg_status_t tmsg_map_reserve(tmsg_map_t *map, size_t tensors)
{
    if (tensors <= map->capacity) {
        return TMSG_OK;
    }
    return make_entry_room(map, tensors - 1);
}

char *tmsg_map_copy(tmsg_map_t *map, const void *data, size_t bytes)
{
    char *copy =
        bytes == SIZE_MAX ? NULL : tmsg_arena_alloc(&map->arena, bytes + 1);

    if (copy != NULL && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    if (copy != NULL) {
        copy[bytes] = '\0';
    }
    return copy;
}

static size_t dims_bytes(const tmsg_tensor_t *tensor)
{
    size_t sets = tensor->strides == NULL ? 1 : 2;

    return sets * (size_t)tensor->ndim * sizeof(int64_t);
}

/* Returns the bytes of an entry's shape, strides and name, which lie
 * together. */
static size_t adopted_bytes(const tmsg_map_entry_t *entry)
{
    return dims_bytes(&entry->tensor) + entry->name_bytes + 1;
}

bool tmsg_map_adopt(tmsg_map_t *map, tmsg_map_entry_t *entry)
{
    tmsg_tensor_t *tensor = &entry->tensor;
    size_t dims = (size_t)tensor->ndim;
    int64_t *shape;
    char *name;

    if (tmsg_map_view(entry) != NULL) {
        return tmsg_map_adopt_view(map, entry);
    }
    shape = tmsg_arena_alloc(&map->arena, adopted_bytes(entry));
    if (shape == NULL) {
        return false;
    }
    if (dims > 0) {
        memcpy(shape, tensor->shape, dims * sizeof(*shape));
    }
    tensor->shape = shape;
    if (tensor->strides != NULL) {
        if (dims > 0) {
            memcpy(shape + dims, tensor->strides, dims * sizeof(*shape));
        }
        tensor->strides = shape + dims;
    }
    name = (char *)shape + dims_bytes(tensor);
    memcpy(name, entry->name, entry->name_bytes);
    name[entry->name_bytes] = '\0';
    entry->name = name;
    return true;
}

const tmsg_map_entry_t *tmsg_map_entries(const tmsg_map_t *map)
{
    return map->borrowed ? map->layout->entries : map->entries;
}

void tmsg_map_settle(tmsg_map_t *map)
{
    if (map->borrowed) {
        if (map->size > 0) {
            memcpy(map->entries, map->layout->entries,
                   map->size * sizeof(*map->entries));
        }
        map->placed_at = NULL;
        map->borrowed = false;
    }
}

tmsg_map_entry_t *tmsg_map_own_entries(tmsg_map_t *map)
{
    tmsg_map_settle(map);
    map->placed_at = NULL;
    return map->entries;
}

static tmsg_names_t names_of_tensors(const tmsg_map_t *map)
{
    return (tmsg_names_t){tmsg_map_entries(map), sizeof(*map->entries),
                          map->size};
}

/* Returns where the next entry is to be made, or NULL. */
static tmsg_map_entry_t *next_entry(tmsg_map_t *map)
{
    return make_entry_room(map, map->size) == TMSG_OK
               ? &tmsg_map_own_entries(map)[map->size]
               : NULL;
}

/* Takes the entry that was made where next_entry() said. */
static tmsg_status_t append_entry(tmsg_map_t *map, tmsg_map_entry_t *entry)
{
    tmsg_names_t names = names_of_tensors(map);
    tmsg_status_t status;

    if (tmsg_index_find(&map->index, &names, entry->name, entry->name_bytes) !=
        TMSG_INDEX_NONE) {
        return tmsg_error_set(
            TMSG_ERR_ALREADY_EXISTS, "the map has a tensor '%s' already",
            tmsg_error_name(entry->name, entry->name_bytes).text);
    }
    if (!tmsg_map_adopt(map, entry)) {
        return tmsg_error_memory("a tensor's name and shape");
    }
    map->size++;
    tmsg_map_restamp(map);
    names = names_of_tensors(map);
    status = tmsg_index_add(&map->index, &names);
    if (status != TMSG_OK) {
        map->size--;
    }
    return status;
}

/* Puts the tensor's name in front of the error. */
static tmsg_status_t blame_tensor(tmsg_status_t status, const char *name,
                                  size_t name_bytes)
{
    return tmsg_error_set(status, "tensor '%s': %s",
                          tmsg_error_name(name, name_bytes).text,
                          tmsg_error_message());
}

/* Checks what a decoder has read of a tensor, and makes an entry of it. */
static tmsg_status_t read_tensor_entry(const tmsg_map_t *map, const char *name,
                                       size_t name_bytes,
                                       const tmsg_tensor_t *tensor,
                                       tmsg_map_entry_t *entry)
{
    tmsg_status_t status;

    if (name_bytes == 0 || !tmsg_utf8_valid(name, name_bytes) ||
        memchr(name, '\0', name_bytes) != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tensor %zu: name is not UTF-8 without NUL",
                              map->size);
    }
    *entry = (tmsg_map_entry_t){
        .name = name, .name_bytes = name_bytes, .tensor = *tensor};
    status = tmsg_tensor_check_shape(tensor, &entry->bytes);
    return status == TMSG_OK ? TMSG_OK : blame_tensor(status, name, name_bytes);
}

tmsg_status_t tmsg_map_append(tmsg_map_t *map, const char *name,
                              size_t name_bytes, const tmsg_tensor_t *tensor)
{
    tmsg_map_entry_t *entry = next_entry(map);
    tmsg_status_t status;

    if (entry == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = read_tensor_entry(map, name, name_bytes, tensor, entry);
    if (status != TMSG_OK) {
        return status;
    }
    entry->bytes = tmsg_tensor_bytes_once(tensor, entry->bytes);
    return append_entry(map, entry);
}

tmsg_status_t tmsg_map_append_span(tmsg_map_t *map, const char *name,
                                   size_t name_bytes,
                                   const tmsg_tensor_t *tensor)
{
    tmsg_map_entry_t *entry = next_entry(map);
    tmsg_status_t status;

    if (entry == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = read_tensor_entry(map, name, name_bytes, tensor, entry);
    if (status == TMSG_OK) {
        status = append_entry(map, entry);
    }
    if (status == TMSG_OK && !tmsg_map_make_span(map, entry, entry->bytes)) {
        return tmsg_error_memory("a tensor's shape and strides");
    }
    return status;
}

static tmsg_status_t read_add_params(const tmsg_map_add_params_t *params,
                                     tmsg_map_entry_t *entry)
{
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("map add",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    if (params->field_mask & TMSG_MAP_ADD_PARAM_RELEASE) {
        entry->release = params->release;
        entry->release_arg = params->release_arg;
    }
    if (params->field_mask & TMSG_MAP_ADD_PARAM_STREAM) {
        entry->stream = params->stream;
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_add(tmsg_map_t *map, const char *name,
                           const tmsg_tensor_t *tensor,
                           const tmsg_map_add_params_t *params)
{
    tmsg_map_entry_t entry = {.name = name}, *place;
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status == TMSG_OK && params != NULL) {
        status = read_add_params(params, &entry);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "tensor name is NULL");
    }
    entry.name_bytes = strlen(name);
    status = tmsg_map_check_name("tensor name", name, entry.name_bytes);
    if (status != TMSG_OK) {
        return status;
    }
    if (tensor == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tensor '%s': the descriptor is NULL",
                              tmsg_error_name(name, entry.name_bytes).text);
    }
    entry.tensor = *tensor;
    status = tmsg_tensor_check_data(tensor, &entry.bytes);
    if (status == TMSG_OK &&
        (!tmsg_tensor_is_dense(tensor) || tmsg_tensor_is_broadcast(tensor))) {
        status = tmsg_tensor_check_packable(tensor);
    }
    if (status != TMSG_OK) {
        return blame_tensor(status, name, entry.name_bytes);
    }
    entry.bytes = tmsg_tensor_bytes_once(tensor, entry.bytes);
    place = next_entry(map);
    if (place == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    *place = entry;
    map->mixed = map->release != NULL;
    return append_entry(map, place);
}

size_t tmsg_map_size(const tmsg_map_t *map)
{
    return map == NULL ? 0 : map->size;
}

uint64_t tmsg_map_memory(const tmsg_map_t *map)
{
    size_t indexed = map->meta_size + (map->layout == NULL ? map->size : 0);
    uint64_t own = sizeof(*map) + map->capacity * sizeof(*map->entries) +
                   map->meta_capacity * sizeof(*map->meta) + map->arena.used +
                   2 * indexed * sizeof(tmsg_index_slot_t);

    return map->layout == NULL ? own : own + tmsg_map_memory(map->layout);
}

const tmsg_map_entry_t *tmsg_map_find_at(const tmsg_map_t *map,
                                         const void *address)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < map->size; i++) {
        const tmsg_map_entry_t *entry = &entries[i];
        uintptr_t offset = (uintptr_t)address - (uintptr_t)entry->tensor.data;

        if (offset < entry->bytes && tmsg_tensor_is_dense(&entry->tensor)) {
            return entry;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_map_at(const tmsg_map_t *map, size_t index,
                          const char **name_p, tmsg_tensor_t *tensor_p)
{
    if (map == NULL) {
        return tmsg_map_check_given(map);
    }
    if (index >= map->size) {
        return tmsg_error_set(
            TMSG_ERR_NOT_FOUND,
            "tensor index %zu is out of range: the map has %zu tensors", index,
            map->size);
    }
    if (name_p != NULL) {
        *name_p = tmsg_map_entries(map)[index].name;
    }
    if (tensor_p != NULL) {
        *tensor_p = tmsg_map_entries(map)[index].tensor;
    }
    return TMSG_OK;
}

size_t tmsg_map_position(const tmsg_map_t *map, const char *name,
                         size_t name_bytes)
{
    tmsg_names_t names = names_of_tensors(map);

    return tmsg_index_find(&map->index, &names, name, name_bytes);
}

static tmsg_status_t find_named_tensor(const tmsg_map_t *map, const char *name,
                                       size_t *index_p)
{
    tmsg_names_t names;
    size_t name_bytes;

    if (map == NULL) {
        return tmsg_map_check_given(map);
    }
    if (name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "tensor name is NULL");
    }
    names = names_of_tensors(map);
    name_bytes = strlen(name);
    *index_p = tmsg_index_find(&map->index, &names, name, name_bytes);
    if (*index_p == TMSG_INDEX_NONE) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "no tensor '%s' in the map",
                              tmsg_error_name(name, name_bytes).text);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_find(const tmsg_map_t *map, const char *name,
                            tmsg_tensor_t *tensor_p)
{
    size_t index;
    tmsg_status_t status = find_named_tensor(map, name, &index);

    if (status == TMSG_OK && tensor_p != NULL) {
        *tensor_p = tmsg_map_entries(map)[index].tensor;
    }
    return status;
}

void tmsg_map_place(tmsg_map_t *map, size_t index, void *data)
{
    tmsg_map_placing(map)[index].tensor.data = data;
}

tmsg_map_entry_t *tmsg_map_placing(tmsg_map_t *map)
{
    (void)tmsg_map_own_entries(map);
    return tmsg_map_placing_from(map, &(const tmsg_map_entry_t *){NULL});
}

tmsg_map_entry_t *tmsg_map_placing_from(tmsg_map_t *map,
                                        const tmsg_map_entry_t **from_p)
{
    *from_p = tmsg_map_entries(map);
    /* A settled map is not written here: other threads may be reading it, see
     * tmsg_map_settle(). */
    if (map->borrowed) {
        map->borrowed = false;
    }
    map->placed_at = NULL;
    map->laid = false;
    map->bare = false;
    atomic_store_explicit(&map->apart, false, memory_order_relaxed);
    return map->entries;
}

bool tmsg_map_is_bare(const tmsg_map_t *map) { return map->bare; }

bool tmsg_map_is_of_host(const tmsg_map_t *map) { return map->host; }

tmsg_status_t tmsg_map_lend(tmsg_map_t *map, size_t index, void *data,
                            const tmsg_map_add_params_t *params)
{
    tmsg_map_entry_t *entry = &tmsg_map_own_entries(map)[index];
    tmsg_status_t status =
        params == NULL ? TMSG_OK : read_add_params(params, entry);

    if (status == TMSG_OK) {
        entry->tensor.data = data;
        map->lent = true;
        map->bare = false;
        atomic_store_explicit(&map->apart, false, memory_order_relaxed);
    }
    return status;
}

void tmsg_map_read_only(void *unused) { (void)unused; }

void tmsg_map_place_read_only(tmsg_map_t *map, size_t index, const void *data)
{
    tmsg_map_entry_t *entry = &tmsg_map_own_entries(map)[index];

    entry->tensor.data = (void *)(uintptr_t)data;
    entry->release = tmsg_map_read_only;
    entry->release_arg = NULL;
    map->lent = true;
    map->bare = false;
    atomic_store_explicit(&map->apart, false, memory_order_relaxed);
}

void tmsg_map_end_read_only(tmsg_map_t *map, size_t index)
{
    tmsg_map_entry_t *entry = &tmsg_map_own_entries(map)[index];

    if (entry->release == tmsg_map_read_only) {
        entry->release = NULL;
    }
}

/* Checks that the data of tensor `index` may be set to `data`. */
static tmsg_status_t find_settable(const tmsg_map_t *map, size_t index,
                                   const void *data)
{
    const tmsg_map_entry_t *entry;
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status == TMSG_OK) {
        status = tmsg_map_at(map, index, NULL, NULL);
    }
    entry = status == TMSG_OK ? &tmsg_map_entries(map)[index] : NULL;
    if (entry != NULL && data == NULL && entry->bytes > 0) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "data is NULL but the shape has elements");
        status = blame_tensor(status, entry->name, entry->name_bytes);
    }
    return status;
}

tmsg_status_t tmsg_map_set_data(tmsg_map_t *map, size_t index, void *data,
                                const tmsg_map_add_params_t *params)
{
    tmsg_status_t status = find_settable(map, index, data);
    tmsg_map_entry_t *entry, gone;

    if (status != TMSG_OK) {
        return status;
    }
    entry = &tmsg_map_own_entries(map)[index];
    gone = *entry;
    entry->release = NULL;
    entry->release_arg = NULL;
    entry->stream = (tmsg_stream_t){0};
    status = tmsg_map_lend(map, index, data, params);
    if (status != TMSG_OK) {
        *entry = gone;
        return status;
    }
    map->mixed = map->release != NULL;
    if (gone.release != NULL) {
        gone.release(gone.release_arg);
    }
    return TMSG_OK;
}

void tmsg_map_replace(tmsg_map_t *map, size_t index,
                      const tmsg_map_entry_t *entry)
{
    tmsg_map_entry_t *own = &tmsg_map_own_entries(map)[index];

    own->tensor.data = entry->tensor.data;
    own->tensor.strides = entry->tensor.strides;
    own->bytes = entry->bytes;
    map->laid = false;
    map->bare = false;
    tmsg_map_restamp(map);
}

void tmsg_map_set_device(tmsg_map_t *map, size_t index, tmsg_device_t device)
{
    tmsg_map_own_entries(map)[index].tensor.device = device;
    map->host = false;
    tmsg_map_restamp(map);
}

tmsg_status_t tmsg_map_remove(tmsg_map_t *map, const char *name)
{
    size_t index;
    tmsg_names_t names;
    tmsg_map_entry_t *entries, gone;
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status == TMSG_OK) {
        status = find_named_tensor(map, name, &index);
    }
    if (status != TMSG_OK) {
        return status;
    }
    entries = tmsg_map_own_entries(map);
    gone = entries[index];
    map->size--;
    tmsg_map_restamp(map);
    memmove(entries + index, entries + index + 1,
            (map->size - index) * sizeof(gone));
    names = names_of_tensors(map);
    tmsg_index_remove(&map->index, &names, index);
    tmsg_map_waste(map, tmsg_arena_size(adopted_bytes(&gone)));
    if (gone.release != NULL) {
        gone.release(gone.release_arg);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_clear(tmsg_map_t *map)
{
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status != TMSG_OK) {
        return status;
    }
    release_all(map);
    reset_map(map);
    return TMSG_OK;
}
