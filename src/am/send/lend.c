/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/lend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/path/loans.h"
#include "am/send/lend_fill.h"
#include "am/send/plan.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"

/* A copy is made for so long in a step of the worker, or for a part, if that
 * takes longer. */
#define FILL_NS 1000000
/* Another send goes on with a copy if the one that made it has not for so long.
 */
#define OTHERS_NS 4000000

struct tmsg_lend {
    tmsg_lending_t *lending; /* NULL: none, or none any more */
    tmsg_loan_hold_t *hold;  /* NULL: a copy is lent */
    tmsg_lent_place_t *places;
    uint64_t bytes; /* of the tensors, as they would travel; 0: no loan */
    bool asked;     /* the peer has asked for this loan */
    tmsg_lending_t **kept_p; /* what several sends of the map share; or NULL */
};

/* Says why a message was not lent, for describe(). */
static void note_why(tmsg_send_t *send, const char *why)
{
    tmsg_lend_counts_t *counts =
        send->shared_plan == NULL ? NULL : send->shared_plan->lend_counts;

    tmsg_loans_note(send->endpoint, why);
    if (counts != NULL) {
        counts->not_lent++;
        snprintf(counts->why, sizeof(counts->why), "%s", why);
    }
}

static void count_lent(const tmsg_send_t *send)
{
    tmsg_lend_counts_t *counts =
        send->shared_plan == NULL ? NULL : send->shared_plan->lend_counts;

    if (counts != NULL) {
        counts->lent++;
        counts->why[0] = '\0';
    }
}

static void drop_lending(tmsg_lend_t *lend)
{
    tmsg_lending_drop(lend->lending);
    lend->lending = NULL;
    lend->bytes = 0;
}

void tmsg_lend_decline(tmsg_send_t *send, tmsg_payload_t *payload,
                       const char *why)
{
    payload->extra->lent = (tmsg_lent_places_t){0};
    note_why(send, why);
    if (send->lend != NULL) {
        drop_lending(send->lend);
    }
}

/* Makes a lending of a copy, which is yet to be filled. NULL: *why_p tells why
 * not. */
static tmsg_lending_t *lend_copy(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload,
                                 const char **why_p)
{
    uint64_t bytes = payload->measures->bytes;
    uint64_t group = send->shared_plan == NULL ? 0 : send->shared_plan->group;

    return send->lend->kept_p != NULL
               ? tmsg_lending_draft(send->endpoint, payload->map, bytes, why_p)
               : tmsg_lending_copy(send->endpoint, payload->map, bytes, group,
                                   why_p);
}

/* Returns whether the peer leaves enough copies for others. Those of offers are
 * counted apart. */
static bool may_have_copy(const tmsg_send_t *send,
                          const tmsg_payload_t *payload, const char **why_p)
{
    *why_p = "the peer keeps half of the copies that may be lent";
    return send->lend->kept_p != NULL ||
           !tmsg_loans_keeps_most(send->endpoint, payload->measures->bytes);
}

/* Returns what all sends of the map share; NULL: nothing. */
static tmsg_lending_t **shared_of(const tmsg_send_t *send)
{
    return send->shared_plan != NULL ? &send->shared_plan->lending
                                     : send->lend->kept_p;
}

/* Finds what the tensors lie in, once for all sends that share it. */
static void find_lending(tmsg_send_t *send, const tmsg_payload_t *payload,
                         const char **why_p)
{
    tmsg_lend_t *lend = send->lend;
    tmsg_lending_t **shared_p = shared_of(send);
    const char *why_copied;

    if (lend->lending != NULL &&
        !tmsg_lending_is_of(lend->lending, payload->map)) {
        drop_lending(lend);
    }
    if (lend->lending != NULL) {
        return;
    }
    if (shared_p != NULL && *shared_p != NULL &&
        tmsg_lending_is_of(*shared_p, payload->map)) {
        if (!tmsg_lending_is_copy(*shared_p) ||
            may_have_copy(send, payload, why_p)) {
            lend->lending = *shared_p;
            tmsg_lending_hold(lend->lending);
        }
        return;
    }
    lend->lending = tmsg_lending_of(payload->map, &why_copied);
    if (lend->lending == NULL) {
        tmsg_loans_hear(send->endpoint); /* a copy may have come back */
    }
    if (lend->lending == NULL && tmsg_loans_may_offer(send->endpoint, why_p) &&
        may_have_copy(send, payload, why_p)) {
        lend->lending = lend_copy(send, payload, why_p);
        if (lend->lending != NULL) {
            tmsg_lending_explain(lend->lending, why_copied);
        }
    }
    if (lend->lending != NULL && shared_p != NULL && *shared_p == NULL) {
        *shared_p = lend->lending;
        tmsg_lending_hold(lend->lending);
    }
}

/* Lets go of a copy that cannot be filled. */
static void drop_unfilled(tmsg_send_t *send)
{
    tmsg_lending_t **shared_p = shared_of(send);

    if (shared_p != NULL && *shared_p == send->lend->lending) {
        tmsg_lending_drop(*shared_p);
        *shared_p = NULL;
    }
    drop_lending(send->lend);
}

/* Copies for a while, or all of it where the send may not wait. Of the sends
 * that share a copy one makes it, and the others see that it goes on. */
static tmsg_status_t fill_for_a_while(const tmsg_send_t *send,
                                      const tmsg_payload_t *payload)
{
    tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);
    tmsg_lending_fill_t *fill = tmsg_lending_fill(send->lend->lending);
    bool tries = send->flags & TMSG_SEND_TRY;
    uint64_t begun = tmsg_now_ns(), now = begun;
    tmsg_status_t status;

    if (!tries && fill->by != send->endpoint && begun < fill->others_ns) {
        return TMSG_IN_PROGRESS;
    }
    do {
        status = tmsg_lend_fill(payload, pool, send->lend->lending);
        now = tmsg_now_ns();
    } while (status == TMSG_IN_PROGRESS && (tries || now - begun < FILL_NS));
    fill->by = send->endpoint;
    fill->others_ns = now + OTHERS_NS;
    return status;
}

/* Fills a copy. Returns IN_PROGRESS if there is more to be filled, with which a
 * chore of the endpoint goes on. A copy that cannot be filled is let go of, and
 * *why_p tells why. */
static tmsg_status_t fill_lending(tmsg_send_t *send,
                                  const tmsg_payload_t *payload,
                                  const char **why_p)
{
    tmsg_lending_t *lending = send->lend->lending;
    tmsg_status_t status =
        !tmsg_lending_is_copy(lending) || tmsg_lending_fill(lending)->full
            ? TMSG_OK
            : fill_for_a_while(send, payload);

    if (status == TMSG_IN_PROGRESS) {
        tmsg_worker_chore(send->endpoint->worker, send->endpoint);
    } else if (status != TMSG_OK) {
        *why_p = tmsg_error_message();
        drop_unfilled(send);
    }
    return status;
}

/* Returns why a message is not to be a loan, or NULL. */
static const char *find_obstacle(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;
    uint64_t least =
        endpoint->worker->context->tuning.of[TMSG_TRANSPORT_SHM].lend_bytes;
    const char *why;

    if (!tmsg_loans_may_lend(endpoint, send->lend != NULL && send->lend->asked,
                             &why)) {
        return why;
    }
    if (payload->measures->foreign > 0) {
        return "the memory of a device is not lent";
    }
    if (payload->measures->bytes < least || payload->measures->bytes == 0) {
        return "the message has fewer bytes than shm.lend_bytes";
    }
    return NULL;
}

void tmsg_lend_call(tmsg_send_t *send, const tmsg_call_send_t *call)
{
    send->lend = calloc(1, sizeof(*send->lend));
    if (send->lend != NULL) {
        send->lend->asked = call->flags & TMSG_CALL_SEND_ASKED;
        send->lend->kept_p = call->lending_p;
    }
}

static bool make_lend(tmsg_send_t *send, const tmsg_payload_t *payload)
{
    if (send->lend == NULL) {
        send->lend = calloc(1, sizeof(*send->lend));
    }
    if (send->lend == NULL) {
        return false;
    }
    if (send->lend->places == NULL) {
        send->lend->places =
            calloc(tmsg_map_size(payload->map), sizeof(*send->lend->places));
    }
    if (send->lend->hold == NULL) {
        send->lend->hold = tmsg_loan_hold_create(send->endpoint->worker);
    }
    return send->lend->places != NULL && send->lend->hold != NULL;
}

static void write_checksums(const tmsg_payload_t *payload,
                            const tmsg_lending_t *lending)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);

    for (size_t i = 0;
         payload->extra->checksum != NULL && i < tmsg_map_size(payload->map);
         i++) {
        tmsg_plan_note_checksum(payload, i, tmsg_lending_at(lending, i),
                                entries[i].bytes);
    }
}

tmsg_status_t tmsg_lend_prepare(tmsg_send_t *send, tmsg_payload_t *payload)
{
    const char *why = find_obstacle(send, payload);
    tmsg_lend_t *lend;
    tmsg_status_t status;

    if (why == NULL && !make_lend(send, payload)) {
        why = "there is no memory for a loan";
    }
    if (why != NULL) {
        tmsg_lend_decline(send, payload, why);
        return TMSG_OK;
    }
    lend = send->lend;
    find_lending(send, payload, &why);
    status =
        lend->lending == NULL ? TMSG_OK : fill_lending(send, payload, &why);
    if (status == TMSG_IN_PROGRESS) {
        return status;
    }
    if (lend->lending == NULL) {
        tmsg_lend_decline(send, payload, why);
        return TMSG_OK;
    }
    status = tmsg_lending_offer(send->endpoint, lend->lending, lend->places);
    if (status == TMSG_IN_PROGRESS && !(send->flags & TMSG_SEND_TRY)) {
        return status;
    }
    if (status != TMSG_OK) {
        tmsg_lend_decline(send, payload,
                          status == TMSG_IN_PROGRESS
                              ? "the peer has yet to take the segment"
                              : tmsg_error_message());
        return TMSG_OK;
    }
    lend->bytes = payload->measures->bytes;
    payload->extra->lent = (tmsg_lent_places_t){
        .count = tmsg_map_size(payload->map), .places = lend->places};
    write_checksums(payload, lend->lending);
    return TMSG_OK;
}

tmsg_status_t tmsg_lend_begin(tmsg_send_t *send)
{
    tmsg_lend_t *lend = send->lend;
    tmsg_status_t status = tmsg_loan_begin(
        send->endpoint, send->message_id, lend->lending,
        tmsg_lending_is_copy(lend->lending) ? NULL : lend->hold, lend->bytes);

    if (status == TMSG_OK) {
        count_lent(send);
    }
    return status;
}

bool tmsg_lend_is_copying(const tmsg_send_t *send)
{
    const tmsg_lend_t *lend = send->lend;

    return lend != NULL && lend->lending != NULL &&
           tmsg_lending_is_copy(lend->lending) &&
           !tmsg_lending_fill(lend->lending)->full;
}

uint64_t tmsg_lend_bytes(const tmsg_send_t *send)
{
    return send->lend == NULL ? 0 : send->lend->bytes;
}

void tmsg_lend_released(tmsg_send_t *send)
{
    if (send->lend != NULL && send->lend->hold != NULL &&
        tmsg_loan_hold_is_lent(send->lend->hold) && send->on_release != NULL) {
        tmsg_loan_hold_call(send->lend->hold, send->on_release,
                            send->on_release_arg);
        send->on_release = NULL;
    }
}

void tmsg_lend_give_back(tmsg_send_t *send)
{
    tmsg_lend_t *lend = send->lend;

    if (lend == NULL) {
        return;
    }
    tmsg_lend_released(send);
    if (lend->hold != NULL) {
        if (tmsg_loan_hold_is_lent(lend->hold) && send->holds_map) {
            tmsg_loan_hold_give(lend->hold, send->map);
            send->holds_map = false;
        }
        tmsg_loan_hold_drop(lend->hold);
    }
    tmsg_lending_drop(lend->lending);
    free(lend->places);
    free(lend);
    send->lend = NULL;
}
