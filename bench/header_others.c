/* SPDX-License-Identifier: BSD-3-Clause */
/* What others' headers of the same map cost. */
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "bench.h"
#include "core/limits.h"
#include "core/map.h"
#include "header.h"
#include "serialize/file_safetensors.h"

#define HEADER_BYTES_MAX (64u * 1024u)
#define PREFIX_BYTES 8

typedef struct {
    tmsg_map_t *map;
    uint8_t *bytes; /* the header, and for safetensors room for the data */
    size_t used;
    size_t size;
    msgpack_zone *zone;
} other_t;

static int append(void *data, const char *bytes, size_t count)
{
    other_t *other = data;

    memcpy(other->bytes + other->used, bytes, count);
    other->used += count;
    return 0;
}

static void pack_entry(msgpack_packer *packer, const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *tensor = &entry->tensor;

    msgpack_pack_array(packer, 5);
    msgpack_pack_str(packer, entry->name_bytes);
    msgpack_pack_str_body(packer, entry->name, entry->name_bytes);
    msgpack_pack_uint8(packer, tensor->dtype.code);
    msgpack_pack_uint8(packer, tensor->dtype.bits);
    msgpack_pack_uint16(packer, tensor->dtype.lanes);
    msgpack_pack_array(packer, (size_t)tensor->ndim);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        msgpack_pack_int64(packer, tensor->shape[i]);
    }
}

static void msgpack_round(void *arg)
{
    other_t *other = arg;
    const tmsg_map_entry_t *entries = tmsg_map_entries(other->map);
    size_t tensors = tmsg_map_size(other->map);
    msgpack_packer packer;
    msgpack_object object;
    size_t offset = 0;

    other->used = 0;
    msgpack_packer_init(&packer, other, append);
    msgpack_pack_array(&packer, tensors);
    for (size_t i = 0; i < tensors; i++) {
        pack_entry(&packer, &entries[i]);
    }
    msgpack_zone_clear(other->zone);
    if (msgpack_unpack((const char *)other->bytes, other->used, &offset,
                       other->zone, &object) != MSGPACK_UNPACK_SUCCESS ||
        object.via.array.size != tensors) {
        bench_die("header: msgpack-c read something else");
    }
}

static void safetensors_round(void *arg)
{
    other_t *other = arg;
    static const tmsg_file_where_t where = {.path = "bench"};
    tmsg_file_input_t input = {
        .where = where, .bytes = other->bytes, .limits = tmsg_limits_usual()};
    size_t bytes;
    char *text;

    if (tmsg_safetensors_header(&where, other->map, &text) != TMSG_OK ||
        tmsg_map_create(&input.map) != TMSG_OK) {
        bench_die("header: no memory");
    }
    bytes = strlen(text);
    memcpy(other->bytes + PREFIX_BYTES, text, bytes);
    free(text);
    while (bytes % 8 != 0) {
        other->bytes[PREFIX_BYTES + bytes++] = ' ';
    }
    for (int i = 0; i < PREFIX_BYTES; i++) {
        other->bytes[i] = (uint8_t)(bytes >> 8 * i);
    }
    input.size = PREFIX_BYTES + bytes + other->size;
    if (tmsg_file_safetensors.load(&input) != TMSG_OK) {
        bench_die("header: %s", tmsg_error_message());
    }
    tmsg_map_destroy(input.map);
}

static double measure(size_t tensors, unsigned rounds, void (*round)(void *arg))
{
    other_t other = {.map = bench_header_map(tensors)};
    double ns;

    for (size_t i = 0; i < tensors; i++) {
        other.size += tmsg_map_entries(other.map)[i].bytes;
    }
    other.bytes = calloc(1, HEADER_BYTES_MAX + other.size);
    other.zone = msgpack_zone_new(MSGPACK_ZONE_CHUNK_SIZE);
    if (other.bytes == NULL || other.zone == NULL) {
        bench_die("header: no memory");
    }
    ns = bench_header_time(round, &other, rounds) / (double)tensors;
    msgpack_zone_free(other.zone);
    free(other.bytes);
    tmsg_map_destroy(other.map);
    return ns;
}

double bench_header_msgpack(size_t tensors, unsigned rounds)
{
    return measure(tensors, rounds, msgpack_round);
}

double bench_header_safetensors(size_t tensors, unsigned rounds)
{
    return measure(tensors, rounds, safetensors_round);
}
