/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/held_resources.h"

#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "am/worker/worker.h"
#include "support/must.h"
#include "support/peers.h"

enum { BOUND_S = 10 };

/* Those that are mapped and shared, whatever has become of their names. */
static int count_segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4608], how[8];
    int count = 0;

    must_true(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += sscanf(line, "%*s %7s", how) == 1 && how[3] == 's';
    }
    fclose(maps);
    return count;
}

left_t left_look(size_t (*bytes)(void))
{
    return (left_t){.descriptors = count_descriptors(),
                    .threads = count_threads(),
                    .segments = count_segments(),
                    .bytes = bytes == NULL ? 0 : bytes()};
}

size_t left_pool_bytes(tmsg_worker_t *worker)
{
    tmsg_pool_t *pool = tmsg_budget_pool(worker->budget);
    size_t bytes = 0;

    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < pool->count; i++) {
        bytes += malloc_usable_size(pool->blocks[i].data);
    }
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

bool left_is_none(const left_t *before, const left_t *now)
{
    return now->descriptors <= before->descriptors &&
           now->threads <= before->threads &&
           now->segments <= before->segments && now->bytes <= before->bytes;
}

left_t left_await(const left_t *before, size_t (*bytes)(void),
                  void (*drive)(void *arg), void *arg)
{
    const time_t end = time(NULL) + BOUND_S;
    left_t now = left_look(bytes);

    while (!left_is_none(before, &now) && time(NULL) < end) {
        if (drive == NULL) {
            poll(NULL, 0, 1);
        } else {
            drive(arg);
        }
        now = left_look(bytes);
    }
    return now;
}

void left_text(const left_t *before, const left_t *now, const char *word,
               char *text, size_t bytes)
{
    snprintf(text, bytes, "%s %d %d %d %lld", word,
             now->descriptors - before->descriptors,
             now->threads - before->threads, now->segments - before->segments,
             (long long)now->bytes - (long long)before->bytes);
}

void left_must_be_none(const left_t *before, size_t (*bytes)(void),
                       void (*drive)(void *arg), void *arg, const char *what)
{
    left_t now = left_await(before, bytes, drive, arg);
    char text[128];

    if (!left_is_none(before, &now)) {
        left_text(before, &now, "left", text, sizeof(text));
        die("%s: %s, of descriptors, threads, segments and bytes", what, text);
    }
}
