/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/cma.h - a rendezvous of our own over shared memory: the receiver
 * reads a payload straight out of the sender's memory (cross-memory attach,
 * process_vm_readv(2)). The rules are docs/connection.md, "Reading".
 *
 * UCX has the same and is not given it: its transport takes a read that ended
 * early for the whole, so that a payload whose memory is gone at its end was
 * delivered with whatever lay in the receiver's buffer. Here a short read is an
 * error of that message.
 *
 * An active message with TMSG_HEADER_READ brings the address in place of the
 * payload; the answer is a READ message. */
#ifndef TMSG_AM_PATH_CMA_H
#define TMSG_AM_PATH_CMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "am/endpoint/kinds.h"
#include "am/endpoint/paths.h"
#include "core/list.h"

/* A payload that the peer is to read; embedded in what is sent. */
typedef struct tmsg_cma_out {
    tmsg_node_t node;  /* endpoint's lent or ended */
    tmsg_list_t *list; /* which of these; NULL: the peer has answered */
    tmsg_endpoint_t *endpoint;
    void (*over)(struct tmsg_cma_out *out, tmsg_ucx_status_t ucs);
    uint64_t token;
    bool in_ucx; /* the active message is */
    tmsg_ucx_status_t status;
    uint8_t payload[TMSG_CMA_BYTES]; /* UCX reads it while it is */
} tmsg_cma_out_t;

/* A payload that is to be read. */
struct tmsg_cma_in {
    uint64_t address;
    uint64_t token;
};

/* Lock held, outside UCX: what carries the endpoint is known. Finds out whether
 * this side can read the peer's memory, and tells it. */
void tmsg_cma_begin(tmsg_endpoint_t *endpoint);

/* Hands the active message to UCX. `header` has TMSG_HEADER_READ; it and the
 * `bytes` at `data` stay as they are until out->over() is called: once, with
 * TMSG_UCX_OK when the peer has read them, TMSG_UCX_REJECTED when it will not,
 * or what became of the active message. Gives UCX's own status. */
tmsg_ucx_status_t tmsg_cma_post(tmsg_endpoint_t *endpoint, const void *header,
                                size_t header_bytes, const void *data,
                                uint32_t am_flags, tmsg_cma_out_t *out);

/* UCX is gone and will not report `out`, whose over() is not called. */
void tmsg_cma_forsake(tmsg_cma_out_t *out);

/* Lock held: the connection is over, and its lease withdrawn: the peer believes
 * nothing more that it reads. What is lent ends with the next chores. */
void tmsg_cma_end(tmsg_endpoint_t *endpoint);
void tmsg_cma_chores(tmsg_endpoint_t *endpoint);

/* What an active message with TMSG_HEADER_READ brings. False: it may not be,
 * and the endpoint ends. */
bool tmsg_cma_arrival(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                      tmsg_cma_in_t *in_p);

/* Reads the payload into these pieces; tells the peer that it is read, or that
 * it will not be. *read_p says how many bytes came. TMSG_UCX_INVALID_ADDR:
 * there was memory that could not be read, or written here (tmsg_cma_blame()),
 * of a peer that is alive. TMSG_UCX_CANCELED: the peer is gone, or has given
 * the connection up. */
tmsg_ucx_status_t tmsg_cma_read(tmsg_endpoint_t *endpoint,
                                const tmsg_cma_in_t *in,
                                const struct iovec *pieces, size_t count,
                                size_t *read_p);

/* What is wrong with the memory at which a read stopped, in words. */
const char *tmsg_cma_blame(const tmsg_endpoint_t *endpoint,
                           const tmsg_cma_in_t *in, size_t read);

/* Where in the pieces it stopped. */
const void *tmsg_cma_place(const struct iovec *pieces, size_t read);

/* The payload will not be read (any more). */
void tmsg_cma_drop(tmsg_endpoint_t *endpoint, const tmsg_cma_in_t *in,
                   bool rejected);

#endif
