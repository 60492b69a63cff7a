/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/stage_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/measures.h"
#include "am/path/ipc.h"
#include "am/send/cancel.h"
#include "am/send/fragments.h"
#include "am/send/gather.h"
#include "am/staging/sum.h"
#include "am/staging/vital.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/device.h"
#include "core/map.h"
#include "core/tensor.h"
#include "memory/domain.h"
#include "serialize/split.h"

#define FILLS 3 /* one with UCX, one that may go, one being copied */
#define FILL_ALIGNMENT 64

/* Describes a chunk with fragments that follow each other. */
struct tmsg_fill {
    tmsg_copy_t copy;
    tmsg_send_t *send;
    tmsg_chunk_t *chunk; /* NULL: it is free */
    bool copying;
    uint64_t at;    /* where the next fragment to be handed over begins */
    uint64_t bytes; /* that the fragments take in the chunk */
    unsigned in_ucx;
};

/* Waits for what a stream held when the map was sent. */
typedef struct {
    tmsg_copy_t copy;
    tmsg_send_t *send;
    tmsg_device_t device;
    tmsg_stream_t stream;
} await_t;

struct tmsg_stage_out {
    tmsg_send_t *send;
    tmsg_soon_t call; /* waits for a chunk, or has to tell of a failure */
    tmsg_vital_t vital;
    bool lost; /* UCX never reports its fragments: the device has failed */
    tmsg_status_t failure;
    char why[240];
    const tmsg_split_t *split;
    size_t staged; /* tensors that UCX does not read */
    uint64_t staged_bytes;
    bool ipc;     /* they go by device memory that the peer opens */
    size_t slots; /* those of them that are copied into slots first */
    /* Memory of the application's that they lie in, one a tensor; NULL: none */
    tmsg_ipc_memory_t **own;
    size_t own_count;   /* tensors of the map */
    size_t copied;      /* tensors that UCX reads from blocks */
    uint8_t *is_copied; /* one a tensor; NULL: none is one of them */
    size_t tensor;      /* index of the next tensor that is copied */
    uint64_t offset;    /* in that tensor */
    bool stopped;
    unsigned copying;
    unsigned first, filled; /* of fills, in the order of fragments */
    tmsg_fill_t fills[FILLS];
    tmsg_sums_t sums; /* used if `values` is set */
    uint64_t *values; /* checksums, one a tensor */
    bool summed;      /* all of `values` are known */
    tmsg_gather_t gather;
    size_t awaited; /* streams that are not done */
    size_t streams;
    await_t streams_of[];
};

static const tmsg_domain_t *foreign_domain(const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain;

    if (entry->bytes == 0 || tmsg_map_entry_is_on_host(entry)) {
        return NULL;
    }
    domain = tmsg_domain_of(entry->tensor.device);
    return domain == &tmsg_domain_host ? NULL : domain;
}

static bool is_same(const await_t *await, const tmsg_map_entry_t *entry)
{
    return await->stream.kind == entry->stream.kind &&
           await->stream.handle == entry->stream.handle &&
           tmsg_device_is(await->device, entry->tensor.device);
}

static void run_failed(tmsg_soon_t *call)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(call, tmsg_stage_out_t, call);

    tmsg_send_fail(stage->send, stage->failure, stage->why);
}

/* Has the send fail in the next progress, for the caller may be in the middle
 * of other work on it. */
static void fail_stage(tmsg_stage_out_t *stage, tmsg_status_t status)
{
    if (stage->stopped || stage->failure != TMSG_OK) {
        return;
    }
    stage->failure = status;
    snprintf(stage->why, sizeof(stage->why),
             "its tensors could not be read: %s", tmsg_error_message());
    stage->call.run = run_failed;
    tmsg_soon(stage->send->endpoint->worker, &stage->call);
}

static void out_stream_done(tmsg_copy_t *copy, tmsg_status_t status)
{
    await_t *await = TMSG_CONTAINER_OF(copy, await_t, copy);
    tmsg_stage_out_t *stage = await->send->stage;

    stage->awaited--;
    if (status != TMSG_OK) {
        fail_stage(stage, status);
    } else if (stage->awaited == 0) {
        tmsg_worker_chore(await->send->endpoint->worker, await->send->endpoint);
    }
}

static tmsg_status_t await_stream(tmsg_stage_out_t *stage,
                                  const tmsg_map_entry_t *entry)
{
    await_t *await = &stage->streams_of[stage->streams];
    tmsg_status_t status;

    for (size_t i = 0; i < stage->streams; i++) {
        if (is_same(&stage->streams_of[i], entry)) {
            return TMSG_OK;
        }
    }
    *await = (await_t){.copy = {.over = out_stream_done},
                       .send = stage->send,
                       .device = entry->tensor.device,
                       .stream = entry->stream};
    status =
        tmsg_copy_watch(stage->send->endpoint->worker, &await->copy,
                        foreign_domain(entry), await->device, await->stream);
    if (status != TMSG_OK) {
        return tmsg_error_set(
            status, "tensor '%s': %s",
            tmsg_error_name(entry->name, entry->name_bytes).text,
            tmsg_error_message());
    }
    stage->streams++;
    stage->awaited++;
    return TMSG_OK;
}

/* Returns what has become of the devices of a map's tensors. */
static tmsg_status_t health_of_map(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const tmsg_map_entry_t *asked = NULL;
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        const tmsg_domain_t *domain = foreign_domain(&entries[i]);

        if (domain != NULL && !tmsg_domain_is_plain(domain) &&
            (asked == NULL ||
             !tmsg_device_is(asked->tensor.device, entries[i].tensor.device))) {
            asked = &entries[i];
            status = tmsg_vital_device(domain, asked->tensor.device);
        }
    }
    return status;
}

/* Ends a send whose device has failed. What UCX has of the device's memory
 * nobody reads any more, and UCX never reports it: connection and UCX worker
 * end with the send. */
static void ask_devices_of_send(tmsg_vital_t *vital)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(vital, tmsg_stage_out_t, vital);
    tmsg_send_t *send = stage->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool direct = vital->direct > 0;
    char why[sizeof(stage->why)];
    tmsg_status_t status;

    if (send->posted && !send->in_ucx && !tmsg_fragments_pending(send)) {
        return; /* nothing is left to be read */
    }
    status = health_of_map(send->map);
    if (status == TMSG_OK) {
        return;
    }
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    stage->lost = true;
    tmsg_endpoint_hold(endpoint);
    tmsg_send_fail(send, status, why);
    if (direct) {
        tmsg_endpoint_break(endpoint, status, why);
        tmsg_ucx_numb(endpoint->ucx);
    }
    tmsg_endpoint_drop(endpoint);
}

static size_t count_streams(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t count = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        count += entries[i].stream.kind != TMSG_STREAM_NONE;
    }
    return count;
}

tmsg_status_t tmsg_stage_out_create(tmsg_send_t *send)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(send->map);
    tmsg_stage_out_t *stage =
        calloc(1, sizeof(*stage) +
                      count_streams(send->map) * sizeof(*stage->streams_of));
    tmsg_status_t status = TMSG_OK;

    if (stage == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    stage->send = send;
    send->stage = stage;
    for (size_t i = 0; i < tmsg_map_size(send->map) && status == TMSG_OK; i++) {
        if (entries[i].stream.kind != TMSG_STREAM_NONE &&
            foreign_domain(&entries[i]) != NULL) {
            status = await_stream(stage, &entries[i]);
        }
    }
    if (status != TMSG_OK) {
        tmsg_stage_out_free(send);
        return status;
    }
    stage->vital.ask = ask_devices_of_send;
    tmsg_vital_watch(send->endpoint->worker, &stage->vital);
    return TMSG_OK;
}

static tmsg_chunks_t *out_chunks(const tmsg_send_t *send)
{
    return &send->endpoint->worker->stage.out;
}

static void give_fill(tmsg_fill_t *fill)
{
    if (fill->chunk != NULL && !fill->copying && fill->in_ucx == 0) {
        tmsg_chunk_give(fill->send->endpoint->worker, out_chunks(fill->send),
                        fill->chunk);
        fill->chunk = NULL;
    }
}

/* Ends checksums that are not known yet. They begin anew if the message is sent
 * after all. */
static void end_sums(tmsg_stage_out_t *stage)
{
    if (stage->values != NULL && !stage->summed) {
        tmsg_sums_end(&stage->sums);
        free(stage->values);
        stage->values = NULL;
    }
}

void tmsg_stage_out_stop(tmsg_send_t *send)
{
    tmsg_stage_out_t *stage = send->stage;

    if (stage == NULL) {
        return;
    }
    end_sums(stage);
    tmsg_gather_end(&stage->gather);
    if (stage->stopped) {
        return;
    }
    stage->stopped = true;
    tmsg_soon_forget(&stage->call);
    for (unsigned i = 0; i < FILLS; i++) {
        give_fill(&stage->fills[i]);
    }
}

static void drop_own(tmsg_stage_out_t *stage)
{
    for (size_t i = 0; i < stage->own_count; i++) {
        tmsg_ipc_free(stage->own[i]);
    }
    free(stage->own);
    stage->own = NULL;
    stage->own_count = 0;
}

void tmsg_stage_out_free(tmsg_send_t *send)
{
    tmsg_stage_out_t *stage = send->stage;

    if (stage == NULL) {
        return;
    }
    tmsg_stage_out_stop(send);
    tmsg_vital_forget(send->endpoint->worker, &stage->vital);
    for (size_t i = 0; i < stage->streams; i++) {
        tmsg_copy_forget(send->endpoint->worker, &stage->streams_of[i].copy);
    }
    free(stage->values);
    free(stage->is_copied);
    drop_own(stage);
    free(stage);
    send->stage = NULL;
}

static tmsg_status_t only_by_cpu(const tmsg_map_entry_t *entry,
                                 const char *what)
{
    return tmsg_error_set(
        TMSG_ERR_UNSUPPORTED,
        "tensor '%s': %s, which the CPU cannot do in memory of device type %d",
        tmsg_error_name(entry->name, entry->name_bytes).text, what,
        entry->tensor.device.type);
}

/* Returns whether UCX takes the memory as it is. The UCX of a peer that knows
 * no such memory finds no way to fetch it, and gives the connection up. */
static bool is_reached(const tmsg_send_t *send, const tmsg_map_entry_t *entry,
                       const tmsg_domain_t *domain, int *memory_type_p)
{
    return tmsg_ucx_reaches(send->endpoint->ucx, domain, entry->tensor.device,
                            memory_type_p) &&
           send->endpoint->peer_memory & 1ULL << *memory_type_p;
}

static tmsg_status_t require_path(const tmsg_send_t *send,
                                  const tmsg_map_entry_t *entry,
                                  const tmsg_domain_t *domain)
{
    const char *why = "UCX was built without support of %s: its memory is "
                      "copied through the host's";
    char words[200];
    int type;

    if (domain->transport == NULL) {
        why = "UCX knows no memory of the domain '%s': it is copied through "
              "the host's";
    } else if (tmsg_ucx_reaches(send->endpoint->ucx, domain,
                                entry->tensor.device, &type)) {
        why = "the peer's UCX knows no memory of %s: it is copied through the "
              "host's";
    }
    snprintf(words, sizeof(words), why,
             domain->transport == NULL ? domain->name : domain->transport);
    if (send->endpoint->worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED, "tensor '%s': %s, and a path is required",
            tmsg_error_name(entry->name, entry->name_bytes).text, words);
    }
    tmsg_copy_detour(send->endpoint->worker, TMSG_DETOUR_STAGED, words);
    return TMSG_OK;
}

/* Returns whether UCX has to pass such memory through the host's, where the
 * peer is on this machine: nobody else can map it. */
static bool is_unshared(const tmsg_send_t *send, const tmsg_map_entry_t *entry,
                        const tmsg_domain_t *domain)
{
    tmsg_memory_t memory;

    return send->endpoint->transport == TMSG_TRANSPORT_SHM &&
           !tmsg_domain_is_plain(domain) && domain->classify != NULL &&
           domain->classify(domain->arg, entry->tensor.data, &memory) ==
               TMSG_OK &&
           (memory.kind == TMSG_MEMORY_POOL ||
            memory.kind == TMSG_MEMORY_MAPPED ||
            memory.kind == TMSG_MEMORY_MANAGED);
}

static tmsg_status_t note_copied(tmsg_send_t *send, size_t index)
{
    tmsg_stage_out_t *stage = send->stage;

    if (stage->is_copied == NULL) {
        stage->is_copied = calloc(tmsg_map_size(tmsg_send_map(send)), 1);
    }
    if (stage->is_copied == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    stage->is_copied[index] = 1;
    stage->copied++;
    return TMSG_OK;
}

static bool is_copied(const tmsg_send_t *send, const tmsg_map_entry_t *entry)
{
    const uint8_t *copied = send->stage->is_copied;

    return copied != NULL &&
           copied[entry - tmsg_map_entries(tmsg_send_map(send))];
}

static tmsg_status_t check_tensor_path(tmsg_send_t *send, size_t index,
                                       const tmsg_domain_t *domain)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    int type;

    if (!tmsg_domain_is_plain(domain)) {
        if (send->flags & TMSG_SEND_VERIFY && send->flags & TMSG_SEND_TRY) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "tensor '%s': its checksum is read from memory of device type "
                "%d before it is sent, and TMSG_SEND_TRY waits for nothing",
                tmsg_error_name(entry->name, entry->name_bytes).text,
                entry->tensor.device.type);
        }
        if (tmsg_tensor_is_broadcast(&entry->tensor) &&
            !(send->endpoint->peer_hello.features & TMSG_FEATURE_BROADCAST)) {
            return only_by_cpu(entry, "a stride of it is 0, which is written "
                                      "out for a peer of an older version");
        }
        if (!tmsg_tensor_is_dense(&entry->tensor)) {
            return only_by_cpu(entry, "its strides leave gaps or overlap "
                                      "(TMSG_SEND_KEEP_STRIDES sends it as it "
                                      "lies)");
        }
    }
    if (is_reached(send, entry, domain, &type)) {
        return is_unshared(send, entry, domain) ? note_copied(send, index)
                                                : TMSG_OK;
    }
    send->stage->staged++;
    send->stage->staged_bytes += entry->bytes;
    return TMSG_OK;
}

/* Returns the memory of the application's that the peer copies a tensor out of,
 * or NULL. */
static tmsg_ipc_memory_t *own_memory(const tmsg_send_t *send,
                                     const tmsg_map_entry_t *entry)
{
    tmsg_ipc_memory_t **own = send->stage->own;

    return own == NULL ? NULL
                       : own[entry - tmsg_map_entries(tmsg_send_map(send))];
}

/* Returns the domain of a tensor that is copied before it is sent, or NULL. */
static const tmsg_domain_t *staged_domain(const tmsg_send_t *send,
                                          const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain = foreign_domain(entry);
    int type;

    return domain == NULL || own_memory(send, entry) != NULL ||
                   (is_reached(send, entry, domain, &type) &&
                    !is_copied(send, entry))
               ? NULL
               : domain;
}

/* Returns whether a tensor is to go by device memory that the peer opens: UCX
 * does not read it. */
static bool wants_ipc(const tmsg_send_t *send, const tmsg_map_entry_t *entry)
{
    return staged_domain(send, entry) != NULL && !is_copied(send, entry);
}

/* Returns whether the message has so many bytes that device memory which the
 * peer opens is worth its while. Any number has where a path is required. */
static bool is_worth_ipc(const tmsg_send_t *send)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_context_t *context = endpoint->worker->context;
    uint64_t least = context->tuning.of[endpoint->transport].device_ipc_bytes;

    return least != UINT64_MAX && (send->stage->staged_bytes >= least ||
                                   context->flags & TMSG_CONTEXT_REQUIRE_PATH);
}

static tmsg_status_t make_own(tmsg_stage_out_t *stage)
{
    size_t count = tmsg_map_size(tmsg_send_map(stage->send));

    stage->own = calloc(count, sizeof(*stage->own));
    if (stage->own == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    stage->own_count = count;
    return TMSG_OK;
}

/* Offers the memory of the application's that a tensor lies in, if it does.
 * Where the peer does not open that, a slot serves. Errors: IN_PROGRESS,
 * NO_MEMORY. */
static tmsg_status_t offer_own(tmsg_send_t *send, size_t index)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    tmsg_stage_out_t *stage = send->stage;
    tmsg_ipc_memory_t *memory = tmsg_ipc_find(entry->tensor.data, entry->bytes);
    tmsg_status_t status;

    if (memory == NULL) {
        return TMSG_OK;
    }
    status = tmsg_ipc_offer(send->endpoint, memory);
    if (status == TMSG_OK && stage->own == NULL) {
        status = make_own(stage);
    }
    if (status == TMSG_OK) {
        stage->own[index] = memory;
        return TMSG_OK;
    }
    tmsg_ipc_free(memory);
    return status == TMSG_ERR_UNSUPPORTED || status == TMSG_ERR_LIMIT_EXCEEDED
               ? TMSG_OK
               : status;
}

/* Finds out whether all tensors that UCX does not read go by device memory that
 * the peer opens. Errors: IN_PROGRESS (the peer has not answered). */
static tmsg_status_t choose_ipc(tmsg_send_t *send)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(tmsg_send_map(send));
    tmsg_stage_out_t *stage = send->stage;
    tmsg_status_t status = TMSG_OK;
    tmsg_ipc_block_t *block;

    if (!is_worth_ipc(send)) {
        return TMSG_OK;
    }
    for (size_t i = 0;
         i < tmsg_map_size(tmsg_send_map(send)) && status == TMSG_OK; i++) {
        if (wants_ipc(send, &entries[i])) {
            status = offer_own(send, i);
        }
        if (status == TMSG_OK && wants_ipc(send, &entries[i])) {
            stage->slots++;
            status = tmsg_ipc_ready(send->endpoint, foreign_domain(&entries[i]),
                                    entries[i].tensor.device, &block);
        }
    }
    stage->ipc = status == TMSG_OK;
    if (!stage->ipc) {
        drop_own(stage);
    }
    return status == TMSG_IN_PROGRESS && !(send->flags & TMSG_SEND_TRY)
               ? TMSG_IN_PROGRESS
               : TMSG_OK;
}

tmsg_status_t tmsg_stage_out_check(tmsg_send_t *send)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(tmsg_send_map(send));
    size_t size = tmsg_map_size(tmsg_send_map(send));
    tmsg_status_t status = TMSG_OK;

    send->stage->staged = 0;
    send->stage->copied = 0;
    free(send->stage->is_copied);
    send->stage->is_copied = NULL;
    send->stage->staged_bytes = 0;
    send->stage->ipc = false;
    send->stage->slots = 0;
    drop_own(send->stage);
    for (size_t i = 0; i < size && status == TMSG_OK; i++) {
        const tmsg_domain_t *domain = foreign_domain(&entries[i]);

        if (domain != NULL) {
            status = check_tensor_path(send, i, domain);
        }
    }
    if (status == TMSG_OK && send->stage->staged > 0) {
        status = choose_ipc(send);
    }
    for (size_t i = 0; i < size && status == TMSG_OK && !send->stage->ipc;
         i++) {
        if (wants_ipc(send, &entries[i])) {
            status =
                require_path(send, &entries[i], foreign_domain(&entries[i]));
        }
    }
    return status;
}

static void out_sum_found(tmsg_sums_t *sums, size_t index, uint64_t value)
{
    TMSG_CONTAINER_OF(sums, tmsg_stage_out_t, sums)->values[index] = value;
}

static void out_sums_over(tmsg_sums_t *sums, tmsg_status_t status)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(sums, tmsg_stage_out_t, sums);
    tmsg_endpoint_t *endpoint = stage->send->endpoint;

    if (status != TMSG_OK) {
        fail_stage(stage, status);
    } else {
        stage->summed = true;
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

static tmsg_status_t begin_sums(tmsg_stage_out_t *stage, const tmsg_map_t *map,
                                const tmsg_checksum_t *checksum)
{
    tmsg_worker_t *worker = stage->send->endpoint->worker;

    stage->values = calloc(tmsg_map_size(map), sizeof(*stage->values));
    if (stage->values == NULL) {
        return tmsg_error_memory("a message's checksums");
    }
    stage->sums = (tmsg_sums_t){.worker = worker,
                                .chunks = &worker->stage.out,
                                .map = map,
                                .checksum = checksum,
                                .found = out_sum_found,
                                .over = out_sums_over};
    tmsg_sums_begin(&stage->sums);
    return TMSG_IN_PROGRESS;
}

tmsg_status_t tmsg_stage_out_sum(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload)
{
    const tmsg_checksum_t *checksum = payload->extra->checksum;
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    tmsg_stage_out_t *stage = send->stage;

    if (stage->awaited > 0 || stage->failure != TMSG_OK) {
        return TMSG_IN_PROGRESS;
    }
    if (stage->values == NULL) {
        return begin_sums(stage, payload->map, checksum);
    }
    if (!stage->summed) {
        return TMSG_IN_PROGRESS;
    }
    for (size_t i = 0; i < tmsg_map_size(payload->map); i++) {
        if (tmsg_sums_has(&entries[i])) {
            tmsg_put_le(payload->checksums + i * checksum->bytes,
                        stage->values[i], checksum->bytes);
        }
    }
    return TMSG_OK;
}

void tmsg_stage_out_fail(const tmsg_send_t *send, tmsg_status_t status)
{
    fail_stage(send->stage, status);
}

tmsg_status_t tmsg_stage_out_gather(const tmsg_send_t *send,
                                    tmsg_payload_t *payload)
{
    tmsg_stage_out_t *stage = send->stage;

    if (payload->measures->gathered == 0) {
        return TMSG_OK;
    }
    return stage->awaited > 0 || stage->failure != TMSG_OK
               ? TMSG_IN_PROGRESS
               : tmsg_gather(&stage->gather, stage->send, payload->map,
                             payload->measures->small, &payload->gathered);
}

void tmsg_stage_out_gathered(const tmsg_send_t *send)
{
    tmsg_gather_end(&send->stage->gather);
}

bool tmsg_stage_out_sums(const tmsg_send_t *send)
{
    return send->stage != NULL && send->flags & TMSG_SEND_VERIFY &&
           !send->stage->summed;
}

bool tmsg_stage_out_stages(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->staged > 0 && !send->stage->ipc;
}

bool tmsg_stage_out_is_ipc(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->ipc;
}

bool tmsg_stage_out_has_slots(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->slots > 0;
}

uint64_t tmsg_stage_out_chunk(const tmsg_send_t *send, uint64_t chunk)
{
    uint64_t most = tmsg_stage_out_stages(send) ? TMSG_CHUNK_BYTES
                    : send->stage != NULL && send->stage->copied > 0
                        ? TMSG_BLOCK_BYTES
                        : chunk;

    return chunk < most ? chunk : most;
}

/* Goes on to the next tensor that is copied, from stage->tensor on. */
static const tmsg_domain_t *find_next_staged(tmsg_stage_out_t *stage)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    size_t size = tmsg_map_size(tmsg_send_map(stage->send));
    const tmsg_domain_t *domain = NULL;

    for (; stage->tensor < size; stage->tensor++) {
        if (tmsg_split_has(stage->split, stage->tensor,
                           entries[stage->tensor].bytes) &&
            (domain = staged_domain(stage->send, &entries[stage->tensor])) !=
                NULL) {
            break;
        }
    }
    return domain;
}

/* Returns whether a tensor of a device could go without the host's memory. */
static bool has_path(const tmsg_send_t *send, const tmsg_map_entry_t *entry)
{
    return send->stage->ipc || staged_domain(send, entry) == NULL ||
           is_copied(send, entry);
}

void tmsg_stage_out_note(const tmsg_send_t *send, const tmsg_payload_t *payload)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(tmsg_send_map(send));
    tmsg_stats_t *stats = &send->endpoint->stats;
    tmsg_gather_walk_t walk = {.small = payload->measures->small};

    for (size_t i = 0; i < tmsg_map_size(tmsg_send_map(send)); i++) {
        bool gathered = tmsg_gather_next(&walk, &entries[i]);

        if (gathered && has_path(send, &entries[i])) {
            stats->sent_gathered++;
        } else if (is_copied(send, &entries[i])) {
            stats->sent_copied++;
            stats->sent_copied_bytes += entries[i].bytes;
        } else if (own_memory(send, &entries[i]) != NULL ||
                   (send->stage->ipc &&
                    staged_domain(send, &entries[i]) != NULL)) {
            stats->sent_ipc++;
        } else if (staged_domain(send, &entries[i]) != NULL) {
            stats->sent_staged++;
            stats->sent_staged_bytes += entries[i].bytes;
        } else {
            stats->sent_direct += foreign_domain(&entries[i]) != NULL;
        }
    }
}

void tmsg_stage_out_begin(tmsg_send_t *send, const tmsg_split_t *split)
{
    tmsg_stage_out_t *stage = send->stage;

    stage->split = split;
    stage->tensor = 0;
    stage->offset = 0;
    stage->first = 0;
    stage->filled = 0;
    stage->stopped = false;
}

static uint64_t next_bytes(const tmsg_stage_out_t *stage)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(stage->send))[stage->tensor];
    uint64_t left = entry->bytes - stage->offset;
    uint64_t chunk = tmsg_split_chunk(stage->split, stage->tensor);

    return left < chunk ? left : chunk;
}

static uint64_t align_fill(uint64_t offset)
{
    return (offset + FILL_ALIGNMENT - 1) & ~(uint64_t)(FILL_ALIGNMENT - 1);
}

static void fill_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_fill_t *fill = TMSG_CONTAINER_OF(copy, tmsg_fill_t, copy);
    tmsg_send_t *send = fill->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_stage_out_t *stage = send->stage;

    tmsg_endpoint_hold(endpoint);
    fill->copying = false;
    stage->copying--;
    if (stage->stopped) {
        give_fill(fill);
        /* The send may have waited for this copy. */
        tmsg_send_settle(send);
    } else if (status != TMSG_OK) {
        fail_stage(stage, status);
    } else {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}

static tmsg_status_t copy_fragment(const tmsg_chunk_t *chunk,
                                   const tmsg_domain_t *domain,
                                   tmsg_device_t device, uint64_t at,
                                   const uint8_t *from, uint64_t bytes,
                                   tmsg_stream_t stream)
{
    return chunk->on_device
               ? domain->copy_within(domain->arg, device, chunk->data + at,
                                     from, bytes, stream)
               : domain->copy_out(domain->arg, device, chunk->data + at, from,
                                  bytes, stream);
}

/* Begins to copy the next fragments that fit, as long as they are of one
 * device. */
static tmsg_status_t copy_fragments_out(tmsg_stage_out_t *stage,
                                        tmsg_fill_t *fill,
                                        const tmsg_domain_t *domain,
                                        tmsg_device_t device,
                                        tmsg_stream_t stream)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    uint64_t at = 0;
    tmsg_status_t status = TMSG_OK;

    while (status == TMSG_OK && find_next_staged(stage) == domain &&
           domain != NULL) {
        const tmsg_map_entry_t *entry = &entries[stage->tensor];
        uint64_t bytes = next_bytes(stage);
        const uint8_t *from = entry->tensor.data;

        if (!tmsg_device_is(entry->tensor.device, device) ||
            at + bytes > fill->chunk->capacity) {
            break;
        }
        status = copy_fragment(fill->chunk, domain, device, at,
                               from + stage->offset, bytes, stream);
        if (is_copied(stage->send, entry) && !fill->chunk->on_device) {
            stage->send->endpoint->stats.sent_staged_bytes += bytes;
        }
        at = align_fill(at + bytes);
        fill->bytes = at;
        stage->offset += bytes;
        if (stage->offset == entry->bytes) {
            stage->offset = 0;
            stage->tensor++;
        }
    }
    return status;
}

/* Begins a copy: from here on the map's memory is read. If nothing can tell the
 * end of the copy, this waits for it: a second copy, without a stream, comes
 * behind the first. */
static tmsg_status_t begin_fill(tmsg_stage_out_t *stage, tmsg_fill_t *fill,
                                const tmsg_domain_t *domain)
{
    static const tmsg_stream_t none;
    tmsg_endpoint_t *endpoint = stage->send->endpoint;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(stage->send))[stage->tensor];
    tmsg_stream_t stream;
    tmsg_status_t status =
        tmsg_copy_stream(domain, entry->tensor.device, &stream);
    tmsg_status_t watched;

    if (status != TMSG_OK) {
        return status;
    }
    fill->copy.over = fill_copied;
    status =
        copy_fragments_out(stage, fill, domain, entry->tensor.device, stream);
    watched = fill->bytes == 0
                  ? TMSG_OK
                  : tmsg_copy_watch(endpoint->worker, &fill->copy, domain,
                                    entry->tensor.device, stream);
    if (status == TMSG_OK) {
        status = watched;
    }
    if (watched != TMSG_OK) {
        (void)copy_fragment(fill->chunk, domain, entry->tensor.device, 0,
                            entry->tensor.data, 1, none);
        return status;
    }
    fill->copying = true;
    stage->copying++;
    /* The endpoint stays until the copy is done. */
    endpoint->in_ucx++;
    return status;
}

static void run_pump(tmsg_soon_t *call)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(call, tmsg_stage_out_t, call)->send;

    tmsg_worker_chore(send->endpoint->worker, send->endpoint);
}

static bool has_chunk(const tmsg_stage_out_t *stage)
{
    bool has = false;

    for (unsigned i = 0; i < FILLS; i++) {
        has |= stage->fills[i].chunk != NULL;
    }
    return has;
}

/* A fragment that there is no block for goes by the host, unless a path is
 * required. */
static tmsg_status_t lack_block(const tmsg_send_t *send,
                                const tmsg_map_entry_t *entry)
{
    tmsg_worker_t *worker = send->endpoint->worker;
    char words[240];

    snprintf(words, sizeof(words),
             "there is no device memory to copy memory to that only this "
             "process can map, so it is copied through the host's: %s",
             tmsg_error_message());
    if (worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED, "tensor '%s': %s, and a path is required",
            tmsg_error_name(entry->name, entry->name_bytes).text, words);
    }
    tmsg_copy_detour(worker, TMSG_DETOUR_UNSHARED, words);
    return TMSG_OK;
}

/* Returns the device that a tensor's blocks are on. */
static tmsg_device_t block_device(const tmsg_map_entry_t *entry)
{
    tmsg_device_t device = entry->tensor.device;

    if (device.type == TMSG_DEVICE_CUDA_MANAGED) {
        device.type = TMSG_DEVICE_CUDA;
    }
    return device;
}

/* Takes a slot of device memory that the peer has opened. */
static tmsg_status_t take_slot(tmsg_stage_out_t *stage,
                               const tmsg_domain_t *domain, tmsg_soon_t *call,
                               tmsg_chunk_t **chunk_p)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    tmsg_ipc_block_t *block;
    tmsg_status_t status =
        tmsg_ipc_ready(stage->send->endpoint, domain,
                       entries[stage->tensor].tensor.device, &block);

    return status == TMSG_OK ? tmsg_ipc_slot_take(block, call, chunk_p)
                             : status;
}

/* Takes a chunk for the next fragments. If others wait for the message (`must`)
 * and there is no slot, the host's memory serves, unless a path is required. */
static tmsg_status_t take_chunk(tmsg_stage_out_t *stage,
                                const tmsg_domain_t *domain, bool must,
                                tmsg_chunk_t **chunk_p)
{
    tmsg_send_t *send = stage->send;
    tmsg_worker_t *worker = send->endpoint->worker;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[stage->tensor];
    bool waits =
        !must || has_chunk(stage) ||
        (stage->ipc && worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH);
    tmsg_soon_t *call = waits ? &stage->call : NULL;
    tmsg_status_t status;

    if (is_copied(send, entry)) {
        status =
            tmsg_block_take(worker, domain, block_device(entry), call, chunk_p);
        if (status == TMSG_OK || status == TMSG_IN_PROGRESS) {
            return status;
        }
        status = lack_block(send, entry);
        if (status != TMSG_OK) {
            return status;
        }
    } else if (stage->ipc) {
        status = take_slot(stage, domain, call, chunk_p);
        if (status == TMSG_OK || (status == TMSG_IN_PROGRESS && waits)) {
            return status;
        }
        send->endpoint->stats.sent_staged_bytes += next_bytes(stage);
    }
    return tmsg_chunk_take(worker, out_chunks(send), domain, next_bytes(stage),
                           call, chunk_p);
}

void tmsg_stage_out_pump(tmsg_send_t *send, bool must)
{
    tmsg_stage_out_t *stage = send->stage;
    const tmsg_domain_t *domain;
    tmsg_status_t status = TMSG_OK;

    if (stage->awaited > 0 || stage->stopped || stage->failure != TMSG_OK) {
        return;
    }
    stage->call.run = run_pump;
    while (status == TMSG_OK && stage->filled < FILLS &&
           (domain = find_next_staged(stage)) != NULL) {
        tmsg_fill_t *fill =
            &stage->fills[(stage->first + stage->filled) % FILLS];

        /* UCX still has the chunk. */
        if (fill->chunk != NULL) {
            return;
        }
        *fill = (tmsg_fill_t){.send = send};
        status = take_chunk(stage, domain, must, &fill->chunk);
        if (status == TMSG_OK) {
            stage->filled++;
            status = begin_fill(stage, fill, domain);
        }
    }
    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        fail_stage(stage, status);
    }
}

bool tmsg_stage_out_ready(const tmsg_send_t *send, size_t index)
{
    const tmsg_stage_out_t *stage = send->stage;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];

    if (foreign_domain(entry) == NULL) {
        return true;
    }
    if (stage->awaited > 0 || stage->failure != TMSG_OK) {
        return false;
    }
    return staged_domain(send, entry) == NULL ||
           (stage->filled > 0 && !stage->fills[stage->first].copying);
}

const uint8_t *tmsg_stage_out_take(tmsg_send_t *send, size_t index,
                                   uint64_t offset, uint64_t bytes,
                                   int *memory_type_p, tmsg_fill_t **fill_p)
{
    tmsg_stage_out_t *stage = send->stage;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    const tmsg_domain_t *domain = foreign_domain(entry);
    const uint8_t *data = entry->tensor.data;
    tmsg_fill_t *fill = &stage->fills[stage->first];

    *fill_p = NULL;
    if (domain == NULL) {
        return data + offset;
    }
    if ((is_reached(send, entry, domain, memory_type_p) &&
         !is_copied(send, entry)) ||
        own_memory(send, entry) != NULL) {
        return data + offset;
    }
    if (!fill->chunk->on_device) {
        *memory_type_p = TMSG_UCX_MEMORY_HOST;
    } else {
        (void)tmsg_ucx_reaches(send->endpoint->ucx, domain, fill->chunk->device,
                               memory_type_p);
    }
    data = fill->chunk->data + fill->at;
    fill->at = align_fill(fill->at + bytes);
    fill->in_ucx++;
    if (fill->at == fill->bytes) {
        stage->first = (stage->first + 1) % FILLS;
        stage->filled--;
    }
    *fill_p = fill;
    return data;
}

void tmsg_stage_out_reported(tmsg_send_t *send, tmsg_fill_t *fill)
{
    fill->in_ucx--;
    if (fill->at == fill->bytes || send->stage->stopped) {
        give_fill(fill);
        if (!send->stage->stopped) {
            tmsg_worker_chore(send->endpoint->worker, send->endpoint);
        }
    }
}

bool tmsg_stage_out_hands_over(tmsg_send_t *send, size_t index,
                               const tmsg_fill_t *fill)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    const tmsg_domain_t *domain = foreign_domain(entry);
    bool direct = domain != NULL && !tmsg_domain_is_plain(domain) &&
                  (fill == NULL || fill->chunk->on_device) &&
                  tmsg_stage_out_memory(send, index, fill) == NULL;

    send->stage->vital.direct += direct;
    return direct;
}

void tmsg_stage_out_returned(tmsg_send_t *send) { send->stage->vital.direct--; }

void tmsg_stage_out_unread(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_status_t status = health_of_map(tmsg_send_map(send));
    char why[sizeof(send->stage->why)];

    /* A peer that refuses a message rejects what of it comes, and says why. */
    if (tmsg_endpoint_is_down(endpoint) || tmsg_ucx_is_loss(ucs) ||
        ucs == TMSG_UCX_REJECTED) {
        return;
    }
    snprintf(why, sizeof(why), "%s%s",
             status == TMSG_OK ? "UCX could not read its device memory: " : "",
             status == TMSG_OK ? tmsg_ucx_status_words(ucs)
                               : tmsg_error_message());
    tmsg_send_answer(send, TMSG_ERR_IO, "%s: message %u: %s", endpoint->peer,
                     send->message_id, why);
    tmsg_endpoint_break(endpoint, TMSG_ERR_IO, why);
    if (status != TMSG_OK) {
        tmsg_ucx_numb(endpoint->ucx);
    }
}

bool tmsg_stage_out_is_lost(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->lost && !send->in_ucx &&
           tmsg_fragments_in_ucx(send) == send->stage->vital.direct;
}

const tmsg_ipc_memory_t *tmsg_stage_out_memory(const tmsg_send_t *send,
                                               size_t index,
                                               const tmsg_fill_t *fill)
{
    if (fill == NULL) {
        return own_memory(send, &tmsg_map_entries(tmsg_send_map(send))[index]);
    }
    return fill->chunk->ipc == NULL ? NULL : fill->chunk->ipc->memory;
}

bool tmsg_stage_out_copies(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->copying > 0;
}
