/* SPDX-License-Identifier: BSD-3-Clause */
/* Many endpoints on one worker: what each costs in memory, and how fast small
 * messages come over all of them in turn. A server process on a core of its
 * own, its clients on the other. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "many.h"
#include "raw.h"
#include "side.h"

#define RUN_SECONDS_MAX 180

void bench_many_blocks(const bench_player_t *self, void (*block)(void *arg),
                       void *arg)
{
    double rates[BENCH_BLOCKS_MAX];
    bench_many_sample_t sample = {0};
    unsigned long ours, in_ucx;

    for (unsigned i = 0; i <= self->many->blocks; i++) {
        double begin;

        bench_meet(self->socket);
        begin = bench_now();
        block(arg);
        if (i == 0) {
            sample.bytes_each = (double)bench_counts_held() / self->share;
            bench_counts_stop(&ours, &in_ucx);
        } else {
            rates[i - 1] = self->many->messages / (bench_now() - begin);
        }
    }
    if (self->serves) {
        sample.rate = bench_median(rates, self->many->blocks);
    }
    bench_tell(self->socket, &sample, sizeof(sample));
}

/* Two descriptors an endpoint on either side: ours and UCX's. */
static void allow_descriptors(unsigned endpoints)
{
    rlim_t wanted = 100 + 2 * (rlim_t)endpoints;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    if (limit.rlim_max < wanted) {
        bench_die("%u endpoints take %lu descriptors; RLIMIT_NOFILE is %lu",
                  endpoints, (unsigned long)wanted,
                  (unsigned long)limit.rlim_max);
    }
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

typedef struct {
    pid_t pid;
    int socket;
} played_t;

static played_t start(const bench_many_t *many, bool serving)
{
    bench_player_t self = {.many = many, .serves = serving};
    played_t played;
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 ||
        (played.pid = fork()) < 0) {
        bench_die("a process: %s", strerror(errno));
    }
    if (played.pid > 0) {
        close(sockets[1]);
        played.socket = sockets[0];
        return played;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    alarm(RUN_SECONDS_MAX);
    close(sockets[0]);
    self.socket = sockets[1];
    self.share = many->endpoints / (serving ? 1 : many->clients);
    bench_bind_core(serving ? 0 : 1);
    allow_descriptors(self.share);
    if (many->way.layout == BENCH_MAP) {
        bench_many_play_maps(&self);
    } else {
        bench_many_play_raw(&self);
    }
    bench_meet(self.socket); /* nobody goes before all are done */
    _exit(0);
}

/* Everybody begins when all have come. */
static void let_all_meet(const played_t *players, unsigned count)
{
    char byte = 0;

    for (unsigned i = 0; i < count; i++) {
        bench_hear(players[i].socket, &byte, 1);
    }
    for (unsigned i = 0; i < count; i++) {
        bench_tell(players[i].socket, &byte, 1);
    }
}

void bench_many_run(const bench_many_t *many, bench_many_sample_t *sample_p)
{
    played_t players[1 + BENCH_CLIENTS_MAX];
    unsigned count = 1 + many->clients;
    static uint8_t address[BENCH_RAW_ADDRESS_BYTES_MAX];
    size_t bytes;

    if (many->blocks > BENCH_BLOCKS_MAX ||
        many->messages % many->clients != 0 ||
        many->endpoints % many->clients != 0) {
        bench_die("%u messages and %u endpoints of %u clients, in %u blocks",
                  many->messages, many->endpoints, many->clients, many->blocks);
    }
    memset(sample_p, 0, sizeof(*sample_p));
    players[0] = start(many, true);
    bytes = bench_hear(players[0].socket, address, sizeof(address));
    for (unsigned i = 1; i < count; i++) {
        players[i] = start(many, false);
        bench_tell(players[i].socket, address, bytes);
    }
    for (unsigned i = 0; i <= many->blocks; i++) {
        let_all_meet(players, count);
    }
    for (unsigned i = 0; i < count; i++) {
        bench_many_sample_t sample;

        bench_hear(players[i].socket, &sample, sizeof(sample));
        if (sample.bytes_each > sample_p->bytes_each) {
            sample_p->bytes_each = sample.bytes_each;
        }
        sample_p->rate += sample.rate;
    }
    let_all_meet(players, count);
    for (unsigned i = 0; i < count; i++) {
        close(players[i].socket);
        waitpid(players[i].pid, NULL, 0);
    }
}
