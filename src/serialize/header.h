/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/header.h - a message's header: preamble and body as bytes. The
 * format is docs/wire-format.md. */
#ifndef TMSG_SERIALIZE_HEADER_H
#define TMSG_SERIALIZE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/map.h>

#define TMSG_WIRE_VERSION 0    /* of the bytes described here */
#define TMSG_PREAMBLE_BYTES 33 /* as we write it, policy byte included */
#define TMSG_PREAMBLE_MAP 1    /* the kind whose body is a map */
#define TMSG_PREAMBLE_SHORT 32 /* the shortest form read: no policy byte */

/* The policy byte; the values of tmsg_policy_t. */
#define TMSG_PREAMBLE_HOST_FALLBACK 0
#define TMSG_PREAMBLE_STRICT 1

/* Flags of the preamble. */
#define TMSG_HEADER_SPILLED 0x01   /* the body heads the payload */
#define TMSG_HEADER_ACKED 0x02     /* the sender waits for an acknowledgement */
#define TMSG_HEADER_READ 0x08      /* the receiver reads the payload itself */
#define TMSG_HEADER_UNORDERED 0x10 /* may be delivered before its turn */
#define TMSG_HEADER_CHARGED 0x20   /* counted against the receiver's window */
#define TMSG_HEADER_PULLED 0x40    /* its parts wait until they are asked for */

/* Every field of the preamble, in host form. */
typedef struct {
    uint8_t version;
    uint8_t bytes; /* of the preamble itself, as its writer had it */
    uint8_t kind;  /* message kinds belong to src/am */
    uint8_t flags; /* TMSG_HEADER_* */
    uint16_t channel;
    uint32_t message_id;
    uint32_t endpoint_id; /* the receiver's name for this connection */
    uint32_t sequence;    /* of the channel, modulo 2^32 */
    uint32_t body_bytes;
    uint64_t payload_bytes; /* the spilled body, if any, included */
    uint8_t policy;         /* TMSG_PREAMBLE_*, as above */
} tmsg_preamble_t;

/* Writes TMSG_PREAMBLE_BYTES; version and bytes are filled in by us. */
void tmsg_preamble_encode(const tmsg_preamble_t *preamble, uint8_t *buffer);

/* Reads a preamble of any length >= TMSG_PREAMBLE_SHORT: what it lacks takes
 * its default, what it has beyond ours is skipped. Checks magic, version,
 * lengths (the body must lie inside `bytes` unless spilled). Errors: MALFORMED,
 * UNSUPPORTED (critical flags, policy), INCOMPATIBLE (names both versions). */
tmsg_status_t tmsg_preamble_decode(const void *header, size_t bytes,
                                   tmsg_preamble_t *preamble_p);

/* Whom a preamble is for that was refused; false where its magic, version or
 * length are wrong, and it says nothing. */
bool tmsg_preamble_names(const void *header, size_t bytes, uint32_t *id_p);

/* What follows is for who sends or receives like messages again and again: a
 * header once more, but for the two numbers that no two of them share. */

/* Whom a header is for, if it is long enough to say so; nothing is checked. */
bool tmsg_preamble_peek(const void *header, size_t bytes, uint32_t *id_p,
                        uint16_t *channel_p);

/* Whether a header of `bytes`, TMSG_PREAMBLE_SHORT at least, is as another one
 * of as many, both with what is behind the preamble. Then it decodes as that
 * one did, but for message_id and sequence, which it gives. */
bool tmsg_preamble_repeats(const uint8_t *before, const void *header,
                           size_t bytes, uint32_t *message_id_p,
                           uint32_t *sequence_p);

/* Makes an encoded header that of another message; whether it is that one's. */
void tmsg_preamble_renumber(uint8_t *header, uint32_t message_id,
                            uint32_t sequence);
bool tmsg_preamble_has_numbers(const uint8_t *header, uint32_t message_id,
                               uint32_t sequence);

typedef struct tmsg_checksum tmsg_checksum_t; /* serialize/checksum.h */

#define TMSG_SCHEMA_SLOTS_MAX 256   /* a slot's number is a byte */
#define TMSG_SCHEMA_VARYING_MAX 256 /* extents of one schema */

/* How a body says what its tensors are. */
typedef enum {
    TMSG_SCHEMA_NONE = 0,    /* in full */
    TMSG_SCHEMA_DEFINES = 1, /* in full, to be kept in a slot */
    TMSG_SCHEMA_REFERS = 2   /* by a slot, not at all here */
} tmsg_schema_form_t;

typedef struct {
    tmsg_schema_form_t form;
    uint8_t slot;
    uint8_t generation;
    /* Integers of msgpack, one behind the other: which extents vary, or what
     * they are. Decoded, they lie in the body and are all integers; those of a
     * definition fit its tensors. */
    uint32_t count;
    const uint8_t *numbers;
    size_t numbers_bytes;
} tmsg_schema_use_t;

#define TMSG_SPLIT_CHUNK_LEAST 4096

/* Which tensors travel as parts, messages of their own, and whether what is
 * left does, too, in slices. All zero bits: none, and it does not. */
typedef struct {
    uint64_t large; /* those of so many bytes or more; 0: none at all */
    uint64_t chunk; /* bytes of a part, but for the last one of a tensor */
    /* Bit i % 8 of byte i / 8: tensor i, too. Decoded, they lie in the body. */
    const uint8_t *others;
    size_t others_bytes;
    uint64_t slice; /* bytes of a slice, but for the last; 0: none */
} tmsg_split_t;

#define TMSG_BODY_SECTIONS 2 /* tensors, and metadata */

/* What the bodies of one map for several peers have in common, encoded by the
 * first that needs it. The map must stay as it is meanwhile. All zero bits:
 * nothing yet. Not thread-safe. */
typedef struct {
    uint8_t *data[TMSG_BODY_SECTIONS];
    size_t bytes[TMSG_BODY_SECTIONS];
    unsigned encoded; /* how often a section was */
} tmsg_body_shared_t;

void tmsg_body_shared_free(tmsg_body_shared_t *shared);

/* What a body holds beside a map. All zero bits: nothing. */
typedef struct {
    tmsg_body_shared_t *shared;      /* NULL: this body is the only one */
    const tmsg_checksum_t *checksum; /* NULL: no checksums */
    /* One for each tensor, in order; decoded, they lie in the body. Need not be
     * known while a body is only measured. */
    const uint8_t *checksums;
    size_t checksum_count;    /* of those decoded */
    tmsg_schema_use_t schema; /* serialize/schema.h makes and reads it */
    tmsg_split_t split;
    /* Whose metadata, no more, comes beside that of the map, and in place of
     * it where both have a key; NULL: none. Only to encode, and with nothing
     * shared. */
    const tmsg_map_t *more;
} tmsg_body_extra_t;

/* How many keys a body has of both (each may be NULL), those of the same name
 * once. */
size_t tmsg_body_count_keys(const tmsg_map_t *map, const tmsg_map_t *more);

/* Encodes names, dtypes, shapes, strides, devices, metadata and *extra (which
 * may be NULL) as a msgpack body. Writes at most `bound` bytes to `buffer` and
 * always reports in *needed_p how many the whole takes; only if that is
 * <= bound is the buffer filled. buffer may be NULL with bound 0. No
 * allocation, but for what is shared, which can do without. A tensor that is
 * neither in C order nor dense is described as packed C order, but broadcast
 * where it is. Errors:
 * LIMIT_EXCEEDED (a body over 4 GiB - 1). */
tmsg_status_t tmsg_body_encode(const tmsg_map_t *map,
                               const tmsg_body_extra_t *extra, void *buffer,
                               size_t bound, size_t *needed_p);

/* The strides that a body says of a tensor; NULL: none, for C order is the
 * default, and of what is packed for lying otherwise only where it is broadcast
 * is kept. May use `room` for them, which is for TMSG_NDIM_MAX. */
const int64_t *tmsg_body_strides(const tmsg_tensor_t *tensor, int64_t *room);

/* Decodes a body into an empty map, whose tensors have no data yet. Trusts
 * nothing; reads exactly `bytes`. With extra_p NULL, a body that holds more
 * than a map is UNSUPPORTED, but for a definition, which is passed over. Of a
 * body that refers to a schema the map gets only metadata, and checksums and
 * parts are not held against it. On error the map is left empty, and of
 * *extra_p only the schema counts, as far as it was read: a definition is
 * answered. Errors: MALFORMED, LIMIT_EXCEEDED, UNSUPPORTED, NO_MEMORY, each
 * naming the tensor or key and what was wrong with it. */
tmsg_status_t tmsg_body_decode(const void *body, size_t bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map,
                               tmsg_body_extra_t *extra_p);

/* A payload begins in memory aligned to this, and a spilled body is padded to a
 * multiple of it. */
#define TMSG_PAYLOAD_ALIGNMENT 64

/* Bytes that a body takes with its padding when it is spilled. */
uint64_t tmsg_layout_spill(uint64_t body_bytes);

/* How tensors lie in the payload: in map order, each at the next multiple of
 * its alignment, gaps zeroed. An empty tensor takes no room and no gap. */
uint64_t tmsg_layout_alignment(tmsg_dtype_t dtype); /* 16, 32 or 64 */
uint64_t tmsg_layout_next(uint64_t offset, tmsg_dtype_t dtype,
                          uint64_t tensor_bytes); /* where it begins */

/* Bytes of the whole payload without a spilled body, and those that there would
 * be if nothing were broadcast, which are what the limit is for: whoever copies
 * such a tensor writes it out. Errors: LIMIT_EXCEEDED (beyond
 * limits->message_bytes). */
tmsg_status_t tmsg_layout_measure(const tmsg_map_t *map,
                                  const tmsg_limits_t *limits,
                                  uint64_t *bytes_p, uint64_t *out_p);
tmsg_status_t tmsg_layout_bytes(const tmsg_map_t *map,
                                const tmsg_limits_t *limits, uint64_t *bytes_p);

/* What a receiver does with a payload, in this order. */

/* Bytes of a payload before its tensors: the spilled body, if any, and its
 * padding. */
uint64_t tmsg_payload_spill(const tmsg_preamble_t *head);

/* Whether a payload of so many bytes, which nobody has read yet, is the one
 * that the preamble announces, and within the limits. Then the body lies in its
 * first tmsg_payload_spill() bytes. Errors: MALFORMED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_payload_check(const tmsg_preamble_t *head,
                                 uint64_t payload_bytes,
                                 const tmsg_limits_t *limits);

/* Whether the tensors of a decoded body, but for those that travel as parts
 * (split NULL: none), fill what is behind it to the byte. The limits are for
 * all of them. Errors: MALFORMED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_payload_check_map(const tmsg_preamble_t *head,
                                     const tmsg_map_t *map,
                                     const tmsg_split_t *split,
                                     const tmsg_limits_t *limits);

/* Gives each tensor that has none yet its data, one behind the other from
 * `base` on as they lie in a payload; all of them then make one, or nothing
 * where base is NULL. */
void tmsg_payload_place(tmsg_map_t *map, void *base);

#endif
