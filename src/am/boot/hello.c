/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/hello.h"

#include <sodium.h>
#include <string.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/limits.h"
#include "serialize/header.h"

#define FIELD_HEADER_BYTES 4 /* u16 type, u16 length */

typedef enum {
    UINT,  /* as wide on the wire as in the struct */
    BYTES, /* all of them */
    TEXT   /* up to the NUL */
} form_t;

typedef struct {
    uint16_t type;
    form_t form;
    bool required;
    size_t offset;
    size_t bytes; /* size of the member in the struct */
    const char *name;
} field_t;

#define FIELD(type, form, required, member)                                    \
    {                                                                          \
        type, form, required, offsetof(tmsg_hello_t, member),                  \
            sizeof(((tmsg_hello_t *)NULL)->member), #member                    \
    }

/* The fields in the order of the wire: types ascend. */
static const field_t fields[] = {
    FIELD(1, UINT, true, wire_version),
    FIELD(2, UINT, true, ucx_major),
    FIELD(3, UINT, true, ucx_minor),
    FIELD(4, UINT, true, ucx_patch),
    FIELD(5, BYTES, true, instance_id),
    FIELD(6, UINT, true, uid),
    FIELD(7, UINT, true, pid),
    FIELD(8, TEXT, false, host),
    FIELD(9, TEXT, false, boot_id),
    FIELD(10, UINT, false, ns_pid),
    FIELD(11, UINT, false, ns_ipc),
    FIELD(12, UINT, false, ns_mnt),
    FIELD(13, UINT, false, ns_user),
    FIELD(14, UINT, false, ns_net),
    FIELD(15, UINT, true, max_am_header),
    FIELD(16, UINT, true, queue_depth),
    FIELD(17, UINT, false, features),
    FIELD(18, UINT, false, tcp_tx_seg),
    FIELD(19, UINT, false, tcp_rx_seg),
    FIELD(20, UINT, false, posix_seg),
    FIELD(21, UINT, true, max_tensors),
    FIELD(22, UINT, true, max_ndim),
    FIELD(23, UINT, true, max_name_bytes),
    FIELD(24, UINT, true, max_metadata_bytes),
    FIELD(25, UINT, true, max_header_bytes),
    FIELD(26, UINT, true, max_message_bytes),
    FIELD(27, UINT, true, ucx_id),
    FIELD(28, UINT, false, schema_slots),
    FIELD(29, UINT, false, schema_bytes),
    FIELD(30, UINT, false, checksums),
    FIELD(31, UINT, false, max_metadata_keys),
    FIELD(32, UINT, false, heartbeat_ms),
    FIELD(33, UINT, false, fragments),
    FIELD(34, UINT, false, aborts),
    FIELD(35, UINT, false, channels),
    FIELD(36, UINT, false, eager_bytes),
    FIELD(37, UINT, false, resume_ms),
    FIELD(38, UINT, false, resumes),
    FIELD(40, UINT, false, subscribe),
    FIELD(41, UINT, false, admission),
    FIELD(42, BYTES, false, nonce),
    FIELD(43, TEXT, false, near_end),
    FIELD(44, TEXT, false, far_end),
    FIELD(45, TEXT, false, devices),
    FIELD(46, UINT, false, memory),
    FIELD(47, UINT, false, gid),
    FIELD(48, UINT, false, caps),
    FIELD(49, UINT, false, caps_used),
    FIELD(50, UINT, false, descriptor),
    FIELD(51, UINT, false, carrier),
};

#define SPARED 42 /* first type that is left out if it is empty */
#define FIELDS (sizeof(fields) / sizeof(fields[0]))
_Static_assert(FIELDS <= 64, "decoder_t.seen has a bit for each");

static bool is_printable(char c) { return c > ' ' && c <= '~'; }

static uint64_t get_member(const uint8_t *member, size_t bytes)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;

    switch (bytes) {
    case sizeof(u16):
        memcpy(&u16, member, sizeof(u16));
        return u16;
    case sizeof(u32):
        memcpy(&u32, member, sizeof(u32));
        return u32;
    case sizeof(u64):
        memcpy(&u64, member, sizeof(u64));
        return u64;
    default:
        return *member;
    }
}

static void set_member(uint8_t *member, size_t bytes, uint64_t value)
{
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value;

    switch (bytes) {
    case sizeof(u16):
        memcpy(member, &u16, sizeof(u16));
        break;
    case sizeof(u32):
        memcpy(member, &u32, sizeof(u32));
        break;
    case sizeof(value):
        memcpy(member, &value, sizeof(value));
        break;
    default:
        *member = (uint8_t)value;
        break;
    }
}

static size_t bytes_on_wire(const field_t *field, const uint8_t *member)
{
    return field->form == TEXT ? strnlen((const char *)member, field->bytes - 1)
                               : field->bytes;
}

static bool is_spared(const field_t *field, const uint8_t *member)
{
    return field->type >= SPARED && sodium_is_zero(member, field->bytes);
}

tmsg_status_t tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                size_t capacity, size_t *bytes_p)
{
    uint8_t *to = buffer;
    size_t left = capacity;

    for (const field_t *field = fields; field < fields + FIELDS; field++) {
        const uint8_t *member = (const uint8_t *)hello + field->offset;
        size_t bytes = bytes_on_wire(field, member);

        if (is_spared(field, member)) {
            continue;
        }
        if (left < FIELD_HEADER_BYTES + bytes) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "a hello does not fit in %zu bytes",
                                  capacity);
        }
        to = tmsg_put_le(to, field->type, 2);
        to = tmsg_put_le(to, bytes, 2);
        if (field->form == UINT) {
            tmsg_put_le(to, get_member(member, bytes), (unsigned)bytes);
        } else {
            memcpy(to, member, bytes);
        }
        to += bytes;
        left -= FIELD_HEADER_BYTES + bytes;
    }
    *bytes_p = capacity - left;
    return TMSG_OK;
}

typedef struct {
    const uint8_t *data; /* the next field */
    size_t left;
    uint16_t type; /* type of the latest field, 0 before the first */
    uint64_t seen; /* bit i: fields[i] has come */
    tmsg_hello_t hello;
} decoder_t;

static bool has_other_wire(const decoder_t *decoder)
{
    return decoder->hello.wire_version != TMSG_WIRE_VERSION;
}

/* Stores a value. False: the value does not have the field's form. */
static bool store_field(const field_t *field, const uint8_t *value,
                        size_t bytes, tmsg_hello_t *hello)
{
    uint8_t *member = (uint8_t *)hello + field->offset;

    if (field->form != TEXT && bytes != field->bytes) {
        return false;
    }
    if (field->form == UINT) {
        set_member(member, bytes, tmsg_get_le(value, (unsigned)bytes));
        return true;
    }
    for (size_t i = 0; field->form == TEXT && i < bytes; i++) {
        if (i + 1 >= field->bytes || !is_printable((char)value[i])) {
            return false;
        }
    }
    memcpy(member, value, bytes);
    return true;
}

static tmsg_status_t take_value(decoder_t *decoder, const uint8_t *value,
                                size_t bytes)
{
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].type != decoder->type) {
            continue;
        }
        if (store_field(&fields[i], value, bytes, &decoder->hello)) {
            decoder->seen |= UINT64_C(1) << i;
        } else if (decoder->type == 1 || !has_other_wire(decoder)) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "hello: %s has an invalid value of %zu bytes",
                                  fields[i].name, bytes);
        }
        break;
    }
    return TMSG_OK;
}

static tmsg_status_t take_field(decoder_t *decoder)
{
    unsigned type;
    size_t bytes;
    const uint8_t *value;

    if (decoder->left < FIELD_HEADER_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "hello: cut off after field %u", decoder->type);
    }
    type = (unsigned)tmsg_get_le(decoder->data, 2);
    bytes = (size_t)tmsg_get_le(decoder->data + 2, 2);
    if (type <= decoder->type) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "hello: field %u comes after field %u", type,
                              decoder->type);
    }
    if (decoder->type == 0 && type != 1) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "hello: begins with field %u, not with the wire "
                              "version",
                              type);
    }
    if (bytes > decoder->left - FIELD_HEADER_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "hello: field %u says %zu bytes, %zu are left",
                              type, bytes, decoder->left - FIELD_HEADER_BYTES);
    }
    value = decoder->data + FIELD_HEADER_BYTES;
    decoder->type = (uint16_t)type;
    decoder->data += FIELD_HEADER_BYTES + bytes;
    decoder->left -= FIELD_HEADER_BYTES + bytes;
    return take_value(decoder, value, bytes);
}

/* Checks the peer's credits. Without credit nothing could be sent; beyond half
 * of their range sequence numbers have no order. */
static tmsg_status_t check_depth(uint32_t queue_depth)
{
    if (queue_depth == 0 || queue_depth > INT32_MAX) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "hello: queue_depth %u is not within 1 to %d",
                              queue_depth, INT32_MAX);
    }
    return TMSG_OK;
}

/* Returns how many channels both sides can use: a peer has at least one, and no
 * more than we offer. */
static uint16_t usable_channels(uint16_t channels)
{
    return channels == 0                   ? 1
           : channels > TMSG_CHANNELS_MOST ? TMSG_CHANNELS_MOST
                                           : channels;
}

tmsg_status_t tmsg_hello_decode(const void *data, size_t bytes,
                                tmsg_hello_t *hello_p)
{
    decoder_t decoder = {
        .data = data,
        .left = bytes,
        .hello.max_metadata_keys = TMSG_METADATA_KEYS_USUAL,
        .hello.channels = 1,
        .hello.eager_bytes = UINT64_MAX,
        .hello.admission = TMSG_HELLO_NO_ADMISSION,
    };
    tmsg_status_t status =
        bytes > 0 ? TMSG_OK
                  : tmsg_error_set(TMSG_ERR_MALFORMED, "hello: it is empty");

    while (status == TMSG_OK && decoder.left > 0) {
        status = take_field(&decoder);
    }
    for (size_t i = 0;
         status == TMSG_OK && !has_other_wire(&decoder) && i < FIELDS; i++) {
        if (fields[i].required && !(decoder.seen & UINT64_C(1) << i)) {
            status = tmsg_error_set(TMSG_ERR_MALFORMED, "hello: no %s",
                                    fields[i].name);
        }
    }
    if (status == TMSG_OK && !has_other_wire(&decoder)) {
        status = check_depth(decoder.hello.queue_depth);
    }
    decoder.hello.channels = usable_channels(decoder.hello.channels);
    if (status == TMSG_OK) {
        *hello_p = decoder.hello;
    }
    return status;
}

tmsg_status_t tmsg_hello_check_stream(const tmsg_hello_t *mine,
                                      const tmsg_hello_t *theirs)
{
    return mine->wire_version == theirs->wire_version
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                                "peer speaks wire version %u, this side %u",
                                theirs->wire_version, mine->wire_version);
}

static tmsg_status_t check_versions(const tmsg_hello_t *mine,
                                    const tmsg_hello_t *theirs)
{
    tmsg_status_t status = tmsg_hello_check_stream(mine, theirs);

    if (status != TMSG_OK) {
        return status;
    }
    if (mine->ucx_major != theirs->ucx_major ||
        mine->ucx_minor != theirs->ucx_minor) {
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "peer runs UCX %u.%u.%u, this side UCX "
                              "%u.%u.%u: this pair cannot work together",
                              theirs->ucx_major, theirs->ucx_minor,
                              theirs->ucx_patch, mine->ucx_major,
                              mine->ucx_minor, mine->ucx_patch);
    }
    return TMSG_OK;
}

/* Checks that what one side's TCP sends fits in what the other's accepts. */
static tmsg_status_t check_tcp(const tmsg_hello_t *mine,
                               const tmsg_hello_t *theirs)
{
    if (mine->tcp_rx_seg != 0 && theirs->tcp_tx_seg > mine->tcp_rx_seg) {
        return tmsg_error_set(
            TMSG_ERR_INCOMPATIBLE,
            "peer has UCX_TCP_TX_SEG_SIZE=%llu, more than UCX_TCP_RX_SEG_SIZE="
            "%llu of this side",
            (unsigned long long)theirs->tcp_tx_seg,
            (unsigned long long)mine->tcp_rx_seg);
    }
    if (theirs->tcp_rx_seg != 0 && mine->tcp_tx_seg > theirs->tcp_rx_seg) {
        return tmsg_error_set(
            TMSG_ERR_INCOMPATIBLE,
            "peer has UCX_TCP_RX_SEG_SIZE=%llu, less than UCX_TCP_TX_SEG_SIZE="
            "%llu of this side",
            (unsigned long long)theirs->tcp_rx_seg,
            (unsigned long long)mine->tcp_tx_seg);
    }
    return TMSG_OK;
}

static tmsg_status_t check_posix(const tmsg_hello_t *mine,
                                 const tmsg_hello_t *theirs)
{
    if (mine->posix_seg == 0 || theirs->posix_seg == 0 ||
        mine->posix_seg == theirs->posix_seg) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                          "peer has UCX_POSIX_SEG_SIZE=%llu, this side %llu: "
                          "shared memory needs the same",
                          (unsigned long long)theirs->posix_seg,
                          (unsigned long long)mine->posix_seg);
}

tmsg_status_t tmsg_hello_check(const tmsg_hello_t *mine,
                               const tmsg_hello_t *theirs, bool shm_only)
{
    tmsg_status_t status = check_versions(mine, theirs);
    char why[128];
    bool shared;

    if (status != TMSG_OK) {
        return status;
    }
    shared = tmsg_hello_same_machine(mine, theirs, why, sizeof(why));
    if (shm_only && !shared) {
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "unix:// needs memory shared with the peer, "
                              "which is ruled out: %s",
                              why);
    }
    if (shared) {
        status = check_posix(mine, theirs);
    }
    if (status == TMSG_OK && !shm_only) {
        status = check_tcp(mine, theirs);
    }
    return status;
}
