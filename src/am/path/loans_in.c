/* SPDX-License-Identifier: BSD-3-Clause */
/* The borrower's part of loans. */
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/link_ops.h"
#include "am/net/loop.h"
#include "am/net/unwanted.h"
#include "am/path/fastboxes.h"
#include "am/path/loans_struct.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"
#include "serialize/lent_places.h"

#define TOKENS_MOST 512        /* of one frame */
#define TOKENS_MOST_FASTBOX 32 /* of one message by a fast box */
/* A segment is searched for holes with the lock held, 15 ms a GiB. A connection
 * has this share of it, and may be so far ahead. */
#define SEARCHED_BYTES_A_NS 4
#define SEARCHED_AHEAD_NS 4000000000ULL

static void free_borrowed(tmsg_borrowed_segment_t *segment)
{
    if (tmsg_refs_drop(&segment->refs)) {
        tmsg_lent_close(&segment->borrowed);
        free(segment);
    }
}

static void free_borrower(tmsg_borrower_t *borrower)
{
    if (tmsg_refs_drop(&borrower->refs)) {
        tmsg_returns_drop(borrower->returns);
        pthread_mutex_destroy(&borrower->lock);
        free(borrower);
    }
}

static tmsg_borrower_t *borrower_of(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans = tmsg_loans_of(endpoint);
    tmsg_borrower_t *borrower;

    if (loans == NULL || loans->borrower != NULL) {
        return loans == NULL ? NULL : loans->borrower;
    }
    borrower = calloc(1, sizeof(*borrower));
    if (borrower == NULL) {
        return NULL;
    }
    tmsg_refs_init(&borrower->refs, 1);
    pthread_mutex_init(&borrower->lock, NULL);
    borrower->returns = endpoint->worker->paths.lender->returns;
    tmsg_refs_take(&borrower->returns->refs);
    loans->borrower = borrower;
    return borrower;
}

static bool borrows(const tmsg_endpoint_t *endpoint)
{
    return (endpoint->worker->flags & TMSG_WORKER_BORROW) ||
           endpoint->paths.asks_loans;
}

void tmsg_loans_ask(tmsg_endpoint_t *endpoint)
{
    endpoint->paths.asks_loans = true;
}

void tmsg_loans_ask_as(tmsg_endpoint_t *heir, const tmsg_endpoint_t *old)
{
    heir->paths.asks_loans = old->paths.asks_loans;
}

/* Returns whether a segment may be borrowed, and makes room for it. */
static tmsg_status_t make_place(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans;

    if (!borrows(endpoint)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "this side does not borrow");
    }
    if (borrower_of(endpoint) == NULL) {
        return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                              "this side has no memory or no descriptor left "
                              "for loans");
    }
    loans = endpoint->paths.loans;
    if (loans->borrowed_count >= TMSG_BORROWED_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%d segments are borrowed already",
                              TMSG_BORROWED_MOST);
    }
    if (loans->borrowed == NULL) {
        loans->borrowed = calloc(TMSG_BORROWED_MOST, sizeof(*loans->borrowed));
    }
    return loans->borrowed == NULL
               ? tmsg_error_memory("a segment that is borrowed")
               : TMSG_OK;
}

/* Returns whether the file may be looked at. If it came again and again, to map
 * and search it would cost this side alone. */
static tmsg_status_t take_search(tmsg_loans_t *loans, uint64_t bytes, int fd)
{
    uint64_t inode = fd < 0 ? 0 : tmsg_lent_inode(fd);
    uint64_t now = tmsg_now_ns();

    for (unsigned i = 0; inode != 0 && i < loans->borrowed_count; i++) {
        if (loans->borrowed[i]->borrowed.inode == inode) {
            return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                                  "this memory is borrowed already");
        }
    }
    if (loans->searched_ns < now) {
        loans->searched_ns = now;
    }
    if (loans->searched_ns - now > SEARCHED_AHEAD_NS) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "too many bytes were offered just now");
    }
    loans->searched_ns += bytes / SEARCHED_BYTES_A_NS;
    return TMSG_OK;
}

/* Takes the descriptor over. */
static tmsg_status_t open_segment(tmsg_endpoint_t *endpoint, uint32_t number,
                                  uint64_t bytes, int fd)
{
    tmsg_borrowed_segment_t *segment = NULL;
    tmsg_status_t status = make_place(endpoint);
    tmsg_loans_t *loans = endpoint->paths.loans;

    if (status == TMSG_OK) {
        status = take_search(loans, bytes, fd);
    }
    if (status == TMSG_OK) {
        segment = calloc(1, sizeof(*segment));
        status = segment == NULL
                     ? tmsg_error_memory("a segment that is borrowed")
                     : TMSG_OK;
    }
    if (status != TMSG_OK) {
        tmsg_unwanted_close(fd);
        return status;
    }
    status = tmsg_lent_open(&segment->borrowed, fd, (size_t)bytes);
    if (status != TMSG_OK) {
        free(segment);
        return status;
    }
    tmsg_refs_init(&segment->refs, 1);
    segment->number = number;
    loans->borrowed[loans->borrowed_count++] = segment;
    loans->borrowed_bytes += bytes;
    return TMSG_OK;
}

tmsg_status_t tmsg_loans_segment(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes, int fd)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    uint32_t last = loans == NULL ? 0 : loans->borrowed_last;
    uint8_t answer[4 + TMSG_LOANS_WORDS_BYTES];
    size_t words = 0;
    uint32_t number;
    tmsg_status_t status;

    if (bytes != TMSG_SEGMENT_FRAME_BYTES || tmsg_get_le(data, 4) <= last) {
        tmsg_unwanted_close(fd);
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a segment without a number of its own");
    }
    number = (uint32_t)tmsg_get_le(data, 4);
    status = open_segment(endpoint, number, tmsg_get_le(data + 4, 8), fd);
    if (status == TMSG_ERR_MALFORMED && tmsg_unwanted_is_full()) {
        return status; /* it may go on for ever */
    }
    if (endpoint->paths.loans != NULL) {
        endpoint->paths.loans->borrowed_last = number;
    }
    tmsg_put_le(answer, number, 4);
    if (status != TMSG_OK) {
        words = strnlen(tmsg_error_message(), TMSG_LOANS_WORDS_BYTES);
        memcpy(answer + 4, tmsg_error_message(), words);
    }
    status = tmsg_link_ops.put(endpoint,
                               status == TMSG_OK ? TMSG_FRAME_SEGMENT_TAKEN
                                                 : TMSG_FRAME_SEGMENT_REFUSED,
                               answer, 4 + words);
    tmsg_control_ring(endpoint, TMSG_RING_WORD_LOOK);
    return status;
}

static unsigned find_borrowed(const tmsg_loans_t *loans, uint32_t number)
{
    unsigned i = 0;

    while (i < loans->borrowed_count && loans->borrowed[i]->number != number) {
        i++;
    }
    return i;
}

tmsg_status_t tmsg_loans_gone(tmsg_endpoint_t *endpoint, const uint8_t *data,
                              size_t bytes)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    unsigned i = loans == NULL || bytes != 4
                     ? 0
                     : find_borrowed(loans, (uint32_t)tmsg_get_le(data, 4));

    if (loans == NULL || bytes != 4 || i == loans->borrowed_count) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED,
            "the peer withdraws a segment that was not taken");
    }
    loans->borrowed_bytes -= loans->borrowed[i]->borrowed.bytes;
    free_borrowed(loans->borrowed[i]);
    loans->borrowed[i] = loans->borrowed[--loans->borrowed_count];
    return TMSG_OK;
}

tmsg_status_t tmsg_loan_arrived(tmsg_endpoint_t *endpoint, uint32_t token,
                                bool asked, tmsg_loan_in_t **loan_p)
{
    tmsg_borrower_t *borrower;
    tmsg_loan_in_t *loan;

    if (!(endpoint->worker->flags & TMSG_WORKER_BORROW) &&
        !(asked && endpoint->paths.asks_loans)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a loan to a side that does not borrow");
    }
    borrower = borrower_of(endpoint);
    loan = borrower == NULL ? NULL : calloc(1, sizeof(*loan));
    if (loan == NULL) {
        return tmsg_error_memory("a loan");
    }
    loan->borrower = borrower;
    tmsg_refs_take(&borrower->refs);
    borrower->loans++;
    endpoint->worker->paths.lender->borrowed++;
    endpoint->worker->seldom |= TMSG_SELDOM_LOANS;
    loan->token = token;
    *loan_p = loan;
    endpoint->stats.received_by_loan++;
    return TMSG_OK;
}

/* Returns the loan's segment of that number, and holds it once. NULL: there is
 * none, or the loan has too many. */
static tmsg_borrowed_segment_t *
take_segment(tmsg_loan_in_t *loan, const tmsg_loans_t *loans, uint32_t number)
{
    unsigned i;

    for (i = 0; i < loan->count; i++) {
        if (loan->segments[i]->number == number) {
            return loan->segments[i];
        }
    }
    i = find_borrowed(loans, number);
    if (i == loans->borrowed_count || loan->count == TMSG_LENDING_SEGMENTS) {
        return NULL;
    }
    tmsg_refs_take(&loans->borrowed[i]->refs);
    loan->segments[loan->count++] = loans->borrowed[i];
    return loans->borrowed[i];
}

/* Returns what is wrong with the place of a tensor, or NULL and the place. */
static const char *find_place(tmsg_loan_in_t *loan, const tmsg_loans_t *loans,
                              const tmsg_map_entry_t *entry,
                              tmsg_lent_place_t place, const uint8_t **at_p)
{
    tmsg_borrowed_segment_t *segment;
    uint64_t room;

    if (!tmsg_map_entry_is_on_host(entry)) {
        return "the memory of a device is not lent";
    }
    segment = take_segment(loan, loans, place.segment);
    if (segment == NULL) {
        return "it lies in no segment that was taken";
    }
    room = segment->borrowed.bytes;
    if (place.offset > room || entry->bytes > room - place.offset) {
        return "it lies beyond the end of its segment";
    }
    if (place.offset % tmsg_layout_alignment(entry->tensor.dtype) != 0) {
        return "it is not aligned";
    }
    *at_p = segment->borrowed.memory + place.offset;
    return NULL;
}

/* Returns whether the tensors have no more bytes than their segments: the work
 * that a message costs here is bounded by what its sender lends. */
static bool is_within(const tmsg_loan_in_t *loan, uint64_t bytes)
{
    uint64_t room = 0;

    for (unsigned i = 0; i < loan->count; i++) {
        room += loan->segments[i]->borrowed.bytes;
    }
    return bytes <= room;
}

tmsg_status_t tmsg_loan_find(tmsg_endpoint_t *endpoint, tmsg_loan_in_t *loan,
                             const tmsg_map_t *map,
                             const tmsg_lent_places_t *lent)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_cursor_t cursor = tmsg_lent_places_begin(lent);
    tmsg_status_t status = tmsg_lent_places_check(lent, map);
    uint64_t bytes = 0;

    if (status != TMSG_OK) {
        return status;
    }
    loan->places = calloc(lent->count, sizeof(*loan->places));
    if (loan->places == NULL) {
        return tmsg_error_memory("the places of a loan");
    }
    for (size_t i = 0; i < lent->count; i++) {
        tmsg_lent_place_t place = tmsg_lent_places_next(&cursor);
        const char *wrong =
            entries[i].bytes == 0
                ? NULL
                : find_place(loan, loans, &entries[i], place, &loan->places[i]);

        if (wrong != NULL) {
            return tmsg_error_set(
                TMSG_ERR_MALFORMED, "tensor '%s' of a loan: %s",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text,
                wrong);
        }
        bytes += entries[i].bytes;
    }
    return is_within(loan, bytes)
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_MALFORMED,
                                "the tensors of a loan have more bytes than "
                                "its segments");
}

const uint8_t *tmsg_loan_at(const tmsg_loan_in_t *loan, size_t index)
{
    return loan->places[index];
}

static void free_loan(tmsg_loan_in_t *loan)
{
    free_borrower(loan->borrower);
    free(loan);
}

static void tell_worker(tmsg_returns_t *returns)
{
    atomic_store(&returns->waiting, true);
    if (atomic_load(&returns->asleep)) {
        tmsg_loop_signal(returns->fd);
    }
}

void tmsg_loan_end(tmsg_loan_in_t *loan)
{
    tmsg_borrower_t *borrower = loan->borrower;
    bool first = false, over;

    for (unsigned i = 0; i < loan->count; i++) {
        free_borrowed(loan->segments[i]);
    }
    free(loan->places);
    loan->places = NULL;
    loan->count = 0;
    pthread_mutex_lock(&borrower->lock);
    over = borrower->over;
    if (!over) {
        first = borrower->returned.count == 0;
        tmsg_list_push(&borrower->returned, &loan->node);
        if (first) { /* under the lock: the worker is there */
            tell_worker(borrower->returns);
        }
    }
    pthread_mutex_unlock(&borrower->lock);
    if (over) {
        free_loan(loan);
    }
}

static tmsg_list_t take_returned(tmsg_borrower_t *borrower)
{
    tmsg_list_t returned;

    pthread_mutex_lock(&borrower->lock);
    returned = borrower->returned;
    borrower->returned = (tmsg_list_t){0};
    pthread_mutex_unlock(&borrower->lock);
    return returned;
}

static void put_back(tmsg_borrower_t *borrower, tmsg_list_t *returned)
{
    pthread_mutex_lock(&borrower->lock);
    while (returned->head != NULL) {
        tmsg_list_push(&borrower->returned, tmsg_list_pop(returned));
    }
    pthread_mutex_unlock(&borrower->lock);
}

static void free_loans(tmsg_list_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free_loan(TMSG_CONTAINER_OF(tmsg_list_pop(list), tmsg_loan_in_t, node));
    }
}

/* Notes that loans are there no more. */
static void count_loans_out(tmsg_worker_t *worker, tmsg_borrower_t *borrower,
                            size_t count)
{
    tmsg_lender_t *lender = worker->paths.lender;

    borrower->loans -= count;
    lender->borrowed -= count;
    if (lender->borrowed == 0) {
        worker->seldom &= (uint8_t)~TMSG_SELDOM_LOANS;
    }
}

/* A peer that polls looks into its fast box first. Returns false if this cannot
 * be used now. */
static bool put_into_fastbox(tmsg_endpoint_t *endpoint, const uint8_t *tokens,
                             size_t bytes)
{
    uint8_t header[TMSG_PREAMBLE_BYTES + 8 * TOKENS_MOST_FASTBOX];
    const tmsg_preamble_t head = {.kind = TMSG_KIND_LOAN_BACK,
                                  .endpoint_id = endpoint->peer_id,
                                  .body_bytes = (uint32_t)bytes};
    size_t header_bytes = TMSG_PREAMBLE_BYTES + bytes;
    tmsg_fastbox_t *fastbox =
        endpoint->state == TMSG_EP_OPEN &&
                tmsg_fastboxes_are_for(endpoint, header_bytes, 0)
            ? tmsg_fastboxes_choose(endpoint)
            : NULL;

    if (fastbox == NULL) {
        return false;
    }
    tmsg_preamble_encode(&head, header);
    memcpy(header + TMSG_PREAMBLE_BYTES, tokens, bytes);
    (void)tmsg_fastbox_begin(fastbox, header_bytes, 0);
    tmsg_fastbox_write_header(fastbox, header);
    tmsg_fastboxes_put(endpoint, 0);
    endpoint->stats.sent_by_fastbox--; /* it is no message */
    return true;
}

static bool put_tokens(tmsg_endpoint_t *endpoint, const uint8_t *tokens,
                       size_t bytes, bool last)
{
    return (!last && bytes <= 8 * TOKENS_MOST_FASTBOX &&
            put_into_fastbox(endpoint, tokens, bytes)) ||
           tmsg_link_ops.put(endpoint, TMSG_FRAME_LOAN_BACK, tokens, bytes) ==
               TMSG_OK;
}

void tmsg_loans_give_back(tmsg_endpoint_t *endpoint, bool last)
{
    tmsg_borrower_t *borrower = endpoint->paths.loans->borrower;
    uint8_t tokens[8 * TOKENS_MOST];
    tmsg_list_t returned;

    if (borrower == NULL) {
        return;
    }
    returned = take_returned(borrower);
    while (returned.count > 0) {
        const tmsg_node_t *node = returned.head;
        size_t count = 0;

        for (; node != NULL && count < TOKENS_MOST; node = node->next) {
            tmsg_put_le(tokens + 8 * count++,
                        TMSG_CONTAINER_OF((tmsg_node_t *)(uintptr_t)node,
                                          tmsg_loan_in_t, node)
                            ->token,
                        8);
        }
        if (!put_tokens(endpoint, tokens, 8 * count, last)) {
            /* The peer does not read now; it is tried again. */
            put_back(borrower, &returned);
            tmsg_lender_tick(endpoint->worker->paths.lender);
            return;
        }
        count_loans_out(endpoint->worker, borrower, count);
        free_loans(&returned, count);
    }
}

void tmsg_loans_end_in(tmsg_worker_t *worker, tmsg_loans_t *loans)
{
    tmsg_borrower_t *borrower = loans->borrower;
    tmsg_list_t returned;

    for (unsigned i = 0; i < loans->borrowed_count; i++) {
        free_borrowed(loans->borrowed[i]);
    }
    free(loans->borrowed);
    if (borrower == NULL) {
        return;
    }
    pthread_mutex_lock(&borrower->lock);
    borrower->over = true;
    returned = borrower->returned;
    borrower->returned = (tmsg_list_t){0};
    pthread_mutex_unlock(&borrower->lock);
    count_loans_out(worker, borrower, borrower->loans);
    free_loans(&returned, returned.count);
    free_borrower(borrower);
}
