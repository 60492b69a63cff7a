/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz: slow */
/* Worker addresses as a stranger makes them up, sealed afterwards. An input is
 *
 *   [how][bytes: the address, as each version of UCX reads it]
 *
 * or, if the lowest bit of `how` is set, changes of an address that UCX packed,
 * which is then judged by a UCX worker of this process:
 *
 *   [how][place u16][byte] ...
 *
 * Bit 1 has it judged as one of the network alone. What UCX itself makes of an
 * address that passes, soak/addresses tells: UCX ends the process. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "am/boot/blob.h"
#include "am/ucx/packed.h"
#include "am/ucx/peer_address.h"
#include "core/bytes.h"
#include "support/lone_ucx.h"

static tmsg_ucx_t *judging, *judged;

static void open_both(void)
{
    static tmsg_loop_t loop;

    if (judging == NULL) {
        if (tmsg_loop_open(&loop) != TMSG_OK) {
            abort();
        }
        judging = lone_ucx_open(&loop, "TLS=all", "packed");
        judged = lone_ucx_open(&loop, "TLS=all", "packed");
    }
}

static void check_bounds(const tmsg_packed_t *packed, const uint8_t *bytes,
                         size_t count)
{
    assert(packed->version == 1 || packed->version == 2);
    for (size_t i = 0; i < packed->device_count; i++) {
        const tmsg_packed_device_t *device = &packed->devices[i];

        assert(device->address >= bytes &&
               device->address + device->address_bytes <= bytes + count);
    }
    for (size_t i = 0; i < packed->entry_count; i++) {
        const tmsg_packed_entry_t *entry = &packed->entries[i];

        assert(entry->device < packed->device_count);
        assert(entry->address >= bytes &&
               entry->address + entry->address_bytes <= bytes + count);
    }
}

/* Reads an address as each version of UCX does. */
static void read_all(const uint8_t *bytes, size_t count)
{
    static tmsg_packed_t packed;

    for (unsigned minor = TMSG_PACKED_MINOR_FIRST;
         minor <= TMSG_PACKED_MINOR_LAST; minor++) {
        tmsg_status_t status = tmsg_packed_read(bytes, count, minor, &packed);

        assert(status == TMSG_OK || status == TMSG_ERR_MALFORMED);
        if (status == TMSG_OK) {
            check_bounds(&packed, bytes, count);
        }
    }
}

static void judge(const uint8_t *bytes, size_t count, bool net_only)
{
    const tmsg_address_claim_t claim = {.hello = &judged->hello,
                                        .net_only = net_only};
    tmsg_peer_address_t *address;
    tmsg_status_t status =
        tmsg_peer_address_check(judging, &claim, bytes, count, &address);

    assert(status == TMSG_OK || status == TMSG_ERR_MALFORMED ||
           status == TMSG_ERR_UNREACHABLE);
    if (status == TMSG_OK) {
        assert(memcmp(tmsg_peer_address_bytes(address), bytes, count) == 0);
        tmsg_peer_address_free(address);
    }
}

/* Judges an address that UCX packed, with changes. */
static void judge_changed(const uint8_t *data, size_t size, bool net_only)
{
    void *address;
    size_t count;

    open_both();
    if (tmsg_ucx_address(judged, net_only, &address, &count) != TMSG_OK) {
        abort();
    }
    for (; size >= 3; data += 3, size -= 3) {
        ((uint8_t *)address)[tmsg_get_le(data, 2) % count] = data[2];
    }
    read_all(address, count);
    judge(address, count, net_only);
    tmsg_ucx_address_free(address);
}

/* Seals the address and takes it out again, as it travels. */
static void judge_sealed(const uint8_t *data, size_t size, bool net_only)
{
    tmsg_sealed_t sealed = {.address = data, .address_bytes = size};
    size_t bytes = size + TMSG_SEALED_EXTRA_BYTES;
    uint8_t *frame = malloc(bytes);

    if (frame != NULL &&
        tmsg_sealed_encode(&sealed, frame, bytes, &bytes) == TMSG_OK &&
        tmsg_sealed_decode(frame, bytes, &sealed) == TMSG_OK) {
        read_all(sealed.address, sealed.address_bytes);
        judge(sealed.address, sealed.address_bytes, net_only);
    }
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    open_both();
    if (data[0] & 1) {
        judge_changed(data + 1, size - 1, data[0] & 2);
    } else {
        read_all(data + 1, size - 1); /* ASan knows where these end */
        judge_sealed(data + 1, size - 1, data[0] & 2);
    }
    return 0;
}
