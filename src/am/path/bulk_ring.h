/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/bulk_ring.h - a bulk stream in shared memory: a ring for what this
 * side sends, and the peer's ring. Each side makes its own ring when it has a
 * large message for the first time, and offers it (offer.h). The other side
 * takes or refuses it; nothing waits for that. The rules are
 * docs/wire/connection.md, "Rings". */
#ifndef TMSG_AM_PATH_BULK_RING_H
#define TMSG_AM_PATH_BULK_RING_H

#include "am/endpoint/kinds.h"
#include "am/path/bulk.h"
#include "am/shm/ring.h"

/* Describes a bulk stream of rings. bulk_ring.c alone changes it. */
typedef struct {
    tmsg_bulk_t bulk;      /* first: the bulk stream's address is this one's */
    tmsg_ring_t *out, *in; /* NULL: there is none */
} tmsg_bulk_ring_t;

/* Takes or refuses the ring that the peer tells of. Lock held. */
void tmsg_ring_offered(tmsg_endpoint_t *endpoint,
                       const tmsg_segment_offer_t *offer);

static inline tmsg_bulk_ring_t *tmsg_bulk_ring_of(const tmsg_bulk_t *bulk)
{
    return (tmsg_bulk_ring_t *)(uintptr_t)bulk;
}

#endif
