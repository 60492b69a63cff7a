/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/succession.h"

#include "am/endpoint/log.h"
#include "am/endpoint/session.h"
#include "am/path/loans.h"
#include "am/publish/publisher.h"
#include "am/recv/consumer.h"
#include "am/send/move.h"
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
    tmsg_resume_t *resume = heir->resume;

    move_waiters(heir, old);
    if (tmsg_call_inherit(heir, old) != TMSG_OK) {
        tmsg_endpoint_log(old, TMSG_LOG_FAILED_KIND, TMSG_LOG_WARN,
                          "its calls end: %s", tmsg_error_message());
    }
    tmsg_loans_ask_as(heir, old);
    resume->lost.sends += tmsg_sends_unanswered(old);
    resume->lost.moved += tmsg_sends_move(heir, old);
    resume->lost.calls += tmsg_call_left(heir, old);
    tmsg_subscribers_move(heir, old);
    tmsg_heir_succeed(heir, old);
}
