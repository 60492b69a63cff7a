/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/peer_address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/ucx/packed.h"
#include "am/ucx/segment_check.h"
#include "core/bytes.h"
#include "core/error.h"

struct tmsg_own_address {
    void *bytes; /* what `all` points into */
    tmsg_packed_t all;
    bool on_network[TMSG_PACKED_MOST]; /* of the entries of `all` */
    unsigned minor;
    uint64_t posix_bytes; /* of its segments; 0: unknown, or none */
    uint64_t sysv_bytes;
};

struct tmsg_peer_address {
    uint64_t uuid;
    _Alignas(max_align_t) uint8_t bytes[];
};

/* An entry of a peer's address, with what it is judged by. */
typedef struct {
    const tmsg_own_address_t *own;
    const tmsg_hello_t *hello; /* NULL: this side's own address is judged */
    const tmsg_packed_t *packed;
    const tmsg_packed_device_t *device;
    const tmsg_packed_entry_t *entry;
} judged_t;

/* The part of UCX that a transport is of. A memory domain belongs to one. */
typedef enum {
    PART_OTHER,
    PART_SELF,
    PART_TCP,
    PART_POSIX,
    PART_SYSV,
    PART_XPMEM,
    PART_CMA,
    PART_KNEM,
    PART_IB,
    PART_GGA,
    PART_CUDA_COPY,
    PART_CUDA_IPC,
    PART_GDR_COPY,
    PART_ROCM_COPY,
    PART_ROCM_IPC
} part_t;

typedef struct {
    const char *name;
    part_t part;
    bool once;  /* a worker has it on one device only */
    bool alike; /* its flags do not depend on settings */
    /* Judges both addresses. NULL: they are as long as ours. */
    const char *(*judge)(const judged_t *judged);
} transport_t;

/* What is wrong with it, or NULL. */
static const char *judge_tcp(const judged_t *judged);
static const char *judge_posix(const judged_t *judged);
static const char *judge_sysv(const judged_t *judged);
static const char *judge_xpmem(const judged_t *judged);
static const char *judge_cma(const judged_t *judged);
static const char *judge_knem(const judged_t *judged);
static const char *judge_self(const judged_t *judged);
static const char *judge_ib(const judged_t *judged);
static const char *judge_cuda_ipc(const judged_t *judged);

static const transport_t transports[] = {
    {"tcp", PART_TCP, false, false, judge_tcp},
    {"self", PART_SELF, true, true, judge_self},
    {"posix", PART_POSIX, true, true, judge_posix},
    {"sysv", PART_SYSV, true, true, judge_sysv},
    {"xpmem", PART_XPMEM, true, true, judge_xpmem},
    {"cma", PART_CMA, true, true, judge_cma},
    {"knem", PART_KNEM, true, true, judge_knem},
    {"rc_verbs", PART_IB, false, false, judge_ib},
    {"rc_mlx5", PART_IB, false, false, judge_ib},
    {"rc_gda", PART_IB, false, false, judge_ib},
    {"dc_mlx5", PART_IB, false, false, judge_ib},
    {"ud_verbs", PART_IB, false, false, judge_ib},
    {"ud_mlx5", PART_IB, false, false, judge_ib},
    {"srd", PART_IB, false, false, judge_ib},
    {"gga_mlx5", PART_GGA, false, false, judge_ib},
    {"cuda_copy", PART_CUDA_COPY, false, false, NULL},
    {"cuda_ipc", PART_CUDA_IPC, false, false, judge_cuda_ipc},
    {"gdr_copy", PART_GDR_COPY, false, false, NULL},
    {"rocm_copy", PART_ROCM_COPY, false, false, NULL},
    {"rocm_ipc", PART_ROCM_IPC, false, false, NULL},
};

#define TRANSPORTS (sizeof(transports) / sizeof(transports[0]))

static const transport_t *find_transport(uint16_t checksum)
{
    static const transport_t other = {.name = "another", .part = PART_OTHER};

    for (size_t i = 0; i < TRANSPORTS; i++) {
        if (tmsg_packed_checksum(transports[i].name) == checksum) {
            return &transports[i];
        }
    }
    return &other;
}

/* The size of a number of a namespace in UCX's addresses. */
static size_t namespace_bytes(unsigned minor) { return minor >= 22 ? 4 : 8; }

static const tmsg_packed_device_t *device_of(const tmsg_packed_t *packed,
                                             const tmsg_packed_entry_t *entry)
{
    return &packed->devices[entry->device];
}

/* Whether both addresses of the entry are those of an entry of this side. */
static bool is_ours(const judged_t *judged)
{
    const tmsg_packed_t *all = &judged->own->all;
    const tmsg_packed_entry_t *entry = judged->entry;
    const tmsg_packed_device_t *device = judged->device;

    for (size_t i = 0; judged->hello != NULL && i < all->entry_count; i++) {
        const tmsg_packed_entry_t *ours = &all->entries[i];
        const tmsg_packed_device_t *our_device = device_of(all, ours);

        if (ours->transport == entry->transport &&
            ours->address_bytes == entry->address_bytes &&
            our_device->address_bytes == device->address_bytes &&
            memcmp(ours->address, entry->address, entry->address_bytes) == 0 &&
            memcmp(our_device->address, device->address,
                   device->address_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* [flags 1 byte: 1 is loopback][family 1 byte][address; of loopback: host 8
 * bytes and network namespace], and [port] */
static const char *judge_tcp(const judged_t *judged)
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
    return is_ours(judged) ? "has the port of this side" : NULL;
}

#define NAMESPACE_BIT 63 /* in a host's number: a namespace follows */

/* Judges the device of shared memory: [host 8 bytes][ipc namespace, if its bit
 * says so]. */
static const char *judge_memory_device(const judged_t *judged)
{
    const tmsg_packed_device_t *device = judged->device;
    bool has_namespace;

    if (device->address_bytes < 8) {
        return "has no number of a host";
    }
    has_namespace = tmsg_get_le(device->address, 8) >> NAMESPACE_BIT;
    return device->address_bytes ==
                   8 + (has_namespace ? namespace_bytes(judged->own->minor) : 0)
               ? NULL
               : "has a host's number of another length";
}

static bool is_of_peer(const judged_t *judged, uint64_t pid)
{
    return judged->hello == NULL || (pid != 0 && pid == judged->hello->pid);
}

/* [segment 8 bytes][rest, as the segment says] */
static const char *judge_posix(const judged_t *judged)
{
    const uint8_t *rest = judged->entry->address + 8;
    size_t rest_bytes = judged->entry->address_bytes - 8u;
    const char *wrong = judge_memory_device(judged);
    tmsg_posix_segment_t segment;

    if (wrong != NULL || judged->entry->address_bytes < 8) {
        return wrong != NULL ? wrong : "names no segment";
    }
    tmsg_posix_segment_read(tmsg_get_le(judged->entry->address, 8), &segment);
    if (segment.in_proc || segment.in_shm) {
        if (rest_bytes !=
            (segment.has_namespace ? namespace_bytes(judged->own->minor) : 0)) {
            return "has a rest of another length";
        }
    } else if (rest_bytes < 2 || rest[0] != '/' ||
               memchr(rest, 0, rest_bytes) != rest + rest_bytes - 1) {
        return "names no folder";
    } else {
        segment.folder = (const char *)rest;
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
    return judged->hello == NULL ||
                   tmsg_posix_segment_holds(&segment, judged->own->posix_bytes)
               ? NULL
               : "names what is no segment of UCX, or too small a one";
}

static const char *judge_sysv(const judged_t *judged)
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
                   (judged->hello == NULL ||
                    tmsg_sysv_segment_holds((int)id, judged->hello->pid,
                                            judged->own->sysv_bytes))
               ? NULL
               : "names the memory of another process, or too little";
}

static const char *judge_xpmem(const judged_t *judged)
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
static const char *judge_cma(const judged_t *judged)
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

static const char *judge_knem(const judged_t *judged)
{
    const char *wrong = judge_memory_device(judged);

    return wrong == NULL && judged->entry->address_bytes != 0
               ? "has an address of another length"
               : wrong;
}

static const char *judge_self(const judged_t *judged)
{
    if (judged->device->address_bytes != 0 ||
        judged->entry->address_bytes != 8) {
        return "has an address of another length";
    }
    return is_ours(judged) ? "is that of this side" : NULL;
}

/* Whether an entry of this side with that transport has an address of that
 * many bytes. */
static bool is_as_long_as_ours(const judged_t *judged, bool device_too)
{
    const tmsg_packed_t *all = &judged->own->all;

    for (size_t i = 0; i < all->entry_count; i++) {
        if (all->entries[i].transport == judged->entry->transport &&
            all->entries[i].address_bytes == judged->entry->address_bytes &&
            (!device_too || device_of(all, &all->entries[i])->address_bytes ==
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
static const char *judge_ib(const judged_t *judged)
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
        return "has an MTU that there is not";
    }
    bytes += (flags & IB_MTU ? 1u : 0) + (flags & IB_INDEX ? 1u : 0) +
             (flags & IB_KEY ? 2u : 0);
    /* That of dc_mlx5 is longer where the device can flush remotely. */
    return bytes == judged->device->address_bytes &&
                   (is_as_long_as_ours(judged, false) ||
                    (judged->entry->transport ==
                         tmsg_packed_checksum("dc_mlx5") &&
                     (judged->entry->address_bytes == 5 ||
                      judged->entry->address_bytes == 7)))
               ? NULL
               : "has an address of another length";
}

/* UCX 1.20 and later read both lengths: there may be a namespace, and the
 * number of a fabric. */
static const char *judge_cuda_ipc(const judged_t *judged)
{
    size_t device = judged->device->address_bytes;
    size_t entry = judged->entry->address_bytes;

    return is_as_long_as_ours(judged, true) ||
                   (judged->own->minor >= 20 && device >= 8 &&
                    (entry == 4 || entry == 8 || entry == 12 || entry == 16))
               ? NULL
               : "has an address of another length";
}

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

static const char *judge_attributes(const judged_t *judged,
                                    const transport_t *transport,
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
static const char *judge_opened(const judged_t *judged,
                                const transport_t *transport, size_t ours,
                                bool net_only)
{
    const char *wrong = NULL;

    if (net_only && !judged->own->on_network[ours]) {
        return "is memory that is not to be shared";
    }
    if (transport->judge != NULL) {
        wrong = transport->judge(judged);
    } else if (!is_as_long_as_ours(judged, true)) {
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

static bool are_same(const tmsg_packed_t *packed, size_t one, size_t other)
{
    const tmsg_packed_entry_t *a = &packed->entries[one];
    const tmsg_packed_entry_t *b = &packed->entries[other];
    const tmsg_packed_device_t *on_a = device_of(packed, a);
    const tmsg_packed_device_t *on_b = device_of(packed, b);

    return a->transport == b->transport &&
           a->address_bytes == b->address_bytes &&
           on_a->address_bytes == on_b->address_bytes &&
           memcmp(a->address, b->address, a->address_bytes) == 0 &&
           memcmp(on_a->address, on_b->address, on_a->address_bytes) == 0;
}

/* Judges an entry against those before it. */
static const char *judge_place(const judged_t *judged, size_t at,
                               const transport_t *transport)
{
    const tmsg_packed_t *packed = judged->packed;

    for (size_t i = 0; i < at; i++) {
        const tmsg_packed_entry_t *before = &packed->entries[i];
        bool is_alike = before->transport == judged->entry->transport;

        if (is_alike &&
            (transport->once || before->device == judged->entry->device ||
             (transport->part == PART_TCP && are_same(packed, i, at)))) {
            return "is there twice";
        }
        if (device_of(packed, before)->domain == judged->device->domain &&
            find_transport(before->transport)->part != transport->part) {
            return "is in another's memory domain";
        }
    }
    return NULL;
}

static tmsg_status_t judge_entries(const tmsg_own_address_t *own,
                                   const tmsg_hello_t *hello, bool net_only,
                                   const tmsg_packed_t *packed)
{
    uint32_t known = packed->version == 1 ? V1_FLAGS : V2_FLAGS;

    for (size_t i = 0; i < packed->entry_count; i++) {
        const judged_t judged = {own, hello, packed,
                                 device_of(packed, &packed->entries[i]),
                                 &packed->entries[i]};
        uint16_t checksum = judged.entry->transport;
        const transport_t *transport = find_transport(checksum);
        size_t ours = find_ours(own, checksum);
        const char *wrong = judge_place(&judged, i, transport);

        if (wrong == NULL && !are_sane(judged.entry)) {
            wrong = "has a speed that there is not";
        }
        if (wrong == NULL && (judged.entry->flags & ~known) != 0) {
            wrong = "has unknown flags";
        }
        if (wrong == NULL && ours < own->all.entry_count) {
            wrong = judge_opened(&judged, transport, ours, net_only);
        }
        if (wrong != NULL) {
            return refuse(transport->name, wrong);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t judge_devices(const tmsg_packed_t *packed)
{
    for (size_t i = 0; i < packed->device_count; i++) {
        if (packed->devices[i].domain >= TMSG_PACKED_DOMAINS) {
            return refuse("", "a memory domain that there is not");
        }
        if (i > 0 &&
            packed->devices[i].domain < packed->devices[i - 1].domain) {
            return refuse("", "memory domains out of order");
        }
    }
    return TMSG_OK;
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
    if (!is_printable(packed)) {
        return refuse("", "a name that cannot be shown");
    }
    return packed->entry_count > 0
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNREACHABLE,
                                "the peer's worker address: no transport leads "
                                "there (UCX_TLS, UCX_NET_DEVICES)");
}

static tmsg_status_t judge(const tmsg_own_address_t *own,
                           const tmsg_address_claim_t *claim,
                           const tmsg_packed_t *packed)
{
    tmsg_status_t status = judge_head(own, packed);

    if (status == TMSG_OK) {
        status = judge_devices(packed);
    }
    return status != TMSG_OK
               ? status
               : judge_entries(own, claim->hello, claim->net_only, packed);
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

/* Finds how large the segments of this side are. */
static void measure_segments(tmsg_own_address_t *own)
{
    for (size_t i = 0; i < own->all.entry_count; i++) {
        const tmsg_packed_entry_t *entry = &own->all.entries[i];
        part_t part = find_transport(entry->transport)->part;
        tmsg_posix_segment_t segment;

        if (part == PART_POSIX) {
            tmsg_posix_segment_read(tmsg_get_le(entry->address, 8), &segment);
            segment.folder = (const char *)entry->address + 8;
            own->posix_bytes = tmsg_posix_segment_bytes(&segment);
        } else if (part == PART_SYSV) {
            own->sysv_bytes =
                tmsg_sysv_segment_bytes((int)tmsg_get_le(entry->address, 4));
        }
    }
}

/* Reads this side's own addresses. MALFORMED: the format is another one. */
static tmsg_status_t read_own(tmsg_own_address_t *own, const void *net,
                              size_t bytes, size_t net_bytes)
{
    tmsg_status_t status =
        tmsg_packed_read(own->bytes, bytes, own->minor, &own->all);

    if (status == TMSG_OK) {
        status = read_network(own, net, net_bytes);
    }
    if (status == TMSG_OK) {
        status = judge_devices(&own->all);
    }
    if (status == TMSG_OK) {
        status = judge_entries(own, NULL, false, &own->all);
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

tmsg_status_t tmsg_own_address_read(const tmsg_ucx_t *ucx,
                                    tmsg_own_address_t **own_p)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();
    tmsg_own_address_t *own = NULL;
    size_t bytes, net_bytes;
    void *net = NULL;
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
    status = tmsg_ucx_address(ucx, false, &own->bytes, &bytes);
    if (status == TMSG_OK) {
        status = tmsg_ucx_address(ucx, true, &net, &net_bytes);
    }
    if (status == TMSG_OK) {
        status = read_own(own, net, bytes, net_bytes);
    }
    tmsg_ucx_address_free(net);
    if (status != TMSG_OK) {
        tmsg_own_address_free(own);
        return status == TMSG_ERR_MALFORMED ? TMSG_OK : status;
    }
    *own_p = own;
    return TMSG_OK;
}

void tmsg_own_address_free(tmsg_own_address_t *own)
{
    if (own != NULL) {
        tmsg_ucx_address_free(own->bytes);
        free(own);
    }
}

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
    memcpy(copy->bytes, address, bytes);
    copy->uuid = 0;
    if (ucx->own == NULL) {
        status = judge_unread(claim);
        goto out;
    }
    status = tmsg_packed_read(copy->bytes, bytes, ucx->own->minor, packed);
    if (status == TMSG_OK) {
        copy->uuid = packed->uuid;
        status = judge(ucx->own, claim, packed);
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

uint64_t tmsg_peer_address_uuid(const tmsg_peer_address_t *address)
{
    return address->uuid;
}
