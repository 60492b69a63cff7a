/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - what happens to sessions and peers, until Go takes it. */
#include "events.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct node {
    tmsggo_event_t event;
    int is_end; /* it stays the last one */
    struct node *next;
} node_t;

struct tmsggo_events {
    atomic_int none; /* first: is_over() asks it */
    pthread_mutex_t lock;
    node_t *first;
    node_t **last;
    size_t count;
    size_t most;
};

tmsggo_events_t *tmsggo_events_create(size_t most)
{
    tmsggo_events_t *events = calloc(1, sizeof(*events));
    if (events != NULL) {
        atomic_store(&events->none, 1);
        pthread_mutex_init(&events->lock, NULL);
        events->last = &events->first;
        events->most = most;
    }
    return events;
}

static void free_node(node_t *node)
{
    free(node->event.peer);
    free(node->event.principal);
    free(node->event.words);
    free(node);
}

static node_t *pop(tmsggo_events_t *events)
{
    node_t *node = events->first;
    events->first = node->next;
    if (events->first == NULL) {
        events->last = &events->first;
        atomic_store(&events->none, 1);
    }
    events->count--;
    return node;
}

void tmsggo_events_destroy(tmsggo_events_t *events)
{
    if (events != NULL) {
        while (events->first != NULL) {
            free_node(pop(events));
        }
        pthread_mutex_destroy(&events->lock);
        free(events);
    }
}

static char *copy(const char *text) { return text ? strdup(text) : NULL; }

/* One for which there is no memory is left out. */
static void add(tmsggo_events_t *events, tmsggo_event_t event, int is_end)
{
    node_t *node = malloc(sizeof(*node));
    if (node == NULL) {
        return;
    }
    event.peer = copy(event.peer);
    event.principal = copy(event.principal);
    event.words = copy(event.words);
    *node = (node_t){event, is_end, NULL};
    pthread_mutex_lock(&events->lock);
    if (events->count == events->most) {
        free_node(pop(events));
    }
    *events->last = node;
    events->last = &node->next;
    events->count++;
    atomic_store(&events->none, 0);
    pthread_mutex_unlock(&events->lock);
}

int tmsggo_events_take(tmsggo_events_t *events, tmsggo_event_t *event)
{
    pthread_mutex_lock(&events->lock);
    node_t *node = events->first;
    if (node != NULL && node->is_end) {
        *event = node->event;
        event->words = copy(event->words);
    } else if (node != NULL) {
        *event = node->event;
        free(pop(events));
    }
    pthread_mutex_unlock(&events->lock);
    return node != NULL;
}

static void session(void *arg, tmsg_endpoint_t *endpoint,
                    tmsg_session_event_t kind, const char *words)
{
    (void)endpoint;
    add(arg, (tmsggo_event_t){.kind = (int32_t)kind, .words = (char *)words},
        0);
}

static void closed(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error)
{
    (void)endpoint;
    add(arg,
        (tmsggo_event_t){.kind = -1, .status = status, .words = (char *)error},
        1);
}

void tmsggo_events_of_session(tmsggo_events_t *events,
                              tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_set_user(endpoint, events);
    tmsg_endpoint_on_session(endpoint, session, events);
    tmsg_endpoint_on_closed(endpoint, closed, events);
}

static void tell(tmsggo_events_t *events, tmsg_endpoint_t *endpoint,
                 int32_t kind, tmsg_status_t status, const char *words)
{
    add(events,
        (tmsggo_event_t){
            .kind = kind,
            .status = status,
            .peer = (char *)tmsg_endpoint_peer(endpoint),
            .principal = (char *)tmsg_endpoint_principal(endpoint),
            .words = (char *)words,
        },
        0);
}

static void came(void *arg, tmsg_endpoint_t *endpoint)
{
    tell(arg, endpoint, 0, TMSG_OK, NULL);
}

static void gone(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                 const char *error)
{
    tell(arg, endpoint, -1, status, error);
}

void tmsggo_events_of_peers(tmsggo_events_t *events,
                            tmsg_listener_params_t *params)
{
    params->field_mask |= TMSG_LISTENER_PARAM_ON_PEER;
    params->on_peer = came;
    params->on_lost = gone;
    params->on_peer_arg = events;
}

static void refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                    uint32_t sequence, tmsg_status_t status, const char *error)
{
    add(arg,
        (tmsggo_event_t){
            .status = status,
            .channel = channel,
            .sequence = sequence,
            .peer = (char *)tmsg_endpoint_peer(endpoint),
            .principal = (char *)tmsg_endpoint_principal(endpoint),
            .words = (char *)error,
        },
        0);
}

void tmsggo_events_of_refused(tmsggo_events_t *events,
                              tmsg_worker_params_t *params)
{
    params->field_mask |= TMSG_WORKER_PARAM_ON_REFUSED;
    params->on_refused = refused;
    params->on_refused_arg = events;
}
