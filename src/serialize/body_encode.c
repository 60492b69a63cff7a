/* SPDX-License-Identifier: BSD-3-Clause */
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/checksum.h"
#include "serialize/header.h"
#include "serialize/schema_wire.h"
#include "serialize/wire.h"

/* Where the packer writes. Beyond the bound it only counts. */
typedef struct {
    char *buffer;
    size_t bound;
    size_t used;
} sink_t;

static int sink_write(void *data, const char *bytes, size_t count)
{
    sink_t *sink = data;
    size_t used = sink->used;
    char *to;

    sink->used += count;
    if (used > sink->bound || count > sink->bound - used) {
        return 0;
    }
    to = sink->buffer + used;
    /* Most writes are of a constant length: these need no call. */
    switch (count) {
    case 0: /* of nothing, which may be NULL */
        break;
    case 1:
        *to = *bytes;
        break;
    case 2:
        memcpy(to, bytes, 2);
        break;
    case 3:
        memcpy(to, bytes, 3);
        break;
    case 5:
        memcpy(to, bytes, 5);
        break;
    default:
        memcpy(to, bytes, count);
        break;
    }
    return 0;
}

static int sink_count(void *data, const char *bytes, size_t count)
{
    (void)bytes;
    ((sink_t *)data)->used += count;
    return 0;
}

static void pack_text(msgpack_packer *packer, const char *text, size_t bytes)
{
    msgpack_pack_str(packer, bytes);
    msgpack_pack_str_body(packer, text, bytes);
}

static void pack_extents(msgpack_packer *packer, const int64_t *extents,
                         int32_t count)
{
    msgpack_pack_array(packer, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        msgpack_pack_int64(packer, extents[i]);
    }
}

const int64_t *tmsg_body_strides(const tmsg_tensor_t *tensor, int64_t *room)
{
    int64_t step = 1;

    if (tensor->strides == NULL || tmsg_tensor_is_contiguous(tensor)) {
        return NULL;
    }
    if (tmsg_tensor_is_dense(tensor)) {
        return tensor->strides;
    }
    if (!tmsg_tensor_is_broadcast(tensor)) {
        return NULL;
    }
    for (int32_t i = tensor->ndim; i-- > 0;) { /* packed, each element once */
        bool repeats = tensor->strides[i] == 0;

        room[i] = repeats ? 0 : step;
        step *= repeats ? 1 : tensor->shape[i];
    }
    return room;
}

static bool sends_device(const tmsg_tensor_t *tensor)
{
    return tensor->device.type != TMSG_DEVICE_CPU || tensor->device.id != 0;
}

static void pack_options(msgpack_packer *packer, const tmsg_tensor_t *tensor,
                         const int64_t *strides, bool device, bool span)
{
    msgpack_pack_map(packer,
                     (size_t)(strides != NULL) + (size_t)device + (size_t)span);
    if (strides != NULL) {
        msgpack_pack_uint8(packer, TMSG_OPTION_STRIDES);
        pack_extents(packer, strides, tensor->ndim);
    }
    if (device) {
        msgpack_pack_uint8(packer, TMSG_OPTION_DEVICE);
        msgpack_pack_array(packer, 2);
        msgpack_pack_int32(packer, tensor->device.type);
        msgpack_pack_int32(packer, tensor->device.id);
    }
    if (span) {
        msgpack_pack_uint8(packer, TMSG_OPTION_ENCODING);
        msgpack_pack_uint8(packer, TMSG_ENCODING_SPAN);
    }
}

static void pack_tensor(msgpack_packer *packer, const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *tensor = &entry->tensor;
    int64_t room[TMSG_NDIM_MAX];
    bool span = tmsg_map_view(entry) != NULL;
    tmsg_map_entry_t shown;
    const int64_t *strides;
    bool device = sends_device(tensor);

    if (span) {
        shown = tmsg_map_shown(entry);
        tensor = &shown.tensor;
    }
    strides = span ? tensor->strides : tmsg_body_strides(tensor, room);

    msgpack_pack_array(packer, (size_t)TMSG_TENSOR_FIELDS +
                                   (size_t)(strides != NULL || device));
    pack_text(packer, entry->name, entry->name_bytes);
    msgpack_pack_uint8(packer, tensor->dtype.code);
    msgpack_pack_uint8(packer, tensor->dtype.bits);
    msgpack_pack_uint16(packer, tensor->dtype.lanes);
    pack_extents(packer, tensor->shape, tensor->ndim);
    if (strides != NULL || device) {
        pack_options(packer, tensor, strides, device, span);
    }
}

static void pack_tensors(msgpack_packer *packer, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t tensors = tmsg_map_size(map);

    msgpack_pack_uint8(packer, TMSG_BODY_TENSORS);
    msgpack_pack_array(packer, tensors);
    for (size_t i = 0; i < tensors; i++) {
        pack_tensor(packer, &entries[i]);
    }
}

static void pack_value(msgpack_packer *packer, const tmsg_meta_t *value)
{
    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        if (value->boolean) {
            msgpack_pack_true(packer);
        } else {
            msgpack_pack_false(packer);
        }
        break;
    case TMSG_META_TYPE_I64:
        msgpack_pack_int64(packer, value->i64);
        break;
    case TMSG_META_TYPE_F64:
        msgpack_pack_double(packer, value->f64);
        break;
    case TMSG_META_TYPE_STRING:
        pack_text(packer, value->data, value->bytes);
        break;
    default:
        msgpack_pack_bin(packer, value->bytes);
        msgpack_pack_bin_body(packer, value->data, value->bytes);
        break;
    }
}

size_t tmsg_body_count_keys(const tmsg_map_t *map, const tmsg_map_t *more)
{
    size_t keys = tmsg_map_meta_size(map);

    for (size_t i = 0; i < tmsg_map_meta_size(more); i++) {
        keys += !tmsg_map_meta_has(map, &tmsg_map_meta_entries(more)[i]);
    }
    return keys;
}

static void pack_keys(msgpack_packer *packer, const tmsg_map_t *map,
                      const tmsg_map_t *but)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    size_t size = tmsg_map_meta_size(map);

    for (size_t i = 0; i < size; i++) {
        if (!tmsg_map_meta_has(but, &entries[i])) {
            pack_text(packer, entries[i].key, entries[i].key_bytes);
            pack_value(packer, &entries[i].value);
        }
    }
}

static void pack_metadata(msgpack_packer *packer, const tmsg_map_t *map,
                          const tmsg_map_t *more)
{
    msgpack_pack_uint8(packer, TMSG_BODY_METADATA);
    msgpack_pack_map(packer, tmsg_body_count_keys(map, more));
    pack_keys(packer, map, more);
    if (more != NULL) {
        pack_keys(packer, more, NULL);
    }
}

/* What is the same for every peer. */
typedef enum { SECTION_TENSORS = 0, SECTION_METADATA = 1 } section_t;

static void pack_section(msgpack_packer *packer, section_t section,
                         const tmsg_map_t *map, const tmsg_map_t *more)
{
    if (section == SECTION_TENSORS) {
        pack_tensors(packer, map);
    } else {
        pack_metadata(packer, map, more);
    }
}

/* Encodes a section for all peers, unless it is. False: there is no memory for
 * that. */
static bool keep_section(tmsg_body_shared_t *shared, section_t section,
                         const tmsg_map_t *map)
{
    sink_t sink = {0};
    msgpack_packer packer;

    if (shared->data[section] != NULL) {
        return true;
    }
    msgpack_packer_init(&packer, &sink, sink_count);
    pack_section(&packer, section, map, NULL);
    sink = (sink_t){.buffer = malloc(sink.used), .bound = sink.used};
    if (sink.buffer == NULL) {
        return false;
    }
    msgpack_packer_init(&packer, &sink, sink_write);
    pack_section(&packer, section, map, NULL);
    shared->data[section] = (uint8_t *)sink.buffer;
    shared->bytes[section] = sink.used;
    shared->encoded++;
    return true;
}

static void put_section(msgpack_packer *packer, const tmsg_body_extra_t *extra,
                        section_t section, const tmsg_map_t *map)
{
    tmsg_body_shared_t *shared = extra == NULL ? NULL : extra->shared;

    if (shared != NULL && keep_section(shared, section, map)) {
        packer->callback(packer->data, (const char *)shared->data[section],
                         shared->bytes[section]);
    } else {
        pack_section(packer, section, map, extra == NULL ? NULL : extra->more);
    }
}

void tmsg_body_shared_free(tmsg_body_shared_t *shared)
{
    for (int i = 0; i < TMSG_BODY_SECTIONS; i++) {
        free(shared->data[i]);
    }
    *shared = (tmsg_body_shared_t){0};
}

static void pack_schema(sink_t *sink, const tmsg_schema_use_t *use)
{
    uint8_t head[TMSG_SCHEMA_HEAD_BYTES];
    size_t bytes = tmsg_schema_head(use, head);

    sink_write(sink, (const char *)head, bytes);
    if (use->count > 0) {
        sink_write(sink, (const char *)use->numbers, use->numbers_bytes);
    }
}

static void pack_checksums(msgpack_packer *packer,
                           const tmsg_body_extra_t *extra, size_t tensors)
{
    size_t bytes = tensors * extra->checksum->bytes;

    msgpack_pack_array(packer, 2);
    msgpack_pack_uint8(packer, extra->checksum->number);
    msgpack_pack_bin(packer, bytes);
    if (bytes > 0) {
        msgpack_pack_bin_body(packer, extra->checksums, bytes);
    }
}

static void pack_split(msgpack_packer *packer, const tmsg_split_t *split)
{
    bool others = split->others_bytes > 0 || split->slice > 0;

    msgpack_pack_array(packer, 2 + (size_t)others + (split->slice > 0));
    msgpack_pack_uint64(packer, split->large);
    msgpack_pack_uint64(packer, split->chunk);
    if (others) {
        msgpack_pack_bin(packer, split->others_bytes);
        msgpack_pack_bin_body(packer, split->others, split->others_bytes);
    }
    if (split->slice > 0) {
        msgpack_pack_uint64(packer, split->slice);
    }
}

tmsg_status_t tmsg_body_encode(const tmsg_map_t *map,
                               const tmsg_body_extra_t *extra, void *buffer,
                               size_t bound, size_t *needed_p)
{
    bool checksums = extra != NULL && extra->checksum != NULL;
    tmsg_schema_form_t form =
        extra == NULL ? TMSG_SCHEMA_NONE : extra->schema.form;
    bool split = extra != NULL && extra->split.large > 0;
    size_t keys = tmsg_map_meta_size(map) +
                  (extra == NULL ? 0 : tmsg_map_meta_size(extra->more));
    sink_t sink = {.buffer = buffer, .bound = bound};
    msgpack_packer packer;

    msgpack_packer_init(&packer, &sink, bound == 0 ? sink_count : sink_write);
    msgpack_pack_map(&packer, 1 + (size_t)(form == TMSG_SCHEMA_DEFINES) +
                                  (size_t)(keys != 0) + (size_t)checksums +
                                  (size_t)split);
    if (form != TMSG_SCHEMA_NONE) {
        pack_schema(&sink, &extra->schema);
    }
    if (form != TMSG_SCHEMA_REFERS) {
        put_section(&packer, extra, SECTION_TENSORS, map);
    }
    if (keys != 0) {
        put_section(&packer, extra, SECTION_METADATA, map);
    }
    if (checksums) {
        msgpack_pack_int8(&packer, TMSG_BODY_CHECKSUMS);
        pack_checksums(&packer, extra, tmsg_map_size(map));
    }
    if (split) {
        msgpack_pack_int8(&packer, TMSG_BODY_PARTS);
        pack_split(&packer, &extra->split);
    }
    /* This also catches every count and length that msgpack has no form for. */
    if (sink.used > UINT32_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "header: %zu bytes are more than %u", sink.used,
                              UINT32_MAX);
    }
    *needed_p = sink.used;
    return TMSG_OK;
}
