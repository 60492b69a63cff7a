/* SPDX-License-Identifier: BSD-3-Clause */
#include "framing.h"

#include <stdlib.h>
#include <string.h>

#include <msgpack.h>
#include <tensormsg/tensormsg.h>

#include "../bench.h"

static bool is_small(size_t bytes) { return bytes <= FRAMING_SMALL; }

static void pack_text(msgpack_packer *packer, const char *text)
{
    size_t bytes = strlen(text);

    msgpack_pack_str(packer, bytes);
    msgpack_pack_str_body(packer, text, bytes);
}

static void pack_meta(msgpack_packer *packer, const workload_meta_t *meta)
{
    pack_text(packer, meta->name);
    if (meta->text != NULL) {
        pack_text(packer, meta->text);
    } else if (meta->is_whole) {
        msgpack_pack_int64(packer, (int64_t)meta->number);
    } else {
        msgpack_pack_double(packer, meta->number);
    }
}

static void pack_tensor(msgpack_packer *packer, const workload_tensor_t *tensor)
{
    char dtype[TMSG_DTYPE_NAME_MAX];

    msgpack_pack_array(packer, 3);
    pack_text(packer, tensor->name);
    pack_text(packer, tmsg_dtype_format(tensor->dtype, dtype, sizeof(dtype)));
    msgpack_pack_array(packer, (size_t)tensor->ndim);
    for (int i = 0; i < tensor->ndim; i++) {
        msgpack_pack_int64(packer, tensor->shape[i]);
    }
}

/* [{meta}, [[name, dtype, [extent, ...]], ...]] */
static framing_piece_t pack_head(const workload_map_t *map)
{
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    framing_piece_t head;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&packer, 2);
    msgpack_pack_map(&packer, map->meta_count);
    for (size_t i = 0; i < map->meta_count; i++) {
        pack_meta(&packer, &map->meta[i]);
    }
    msgpack_pack_array(&packer, map->count);
    for (size_t i = 0; i < map->count; i++) {
        pack_tensor(&packer, &map->tensors[i]);
    }
    head.bytes = buffer.size;
    head.data = msgpack_sbuffer_release(&buffer);
    return head;
}

void framing_out_create(const bench_payload_t *payload, framing_out_t *out)
{
    const workload_map_t *map = payload->map;

    *out = (framing_out_t){.payload = payload, .head = pack_head(map)};
    out->large = bench_memory((map->count + 1) * sizeof(*out->large));
    for (size_t i = 0; i < map->count; i++) {
        size_t bytes = map->tensors[i].bytes;

        if (is_small(bytes)) {
            out->small_bytes += bytes;
        } else {
            out->large[out->large_count++] =
                (framing_piece_t){payload->data[i], bytes};
        }
    }
}

void framing_out_free(framing_out_t *out)
{
    free(out->head.data);
    free(out->large);
}

void framing_gather(const framing_out_t *out, void *small)
{
    const workload_map_t *map = out->payload->map;
    uint8_t *end = small;

    for (size_t i = 0; i < map->count; i++) {
        if (is_small(map->tensors[i].bytes) && map->tensors[i].bytes > 0) {
            memcpy(end, out->payload->data[i], map->tensors[i].bytes);
            end += map->tensors[i].bytes;
        }
    }
}

static void must_be(bool right)
{
    if (!right) {
        bench_die("a head arrived that is none");
    }
}

static const msgpack_object *item(const msgpack_object *object, uint32_t index,
                                  msgpack_object_type type)
{
    const msgpack_object *found;

    must_be(object->type == MSGPACK_OBJECT_ARRAY &&
            index < object->via.array.size);
    found = &object->via.array.ptr[index];
    must_be(found->type == type);
    return found;
}

static void read_tensor(const msgpack_object *entry, framing_tensor_t *tensor)
{
    const msgpack_object_str name = item(entry, 0, MSGPACK_OBJECT_STR)->via.str;
    const msgpack_object_str dtype =
        item(entry, 1, MSGPACK_OBJECT_STR)->via.str;
    const msgpack_object *shape = item(entry, 2, MSGPACK_OBJECT_ARRAY);
    char text[TMSG_DTYPE_NAME_MAX] = "";
    size_t elements = 1;

    must_be(dtype.size < sizeof(text) &&
            shape->via.array.size <= WORKLOAD_NDIM_MAX);
    memcpy(text, dtype.ptr, dtype.size);
    must_be(tmsg_dtype_parse(text, &tensor->dtype) == TMSG_OK);
    tensor->name = name.ptr;
    tensor->name_bytes = name.size;
    tensor->ndim = (int)shape->via.array.size;
    for (int i = 0; i < tensor->ndim; i++) {
        tensor->shape[i] =
            (int64_t)item(shape, (uint32_t)i, MSGPACK_OBJECT_POSITIVE_INTEGER)
                ->via.u64;
        elements *= (size_t)tensor->shape[i];
    }
    tensor->bytes = elements * tensor->dtype.bits * tensor->dtype.lanes / 8;
    tensor->data = NULL;
}

static void make_room(framing_in_t *in, size_t count)
{
    if (count > in->room) {
        free(in->tensors);
        in->tensors = bench_memory(count * sizeof(*in->tensors));
        in->room = count;
    }
}

size_t framing_read(framing_in_t *in, const void *head, size_t bytes)
{
    msgpack_unpacked unpacked;
    const msgpack_object *list;
    size_t offset = 0;

    msgpack_unpacked_init(&unpacked);
    must_be(msgpack_unpack_next(&unpacked, head, bytes, &offset) ==
            MSGPACK_UNPACK_SUCCESS);
    list = item(&unpacked.data, 1, MSGPACK_OBJECT_ARRAY);
    make_room(in, list->via.array.size);
    in->count = list->via.array.size;
    in->small_bytes = in->bytes = 0;
    for (size_t i = 0; i < in->count; i++) {
        framing_tensor_t *tensor = &in->tensors[i];

        read_tensor(&list->via.array.ptr[i], tensor);
        in->bytes += tensor->bytes;
        in->small_bytes += is_small(tensor->bytes) ? tensor->bytes : 0;
    }
    msgpack_unpacked_destroy(&unpacked);
    return offset;
}

void framing_place_small(framing_in_t *in, const uint8_t *data)
{
    for (size_t i = 0; i < in->count; i++) {
        if (is_small(in->tensors[i].bytes)) {
            in->tensors[i].data = data;
            data += in->tensors[i].bytes;
        }
    }
}

void framing_place_large(framing_in_t *in, size_t *next, const uint8_t *data)
{
    while (*next < in->count && is_small(in->tensors[*next].bytes)) {
        ++*next;
    }
    must_be(*next < in->count);
    in->tensors[(*next)++].data = data;
}

void framing_check(const framing_in_t *in, const bench_payload_t *payload)
{
    must_be(in->count == payload->map->count);
    for (size_t i = 0; i < in->count; i++) {
        const framing_tensor_t *tensor = &in->tensors[i];

        bench_payload_is(payload, i, tensor->name, tensor->name_bytes,
                         tensor->dtype, tensor->ndim, tensor->shape);
        bench_payload_check(payload, i, tensor->data);
    }
}

void framing_in_free(framing_in_t *in) { free(in->tensors); }
