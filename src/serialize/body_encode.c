/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/checksum.h"
#include "serialize/header.h"
#include "serialize/schema_wire.h"
#include "serialize/wire.h"
#include "serialize/writer.h"

static uint8_t *put_extents(uint8_t *to, const int64_t *extents, int32_t count)
{
    tmsg_put_array(&to, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        tmsg_put_int64(&to, extents[i]);
    }
    return to;
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
    for (int32_t i = tensor->ndim; i-- > 0;) { /* each element is packed once */
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

static uint8_t *put_options(uint8_t *to, const tmsg_tensor_t *tensor,
                            const int64_t *strides, bool device, bool span)
{
    tmsg_put_map(&to,
                 (size_t)(strides != NULL) + (size_t)device + (size_t)span);
    if (strides != NULL) {
        tmsg_put_uint8(&to, TMSG_OPTION_STRIDES);
        to = put_extents(to, strides, tensor->ndim);
    }
    if (device) {
        tmsg_put_uint8(&to, TMSG_OPTION_DEVICE);
        tmsg_put_array(&to, 2);
        tmsg_put_int32(&to, tensor->device.type);
        tmsg_put_int32(&to, tensor->device.id);
    }
    if (span) {
        tmsg_put_uint8(&to, TMSG_OPTION_ENCODING);
        tmsg_put_uint8(&to, TMSG_ENCODING_SPAN);
    }
    return to;
}

/* Returns the most bytes that a tensor takes after its name: TMSG_WRITER_ASIDE
 * or less. */
static size_t most_of(const tmsg_tensor_t *tensor)
{
    return TMSG_WRITER_ASIDE -
           2 * (size_t)(TMSG_NDIM_MAX - tensor->ndim) * TMSG_PUT_NUMBER_MOST;
}

/* Returns the bytes of a tensor without options. */
static size_t count_plain(const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *tensor = &entry->tensor;
    size_t bytes = entry->name_bytes;

    tmsg_count_array(&bytes, TMSG_TENSOR_FIELDS);
    tmsg_count_str(&bytes, entry->name_bytes);
    tmsg_count_uint8(&bytes, tensor->dtype.code);
    tmsg_count_uint8(&bytes, tensor->dtype.bits);
    tmsg_count_uint16(&bytes, tensor->dtype.lanes);
    tmsg_count_array(&bytes, (size_t)tensor->ndim);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        tmsg_count_int64(&bytes, tensor->shape[i]);
    }
    return bytes;
}

static void write_tensor(tmsg_writer_t *writer, const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *tensor = &entry->tensor;
    int64_t room[TMSG_NDIM_MAX];
    bool span = tmsg_map_view(entry) != NULL;
    tmsg_map_entry_t shown;
    const int64_t *strides;
    bool device = sends_device(tensor);
    uint8_t *began, *to;

    if (writer->bound == 0 && tensor->strides == NULL && !device) {
        writer->used += count_plain(entry);
        return;
    }
    if (span) {
        shown = tmsg_map_shown(entry);
        tensor = &shown.tensor;
    }
    strides = span ? tensor->strides : tmsg_body_strides(tensor, room);

    began = to = tmsg_writer_begin(writer, 1 + TMSG_PUT_COUNT_MOST);
    tmsg_put_array(&to, (size_t)TMSG_TENSOR_FIELDS +
                            (size_t)(strides != NULL || device));
    tmsg_put_str(&to, entry->name_bytes);
    tmsg_writer_end(writer, began, to);
    tmsg_writer_data(writer, entry->name, entry->name_bytes);

    began = to = tmsg_writer_begin(writer, most_of(tensor));
    tmsg_put_uint8(&to, tensor->dtype.code);
    tmsg_put_uint8(&to, tensor->dtype.bits);
    tmsg_put_uint16(&to, tensor->dtype.lanes);
    to = put_extents(to, tensor->shape, tensor->ndim);
    if (strides != NULL || device) {
        to = put_options(to, tensor, strides, device, span);
    }
    tmsg_writer_end(writer, began, to);
}

static void write_tensors(tmsg_writer_t *writer, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t tensors = tmsg_map_size(map);

    tmsg_write_int8(writer, TMSG_BODY_TENSORS);
    tmsg_write_array(writer, tensors);
    for (size_t i = 0; i < tensors; i++) {
        write_tensor(writer, &entries[i]);
    }
}

static void write_text(tmsg_writer_t *writer, const void *text, size_t bytes)
{
    tmsg_write_str(writer, bytes);
    tmsg_writer_data(writer, text, bytes);
}

static void write_binary(tmsg_writer_t *writer, const void *data, size_t bytes)
{
    tmsg_write_bin(writer, bytes);
    tmsg_writer_data(writer, data, bytes);
}

static void write_value(tmsg_writer_t *writer, const tmsg_meta_t *value)
{
    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        value->boolean ? tmsg_write_true(writer) : tmsg_write_false(writer);
        break;
    case TMSG_META_TYPE_I64:
        tmsg_write_int64(writer, value->i64);
        break;
    case TMSG_META_TYPE_F64:
        tmsg_write_double(writer, value->f64);
        break;
    case TMSG_META_TYPE_STRING:
        write_text(writer, value->data, value->bytes);
        break;
    default:
        write_binary(writer, value->data, value->bytes);
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

static void write_keys(tmsg_writer_t *writer, const tmsg_map_t *map,
                       const tmsg_map_t *but)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    size_t size = tmsg_map_meta_size(map);

    for (size_t i = 0; i < size; i++) {
        if (!tmsg_map_meta_has(but, &entries[i])) {
            write_text(writer, entries[i].key, entries[i].key_bytes);
            write_value(writer, &entries[i].value);
        }
    }
}

static void write_metadata(tmsg_writer_t *writer, const tmsg_map_t *map,
                           const tmsg_map_t *more)
{
    tmsg_write_int8(writer, TMSG_BODY_METADATA);
    tmsg_write_map(writer, tmsg_body_count_keys(map, more));
    write_keys(writer, map, more);
    if (more != NULL) {
        write_keys(writer, more, NULL);
    }
}

/* Names the sections that are equal for all peers. */
typedef enum { SECTION_TENSORS = 0, SECTION_METADATA = 1 } section_t;

static void write_section(tmsg_writer_t *writer, section_t section,
                          const tmsg_map_t *map, const tmsg_map_t *more)
{
    if (section == SECTION_TENSORS) {
        write_tensors(writer, map);
    } else {
        write_metadata(writer, map, more);
    }
}

static void open_writer(tmsg_writer_t *writer, void *buffer, size_t bound)
{
    /* `= {0}` would clear writer->aside, which is a kilobyte. */
    writer->buffer = buffer;
    writer->bound = bound;
    writer->used = 0;
}

/* Encodes a section for all peers, unless that was done before. Returns false
 * if memory is lacking. */
static bool keep_section(tmsg_body_shared_t *shared, section_t section,
                         const tmsg_map_t *map)
{
    tmsg_writer_t writer;
    uint8_t *buffer;

    if (shared->data[section] != NULL) {
        return true;
    }
    open_writer(&writer, NULL, 0);
    write_section(&writer, section, map, NULL);
    buffer = malloc(writer.used);
    if (buffer == NULL) {
        return false;
    }
    open_writer(&writer, buffer, writer.used);
    write_section(&writer, section, map, NULL);
    shared->data[section] = buffer;
    shared->bytes[section] = writer.used;
    shared->encoded++;
    return true;
}

static void put_section(tmsg_writer_t *writer, const tmsg_body_extra_t *extra,
                        section_t section, const tmsg_map_t *map)
{
    tmsg_body_shared_t *shared = extra == NULL ? NULL : extra->shared;

    if (shared != NULL && keep_section(shared, section, map)) {
        tmsg_writer_data(writer, shared->data[section], shared->bytes[section]);
    } else {
        write_section(writer, section, map, extra == NULL ? NULL : extra->more);
    }
}

void tmsg_body_shared_free(tmsg_body_shared_t *shared)
{
    for (int i = 0; i < TMSG_BODY_SECTIONS; i++) {
        free(shared->data[i]);
    }
    *shared = (tmsg_body_shared_t){0};
}

static void write_schema(tmsg_writer_t *writer, const tmsg_schema_use_t *use)
{
    uint8_t *began = tmsg_writer_begin(writer, TMSG_SCHEMA_HEAD_BYTES);

    tmsg_writer_end(writer, began, began + tmsg_schema_head(use, began));
    if (use->count > 0) {
        tmsg_writer_data(writer, use->numbers, use->numbers_bytes);
    }
}

static void write_checksums(tmsg_writer_t *writer,
                            const tmsg_body_extra_t *extra, size_t tensors)
{
    tmsg_write_int8(writer, TMSG_BODY_CHECKSUMS);
    tmsg_write_array(writer, 2);
    tmsg_write_uint8(writer, extra->checksum->number);
    write_binary(writer, extra->checksums, tensors * extra->checksum->bytes);
}

static void write_split(tmsg_writer_t *writer, const tmsg_split_t *split)
{
    bool own = split->others_chunk > 0;
    bool slices = split->slice > 0 || own;
    bool others = split->others_bytes > 0 || slices;

    tmsg_write_int8(writer, TMSG_BODY_PARTS);
    tmsg_write_array(writer, 2 + (size_t)others + (size_t)slices + (size_t)own);
    tmsg_write_uint64(writer, split->large);
    tmsg_write_uint64(writer, split->chunk);
    if (others) {
        write_binary(writer, split->others, split->others_bytes);
    }
    if (slices) {
        tmsg_write_uint64(writer, split->slice);
    }
    if (own) {
        tmsg_write_uint64(writer, split->others_chunk);
    }
}

static void write_lent_places(tmsg_writer_t *writer,
                              const tmsg_lent_places_t *lent)
{
    tmsg_write_int8(writer, TMSG_BODY_LOAN);
    tmsg_write_array(writer, 2 * lent->count);
    for (size_t i = 0; i < lent->count; i++) {
        tmsg_write_uint64(writer, lent->places[i].segment);
        tmsg_write_uint64(writer, lent->places[i].offset);
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
    bool lent = extra != NULL && extra->lent.count > 0;
    size_t keys = tmsg_map_meta_size(map) +
                  (extra == NULL ? 0 : tmsg_map_meta_size(extra->more));
    tmsg_writer_t writer;

    open_writer(&writer, buffer, bound);
    tmsg_write_map(&writer, 1 + (size_t)(form == TMSG_SCHEMA_DEFINES) +
                                (size_t)(keys != 0) + (size_t)checksums +
                                (size_t)split + (size_t)lent);
    if (form != TMSG_SCHEMA_NONE) {
        write_schema(&writer, &extra->schema);
    }
    if (form != TMSG_SCHEMA_REFERS) {
        put_section(&writer, extra, SECTION_TENSORS, map);
    }
    if (keys != 0) {
        put_section(&writer, extra, SECTION_METADATA, map);
    }
    if (checksums) {
        write_checksums(&writer, extra, tmsg_map_size(map));
    }
    if (split) {
        write_split(&writer, &extra->split);
    }
    if (lent) {
        write_lent_places(&writer, &extra->lent);
    }
    /* This check also catches every count and length that msgpack cannot
     * express. */
    if (writer.used > UINT32_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "header of %zu bytes, at most %u", writer.used,
                              UINT32_MAX);
    }
    *needed_p = writer.used;
    return TMSG_OK;
}
