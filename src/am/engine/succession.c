/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/succession.h"

#include "am/session/heir.h"

/* Those who wait until the endpoint is connected wait for its heir. */
static void move_waiters(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    tmsg_event_t *event = old->events.ready;

    for (; event != NULL; event = event->next) {
        event->endpoint = heir;
        event->list = &heir->events.ready;
    }
    heir->events.ready = old->events.ready;
    old->events.ready = NULL;
}

void tmsg_succession(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    move_waiters(heir, old);
    tmsg_heir_succeed(heir, old);
}
