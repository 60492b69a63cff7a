/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/loop.h - an event loop: descriptors, timers and signals of other
 * threads behind one epoll descriptor. */
#ifndef TMSG_AM_NET_LOOP_H
#define TMSG_AM_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include <tensormsg/status.h>

#define TMSG_LOOP_BATCH 32

/* Embed this in what wants to hear of a descriptor. */
typedef struct tmsg_source {
    int fd; /* -1: not in a loop */
    /* Called with the events of the descriptor. NULL: the descriptor only wakes
     * whoever sleeps on epoll_fd. */
    void (*ready)(struct tmsg_source *source, uint32_t events);
} tmsg_source_t;

/* Embed this in what wants to hear of a deadline. All zero bits: not set. */
typedef struct tmsg_timer {
    struct tmsg_timer *next;
    struct tmsg_timer *previous;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: not set */
    void (*expired)(struct tmsg_timer *timer);
} tmsg_timer_t;

typedef struct {
    int epoll_fd;
    int event_fd;        /* see tmsg_loop_signal() */
    int timer_fd;        /* wakes whoever sleeps on epoll_fd */
    tmsg_source_t timer; /* source of timer_fd, to tell its events */
    bool heard;          /* event_fd is readable, until tmsg_loop_hear() */
    uint64_t timer_set_ns;
    uint64_t wake_ns;         /* see tmsg_loop_wake_after(); 0: not set */
    tmsg_timer_t *timers;     /* soonest first */
    tmsg_timer_t *last_timer; /* end of the list, where most timers belong */
    struct epoll_event events[TMSG_LOOP_BATCH];
    int event_count; /* of events, while they are handed out */
} tmsg_loop_t;

uint64_t tmsg_now_ns(void);

tmsg_status_t tmsg_loop_open(tmsg_loop_t *loop);
void tmsg_loop_close(tmsg_loop_t *loop);

/* Adds a descriptor. `events` are those of epoll, level-triggered. */
tmsg_status_t tmsg_loop_add(tmsg_loop_t *loop, tmsg_source_t *source, int fd,
                            uint32_t events);
void tmsg_loop_change(tmsg_loop_t *loop, tmsg_source_t *source,
                      uint32_t events);
/* Removes a descriptor. Safe at any time, from a callback of the loop, too. */
void tmsg_loop_remove(tmsg_loop_t *loop, tmsg_source_t *source);

void tmsg_loop_set_timer(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ms);
/* Sets a timer in nanoseconds. */
void tmsg_loop_set_alarm(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ns);
void tmsg_loop_clear_timer(tmsg_loop_t *loop, tmsg_timer_t *timer);

/* Calls what is ready or expired, without waiting. Returns how many it
 * called. */
unsigned tmsg_loop_run(tmsg_loop_t *loop);

/* Makes epoll_fd wake at the soonest deadline. */
void tmsg_loop_arm(tmsg_loop_t *loop);

/* Makes the next tmsg_loop_arm() have epoll_fd wake after this time, though no
 * timer expires then. */
void tmsg_loop_wake_after(tmsg_loop_t *loop, uint64_t ns);

/* tmsg_loop_signal() makes epoll_fd readable, from any thread, until
 * tmsg_loop_hear(). A thread that is about to sleep on epoll_fd calls
 * tmsg_loop_hear() before it looks for the last time. */
void tmsg_loop_signal(int event_fd);
void tmsg_loop_hear(tmsg_loop_t *loop);

/* Reads a descriptor that was signalled, so that it is not readable any
 * more. */
void tmsg_loop_drain(int event_fd);

#endif
