/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/keepalive.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "am/net/loop.h"
#include "core/error.h"
#include "core/thread.h"

#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL
#define LISTENS_A_TIMEOUT 4

void tmsg_keepalive_open(tmsg_keepalive_t *keepalive, uint32_t timeout_ms)
{
    pthread_condattr_t attr;

    memset(keepalive, 0, sizeof(*keepalive));
    keepalive->listen_ns = timeout_ms * NS_PER_MS / LISTENS_A_TIMEOUT;
    atomic_init(&keepalive->due_ns, UINT64_MAX);
    pthread_mutex_init(&keepalive->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&keepalive->stirred, &attr);
    pthread_cond_init(&keepalive->visited, &attr);
    pthread_condattr_destroy(&attr);
}

bool tmsg_keepalive_is_late(const tmsg_keepalive_t *keepalive)
{
    uint64_t due = keepalive->due_ns;

    return due != UINT64_MAX && tmsg_now_ns() > due + keepalive->listen_ns;
}

/* Returns the time from one round to the next that a pulse asks for. */
static uint64_t pulse_interval(const tmsg_keepalive_t *keepalive,
                               const tmsg_pulse_t *pulse)
{
    uint64_t listen_ns =
        keepalive->listen_ns == 0 ? UINT64_MAX : keepalive->listen_ns;

    return pulse->beat_ns != 0 && pulse->beat_ns < listen_ns ? pulse->beat_ns
                                                             : listen_ns;
}

/* Hears and beats for one pulse. `late`: this process slept, so the peer counts
 * as heard now. */
static void visit_pulse(const tmsg_keepalive_t *keepalive, tmsg_pulse_t *pulse,
                        uint64_t round_ns, bool late)
{
    uint64_t now = tmsg_now_ns();

    if (keepalive->listen_ns != 0) {
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

static uint64_t shortest_interval(const tmsg_keepalive_t *keepalive)
{
    uint64_t shortest = UINT64_MAX;

    for (tmsg_node_t *node = keepalive->pulses.head; node != NULL;
         node = node->next) {
        uint64_t asked = pulse_interval(
            keepalive, TMSG_CONTAINER_OF(node, tmsg_pulse_t, node));

        shortest = asked < shortest ? asked : shortest;
    }
    return shortest;
}

/* Visits all pulses. Lock held, but released during each visit. */
static void go_round(tmsg_keepalive_t *keepalive)
{
    uint64_t round_ns = shortest_interval(keepalive);
    bool late = tmsg_keepalive_is_late(keepalive);

    keepalive->next = keepalive->pulses.head;
    while (keepalive->next != NULL) {
        tmsg_pulse_t *pulse =
            TMSG_CONTAINER_OF(keepalive->next, tmsg_pulse_t, node);

        keepalive->next = keepalive->next->next;
        keepalive->visiting = pulse;
        pthread_mutex_unlock(&keepalive->lock);
        visit_pulse(keepalive, pulse, round_ns, late);
        pthread_mutex_lock(&keepalive->lock);
        keepalive->visiting = NULL;
        pthread_cond_broadcast(&keepalive->visited);
    }
    round_ns = shortest_interval(keepalive);
    keepalive->due_ns =
        round_ns == UINT64_MAX ? UINT64_MAX : tmsg_now_ns() + round_ns;
}

static void await_round(tmsg_keepalive_t *keepalive)
{
    uint64_t due = keepalive->due_ns;
    struct timespec until = {.tv_sec = (time_t)(due / NS_PER_S),
                             .tv_nsec = (long)(due % NS_PER_S)};

    if (due == UINT64_MAX) {
        pthread_cond_wait(&keepalive->stirred, &keepalive->lock);
    } else {
        pthread_cond_timedwait(&keepalive->stirred, &keepalive->lock, &until);
    }
}

static void *run_keepalive(void *arg)
{
    tmsg_keepalive_t *keepalive = arg;

    pthread_mutex_lock(&keepalive->lock);
    while (!keepalive->ending) {
        if (tmsg_now_ns() >= keepalive->due_ns) {
            go_round(keepalive);
        } else {
            await_round(keepalive);
        }
    }
    pthread_mutex_unlock(&keepalive->lock);
    return NULL;
}

/* Returns whether the thread belongs to the process that forked this one. What
 * that thread held locked stays locked here. */
static bool is_forked(const tmsg_keepalive_t *keepalive)
{
    return keepalive->owner != 0 && keepalive->owner != getpid();
}

static tmsg_status_t start_keepalive(tmsg_keepalive_t *keepalive)
{
    int error = tmsg_thread_start(&keepalive->thread, run_keepalive, keepalive);

    if (error != 0) {
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO, "the context's thread");
    }
    keepalive->owner = getpid();
    return TMSG_OK;
}

tmsg_status_t tmsg_keepalive_add(tmsg_keepalive_t *keepalive,
                                 tmsg_pulse_t *pulse,
                                 tmsg_frame_stream_t *stream, uint32_t beat_ms)
{
    tmsg_status_t status = TMSG_OK;
    uint64_t first;

    if (is_forked(keepalive)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the context belongs to the process that forked "
                              "this one; make another");
    }
    if (beat_ms < TMSG_HEARTBEAT_LEAST_MS) {
        beat_ms = TMSG_HEARTBEAT_LEAST_MS;
    }
    pthread_mutex_lock(&keepalive->lock);
    if (keepalive->owner == 0) {
        status = start_keepalive(keepalive);
    }
    if (status == TMSG_OK) {
        stream->heard_ns = tmsg_now_ns();
        pulse->stream = stream;
        pulse->beat_ns =
            beat_ms == TMSG_HEARTBEAT_NEVER ? 0 : beat_ms * NS_PER_MS;
        pulse->next_ns = 0;
        tmsg_list_push(&keepalive->pulses, &pulse->node);
        first = pulse_interval(keepalive, pulse);
        first += first == UINT64_MAX ? 0 : stream->heard_ns;
        if (first < keepalive->due_ns) {
            keepalive->due_ns = first;
            pthread_cond_signal(&keepalive->stirred);
        }
    }
    pthread_mutex_unlock(&keepalive->lock);
    return status;
}

void tmsg_keepalive_remove(tmsg_keepalive_t *keepalive, tmsg_pulse_t *pulse)
{
    if (pulse->stream == NULL || is_forked(keepalive)) {
        return;
    }
    pthread_mutex_lock(&keepalive->lock);
    if (keepalive->next == &pulse->node) {
        keepalive->next = pulse->node.next;
    }
    tmsg_list_remove(&keepalive->pulses, &pulse->node);
    while (keepalive->visiting == pulse) {
        pthread_cond_wait(&keepalive->visited, &keepalive->lock);
    }
    pulse->stream = NULL;
    pthread_mutex_unlock(&keepalive->lock);
}

/* The half interval is added because a round may be half an interval early. */
void tmsg_keepalive_put_off(tmsg_pulse_t *pulse)
{
    pulse->next_ns = tmsg_now_ns() + pulse->beat_ns + pulse->beat_ns / 2;
}

void tmsg_keepalive_close(tmsg_keepalive_t *keepalive)
{
    if (is_forked(keepalive)) {
        return;
    }
    if (keepalive->owner != 0) {
        pthread_mutex_lock(&keepalive->lock);
        keepalive->ending = true;
        pthread_cond_signal(&keepalive->stirred);
        pthread_mutex_unlock(&keepalive->lock);
        pthread_join(keepalive->thread, NULL);
    }
    pthread_cond_destroy(&keepalive->visited);
    pthread_cond_destroy(&keepalive->stirred);
    pthread_mutex_destroy(&keepalive->lock);
}
