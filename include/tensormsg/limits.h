/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/limits.h - bounds for everything that comes from a peer.
 *
 * Limits are given to a context. A field whose bit is not set keeps its
 * default.
 *
 *     limits.field_mask = TMSG_LIMIT_ALL;
 *     tmsg_limits_default(&limits);
 *     limits.message_bytes = 1 << 30;
 *     context_params.limits = &limits; // with TMSG_CONTEXT_PARAM_LIMITS
 *     tmsg_context_create(&context_params, &context);
 */
#ifndef TENSORMSG_LIMITS_H
#define TENSORMSG_LIMITS_H

#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TMSG_LIMIT_TENSORS = 1 << 0,
    TMSG_LIMIT_NDIM = 1 << 1,
    TMSG_LIMIT_NAME_BYTES = 1 << 2,
    TMSG_LIMIT_METADATA_BYTES = 1 << 3,
    TMSG_LIMIT_HEADER_BYTES = 1 << 4,
    TMSG_LIMIT_MESSAGE_BYTES = 1 << 5,
    TMSG_LIMIT_HELD_BYTES = 1 << 6,
    TMSG_LIMIT_METADATA_KEYS = 1 << 7,
    TMSG_LIMIT_LENT_BYTES = 1 << 8,
    TMSG_LIMIT_ALL = (1 << 9) - 1
};

/* A message beyond a limit is refused before anything is allocated for it, with
 * LIMIT_EXCEEDED at both ends. A field whose bit is unset in field_mask keeps
 * the default named beside it. New fields come at the end, with a bit.
 *
 * A limit is at least 1. tensors, metadata_bytes, metadata_keys and
 * header_bytes are at most 2^32 - 1; message_bytes, held_bytes and lent_bytes
 * at most 2^63 - 1. Other values are refused with INVALID_PARAM. */
typedef struct tmsg_limits {
    uint64_t field_mask;     /* TMSG_LIMIT_* */
    uint64_t tensors;        /* in one map: 2^20 */
    uint64_t ndim;           /* of one tensor: 64, and never more */
    uint64_t name_bytes;     /* of one tensor or key: 4096, and never more */
    uint64_t metadata_bytes; /* keys and values of one map: 64 MiB */
    uint64_t header_bytes;   /* encoded names, shapes, metadata: 512 MiB */
    uint64_t message_bytes;  /* payload of one message, with what is
                              * broadcast written out: 1 TiB */
    uint64_t held_bytes;     /* received and not released, for each worker, in
                              * the library's own memory, that of devices
                              * included: a quarter of RAM. Payloads count, and
                              * names, shapes, metadata and captured headers. A
                              * message that does not fit now waits at its
                              * sender. Everything that comes to this worker
                              * after it, from any peer, waits too, except
                              * payloads of a few hundred bytes. A message that
                              * can never fit is refused. Peers may send ahead
                              * up to a quarter of this in addition, before
                              * there is memory for it. What comes with a header
                              * cannot wait. So a message is refused if
                              * everything together would exceed the limit by
                              * more than 64 MiB. It is also refused if what the
                              * application does not have yet is more than 64
                              * MiB and a quarter of the limit */
    uint64_t metadata_keys;  /* in one map: 65536 */
    uint64_t lent_bytes;     /* of tensors, lent by the offers of a worker until
                              * their on_release. A map that is offered twice
                              * counts twice. tmsg_offer_create() refuses an
                              * offer beyond it. 2^63 - 1, which is no limit */
} tmsg_limits_t;

/* Writes this machine's defaults to the fields of *limits_p whose bits are set
 * in its field_mask (TMSG_LIMIT_ALL: all that these headers know). The mask
 * stays. Then change a field, and give *limits_p to a context. From any thread.
 * Errors:
 *   INVALID_PARAM - limits_p is NULL, or an unknown bit */
TMSG_API tmsg_status_t tmsg_limits_default(tmsg_limits_t *limits_p);

#ifdef __cplusplus
}
#endif

#endif
