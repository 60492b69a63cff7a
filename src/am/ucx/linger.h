/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/linger.h - the sockets of connections that this side gave up.
 *
 * Peers find our shared memory by /proc/<pid>/fd/<number> when they first need
 * it. A closed UCX worker frees its descriptor numbers. A peer that does not
 * know of this yet would write into whatever file got such a number. So a UCX
 * worker that gave connections up stays open until the peers have hung up,
 * too. */
#ifndef TMSG_AM_UCX_LINGER_H
#define TMSG_AM_UCX_LINGER_H

#include "am/ucx/ucx.h"

/* Shuts a bootstrap socket down and keeps it until the peer has hung up. Takes
 * ownership of the socket. `asking`: UCX has asked the peer for its endpoint
 * and has no answer yet. The peer's UCX will still answer, and the peer may
 * have hung up before it saw the question. So such a socket is kept for all of
 * the 250 ms below. `stranger`: the peer has never sent its address. It has our
 * address, but nobody promised that it is an honest peer, so that no more than
 * 64 of them are waited for, and 8 after their 250 ms. `peer`: its name, for
 * the log. */
void tmsg_linger_begin(tmsg_ucx_t *ucx, int fd, bool asking, bool stranger,
                       const char *peer);

/* Returns whether each such peer has hung up, or has had its 250 ms. */
bool tmsg_linger_over(const tmsg_ucx_t *ucx);

/* Returns whether UCX may be answered still. UCX asks each peer once a second
 * whether it lives. A peer that has closed its UCX endpoint answers by a new
 * one, for which it opens this side's memory, and it may do so after it has
 * hung up. If the file that it opens is another one by now, the peer's process
 * ends. So a worker that lives on does not close a UCX worker for a second
 * after that gave a connection up. */
bool tmsg_linger_is_asked(const tmsg_ucx_t *ucx);

/* Looks at the sockets. Returns whether a peer has not hung up: the UCX worker
 * must not be closed then. Nobody else may use the UCX worker meanwhile. */
bool tmsg_linger_look(tmsg_ucx_t *ucx);

/* Returns the number of peers in the whole process that have had their 250 ms
 * and have not hung up, without strangers. */
unsigned tmsg_linger_count_late(void);

/* Waits until tmsg_linger_over(), at most that long. Lock held, by the only
 * user that is left. */
void tmsg_linger_await(tmsg_ucx_t *ucx, uint64_t most_ns);

#define TMSG_LINGER_NAMES 4
#define TMSG_LINGER_NAME_BYTES 128

/* Counts connections whose peers do not hang up, by the peer's name. */
typedef struct {
    unsigned count;
    unsigned names; /* how many of `of` are used */
    unsigned other; /* connections whose peer has none of these names */
    bool for_good;  /* some memory is left behind for good */
    struct {
        char peer[TMSG_LINGER_NAME_BYTES];
        unsigned count;
    } of[TMSG_LINGER_NAMES];
} tmsg_linger_tally_t;

/* Adds what has not been told of this UCX worker yet. */
void tmsg_linger_tell(tmsg_ucx_t *ucx, tmsg_linger_tally_t *tally);

/* Logs it as one line, if there is something, and empties it. */
void tmsg_linger_log(tmsg_linger_tally_t *tally);

#endif
