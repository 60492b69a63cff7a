/* SPDX-License-Identifier: BSD-3-Clause */
/* am/attach.h - joining the two UCX endpoints of a connection. */
#ifndef TMSG_AM_ATTACH_H
#define TMSG_AM_ATTACH_H

#include "am/endpoint.h"

tmsg_status_t tmsg_attach_dial(tmsg_endpoint_t *endpoint,
                               const tmsg_sealed_t *sealed, const void *extra,
                               size_t extra_bytes);
tmsg_status_t tmsg_attach_blob(tmsg_endpoint_t *endpoint, const void *blob,
                               size_t blob_bytes, int timeout_ms);

/* The dialled side's part, once both the peer's address and its attach came;
 * IN_PROGRESS until then. */
tmsg_status_t tmsg_attach_accept(tmsg_endpoint_t *endpoint);

/* Decides by both hellos whether the two may work together, and how: fills in
 * the endpoint's peer_hello, why, and link.net_only. */
tmsg_status_t tmsg_attach_judge(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs, bool shm_only);

ucs_status_t tmsg_attach_arrived(const tmsg_arrival_t *arrival);
ucs_status_t tmsg_attached_arrived(const tmsg_arrival_t *arrival);

#endif
