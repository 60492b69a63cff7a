/* SPDX-License-Identifier: BSD-3-Clause */
/* am/publish/publisher.h - one map to many endpoints, as this room sees it.
 *
 * A publication is a map, with what its sends share. Its users are its
 * deliveries, one for each subscriber, and its publisher while the publication
 * is kept for new subscribers. The last user ends it. A delivery first waits
 * with its subscriber, then it is a send. The worker's lock protects all of
 * it. */
#ifndef TMSG_AM_PUBLISH_PUBLISHER_H
#define TMSG_AM_PUBLISH_PUBLISHER_H

#include <cjson/cJSON.h>
#include <tensormsg/publisher.h>

#include "am/endpoint/endpoint.h"
#include "am/send/shared_plan.h"

typedef struct {
    tmsg_request_t request;
    tmsg_due_t map_due; /* frees a map that nobody else holds */
    tmsg_node_t node;   /* in its publisher's `kept` */
    unsigned users;
    const tmsg_map_t *map;
    tmsg_shared_plan_t *shared_plan;
    uint64_t bytes; /* bytes of the tensors */
    uint32_t flags;
    int32_t policy;
    int32_t way;
    int32_t protocol;
    int32_t timeout_ms;   /* -1: none */
    uint64_t deadline_ns; /* time when it expires, if it has a timeout */
    tmsg_timer_t timer;   /* runs until deadline_ns, while it is published */
    uint16_t channel;
    bool kept; /* it is in its publisher's `kept` */
    tmsg_publisher_t *publisher;
} tmsg_publication_t;

typedef enum {
    TMSG_FATE_DELIVERED = 0,
    TMSG_FATE_DROPPED = 1,
    TMSG_FATE_FAILED = 2,
    TMSG_FATES = 3
} tmsg_fate_t;

/* Why a message was dropped. */
typedef enum {
    TMSG_DROP_MESSAGES = 0, /* too many wait */
    TMSG_DROP_BYTES = 1,
    TMSG_DROP_AGE = 2,
    TMSG_DROP_TIMEOUT = 3, /* the publication's time has passed */
    TMSG_DROP_LEFT = 4,    /* the subscriber has left */
    TMSG_DROP_MEMORY = 5,
    TMSG_DROPS = 6
} tmsg_drop_t;

typedef struct tmsg_subscriber {
    tmsg_node_t node;             /* in its publisher's list, until it left */
    struct tmsg_subscriber *next; /* next of the same endpoint, until it left */
    tmsg_due_t due;               /* releases an endpoint that it owns */
    tmsg_due_t peer_due;          /* calls the publisher's on_peer */
    tmsg_due_t lost_due;          /* calls its on_lost */
    bool told;                    /* on_peer is queued or was called */
    unsigned refs; /* the list's reference, and those of its sends */
    tmsg_publisher_t *publisher;
    tmsg_endpoint_t *endpoint;
    tmsg_subscriber_params_t params;
    /* Whether nobody chose its window, which then is narrower while it does not
     * keep up, or how many may wait, which then are fewer. */
    bool adapts;
    bool adapts_room;
    bool overrun;        /* it did not keep up, and has not caught up since */
    uint32_t pace;       /* its window while it is overrun */
    uint32_t room;       /* how many may wait meanwhile */
    uint64_t nearest_ns; /* the least time that a message took to be taken */
    tmsg_list_t waiting; /* deliveries, oldest first */
    uint64_t waiting_bytes;
    uint32_t kept_waiting; /* of these, which do not count against the bound */
    bool anew; /* the peer was restarted, and has not got what is kept */
    tmsg_timer_t timer;    /* for what may wait no longer */
    tmsg_list_t under_way; /* deliveries, that which went first first */
    uint64_t fates[TMSG_FATES];
    uint64_t drops[TMSG_DROPS];
} tmsg_subscriber_t;

struct tmsg_publisher {
    /* The handle, the subscribers and the publications hold references. */
    unsigned refs;
    tmsg_publisher_t *next; /* in its worker's list */
    tmsg_worker_t *worker;
    uint32_t keep;
    tmsg_subscriber_params_t defaults;
    tmsg_peer_fn on_peer; /* NULL: nobody asked, or it is gone; as on_lost */
    tmsg_closed_fn on_lost;
    void *on_peer_arg;
    tmsg_list_t subscribers;
    tmsg_list_t kept; /* publications for new subscribers, oldest first */
    bool closing;
    tmsg_event_t *close_events;
    tmsg_event_t *room_events;
    uint64_t room_bytes; /* of the map that last found no room: they wait for
                            as much */
    uint64_t published;
    uint64_t blocked;           /* publications that waited for room */
    uint64_t fates[TMSG_FATES]; /* counts subscribers that left, too */
    uint64_t drops[TMSG_DROPS]; /* likewise */
    uint64_t number; /* above 0; no other one of the process has it */
    tmsg_lend_counts_t lends;
};

/* Lock held, for all functions below. */

void tmsg_publication_use(tmsg_publication_t *publication);
void tmsg_publication_unuse(tmsg_publication_t *publication);

/* Fills in defaults for the application's params, and checks them. Errors:
 * INVALID_PARAM. */
tmsg_status_t tmsg_subscriber_read(const tmsg_subscriber_params_t *params,
                                   tmsg_subscriber_params_t *read);

/* Adds a subscriber, and sends it the publications that are kept. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_subscriber_create(tmsg_publisher_t *publisher,
                                     tmsg_endpoint_t *endpoint,
                                     const tmsg_subscriber_params_t *params);

/* Returns the endpoint's subscription to the publisher, or NULL. */
tmsg_subscriber_t *tmsg_subscriber_find(const tmsg_publisher_t *publisher,
                                        const tmsg_endpoint_t *endpoint);

/* Sends a publication now or later, or drops one as the subscriber's policy
 * says. */
void tmsg_subscriber_offer(tmsg_subscriber_t *subscriber,
                           tmsg_publication_t *publication);

/* Drops the deliveries of a publication whose time has passed, if they still
 * wait. */
void tmsg_subscriber_drop_late(tmsg_subscriber_t *subscriber,
                               const tmsg_publication_t *publication);

/* Returns whether the publisher need not wait before it publishes `bytes`. */
bool tmsg_subscriber_has_room(const tmsg_subscriber_t *subscriber,
                              uint64_t bytes);

/* Returns "live", "all" or "". */
const char *tmsg_subscriber_mode(const tmsg_subscriber_t *subscriber);

/* Takes a subscriber out of both lists. It may be freed. */
void tmsg_subscriber_leave(tmsg_subscriber_t *subscriber);

/* tmsg_publisher_advance() tells those who wait for room, where there is some,
 * and does what a publisher that is being closed can do now to end.
 * tmsg_publisher_drop() drops a reference. */
void tmsg_publisher_advance(tmsg_publisher_t *publisher);
void tmsg_publisher_drop(tmsg_publisher_t *publisher);

/* tmsg_subscribers_flush() sends what waits: an endpoint may have become able
 * to send. tmsg_subscribers_ended() removes the subscribers of an endpoint that
 * has ended. */
void tmsg_subscribers_flush(tmsg_endpoint_t *endpoint);
void tmsg_subscribers_ended(tmsg_endpoint_t *endpoint);

/* Gives the heir the subscriptions of an endpoint that has ended, and what
 * waits for it. Once it is connected, it gets the publications that are kept
 * like a newcomer, but for those that wait for it anyway. */
void tmsg_subscribers_move(tmsg_endpoint_t *heir, tmsg_endpoint_t *old);

/* Adds what tmsg_publisher_describe() tells to a JSON object, of `most`
 * subscribers. False: no memory. */
bool tmsg_publisher_add_description(cJSON *object,
                                    const tmsg_publisher_t *publisher,
                                    size_t most);

/* Frees the publisher, for the application or its worker. */
void tmsg_publisher_release(tmsg_publisher_t *publisher);

#endif
