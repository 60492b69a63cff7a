/* SPDX-License-Identifier: BSD-3-Clause */
/* A writer that is not there yet: a longer preamble, keys, options and elements
 * that nobody knows. It reads as today's does. Of the flags all optional ones
 * are in use, so that what is new stands behind the fields of today. */
#include <string.h>

#include "core/bytes.h"
#include "core/map.h"
#include "core/tensor.h"
#include "older/codec.h"
#include "older/exchange.h"
#include "older/pack.h"

enum {
    UNKNOWN_KEY = 100,
    UNKNOWN_CRITICAL_KEY = -100,
    UNKNOWN_HELLO_FIELD = 1000
};

_Static_assert(TMSG_PREAMBLE_BYTES > TODAYS_PREAMBLE_BYTES, "it is newer");

static codec_counts_t counts;

codec_counts_t codec_counts(void) { return counts; }

bool codec_is_minimal(void) { return false; }

void __wrap_tmsg_preamble_encode(const tmsg_preamble_t *preamble,
                                 uint8_t *buffer)
{
    memset(buffer, 0xee, TMSG_PREAMBLE_BYTES);
    __real_tmsg_preamble_encode(preamble, buffer);
    buffer[3] = TMSG_PREAMBLE_BYTES;
}

static void pack_unknown(pack_t *pack)
{
    pack_array(pack, 3);
    pack_integer(pack, -70000);
    pack_string(pack, "from later", 10);
    pack_map(pack, 1);
    pack_string(pack, "nil", 3);
    pack_number(pack, 0xc0, 0, 0);
}

static void pack_extents(pack_t *pack, const int64_t *extents, int32_t count)
{
    pack_array(pack, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        pack_integer(pack, extents[i]);
    }
}

/* [name, code, bits, lanes, shape, options, and two more] */
static void pack_tensor(pack_t *pack, const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *tensor = &entry->tensor;
    int64_t room[TMSG_NDIM_MAX];
    const int64_t *strides = tmsg_body_strides(tensor, room);

    pack_array(pack, 8);
    pack_string(pack, entry->name, entry->name_bytes);
    pack_integer(pack, tensor->dtype.code);
    pack_integer(pack, tensor->dtype.bits);
    pack_integer(pack, tensor->dtype.lanes);
    pack_extents(pack, tensor->shape, tensor->ndim);
    pack_map(pack, strides != NULL ? 2 : 1);
    pack_integer(pack, UNKNOWN_KEY);
    pack_unknown(pack);
    if (strides != NULL) {
        pack_integer(pack, 1);
        pack_extents(pack, strides, tensor->ndim);
    }
    pack_unknown(pack);
    pack_number(pack, 0xc3, 0, 0);
}

static void pack_meta(pack_t *pack, const tmsg_meta_t *meta)
{
    uint64_t bits;

    switch (meta->type) {
    case TMSG_META_TYPE_BOOL:
        pack_number(pack, meta->boolean ? 0xc3 : 0xc2, 0, 0);
        break;
    case TMSG_META_TYPE_I64:
        pack_integer(pack, meta->i64);
        break;
    case TMSG_META_TYPE_F64:
        memcpy(&bits, &meta->f64, sizeof(bits));
        pack_number(pack, 0xcb, bits, 8);
        break;
    case TMSG_META_TYPE_STRING:
        pack_string(pack, meta->data, meta->bytes);
        break;
    default:
        pack_number(pack, 0xc6, meta->bytes, 4);
        pack_raw(pack, meta->data, meta->bytes);
    }
}

static size_t write_body(const tmsg_map_t *map, uint8_t *to)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    bool critical = exchange_is_critical(map);
    pack_t pack = {to, 0};

    pack_map(&pack, critical ? 4 : 3);
    pack_integer(&pack, UNKNOWN_KEY);
    pack_unknown(&pack);
    pack_integer(&pack, 1);
    pack_array(&pack, tmsg_map_size(map));
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        pack_tensor(&pack, &tmsg_map_entries(map)[i]);
    }
    pack_integer(&pack, 2);
    pack_map(&pack, tmsg_map_meta_size(map));
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        pack_string(&pack, entries[i].key, entries[i].key_bytes);
        pack_meta(&pack, &entries[i].value);
    }
    if (critical) {
        pack_integer(&pack, UNKNOWN_CRITICAL_KEY);
        pack_unknown(&pack);
    }
    return pack.bytes;
}

tmsg_status_t __wrap_tmsg_body_encode(const tmsg_map_t *map,
                                      const tmsg_body_extra_t *extra,
                                      void *buffer, size_t bound,
                                      size_t *needed_p)
{
    (void)extra; /* it knows of nothing beside a map */
    *needed_p = write_body(map, NULL);
    if (*needed_p <= bound) {
        write_body(map, buffer);
        counts.written++;
    }
    return TMSG_OK;
}

tmsg_status_t __wrap_tmsg_body_decode(const void *body, size_t bytes,
                                      const tmsg_limits_t *limits,
                                      tmsg_map_t *map,
                                      tmsg_body_extra_t *extra_p)
{
    counts.read++;
    return __real_tmsg_body_decode(body, bytes, limits, map, extra_p);
}

/* Its bodies do not say what travels apart. */
tmsg_status_t __wrap_tmsg_hello_decode(const void *data, size_t bytes,
                                       tmsg_hello_t *hello_p)
{
    tmsg_status_t status = __real_tmsg_hello_decode(data, bytes, hello_p);

    if (status == TMSG_OK) {
        hello_p->fragments = 0;
    }
    return status;
}

tmsg_status_t __wrap_tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                       size_t capacity, size_t *bytes_p)
{
    static const char value[] = "what an older reader passes over";
    tmsg_status_t status =
        __real_tmsg_hello_encode(hello, buffer, capacity, bytes_p);
    uint8_t *to = (uint8_t *)buffer + *bytes_p;

    must_true(*bytes_p + 4 + sizeof(value) <= capacity);
    to = tmsg_put_le(to, UNKNOWN_HELLO_FIELD, 2);
    to = tmsg_put_le(to, sizeof(value), 2);
    memcpy(to, value, sizeof(value));
    *bytes_p += 4 + sizeof(value);
    return status;
}
