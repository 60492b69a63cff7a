/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A process whose workers have nothing to do does not run. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define SETTLE_S 3 /* what is under way ends, and the last timers of it */
#define IDLE_S 10
#define MOST_THREADS 64

/* How often each thread of this process has gone to sleep. */
typedef struct {
    char names[MOST_THREADS][16];
    long switches[MOST_THREADS];
    unsigned count;
} threads_t;

static long read_switches(const char *thread)
{
    char path[64], line[128];
    long switches = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%.15s/status", thread);
    file = fopen(path, "r");
    must_true(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "voluntary_ctxt_switches: %ld", &switches);
    }
    fclose(file);
    must_true(switches >= 0);
    return switches;
}

/* But the thread that looks. */
static void look(threads_t *threads)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    char own[16];

    must_true(folder != NULL);
    threads->count = 0;
    snprintf(own, sizeof(own), "%d", (int)gettid());
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, own) == 0) {
            continue;
        }
        must_true(threads->count < MOST_THREADS);
        snprintf(threads->names[threads->count], 16, "%.15s", entry->d_name);
        threads->switches[threads->count++] = read_switches(entry->d_name);
    }
    closedir(folder);
}

static void stay_idle(unsigned threads_least)
{
    threads_t before, after;

    sleep(SETTLE_S);
    look(&before);
    sleep(IDLE_S);
    look(&after);
    must_true(before.count >= threads_least);
    must_eq(after.count, before.count);
    for (unsigned i = 0; i < before.count; i++) {
        cr_expect(eq(str, after.names[i], before.names[i]));
        cr_expect(eq(long, after.switches[i], before.switches[i]),
                  "thread %s woke %ld times", before.names[i],
                  after.switches[i] - before.switches[i]);
    }
}

Test(idle, who_listens_does_not_wake)
{
    const side_options_t thread = {.drive = DRIVE_THREAD};
    side_t side;

    side_open(&side, &thread);
    side_listen_link(&side, LINK_TCP);
    stay_idle(1);
    side_close(&side);
}

/* Nor do two that have exchanged messages, and have no signs of life to
 * give. */
static void exchange(link_t link)
{
    const side_options_t quiet = {.quiet = true};
    pair_t pair;

    pair_open(&pair, link, DRIVE_THREAD, &quiet, &quiet);
    for (uint64_t i = 0; i < 100; i++) {
        const sample_t sample = sample_plain(i, 100);
        tmsg_map_t *map = sample_make(&sample);

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    stay_idle(2);
    pair_close(&pair);
}

Test(idle, who_has_exchanged_messages_does_not_wake_shm) { exchange(LINK_SHM); }
Test(idle, who_has_exchanged_messages_does_not_wake_tcp) { exchange(LINK_TCP); }
