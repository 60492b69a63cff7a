/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/loan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "am/control.h"
#include "am/fetch.h"
#include "am/lease.h"
#include "am/parts_layout.h"
#include "am/receive.h"
#include "core/bytes.h"
#include "core/error.h"

#define PLACES_MOST 64 /* of either side, in one call of the kernel's */

/* Bytes that a turn reads: what else has come waits meanwhile. Few, while small
 * messages pass by the same endpoint. */
#define TURN_BYTES ((size_t)64 * 1024)
#define LONE_TURN_BYTES ((size_t)1024 * 1024)
#define CALL_BYTES ((size_t)4 * 1024)     /* that a call counts for at least */
#define TURNS_BYTES ((size_t)1024 * 1024) /* of all endpoints at a time */

/* What is lent to an endpoint. */
typedef struct tmsg_loans {
    tmsg_endpoint_t *endpoint;
    tmsg_node_t node;     /* worker's loans, while there are messages */
    tmsg_list_t messages; /* that are read by turns, one of each channel, */
    tmsg_list_t waiting;  /* and those behind them */
    bool known;           /* its process is the one that holds the lease */
    tmsg_others_t others; /* small messages of the endpoint */
    const tmsg_message_t *cached; /* whose places these are, */
    uint32_t first;               /* from that on, */
    uint32_t count;               /* so many */
    uint8_t place[PLACES_MOST * TMSG_LOAN_PLACE_BYTES];
} tmsg_loans_t;

/* Without a socket nobody would tell who waits for a loan that its sender is
 * gone. */
static bool may_be_made(const tmsg_endpoint_t *endpoint)
{
    return endpoint->carrier == TMSG_CARRIER_SHM && endpoint->ucx != NULL &&
           endpoint->peer_lease != 0 && endpoint->link.fd >= 0 &&
           endpoint->ucx->hello.features & endpoint->peer_hello.features &
               TMSG_FEATURE_LOANS;
}

bool tmsg_loans_are_made(const tmsg_endpoint_t *endpoint)
{
    return may_be_made(endpoint) && !endpoint->unreadable;
}

void tmsg_loan_add(tmsg_loan_list_t *list, const ucp_dt_iov_t *places,
                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t begin = (uint64_t)(uintptr_t)places[i].buffer;
        uint8_t *last;

        if (places[i].length == 0) {
            continue;
        }
        if (list->count > 0 && begin == list->end) {
            last = list->at + (list->count - 1) * TMSG_LOAN_PLACE_BYTES;
            tmsg_put_le(last + 8, tmsg_get_le(last + 8, 8) + places[i].length,
                        8);
        } else {
            last = list->at + list->count * TMSG_LOAN_PLACE_BYTES;
            tmsg_put_le(last, begin, 8);
            tmsg_put_le(last + 8, places[i].length, 8);
            list->count++;
        }
        list->end = begin + places[i].length;
    }
}

static tmsg_message_t *message_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, queue);
}

static tmsg_message_t *find(const tmsg_list_t *list,
                            const tmsg_channel_t *channel)
{
    for (tmsg_node_t *node = list->head; node != NULL; node = node->next) {
        if (message_of(node)->channel == channel) {
            return message_of(node);
        }
    }
    return NULL;
}

/* One of them is not read any further: the next of its channel is. */
static void leave(tmsg_loans_t *loans, tmsg_message_t *message,
                  ucs_status_t ucs)
{
    tmsg_message_t *next = find(&loans->waiting, message->channel);

    if (find(&loans->messages, message->channel) != message) {
        tmsg_list_remove(&loans->waiting, &message->queue);
        next = NULL;
    } else {
        tmsg_list_remove(&loans->messages, &message->queue);
    }
    if (next != NULL) {
        tmsg_list_remove(&loans->waiting, &next->queue);
        tmsg_list_push(&loans->messages, &next->queue);
    }
    if (loans->cached == message) {
        loans->cached = NULL;
    }
    message->lent_parts = false;
    tmsg_message_fetched(message, ucs);
}

/* The sender has its memory back. */
static void answer(tmsg_loans_t *loans, tmsg_message_t *message, uint8_t how)
{
    if (!tmsg_endpoint_is_down(loans->endpoint)) {
        tmsg_control_pull(message->channel, message->head.message_id, how);
    }
    leave(loans, message, UCS_OK);
}

/* Where the kernel does not let us read, UCX shall say what that means. */
static void go_by_ucx(tmsg_loans_t *loans, tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = loans->endpoint;

    if (errno == EPERM || errno == ENOSYS) {
        endpoint->unreadable = true;
        snprintf(endpoint->lane_why, sizeof(endpoint->lane_why),
                 "none: the kernel forbids to read the peer's memory");
    }
    message->by_lane = false;
    answer(loans, message, TMSG_PULL_BY_UCX);
}

/* Or it has the connection behind it, and something else where its list was. */
static void lies(tmsg_loans_t *loans, tmsg_message_t *message)
{
    if (tmsg_lease_stands(loans->endpoint)) {
        tmsg_endpoint_break(loans->endpoint, TMSG_ERR_MALFORMED,
                            "a loan of fewer bytes than its message has");
    }
    leave(loans, message, UCS_ERR_CANCELED);
}

static ssize_t read_memory(const tmsg_loans_t *loans, const struct iovec *here,
                           size_t here_count, const struct iovec *there,
                           size_t there_count)
{
    return process_vm_readv((pid_t)loans->endpoint->peer_hello.pid, here,
                            here_count, there, there_count, 0);
}

/* Has the next places of its list at hand. False: they cannot be read, or there
 * are none. A peer is read whose process was proved to be it: the number it
 * gave might be another's. */
static bool have_places(tmsg_loans_t *loans, tmsg_message_t *message)
{
    const tmsg_loan_t *loan = &message->loan;
    uint32_t left = loan->places - loan->from;
    struct iovec here, there;

    if (loans->cached == message && loan->from - loans->first < loans->count) {
        return true;
    }
    loans->known = loans->known || tmsg_lease_stands(loans->endpoint);
    loans->cached = message;
    loans->first = loan->from;
    loans->count = left < PLACES_MOST ? left : PLACES_MOST;
    here = (struct iovec){loans->place, loans->count * TMSG_LOAN_PLACE_BYTES};
    there = (struct iovec){
        (void *)(uintptr_t)(loan->list +
                            (uint64_t)loan->from * TMSG_LOAN_PLACE_BYTES),
        here.iov_len};
    return loans->known && loans->count > 0 &&
           read_memory(loans, &here, 1, &there, 1) == (ssize_t)here.iov_len;
}

static const uint8_t *place_of(const tmsg_loans_t *loans, uint32_t i)
{
    return loans->place + (size_t)(i - loans->first) * TMSG_LOAN_PLACE_BYTES;
}

/* Ours that are written to next, of `most` bytes. */
static size_t list_here(const tmsg_message_t *message, size_t most,
                        struct iovec *here)
{
    uint64_t done = message->loan.to_done;
    size_t count = 0;
    ucp_dt_iov_t place;

    for (size_t i = message->loan.to; most > 0 && count < PLACES_MOST &&
                                      tmsg_parts_layout_at(message, i, &place);
         i++) {
        size_t bytes = place.length - (size_t)done;

        bytes = bytes < most ? bytes : most;
        here[count++] = (struct iovec){(uint8_t *)place.buffer + done, bytes};
        most -= bytes;
        done = 0;
    }
    return count;
}

/* The sender's that are read next, of those at hand; 0: one of them is none. */
static size_t list_there(const tmsg_loans_t *loans, const tmsg_loan_t *loan,
                         size_t most, struct iovec *there)
{
    uint64_t done = loan->from_done;
    size_t count = 0;

    for (uint32_t i = loan->from; most > 0 && i - loans->first < loans->count;
         i++) {
        uint64_t begin = tmsg_get_le(place_of(loans, i), 8);
        uint64_t bytes = tmsg_get_le(place_of(loans, i) + 8, 8);

        if (bytes == 0) {
            return 0;
        }
        bytes -= done;
        bytes = bytes < most ? bytes : most;
        there[count++] =
            (struct iovec){(void *)(uintptr_t)(begin + done), (size_t)bytes};
        most -= (size_t)bytes;
        done = 0;
    }
    return count;
}

/* So many were read. */
static void pass(const tmsg_loans_t *loans, tmsg_message_t *message,
                 size_t bytes)
{
    tmsg_loan_t *loan = &message->loan;
    ucp_dt_iov_t place;

    loan->left -= bytes < loan->left ? bytes : loan->left;
    loan->from_done += bytes;
    while (loan->from - loans->first < loans->count) {
        uint64_t length = tmsg_get_le(place_of(loans, loan->from) + 8, 8);

        if (length == 0 || loan->from_done < length) {
            break;
        }
        loan->from_done -= length;
        loan->from++;
    }
    loan->to_done += bytes;
    while (tmsg_parts_layout_at(message, loan->to, &place) &&
           loan->to_done >= place.length) {
        loan->to_done -= place.length;
        loan->to++;
    }
}

static bool is_whole(const tmsg_message_t *message)
{
    ucp_dt_iov_t place;

    return !tmsg_parts_layout_at(message, message->loan.to, &place);
}

/* Reads on in one of them, and lets it go with its last byte. Gives the bytes;
 * 0: it is over. */
static size_t read_some(tmsg_loans_t *loans, tmsg_message_t *message,
                        size_t most)
{
    struct iovec here[PLACES_MOST], there[PLACES_MOST];
    size_t here_count, there_count;
    ssize_t got;

    if (message->loan.from == message->loan.places) {
        lies(loans, message);
        return 0;
    }
    errno = 0;
    if (!have_places(loans, message)) {
        go_by_ucx(loans, message);
        return 0;
    }
    here_count = list_here(message, most, here);
    there_count = list_there(loans, &message->loan, most, there);
    if (there_count == 0) {
        lies(loans, message);
        return 0;
    }
    got = read_memory(loans, here, here_count, there, there_count);
    if (got <= 0) {
        go_by_ucx(loans, message);
        return 0;
    }
    pass(loans, message, (size_t)got);
    if (is_whole(message)) {
        tmsg_parts_layout_whole(message);
        answer(loans, message, TMSG_PULL_DONE);
    }
    return (size_t)got;
}

/* One that broke is not answered: it may be sent again. */
static void drop_unwanted(tmsg_loans_t *loans, const tmsg_list_t *list)
{
    tmsg_node_t *next, *node = list->head;

    for (; node != NULL; node = next) {
        tmsg_message_t *message = message_of(node);

        next = node->next;
        if (message->state == TMSG_RX_BROKEN) {
            leave(loans, message, UCS_OK);
        } else if (message->aborted || message->state != TMSG_RX_FETCHING) {
            answer(loans, message, TMSG_PULL_DONE);
        }
    }
}

/* Channels take turns. Gives what it took, in bytes. */
static size_t turn(tmsg_loans_t *loans)
{
    size_t most = tmsg_endpoint_is_alone(loans->endpoint, &loans->others)
                      ? LONE_TURN_BYTES
                      : TURN_BYTES;
    size_t taken = 0;

    drop_unwanted(loans, &loans->waiting);
    drop_unwanted(loans, &loans->messages);
    while (taken < most && loans->messages.count > 0) {
        tmsg_node_t *first = loans->messages.head;
        size_t some = read_some(loans, message_of(first), most - taken);

        taken += some > CALL_BYTES ? some : CALL_BYTES;
        if (taken >= most && loans->messages.head == first) {
            tmsg_list_push(&loans->messages, tmsg_list_pop(&loans->messages));
        }
    }
    return taken;
}

unsigned tmsg_loans_turn(tmsg_worker_t *worker)
{
    size_t count = worker->loans.count, taken = 0;
    unsigned busy = 0;

    worker->idle = 0; /* nobody only waits */
    for (; count > 0 && worker->loans.count > 0 && taken < TURNS_BYTES;
         count--) {
        tmsg_loans_t *loans = TMSG_CONTAINER_OF(tmsg_list_pop(&worker->loans),
                                                tmsg_loans_t, node);
        tmsg_endpoint_t *endpoint = loans->endpoint;

        tmsg_endpoint_hold(endpoint);
        taken += turn(loans);
        busy++;
        if (loans->messages.count > 0) {
            tmsg_list_push(&worker->loans, &loans->node);
        }
        tmsg_endpoint_drop(endpoint);
    }
    return busy;
}

void tmsg_loans_end(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans = endpoint->loans;

    if (loans == NULL) {
        return;
    }
    if (loans->messages.count > 0) {
        tmsg_list_remove(&endpoint->worker->loans, &loans->node);
    }
    while (loans->messages.count > 0) {
        leave(loans, message_of(loans->messages.head), UCS_ERR_CANCELED);
    }
    endpoint->loans = NULL;
    free(loans);
}

/* NULL: no memory. */
static tmsg_loans_t *loans_of(tmsg_endpoint_t *endpoint)
{
    if (endpoint->loans == NULL) {
        endpoint->loans = calloc(1, sizeof(*endpoint->loans));
        if (endpoint->loans != NULL) {
            endpoint->loans->endpoint = endpoint;
        }
    }
    return endpoint->loans;
}

static void take(tmsg_message_t *message, const uint8_t *body)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_loans_t *loans = loans_of(endpoint);

    if (loans == NULL) {
        message->by_lane = false;
        tmsg_control_pull(message->channel, message->head.message_id,
                          TMSG_PULL_BY_UCX);
        return;
    }
    message->loan = (tmsg_loan_t){
        .list = tmsg_get_le(body, 8),
        .places = (uint32_t)tmsg_get_le(body + 8, 4),
        .left = message->parts_bytes,
    };
    message->lent_parts = true;
    message->pending++;
    if (loans->messages.count == 0) {
        tmsg_list_push(&endpoint->worker->loans, &loans->node);
    }
    tmsg_list_push(find(&loans->messages, message->channel) == NULL
                       ? &loans->messages
                       : &loans->waiting,
                   &message->queue);
}

ucs_status_t tmsg_lent_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    const tmsg_preamble_t *head = &arrival->head;
    tmsg_channel_t *channel =
        endpoint == NULL ? NULL : tmsg_channel_find(endpoint, head->channel);
    tmsg_message_t *message =
        channel == NULL ? NULL : tmsg_message_find(channel, head->sequence);

    if (channel == NULL || head->body_bytes < TMSG_LENT_BYTES) {
        return UCS_OK;
    }
    if (!may_be_made(endpoint) ||
        (message != NULL && message->parts != NULL &&
         (message->lent_parts || tmsg_parts_layout_begun(message)))) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a loan that nobody asked for");
    } else if (message != NULL && tmsg_message_awaits_parts(message) &&
               message->head.message_id == head->message_id) {
        take(message, arrival->body);
    } else { /* it was given up meanwhile, here or there */
        tmsg_control_pull(channel, head->message_id, TMSG_PULL_DONE);
    }
    return UCS_OK;
}
