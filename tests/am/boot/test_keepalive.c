/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The context's small thread, without UCX: over socket pairs. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "am/boot/keepalive.h"
#include "am/net/loop.h"
#include "core/error.h"
#include "support/must.h"

enum { MANY = 1000, MAX = 100000, BEAT_MS = TMSG_HEARTBEAT_LEAST_MS, TYPE = 9 };

typedef struct {
    int fds[2];
    tmsg_frame_stream_t streams[2];
    tmsg_pulse_t pulses[2];
} pair_t;

/* Connected, and greeted on both sides. */
static void open_pair(pair_t *pair)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    memset(pair, 0, sizeof(*pair));
    must_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds), 0);
    for (int i = 0; i < 2; i++) {
        tmsg_frame_init(&pair->streams[i], pair->fds[i], MAX);
        must(tmsg_frame_queue(&pair->streams[i], TYPE, NULL, 0));
    }
    for (int i = 0; i < 2; i++) {
        must(tmsg_frame_read(&pair->streams[i], &type, &data, &bytes));
        must_be(tmsg_frame_read(&pair->streams[i], &type, &data, &bytes),
                TMSG_IN_PROGRESS);
    }
}

static void close_pair(pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        tmsg_frame_free(&pair->streams[i]);
        close(pair->fds[i]);
    }
}

static void must_lie_there(int fd, const void *wanted, size_t bytes)
{
    uint8_t came[256];

    must_eq(recv(fd, came, sizeof(came), MSG_PEEK | MSG_DONTWAIT),
            bytes == 0 ? -1 : (ssize_t)bytes);
    must_true(memcmp(came, wanted, bytes) == 0);
}

static const uint8_t beat[] = {0, 0, 0, 0, TMSG_FRAME_HEARTBEAT};
static const uint8_t other[] = {2, 0, 0, 0, TYPE, 'a', 'b'};

Test(keepalive, a_beat_is_an_empty_frame)
{
    pair_t pair;

    open_pair(&pair);
    tmsg_frame_beat(&pair.streams[0], TMSG_FRAME_HEARTBEAT);
    must_lie_there(pair.fds[1], beat, sizeof(beat));
    close_pair(&pair);
}

Test(keepalive, beats_are_taken_up_to_the_first_other_frame)
{
    uint8_t rest[sizeof(other) + sizeof(beat)];
    pair_t pair;
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    memcpy(rest, other, sizeof(other));
    memcpy(rest + sizeof(other), beat, sizeof(beat));
    open_pair(&pair);
    for (int i = 0; i < 100; i++) {
        tmsg_frame_beat(&pair.streams[0], TMSG_FRAME_HEARTBEAT);
    }
    must(tmsg_frame_queue(&pair.streams[0], TYPE, "ab", 2));
    tmsg_frame_beat(&pair.streams[0], TMSG_FRAME_HEARTBEAT);
    pair.streams[1].heard_ns = 0;
    tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
    must_true(pair.streams[1].heard_ns > 0);
    must_lie_there(pair.fds[1], rest, sizeof(rest));
    must(tmsg_frame_read(&pair.streams[1], &type, &data, &bytes));
    must_eq(type, TYPE);
    must_eq(bytes, 2);
    must(tmsg_frame_read(&pair.streams[1], &type, &data, &bytes));
    must_eq(type, TMSG_FRAME_HEARTBEAT);
    tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
    must_lie_there(pair.fds[1], "", 0);
    close_pair(&pair);
}

/* Each way in which a frame may have come in part. */
Test(keepalive, a_frame_that_has_begun_is_left_alone)
{
    for (size_t cut = 1; cut < sizeof(other); cut++) {
        for (int partly_read = 0; partly_read < 2; partly_read++) {
            pair_t pair;
            const uint8_t *data;
            uint8_t type;
            size_t bytes;

            open_pair(&pair);
            must_eq(write(pair.fds[0], other, cut), cut);
            if (partly_read) {
                must_be(tmsg_frame_read(&pair.streams[1], &type, &data, &bytes),
                        TMSG_IN_PROGRESS);
            }
            tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
            must_eq(write(pair.fds[0], other + cut, sizeof(other) - cut),
                    sizeof(other) - cut);
            must_eq(write(pair.fds[0], beat, sizeof(beat)), sizeof(beat));
            tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
            must(tmsg_frame_read(&pair.streams[1], &type, &data, &bytes));
            must_eq(type, TYPE);
            must_eq(bytes, 2);
            close_pair(&pair);
        }
    }
}

/* An empty frame of another type begins with the same four bytes. */
Test(keepalive, part_of_a_beat_waits_for_the_rest)
{
    pair_t pair;

    open_pair(&pair);
    must_eq(write(pair.fds[0], beat, 3), 3);
    tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
    must_lie_there(pair.fds[1], beat, 3);
    must_eq(write(pair.fds[0], beat + 3, 2), 2);
    tmsg_frame_listen(&pair.streams[1], TMSG_FRAME_HEARTBEAT);
    must_lie_there(pair.fds[1], "", 0);
    close_pair(&pair);
}

/* With frames that wait in our buffer because the socket is full. */
Test(keepalive, a_beat_tears_no_frame)
{
    static uint8_t payload[MAX];
    const uint8_t *data;
    unsigned sent = 0, came = 0;
    uint8_t type;
    size_t bytes;
    tmsg_status_t status;
    pair_t pair;

    open_pair(&pair);
    while (tmsg_frame_pending(&pair.streams[0]) == 0) {
        must(tmsg_frame_queue(&pair.streams[0], TYPE, payload, MAX));
        sent++;
    }
    for (int i = 0; i < 1000; i++) {
        tmsg_frame_beat(&pair.streams[0], TMSG_FRAME_HEARTBEAT);
        for (int reads = 0; reads < 100; reads++) {
            status = tmsg_frame_read(&pair.streams[1], &type, &data, &bytes);
            must_true(status == TMSG_OK || status == TMSG_IN_PROGRESS);
            if (status == TMSG_OK) {
                must_eq(type, bytes == 0 ? TMSG_FRAME_HEARTBEAT : TYPE);
                must_true(bytes == 0 || bytes == MAX);
                came += bytes == MAX;
            }
        }
    }
    must_eq(came, sent);
    close_pair(&pair);
}

static void sleep_ms(int ms) { poll(NULL, 0, ms); }

/* Frames that come within a time. */
static unsigned count_beats(pair_t *pair, int side, uint64_t within_ms)
{
    uint64_t end = tmsg_now_ns() + within_ms * 1000000;
    unsigned count = 0;

    while (tmsg_now_ns() < end) {
        struct pollfd socket = {pair->fds[side], POLLIN, 0};
        const uint8_t *data;
        uint8_t type;
        size_t bytes;

        poll(&socket, 1, 5);
        while (tmsg_frame_read(&pair->streams[side], &type, &data, &bytes) ==
               TMSG_OK) {
            must_eq(type, TMSG_FRAME_HEARTBEAT);
            count++;
        }
    }
    return count;
}

Test(keepalive, beats_as_often_as_it_was_asked_to)
{
    tmsg_keepalive_t keepalive;
    pair_t fast, slow, silent;
    uint64_t began = tmsg_now_ns(), ms;
    unsigned count;

    tmsg_keepalive_open(&keepalive, 0);
    open_pair(&fast);
    open_pair(&slow);
    open_pair(&silent);
    must(
        tmsg_keepalive_add(&keepalive, &slow.pulses[0], &slow.streams[0], 500));
    must(tmsg_keepalive_add(&keepalive, &silent.pulses[0], &silent.streams[0],
                            TMSG_HEARTBEAT_NEVER));
    must(tmsg_keepalive_add(&keepalive, &fast.pulses[0], &fast.streams[0], 1));
    count = count_beats(&fast, 1, 1200);
    ms = (tmsg_now_ns() - began) / 1000000;
    must_true(count >= 3 && count <= ms / TMSG_HEARTBEAT_LEAST_MS + 1);
    count = count_beats(&slow, 1, 1);
    ms = (tmsg_now_ns() - began) / 1000000;
    must_true(count >= 1 && count <= ms / 400);
    must_lie_there(silent.fds[1], "", 0);
    tmsg_keepalive_remove(&keepalive, &fast.pulses[0]);
    tmsg_keepalive_remove(&keepalive,
                          &fast.pulses[0]); /* it is in none any more */
    count_beats(&fast, 1, 1);
    must_eq(count_beats(&fast, 1, 200), 0);
    tmsg_keepalive_remove(&keepalive, &slow.pulses[0]);
    tmsg_keepalive_remove(&keepalive, &silent.pulses[0]);
    tmsg_keepalive_close(&keepalive);
    close_pair(&fast);
    close_pair(&slow);
    close_pair(&silent);
}

/* But for who does not come to it for long. */
Test(keepalive, a_beat_can_be_put_off)
{
    tmsg_keepalive_t keepalive;
    pair_t pair;
    uint64_t began, now, before;

    tmsg_keepalive_open(&keepalive, 0);
    open_pair(&pair);
    must(
        tmsg_keepalive_add(&keepalive, &pair.pulses[0], &pair.streams[0], 500));
    now = began = tmsg_now_ns();
    while (now < began + 1300000000) {
        unsigned count;

        before = now;
        tmsg_keepalive_put_off(&pair.pulses[0]);
        count = count_beats(&pair, 1, 1);
        now = tmsg_now_ns();
        must_true(count == 0 || now - before > 400000000);
    }
    must_true(count_beats(&pair, 1, 1500) > 0);
    tmsg_keepalive_remove(&keepalive, &pair.pulses[0]);
    tmsg_keepalive_close(&keepalive);
    close_pair(&pair);
}

/* Nobody reads these sockets but the thread: they must not fill. */
Test(keepalive, hears_both_ways_while_nobody_reads)
{
    tmsg_keepalive_t keepalive;
    pair_t pair;

    tmsg_keepalive_open(&keepalive, 200);
    open_pair(&pair);
    for (int i = 0; i < 2; i++) {
        must(tmsg_keepalive_add(&keepalive, &pair.pulses[i], &pair.streams[i],
                                BEAT_MS));
    }
    for (int round = 0; round < 3; round++) {
        uint64_t before = tmsg_now_ns();

        for (int i = 0; i < 2; i++) {
            while (pair.streams[i].heard_ns < before) {
                must_true(tmsg_now_ns() < before + 10000000000ULL);
                sleep_ms(5);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        tmsg_keepalive_remove(&keepalive, &pair.pulses[i]);
        tmsg_frame_listen(&pair.streams[i], TMSG_FRAME_HEARTBEAT);
        must_lie_there(pair.fds[i], "", 0);
    }
    tmsg_keepalive_close(&keepalive);
    close_pair(&pair);
}

/* As many as the limit of descriptors allows, up to 1,000. */
static int open_many(pair_t *pairs)
{
    struct rlimit limit;
    int most;

    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    most = (int)limit.rlim_cur / 2 - 20;
    most = most < MANY ? most : MANY;
    for (int i = 0; i < most; i++) {
        open_pair(&pairs[i]);
    }
    return most;
}

static double cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* At ten times the usual rate, with intervals that differ. */
Test(keepalive, a_thousand_connections_cost_little)
{
    pair_t *pairs = calloc(MANY, sizeof(*pairs));
    tmsg_keepalive_t keepalive;
    uint64_t began;
    double used;
    int count = open_many(pairs);

    tmsg_keepalive_open(&keepalive, 500);
    for (int i = 0; i < count; i++) {
        must(tmsg_keepalive_add(&keepalive, &pairs[i].pulses[0],
                                &pairs[i].streams[0], (uint32_t)(125 + i)));
        must(tmsg_keepalive_add(&keepalive, &pairs[i].pulses[1],
                                &pairs[i].streams[1], 125));
    }
    used = cpu_seconds();
    began = tmsg_now_ns();
    sleep_ms(2000);
    used = (cpu_seconds() - used) / ((double)(tmsg_now_ns() - began) / 1e9);
    printf("%d connections, both ends: %.1f %% of a core\n", count, used * 100);
    must_true(used < .5);
    for (int i = 0; i < count; i++) {
        must_true(pairs[i].streams[0].heard_ns > 0);
        for (int side = 0; side < 2; side++) {
            tmsg_keepalive_remove(&keepalive, &pairs[i].pulses[side]);
        }
        close_pair(&pairs[i]);
    }
    tmsg_keepalive_close(&keepalive);
    free(pairs);
}

/* The mask of the one thread that is not this one. */
static unsigned long long blocked_signals(void)
{
    DIR *folder = opendir("/proc/self/task");
    unsigned long long mask = 0;
    struct dirent *entry;

    must_true(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        char path[300], line[256];
        FILE *file;

        if (atoi(entry->d_name) == 0 || atoi(entry->d_name) == getpid()) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/task/%s/status",
                 entry->d_name);
        file = fopen(path, "r");
        must_true(file != NULL);
        while (fgets(line, sizeof(line), file) != NULL) {
            sscanf(line, "SigBlk: %llx", &mask);
        }
        fclose(file);
    }
    closedir(folder);
    return mask;
}

Test(keepalive, its_thread_takes_no_signals)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGUSR1,
                                  SIGALRM, SIGCHLD, SIGPIPE};
    unsigned long long mask;
    tmsg_keepalive_t keepalive;
    sigset_t ours;
    pair_t pair;

    tmsg_keepalive_open(&keepalive, 1000);
    open_pair(&pair);
    must(tmsg_keepalive_add(&keepalive, &pair.pulses[0], &pair.streams[0],
                            1000));
    mask = blocked_signals();
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        must_true(mask & 1ULL << (signals[i] - 1));
    }
    must_eq(pthread_sigmask(SIG_SETMASK, NULL, &ours), 0);
    must_true(!sigismember(&ours, SIGUSR1));
    tmsg_keepalive_remove(&keepalive, &pair.pulses[0]);
    tmsg_keepalive_close(&keepalive);
    close_pair(&pair);
}

Test(keepalive, a_fork_has_no_part_in_it)
{
    tmsg_keepalive_t keepalive;
    pair_t pair, another;
    int status;
    pid_t pid;

    tmsg_keepalive_open(&keepalive, 1000);
    open_pair(&pair);
    open_pair(&another);
    must(tmsg_keepalive_add(&keepalive, &pair.pulses[0], &pair.streams[0],
                            1000));
    pid = fork();
    if (pid == 0) {
        alarm(20);
        must_be(tmsg_keepalive_add(&keepalive, &another.pulses[0],
                                   &another.streams[0], 1000),
                TMSG_ERR_UNSUPPORTED);
        must_say(tmsg_error_message(), "forked");
        tmsg_keepalive_remove(&keepalive, &pair.pulses[0]);
        tmsg_keepalive_close(&keepalive);
        _exit(0);
    }
    must_eq(waitpid(pid, &status, 0), pid);
    must_eq(status, 0);
    tmsg_keepalive_remove(&keepalive, &pair.pulses[0]);
    tmsg_keepalive_close(&keepalive);
    close_pair(&pair);
    close_pair(&another);
}

Test(keepalive, is_late_when_it_missed_more_than_a_round)
{
    tmsg_keepalive_t keepalive;

    tmsg_keepalive_open(&keepalive, 400);
    must_true(!tmsg_keepalive_is_late(&keepalive)); /* there is nothing to do */
    keepalive.due_ns = tmsg_now_ns() + 1000000000;
    must_true(!tmsg_keepalive_is_late(&keepalive));
    keepalive.due_ns = tmsg_now_ns() - 101000000; /* a fourth, and a bit */
    must_true(tmsg_keepalive_is_late(&keepalive));
    tmsg_keepalive_close(&keepalive);
}

/* Until it has been stopped and let go again. */
static void stop_for(pid_t pid, int ms)
{
    int status;

    kill(pid, SIGSTOP);
    must_eq(waitpid(pid, &status, WUNTRACED), pid);
    must_true(WIFSTOPPED(status));
    sleep_ms(ms);
    kill(pid, SIGCONT);
}

/* What did not come while this process was stopped is nobody's silence. */
Test(keepalive, a_stop_of_its_own_counts_for_the_peers)
{
    tmsg_keepalive_t keepalive;
    pair_t pair;
    int status, there[2], back[2];
    char byte = 0;
    pid_t pid;

    must_true(pipe(there) == 0 && pipe(back) == 0);
    pid = fork();
    if (pid == 0) {
        uint64_t last;

        alarm(20);
        tmsg_keepalive_open(&keepalive, 400);
        open_pair(&pair);
        must(tmsg_keepalive_add(&keepalive, &pair.pulses[0], &pair.streams[0],
                                1000));
        last = pair.streams[0].heard_ns;
        must_eq(write(back[1], &byte, 1), 1);
        must_eq(read(there[0], &byte, 1), 1); /* it was stopped */
        /* Moves only by that: the other side is nobody's. */
        while (pair.streams[0].heard_ns == last) {
            sleep_ms(1);
        }
        tmsg_keepalive_remove(&keepalive, &pair.pulses[0]);
        tmsg_keepalive_close(&keepalive);
        _exit(0);
    }
    must_eq(read(back[0], &byte, 1), 1);
    stop_for(pid, 1000);
    must_eq(write(there[1], &byte, 1), 1);
    must_eq(waitpid(pid, &status, 0), pid);
    must_eq(status, 0);
}
