/* SPDX-License-Identifier: BSD-3-Clause */
/* Remembers why those offers ended that ended last, and finds them by number
 * and by name, however many there are, and for whomever they were. The hub's
 * lock is held. */
#include <stdlib.h>
#include <string.h>

#include "rpc/offer.h"

/* The offer that ended last among those of one name for one reader. */
typedef struct {
    tmsg_keyed_t by_reader;
    const tmsg_ended_offer_t *ended;
    const char *reader; /* in ended->principals, or the reader of all others */
    size_t bytes;       /* of reader */
} last_ended_t;

static last_ended_t *find_last(const tmsg_offers_t *offers, uint64_t name,
                               const char *reader, size_t bytes)
{
    tmsg_keyed_t *item = tmsg_table_find(&offers->ended_by_reader,
                                         tmsg_reader_key(name, reader, bytes));

    for (; item != NULL; item = tmsg_table_next(item)) {
        last_ended_t *last = TMSG_CONTAINER_OF(item, last_ended_t, by_reader);

        if (last->ended->name == name && last->bytes == bytes &&
            memcmp(last->reader, reader, bytes) == 0) {
            return last;
        }
    }
    return NULL;
}

/* Forgets an offer, as one for a reader. */
static void forget_for(tmsg_offers_t *offers, const tmsg_ended_offer_t *ended,
                       const char *reader, size_t bytes)
{
    last_ended_t *last = find_last(offers, ended->name, reader, bytes);

    if (last != NULL && last->ended == ended) {
        tmsg_table_remove(&offers->ended_by_reader, &last->by_reader);
        free(last);
    }
}

/* Notes an offer as the one of its name that ended last for a reader. */
static void note_for(tmsg_offers_t *offers, const tmsg_ended_offer_t *ended,
                     const char *reader, size_t bytes)
{
    last_ended_t *last = find_last(offers, ended->name, reader, bytes);

    if (last == NULL) {
        last = calloc(1, sizeof(*last));
        if (last == NULL) {
            offers->forgotten = true; /* words will be less exact */
            return;
        }
        tmsg_table_add(&offers->ended_by_reader, &last->by_reader,
                       tmsg_reader_key(ended->name, reader, bytes));
    }
    last->ended = ended;
    last->reader = reader;
    last->bytes = bytes;
}

static void for_each_reader(tmsg_offers_t *offers,
                            const tmsg_ended_offer_t *ended,
                            void (*run)(tmsg_offers_t *offers,
                                        const tmsg_ended_offer_t *ended,
                                        const char *reader, size_t bytes))
{
    const char *list =
        ended->name == 0 ? NULL : tmsg_readers_of(ended->principals);

    while (list != NULL) {
        size_t bytes = strcspn(list, " ");

        run(offers, ended, list, bytes);
        list = list[bytes] == '\0' ? NULL : list + bytes + 1;
    }
}

static void forget(tmsg_offers_t *offers, tmsg_ended_offer_t *ended)
{
    if (ended->number != 0) {
        tmsg_table_remove(&offers->ended_by_number, &ended->by_number);
        for_each_reader(offers, ended, forget_for);
        free(ended->principals);
    }
}

void tmsg_ended_add(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    tmsg_ended_offer_t *ended;

    if (offers->ended == NULL) {
        offers->ended = calloc(TMSG_OFFERS_REMEMBERED, sizeof(*offers->ended));
    }
    if (offers->ended == NULL) {
        offers->forgotten = true;
        return;
    }
    ended = &offers->ended[offers->ended_count % TMSG_OFFERS_REMEMBERED];
    offers->forgotten = offers->forgotten || ended->number != 0;
    forget(offers, ended);
    *ended =
        (tmsg_ended_offer_t){.number = offer->number,
                             .turn = ++offers->ended_count,
                             .name = offer->name == NULL ? 0 : offer->name_key,
                             .principals = offer->principals,
                             .status = offer->status};
    offer->principals = NULL;
    memcpy(ended->random, offer->random, sizeof(ended->random));
    tmsg_table_add(&offers->ended_by_number, &ended->by_number, ended->number);
    for_each_reader(offers, ended, note_for);
}

const tmsg_ended_offer_t *tmsg_ended_by_number(const tmsg_offers_t *offers,
                                               uint64_t number)
{
    tmsg_keyed_t *item = tmsg_table_find(&offers->ended_by_number, number);

    return item == NULL
               ? NULL
               : TMSG_CONTAINER_OF(item, tmsg_ended_offer_t, by_number);
}

const tmsg_ended_offer_t *tmsg_ended_by_name(const tmsg_offers_t *offers,
                                             uint64_t name,
                                             const tmsg_endpoint_t *asker)
{
    const char *readers[TMSG_READERS_MOST];
    size_t count = tmsg_readers_of_asker(asker, readers);
    const tmsg_ended_offer_t *newest = NULL;

    for (size_t i = 0; i < count; i++) {
        const last_ended_t *last =
            find_last(offers, name, readers[i], strlen(readers[i]));

        if (last != NULL &&
            (newest == NULL || last->ended->turn > newest->turn)) {
            newest = last->ended;
        }
    }
    return newest;
}

void tmsg_ended_free(tmsg_offers_t *offers)
{
    for (size_t i = 0; offers->ended != NULL && i < TMSG_OFFERS_REMEMBERED;
         i++) {
        forget(offers, &offers->ended[i]);
    }
    tmsg_table_free(&offers->ended_by_number);
    tmsg_table_free(&offers->ended_by_reader);
    free(offers->ended);
}
