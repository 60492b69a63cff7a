/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/dialect.h - what is said on an endpoint: our messages, or UCXX's.
 */
#ifndef TMSG_AM_ENDPOINT_DIALECT_H
#define TMSG_AM_ENDPOINT_DIALECT_H

#include "am/endpoint/endpoint.h"

typedef struct tmsg_send tmsg_send_t;

/* All with the worker's lock held. */
struct tmsg_dialect {
    bool answers;        /* peers say what became of a message */
    uint32_t send_flags; /* of every map: TMSG_UCX_SEND_* */
    /* Makes send->header and send->plan. IN_PROGRESS: the peer has to tell of
     * room first; nothing has changed. */
    tmsg_status_t (*prepare)(tmsg_send_t *send);
    /* UCX gave up a send; NULL: the peer's words are to come, or its end. */
    void (*failed)(tmsg_send_t *send, tmsg_ucx_status_t ucs);
    /* Tells what became of a message of the peer's; inside UCX as well. */
    void (*answer)(tmsg_endpoint_t *endpoint, uint32_t message_id,
                   tmsg_status_t status, const char *error);
    /* Tells what was consumed; inside UCX as well. */
    void (*credit)(tmsg_channel_t *channel);
    /* While it connects: the step that what has come allows; IN_PROGRESS. */
    tmsg_status_t (*advance)(tmsg_endpoint_t *endpoint);
    /* Every step of the orderly end that can be taken. */
    void (*close)(tmsg_endpoint_t *endpoint);
    /* The endpoint ends, before its UCX endpoint is closed. */
    void (*end)(tmsg_endpoint_t *endpoint);
};

#endif
