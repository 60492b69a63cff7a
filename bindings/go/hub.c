/* SPDX-License-Identifier: BSD-3-Clause */
/* hub.c - a worker as Go holds it. */
#include "hub.h"

#include "events.h"
#include "publisher.h"
#include "stream.h"
#include "waits.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A turn takes about as long as to read the clock. */
#define CLOCK_TURNS 16

/* More of those that are asked after each event are too many. */
#define FEW 8

/* An endpoint whose session is kept, and its events. */
typedef struct link {
    tmsggo_events_t *events;
    struct link *next;
} link_t;

/* What a method's handler is given. */
typedef struct served {
    tmsggo_hub_t *hub;
    uint32_t index;
    struct served *next;
} served_t;

struct tmsggo_hub {
    pthread_mutex_t lock;
    tmsg_worker_t *worker;
    tmsggo_waits_t waits;
    uint64_t arrivals;   /* of the worker, when receives were asked for last */
    atomic_int has_over; /* somebody is to be told */
    atomic_int rescan;   /* receives are to be asked for in any case */
    atomic_int crowded;  /* many wait for what is asked after each event */
    uint64_t asked;      /* questions so far */
    tmsg_server_params_t server_params;
    tmsg_server_t *server;
    served_t *served;          /* its methods */
    tmsggo_events_t *refusals; /* or NULL */
    link_t *links;
    tmsggo_door_t *doors;
    tmsggo_task_t *tasks; /* oldest first */
    tmsggo_task_t **tasks_end;
};

struct tmsggo_call {
    atomic_int lent;   /* first: is_over() asks both kinds */
    tmsggo_hub_t *hub; /* NULL: nothing tells of its end */
    int has_ended;     /* with the hub's lock */
    tmsg_call_t *call;
};

struct tmsggo_task {
    atomic_int lent;
    tmsggo_hub_t *hub;
    tmsg_task_t *task;       /* NULL: a stream, */
    tmsggo_stream_t *stream; /* which is this */
    uint32_t index;
    tmsggo_task_t *next;
};

struct tmsggo_door {
    tmsggo_hub_t *hub;
    tmsg_listener_t *listener;
    int resumes;             /* it keeps the sessions of its endpoints */
    tmsggo_events_t *events; /* of its peers, or NULL */
    struct tmsggo_door *next;
    tmsg_endpoint_t **endpoints;
    size_t count;
    size_t room;
};

static tmsggo_result_t result(tmsg_status_t status)
{
    tmsggo_result_t r = {status, NULL};
    if (status < 0) {
        r.words = strdup(tmsg_error_message());
    }
    return r;
}

tmsggo_result_t tmsggo_result(tmsg_status_t status) { return result(status); }

tmsggo_result_t tmsggo_context(tmsg_context_params_t params,
                               tmsg_context_t **context_p)
{
    return result(tmsg_context_create(&params, context_p));
}

enum { SESSION_EVENTS = 64, MANY_EVENTS = 4096 };

tmsggo_result_t tmsggo_hub_create(tmsg_context_t *context,
                                  tmsg_worker_params_t params,
                                  tmsg_server_params_t server_params,
                                  int refusals, tmsggo_hub_t **hub_p)
{
    tmsggo_hub_t *hub = calloc(1, sizeof(*hub));
    tmsggo_events_t *events =
        refusals ? tmsggo_events_create(MANY_EVENTS) : NULL;
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    if (hub == NULL || (refusals && events == NULL)) {
        goto err_free;
    }
    if (refusals) {
        tmsggo_events_of_refused(events, &params);
    }
    status = tmsg_worker_create(context, &params, &hub->worker);
    if (status != TMSG_OK) {
        goto err_free;
    }
    pthread_mutex_init(&hub->lock, NULL);
    hub->tasks_end = &hub->tasks;
    hub->server_params = server_params;
    hub->refusals = events;
    *hub_p = hub;
    return result(TMSG_OK);

err_free:
    tmsggo_events_destroy(events);
    free(hub);
    return result(status);
}

tmsggo_events_t *tmsggo_hub_refusals(const tmsggo_hub_t *hub)
{
    return hub->refusals;
}

static void free_door(tmsggo_door_t *door)
{
    tmsggo_events_destroy(door->events);
    free(door->endpoints);
    free(door);
}

void tmsggo_hub_destroy(tmsggo_hub_t *hub)
{
    tmsg_server_destroy(hub->server);
    tmsg_worker_destroy(hub->worker);
    while (hub->doors != NULL) {
        tmsggo_door_t *door = hub->doors;
        hub->doors = door->next;
        free_door(door);
    }
    while (hub->links != NULL) {
        link_t *link = hub->links;
        hub->links = link->next;
        tmsggo_events_destroy(link->events);
        free(link);
    }
    while (hub->tasks != NULL) {
        tmsggo_task_t *task = hub->tasks;
        hub->tasks = task->next;
        tmsggo_task_destroy(task);
    }
    while (hub->served != NULL) {
        served_t *served = hub->served;
        hub->served = served->next;
        free(served);
    }
    tmsggo_events_destroy(hub->refusals);
    pthread_mutex_destroy(&hub->lock);
    tmsggo_waits_free(&hub->waits);
    free(hub);
}

int tmsggo_hub_fd(const tmsggo_hub_t *hub)
{
    return tmsg_worker_fd(hub->worker);
}

tmsg_worker_t *tmsggo_worker(tmsggo_hub_t *hub) { return hub->worker; }

static int is_over(int kind, const void *thing)
{
    tmsg_status_t status = TMSG_IN_PROGRESS;
    switch (kind) {
    case TMSGGO_REQUEST:
        status = tmsg_request_test(thing);
        break;
    case TMSGGO_CALL: {
        const tmsggo_call_t *call = thing;
        if (call->hub != NULL) {
            return call->has_ended;
        }
        status = tmsg_call_status(call->call);
        break;
    }
    case TMSGGO_RECV:
        return tmsg_endpoint_readable(thing);
    case TMSGGO_LENT:
        return !atomic_load((const atomic_int *)thing);
    case TMSGGO_TASKS:
        return ((const tmsggo_hub_t *)thing)->tasks != NULL;
    case TMSGGO_TASK:
        return tmsg_task_status(thing) != TMSG_OK;
    case TMSGGO_ACCEPT:
        return ((const tmsggo_door_t *)thing)->count > 0;
    case TMSGGO_READ:
        return tmsggo_stream_is_readable(thing);
    case TMSGGO_STREAM:
        return tmsggo_stream_is_over(thing);
    case TMSGGO_CROWD:
        return tmsggo_crowd_is_complete(thing);
    default:
        break;
    }
    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

/* With the lock. */
static tmsggo_list_t list_of(tmsggo_hub_t *hub, int kind, const void *thing)
{
    switch (kind) {
    case TMSGGO_RECV:
        return TMSGGO_ARRIVALS;
    case TMSGGO_TASK:
        return TMSGGO_NEVER;
    case TMSGGO_CALL:
        return ((const tmsggo_call_t *)thing)->hub != NULL ? TMSGGO_NEVER
                                                           : TMSGGO_EVENTS;
    case TMSGGO_REQUEST:
        return tmsggo_waits_find(&hub->waits, TMSGGO_TOLD, thing) != NULL
                   ? TMSGGO_NEVER
                   : TMSGGO_EVENTS;
    default:
        return TMSGGO_EVENTS;
    }
}

static void note_crowd(tmsggo_hub_t *hub)
{
    atomic_store_explicit(&hub->crowded,
                          hub->waits.lists[TMSGGO_EVENTS].count > FEW,
                          memory_order_relaxed);
}

int tmsggo_watch(tmsggo_hub_t *hub, int kind, void *thing, uint64_t id)
{
    if (kind == TMSGGO_TASK) {
        thing = ((tmsggo_task_t *)thing)->task; /* which task_over() knows */
    }
    pthread_mutex_lock(&hub->lock);
    int over = is_over(kind, thing);
    if (!over) {
        tmsggo_waits_add(&hub->waits, kind, thing, list_of(hub, kind, thing),
                         id);
        note_crowd(hub);
    }
    pthread_mutex_unlock(&hub->lock);
    return over;
}

void tmsggo_unwatch(tmsggo_hub_t *hub, uint64_t id)
{
    pthread_mutex_lock(&hub->lock);
    (void)tmsggo_waits_remove(&hub->waits, id);
    pthread_mutex_unlock(&hub->lock);
}

uint64_t tmsggo_asked(tmsggo_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
    uint64_t asked = hub->asked;
    pthread_mutex_unlock(&hub->lock);
    return asked;
}

void tmsggo_pass_on(tmsggo_hub_t *hub) { atomic_store(&hub->rescan, 1); }

/* With the lock. */
static void end_waits(tmsggo_hub_t *hub, tmsggo_group_t *group, size_t most)
{
    tmsggo_waits_end(&hub->waits, group, most);
    atomic_store(&hub->has_over, 1);
}

/* With the lock. */
static void tell(tmsggo_hub_t *hub, int kind, const void *thing)
{
    tmsggo_group_t *group = tmsggo_waits_find(&hub->waits, kind, thing);
    if (group != NULL && is_over(kind, thing)) {
        end_waits(hub, group, group->count);
    }
}

void tmsggo_stir(tmsggo_hub_t *hub, int kind, const void *thing)
{
    pthread_mutex_lock(&hub->lock);
    tell(hub, kind, thing);
    pthread_mutex_unlock(&hub->lock);
}

/* As many receive as there are messages; all, where no more come. */
static size_t receivers(const tmsggo_group_t *group)
{
    size_t messages = tmsg_endpoint_waiting(group->thing);
    return messages > 0 && messages < group->count ? messages : group->count;
}

/* With the lock. A group that ends gives its place to the last one. */
static void ask(tmsggo_hub_t *hub, tmsggo_list_t list)
{
    const tmsggo_groups_t *groups = &hub->waits.lists[list];
    for (size_t i = groups->count; i-- > 0;) {
        tmsggo_group_t *group = groups->all[i];
        hub->asked++;
        if (is_over(group->kind, group->thing)) {
            end_waits(hub, group,
                      list == TMSGGO_ARRIVALS ? receivers(group)
                                              : group->count);
        }
    }
}

/* Takes the waits that are over; asks for those that do not tell, if there were
 * events. */
static void glance(tmsggo_hub_t *hub, int has_events, tmsggo_over_t *over)
{
    over->count = 0;
    uint64_t arrivals = tmsg_worker_arrivals(hub->worker);
    if (!has_events && arrivals == hub->arrivals &&
        !atomic_load_explicit(&hub->has_over, memory_order_relaxed) &&
        !atomic_load_explicit(&hub->rescan, memory_order_relaxed)) {
        return;
    }
    pthread_mutex_lock(&hub->lock);
    if (atomic_exchange(&hub->rescan, 0) || arrivals != hub->arrivals) {
        hub->arrivals = arrivals;
        ask(hub, TMSGGO_ARRIVALS);
    }
    if (has_events) {
        ask(hub, TMSGGO_EVENTS);
        note_crowd(hub);
    }
    over->count =
        (int32_t)tmsggo_waits_take(&hub->waits, over->ids, TMSGGO_IDS);
    atomic_store(&hub->has_over, hub->waits.over_count > 0);
    pthread_mutex_unlock(&hub->lock);
}

void tmsggo_look(tmsggo_hub_t *hub, tmsggo_over_t *over)
{
    glance(hub, 1, over);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int tmsggo_spin(tmsggo_hub_t *hub, uint64_t *end_p, uint32_t spin_us,
                tmsggo_over_t *over)
{
    over->count = 0;
    for (unsigned turns = 1;; turns++) {
        unsigned events = tmsg_worker_progress(hub->worker);
        glance(hub, events > 0, over);
        if (over->count > 0) {
            return 0;
        }
        if (events > 0) {
            return 1;
        }
        if (!tmsg_worker_pause(hub->worker)) {
            return 0;
        }
        if (turns % CLOCK_TURNS == 0) {
            uint64_t now = now_us();
            if (*end_p == 0) {
                *end_p = now + spin_us;
            } else if (now >= *end_p) {
                return 0;
            }
        }
    }
}

void tmsggo_drive(tmsggo_hub_t *hub, uint32_t spin_us, tmsggo_over_t *over)
{
    /* The goroutine comes back in any case, so that it can see that its context
     * has ended. */
    uint64_t end = 0;
    tmsg_worker_progress(hub->worker);
    tmsggo_look(hub, over);
    while (over->count == 0 && tmsggo_spin(hub, &end, spin_us, over)) {
    }
    if (over->count == 0) {
        tmsggo_look(hub, over); /* what other threads have ended */
    }
}

int tmsggo_arm(tmsggo_hub_t *hub, int fd, tmsggo_over_t *over)
{
    over->count = 0;
    if (tmsg_worker_arm(hub->worker) != TMSG_OK) {
        return 0;
    }
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, 0) != 0) {
        return 0; /* Go's poller tells of what comes from now on */
    }
    tmsggo_look(hub, over);
    return over->count == 0;
}

/* Keeps what happens to the session of an endpoint; without memory for that
 * nothing is told of it. */
static void follow(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint)
{
    link_t *link = malloc(sizeof(*link));
    tmsggo_events_t *events = tmsggo_events_create(SESSION_EVENTS);
    if (link == NULL || events == NULL) {
        free(link);
        tmsggo_events_destroy(events);
        return;
    }
    link->events = events;
    pthread_mutex_lock(&hub->lock);
    link->next = hub->links;
    hub->links = link;
    pthread_mutex_unlock(&hub->lock);
    tmsggo_events_of_session(events, endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    tmsggo_door_t *door = arg;
    if (door->resumes) {
        follow(door->hub, endpoint);
    }
    pthread_mutex_lock(&door->hub->lock);
    if (door->count == door->room) {
        size_t room = door->room > 0 ? 2 * door->room : 4;
        tmsg_endpoint_t **endpoints =
            realloc(door->endpoints, room * sizeof(*endpoints));
        if (endpoints != NULL) {
            door->endpoints = endpoints;
            door->room = room;
        }
    }
    int has_room = door->count < door->room;
    if (has_room) {
        door->endpoints[door->count++] = endpoint;
    }
    pthread_mutex_unlock(&door->hub->lock);
    if (!has_room) {
        tmsg_endpoint_abort(endpoint, TMSG_ERR_NO_MEMORY, "no memory");
        tmsggo_endpoint_destroy(door->hub, endpoint);
    }
}

tmsggo_result_t tmsggo_listen(tmsggo_hub_t *hub, const char *url,
                              tmsg_listener_params_t params, int keep,
                              int peers, tmsggo_door_t **door_p)
{
    tmsggo_door_t *door = calloc(1, sizeof(*door));
    if (door == NULL) {
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    door->hub = hub;
    door->resumes = (params.field_mask & TMSG_LISTENER_PARAM_RESUME) != 0;
    if (peers) {
        door->events = tmsggo_events_create(MANY_EVENTS);
        if (door->events == NULL) {
            free_door(door);
            return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
        }
        tmsggo_events_of_peers(door->events, &params);
    }
    if (!keep) {
        params.field_mask |= TMSG_LISTENER_PARAM_ON_ACCEPT;
        params.on_accept = accepted;
        params.on_accept_arg = door;
    }
    tmsg_status_t status =
        tmsg_listener_create(hub->worker, url, &params, &door->listener);
    tmsggo_result_t answer = result(status);
    if (status != TMSG_OK) {
        free_door(door);
        return answer;
    }
    pthread_mutex_lock(&hub->lock);
    door->next = hub->doors;
    hub->doors = door;
    pthread_mutex_unlock(&hub->lock);
    *door_p = door;
    return answer;
}

tmsggo_events_t *tmsggo_door_events(const tmsggo_door_t *door)
{
    return door->events;
}

tmsggo_result_t tmsggo_door_blob(const tmsggo_door_t *door, void **blob_p,
                                 size_t *bytes_p)
{
    const void *blob = NULL;
    pthread_mutex_lock(&door->hub->lock); /* the next call changes the blob */
    tmsg_status_t status = tmsg_listener_blob(door->listener, &blob, bytes_p);
    tmsggo_result_t answer = result(status);
    if (status == TMSG_OK) {
        *blob_p = malloc(*bytes_p);
        if (*blob_p == NULL) {
            answer.status = TMSG_ERR_NO_MEMORY;
        } else {
            memcpy(*blob_p, blob, *bytes_p);
        }
    }
    pthread_mutex_unlock(&door->hub->lock);
    return answer;
}

const char *tmsggo_door_url(const tmsggo_door_t *door)
{
    return tmsg_listener_url(door->listener);
}

tmsg_endpoint_t *tmsggo_door_take(tmsggo_door_t *door)
{
    tmsg_endpoint_t *endpoint = NULL;
    pthread_mutex_lock(&door->hub->lock);
    if (door->count > 0) {
        endpoint = door->endpoints[0];
        memmove(door->endpoints, door->endpoints + 1,
                --door->count * sizeof(endpoint));
    }
    pthread_mutex_unlock(&door->hub->lock);
    return endpoint;
}

void tmsggo_forget(tmsggo_hub_t *hub, const void *thing)
{
    pthread_mutex_lock(&hub->lock);
    for (tmsggo_list_t list = TMSGGO_EVENTS; list <= TMSGGO_ARRIVALS; list++) {
        const tmsggo_groups_t *groups = &hub->waits.lists[list];
        for (size_t i = groups->count; i-- > 0;) {
            if (groups->all[i]->thing == thing) {
                end_waits(hub, groups->all[i], groups->all[i]->count);
            }
        }
    }
    pthread_mutex_unlock(&hub->lock);
}

void tmsggo_door_destroy(tmsggo_door_t *door)
{
    tmsg_listener_destroy(door->listener);
    tmsggo_forget(door->hub, door);
    tmsggo_forget(door->hub, door->events);
    for (size_t i = 0; i < door->count; i++) {
        tmsggo_endpoint_destroy(door->hub, door->endpoints[i]);
    }
    pthread_mutex_lock(&door->hub->lock);
    tmsggo_door_t **at = &door->hub->doors;
    while (*at != door) {
        at = &(*at)->next;
    }
    *at = door->next;
    pthread_mutex_unlock(&door->hub->lock);
    free_door(door);
}

tmsggo_result_t tmsggo_dial(tmsggo_hub_t *hub, const char *url,
                            const void *blob, size_t blob_bytes,
                            tmsg_endpoint_params_t params,
                            tmsg_endpoint_t **endpoint_p,
                            tmsg_request_t **ready_p)
{
    tmsg_status_t status =
        blob != NULL
            ? tmsg_endpoint_connect_blob(hub->worker, blob, blob_bytes, &params,
                                         endpoint_p)
            : tmsg_endpoint_connect(hub->worker, url, &params, endpoint_p);
    if (status != TMSG_OK) {
        return result(status);
    }
    if ((params.field_mask & TMSG_ENDPOINT_PARAM_RECONNECT) != 0) {
        follow(hub, *endpoint_p);
    }
    status = tmsg_endpoint_ready(*endpoint_p, ready_p);
    tmsggo_result_t answer = result(status);
    if (status != TMSG_OK) {
        tmsggo_endpoint_destroy(hub, *endpoint_p);
        *endpoint_p = NULL;
    }
    return answer;
}

void tmsggo_endpoint_destroy(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint)
{
    tmsggo_events_t *events = tmsg_endpoint_user(endpoint);
    tmsggo_forget(hub, endpoint);
    tmsg_endpoint_destroy(endpoint);
    if (events == NULL) {
        return;
    }
    tmsggo_forget(hub, events);
    pthread_mutex_lock(&hub->lock);
    link_t **at = &hub->links;
    while ((*at)->events != events) {
        at = &(*at)->next;
    }
    link_t *link = *at;
    *at = link->next;
    pthread_mutex_unlock(&hub->lock);
    tmsggo_events_destroy(events);
    free(link);
}

char *tmsggo_peer(const tmsg_endpoint_t *endpoint)
{
    return strdup(tmsg_endpoint_peer(endpoint));
}

tmsggo_result_t tmsggo_endpoint_status(const tmsg_endpoint_t *endpoint)
{
    return (tmsggo_result_t){tmsg_endpoint_status(endpoint),
                             strdup(tmsg_endpoint_error(endpoint))};
}

tmsggo_result_t tmsggo_ready(tmsg_endpoint_t *endpoint,
                             tmsg_request_t **request_p)
{
    return result(tmsg_endpoint_ready(endpoint, request_p));
}

tmsggo_result_t tmsggo_ping(tmsg_endpoint_t *endpoint,
                            tmsg_request_t **request_p)
{
    return result(tmsg_endpoint_ping(endpoint, request_p));
}

tmsggo_result_t tmsggo_set_queue(tmsg_endpoint_t *endpoint,
                                 tmsg_queue_params_t params)
{
    return result(tmsg_endpoint_set_queue(endpoint, &params));
}

tmsggo_result_t tmsggo_set_retry_budget(tmsg_endpoint_t *endpoint,
                                        uint32_t tokens, uint32_t thousandths)
{
    return result(
        tmsg_endpoint_set_retry_budget(endpoint, tokens, thousandths));
}

tmsggo_result_t tmsggo_discard(tmsg_endpoint_t *endpoint)
{
    return result(tmsg_endpoint_discard(endpoint));
}

tmsggo_result_t tmsggo_close(tmsg_endpoint_t *endpoint,
                             tmsg_request_t **request_p)
{
    return result(tmsg_endpoint_close(endpoint, request_p));
}

tmsg_tensor_t tmsggo_tensor_of(const tmsggo_tensor_t *from, const int64_t *dims)
{
    const int64_t *shape = from->ndim > 0 ? dims + from->dims : NULL;
    return (tmsg_tensor_t){
        .data = (void *)from->data, /* pinned by Go */
        .device = from->device,
        .dtype = from->dtype,
        .ndim = from->ndim,
        .shape = shape,
        .strides = from->strided && shape != NULL ? shape + from->ndim : NULL,
    };
}

static tmsg_status_t add_tensors(tmsg_map_t *map,
                                 const tmsggo_tensor_t *tensors, size_t count,
                                 const int64_t *dims, const char *bytes)
{
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor = tmsggo_tensor_of(&tensors[i], dims);
        const tmsg_map_add_params_t on_stream = {
            .field_mask = TMSG_MAP_ADD_PARAM_STREAM,
            .stream = tensors[i].stream,
        };
        tmsg_status_t status = tmsg_map_add(
            map, bytes + tensors[i].name, &tensor,
            tensors[i].stream.kind == TMSG_STREAM_NONE ? NULL : &on_stream);
        if (status != TMSG_OK) {
            return status;
        }
    }
    return TMSG_OK;
}

static tmsg_status_t add_metas(tmsg_map_t *map, const tmsggo_meta_t *metas,
                               size_t count, const char *bytes)
{
    for (size_t i = 0; i < count; i++) {
        const tmsggo_meta_t *from = &metas[i];
        tmsg_meta_t value = {
            .type = from->type,
            .boolean = from->boolean,
            .i64 = from->i64,
            .f64 = from->f64,
            .data = bytes + from->data,
            .bytes = from->data_bytes,
        };
        tmsg_status_t status =
            tmsg_map_set_meta(map, bytes + from->key, &value);
        if (status != TMSG_OK) {
            return status;
        }
    }
    return TMSG_OK;
}

tmsggo_result_t tmsggo_map(const tmsggo_tensor_t *tensors, size_t count,
                           const int64_t *dims, const tmsggo_meta_t *metas,
                           size_t meta_count, const char *bytes,
                           tmsg_map_t **map_p)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_map_create(&map);
    if (status == TMSG_OK) {
        status = add_tensors(map, tensors, count, dims, bytes);
    }
    if (status == TMSG_OK) {
        status = add_metas(map, metas, meta_count, bytes);
    }
    tmsggo_result_t answer = result(status);
    if (status == TMSG_OK) {
        *map_p = map;
    } else {
        tmsg_map_destroy(map);
    }
    return answer;
}

tmsggo_sent_t tmsggo_sent(tmsg_status_t status, tmsg_request_t *request)
{
    tmsggo_sent_t sent = {result(status), request};
    if (status != TMSG_OK) {
        return sent;
    }
    status = tmsg_request_test(request);
    if (status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING) {
        sent.result = tmsggo_request_end(request);
        sent.request = NULL;
    }
    return sent;
}

/* A send that tells of its end. */
typedef struct told {
    tmsggo_hub_t *hub;
    tmsg_request_t *request; /* once it is known, */
    int is_known;            /* or that nobody waits */
    int has_ended;
} told_t;

static void send_ended(void *arg, tmsg_status_t status, const char *error)
{
    told_t *told = arg;
    tmsggo_hub_t *hub = told->hub;
    (void)status, (void)error;
    pthread_mutex_lock(&hub->lock);
    int is_known = told->is_known;
    told->has_ended = 1;
    if (is_known && told->request != NULL) {
        tmsggo_waits_unmark(&hub->waits, TMSGGO_TOLD, told->request);
        tell(hub, TMSGGO_REQUEST, told->request);
    }
    pthread_mutex_unlock(&hub->lock);
    if (is_known) {
        free(told);
    }
}

/* What becomes of it: `request` is waited for, or is NULL. */
static void know(told_t *told, tmsg_request_t *request)
{
    pthread_mutex_lock(&told->hub->lock);
    int has_ended = told->has_ended;
    told->is_known = 1;
    told->request = request;
    if (!has_ended && request != NULL) {
        tmsggo_waits_mark(&told->hub->waits, TMSGGO_TOLD, request);
    }
    pthread_mutex_unlock(&told->hub->lock);
    if (has_ended) {
        free(told);
    }
}

tmsggo_sent_t tmsggo_send(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                          const tmsg_map_t *map, uint32_t flags,
                          uint16_t channel, int timeout_ms)
{
    tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_TIMEOUT,
        .flags = flags,
        .channel = channel,
        .timeout_ms = timeout_ms,
    };
    told_t *told = NULL;
    if (flags & (TMSG_SEND_ACKED | TMSG_SEND_VERIFY) ||
        atomic_load_explicit(&hub->crowded, memory_order_relaxed)) {
        told = calloc(1, sizeof(*told));
    }
    if (told != NULL) {
        told->hub = hub;
        params.field_mask |= TMSG_SEND_PARAM_ON_DONE;
        params.on_done = send_ended;
        params.on_done_arg = told;
    }
    tmsg_request_t *request = NULL;
    tmsg_status_t status = tmsg_endpoint_send(endpoint, map, &params, &request);
    tmsggo_sent_t sent = tmsggo_sent(status, request);
    if (told != NULL && status != TMSG_OK) {
        free(told);
    } else if (told != NULL) {
        know(told, sent.request);
    }
    return sent;
}

tmsggo_result_t tmsggo_set(tmsg_map_t *map, size_t index, uintptr_t data,
                           tmsg_stream_t stream)
{
    const tmsg_map_add_params_t on_stream = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM,
        .stream = stream,
    };
    return result(
        tmsg_map_set_data(map, index, (void *)data,
                          stream.kind == TMSG_STREAM_NONE ? NULL : &on_stream));
}

tmsggo_result_t tmsggo_recv_into(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map, int posts,
                                 uint32_t spin_us, tmsggo_over_t *over)
{
    uint64_t end = 0;
    if (!posts && spin_us > 0 && tmsg_endpoint_waiting(endpoint) == 0 &&
        !tmsggo_spin(hub, &end, spin_us, over)) {
        spin_us = 0;
    }
    for (unsigned turns = 0;; turns++) {
        tmsg_status_t status = tmsg_endpoint_recv_into(endpoint, map, 0, NULL);
        if (status < 0 && status != TMSG_ERR_TIMED_OUT) {
            return result(status);
        }
        if (status == TMSG_OK || spin_us == 0) {
            return (tmsggo_result_t){status, NULL};
        }
        if (!posts) {
            spin_us = tmsggo_spin(hub, &end, spin_us, over) ? spin_us : 0;
            continue;
        }
        /* Nothing else drives here: what arrives while the map is not posted
         * is copied into it. */
        int reads_clock = turns % CLOCK_TURNS == 0;
        glance(hub, reads_clock, over);
        uint64_t now = reads_clock ? now_us() : 0;
        end = end > 0 ? end : now + spin_us;
        if (over->count > 0 || now >= end || !tmsg_worker_pause(hub->worker)) {
            return (tmsggo_result_t){status, NULL};
        }
    }
}

tmsggo_result_t tmsggo_request_end(tmsg_request_t *request)
{
    tmsggo_result_t answer = {tmsg_request_test(request), NULL};
    if (answer.status < 0) {
        answer.words = strdup(tmsg_request_error(request));
    }
    tmsg_request_destroy(request);
    return answer;
}

tmsggo_received_t tmsggo_received(tmsggo_result_t result,
                                  tmsg_message_t *message)
{
    tmsggo_received_t received = {.result = result, .message = message};
    if (message != NULL) {
        received.map = tmsg_message_map(message);
        received.is_lent = tmsg_message_is_lent(message);
        received.channel = tmsg_message_channel(message);
    }
    return received;
}

tmsggo_received_t tmsggo_recv(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                              uint32_t spin_us, tmsggo_over_t *over)
{
    tmsg_message_t *message = NULL;
    uint64_t end = 0;
    for (int more = spin_us > 0;;
         more = tmsggo_spin(hub, &end, spin_us, over)) {
        tmsg_status_t status = tmsg_endpoint_recv(endpoint, 0, &message);
        if (status != TMSG_ERR_TIMED_OUT) {
            return tmsggo_received(result(status), message);
        }
        if (!more) { /* to be asked again */
            return tmsggo_received((tmsggo_result_t){status, NULL}, NULL);
        }
    }
}

static void call_ended(void *arg, tmsg_call_t *handle)
{
    tmsggo_call_t *call = arg;
    (void)handle;
    pthread_mutex_lock(&call->hub->lock);
    call->has_ended = 1;
    tell(call->hub, TMSGGO_CALL, call);
    pthread_mutex_unlock(&call->hub->lock);
}

static void released(void *arg) { atomic_store((atomic_int *)arg, 0); }

tmsggo_result_t tmsggo_call(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                            const char *method, const tmsg_map_t *map,
                            tmsg_call_params_t params, tmsggo_call_t **call_p)
{
    tmsggo_call_t *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    atomic_store(&call->lent, 1);
    call->hub = hub;
    params.field_mask |= TMSG_CALL_PARAM_ON_DONE | TMSG_CALL_PARAM_ON_RELEASE;
    params.on_done = call_ended;
    params.on_done_arg = call;
    params.on_release = released;
    params.on_release_arg = &call->lent;
    tmsg_status_t status =
        tmsg_endpoint_call(endpoint, method, map, &params, &call->call);
    tmsggo_result_t answer = result(status);
    if (status == TMSG_OK) {
        *call_p = call;
    } else {
        free(call);
    }
    return answer;
}

tmsggo_call_t *tmsggo_call_of(tmsg_call_t *handle)
{
    tmsggo_call_t *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        tmsg_call_destroy(handle);
        return NULL;
    }
    call->call = handle;
    return call;
}

int tmsggo_call_may_have_run(const tmsggo_call_t *call)
{
    return tmsg_call_may_have_run(call->call);
}

void tmsggo_call_cancel(tmsggo_call_t *call) { tmsg_call_cancel(call->call); }

tmsggo_result_t tmsggo_call_end(const tmsggo_call_t *call, int32_t *code_p,
                                const tmsg_map_t **reply_p, int *lent_p)
{
    tmsggo_result_t answer = {tmsg_call_status(call->call), NULL};
    if (answer.status < 0) {
        answer.words = strdup(tmsg_call_error(call->call));
    }
    *code_p = tmsg_call_code(call->call);
    *reply_p = tmsg_call_reply(call->call);
    *lent_p = tmsg_call_reply_is_lent(call->call);
    return answer;
}

void tmsggo_call_destroy(tmsggo_call_t *call)
{
    tmsg_call_destroy(call->call);
    free(call);
}

static void task_over(void *arg, tmsg_task_t *handle, tmsg_status_t status)
{
    (void)status;
    tmsggo_stir(arg, TMSGGO_TASK, handle);
}

static void list_task(tmsggo_task_t *task, const served_t *served)
{
    task->hub = served->hub;
    task->index = served->index;
    pthread_mutex_lock(&task->hub->lock);
    *task->hub->tasks_end = task;
    task->hub->tasks_end = &task->next;
    pthread_mutex_unlock(&task->hub->lock);
}

static void called(void *arg, tmsg_task_t *handle)
{
    tmsggo_task_t *task = calloc(1, sizeof(*task));
    if (task == NULL) {
        (void)tmsg_task_fail(handle, TMSG_ERR_NO_MEMORY, 0, NULL, NULL);
        return;
    }
    task->task = tmsg_task_keep(handle);
    tmsg_task_on_over(handle, task_over, ((const served_t *)arg)->hub);
    list_task(task, arg);
}

static void opened(void *arg, tmsg_call_stream_t *handle)
{
    tmsggo_task_t *task = calloc(1, sizeof(*task));
    if (task != NULL) {
        task->stream = tmsggo_stream_keep(handle);
    }
    if (task == NULL || task->stream == NULL) {
        free(task);
        (void)tmsg_call_stream_end(handle, TMSG_ERR_NO_MEMORY, 0, NULL, NULL);
        return;
    }
    list_task(task, arg);
}

static tmsg_status_t serve(tmsggo_hub_t *hub)
{
    return hub->server != NULL
               ? TMSG_OK
               : tmsg_server_create(hub->worker, &hub->server_params,
                                    &hub->server);
}

tmsggo_result_t tmsggo_report(tmsggo_hub_t *hub, const char *method,
                              tmsg_health_report_t *report_p)
{
    tmsg_status_t status = serve(hub);
    return result(status == TMSG_OK
                      ? tmsg_server_report(hub->server, method, report_p)
                      : status);
}

tmsggo_result_t tmsggo_set_health(tmsggo_hub_t *hub, const char *method,
                                  tmsg_health_t health)
{
    tmsg_status_t status = serve(hub);
    return result(status == TMSG_OK
                      ? tmsg_server_set_health(hub->server, method, health)
                      : status);
}

tmsggo_result_t tmsggo_register(tmsggo_hub_t *hub, const char *method,
                                int stream, uint32_t index,
                                tmsg_method_params_t params)
{
    tmsg_status_t status = serve(hub);
    served_t *served = status == TMSG_OK ? malloc(sizeof(*served)) : NULL;
    if (served == NULL) {
        return result(status == TMSG_OK ? TMSG_ERR_NO_MEMORY : status);
    }
    *served = (served_t){hub, index, hub->served};
    status = stream ? tmsg_server_register_stream(hub->server, method, opened,
                                                  served, &params)
                    : tmsg_server_register(hub->server, method, called, served,
                                           &params);
    tmsggo_result_t answer = result(status);
    if (status == TMSG_OK) {
        hub->served = served;
    } else {
        free(served);
    }
    return answer;
}

tmsggo_result_t tmsggo_drain(tmsggo_hub_t *hub)
{
    return result(hub->server == NULL ? TMSG_OK
                                      : tmsg_server_drain(hub->server, 0));
}

tmsggo_task_t *tmsggo_take(tmsggo_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
    tmsggo_task_t *task = hub->tasks;
    if (task != NULL) {
        hub->tasks = task->next;
        if (hub->tasks == NULL) {
            hub->tasks_end = &hub->tasks;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    return task;
}

tmsggo_stream_t *tmsggo_task_stream(tmsggo_task_t *task)
{
    tmsggo_stream_t *stream = task->stream;
    if (stream != NULL) {
        free(task);
    }
    return stream;
}

uint32_t tmsggo_task_index(const tmsggo_task_t *task) { return task->index; }

int tmsggo_task_remaining_ms(const tmsggo_task_t *task)
{
    return tmsg_task_remaining_ms(task->task);
}

tmsg_endpoint_t *tmsggo_task_endpoint(const tmsggo_task_t *task)
{
    return tmsg_task_endpoint(task->task);
}

const tmsg_map_t *tmsggo_task_map(const tmsggo_task_t *task)
{
    return tmsg_task_map(task->task);
}

tmsggo_result_t tmsggo_reply(tmsggo_task_t *task, const tmsg_map_t *map)
{
    const tmsg_reply_params_t params = {
        .field_mask = TMSG_REPLY_PARAM_ON_RELEASE,
        .on_release = released,
        .on_release_arg = &task->lent,
    };
    atomic_store(&task->lent, 1);
    tmsg_status_t status = tmsg_task_reply(task->task, map, &params);
    tmsggo_result_t answer = result(status);
    if (status != TMSG_OK) {
        atomic_store(&task->lent, 0);
    }
    return answer;
}

void tmsggo_fail(tmsggo_task_t *task, tmsg_status_t status, int32_t code,
                 const char *words, const tmsg_map_t *details)
{
    /* It harms nobody where no answer is awaited any more. */
    (void)tmsg_task_fail(task->task, status, code, words, details);
}

void tmsggo_task_destroy(tmsggo_task_t *task)
{
    if (task->stream != NULL) {
        tmsggo_stream_destroy(task->stream);
    }
    tmsg_task_destroy(task->task);
    free(task);
}

tmsggo_result_t tmsggo_dtype_parse(const char *name, tmsg_dtype_t *dtype_p)
{
    return result(tmsg_dtype_parse(name, dtype_p));
}

char *tmsggo_described(tmsg_status_t status, char *json)
{
    char *text = status == TMSG_OK ? strdup(json) : NULL;
    if (status == TMSG_OK) {
        tmsg_string_free(json);
    }
    return text;
}

char *tmsggo_describe_context(tmsg_context_t *context)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_context_describe(context, &json);
    return tmsggo_described(status, json);
}

char *tmsggo_describe_worker(tmsggo_hub_t *hub)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_worker_describe(hub->worker, &json);
    return tmsggo_described(status, json);
}

char *tmsggo_describe_door(const tmsggo_door_t *door)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_listener_describe(door->listener, &json);
    return tmsggo_described(status, json);
}

char *tmsggo_overview(tmsggo_hub_t *hub)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_worker_overview(hub->worker, &json);
    return tmsggo_described(status, json);
}

char *tmsggo_describe_endpoint(const tmsg_endpoint_t *endpoint)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_endpoint_describe(endpoint, &json);
    return tmsggo_described(status, json);
}

tmsg_status_t tmsggo_point(tmsg_map_t *map, const tmsggo_tensor_t *tensors,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;
        void *data = (void *)tensors[i].data;
        tmsg_status_t status = tmsg_map_at(map, i, NULL, &tensor);
        if (status == TMSG_OK && tensor.data != data) {
            status = tmsg_map_set_data(map, i, data, NULL);
        }
        if (status != TMSG_OK) {
            return status;
        }
    }
    return TMSG_OK;
}

void tmsggo_show(const tmsg_map_t *map, size_t first, tmsggo_shown_t *shown)
{
    shown->count = tmsg_map_size(map);
    for (size_t i = 0; i < TMSGGO_SHOWN && first + i < shown->count; i++) {
        (void)tmsg_map_at(map, first + i, &shown->names[i], &shown->tensors[i]);
        shown->name_bytes[i] = strlen(shown->names[i]);
    }
}
