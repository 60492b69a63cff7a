/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/blob.h - worker addresses under a checksum, alone or with a hello.
 * The formats are docs/bootstrap.md.
 *
 * UCX trusts the addresses it is given, so none reaches it that has not come
 * through here. The checksum finds accidents, not lies. */
#ifndef TMSG_AM_BOOT_BLOB_H
#define TMSG_AM_BOOT_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/boot/hello.h"

#define TMSG_TOKEN_BYTES 16
#define TMSG_ADDRESS_BYTES_MAX (60u * 1024u) /* of one worker address */
#define TMSG_SEALED_EXTRA_BYTES 28 /* a sealed address is so much longer */
#define TMSG_BLOB_SEAL_BYTES 8     /* its checksum */

/* A worker address with the token of the connection it is for. */
typedef struct {
    uint8_t token[TMSG_TOKEN_BYTES];
    const void *address; /* borrowed */
    size_t address_bytes;
} tmsg_sealed_t;

/* Writes the sealed form, address_bytes + TMSG_SEALED_EXTRA_BYTES. Errors:
 * INVALID_PARAM (no address), LIMIT_EXCEEDED (its size, or capacity). */
tmsg_status_t tmsg_sealed_encode(const tmsg_sealed_t *sealed, void *buffer,
                                 size_t capacity, size_t *bytes_p);

/* Reads one that fills `bytes` exactly; sealed_p->address points into `data`.
 * On error *sealed_p is untouched. Errors: MALFORMED. */
tmsg_status_t tmsg_sealed_decode(const void *data, size_t bytes,
                                 tmsg_sealed_t *sealed_p);

typedef struct {
    tmsg_hello_t hello;
    tmsg_sealed_t whole; /* shared memory included */
    tmsg_sealed_t net;   /* the network alone; with the same token */
    bool asks_for_key;   /* it is of version 1: proofs follow, maybe none */
    const void *proofs;  /* borrowed */
    size_t proof_bytes;
    size_t proved_bytes; /* what they are of: what is before them */
} tmsg_blob_t;

/* Writes a blob without proofs to memory that the caller frees with free().
 * *bytes_p less TMSG_BLOB_SEAL_BYTES is what its proofs will be of. Errors: as
 * tmsg_sealed_encode(), NO_MEMORY. */
tmsg_status_t tmsg_blob_encode(const tmsg_blob_t *blob, void **data_p,
                               size_t *bytes_p);

/* The same blob with these proofs in place of those that it has, in memory of
 * its own. Errors: NO_MEMORY. */
tmsg_status_t tmsg_blob_prove(const void *blob, size_t proved_bytes,
                              const void *proofs, size_t proof_bytes,
                              void **data_p, size_t *bytes_p);

/* The address in a blob for a pair that may use shared memory, or may not. */
const tmsg_sealed_t *tmsg_blob_address(const tmsg_blob_t *blob, bool net_only);

/* Reads a blob, as tmsg_sealed_decode(). Errors: MALFORMED, INCOMPATIBLE
 * (another blob version). */
tmsg_status_t tmsg_blob_decode(const void *data, size_t bytes,
                               tmsg_blob_t *blob_p);

#endif
