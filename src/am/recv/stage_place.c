/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides where the tensors of a message go, and finds their memory there. */
#include <stdio.h>
#include <stdlib.h>

#include "am/boot/device_ids.h"
#include "am/endpoint/endpoint.h"
#include "am/path/ipc.h"
#include "am/recv/stage_in_struct.h"
#include "am/worker/staging.h"
#include "core/error.h"
#include "core/map.h"
#include "memory/domain.h"
#include "serialize/split.h"

static tmsg_status_t make_stage(tmsg_message_t *message)
{
    size_t count = tmsg_map_size(message->map);
    size_t bytes = sizeof(tmsg_stage_in_t) +
                   count * (sizeof(tmsg_dest_t) + sizeof(tmsg_step_t));
    tmsg_status_t status;

    if (message->stage != NULL) {
        return TMSG_OK;
    }
    status = tmsg_message_note(message, bytes);
    if (status != TMSG_OK) {
        return status;
    }
    message->stage = calloc(1, bytes);
    if (message->stage == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    message->stage->count = count;
    message->stage->steps =
        (tmsg_step_t *)(void *)(message->stage->dests + count);
    return TMSG_OK;
}

static tmsg_error_name_t entry_name_of(const tmsg_map_entry_t *entry)
{
    return tmsg_error_name(entry->name, entry->name_bytes);
}

static bool travels_in_fragments(const tmsg_message_t *message, size_t index)
{
    return tmsg_split_has(&message->extra.split, index,
                          tmsg_map_entries(message->map)[index].bytes);
}

/* Returns the domain that a tensor stays in if it can, or NULL. */
static const tmsg_domain_t *domain_of(const tmsg_message_t *message,
                                      tmsg_device_t device)
{
    const tmsg_domain_t *domain =
        message->endpoint->worker->flags & TMSG_WORKER_HOST_ONLY
            ? NULL
            : tmsg_domain_of(device);

    return domain == &tmsg_domain_host ? NULL : domain;
}

/* Sends a tensor to the host for which nobody has chosen a device. The sender
 * must allow that, and the context must not require a path. */
static tmsg_status_t fall_back(tmsg_message_t *message, size_t index,
                               const char *why)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    const tmsg_endpoint_t *endpoint = message->endpoint;
    int32_t type = entry->tensor.device.type;

    if (message->head.policy != TMSG_POLICY_HOST_FALLBACK) {
        return tmsg_error_set(
            TMSG_ERR_REFUSED,
            "tensor '%s': no memory of device type %d here%s, "
            "and the policy is strict",
            entry_name_of(entry).text, type, why);
    }
    if (endpoint->worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "tensor '%s': no memory of device type %d here%s, "
            "and a path is required",
            entry_name_of(entry).text, type, why);
    }
    tmsg_map_set_device(message->map, index, cpu);
    if (message->stage != NULL) {
        message->stage->dests[index].domain = NULL;
    }
    return TMSG_OK;
}

void tmsg_stage_in_on_host(tmsg_message_t *message)
{
    message->endpoint->stats.received_on_host++;
    tmsg_copy_detour(message->endpoint->worker, TMSG_DETOUR_HOST,
                     "a tensor sent from a device was received in host memory: "
                     "this process has no memory of that device");
}

/* Replaces a device that both sides' tables give the same number by this side's
 * device of that number. Errors: UNSUPPORTED (no driver shows it). */
static tmsg_status_t renumber_device(tmsg_message_t *message, size_t index)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    const tmsg_context_t *context = endpoint->worker->context;
    tmsg_device_t device;
    tmsg_status_t status;
    uint32_t number;

    if (context->devices == NULL ||
        !tmsg_device_ids_find(
            endpoint->peer_hello.devices,
            tmsg_map_entries(message->map)[index].tensor.device, &number)) {
        return TMSG_OK;
    }
    status = tmsg_context_device(context, number, &device);
    if (status == TMSG_OK) {
        tmsg_map_set_device(message->map, index, device);
    }
    return status == TMSG_ERR_NOT_FOUND ? TMSG_OK : status;
}

/* Decides where a tensor goes that was on a device at its sender. */
static tmsg_status_t tensor_decoded(tmsg_message_t *message, size_t index)
{
    const tmsg_domain_t *domain = NULL;
    char why[200] = "";
    tmsg_status_t status;

    if (renumber_device(message, index) == TMSG_OK) {
        const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];

        if (tmsg_map_entry_is_on_host(entry)) { /* this side's table says so */
            return TMSG_OK;
        }
        domain = domain_of(message, entry->tensor.device);
    } else {
        snprintf(why, sizeof(why), " (%s)", tmsg_error_message());
    }
    if (domain == NULL) {
        status = fall_back(message, index, why);
        tmsg_stage_in_on_host(message);
        return status;
    }
    status = make_stage(message);
    if (status == TMSG_OK) {
        message->stage->dests[index].domain = domain;
        message->stage->dests[index].gathered =
            !travels_in_fragments(message, index);
    }
    return status;
}

tmsg_status_t tmsg_stage_in_decoded(tmsg_message_t *message)
{
    tmsg_status_t status = TMSG_OK;

    if (tmsg_map_is_of_host(message->map)) {
        return TMSG_OK;
    }
    for (size_t i = 0; i < tmsg_map_size(message->map) && status == TMSG_OK;
         i++) {
        if (!tmsg_map_entry_is_on_host(&tmsg_map_entries(message->map)[i])) {
            status = tensor_decoded(message, i);
        }
    }
    return status;
}

tmsg_status_t tmsg_stage_in_choose(tmsg_message_t *message, size_t index,
                                   tmsg_device_t device, tmsg_stream_t stream)
{
    const tmsg_domain_t *domain;
    tmsg_status_t status = tmsg_domain_find(device, &domain);
    tmsg_dest_t *dest;

    if (status == TMSG_OK) {
        status = make_stage(message);
    }
    if (status != TMSG_OK) {
        return status;
    }
    dest = &message->stage->dests[index];
    dest->domain = domain == &tmsg_domain_host ? NULL : domain;
    message->endpoint->worker->rx.chooses |= dest->domain != NULL;
    dest->stream = stream;
    dest->chosen = true;
    tmsg_map_set_device(message->map, index, device);
    return TMSG_OK;
}

void tmsg_stage_in_placed(tmsg_message_t *message, size_t index)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    tmsg_dest_t *dest =
        message->stage == NULL ? NULL : &message->stage->dests[index];

    if (dest == NULL || dest->chosen) {
        return;
    }
    dest->domain = NULL;
    if (!tmsg_map_entry_is_on_host(&tmsg_map_entries(message->map)[index])) {
        tmsg_map_set_device(message->map, index, cpu);
    }
}

/* Returns the bytes of a tensor's longest fragment. */
static uint64_t fragment_bytes(const tmsg_message_t *message, size_t index)
{
    uint64_t chunk = tmsg_split_chunk(&message->extra.split, index);
    uint64_t bytes = tmsg_map_entries(message->map)[index].bytes;

    return bytes < chunk ? bytes : chunk;
}

tmsg_status_t tmsg_stage_in_no_path(const tmsg_message_t *message, size_t index)
{
    return tmsg_error_set(
        TMSG_ERR_UNSUPPORTED,
        "tensor '%s': UCX does not write memory of the domain '%s', and a "
        "path is required",
        entry_name_of(&tmsg_map_entries(message->map)[index]).text,
        message->stage->dests[index].domain->name);
}

/* Returns whether UCX has to pass such memory through the host's, by small
 * pieces: the sender cannot map it, nor can the device read the sender's. */
static bool is_slow_for_ucx(const tmsg_message_t *message, tmsg_device_t device)
{
    return device.type == TMSG_DEVICE_CUDA_MANAGED &&
           message->endpoint->transport == TMSG_TRANSPORT_SHM;
}

/* Decides whether UCX writes a tensor's memory. Fails if nobody can write it.
 */
static tmsg_status_t judge_dest(tmsg_message_t *message, size_t index)
{
    tmsg_dest_t *dest = &message->stage->dests[index];
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    bool plain = tmsg_domain_is_plain(dest->domain);

    dest->direct = tmsg_ucx_reaches(message->ucx, dest->domain,
                                    entry->tensor.device, &dest->memory_type);
    dest->reached = dest->direct || tmsg_ipc_is_open(message->endpoint);
    dest->direct &= !is_slow_for_ucx(message, entry->tensor.device) &&
                    (plain || travels_in_fragments(message, index));
    if (dest->direct || (dest->reached && dest->gathered)) {
        return TMSG_OK;
    }
    dest->ipc = travels_in_fragments(message, index) &&
                tmsg_ipc_is_open(message->endpoint);
    if (!dest->ipc &&
        message->endpoint->worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        return tmsg_stage_in_no_path(message, index);
    }
    if (travels_in_fragments(message, index) &&
        fragment_bytes(message, index) > TMSG_CHUNK_BYTES_MOST) {
        return tmsg_error_set(
            TMSG_ERR_LIMIT_EXCEEDED,
            "tensor '%s': fragments of %llu bytes, at most "
            "%llu go to memory of "
            "device type %d",
            entry_name_of(entry).text,
            (unsigned long long)fragment_bytes(message, index),
            (unsigned long long)TMSG_CHUNK_BYTES_MOST,
            entry->tensor.device.type);
    }
    return TMSG_OK;
}

/* Returns whether the device is missing, may not be used, or is full. */
static bool may_fall_back(tmsg_status_t status)
{
    return status == TMSG_ERR_NOT_FOUND || status == TMSG_ERR_UNSUPPORTED ||
           status == TMSG_ERR_NO_MEMORY || status == TMSG_ERR_IO;
}

uint64_t tmsg_stage_in_held(const tmsg_message_t *message)
{
    const tmsg_stage_in_t *stage = message->stage;

    return stage == NULL ? 0 : stage->head_bytes + stage->pooled;
}

/* Fails if a message needs more than the whole budget: it would wait for ever
 * for memory that it holds itself. */
static tmsg_status_t check_budget(const tmsg_message_t *message, uint64_t more)
{
    uint64_t bytes = tmsg_stage_in_held(message) + more;

    if (message->landed) {
        bytes += tmsg_payload_spill(&message->head);
        bytes += tmsg_budget_asks(message->budget) ? 0 : message->block.bytes;
    }
    return bytes <= tmsg_budget_limit(message->budget)
               ? TMSG_OK
               : tmsg_budget_too_small(message->budget, bytes);
}

static tmsg_status_t find_one(tmsg_message_t *message, size_t index)
{
    tmsg_dest_t *dest = &message->stage->dests[index];
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    char why[200];
    tmsg_status_t status;

    dest->memory.block = (tmsg_device_block_t){.domain = dest->domain,
                                               .device = entry->tensor.device,
                                               .stream = dest->stream};
    status =
        tmsg_budget_device_alloc(message->budget, entry->bytes, &dest->memory);
    if (status == TMSG_OK) {
        tmsg_map_place(message->map, index, dest->memory.block.data);
        message->stage->pooled += dest->memory.theirs ? 0 : entry->bytes;
        return TMSG_OK;
    }
    if (status == TMSG_IN_PROGRESS) {
        tmsg_status_t ever = check_budget(message, entry->bytes);

        return ever == TMSG_OK ? TMSG_IN_PROGRESS : ever;
    }
    snprintf(why, sizeof(why), " (%s)", tmsg_error_message());
    if (dest->chosen || !may_fall_back(status)) {
        return tmsg_error_set(status, "tensor '%s'%s",
                              entry_name_of(entry).text, why);
    }
    dest->on_host = true;
    return fall_back(message, index, why);
}

/* Finds host memory for the tensors of the message itself, which are copied on
 * to a device, and takes the longest chunk into account that a fragment needs.
 */
static tmsg_status_t find_head(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    uint64_t bytes = 0, longest = 0;
    tmsg_status_t status;

    for (size_t i = 0; i < stage->count; i++) {
        if (!tmsg_dest_is_staged(&stage->dests[i])) {
            continue;
        }
        if (!travels_in_fragments(message, i)) {
            bytes += (entries[i].bytes + 63) & ~(uint64_t)63;
        } else if (fragment_bytes(message, i) > longest) {
            longest = fragment_bytes(message, i);
        }
    }
    longest = longest > TMSG_CHUNKS_BYTES ? longest : 0;
    if (bytes + longest == 0 || message->landed || stage->head_bytes > 0) {
        return TMSG_OK;
    }
    status = check_budget(message, bytes + longest);
    if (status == TMSG_OK) {
        status = tmsg_budget_reserve(message->budget, bytes + longest);
    }
    if (status != TMSG_OK) {
        return status;
    }
    stage->head_bytes = bytes + longest;
    if (bytes > 0) {
        status = tmsg_pool_take(tmsg_budget_pool(message->budget), bytes,
                                &stage->head);
    }
    bytes = 0;
    for (size_t i = 0; i < stage->count && status == TMSG_OK; i++) {
        if (tmsg_dest_is_staged(&stage->dests[i]) &&
            !travels_in_fragments(message, i)) {
            stage->dests[i].host = (uint8_t *)stage->head.data + bytes;
            bytes += (entries[i].bytes + 63) & ~(uint64_t)63;
        }
    }
    return status;
}

tmsg_status_t tmsg_stage_in_find(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < stage->count && status == TMSG_OK; i++) {
        if (stage->dests[i].domain == NULL || entries[i].bytes == 0) {
            continue;
        }
        status = judge_dest(message, i);
        if (status == TMSG_OK && entries[i].tensor.data == NULL) {
            status = find_one(message, i);
        }
    }
    return status == TMSG_OK ? find_head(message) : status;
}

uint8_t *tmsg_stage_in_host(const tmsg_message_t *message, size_t index)
{
    const tmsg_dest_t *dest =
        message->stage == NULL ? NULL : &message->stage->dests[index];

    return dest != NULL && tmsg_dest_is_staged(dest)
               ? dest->host
               : tmsg_map_entries(message->map)[index].tensor.data;
}

bool tmsg_stage_in_lies(tmsg_message_t *message, size_t index, uint8_t *host)
{
    tmsg_dest_t *dest =
        message->stage == NULL ? NULL : &message->stage->dests[index];

    if (dest == NULL || !tmsg_dest_is_staged(dest)) {
        return false;
    }
    dest->host = host;
    return true;
}

void tmsg_stage_in_free(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;

    if (stage == NULL) {
        return;
    }
    for (size_t i = 0; i < stage->count; i++) {
        tmsg_budget_device_free(message->budget, &stage->dests[i].memory);
    }
    tmsg_pool_give(tmsg_budget_pool(message->budget), stage->head);
    if (stage->head_bytes > 0) {
        tmsg_budget_discharge(message->budget, stage->head_bytes);
    }
    free(stage);
    message->stage = NULL;
}
