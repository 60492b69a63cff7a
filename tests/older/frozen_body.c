/* SPDX-License-Identifier: BSD-3-Clause */
/* FROZEN, see frozen.h */
#include "older/frozen.h"

#include <string.h>

#include "older/pack.h"

size_t frozen_write_body_head(size_t tensors, uint8_t *to)
{
    pack_t pack = {to, 0};

    pack_map(&pack, 1);
    pack_integer(&pack, 1);
    pack_array(&pack, tensors);
    return pack.bytes;
}

size_t frozen_write_tensor(const frozen_tensor_t *tensor, uint8_t *to)
{
    pack_t pack = {to, 0};

    pack_array(&pack, 5);
    pack_string(&pack, tensor->name, tensor->name_bytes);
    pack_integer(&pack, tensor->code);
    pack_integer(&pack, tensor->bits);
    pack_integer(&pack, tensor->lanes);
    pack_array(&pack, tensor->ndim);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        pack_integer(&pack, tensor->shape[i]);
    }
    return pack.bytes;
}

/* The first error stays; what is read then is 0. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const char *error;
} source_t;

typedef enum { NIL, BOOLEAN, INTEGER, FLOAT, STR, BIN, ARRAY, MAP, EXT } kind_t;

typedef struct {
    kind_t kind;
    int64_t integer;
    double number;
    const uint8_t *data;
    uint64_t count; /* bytes, elements, or pairs */
} value_t;

static void fail(source_t *source, const char *error)
{
    if (source->error == NULL) {
        source->error = error;
    }
    source->at = source->end;
}

static const uint8_t *take(source_t *source, uint64_t bytes)
{
    static const uint8_t nothing[8];
    const uint8_t *from = source->at;

    if (bytes > (uint64_t)(source->end - source->at)) {
        fail(source, "the body ends early");
        return nothing;
    }
    source->at += bytes;
    return from;
}

/* msgpack is big-endian. */
static uint64_t big(source_t *source, unsigned width)
{
    const uint8_t *from = take(source, width);
    uint64_t value = 0;

    for (unsigned i = 0; source->error == NULL && i < width; i++) {
        value = value << 8 | from[i];
    }
    return value;
}

static value_t sized(source_t *source, kind_t kind, uint64_t count)
{
    value_t value = {.kind = kind, .count = count};

    if (kind == STR || kind == BIN || kind == EXT) {
        value.data = take(source, count);
        value.count = source->error == NULL ? count : 0;
    } else if (count > (uint64_t)(source->end - source->at)) {
        fail(source, "a count of more than is there");
        value.count = 0;
    }
    return value;
}

static value_t floating(source_t *source, unsigned width)
{
    value_t value = {.kind = FLOAT};
    uint64_t bits = big(source, width);
    uint32_t low = (uint32_t)bits;
    float single;

    if (width == 4) {
        memcpy(&single, &low, sizeof(single));
        value.number = single;
    } else {
        memcpy(&value.number, &bits, sizeof(value.number));
    }
    return value;
}

/* 0xc0 to 0xdf */
static value_t long_form(source_t *source, uint8_t byte)
{
    unsigned width = 1u << (byte & 3);
    uint64_t bits;

    switch (byte) {
    case 0xc0:
        return (value_t){.kind = NIL};
    case 0xc2:
    case 0xc3:
        return (value_t){.kind = BOOLEAN, .integer = byte & 1};
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return sized(source, BIN, big(source, width));
    case 0xca:
        return floating(source, 4);
    case 0xcb:
        return floating(source, 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        bits = big(source, width);
        return (value_t){.kind = bits > INT64_MAX ? EXT : INTEGER,
                         .integer = (int64_t)bits};
    case 0xd0:
        return (value_t){.kind = INTEGER, .integer = (int8_t)big(source, 1)};
    case 0xd1:
        return (value_t){.kind = INTEGER, .integer = (int16_t)big(source, 2)};
    case 0xd2:
        return (value_t){.kind = INTEGER, .integer = (int32_t)big(source, 4)};
    case 0xd3:
        return (value_t){.kind = INTEGER, .integer = (int64_t)big(source, 8)};
    case 0xd9:
        return sized(source, STR, big(source, 1));
    case 0xda:
        return sized(source, STR, big(source, 2));
    case 0xdb:
        return sized(source, STR, big(source, 4));
    case 0xdc:
        return sized(source, ARRAY, big(source, 2));
    case 0xdd:
        return sized(source, ARRAY, big(source, 4));
    case 0xde:
        return sized(source, MAP, big(source, 2));
    case 0xdf:
        return sized(source, MAP, big(source, 4));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return sized(source, EXT, 1 + ((uint64_t)1 << (byte - 0xd4)));
    case 0xc7:
        return sized(source, EXT, 1 + big(source, 1));
    case 0xc8:
        return sized(source, EXT, 1 + big(source, 2));
    case 0xc9:
        return sized(source, EXT, 1 + big(source, 4));
    default:
        fail(source, "a byte that msgpack does not have");
        return (value_t){.kind = NIL};
    }
}

static value_t next(source_t *source)
{
    uint8_t byte = *take(source, 1);

    if (byte < 0x80 || byte >= 0xe0) {
        return (value_t){.kind = INTEGER, .integer = (int8_t)byte};
    }
    if (byte < 0x90) {
        return sized(source, MAP, byte & 0x0f);
    }
    if (byte < 0xa0) {
        return sized(source, ARRAY, byte & 0x0f);
    }
    if (byte < 0xc0) {
        return sized(source, STR, byte & 0x1f);
    }
    return long_form(source, byte);
}

static value_t want(source_t *source, kind_t kind, const char *error)
{
    value_t value = next(source);

    if (value.kind != kind) {
        fail(source, error);
        return (value_t){.kind = kind};
    }
    return value;
}

static int64_t want_integer(source_t *source, int64_t least, int64_t most,
                            const char *error)
{
    int64_t integer = want(source, INTEGER, error).integer;

    if (integer < least || integer > most) {
        fail(source, error);
    }
    return integer;
}

static void skip(source_t *source, unsigned depth)
{
    value_t value = next(source);
    uint64_t values = 0;

    if (value.kind == ARRAY) {
        values = value.count;
    } else if (value.kind == MAP) {
        values = 2 * value.count;
    }
    if (values > 0 && depth == 16) {
        fail(source, "nests too deep");
    }
    for (; values > 0 && source->error == NULL; values--) {
        skip(source, depth + 1);
    }
}

static void read_option(source_t *source, int64_t key, frozen_tensor_t *tensor)
{
    switch (key) {
    case 1:
        if (want(source, ARRAY, "strides").count != tensor->ndim) {
            fail(source, "strides for other dimensions");
        }
        tensor->has_strides = tensor->ndim > 0;
        for (uint32_t i = 0; i < tensor->ndim; i++) {
            tensor->strides[i] =
                want_integer(source, INT64_MIN, INT64_MAX, "strides");
        }
        break;
    case 2:
        if (want(source, ARRAY, "device").count != 2) {
            fail(source, "device");
        }
        tensor->device[0] =
            (int32_t)want_integer(source, 1, INT32_MAX, "device type");
        tensor->device[1] =
            (int32_t)want_integer(source, 0, INT32_MAX, "device id");
        break;
    case 3:
        want_integer(source, 0, INT64_MAX, "byte length");
        break;
    case 4:
        want_integer(source, 0, 0, "encoding");
        break;
    default:
        skip(source, 0);
    }
}

static bool is_known_dtype(const frozen_tensor_t *tensor)
{
    unsigned bits = tensor->bits;

    if (tensor->lanes == 0) {
        return false;
    }
    switch (tensor->code) {
    case 0:
    case 1:
        return bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16 ||
               bits == 32 || bits == 64;
    case 2:
        return bits == 16 || bits == 32 || bits == 64;
    case 3:
        return bits != 0 && bits % 8 == 0;
    case 4:
        return bits == 16;
    case 5:
        return bits == 32 || bits == 64 || bits == 128;
    case 15:
    case 16:
        return bits == 6;
    case 17:
        return bits == 4;
    default:
        return tensor->code < 15 && bits == 8;
    }
}

static void read_tensor(source_t *source, frozen_tensor_t *tensor)
{
    uint64_t fields = want(source, ARRAY, "a tensor").count;
    value_t name = want(source, STR, "a tensor's name"), options = {0};

    if (fields < 5) {
        fail(source, "a tensor of fewer than 5 elements");
    }
    tensor->name = (const char *)name.data;
    tensor->name_bytes = name.count;
    tensor->code = (uint8_t)want_integer(source, 0, 17, "dtype code");
    tensor->bits = (uint8_t)want_integer(source, 1, 248, "dtype bits");
    tensor->lanes = (uint16_t)want_integer(source, 1, 65535, "dtype lanes");
    if (source->error == NULL && !is_known_dtype(tensor)) {
        fail(source, "a dtype that is not known");
    }
    tensor->ndim = (uint32_t)want(source, ARRAY, "shape").count;
    if (tensor->ndim > FROZEN_NDIM_MAX) {
        fail(source, "more than 64 dimensions");
        return;
    }
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        tensor->shape[i] = want_integer(source, 0, INT64_MAX, "shape");
    }
    if (fields > 5) {
        options = want(source, MAP, "options");
    }
    for (; options.count > 0 && source->error == NULL; options.count--) {
        read_option(source,
                    want_integer(source, 0, INT64_MAX,
                                 "an option key that is not known"),
                    tensor);
    }
    for (; fields > 6 && source->error == NULL; fields--) {
        skip(source, 0);
    }
}

static void read_tensors(source_t *source, const frozen_reader_t *reader)
{
    uint64_t count = want(source, ARRAY, "tensors").count;

    for (; count > 0 && source->error == NULL; count--) {
        frozen_tensor_t tensor = {.device = {1, 0}};

        read_tensor(source, &tensor);
        if (source->error == NULL && !reader->tensor(reader->arg, &tensor)) {
            fail(source, "a tensor was not taken");
        }
    }
}

static void read_meta(source_t *source, frozen_meta_t *meta)
{
    value_t key = want(source, STR, "a metadata key"), value = next(source);

    *meta = (frozen_meta_t){
        .key = (const char *)key.data,
        .key_bytes = key.count,
        .integer = value.integer,
        .number = value.number,
        .data = value.data,
        .bytes = value.count,
    };
    switch (value.kind) {
    case BOOLEAN:
        meta->type = FROZEN_BOOL;
        break;
    case INTEGER:
        meta->type = FROZEN_I64;
        break;
    case FLOAT:
        meta->type = FROZEN_F64;
        break;
    case STR:
        meta->type = FROZEN_STRING;
        break;
    case BIN:
        meta->type = FROZEN_BYTES;
        break;
    default:
        fail(source, "metadata of a type that is not known");
    }
}

static void read_metadata(source_t *source, const frozen_reader_t *reader)
{
    uint64_t count = want(source, MAP, "metadata").count;

    for (; count > 0 && source->error == NULL; count--) {
        frozen_meta_t meta;

        read_meta(source, &meta);
        if (source->error == NULL && !reader->meta(reader->arg, &meta)) {
            fail(source, "metadata was not taken");
        }
    }
}

const char *frozen_read_body(const uint8_t *from, size_t bytes,
                             const frozen_reader_t *reader)
{
    source_t source = {from, from + bytes, NULL};
    uint64_t keys = want(&source, MAP, "the body is no map").count;

    for (; keys > 0 && source.error == NULL; keys--) {
        int64_t key = want_integer(&source, 0, INT64_MAX,
                                   "a key of the body that is not known");

        if (key == 1) {
            read_tensors(&source, reader);
        } else if (key == 2) {
            read_metadata(&source, reader);
        } else {
            skip(&source, 0);
        }
    }
    if (source.at != source.end) {
        fail(&source, "bytes after the body");
    }
    return source.error;
}
