/* SPDX-License-Identifier: BSD-3-Clause */
/* support/forged_listener.h - a process that listens and says to who dials it
 * what it is told to, right or wrong, by the bootstrap socket and by UCX. An
 * honest listener is beside it. */
#ifndef TMSG_TESTS_FORGED_LISTENER_H
#define TMSG_TESTS_FORGED_LISTENER_H

#include "support/peers.h"

typedef struct {
    link_t link; /* none by blob */
    bool keyed;  /* both listeners ask for the key of number 1 */
    child_t child;
    char url[128];
    char honest_url[128];
} false_host_t;

/* The steps of a conversation with the next peer that dials. Messages by UCX go
 * to the address that a peer said last, perhaps in an earlier conversation. */
#define FALSE_STEPS(STEP)                                                      \
    STEP(SAY_MAGIC)                                                            \
    STEP(SAY_HELLO)                                                            \
    STEP(SAY_PROOF)                                                            \
    STEP(SAY_ADDRESS)      /* of its UCX worker */                             \
    STEP(SAY_DEAD_ADDRESS) /* of a UCX worker that is gone */                  \
    STEP(HEAR_HELLO)                                                           \
    STEP(HEAR_PROOF)                                                           \
    STEP(HEAR_ADDRESS)                                                         \
    STEP(POST_CONNECT_REPLY) /* by UCX */                                      \
    STEP(POST_WIREUP_REPLY)  /* by UCX */                                      \
    STEP(POST_EACH_KIND)     /* by UCX, unknown kinds too */                   \
    STEP(SAY_NOISE)                                                            \
    STEP(SAY_EMPTY_HELLO)                                                      \
    STEP(SAY_ZERO_HELLO)                                                       \
    STEP(SAY_HUGE_LENGTH)     /* the first bytes of a frame of 4 GiB */        \
    STEP(SAY_LENGTH_TOO_LONG) /* those of a frame a byte too long */           \
    STEP(SAY_UNKNOWN_TYPE)                                                     \
    STEP(SAY_EACH_TYPE) /* each in a frame of 3 bytes */                       \
    STEP(SAY_REFUSE)                                                           \
    STEP(SAY_SHORT_REFUSE) /* of 2 bytes */                                    \
    STEP(SAY_PEER_LOST)    /* REFUSE, as if its own peer were lost */          \
    STEP(SAY_RESUME)                                                           \
    STEP(SAY_RESUMED)                                                          \
    STEP(SAY_BYE)                                                              \
    STEP(SAY_FIN)                                                              \
    STEP(SAY_HEARTBEAT)                                                        \
    STEP(SHUT_WRITING)                                                         \
    STEP(AWAIT_END) /* until the peer hangs up */                              \
    STEP(HANG_UP_BY_RESET)                                                     \
    STEP(KEEP_CONNECTION) /* it stays open after the last step */              \
    STEP(HANG_UP_ON_KEPT)

#define FALSE_STEP(name) name,

typedef enum {
    HANG_UP = 0, /* ends the steps */
    FALSE_STEPS(FALSE_STEP) FALSE_STEP_COUNT
} false_step_t;

#define FALSE_STEPS_MOST 16 /* of a conversation, with the end */

/* Their names; valid until the next call. */
const char *false_steps_text(const false_step_t *steps);

typedef struct {
    const false_step_t *steps;
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
