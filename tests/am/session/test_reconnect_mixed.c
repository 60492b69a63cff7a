/* SPDX-License-Identifier: BSD-3-Clause */
/* All that a session has to keep, at once; tests/soak has the many seeds. */
#include <criterion/criterion.h>

#include "support/mixed_load.h"
#include "support/test_scale.h"

static void run(link_t link, drive_t drive, tmsg_queue_policy_t policy,
                uint64_t seed)
{
    if (is_due(seed)) {
        mixed_run(link, drive, policy, seed);
    }
}

Test(reconnect, mixed_by_tcp)
{
    run(LINK_TCP, DRIVE_POLLING, TMSG_QUEUE_REJECT, 1);
    run(LINK_TCP, DRIVE_POLLING, TMSG_QUEUE_DROP_OLDEST, 2);
}
Test(reconnect, mixed_by_shared_memory)
{
    run(LINK_SHM, DRIVE_POLLING, TMSG_QUEUE_DROP_OLDEST, 3);
    run(LINK_SHM, DRIVE_POLLING, TMSG_QUEUE_REJECT, 4);
}
Test(reconnect, mixed_by_unix)
{
    run(LINK_UNIX, DRIVE_POLLING, TMSG_QUEUE_DROP_NEWEST, 5);
    run(LINK_UNIX, DRIVE_POLLING, TMSG_QUEUE_REJECT, 6);
}
Test(reconnect, mixed_by_descriptor)
{
    run(LINK_SHM, DRIVE_FD, TMSG_QUEUE_REJECT, 8);
}
Test(reconnect, mixed_by_thread)
{
    run(LINK_UNIX, DRIVE_THREAD, TMSG_QUEUE_BLOCK, 11);
}
