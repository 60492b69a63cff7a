/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a UCXX message, from a sender who may be anybody: 2 bytes of
 * the payload's length, then the header. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/ucxx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What it was taken for is what we would send, and that says the same. */
static void send_on(const tmsg_map_t *map, const tmsg_ucxx_header_t *header)
{
    tmsg_ucxx_header_t again;
    uint8_t *bytes = NULL;
    size_t count = 0;
    tmsg_status_t status =
        tmsg_ucxx_from_map(map, header->policy, &bytes, &count);

    assert(status == TMSG_OK);
    status = tmsg_ucxx_decode(bytes, count, &again);
    assert(status == TMSG_OK);
    if (header->user_bytes > 0) {
        assert(again.user_bytes == header->user_bytes &&
               memcmp(again.user, header->user, again.user_bytes) == 0);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tmsg_ucxx_header_t header;
    tmsg_limits_t limits;
    uint64_t payload_bytes;
    tmsg_map_t *map;
    tmsg_status_t status;

    if (size < 2 || tmsg_ucxx_decode(data + 2, size - 2, &header) != TMSG_OK) {
        return 0;
    }
    payload_bytes = (uint64_t)(data[0] | data[1] << 8);
    limits = tmsg_limits_usual();
    status = tmsg_map_create(&map);
    assert(status == TMSG_OK);
    status = tmsg_ucxx_to_map(&header, payload_bytes, &limits, map);
    if (status == TMSG_OK) {
        assert(tmsg_map_size(map) == 1);
        assert(tmsg_map_entries(map)[0].bytes == payload_bytes);
        send_on(map, &header);
    } else {
        assert(status == TMSG_ERR_MALFORMED || status == TMSG_ERR_UNSUPPORTED ||
               status == TMSG_ERR_LIMIT_EXCEEDED);
        assert(tmsg_map_size(map) == 0);
    }
    tmsg_map_destroy(map);
    return 0;
}
