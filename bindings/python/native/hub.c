/* SPDX-License-Identifier: BSD-3-Clause */
#include "hub.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <tensormsg/endpoint.h>

typedef struct event {
    struct event *next;
    tmsgpy_event_t what;
} event_t;

struct tmsgpy_hub {
    tmsg_worker_t *worker;
    pthread_mutex_t lock;
    pthread_cond_t left;
    unsigned inside;
    bool closed;
    event_t *first, **last;
};

tmsgpy_hub_t *tmsgpy_hub_create(tmsg_worker_t *worker)
{
    tmsgpy_hub_t *hub = calloc(1, sizeof(*hub));

    if (hub != NULL) {
        hub->worker = worker;
        hub->last = &hub->first;
        pthread_mutex_init(&hub->lock, NULL);
        pthread_cond_init(&hub->left, NULL);
    }
    return hub;
}

tmsg_worker_t *tmsgpy_hub_worker(const tmsgpy_hub_t *hub)
{
    return hub->worker;
}

int tmsgpy_hub_enter(tmsgpy_hub_t *hub)
{
    bool open;

    pthread_mutex_lock(&hub->lock);
    open = !hub->closed;
    hub->inside += open;
    pthread_mutex_unlock(&hub->lock);
    return open;
}

void tmsgpy_hub_leave(tmsgpy_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
    if (--hub->inside == 0 && hub->closed) {
        pthread_cond_broadcast(&hub->left);
    }
    pthread_mutex_unlock(&hub->lock);
}

void tmsgpy_hub_close(tmsgpy_hub_t *hub)
{
    bool first;

    pthread_mutex_lock(&hub->lock);
    first = !hub->closed;
    hub->closed = true;
    while (hub->inside > 0) {
        pthread_cond_wait(&hub->left, &hub->lock);
    }
    pthread_mutex_unlock(&hub->lock);
    if (first) {
        tmsg_worker_destroy(hub->worker);
    }
}

int tmsgpy_hub_is_closed(tmsgpy_hub_t *hub)
{
    bool closed;

    pthread_mutex_lock(&hub->lock);
    closed = hub->closed;
    pthread_mutex_unlock(&hub->lock);
    return closed;
}

void tmsgpy_hub_free(tmsgpy_hub_t *hub)
{
    tmsgpy_event_t event;

    if (hub == NULL) {
        return;
    }
    while (tmsgpy_hub_event(hub, &event)) {
    }
    pthread_cond_destroy(&hub->left);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

/* An endpoint for which there is no memory goes at once. */
static void tell(tmsgpy_hub_t *hub, int accepted, tmsg_endpoint_t *endpoint)
{
    event_t *event = malloc(sizeof(*event));

    if (event == NULL) {
        if (accepted) {
            tmsg_endpoint_destroy(endpoint);
        }
        return;
    }
    *event = (event_t){NULL, {accepted, endpoint}};
    pthread_mutex_lock(&hub->lock);
    *hub->last = event;
    hub->last = &event->next;
    pthread_mutex_unlock(&hub->lock);
}

int tmsgpy_hub_event(tmsgpy_hub_t *hub, tmsgpy_event_t *event_p)
{
    event_t *event;

    pthread_mutex_lock(&hub->lock);
    event = hub->first;
    if (event != NULL) {
        hub->first = event->next;
        if (hub->first == NULL) {
            hub->last = &hub->first;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    if (event == NULL) {
        return 0;
    }
    *event_p = event->what;
    free(event);
    return 1;
}

void tmsgpy_on_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_on_closed(endpoint, tmsgpy_on_closed, arg);
    tell(arg, 1, endpoint);
}

void tmsgpy_on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    (void)status;
    (void)error;
    tell(arg, 0, endpoint);
}
