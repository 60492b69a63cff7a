/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/ucxx.h - the header of UCXX's active messages, and the map that
 * such a message is. The format is docs/ucxx.md. */
#ifndef TMSG_SERIALIZE_UCXX_H
#define TMSG_SERIALIZE_UCXX_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/map.h>

#define TMSG_UCXX_NAME "data" /* of a tensor that its sender did not name */
#define TMSG_UCXX_HOST 0      /* of memory types; all others are some device */

/* What we read of a header and write into one. The callback that it may name
 * is UCXX's alone. */
typedef struct {
    uint32_t memory_type; /* in the numbers of the sender's UCX */
    uint8_t policy;       /* the values of tmsg_policy_t */
    const void *user;     /* the application's header, inside the bytes read */
    size_t user_bytes;
} tmsg_ucxx_header_t;

/* Writes the header if it fits into `bound` bytes; always returns how many it
 * takes. */
size_t tmsg_ucxx_encode(const tmsg_ucxx_header_t *header, void *buffer,
                        size_t bound);

/* Reads a header: without a policy byte it means host fallback, and what comes
 * after the user header is skipped. Errors: MALFORMED. */
tmsg_status_t tmsg_ucxx_decode(const void *bytes, size_t count,
                               tmsg_ucxx_header_t *header_p);

/* Makes an empty map the one that a message of `payload_bytes` is: one tensor
 * without data yet, and the user header, if any, as metadata. On error the map
 * is left empty. Errors: MALFORMED (a user header that describes a tensor
 * wrongly, or another), LIMIT_EXCEEDED, UNSUPPORTED (dtype), NO_MEMORY. */
tmsg_status_t tmsg_ucxx_to_map(const tmsg_ucxx_header_t *header,
                               uint64_t payload_bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map);

/* The header for a map of one tensor, to be freed with free(): its user header
 * is the map's TMSG_META_UCXX_HEADER or, without that, describes the tensor.
 * Errors: UNSUPPORTED (another number of tensors, other metadata), NO_MEMORY.
 */
tmsg_status_t tmsg_ucxx_from_map(const tmsg_map_t *map, uint8_t policy,
                                 uint8_t **header_p, size_t *bytes_p);

#endif
