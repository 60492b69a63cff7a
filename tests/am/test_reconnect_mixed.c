/* SPDX-License-Identifier: BSD-3-Clause */
/* All that a session has to keep, at once; tests/soak has the many seeds. */
#include <criterion/criterion.h>

#include "support/mixed.h"

Test(reconnect, mixed_by_tcp)
{
    mixed_run(LINK_TCP, DRIVE_POLLING, TMSG_QUEUE_REJECT, 1);
    mixed_run(LINK_TCP, DRIVE_POLLING, TMSG_QUEUE_DROP_OLDEST, 2);
}
Test(reconnect, mixed_by_shared_memory)
{
    mixed_run(LINK_SHM, DRIVE_POLLING, TMSG_QUEUE_DROP_OLDEST, 3);
    mixed_run(LINK_SHM, DRIVE_POLLING, TMSG_QUEUE_REJECT, 4);
}
Test(reconnect, mixed_by_unix)
{
    mixed_run(LINK_UNIX, DRIVE_POLLING, TMSG_QUEUE_DROP_NEWEST, 5);
    mixed_run(LINK_UNIX, DRIVE_POLLING, TMSG_QUEUE_REJECT, 6);
}
Test(reconnect, mixed_by_descriptor)
{
    mixed_run(LINK_SHM, DRIVE_FD, TMSG_QUEUE_REJECT, 8);
}
Test(reconnect, mixed_by_thread)
{
    mixed_run(LINK_UNIX, DRIVE_THREAD, TMSG_QUEUE_BLOCK, 10);
}
