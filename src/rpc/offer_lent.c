/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps account of the fetches whose answers read an offer's memory. */
#include <stdlib.h>

#include "rpc/offer.h"

tmsg_lent_t *tmsg_lent_begin(tmsg_offer_t *offer, tmsg_task_t *task, bool whole)
{
    tmsg_offers_t *offers = offer->hub->offers;
    tmsg_lent_t *lent = tmsg_hub_take_record(&offers->lent_kept, sizeof(*lent));

    if (lent == NULL) {
        tmsg_error_memory("a fetch");
        return NULL;
    }
    *lent = (tmsg_lent_t){.offer = offer,
                          .endpoint = task->endpoint,
                          .id = task->reply.id,
                          .refs = whole && offer->lends ? 3 : 2,
                          .reads = true,
                          .by_loan = whole && offer->lends,
                          .whole = whole};
    tmsg_calls_hold(lent->endpoint);
    offer->refs++;
    offers->fetches++;
    tmsg_list_push(&offer->lent, &lent->node);
    return lent;
}

/* Notes that the offer's memory is not read any more. Lock held. */
static void end_reading(tmsg_lent_t *lent)
{
    tmsg_offer_t *offer = lent->offer;

    if (lent->reads) {
        lent->reads = false;
        offer->hub->offers->fetches--;
        tmsg_list_remove(&offer->lent, &lent->node);
        if (offer->over && offer->lent.count == 0) {
            tmsg_offer_settle_later(offer);
        }
    }
}

/* Drops references to a record. Lock held; the function lets it go. */
static void drop_lent_and_unlock(tmsg_lent_t *lent, unsigned count)
{
    tmsg_offer_t *offer = lent->offer;
    tmsg_endpoint_t *endpoint = lent->endpoint;
    tmsg_hub_t *hub = offer->hub;
    bool last, wake = offer->queued, kept = false;

    lent->refs -= count;
    last = lent->refs == 0;
    if (last) {
        kept = tmsg_hub_keep_record(&hub->offers->lent_kept, lent);
    }
    tmsg_hub_unlock(hub);
    if (wake) {
        tmsg_hub_wake(hub);
    }
    if (last) {
        if (!kept) {
            free(lent);
        }
        tmsg_offer_drop(offer);
        tmsg_calls_drop(endpoint);
    }
}

static void give_up(const tmsg_lent_t *lent)
{
    tmsg_calls_recall(lent->endpoint, lent->id, "the offer was withdrawn");
}

void tmsg_lent_begun(tmsg_lent_t *lent, bool sent)
{
    tmsg_offer_t *offer = lent->offer;
    bool missed;

    tmsg_hub_lock(offer->hub);
    if (!sent) {
        offer->stats.failed++;
        end_reading(lent);
    }
    missed = lent->reads && lent->recalled; /* there was no send yet */
    if (missed) {
        tmsg_hub_unlock(offer->hub);
        give_up(lent);
        tmsg_hub_lock(offer->hub);
    }
    drop_lent_and_unlock(lent, sent ? 1 : lent->by_loan ? 3 : 2);
}

void tmsg_lent_done(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_lent_t *lent = arg;
    tmsg_offer_t *offer = lent->offer;
    tmsg_offers_t *offers = offer->hub->offers;

    (void)error;
    tmsg_hub_lock(offer->hub);
    if (status == TMSG_OK) {
        offer->stats.fetches++;
        offer->stats.bytes += lent->bytes;
        offers->fetched++;
        offers->fetched_bytes += lent->bytes;
        offer->fetches_whole += lent->whole;
    } else {
        offer->stats.failed++;
    }
    if (offer->fetches_most > 0 && !offer->over &&
        offer->fetches_whole >= offer->fetches_most) {
        tmsg_offer_finish(offer, TMSG_OK);
        tmsg_offer_settle_later(offer);
    }
    if (!lent->by_loan) {
        end_reading(lent);
    }
    drop_lent_and_unlock(lent, 1);
}

void tmsg_lent_released(void *arg)
{
    tmsg_lent_t *lent = arg;

    tmsg_hub_lock(lent->offer->hub);
    end_reading(lent);
    drop_lent_and_unlock(lent, 1);
}

/* Returns a fetch under way that was not given up yet, with a reference; NULL:
 * there is none. Those that were given up are the last of the list: no fetch of
 * an offer that is over begins. Lock held. */
static tmsg_lent_t *next_to_recall(tmsg_offer_t *offer)
{
    tmsg_lent_t *lent =
        offer->lent.head == NULL
            ? NULL
            : TMSG_CONTAINER_OF(offer->lent.head, tmsg_lent_t, node);

    if (lent == NULL || lent->recalled) {
        return NULL;
    }
    lent->recalled = true;
    lent->refs++;
    tmsg_list_remove(&offer->lent, &lent->node);
    tmsg_list_push(&offer->lent, &lent->node);
    return lent;
}

void tmsg_lent_recall(tmsg_offer_t *offer)
{
    tmsg_hub_t *hub = offer->hub;
    tmsg_lent_t *lent;

    tmsg_hub_lock(hub);
    while ((lent = next_to_recall(offer)) != NULL) {
        tmsg_hub_unlock(hub);
        give_up(lent);
        tmsg_hub_lock(hub);
        drop_lent_and_unlock(lent, 1);
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
}
