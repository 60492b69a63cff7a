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

/* A publisher sends each map to all endpoints that were added to it, its
 * subscribers. Peers come, go and die as they like. What waits for a subscriber
 * is bounded. At the bound this subscriber meets its policy, and the others are
 * not affected, unless the policy is that the publisher waits. Payload and
 * header are prepared once for all of them. The map is held until the last one
 * has it.
 *
 * A publisher belongs to its worker, and its functions to the threads that may
 * use that worker (worker.h). See docs/reference/publish.md. */
typedef struct tmsg_publisher tmsg_publisher_t;

/* The end of messages, if too many wait for a subscriber. */
typedef enum {
    TMSG_SLOW_DROP_OLDEST = 0, /* the oldest waiting messages are dropped */
    TMSG_SLOW_DROP_NEWEST = 1, /* the message just published is dropped */
    TMSG_SLOW_DISCONNECT = 2,  /* its endpoint ends with LIMIT_EXCEEDED */
    TMSG_SLOW_WAIT = 3 /* nothing is dropped: tmsg_publisher_publish() waits
                        * for room, and all subscribers go as fast as the
                        * slowest */
} tmsg_slow_t;

enum {
    /* Live: the subscriber gets only the newest map, each time that it took the
     * one before. Older maps that still wait are dropped. Stands for messages
     * 1, window 1, DROP_OLDEST. A peer asks for it with TMSG_SUBSCRIBE_NEWEST
     * (endpoint.h), and then never makes the publisher wait. */
    TMSG_SUBSCRIBER_NEWEST = 1 << 0,

    /* The publisher destroys the endpoint when the endpoint has ended, or the
     * publisher is destroyed. */
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
    uint32_t messages;   /* that may wait for it; 1 or more, default 16. With
                          * DROP_OLDEST the default is lower for a subscriber
                          * that does not keep up, 3 at least */
    uint64_t bytes;      /* of tensors that may wait; a single message is never
                          * too large; default no bound */
    uint32_t window;     /* messages on the way to it that its application has
                          * not taken: at this number further ones wait. 1 or
                          * more, default 32. With DROP_OLDEST the default is
                          * lower for a subscriber that does not keep up: as
                          * many as it takes in about 100 ms */
    int32_t slow;        /* tmsg_slow_t; default DROP_OLDEST */
    uint32_t most_ms;    /* how long a message may wait for it, 1 or more;
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
    uint32_t keep; /* newest maps that a new subscriber is sent; default 0.
                    * At most its `messages`, if that is set */
    const tmsg_subscriber_params_t *subscriber; /* for those that are added
                                                 * without any; NULL:
                                                 * defaults */
    /* on_peer and on_lost tell who is subscribed, as a listener's functions of
     * these names tell who is connected (listener.h). Each may be NULL, the
     * default. on_peer is called once for each subscriber, when it is
     * connected. on_lost is called when such a subscriber has left. It gets the
     * status and error of the endpoint, or OK if tmsg_publisher_remove() or
     * tmsg_publisher_close() took it out. After tmsg_publisher_destroy() both
     * are no longer called. */
    tmsg_peer_fn on_peer;
    tmsg_closed_fn on_lost;
    void *on_peer_arg; /* passed to both; set with them */
} tmsg_publisher_params_t;

/* Creates a publisher without subscribers. *params (NULL: defaults) is copied
 * with what it points to. The caller frees *publisher_p with
 * tmsg_publisher_destroy().
 * Errors:
 *   INVALID_PARAM - an unknown bit, or a field that is out of range
 *   NO_MEMORY
 *   CLOSED - the worker is being destroyed */
TMSG_API tmsg_status_t tmsg_publisher_create(
    tmsg_worker_t *worker, const tmsg_publisher_params_t *params,
    tmsg_publisher_t **publisher_p);

/* Adds an endpoint of the same worker, accepted or dialled, connected or not
 * yet. It gets the maps kept for new subscribers, then all maps published from
 * now on. It can be used for anything else, too. It leaves when it ends.
 * `params` (NULL: the publisher's) is copied.
 * Errors: the endpoint's own if it has ended, and:
 *   INVALID_PARAM - a field, or an endpoint of another worker
 *   ALREADY_EXISTS - the endpoint is a subscriber
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t
tmsg_publisher_add(tmsg_publisher_t *publisher, tmsg_endpoint_t *endpoint,
                   const tmsg_subscriber_params_t *params);

/* Adds an endpoint, as the on_accept of a listener with the publisher as its
 * argument: whoever connects is added and owned. If the publisher cannot add an
 * endpoint, it destroys it and writes a log line. */
TMSG_API void tmsg_publisher_accept(void *publisher, tmsg_endpoint_t *endpoint);

/* Takes an endpoint out. Maps that wait for it are dropped, and maps on the way
 * go on. The endpoint is the caller's again, owned or not.
 * Errors:
 *   NOT_FOUND - it is no subscriber */
TMSG_API tmsg_status_t tmsg_publisher_remove(tmsg_publisher_t *publisher,
                                             tmsg_endpoint_t *endpoint);

/* Sends a map to all subscribers. Returns at once, unless a subscriber with
 * TMSG_SLOW_WAIT has no room: then it drives the worker until these have room,
 * for at most timeout_ms. If they have none by then, nobody is sent the map.
 * With TMSG_SEND_TRY, or in a callback, it returns WOULD_BLOCK instead of
 * waiting: see tmsg_publisher_ready().
 *
 * The map is held until all have it or dropped it, and until new subscribers
 * are no longer sent it. Until then changes to it return BUSY. To release the
 * map early, give its tensors release functions (map.h) and destroy it after
 * this call. Else keep borrowed data unchanged until the request has ended. The
 * request ends with OK whatever happened to each subscriber's message: that is
 * counted.
 *
 * `params` (NULL: defaults) and request_p are those of tmsg_endpoint_send().
 * Flags (TMSG_SEND_VERIFY, TMSG_SEND_KEEP_STRIDES, TMSG_SEND_LEND), policy,
 * channel, way and protocol hold for every subscriber. Each message is ACKED,
 * unless it goes to a peer that acknowledges nothing. A channel that a peer
 * does not take fails for that peer only. timeout_ms is for all from this call
 * on. When it has passed, what still waits is dropped, and what is on the way
 * is given up. The map is then no longer kept for new subscribers. on_done is
 * called when the request ends.
 *
 * With TMSG_SEND_LEND all subscribers that borrow share the map's blocks, or
 * one copy. A map of blocks (tmsg_shareable_alloc()) is held until all have
 * given it back, which may be after the end of the request. Write to a block
 * when the request has ended and tmsg_shareable_is_lent() returns 0, or in the
 * release function of its tensor. If a message cannot be lent to a subscriber,
 * it gets the message as without the flag. A subscriber that keeps 32 copies,
 * or 512 MiB of them, is lent no further ones.
 * Errors:
 *   INVALID_PARAM
 *   NO_MEMORY
 *   CLOSED - the publisher is being closed
 *   TIMED_OUT, WOULD_BLOCK - a subscriber with TMSG_SLOW_WAIT, which the error
 *     names, has no room */
TMSG_API tmsg_status_t tmsg_publisher_publish(tmsg_publisher_t *publisher,
                                              const tmsg_map_t *map,
                                              const tmsg_send_params_t *params,
                                              tmsg_request_t **request_p);

/* Gives a request that ends when every subscriber with TMSG_SLOW_WAIT has room
 * for one more map; at once if there is no such subscriber. It is for
 * applications that cannot wait in tmsg_publisher_publish(). The map is taken
 * to be as large as the one for which that last returned WOULD_BLOCK, if no
 * other was published since. So publish with TMSG_SEND_TRY first, and again
 * when the request has ended.
 * Errors:
 *   CLOSED - the publisher is being closed
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_publisher_ready(tmsg_publisher_t *publisher,
                                            tmsg_request_t **request_p);

/* Returns the number of subscribers. */
TMSG_API size_t tmsg_publisher_size(const tmsg_publisher_t *publisher);

/* Describes the publisher as a JSON object:
 *  - "published": maps
 *  - "kept": maps for new subscribers
 *  - "delivered": messages that a peer's application took. This and the
 *    following counts are of all subscribers, those that left included.
 *  - "dropped": messages that were dropped by the policy, or when the
 *    subscriber left
 *  - "failed": messages that were under way when the subscriber left, or that
 *    it refused
 *  - "dropped_for": how many were dropped for which reason: "messages",
 *    "bytes", "age" (the bounds), "timeout" (of the publication), "left" (the
 *    subscriber) and "memory" (a lack of it)
 *  - "blocked": how often publishing waited
 *  - "lent", "not_lent": messages with TMSG_SEND_LEND; "why_not_lent", if the
 *    last one was not
 *  - "subscribers": an array. Each has "id" (as in tmsg_worker_overview()),
 *    "peer", the same counts, "mode" ("live", "all" or ""), and how many
 *    messages are "waiting" and "under_way"
 *
 * *json_p is freed with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t
tmsg_publisher_describe(const tmsg_publisher_t *publisher, char **json_p);

/* Closes in order. Nothing more is published or added. What waits is sent. Then
 * the endpoints that the publisher owns are closed, as by
 * tmsg_endpoint_close(), and the others leave. The request (which may be NULL)
 * ends with OK when no subscriber is left.
 * Errors:
 *   NO_MEMORY
 *   CLOSED - it was closed before */
TMSG_API tmsg_status_t tmsg_publisher_close(tmsg_publisher_t *publisher,
                                            tmsg_request_t **request_p);

/* Frees the publisher. Maps that wait are dropped, and maps on the way go on.
 * The endpoints that it owns are destroyed, and what is on the way to them is
 * lost. Call this before the worker is destroyed, which frees the publisher
 * too. NULL is allowed. */
TMSG_API void tmsg_publisher_destroy(tmsg_publisher_t *publisher);

#ifdef __cplusplus
}
#endif

#endif
