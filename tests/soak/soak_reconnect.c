/* SPDX-License-Identifier: BSD-3-Clause */
/* Mixed traffic over connections that break, a seed a slice, by every link, way
 * to drive and policy in turn; $TMSG_SOAK_SLICES of them (1,000). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/mixed_load.h"
#include "support/soak_progress.h"

#define SLICES 1000

static const struct {
    link_t link;
    drive_t drive;
    int32_t policy;
} turns[] = {
    {LINK_TCP, DRIVE_POLLING, TMSG_QUEUE_REJECT},
    {LINK_SHM, DRIVE_POLLING, TMSG_QUEUE_DROP_OLDEST},
    {LINK_UNIX, DRIVE_POLLING, TMSG_QUEUE_DROP_NEWEST},
    {LINK_TCP, DRIVE_FD, TMSG_QUEUE_DROP_OLDEST},
    {LINK_SHM, DRIVE_FD, TMSG_QUEUE_REJECT},
    {LINK_TCP, DRIVE_THREAD, TMSG_QUEUE_BLOCK},
    {LINK_UNIX, DRIVE_THREAD, TMSG_QUEUE_BLOCK},
};

int main(void)
{
    const char *text = getenv("TMSG_SOAK_SLICES");
    uint64_t slices = text == NULL ? SLICES : strtoull(text, NULL, 10);
    uint64_t first = soak_place("reconnect");

    for (uint64_t i = first; i < slices; i++) {
        size_t turn = i % (sizeof(turns) / sizeof(turns[0]));

        mixed_run(turns[turn].link, turns[turn].drive, turns[turn].policy,
                  soak_seed() + i);
        soak_keep("reconnect", i + 1);
    }
    soak_keep("reconnect", 0);
    printf("%" PRIu64 " runs since slice %" PRIu64 "\n", slices - first, first);
    return 0;
}
