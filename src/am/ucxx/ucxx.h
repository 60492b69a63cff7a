/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucxx/ucxx.h - peers of ucx://, which come by UCX's own listener and speak
 * UCXX's active messages. docs/how-to/ucxx.md tells what they can and cannot
 * do. */
#ifndef TMSG_AM_UCXX_UCXX_H
#define TMSG_AM_UCXX_UCXX_H

#include "am/listen/listener.h"
#include "am/send/send.h"

/* The bytes that Python's UCXX exchanges by stream on a new connection: a tag
 * of its own, then the tag's hash. */
#define TMSG_UCXX_GREETING_BYTES 16

struct tmsg_ucxx {
    tmsg_endpoint_t *endpoint;
    tmsg_ucx_caller_t caller; /* waits for an answer; NULL: none does */
    tmsg_op_t flush;
    bool connected; /* UCX has flushed the new endpoint */
    bool hearing;
    tmsg_op_t hear;
    uint8_t heard[TMSG_UCXX_GREETING_BYTES];
    bool to_answer; /* the peer's greeting has come */
    tmsg_op_t greet;
    bool closing;     /* UCX flushes what was sent before the end */
    bool flushed;     /* UCX has flushed what was sent */
    uint32_t arrived; /* number of messages; UCXX does not number them */
};

/* Find the scope of the UCX worker: for the address of a listener, and for that
 * of a peer. Errors: NOT_FOUND, UNREACHABLE, IO, UNSUPPORTED (::1 with UCX
 * 1.13). */
tmsg_status_t tmsg_ucxx_scope(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope);
tmsg_status_t tmsg_ucxx_route(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope);

/* tmsg_ucxx_begin() makes a new endpoint one to such a peer. Errors: NO_MEMORY.
 * tmsg_ucxx_dial() dials the peer. Errors: UNREACHABLE, INTERNAL, and those of
 * tmsg_ucxx_route(). Lock held in both. */
tmsg_status_t tmsg_ucxx_begin(tmsg_endpoint_t *endpoint);
tmsg_status_t tmsg_ucxx_dial(tmsg_endpoint_t *endpoint,
                             const tmsg_address_t *address);

/* tmsg_ucxx_listen() listens on listener->address, over a UCX worker of its
 * own. After tmsg_ucxx_unlisten() that goes with the last of its endpoints.
 * Lock held. Errors: ALREADY_EXISTS, NOT_FOUND, INTERNAL. */
tmsg_status_t tmsg_ucxx_listen(tmsg_listener_t *listener,
                               const tmsg_ucx_scope_t *scope);
void tmsg_ucxx_unlisten(tmsg_listener_t *listener);

/* Returns whether the UCX worker is to make no progress now: a peer has sent
 * queue_depth messages that nobody takes, and nothing else is under way. Lock
 * held, outside UCX. */
bool tmsg_ucxx_fills(tmsg_ucx_t *ucx);

static inline bool tmsg_ucxx_is_full(tmsg_ucx_t *ucx)
{
    return ucx->scope.family != 0 && tmsg_ucxx_fills(ucx);
}

/* UCX calls this for every message: the handler of tmsg_ucx_open(). */
tmsg_ucx_status_t tmsg_ucxx_arrived(void *arg, const void *header,
                                    size_t header_bytes, void *data,
                                    size_t data_bytes,
                                    const tmsg_ucx_am_info_t *info);

/* The functions of tmsg_dialect_ucxx (endpoint/dialect.h). */
tmsg_status_t tmsg_ucxx_prepare(tmsg_send_t *send);
void tmsg_ucxx_failed(tmsg_send_t *send, tmsg_ucx_status_t ucs);
void tmsg_ucxx_answer(tmsg_endpoint_t *endpoint, uint32_t message_id,
                      tmsg_status_t status, const char *error);
void tmsg_ucxx_credit(tmsg_channel_t *channel);
tmsg_status_t tmsg_ucxx_advance(tmsg_endpoint_t *endpoint);
void tmsg_ucxx_close(tmsg_endpoint_t *endpoint);
void tmsg_ucxx_end(tmsg_endpoint_t *endpoint);

#endif
