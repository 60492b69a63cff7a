/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/cma.h - a rendezvous of our own over shared memory: the receiver
 * reads a payload straight out of the sender's memory (cross-memory attach,
 * process_vm_readv(2)). The rules are docs/wire/connection.md, "Reading".
 *
 * UCX has the same, but is not given it: its transport takes a read that ended
 * early for the whole. A payload whose memory is gone at its end would be
 * delivered with whatever lay in the receiver's buffer. Here a short read is an
 * error of that message.
 *
 * An active message with TMSG_HEADER_READ brings the address in place of the
 * payload. The receiver answers with a READ message. */
#ifndef TMSG_AM_PATH_CMA_H
#define TMSG_AM_PATH_CMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "am/endpoint/kinds.h"
#include "am/endpoint/paths.h"
#include "core/list.h"
#include "memory/device_ipc.h"

/* A place where the receiver is to read has at most so many bytes. The token
 * u64 follows. */
#define TMSG_CMA_PLACE_MOST 16

/* Describes a payload that the peer is to read. Embed this in what is sent. */
typedef struct tmsg_cma_out {
    tmsg_node_t node;  /* in the endpoint's lent or ended */
    tmsg_list_t *list; /* lent or ended; NULL: the peer has answered */
    tmsg_endpoint_t *endpoint;
    void (*over)(struct tmsg_cma_out *out, tmsg_ucx_status_t ucs);
    uint64_t token;
    bool in_ucx; /* UCX has the active message */
    tmsg_ucx_status_t status;
    uint8_t payload[TMSG_CMA_PLACE_MOST + 8]; /* UCX reads it: see in_ucx */
} tmsg_cma_out_t;

/* Describes a payload that this side is to read. */
struct tmsg_cma_in {
    uint64_t address; /* an offset, if there is a view */
    uint64_t token;
    tmsg_ipc_view_t *view; /* it lies there (ipc.h); NULL: in the process */
};

/* Finds out whether this side can read the peer's memory, and tells the peer if
 * so. Called when it is known what carries the endpoint. A peer whose lease is
 * not where it says loses the connection: it might be trying what stands in
 * somebody else's memory. Lock held, outside UCX. */
void tmsg_cma_begin(tmsg_endpoint_t *endpoint);

/* Returns what describe() says of reading the peer's memory: "yes", or "none",
 * perhaps with the reason. */
const char *tmsg_cma_words(const tmsg_endpoint_t *endpoint, char *text,
                           size_t bytes);

/* Hands the active message to UCX, and returns UCX's status. `header` has
 * TMSG_HEADER_READ. The header and the bytes at `data` stay as they are until
 * out->over() is called. That happens once: with TMSG_UCX_OK when the peer has
 * read the bytes, with TMSG_UCX_REJECTED when it will not, or with what became
 * of the active message. */
tmsg_ucx_status_t tmsg_cma_post(tmsg_endpoint_t *endpoint, const void *header,
                                size_t header_bytes, const void *data,
                                tmsg_cma_out_t *out);

/* Does what tmsg_cma_post() does, with another place than an address. */
tmsg_ucx_status_t tmsg_cma_post_place(tmsg_endpoint_t *endpoint,
                                      const void *header, size_t header_bytes,
                                      const uint8_t *place, size_t place_bytes,
                                      tmsg_cma_out_t *out);

/* Takes `out` off its list when UCX is gone and will not report it. out->over()
 * is not called. */
void tmsg_cma_abandon(tmsg_cma_out_t *out);

/* tmsg_cma_end() stops reading in both directions when the connection is over.
 * The lease is withdrawn before, so that the peer believes nothing more that it
 * reads. tmsg_cma_chores() ends, with the next chores, what was lent. Lock
 * held. */
void tmsg_cma_end(tmsg_endpoint_t *endpoint);
void tmsg_cma_chores(tmsg_endpoint_t *endpoint);

/* Decodes what an active message with TMSG_HEADER_READ brings. Returns false if
 * the message is not allowed, and ends the endpoint. */
bool tmsg_cma_arrival(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                      tmsg_cma_in_t *in_p);

/* Reads the payload into these pieces, and tells the peer that it was read, or
 * that it will not be. *read_p is the number of bytes that came. Returns
 * TMSG_UCX_INVALID_ADDR if memory could not be read there, or written here (see
 * tmsg_cma_blame()), and the peer is alive; TMSG_UCX_CANCELED if the peer is
 * gone, or has given the connection up; TMSG_UCX_IO_ERROR if the system call
 * failed otherwise. */
tmsg_ucx_status_t tmsg_cma_read(tmsg_endpoint_t *endpoint,
                                const tmsg_cma_in_t *in,
                                const struct iovec *pieces, size_t count,
                                size_t *read_p);

/* Returns in words what is wrong with the memory at which a read stopped. */
const char *tmsg_cma_blame(const tmsg_endpoint_t *endpoint,
                           const tmsg_cma_in_t *in, size_t read);

/* Returns the address in the pieces at which a read stopped. */
const void *tmsg_cma_place(const struct iovec *pieces, size_t read);

/* Tells the peer that its payload is not read any more, and lets go of the view
 * that it lay in. `rejected`: it was not
 * read to its end. */
void tmsg_cma_drop(tmsg_endpoint_t *endpoint, const tmsg_cma_in_t *in,
                   bool rejected);

#endif
