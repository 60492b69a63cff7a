/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_am.h - UCX's active messages.
 *
 * An operation here is over when its function returns, with the status that it
 * returns. IN_PROGRESS means instead that UCX calls `sent` or `received` at its
 * end. */
#ifndef TMSG_AM_UCX_UCX_AM_H
#define TMSG_AM_UCX_UCX_AM_H

#include <stdint.h>

#include "am/ucx/ucx.h"

/* The bits of `flags` say how a message is sent. */
enum {
    TMSG_UCX_SEND_REPLY = 1, /* the peer is told the endpoint that it came by */
    TMSG_UCX_SEND_EAGER = 2,
    TMSG_UCX_SEND_RENDEZVOUS = 4
};

#define TMSG_UCX_MEMORY_HOST 0 /* UCX's number for host memory */

/* A message to be sent. UCX reads header, payload and list until the message is
 * sent. */
typedef struct {
    const void *header;
    size_t header_bytes;
    const void *data; /* the payload, or a list of struct iovec */
    size_t bytes;     /* of the payload, unless it is a list */
    size_t pieces;    /* number of list entries; 0: `data` is no list */
    /* TMSG_UCX_SEND_*; neither eager nor rendezvous: UCX chooses. */
    uint32_t flags;
    int memory_type; /* of the payload, by UCX's number */
} tmsg_ucx_send_t;

tmsg_ucx_status_t tmsg_ucx_am_send(tmsg_ucx_ep_t ep,
                                   const tmsg_ucx_send_t *send,
                                   tmsg_ucx_sent_t sent, void *arg);

/* Sends an eager message from host memory at once, without asking the peer for
 * its UCX endpoint. NO_RESOURCE: UCX cannot send it now, and has not. */
tmsg_ucx_status_t tmsg_ucx_am_send_now(tmsg_ucx_ep_t ep, const void *header,
                                       size_t header_bytes, const void *payload,
                                       size_t payload_bytes);

/* Sets and returns the error of a message that was not sent: PEER_LOST. */
tmsg_status_t tmsg_ucx_am_unsent(tmsg_ucx_ep_t ep, tmsg_ucx_status_t status);

/* The place where the payload of a rendezvous is to go. */
typedef struct {
    void *data;      /* the memory, or a list of struct iovec */
    size_t bytes;    /* of the memory, unless it is a list */
    size_t pieces;   /* number of list entries; 0: `data` is no list */
    int memory_type; /* of the place, by UCX's number */
} tmsg_ucx_place_t;

/* Fetches the payload that came as `data`. `data` belongs to UCX again. */
tmsg_ucx_status_t tmsg_ucx_am_receive(const tmsg_ucx_t *ucx, void *data,
                                      const tmsg_ucx_place_t *place,
                                      tmsg_ucx_received_t received, void *arg);

/* Gives back `data` that UCX was to keep. The sender of a rendezvous gets
 * success. */
void tmsg_ucx_am_release(const tmsg_ucx_t *ucx, void *data);

void tmsg_ucx_request_free(void *request);

/* Returns whether the payload is still in the sender's memory. */
bool tmsg_ucx_am_is_rendezvous(const tmsg_ucx_am_info_t *info);

/* Returns whether the payload has to be copied before the handler returns: it
 * cannot be kept. */
bool tmsg_ucx_am_is_fleeting(const tmsg_ucx_am_info_t *info);

/* Returns the endpoint that a message came by. NULL: its sender did not set
 * TMSG_UCX_SEND_REPLY. */
tmsg_ucx_ep_t tmsg_ucx_am_reply_ep(const tmsg_ucx_am_info_t *info);

#endif
