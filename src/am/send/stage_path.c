/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/send/stage_out_struct.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "core/tensor.h"

const tmsg_domain_t *tmsg_stage_domain(const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain;

    if (entry->bytes == 0 || tmsg_map_entry_is_on_host(entry)) {
        return NULL;
    }
    domain = tmsg_domain_of(entry->tensor.device);
    return domain == &tmsg_domain_host ? NULL : domain;
}

bool tmsg_stage_is_reached(const tmsg_send_t *send,
                           const tmsg_map_entry_t *entry,
                           const tmsg_domain_t *domain, int *memory_type_p)
{
    return tmsg_ucx_reaches(send->endpoint->ucx, domain, entry->tensor.device,
                            memory_type_p) &&
           send->endpoint->peer_memory & 1ULL << *memory_type_p;
}

bool tmsg_stage_is_copied(const tmsg_send_t *send,
                          const tmsg_map_entry_t *entry)
{
    const uint8_t *copied = send->stage->is_copied;

    return copied != NULL &&
           copied[entry - tmsg_map_entries(tmsg_send_map(send))];
}

const tmsg_domain_t *tmsg_stage_staged_domain(const tmsg_send_t *send,
                                              const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain = tmsg_stage_domain(entry);
    int type;

    return domain == NULL || tmsg_stage_own_memory(send, entry) != NULL ||
                   (tmsg_stage_is_reached(send, entry, domain, &type) &&
                    !tmsg_stage_is_copied(send, entry))
               ? NULL
               : domain;
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
static bool is_unshared(const tmsg_endpoint_t *endpoint,
                        const tmsg_map_entry_t *entry,
                        const tmsg_domain_t *domain)
{
    tmsg_memory_t memory;

    return endpoint->transport == TMSG_TRANSPORT_SHM &&
           !tmsg_domain_is_plain(domain) && domain->classify != NULL &&
           domain->classify(domain->arg, entry->tensor.data, &memory) ==
               TMSG_OK &&
           (memory.kind == TMSG_MEMORY_POOL ||
            memory.kind == TMSG_MEMORY_MAPPED ||
            memory.kind == TMSG_MEMORY_MANAGED);
}

bool tmsg_stage_out_detours(const tmsg_endpoint_t *endpoint,
                            const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain = tmsg_stage_domain(entry);
    int type;

    return domain != NULL &&
           tmsg_ucx_reaches(endpoint->ucx, domain, entry->tensor.device,
                            &type) &&
           is_unshared(endpoint, entry, domain);
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
            return only_by_cpu(entry,
                               "its strides leave gaps or overlap "
                               "(TMSG_SEND_KEEP_STRIDES sends it unpacked)");
        }
    }
    if (tmsg_stage_is_reached(send, entry, domain, &type)) {
        return is_unshared(send->endpoint, entry, domain)
                   ? note_copied(send, index)
                   : TMSG_OK;
    }
    send->stage->staged++;
    send->stage->staged_bytes += entry->bytes;
    return TMSG_OK;
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
    tmsg_stage_drop_own(send->stage);
    for (size_t i = 0; i < size && status == TMSG_OK; i++) {
        const tmsg_domain_t *domain = tmsg_stage_domain(&entries[i]);

        if (domain != NULL) {
            status = check_tensor_path(send, i, domain);
        }
    }
    if (status == TMSG_OK && send->stage->staged > 0) {
        status = tmsg_stage_choose_ipc(send);
    }
    for (size_t i = 0; i < size && status == TMSG_OK && !send->stage->ipc;
         i++) {
        if (tmsg_stage_wants_ipc(send, &entries[i])) {
            status =
                require_path(send, &entries[i], tmsg_stage_domain(&entries[i]));
        }
    }
    return status;
}

bool tmsg_stage_out_stages(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->staged > 0 && !send->stage->ipc;
}

uint64_t tmsg_stage_out_chunk(const tmsg_send_t *send, uint64_t chunk)
{
    uint64_t most = tmsg_stage_out_stages(send) ? TMSG_CHUNK_BYTES
                    : send->stage != NULL && send->stage->copied > 0
                        ? TMSG_BLOCK_BYTES
                        : chunk;

    return chunk < most ? chunk : most;
}

/* Returns whether a tensor of a device could go without the host's memory. */
static bool has_path(const tmsg_send_t *send, const tmsg_map_entry_t *entry)
{
    return send->stage->ipc || tmsg_stage_staged_domain(send, entry) == NULL ||
           tmsg_stage_is_copied(send, entry);
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
        } else if (tmsg_stage_is_copied(send, &entries[i])) {
            stats->sent_copied++;
            stats->sent_copied_bytes += entries[i].bytes;
        } else if (tmsg_stage_own_memory(send, &entries[i]) != NULL ||
                   (send->stage->ipc &&
                    tmsg_stage_staged_domain(send, &entries[i]) != NULL)) {
            stats->sent_ipc++;
        } else if (tmsg_stage_staged_domain(send, &entries[i]) != NULL) {
            stats->sent_staged++;
            stats->sent_staged_bytes += entries[i].bytes;
        } else {
            stats->sent_direct += tmsg_stage_domain(&entries[i]) != NULL;
        }
    }
}
