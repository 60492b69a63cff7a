/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/lease.h - what a side lends to a peer that reads its memory by
 * itself.
 *
 * A receiver reads large messages over shared memory straight from the sender's
 * buffers (am/path/cma.h). It does not know whether the sender has given the
 * connection up and uses these buffers for something else. The end of the
 * socket may come late: behind a proxy, or on a loaded machine. By blob there
 * is no socket. Each side therefore tells its peer the address of a word, and
 * destroys the word before it takes any buffer back. The receiver reads the
 * word after the message, in the same way. Lock held, for all functions here.
 */
#ifndef TMSG_AM_ENDPOINT_LEASE_H
#define TMSG_AM_ENDPOINT_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "am/endpoint/endpoint.h"

/* Returns whether both sides know leases. */
bool tmsg_lease_is_known(const tmsg_endpoint_t *endpoint);

/* A side tells its peer this many bytes: the address of the word (u64; 0 if the
 * peer cannot read our memory), then the word. */
#define TMSG_LEASE_BYTES (8 + TMSG_LEASE_WORD_BYTES)

/* Lends the peer what this side sends from now on. Writes what to tell the
 * peer. Lock held. Errors: IO. */
tmsg_status_t tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told);

/* tmsg_lease_take() takes what the peer told of its lease. `doubt`, a literal,
 * says why the process that the peer names may be another's: then nothing is
 * read there. NULL: the kernel confirms it. tmsg_lease_forget() forgets all of
 * it, when the connection is another. */
void tmsg_lease_take(tmsg_endpoint_t *endpoint, const uint8_t *told,
                     const char *doubt);
void tmsg_lease_forget(tmsg_endpoint_t *endpoint);

/* Returns why the process that the peer names is in doubt, in words; NULL: it
 * is not, or nobody asked. */
const char *tmsg_lease_doubt(const tmsg_endpoint_t *endpoint);

/* Returns where the peer's word is, in the peer's memory. */
struct iovec tmsg_lease_of_peer(const tmsg_endpoint_t *endpoint);

/* Ends the lease. Called before the first buffer is given back that UCX has not
 * seen to its end. */
void tmsg_lease_withdraw(tmsg_endpoint_t *endpoint);

/* Returns whether the peer may still be reading a send that UCX reported with
 * this status. All statuses but success and the peer's own refusal leave that
 * open. */
bool tmsg_lease_is_unsure(tmsg_ucx_status_t ucs);

/* Ends the connection if UCX failed at a message with this status and the peer
 * may be reading it: without a lease the peer believes nothing more that it
 * reads. */
void tmsg_lease_forfeit(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* Does what tmsg_lease_forfeit() does, if the status leaves open whether the
 * peer is reading. Called when UCX has reported a send and its buffer is given
 * back. */
void tmsg_lease_reported(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

typedef enum {
    TMSG_LEASE_READ,       /* the peer's word is where it was told */
    TMSG_LEASE_UNREADABLE, /* there is none, or this side may not read it */
    TMSG_LEASE_UNSURE,     /* the kernel failed, which says nothing of it */
    TMSG_LEASE_GONE        /* it is not there, or another */
} tmsg_lease_look_t;

/* Reads the peer's word. */
tmsg_lease_look_t tmsg_lease_look(const tmsg_endpoint_t *endpoint);

/* Returns whether `read`, which was read at the address of the peer's word,
 * says that everything read before was still lent. */
bool tmsg_lease_is_word(const tmsg_endpoint_t *endpoint, const uint8_t *read);

/* Returns false if what was read from the peer's memory until now may not be
 * what the peer sent. True if the address of its word is not known, or cannot
 * be read: then UCX could not read a message either, and the socket alone
 * decides. */
bool tmsg_lease_stands(const tmsg_endpoint_t *endpoint);

/* Returns in words why the memory of a peer that lives cannot be read: its
 * first thread has ended. NULL: that is not the reason. */
const char *tmsg_lease_why_unread(const tmsg_endpoint_t *endpoint);

#endif
