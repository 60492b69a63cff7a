/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles on streams, and what is told of them. */
#include "hub_impl.h"

#include <stdlib.h>
#include <unistd.h>

struct told {
    struct told *next;
    const tmsg_call_stream_t *stream;
};

struct tmsgpy_stream {
    tmsgpy_stream_t *next; /* of those left over */
    tmsgpy_hub_t *hub;
    tmsg_call_stream_t *stream; /* NULL: it is an offer's, or a bell's */
    tmsg_offer_t *offer;
    tmsg_bell_t *bell;
};

tmsgpy_stream_t *tmsgpy_stream_make(tmsgpy_hub_t *hub,
                                    tmsg_call_stream_t *stream)
{
    tmsgpy_stream_t *handle = malloc(sizeof(*handle));

    if (handle != NULL) {
        *handle = (tmsgpy_stream_t){.hub = hub, .stream = stream};
        pthread_mutex_lock(&hub->lock);
        hub->holds++;
        pthread_mutex_unlock(&hub->lock);
    }
    return handle;
}

tmsgpy_stream_t *tmsgpy_offer_handle(tmsgpy_hub_t *hub)
{
    return tmsgpy_stream_make(hub, NULL);
}

void tmsgpy_offer_own(tmsgpy_stream_t *handle, tmsg_offer_t *offer)
{
    handle->offer = offer;
}

tmsg_offer_t *tmsgpy_offer_of(const tmsgpy_stream_t *handle)
{
    return handle->offer;
}

tmsgpy_stream_t *tmsgpy_bell_handle(tmsgpy_hub_t *hub)
{
    return tmsgpy_stream_make(hub, NULL);
}

void tmsgpy_bell_own(tmsgpy_stream_t *handle, tmsg_bell_t *bell)
{
    handle->bell = bell;
}

tmsg_bell_t *tmsgpy_bell_of(const tmsgpy_stream_t *handle)
{
    return handle->bell;
}

/* Each of them allows NULL. */
static void destroy_held(const tmsgpy_stream_t *handle)
{
    tmsg_call_stream_destroy(handle->stream);
    tmsg_offer_destroy(handle->offer);
    tmsg_bell_destroy(handle->bell);
}

tmsg_call_stream_t *tmsgpy_stream_of(const tmsgpy_stream_t *handle)
{
    return handle->stream;
}

tmsgpy_hub_t *tmsgpy_stream_hub(const tmsgpy_stream_t *handle)
{
    return handle->hub;
}

/* While the worker is being destroyed nobody may call it, and whoever calls us
 * may hold the interpreter's lock, so that to wait is barred, too. */
void tmsgpy_stream_drop(tmsgpy_stream_t *handle)
{
    tmsgpy_hub_t *hub = handle->hub;
    bool open, later;

    if (hub->pid != getpid()) {
        return; /* its lock may be held by a thread that is not here */
    }
    pthread_mutex_lock(&hub->lock);
    open = !hub->closed;
    later = hub->closed && !hub->gone;
    hub->inside += open;
    if (later) {
        handle->next = hub->left_over;
        hub->left_over = handle;
    }
    pthread_mutex_unlock(&hub->lock);
    if (later) {
        return;
    }
    destroy_held(handle);
    if (open) {
        tmsgpy_hub_leave(hub);
    }
    tmsgpy_hub_let_go(hub);
    free(handle);
}

static void tell_of(tmsgpy_hub_t *hub, const tmsg_call_stream_t *stream,
                    bool over)
{
    struct told *told = malloc(sizeof(*told));

    pthread_mutex_lock(&hub->lock);
    if (told != NULL) {
        *told = (struct told){NULL, stream};
        *hub->last_told = told;
        hub->last_told = &told->next;
    } else {
        hub->missed = true;
    }
    hub->overs += over;
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
}

static void on_readable(void *arg, tmsg_call_stream_t *stream)
{
    tell_of(arg, stream, false);
}

static void on_stream_over(void *arg, tmsg_call_stream_t *stream,
                           tmsg_status_t status)
{
    (void)status;
    tell_of(arg, stream, true);
}

void tmsgpy_stream_watch(tmsgpy_stream_t *handle)
{
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = on_readable,
        .on_over = on_stream_over,
        .arg = handle->hub};

    tmsg_call_stream_set_events(handle->stream, &events);
}

int tmsgpy_hub_told(tmsgpy_hub_t *hub, const tmsg_call_stream_t **stream_p)
{
    struct told *told;
    bool missed;

    pthread_mutex_lock(&hub->lock);
    missed = hub->missed;
    hub->missed = false;
    told = missed ? NULL : hub->told;
    if (told != NULL) {
        hub->told = told->next;
        if (hub->told == NULL) {
            hub->last_told = &hub->told;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    *stream_p = told == NULL ? NULL : told->stream;
    free(told);
    return missed || told != NULL;
}

void tmsgpy_hub_drop_left_over(tmsgpy_hub_t *hub)
{
    tmsgpy_stream_t *handle;

    pthread_mutex_lock(&hub->lock);
    hub->gone = true;
    handle = hub->left_over;
    hub->left_over = NULL;
    pthread_mutex_unlock(&hub->lock);
    while (handle != NULL) {
        tmsgpy_stream_t *next = handle->next;

        tmsgpy_stream_drop(handle);
        handle = next;
    }
}
