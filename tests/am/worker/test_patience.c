/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* How long waits poll before they sleep, from how those before them ended. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "am/worker/patience.h"

#define US 1000ULL
#define SPIN (50 * US)

Test(patience, waits_that_end_soon_are_polled_for)
{
    tmsg_patience_t patience = {.spin_ns = SPIN};

    cr_assert(eq(u64, tmsg_patience_ns(&patience), SPIN));
    tmsg_patience_slept(&patience, 190 * US);
    cr_assert(eq(u64, tmsg_patience_ns(&patience), 4 * SPIN));
    for (int i = 0; i < 1000; i++) {
        tmsg_patience_polled(&patience);
    }
    cr_assert(eq(u64, tmsg_patience_ns(&patience), 4 * SPIN));
}

Test(patience, waits_that_last_are_not)
{
    tmsg_patience_t patience = {.spin_ns = SPIN};

    for (int i = 0; i < 1000; i++) {
        tmsg_patience_slept(&patience, 1000 * US);
        cr_assert(eq(u64, tmsg_patience_ns(&patience), SPIN));
    }
}

Test(patience, what_is_in_vain_is_seldom_tried)
{
    tmsg_patience_t patience = {.spin_ns = SPIN};
    unsigned longer = 0;

    for (int i = 0; i < 1000; i++) {
        longer += tmsg_patience_ns(&patience) > SPIN;
        tmsg_patience_slept(&patience, 250 * US);
    }
    cr_assert(ge(uint, longer, 3));
    cr_assert(lt(uint, longer, 60));
}

Test(patience, quick_answers_do_not_excuse_long_polls)
{
    tmsg_patience_t patience = {.spin_ns = SPIN};
    unsigned longer = 0;

    for (int i = 0; i < 1000;
         i++) { /* an answer at once, then a frame's time */
        tmsg_patience_slept(&patience, i == 0 ? 190 * US : 10000 * US);
        tmsg_patience_polled(&patience);
        longer += tmsg_patience_ns(&patience) > SPIN;
    }
    cr_assert(lt(uint, longer, 4));
}

Test(patience, who_never_polls_never_does)
{
    tmsg_patience_t patience = {.spin_ns = 0};

    tmsg_patience_slept(&patience, 1);
    tmsg_patience_polled(&patience);
    cr_assert(eq(u64, tmsg_patience_ns(&patience), 0));
}
