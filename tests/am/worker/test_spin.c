/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* How long waits poll before they sleep, from how those before them ended. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "am/worker/spin.h"

#define US 1000ULL
#define SPIN (50 * US)

Test(spin, waits_that_end_soon_are_polled_for)
{
    tmsg_spin_t spin = {.spin_ns = SPIN};

    cr_assert(eq(u64, tmsg_spin_ns(&spin), SPIN));
    tmsg_spin_slept(&spin, 190 * US);
    cr_assert(eq(u64, tmsg_spin_ns(&spin), 4 * SPIN));
    for (int i = 0; i < 1000; i++) {
        tmsg_spin_polled(&spin);
    }
    cr_assert(eq(u64, tmsg_spin_ns(&spin), 4 * SPIN));
}

Test(spin, waits_that_last_are_not)
{
    tmsg_spin_t spin = {.spin_ns = SPIN};

    for (int i = 0; i < 1000; i++) {
        tmsg_spin_slept(&spin, 1000 * US);
        cr_assert(eq(u64, tmsg_spin_ns(&spin), SPIN));
    }
}

Test(spin, what_is_in_vain_is_seldom_tried)
{
    tmsg_spin_t spin = {.spin_ns = SPIN};
    unsigned longer = 0;

    for (int i = 0; i < 1000; i++) {
        longer += tmsg_spin_ns(&spin) > SPIN;
        tmsg_spin_slept(&spin, 250 * US);
    }
    cr_assert(ge(uint, longer, 3));
    cr_assert(lt(uint, longer, 60));
}

Test(spin, quick_answers_do_not_excuse_long_polls)
{
    tmsg_spin_t spin = {.spin_ns = SPIN};
    unsigned longer = 0;

    for (int i = 0; i < 1000;
         i++) { /* an answer at once, then a frame's time */
        tmsg_spin_slept(&spin, i == 0 ? 190 * US : 10000 * US);
        tmsg_spin_polled(&spin);
        longer += tmsg_spin_ns(&spin) > SPIN;
    }
    cr_assert(lt(uint, longer, 4));
}

Test(spin, who_never_polls_never_does)
{
    tmsg_spin_t spin = {.spin_ns = 0};

    tmsg_spin_slept(&spin, 1);
    tmsg_spin_polled(&spin);
    cr_assert(eq(u64, tmsg_spin_ns(&spin), 0));
}
