/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/unwanted.h - closes descriptors that peers sent and that are not
 * wanted.
 *
 * Whoever makes a file decides how long its close takes: a file system of the
 * peer's own (FUSE) may never answer, and a socket may linger (SO_LINGER). So a
 * thread of the process closes them. It begins with the first of them and ends
 * with the last. Files of memory are closed at once.
 *
 * A peer can keep that thread for ever. Then no more connections take
 * descriptors (tmsg_unwanted_is_full()), and those that send such files end. */
#ifndef TMSG_AM_NET_UNWANTED_H
#define TMSG_AM_NET_UNWANTED_H

#include <stdbool.h>

/* Closes a descriptor; < 0: nothing. It may be open for a while afterwards. Any
 * thread. */
void tmsg_unwanted_close(int fd);

/* Returns whether so many wait to be closed that no peer is to send any. Any
 * thread. */
bool tmsg_unwanted_is_full(void);

#endif
