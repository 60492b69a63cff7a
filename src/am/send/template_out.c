/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends messages by their channel's template; see template.h. */
#include "am/send/template_out.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/trace.h"
#include "am/endpoint/transport.h"
#include "am/path/fastboxes.h"
#include "am/recv/template_in.h"
#include "am/send/cancel.h"
#include "am/send/consumer.h"
#include "am/send/send.h"
#include "core/bytes.h"
#include "core/probe.h"

/* A message that sets other params than these never goes by a template. */
#define PARAMS_PLAIN                                                           \
    ((uint64_t)(TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_CHANNEL |            \
                TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |               \
                TMSG_SEND_PARAM_TIMEOUT | TMSG_SEND_PARAM_ON_RELEASE))

_Static_assert(TMSG_TEMPLATE_HEADER_BYTES <= TMSG_SEND_SMALL_HEADER &&
                   TMSG_TEMPLATE_SMALL <= TMSG_SEND_SMALL_PAYLOAD,
               "a small template message lies in the record of its send");
_Static_assert(TMSG_CALL_BYTES == 56, "a fast box writes exactly the header's "
                                      "fields that are new in each message");

static void drop_ready(tmsg_template_out_t *template)
{
    if (template->ready != NULL) {
        tmsg_request_drop(&template->ready->request);
        template->ready = NULL;
    }
}

void tmsg_template_forget_out(tmsg_channel_t *channel)
{
    channel->template_out.header_bytes = 0;
    drop_ready(&channel->template_out);
}

void tmsg_template_free(tmsg_channel_t *channel)
{
    tmsg_template_out_t *template = &channel->template_out;

    tmsg_template_forget_out(channel);
    tmsg_template_forget_in(channel);
    free(template->pieces);
    template->pieces = NULL;
    template->piece_room = 0;
}

void tmsg_template_leave(const tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = endpoint->worker;

    for (unsigned i = 0; i < TMSG_WORKER_RECENT; i++) {
        if (worker->tx.recent[i] != NULL &&
            worker->tx.recent[i]->endpoint == endpoint) {
            worker->tx.recent[i] = NULL;
        }
    }
}

/* Returns whether the map has this layout. Equal layouts have one stamp from
 * then on. */
static bool has_layout(const tmsg_map_t *map, const tmsg_map_t *layout)
{
    return tmsg_map_stamp_known(map) == tmsg_map_stamp(layout) ||
           tmsg_map_has_layout(map, layout);
}

/* Makes room for the pieces of `tensors` tensors. Returns false without
 * memory. */
static bool make_piece_room(tmsg_template_out_t *template, uint32_t tensors)
{
    tmsg_template_piece_t *pieces;

    if (tensors <= template->piece_room) {
        return true;
    }
    pieces = reallocarray(template->pieces, tensors, sizeof(*pieces));
    if (pieces != NULL) {
        template->pieces = pieces;
        template->piece_room = tensors;
    }
    return pieces != NULL;
}

/* Notes where the tensors of a layout go in the payload. */
static void note_pieces(tmsg_template_out_t *template, const tmsg_map_t *layout)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(layout);
    uint64_t end = 0;

    template->tensors = (uint32_t)tmsg_map_size(layout);
    template->only = TMSG_TEMPLATE_LISTED;
    template->has_gaps = false;
    for (uint32_t i = 0; i < template->tensors; i++) {
        uint64_t at =
            tmsg_layout_next(end, entries[i].tensor.dtype, entries[i].bytes);

        template->pieces[i].at = (uint16_t)at;
        template->pieces[i].bytes = (uint16_t)entries[i].bytes;
        template->has_gaps |= at > end;
        end = at + entries[i].bytes;
        if (entries[i].bytes == template->payload_bytes) {
            /* The payload is not empty, so this tensor has all of its bytes. */
            template->only = i;
        }
    }
}

/* Returns whether the message travels as one by a template does: it is small,
 * or goes eagerly and is one piece of memory. */
static bool goes_eagerly(const tmsg_send_t *send)
{
    return send->plan.bytes <= TMSG_TEMPLATE_SMALL ||
           (send->plan.iov_count == 0 && send->am_flags & TMSG_UCX_SEND_EAGER);
}

void tmsg_template_note_out(const tmsg_send_t *send,
                            const tmsg_payload_t *payload)
{
    tmsg_template_out_t *template = &send->channel->template_out;
    const tmsg_schema_use_t *use = &payload->extra->schema;
    const tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_map_t *layout =
        tmsg_schema_table_layout(send->channel->tx_schemas, use->slot);

    if (send->again || send->shared_plan != NULL ||
        (send->flags & ~(uint32_t)TMSG_SEND_UNORDERED) != 0 ||
        send->call.type > TMSG_CALL_REPLY || payload->map != send->map ||
        send->policy != TMSG_POLICY_HOST_FALLBACK ||
        send->wish.way != TMSG_WAY_AUTO ||
        send->wish.protocol != TMSG_PROTOCOL_AUTO || use->count != 0 ||
        payload->spill > 0 || payload->way.fragments ||
        payload->extra->checksum != NULL || payload->measures->packed > 0 ||
        payload->measures->foreign > 0 || !goes_eagerly(send) ||
        send->plan.bytes > TMSG_TEMPLATE_BYTES || send->plan.bytes == 0 ||
        send->header_bytes > sizeof(template->header) ||
        tmsg_map_size(send->map) > TMSG_TEMPLATE_TENSORS ||
        tmsg_map_meta_size(send->map) > 0 || send->more != NULL ||
        tmsg_trace_is_on(endpoint) || endpoint->resume != NULL ||
        !has_layout(send->map, layout) ||
        !make_piece_room(template, (uint32_t)tmsg_map_size(layout))) {
        return;
    }
    drop_ready(template);
    memcpy(template->header, send->header, send->header_bytes);
    template->header_bytes = send->header_bytes;
    template->number = ++send->endpoint->worker->templates;
    template->payload_bytes = send->plan.bytes;
    note_pieces(template, layout);
    template->stamp = tmsg_map_stamp(layout);
    template->slot = use->slot;
    template->charge = send->charge;
    template->is_call = send->call.type != 0;
    template->is_for_fastbox = tmsg_send_is_for_fastbox(send);
    template->flags = send->flags;
    template->am_flags = send->am_flags;
}

/* Returns whether the next message may go now, and no other goes before it:
 * the sends among fragments_queued all wait for the peer. */
static bool may_go_by_template(const tmsg_channel_t *channel)
{
    const tmsg_endpoint_t *endpoint = channel->endpoint;

    return endpoint->state == TMSG_EP_OPEN && !endpoint->close_wanted &&
           !endpoint->worker->inside && channel->queued.count == 0 &&
           tmsg_channel_has_credit(channel) &&
           endpoint->tx.fragments_queued.count ==
               endpoint->tx.fragments_awaited &&
           channel->template_out.charge <=
               endpoint->credit.tx_edge - endpoint->credit.tx_charged;
}

/* Returns the channel that `params` name, if they ask for nothing unusual and
 * for the same as the send that the template comes from; else NULL. */
static tmsg_channel_t *find_map_channel(tmsg_endpoint_t *endpoint,
                                        const tmsg_send_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    uint32_t flags = mask & TMSG_SEND_PARAM_FLAGS ? params->flags : 0;
    const tmsg_template_out_t *template;
    tmsg_channel_t *channel;

    if (mask & ~PARAMS_PLAIN ||
        (mask & TMSG_SEND_PARAM_POLICY &&
         params->policy != TMSG_POLICY_HOST_FALLBACK) ||
        (mask & TMSG_SEND_PARAM_TIMEOUT &&
         (params->timeout_ms == 0 || params->timeout_ms < -1))) {
        return NULL;
    }
    channel = tmsg_channel_find(
        endpoint, mask & TMSG_SEND_PARAM_CHANNEL ? params->channel : 0);
    template = channel == NULL ? NULL : &channel->template_out;
    return template != NULL && template->header_bytes > 0 &&
                   template->flags == flags && !template->is_call
               ? channel
               : NULL;
}

/* Returns the channel of calls if the call, or reply, is like the one that the
 * template comes from; else NULL. */
static tmsg_channel_t *find_call_channel(tmsg_endpoint_t *endpoint,
                                         const tmsg_call_send_t *call)
{
    tmsg_channel_t *channel = endpoint->channels.calls;

    return channel != NULL && channel->template_out.header_bytes > 0 &&
                   call->more == NULL &&
                   tmsg_call_is_like(channel->template_out.header, call->head)
               ? channel
               : NULL;
}

/* Returns whether a map has the template's layout. A map without a stamp is
 * compared. */
static bool is_laid_out_as_last(const tmsg_channel_t *channel,
                                const tmsg_map_t *map)
{
    const tmsg_template_out_t *template = &channel->template_out;
    uint64_t stamp;

    if (map == NULL || tmsg_map_meta_size(map) > 0) {
        return false;
    }
    stamp = tmsg_map_stamp_known(map);
    return stamp == template->stamp ||
           (stamp == 0 &&
            tmsg_map_has_layout(map, tmsg_schema_table_layout(
                                         channel->tx_schemas, template->slot)));
}

/* Sets those fields of a record that the end of the send reads. go_on_as_send()
 * sets the others, if UCX has not copied the message yet. */
static void begin_record(tmsg_send_t *send, tmsg_endpoint_t *endpoint)
{
    tmsg_send_init_request(send, endpoint->worker);
    send->endpoint = endpoint;
    send->on_release = NULL;
    send->release_due.run = NULL;
    send->answer_text = NULL;
    send->call_text = NULL;
}

static void number_header(const tmsg_channel_t *channel, tmsg_send_t *send)
{
    tmsg_preamble_renumber(send->small_header,
                           channel->endpoint->tx.next_message_id,
                           channel->tx_sequence);
}

/* Makes a record with all that is known before the map is; NULL without memory.
 * This is done when the message before has gone, because then the peer has
 * something to do. Also, UCX loads the header in units larger than its numbers,
 * and the processor would stall on numbers that were stored just before. */
static tmsg_send_t *make_ready_send(const tmsg_channel_t *channel)
{
    const tmsg_template_out_t *template = &channel->template_out;
    tmsg_send_t *send = tmsg_send_record(channel->endpoint->worker->budget);

    if (send != NULL) {
        begin_record(send, channel->endpoint);
        memcpy(send->small_header, template->header, sizeof(template->header));
        number_header(channel, send);
    }
    return send;
}

/* Returns whether the channel is one of the few of its worker for which a
 * record is made ready. If it is not, it becomes one, in place of the one that
 * has been for longest. If a thousand channels take turns, the record of each
 * would have left the cache before its next turn; such channels use the record
 * that was freed last instead. */
static bool is_recent(tmsg_channel_t *channel)
{
    tmsg_template_out_t *template = &channel->template_out;
    tmsg_worker_t *worker = channel->endpoint->worker;
    tmsg_channel_t *gone;

    if (worker->tx.recent[template->recent] == channel) {
        return true;
    }
    template->recent = (uint8_t)(worker->tx.next_recent++ % TMSG_WORKER_RECENT);
    gone = worker->tx.recent[template->recent];
    if (gone != NULL) {
        drop_ready(&gone->template_out);
    }
    worker->tx.recent[template->recent] = channel;
    return false;
}

static tmsg_send_t *take_ready(tmsg_channel_t *channel)
{
    tmsg_send_t *send = channel->template_out.ready;

    channel->template_out.ready = NULL;
    return send != NULL ? send : make_ready_send(channel);
}

static void zero_gaps(const tmsg_template_out_t *template, uint8_t *to)
{
    size_t end = 0;

    for (uint32_t i = 0; i < template->tensors; i++) {
        if (template->pieces[i].at > end) {
            memset(to + end, 0, template->pieces[i].at - end);
        }
        end = (size_t) template->pieces[i].at + template->pieces[i].bytes;
    }
}

static void gather_payload(const tmsg_template_out_t *template,
                           const tmsg_map_t *map, uint8_t *to)
{
    const tmsg_map_entry_t *entry = tmsg_map_entries(map);
    const tmsg_template_piece_t *piece = template->pieces;
    const tmsg_template_piece_t *end = piece + template->tensors;

    if (template->has_gaps) {
        zero_gaps(template, to);
    }
    for (; piece < end; piece++, entry++) {
        if (piece->bytes > 0) {
            tmsg_copy_small(to + piece->at, entry->tensor.data, piece->bytes);
        }
    }
}

/* Returns memory for a payload that is not small, or NULL. UCX mostly has
 * copied the payload when its call returns. */
static uint8_t *gather_room(tmsg_worker_t *worker)
{
    tmsg_pool_t *pool = tmsg_budget_pool(worker->budget);

    if (worker->tx.gather.data == NULL &&
        tmsg_pool_take(pool, TMSG_TEMPLATE_BYTES, &worker->tx.gather) !=
            TMSG_OK) {
        worker->tx.gather.data = NULL;
    }
    return worker->tx.gather.data;
}

/* Copies a payload for UCX; see tmsg_plan_own(). Returns NULL if the payload
 * cannot be read, or there is no memory. */
static const void *copy_payload_for_ucx(tmsg_worker_t *worker, const void *data,
                                        size_t bytes, uint8_t *small)
{
    uint8_t *to;

    if (bytes <= TMSG_TEMPLATE_SMALL) {
        memcpy(small, data, bytes);
        return small;
    }
    to = gather_room(worker);
    return to != NULL && tmsg_probe_copy(to, data, bytes) == bytes ? to : NULL;
}

/* Returns the payload as one piece of memory: its own, if one tensor has all of
 * it. Returns NULL if there is no memory, or the payload cannot be read. */
static const void *put_together(const tmsg_channel_t *channel,
                                const tmsg_map_t *map, tmsg_send_t *send)
{
    const tmsg_template_out_t *template = &channel->template_out;
    uint8_t *to = send->small_payload;

    if (template->only != TMSG_TEMPLATE_LISTED) {
        const void *data = tmsg_map_entries(map)[template->only].tensor.data;

        return tmsg_transport_wants_own(channel->endpoint)
                   ? copy_payload_for_ucx(channel->endpoint->worker, data,
                                          template->payload_bytes, to)
                   : data;
    }
    if (template->payload_bytes > TMSG_TEMPLATE_SMALL) {
        to = gather_room(channel->endpoint->worker);
    }
    if (to != NULL) {
        gather_payload(template, map, to);
    }
    return to;
}

/* Writes the fields of the header that were not known before. */
static void complete_header(const tmsg_channel_t *channel, tmsg_send_t *send,
                            const tmsg_call_send_t *call)
{
    uint32_t message_id = channel->endpoint->tx.next_message_id;
    tmsg_call_head_t head;

    if (!tmsg_preamble_has_numbers(send->small_header, message_id,
                                   channel->tx_sequence)) {
        number_header(channel, send);
    }
    if (call == NULL) {
        return;
    }
    head = *call->head;
    if (call->deadline_ns != 0) {
        head.left_us = tmsg_send_left_us(call->deadline_ns);
    }
    tmsg_call_renumber(&head, send->small_header);
    tmsg_call_number(call, message_id);
}

static tmsg_ucx_status_t post_by_template(const tmsg_channel_t *channel,
                                          tmsg_send_t *send,
                                          const void *payload)
{
    const tmsg_template_out_t *template = &channel->template_out;
    const tmsg_ucx_send_t message = {
        .header = send->small_header,
        .header_bytes = template->header_bytes,
        .data = payload,
        .bytes = template->payload_bytes,
        .flags = template->am_flags | TMSG_UCX_SEND_REPLY,
    };

    return tmsg_endpoint_send_am(channel->endpoint, &message,
                                 tmsg_send_ucx_reported, send);
}

/* Writes a message straight into the fast box. */
static void write_into_fastbox(const tmsg_channel_t *channel,
                               const tmsg_map_t *map, tmsg_send_t *send,
                               const tmsg_call_send_t *call,
                               tmsg_fastbox_t *fastbox)
{
    const tmsg_template_out_t *template = &channel->template_out;

    gather_payload(
        template, map,
        tmsg_fastbox_begin(fastbox, template->header_bytes, template->number));
    complete_header(channel, send, call);
    tmsg_fastbox_write_header(fastbox, send->small_header);
    tmsg_fastboxes_put(channel->endpoint, template->payload_bytes);
}

/* Hands a message to the fast box, if there is one, or to UCX. With UCX
 * *payload_p is what UCX reads, and *given_p is the status that it returned.
 * Returns false if neither takes the message; the general way then finds out
 * what is wrong. */
static bool hand_over_by_template(const tmsg_channel_t *channel,
                                  tmsg_send_t *send, const tmsg_map_t *map,
                                  const tmsg_call_send_t *call,
                                  const void **payload_p,
                                  tmsg_ucx_status_t *given_p)
{
    tmsg_fastbox_t *fastbox = channel->template_out.is_for_fastbox
                                  ? tmsg_fastboxes_choose(channel->endpoint)
                                  : NULL;

    *payload_p = NULL;
    *given_p = TMSG_UCX_OK;
    if (fastbox != NULL) {
        write_into_fastbox(channel, map, send, call, fastbox);
        return true;
    }
    *payload_p = put_together(channel, map, send);
    if (*payload_p == NULL) {
        return false;
    }
    complete_header(channel, send, call);
    *given_p = post_by_template(channel, send, *payload_p);
    return !tmsg_ucx_is_error(*given_p);
}

/* Ends a send whose message was copied: only its hooks are left to be
 * called. */
static void end_copied_send(tmsg_channel_t *channel, tmsg_send_t *send,
                            uint64_t begun_ns)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;

    endpoint->tx.next_message_id++;
    tmsg_send_count(channel, channel->template_out.payload_bytes);
    if (begun_ns != 0) {
        tmsg_histogram_note(&endpoint->stats.send_ns, tmsg_now_ns() - begun_ns);
    }
    tmsg_send_released(send);
    tmsg_request_end(&send->request, TMSG_OK, NULL);
}

static void take_call(tmsg_send_t *send, const tmsg_call_send_t *call)
{
    if (call != NULL) {
        send->call = *call->head;
        send->call.text =
            /* The text stays in the record's header. */
            (const char *)send->small_header + TMSG_CALL_BYTES;
        send->queues = call->queues;
        send->last = call->last;
        send->reclaims = call->reclaims;
    }
}

/* Makes the record a send like others, because UCX still reads the header and
 * the payload. */
static void go_on_as_send(tmsg_channel_t *channel, tmsg_send_t *send,
                          const tmsg_map_t *map, const void *payload,
                          const tmsg_call_send_t *call, uint64_t begun_ns)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    tmsg_worker_t *worker = endpoint->worker;

    tmsg_send_clear(send);
    tmsg_send_take(send, endpoint, map);
    take_call(send, call);
    send->channel = channel;
    send->flags = channel->template_out.flags;
    send->timeout_ms = -1;
    send->begun_ns = begun_ns;
    send->header = send->small_header;
    send->header_bytes = channel->template_out.header_bytes;
    send->plan.bytes = channel->template_out.payload_bytes;
    send->plan.contiguous = payload;
    if (payload == worker->tx.gather.data) {
        send->plan.staging = worker->tx.gather;
        worker->tx.gather = (tmsg_pool_block_t){NULL, 0};
    }
    send->bytes = send->plan.bytes;
    send->am_flags = channel->template_out.am_flags;
    send->sequence = channel->tx_sequence;
    send->posted = true;
    tmsg_list_push(&endpoint->posted, &send->node);
    tmsg_send_count(channel, send->bytes);
    tmsg_send_hand_over(send);
}

/* Sets the timer of a send that goes on as others. */
static void take_timeout(const tmsg_send_params_t *params, tmsg_send_t *send)
{
    if (params != NULL && params->field_mask & TMSG_SEND_PARAM_TIMEOUT &&
        params->timeout_ms > 0) {
        tmsg_send_limit(send, params->timeout_ms);
        tmsg_send_set_timer(send);
    }
}

static void take_params(const tmsg_send_params_t *params, tmsg_send_t *send)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & TMSG_SEND_PARAM_ON_DONE) {
        send->request.on_done = params->on_done;
        send->request.on_done_arg = params->on_done_arg;
    }
    if (mask & TMSG_SEND_PARAM_ON_RELEASE) {
        send->on_release = params->on_release;
        send->on_release_arg = params->on_release_arg;
    }
}

static void take_hooks(const tmsg_call_send_t *call, tmsg_send_t *send)
{
    send->request.on_done = call->on_done;
    send->request.on_done_arg = call->on_done_arg;
    send->on_release = call->on_release;
    send->on_release_arg = call->on_release_arg;
}

bool tmsg_template_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                        const tmsg_send_params_t *params,
                        const tmsg_call_send_t *call,
                        tmsg_request_t **request_p)
{
    tmsg_channel_t *channel = call == NULL ? find_map_channel(endpoint, params)
                                           : find_call_channel(endpoint, call);
    tmsg_send_t *send;
    uint64_t begun_ns = 0;
    const void *payload;
    tmsg_ucx_status_t ucs;

    if (channel == NULL || !may_go_by_template(channel) ||
        !is_laid_out_as_last(channel, map)) {
        return false;
    }
    send = take_ready(channel);
    if (send == NULL) {
        return false;
    }
    if (endpoint->tx.next_message_id % TMSG_TIMED_ONE_IN == 0) {
        begun_ns = tmsg_now_ns();
    }
    if (!hand_over_by_template(channel, send, map, call, &payload, &ucs)) {
        tmsg_request_drop_hidden(&send->request);
        return false;
    }
    endpoint->credit.tx_charged += channel->template_out.charge;
    tmsg_schema_table_used(channel->tx_schemas, channel->template_out.slot);
    endpoint->stats.sent_by_schema++;
    endpoint->stats.sent_by_template++;
    if (ucs == TMSG_UCX_IN_PROGRESS) {
        go_on_as_send(channel, send, map, payload, call, begun_ns);
        take_timeout(params, send);
    }
    if (call == NULL) {
        take_params(params, send);
    } else {
        take_hooks(call, send);
    }
    if (request_p != NULL) {
        tmsg_request_hold_hidden(&send->request);
        *request_p = &send->request;
    }
    if (ucs == TMSG_UCX_OK) {
        end_copied_send(channel, send, begun_ns);
    }
    if (is_recent(channel)) {
        channel->template_out.ready = make_ready_send(channel);
    }
    return true;
}

void tmsg_template_close(tmsg_worker_t *worker)
{
    tmsg_pool_give(tmsg_budget_pool(worker->budget), worker->tx.gather);
}
