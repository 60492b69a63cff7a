/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/peer_transports.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "am/ucx/segment_check.h"
#include "core/bytes.h"

static tmsg_transport_part_t part_of(uint16_t checksum)
{
    return tmsg_transport_kind_of(checksum)->part;
}

/* Returns the size of a namespace's number in UCX's addresses. */
static size_t namespace_bytes(unsigned minor) { return minor >= 22 ? 4 : 8; }

const tmsg_packed_device_t *
tmsg_packed_device_of(const tmsg_packed_t *packed,
                      const tmsg_packed_entry_t *entry)
{
    return &packed->devices[entry->device];
}

bool tmsg_packed_are_same(const tmsg_packed_t *packed,
                          const tmsg_packed_entry_t *entry,
                          const tmsg_packed_t *other_packed,
                          const tmsg_packed_entry_t *other)
{
    const tmsg_packed_device_t *device = tmsg_packed_device_of(packed, entry);
    const tmsg_packed_device_t *other_device =
        tmsg_packed_device_of(other_packed, other);

    return entry->transport == other->transport &&
           entry->address_bytes == other->address_bytes &&
           device->address_bytes == other_device->address_bytes &&
           memcmp(entry->address, other->address, entry->address_bytes) == 0 &&
           memcmp(device->address, other_device->address,
                  device->address_bytes) == 0;
}

/* Returns whether both addresses of the entry are those of an entry of this
 * side. */
static bool is_ours(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_t *all = &judged->own->all;
    bool is = false;

    for (size_t i = 0; judged->claim != NULL && i < all->entry_count && !is;
         i++) {
        is = tmsg_packed_are_same(all, &all->entries[i], judged->packed,
                                  judged->entry);
    }
    return is;
}

/* Returns whether the device of the entry is one of this side, too. */
static bool is_our_device(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_t *all = &judged->own->all;

    for (size_t i = 0; i < all->entry_count; i++) {
        const tmsg_packed_device_t *ours =
            tmsg_packed_device_of(all, &all->entries[i]);

        if (all->entries[i].transport == judged->entry->transport &&
            ours->address_bytes == judged->device->address_bytes &&
            memcmp(ours->address, judged->device->address,
                   ours->address_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether a loopback is that of another host or network namespace than
 * ours, if there is ours. It may be of the other family. */
static bool is_other_loopback(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_t *all = &judged->own->all;

    for (size_t i = 0; i < all->entry_count; i++) {
        const tmsg_packed_device_t *ours =
            tmsg_packed_device_of(all, &all->entries[i]);

        if (part_of(all->entries[i].transport) == TMSG_PART_TCP &&
            ours->address_bytes > 2 && ours->address[0] == 1) {
            return ours->address_bytes != judged->device->address_bytes ||
                   memcmp(ours->address + 2, judged->device->address + 2,
                          ours->address_bytes - 2u) != 0;
        }
    }
    return false;
}

/* [flags 1 byte: 1 is loopback][family 1 byte][address; of loopback: host 8
 * bytes and network namespace], and [port] */
static const char *judge_tcp(const tmsg_judged_entry_t *judged)
{
    const uint8_t *address = judged->device->address;
    size_t bytes = judged->device->address_bytes;
    struct in6_addr ip6;
    uint32_t ip;

    if (bytes < 2 || address[0] > 1 ||
        (address[1] != AF_INET && address[1] != AF_INET6)) {
        return "has no address of IPv4 or IPv6";
    }
    if (bytes != (address[0] == 1
                      ? 10 + namespace_bytes(judged->own->minor)
                      : (address[1] == AF_INET ? 2u + 4 : 2u + 16)) ||
        judged->entry->address_bytes != 2) {
        return "has an address of another length";
    }
    if (tmsg_get_le(judged->entry->address, 2) == 0) {
        return "has the port 0";
    }
    if (address[0] == 0 && address[1] == AF_INET) {
        memcpy(&ip, address + 2, sizeof(ip));
        ip = ntohl(ip);
        if (ip >> 24 == 0 || ip >> 28 >= 14) {
            return "has an address of no host";
        }
    }
    if (address[0] == 0 && address[1] == AF_INET6) {
        memcpy(&ip6, address + 2, sizeof(ip6));
        if (IN6_IS_ADDR_UNSPECIFIED(&ip6) || IN6_IS_ADDR_MULTICAST(&ip6)) {
            return "has an address of no host";
        }
    }
    if (address[0] == 1 && judged->claim != NULL && !judged->claim->net_only &&
        is_other_loopback(judged)) {
        return "is that of another machine";
    }
    return is_ours(judged) ? "has the port of this side" : NULL;
}

#define NAMESPACE_BIT 63 /* in a host's number: a namespace follows */

/* Judges the device of shared memory: [host 8 bytes][ipc namespace, if its bit
 * says so]. */
static const char *judge_memory_device(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_device_t *device = judged->device;
    bool has_namespace;

    if (device->address_bytes < 8) {
        return "has no number of a host";
    }
    has_namespace = tmsg_get_le(device->address, 8) >> NAMESPACE_BIT;
    if (device->address_bytes !=
        8 + (has_namespace ? namespace_bytes(judged->own->minor) : 0)) {
        return "has a host's number of another length";
    }
    /* Both sides agreed that this is one machine. */
    return is_our_device(judged) ? NULL : "is that of another machine";
}

static bool is_of_peer(const tmsg_judged_entry_t *judged, uint64_t pid)
{
    return judged->claim == NULL ||
           (pid != 0 && pid == judged->claim->hello->pid);
}

#define SEGMENT_BYTES 8 /* of the number of a segment */

/* Returns whether this side's own segment is in the same folder. In another,
 * the peer could put something else there after it was looked at. */
static bool is_our_folder(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_t *all = &judged->own->all;
    const tmsg_packed_entry_t *entry = judged->entry;

    for (size_t i = 0; i < all->entry_count; i++) {
        const tmsg_packed_entry_t *ours = &all->entries[i];
        tmsg_posix_segment_t segment;

        if (ours->transport != entry->transport ||
            ours->address_bytes != entry->address_bytes) {
            continue;
        }
        tmsg_posix_segment_read(tmsg_get_le(ours->address, SEGMENT_BYTES),
                                &segment);
        if (!segment.in_proc && !segment.in_shm &&
            memcmp(ours->address + SEGMENT_BYTES,
                   entry->address + SEGMENT_BYTES,
                   entry->address_bytes - (size_t)SEGMENT_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/* Judges what follows the segment's number: a folder, which the segment gets,
 * or a namespace. */
static const char *judge_posix_rest(const tmsg_judged_entry_t *judged,
                                    tmsg_posix_segment_t *segment)
{
    const uint8_t *rest = judged->entry->address + SEGMENT_BYTES;
    size_t bytes = judged->entry->address_bytes - (size_t)SEGMENT_BYTES;

    if (segment->in_proc || segment->in_shm) {
        return bytes == (segment->has_namespace
                             ? namespace_bytes(judged->own->minor)
                             : 0)
                   ? NULL
                   : "has a rest of another length";
    }
    if (bytes < 2 || rest[0] != '/' ||
        memchr(rest, 0, bytes) != rest + bytes - 1) {
        return "names no folder";
    }
    segment->folder = (const char *)rest;
    return is_our_folder(judged) ? NULL
                                 : "names another folder than UCX_POSIX_DIR";
}

/* [segment 8 bytes][rest, as the segment says] */
static const char *judge_posix(const tmsg_judged_entry_t *judged)
{
    const char *wrong = judge_memory_device(judged);
    tmsg_posix_segment_t segment;

    if (wrong == NULL && judged->entry->address_bytes < SEGMENT_BYTES) {
        wrong = "names no segment";
    }
    if (wrong != NULL) {
        return wrong;
    }
    tmsg_posix_segment_read(tmsg_get_le(judged->entry->address, SEGMENT_BYTES),
                            &segment);
    wrong = judge_posix_rest(judged, &segment);
    if (wrong != NULL) {
        return wrong;
    }
    if (segment.has_namespace && !segment.in_proc) {
        return "has a namespace out of place";
    }
    if (segment.in_proc && !is_of_peer(judged, segment.pid)) {
        return "names the memory of another process";
    }
    if (is_ours(judged)) {
        return "names the segment of this side";
    }
    return judged->claim == NULL ||
                   tmsg_posix_segment_holds(&segment, judged->own->posix_bytes,
                                            true)
               ? NULL
               : "names something that is not a UCX segment of this user, or "
                 "is too small";
}

static const char *judge_sysv(const tmsg_judged_entry_t *judged)
{
    const char *wrong = judge_memory_device(judged);
    uint64_t id;

    if (wrong != NULL || judged->entry->address_bytes != 8) {
        return wrong != NULL ? wrong : "names no segment";
    }
    id = tmsg_get_le(judged->entry->address, 8);
    if (is_ours(judged)) {
        return "names the segment of this side";
    }
    return id <= INT32_MAX &&
                   (judged->claim == NULL ||
                    tmsg_sysv_segment_holds((int)id, judged->claim->hello->pid,
                                            judged->own->sysv_bytes, true))
               ? NULL
               : "names the memory of another process or user, or too little";
}

static const char *judge_xpmem(const tmsg_judged_entry_t *judged)
{
    const char *wrong = judge_memory_device(judged);

    if (wrong == NULL && judged->entry->address_bytes != 16) {
        wrong = "names no segment";
    }
    return wrong == NULL && is_ours(judged) ? "names the segment of this side"
                                            : wrong;
}

#define CMA_NAMESPACE_BIT 31 /* in a process id */

/* [process id 4 bytes][pid namespace, aligned, if its bit says so] */
static const char *judge_cma(const tmsg_judged_entry_t *judged)
{
    const tmsg_packed_entry_t *entry = judged->entry;
    const char *wrong = judge_memory_device(judged);
    size_t wide = namespace_bytes(judged->own->minor);
    uint32_t id;

    if (wrong != NULL || entry->address_bytes < 4) {
        return wrong != NULL ? wrong : "names no process";
    }
    id = (uint32_t)tmsg_get_le(entry->address, 4);
    if (entry->address_bytes != (id >> CMA_NAMESPACE_BIT ? 2 * wide : 4)) {
        return "has an address of another length";
    }
    return is_of_peer(judged, id & INT32_MAX) ? NULL : "names another process";
}

static const char *judge_knem(const tmsg_judged_entry_t *judged)
{
    const char *wrong = judge_memory_device(judged);

    return wrong == NULL && judged->entry->address_bytes != 0
               ? "has an address of another length"
               : wrong;
}

static const char *judge_self(const tmsg_judged_entry_t *judged)
{
    if (judged->device->address_bytes != 0 ||
        judged->entry->address_bytes != 8) {
        return "has an address of another length";
    }
    return is_ours(judged) ? "is that of this side" : NULL;
}

bool tmsg_judged_is_as_long(const tmsg_judged_entry_t *judged, bool device_too)
{
    const tmsg_packed_t *all = &judged->own->all;

    for (size_t i = 0; i < all->entry_count; i++) {
        if (all->entries[i].transport == judged->entry->transport &&
            all->entries[i].address_bytes == judged->entry->address_bytes &&
            (!device_too ||
             tmsg_packed_device_of(all, &all->entries[i])->address_bytes ==
                 judged->device->address_bytes)) {
            return true;
        }
    }
    return false;
}

#define IB_INDEX 1u
#define IB_MTU 2u
#define IB_KEY 4u
#define IB_ETHERNET 8u
#define IB_SUBNET_16 16u
#define IB_SUBNET_64 32u
#define IB_INTERFACE 64u

/* [flags 1 byte], on Ethernet [address 16 bytes], else [lid 2 bytes][interface
 * 8 bytes, if flagged][subnet 2 or 8 bytes, if flagged], then what is flagged
 * of [MTU 1 byte][index 1 byte][partition key 2 bytes] */
static const char *judge_ib(const tmsg_judged_entry_t *judged)
{
    const uint8_t *address = judged->device->address;
    uint8_t flags = judged->device->address_bytes > 0 ? address[0] : 0;
    size_t bytes = 1;

    if (flags & IB_ETHERNET) {
        bytes += 16;
    } else {
        bytes += 2 + (flags & IB_INTERFACE ? 8u : 0) +
                 (flags & IB_SUBNET_16 ? 2u : 0) +
                 (flags & IB_SUBNET_64 ? 8u : 0);
        if ((flags & IB_SUBNET_16 && flags & IB_SUBNET_64) || flags >> 7) {
            return "has two subnets";
        }
    }
    if (flags & IB_MTU && bytes < judged->device->address_bytes &&
        (address[bytes] < 1 || address[bytes] > 5)) {
        return "has an impossible MTU";
    }
    bytes += (flags & IB_MTU ? 1u : 0) + (flags & IB_INDEX ? 1u : 0) +
             (flags & IB_KEY ? 2u : 0);
    /* That of dc_mlx5 is longer where the device can flush remotely. */
    return bytes == judged->device->address_bytes &&
                   (tmsg_judged_is_as_long(judged, false) ||
                    (judged->entry->transport ==
                         tmsg_packed_checksum("dc_mlx5") &&
                     (judged->entry->address_bytes == 5 ||
                      judged->entry->address_bytes == 7)))
               ? NULL
               : "has an address of another length";
}

/* UCX 1.20 and later read both lengths: there may be a namespace, and the
 * number of a fabric. */
static const char *judge_cuda_ipc(const tmsg_judged_entry_t *judged)
{
    size_t device = judged->device->address_bytes;
    size_t entry = judged->entry->address_bytes;

    return tmsg_judged_is_as_long(judged, true) ||
                   (judged->own->minor >= 20 && device >= 8 &&
                    (entry == 4 || entry == 8 || entry == 12 || entry == 16))
               ? NULL
               : "has an address of another length";
}

static const tmsg_transport_kind_t transports[] = {
    {"tcp", TMSG_PART_TCP, false, false, judge_tcp},
    {"self", TMSG_PART_SELF, true, true, judge_self},
    {"posix", TMSG_PART_POSIX, true, true, judge_posix},
    {"sysv", TMSG_PART_SYSV, true, true, judge_sysv},
    {"xpmem", TMSG_PART_XPMEM, true, true, judge_xpmem},
    {"cma", TMSG_PART_CMA, true, true, judge_cma},
    {"knem", TMSG_PART_KNEM, true, true, judge_knem},
    {"rc_verbs", TMSG_PART_IB, false, false, judge_ib},
    {"rc_mlx5", TMSG_PART_IB, false, false, judge_ib},
    {"rc_gda", TMSG_PART_IB, false, false, judge_ib},
    {"dc_mlx5", TMSG_PART_IB, false, false, judge_ib},
    {"ud_verbs", TMSG_PART_IB, false, false, judge_ib},
    {"ud_mlx5", TMSG_PART_IB, false, false, judge_ib},
    {"srd", TMSG_PART_IB, false, false, judge_ib},
    {"gga_mlx5", TMSG_PART_GGA, false, false, judge_ib},
    {"cuda_copy", TMSG_PART_CUDA_COPY, false, false, NULL},
    {"cuda_ipc", TMSG_PART_CUDA_IPC, false, false, judge_cuda_ipc},
    {"gdr_copy", TMSG_PART_GDR_COPY, false, false, NULL},
    {"rocm_copy", TMSG_PART_ROCM_COPY, false, false, NULL},
    {"rocm_ipc", TMSG_PART_ROCM_IPC, false, false, NULL},
    {"rocm_gdr", TMSG_PART_ROCM_GDR, false, false, NULL},
    {"ze_copy", TMSG_PART_ZE_COPY, false, false, NULL},
    {"gaudi_gdr", TMSG_PART_GAUDI, false, false, NULL},
    {"ugni_rdma", TMSG_PART_UGNI, false, false, NULL},
    {"ugni_smsg", TMSG_PART_UGNI, false, false, NULL},
    {"ugni_udt", TMSG_PART_UGNI, false, false, NULL},
};

#define TRANSPORTS (sizeof(transports) / sizeof(transports[0]))

static uint16_t checksums[TRANSPORTS];

static void find_checksums(void)
{
    for (size_t i = 0; i < TRANSPORTS; i++) {
        checksums[i] = tmsg_packed_checksum(transports[i].name);
    }
}

const tmsg_transport_kind_t *tmsg_transport_kind_of(uint16_t checksum)
{
    static const tmsg_transport_kind_t other = {.name = "another",
                                                .part = TMSG_PART_OTHER};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_checksums);
    for (size_t i = 0; i < TRANSPORTS; i++) {
        if (checksums[i] == checksum) {
            return &transports[i];
        }
    }
    return &other;
}
