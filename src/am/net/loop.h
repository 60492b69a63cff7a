/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/loop.h - descriptors, timers and other threads' posts behind one epoll
 * descriptor. */
#ifndef TMSG_AM_NET_LOOP_H
#define TMSG_AM_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include <tensormsg/status.h>

#define TMSG_LOOP_BATCH 32

/* Embedded in what wants to hear of a descriptor. */
typedef struct tmsg_source {
    int fd; /* -1: not in a loop */
    /* NULL: it only wakes who sleeps on epoll_fd. */
    void (*ready)(struct tmsg_source *source, uint32_t events);
} tmsg_source_t;

/* Embedded in what wants to hear of a deadline. All zero bits: not set. */
typedef struct tmsg_timer {
    struct tmsg_timer *next;
    struct tmsg_timer *previous;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: not set */
    void (*expired)(struct tmsg_timer *timer);
} tmsg_timer_t;

typedef struct {
    int epoll_fd;
    int event_fd;        /* tmsg_loop_signal() */
    int timer_fd;        /* wakes whoever sleeps on epoll_fd */
    tmsg_source_t timer; /* that it was this one */
    bool heard;          /* that event_fd is readable, which it stays */
    uint64_t timer_set_ns;
    tmsg_timer_t *timers;     /* soonest first */
    tmsg_timer_t *last_timer; /* where most of them belong */
    struct epoll_event events[TMSG_LOOP_BATCH];
    int event_count; /* of events, while they are handed out */
} tmsg_loop_t;

uint64_t tmsg_now_ns(void);

tmsg_status_t tmsg_loop_open(tmsg_loop_t *loop);
void tmsg_loop_close(tmsg_loop_t *loop);

/* `events` as for epoll, level-triggered. */
tmsg_status_t tmsg_loop_add(tmsg_loop_t *loop, tmsg_source_t *source, int fd,
                            uint32_t events);
void tmsg_loop_change(tmsg_loop_t *loop, tmsg_source_t *source,
                      uint32_t events);
/* Safe at any time, from a callback of the loop too. */
void tmsg_loop_remove(tmsg_loop_t *loop, tmsg_source_t *source);

void tmsg_loop_set_timer(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ms);
/* The same in nanoseconds. */
void tmsg_loop_set_alarm(tmsg_loop_t *loop, tmsg_timer_t *timer,
                         uint64_t timeout_ns);
void tmsg_loop_clear_timer(tmsg_loop_t *loop, tmsg_timer_t *timer);

/* Calls what is ready or expired, without waiting. Returns how many. */
unsigned tmsg_loop_run(tmsg_loop_t *loop);

/* Makes epoll_fd wake at the soonest deadline. */
void tmsg_loop_arm(tmsg_loop_t *loop);

/* Makes epoll_fd readable, from any thread, until it is heard: by who is about
 * to sleep on epoll_fd, before it looks for the last time. */
void tmsg_loop_signal(int event_fd);
void tmsg_loop_hear(tmsg_loop_t *loop);

/* Reads a descriptor that was signalled. */
void tmsg_loop_drain(int event_fd);

#endif
