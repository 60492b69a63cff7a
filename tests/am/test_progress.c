/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever is called back does not keep others waiting. */
#include <criterion/criterion.h>

#include "support/stuck.h"

static void run_place(stuck_place_t place)
{
    stuck_run(place, DRIVE_POLLING);
    stuck_run(place, DRIVE_THREAD);
}

Test(progress, others_wait_on_while_the_handler_takes_its_time)
{
    run_place(STUCK_HANDLER);
}

Test(progress, others_wait_on_while_on_done_takes_its_time)
{
    run_place(STUCK_ON_DONE);
}

Test(progress, others_wait_on_while_on_closed_takes_its_time)
{
    run_place(STUCK_ON_CLOSED);
}

Test(progress, others_wait_on_while_on_accept_takes_its_time)
{
    run_place(STUCK_ON_ACCEPT);
}

Test(progress, others_wait_on_while_a_release_takes_its_time)
{
    run_place(STUCK_RELEASE);
}

Test(progress, others_wait_on_while_an_alloc_takes_its_time)
{
    run_place(STUCK_ALLOC);
}
