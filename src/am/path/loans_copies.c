/* SPDX-License-Identifier: BSD-3-Clause */
/* The segments of the library's own that tensors are copied into. Fresh memory
 * costs a page fault for each page, at both ends, so a segment is used again.
 * Whoever had it can still read it: it is used again for the same audience
 * alone, and only if each loan of it was given back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/path/loans_struct.h"
#include "core/error.h"

#define SPARE_BYTES 65536
/* A worker gives away 1 GiB of fresh copies a minute, and may be 4 GiB ahead.
 */
#define FRESH_NS_A_BYTE 56
#define FRESH_AHEAD_NS (FRESH_NS_A_BYTE * (UINT64_C(4) << 30))

/* Descriptors pass to none but peers whose user the kernel confirms, and whose
 * process it confirms where that has a number here. */
static tmsg_audience_t audience_of(const tmsg_endpoint_t *endpoint,
                                   uint64_t group)
{
    const char *principal = endpoint->admit.principal;
    const tmsg_hello_t *peer = &endpoint->peer_hello;
    bool numbered = peer->ns_pid == endpoint->ucx->hello.ns_pid;
    tmsg_audience_t audience = {.group = group};

    if (principal != NULL && principal[0] != '\0') {
        snprintf(audience.principal, sizeof(audience.principal), "%s",
                 principal);
        audience.group = 0;
        return audience;
    }
    audience.user = peer->uid + 1;
    if (group == 0 && numbered) {
        audience.process = peer->pid;
    } else if (group == 0) {
        audience.connection = endpoint->paths.loans->number;
    }
    return audience;
}

static bool are_same(const tmsg_audience_t *one, const tmsg_audience_t *other)
{
    return strcmp(one->principal, other->principal) == 0 &&
           one->user == other->user && one->process == other->process &&
           one->group == other->group && one->connection == other->connection;
}

/* What an earlier message left in a segment is for its own audience alone. Once
 * others were to have it, it is not used again: the next one will be for all of
 * them. */
bool tmsg_copies_may_have(tmsg_copy_segment_t *copy,
                          const tmsg_endpoint_t *endpoint)
{
    tmsg_audience_t audience = audience_of(endpoint, copy->audience.group);
    bool same = are_same(&copy->audience, &audience);

    copy->spoiled |= !same;
    return same || copy->fresh; /* a frozen one is always fresh */
}

static tmsg_copy_segment_t *copy_at(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_copy_segment_t, node);
}

static bool is_idle(const tmsg_copy_segment_t *copy)
{
    return !copy->used && !copy->retired;
}

static void forget_frozen(tmsg_lender_t *lender,
                          const tmsg_copy_segment_t *copy)
{
    lender->frozen_count--;
    lender->frozen_bytes -= tmsg_shareable_bytes(copy->segment);
    if (copy->left) {
        lender->left_count--;
        lender->left_bytes -= tmsg_shareable_bytes(copy->segment);
    }
}

static void list_copy(tmsg_lender_t *lender, tmsg_copy_segment_t *copy)
{
    tmsg_list_push(&lender->copies, &copy->node);
    lender->copies_bytes += tmsg_shareable_bytes(copy->segment);
    tmsg_lender_tick(lender);
}

static void unlist_copy(tmsg_lender_t *lender, tmsg_copy_segment_t *copy)
{
    tmsg_list_remove(&lender->copies, &copy->node);
    lender->copies_bytes -= tmsg_shareable_bytes(copy->segment);
}

/* Frees a copy as soon as no peer has it, or may take it yet. Until then it
 * takes memory, and counts. */
static void free_copy(tmsg_worker_t *worker, tmsg_copy_segment_t *copy)
{
    tmsg_lender_t *lender = worker->paths.lender;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    tmsg_shareable_retire(copy->segment);
    if (lender != NULL) {
        if (copy->frozen) {
            forget_frozen(lender, copy);
        } else {
            unlist_copy(lender, copy);
        }
        while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
            if (endpoint->paths.loans != NULL) {
                tmsg_loans_forget_freed(endpoint, copy->segment);
            }
        }
        if (!tmsg_shareable_is_alone(copy->segment)) {
            copy->retired = true;
            copy->frozen = false;
            list_copy(lender, copy);
            return;
        }
    }
    tmsg_shareable_drop(copy->segment);
    free(copy);
}

void tmsg_copies_sweep(tmsg_worker_t *worker)
{
    tmsg_lender_t *lender = worker->paths.lender;
    tmsg_node_t *node = lender == NULL ? NULL : lender->copies.head, *next;

    for (; node != NULL; node = next) {
        tmsg_copy_segment_t *copy = copy_at(node);

        next = node->next;
        if (copy->retired && tmsg_shareable_is_alone(copy->segment)) {
            unlist_copy(lender, copy);
            tmsg_shareable_drop(copy->segment);
            free(copy);
        }
    }
}

/* What takes longer to be made is kept for longer. */
static uint64_t idle_parts(const tmsg_copy_segment_t *copy)
{
    return 1 + (tmsg_shareable_bytes(copy->segment) >> 30);
}

void tmsg_copies_trim(tmsg_lender_t *lender, uint64_t idle_ns)
{
    tmsg_node_t *node = lender->copies.head, *next;
    uint64_t now = tmsg_now_ns();

    for (; node != NULL; node = next) {
        tmsg_copy_segment_t *copy = copy_at(node);

        next = node->next;
        if (is_idle(copy) &&
            (now - copy->idle_since_ns) / idle_parts(copy) >= idle_ns) {
            free_copy(lender->worker, copy);
        }
    }
    tmsg_copies_sweep(lender->worker);
}

void tmsg_copies_give(tmsg_worker_t *worker, tmsg_copy_segment_t *copy)
{
    tmsg_lender_t *lender = worker->paths.lender;

    copy->used = false;
    copy->fresh = false;
    copy->idle_since_ns = tmsg_now_ns();
    if (copy->frozen || copy->spoiled || !copy->sealed || lender == NULL) {
        free_copy(worker, copy);
        return;
    }
    /* The one that was used last is the first to be used again: the cache has
     * it. */
    tmsg_list_remove(&lender->copies, &copy->node);
    tmsg_list_insert(&lender->copies, NULL, &copy->node);
    tmsg_lender_tick(lender);
}

static bool suits(const tmsg_copy_segment_t *copy, uint64_t bytes,
                  const tmsg_audience_t *audience)
{
    uint64_t room = tmsg_shareable_bytes(copy->segment);

    return is_idle(copy) && !copy->spoiled && room >= bytes &&
           room <= 2 * bytes + SPARE_BYTES &&
           are_same(&copy->audience, audience);
}

/* Returns an idle copy, best one that the peer has already. */
static tmsg_copy_segment_t *find_copy(const tmsg_endpoint_t *endpoint,
                                      const tmsg_lender_t *lender,
                                      uint64_t bytes,
                                      const tmsg_audience_t *audience)
{
    tmsg_copy_segment_t *found = NULL;

    for (tmsg_node_t *node = lender->copies.head; node != NULL;
         node = node->next) {
        tmsg_copy_segment_t *copy = copy_at(node);

        if (!suits(copy, bytes, audience)) {
            continue;
        }
        if (tmsg_loans_has_taken(endpoint, copy->segment)) {
            return copy;
        }
        if (found == NULL) {
            found = copy;
        }
    }
    return found;
}

static bool is_large(const tmsg_lender_t *lender, uint64_t bytes)
{
    return bytes > lender->bytes_most;
}

tmsg_copies_tally_t tmsg_copies_begin(const tmsg_lender_t *lender,
                                      uint64_t bytes)
{
    return (tmsg_copies_tally_t){.large = is_large(lender, bytes)};
}

void tmsg_copies_add(const tmsg_lender_t *lender, tmsg_copies_tally_t *tally,
                     const tmsg_shareable_t *segment)
{
    uint64_t bytes = tmsg_shareable_bytes(segment);

    if (is_large(lender, bytes) == tally->large) {
        tally->count++;
        tally->bytes += bytes;
    }
}

bool tmsg_copies_have_room(const tmsg_lender_t *lender,
                           const tmsg_copies_tally_t *tally, uint64_t bytes,
                           unsigned part)
{
    uint64_t most =
        tally->large ? lender->large_bytes_most : lender->bytes_most;

    return tally->count == 0 || (tally->count < TMSG_COPIES_MOST / part &&
                                 tally->bytes + bytes <= most / part);
}

static tmsg_copies_tally_t count_copies(const tmsg_lender_t *lender,
                                        uint64_t bytes, bool with_idle)
{
    tmsg_copies_tally_t tally = tmsg_copies_begin(lender, bytes);

    for (tmsg_node_t *node = lender->copies.head; node != NULL;
         node = node->next) {
        if (with_idle || !is_idle(copy_at(node))) {
            tmsg_copies_add(lender, &tally, copy_at(node)->segment);
        }
    }
    return tally;
}

static bool has_room(const tmsg_lender_t *lender, uint64_t bytes,
                     bool with_idle)
{
    const tmsg_copies_tally_t tally = count_copies(lender, bytes, with_idle);

    return tmsg_copies_have_room(lender, &tally, bytes, 1);
}

/* Frees idle copies, the one that was used last at the end, until there is room
 * for one of `bytes`; none, if that cannot be. */
static bool make_room(tmsg_lender_t *lender, uint64_t bytes)
{
    bool large = is_large(lender, bytes);
    tmsg_node_t *node = lender->copies.tail, *previous;

    if (!has_room(lender, bytes, false)) {
        return false;
    }
    for (; node != NULL && !has_room(lender, bytes, true); node = previous) {
        const tmsg_copy_segment_t *copy = copy_at(node);

        previous = node->previous;
        if (is_idle(copy) &&
            is_large(lender, tmsg_shareable_bytes(copy->segment)) == large) {
            free_copy(lender->worker, copy_at(node));
        }
    }
    return has_room(lender, bytes, true);
}

/* A peer can keep what it was lent mapped for ever: it need not say so, and
 * nobody sees it. So fresh memory is given away at a bounded rate. */
static bool take_fresh(tmsg_lender_t *lender, uint64_t bytes)
{
    uint64_t now = tmsg_now_ns();

    if (lender->fresh_ns < now) {
        lender->fresh_ns = now;
    }
    if (lender->fresh_ns - now > FRESH_AHEAD_NS) {
        return false;
    }
    lender->fresh_ns += bytes * FRESH_NS_A_BYTE;
    return true;
}

/* Makes a copy, and lists it. NULL: *why_p tells why there is none. */
static tmsg_copy_segment_t *make_copy(tmsg_lender_t *lender, uint64_t bytes,
                                      const char **why_p)
{
    tmsg_copy_segment_t *copy;

    if (!make_room(lender, bytes)) {
        *why_p = "peers keep too many copies that were lent to them";
        return NULL;
    }
    if (!take_fresh(lender, bytes)) {
        *why_p = "too much fresh memory was lent just now";
        return NULL;
    }
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL) {
        return NULL;
    }
    if (tmsg_shareable_create_draft(bytes, &copy->segment) != TMSG_OK) {
        *why_p = tmsg_error_message();
        free(copy);
        return NULL;
    }
    copy->fresh = true;
    list_copy(lender, copy);
    return copy;
}

tmsg_copy_segment_t *tmsg_copies_take(tmsg_endpoint_t *endpoint, uint64_t bytes,
                                      uint64_t group, const char **why_p)
{
    tmsg_lender_t *lender = tmsg_lender_of(endpoint->worker);
    tmsg_copy_segment_t *copy;
    tmsg_audience_t audience;

    *why_p = "there is no memory for a copy to lend";
    if (lender == NULL || tmsg_loans_of(endpoint) == NULL) {
        return NULL;
    }
    if (lender->seals_none) {
        *why_p = "this kernel (before Linux 5.1) cannot seal a copy";
        return NULL;
    }
    audience = audience_of(endpoint, group);
    /* Peers of several principals may get it. */
    copy = group != 0 && audience.principal[0] != '\0'
               ? NULL
               : find_copy(endpoint, lender, bytes, &audience);
    if (copy == NULL) {
        copy = make_copy(lender, bytes, why_p);
        if (copy == NULL) {
            return NULL;
        }
        copy->audience = audience;
    }
    copy->used = true;
    return copy;
}

static bool is_room_for_draft(const tmsg_lender_t *lender, uint64_t bytes)
{
    return lender->left_count == 0 ||
           (lender->left_count < TMSG_COPIES_MOST &&
            lender->left_bytes + bytes <= TMSG_COPIES_BYTES_MOST);
}

tmsg_copy_segment_t *tmsg_copies_draft(tmsg_worker_t *worker, uint64_t bytes,
                                       const char **why_p)
{
    tmsg_lender_t *lender = tmsg_lender_of(worker);
    tmsg_copy_segment_t *copy;

    *why_p = "there is no memory for a copy to lend";
    if (lender == NULL) {
        return NULL;
    }
    if (!is_room_for_draft(lender, bytes)) {
        *why_p = "peers keep too many copies that were lent to them";
        return NULL;
    }
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL ||
        tmsg_shareable_create_draft(bytes, &copy->segment) != TMSG_OK) {
        free(copy);
        return NULL;
    }
    copy->used = copy->fresh = copy->frozen = true;
    lender->frozen_count++;
    lender->frozen_bytes += tmsg_shareable_bytes(copy->segment);
    return copy;
}

tmsg_status_t tmsg_copies_seal(tmsg_worker_t *worker, tmsg_copy_segment_t *copy)
{
    tmsg_status_t status = copy->sealed   ? TMSG_OK
                           : copy->frozen ? tmsg_shareable_freeze(copy->segment)
                                          : tmsg_shareable_seal(copy->segment);

    copy->sealed = status == TMSG_OK;
    if (status == TMSG_ERR_UNSUPPORTED && worker->paths.lender != NULL) {
        worker->paths.lender->seals_none = true;
    }
    return status;
}

void tmsg_copies_leave(tmsg_worker_t *worker, tmsg_copy_segment_t *copy)
{
    tmsg_lender_t *lender = worker->paths.lender;

    if (copy->frozen && lender != NULL) {
        copy->left = true;
        lender->left_count++;
        lender->left_bytes += tmsg_shareable_bytes(copy->segment);
    }
}
