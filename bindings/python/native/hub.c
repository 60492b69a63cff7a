/* SPDX-License-Identifier: BSD-3-Clause */
#include "hub_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <tensormsg/endpoint.h>

typedef struct event {
    struct event *next;
    tmsgpy_event_t what;
} event_t;

/* A call or a stream that came in. */
typedef struct work {
    struct work *next;
    tmsgpy_work_t what;
} work_t;

/* What was offered: kept until the hub is freed. */
typedef struct method {
    struct method *next;
    tmsgpy_hub_t *hub;
    int index;
} method_t;

static unsigned forks;

static void note_fork(void) { forks++; }

static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

unsigned tmsgpy_forks(void) { return forks; }

static void init_news(pthread_cond_t *news)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(news, &attributes);
    pthread_condattr_destroy(&attributes);
}

tmsgpy_hub_t *tmsgpy_hub_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsgpy_hub_t *hub = calloc(1, sizeof(*hub));

    pthread_once(&once, watch_forks);
    if (hub != NULL) {
        hub->holds = 1;
        hub->pid = getpid();
        hub->last = &hub->first;
        hub->last_session = &hub->sessions;
        hub->last_told = &hub->told;
        hub->last_work = &hub->works;
        hub->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        pthread_mutex_init(&hub->lock, NULL);
        pthread_mutex_init(&hub->serving, NULL);
        pthread_cond_init(&hub->left, NULL);
        init_news(&hub->news);
    }
    return hub;
}

void tmsgpy_hub_own(tmsgpy_hub_t *hub, tmsg_worker_t *worker)
{
    hub->worker = worker;
}

tmsg_worker_t *tmsgpy_hub_worker(const tmsgpy_hub_t *hub)
{
    return hub->worker;
}

/* Lock held. */
static uint64_t arrivals(const tmsgpy_hub_t *hub)
{
    return tmsg_worker_arrivals(hub->worker) + hub->refusals;
}

int tmsgpy_hub_came(tmsgpy_hub_t *hub)
{
    uint64_t count;
    bool came;

    pthread_mutex_lock(&hub->lock);
    count = arrivals(hub);
    came = count != hub->seen;
    hub->seen = count;
    pthread_mutex_unlock(&hub->lock);
    return came;
}

int tmsgpy_hub_has_come(tmsgpy_hub_t *hub)
{
    bool come;

    pthread_mutex_lock(&hub->lock);
    come = arrivals(hub) != hub->seen;
    pthread_mutex_unlock(&hub->lock);
    return come;
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

static void end(tmsgpy_hub_t *hub, bool outlived)
{
    tmsgpy_hub_unserve(hub);
    tmsg_worker_destroy(hub->worker);
    if (!outlived) {
        tmsgpy_hub_drop_left_over(hub);
    }
}

void tmsgpy_hub_leave(tmsgpy_hub_t *hub)
{
    bool last;

    pthread_mutex_lock(&hub->lock);
    last = hub->inside == 1 && hub->put_off;
    if (last) {
        hub->put_off = false;
        pthread_mutex_unlock(&hub->lock);
        end(hub, false);
        pthread_mutex_lock(&hub->lock);
    }
    if (--hub->inside == 0 && hub->closed) {
        pthread_cond_broadcast(&hub->left);
    }
    pthread_mutex_unlock(&hub->lock);
}

int tmsgpy_hub_close(tmsgpy_hub_t *hub)
{
    tmsgpy_asking_t asking = tmsgpy_asking_in(hub);
    bool first, outlived;

    pthread_mutex_lock(&hub->lock);
    first = !hub->closed;
    hub->closed = true;
    pthread_cond_broadcast(&hub->left); /* who waits for a session's event */
    pthread_cond_broadcast(&hub->news);
    if (first && asking == TMSGPY_OWN_THREAD) {
        hub->outlived = true;
        hub->holds++;
    }
    hub->put_off = hub->put_off || (first && asking == TMSGPY_INSIDE);
    outlived = hub->outlived;
    while (hub->inside > 0 && asking != TMSGPY_INSIDE) {
        pthread_cond_wait(&hub->left, &hub->lock);
    }
    pthread_mutex_unlock(&hub->lock);
    if (first && asking != TMSGPY_INSIDE) {
        end(hub, outlived);
    }
    return !outlived;
}

int tmsgpy_hub_is_closed(tmsgpy_hub_t *hub)
{
    bool closed;

    pthread_mutex_lock(&hub->lock);
    closed = hub->closed;
    pthread_mutex_unlock(&hub->lock);
    return closed;
}

void tmsgpy_hub_let_go(tmsgpy_hub_t *hub)
{
    const tmsg_call_stream_t *stream;
    tmsgpy_session_t session;
    tmsgpy_refused_t refused;
    tmsgpy_event_t event;
    unsigned holds;

    pthread_mutex_lock(&hub->lock);
    holds = --hub->holds;
    pthread_mutex_unlock(&hub->lock);
    if (holds > 0) {
        return;
    }
    while (tmsgpy_hub_event(hub, &event)) {
    }
    while (tmsgpy_hub_session(hub, 0, &session)) {
    }
    while (tmsgpy_hub_told(hub, &stream)) {
    }
    while (tmsgpy_hub_refused(hub, NULL, &refused)) {
    }
    while (hub->methods != NULL) {
        method_t *method = hub->methods;

        hub->methods = method->next;
        free(method);
    }
    tmsgpy_hub_unhook(hub);
    if (hub->wake_fd >= 0) {
        close(hub->wake_fd);
    }
    pthread_mutex_destroy(&hub->serving);
    pthread_cond_destroy(&hub->news);
    pthread_cond_destroy(&hub->left);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

void tmsgpy_hub_free(tmsgpy_hub_t *hub)
{
    if (hub != NULL) {
        tmsgpy_hub_let_go(hub);
    }
}

/* Lock held. */
static void count_event(tmsgpy_hub_t *hub)
{
    __atomic_fetch_add(&hub->events, 1, __ATOMIC_RELEASE);
    tmsgpy_hub_stir(hub);
    pthread_cond_broadcast(&hub->news);
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
    count_event(hub);
    pthread_mutex_unlock(&hub->lock);
}

const unsigned *tmsgpy_hub_events(const tmsgpy_hub_t *hub)
{
    return &hub->events;
}

void tmsgpy_hub_nudge(tmsgpy_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
    count_event(hub);
    pthread_mutex_unlock(&hub->lock);
}

unsigned tmsgpy_hub_await_events(tmsgpy_hub_t *hub, unsigned seen,
                                 int timeout_ms)
{
    struct timespec until;
    unsigned events;
    int passed = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&hub->lock);
    while (hub->events == seen && !hub->closed && passed == 0) {
        passed = timeout_ms < 0
                     ? pthread_cond_wait(&hub->news, &hub->lock)
                     : pthread_cond_timedwait(&hub->news, &hub->lock, &until);
    }
    events = hub->events;
    pthread_mutex_unlock(&hub->lock);
    return events;
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
    tmsgpy_hub_t *hub = arg;

    /* First: what was told of may be gone. */
    if (hub->publisher != NULL &&
        tmsg_publisher_add(hub->publisher, endpoint, NULL) != TMSG_OK) {
        tmsg_endpoint_abort(endpoint, TMSG_ERR_UNAVAILABLE,
                            tmsg_error_message());
        tmsg_endpoint_destroy(endpoint);
        return;
    }
    tmsg_endpoint_on_closed(endpoint, tmsgpy_on_closed, hub);
    tell(hub, 1, endpoint);
}

void tmsgpy_hub_publish_by(tmsgpy_hub_t *hub, tmsg_publisher_t *publisher)
{
    hub->publisher = publisher;
}

void tmsgpy_on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    (void)status;
    (void)error;
    tell(arg, 0, endpoint);
}

void tmsgpy_hub_stir(tmsgpy_hub_t *hub)
{
    const uint64_t one = 1;

    if (!hub->stirred && hub->wake_fd >= 0) {
        hub->stirred = write(hub->wake_fd, &one, sizeof(one)) == sizeof(one);
    }
}

int tmsgpy_hub_wake_fd(tmsgpy_hub_t *hub) { return hub->wake_fd; }

/* Lock held. */
static void calm(tmsgpy_hub_t *hub)
{
    uint64_t count;

    if (hub->stirred) {
        hub->stirred =
            read(hub->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN;
    }
}

void tmsgpy_hub_calm(tmsgpy_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
    calm(hub);
    pthread_mutex_unlock(&hub->lock);
}

void tmsgpy_on_done(void *arg, tmsg_call_t *call)
{
    tmsgpy_hub_t *hub = arg;

    (void)call;
    pthread_mutex_lock(&hub->lock);
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
}

static void on_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    tmsgpy_hub_t *hub = arg;

    (void)task;
    (void)status;
    pthread_mutex_lock(&hub->lock);
    hub->overs++;
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
}

static bool queue(tmsgpy_hub_t *hub, const tmsgpy_work_t *what)
{
    work_t *work = malloc(sizeof(*work));

    if (work == NULL) {
        return false;
    }
    *work = (work_t){NULL, *what};
    pthread_mutex_lock(&hub->lock);
    *hub->last_work = work;
    hub->last_work = &work->next;
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
    return true;
}

static void on_task(void *arg, tmsg_task_t *task)
{
    const method_t *method = arg;
    const tmsgpy_work_t what = {tmsg_task_keep(task), NULL, method->index};

    tmsg_task_on_over(task, on_over, method->hub);
    tmsg_task_put_off(task);
    if (!queue(method->hub, &what)) {
        tmsg_task_fail(task, TMSG_ERR_NO_MEMORY, 0, "no memory", NULL);
        tmsg_task_destroy(task);
    }
}

static void on_stream(void *arg, tmsg_call_stream_t *stream)
{
    const method_t *method = arg;
    const tmsgpy_work_t what = {NULL, tmsg_call_stream_keep(stream),
                                method->index};

    tmsg_call_stream_put_off(stream);
    if (!queue(method->hub, &what)) {
        tmsg_call_stream_end(stream, TMSG_ERR_NO_MEMORY, 0, "no memory", NULL);
        tmsg_call_stream_destroy(stream);
    }
}

tmsg_status_t tmsgpy_hub_serve(tmsgpy_hub_t *hub,
                               const tmsg_server_params_t *params)
{
    tmsg_server_t *server = NULL;
    tmsg_status_t status;

    pthread_mutex_lock(&hub->serving);
    status = tmsg_server_create(hub->worker, params, &server);
    if (status == TMSG_OK) {
        hub->server = server;
    }
    pthread_mutex_unlock(&hub->serving);
    return status;
}

tmsg_status_t tmsgpy_hub_offer(tmsgpy_hub_t *hub, const char *name, int index,
                               int is_stream,
                               const tmsg_method_params_t *params)
{
    method_t *method = malloc(sizeof(*method));
    tmsg_status_t status = TMSG_ERR_UNAVAILABLE;

    if (method == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&hub->serving);
    *method = (method_t){hub->methods, hub, index};
    if (hub->server != NULL) {
        status = is_stream ? tmsg_server_register_stream(
                                 hub->server, name, on_stream, method, params)
                           : tmsg_server_register(hub->server, name, on_task,
                                                  method, params);
    }
    if (status == TMSG_OK) {
        hub->methods = method;
    } else {
        free(method);
    }
    pthread_mutex_unlock(&hub->serving);
    return status;
}

void tmsgpy_hub_report(tmsgpy_hub_t *hub, tmsg_health_report_t *report_p)
{
    pthread_mutex_lock(&hub->serving);
    if (tmsg_server_report(hub->server, NULL, report_p) != TMSG_OK) {
        *report_p = (tmsg_health_report_t){.health = TMSG_HEALTH_NOT_FOUND};
    }
    pthread_mutex_unlock(&hub->serving);
}

tmsg_status_t tmsgpy_hub_drain(tmsgpy_hub_t *hub, int timeout_ms)
{
    tmsg_status_t status = TMSG_OK;
    tmsg_server_t *server;

    pthread_mutex_lock(&hub->serving);
    server = hub->server;
    if (server != NULL && timeout_ms == 0) {
        status = tmsg_server_drain(server, 0);
    }
    pthread_mutex_unlock(&hub->serving);
    return server == NULL || timeout_ms == 0
               ? status
               : tmsg_server_drain(server, timeout_ms);
}

void tmsgpy_hub_unserve(tmsgpy_hub_t *hub)
{
    tmsgpy_work_t work;

    pthread_mutex_lock(&hub->serving);
    tmsg_server_destroy(hub->server);
    hub->server = NULL;
    pthread_mutex_unlock(&hub->serving);
    while (tmsgpy_hub_task(hub, -1, 0, &work)) {
        tmsg_task_destroy(work.task);
        tmsg_call_stream_destroy(work.stream);
    }
}

tmsg_status_t tmsgpy_hub_set_health(tmsgpy_hub_t *hub, tmsg_health_t health)
{
    tmsg_status_t status = TMSG_OK;

    pthread_mutex_lock(&hub->serving);
    if (hub->server != NULL) {
        status = tmsg_server_set_health(hub->server, NULL, health);
    }
    pthread_mutex_unlock(&hub->serving);
    return status;
}

static bool pop_any(tmsgpy_hub_t *hub, tmsgpy_work_t *work_p)
{
    work_t *work;

    pthread_mutex_lock(&hub->lock);
    work = hub->works;
    if (work != NULL) {
        hub->works = work->next;
        if (hub->works == NULL) {
            hub->last_work = &hub->works;
        } else {
            tmsgpy_hub_stir(hub); /* for another thread */
        }
    }
    pthread_mutex_unlock(&hub->lock);
    if (work == NULL) {
        return false;
    }
    *work_p = work->what;
    free(work);
    return true;
}

/* What nobody waits for any more is dropped: no handler is to see it. */
static bool pop(tmsgpy_hub_t *hub, tmsgpy_work_t *work_p)
{
    tmsgpy_work_t work;

    while (pop_any(hub, &work)) {
        if ((work.task != NULL
                 ? tmsg_task_begin(work.task)
                 : tmsg_call_stream_begin(work.stream)) == TMSG_OK) {
            *work_p = work;
            return true;
        }
        tmsg_task_destroy(work.task);
        tmsg_call_stream_destroy(work.stream);
    }
    return false;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Until something stirs. */
static void rest(tmsgpy_hub_t *hub, uint64_t until)
{
    struct pollfd fds[] = {{tmsg_worker_fd(hub->worker), POLLIN, 0},
                           {hub->wake_fd, POLLIN, 0}};
    uint64_t now;

    if (tmsg_worker_arm(hub->worker) == TMSG_ERR_BUSY) {
        return;
    }
    now = now_ns();
    if (now < until) {
        poll(fds, 2, (int)((until - now) / 1000000 + 1));
    }
    tmsgpy_hub_calm(hub);
}

/* A negative time drives nothing. */
int tmsgpy_hub_task(tmsgpy_hub_t *hub, int timeout_ms, int spin_us,
                    tmsgpy_work_t *work_p)
{
    uint64_t begun = timeout_ms > 0 ? now_ns() : 0, now = begun;
    uint64_t until =
        begun + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    uint64_t spun = begun + (uint64_t)spin_us * 1000;

    while (!pop(hub, work_p)) {
        bool moved = timeout_ms >= 0 && tmsg_worker_progress(hub->worker) > 0;

        if (moved) {
            continue;
        }
        if (timeout_ms <= 0) {
            return pop(hub, work_p);
        }
        now = now_ns();
        if (now >= until || tmsgpy_hub_is_closed(hub)) {
            return 0;
        }
        if (now >= spun || !tmsg_worker_pause(hub->worker)) {
            rest(hub, until);
        }
    }
    return 1;
}

unsigned tmsgpy_hub_overs(tmsgpy_hub_t *hub)
{
    unsigned overs;

    pthread_mutex_lock(&hub->lock);
    overs = hub->overs;
    pthread_mutex_unlock(&hub->lock);
    return overs;
}
