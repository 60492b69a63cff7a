/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/heart.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "am/net/loop.h"
#include "core/error.h"

#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL
#define LISTENS_A_TIMEOUT 4

void tmsg_heart_open(tmsg_heart_t *heart, uint32_t timeout_ms)
{
    pthread_condattr_t attr;

    memset(heart, 0, sizeof(*heart));
    heart->listen_ns = timeout_ms * NS_PER_MS / LISTENS_A_TIMEOUT;
    atomic_init(&heart->due_ns, UINT64_MAX);
    pthread_mutex_init(&heart->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&heart->stirred, &attr);
    pthread_cond_init(&heart->visited, &attr);
    pthread_condattr_destroy(&attr);
}

bool tmsg_heart_is_late(const tmsg_heart_t *heart)
{
    uint64_t due = heart->due_ns;

    return due != UINT64_MAX && tmsg_now_ns() > due + heart->listen_ns;
}

/* Returns the time from one round to the next that a pulse asks for. */
static uint64_t pulse_interval(const tmsg_heart_t *heart,
                               const tmsg_pulse_t *pulse)
{
    uint64_t listen_ns = heart->listen_ns == 0 ? UINT64_MAX : heart->listen_ns;

    return pulse->beat_ns != 0 && pulse->beat_ns < listen_ns ? pulse->beat_ns
                                                             : listen_ns;
}

/* Hears and beats for one pulse. `late`: this process slept, so the peer counts
 * as heard now. */
static void visit_pulse(const tmsg_heart_t *heart, tmsg_pulse_t *pulse,
                        uint64_t round_ns, bool late)
{
    uint64_t now = tmsg_now_ns();

    if (heart->listen_ns != 0) {
        if (late) {
            pulse->stream->heard_ns = now;
        }
        tmsg_frame_listen(pulse->stream, TMSG_FRAME_HEARTBEAT);
    }
    /* The heartbeat goes in the round that is nearest to its time. */
    if (pulse->beat_ns != 0 && now + round_ns / 2 >= pulse->next_ns) {
        tmsg_frame_beat(pulse->stream, TMSG_FRAME_HEARTBEAT);
        pulse->next_ns = now + pulse->beat_ns;
    }
}

static uint64_t shortest_interval(const tmsg_heart_t *heart)
{
    uint64_t shortest = UINT64_MAX;

    for (tmsg_node_t *node = heart->pulses.head; node != NULL;
         node = node->next) {
        uint64_t asked =
            pulse_interval(heart, TMSG_CONTAINER_OF(node, tmsg_pulse_t, node));

        shortest = asked < shortest ? asked : shortest;
    }
    return shortest;
}

/* Visits all pulses. Lock held, but released during each visit. */
static void go_round(tmsg_heart_t *heart)
{
    uint64_t round_ns = shortest_interval(heart);
    bool late = tmsg_heart_is_late(heart);

    heart->next = heart->pulses.head;
    while (heart->next != NULL) {
        tmsg_pulse_t *pulse =
            TMSG_CONTAINER_OF(heart->next, tmsg_pulse_t, node);

        heart->next = heart->next->next;
        heart->visiting = pulse;
        pthread_mutex_unlock(&heart->lock);
        visit_pulse(heart, pulse, round_ns, late);
        pthread_mutex_lock(&heart->lock);
        heart->visiting = NULL;
        pthread_cond_broadcast(&heart->visited);
    }
    round_ns = shortest_interval(heart);
    heart->due_ns =
        round_ns == UINT64_MAX ? UINT64_MAX : tmsg_now_ns() + round_ns;
}

static void await_round(tmsg_heart_t *heart)
{
    uint64_t due = heart->due_ns;
    struct timespec until = {.tv_sec = (time_t)(due / NS_PER_S),
                             .tv_nsec = (long)(due % NS_PER_S)};

    if (due == UINT64_MAX) {
        pthread_cond_wait(&heart->stirred, &heart->lock);
    } else {
        pthread_cond_timedwait(&heart->stirred, &heart->lock, &until);
    }
}

static void *run_heart(void *arg)
{
    tmsg_heart_t *heart = arg;

    pthread_mutex_lock(&heart->lock);
    while (!heart->ending) {
        if (tmsg_now_ns() >= heart->due_ns) {
            go_round(heart);
        } else {
            await_round(heart);
        }
    }
    pthread_mutex_unlock(&heart->lock);
    return NULL;
}

/* Returns whether the thread belongs to the process that forked this one. What
 * that thread held locked stays locked here. */
static bool is_forked(const tmsg_heart_t *heart)
{
    return heart->owner != 0 && heart->owner != getpid();
}

static tmsg_status_t start_heart(tmsg_heart_t *heart)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&heart->thread, NULL, run_heart, heart);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO, "the context's thread");
    }
    heart->owner = getpid();
    return TMSG_OK;
}

tmsg_status_t tmsg_heart_add(tmsg_heart_t *heart, tmsg_pulse_t *pulse,
                             tmsg_frame_stream_t *stream, uint32_t beat_ms)
{
    tmsg_status_t status = TMSG_OK;
    uint64_t first;

    if (is_forked(heart)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the context belongs to the process that forked "
                              "this one; make another");
    }
    if (beat_ms < TMSG_HEARTBEAT_LEAST_MS) {
        beat_ms = TMSG_HEARTBEAT_LEAST_MS;
    }
    pthread_mutex_lock(&heart->lock);
    if (heart->owner == 0) {
        status = start_heart(heart);
    }
    if (status == TMSG_OK) {
        stream->heard_ns = tmsg_now_ns();
        pulse->stream = stream;
        pulse->beat_ns =
            beat_ms == TMSG_HEARTBEAT_NEVER ? 0 : beat_ms * NS_PER_MS;
        pulse->next_ns = 0;
        tmsg_list_push(&heart->pulses, &pulse->node);
        first = pulse_interval(heart, pulse);
        first += first == UINT64_MAX ? 0 : stream->heard_ns;
        if (first < heart->due_ns) {
            heart->due_ns = first;
            pthread_cond_signal(&heart->stirred);
        }
    }
    pthread_mutex_unlock(&heart->lock);
    return status;
}

void tmsg_heart_remove(tmsg_heart_t *heart, tmsg_pulse_t *pulse)
{
    if (pulse->stream == NULL || is_forked(heart)) {
        return;
    }
    pthread_mutex_lock(&heart->lock);
    if (heart->next == &pulse->node) {
        heart->next = pulse->node.next;
    }
    tmsg_list_remove(&heart->pulses, &pulse->node);
    while (heart->visiting == pulse) {
        pthread_cond_wait(&heart->visited, &heart->lock);
    }
    pulse->stream = NULL;
    pthread_mutex_unlock(&heart->lock);
}

/* The half interval is added because a round may be half an interval early. */
void tmsg_heart_put_off(tmsg_pulse_t *pulse)
{
    pulse->next_ns = tmsg_now_ns() + pulse->beat_ns + pulse->beat_ns / 2;
}

void tmsg_heart_close(tmsg_heart_t *heart)
{
    if (is_forked(heart)) {
        return;
    }
    if (heart->owner != 0) {
        pthread_mutex_lock(&heart->lock);
        heart->ending = true;
        pthread_cond_signal(&heart->stirred);
        pthread_mutex_unlock(&heart->lock);
        pthread_join(heart->thread, NULL);
    }
    pthread_cond_destroy(&heart->visited);
    pthread_cond_destroy(&heart->stirred);
    pthread_mutex_destroy(&heart->lock);
}
