/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/limits.h"

#include <stdio.h>

#include "am/endpoint/measures.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/header.h"

static tmsg_status_t check_tensors_allowed(const tmsg_send_t *send)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    const tmsg_map_entry_t *entries = tmsg_map_entries(send->map);

    for (size_t i = 0; i < tmsg_map_size(send->map); i++) {
        if (entries[i].name_bytes > peer->max_name_bytes) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "%s: tensor '%s': a name of %zu bytes, the receiver allows "
                "%llu (its limit name_bytes)",
                send->endpoint->peer,
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text,
                entries[i].name_bytes,
                (unsigned long long)peer->max_name_bytes);
        }
        if ((uint64_t)entries[i].tensor.ndim > peer->max_ndim) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "%s: tensor '%s': ndim %d, the receiver allows %llu (its limit "
                "ndim)",
                send->endpoint->peer,
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text,
                entries[i].tensor.ndim, (unsigned long long)peer->max_ndim);
        }
    }
    return TMSG_OK;
}

/* Checks a map's keys, and adds the bytes of its keys and values. Leaves out
 * those that the map `but` (NULL: none) has, too. */
static tmsg_status_t check_keys_allowed(const tmsg_send_t *send,
                                        const tmsg_map_t *map,
                                        const tmsg_map_t *but, uint64_t *bytes)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);

    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        if (tmsg_map_meta_has(but, &entries[i])) {
            continue;
        }
        *bytes += entries[i].key_bytes + entries[i].value.bytes;
        if (entries[i].key_bytes > peer->max_name_bytes) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "%s: metadata '%s': a key of %zu bytes, the "
                "receiver allows %llu (its limit name_bytes)",
                send->endpoint->peer,
                tmsg_error_name(entries[i].key, entries[i].key_bytes).text,
                entries[i].key_bytes, (unsigned long long)peer->max_name_bytes);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_metadata_allowed(const tmsg_send_t *send)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    size_t keys = tmsg_body_count_keys(send->map, send->more);
    uint64_t bytes = 0;
    tmsg_status_t status;

    if (keys > peer->max_metadata_keys) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %zu metadata keys, the receiver allows %llu "
                              "(its limit metadata_keys)",
                              send->endpoint->peer, keys,
                              (unsigned long long)peer->max_metadata_keys);
    }
    status = check_keys_allowed(send, send->map, send->more, &bytes);
    if (status == TMSG_OK && send->more != NULL) {
        status = check_keys_allowed(send, send->more, NULL, &bytes);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (bytes > peer->max_metadata_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %llu bytes of metadata, the receiver "
                              "allows %llu (its limit metadata_bytes)",
                              send->endpoint->peer, (unsigned long long)bytes,
                              (unsigned long long)peer->max_metadata_bytes);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_send_limits_layout(const tmsg_send_t *send)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;

    if (tmsg_map_size(send->map) > peer->max_tensors) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %zu tensors, the receiver allows %llu (its "
                              "limit tensors)",
                              send->endpoint->peer, tmsg_map_size(send->map),
                              (unsigned long long)peer->max_tensors);
    }
    if (peer->max_name_bytes < TMSG_NAME_BYTES_MAX ||
        peer->max_ndim < TMSG_NDIM_MAX) {
        return check_tensors_allowed(send);
    }
    return TMSG_OK;
}

static tmsg_status_t too_large(const tmsg_send_t *send,
                               const tmsg_payload_t *payload, uint64_t bytes,
                               uint64_t most)
{
    const tmsg_measures_t *measures = payload->measures;
    char travels[160] = "";

    if (measures->out_bytes > measures->bytes) {
        snprintf(travels, sizeof(travels),
                 " with broadcast dimensions written out, of which %llu "
                 "travel: send it without them, or raise the limit there",
                 (unsigned long long)(bytes - measures->out_bytes +
                                      measures->bytes));
    }
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "%s: payload of %llu bytes, the receiver allows "
                          "%llu (its limit message_bytes)%s",
                          send->endpoint->peer, (unsigned long long)bytes,
                          (unsigned long long)most, travels);
}

tmsg_status_t tmsg_send_limits_payload(const tmsg_send_t *send,
                                       const tmsg_payload_t *payload)
{
    uint64_t most = send->endpoint->peer_hello.max_message_bytes;
    uint64_t bytes =
        payload->measures->out_bytes + tmsg_layout_spill(payload->spill);

    if (bytes > most) {
        return too_large(send, payload, bytes, most);
    }
    return check_metadata_allowed(send);
}
