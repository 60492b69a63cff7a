/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/bulk_tcp.h - a bulk stream over a second TCP connection, to a peer
 * that is reached by TCP. The kernel copies fragments from and to the tensors'
 * own memory.
 * The rules are docs/wire/connection.md, "The bulk stream".
 *
 * The dialling side dials the bulk stream once the endpoint is open, at the
 * listener that it has dialled before; further subflows once much has gone by
 * it. */
#ifndef TMSG_AM_PATH_BULK_TCP_H
#define TMSG_AM_PATH_BULK_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/path/bulk.h"
#include "am/path/claim.h"

/* Describes a subflow over TCP. bulk_tcp.c alone changes it. */
typedef struct {
    tmsg_bulk_t bulk;    /* first: the bulk stream's address is this one's */
    tmsg_claim_t claim;  /* has the socket */
    size_t segment;      /* bytes of a TCP segment; 0: not known */
    uint64_t measured;   /* bulk.written when `segment` was asked for */
    int low;             /* least bytes that make it readable; 0: not set, 1 */
    uint64_t ahead;      /* see tmsg_bulk_ahead(); 0: not known */
    const tmsg_io_t *io; /* moves the bytes; NULL: the socket does */
    void *io_arg;
    bool more;    /* `io` may have read more than was taken */
    bool widened; /* further subflows were dialled, where there are to be any */
} tmsg_bulk_tcp_t;

static inline tmsg_bulk_tcp_t *tmsg_bulk_tcp_of(const tmsg_bulk_t *bulk)
{
    return (tmsg_bulk_tcp_t *)(uintptr_t)bulk;
}

/* Handles the frame BULK of an accepted connection, which claims to be the bulk
 * stream of another one: gives that one the socket, and ends `connection`. If
 * the bulk stream cannot be made here, the other endpoint goes without, which
 * is no error. Errors: MALFORMED, REFUSED (nobody here waits for it). */
tmsg_status_t tmsg_bulk_tcp_claim(tmsg_endpoint_t *connection,
                                  const uint8_t *data, size_t bytes);

#endif
