/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_am.h - UCX's active messages.
 *
 * What UCX is given to do is over when a function here returns, with the status
 * that it gives; or, for IN_PROGRESS, when UCX calls `sent` or `received`. */
#ifndef TMSG_AM_UCX_UCX_AM_H
#define TMSG_AM_UCX_UCX_AM_H

#include <stdint.h>

#include "am/ucx/ucx.h"

/* How a message is sent: `flags`. */
enum {
    TMSG_UCX_SEND_REPLY = 1, /* the peer hears which endpoint it came by */
    TMSG_UCX_SEND_EAGER = 2,
    TMSG_UCX_SEND_RENDEZVOUS = 4
};

#define TMSG_UCX_MEMORY_HOST 0 /* UCX's number of a type of memory */

/* UCX reads header, payload and list until the message is sent. */
typedef struct {
    const void *header;
    size_t header_bytes;
    const void *data; /* the payload, or a list of struct iovec */
    size_t bytes;     /* of the payload where that is no list */
    size_t pieces;    /* of the list; 0: it is none */
    uint32_t flags;   /* neither eager nor rendezvous: UCX chooses */
    int memory_type;  /* of the payload */
} tmsg_ucx_send_t;

tmsg_ucx_status_t tmsg_ucx_am_send(tmsg_ucx_ep_t ep,
                                   const tmsg_ucx_send_t *send,
                                   tmsg_ucx_sent_t sent, void *arg);

/* Sends a message from the host's memory at once and without making the two UCX
 * endpoints acquainted, or not at all (NO_RESOURCE: not now). */
tmsg_ucx_status_t tmsg_ucx_am_send_now(tmsg_ucx_ep_t ep, const void *header,
                                       size_t header_bytes, const void *payload,
                                       size_t payload_bytes);

/* The error of a message that was not sent: PEER_LOST. */
tmsg_status_t tmsg_ucx_am_unsent(tmsg_ucx_status_t status);

/* Where the payload of a rendezvous is to go. */
typedef struct {
    void *data;      /* or a list of struct iovec */
    size_t bytes;    /* where that is no list */
    size_t pieces;   /* of the list; 0: it is none */
    int memory_type; /* of the place */
} tmsg_ucx_place_t;

/* Fetches the payload that came as `data`, which is UCX's again. */
tmsg_ucx_status_t tmsg_ucx_am_receive(const tmsg_ucx_t *ucx, void *data,
                                      const tmsg_ucx_place_t *place,
                                      tmsg_ucx_received_t received, void *arg);

/* Gives back what UCX was to keep. The sender of a rendezvous hears of success.
 */
void tmsg_ucx_am_release(const tmsg_ucx_t *ucx, void *data);

void tmsg_ucx_request_free(void *request);

/* Whether the payload is still in the sender's memory. */
bool tmsg_ucx_am_is_rendezvous(const tmsg_ucx_am_info_t *info);

/* The endpoint that a message came by; NULL: its sender did not ask for it. */
tmsg_ucx_ep_t tmsg_ucx_am_reply_ep(const tmsg_ucx_am_info_t *info);

#endif
