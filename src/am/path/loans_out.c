/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner's part of loans. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/kinds.h"
#include "am/endpoint/link_ops.h"
#include "am/path/fastboxes.h"
#include "am/path/loans_struct.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/shown.h"

#define REFUSED_NS 1000000000ULL
/* A peer that has so many segments to answer about is offered no other. */
#define UNANSWERED_MOST TMSG_LENDING_SEGMENTS

bool tmsg_loans_may_lend(const tmsg_endpoint_t *endpoint, bool asked,
                         const char **why_p)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    uint32_t features = endpoint->peer_hello.features;

    if (endpoint->ucxx != NULL) {
        *why_p = "a ucx:// peer borrows nothing";
    } else if (!tmsg_link_ops.passes(endpoint, why_p)) {
        return false;
    } else if (!(features & TMSG_FEATURE_LOANS)) {
        *why_p = "the peer is of a version that knows no loans";
    } else if (!(features & TMSG_FEATURE_BORROWS) && !asked) {
        *why_p = "the peer does not borrow";
    } else if (loans != NULL && loans->out.count >= TMSG_LOANS_MOST) {
        *why_p = "the peer keeps too many loans";
    } else if (loans != NULL && loans->refused_until_ns > tmsg_now_ns()) {
        *why_p = loans->why;
    } else {
        return true;
    }
    return false;
}

bool tmsg_loans_keeps_most(tmsg_endpoint_t *endpoint, uint64_t bytes)
{
    const tmsg_loans_t *loans = tmsg_loans_of(endpoint);
    const tmsg_lender_t *lender = endpoint->worker->paths.lender;
    tmsg_copies_tally_t tally;

    if (loans == NULL) {
        return false;
    }
    tally = tmsg_copies_begin(lender, bytes);
    tmsg_loans_watch(endpoint);
    tmsg_orphans_add_copies(endpoint, &tally);
    for (unsigned i = 0; i < loans->offered_count; i++) {
        const tmsg_offered_t *offered = &loans->offered[i];

        if (offered->is_copy && offered->loans > 0) {
            tmsg_copies_add(lender, &tally, offered->segment);
        }
    }
    return !tmsg_copies_have_room(lender, &tally, bytes, 2);
}

static tmsg_offered_t *find_offered(const tmsg_loans_t *loans,
                                    const tmsg_shareable_t *segment)
{
    for (unsigned i = 0; loans != NULL && i < loans->offered_count; i++) {
        if (loans->offered[i].segment == segment) {
            return &loans->offered[i];
        }
    }
    return NULL;
}

bool tmsg_loans_has_taken(const tmsg_endpoint_t *endpoint,
                          const tmsg_shareable_t *segment)
{
    const tmsg_offered_t *offered =
        find_offered(endpoint->paths.loans, segment);

    return offered != NULL && offered->state == TMSG_SEGMENT_TAKEN;
}

static void forget_offered(tmsg_loans_t *loans, tmsg_offered_t *offered)
{
    tmsg_shareable_drop(offered->segment);
    *offered = loans->offered[--loans->offered_count];
}

/* Tells the peer that the segment comes no more. What the peer has mapped goes
 * with its last view. False: that cannot be said now, as if the peer does not
 * read. It has the segment until then. */
static bool recall(tmsg_endpoint_t *endpoint, tmsg_offered_t *offered)
{
    uint8_t number[4];

    tmsg_put_le(number, offered->number, 4);
    if (tmsg_link_ops.put(endpoint, TMSG_FRAME_SEGMENT_GONE, number,
                          sizeof(number)) != TMSG_OK) {
        return false;
    }
    forget_offered(endpoint->paths.loans, offered);
    return true;
}

void tmsg_loans_forget_freed(tmsg_endpoint_t *endpoint,
                             const tmsg_shareable_t *segment)
{
    tmsg_loans_t *loans = endpoint->paths.loans;

    for (unsigned i = loans->offered_count; i-- > 0;) {
        tmsg_offered_t *offered = &loans->offered[i];

        if (offered->state == TMSG_SEGMENT_TAKEN && offered->loans == 0 &&
            (segment == NULL ? tmsg_shareable_is_freed(offered->segment)
                             : offered->segment == segment)) {
            (void)recall(endpoint, offered); /* else with the next tick */
        }
    }
}

/* Makes room for one more segment: the one that was not wanted for the longest
 * time goes, but none that the same message wants. */
static bool make_room_to_offer(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    tmsg_offered_t *oldest = NULL, *grown;
    unsigned room;

    if (loans->offered_count >= TMSG_BORROWED_MOST) {
        for (unsigned i = 0; i < loans->offered_count; i++) {
            tmsg_offered_t *offered = &loans->offered[i];

            if (offered->state == TMSG_SEGMENT_TAKEN && offered->loans == 0 &&
                offered->used != loans->clock &&
                (oldest == NULL || offered->used < oldest->used)) {
                oldest = offered;
            }
        }
        if (oldest == NULL || !recall(endpoint, oldest)) {
            return false;
        }
    }
    if (loans->offered_count < loans->offered_room) {
        return true;
    }
    room = loans->offered_room == 0 ? 4 : 2 * loans->offered_room;
    grown = realloc(loans->offered, room * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    loans->offered = grown;
    loans->offered_room = room;
    return true;
}

static tmsg_status_t offer_segment(tmsg_endpoint_t *endpoint,
                                   tmsg_shareable_t *segment, bool is_copy)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    uint8_t frame[TMSG_SEGMENT_FRAME_BYTES];
    tmsg_status_t status;

    if (!make_room_to_offer(endpoint)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the peer has as many segments as it may have");
    }
    tmsg_put_le(frame, loans->last_number + 1, 4);
    tmsg_put_le(frame + 4, tmsg_shareable_bytes(segment), 8);
    status = tmsg_link_ops.put_fd(endpoint, TMSG_FRAME_SEGMENT, frame,
                                  sizeof(frame), tmsg_shareable_fd(segment));
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_shareable_hold(segment);
    loans->offered[loans->offered_count++] = (tmsg_offered_t){
        .number = ++loans->last_number,
        .segment = segment,
        .is_copy = is_copy,
        .used = loans->clock,
        .offered_ns = tmsg_now_ns(),
    };
    tmsg_control_ring(endpoint, TMSG_RING_WORD_LOOK);
    tmsg_lender_tick(endpoint->worker->paths.lender);
    return TMSG_OK;
}

/* Returns whether the peer has owed an answer for long. */
static bool is_late(const tmsg_endpoint_t *endpoint,
                    const tmsg_offered_t *offered, uint64_t now_ns)
{
    uint64_t most_ns = tmsg_context_peer_timeout_ms(endpoint->worker->context) *
                       UINT64_C(1000000);

    return offered->state == TMSG_SEGMENT_OFFERED &&
           now_ns - offered->offered_ns >= most_ns;
}

/* Each segment that the peer does not answer about keeps its memory: nobody
 * knows whether the peer has it. Those that were wanted at `but` count not. */
static bool may_offer(const tmsg_endpoint_t *endpoint, uint64_t but,
                      const char **why_p)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    uint64_t now_ns = tmsg_now_ns();
    unsigned unanswered = 0;

    *why_p = "the peer does not answer about a segment";
    for (unsigned i = 0; loans != NULL && i < loans->offered_count; i++) {
        const tmsg_offered_t *offered = &loans->offered[i];

        if (is_late(endpoint, offered, now_ns)) {
            return false;
        }
        unanswered +=
            offered->state == TMSG_SEGMENT_OFFERED && offered->used != but;
    }
    *why_p = "the peer has yet to answer about many segments";
    return unanswered < UNANSWERED_MOST;
}

bool tmsg_loans_may_offer(const tmsg_endpoint_t *endpoint, const char **why_p)
{
    return may_offer(endpoint, 0, why_p);
}

void tmsg_loans_look_late(tmsg_endpoint_t *endpoint)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    uint64_t now_ns = tmsg_now_ns();

    for (unsigned i = 0; i < loans->offered_count; i++) {
        if (is_late(endpoint, &loans->offered[i], now_ns)) {
            tmsg_worker_chore(endpoint->worker, endpoint);
            return;
        }
    }
}

/* Returns whether the peer may be lent what the lending has at all. */
static tmsg_status_t check_lendable(tmsg_endpoint_t *endpoint,
                                    const tmsg_lending_t *lending)
{
    if (lending->copy != NULL &&
        !tmsg_copies_may_have(lending->copy, endpoint)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the copy is one for others");
    }
    tmsg_loans_watch(endpoint);
    if (!tmsg_orphans_have_room(endpoint)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "too much was not given back by connections that "
                              "have ended");
    }
    return TMSG_OK;
}

/* Notes that the segments are wanted now, and writes the numbers by which the
 * peer knows them; 0: it was not offered that one. Returns whether it has taken
 * all of them. */
static bool want_segments(tmsg_loans_t *loans, const tmsg_lending_t *lending,
                          uint32_t *numbers)
{
    bool taken = true;

    loans->clock++;
    for (unsigned i = 0; i < lending->count; i++) {
        tmsg_offered_t *offered = find_offered(loans, lending->segments[i]);

        numbers[i] = 0;
        if (offered != NULL) {
            offered->used = loans->clock;
            numbers[i] = offered->number;
        }
        taken &= offered != NULL && offered->state == TMSG_SEGMENT_TAKEN;
    }
    return taken;
}

/* Offers those of the segments that have no number. */
static tmsg_status_t offer_others(tmsg_endpoint_t *endpoint,
                                  const tmsg_lending_t *lending,
                                  const uint32_t *numbers)
{
    bool is_copy = lending->copy != NULL && !lending->copy->frozen;
    const char *why;
    tmsg_status_t status = TMSG_OK;

    if (!may_offer(endpoint, endpoint->paths.loans->clock, &why)) {
        return tmsg_error_set(TMSG_ERR_BUSY, "%s", why);
    }
    for (unsigned i = 0; i < lending->count && status == TMSG_OK; i++) {
        if (numbers[i] == 0) {
            status = offer_segment(endpoint, lending->segments[i], is_copy);
        }
    }
    return status == TMSG_OK ? TMSG_IN_PROGRESS : status;
}

tmsg_status_t tmsg_lending_offer(tmsg_endpoint_t *endpoint,
                                 const tmsg_lending_t *lending,
                                 tmsg_lent_place_t *places)
{
    tmsg_loans_t *loans = tmsg_loans_of(endpoint);
    uint32_t numbers[TMSG_LENDING_SEGMENTS];
    tmsg_status_t status = loans == NULL ? tmsg_error_memory("loans")
                                         : check_lendable(endpoint, lending);

    if (status != TMSG_OK) {
        return status;
    }
    if (!want_segments(loans, lending, numbers)) {
        return offer_others(endpoint, lending, numbers);
    }
    for (size_t i = 0; i < lending->tensors; i++) {
        const tmsg_lent_place_t *place = &lending->places[i];

        places[i] =
            place->segment == TMSG_NO_SEGMENT
                ? (tmsg_lent_place_t){0}
                : (tmsg_lent_place_t){numbers[place->segment], place->offset};
    }
    return TMSG_OK;
}

static void count_loan(tmsg_loans_t *loans, const tmsg_lending_t *lending,
                       int more)
{
    for (unsigned i = 0; i < lending->count; i++) {
        tmsg_offered_t *offered = find_offered(loans, lending->segments[i]);

        if (offered != NULL) {
            offered->loans += (unsigned)more;
        }
    }
}

tmsg_status_t tmsg_loan_begin(tmsg_endpoint_t *endpoint, uint32_t token,
                              tmsg_lending_t *lending, tmsg_loan_hold_t *hold,
                              uint64_t bytes)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    tmsg_loan_out_t *loan = malloc(sizeof(*loan));

    if (loan != NULL && loans->orphans == NULL) {
        loans->orphans = calloc(1, sizeof(*loans->orphans));
    }
    if (loan == NULL || loans->orphans == NULL) {
        free(loan);
        return tmsg_error_memory("a loan");
    }
    *loan = (tmsg_loan_out_t){.token = token, .lending = lending, .hold = hold};
    tmsg_lending_hold(lending);
    if (hold != NULL) {
        hold->refs++;
    }
    for (unsigned i = 0; lending->copy == NULL && i < lending->count; i++) {
        tmsg_shareable_lend(lending->segments[i]);
    }
    count_loan(loans, lending, 1);
    if (loans->out.count > 0 && endpoint->fastboxes.in == NULL) {
        /* Some may have been given back: a copy that is used again soon is in
         * the cache. */
        tmsg_link_ops.look(endpoint);
    }
    tmsg_list_push(&loans->out, &loan->node);
    loans->noted[0] = '\0';
    loans->copied = lending->why;
    endpoint->stats.sent_by_loan++;
    endpoint->stats.sent_loan_bytes += bytes;
    return TMSG_OK;
}

void tmsg_loan_out_free(tmsg_loan_out_t *loan, bool in_order)
{
    tmsg_lending_t *lending = loan->lending;

    if (lending->copy != NULL) {
        lending->copy->spoiled |= !in_order;
    }
    for (unsigned i = 0; lending->copy == NULL && i < lending->count; i++) {
        tmsg_shareable_return(lending->segments[i]);
    }
    tmsg_lending_drop(lending);
    if (loan->hold != NULL) {
        tmsg_loan_hold_drop(loan->hold);
    }
    free(loan);
}

static tmsg_offered_t *find_number(const tmsg_loans_t *loans, uint32_t number)
{
    for (unsigned i = 0; loans != NULL && i < loans->offered_count; i++) {
        if (loans->offered[i].number == number) {
            return &loans->offered[i];
        }
    }
    return NULL;
}

/* Returns the segment that the peer answers, or NULL: it was not offered. */
static tmsg_offered_t *find_asked(const tmsg_endpoint_t *endpoint,
                                  const uint8_t *data, size_t bytes)
{
    tmsg_offered_t *offered = bytes < 4
                                  ? NULL
                                  : find_number(endpoint->paths.loans,
                                                (uint32_t)tmsg_get_le(data, 4));

    if (offered == NULL || offered->state != TMSG_SEGMENT_OFFERED) {
        (void)tmsg_error_set(TMSG_ERR_MALFORMED,
                             "an answer about a segment that was not offered");
        return NULL;
    }
    return offered;
}

tmsg_status_t tmsg_loans_taken(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes)
{
    tmsg_offered_t *offered = find_asked(endpoint, data, bytes);

    if (offered == NULL) {
        return TMSG_ERR_MALFORMED;
    }
    offered->state = TMSG_SEGMENT_TAKEN;
    /* It may be one that nobody wants any more. */
    tmsg_loans_forget_freed(endpoint, NULL);
    tmsg_copies_sweep(endpoint->worker);
    tmsg_worker_chore(endpoint->worker, endpoint);
    return TMSG_OK;
}

tmsg_status_t tmsg_loans_refused(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    tmsg_offered_t *offered = find_asked(endpoint, data, bytes);

    if (offered == NULL) {
        return TMSG_ERR_MALFORMED;
    }
    tmsg_shown_format(loans->why, sizeof(loans->why),
                      "the peer refused a segment: %.*s", (int)(bytes - 4),
                      (const char *)data + 4);
    loans->refused_until_ns = tmsg_now_ns() + REFUSED_NS;
    forget_offered(loans, offered);
    tmsg_copies_sweep(endpoint->worker);
    tmsg_worker_chore(endpoint->worker, endpoint);
    return TMSG_OK;
}

static tmsg_loan_out_t *find_loan(const tmsg_loans_t *loans, uint64_t token)
{
    for (tmsg_node_t *node = loans == NULL ? NULL : loans->out.head;
         node != NULL; node = node->next) {
        tmsg_loan_out_t *loan = TMSG_CONTAINER_OF(node, tmsg_loan_out_t, node);

        if (loan->token == token) {
            return loan;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_loans_back(tmsg_endpoint_t *endpoint, const uint8_t *data,
                              size_t bytes)
{
    tmsg_loans_t *loans = endpoint->paths.loans;

    if (bytes == 0 || bytes % 8 != 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "loans given back by %zu bytes", bytes);
    }
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t token = tmsg_get_le(data + i, 8);
        tmsg_loan_out_t *loan = find_loan(loans, token);

        if (loan == NULL) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "message %llu is given back, which is not "
                                  "lent",
                                  (unsigned long long)token);
        }
        tmsg_list_remove(&loans->out, &loan->node);
        count_loan(loans, loan->lending, -1);
        tmsg_loan_out_free(loan, true);
    }
    tmsg_loans_forget_freed(endpoint, NULL);
    return TMSG_OK;
}

/* By UCX others may speak under the name of the peer. Into a fast box nobody
 * else writes. */
tmsg_ucx_status_t tmsg_loan_back_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint =
        arrival->by_fastbox ? tmsg_control_receiver(arrival) : NULL;

    if (endpoint == NULL) {
        return TMSG_UCX_OK;
    }
    endpoint->stats.received_by_fastbox--; /* it is no message */
    if (tmsg_loans_back(endpoint, arrival->body, arrival->head.body_bytes) !=
        TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, tmsg_error_message());
    }
    return TMSG_UCX_OK;
}

/* Returns whether the body lies in the header, as that of every LOAN_BACK does.
 * The header does not bound the length of another body. */
static bool is_whole(const tmsg_preamble_t *head)
{
    return head->channel == 0 &&
           (head->flags & (TMSG_HEADER_SPILLED | TMSG_HEADER_READ)) == 0;
}

/* Hears what lies in a fast box, if it gives loans back; *heard_p says whether
 * it does. A malformed message is left to dispatch, which refuses it. */
static tmsg_status_t hear(tmsg_endpoint_t *endpoint,
                          const tmsg_fastbox_message_t *message, bool *heard_p)
{
    tmsg_preamble_t head;
    tmsg_status_t status =
        tmsg_preamble_decode(message->header, message->header_bytes, &head);

    *heard_p = status == TMSG_OK && head.kind == TMSG_KIND_LOAN_BACK &&
               head.endpoint_id == endpoint->id && is_whole(&head);
    return *heard_p ? tmsg_loans_back(endpoint, message->header + head.bytes,
                                      head.body_bytes)
                    : status;
}

void tmsg_loans_hear(tmsg_endpoint_t *endpoint)
{
    tmsg_fastbox_message_t message;
    bool heard = endpoint->fastboxes.in != NULL;

    while (heard && tmsg_loans_are_out(endpoint) &&
           tmsg_fastboxes_next(endpoint, &message)) {
        if (hear(endpoint, &message, &heard) != TMSG_OK && heard) {
            tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                                tmsg_error_message());
        }
        if (heard) {
            tmsg_fastboxes_take(endpoint);
        }
    }
}

void tmsg_loans_take_back(tmsg_endpoint_t *endpoint)
{
    tmsg_fastbox_t *fastbox = endpoint->fastboxes.in;
    tmsg_fastbox_message_t message;
    bool heard;

    /* What else lies there is nobody's any more. */
    while (fastbox != NULL && tmsg_loans_are_out(endpoint) &&
           tmsg_fastbox_look(fastbox, &message) == TMSG_FASTBOX_FULL &&
           hear(endpoint, &message, &heard) == TMSG_OK) {
        tmsg_fastbox_take(fastbox);
    }
}

void tmsg_loans_end_out(tmsg_endpoint_t *endpoint, tmsg_loans_t *loans)
{
    tmsg_orphans_t *orphans = loans->orphans;

    while (loans->out.head != NULL) {
        tmsg_loan_out_t *loan = TMSG_CONTAINER_OF(tmsg_list_pop(&loans->out),
                                                  tmsg_loan_out_t, node);

        tmsg_list_push(&orphans->loans, &loan->node);
    }
    if (orphans != NULL && orphans->loans.count > 0) {
        orphans->worker = endpoint->worker;
        orphans->process = loans->process;
        orphans->pid = loans->pid;
        tmsg_orphans_begin(orphans);
    } else {
        free(orphans);
        if (loans->process >= 0) {
            close(loans->process);
        }
    }
    while (loans->offered_count > 0) {
        forget_offered(loans, &loans->offered[0]);
    }
    free(loans->offered);
    tmsg_copies_sweep(endpoint->worker);
}
