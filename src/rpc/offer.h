/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/offer.h - the offers of a worker, and the fetches that it answers. The
 * lock below is the hub's.
 *
 * An offer is *live* until it is over, and then *lent* until no fetch of it may
 * read its memory any more. Each fetch that is answered has a record, a
 * tmsg_lent_t, from the answer until its send has ended. tmsg_offer_settle()
 * tells the application, in order and once. */
#ifndef TMSG_RPC_OFFER_H
#define TMSG_RPC_OFFER_H

#include <tensormsg/offer.h>

#include "core/map.h"
#include "rpc/hub.h"
#include "rpc/server.h"

/* The methods of the library's own, and the words of their messages:
 * docs/reference/offers.md, "What travels". */
#define TMSG_OFFER_FETCH "tensormsg.fetch"
#define TMSG_OFFER_LIST "tensormsg.offers"

#define TMSG_FETCH_KEY "key"           /* tensor: uint8[48] */
#define TMSG_FETCH_SLICE "slice/"      /* prefix of tensors: int64[2,n] */
#define TMSG_FETCH_OF "of/"            /* prefix of metadata: a string */
#define TMSG_FETCH_NAME "name"         /* metadata: a string */
#define TMSG_FETCH_AT_LEAST "at_least" /* metadata: i64 */
#define TMSG_FETCH_EPOCH "epoch"       /* metadata: i64 */
#define TMSG_FETCH_WAIT "wait_ms"      /* metadata: i64 */
#define TMSG_FETCH_LOAN "loan"         /* metadata: a bool */
#define TMSG_LIST_OFFER "offer/"       /* prefix of metadata: a string */
#define TMSG_LIST_MORE "more"          /* metadata: a bool */
#define TMSG_LIST_MOST 4096            /* names in a list */
#define TMSG_FETCH_SLICES_MOST 65536   /* slices of a fetch */
#define TMSG_WAIT_PLACE_BYTES 16384    /* of slices, in one place of a wait */

/* The parts of a key. The numbers are little-endian. */
#define TMSG_KEY_INSTANCE 16 /* bytes: random, of the owner's worker */
#define TMSG_KEY_RANDOM 16   /* bytes: random, of the offer */

typedef struct {
    uint8_t instance[TMSG_KEY_INSTANCE];
    uint64_t epoch;
    uint64_t number; /* of the owner's offers, from 1 on */
    uint8_t random[TMSG_KEY_RANDOM];
} tmsg_key_parts_t;

typedef struct tmsg_versions tmsg_versions_t;

/* Where an offer is among the versions of its name that one reader may fetch.
 */
typedef struct {
    tmsg_offer_t *offer;
    tmsg_versions_t *versions;
    size_t place;
} tmsg_version_t;

/* The live offers of one name that are for one reader by his own name: a
 * principal, "*" (every principal), or "" (anybody). */
struct tmsg_versions {
    tmsg_keyed_t by_reader;
    tmsg_version_t **heap; /* the newest first */
    size_t count, room;    /* count is never 0 */
    uint64_t added; /* number of the offer that came last; 0: not known */
    size_t reader_bytes;
    char reader[];
};

struct tmsg_offer {
    unsigned refs; /* of the handle; of what is not released; of each fetch, of
                      the event and of who settles; with the lock */
    tmsg_hub_t *hub; /* held */
    tmsg_keyed_t by_number, by_version;
    tmsg_node_t node;         /* in the list of live offers */
    tmsg_version_t *versions; /* of its name, one for each reader; NULL: it has
                                 no name, or is over */
    size_t version_count;
    uint64_t number;
    uint8_t random[TMSG_KEY_RANDOM];
    const tmsg_map_t *map;    /* held until it is released */
    tmsg_map_t *version_meta; /* metadata that say epoch and version; NULL: the
                          offer has no name */
    size_t tensors;           /* of the map */
    uint64_t bytes;           /* of these tensors */
    uint64_t version;
    uint32_t fetches_most; /* 0: any number */
    uint32_t fetches_whole;
    bool lends; /* fetchers who borrow get loans */
    /* What the tensors lie in that are lent; NULL: nothing was lent yet, or the
     * offer is over. The worker's. */
    struct tmsg_lending *lending;
    char *principals; /* NULL: anybody */
    char *name;       /* NULL: none */
    size_t name_bytes;
    uint64_t name_key;              /* tmsg_offer_name_key() */
    tmsg_lifetime_t ttl, recall_at; /* recall_at: withdraw()'s time is up */
    tmsg_rpc_event_t event;
    tmsg_list_t lent; /* tmsg_lent_t whose memory may be read */
    tmsg_offer_stats_t stats;
    tmsg_status_t status; /* why it is over */
    bool over;
    bool recall;    /* fetches under way are to be given up */
    bool over_told; /* on_over was called, or is about to be */
    bool free_told; /* on_release likewise */
    bool released;  /* on_release was called */
    bool queued;    /* the event is queued */
    bool settling, settle_again;
    pthread_t settler; /* the thread that settles it, if `settling` */
    tmsg_offer_fn on_over;
    void *on_over_arg;
    tmsg_release_fn on_release;
    void *on_release_arg;
};

/* A fetch whose answer was begun. */
typedef struct {
    tmsg_node_t node; /* in offer->lent */
    tmsg_offer_t *offer;
    tmsg_endpoint_t *endpoint; /* held */
    uint64_t id;               /* of the call */
    uint64_t bytes;
    /* of who answers, of on_done, of who recalls; with the lock */
    unsigned refs;
    bool reads;   /* it is in offer->lent */
    bool by_loan; /* tmsg_lent_released() tells when it reads no more */
    bool whole;
    bool recalled;
} tmsg_lent_t;

/* What is remembered of an offer that is over. */
typedef struct {
    tmsg_keyed_t by_number;
    uint64_t number; /* 0: nothing */
    uint64_t turn;   /* how many had ended with it */
    uint64_t name;   /* tmsg_offer_name_key() of its name; 0: none */
    uint8_t random[TMSG_KEY_RANDOM];
    char *principals; /* as of the offer */
    tmsg_status_t status;
} tmsg_ended_offer_t;

#define TMSG_OFFERS_REMEMBERED 1024u

typedef struct tmsg_offers {
    tmsg_list_t live;
    tmsg_table_t by_number, by_version;
    tmsg_table_t by_reader; /* of tmsg_versions_t */
    tmsg_table_t waited;    /* of tmsg_waited_t, by name */
    tmsg_list_t waiters;    /* tmsg_rpc_peer_t that have fetches that wait */
    size_t waiting;         /* fetches in these lists */
    uint64_t last_number;
    uint8_t instance[TMSG_KEY_INSTANCE];
    uint64_t
        epoch; /* ns since 1970 when the first offer was made; 0: not yet */
    tmsg_ended_offer_t *ended; /* those that ended last; NULL: none yet, or no
                                  memory */
    tmsg_table_t ended_by_number, ended_by_reader;
    uint64_t ended_count;    /* that were put there */
    bool forgotten;          /* more have ended than are remembered */
    uint64_t bytes;          /* of the live offers */
    uint64_t lent_bytes;     /* of those that are not released */
    uint64_t fetches, waits; /* under way, waiting */
    uint64_t places;         /* that the waiting fetches take */
    uint64_t fetched, fetched_bytes;
    tmsg_records_t lent_kept;
} tmsg_offers_t;

/* What a fetch asks for. It points into the request that it was read from. */
typedef struct {
    tmsg_key_parts_t key;
    const char *name; /* NULL: it is by key */
    uint64_t at_least;
    bool has_epoch;
    uint64_t epoch;
    int64_t wait_ms; /* -1: no limit */
    bool has_slices;
    bool borrows; /* the fetcher takes a loan */
} tmsg_fetch_ask_t;

typedef struct tmsg_waited tmsg_waited_t;

/* A fetch that waits for a name or a version. */
typedef struct {
    tmsg_node_t node;      /* among those of its name, if it waits */
    tmsg_node_t own;       /* among those of its peer, if it waits */
    tmsg_waited_t *waited; /* those of its name */
    tmsg_task_t *task;     /* with a handle; its message is given back */
    tmsg_map_t *request;   /* what it asks for, copied */
    tmsg_fetch_ask_t ask;  /* the request, read */
    uint32_t places;       /* that it takes; 1 if it has no slices */
    tmsg_lifetime_t patience;
    tmsg_lifetime_t deadline; /* of the task, in place of its expiry */
    tmsg_rpc_event_t event;
    uint64_t name; /* tmsg_offer_name_key() of its name */
    bool waits;    /* in the lists, else the event is queued or runs */
    bool time_is_up;
    bool pushed_out; /* others have its places */
} tmsg_fetch_wait_t;

/* Errors: NO_MEMORY. */
tmsg_status_t tmsg_offers_create(tmsg_offers_t **offers_p);

/* Frees the offers' tables, when nobody has the hub any more. NULL is allowed.
 */
void tmsg_offers_free(tmsg_offers_t *offers);

/* Ends all offers, because the worker is gone. Lock not held. */
void tmsg_offers_close(tmsg_hub_t *hub);

/* Adds the numbers of the offers. Takes the lock. */
void tmsg_offers_count(tmsg_hub_t *hub, tmsg_calls_counts_t *counts);

/* Gives the owner its instance and epoch, if it has none yet. Lock held.
 * Errors: IO. */
tmsg_status_t tmsg_offers_begin(tmsg_offers_t *offers);

/* Returns a key for a name, which is not 0. Needs no lock. */
uint64_t tmsg_offer_name_key(const char *name, size_t bytes);

bool tmsg_offer_has_name(const tmsg_offer_t *offer, const char *name,
                         size_t bytes);

/* Adds a live offer, after tmsg_offers_begin(). Lock held. Errors:
 * ALREADY_EXISTS, LIMIT_EXCEEDED, NO_MEMORY, IO. */
tmsg_status_t tmsg_offers_add(tmsg_hub_t *hub, tmsg_offer_t *offer);

/* tmsg_versions_newest() returns the newest offer of a name that the asker may
 * fetch, or NULL; tmsg_versions_count() returns how many it may fetch. Lock
 * held. */
tmsg_offer_t *tmsg_versions_newest(const tmsg_offers_t *offers,
                                   const char *name,
                                   const tmsg_endpoint_t *asker);
size_t tmsg_versions_count(const tmsg_offers_t *offers, const char *name,
                           const tmsg_endpoint_t *asker);

/* Returns whether an offer may be the newest of its name for somebody: it is
 * for some reader. Lock held. */
bool tmsg_version_is_newest(const tmsg_offer_t *offer);

/* These find whether there is a live offer of the name and version of another,
 * and add and remove one that has a name. Lock held. Errors: NO_MEMORY. */
bool tmsg_version_is_there(const tmsg_offers_t *offers,
                           const tmsg_offer_t *wanted);
tmsg_status_t tmsg_versions_add(tmsg_offers_t *offers, tmsg_offer_t *offer);
void tmsg_versions_remove(tmsg_offers_t *offers, tmsg_offer_t *offer);

/* The readers of an offer are those whom `principals` (NULL: anybody) names:
 * tmsg_readers_of() returns a list of them, in which "" is anybody, and "*"
 * stands alone. tmsg_readers_of_asker() stores by which of them an asker reads,
 * and returns how many these are. tmsg_reader_key() returns a key for the
 * offers of a name for a reader. They need no lock. */
#define TMSG_READERS_MOST 3

const char *tmsg_readers_of(const char *principals);
size_t tmsg_readers_of_asker(const tmsg_endpoint_t *asker,
                             const char *readers[TMSG_READERS_MOST]);
uint64_t tmsg_reader_key(uint64_t name_key, const char *reader, size_t bytes);

/* tmsg_ended_add() remembers an offer that is over, in place of the one that
 * ended longest ago, and takes its principals. The others return what is
 * remembered of a number, and of the offer of a name that ended last among
 * those that the asker could fetch; NULL: nothing. Lock held. */
void tmsg_ended_add(tmsg_offers_t *offers, tmsg_offer_t *offer);
const tmsg_ended_offer_t *tmsg_ended_by_number(const tmsg_offers_t *offers,
                                               uint64_t number);
const tmsg_ended_offer_t *tmsg_ended_by_name(const tmsg_offers_t *offers,
                                             uint64_t name,
                                             const tmsg_endpoint_t *asker);
void tmsg_ended_free(tmsg_offers_t *offers);

/* Ends an offer, if it is live: no fetch finds it any more. The caller has it
 * settled afterwards. Lock held. */
void tmsg_offer_finish(tmsg_offer_t *offer, tmsg_status_t status);

/* Finds the live offer that a fetch asks for. What the asker may not fetch is
 * not there for a fetch by name. Lock held. Errors: NOT_FOUND, and if `tells`
 * tmsg_error_message() says why there is none; REFUSED (the key is of an offer
 * for others). */
tmsg_status_t tmsg_offers_find(tmsg_offers_t *offers,
                               const tmsg_fetch_ask_t *ask,
                               const tmsg_endpoint_t *asker, bool tells,
                               tmsg_offer_t **offer_p);

/* Returns whether the offer is one that the fetch asks for by name. Lock
 * held. */
bool tmsg_offer_suits(const tmsg_offers_t *offers, const tmsg_offer_t *offer,
                      const tmsg_fetch_ask_t *ask);

/* tmsg_offer_drop() drops a reference. tmsg_offer_settle() gives fetches up
 * that are to be, and calls on_over and on_release if they are due. Lock not
 * held. tmsg_offer_settle_later() has an event settle the offer. Lock held. */
void tmsg_offer_drop(tmsg_offer_t *offer);
void tmsg_offer_settle(tmsg_offer_t *offer);
void tmsg_offer_settle_later(tmsg_offer_t *offer);

/* Begins a fetch of a live offer, and returns its record with a reference for
 * the caller; NULL: no memory. A whole map may be a loan, if the offer lends.
 * Lock held. */
tmsg_lent_t *tmsg_lent_begin(tmsg_offer_t *offer, tmsg_task_t *task,
                             bool whole);

/* Drops the caller's reference. `sent`: the send has begun, and tells its end
 * by tmsg_lent_done(). Lock not held. */
void tmsg_lent_begun(tmsg_lent_t *lent, bool sent);

/* Serves as on_done of the send. The memory was released before, unless it may
 * be a loan. */
void tmsg_lent_done(void *lent, tmsg_status_t status, const char *error);

/* Serves as on_release of a send that may be a loan. */
void tmsg_lent_released(void *lent);

/* Gives up the fetches of an offer that are under way. Lock not held. */
void tmsg_lent_recall(tmsg_offer_t *offer);

/* Serve as the handlers of TMSG_OFFER_FETCH and TMSG_OFFER_LIST. */
void tmsg_offer_answer(void *arg, tmsg_task_t *task);
void tmsg_offer_list(void *arg, tmsg_task_t *task);

/* tmsg_waits_take_place() takes the places of a fetch that is to wait, if there
 * is room, or peers have more places than its own would have: their oldest
 * waits make way, if that makes room. tmsg_waits_give_place() gives them back.
 * tmsg_waits_begin() and tmsg_waits_end() have it wait, and end that. Lock
 * held. Errors: RESOURCE_EXHAUSTED, NO_MEMORY. */
#define TMSG_WAITS_OF_A_PEER (TMSG_FETCHES_WAITING / 4)

tmsg_status_t tmsg_waits_take_place(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait);
void tmsg_waits_give_place(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait);
void tmsg_waits_begin(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait);
void tmsg_waits_end(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait);

/* Answers fetches that wait for such an offer, and may have it. Lock held; the
 * caller wakes the hub. */
void tmsg_fetch_look_again(tmsg_hub_t *hub, const tmsg_offer_t *offer);

/* Reads what a request asks for. It has no tensors but a key and slices.
 * Errors: INVALID_PARAM. */
tmsg_status_t tmsg_fetch_read(const tmsg_map_t *request, tmsg_fetch_ask_t *ask);

/* Checks that a tensor of a request is a slice. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_slice_check(const tmsg_map_entry_t *entry);

/* Copies the slices of a request by name, which tmsg_fetch_read() has read. The
 * copies take about *bytes_p. Errors: NO_MEMORY. */
tmsg_status_t tmsg_slices_copy(const tmsg_map_t *request, tmsg_map_t *copy,
                               uint64_t *bytes_p);

/* Makes the map of the boxes that a request asks for, of views of the offered
 * map, with its metadata. Errors: INVALID_PARAM (the words name the tensor),
 * UNSUPPORTED, NO_MEMORY. */
tmsg_status_t tmsg_slices_make(const tmsg_map_t *request,
                               const tmsg_map_t *offered, tmsg_map_t **map_p);

/* Writes the slices of a fetch into its request. Errors: INVALID_PARAM,
 * UNSUPPORTED (a step), NO_MEMORY. */
tmsg_status_t tmsg_slices_write(const tmsg_fetch_params_t *params,
                                tmsg_map_t *request);

/* Returns whether a method is one of those above. */
bool tmsg_method_is_of_offers(const char *method);

/* These convert between a key and its parts. */
void tmsg_key_write(const tmsg_key_parts_t *parts, tmsg_offer_key_t *key);
void tmsg_key_read(const uint8_t *bytes, tmsg_key_parts_t *parts);

#endif
