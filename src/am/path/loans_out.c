/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner's part of loans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/endpoint/link_ops.h"
#include "am/path/loans_struct.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"
#include "core/shown.h"
#include "core/tensor.h"

#define REFUSED_NS 1000000000ULL
#define SEGMENT_FRAME_BYTES 12
#define NO_SEGMENT TMSG_LENDING_SEGMENTS
/* A peer that has so many segments to answer about is offered no other. */
#define UNANSWERED_MOST TMSG_LENDING_SEGMENTS
/* So many bytes may lie before a tensor, or behind the last one of a segment.
 */
#define GAP_MOST 64

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
    unsigned count = 0;

    if (loans != NULL) {
        tmsg_loans_watch(endpoint);
        tmsg_orphans_add_copies(endpoint, &count, &bytes);
    }
    for (unsigned i = 0; loans != NULL && i < loans->offered_count; i++) {
        const tmsg_offered_t *offered = &loans->offered[i];

        if (offered->is_copy && offered->loans > 0) {
            bytes += tmsg_shareable_bytes(offered->segment);
            count++;
        }
    }
    return count >= TMSG_COPIES_MOST / 2 ||
           (count > 0 && bytes > TMSG_COPIES_BYTES_MOST / 2);
}

/* A part of a segment. */
typedef struct {
    uint32_t segment;
    uint64_t begin, end;
} stretch_t;

static int compare_stretches(const void *one, const void *other)
{
    const stretch_t *a = one, *b = other;

    if (a->segment != b->segment) {
        return a->segment < b->segment ? -1 : 1;
    }
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Returns whether the segments have nothing but these stretches and gaps that
 * align the next. A descriptor lends its whole segment. */
static bool are_covered(const tmsg_lending_t *lending, stretch_t *stretches,
                        size_t count)
{
    uint64_t end = 0;

    qsort(stretches, count, sizeof(*stretches), compare_stretches);
    for (size_t i = 0; i < count; i++) {
        const stretch_t *at = &stretches[i];

        if (at->begin > end + GAP_MOST) {
            return false;
        }
        end = at->end > end ? at->end : end;
        if (i + 1 == count || at->segment != stretches[i + 1].segment) {
            if (tmsg_shareable_bytes(lending->segments[at->segment]) >
                end + GAP_MOST) {
                return false;
            }
            end = 0;
        }
    }
    return true;
}

/* Returns whether the tensors have no more bytes than the segments. They have
 * more if several lie in the same memory: peers refuse such loans. */
static bool are_apart(const tmsg_lending_t *lending, const stretch_t *stretches,
                      size_t count)
{
    uint64_t bytes = 0, room = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += stretches[i].end - stretches[i].begin;
    }
    for (unsigned i = 0; i < lending->count; i++) {
        room += tmsg_shareable_bytes(lending->segments[i]);
    }
    return bytes <= room;
}

/* Returns the index of the segment in which the tensor lies, which the lending
 * holds. NO_SEGMENT: it lies in none, or there are too many. */
static uint32_t find_segment(tmsg_lending_t *lending,
                             const tmsg_map_entry_t *entry)
{
    const uint8_t *data = entry->tensor.data;
    tmsg_shareable_t *segment;

    for (uint32_t i = 0; i < lending->count; i++) {
        const uint8_t *memory = tmsg_shareable_memory(lending->segments[i]);
        uint64_t room = tmsg_shareable_bytes(lending->segments[i]);

        if (data >= memory && (uint64_t)(data - memory) <= room &&
            entry->bytes <= room - (uint64_t)(data - memory)) {
            return i;
        }
    }
    if (lending->count == TMSG_LENDING_SEGMENTS) {
        return NO_SEGMENT;
    }
    segment = tmsg_shareable_find(data, entry->bytes);
    if (segment == NULL) {
        return NO_SEGMENT;
    }
    lending->segments[lending->count] = segment;
    return lending->count++;
}

/* Finds where the tensors lie. False: they cannot be lent where they are. */
static bool find_places(tmsg_lending_t *lending, const tmsg_map_t *map,
                        stretch_t *stretches)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t count = 0;

    for (size_t i = 0; i < lending->tensors; i++) {
        const tmsg_map_entry_t *entry = &entries[i];
        tmsg_lent_place_t *place = &lending->places[i];

        *place = (tmsg_lent_place_t){.segment = NO_SEGMENT};
        if (entry->bytes == 0) {
            continue;
        }
        if (!tmsg_map_entry_is_on_host(entry) ||
            (tmsg_map_view(entry) == NULL &&
             !tmsg_tensor_is_dense(&entry->tensor))) {
            return false;
        }
        place->segment = find_segment(lending, entry);
        if (place->segment == NO_SEGMENT) {
            return false;
        }
        place->offset = (uint64_t)((const uint8_t *)entry->tensor.data -
                                   tmsg_shareable_memory(
                                       lending->segments[place->segment]));
        if (place->offset % tmsg_layout_alignment(entry->tensor.dtype) != 0) {
            return false;
        }
        stretches[count++] = (stretch_t){place->segment, place->offset,
                                         place->offset + entry->bytes};
    }
    return count > 0 && are_covered(lending, stretches, count) &&
           are_apart(lending, stretches, count);
}

static tmsg_lending_t *create_lending(const tmsg_map_t *map)
{
    size_t tensors = tmsg_map_size(map);
    tmsg_lending_t *lending =
        malloc(sizeof(*lending) + tensors * sizeof(*lending->places));

    if (lending != NULL) {
        *lending = (tmsg_lending_t){
            .refs = 1, .stamp = tmsg_map_stamp(map), .tensors = tensors};
    }
    return lending;
}

/* Returns whether the first tensor with bytes lies in a segment: the maps of
 * most applications lie in none. */
static bool may_be_lent(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_shareable_t *segment = NULL;

    for (size_t i = 0; i < tmsg_map_size(map) && segment == NULL; i++) {
        if (entries[i].bytes > 0) {
            segment = tmsg_map_entry_is_on_host(&entries[i])
                          ? tmsg_shareable_find(entries[i].tensor.data,
                                                entries[i].bytes)
                          : NULL;
            if (segment == NULL) {
                return false;
            }
        }
    }
    tmsg_shareable_drop(segment);
    return segment != NULL;
}

tmsg_lending_t *tmsg_lending_of(const tmsg_map_t *map)
{
    tmsg_lending_t *lending;
    stretch_t *stretches;

    if (!may_be_lent(map)) {
        return NULL;
    }
    lending = create_lending(map);
    stretches = malloc(tmsg_map_size(map) * sizeof(*stretches));
    if (lending != NULL &&
        (stretches == NULL || !find_places(lending, map, stretches))) {
        tmsg_lending_drop(lending);
        lending = NULL;
    }
    free(stretches);
    return lending;
}

/* Clears what an earlier message has left of `from` to `to`. */
static void clear_copy(tmsg_copy_segment_t *copy, uint64_t from, uint64_t to)
{
    if (to > copy->filled) {
        to = copy->filled;
    }
    if (from < to) {
        memset(tmsg_shareable_memory(copy->segment) + from, 0,
               (size_t)(to - from));
    }
}

/* Lays the tensors out in the copy of a lending. Without a copy the lending is
 * freed, and NULL returned. */
static tmsg_lending_t *lay_out_copy(tmsg_lending_t *lending,
                                    const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t offset = 0;

    if (lending->copy == NULL) {
        free(lending);
        return NULL;
    }
    lending->segments[0] = lending->copy->segment;
    lending->count = 1;
    for (size_t i = 0; i < lending->tensors; i++) {
        lending->places[i] = (tmsg_lent_place_t){.segment = NO_SEGMENT};
        if (entries[i].bytes > 0) {
            uint64_t end = offset;

            offset = tmsg_layout_next(offset, entries[i].tensor.dtype,
                                      entries[i].bytes);
            clear_copy(lending->copy, end, offset);
            lending->places[i] = (tmsg_lent_place_t){.offset = offset};
            offset += entries[i].bytes;
        }
    }
    clear_copy(lending->copy, offset, lending->copy->filled);
    lending->copy->filled = offset;
    return lending;
}

tmsg_lending_t *tmsg_lending_copy(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, uint64_t bytes,
                                  uint64_t group, const char **why_p)
{
    tmsg_lending_t *lending = create_lending(map);

    *why_p = "there is no memory for a copy to lend";
    if (lending == NULL) {
        return NULL;
    }
    lending->worker = endpoint->worker;
    lending->copy = tmsg_copies_take(endpoint, bytes, group, why_p);
    return lay_out_copy(lending, map);
}

tmsg_lending_t *tmsg_lending_draft(tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map, uint64_t bytes,
                                   const char **why_p)
{
    tmsg_lending_t *lending = create_lending(map);

    *why_p = "there is no memory for a copy to lend";
    if (lending == NULL) {
        return NULL;
    }
    lending->worker = endpoint->worker;
    lending->copy = tmsg_copies_draft(endpoint->worker, bytes, why_p);
    return lay_out_copy(lending, map);
}

tmsg_status_t tmsg_lending_freeze(tmsg_lending_t *lending)
{
    return tmsg_shareable_freeze(lending->copy->segment);
}

void tmsg_lending_leave(tmsg_lending_t *lending)
{
    if (lending != NULL && lending->refs > 1 && lending->copy != NULL) {
        tmsg_copies_leave(lending->worker, lending->copy);
    }
    tmsg_lending_drop(lending);
}

void tmsg_lending_hold(tmsg_lending_t *lending) { lending->refs++; }

void tmsg_lending_drop(tmsg_lending_t *lending)
{
    if (lending == NULL || --lending->refs > 0) {
        return;
    }
    if (lending->copy != NULL) {
        tmsg_copies_give(lending->worker, lending->copy);
    }
    for (unsigned i = 0; lending->copy == NULL && i < lending->count; i++) {
        tmsg_shareable_drop(lending->segments[i]);
    }
    free(lending);
}

bool tmsg_lending_is_copy(const tmsg_lending_t *lending)
{
    return lending->copy != NULL;
}

bool tmsg_lending_is_of(const tmsg_lending_t *lending, const tmsg_map_t *map)
{
    return lending->stamp == tmsg_map_stamp(map);
}

uint8_t *tmsg_lending_at(const tmsg_lending_t *lending, size_t index)
{
    const tmsg_lent_place_t *place = &lending->places[index];

    return place->segment == NO_SEGMENT
               ? NULL
               : tmsg_shareable_memory(lending->segments[place->segment]) +
                     place->offset;
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
    uint8_t frame[SEGMENT_FRAME_BYTES];
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

tmsg_status_t tmsg_lending_offer(tmsg_endpoint_t *endpoint,
                                 const tmsg_lending_t *lending,
                                 tmsg_lent_place_t *places)
{
    tmsg_loans_t *loans = tmsg_loans_of(endpoint);
    uint32_t numbers[TMSG_LENDING_SEGMENTS];
    unsigned taken_count = 0;
    const char *why;
    bool taken;

    if (loans == NULL) {
        return tmsg_error_memory("loans");
    }
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
    loans->clock++;
    for (unsigned i = 0; i < lending->count; i++) {
        tmsg_offered_t *offered = find_offered(loans, lending->segments[i]);

        if (offered != NULL) {
            offered->used = loans->clock;
            taken_count += offered->state == TMSG_SEGMENT_TAKEN;
        }
    }
    taken = taken_count == lending->count;
    if (!taken && !may_offer(endpoint, loans->clock, &why)) {
        return tmsg_error_set(TMSG_ERR_BUSY, "%s", why);
    }
    for (unsigned i = 0; i < lending->count; i++) {
        tmsg_offered_t *offered = find_offered(loans, lending->segments[i]);

        if (offered == NULL) {
            tmsg_status_t status =
                offer_segment(endpoint, lending->segments[i],
                              lending->copy != NULL && !lending->copy->frozen);

            if (status != TMSG_OK) {
                return status;
            }
        }
        numbers[i] = offered == NULL ? 0 : offered->number;
    }
    for (size_t i = 0; taken && i < lending->tensors; i++) {
        const tmsg_lent_place_t *place = &lending->places[i];

        places[i] =
            place->segment == NO_SEGMENT
                ? (tmsg_lent_place_t){0}
                : (tmsg_lent_place_t){numbers[place->segment], place->offset};
    }
    return taken ? TMSG_OK : TMSG_IN_PROGRESS;
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
    if (loans->out.count > 0) {
        /* Some may have been given back: a copy that is used again soon is in
         * the cache. */
        tmsg_link_ops.look(endpoint);
    }
    tmsg_list_push(&loans->out, &loan->node);
    loans->noted[0] = '\0';
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
