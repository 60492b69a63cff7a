/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/lend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/path/loans.h"
#include "am/send/plan.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"

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

/* Copies the tensors into the segment. Errors: IO (names the tensor that cannot
 * be read). */
static tmsg_status_t copy_tensors(const tmsg_payload_t *payload,
                                  const tmsg_lending_t *lending)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(payload->map) && status == TMSG_OK;
         i++) {
        uint8_t *to = tmsg_lending_at(lending, i);

        if (to == NULL) {
            continue;
        }
        if (tmsg_map_view(&entries[i]) == NULL &&
            !tmsg_tensor_is_dense(&entries[i].tensor)) {
            status = tmsg_plan_pack(&entries[i], to);
        } else {
            memcpy(to, entries[i].tensor.data, entries[i].bytes);
        }
    }
    return status;
}

/* Makes a lending of a copy. Returns NULL, and *why_p or an error's status, if
 * that fails. */
static tmsg_lending_t *lend_copy(tmsg_send_t *send, tmsg_payload_t *payload,
                                 const char **why_p, tmsg_status_t *status_p)
{
    bool draft = send->lend->kept_p != NULL;
    uint64_t bytes = payload->measures->bytes;
    tmsg_lending_t *lending =
        draft ? tmsg_lending_draft(send->endpoint, payload->map, bytes, why_p)
              : tmsg_lending_copy(
                    send->endpoint, payload->map, bytes,
                    send->shared_plan == NULL ? 0 : send->shared_plan->group,
                    why_p);

    if (lending != NULL) {
        *status_p = copy_tensors(payload, lending);
    }
    if (lending != NULL && *status_p == TMSG_OK && draft &&
        tmsg_lending_freeze(lending) != TMSG_OK) {
        *why_p = "a copy could not be sealed";
        tmsg_lending_drop(lending);
        return NULL;
    }
    if (*status_p != TMSG_OK) {
        tmsg_lending_drop(lending);
        lending = NULL;
    }
    return lending;
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

/* Finds what the tensors lie in, once for all sends of a shared plan. */
static tmsg_status_t find_lending(tmsg_send_t *send, tmsg_payload_t *payload,
                                  const char **why_p)
{
    tmsg_lend_t *lend = send->lend;
    tmsg_lending_t **shared_p =
        send->shared_plan != NULL ? &send->shared_plan->lending : lend->kept_p;
    tmsg_status_t status = TMSG_OK;

    if (lend->lending != NULL &&
        !tmsg_lending_is_of(lend->lending, payload->map)) {
        drop_lending(lend);
    }
    if (lend->lending != NULL) {
        return TMSG_OK;
    }
    if (shared_p != NULL && *shared_p != NULL &&
        tmsg_lending_is_of(*shared_p, payload->map)) {
        if (!tmsg_lending_is_copy(*shared_p) ||
            may_have_copy(send, payload, why_p)) {
            lend->lending = *shared_p;
            tmsg_lending_hold(lend->lending);
        }
        return TMSG_OK;
    }
    lend->lending = tmsg_lending_of(payload->map);
    if (lend->lending == NULL && tmsg_loans_may_offer(send->endpoint, why_p) &&
        may_have_copy(send, payload, why_p)) {
        lend->lending = lend_copy(send, payload, why_p, &status);
    }
    if (lend->lending != NULL && shared_p != NULL && *shared_p == NULL) {
        *shared_p = lend->lending;
        tmsg_lending_hold(lend->lending);
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
    status = find_lending(send, payload, &why);
    if (status != TMSG_OK || lend->lending == NULL) {
        if (status == TMSG_OK) {
            tmsg_lend_decline(send, payload, why);
        }
        return status;
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
