/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/session.h - what a connection knows of its session. */
#ifndef TMSG_AM_ENDPOINT_SESSION_H
#define TMSG_AM_ENDPOINT_SESSION_H

#include "am/endpoint/endpoint.h"

/* Returns whether what the peer has not confirmed is kept for another
 * connection. */
bool tmsg_resume_keeps(const tmsg_endpoint_t *endpoint);

/* Returns whether an endpoint is between two connections, of the same session
 * or of two. */
bool tmsg_resume_is_away(const tmsg_endpoint_t *endpoint);

/* Returns whether it is between two connections of the same session. */
bool tmsg_resume_goes_on(const tmsg_endpoint_t *endpoint);

bool tmsg_resume_is_asking(const tmsg_endpoint_t *endpoint);

/* Returns whether there are sends that the peer did not get. They go before all
 * others. */
bool tmsg_resume_has_again(const tmsg_endpoint_t *endpoint);

/* Returns a text about an endpoint that is away; "" if it is not. The text
 * belongs to the calling thread. */
const char *tmsg_resume_words(const tmsg_endpoint_t *endpoint);

#define TMSG_RESUME_FOR_EVER UINT32_MAX

/* A session remembers this many refusals that the peer may not have heard. */
#define TMSG_RESUME_OUTCOMES 256

/* Tells how a message of the peer ended that was not taken. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    int32_t status;
    /* Counts the messages received on its channel when its turn came. */
    uint64_t delivered;
} tmsg_outcome_t;

/* Holds the session of an endpoint that asks for one, or allows one. */
typedef struct tmsg_resume {
    tmsg_endpoint_t *endpoint;
    int32_t first_backoff_ms; /* dialling side */
    int32_t most_backoff_ms;
    int connect_timeout_ms;
    bool same_process; /* a restarted peer is the end */
    /* Bounds the time from a break to the end of the session; or
     * TMSG_RESUME_FOR_EVER. */
    uint32_t keep_ms;
    /* Tells that the connection stood once, and both sides keep the session. */
    bool agreed;
    bool over; /* the next end of the connection ends the session */
    bool away; /* broken, and not open again */
    /* The endpoint takes the place of one whose session is over, and has not
     * been open: its first connection begins a session. */
    bool beginning;
    bool stood;   /* it has been open */
    bool final;   /* its end is that of the handle, too */
    bool at_once; /* somebody listens there: the next attempt need not wait */
    /* Whose place it takes, held: it connects when UCX has nothing of that any
     * more. NULL: nobody's, or it has begun to connect. */
    tmsg_endpoint_t *before;
    /* What was under way when the session before ended: what ended with it, and
     * what went over. */
    struct {
        size_t sends, calls, moved;
    } lost;
    bool asking; /* the dialling side has sent RESUME, and waits */
    uint8_t id[TMSG_TOKEN_BYTES];
    uint8_t peer[TMSG_INSTANCE_BYTES];
    /* Holds the peer's hello on the dialling side, with keys, before the peer
     * has proved one. */
    tmsg_hello_t claimed;
    unsigned attempts; /* attempts since the connection broke */
    uint64_t broke_ns;
    uint64_t opened_ns;
    tmsg_timer_t again; /* makes the next attempt */
    tmsg_timer_t end;   /* ends the session */
    /* Holds a RESUME on the dialled side that waits for its session. */
    uint8_t *asked;
    size_t asked_bytes;
    char broke[160];    /* why it broke */
    char latest[160];   /* why the latest attempt failed; "": none did */
    size_t again_count; /* posted sends with `again` set; see send/again.h */
    bool fetch_failed;  /* a fetch broke this connection */
    unsigned fetch_failures; /* connections in a row that a fetch broke */
    tmsg_outcome_t outcomes[TMSG_RESUME_OUTCOMES]; /* a ring */
    unsigned outcome_count, outcome_next;
    uint64_t times; /* number of times that the session came back */
    /* What became of the session is told to the application; see told.h. */
    tmsg_session_fn on_session;
    void *on_session_arg;
    void *
        told_spare; /* record for an event, if there is no memory for another */
    uint32_t sessions; /* sessions of the handle, with the current one */
} tmsg_resume_t;

#endif
