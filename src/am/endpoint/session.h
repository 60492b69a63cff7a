/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/session.h - what a connection knows of its session. */
#ifndef TMSG_AM_ENDPOINT_SESSION_H
#define TMSG_AM_ENDPOINT_SESSION_H

#include "am/endpoint/endpoint.h"

/* Whether what the peer has not confirmed is kept for another connection. */
bool tmsg_resume_keeps(const tmsg_endpoint_t *endpoint);

/* Whether an endpoint is between two connections. */
bool tmsg_resume_is_away(const tmsg_endpoint_t *endpoint);

bool tmsg_resume_is_asking(const tmsg_endpoint_t *endpoint);

/* Sends that the peer did not get go before all others. */
bool tmsg_resume_has_again(const tmsg_endpoint_t *endpoint);

/* The words while it is away; a text of this thread. */
const char *tmsg_resume_words(const tmsg_endpoint_t *endpoint);

#define TMSG_RESUME_FOR_EVER UINT32_MAX

#define TMSG_RESUME_OUTCOMES                                                   \
    256 /* refusals that the peer may not have heard                           \
         */

/* What became of a message of the peer's, other than that it was taken. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    int32_t status;
    uint64_t delivered; /* of its channel, when its turn came */
} tmsg_outcome_t;

/* Of an endpoint that asks for a session, or allows one. */
typedef struct tmsg_resume {
    tmsg_endpoint_t *endpoint;
    int32_t first_backoff_ms; /* dialling side */
    int32_t most_backoff_ms;
    int connect_timeout_ms;
    uint32_t keep_ms; /* from a break to the end of the session; for ever */
    bool agreed;      /* the connection stood once, and both sides keep it */
    bool over;        /* the next end is the end */
    bool away;        /* broken, and not open again */
    bool asking;      /* the dialling side has sent RESUME, and waits */
    uint8_t id[TMSG_TOKEN_BYTES];
    uint8_t peer[TMSG_INSTANCE_BYTES];
    tmsg_hello_t claimed; /* dialling side, with keys: not proved yet */
    unsigned attempts;    /* since it broke */
    uint64_t broke_ns;
    uint64_t opened_ns;
    tmsg_timer_t again; /* the next attempt */
    tmsg_timer_t end;   /* of the session */
    uint8_t *asked;     /* dialled side: a RESUME that waits for its session */
    size_t asked_bytes;
    char broke[160];         /* why */
    char latest[160];        /* what became of the latest attempt; "" */
    size_t again_count;      /* sends that go to UCX once more */
    bool fetch_failed;       /* which broke this connection */
    unsigned fetch_failures; /* such connections in a row */
    tmsg_outcome_t outcomes[TMSG_RESUME_OUTCOMES]; /* a ring */
    unsigned outcome_count, outcome_next;
    uint64_t times; /* that it came back */
} tmsg_resume_t;

#endif
