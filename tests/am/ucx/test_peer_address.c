/* SPDX-License-Identifier: BSD-3-Clause */
/* Worker addresses of peers: those of UCX pass, whatever it was set to, and
 * what is bent is refused before UCX reads it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/boot/frame.h"
#include "am/endpoint/endpoint.h"
#include "am/ucx/ep_index.h"
#include "am/ucx/packed.h"
#include "am/ucx/peer_address.h"
#include "am/ucx/segment_check.h"
#include "am/ucx/ucx_ep.h"
#include "core/bytes.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/still_serves.h"
#include "support/test_scale.h"

#define FRAME_REFUSE 2
#define FRAME_ADDRESS 3
#define ATTRIBUTE_BYTES 16

/* Two sides with every transport; b's address is judged by a. */
typedef struct {
    pair_t pair;
    tmsg_ucx_t *a, *b;
    uint8_t *bytes; /* exactly as many, for ASan */
    size_t count;
    tmsg_packed_t packed; /* the address as it was */
} judged_t;

static void judged_open(judged_t *judged, const char *config)
{
    const side_options_t options = {.ucx_config = config};
    void *address;

    pair_open(&judged->pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    judged->a = judged->pair.to_b->ucx;
    judged->b = judged->pair.to_a->ucx;
    must(tmsg_ucx_address(judged->b, false, &address, &judged->count));
    judged->bytes = malloc(judged->count);
    must_true(judged->bytes != NULL);
    memcpy(judged->bytes, address, judged->count);
    tmsg_ucx_address_free(address);
    must(tmsg_packed_read(judged->bytes, judged->count,
                          tmsg_ucx_version().minor, &judged->packed));
}

static void judged_close(judged_t *judged)
{
    free(judged->bytes);
    pair_close(&judged->pair);
}

static tmsg_status_t judge(const judged_t *judged, const uint8_t *bytes,
                           size_t count, bool net_only, bool keyed)
{
    const tmsg_address_claim_t claim = {&judged->b->hello, net_only, keyed};
    tmsg_peer_address_t *address;
    tmsg_status_t status =
        tmsg_peer_address_check(judged->a, &claim, bytes, count, &address);

    if (status == TMSG_OK) {
        tmsg_peer_address_free(address);
    }
    return status;
}

static void expect_passes(const char *config)
{
    judged_t judged;
    void *net;
    size_t bytes;

    judged_open(&judged, config);
    must_true(judged.a->own != NULL);
    must(judge(&judged, judged.bytes, judged.count, false, false));
    must(tmsg_ucx_address(judged.b, true, &net, &bytes));
    must(judge(&judged, net, bytes, true, false));
    tmsg_ucx_address_free(net);
    judged_close(&judged);
}

Test(peer_address, those_of_each_mix_of_transports_pass)
{
    static const char *const configs[] = {
        "TLS=tcp",
        "TLS=tcp,self",
        "TLS=posix,tcp",
        "TLS=sysv,tcp",
        "TLS=posix,cma,tcp,self",
        "TLS=sm,tcp",
        "TLS=all",
        "TLS=all;ADDRESS_VERSION=v2",
        "TLS=tcp;ADDRESS_VERSION=v2",
        "TLS=all;ADDRESS_DEBUG_INFO=y",
    };

    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        if (is_due(i) && (!is_slow() || i % 3 == 0)) {
            expect_passes(configs[i]);
        }
    }
}

/* UCX looks at the transports that both have. */
Test(peer_address, a_side_may_have_other_transports)
{
    const side_options_t all = {.ucx_config = "TLS=all"};
    const side_options_t few = {.ucx_config = "TLS=tcp"};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &all, &few);
    pair_close(&pair);
}

Test(peer_address, one_that_is_cut_or_too_long_is_refused)
{
    judged_t judged;
    uint8_t *copy;

    judged_open(&judged, NULL);
    for (size_t count = 0; count < judged.count; count++) {
        copy = malloc(count + !count);
        must_true(copy != NULL);
        memcpy(copy, judged.bytes, count);
        must_be(judge(&judged, copy, count, false, false), TMSG_ERR_MALFORMED);
        free(copy);
    }
    copy = calloc(1, judged.count + 1);
    must_true(copy != NULL);
    memcpy(copy, judged.bytes, judged.count);
    must_be(judge(&judged, copy, judged.count + 1, false, false),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "behind its end");
    free(copy);
    judged_close(&judged);
}

/* Each byte in turn. ASan sees what is read beyond the end. */
Test(peer_address, a_changed_byte_passes_or_is_refused_by_name)
{
    static const uint8_t changes[] = {1, 2, 0x20, 0x40, 0x7f, 0x80, 0xff};
    size_t refused = 0, tried = 0;
    judged_t judged;

    judged_open(&judged, NULL);
    for (size_t i = 0; i < judged.count; i++) {
        for (size_t j = 0; j < sizeof(changes); j++, tried++) {
            judged.bytes[i] ^= changes[j];
            if (judge(&judged, judged.bytes, judged.count, false, false) !=
                TMSG_OK) {
                must_say(tmsg_error_message(), "worker address");
                refused++;
            }
            judged.bytes[i] ^= changes[j];
        }
    }
    must_true(refused > tried / 10 && refused < tried);
    judged_close(&judged);
}

/* The place of something in the address. */
typedef enum {
    AT_HEAD,
    AT_UUID,
    AT_DOMAIN,
    AT_CHECKSUM,
    AT_OVERHEAD,
    AT_BANDWIDTH,
    AT_LATENCY,
    AT_FLAGS,
    AT_LENGTH,
    AT_ADDRESS,
    AT_DEVICE
} place_t;

typedef struct {
    const char *transport;
    place_t place;
    size_t further;
    uint8_t bytes[8];
    size_t count;
    const char *words;
} lie_t;

static const tmsg_packed_entry_t *find_entry(const judged_t *judged,
                                             const char *transport)
{
    for (size_t i = 0; i < judged->packed.entry_count; i++) {
        if (judged->packed.entries[i].transport ==
            tmsg_packed_checksum(transport)) {
            return &judged->packed.entries[i];
        }
    }
    return NULL;
}

static uint8_t *find_place(const judged_t *judged, const lie_t *lie)
{
    const tmsg_packed_entry_t *entry = find_entry(judged, lie->transport);
    const tmsg_packed_device_t *device = &judged->packed.devices[entry->device];
    size_t attributes =
        (size_t)(entry->address - judged->bytes) - 1 - ATTRIBUTE_BYTES;
    size_t on = (size_t)(device->address - judged->bytes);
    size_t head =
        2u + (device->paths > 1) + (device->system != TMSG_PACKED_NO_SYSTEM);
    const size_t places[] = {
        [AT_HEAD] = 0,
        [AT_UUID] = 1,
        [AT_DOMAIN] = on - head,
        [AT_CHECKSUM] = attributes - 2,
        [AT_OVERHEAD] = attributes,
        [AT_BANDWIDTH] = attributes + 4,
        [AT_LATENCY] = attributes + 8,
        [AT_FLAGS] = attributes + 13,
        [AT_LENGTH] = attributes + ATTRIBUTE_BYTES,
        [AT_ADDRESS] = attributes + ATTRIBUTE_BYTES + 1,
        [AT_DEVICE] = on,
    };

    return judged->bytes + places[lie->place] + lie->further;
}

static const lie_t lies[] = {
    {"tcp", AT_HEAD, 0, {0x22}, 1, "the unknown version 3"},
    {"tcp", AT_HEAD, 0, {0x00}, 1, "worker address"},
    {"tcp", AT_HEAD, 0, {0xa0}, 1, "flags that UCX does not set"},
    {"tcp", AT_UUID, 0, {0}, 8, "the id is that of this side"},
    {"tcp", AT_DOMAIN, 0, {0x1f}, 1, "domain"},
    {"tcp",
     AT_OVERHEAD,
     0,
     {0, 0, 0xc0, 0x7f},
     4,
     "tcp has an impossible speed"},
    {"tcp",
     AT_BANDWIDTH,
     0,
     {0, 0, 0x80, 0x7f},
     4,
     "tcp has an impossible speed"},
    {"tcp", AT_BANDWIDTH, 0, {0}, 4, "tcp has an impossible speed"},
    {"tcp", AT_LATENCY, 0, {0, 0, 0, 0xbf}, 4, "tcp has an impossible speed"},
    {"tcp", AT_FLAGS, 1, {0x7f}, 1, "tcp has unknown flags"},
    {"tcp", AT_ADDRESS, 0, {0, 0}, 2, "tcp has the port 0"},
    {"tcp", AT_DEVICE, 0, {7}, 1, "tcp has no address of IPv4"},
    {"tcp", AT_DEVICE, 1, {1}, 1, "tcp has no address of IPv4"},
    {"tcp", AT_DEVICE, 0, {0}, 1, "tcp has an address of another length"},
    {"posix", AT_ADDRESS, 0, {1}, 1, "posix names the memory of another"},
    {"posix", AT_ADDRESS, 7, {0x00}, 1, "posix names no folder"},
    {"posix", AT_ADDRESS, 7, {0xf0}, 1, "posix has a rest of another"},
    {"posix", AT_FLAGS, 0, {0}, 1, "posix can do something else"},
    {"posix", AT_DEVICE, 7, {0xff}, 1, "posix has a host's number of"},
    {"posix", AT_DEVICE, 6, {0xff}, 1, "posix is that of another machine"},
    {"tcp", AT_DEVICE, 2, {0xff, 0xff}, 2, "tcp is that of another machine"},
    {"cma", AT_CHECKSUM, 0, {1, 2}, 2, "another transport that UCX does not"},
    {"sysv", AT_ADDRESS, 4, {1}, 1, "sysv names the memory of another"},
    {"cma", AT_ADDRESS, 0, {1}, 1, "cma names another process"},
    {"cma", AT_ADDRESS, 3, {0x80}, 1, "cma has an address of another"},
    {"posix", AT_CHECKSUM, 0, {0x8d, 0x53}, 2, "occurs twice"},
};

Test(peer_address, a_lie_is_refused_by_name)
{
    judged_t judged;
    uint8_t kept[8];

    judged_open(&judged, "TLS=all");
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint8_t *place;

        if (find_entry(&judged, lies[i].transport) == NULL) {
            continue; /* the machine does not have it */
        }
        place = find_place(&judged, &lies[i]);
        memcpy(kept, place, lies[i].count);
        memcpy(place, lies[i].bytes, lies[i].count);
        must_be(judge(&judged, judged.bytes, judged.count, false, false),
                TMSG_ERR_MALFORMED);
        must_say(tmsg_error_message(), lies[i].words);
        memcpy(place, kept, lies[i].count);
    }
    must_true(find_entry(&judged, "tcp") != NULL);
    must(judge(&judged, judged.bytes, judged.count, false, false));
    judged_close(&judged);
}

/* UCX may have TCP on many devices, but at each port once. */
Test(peer_address, a_port_is_there_once)
{
    const lie_t domain = {.transport = "tcp", .place = AT_DOMAIN};
    size_t release = tmsg_ucx_version().minor >= 16 ? 2 : 0;
    size_t count, device, port;
    uint8_t bytes[512];
    judged_t judged;

    judged_open(&judged, "TLS=tcp");
    device = (size_t)(find_place(&judged, &domain) - judged.bytes);
    must_true(judged.packed.entry_count == 1);
    count = judged.count - release - device;
    memcpy(bytes, judged.bytes, judged.count - release);
    memcpy(bytes + judged.count - release, judged.bytes + device,
           count + release);
    bytes[device + 1] &= 0x7f; /* it is no more the last */
    count += judged.count;
    must_be(judge(&judged, bytes, count, false, false), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "tcp occurs twice");
    port = count - release - 1;
    bytes[port] ^= 1;
    must(judge(&judged, bytes, count, false, false));
    judged_close(&judged);
}

/* A descriptor of this process that is not a UCX segment's. */
Test(peer_address, a_file_that_is_none_of_ucx_is_not_mapped)
{
    const lie_t lie = {.transport = "posix", .place = AT_ADDRESS};
    FILE *file = tmpfile();
    judged_t judged;

    must_true(file != NULL && ftruncate(fileno(file), 1 << 20) == 0);
    judged_open(&judged, "TLS=posix,tcp");
    tmsg_put_le(find_place(&judged, &lie),
                (uint64_t)3 << 62 | (uint64_t)fileno(file) << 30 |
                    (uint64_t)getpid(),
                8);
    must_be(judge(&judged, judged.bytes, judged.count, false, false),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "not a UCX segment");
    fclose(file);
    judged_close(&judged);
}

/* Puts a file with the name of a segment into a folder: "" is no link. */
static void make_segment(char *path, const char *folder, uint64_t id,
                         const char *link_to)
{
    int fd;

    snprintf(path, 128, "%s/ucx_shm_posix_%llx", folder,
             (unsigned long long)id);
    if (link_to[0] != '\0') {
        must_true(symlink(link_to, path) == 0);
        return;
    }
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    must_true(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    close(fd);
}

/* UCX would follow a link, and map another user's file. */
Test(peer_address, a_file_in_shm_is_mapped_only_if_it_is_this_users)
{
    const lie_t lie = {.transport = "posix", .place = AT_ADDRESS};
    uint64_t id = UINT64_C(0x7a5) << 32 | (uint32_t)getpid();
    char target[128], path[128];
    judged_t judged;

    setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
    judged_open(&judged, "TLS=posix,tcp");
    must(judge(&judged, judged.bytes, judged.count, false, false));
    tmsg_put_le(find_place(&judged, &lie), UINT64_C(1) << 62 | id, 8);
    make_segment(target, "/dev/shm", id + 1, "");
    make_segment(path, "/dev/shm", id, target);
    must_be(judge(&judged, judged.bytes, judged.count, false, false),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "not a UCX segment");
    unlink(path);
    unlink(target);
    make_segment(path, "/dev/shm", id, "");
    must(judge(&judged, judged.bytes, judged.count, false, false));
    if (geteuid() == 0 && chown(path, 1, 1) == 0) {
        must_be(judge(&judged, judged.bytes, judged.count, false, false),
                TMSG_ERR_MALFORMED);
        must_say(tmsg_error_message(), "not a UCX segment");
    }
    unlink(path);
    judged_close(&judged);
}

static tmsg_status_t connect_to(const judged_t *judged,
                                const tmsg_peer_address_t *address)
{
    tmsg_ep_sockets_t sockets;
    tmsg_ucx_ep_t ep;
    uint32_t number;
    tmsg_status_t status = tmsg_ep_index_make(
        judged->a, judged->b->hello.ucx_id, address, &ep, &sockets, &number);

    if (status == TMSG_OK) {
        tmsg_ucx_ep_abandon(ep);
    }
    return status;
}

/* The peer says when UCX connects. */
Test(peer_address, what_comes_after_the_check_is_not_mapped)
{
    const lie_t lie = {.transport = "posix", .place = AT_ADDRESS};
    uint64_t id = UINT64_C(0x7a5) << 32 | (uint32_t)getpid();
    tmsg_address_claim_t claim = {.keyed = true};
    tmsg_peer_address_t *address;
    char path[128];
    judged_t judged;

    setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
    judged_open(&judged, "TLS=posix,tcp");
    claim.hello = &judged.b->hello;
    tmsg_put_le(find_place(&judged, &lie), UINT64_C(1) << 62 | id, 8);
    must(tmsg_peer_address_check(judged.a, &claim, judged.bytes, judged.count,
                                 &address));
    make_segment(path, "/dev/shm", id, "");
    must_true(truncate(path, 4096) == 0);
    must_be(connect_to(&judged, address), TMSG_ERR_PEER_LOST);
    must_say(tmsg_error_message(), "shared memory is not there");
    unlink(path);
    make_segment(path, "/dev/shm", id, "/dev/zero");
    must_be(connect_to(&judged, address), TMSG_ERR_PEER_LOST);
    unlink(path);
    must_be(connect_to(&judged, address), TMSG_ERR_PEER_LOST);
    tmsg_peer_address_free(address);
    judged_close(&judged);
}

/* A file in the peer's folder can be changed after it was looked at. */
Test(peer_address, a_file_in_another_folder_is_not_mapped)
{
    const lie_t lie = {.transport = "posix", .place = AT_ADDRESS};
    char ours[] = "/tmp/tensormsg-XXXXXX", theirs[sizeof(ours)], path[128];
    judged_t judged;
    uint8_t *place;

    must_true(mkdtemp(ours) != NULL);
    setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
    setenv("UCX_POSIX_DIR", ours, 1);
    judged_open(&judged, "TLS=posix,tcp");
    must(judge(&judged, judged.bytes, judged.count, false, false));
    place = find_place(&judged, &lie);
    place[8 + strlen(ours) - 1] ^= 1;
    memcpy(theirs, place + 8, sizeof(theirs));
    must_true(mkdir(theirs, 0700) == 0);
    make_segment(path, theirs, tmsg_get_le(place, 8), "");
    must_be(judge(&judged, judged.bytes, judged.count, false, false),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "names another folder");
    unlink(path);
    rmdir(theirs);
    judged_close(&judged);
    rmdir(ours);
}

/* Only root can be told of a segment that another user made. */
Test(peer_address, the_memory_of_another_user_is_not_mapped)
{
    const tmsg_posix_segment_t segment = {
        .in_proc = true, .pid = (uint32_t)getpid(), .fd = 200};
    char path[128];
    int fd, id;

    if (geteuid() != 0) {
        return;
    }
    make_segment(path, "/tmp", (uint32_t)getpid(), "");
    fd = open(path, O_RDWR | O_CLOEXEC);
    must_true(dup2(fd, (int)segment.fd) >= 0 && unlink(path) == 0);
    must_true(tmsg_posix_segment_holds(&segment, 4096, true));
    must_true(fchown(fd, 1, 1) == 0);
    must_true(!tmsg_posix_segment_holds(&segment, 4096, true));
    must_true(seteuid(1) == 0);
    id = shmget(IPC_PRIVATE, 4096, 0666);
    must_true(seteuid(0) == 0 && id >= 0);
    must_true(!tmsg_sysv_segment_holds(id, (uint32_t)getpid(), 4096, true));
    shmctl(id, IPC_RMID, NULL);
    id = shmget(IPC_PRIVATE, 4096, 0600);
    must_true(tmsg_sysv_segment_holds(id, (uint32_t)getpid(), 4096, true));
    shmctl(id, IPC_RMID, NULL);
}

/* UCX rounds up to huge pages of 2 MiB, if there are some. */
Test(peer_address, a_peer_without_huge_pages_has_a_smaller_segment)
{
    const uint64_t page = 4096, huge = 2 << 20;

    must_eq(tmsg_segment_least(0), 0);
    must_eq(tmsg_segment_least(20 * page), 20 * page);
    must_eq(tmsg_segment_least(huge), huge / 2);
    must_eq(tmsg_segment_least(2 * huge), huge + page);
    must_eq(tmsg_segment_least(5 * huge), 4 * huge + page);
    must_eq(tmsg_segment_least(5 * huge + page), 5 * huge + page);
}

Test(peer_address, memory_is_shared_only_where_both_sides_agreed)
{
    judged_t judged;

    judged_open(&judged, NULL);
    must_be(judge(&judged, judged.bytes, judged.count, true, true),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "not to be shared");
    judged_close(&judged);
}

Test(peer_address, this_side_is_no_peer)
{
    judged_t judged;
    tmsg_ucx_t *a;

    judged_open(&judged, NULL);
    a = judged.a;
    judged.a = judged.b;
    must_be(judge(&judged, judged.bytes, judged.count, false, true),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "the id is that of this side");
    /* Nor is it one under another id. */
    judged.bytes[1] ^= 1;
    must_be(judge(&judged, judged.bytes, judged.count, false, true),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "of this side");
    judged.a = a;
    judged_close(&judged);
}

/* Of a UCX that packs them in another way. */
Test(peer_address, without_a_key_an_unknown_format_is_refused)
{
    static const uint8_t bytes[] = {1, 2, 3};
    struct tmsg_own_address *own;
    judged_t judged;

    judged_open(&judged, NULL);
    own = judged.a->own;
    judged.a->own = NULL;
    must_be(judge(&judged, bytes, sizeof(bytes), false, false),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "give both sides a key");
    must(judge(&judged, bytes, sizeof(bytes), false, true));
    judged.a->own = own;
    judged_close(&judged);
}

static bool has_failed(void *arg) { return tmsg_endpoint_status(arg) < 0; }

Test(peer_address, without_a_key_unified_mode_is_refused)
{
    const side_options_t options = {.ucx_config = "UNIFIED_MODE=y"};
    tmsg_endpoint_t *endpoint;
    side_t a, b, *const sides[] = {&a, &b};

    side_open(&a, &options);
    side_open(&b, &options);
    side_listen_link(&a, LINK_SHM);
    endpoint = side_dial(&b, &a);
    await(sides, 2, has_failed, endpoint, "a refusal");
    must_be(tmsg_endpoint_status(endpoint), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_endpoint_error(endpoint), "UCX_UNIFIED_MODE");
    tmsg_endpoint_destroy(endpoint);
    side_close(&b);
    side_close(&a);
}

Test(peer_address, with_a_key_unified_mode_goes_on)
{
    side_options_t options = {.ucx_config = "UNIFIED_MODE=y",
                              .keyring = ring("alice", 1)};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    must_true(pair.to_a->ucx->own == NULL);
    pair_close(&pair);
    tmsg_keyring_destroy(options.keyring);
}

/* UCX pairs endpoints by its own id of a UCX worker, this side by another. */
Test(peer_address, one_id_goes_with_the_other)
{
    tmsg_address_claim_t claim = {.keyed = true};
    tmsg_peer_address_t *address;
    tmsg_ep_sockets_t sockets;
    tmsg_ucx_ep_t ep;
    judged_t judged;
    uint32_t number;

    judged_open(&judged, NULL);
    claim.hello = &judged.b->hello;
    must(tmsg_peer_address_check(judged.a, &claim, judged.bytes, judged.count,
                                 &address));
    must_be(tmsg_ep_index_make(judged.a, judged.b->hello.ucx_id + 1, address,
                               &ep, &sockets, &number),
            TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "another peer came with the id");
    tmsg_peer_address_free(address);
    judged_close(&judged);
}

/* Writes the address of b, which has one device, with another domain, system
 * device and id. Returns its length. */
static size_t write_variant(const judged_t *judged, size_t n, uint8_t *bytes)
{
    const tmsg_packed_device_t *device = &judged->packed.devices[0];
    size_t on = (size_t)(device->address - judged->bytes);

    must_true(judged->packed.device_count == 1 && device->paths == 1 &&
              device->system == TMSG_PACKED_NO_SYSTEM);
    memcpy(bytes, judged->bytes, on);
    tmsg_put_le(bytes + 1, 1 + n, 8);
    bytes[on - 2] = (uint8_t)(n % 32);
    bytes[on - 1] |= 0x20; /* a system device is told */
    bytes[on] = (uint8_t)(n / 32);
    memcpy(bytes + on + 1, judged->bytes + on, judged->count - on);
    return judged->count + 1;
}

/* UCX keeps each kind of endpoint that it has made, and has room for 64, or
 * from 1.16 on for 255, for which it takes 10 s. Where there is none, a new UCX
 * worker takes its place. */
Test(peer_address, too_many_kinds_of_peers_are_told_to_come_again)
{
    enum { KINDS_MOST = 300 };
    tmsg_address_claim_t claim = {.keyed = true};
    tmsg_status_t status = TMSG_OK;
    tmsg_peer_address_t *address;
    tmsg_ep_sockets_t sockets;
    uint8_t bytes[512];
    tmsg_ucx_ep_t ep;
    judged_t judged;
    uint32_t number;
    size_t n = 0;

    if (tmsg_ucx_version().minor >= 16 && !whole_run()) {
        return;
    }
    judged_open(&judged, "TLS=tcp");
    claim.hello = &judged.b->hello;
    for (; n < KINDS_MOST && status == TMSG_OK; n++) {
        size_t count = write_variant(&judged, n, bytes);

        must(tmsg_peer_address_check(judged.a, &claim, bytes, count, &address));
        status = tmsg_ep_index_make(judged.a, 1 + n, address, &ep, &sockets,
                                    &number);
        tmsg_peer_address_free(address);
        if (status == TMSG_OK) {
            tmsg_ucx_ep_abandon(ep);
        }
    }
    must_be(status, TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "too many kinds of peers");
    must_true(n > 32);
    judged_close(&judged);
}

/* A frame of type ADDRESS with a true checksum. */
static void send_address(int fd, const void *bytes, size_t count)
{
    const tmsg_sealed_t sealed = {.address = bytes, .address_bytes = count};
    uint8_t frame[512] = {0};
    size_t length;

    must(tmsg_sealed_encode(&sealed, frame + 4, sizeof(frame) - 4, &length));
    raw_send_frame(fd, FRAME_ADDRESS, frame, 4 + length);
}

/* As an honest side of this UCX says it. */
static void send_true_hello(int fd, const tmsg_ucx_t *ucx)
{
    tmsg_hello_t hello = ucx->hello;

    hello.ucx_id ^= 1;
    raw_send_magic(fd);
    raw_send_hello(fd, &hello);
}

static const struct {
    uint8_t bytes[41];
    size_t count;
} made_up[] = {
    {{3}, 1},
    {{1}, 1},
    {{2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, 14},
    {{0}, 8},
    {{0x20, 1, 2, 3, 4, 5, 6, 7, 8, 0xff}, 10},
    {{0x20, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x80, 0xcf, 0x19}, 13},
};

Test(peer_address, a_stranger_that_makes_one_up_ends_no_listener)
{
    pair_t pair;
    const char *url;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    url = tmsg_listener_url(pair.a.listener);
    for (size_t i = 0; i < sizeof(made_up) / sizeof(made_up[0]); i++) {
        raw_reader_t reader = {.fd = raw_dial(url)};

        send_true_hello(reader.fd, pair.to_a->ucx);
        send_address(reader.fd, made_up[i].bytes, made_up[i].count);
        pair_await(&pair, raw_closed, &reader, "a refusal");
        must_say(raw_find_frame(&reader, FRAME_REFUSE, 4),
                 i == 4 ? "no transport of UCX" : "worker address");
        close(reader.fd);
    }
    side_serves(&pair.a);
    pair_close(&pair);
}

typedef struct {
    int listener, fd;
    size_t n;
    const tmsg_ucx_t *ucx;
    tmsg_endpoint_t *endpoint;
} false_listener_t;

static bool has_answered(void *arg)
{
    false_listener_t *liar = arg;

    if (liar->fd < 0) {
        liar->fd = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC);
        if (liar->fd >= 0) {
            send_true_hello(liar->fd, liar->ucx);
            send_address(liar->fd, made_up[liar->n].bytes,
                         made_up[liar->n].count);
        }
    }
    return tmsg_endpoint_status(liar->endpoint) < 0;
}

Test(peer_address, a_listener_that_makes_one_up_ends_no_dialler)
{
    false_listener_t liar = {.fd = -1};
    char url[64];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    liar.ucx = pair.to_b->ucx;
    for (; liar.n < sizeof(made_up) / sizeof(made_up[0]); liar.n++) {
        liar.listener = raw_listen(url, sizeof(url));
        liar.fd = -1;
        fcntl(liar.listener, F_SETFL, O_NONBLOCK);
        must(tmsg_endpoint_connect(pair.b.worker, url, NULL, &liar.endpoint));
        pair_await(&pair, has_answered, &liar, "an end");
        must_be(tmsg_endpoint_status(liar.endpoint),
                liar.n == 4 ? TMSG_ERR_UNREACHABLE : TMSG_ERR_MALFORMED);
        tmsg_endpoint_destroy(liar.endpoint);
        close(liar.fd);
        close(liar.listener);
    }
    side_serves(&pair.a);
    pair_close(&pair);
}
