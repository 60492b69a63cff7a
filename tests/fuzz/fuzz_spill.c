/* SPDX-License-Identifier: BSD-3-Clause */
/* A header and the payload behind it, as a receiver treats the two: a spilled
 * body is taken off the payload's head, and its tensors lie in what is left. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/checksum.h"
#include "serialize/header.h"
#include "serialize/split.h"
#include "support/must.h"

#define PARTS_MOST (1u << 20)

/* A copy of just its size, so that ASan sees each byte beyond. */
static uint8_t *copy(const uint8_t *from, size_t bytes)
{
    uint8_t *to = NULL;

    if (bytes > 0) {
        must_true(posix_memalign((void **)&to, TMSG_PAYLOAD_ALIGNMENT, bytes) ==
                  0);
        memcpy(to, from, bytes);
    }
    return to;
}

/* Each tensor lies where the format says, one behind the other. */
static void check_tensors(const tmsg_map_t *map, const uint8_t *block,
                          uint64_t block_bytes)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t end = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;
        uint64_t begin;
        uint8_t *packed;

        if (entries[i].bytes == 0) {
            continue;
        }
        begin = (uint64_t)((const uint8_t *)tensor->data - block);
        must_true(begin >= end && begin - end < TMSG_PAYLOAD_ALIGNMENT);
        must_true((uintptr_t)tensor->data %
                      tmsg_layout_alignment(tensor->dtype) ==
                  0);
        end = begin + entries[i].bytes;
        packed = malloc(entries[i].bytes);
        must(tmsg_tensor_pack(tensor, packed));
        free(packed);
    }
    must_true(end == block_bytes);
}

/* Parts come in messages of their own, into memory behind the others'. */
static void place_parts(tmsg_map_t *map, const tmsg_split_t *split)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t bytes = tmsg_split_place(split, map, NULL), end = 0;
    uint8_t *block;

    if (bytes > PARTS_MOST) {
        return;
    }
    block = malloc(bytes + 1);
    must_true(tmsg_split_place(split, map, block) == bytes);
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (entries[i].bytes > 0) {
            memset(entries[i].tensor.data, 1, entries[i].bytes);
        }
        end += entries[i].bytes;
    }
    must_true(end <= bytes);
    free(block);
}

static void receive(const tmsg_preamble_t *head, const uint8_t *body,
                    const uint8_t *payload, size_t payload_bytes)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    uint64_t spill = tmsg_payload_spill(head);
    tmsg_body_extra_t extra;
    uint8_t *spilled, *block;
    tmsg_map_t *map;

    if (tmsg_payload_check(head, payload_bytes, &limits) != TMSG_OK) {
        must_true(tmsg_error_message()[0] != '\0');
        return;
    }
    must_true(spill <= payload_bytes && spill % TMSG_PAYLOAD_ALIGNMENT == 0);
    must(tmsg_map_create(&map));
    spilled = copy(payload, spill);
    block = copy(payload + spill, payload_bytes - spill);
    if (head->flags & TMSG_HEADER_SPILLED) {
        body = spilled;
    }
    if (tmsg_body_decode(body, head->body_bytes, &limits, map, &extra) ==
            TMSG_OK &&
        tmsg_payload_check_map(head, map, &extra.split, &limits) == TMSG_OK) {
        if (extra.split.large > 0) {
            place_parts(map, &extra.split);
            tmsg_map_destroy(map);
            free(spilled);
            free(block);
            return;
        }
        tmsg_payload_place(map, block);
        (void)tmsg_checksum_verify(map, &extra, NULL, NULL);
        for (size_t i = 0; i < tmsg_map_size(map); i++) {
            tmsg_map_set_device(map, i, (tmsg_device_t){TMSG_DEVICE_CPU, 0});
        }
        check_tensors(map, block, payload_bytes - spill);
    }
    tmsg_map_destroy(map);
    free(spilled);
    free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tmsg_preamble_t head;
    size_t header_bytes;

    if (tmsg_preamble_decode(data, size, &head) != TMSG_OK) {
        return 0;
    }
    header_bytes = head.bytes;
    if (!(head.flags & TMSG_HEADER_SPILLED)) {
        header_bytes += head.body_bytes;
    }
    receive(&head, data + head.bytes, data + header_bytes, size - header_bytes);

    /* What else may be wrong, with a length that is right */
    head.payload_bytes = size - header_bytes;
    receive(&head, data + head.bytes, data + header_bytes, size - header_bytes);
    return 0;
}
