/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/offer.h - a map that peers fetch when they like.
 *
 * An offer is a map that its owner keeps. Peers fetch it by its name or its
 * key, whole or in part, until the owner withdraws it. See
 * docs/reference/offers.md.
 *
 *     tmsg_offer_create(worker, map, &offer_params, &offer); // the owner
 *     tmsg_endpoint_fetch_name(endpoint, "weights", 0, NULL, &call);
 *     tmsg_call_wait(call, 60000); // a peer
 *     reply = tmsg_call_reply(call);
 *     tmsg_offer_withdraw(offer, 1000);
 */
#ifndef TENSORMSG_OFFER_H
#define TENSORMSG_OFFER_H

#include <stdint.h>

#include <tensormsg/call.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An offer is a map that its owner keeps and that peers *fetch*: whole or in
 * part, once or often, into their own memory, until the offer is *over*. No
 * code of the owner runs for a fetch: the library answers on the thread that
 * drives the worker. An offer is there for the peers of one worker, whichever
 * side dialled, with or without a server (tensormsg/server.h). See
 * docs/reference/offers.md.
 *
 * Threads: as for a worker. On a worker that is not shared only its thread
 * calls the functions below; any thread may call tmsg_offer_key() and
 * tmsg_offer_stats(). An offer may be destroyed after its worker. */
typedef struct tmsg_offer tmsg_offer_t;

enum {
    TMSG_OFFER_KEY_BYTES = 48,
    TMSG_OFFER_NAME_MAX = 255,  /* bytes of a name */
    TMSG_OFFERS_MOST = 65536,   /* offers of one worker that are not over */
    TMSG_FETCHES_WAITING = 4096 /* fetches that may wait at one worker */
};

/* Names an offer to peers. The application carries the bytes to them by any
 * means. A peer with the key and a connection to the owner may fetch, unless
 * the offer is for some principals only. A key always names the same map: an
 * owner that was started again makes other keys. */
typedef struct tmsg_offer_key {
    uint8_t bytes[TMSG_OFFER_KEY_BYTES];
} tmsg_offer_key_t;

enum {
    TMSG_OFFER_PARAM_NAME = 1 << 0,
    TMSG_OFFER_PARAM_VERSION = 1 << 1,
    TMSG_OFFER_PARAM_TTL = 1 << 2,
    TMSG_OFFER_PARAM_FETCHES = 1 << 3,
    TMSG_OFFER_PARAM_PRINCIPALS = 1 << 4,
    TMSG_OFFER_PARAM_ON_OVER = 1 << 5,
    TMSG_OFFER_PARAM_ON_RELEASE = 1 << 6,
    TMSG_OFFER_PARAM_FLAGS = 1 << 7
};

enum {
    /* Fetchers that borrow (TMSG_FETCH_BORROW, TMSG_WORKER_BORROW) and fetch
     * the whole map over unix:// get views of memory of this process. If the
     * tensors fill blocks of tmsg_shareable_alloc(), these are lent. Else the
     * first such fetch copies the tensors, on the thread that drives the
     * worker, into memory of the library that all these fetchers share. That
     * takes as many bytes again, until the offer is over and the last loan has
     * come back. See docs/reference/loans.md. */
    TMSG_OFFER_LEND = 1 << 0
};

/* Called once, when no further fetch can begin. `status` says why:
 *   CANCELED - the offer was withdrawn
 *   TIMED_OUT - its time is up
 *   OK - it was fetched as often as it may be
 *   CLOSED - its worker was destroyed
 * Called with no lock held, on the thread that drives the worker or in the call
 * that ends the offer. It may call the library, but not wait in it. `offer` is
 * valid until it returns. */
typedef void (*tmsg_offer_fn)(void *arg, tmsg_offer_t *offer,
                              tmsg_status_t status);

typedef struct tmsg_offer_params {
    uint64_t field_mask; /* TMSG_OFFER_PARAM_*; unset: defaults */
    const char *name;    /* UTF-8, 1 to 255 bytes. Several offers may have one
                          * name if their versions differ. Default NULL: the
                          * offer is found by its key only */
    uint64_t version;    /* of that name, up to 2^63 - 1; default 0. A fetch by
                          * name gets the highest version */
    int32_t ttl_ms;      /* above 0: the offer is over after that time. -1, the
                          * default: no limit */
    uint32_t fetches;    /* the offer is over when this many fetches of the
                          * whole map were acknowledged by their fetchers.
                          * Fetches that are under way then go on. 0, the
                          * default: no limit */
    const char *principals; /* who may fetch and see it, as in
                             * tmsg_method_params_t; default NULL: anybody */
    tmsg_offer_fn on_over;  /* default none */
    void *on_over_arg;
    tmsg_release_fn on_release; /* default none. Called once, after on_over,
                                 * when no byte that the map borrows can be read
                                 * any more: the memory may be changed or freed.
                                 * On the same threads as on_over */
    void *on_release_arg;
    uint32_t flags; /* TMSG_OFFER_*; default 0 */
} tmsg_offer_params_t;

/* Offers a map from now on. *params (NULL: defaults) is copied. The map may be
 * destroyed at once. Changes to it return BUSY until on_release, and what it
 * borrows is lent, and must not change, until then. The release function of a
 * tensor that the map owns is called when nobody holds the map any more, not
 * before on_release.
 *
 * *offer_p is the caller's, given back with tmsg_offer_destroy(). It is written
 * before fetches can find the offer. If another thread drives the worker,
 * on_over and on_release may be called before this function returns, and may
 * use *offer_p or give it back.
 * Errors:
 *   INVALID_PARAM - a field, or map is NULL
 *   ALREADY_EXISTS - there is an offer of that name with that version
 *   LIMIT_EXCEEDED - TMSG_OFFERS_MOST, or lent_bytes of tensormsg/limits.h
 *   NO_MEMORY
 *   IO - the system gives no random bytes
 *   CLOSED */
TMSG_API tmsg_status_t tmsg_offer_create(tmsg_worker_t *worker,
                                         const tmsg_map_t *map,
                                         const tmsg_offer_params_t *params,
                                         tmsg_offer_t **offer_p);

/* Writes the offer's key. */
TMSG_API void tmsg_offer_key(const tmsg_offer_t *offer,
                             tmsg_offer_key_t *key_p);

/* Ends the offer. Fetches that come from now on end with NOT_FOUND. Fetches
 * under way may go on for timeout_ms (0: not at all; -1: until they end). Then
 * they are given up, and end with CANCELED at their fetchers.
 *
 * This call drives the worker until the memory is free, for at most timeout_ms.
 * Unless that is 0, it waits 500 ms more, in which fetchers can answer that
 * they read no more. OK means that on_release was called. In case of an error
 * the offer is over as well, and on_release tells when the memory is free.
 * Errors:
 *   INVALID_PARAM - offer is NULL, or timeout_ms is below -1: nothing was ended
 *   TIMED_OUT - a peer may still read the memory: it keeps a loan, or its
 *     process is stopped
 *   WOULD_BLOCK - in a callback
 *   CLOSED - the worker is gone, and on_release is about to be called */
TMSG_API tmsg_status_t tmsg_offer_withdraw(tmsg_offer_t *offer, int timeout_ms);

/* Withdraws an offer as tmsg_offer_withdraw() does, and returns at once, for an
 * event loop. on_release tells when the memory is free. A later call replaces
 * timeout_ms.
 * Errors:
 *   INVALID_PARAM - offer is NULL, or timeout_ms is below -1 */
TMSG_API tmsg_status_t tmsg_offer_end(tmsg_offer_t *offer, int timeout_ms);

/* Gives the handle back. An offer that is not over is ended first, as by
 * tmsg_offer_end() with 0; on_release still comes. NULL is allowed. */
TMSG_API void tmsg_offer_destroy(tmsg_offer_t *offer);

typedef struct tmsg_offer_stats {
    uint64_t fetches;     /* that ended with OK here */
    uint64_t failed;      /* that began and ended otherwise */
    uint64_t bytes;       /* of tensors, of the fetches that ended with OK */
    uint64_t under_way;   /* fetches that may read the map's memory now, and
                           * loans of it that have not come back */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_offer_stats_t;

TMSG_API void tmsg_offer_stats(const tmsg_offer_t *offer,
                               tmsg_offer_stats_t *stats_p);

/* A part of one tensor: `count` elements from `start` on, in each of its first
 * `ndim` dimensions, and all elements of the other dimensions. */
typedef struct tmsg_slice {
    const char *name;     /* of the tensor in the offer */
    const char *as;       /* its name in the reply; NULL: the same */
    uint32_t ndim;        /* of the arrays below; 0: all of the tensor */
    const int64_t *start; /* from 0 on */
    const int64_t *count; /* -1: to the end */
    const int64_t *step;  /* must be NULL: every element of the box */
} tmsg_slice_t;

enum {
    TMSG_FETCH_PARAM_SLICES = 1 << 0, /* slices and slice_count */
    TMSG_FETCH_PARAM_INTO = 1 << 1,
    TMSG_FETCH_PARAM_TIMEOUT = 1 << 2,
    TMSG_FETCH_PARAM_WAIT = 1 << 3,
    TMSG_FETCH_PARAM_EPOCH = 1 << 4,
    TMSG_FETCH_PARAM_ON_DONE = 1 << 5,
    TMSG_FETCH_PARAM_FLAGS = 1 << 6
};

enum {
    /* The reply may be a loan: its tensors are then read-only views of the
     * owner's memory, and stay until the call is destroyed, even if the owner
     * dies. It is a loan if the owner lends (TMSG_OFFER_LEND), the connection
     * is one of unix://, and neither slices nor `into` are given. Else it is a
     * copy. A worker with TMSG_WORKER_BORROW gets loans without this flag.
     * tmsg_call_reply_is_lent() tells. */
    TMSG_FETCH_BORROW = 1 << 0
};

typedef struct tmsg_fetch_params {
    uint64_t field_mask;        /* TMSG_FETCH_PARAM_*; unset: defaults */
    const tmsg_slice_t *slices; /* what to fetch, in the order of the reply;
                                 * default: the whole map */
    uint32_t slice_count;       /* 1 to 65536, if SLICES is set */
    const tmsg_map_t *into; /* takes the tensors of the reply, as reply_into of
                             * tmsg_call_params_t; default NULL */
    int32_t timeout_ms;     /* as of tmsg_call_params_t; default -1 */
    int32_t wait_ms; /* if there is no such name or version yet, the owner keeps
                      * the fetch for this time; -1: as long as timeout_ms
                      * allows. Default 0: NOT_FOUND at once. Not for a fetch by
                      * key, whose map is there or will never be */
    uint64_t epoch;  /* the owner's run that at_least is a version of; default:
                      * the present run. Not for a fetch by key */
    tmsg_call_fn on_done; /* default none */
    void *on_done_arg;
    uint32_t flags; /* TMSG_FETCH_*; default 0 */
} tmsg_fetch_params_t;

/* Fetches a map from the peer. A fetch is a call (tensormsg/call.h), to be
 * waited for, canceled and destroyed as one; its reply is the map. Every fetch
 * may be made again. It ends as a call does, and with:
 *   NOT_FOUND - there is no such offer. The error says whether it was
 *     withdrawn, has expired, is used up, is of another run of the owner or
 *     never was there, if the owner still knows.
 *   CANCELED - the offer was withdrawn meanwhile
 *   INVALID_PARAM - a slice does not fit, or `into` does not, and the error
 *     names the tensor; or the slices are too many to wait
 *     (docs/reference/offers.md)
 *   REFUSED - the key is of an offer for other principals. By name, such offers
 *     are not found.
 *   RESOURCE_EXHAUSTED - too many fetches wait there
 *   UNSUPPORTED - the peer has a library without offers
 * With OK it has the bytes of the offer. There is one exception: another
 * receive into the memory of `into`, by another map, has not ended, or has
 * failed and may still write there (see reply_into in call.h).
 *
 * `params` may be NULL. What it points to is copied, except `into`.
 * Errors here: those of tmsg_endpoint_call(), and:
 *   INVALID_PARAM - the slices: none, two of one name, or a name above 4090
 *     bytes; wait_ms or epoch, by key
 *   UNSUPPORTED - a step */
TMSG_API tmsg_status_t tmsg_endpoint_fetch(tmsg_endpoint_t *endpoint,
                                           const tmsg_offer_key_t *key,
                                           const tmsg_fetch_params_t *params,
                                           tmsg_call_t **call_p);

/* Fetches the newest map of that name whose version is `at_least` or higher.
 * The metadata of the reply have its version: TMSG_META_OFFER_EPOCH and
 * TMSG_META_OFFER_VERSION (tensormsg/meta.h). Versions count within one run of
 * an owner, its epoch. If params->epoch is that of an earlier run, every map of
 * that name is newer than at_least, and is accepted. Errors: those of
 * tmsg_endpoint_fetch(). */
TMSG_API tmsg_status_t tmsg_endpoint_fetch_name(
    tmsg_endpoint_t *endpoint, const char *name, uint64_t at_least,
    const tmsg_fetch_params_t *params, tmsg_call_t **call_p);

/* Asks a peer which names it offers, and waits for the answer as
 * tmsg_call_wait() does, for at most timeout_ms (above 0, or -1: no limit).
 * *json_p is a JSON object:
 *  - "offers": an array with an object for each name that this side may fetch,
 *    up to 4096. Each has the "name", and "version", "tensors" and "bytes" of
 *    the newest offer of that name; its own "offers" is the number of versions
 *  - "more": true if the peer offers more names than that
 *
 * A number above 2^53 is a string of its digits. Later versions may add keys.
 * *json_p is freed with tmsg_string_free().
 * Errors: those of tmsg_endpoint_call() and of the call, and:
 *   RESOURCE_EXHAUSTED - four lists are on their way to this side
 *   MALFORMED - the answer
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_endpoint_offers(tmsg_endpoint_t *endpoint,
                                            int timeout_ms, char **json_p);

#ifdef __cplusplus
}
#endif

#endif
