/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/lane.h"

#include <stdio.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/worker/engine.h"
#include "core/log.h"

#define QUIET_MOST 256  /* turns without bytes, before the loop alone looks */
#define LISTEN_EVERY 16 /* turns between reads, while nothing is heard */
#define TURNS_BYTES ((size_t)1024 * 1024) /* of all lanes in one round */

#define MOVER_ADDRESS(name) &tmsg_mover_##name,

static const tmsg_mover_t *const movers[] = {TMSG_MOVERS(MOVER_ADDRESS)};

#define MOVER_COUNT (sizeof(movers) / sizeof(movers[0]))

static bool lane_stands(const tmsg_lane_t *lane)
{
    return lane != NULL && lane->stands && !lane->lost;
}

bool tmsg_lane_sends(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;

    return lane_stands(lane) &&
           (lane->mover->sends == NULL || lane->mover->sends(lane));
}

bool tmsg_lane_receives(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;

    return lane_stands(lane) &&
           (lane->mover->receives == NULL || lane->mover->receives(lane));
}

uint64_t tmsg_lane_ahead(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;
    uint64_t ahead = lane == NULL ? 0 : lane->mover->ahead(lane);

    return ahead > 0 ? ahead : TMSG_LANE_AHEAD_MOST;
}

/* Returns the mover that a large message may be meant for, or NULL. */
static const tmsg_mover_t *find_mover(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;
    bool may;

    if (lane != NULL) {
        may = lane->mover->may_send == NULL
                  ? lane_stands(lane)
                  : !lane->lost && lane->mover->may_send(endpoint);
        return may ? lane->mover : NULL;
    }
    for (size_t i = 0; i < MOVER_COUNT; i++) {
        if (movers[i]->may_send != NULL && movers[i]->may_send(endpoint)) {
            return movers[i];
        }
    }
    return NULL;
}

bool tmsg_lane_may_send(const tmsg_endpoint_t *endpoint)
{
    return find_mover(endpoint) != NULL;
}

bool tmsg_lane_make(tmsg_endpoint_t *endpoint)
{
    const tmsg_mover_t *mover = find_mover(endpoint);

    return mover != NULL && (mover->make == NULL || mover->make(endpoint));
}

const char *tmsg_lane_words(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;
    const tmsg_mover_t *mover = find_mover(endpoint);

    return mover != NULL                         ? mover->ready
           : endpoint->paths.lane_why[0] != '\0' ? endpoint->paths.lane_why
           : lane == NULL                        ? "none"
           : lane->lost                          ? "lost"
                                                 : lane->mover->unready;
}

void tmsg_lane_begin(tmsg_endpoint_t *endpoint)
{
    for (size_t i = 0; i < MOVER_COUNT && endpoint->paths.lane == NULL; i++) {
        if (movers[i]->begin != NULL) {
            movers[i]->begin(endpoint);
        }
    }
}

void tmsg_lane_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why)
{
    snprintf(endpoint->paths.lane_why, sizeof(endpoint->paths.lane_why),
             "none: %s", why);
    tmsg_log(TMSG_LOG_INFO,
             "%s: large payloads go by UCX, for there is no %s: %s",
             endpoint->peer, what, why);
}

void tmsg_lane_adopt(tmsg_lane_t *lane, const tmsg_mover_t *mover,
                     tmsg_endpoint_t *endpoint)
{
    lane->mover = mover;
    lane->maker = mover;
    lane->endpoint = endpoint;
    endpoint->paths.lane = lane;
}

/* Returns whether the endpoint may go on without the lane. The dialling side
 * may never have heard that the lane stands: then it goes without, too, and
 * asks for nothing by it. If it has heard, it loses the lane as well, and ends
 * the connection itself. */
static bool may_go_without(const tmsg_lane_t *lane)
{
    return !lane->endpoint->dialling && !lane->used && !lane->out.busy &&
           lane->endpoint->pulled.count == 0;
}

static void shut_lane(tmsg_lane_t *lane)
{
    lane->lost = true;
    if (lane->listed) {
        tmsg_list_remove(&lane->endpoint->worker->lanes, &lane->node);
        lane->listed = false;
    }
    lane->mover->shut(lane);
}

void tmsg_lane_lose(tmsg_lane_t *lane, tmsg_status_t status, const char *why)
{
    shut_lane(lane);
    if (status == TMSG_ERR_PEER_LOST && may_go_without(lane)) {
        tmsg_lane_go_without(lane->endpoint, "lane", why);
    } else if (status == TMSG_ERR_PEER_LOST) {
        tmsg_endpoint_lose_lane(lane->endpoint, why);
    } else {
        tmsg_endpoint_break(lane->endpoint, status, why);
    }
}

/* Returns the socket of a lane that stands; < 0: there is none. */
static int socket_of_lane(const tmsg_lane_t *lane)
{
    return lane_stands(lane) && lane->mover->socket != NULL
               ? lane->mover->socket(lane)
               : -1;
}

int tmsg_lane_look(tmsg_endpoint_t *endpoint, const tmsg_unacked_t **unacked_p)
{
    tmsg_lane_t *lane = endpoint->paths.lane;
    int fd = socket_of_lane(lane);

    if (lane != NULL && lane->mover->look != NULL) {
        lane->mover->look(lane);
    }
    if (fd >= 0) {
        tmsg_unacked_look(&lane->unacked, fd);
        *unacked_p = &lane->unacked;
    }
    return fd;
}

int tmsg_lane_peek(const tmsg_endpoint_t *endpoint, tmsg_unacked_t *unacked)
{
    int fd = socket_of_lane(endpoint->paths.lane);

    if (fd >= 0) {
        *unacked = endpoint->paths.lane->unacked;
        tmsg_unacked_look(unacked, fd);
    }
    return fd;
}

bool tmsg_lane_is_intact(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->paths.lane;

    return lane == NULL || lane->mover->is_intact == NULL ||
           lane->mover->is_intact(lane);
}

void tmsg_lane_give_up(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_lane_t *lane = endpoint->paths.lane;

    shut_lane(lane);
    if (may_go_without(lane)) {
        tmsg_lane_go_without(endpoint, "lane", why);
    } else {
        tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_lane_end(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane = endpoint->paths.lane;

    if (lane == NULL) {
        return;
    }
    endpoint->paths.lane = NULL;
    shut_lane(lane);
    tmsg_lane_drop(lane);
    lane->mover->free(lane);
}

void tmsg_lane_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->paths.ringless = false;
    endpoint->paths.ring_offered = false;
    endpoint->paths.lane_why[0] = '\0';
}

bool tmsg_lane_is_one(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.is_lane;
}

bool tmsg_lane_was_claimed(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.is_lane || endpoint->paths.late_lane;
}

static void enlist_lane(tmsg_lane_t *lane)
{
    if (!lane->listed) {
        tmsg_list_push(&lane->endpoint->worker->lanes, &lane->node);
        lane->listed = true;
    }
}

void tmsg_lane_stir(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane = endpoint->paths.lane;

    if (lane_stands(lane)) {
        lane->quiet = 0;
        lane->silent = 0;
        enlist_lane(lane);
    }
}

void tmsg_lane_ponged(tmsg_endpoint_t *endpoint)
{
    if (endpoint->paths.lane != NULL && endpoint->paths.lane->out.waits) {
        tmsg_lane_stir(endpoint);
    }
}

/* Gives a lane its turn, and returns the bytes that were moved. Lanes that have
 * been still for a while are left to the loop. */
static size_t turn_lane(tmsg_lane_t *lane)
{
    size_t most = tmsg_lane_turn_bytes(lane);
    size_t written = tmsg_lane_write(lane, most), read = 0;

    if (!lane->lost &&
        (lane->silent < QUIET_MOST || lane->silent % LISTEN_EVERY == 0)) {
        read = tmsg_lane_read(lane, most);
    }
    lane->silent = read > 0 ? 0 : lane->silent + 1;
    lane->quiet = written + read > 0 ? 0 : lane->quiet + 1;
    if (!lane->lost && lane->mover->moved != NULL && written + read > 0) {
        lane->mover->moved(lane);
    }
    if (!lane->lost &&
        (lane->quiet < QUIET_MOST || !lane->mover->await(lane))) {
        enlist_lane(lane);
    }
    return written + read;
}

/* Gives the lanes their turns. All of them together move no more than one
 * would; the rest has the next turn. */
unsigned tmsg_lanes_turn(tmsg_worker_t *worker)
{
    size_t count = worker->lanes.count, moved = 0;
    unsigned busy = 0;

    for (; count > 0 && worker->lanes.count > 0 && moved < TURNS_BYTES;
         count--) {
        tmsg_lane_t *lane =
            TMSG_CONTAINER_OF(tmsg_list_pop(&worker->lanes), tmsg_lane_t, node);
        tmsg_endpoint_t *endpoint = lane->endpoint;
        size_t bytes;

        lane->listed = false;
        tmsg_endpoint_hold(endpoint);
        bytes = turn_lane(lane);
        tmsg_endpoint_drop(endpoint);
        busy += bytes > 0;
        moved += bytes;
    }
    return busy;
}

bool tmsg_lanes_arm(tmsg_worker_t *worker)
{
    bool all = true;

    for (tmsg_node_t *node = worker->lanes.head; node != NULL;
         node = node->next) {
        tmsg_lane_t *lane = TMSG_CONTAINER_OF(node, tmsg_lane_t, node);

        all = lane->mover->await(lane) && all;
    }
    return all;
}
