/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/peer_address.h"

#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/peer_transports.h"
#include "am/ucx/segment_check.h"
#include "core/bytes.h"
#include "core/error.h"

struct tmsg_peer_address {
    uint64_t uuid;
    uint64_t memory;
    /* The segments that UCX will map, of as many bytes as it needs. */
    bool has_posix, has_sysv;
    tmsg_posix_segment_t posix;
    uint64_t posix_bytes;
    int sysv;
    uint64_t sysv_bytes;
    uint32_t pid;
    _Alignas(max_align_t) uint8_t bytes[];
};

#define SLOWEST 10.0 /* seconds */
#define FASTEST 1e18 /* bytes per second */

/* Numbers by which UCX compares transports. It asserts that what it computes
 * from them is positive. */
static bool are_sane(const tmsg_packed_entry_t *entry)
{
    return entry->overhead >= 0 && entry->overhead <= SLOWEST &&
           entry->latency >= 0 && entry->latency <= SLOWEST &&
           entry->bandwidth >= 1 && entry->bandwidth <= FASTEST;
}

/* Bits of an entry's flags; v1 has them behind the priority. */
#define V1_FLAGS 0xc03fffu
#define V2_FLAGS 0x3ffu
#define V1_ATOMIC 0xc00000u
#define V2_ATOMIC 0x300u

static uint32_t known_flags(const tmsg_packed_t *packed)
{
    return packed->version == 1 ? V1_FLAGS : V2_FLAGS;
}

/* The index among ours of the first entry with its transport; entry_count:
 * there is none. */
static size_t find_ours(const tmsg_own_address_t *own, uint16_t transport)
{
    size_t i = 0;

    while (i < own->all.entry_count &&
           own->all.entries[i].transport != transport) {
        i++;
    }
    return i;
}

/* Flags of v2: it has messages, told of at once or later. */
#define V2_MESSAGES 0x6u
/* What the longest of these must be able to hold. */
#define SEGMENT_LEAST TMSG_AM_HEADER_LEAST

static const char *judge_attributes(const tmsg_judged_entry_t *judged,
                                    const tmsg_transport_kind_t *transport,
                                    const tmsg_packed_entry_t *ours)
{
    const tmsg_packed_entry_t *entry = judged->entry;
    bool is_v1 = judged->packed->version == 1;

    if (!is_v1 && (entry->flags & V2_MESSAGES) != 0 &&
        entry->segment < SEGMENT_LEAST) {
        return "has too short a segment";
    }
    if (transport->alike &&
        judged->packed->version == judged->own->all.version &&
        ((entry->flags ^ ours->flags) & ~(is_v1 ? V1_ATOMIC : V2_ATOMIC)) !=
            0) {
        return "can do something else than here";
    }
    return NULL;
}

/* Judges an entry whose transport this side has opened, too. */
static const char *judge_opened(const tmsg_judged_entry_t *judged,
                                const tmsg_transport_kind_t *transport,
                                size_t ours)
{
    const char *wrong = NULL;

    if (judged->claim->net_only && !judged->own->on_network[ours]) {
        return "is memory that is not to be shared";
    }
    if (transport->judge != NULL && !judged->own->breaks_its_rule[ours]) {
        wrong = transport->judge(judged);
    } else if (!tmsg_judged_is_as_long(judged, true)) {
        wrong = "has an address of another length";
    }
    return wrong != NULL ? wrong
                         : judge_attributes(judged, transport,
                                            &judged->own->all.entries[ours]);
}

static tmsg_status_t refuse(const char *name, const char *wrong)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED,
                          "the peer's worker address: %s%s%s", name,
                          name[0] == '\0' ? "" : " ", wrong);
}

#define SLOTS (2 * TMSG_PACKED_MOST)

/* What the entries before have taken. */
typedef struct {
    uint8_t part_of_domain[TMSG_PACKED_DOMAINS]; /* 1 more than the part */
    bool has[TMSG_PARTS];
    uint8_t tcp[SLOTS]; /* a hash table of entries: 1 more than the index */
} places_t;

static uint32_t hash(uint32_t seed, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        seed = (seed ^ bytes[i]) * 16777619u; /* FNV-1a */
    }
    return seed;
}

/* Returns whether an entry of TCP before this one has the same addresses, and
 * notes this one. */
static bool has_twin(const tmsg_judged_entry_t *judged, size_t at,
                     places_t *places)
{
    const tmsg_packed_t *packed = judged->packed;
    uint32_t slot =
        hash(hash(2166136261u, judged->entry->address,
                  judged->entry->address_bytes),
             judged->device->address, judged->device->address_bytes) %
        SLOTS;

    while (places->tcp[slot] != 0) {
        if (tmsg_packed_are_same(packed, &packed->entries[at], packed,
                                 &packed->entries[places->tcp[slot] - 1])) {
            return true;
        }
        slot = (slot + 1) % SLOTS;
    }
    places->tcp[slot] = (uint8_t)(at + 1);
    return false;
}

/* The entries of a device are next to each other. */
static bool is_twice_on_device(const tmsg_packed_t *packed, size_t at)
{
    const tmsg_packed_entry_t *entry = &packed->entries[at];

    for (size_t i = at; i > 0 && packed->entries[i - 1].device == entry->device;
         i--) {
        if (packed->entries[i - 1].transport == entry->transport) {
            return true;
        }
    }
    return false;
}

/* Judges an entry against those before it. */
static const char *judge_place(const tmsg_judged_entry_t *judged, size_t at,
                               const tmsg_transport_kind_t *transport,
                               places_t *places)
{
    uint8_t *part = &places->part_of_domain[judged->device->domain];
    bool is_there =
        (transport->once && places->has[transport->part]) ||
        is_twice_on_device(judged->packed, at) ||
        (transport->part == TMSG_PART_TCP && has_twin(judged, at, places));

    places->has[transport->part] = true;
    if (is_there) {
        return "occurs twice";
    }
    if (*part == 0) {
        *part = (uint8_t)(transport->part + 1);
    }
    return *part == transport->part + 1 ? NULL
                                        : "is in another's memory domain";
}

static tmsg_status_t judge_entries(const tmsg_own_address_t *own,
                                   const tmsg_address_claim_t *claim,
                                   const tmsg_packed_t *packed)
{
    uint32_t known = known_flags(packed) | own->flags_beside;
    places_t places = {.has = {false}};

    for (size_t i = 0; i < packed->entry_count; i++) {
        const tmsg_judged_entry_t judged = {
            own, claim, packed,
            tmsg_packed_device_of(packed, &packed->entries[i]),
            &packed->entries[i]};
        uint16_t checksum = judged.entry->transport;
        const tmsg_transport_kind_t *transport =
            tmsg_transport_kind_of(checksum);
        size_t ours = find_ours(own, checksum);
        const char *wrong = own->breaks_place
                                ? NULL
                                : judge_place(&judged, i, transport, &places);

        if (wrong == NULL && !are_sane(judged.entry)) {
            wrong = "has an impossible speed";
        }
        if (wrong == NULL && (judged.entry->flags & ~known) != 0) {
            wrong = "has unknown flags";
        }
        if (wrong == NULL && ours == own->all.entry_count &&
            transport->part == TMSG_PART_OTHER && !claim->keyed) {
            wrong = "transport that UCX does not have";
        }
        if (wrong == NULL && ours < own->all.entry_count) {
            wrong = judge_opened(&judged, transport, ours);
        }
        if (wrong != NULL) {
            return refuse(transport->name, wrong);
        }
    }
    return TMSG_OK;
}

static bool are_in_order(const tmsg_packed_t *packed)
{
    for (size_t i = 1; i < packed->device_count; i++) {
        if (packed->devices[i].domain < packed->devices[i - 1].domain) {
            return false;
        }
    }
    return true;
}

static tmsg_status_t judge_devices(const tmsg_packed_t *packed, bool ordered)
{
    for (size_t i = 0; i < packed->device_count; i++) {
        if (packed->devices[i].domain >= TMSG_PACKED_DOMAINS) {
            return refuse("", "a memory domain that does not exist");
        }
    }
    return !ordered || are_in_order(packed)
               ? TMSG_OK
               : refuse("", "memory domains out of order");
}

static bool is_printable(const tmsg_packed_t *packed)
{
    for (size_t i = 0; i < packed->name_bytes; i++) {
        if (packed->name[i] < ' ' || packed->name[i] > '~') {
            return false;
        }
    }
    return true;
}

/* From UCX 1.16 on the release is told, unless there is nothing to connect
 * to. */
static bool is_release(const tmsg_packed_t *packed, unsigned minor)
{
    return packed->release == TMSG_PACKED_NO_RELEASE
               ? minor < 16 || packed->entry_count == 0
               : packed->release == minor % 16;
}

static tmsg_status_t judge_head(const tmsg_own_address_t *own,
                                const tmsg_packed_t *packed)
{
    unsigned changed = packed->flags ^ own->all.flags;

    if ((changed & ~TMSG_PACKED_NAME) != 0 ||
        (packed->flags & TMSG_PACKED_UUID) == 0) {
        return refuse("", "flags that UCX does not set here");
    }
    if (!is_release(packed, own->minor)) {
        return refuse("", "another release of UCX than its hello");
    }
    if (packed->uuid == 0 || packed->uuid == own->all.uuid) {
        return refuse("", "the id is that of this side");
    }
    return is_printable(packed) ? TMSG_OK
                                : refuse("", "a name that cannot be shown");
}

static tmsg_status_t judge(const tmsg_own_address_t *own,
                           const tmsg_address_claim_t *claim,
                           const tmsg_packed_t *packed)
{
    tmsg_status_t status = judge_head(own, packed);

    if (status == TMSG_OK) {
        status = judge_devices(packed, !own->breaks_order);
    }
    return status != TMSG_OK ? status : judge_entries(own, claim, packed);
}

/* Notes which transports are in this side's address of the network alone. */
static tmsg_status_t read_network(tmsg_own_address_t *own, const void *address,
                                  size_t bytes)
{
    tmsg_packed_t *net = malloc(sizeof(*net));
    tmsg_status_t status =
        net == NULL ? tmsg_error_memory("a worker address")
                    : tmsg_packed_read(address, bytes, own->minor, net);

    for (size_t i = 0; status == TMSG_OK && i < own->all.entry_count; i++) {
        for (size_t j = 0; j < net->entry_count; j++) {
            own->on_network[i] |=
                net->entries[j].transport == own->all.entries[i].transport;
        }
    }
    free(net);
    return status;
}

static void read_posix(const tmsg_packed_entry_t *entry,
                       tmsg_posix_segment_t *segment)
{
    tmsg_posix_segment_read(tmsg_get_le(entry->address, 8), segment);
    if (!segment->in_proc && !segment->in_shm) {
        segment->folder = (const char *)entry->address + 8;
    }
}

/* Finds how large the segments of this side are. */
static void measure_segments(tmsg_own_address_t *own)
{
    for (size_t i = 0; i < own->all.entry_count; i++) {
        const tmsg_packed_entry_t *entry = &own->all.entries[i];
        tmsg_transport_part_t part =
            tmsg_transport_kind_of(entry->transport)->part;
        tmsg_posix_segment_t segment;

        if (own->breaks_its_rule[i]) {
            continue;
        }
        if (part == TMSG_PART_POSIX) {
            read_posix(entry, &segment);
            own->posix_bytes =
                tmsg_segment_least(tmsg_posix_segment_bytes(&segment));
        } else if (part == TMSG_PART_SYSV) {
            own->sysv_bytes = tmsg_segment_least(
                tmsg_sysv_segment_bytes((int)tmsg_get_le(entry->address, 4)));
        }
    }
}

/* Notes the rules that this side's own address does not keep. MALFORMED: there
 * are numbers in it that UCX does not have, so the format is another one. */
static tmsg_status_t try_rules(tmsg_own_address_t *own)
{
    const tmsg_packed_t *all = &own->all;
    places_t places = {.has = {false}};

    own->breaks_order = !are_in_order(all);
    for (size_t i = 0; i < all->entry_count; i++) {
        const tmsg_packed_entry_t *entry = &all->entries[i];
        const tmsg_judged_entry_t judged = {
            own, NULL, all, tmsg_packed_device_of(all, entry), entry};
        const tmsg_transport_kind_t *transport =
            tmsg_transport_kind_of(entry->transport);

        if (!are_sane(entry)) {
            return refuse(transport->name, "has an impossible speed");
        }
        own->flags_beside |= entry->flags & ~known_flags(all);
        own->breaks_place |=
            judge_place(&judged, i, transport, &places) != NULL;
        own->breaks_its_rule[i] =
            transport->judge != NULL && transport->judge(&judged) != NULL;
    }
    return TMSG_OK;
}

/* Reads this side's own addresses. MALFORMED: the format is another one. */
static tmsg_status_t read_own(tmsg_own_address_t *own, const void *whole,
                              size_t bytes, const void *net, size_t net_bytes)
{
    tmsg_status_t status =
        tmsg_packed_read(whole, bytes, own->minor, &own->all);

    if (status == TMSG_OK) {
        status = read_network(own, net, net_bytes);
    }
    if (status == TMSG_OK) {
        status = judge_devices(&own->all, false);
    }
    if (status == TMSG_OK) {
        status = try_rules(own);
    }
    if (status == TMSG_OK) {
        measure_segments(own);
    }
    return status;
}

static bool is_known(tmsg_ucx_version_t version)
{
    return version.major == 1 && version.minor >= TMSG_PACKED_MINOR_FIRST &&
           version.minor <= TMSG_PACKED_MINOR_LAST;
}

tmsg_status_t tmsg_own_address_read(const void *whole, size_t bytes,
                                    const void *net, size_t net_bytes,
                                    tmsg_own_address_t **own_p)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();
    tmsg_own_address_t *own;
    tmsg_status_t status;

    *own_p = NULL;
    if (!is_known(version)) {
        return TMSG_OK;
    }
    own = calloc(1, sizeof(*own));
    if (own == NULL) {
        return tmsg_error_memory("a worker address");
    }
    own->minor = version.minor;
    status = read_own(own, whole, bytes, net, net_bytes);
    if (status != TMSG_OK) {
        free(own);
        return status == TMSG_ERR_MALFORMED ? TMSG_OK : status;
    }
    *own_p = own;
    return TMSG_OK;
}

void tmsg_own_address_free(tmsg_own_address_t *own) { free(own); }

static tmsg_status_t judge_unread(const tmsg_address_claim_t *claim)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    return claim->keyed
               ? TMSG_OK
               : tmsg_error_set(
                     TMSG_ERR_UNSUPPORTED,
                     "a peer without a key: this version of tensormsg does not "
                     "read the worker addresses of UCX %u.%u.%u as it is set "
                     "up, so it cannot check that of a stranger; give both "
                     "sides a key, or use UCX 1.%d to 1.%d without "
                     "UCX_UNIFIED_MODE",
                     version.major, version.minor, version.patch,
                     TMSG_PACKED_MINOR_FIRST, TMSG_PACKED_MINOR_LAST);
}

/* Notes the segments of an address that has passed. */
static void note_segments(const tmsg_own_address_t *own,
                          const tmsg_address_claim_t *claim,
                          const tmsg_packed_t *packed,
                          tmsg_peer_address_t *address)
{
    address->pid = claim->hello->pid;
    address->posix_bytes = own->posix_bytes;
    address->sysv_bytes = own->sysv_bytes;
    for (size_t i = 0; i < packed->entry_count; i++) {
        const tmsg_packed_entry_t *entry = &packed->entries[i];
        tmsg_transport_part_t part =
            tmsg_transport_kind_of(entry->transport)->part;
        size_t ours = find_ours(own, entry->transport);

        if (ours == own->all.entry_count || own->breaks_its_rule[ours]) {
            continue;
        }
        if (part == TMSG_PART_POSIX) {
            address->has_posix = true;
            read_posix(entry, &address->posix);
        } else if (part == TMSG_PART_SYSV) {
            address->has_sysv = true;
            address->sysv = (int)tmsg_get_le(entry->address, 8);
        }
    }
}

/* Where this side's own segment cannot be looked at, others may not be, too. */
bool tmsg_peer_address_holds(const tmsg_peer_address_t *address)
{
    return (!address->has_posix ||
            tmsg_posix_segment_holds(&address->posix, address->posix_bytes,
                                     address->posix_bytes == 0)) &&
           (!address->has_sysv ||
            tmsg_sysv_segment_holds(address->sysv, address->pid,
                                    address->sysv_bytes,
                                    address->sysv_bytes == 0));
}

static uint64_t memory_of(const tmsg_packed_t *packed)
{
    uint64_t memory = UCS_BIT(UCS_MEMORY_TYPE_HOST);

    for (size_t i = 0; i < packed->entry_count; i++) {
        switch (tmsg_transport_kind_of(packed->entries[i].transport)->part) {
        case TMSG_PART_CUDA_COPY:
        case TMSG_PART_CUDA_IPC:
            memory |= UCS_BIT(UCS_MEMORY_TYPE_CUDA) |
                      UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED);
            break;
        case TMSG_PART_ROCM_COPY:
        case TMSG_PART_ROCM_IPC:
            memory |= UCS_BIT(UCS_MEMORY_TYPE_ROCM) |
                      UCS_BIT(UCS_MEMORY_TYPE_ROCM_MANAGED);
            break;
        default:
            break;
        }
    }
    return memory;
}

tmsg_status_t tmsg_peer_address_check(const tmsg_ucx_t *ucx,
                                      const tmsg_address_claim_t *claim,
                                      const void *address, size_t bytes,
                                      tmsg_peer_address_t **address_p)
{
    tmsg_peer_address_t *copy = malloc(sizeof(*copy) + bytes);
    tmsg_packed_t *packed = malloc(sizeof(*packed));
    tmsg_status_t status = TMSG_OK;

    if (copy == NULL || packed == NULL) {
        status = tmsg_error_memory("a peer's address");
        goto out;
    }
    memset(copy, 0, sizeof(*copy));
    memcpy(copy->bytes, address, bytes);
    copy->memory = UINT64_MAX;
    if (ucx->own == NULL) {
        status = judge_unread(claim);
        goto out;
    }
    status = tmsg_packed_read(copy->bytes, bytes, ucx->own->minor, packed);
    if (status == TMSG_OK) {
        copy->uuid = packed->uuid;
        copy->memory = memory_of(packed);
        status = judge(ucx->own, claim, packed);
    }
    if (status == TMSG_OK && packed->entry_count == 0) {
        status = tmsg_error_set(TMSG_ERR_UNREACHABLE,
                                "no transport of UCX's leads to the peer "
                                "(UCX_TLS, UCX_NET_DEVICES)%s%s",
                                ucx->elsewhere[0] == '\0' ? "" : "; ",
                                ucx->elsewhere);
    }
    if (status == TMSG_OK) {
        note_segments(ucx->own, claim, packed, copy);
    }
out:
    free(packed);
    if (status == TMSG_OK) {
        *address_p = copy;
    } else {
        free(copy);
    }
    return status;
}

void tmsg_peer_address_free(tmsg_peer_address_t *address) { free(address); }

const void *tmsg_peer_address_bytes(const tmsg_peer_address_t *address)
{
    return address->bytes;
}

uint64_t tmsg_peer_address_memory(const tmsg_peer_address_t *address)
{
    return address->memory;
}

uint64_t tmsg_peer_address_uuid(const tmsg_peer_address_t *address)
{
    return address->uuid;
}
