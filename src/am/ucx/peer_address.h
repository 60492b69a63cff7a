/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/peer_address.h - the addresses of peers' UCX workers, checked.
 *
 * UCX trusts the address that it is given: it reads lengths and indices from
 * it without a bound, and aborts on what it does not expect. So UCX gets no
 * bytes of a peer but a tmsg_peer_address_t, which this file alone makes. The
 * rules compare the address with what this side's own UCX worker tells of
 * itself. A peer has the same UCX, minor version and all (hello.h), so a
 * transport that both have looks alike on both sides; UCX reads nothing of the
 * others.
 *
 * A right address may still name a socket or a segment that is not the peer's
 * (docs/understand/security.md). */
#ifndef TMSG_AM_UCX_PEER_ADDRESS_H
#define TMSG_AM_UCX_PEER_ADDRESS_H

#include "am/ucx/ucx.h"

/* What a UCX worker tells of itself, as read. */
typedef struct tmsg_own_address tmsg_own_address_t;

typedef struct tmsg_peer_address tmsg_peer_address_t;

/* Reads the address of this side, and that of the network alone, into *own_p.
 * It refers to `whole`, which has to stay. NULL: this UCX packs them in a way
 * that is not known here. Errors: NO_MEMORY. */
tmsg_status_t tmsg_own_address_read(const void *whole, size_t bytes,
                                    const void *net, size_t net_bytes,
                                    tmsg_own_address_t **own_p);
void tmsg_own_address_free(tmsg_own_address_t *own);

/* Whom an address is said to be of. */
typedef struct {
    const tmsg_hello_t *hello;
    bool net_only; /* it may have no shared memory with this side */
    bool keyed;    /* it has a key of ours */
} tmsg_address_claim_t;

/* Checks and copies the address of a peer that `ucx` is to connect to. Without
 * ucx->own only a peer with a key is taken at its word. Errors: MALFORMED,
 * UNREACHABLE (no transport leads there), UNSUPPORTED (a format that is not
 * known, and no key), NO_MEMORY. */
tmsg_status_t tmsg_peer_address_check(const tmsg_ucx_t *ucx,
                                      const tmsg_address_claim_t *claim,
                                      const void *address, size_t bytes,
                                      tmsg_peer_address_t **address_p);
void tmsg_peer_address_free(tmsg_peer_address_t *address);

/* Returns whether the segments that it names are there, and as they were
 * checked. A peer decides when its connection goes on, and until then it may
 * put something else in their place, so it is asked again before UCX maps
 * them. */
bool tmsg_peer_address_holds(const tmsg_peer_address_t *address);

/* Returns the bytes for UCX, aligned as malloc() does. */
const void *tmsg_peer_address_bytes(const tmsg_peer_address_t *address);

/* Returns a bit for each of UCX's types of memory that the peer's UCX has, too.
 * An address that was not read has all of them. */
uint64_t tmsg_peer_address_memory(const tmsg_peer_address_t *address);

/* Returns UCX's own id of the peer's UCX worker; 0: it was not read. */
uint64_t tmsg_peer_address_uuid(const tmsg_peer_address_t *address);

#endif
