/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/ipc.h - fragments that the receiver copies out of device memory of
 * the sender's (CUDA IPC), where UCX does not know such memory. The rules are
 * docs/wire/connection.md, "Device memory".
 *
 * The owner offers a block by a frame; the peer opens it, or refuses it by
 * name. A FRAGMENT with TMSG_HEADER_READ then brings a place in the block in
 * place of its bytes, and is answered as in cma.h. Nobody waits for an event of
 * another process: the owner sends a place when the bytes are there, and the
 * peer answers when it has copied them. Lock held, for all functions here. */
#ifndef TMSG_AM_PATH_IPC_H
#define TMSG_AM_PATH_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/path/cma.h"
#include "am/staging/ipc_block.h"

/* These bytes go in place of a fragment: number u64, offset u64, and the token
 * u64 of cma.h. */
#define TMSG_IPC_PLACE_BYTES 16

/* Finds the block by which tensors of a device go to the peer, and offers it.
 * Errors: IN_PROGRESS (the peer has not answered; the endpoint's chores follow
 * when it has, or when it has not for too long), UNSUPPORTED (they cannot go
 * so; the message says why, and so does tmsg_ipc_words()), NO_MEMORY. */
tmsg_status_t tmsg_ipc_ready(tmsg_endpoint_t *endpoint,
                             const tmsg_domain_t *domain, tmsg_device_t device,
                             tmsg_ipc_block_t **block_p);

/* Does the same for memory of the application's, which the peer then opens
 * itself. Called for each send that needs it; the peer has it open until the
 * application frees it. */
tmsg_status_t tmsg_ipc_offer(tmsg_endpoint_t *endpoint,
                             tmsg_ipc_memory_t *memory);

/* Sends a fragment that lies at `data` in memory that the peer has opened. As
 * tmsg_cma_post(). */
tmsg_ucx_status_t tmsg_ipc_post(tmsg_endpoint_t *endpoint, const void *header,
                                size_t header_bytes,
                                const tmsg_ipc_memory_t *memory,
                                const uint8_t *data, tmsg_cma_out_t *out);

/* Returns whether an active message with TMSG_HEADER_READ is such a fragment.
 */
bool tmsg_ipc_is_place(const tmsg_arrival_t *arrival);

/* Decodes what it brings. in_p->view is held until tmsg_cma_drop(). Returns
 * false if the message is not allowed, and ends the endpoint. */
bool tmsg_ipc_arrival(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                      tmsg_cma_in_t *in_p);

/* Returns whether this side has memory of the peer's open. */
bool tmsg_ipc_is_open(const tmsg_endpoint_t *endpoint);

/* Lets go of the view of a place. Called by tmsg_cma_drop(). */
void tmsg_ipc_release(tmsg_endpoint_t *endpoint, tmsg_ipc_view_t *view);

/* Takes a frame TMSG_FRAME_DEVICE of an open connection. Errors: MALFORMED. */
tmsg_status_t tmsg_ipc_frame(tmsg_endpoint_t *endpoint, const uint8_t *data,
                             size_t bytes);

/* Has what the peer has offered closed, and tells it when that is done. Called
 * until it returns true, before FIN: all is told, or the driver takes too long.
 * Until then the endpoint gets chores. */
bool tmsg_ipc_leave(tmsg_endpoint_t *endpoint);

/* The same before the socket is closed, for a connection that ends otherwise;
 * the driver gets a moment. What is being copied stays open until it is copied.
 */
void tmsg_ipc_last(tmsg_endpoint_t *endpoint);

/* Forgets all of a connection that is over, after tmsg_ipc_last(). */
void tmsg_ipc_end(tmsg_endpoint_t *endpoint);

/* Returns what describe() says: "yes", or "none", perhaps with the reason. */
const char *tmsg_ipc_words(const tmsg_endpoint_t *endpoint, char *text,
                           size_t bytes);

#endif
