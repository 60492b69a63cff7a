/* SPDX-License-Identifier: BSD-3-Clause */
/* A cable between two hosts that delays, reorders, loses, and can be cut, where
 * the kernel has no netem: a TUN device on each, and this between them.
 *
 *   relay PID_A PID_B SEED SECONDS
 *
 * makes the device "cable" in the network namespace of each of the two
 * processes, says "ready", and obeys the lines of its standard input:
 *
 *   set DELAY_US REORDER_PPM LOSS_PPM
 *              Every packet waits DELAY_US, but for REORDER_PPM of a million,
 *              which go at once, past those that wait; LOSS_PPM are lost.
 *   cut MS     Nothing passes for so long.
 *   count      Says "passed N early N lost N cut N full N", packets so far:
 *              early are those that went past at least one other.
 *
 * Which packets, follows from SEED and their order. It ends with its standard
 * input, or after SECONDS, and holds WAITING packets a way at most. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "support/must.h"
#include "support/seeded_maps.h"

enum { WAITING = 4096, PACKET = 2048, MILLION = 1000000, AT_ONCE = 64 };

typedef struct {
    int64_t due_us;
    size_t bytes;
    uint8_t data[PACKET];
} packet_t;

/* What came in by `from` and waits to leave by `to`. */
typedef struct {
    int from, to;
    size_t head, count;
    packet_t ring[WAITING];
} way_t;

static struct {
    int64_t delay_us;
    uint64_t reorder_ppm, loss_ppm;
    int64_t cut_until_us;
    uint64_t random;
    unsigned long passed, early, lost, cut, full;
} relay;

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * MILLION + now.tv_nsec / 1000;
}

/* Errors are told on standard output, where the driver reads. */
static int forbidden(const char *what)
{
    printf("forbidden: %s: %s\n", what, strerror(errno));
    exit(77);
}

static int open_device(const char *pid)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI,
                            .ifr_name = "cable"};
    char path[64];
    int space, device;

    snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
    space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) {
        forbidden(path);
    }
    close(space);
    device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) {
        forbidden("/dev/net/tun");
    }
    if (ioctl(device, TUNSETIFF, &request) != 0) {
        forbidden("TUNSETIFF");
    }
    return device;
}

static bool chance(uint64_t ppm)
{
    return sample_random(&relay.random) % MILLION < ppm;
}

/* A device that is down takes nothing, as a cable would not. */
static void pass(const way_t *way, const uint8_t *data, size_t bytes)
{
    if (write(way->to, data, bytes) == (ssize_t)bytes) {
        relay.passed++;
    } else {
        relay.lost++;
    }
}

static void take_one(way_t *way, const uint8_t *data, size_t bytes, int64_t now)
{
    bool is_lost = chance(relay.loss_ppm), is_early = chance(relay.reorder_ppm);
    packet_t *packet;

    if (now < relay.cut_until_us) {
        relay.cut++;
    } else if (is_lost) {
        relay.lost++;
    } else if (way->count == 0 && relay.delay_us == 0) {
        pass(way, data, bytes);
    } else if (is_early) {
        relay.early += way->count > 0;
        pass(way, data, bytes);
    } else if (way->count == WAITING) {
        relay.full++;
    } else {
        packet = &way->ring[(way->head + way->count++) % WAITING];
        packet->due_us = now + relay.delay_us;
        packet->bytes = bytes;
        memcpy(packet->data, data, bytes);
    }
}

static void take(way_t *way)
{
    uint8_t data[PACKET];

    for (int i = 0; i < AT_ONCE; i++) {
        ssize_t bytes = read(way->from, data, sizeof(data));

        if (bytes <= 0) {
            return;
        }
        take_one(way, data, (size_t)bytes, now_us());
    }
}

static void give(way_t *way)
{
    int64_t now = now_us();

    while (way->count > 0 && way->ring[way->head].due_us <= now) {
        const packet_t *packet = &way->ring[way->head];

        if (now < relay.cut_until_us) {
            relay.cut++;
        } else {
            pass(way, packet->data, packet->bytes);
        }
        way->head = (way->head + 1) % WAITING;
        way->count--;
    }
}

static void obey(const char *line)
{
    long ms;

    if (sscanf(line, "set %ld %lu %lu", &relay.delay_us, &relay.reorder_ppm,
               &relay.loss_ppm) == 3) {
        printf("set\n");
    } else if (sscanf(line, "cut %ld", &ms) == 1) {
        relay.cut_until_us = now_us() + ms * 1000;
        printf("cut\n");
    } else if (strcmp(line, "count\n") == 0) {
        printf("passed %lu early %lu lost %lu cut %lu full %lu\n", relay.passed,
               relay.early, relay.lost, relay.cut, relay.full);
    } else {
        die("no such command: %s", line);
    }
}

/* False at the end of standard input. */
static bool listen_to_driver(void)
{
    static char line[256];
    static size_t used;
    char c;

    if (read(STDIN_FILENO, &c, 1) != 1) {
        return false;
    }
    must_true(used + 2 < sizeof(line));
    line[used++] = c;
    if (c == '\n') {
        line[used] = '\0';
        obey(line);
        used = 0;
    }
    return true;
}

static int64_t next_us(const way_t *ways, int64_t until)
{
    for (int i = 0; i < 2; i++) {
        if (ways[i].count > 0 && ways[i].ring[ways[i].head].due_us < until) {
            until = ways[i].ring[ways[i].head].due_us;
        }
    }
    return until;
}

static void sleep_until(struct pollfd *fds, nfds_t count, int64_t until)
{
    int64_t left = until - now_us();
    struct timespec time = {left / MILLION, left % MILLION * 1000};

    if (left <= 0) {
        time = (struct timespec){0, 0};
    }
    must_true(ppoll(fds, count, &time, NULL) >= 0);
}

static void run(way_t *ways, int64_t end)
{
    while (now_us() < end) {
        struct pollfd fds[] = {{ways[0].from, POLLIN, 0},
                               {ways[1].from, POLLIN, 0},
                               {STDIN_FILENO, POLLIN, 0}};

        sleep_until(fds, 3, next_us(ways, end));
        if (fds[2].revents != 0 && !listen_to_driver()) {
            return;
        }
        for (int i = 0; i < 2; i++) {
            give(&ways[i]);
            take(&ways[i]);
        }
    }
    die("the relay's time is over");
}

int main(int count, char **words)
{
    static way_t ways[2];
    int a, b;

    if (count != 5) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    a = open_device(words[1]);
    b = open_device(words[2]);
    relay.random = strtoull(words[3], NULL, 10);
    ways[0].from = ways[1].to = a;
    ways[1].from = ways[0].to = b;
    printf("ready\n");
    run(ways, now_us() + atol(words[4]) * MILLION);
    return 0;
}
