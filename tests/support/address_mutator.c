/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/address_mutator.h"

#include <string.h>

#include "am/ucx/packed.h"
#include "core/bytes.h"
#include "support/seeded_maps.h"

typedef struct {
    uint8_t *bytes;
    size_t count;
    uint64_t state;
    const tmsg_packed_t *packed; /* as it was */
} mutant_address_t;

static uint64_t below(mutant_address_t *mutant, uint64_t bound)
{
    return sample_random(&mutant->state) % bound;
}

static void change_bytes(mutant_address_t *mutant)
{
    static const uint8_t counts[] = {1, 1, 2, 4, 16};
    static const uint8_t values[] = {0, 255, 127, 128, 1};

    for (unsigned n = counts[below(mutant, sizeof(counts))]; n > 0; n--) {
        uint8_t *at = &mutant->bytes[below(mutant, mutant->count)];
        uint64_t how = below(mutant, 8);

        *at = how < sizeof(values) ? values[how]
              : how == 5           ? (uint8_t)(*at ^ 1 << below(mutant, 8))
                                   : (uint8_t)sample_random(&mutant->state);
    }
}

static void change_length(mutant_address_t *mutant)
{
    size_t count = 1 + below(mutant, mutant->count + 40);

    while (mutant->count < count) {
        mutant->bytes[mutant->count++] = (uint8_t)sample_random(&mutant->state);
    }
    mutant->count = count;
}

static void make_up(mutant_address_t *mutant)
{
    static const uint16_t counts[] = {1, 8, 64, 400};

    mutant->count = counts[below(mutant, 4)];
    for (size_t i = below(mutant, 10); i < mutant->count; i++) {
        mutant->bytes[i] = (uint8_t)sample_random(&mutant->state);
    }
}

/* Where a device begins. */
static size_t start_of(const mutant_address_t *mutant, size_t device)
{
    const tmsg_packed_device_t *at = &mutant->packed->devices[device];

    return (size_t)(at->address - mutant->bytes) - 2 - (at->paths > 1) -
           (at->system != TMSG_PACKED_NO_SYSTEM);
}

/* Tells of several paths of a device, or of a system device. */
static void tell_more(mutant_address_t *mutant)
{
    static const uint8_t flags[] = {0x20, 0x40, 0x60};
    uint8_t flag = flags[below(mutant, 3)];
    size_t at, more = flag == 0x60 ? 2 : 1;

    if (mutant->packed->device_count == 0) {
        change_bytes(mutant);
        return;
    }
    at = start_of(mutant, below(mutant, mutant->packed->device_count)) + 1;
    if (mutant->bytes[at] & 0x60) {
        mutant->bytes[at + 1] = (uint8_t)sample_random(&mutant->state);
        return;
    }
    mutant->bytes[at] |= flag;
    memmove(mutant->bytes + at + 1 + more, mutant->bytes + at + 1,
            mutant->count - at - 1);
    for (size_t i = 1; i <= more; i++) {
        mutant->bytes[at + i] = (uint8_t)sample_random(&mutant->state);
    }
    mutant->count += more;
}

/* Removes, doubles, or moves to the front. */
static void change_devices(mutant_address_t *mutant)
{
    size_t devices = mutant->packed->device_count;
    size_t device, start, end, length;
    uint8_t kept[ADDRESS_BYTES_MOST];

    if (devices < 2) {
        change_bytes(mutant);
        return;
    }
    device = below(mutant, devices - 1);
    start = start_of(mutant, device);
    end = start_of(mutant, device + 1);
    length = end - start;
    memcpy(kept, mutant->bytes + start, length);
    if (below(mutant, 3) == 0) {
        memmove(mutant->bytes + start, mutant->bytes + end,
                mutant->count - end);
        mutant->count -= length;
    } else {
        size_t to = start_of(mutant, below(mutant, devices));

        memmove(mutant->bytes + to + length, mutant->bytes + to,
                mutant->count - to);
        memcpy(mutant->bytes + to, kept, length);
        mutant->count += length;
    }
}

static void put_float(mutant_address_t *mutant, uint8_t *at)
{
    static const float values[] = {0,    -0.0f, 1e-9f, 1e-6f, 1,    10,
                                   1e9f, 1e12f, 1e18f, 3e38f, -1.0f};
    float value = values[below(mutant, sizeof(values) / sizeof(values[0]))];

    memcpy(at, &value, sizeof(value));
}

/* Changes a field of a transport as a stranger would who knows the format. */
static void change_entry(mutant_address_t *mutant)
{
    const tmsg_packed_t *packed = mutant->packed;
    const tmsg_packed_entry_t *entry =
        &packed->entries[below(mutant, packed->entry_count)];
    const tmsg_packed_device_t *device = &packed->devices[entry->device];
    size_t wide = packed->version == 1 ? 16 : 8;
    uint8_t *own = mutant->bytes + (entry->address - mutant->bytes);
    uint8_t *on = mutant->bytes + (device->address - mutant->bytes);
    uint8_t *attributes = own - 1 - wide;

    switch (below(mutant, 10)) {
    case 0:
        if (packed->version == 1) {
            put_float(mutant, attributes + 4 * below(mutant, 3));
        } else {
            attributes[below(mutant, 3)] =
                (uint8_t)sample_random(&mutant->state);
        }
        break;
    case 1: /* the priority, or in v2 what is beside it */
        attributes[packed->version == 1 ? 12 : 3 + below(mutant, 3)] =
            (uint8_t)sample_random(&mutant->state);
        break;
    case 2: /* a flag */
        attributes[wide - 1 - below(mutant, 3 - (packed->version == 2))] ^=
            (uint8_t)(1 << below(mutant, 8));
        break;
    case 3: /* the domain */
        mutant->bytes[start_of(mutant, entry->device)] ^=
            (uint8_t)(1 << below(mutant, 6));
        break;
    case 4: /* a transport for another */
        memcpy(attributes - 2, &packed->entries[0].transport, 2);
        break;
    case 5:
        if (device->address_bytes > 0) {
            on[below(mutant, device->address_bytes)] ^=
                (uint8_t)(1 << below(mutant, 8));
        }
        break;
    default: /* the port, the segment, the process */
        if (entry->address_bytes > 0) {
            own[below(mutant, entry->address_bytes)] =
                (uint8_t)sample_random(&mutant->state);
        }
    }
}

static void change_fields(mutant_address_t *mutant)
{
    unsigned n = 1 + (unsigned)below(mutant, 3);

    if (mutant->packed->entry_count == 0) {
        change_bytes(mutant);
        return;
    }
    if (below(mutant, 4) == 0) { /* UCX's id of the UCX worker */
        mutant->bytes[mutant->packed->version + below(mutant, 8)] =
            (uint8_t)sample_random(&mutant->state);
    }
    while (n-- > 0) {
        change_entry(mutant);
    }
}

size_t address_mutate(uint8_t *address, size_t bytes, unsigned minor,
                      uint64_t seed)
{
    static tmsg_packed_t packed;
    mutant_address_t mutant = {address, bytes, seed, &packed};
    uint64_t how = below(&mutant, 100);

    if (tmsg_packed_read(address, bytes, minor, &packed) != TMSG_OK ||
        how < 30) {
        change_bytes(&mutant);
    } else if (how < 76) {
        change_fields(&mutant);
    } else if (how < 82) {
        tell_more(&mutant);
    } else if (how < 90) {
        change_devices(&mutant);
    } else if (how < 96) {
        change_length(&mutant);
    } else {
        make_up(&mutant);
    }
    return mutant.count;
}
