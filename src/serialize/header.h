/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/header.h - encodes and decodes the header of a message: preamble
 * and body. docs/wire/wire-format.md has the format. */
#ifndef TMSG_SERIALIZE_HEADER_H
#define TMSG_SERIALIZE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/map.h>

#define TMSG_WIRE_VERSION 0    /* version of the format */
#define TMSG_PREAMBLE_BYTES 33 /* bytes that the encoder writes */
#define TMSG_PREAMBLE_MAP 1    /* message kind whose body is a map */
#define TMSG_PREAMBLE_SHORT 32 /* shortest preamble: without policy byte */

/* The policy byte has the values of tmsg_policy_t. */
#define TMSG_PREAMBLE_HOST_FALLBACK 0
#define TMSG_PREAMBLE_STRICT 1

/* The field `flags` of the preamble is a set of these bits. */
#define TMSG_HEADER_SPILLED 0x01   /* the payload begins with the body */
#define TMSG_HEADER_ACKED 0x02     /* the sender waits for an acknowledgement */
#define TMSG_HEADER_READ 0x08      /* the receiver reads the payload itself */
#define TMSG_HEADER_UNORDERED 0x10 /* may be delivered before its turn */
#define TMSG_HEADER_CHARGED 0x20   /* counts against the receiver's window */
#define TMSG_HEADER_PULLED 0x40    /* its parts wait for the receiver's PULL */
#define TMSG_HEADER_LENT 0x80      /* it is a loan, to be given back */

/* Holds the fields of the preamble, in host byte order. */
typedef struct {
    uint8_t version;
    uint8_t bytes; /* bytes of the preamble as encoded */
    uint8_t kind;  /* message kind, see src/am/endpoint/kinds.h */
    uint8_t flags; /* TMSG_HEADER_* */
    uint16_t channel;
    uint32_t message_id;
    uint32_t endpoint_id; /* the receiver's name for this connection */
    uint32_t sequence;    /* number within the channel, modulo 2^32 */
    uint32_t body_bytes;
    uint64_t payload_bytes; /* includes a spilled body */
    uint8_t policy;         /* TMSG_PREAMBLE_HOST_FALLBACK or _STRICT */
} tmsg_preamble_t;

/* Writes TMSG_PREAMBLE_BYTES bytes. Ignores preamble->version and
 * preamble->bytes: the encoder fills them in. */
void tmsg_preamble_encode(const tmsg_preamble_t *preamble, uint8_t *buffer);

/* Reads a preamble of TMSG_PREAMBLE_SHORT bytes or more. Fields that it lacks
 * get their defaults. Bytes beyond the fields known here are skipped. Checks
 * magic, version and lengths; the body must lie inside `bytes` unless it is
 * spilled. Errors: MALFORMED, UNSUPPORTED (critical flags, policy),
 * INCOMPATIBLE (names both versions). */
tmsg_status_t tmsg_preamble_decode(const void *header, size_t bytes,
                                   tmsg_preamble_t *preamble_p);

/* Reads the endpoint id of a preamble that tmsg_preamble_decode() has refused.
 * Returns false if magic, version or length is wrong, because the id then means
 * nothing. */
bool tmsg_preamble_names(const void *header, size_t bytes, uint32_t *id_p);

/* The next four functions serve callers that send or receive like messages
 * many times. The headers of such messages differ in message id and sequence
 * only. */

/* Reads the endpoint id and the channel of a header. Returns false if the
 * header is too short for them. Checks nothing else. */
bool tmsg_preamble_peek(const void *header, size_t bytes, uint32_t *id_p,
                        uint16_t *channel_p);

/* Returns whether a header equals `before` in all bytes, body included, except
 * message id and sequence. Both have `bytes` bytes, TMSG_PREAMBLE_SHORT or
 * more. If so, the header decodes as `before` did, except for these two
 * numbers, which are stored. */
bool tmsg_preamble_repeats(const uint8_t *before, const void *header,
                           size_t bytes, uint32_t *message_id_p,
                           uint32_t *sequence_p);

/* tmsg_preamble_renumber() writes message id and sequence into an encoded
 * header. tmsg_preamble_has_numbers() returns whether a header has them. */
void tmsg_preamble_renumber(uint8_t *header, uint32_t message_id,
                            uint32_t sequence);
bool tmsg_preamble_has_numbers(const uint8_t *header, uint32_t message_id,
                               uint32_t sequence);

typedef struct tmsg_checksum tmsg_checksum_t; /* serialize/checksum.h */

#define TMSG_SCHEMA_SLOTS_MAX 256   /* the number of a slot is one byte */
#define TMSG_SCHEMA_VARYING_MAX 256 /* varying extents of one schema */

/* Says how a body describes its tensors. */
typedef enum {
    TMSG_SCHEMA_NONE = 0,    /* the body describes all tensors */
    TMSG_SCHEMA_DEFINES = 1, /* all tensors; the receiver keeps them */
    TMSG_SCHEMA_REFERS = 2   /* the body names a slot */
} tmsg_schema_form_t;

typedef struct {
    tmsg_schema_form_t form;
    uint8_t slot;
    uint8_t generation;
    /* `numbers` has `count` msgpack integers, one after the other. In a
     * definition they say which extents vary. In a reference they are the
     * values of these extents. After decoding, `numbers` points into the body,
     * and all of them are integers; those of a definition fit its tensors. */
    uint32_t count;
    const uint8_t *numbers;
    size_t numbers_bytes;
} tmsg_schema_use_t;

#define TMSG_SPLIT_CHUNK_LEAST 4096

/* Says which tensors travel as parts, and whether the bytes of all other
 * tensors travel in slices. Parts and slices are messages of their own;
 * docs/wire/wire-format.md names them so, and src/am calls them fragments. If
 * all bits are zero, no tensor travels as parts, and there are no slices. */
typedef struct {
    uint64_t large; /* tensors from this size on travel as parts; 0: none */
    uint64_t chunk; /* bytes of a part; a tensor's last one may be shorter */
    /* Bit i % 8 of byte i / 8 says that tensor i travels as parts even if it is
     * smaller than `large`. After decoding, `others` points into the body. */
    const uint8_t *others;
    size_t others_bytes;
    uint64_t slice; /* bytes of a slice; the last may be shorter; 0: none */
    uint64_t
        others_chunk; /* bytes of a part of those in `others`; 0: `chunk` */
} tmsg_split_t;

/* Says where a tensor lies that is lent: in the segment with this number of the
 * connection, from this byte on. Both are 0 for a tensor without bytes. */
typedef struct {
    uint32_t segment;
    uint64_t offset;
} tmsg_lent_place_t;

/* Holds the places of the tensors of a loan, in order. If all bits are zero,
 * the body is of no loan. */
typedef struct {
    size_t count;                    /* places, one a tensor */
    const tmsg_lent_place_t *places; /* for the encoder */
    /* After decoding, `numbers` points into the body. It has two integers for
     * each place, none of them negative. */
    const uint8_t *numbers;
    size_t numbers_bytes;
} tmsg_lent_places_t;

#define TMSG_BODY_SECTIONS 2 /* the sections are tensors and metadata */

/* Holds the encoded sections that the bodies of one map for several peers
 * share. The first body that needs a section encodes it. The map must not
 * change meanwhile. If all bits are zero, nothing is encoded yet. The owner
 * frees the sections with tmsg_body_shared_free(). Not thread-safe. */
typedef struct {
    uint8_t *data[TMSG_BODY_SECTIONS];
    size_t bytes[TMSG_BODY_SECTIONS];
    unsigned encoded; /* number of times that a section was encoded */
} tmsg_body_shared_t;

void tmsg_body_shared_free(tmsg_body_shared_t *shared);

/* Holds what a body contains besides a map. If all bits are zero, that is
 * nothing. */
typedef struct {
    tmsg_body_shared_t *shared;      /* NULL: no other body shares sections */
    const tmsg_checksum_t *checksum; /* NULL: no checksums */
    /* `checksums` has one value for each tensor, in order. After decoding,
     * `checksums` points into the body. It may be NULL while a body is only
     * measured. */
    const uint8_t *checksums;
    size_t checksum_count;    /* number of checksums that were decoded */
    tmsg_schema_use_t schema; /* see serialize/schema.h */
    tmsg_split_t split;
    tmsg_lent_places_t lent; /* see serialize/lent_places.h */
    /* The metadata of this map are added to the metadata of the encoded map.
     * Where both have a key, the value of `more` is sent. Nothing else of
     * `more` is sent. NULL means none. Only the encoder reads it, and `shared`
     * must be NULL then. */
    const tmsg_map_t *more;
} tmsg_body_extra_t;

/* Returns the number of metadata keys of both maps. A key that both have counts
 * once. Each map may be NULL. */
size_t tmsg_body_count_keys(const tmsg_map_t *map, const tmsg_map_t *more);

/* Encodes names, dtypes, shapes, strides, devices, metadata and *extra as a
 * msgpack body. `extra` may be NULL. *needed_p is always the size of the whole
 * body. The buffer gets at most `bound` bytes; it contains the body only if
 * *needed_p <= bound. `buffer` may be NULL if `bound` is 0.
 *
 * A tensor that is neither dense nor a span is described as packed in C order;
 * its broadcast dimensions stay broadcast. Nothing is allocated except for
 * extra->shared. If that allocation fails, the section is encoded without it.
 * Errors: LIMIT_EXCEEDED (the body has more than 4 GiB - 1). */
tmsg_status_t tmsg_body_encode(const tmsg_map_t *map,
                               const tmsg_body_extra_t *extra, void *buffer,
                               size_t bound, size_t *needed_p);

/* Returns the strides that a body states for a tensor, or NULL if it states
 * none. C order is the default, so it needs none. Dense strides are returned as
 * they are. A tensor with other strides travels packed: if it is broadcast, its
 * strides are those of C order and 0; else NULL. The result is tensor->strides
 * or `room`, which has room for TMSG_NDIM_MAX strides. */
const int64_t *tmsg_body_strides(const tmsg_tensor_t *tensor, int64_t *room);

/* Decodes a body from an untrusted peer into an empty map, whose tensors have
 * no data yet. The body must take exactly `bytes` bytes. If `extra_p` is NULL,
 * a body that contains more than a map is UNSUPPORTED; only a definition is
 * skipped.
 *
 * If the body refers to a schema, the map gets only metadata, and checksums and
 * parts are not checked against tensors. On error the map is left empty. Of
 * *extra_p only the schema is then valid, as far as it was read, because a
 * receiver must answer a definition. Errors: MALFORMED, LIMIT_EXCEEDED,
 * UNSUPPORTED, NO_MEMORY. Each error names the tensor or key and says what is
 * wrong with it. */
tmsg_status_t tmsg_body_decode(const void *body, size_t bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map,
                               tmsg_body_extra_t *extra_p);

/* A payload begins in memory that is aligned to this number of bytes. A spilled
 * body is padded to a multiple of it. */
#define TMSG_PAYLOAD_ALIGNMENT 64

/* Returns the bytes that a spilled body takes with its padding. */
uint64_t tmsg_layout_spill(uint64_t body_bytes);

/* Tensors lie in the payload in map order. Each begins at the next multiple of
 * its alignment, and gaps are zeroed. An empty tensor takes no bytes and no
 * gap. tmsg_layout_alignment() returns the alignment of a dtype in bytes.
 * tmsg_layout_next() returns the offset of a tensor if the tensor before it
 * ends at `offset`. */
uint64_t tmsg_layout_alignment(tmsg_dtype_t dtype); /* 16, 32 or 64 */
uint64_t tmsg_layout_next(uint64_t offset, tmsg_dtype_t dtype,
                          uint64_t tensor_bytes);

/* tmsg_layout_measure() stores two sizes. *bytes_p is the size of the payload
 * without a spilled body. *out_p is the size that it would have if no tensor
 * were broadcast. limits->message_bytes is the upper limit of *out_p, because a
 * receiver that copies a broadcast tensor writes it out. tmsg_layout_bytes()
 * makes the same check and stores only *bytes_p. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_layout_measure(const tmsg_map_t *map,
                                  const tmsg_limits_t *limits,
                                  uint64_t *bytes_p, uint64_t *out_p);
tmsg_status_t tmsg_layout_bytes(const tmsg_map_t *map,
                                const tmsg_limits_t *limits, uint64_t *bytes_p);

/* A receiver calls the next four functions for each payload, in this order. */

/* Returns the bytes of a payload before its tensors: the spilled body, if any,
 * and its padding. */
uint64_t tmsg_payload_spill(const tmsg_preamble_t *head);

/* Checks that a payload of that size is the one that the preamble announces,
 * and is within the limits. A spilled body then lies in the first
 * tmsg_payload_spill() bytes. Reads no byte of the payload. Errors: MALFORMED,
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_payload_check(const tmsg_preamble_t *head,
                                 uint64_t payload_bytes,
                                 const tmsg_limits_t *limits);

/* Checks that the tensors of a decoded body fill the rest of the payload
 * exactly. Tensors that `split` sends as parts or slices do not count; `split`
 * may be NULL. The limits apply to all tensors. Errors: MALFORMED,
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_payload_check_map(const tmsg_preamble_t *head,
                                     const tmsg_map_t *map,
                                     const tmsg_split_t *split,
                                     const tmsg_limits_t *limits);

/* Works as tmsg_payload_check_map(), for a body that has the places of a loan:
 * the payload has no tensor. */
tmsg_status_t tmsg_payload_check_lent(const tmsg_preamble_t *head,
                                      const tmsg_map_t *map,
                                      const tmsg_limits_t *limits);

/* Places each tensor that has no data yet. These tensors lie from `base` on as
 * in a payload that contains nothing else. Does nothing if `base` is NULL. */
void tmsg_payload_place(tmsg_map_t *map, void *base);

#endif
