/* SPDX-License-Identifier: BSD-3-Clause */
/* support/unshared_peer.h - a peer on this machine whose shared memory cannot
 * be used: another user, or one in another namespace. */
#ifndef TMSG_TESTS_UNSHARED_PEER_H
#define TMSG_TESTS_UNSHARED_PEER_H

#include "support/peers.h"

/* Makes this process, of root's, another user's. */
void stranger_change_user(void);

/* The stranger's part: it is connected by TCP and not by shared memory, sends
 * some megabytes and closes in order. */
void stranger_send(side_t *side, tmsg_endpoint_t *endpoint);

/* The other's: takes that, and sees the end. */
void stranger_take(side_t *side);

#endif
