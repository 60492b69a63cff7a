/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/utf8.h"
#include "serialize/decoder.h"

const char *tmsg_decoder_name_error(const char *name, size_t name_bytes)
{
    if (name_bytes == 0) {
        return "is empty";
    }
    if (memchr(name, '\0', name_bytes) != NULL) {
        return "holds a NUL byte";
    }
    return tmsg_utf8_valid(name, name_bytes) ? NULL : "is not UTF-8";
}

/* Converts a msgpack value to a metadata value. Returns false if metadata have
 * no such type. */
static bool to_meta(const tmsg_value_t *value, tmsg_meta_t *meta)
{
    *meta = (tmsg_meta_t){0};
    switch (value->type) {
    case TMSG_VALUE_BOOL:
        meta->type = TMSG_META_TYPE_BOOL;
        meta->boolean = value->boolean;
        return true;
    case TMSG_VALUE_INTEGER:
        meta->type = TMSG_META_TYPE_I64;
        meta->i64 = value->integer;
        return true;
    case TMSG_VALUE_FLOAT:
        meta->type = TMSG_META_TYPE_F64;
        meta->f64 = value->number;
        return true;
    case TMSG_VALUE_STRING:
    case TMSG_VALUE_BINARY:
        meta->type = value->type == TMSG_VALUE_STRING ? TMSG_META_TYPE_STRING
                                                      : TMSG_META_TYPE_BYTES;
        meta->data = value->data;
        meta->bytes = value->count;
        return true;
    default:
        return false;
    }
}

/* Holds one key and its value, as the body states them. */
typedef struct {
    uint32_t index;
    const char *key;
    size_t key_bytes;
    tmsg_value_t value;
} item_t;

static tmsg_status_t blame_item(tmsg_status_t status, const item_t *item,
                                const char *what, const char *error)
{
    return tmsg_error_set(
        status, "metadata %" PRIu32 " '%s': %s %s", item->index,
        tmsg_error_name(item->key, item->key_bytes).text, what, error);
}

static tmsg_status_t add_meta_item(tmsg_decoder_t *decoder, const item_t *item)
{
    const tmsg_limits_t *limits = decoder->limits;
    const char *error = tmsg_decoder_name_error(item->key, item->key_bytes);
    tmsg_meta_t meta;
    tmsg_status_t status;

    if (item->key_bytes > limits->name_bytes) {
        return blame_item(TMSG_ERR_LIMIT_EXCEEDED, item, "key",
                          "exceeds the limit of a name's bytes");
    }
    if (error != NULL) {
        return blame_item(TMSG_ERR_MALFORMED, item, "key", error);
    }
    if (!to_meta(&item->value, &meta)) {
        return blame_item(TMSG_ERR_UNSUPPORTED, item, "value",
                          "is of a type not known here");
    }
    decoder->metadata_bytes += item->key_bytes + meta.bytes;
    if (decoder->metadata_bytes > limits->metadata_bytes) {
        return blame_item(TMSG_ERR_LIMIT_EXCEEDED, item, "value",
                          "exceeds the limit of all metadata");
    }
    status =
        tmsg_map_append_meta(decoder->map, item->key, item->key_bytes, &meta);
    if (status == TMSG_ERR_ALREADY_EXISTS) {
        return blame_item(TMSG_ERR_MALFORMED, item, "key", "occurs twice");
    }
    if (status == TMSG_ERR_INVALID_PARAM) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "metadata %" PRIu32 ": %s",
                              item->index, tmsg_error_message());
    }
    return status;
}

tmsg_status_t tmsg_decoder_metadata(tmsg_decoder_t *decoder)
{
    tmsg_cursor_t *cursor = &decoder->cursor;
    tmsg_status_t status = TMSG_OK;
    uint32_t count;

    tmsg_decoder_reading(cursor, "metadata");
    count = tmsg_cursor_map(cursor);
    if (count > decoder->limits->metadata_keys) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "body: %" PRIu32
                              " metadata keys exceed the limit of %" PRIu64,
                              count, decoder->limits->metadata_keys);
    }
    for (uint32_t i = 0; i < count && status == TMSG_OK; i++) {
        item_t item = {.index = i};

        tmsg_decoder_reading(cursor, "key");
        item.key = tmsg_cursor_string(cursor, &item.key_bytes);
        tmsg_decoder_reading(cursor, "value");
        item.value = tmsg_cursor_value(cursor);
        if (cursor->error != NULL) {
            return blame_item(TMSG_ERR_MALFORMED, &item, cursor->field,
                              cursor->error);
        }
        status = add_meta_item(decoder, &item);
    }
    return status;
}
