/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucxx/ucxx.h - peers of ucx://, which come by UCX's own listener and speak
 * UCXX's active messages. What they can and cannot is docs/ucxx.md. */
#ifndef TMSG_AM_UCXX_UCXX_H
#define TMSG_AM_UCXX_UCXX_H

#include "am/listen/listener.h"
#include "am/send/send.h"

/* What Python's UCXX exchanges by stream on a new connection: a tag of ours,
 * then its hash. */
#define TMSG_UCXX_GREETING_BYTES 16

struct tmsg_ucxx {
    tmsg_endpoint_t *endpoint;
    tmsg_ucx_caller_t caller; /* to be answered, else NULL */
    tmsg_op_t flush;
    bool connected; /* UCX has flushed the new endpoint */
    bool hearing;
    tmsg_op_t hear;
    uint8_t heard[TMSG_UCXX_GREETING_BYTES];
    bool to_answer; /* the peer's greeting has come */
    tmsg_op_t greet;
    bool closing;     /* UCX flushes what was sent, */
    bool flushed;     /* and has done so */
    uint32_t arrived; /* messages: UCXX does not number them */
};

/* The UCX worker for the address of a listener, or of a peer. Errors:
 * NOT_FOUND, UNREACHABLE, IO. */
tmsg_status_t tmsg_ucxx_scope(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope);
tmsg_status_t tmsg_ucxx_route(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope);

/* Lock held: makes a new endpoint one to such a peer, and dials it. Errors:
 * NO_MEMORY; UNREACHABLE, INTERNAL. */
tmsg_status_t tmsg_ucxx_begin(tmsg_endpoint_t *endpoint);
tmsg_status_t tmsg_ucxx_dial(tmsg_endpoint_t *endpoint,
                             const tmsg_address_t *address);

/* Lock held: listens on listener->address, over a UCX worker of its own, which
 * goes with the last of its endpoints when it stops. Errors: ALREADY_EXISTS,
 * NOT_FOUND, INTERNAL. */
tmsg_status_t tmsg_ucxx_listen(tmsg_listener_t *listener,
                               const tmsg_ucx_scope_t *scope);
void tmsg_ucxx_unlisten(tmsg_listener_t *listener);

/* Lock held, outside UCX: whether it is to be left alone, because a peer has
 * sent queue_depth messages that nobody takes and nothing else is under way. */
bool tmsg_ucxx_fills(tmsg_ucx_t *ucx);

static inline bool tmsg_ucxx_is_full(tmsg_ucx_t *ucx)
{
    return ucx->scope.family != 0 && tmsg_ucxx_fills(ucx);
}

/* UCX's callback for every message. */
tmsg_ucx_status_t tmsg_ucxx_arrived(void *arg, const void *header,
                                    size_t header_bytes, void *data,
                                    size_t data_bytes,
                                    const tmsg_ucx_am_info_t *info);

/* Of its dialect. */
tmsg_status_t tmsg_ucxx_prepare(tmsg_send_t *send);
void tmsg_ucxx_failed(tmsg_send_t *send, tmsg_ucx_status_t ucs);
void tmsg_ucxx_answer(tmsg_endpoint_t *endpoint, uint32_t message_id,
                      tmsg_status_t status, const char *error);
void tmsg_ucxx_credit(tmsg_channel_t *channel);
tmsg_status_t tmsg_ucxx_advance(tmsg_endpoint_t *endpoint);
void tmsg_ucxx_close(tmsg_endpoint_t *endpoint);
void tmsg_ucxx_end(tmsg_endpoint_t *endpoint);

#endif
