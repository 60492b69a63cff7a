/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a header from a map, and a plan for its payload, for UCX. */
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/transport.h"
#include "am/path/bulk.h"
#include "am/send/charge.h"
#include "am/send/fragments.h"
#include "am/send/lend.h"
#include "am/send/limits.h"
#include "am/send/method.h"
#include "am/send/pack.h"
#include "am/send/schemas_out.h"
#include "am/send/send.h"
#include "am/send/stage_out.h"
#include "am/send/template_out.h"
#include "am/staging/ipc_block.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/checksum.h"

/* The small messages of a peer that asks something once a second should not
 * wait behind long fragments. */
#define SILENCE_NS 2000000000ULL
/* A body of more bytes heads no loan. */
#define LOAN_HEAD_MOST (4ULL << 20)
/* A publication packs no more bytes as a whole. */
#define SHARED_COPY_MOST (16ULL << 20)
#define READ_LEAST 8192 /* least bytes that the peer reads, unless told to */

/* Makes room for the checksums that were asked for. */
static tmsg_status_t make_room_for_checksums(const tmsg_send_t *send,
                                             tmsg_body_extra_t *extra,
                                             tmsg_payload_t *payload)
{
    uint32_t theirs = send->endpoint->peer_hello.checksums;
    tmsg_status_t status;

    if (!(theirs & 1u << TMSG_CHECKSUM_XXH3)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: this peer cannot check checksums",
                              send->endpoint->peer);
    }
    status = tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra->checksum);
    if (status != TMSG_OK) {
        return status;
    }
    payload->checksums =
        calloc(tmsg_map_size(send->map) + 1, extra->checksum->bytes);
    if (payload->checksums == NULL) {
        return tmsg_error_memory("a message's checksums");
    }
    extra->checksums = payload->checksums;
    return TMSG_OK;
}

static size_t preamble_bytes(const tmsg_send_t *send)
{
    return send->call.type == 0 ? TMSG_PREAMBLE_BYTES
                                : tmsg_call_preamble_bytes(&send->call);
}

/* Finds out what goes into the header, and gets memory for it. */
static tmsg_status_t measure_header(tmsg_send_t *send, tmsg_preamble_t *head,
                                    tmsg_payload_t *payload)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    size_t most = endpoint->ucx->max_am_header;
    size_t needed;
    tmsg_status_t status =
        tmsg_schema_table_choose(tmsg_schemas_table(send->channel),
                                 payload->map, payload->extra, &needed);

    if (endpoint->peer_hello.max_am_header < most) {
        most = endpoint->peer_hello.max_am_header;
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (needed > endpoint->peer_hello.max_header_bytes) {
        return tmsg_error_set(
            TMSG_ERR_LIMIT_EXCEEDED,
            "%s: names, shapes and metadata of %zu bytes, the receiver "
            "allows %llu (its limit header_bytes)",
            endpoint->peer, needed,
            (unsigned long long)endpoint->peer_hello.max_header_bytes);
    }
    head->body_bytes = (uint32_t)needed;
    send->header_bytes = preamble_bytes(send);
    if (send->header_bytes + needed > most) {
        head->flags |= TMSG_HEADER_SPILLED;
        payload->spill = needed;
    } else {
        send->header_bytes += needed;
    }
    send->header = send->header_bytes <= sizeof(send->small_header)
                       ? send->small_header
                       : malloc(send->header_bytes);
    return send->header == NULL ? tmsg_error_memory("a message's header")
                                : TMSG_OK;
}

static const tmsg_thresholds_t *thresholds_of(const tmsg_endpoint_t *endpoint)
{
    return &endpoint->worker->context->tuning.of[endpoint->transport];
}

/* Returns from which size on tensors of devices are not gathered. A send that
 * waits for nothing gathers none, for it would wait for them. */
static uint64_t small_of(const tmsg_send_t *send, uint64_t large)
{
    uint64_t small = thresholds_of(send->endpoint)->device_gather_bytes;

    if (send->stage == NULL || !send->wish.fragments ||
        send->flags & TMSG_SEND_TRY) {
        return 0;
    }
    return small < large ? small : large;
}

/* Measures the layout and compares it with the peer's limits, once. */
static tmsg_status_t judge_layout(const tmsg_send_t *send,
                                  const tmsg_map_t *map,
                                  const tmsg_measures_t **measures_p)
{
    tmsg_measures_t *known = tmsg_send_measured(send->endpoint, map);
    uint64_t large = tmsg_way_large(thresholds_of(send->endpoint), send->wish);
    uint64_t small = small_of(send, large);
    tmsg_measures_t measures;
    tmsg_status_t status;

    *measures_p = known;
    if (known->stamp == tmsg_map_stamp(map) && known->large == large &&
        known->small == small) {
        return TMSG_OK;
    }
    status = tmsg_plan_measure(map, large, small, &measures);
    if (status == TMSG_OK) {
        status = tmsg_send_limits_layout(send);
    }
    if (status == TMSG_OK) {
        *known = measures;
    }
    return status;
}

tmsg_status_t tmsg_send_foresee(const tmsg_send_t *send)
{
    tmsg_payload_t payload = {.map = send->map};
    tmsg_status_t status = judge_layout(send, send->map, &payload.measures);

    return status == TMSG_OK ? tmsg_send_limits_payload(send, &payload)
                             : status;
}

const tmsg_map_t *tmsg_send_map(const tmsg_send_t *send)
{
    return send->kept != NULL ? send->kept : send->map;
}

static const tmsg_map_entry_t *find_packed(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (!tmsg_tensor_is_dense(&entries[i].tensor)) {
            return &entries[i];
        }
    }
    return NULL;
}

static tmsg_status_t cannot_keep(const tmsg_send_t *send,
                                 const tmsg_map_entry_t *entry)
{
    if (!(send->flags & TMSG_SEND_NO_PACK)) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        TMSG_ERR_UNSUPPORTED,
        "tensor '%s': %s takes no strides with gaps, which would have it "
        "packed, and TMSG_SEND_NO_PACK rules that out",
        tmsg_error_name(entry->name, entry->name_bytes).text,
        send->endpoint->peer);
}

/* Makes spans of the tensors that would have to be packed, if that is asked for
 * and the peer takes spans. All sends that share the map use one map of
 * spans. */
static tmsg_status_t keep_strides(tmsg_send_t *send, tmsg_payload_t *payload)
{
    const tmsg_map_entry_t *entry =
        send->flags & TMSG_SEND_KEEP_STRIDES && send->kept == NULL
            ? find_packed(send->map)
            : NULL;
    tmsg_map_t **kept_p =
        send->shared_plan == NULL ? &send->kept : &send->shared_plan->kept;
    tmsg_status_t status = TMSG_OK;

    if (entry != NULL &&
        !(send->endpoint->peer_hello.features & TMSG_FEATURE_SPANS)) {
        return cannot_keep(send, entry);
    }
    if (entry != NULL && *kept_p == NULL) {
        status = tmsg_map_copy_spans(send->map, kept_p);
    }
    if (entry != NULL && status == TMSG_OK && send->shared_plan != NULL) {
        tmsg_map_hold(*kept_p);
        send->kept = *kept_p;
    }
    if (send->kept != NULL) {
        payload->map = send->kept;
        payload->extra->shared = NULL;
    }
    return status;
}

/* Makes the payload that of a map in which nothing is broadcast. All sends that
 * share the map use one such map. */
static tmsg_status_t write_out_map(tmsg_send_t *send, tmsg_payload_t *payload)
{
    tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);
    tmsg_written_t *written = send->shared_plan == NULL
                                  ? &send->written
                                  : &send->shared_plan->written;
    tmsg_status_t status = written->map != NULL
                               ? TMSG_OK
                               : tmsg_broadcast_write(send->map, pool, written);

    if (status != TMSG_OK) {
        return status;
    }
    payload->map = written->map;
    payload->extra->shared = NULL;
    return judge_layout(send, payload->map, &payload->measures);
}

/* Checks the map that travels, which depends on what the peer can read. */
static tmsg_status_t judge_map(tmsg_send_t *send, tmsg_payload_t *payload)
{
    tmsg_status_t status = judge_layout(send, payload->map, &payload->measures);

    if (status != TMSG_OK || payload->measures->broadcast == 0 ||
        send->endpoint->peer_hello.features & TMSG_FEATURE_BROADCAST) {
        return status;
    }
    status = tmsg_send_limits_payload(send, payload);
    if (status == TMSG_OK) {
        status = tmsg_pack_count(send, payload->measures->out_bytes);
    }
    return status == TMSG_OK ? write_out_map(send, payload) : status;
}

static tmsg_status_t plan_payload(tmsg_send_t *send, tmsg_payload_t *payload)
{
    tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);

    return send->shared_plan != NULL && payload->spill == 0 &&
                   payload->gathered == NULL && !payload->way.packs &&
                   payload->map == tmsg_send_map(send)
               ? tmsg_shared_plan_make(send->shared_plan, payload, pool,
                                       &send->plan)
               : tmsg_plan_make(payload, pool, &send->plan);
}

uint64_t tmsg_send_left_us(uint64_t deadline_ns)
{
    uint64_t now = deadline_ns == 0 ? 0 : tmsg_now_ns();

    return now < deadline_ns ? (deadline_ns - now) / 1000 + 1
                             : deadline_ns != 0;
}

static void write_call(tmsg_send_t *send)
{
    if (send->call.type == 0) {
        return;
    }
    if (send->call_deadline_ns != 0) {
        send->call.left_us = tmsg_send_left_us(send->call_deadline_ns);
    }
    tmsg_call_encode(&send->call, send->header);
}

static bool may_be_read(const tmsg_send_t *send)
{
    return tmsg_cma_sends(send->endpoint) && send->plan.iov_count == 0 &&
           send->plan.bytes > 0;
}

/* Chooses rendezvous where the choice is UCX's: UCX itself would go by
 * rendezvous from about this size on. */
static void choose_rendezvous(tmsg_send_t *send)
{
    if (may_be_read(send) && send->plan.bytes >= READ_LEAST &&
        !(send->am_flags & TMSG_UCX_SEND_EAGER)) {
        send->am_flags |= TMSG_UCX_SEND_RENDEZVOUS;
    }
}

/* Writes the preamble, and the body unless it is in the payload. */
static tmsg_status_t write_send_header(tmsg_send_t *send, tmsg_preamble_t *head,
                                       const tmsg_payload_t *payload)
{
    size_t needed;

    head->payload_bytes = send->plan.bytes;
    head->flags |= send->pulled ? TMSG_HEADER_PULLED : 0;
    choose_rendezvous(send);
    tmsg_credit_charge(send, head, send->plan.bytes);
    send->is_read =
        may_be_read(send) && send->am_flags & TMSG_UCX_SEND_RENDEZVOUS;
    head->flags |= send->is_read ? TMSG_HEADER_READ : 0;
    tmsg_preamble_encode(head, send->header);
    write_call(send);
    if (payload->spill > 0) {
        return TMSG_OK;
    }
    return tmsg_body_encode(payload->map, payload->extra,
                            send->header + preamble_bytes(send),
                            head->body_bytes, &needed);
}

/* Notes the schema of a message that is now sure to be handed over. */
static void note_schema(tmsg_send_t *send, const tmsg_payload_t *payload)
{
    const tmsg_schema_use_t *use = &payload->extra->schema;

    if (use->form == TMSG_SCHEMA_DEFINES) {
        tmsg_template_forget_out(send->channel);
    } else if (use->form == TMSG_SCHEMA_REFERS) {
        tmsg_template_note_out(send, payload);
    }
    if (use->form != TMSG_SCHEMA_NONE) {
        tmsg_schema_table_sent(send->channel->tx_schemas, use);
    }
    send->endpoint->stats.sent_by_schema += use->form == TMSG_SCHEMA_REFERS;
}

static uint32_t am_flags_of(int32_t protocol)
{
    switch (protocol) {
    case TMSG_PROTOCOL_EAGER:
        return TMSG_UCX_SEND_EAGER;
    case TMSG_PROTOCOL_RNDV:
        return TMSG_UCX_SEND_RENDEZVOUS;
    default:
        return 0; /* UCX chooses */
    }
}

static uint8_t header_flags(const tmsg_send_t *send)
{
    return (send->flags & TMSG_SEND_ACKED ? TMSG_HEADER_ACKED : 0) |
           (send->flags & TMSG_SEND_UNORDERED ? TMSG_HEADER_UNORDERED : 0);
}

/* Returns a threshold as far as the body can say it. */
static uint64_t sayable(uint64_t bytes)
{
    return bytes < INT64_MAX ? bytes : INT64_MAX;
}

/* Returns whether no small messages pass. Those behind the message on its own
 * channel do not count, for they wait for it in any case, unless it is
 * unordered. */
static bool is_alone(const tmsg_send_t *send)
{
    tmsg_channel_t *channel = send->channel;
    const tmsg_endpoint_t *endpoint = send->endpoint;
    uint64_t small =
        endpoint->stats.sent_messages - endpoint->tx.sent_in_fragments;

    if (!(send->flags & TMSG_SEND_UNORDERED)) {
        small -= channel->sent_messages - channel->sent_in_fragments;
    }
    return tmsg_others_silent(&channel->others, small, tmsg_now_ns(),
                              SILENCE_NS);
}

/* Returns the bytes of a fragment. No small message waits behind fragments that
 * go by the bulk stream. What is packed lies in memory of the library until it
 * was moved. */
static uint64_t chunk_of(const tmsg_send_t *send, const tmsg_payload_t *payload)
{
    uint64_t chunk = tmsg_way_chunk(thresholds_of(send->endpoint),
                                    payload->way.bulk || is_alone(send));

    return payload->measures->packed > 0 ? tmsg_pack_chunk(payload->map, chunk)
                                         : sayable(chunk);
}

/* Returns the bytes of a fragment of a tensor that stays on its device, if that
 * differs from other fragments; else 0. */
static uint64_t others_chunk_of(const tmsg_send_t *send,
                                const tmsg_payload_t *payload)
{
    uint64_t chunk = tmsg_stage_out_chunk(
        send, thresholds_of(send->endpoint)->device_chunk_bytes);
    bool ipc = tmsg_stage_out_is_ipc(send);

    if (!tmsg_measures_name(payload->measures) || tmsg_stage_out_stages(send) ||
        !(ipc || send->endpoint->peer_hello.features & TMSG_FEATURE_DEVICES)) {
        return 0;
    }
    return tmsg_stage_out_has_slots(send) && chunk > TMSG_IPC_SLOT_BYTES
               ? TMSG_IPC_SLOT_BYTES
               : sayable(chunk);
}

/* Says in the body which tensors travel in fragments, if the way has any. */
static tmsg_status_t name_fragments(const tmsg_send_t *send,
                                    tmsg_payload_t *payload)
{
    const tmsg_measures_t *measures = payload->measures;
    tmsg_split_t *split = &payload->extra->split;
    size_t bytes = (tmsg_map_size(send->map) + 7) / 8;
    uint64_t chunk;

    *split = (tmsg_split_t){0};
    free(payload->foreign);
    payload->foreign = NULL;
    if (!payload->way.fragments && tmsg_measures_name(measures)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: this peer takes only tensors in host memory",
                              send->endpoint->peer);
    }
    if (!payload->way.fragments && !payload->way.slices) {
        return TMSG_OK;
    }
    chunk = chunk_of(send, payload);
    split->large =
        payload->way.fragments ? sayable(measures->large) : INT64_MAX;
    split->slice = payload->way.slices ? chunk : 0;
    split->chunk = tmsg_stage_out_chunk(send, chunk);
    split->others_chunk =
        payload->way.fragments ? others_chunk_of(send, payload) : 0;
    if (payload->way.fragments && tmsg_measures_name(measures)) {
        payload->foreign = calloc(1, bytes);
        if (payload->foreign == NULL) {
            return tmsg_error_memory("a message's fragments");
        }
        tmsg_plan_name_foreign(payload->map, measures->small, payload->foreign);
        split->others = payload->foreign;
        split->others_bytes = bytes;
    }
    return TMSG_OK;
}

/* Chooses the way behind a body that heads the payload. With fragments that
 * body goes eagerly, so that the peer has to have room for it. */
static tmsg_way_t choose_behind(const tmsg_send_t *send,
                                const tmsg_payload_t *payload)
{
    const tmsg_thresholds_t *thresholds = thresholds_of(send->endpoint);
    uint64_t spill = tmsg_layout_spill(payload->spill);
    tmsg_wish_t wish = send->wish;
    tmsg_way_t way =
        tmsg_way_choose(payload->measures, spill, thresholds, wish);

    wish.slices = (way.slices || way.bulk) &&
                  tmsg_credit_has_room(send->endpoint, spill, true);
    wish.fragments =
        wish.fragments &&
        ((way.slices && wish.slices) ||
         tmsg_credit_has_room(send->endpoint,
                              payload->measures->head_bytes + spill, true));
    return tmsg_way_choose(payload->measures, spill, thresholds, wish);
}

/* Returns why the head cannot go: IN_PROGRESS, or an error. Tensors that must
 * travel in fragments need a body that the peer has before them. That body goes
 * eagerly, into what is left of the peer's window. A peer tells of room when
 * half of the window is free again, so a head that takes more cannot wait for
 * room. */
static tmsg_status_t refuse_head(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;
    uint64_t bytes = payload->measures->head_bytes + payload->spill;
    uint64_t cost = tmsg_credit_cost(bytes, true);
    bool ever = cost <= endpoint->peer_hello.eager_bytes;

    if (cost <= endpoint->peer_hello.eager_bytes / 2) {
        return TMSG_IN_PROGRESS;
    }
    return tmsg_error_set(
        ever ? TMSG_ERR_BUSY : TMSG_ERR_LIMIT_EXCEEDED,
        "%s: names, metadata and small tensors of %llu bytes, beside tensors "
        "of a device's memory: the peer takes %llu at once%s",
        endpoint->peer, (unsigned long long)bytes,
        (unsigned long long)endpoint->peer_hello.eager_bytes,
        ever ? ", and has not taken those before them" : "");
}

/* Returns whether a body that heads a payload without tensors may go now. It
 * goes eagerly, for the loan is to be known at once. */
static bool may_head_loan(const tmsg_send_t *send, uint64_t spill)
{
    return spill <= LOAN_HEAD_MOST &&
           tmsg_credit_has_room(send->endpoint, spill, true);
}

/* Measures the body of a loan. If it cannot go, the message is no loan, and
 * *over_p is false. */
static tmsg_status_t choose_loan(tmsg_send_t *send, tmsg_preamble_t *head,
                                 tmsg_payload_t *payload, bool *over_p)
{
    tmsg_status_t status;

    payload->way = (tmsg_way_t){.protocol = TMSG_PROTOCOL_AUTO};
    payload->extra->split = (tmsg_split_t){0};
    status = measure_header(send, head, payload);
    *over_p = true;
    if (status != TMSG_OK || payload->spill == 0) {
        return status;
    }
    if (may_head_loan(send, tmsg_layout_spill(payload->spill))) {
        payload->way.protocol = TMSG_PROTOCOL_EAGER;
        return TMSG_OK;
    }
    tmsg_lend_decline(send, payload, "the body is too large for a loan now");
    tmsg_send_drop_header(send);
    head->flags &= (uint8_t) ~(TMSG_HEADER_SPILLED | TMSG_HEADER_LENT);
    payload->spill = 0;
    *over_p = false;
    return TMSG_OK;
}

/* Chooses the way, which says what is in the body, and measures the body.
 * Behind a body that heads the payload another way may be the better one. */
static tmsg_status_t choose_way(tmsg_send_t *send, tmsg_preamble_t *head,
                                tmsg_payload_t *payload)
{
    const tmsg_thresholds_t *thresholds = thresholds_of(send->endpoint);
    tmsg_way_t way;
    tmsg_status_t status;

    if (payload->extra->lent.count > 0) {
        bool over;

        status = choose_loan(send, head, payload, &over);
        if (over) {
            return status;
        }
    }
    payload->way =
        tmsg_way_choose(payload->measures, 0, thresholds, send->wish);
    if (payload->way.bulk && !tmsg_bulk_make(send->endpoint)) {
        send->wish.bulk = false;
        payload->way =
            tmsg_way_choose(payload->measures, 0, thresholds, send->wish);
    }
    status = name_fragments(send, payload);
    if (status == TMSG_OK) {
        status = measure_header(send, head, payload);
    }
    if (status != TMSG_OK || payload->spill == 0) {
        return status;
    }
    way = choose_behind(send, payload);
    if (way.bulk && !payload->way.bulk && !tmsg_bulk_make(send->endpoint)) {
        send->wish.bulk = false;
        way = choose_behind(send, payload);
    }
    if (way.fragments == payload->way.fragments &&
        way.slices == payload->way.slices && way.bulk == payload->way.bulk) {
        payload->way = way;
        return TMSG_OK;
    }
    if (tmsg_measures_name(payload->measures) && !way.fragments) {
        return refuse_head(send, payload);
    }
    payload->way = way;
    head->flags &= (uint8_t)~TMSG_HEADER_SPILLED;
    payload->spill = 0;
    status = name_fragments(send, payload);
    return status == TMSG_OK ? measure_header(send, head, payload) : status;
}

/* Makes fragments, and a plan for the rest, by the way that was chosen. */
static tmsg_status_t make_payload(tmsg_send_t *send, tmsg_payload_t *payload)
{
    tmsg_status_t status = TMSG_OK;

    if (payload->extra->lent.count > 0) {
        send->am_flags = am_flags_of(payload->way.protocol);
        send->pulled = false;
        return tmsg_plan_body(payload,
                              tmsg_budget_pool(send->endpoint->worker->budget),
                              &send->plan);
    }
    /* A copy that all receivers share is made once. */
    if (payload->way.packs && send->shared_plan != NULL) {
        payload->way.packs =
            tmsg_pack_left(payload->measures, payload->way.fragments) >
            SHARED_COPY_MOST;
    }
    if (payload->measures->bytes > TMSG_PACK_SMALL_MOST) {
        status = tmsg_pack_count(send, tmsg_pack_whole(send, payload));
    }
    if (status != TMSG_OK) {
        tmsg_send_drop_header(send); /* it is made anew */
        return status;
    }
    send->am_flags = am_flags_of(payload->way.protocol);
    send->pulled = payload->way.bulk;
    if (payload->way.fragments || payload->way.slices) {
        status = tmsg_fragments_make(send, payload);
    }
    if (status == TMSG_OK) {
        status = plan_payload(send, payload);
    }
    if (status == TMSG_OK && payload->way.slices) {
        status = tmsg_fragments_slice(send, payload);
    }
    if (status == TMSG_OK && send->stage != NULL) {
        tmsg_stage_out_gathered(send);
        tmsg_stage_out_note(send, payload);
    }
    return status;
}

static uint8_t kind_of(const tmsg_send_t *send)
{
    uint8_t type = send->call.type;

    return type == 0                   ? TMSG_KIND_MAP
           : tmsg_call_is_stream(type) ? TMSG_KIND_STREAM
           : tmsg_call_is_over(type)   ? TMSG_KIND_STREAM_OVER
                                       : TMSG_KIND_CALL;
}

/* Chooses the way and checks the peer's limits. Metadata that goes beside the
 * map is left out, where it can be spared, rather than fail the message. */
static tmsg_status_t choose_and_check(tmsg_send_t *send, tmsg_preamble_t *head,
                                      tmsg_payload_t *payload)
{
    const tmsg_preamble_t before = *head;
    tmsg_status_t status = choose_way(send, head, payload);

    if (status == TMSG_OK) {
        status = tmsg_send_limits_payload(send, payload);
    }
    if (send->more != NULL && send->spares_more &&
        (status == TMSG_ERR_NO_MEMORY || status == TMSG_ERR_LIMIT_EXCEEDED)) {
        tmsg_send_drop_more(send);
        tmsg_send_drop_header(send);
        payload->extra->more = NULL;
        payload->spill = 0;
        *head = before;
        return choose_and_check(send, head, payload);
    }
    return status;
}

__attribute__((noinline)) static tmsg_status_t
prepare_loan(tmsg_send_t *send, tmsg_preamble_t *head, tmsg_payload_t *payload)
{
    tmsg_status_t status = tmsg_lend_prepare(send, payload);

    if (status == TMSG_OK && payload->extra->lent.count > 0) {
        head->flags |= TMSG_HEADER_LENT;
    }
    return status;
}

/* Fills in which ways the peer and the transport have. */
static void find_ways(tmsg_send_t *send)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;

    send->wish.fragments = endpoint->peer_hello.fragments > 0;
    send->wish.slices = send->wish.fragments &&
                        endpoint->peer_hello.features & TMSG_FEATURE_SLICES;
    send->wish.bulk = send->stage == NULL &&
                      tmsg_fragments_may_be_asked(endpoint) &&
                      tmsg_bulk_may_send(endpoint);
    send->wish.reads = tmsg_cma_sends(endpoint);
}

tmsg_status_t tmsg_send_prepare(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_preamble_t head = {
        .kind = kind_of(send),
        .flags = header_flags(send),
        .channel = send->channel->number,
        .message_id = send->message_id,
        .endpoint_id = endpoint->peer_id,
        .sequence = send->again ? send->sequence : send->channel->tx_sequence,
        .policy = (uint8_t)send->policy,
    };
    tmsg_body_extra_t extra = {
        .shared = send->shared_plan == NULL ? NULL : &send->shared_plan->body,
        .more = send->more};
    tmsg_payload_t payload = {.map = send->map,
                              .extra = &extra,
                              .spare = send->small_payload,
                              .spare_bytes = sizeof(send->small_payload),
                              .owned = tmsg_transport_wants_own(endpoint)};
    tmsg_status_t status = tmsg_channel_check(send->channel);

    find_ways(send);
    if (status == TMSG_OK && send->flags & TMSG_SEND_VERIFY) {
        status = make_room_for_checksums(send, &extra, &payload);
    }
    if (status == TMSG_OK) {
        status = keep_strides(send, &payload);
    }
    if (status == TMSG_OK && send->stage != NULL) {
        status = tmsg_stage_out_check(send);
    }
    if (status == TMSG_OK && send->stage != NULL && extra.checksum != NULL) {
        status = tmsg_stage_out_sum(send, &payload);
    }
    if (status == TMSG_OK) {
        status = judge_map(send, &payload);
    }
    if (status == TMSG_OK && send->stage != NULL) {
        status = tmsg_stage_out_gather(send, &payload);
    }
    if (status == TMSG_OK && send->flags & TMSG_SEND_LEND) {
        status = prepare_loan(send, &head, &payload);
    }
    if (status == TMSG_OK) {
        status = choose_and_check(send, &head, &payload);
    }
    if (status == TMSG_OK) {
        status = make_payload(send, &payload);
    }
    if (status == TMSG_OK) {
        status = write_send_header(send, &head, &payload);
    }
    if (status == TMSG_OK && extra.lent.count > 0) {
        status = tmsg_lend_begin(send);
    }
    if (status == TMSG_OK) {
        note_schema(send, &payload);
    }
    free(payload.checksums);
    free(payload.foreign);
    return status;
}
