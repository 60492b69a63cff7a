/* SPDX-License-Identifier: BSD-3-Clause */
/* am/publish/publisher.h - one map to many endpoints, as the room sees it.
 *
 * A publication is a map with what its sends share. It is used by each
 * delivery, which is one subscriber's, and while it is kept for newcomers; the
 * last of these ends it. A delivery waits with its subscriber, then it is a
 * send. All of it under the worker's lock. */
#ifndef TMSG_AM_PUBLISH_PUBLISHER_H
#define TMSG_AM_PUBLISH_PUBLISHER_H

#include <tensormsg/publisher.h>

#include "am/endpoint/endpoint.h"
#include "am/send/share.h"

typedef struct {
    tmsg_request_t request;
    tmsg_due_t map_due; /* the end of a map that is nobody's */
    tmsg_node_t node;   /* of its publisher's kept ones */
    unsigned users;
    const tmsg_map_t *map;
    tmsg_share_t *share;
    uint64_t bytes; /* of the tensors */
    uint32_t flags;
    int32_t policy;
    int32_t way;
    int32_t protocol;
    int32_t timeout_ms;   /* -1: none */
    uint64_t deadline_ns; /* with a timeout */
    tmsg_timer_t timer;   /* of that, while it is published */
    uint16_t channel;
    bool kept; /* among its publisher's */
    tmsg_publisher_t *publisher;
} tmsg_publication_t;

typedef enum {
    TMSG_FATE_DELIVERED = 0,
    TMSG_FATE_DROPPED = 1,
    TMSG_FATE_FAILED = 2,
    TMSG_FATES = 3
} tmsg_fate_t;

typedef struct tmsg_subscriber {
    tmsg_node_t node;             /* of its publisher's, until it left */
    struct tmsg_subscriber *next; /* of its endpoint's, until it left */
    tmsg_due_t due;               /* the end of an endpoint that is owned */
    unsigned refs;                /* the list's, and those of its sends */
    tmsg_publisher_t *publisher;
    tmsg_endpoint_t *endpoint;
    tmsg_subscriber_params_t params;
    tmsg_list_t waiting; /* deliveries, oldest first */
    uint64_t waiting_bytes;
    uint32_t under_way;
    uint64_t fates[TMSG_FATES];
} tmsg_subscriber_t;

struct tmsg_publisher {
    unsigned refs;          /* the handle's, and its subscribers' */
    tmsg_publisher_t *next; /* in its worker's list */
    tmsg_worker_t *worker;
    uint32_t keep;
    tmsg_subscriber_params_t defaults;
    tmsg_list_t subscribers;
    tmsg_list_t kept; /* publications, oldest first */
    bool closing;
    tmsg_event_t *close_events;
    uint64_t published;
    uint64_t fates[TMSG_FATES]; /* of those that left as well */
};

/* Lock held, all of the following. */

void tmsg_publication_use(tmsg_publication_t *publication);
void tmsg_publication_unuse(tmsg_publication_t *publication);

/* Fills in and checks params of the application's. */
tmsg_status_t tmsg_subscriber_read(const tmsg_subscriber_params_t *params,
                                   tmsg_subscriber_params_t *read);

/* Adds one and sends it what is kept. Errors: NO_MEMORY. */
tmsg_status_t tmsg_subscriber_create(tmsg_publisher_t *publisher,
                                     tmsg_endpoint_t *endpoint,
                                     const tmsg_subscriber_params_t *params);

/* The endpoint's subscription to the publisher, or NULL. */
tmsg_subscriber_t *tmsg_subscriber_find(const tmsg_publisher_t *publisher,
                                        const tmsg_endpoint_t *endpoint);

/* Sends a publication, now or later, or what its policy says. */
void tmsg_subscriber_offer(tmsg_subscriber_t *subscriber,
                           tmsg_publication_t *publication);

/* A publication's time has passed: it waits no more. */
void tmsg_subscriber_drop_late(tmsg_subscriber_t *subscriber,
                               const tmsg_publication_t *publication);

/* Takes it out of both lists. It may be freed. */
void tmsg_subscriber_leave(tmsg_subscriber_t *subscriber);

/* What a publisher that is being closed can do for its end. */
void tmsg_publisher_advance(tmsg_publisher_t *publisher);
void tmsg_publisher_drop(tmsg_publisher_t *publisher);

/* An endpoint may have become able to send; it has ended. */
void tmsg_subscribers_flush(tmsg_endpoint_t *endpoint);
void tmsg_subscribers_ended(tmsg_endpoint_t *endpoint);

/* Frees the publisher, for the application or its worker. */
void tmsg_publisher_release(tmsg_publisher_t *publisher);

#endif
