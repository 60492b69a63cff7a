/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/ucxx.h - encodes and decodes the header of UCXX's active messages,
 * and the map that such a message contains. docs/how-to/ucxx.md has the format.
 */
#ifndef TMSG_SERIALIZE_UCXX_H
#define TMSG_SERIALIZE_UCXX_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/map.h>

#define TMSG_UCXX_NAME "data" /* name of a tensor that came without one */
#define TMSG_UCXX_HOST 0 /* memory type of the host; all others are devices */

/* The fields of a header that we read and write. The callback that a header may
 * name is only for UCXX. */
typedef struct {
    uint32_t memory_type; /* memory type, numbered as in the sender's UCX */
    uint8_t policy;       /* a value of tmsg_policy_t */
    const void *user;     /* application's header, inside the bytes read */
    size_t user_bytes;
} tmsg_ucxx_header_t;

/* Writes the header if it fits into `bound` bytes. Returns the bytes that it
 * needs in either case. */
size_t tmsg_ucxx_encode(const tmsg_ucxx_header_t *header, void *buffer,
                        size_t bound);

/* Reads a header. A header without a policy byte means host fallback. Bytes
 * behind the user header are skipped. header_p->user points into `bytes`.
 * Errors: MALFORMED. */
tmsg_status_t tmsg_ucxx_decode(const void *bytes, size_t count,
                               tmsg_ucxx_header_t *header_p);

/* Fills an empty map with the contents of a message of `payload_bytes`: one
 * tensor that has no data yet, and the user header, if any, as metadata. On
 * error the map is left empty. Errors: MALFORMED (the user header describes the
 * tensor wrongly, or describes another tensor), LIMIT_EXCEEDED, UNSUPPORTED
 * (dtype), NO_MEMORY. */
tmsg_status_t tmsg_ucxx_to_map(const tmsg_ucxx_header_t *header,
                               uint64_t payload_bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map);

/* Creates the header for a map of one tensor. The caller frees it with free().
 * The user header is the map's TMSG_META_UCXX_HEADER; if the map has none, the
 * user header describes the tensor. Errors: UNSUPPORTED (another number of
 * tensors, other metadata), NO_MEMORY. */
tmsg_status_t tmsg_ucxx_from_map(const tmsg_map_t *map, uint8_t policy,
                                 uint8_t **header_p, size_t *bytes_p);

#endif
