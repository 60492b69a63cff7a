/* SPDX-License-Identifier: BSD-3-Clause */
/* Worker addresses that a stranger made up or changed, under true checksums.
 * What passes the check is given to UCX, in a child, and ends it never. Each
 * slice is a process of its own, in a network namespace of its own where that
 * may be had: the ports that are made up lead nowhere. $TMSG_ADDRESSES "small":
 * some of it. "SEED COUNT TURN" as arguments: that one slice; if the count is
 * 1, the address is shown. */
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/ucx/ep_index.h"
#include "am/ucx/packed.h"
#include "am/ucx/peer_address.h"
#include "am/ucx/ucx_ep.h"
#include "support/address_mutator.h"
#include "support/lone_ucx.h"
#include "support/must.h"
#include "support/soak_progress.h"
#include "support/test_scale.h"

enum { SLICES = 100, A_SLICE = 2000, SMALL = 120, OPEN_MOST = 200 };

/* What both sides set, and this side beside it. */
typedef struct {
    const char *theirs;
    const char *ours;
} turn_t;

static const turn_t turns[] = {
    {"TLS=all", "TLS=all"},
    {"TLS=all;ADDRESS_VERSION=v2", "TLS=all"},
    {"TLS=all", "TLS=tcp,self;ADDRESS_VERSION=v2"},
    {"TLS=sysv,tcp,self;ADDRESS_DEBUG_INFO=y", "TLS=all"},
    {"TLS=posix,tcp", "TLS=posix,tcp,self"},
};

#define TURNS (sizeof(turns) / sizeof(turns[0]))

typedef struct {
    tmsg_loop_t loop;
    tmsg_ucx_t *ucx;
} user_t;

static void user_open(user_t *user, const char *config)
{
    must(tmsg_loop_open(&user->loop));
    user->ucx = lone_ucx_open(&user->loop, config, "addresses");
}

static void user_close(user_t *user)
{
    tmsg_ucx_close(user->ucx);
    tmsg_loop_close(&user->loop);
}

/* The honest one whose addresses are changed. */
typedef struct {
    pid_t pid;
    tmsg_hello_t hello;
    struct {
        uint8_t bytes[ADDRESS_BYTES_MOST];
        size_t count;
    } whole, net;
} peer_t;

static void tell_address(const tmsg_ucx_t *ucx, bool net_only, uint8_t *bytes,
                         size_t *count_p)
{
    void *address;

    must(tmsg_ucx_address(ucx, net_only, &address, count_p));
    must_true(*count_p <= ADDRESS_BYTES_MOST / 2);
    memcpy(bytes, address, *count_p);
    tmsg_ucx_address_free(address);
}

static void be_peer(peer_t *peer, int told, const char *config)
{
    user_t user;
    char byte = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    user_open(&user, config);
    peer->hello = user.ucx->hello;
    tell_address(user.ucx, false, peer->whole.bytes, &peer->whole.count);
    tell_address(user.ucx, true, peer->net.bytes, &peer->net.count);
    must_eq(write(told, &byte, 1), 1);
    pause();
}

static peer_t *start_peer(const char *config)
{
    peer_t *peer = mmap(NULL, sizeof(*peer), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int told[2];
    pid_t pid;
    char byte;

    must_true(peer != MAP_FAILED && pipe(told) == 0);
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) {
        be_peer(peer, told[1], config);
        _exit(0);
    }
    close(told[1]);
    must_eq(read(told[0], &byte, 1), 1);
    close(told[0]);
    peer->pid = pid;
    return peer;
}

/* A network namespace with a loopback. Without one there is that of all. */
static void leave_network(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd;

    if (unshare(CLONE_NEWNET) != 0 &&
        unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return;
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    lo.ifr_flags = IFF_UP | IFF_RUNNING;
    must_eq(ioctl(fd, SIOCSIFFLAGS, &lo), 0);
    close(fd);
}

typedef struct {
    uint64_t tried, passed, made, in_vain;
} counts_t;

/* Connects by an address that has passed. */
static void connect_by(user_t *user, const char *config,
                       const tmsg_peer_address_t *address, counts_t *counts)
{
    tmsg_ep_sockets_t sockets;
    tmsg_ucx_ep_t ep;
    uint32_t number;
    tmsg_status_t status =
        tmsg_ep_index_make(user->ucx, tmsg_peer_address_uuid(address), address,
                           &ep, &sockets, &number);

    if (status == TMSG_OK) {
        for (int i = 0; i < 4; i++) {
            tmsg_ucx_progress(user->ucx);
        }
        tmsg_ucx_ep_abandon(ep);
        counts->made++;
    } else {
        counts->in_vain++;
    }
    for (int i = 0; i < 4; i++) {
        tmsg_ucx_progress(user->ucx);
    }
    if (status == TMSG_ERR_BUSY || user->ucx->peer_count == OPEN_MOST) {
        user_close(user);
        user_open(user, config);
    }
}

static void show(const uint8_t *bytes, size_t count, const uint8_t *before)
{
    for (size_t i = 0; i < count; i++) {
        printf("%c%02x", bytes[i] == before[i] ? ' ' : '*', bytes[i]);
    }
    printf("\n");
    fflush(stdout);
}

/* As it travels: sealed. */
static tmsg_status_t check(const user_t *user, const peer_t *peer,
                           bool net_only, const uint8_t *bytes, size_t count,
                           tmsg_peer_address_t **address_p)
{
    const tmsg_address_claim_t claim = {.hello = &peer->hello,
                                        .net_only = net_only};
    uint8_t frame[ADDRESS_BYTES_MOST + TMSG_SEALED_EXTRA_BYTES];
    tmsg_sealed_t sealed = {.address = bytes, .address_bytes = count};

    must(tmsg_sealed_encode(&sealed, frame, sizeof(frame), &count));
    must(tmsg_sealed_decode(frame, count, &sealed));
    return tmsg_peer_address_check(user->ucx, &claim, sealed.address,
                                   sealed.address_bytes, address_p);
}

static void try_one(user_t *user, const char *config, const peer_t *peer,
                    uint64_t seed, bool shown, counts_t *counts)
{
    bool net_only = seed % 8 == 7;
    const uint8_t *before = net_only ? peer->net.bytes : peer->whole.bytes;
    uint8_t bytes[ADDRESS_BYTES_MOST];
    size_t count = net_only ? peer->net.count : peer->whole.count;
    tmsg_peer_address_t *address;

    memcpy(bytes, before, count);
    count = address_mutate(bytes, count, tmsg_ucx_version().minor,
                           seed * UINT64_C(0x9e3779b97f4a7c15));
    counts->tried++;
    if (shown) {
        show(before, peer->whole.count, before);
        show(bytes, count, before);
    }
    if (check(user, peer, net_only, bytes, count, &address) == TMSG_OK) {
        counts->passed++;
        connect_by(user, config, address, counts);
        tmsg_peer_address_free(address);
    }
}

static void run_slice(uint64_t seed, unsigned count, const turn_t *turn,
                      volatile uint64_t *at)
{
    tmsg_peer_address_t *address;
    counts_t counts = {0};
    peer_t *peer;
    user_t user;

    leave_network();
    peer = start_peer(turn->theirs);
    user_open(&user, turn->ours);
    must(check(&user, peer, false, peer->whole.bytes, peer->whole.count,
               &address)); /* as it is */
    tmsg_peer_address_free(address);
    for (unsigned i = 0; i < count; i++) {
        *at = seed + i;
        try_one(&user, turn->ours, peer, seed + i, count == 1, &counts);
    }
    user_close(&user);
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
    printf("%s, here %s, seed %" PRIu64 ": of %" PRIu64 " %" PRIu64
           " passed; UCX made %" PRIu64 " endpoints, %" PRIu64 " in vain\n",
           turn->theirs, turn->ours, seed, counts.tried, counts.passed,
           counts.made, counts.in_vain);
    fflush(stdout);
    must_true(count == 1 || counts.passed * 5 >= counts.tried);
}

/* In a process that begins anew: UCX is not open before. */
static void start_slice(uint64_t seed, unsigned count, unsigned turn)
{
    char words[3][32];
    int status;
    pid_t child;

    snprintf(words[0], sizeof(words[0]), "%" PRIu64, seed);
    snprintf(words[1], sizeof(words[1]), "%u", count);
    snprintf(words[2], sizeof(words[2]), "%u", turn);
    child = fork();
    must_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "soak_addresses", words[0], words[1], words[2],
              NULL);
        _exit(127);
    }
    must_eq(waitpid(child, &status, 0), child);
    if (status != 0) {
        die("soak_addresses %s %s %s: status %#x", words[0], words[1], words[2],
            status);
    }
}

/* Runs a slice in a child, and tells at which seed it ended. */
static int watch_slice(uint64_t seed, unsigned count, const turn_t *turn)
{
    uint64_t *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t child;

    must_true(at != MAP_FAILED);
    child = fork();
    must_true(child >= 0);
    if (child == 0) {
        run_slice(seed, count, turn, at);
        exit(0);
    }
    must_eq(waitpid(child, &status, 0), child);
    if (status != 0) {
        fprintf(stderr, "%s, here %s: status %#x at the seed %" PRIu64 "\n",
                turn->theirs, turn->ours, status, *at);
    }
    return status != 0;
}

int main(int argc, char **argv)
{
    const char *size = getenv("TMSG_ADDRESSES"), *name;
    bool small = size != NULL && strcmp(size, "small") == 0;
    uint64_t slices = small ? TURNS : SLICES * TURNS;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4) {
        return watch_slice(strtoull(argv[1], NULL, 10), (unsigned)atoi(argv[2]),
                           &turns[(unsigned)atoi(argv[3]) % TURNS]);
    }
    name = tmsg_ucx_version().minor == 13 ? "addresses" : "addresses-newer";
    setenv("UCX_LOG_LEVEL", "fatal", 1); /* what it cannot open */
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    for (uint64_t slice = small ? 0 : soak_place(name); slice < slices;
         slice++) {
        start_slice((small ? 20261129 : soak_seed()) + slice * A_SLICE,
                    !small      ? A_SLICE
                    : is_slow() ? SMALL / 4
                                : SMALL,
                    (unsigned)(slice % TURNS));
        if (!small) {
            soak_keep(name, slice + 1);
        }
    }
    if (!small) {
        soak_keep(name, 0);
    }
    return 0;
}
