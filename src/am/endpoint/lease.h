/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/lease.h - what a side lends to a peer that reads its memory by
 * itself.
 *
 * A receiver reads large messages over shared memory straight from the sender's
 * buffers (am/path/cma.h), and knows nothing of a sender that gave the
 * connection up and uses them for something else. Its socket's end may be late:
 * behind a proxy, or on a loaded machine; and by blob there is none. So each
 * side tells its peer the address of a word that it destroys before it takes
 * any buffer back, and the receiver reads that word behind the message, in the
 * same way.
 */
#ifndef TMSG_AM_ENDPOINT_LEASE_H
#define TMSG_AM_ENDPOINT_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "am/endpoint/endpoint.h"

/* Whether both sides know of it. */
bool tmsg_lease_is_known(const tmsg_endpoint_t *endpoint);

/* Of what is told: where the word is, u64, 0 where the peer cannot read our
 * memory, and the word. */
#define TMSG_LEASE_BYTES (8 + TMSG_LEASE_WORD_BYTES)

/* Lock held: from now on what this side sends is lent. Writes what to tell the
 * peer. Errors: IO. */
tmsg_status_t tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told);

/* The same of the peer; until the connection is another. */
void tmsg_lease_take(tmsg_endpoint_t *endpoint, const uint8_t *told);
void tmsg_lease_forget(tmsg_endpoint_t *endpoint);

/* Where the peer's word is, in its memory. */
struct iovec tmsg_lease_of_peer(const tmsg_endpoint_t *endpoint);

/* Before the first buffer is given back that UCX has not seen to its end. */
void tmsg_lease_withdraw(tmsg_endpoint_t *endpoint);

/* Whether UCX, having reported a send with this status, may leave the peer
 * reading: all but success and the peer's own refusal do. */
bool tmsg_lease_is_unsure(tmsg_ucx_status_t ucs);

/* The same of a message that UCX failed at with this status, on a connection
 * that may stand yet: ends it, for without a lease the peer believes nothing
 * more that it reads. */
void tmsg_lease_forfeit(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* UCX has reported a send with this status, and its buffer is given back now:
 * the same, if the peer may be reading it. */
void tmsg_lease_reported(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* Whether this side reads the peer's memory, where its word is as it was told.
 */
bool tmsg_lease_is_readable(const tmsg_endpoint_t *endpoint);

/* Whether what was read where the peer's word is says that all before it was
 * lent. */
bool tmsg_lease_is_word(const tmsg_endpoint_t *endpoint, const uint8_t *read);

/* False: what was read from the peer's memory until now may not be what it
 * sent. True where its word is not known, or cannot be read: then UCX could not
 * read a message either, and the socket alone decides. */
bool tmsg_lease_stands(const tmsg_endpoint_t *endpoint);

#endif
