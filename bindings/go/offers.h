/* SPDX-License-Identifier: BSD-3-Clause */
/* offers.h - offers as Go holds them, and fetches. */
#ifndef TENSORMSG_GO_OFFERS_H
#define TENSORMSG_GO_OFFERS_H

#include "hub.h"

/* An offer. It begins with an atomic_int that is 0 when its memory is free
 * (TMSGGO_LENT). */
typedef struct tmsggo_offered tmsggo_offered_t;

tmsggo_result_t tmsggo_offered_create(tmsggo_hub_t *hub, const tmsg_map_t *map,
                                      tmsg_offer_params_t params,
                                      tmsggo_offered_t **offered_p);
tmsg_offer_key_t tmsggo_offered_key(const tmsggo_offered_t *offered);
tmsg_offer_stats_t tmsggo_offered_stats(const tmsggo_offered_t *offered);
int tmsggo_offered_is_live(const tmsggo_offered_t *offered);
int tmsggo_offered_is_lent(const tmsggo_offered_t *offered);
void tmsggo_offered_end(tmsggo_offered_t *offered, int timeout_ms);
/* Once its memory is free. */
void tmsggo_offered_destroy(tmsggo_offered_t *offered);

/* A slice. Names lie in `bytes`; `ndim` starts and as many counts in `dims`. */
typedef struct tmsggo_slice {
    uint64_t name;
    uint64_t as;
    uint64_t dims;
    uint32_t ndim;
} tmsggo_slice_t;

/* A fetch: by key, or by name where the key is NULL. */
typedef struct tmsggo_fetch {
    uint64_t at_least;
    uint64_t epoch; /* if has_epoch */
    uint64_t count; /* of slices; 0: the whole map */
    int32_t has_epoch;
    int32_t by_key;
    tmsg_offer_key_t key;
    int32_t timeout_ms;
    int32_t wait_ms;
    uint32_t flags; /* TMSG_FETCH_* */
} tmsggo_fetch_t;
tmsggo_result_t tmsggo_fetch(tmsg_endpoint_t *endpoint, const char *name,
                             tmsggo_fetch_t fetch, const tmsggo_slice_t *slices,
                             const int64_t *dims, const char *bytes,
                             const tmsg_map_t *into, tmsggo_call_t **call_p);

/* A map to be received into. The library may write to its memory for some time
 * after it was destroyed; it begins with an atomic_int (TMSGGO_LENT). */
typedef struct tmsggo_into tmsggo_into_t;

tmsggo_result_t tmsggo_into_create(const tmsggo_tensor_t *tensors, size_t count,
                                   const int64_t *dims, const char *bytes,
                                   tmsggo_into_t **into_p);
const tmsg_map_t *tmsggo_into_map(const tmsggo_into_t *into);
tmsggo_result_t tmsggo_into_set(tmsggo_into_t *into, size_t index,
                                uintptr_t data, tmsg_stream_t stream);
/* Gives the map up. */
void tmsggo_into_leave(tmsggo_into_t *into);
int tmsggo_into_is_lent(const tmsggo_into_t *into);
/* Once it was left, and is not lent. */
void tmsggo_into_free(tmsggo_into_t *into);

#endif
