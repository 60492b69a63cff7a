/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives a session another connection, by the frames RESUME and RESUMED. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "am/connect/admit.h"
#include "am/connect/carrier.h"
#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/listen/listener.h"
#include "am/session/resume.h"
#include "am/ucx/ucx_events.h"
#include "am/worker/engine.h"

/* Sends a frame of [session 16][state]. The answer has the state alone. */
static tmsg_status_t send_state(tmsg_endpoint_t *endpoint, uint8_t frame,
                                const uint8_t *id, size_t id_bytes)
{
    uint8_t *data = malloc(TMSG_FRAME_MAX_BYTES);
    size_t bytes;
    tmsg_status_t status;

    if (data == NULL) {
        return tmsg_error_memory("the state of a session");
    }
    if (id_bytes > 0) {
        memcpy(data, id, id_bytes);
    }
    status = tmsg_resume_encode(endpoint, data + id_bytes,
                                TMSG_FRAME_MAX_BYTES - id_bytes, &bytes);
    if (status == TMSG_OK) {
        /* The peer learns these answers from the state. */
        tmsg_control_discard(endpoint);
        status = tmsg_link_put(endpoint, frame, data, id_bytes + bytes);
    }
    free(data);
    return status;
}

tmsg_status_t tmsg_resume_ask(tmsg_endpoint_t *endpoint)
{
    endpoint->resume->asking = true;
    return send_state(endpoint, TMSG_FRAME_RESUME, endpoint->resume->id,
                      TMSG_TOKEN_BYTES);
}

tmsg_status_t tmsg_resume_asked(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (endpoint->dialling || resume == NULL || resume->agreed ||
        !endpoint->peer_hello.resumes || resume->asked != NULL ||
        bytes < TMSG_TOKEN_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a session out of turn");
    }
    resume->asked = malloc(bytes);
    if (resume->asked == NULL) {
        return tmsg_error_memory("the state of a session");
    }
    memcpy(resume->asked, data, bytes);
    resume->asked_bytes = bytes;
    tmsg_worker_chore(endpoint->worker, endpoint);
    return TMSG_OK;
}

tmsg_status_t tmsg_resume_granted(tmsg_endpoint_t *endpoint,
                                  const uint8_t *data, size_t bytes)
{
    tmsg_resume_t *resume = endpoint->resume;
    tmsg_status_t status;

    if (!tmsg_resume_is_asking(endpoint)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a session out of turn");
    }
    resume->asking = false;
    status = tmsg_resume_judge(endpoint, data, bytes);
    return status == TMSG_OK ? tmsg_resume_apply(endpoint, data, bytes)
                             : status;
}

static tmsg_endpoint_t *find_session(const tmsg_endpoint_t *connection)
{
    const uint8_t *peer = connection->peer_hello.instance_id;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(connection->worker, NULL, &i)) !=
           NULL) {
        if (!endpoint->dialling && tmsg_resume_keeps(endpoint) &&
            tmsg_admit_same(endpoint, connection) &&
            sodium_memcmp(endpoint->resume->id, connection->resume->asked,
                          TMSG_TOKEN_BYTES) == 0 &&
            memcmp(endpoint->resume->peer, peer, TMSG_INSTANCE_BYTES) == 0) {
            return endpoint;
        }
    }
    return NULL;
}

/* Ends the session's old connection. The peer noticed the break before this
 * side did, or the peer's latest attempt failed. */
static void leave_old(tmsg_endpoint_t *session)
{
    if (session->ep != NULL) {
        tmsg_ucx_events.drain(session->ucx);
    }
    if (!tmsg_endpoint_is_down(session)) {
        tmsg_engine.end(session, TMSG_ERR_PEER_LOST,
                        "the peer has come by another connection");
    }
}

/* A peer that knows the session's id and sends an impossible state ends the
 * session. */
void tmsg_resume_disown(tmsg_endpoint_t *connection, const char *why)
{
    tmsg_endpoint_t *session;

    if (connection->resume == NULL || connection->resume->asked == NULL) {
        return;
    }
    session = find_session(connection);
    if (session != NULL) {
        session->resume->over = true;
        tmsg_engine.end(session, TMSG_ERR_MALFORMED, why);
    }
}

/* Gives the session what a new connection has by now. */
static void take_over_connection(tmsg_endpoint_t *session,
                                 tmsg_endpoint_t *connection)
{
    const uint8_t *state = connection->resume->asked + TMSG_TOKEN_BYTES;
    size_t bytes = connection->resume->asked_bytes - TMSG_TOKEN_BYTES;
    int timeout_ms = connection->link.listener->handshake_timeout_ms;
    tmsg_status_t status = tmsg_resume_judge(session, state, bytes);

    if (status != TMSG_OK) {
        tmsg_link_refuse(connection, status);
        return;
    }
    session->peer_hello = connection->peer_hello;
    memcpy(session->why, connection->why, sizeof(session->why));
    memcpy(session->token, connection->token, sizeof(session->token));
    tmsg_credit_move(session, connection);
    tmsg_carrier_move(session, connection);
    session->ucx = connection->ucx;
    connection->ucx = NULL;
    session->state = TMSG_EP_CONNECTING;
    session->resume->attempts++;
    status = tmsg_link_move(session, connection, timeout_ms);
    tmsg_engine.end(connection, TMSG_ERR_CANCELED, "its session goes on");
    if (status == TMSG_OK) {
        status = tmsg_resume_apply(session, state, bytes);
    }
    if (status == TMSG_OK) {
        status = send_state(session, TMSG_FRAME_RESUMED, NULL, 0);
    }
    if (status == TMSG_OK) {
        status = tmsg_handshake_invite(session);
    }
    if (status != TMSG_OK) {
        tmsg_engine.end(session, status, tmsg_error_message());
    }
}

static void look_for_session(tmsg_endpoint_t *connection)
{
    tmsg_endpoint_t *session = find_session(connection);

    if (session == NULL) {
        tmsg_error_set(TMSG_ERR_PEER_LOST,
                       "this session has ended, or was never here");
        tmsg_link_refuse(connection, TMSG_ERR_PEER_LOST);
        return;
    }
    tmsg_endpoint_hold(session);
    leave_old(session);
    if (session->state == TMSG_EP_ENDED) {
        /* The chore looks once more. */
        tmsg_worker_chore(connection->worker, connection);
    } else if (session->in_ucx == 0) {
        tmsg_resume_settled(session);
        take_over_connection(session, connection);
    }
    tmsg_endpoint_drop(session);
}

void tmsg_resume_look(tmsg_endpoint_t *endpoint)
{
    if (endpoint->state == TMSG_EP_CONNECTING && endpoint->resume != NULL &&
        endpoint->resume->asked != NULL) {
        look_for_session(endpoint);
    }
}
