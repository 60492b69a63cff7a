/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/peer_transports.h - the transports of UCX, and how each one's part of
 * a peer's worker address is judged; for peer_address.c alone. */
#ifndef TMSG_AM_UCX_PEER_TRANSPORTS_H
#define TMSG_AM_UCX_PEER_TRANSPORTS_H

#include "am/ucx/packed.h"
#include "am/ucx/peer_address.h"

struct tmsg_own_address {
    tmsg_packed_t all;
    bool on_network[TMSG_PACKED_MOST]; /* of the entries of `all` */
    /* Rules that `all` does not keep, by an entry or anywhere. They are not
     * asked of peers: they were read from UCX's sources, and there is hardware
     * that nobody here has. */
    bool breaks_its_rule[TMSG_PACKED_MOST];
    bool breaks_order;
    bool breaks_place;
    uint32_t flags_beside; /* flags of entries that are not known */
    unsigned minor;
    uint64_t posix_bytes; /* that a segment needs; 0: unknown, or none */
    uint64_t sysv_bytes;
};

/* An entry of a peer's address, with what it is judged by. */
typedef struct {
    const tmsg_own_address_t *own;
    /* Whose it is said to be. NULL: this side's own address is judged. */
    const tmsg_address_claim_t *claim;
    const tmsg_packed_t *packed;
    const tmsg_packed_device_t *device;
    const tmsg_packed_entry_t *entry;
} tmsg_judged_entry_t;

/* The part of UCX that a transport is of. A memory domain belongs to one. */
typedef enum {
    TMSG_PART_OTHER,
    TMSG_PART_SELF,
    TMSG_PART_TCP,
    TMSG_PART_POSIX,
    TMSG_PART_SYSV,
    TMSG_PART_XPMEM,
    TMSG_PART_CMA,
    TMSG_PART_KNEM,
    TMSG_PART_IB,
    TMSG_PART_GGA,
    TMSG_PART_CUDA_COPY,
    TMSG_PART_CUDA_IPC,
    TMSG_PART_GDR_COPY,
    TMSG_PART_ROCM_COPY,
    TMSG_PART_ROCM_IPC,
    TMSG_PART_ROCM_GDR,
    TMSG_PART_ZE_COPY,
    TMSG_PART_GAUDI,
    TMSG_PART_UGNI,
    TMSG_PARTS /* number of parts */
} tmsg_transport_part_t;

typedef struct {
    const char *name;
    tmsg_transport_part_t part;
    bool once;  /* a worker has it on one device only */
    bool alike; /* its flags do not depend on settings */
    /* Judges both addresses. NULL: they are as long as ours. */
    const char *(*judge)(const tmsg_judged_entry_t *judged);
} tmsg_transport_kind_t;

/* Returns the transport that has this checksum. TMSG_PART_OTHER: no UCX that is
 * known has it. */
const tmsg_transport_kind_t *tmsg_transport_kind_of(uint16_t checksum);

/* Returns whether an entry of this side with the same transport has an address
 * that is as long, and a device's, too, if `device_too`. */
bool tmsg_judged_is_as_long(const tmsg_judged_entry_t *judged, bool device_too);

/* Returns whether two entries have the same transport and both addresses. */
bool tmsg_packed_are_same(const tmsg_packed_t *packed,
                          const tmsg_packed_entry_t *entry,
                          const tmsg_packed_t *other_packed,
                          const tmsg_packed_entry_t *other);

const tmsg_packed_device_t *
tmsg_packed_device_of(const tmsg_packed_t *packed,
                      const tmsg_packed_entry_t *entry);

#endif
