/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/loop.h"

#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"

#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL

uint64_t tmsg_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Adds one of the two descriptors of the loop itself, of which only the timer
 * has a source. */
static int watch_own(const tmsg_loop_t *loop, int fd, tmsg_source_t *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

tmsg_status_t tmsg_loop_open(tmsg_loop_t *loop)
{
    tmsg_status_t status;

    *loop = (tmsg_loop_t){.epoll_fd = -1, .event_fd = -1, .timer_fd = -1};
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->timer_fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (loop->epoll_fd >= 0 && loop->event_fd >= 0 && loop->timer_fd >= 0 &&
        watch_own(loop, loop->event_fd, NULL) == 0 &&
        watch_own(loop, loop->timer_fd, &loop->timer) == 0) {
        return TMSG_OK;
    }
    status = tmsg_error_errno(TMSG_ERR_IO, "the worker's epoll descriptor");
    tmsg_loop_close(loop);
    return status;
}

void tmsg_loop_close(tmsg_loop_t *loop)
{
    const int fds[] = {loop->epoll_fd, loop->event_fd, loop->timer_fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

tmsg_status_t tmsg_loop_add(tmsg_loop_t *loop, tmsg_source_t *source, int fd,
                            uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "epoll_ctl");
    }
    source->fd = fd;
    return TMSG_OK;
}

void tmsg_loop_change(tmsg_loop_t *loop, tmsg_source_t *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

void tmsg_loop_remove(tmsg_loop_t *loop, tmsg_source_t *source)
{
    if (source->fd < 0) {
        return;
    }
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = -1;
    for (int i = 0; i < loop->event_count; i++) {
        if (loop->events[i].data.ptr == source) {
            loop->events[i].data.ptr = NULL;
        }
    }
}

void tmsg_loop_clear_timer(tmsg_loop_t *loop, tmsg_timer_t *timer)
{
    if (timer->deadline_ns == 0) {
        return;
    }
    if (timer->previous == NULL) {
        loop->timers = timer->next;
    } else {
        timer->previous->next = timer->next;
    }
    if (timer->next == NULL) {
        loop->last_timer = timer->previous;
    } else {
        timer->next->previous = timer->previous;
    }
    timer->deadline_ns = 0;
}

void tmsg_loop_set_timer(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ms)
{
    tmsg_loop_set_alarm(loop, timer, timeout_ms * NS_PER_MS);
}

void tmsg_loop_set_alarm(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ns)
{
    tmsg_timer_t *before;

    tmsg_loop_clear_timer(loop, timer);
    timer->deadline_ns = tmsg_now_ns() + timeout_ns;
    before = loop->last_timer;
    while (before != NULL && before->deadline_ns > timer->deadline_ns) {
        before = before->previous;
    }
    timer->previous = before;
    timer->next = before == NULL ? loop->timers : before->next;
    if (before == NULL) {
        loop->timers = timer;
    } else {
        before->next = timer;
    }
    if (timer->next == NULL) {
        loop->last_timer = timer;
    } else {
        timer->next->previous = timer;
    }
}

static unsigned run_timers(tmsg_loop_t *loop)
{
    unsigned count = 0;
    uint64_t now = loop->timers == NULL ? 0 : tmsg_now_ns();

    while (loop->timers != NULL && loop->timers->deadline_ns <= now) {
        tmsg_timer_t *timer = loop->timers;

        tmsg_loop_clear_timer(loop, timer);
        timer->expired(timer);
        count++;
    }
    return count;
}

void tmsg_loop_drain(int event_fd)
{
    uint64_t value;
    ssize_t got = read(event_fd, &value, sizeof(value));

    (void)got;
}

unsigned tmsg_loop_run(tmsg_loop_t *loop)
{
    unsigned count = 0;
    int ready = epoll_wait(loop->epoll_fd, loop->events, TMSG_LOOP_BATCH, 0);

    loop->event_count = ready;
    for (int i = 0; i < ready; i++) {
        tmsg_source_t *source = loop->events[i].data.ptr;

        if (source == &loop->timer) {
            tmsg_loop_drain(loop->timer_fd);
        } else if (source == NULL) {
            loop->heard = true;
        } else if (source->ready != NULL) {
            source->ready(source, loop->events[i].events);
            count++;
        }
    }
    loop->event_count = 0;
    return count + run_timers(loop);
}

void tmsg_loop_hear(tmsg_loop_t *loop)
{
    if (loop->heard) {
        tmsg_loop_drain(loop->event_fd);
        loop->heard = false;
    }
}

void tmsg_loop_arm(tmsg_loop_t *loop)
{
    uint64_t at = loop->timers == NULL ? 0 : loop->timers->deadline_ns;
    struct itimerspec when = {.it_interval = {0}};

    if (loop->wake_ns != 0 && (at == 0 || loop->wake_ns < at)) {
        at = loop->wake_ns;
    }
    loop->wake_ns = 0;
    when.it_value.tv_sec = (time_t)(at / NS_PER_S);
    when.it_value.tv_nsec = (long)(at % NS_PER_S);
    if (at != loop->timer_set_ns) {
        timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
        loop->timer_set_ns = at;
    }
}

void tmsg_loop_wake_after(tmsg_loop_t *loop, uint64_t ns)
{
    loop->wake_ns = tmsg_now_ns() + ns;
}

void tmsg_loop_signal(int event_fd)
{
    uint64_t one = 1;
    ssize_t put = write(event_fd, &one, sizeof(one));

    (void)put;
}
