/* SPDX-License-Identifier: BSD-3-Clause */
/* support/false_host.h - a process that listens and says to who dials it what
 * it is told to, right or wrong, by the bootstrap socket and by UCX. An honest
 * listener is beside it. */
#ifndef TMSG_TESTS_FALSE_HOST_H
#define TMSG_TESTS_FALSE_HOST_H

#include "support/peers.h"

typedef struct {
    link_t link; /* none by blob */
    bool keyed;  /* both listeners ask for the key of number 1 */
    child_t child;
    char url[128];
    char honest_url[128];
} false_host_t;

/* What it says to the next that dials it, a letter each, and then it hangs up:
 *
 *   m  the magic                     H  hears a hello
 *   h  its hello                     P  hears a proof
 *   p  its proof                     A  hears an address
 *   a  the address of its UCX worker
 *   d  one of a UCX worker that is gone
 *   k  KNOCKED, by UCX               t  ATTACHED
 *   j  by UCX, each kind of message there is and some that there are not
 *   n  noise                         e  an empty hello
 *   z  a hello of zeros              l  a frame of 4 GiB, its first bytes
 *   b  a frame a byte too long       u  a frame of unknown type
 *   i  a frame of 3 bytes for each type there is
 *   r  REFUSE                        v  one of 2 bytes
 *   q  RESUME                        Q  RESUMED
 *   y  BYE                           f  FIN
 *   g  a heartbeat                   s  that it sends no more
 *   w  waits for the other to hang up
 *   R  hangs up by a reset
 *   K  does not hang up on this one, whatever follows
 *   U  hangs up on all those
 *   o  REFUSE, as if its own peer were lost: it is dialled three times
 *
 * By UCX it reaches who has told it an address, then or in an earlier
 * conversation. */
typedef struct {
    const char *script;
    int cut;         /* it hangs up after so many bytes; -1: never */
    unsigned one_in; /* so many of what it writes are changed; 0: none */
    uint64_t seed;   /* how */
} false_talk_t;

/* Made before the parent opens UCX. */
void false_host_start(false_host_t *host, link_t link, bool keyed);
/* Waits for it to listen. */
void false_host_meet(false_host_t *host);
void false_host_end(false_host_t *host);

/* Dials it and has the endpoint end, which it does with an error that names the
 * peer, within `timeout_ms` and little more: gives it, with its words. */
tmsg_status_t false_host_dial(false_host_t *host, side_t *side,
                              const false_talk_t *talk, int timeout_ms,
                              char *words, size_t bytes);

/* Dials the honest one beside it, passes a map and closes in order. */
void false_host_honest(false_host_t *host, side_t *side);

#endif
