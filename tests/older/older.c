/* SPDX-License-Identifier: BSD-3-Clause */
/* The frozen codec behind today's functions. This file may change with them;
 * what it calls may not. */
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "older/codec.h"
#include "older/frozen.h"
#include "older/minimal.h"
#include "support/must.h"

_Static_assert(TMSG_PREAMBLE_BYTES == FROZEN_PREAMBLE_BYTES,
               "src/am is to leave as much room as is written");

static codec_counts_t counts;

codec_counts_t codec_counts(void) { return counts; }

bool codec_is_minimal(void) { return true; }

void __wrap_tmsg_preamble_encode(const tmsg_preamble_t *preamble,
                                 uint8_t *buffer)
{
    const frozen_preamble_t frozen = {
        .kind = preamble->kind,
        .flags = preamble->flags,
        .channel = preamble->channel,
        .message_id = preamble->message_id,
        .endpoint_id = preamble->endpoint_id,
        .sequence = preamble->sequence,
        .body_bytes = preamble->body_bytes,
        .payload_bytes = preamble->payload_bytes,
    };

    frozen_write_preamble(&frozen, buffer);
}

static tmsg_status_t refuse(const char *error)
{
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "the older peer reads: %s",
                          error);
}

tmsg_status_t __wrap_tmsg_preamble_decode(const void *header, size_t bytes,
                                          tmsg_preamble_t *preamble_p)
{
    frozen_preamble_t frozen;
    const char *error = frozen_read_preamble(header, bytes, &frozen);

    if (error != NULL) {
        return refuse(error);
    }
    *preamble_p = (tmsg_preamble_t){
        .bytes = frozen.length,
        .kind = frozen.kind,
        .flags = frozen.flags,
        .channel = frozen.channel,
        .message_id = frozen.message_id,
        .endpoint_id = frozen.endpoint_id,
        .sequence = frozen.sequence,
        .body_bytes = frozen.body_bytes,
        .payload_bytes = frozen.payload_bytes,
        .policy = frozen.policy,
    };
    return TMSG_OK;
}

tmsg_status_t __wrap_tmsg_body_encode(const tmsg_map_t *map,
                                      const tmsg_body_extra_t *extra,
                                      void *buffer, size_t bound,
                                      size_t *needed_p)
{
    (void)extra; /* it knows of nothing beside a map */
    *needed_p = minimal_body(map, NULL);
    if (*needed_p <= bound) {
        minimal_body(map, buffer);
        counts.written++;
    }
    return TMSG_OK;
}

static bool add_tensor(void *arg, const frozen_tensor_t *frozen)
{
    const tmsg_tensor_t tensor = {
        .device = {frozen->device[0], frozen->device[1]},
        .dtype = {frozen->code, frozen->bits, frozen->lanes},
        .ndim = (int32_t)frozen->ndim,
        .shape = (int64_t *)(uintptr_t)frozen->shape,
        .strides =
            frozen->has_strides ? (int64_t *)(uintptr_t)frozen->strides : NULL,
    };

    return tmsg_map_append(arg, frozen->name, frozen->name_bytes, &tensor) ==
           TMSG_OK;
}

static bool add_meta(void *arg, const frozen_meta_t *frozen)
{
    static const tmsg_meta_type_t types[] = {
        [FROZEN_BOOL] = TMSG_META_TYPE_BOOL,
        [FROZEN_I64] = TMSG_META_TYPE_I64,
        [FROZEN_F64] = TMSG_META_TYPE_F64,
        [FROZEN_STRING] = TMSG_META_TYPE_STRING,
        [FROZEN_BYTES] = TMSG_META_TYPE_BYTES,
    };
    tmsg_meta_t meta = {.type = types[frozen->type]};

    switch (frozen->type) {
    case FROZEN_BOOL:
        meta.boolean = frozen->integer != 0;
        break;
    case FROZEN_I64:
        meta.i64 = frozen->integer;
        break;
    case FROZEN_F64:
        meta.f64 = frozen->number;
        break;
    default:
        meta.data = frozen->data;
        meta.bytes = frozen->bytes;
    }
    return tmsg_map_append_meta(arg, frozen->key, frozen->key_bytes, &meta) ==
           TMSG_OK;
}

tmsg_status_t __wrap_tmsg_body_decode(const void *body, size_t bytes,
                                      const tmsg_limits_t *limits,
                                      tmsg_map_t *map,
                                      tmsg_body_extra_t *extra_p)
{
    const frozen_reader_t reader = {add_tensor, add_meta, map};
    const char *error = frozen_read_body(body, bytes, &reader);

    (void)limits;
    if (error != NULL) {
        tmsg_map_clear(map);
        return refuse(error);
    }
    *extra_p = (tmsg_body_extra_t){0};
    counts.read++;
    return TMSG_OK;
}

/* The fields that were known then, by type. */
#define NUMBERS(field)                                                         \
    field(2, ucx_major) field(3, ucx_minor) field(4, ucx_patch) field(6, uid)  \
        field(7, pid) field(10, ns_pid) field(11, ns_ipc) field(12, ns_mnt)    \
            field(13, ns_user) field(14, ns_net) field(15, max_am_header)      \
                field(16, queue_depth) field(17, features)                     \
                    field(18, tcp_tx_seg) field(19, tcp_rx_seg)                \
                        field(20, posix_seg) field(21, max_tensors)            \
                            field(22, max_ndim) field(23, max_name_bytes)      \
                                field(24, max_metadata_bytes)                  \
                                    field(25, max_header_bytes)                \
                                        field(26, max_message_bytes)           \
                                            field(27, ucx_id)

tmsg_status_t __wrap_tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                       size_t capacity, size_t *bytes_p)
{
    frozen_hello_t frozen = {.number = {[1] = hello->wire_version}};

    must_true(capacity >= TMSG_HELLO_BYTES_MAX);
#define COPY(type, member) frozen.number[type] = hello->member;
    NUMBERS(COPY)
#undef COPY
    frozen.number[17] &= ~TMSG_FEATURE_READS; /* whose flag it refuses */
    memcpy(frozen.instance_id, hello->instance_id, sizeof(frozen.instance_id));
    strcpy(frozen.host, hello->host);
    strcpy(frozen.boot_id, hello->boot_id);
    *bytes_p = frozen_write_hello(&frozen, buffer);
    return TMSG_OK;
}

tmsg_status_t __wrap_tmsg_hello_decode(const void *data, size_t bytes,
                                       tmsg_hello_t *hello_p)
{
    frozen_hello_t frozen;
    const char *error = frozen_read_hello(data, bytes, &frozen);

    if (error != NULL) {
        return refuse(error);
    }
    memset(hello_p, 0, sizeof(*hello_p));
    hello_p->channels = 1;
    hello_p->eager_bytes = UINT64_MAX; /* it counts none */
    hello_p->wire_version = (uint8_t)frozen.number[1];
#define COPY(type, member)                                                     \
    hello_p->member = (__typeof__(hello_p->member))frozen.number[type];
    NUMBERS(COPY)
#undef COPY
    memcpy(hello_p->instance_id, frozen.instance_id,
           sizeof(frozen.instance_id));
    strcpy(hello_p->host, frozen.host);
    strcpy(hello_p->boot_id, frozen.boot_id);
    return TMSG_OK;
}
