/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/dialect.h - what is spoken on an endpoint: our messages, or
 * UCXX's. */
#ifndef TMSG_AM_ENDPOINT_DIALECT_H
#define TMSG_AM_ENDPOINT_DIALECT_H

#include "am/endpoint/endpoint.h"

typedef struct tmsg_send tmsg_send_t;

/* The rooms endpoint, recv, send and engine call these entries, with the
 * worker's lock held and outside UCX unless an entry says otherwise. No entry
 * calls a function of the application. */
struct tmsg_dialect {
    bool answers;        /* peers say what became of a message */
    uint32_t send_flags; /* flags for every map: TMSG_UCX_SEND_* */
    /* Prepares a send that goes next: fills in send->header and send->plan.
     * IN_PROGRESS: the peer has to tell of room first, and nothing has
     * changed. */
    tmsg_status_t (*prepare)(tmsg_send_t *send);
    /* UCX gave up a send. May be inside UCX. NULL: the peer's answer, or the
     * end of the connection, is still to come. */
    void (*failed)(tmsg_send_t *send, tmsg_ucx_status_t ucs);
    /* Tells the peer what became of its message. May be inside UCX. */
    void (*answer)(tmsg_endpoint_t *endpoint, uint32_t message_id,
                   tmsg_status_t status, const char *error);
    /* Tells the peer what was consumed. May be inside UCX. */
    void (*credit)(tmsg_channel_t *channel);
    /* Takes the next step of connecting, if one is possible. IN_PROGRESS: none
     * is. */
    tmsg_status_t (*advance)(tmsg_endpoint_t *endpoint);
    /* Takes every possible step of closing. May end the endpoint. */
    void (*close)(tmsg_endpoint_t *endpoint);
    /* The endpoint has ended. Its UCX endpoint is closed next. */
    void (*end)(tmsg_endpoint_t *endpoint);
};

#endif
