/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/message.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/path/loans.h"
#include "am/recv/consumer.h"
#include "am/recv/deliver.h"
#include "am/recv/fetch.h"
#include "am/recv/fragments_in.h"
#include "am/recv/in_place.h"
#include "am/recv/posted.h"
#include "am/recv/stage_in.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"
#include "memory/domain.h"

const tmsg_map_t *tmsg_message_map(const tmsg_message_t *message)
{
    return message->map;
}

tmsg_endpoint_t *tmsg_message_endpoint(const tmsg_message_t *message)
{
    return message->endpoint->face;
}

uint16_t tmsg_message_channel(const tmsg_message_t *message)
{
    return message->head.channel;
}

tmsg_status_t tmsg_message_header(const tmsg_message_t *message,
                                  const void **header_p, size_t *header_bytes_p)
{
    if (message->raw == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "the worker keeps no headers: it was made "
                              "without TMSG_WORKER_CAPTURE");
    }
    *header_p = message->raw;
    *header_bytes_p = (size_t)message->head.bytes + message->head.body_bytes;
    return TMSG_OK;
}

void tmsg_message_free_spare(tmsg_spare_t *spare)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(spare, tmsg_message_t, spare);

    tmsg_map_destroy(message->map);
    tmsg_budget_drop(message->budget);
    free(message->pieces);
    free(message->fragments_kept);
    tmsg_host_free(message->room);
    free(message);
}

static void keep_record(tmsg_message_t *message)
{
    tmsg_budget_t *budget = message->budget;

    message->by_template = 0;
    message->spare.bytes = sizeof(*message) + tmsg_map_memory(message->map) +
                           message->piece_room * sizeof(*message->pieces) +
                           message->room_bytes + tmsg_fragments_kept(message);
    tmsg_budget_keep(budget, tmsg_budget_messages(budget), &message->spare);
}

/* The thread that is inside the worker has the loan given back with the next
 * chores; others wake the worker. */
__attribute__((noinline)) static void end_loan(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    tmsg_loan_end(message->loan);
    message->loan = NULL;
    if (tmsg_budget_is_inside(message->budget) &&
        !tmsg_endpoint_is_down(endpoint)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

void tmsg_message_drop_loan(tmsg_message_t *message)
{
    /* Nothing that is pending reads a loan but copies to devices. */
    if (message->loan != NULL && message->stage == NULL &&
        message->state != TMSG_RX_DELIVERED) {
        end_loan(message);
    }
}

void tmsg_message_copied_loan(tmsg_message_t *message)
{
    if (message->loan != NULL && !message->views) {
        end_loan(message);
    }
}

int tmsg_message_is_lent(const tmsg_message_t *message)
{
    return message->loan != NULL && message->views;
}

/* Ends a message whose map is empty, or laid out. This touches nothing of the
 * worker, which may be gone. */
static void end_message(void *arg)
{
    tmsg_message_t *message = arg;

    tmsg_call_dropped(message);
    if (message->loan != NULL) {
        end_loan(message);
    }
    tmsg_message_drop_body(message);
    tmsg_fragments_forget(message);
    tmsg_stage_in_free(message);
    free(message->why);
    free(message->stream);
    free(message->checksums);
    free(message->raw);
    free(message->given_back);
    if (message->state == TMSG_RX_DELIVERED || message->by_template != 0) {
        tmsg_budget_discharge(message->budget, message->noted);
    } else {
        tmsg_budget_forget(message->budget, message->noted);
    }
    tmsg_budget_free(message->budget, &message->block);
    tmsg_fetch_take_back(message);
    tmsg_message_end_in_place(message);
    if (message->posted != NULL && tmsg_map_unhold(message->posted)) {
        tmsg_map_free(message->posted);
    }
    tmsg_endpoint_drop(message->endpoint);
    keep_record(message);
}

tmsg_message_t *tmsg_message_tombstone(tmsg_message_t *message)
{
    tmsg_map_t *map = message->map;
    void *tombstone;

    if (message->call != NULL || message->fragments != NULL ||
        message->stage != NULL || message->posted != NULL ||
        message->data != NULL || message->body != NULL ||
        message->by_template != 0 || message->loan != NULL ||
        message->pending > 0) {
        return message;
    }
    tombstone = malloc(offsetof(tmsg_message_t, pieces));
    if (tombstone == NULL) {
        return message;
    }
    free(message->checksums);
    free(message->raw);
    message->checksums = NULL;
    message->raw = NULL;
    tmsg_budget_forget(message->budget, message->noted);
    message->noted = 0;
    message->tombstone = true;
    message->map = NULL;
    memcpy(tombstone, message, offsetof(tmsg_message_t, pieces));
    message->map = map;
    (void)tmsg_map_clear(map); /* nobody else has the map */
    keep_record(message);
    return tombstone;
}

static void end_tombstone(tmsg_message_t *tombstone)
{
    free(tombstone->why);
    free(tombstone->stream);
    tmsg_endpoint_drop(tombstone->endpoint);
    free(tombstone);
}

/* Ends a message that keeps its map and mostly has nothing else. The memory of
 * a template message was counted when its map was laid out. */
static void end_laid(void *arg)
{
    tmsg_message_t *message = arg;
    tmsg_budget_t *budget = message->budget;

    if (message->posted != NULL || message->why != NULL) {
        end_message(message);
        return;
    }
    if (message->by_template == 0) {
        message->spare.bytes =
            message->noted + message->room_bytes + tmsg_fragments_kept(message);
    }
    if (message->aborted || message->discarded) {
        message->by_template = 0;
    }
    if (tmsg_budget_is_inside(budget)) { /* so the worker lives */
        tmsg_endpoint_return(message->endpoint);
    } else {
        tmsg_endpoint_drop(message->endpoint);
    }
    tmsg_budget_give_back(budget, &message->spare, message->noted);
}

tmsg_status_t tmsg_message_note(tmsg_message_t *message, uint64_t bytes)
{
    tmsg_status_t status =
        tmsg_budget_note(message->budget, bytes, message->noted > 0);

    if (status == TMSG_OK) {
        message->noted += bytes;
    }
    return status;
}

void tmsg_message_drop_body(tmsg_message_t *message)
{
    if (message->body != NULL) {
        free(message->body);
        message->body = NULL;
        tmsg_budget_discharge(message->budget,
                              tmsg_payload_spill(&message->head));
    }
}

void tmsg_message_delivered(tmsg_message_t *message)
{
    message->state = TMSG_RX_DELIVERED;
    tmsg_posted_delivered(message);
    if (message->by_template == 0) {
        tmsg_budget_move(message->budget, message->noted);
    }
    if (message->laid) {
        tmsg_map_recycle_laid(message->map, end_laid, message);
    } else {
        tmsg_map_recycle(message->map, end_message, message);
    }
}

/* Gives back a template message that is still as it was made. Returns
 * false if it is not. */
static bool end_by_template(tmsg_message_t *message)
{
    if (message->by_template == 0 || message->state != TMSG_RX_DELIVERED ||
        message->aborted || message->discarded || message->posted != NULL ||
        !tmsg_budget_is_inside(message->budget) ||
        !tmsg_map_unrecycle(message->map)) {
        return false;
    }
    tmsg_endpoint_return(message->endpoint);
    tmsg_budget_give_back(message->budget, &message->spare, message->noted);
    return true;
}

void tmsg_message_destroy(tmsg_message_t *message)
{
    if (message == NULL || end_by_template(message)) {
        return;
    }
    if (message->tombstone) {
        end_tombstone(message);
        return;
    }
    if (message->state == TMSG_RX_DELIVERED) {
        tmsg_map_destroy(message->map);
        return;
    }
    (void)tmsg_map_clear(message->map); /* nobody else has the map */
    end_message(message);
}

static void run_destroy(tmsg_due_t *due)
{
    tmsg_message_destroy(TMSG_CONTAINER_OF(due, tmsg_message_t, due));
}

void tmsg_message_discard(tmsg_message_t *message)
{
    if (message->loan != NULL) {
        end_loan(message);
    }
    tmsg_stage_in_stop(message);
    tmsg_posted_return(message);
    /* The schema's budget has the same lock. */
    tmsg_schema_destroy(message->schema);
    message->schema = NULL;
    message->discarded = true;
    message->due.run = run_destroy;
    tmsg_worker_due(message->endpoint->worker, &message->due);
}

/* Makes room for a payload, unless it is small and lies in the record. */
static tmsg_status_t make_payload_room(tmsg_message_t *message, size_t bytes)
{
    tmsg_status_t status;
    void *room = NULL;

    if (bytes <= TMSG_MESSAGE_SMALL || bytes <= message->room_bytes) {
        return TMSG_OK;
    }
    tmsg_host_free(message->room);
    status = tmsg_host_alloc(bytes, TMSG_PAYLOAD_ALIGNMENT, 0, &room);
    message->room = room;
    message->room_bytes = room == NULL ? 0 : bytes;
    return status;
}

/* Gives the record's map that layout, with its tensors, of `bytes` bytes, in
 * the record's room. With `layout` NULL the map becomes empty. */
static tmsg_status_t lay_out_map(tmsg_message_t *message,
                                 const tmsg_map_t *layout, size_t bytes)
{
    tmsg_status_t status;

    if (tmsg_map_layout(message->map) == layout) {
        return TMSG_OK;
    }
    (void)tmsg_map_clear(message->map); /* nobody else has the map */
    if (layout == NULL) {
        return TMSG_OK;
    }
    status = make_payload_room(message, bytes);
    if (status == TMSG_OK) {
        status = tmsg_map_share(message->map, layout);
    }
    if (status == TMSG_OK) {
        tmsg_payload_place(message->map, tmsg_message_room(message, bytes));
    }
    return status;
}

static tmsg_message_t *get_message_record(tmsg_budget_t *budget)
{
    tmsg_spare_t *spare = tmsg_spares_take(tmsg_budget_messages(budget));
    tmsg_message_t *message;

    if (spare != NULL) {
        return TMSG_CONTAINER_OF(spare, tmsg_message_t, spare);
    }
    message = malloc(sizeof(*message));
    if (message == NULL) {
        tmsg_error_memory("a message");
        return NULL;
    }
    message->by_template = 0;
    message->pieces = NULL;
    message->piece_room = 0;
    message->fragments_kept = NULL;
    message->room = NULL;
    message->room_bytes = 0;
    if (tmsg_map_create(&message->map) != TMSG_OK) {
        free(message);
        return NULL;
    }
    message->budget = budget;
    tmsg_budget_hold(budget);
    return message;
}

static void begin_message(tmsg_message_t *message, const tmsg_preamble_t *head,
                          tmsg_ucx_t *ucx, tmsg_channel_t *channel)
{
    tmsg_zero(message, offsetof(tmsg_message_t, budget));
    message->endpoint = channel->endpoint;
    message->channel = channel;
    message->head = *head;
    message->ucx = ucx;
}

tmsg_status_t tmsg_message_create(const tmsg_preamble_t *head, tmsg_ucx_t *ucx,
                                  tmsg_channel_t *channel,
                                  tmsg_message_t **message_p)
{
    tmsg_budget_t *budget = channel->endpoint->worker->budget;
    tmsg_message_t *message = get_message_record(budget);

    if (message == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    (void)lay_out_map(message, NULL, 0);
    begin_message(message, head, ucx, channel);
    tmsg_endpoint_borrow(channel->endpoint);
    *message_p = message;
    return TMSG_OK;
}

/* Lays the record's map out for a template message. Returns false without
 * memory. */
static bool lay_by_template(tmsg_message_t *message, tmsg_ucx_t *ucx,
                            tmsg_channel_t *channel)
{
    const tmsg_template_in_t *template = &channel->template_in;

    if (lay_out_map(message, template->layout,
                    (size_t) template->head.payload_bytes) != TMSG_OK) {
        return false;
    }
    begin_message(message, &template->head, ucx, channel);
    message->noted = template->noted;
    message->laid = true;
    message->by_template = template->number;
    message->spare.bytes = template->noted - template->room_bytes +
                           message->room_bytes + tmsg_fragments_kept(message);
    return true;
}

/* Charges the memory of a template message. If its payload is not in the
 * record, it must fit the budget, as all payloads must. */
static bool charge_template(tmsg_budget_t *budget,
                            const tmsg_template_in_t *template)
{
    return template->room_bytes > 0
               ? tmsg_budget_claim(budget, template->noted)
               : tmsg_budget_charge(budget, template->noted) == TMSG_OK;
}

tmsg_message_t *tmsg_message_by_template(tmsg_ucx_t *ucx,
                                         tmsg_channel_t *channel)
{
    const tmsg_template_in_t *template = &channel->template_in;
    tmsg_budget_t *budget = channel->endpoint->worker->budget;
    tmsg_message_t *message;

    if (!charge_template(budget, template)) {
        return NULL;
    }
    message = get_message_record(budget);
    if (message != NULL && message->by_template == template->number) {
        message->state = TMSG_RX_WAITING;
        message->call = NULL;
    } else if (message == NULL || !lay_by_template(message, ucx, channel)) {
        tmsg_budget_discharge(budget, template->noted);
        if (message != NULL) {
            tmsg_message_free_spare(&message->spare);
        }
        return NULL;
    }
    tmsg_endpoint_borrow(channel->endpoint);
    return message;
}

/* Takes a message out of both ready queues, at any position, since messages are
 * pulled by worker and by endpoint. */
static void unlink_ready(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    tmsg_list_remove(&endpoint->worker->ready, &message->queue);
    tmsg_list_remove(&endpoint->face->ready, &message->own_queue);
}

void tmsg_message_take_out(tmsg_message_t *message)
{
    unlink_ready(message);
    tmsg_message_taken(message);
}

tmsg_message_t *tmsg_message_pull(tmsg_worker_t *worker,
                                  tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message = NULL;

    if (endpoint != NULL && endpoint->ready.count > 0) {
        message =
            TMSG_CONTAINER_OF(endpoint->ready.head, tmsg_message_t, own_queue);
    } else if (endpoint == NULL && worker->ready.count > 0) {
        message = TMSG_CONTAINER_OF(worker->ready.head, tmsg_message_t, queue);
    }
    if (message != NULL) {
        tmsg_message_take_out(message);
    }
    return message;
}

tmsg_message_t *tmsg_message_withdraw(tmsg_channel_t *channel,
                                      uint32_t sequence)
{
    tmsg_node_t *node = channel->endpoint->face->ready.head;

    for (; node != NULL; node = node->next) {
        tmsg_message_t *message =
            TMSG_CONTAINER_OF(node, tmsg_message_t, own_queue);

        if (message->channel == channel && message->head.sequence == sequence) {
            unlink_ready(message);
            return message;
        }
    }
    return NULL;
}

tmsg_message_t *tmsg_message_unqueue(tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message;

    if (endpoint->ready.count == 0) {
        return NULL;
    }
    message =
        TMSG_CONTAINER_OF(endpoint->ready.head, tmsg_message_t, own_queue);
    unlink_ready(message);
    return message;
}

void tmsg_messages_discard(tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message;

    while ((message = tmsg_message_unqueue(endpoint)) != NULL) {
        tmsg_message_discard(message);
    }
    tmsg_posted_end_awaits(endpoint);
}
