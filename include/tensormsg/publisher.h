/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/publisher.h - one map to many peers, none of which slows
 * another.
 *
 * A publisher sends each map to all of its subscribers, which are endpoints.
 * See docs/reference/publish.md.
 *
 *     tmsg_publisher_create(worker, NULL, &publisher);
 *     listener_params.on_accept = tmsg_publisher_accept;
 *     listener_params.on_accept_arg = publisher; // who connects is added
 *     tmsg_publisher_publish(publisher, map, NULL, NULL);
 *     tmsg_publisher_destroy(publisher);
 */
#ifndef TENSORMSG_PUBLISHER_H
#define TENSORMSG_PUBLISHER_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sends each map to all endpoints that were added to it, its subscribers.
 * Peers come, go and die as they like. What waits for a subscriber is bounded,
 * and beyond the bounds that one alone meets its policy, unless the policy is
 * that the publisher waits. Payload and header are
 * prepared once for all of them, and the map is held until the last one has it.
 * It belongs to its worker, and its calls to the threads that may use that
 * (worker.h). See docs/reference/publish.md. */
typedef struct tmsg_publisher tmsg_publisher_t;

/* What happens to a subscriber for which too much waits. */
typedef enum {
    TMSG_SLOW_DROP_OLDEST = 0, /* of what waits */
    TMSG_SLOW_DROP_NEWEST = 1, /* what was just published */
    TMSG_SLOW_DISCONNECT = 2,  /* its endpoint ends with LIMIT_EXCEEDED */
    TMSG_SLOW_WAIT = 3 /* nothing is dropped: tmsg_publisher_publish() waits
                        * for room, and all go as the slowest does */
} tmsg_slow_t;

enum {
    /* Live: the newest map alone, whenever it took the one before. What is
     * older and still waits is dropped. Stands for messages 1, window 1,
     * DROP_OLDEST. A peer asks for it with TMSG_SUBSCRIBE_NEWEST (endpoint.h),
     * and then never makes the publisher wait. */
    TMSG_SUBSCRIBER_NEWEST = 1 << 0,

    /* The publisher destroys the endpoint when it has ended, or is destroyed
     * itself. */
    TMSG_SUBSCRIBER_OWNED = 1 << 1
};

enum {
    TMSG_SUBSCRIBER_PARAM_FLAGS = 1 << 0,
    TMSG_SUBSCRIBER_PARAM_MESSAGES = 1 << 1,
    TMSG_SUBSCRIBER_PARAM_BYTES = 1 << 2,
    TMSG_SUBSCRIBER_PARAM_WINDOW = 1 << 3,
    TMSG_SUBSCRIBER_PARAM_SLOW = 1 << 4,
    TMSG_SUBSCRIBER_PARAM_MOST_MS = 1 << 5
};

typedef struct tmsg_subscriber_params {
    uint64_t field_mask; /* TMSG_SUBSCRIBER_PARAM_*; unset: defaults */
    uint32_t flags;      /* TMSG_SUBSCRIBER_*; default 0 */
    uint32_t messages;   /* that wait for it at most; 1 or more, default 16;
                          * with DROP_OLDEST the default is fewer for who does
                          * not keep up, 3 at least */
    uint64_t bytes;      /* of their tensors, at most, but for a single one;
                          * default no bound */
    uint32_t window;     /* messages on the way to it, which its application
                          * has not taken: beyond them they wait. 1 or more,
                          * default 32; with DROP_OLDEST the default is fewer
                          * for who does not keep up, as many as it takes in
                          * about 100 ms */
    int32_t slow;        /* tmsg_slow_t; default DROP_OLDEST */
    uint32_t most_ms;    /* that a message waits for it at most, 1 or more;
                          * default UINT32_MAX, no bound. With DROP_OLDEST what
                          * waits longer is dropped, the newest message, too */
} tmsg_subscriber_params_t;

enum {
    TMSG_PUBLISHER_PARAM_KEEP = 1 << 0,
    TMSG_PUBLISHER_PARAM_SUBSCRIBER = 1 << 1,
    TMSG_PUBLISHER_PARAM_ON_PEER = 1 << 2 /* on_peer, on_lost, on_peer_arg */
};

typedef struct tmsg_publisher_params {
    uint64_t field_mask; /* TMSG_PUBLISHER_PARAM_*; unset: defaults */
    uint32_t keep;       /* newest maps that a newcomer is sent; default 0. If
                          * `messages` is set it is sent so many of them */
    const tmsg_subscriber_params_t *subscriber; /* for those that are added
                                                 * without; NULL: defaults */
    /* Who is subscribed, as a listener's functions of these names tell who is
     * connected (listener.h); each may be NULL, the default. on_peer is called
     * once for each subscriber, when it is connected. on_lost is called when
     * such a subscriber has left: with the status and error of its endpoint,
     * or with OK if tmsg_publisher_remove() or tmsg_publisher_close() took it
     * out. Neither is called after tmsg_publisher_destroy(). */
    tmsg_peer_fn on_peer;
    tmsg_closed_fn on_lost;
    void *on_peer_arg; /* passed to both; set with them */
} tmsg_publisher_params_t;

/* Creates one without subscribers. *params (NULL: defaults) is copied with what
 * it points to. The caller frees *publisher_p with tmsg_publisher_destroy().
 * Errors: INVALID_PARAM, NO_MEMORY, CLOSED (the worker is being destroyed). */
TMSG_API tmsg_status_t tmsg_publisher_create(
    tmsg_worker_t *worker, const tmsg_publisher_params_t *params,
    tmsg_publisher_t **publisher_p);

/* Adds an endpoint of the same worker, accepted or dialled, connected or not
 * yet. It is sent what is kept for newcomers, then all that is published from
 * now on; it can be used for anything else besides. `params` (NULL: the
 * publisher's) is copied. It leaves when it ends, however it does. Errors:
 * INVALID_PARAM, ALREADY_EXISTS, CLOSED or its own (it has ended),
 * NO_MEMORY. */
TMSG_API tmsg_status_t
tmsg_publisher_add(tmsg_publisher_t *publisher, tmsg_endpoint_t *endpoint,
                   const tmsg_subscriber_params_t *params);

/* The same as an on_accept of a listener, with the publisher as its argument:
 * whoever connects is added and owned. What cannot be added is destroyed, and
 * logged. */
TMSG_API void tmsg_publisher_accept(void *publisher, tmsg_endpoint_t *endpoint);

/* Takes an endpoint out. What waits for it is dropped, what is on the way goes
 * on. The endpoint is the caller's again, owned or not. Errors: NOT_FOUND. */
TMSG_API tmsg_status_t tmsg_publisher_remove(tmsg_publisher_t *publisher,
                                             tmsg_endpoint_t *endpoint);

/* Sends a map to all subscribers. Returns at once, and never waits for one of
 * them, but for those with TMSG_SLOW_WAIT: it drives the worker until these
 * have room, for timeout_ms at most, and otherwise nobody is sent the map. With
 * TMSG_SEND_TRY, or in a callback, it answers WOULD_BLOCK instead; see
 * tmsg_publisher_ready(). The map is held, which makes changes to it answer
 * BUSY, until all have it, or dropped it, and newcomers are no longer sent it:
 * to let go of it, give its tensors release functions (map.h) and destroy it
 * after this call; else borrowed data has to stay as it is until the request
 * has ended. The request ends with OK whatever became of each subscriber's:
 * that is counted. `params` (NULL: defaults) and request_p are those of
 * tmsg_endpoint_send(). Flags (TMSG_SEND_VERIFY, TMSG_SEND_KEEP_STRIDES,
 * TMSG_SEND_LEND), policy, channel, way and protocol hold for every subscriber,
 * each message being ACKED unless it goes to a peer that acknowledges nothing;
 * a channel that a peer does not take fails for that one. With TMSG_SEND_LEND
 * all who borrow share the map's blocks, or one copy. A map of blocks
 * (tmsg_shareable_alloc()) is held until all have given it back, which may be
 * after the request's end: a block may be written to when the request has ended
 * and tmsg_shareable_is_lent() says 0, or in the release function of its
 * tensor. A subscriber gets a message as without the flag, rather than dropped,
 * where it cannot be lent; who keeps 32 copies, or 512 MiB of them, is lent no
 * further ones. timeout_ms is for all from this call on: when it has passed,
 * what still waits for a subscriber is dropped, what is on the way is given up,
 * and the map is kept for newcomers no longer. on_done is called when the
 * request ends. Errors: INVALID_PARAM, NO_MEMORY, CLOSED (it is being closed),
 * and of TMSG_SLOW_WAIT TIMED_OUT and WOULD_BLOCK, which name the subscriber.
 */
TMSG_API tmsg_status_t tmsg_publisher_publish(tmsg_publisher_t *publisher,
                                              const tmsg_map_t *map,
                                              const tmsg_send_params_t *params,
                                              tmsg_request_t **request_p);

/* Gives a request that ends when every subscriber with TMSG_SLOW_WAIT has room
 * for one more map, at once where there is none of these: for who cannot wait
 * in tmsg_publisher_publish(). The map is one as large as that which was
 * answered WOULD_BLOCK last, if no other one was published since: so publish
 * with TMSG_SEND_TRY first, and again when the request has ended. Errors:
 * CLOSED (it is being closed), NO_MEMORY.
 */
TMSG_API tmsg_status_t tmsg_publisher_ready(tmsg_publisher_t *publisher,
                                            tmsg_request_t **request_p);

/* How many subscribers there are. */
TMSG_API size_t tmsg_publisher_size(const tmsg_publisher_t *publisher);

/* Describes it as a JSON object: "published" maps, "kept" ones, and messages
 * "delivered" (taken by the peer's application), "dropped" (by the policy, or
 * when the subscriber left) and "failed" (under way when it left, or refused by
 * it), of all subscribers, those that left included; "dropped_for", how many
 * were dropped for which reason: "messages", "bytes", "age" (the bounds),
 * "timeout" (of the publication), "left" (the subscriber) and "memory" (there
 * was none); "blocked", how often publishing waited; how many messages with
 * TMSG_SEND_LEND were "lent" and "not_lent", and "why_not_lent", if the last
 * one was not; then "subscribers" with "id", as of
 * tmsg_worker_overview(), "peer", the same of each, "mode" ("live", "all" or
 * ""), and how many are "waiting" and "under_way". *json_p is freed with
 * tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t
tmsg_publisher_describe(const tmsg_publisher_t *publisher, char **json_p);

/* Closes in order: nothing more is published or added; what waits is sent; then
 * the endpoints that it owns are closed, as by tmsg_endpoint_close(), and the
 * others leave. The request (which may be NULL) ends with OK when none is left.
 * Errors: NO_MEMORY, CLOSED (it was closed before). */
TMSG_API tmsg_status_t tmsg_publisher_close(tmsg_publisher_t *publisher,
                                            tmsg_request_t **request_p);

/* Frees it. What waits is dropped, what is on the way goes on, except to the
 * endpoints that it owns, which are destroyed. To be called before its worker
 * is destroyed, which frees it too. NULL is allowed. */
TMSG_API void tmsg_publisher_destroy(tmsg_publisher_t *publisher);

#ifdef __cplusplus
}
#endif

#endif
