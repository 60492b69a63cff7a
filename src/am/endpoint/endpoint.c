/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/endpoint.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/endpoint/measures.h"
#include "am/endpoint/scheme.h"
#include "core/error.h"
#include "core/map.h"

/* Nobody is taken to wait after so long a silence. */
#define SILENCE_NS 20000000ULL

void tmsg_events_end(tmsg_event_t **list, tmsg_status_t status,
                     const char *error)
{
    while (*list != NULL) {
        tmsg_event_t *event = *list;

        *list = event->next;
        tmsg_request_end(&event->request, status, error);
    }
}

static void free_event(tmsg_request_t *request) { free(request); }

/* Ends the wait, but not what it waits for. */
static void cancel_event(tmsg_request_t *request)
{
    tmsg_event_t *event = TMSG_CONTAINER_OF(request, tmsg_event_t, request);
    tmsg_event_t **place = event->list;
    char why[TMSG_ERROR_BYTES];

    while (*place != event) {
        place = &(*place)->next;
    }
    *place = event->next;
    snprintf(why, sizeof(why), "%s: the wait was canceled by this side",
             event->endpoint == NULL ? "all peers" : event->endpoint->peer);
    tmsg_request_end(request, TMSG_ERR_CANCELED, why);
}

tmsg_status_t tmsg_events_add(tmsg_event_t **list, tmsg_worker_t *worker,
                              const tmsg_endpoint_t *endpoint,
                              tmsg_request_t **request_p)
{
    tmsg_event_t *event = calloc(1, sizeof(*event));

    if (event == NULL) {
        return tmsg_error_memory("a request");
    }
    tmsg_request_init(&event->request, worker, free_event, cancel_event);
    tmsg_request_hold(&event->request);
    event->endpoint = endpoint;
    event->list = list;
    event->next = *list;
    *list = event;
    *request_p = &event->request;
    return TMSG_OK;
}

void tmsg_endpoint_name_peer(tmsg_endpoint_t *endpoint, const char *url)
{
    snprintf(endpoint->peer_name, sizeof(endpoint->peer_name),
             "%s (pid %u on %s)", url, endpoint->peer_hello.pid,
             endpoint->peer_hello.host);
    endpoint->peer = endpoint->peer_name;
}

void tmsg_endpoint_sent_am(tmsg_endpoint_t *endpoint)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    fastboxes->sent++;
    fastboxes->unreported = fastboxes->in != NULL;
    endpoint->worker->fastboxes_unreported |= fastboxes->unreported;
    tmsg_fastboxes_call(fastboxes);
}

tmsg_status_t tmsg_endpoint_check_worker(const tmsg_endpoint_t *endpoint)
{
    if (atomic_load(&endpoint->life->over)) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: its worker was destroyed",
                              endpoint->peer);
    }
    return TMSG_OK;
}

void tmsg_endpoint_close_begin(tmsg_endpoint_t *endpoint)
{
    endpoint->face->told = true; /* our side knows already */
    if (endpoint->state == TMSG_EP_OPEN) {
        endpoint->state = TMSG_EP_CLOSING;
    }
    endpoint->close_wanted = true;
    tmsg_worker_chore(endpoint->worker, endpoint);
}

bool tmsg_endpoint_is_alone(const tmsg_endpoint_t *endpoint,
                            tmsg_others_t *others)
{
    const tmsg_stats_t *stats = &endpoint->stats;
    uint64_t small = stats->sent_messages - stats->sent_by_bulk +
                     stats->received_messages - stats->received_by_bulk;

    return tmsg_others_silent(others, small, tmsg_now_ns(), SILENCE_NS);
}

tmsg_status_t tmsg_endpoint_check_pull(const tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status == TMSG_OK && endpoint->worker->handler != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the worker has a message handler, which gets "
                              "all messages: there is nothing to receive");
    }
    return status;
}

bool tmsg_admit_is_asked(const tmsg_endpoint_t *endpoint)
{
    return endpoint->admit.keyring != NULL || endpoint->admit.tls != NULL;
}

bool tmsg_admit_is_over(const tmsg_endpoint_t *endpoint)
{
    return !tmsg_admit_is_asked(endpoint) || endpoint->admit.admitted;
}

bool tmsg_admit_is_half(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_CONNECTING &&
           !tmsg_admit_is_over(endpoint);
}

bool tmsg_close_waits(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_CLOSING ||
           (endpoint->state == TMSG_EP_OPEN &&
            (endpoint->close_wanted || endpoint->bye_received));
}

/* This does not read from the socket: heartbeats may lie before its end. */
bool tmsg_link_alive(const tmsg_endpoint_t *endpoint)
{
    struct pollfd socket = {endpoint->link.fd, POLLRDHUP, 0};

    if (socket.fd < 0) {
        return !tmsg_schemes[endpoint->link.url.kind]->socket;
    }
    return poll(&socket, 1, 0) <= 0;
}

void tmsg_worker_chore(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint)
{
    if (!endpoint->chores.queued) {
        endpoint->chores.queued = true;
        tmsg_endpoint_hold(endpoint);
        tmsg_list_push(&worker->chores, &endpoint->chores.node);
    }
}

tmsg_endpoint_t *tmsg_worker_next_chore(tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint = TMSG_CONTAINER_OF(
        tmsg_list_pop(&worker->chores), tmsg_endpoint_t, chores.node);

    endpoint->chores.queued = false;
    return endpoint;
}

tmsg_measures_t *tmsg_send_measured(tmsg_endpoint_t *endpoint,
                                    const tmsg_map_t *map)
{
    return &endpoint->measured[tmsg_map_stamp(map) % TMSG_MEASURED];
}
