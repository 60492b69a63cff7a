/* SPDX-License-Identifier: BSD-3-Clause */
/* am/publish/delivery.h - publications on their way to one subscriber. Lock
 * held, for all functions here. */
#ifndef TMSG_AM_PUBLISH_DELIVERY_H
#define TMSG_AM_PUBLISH_DELIVERY_H

#include "am/publish/publisher.h"

/* Sends a new subscriber the publications that are kept. */
void tmsg_deliveries_begin(tmsg_subscriber_t *subscriber);

/* Sends what waits: the endpoint may have become able to send. */
void tmsg_deliveries_go_on(tmsg_subscriber_t *subscriber);

/* Drops what waits: the subscriber leaves. */
void tmsg_deliveries_end(tmsg_subscriber_t *subscriber);

/* Drops a reference: that of the list, a send or a callback. */
void tmsg_subscriber_drop(tmsg_subscriber_t *subscriber);

#endif
