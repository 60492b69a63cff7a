/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/linger.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/ucx/ucx_events.h"
#include "core/log.h"
#include "core/shown.h"

#define LINGER_NS 250000000ULL
#define ASKED_NS 1000000000ULL
#define LOOK_MS 1     /* between two looks, if some have time left */
#define LATE_MS 500   /* between two looks, if none has time left */
#define READS_MOST 64 /* most reads from one socket in a look */
#define YIELDS 100    /* looks in a row before it sleeps between looks */
/* Most strangers of the process that are waited for, and most of these that are
 * waited for after their time. */
#define STRANGERS_MOST 64
#define LATE_STRANGERS_MOST 8

typedef struct {
    tmsg_node_t node;
    int fd;
    bool asking;
    bool stranger;
    bool told; /* its peer was named in the log */
    uint64_t deadline_ns;
    char peer[TMSG_LINGER_NAME_BYTES];
} socket_t;

/* Numbers of late ones of all UCX workers, without strangers; of strangers that
 * are not late, and of those that are. */
static atomic_uint late, strangers, late_strangers;

/* In the child of a fork(): those were the parent's. */
static void begin_anew(void)
{
    atomic_store(&late, 0);
    atomic_store(&strangers, 0);
    atomic_store(&late_strangers, 0);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_anew); }

static void free_socket(socket_t *kept)
{
    close(kept->fd);
    free(kept);
}

/* Returns whether the peer has hung up. Throws away what the peer still
 * says. */
static bool has_hung_up(int fd)
{
    char words[4096];
    ssize_t got = 1;

    for (int i = 0; i < READS_MOST && got > 0; i++) {
        got = recv(fd, words, sizeof(words), MSG_DONTWAIT);
    }
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void close_late(tmsg_ucx_t *ucx)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = ucx->late.head; node != NULL; node = next) {
        socket_t *kept = TMSG_CONTAINER_OF(node, socket_t, node);

        next = node->next;
        if (has_hung_up(kept->fd)) {
            tmsg_list_remove(&ucx->late, node);
            atomic_fetch_sub(kept->stranger ? &late_strangers : &late, 1);
            free_socket(kept);
        }
    }
}

/* Moves sockets that have hung up or had their time to `late`, and closes those
 * of peers that have hung up. */
static void look_at_lingering(tmsg_ucx_t *ucx)
{
    uint64_t now = tmsg_now_ns();
    tmsg_node_t *next;

    for (tmsg_node_t *node = ucx->lingering.head; node != NULL; node = next) {
        socket_t *kept = TMSG_CONTAINER_OF(node, socket_t, node);

        next = node->next;
        if (now < kept->deadline_ns &&
            (kept->asking || !has_hung_up(kept->fd))) {
            continue;
        }
        tmsg_list_remove(&ucx->lingering, node);
        if (kept->stranger) {
            atomic_fetch_sub(&strangers, 1);
        }
        if (kept->stranger &&
            atomic_load(&late_strangers) >= LATE_STRANGERS_MOST) {
            free_socket(kept);
            continue;
        }
        tmsg_list_push(&ucx->late, node);
        atomic_fetch_add(kept->stranger ? &late_strangers : &late, 1);
    }
    close_late(ucx);
}

static void look_again(tmsg_timer_t *timer)
{
    tmsg_ucx_t *ucx = TMSG_CONTAINER_OF(timer, tmsg_ucx_t, linger);

    look_at_lingering(ucx);
    if (ucx->lingering.count > 0) {
        tmsg_loop_set_timer(ucx->loop, timer, LOOK_MS);
    } else if (ucx->late.count > 0 || tmsg_linger_is_asked(ucx)) {
        tmsg_loop_set_timer(ucx->loop, timer, LATE_MS);
    }
}

void tmsg_linger_begin(tmsg_ucx_t *ucx, int fd, bool asking, bool stranger,
                       const char *peer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    socket_t *kept;

    pthread_once(&once, watch_forks);
    ucx->asked_ns = tmsg_now_ns() + ASKED_NS;
    ucx->linger.expired = look_again;
    tmsg_loop_set_timer(ucx->loop, &ucx->linger, LOOK_MS);
    if (stranger && atomic_load(&strangers) >= STRANGERS_MOST) {
        shutdown(fd, SHUT_WR);
        close(fd);
        return;
    }
    kept = malloc(sizeof(*kept));
    if (kept == NULL) {
        ucx->abandoned = true;
        close(fd);
        return;
    }
    shutdown(fd, SHUT_WR);
    if (stranger) {
        atomic_fetch_add(&strangers, 1);
    }
    kept->fd = fd;
    kept->asking = asking;
    kept->stranger = stranger;
    kept->told = false;
    tmsg_shown_format(kept->peer, sizeof(kept->peer), "%s", peer);
    kept->deadline_ns = tmsg_now_ns() + LINGER_NS;
    tmsg_list_push(&ucx->lingering, &kept->node);
}

bool tmsg_linger_over(const tmsg_ucx_t *ucx)
{
    return ucx->lingering.count == 0;
}

bool tmsg_linger_is_asked(const tmsg_ucx_t *ucx)
{
    return tmsg_now_ns() < ucx->asked_ns;
}

bool tmsg_linger_look(tmsg_ucx_t *ucx)
{
    look_at_lingering(ucx);
    return ucx->abandoned || ucx->lingering.count + ucx->late.count > 0;
}

unsigned tmsg_linger_count_late(void) { return atomic_load(&late); }

void tmsg_linger_await(tmsg_ucx_t *ucx, uint64_t most_ns)
{
    uint64_t begun_ns = tmsg_now_ns();

    for (unsigned i = 0;
         ucx->lingering.count > 0 && tmsg_now_ns() - begun_ns < most_ns; i++) {
        tmsg_ucx_events.drain(ucx);
        look_at_lingering(ucx);
        if (i < YIELDS) {
            sched_yield();
        } else { /* the peers that are to hang up may wait for this core */
            poll(NULL, 0, 1);
        }
    }
    tmsg_loop_clear_timer(ucx->loop, &ucx->linger);
}

static void count_peer(tmsg_linger_tally_t *tally,
                       const char peer[TMSG_LINGER_NAME_BYTES])
{
    unsigned i = 0;

    while (i < tally->names && strcmp(tally->of[i].peer, peer) != 0) {
        i++;
    }
    tally->count++;
    if (i == TMSG_LINGER_NAMES) {
        tally->other++;
        return;
    }
    if (i == tally->names) {
        memcpy(tally->of[i].peer, peer, sizeof(tally->of[i].peer));
        tally->of[i].count = 0;
        tally->names++;
    }
    tally->of[i].count++;
}

void tmsg_linger_tell(tmsg_ucx_t *ucx, tmsg_linger_tally_t *tally)
{
    for (tmsg_node_t *node = ucx->late.head; node != NULL; node = node->next) {
        socket_t *kept = TMSG_CONTAINER_OF(node, socket_t, node);

        if (!kept->told) {
            kept->told = true;
            count_peer(tally, kept->peer);
            tally->for_good |= ucx->abandoned;
        }
    }
}

void tmsg_linger_log(tmsg_linger_tally_t *tally)
{
    char text[(TMSG_LINGER_NAME_BYTES + 32) * TMSG_LINGER_NAMES + 32];
    size_t used = 0;

    if (tally->count == 0) {
        return;
    }
    for (unsigned i = 0; i < tally->names; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                 i == 0 ? "" : ", ", tally->of[i].peer);
        if (tally->of[i].count > 1) {
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     " (%u connections)", tally->of[i].count);
        }
    }
    if (tally->other > 0) {
        snprintf(text + used, sizeof(text) - used, ", and %u more",
                 tally->other);
    }
    tmsg_log_of(
        TMSG_LOG_LEFT_KIND, "peers that stay", TMSG_LOG_WARN,
        "peers that were given up do not hang up: %s; shared memory that "
        "they may write to is left behind%s",
        text, tally->for_good ? "" : " until they do");
    *tally = (tmsg_linger_tally_t){.count = 0};
}
