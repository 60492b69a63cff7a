/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/blob.h - worker addresses under a checksum, alone or with a hello.
 * docs/wire/bootstrap.md has the formats.
 *
 * UCX trusts the addresses that it is given, so every address passes this file
 * before UCX gets it. The checksum finds accidents, not lies; those
 * am/ucx/peer_address.h finds. */
#ifndef TMSG_AM_BOOT_BLOB_H
#define TMSG_AM_BOOT_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/boot/hello.h"

#define TMSG_TOKEN_BYTES 16
#define TMSG_ADDRESS_BYTES_MAX (60u * 1024u) /* of one worker address */
/* Bytes of a sealed address beside the address itself. */
#define TMSG_SEALED_EXTRA_BYTES 28
#define TMSG_BLOB_SEAL_BYTES 8 /* the checksum at the end of a blob */

/* A worker address with the token of the connection that it is for. */
typedef struct {
    uint8_t token[TMSG_TOKEN_BYTES];
    const void *address; /* borrowed, not freed here */
    size_t address_bytes;
} tmsg_sealed_t;

/* Writes the sealed form, of address_bytes + TMSG_SEALED_EXTRA_BYTES bytes.
 * Errors: INVALID_PARAM (no address), LIMIT_EXCEEDED (its size, or
 * capacity). */
tmsg_status_t tmsg_sealed_encode(const tmsg_sealed_t *sealed, void *buffer,
                                 size_t capacity, size_t *bytes_p);

/* Reads a sealed address that fills `bytes` exactly; sealed_p->address points
 * into `data`. On error *sealed_p is untouched. Errors: MALFORMED. */
tmsg_status_t tmsg_sealed_decode(const void *data, size_t bytes,
                                 tmsg_sealed_t *sealed_p);

typedef struct {
    tmsg_hello_t hello;
    tmsg_sealed_t whole; /* address with shared memory */
    tmsg_sealed_t net;   /* address of the network alone, with the same token */
    bool asks_for_key;   /* version 1: proofs follow, maybe none */
    const void *proofs;  /* borrowed, not freed here */
    size_t proof_bytes;
    /* Length of what is proved: all that precedes the proofs. */
    size_t proved_bytes;
} tmsg_blob_t;

/* Writes a blob without proofs to memory that the caller frees with free(). Its
 * proofs will prove the first *bytes_p - TMSG_BLOB_SEAL_BYTES bytes. Errors: as
 * tmsg_sealed_encode(), NO_MEMORY. */
tmsg_status_t tmsg_blob_encode(const tmsg_blob_t *blob, void **data_p,
                               size_t *bytes_p);

/* Writes the same blob with these proofs instead of those that it has, to
 * memory that the caller frees with free(). Errors: NO_MEMORY. */
tmsg_status_t tmsg_blob_prove(const void *blob, size_t proved_bytes,
                              const void *proofs, size_t proof_bytes,
                              void **data_p, size_t *bytes_p);

/* Returns the address in a blob for a pair of peers that may use shared memory,
 * or, with `net_only`, may not. */
const tmsg_sealed_t *tmsg_blob_address(const tmsg_blob_t *blob, bool net_only);

/* Reads a blob that fills `bytes` exactly; *blob_p points into `data`. On error
 * *blob_p is untouched. Errors: MALFORMED, INCOMPATIBLE (another blob
 * version). */
tmsg_status_t tmsg_blob_decode(const void *data, size_t bytes,
                               tmsg_blob_t *blob_p);

#endif
