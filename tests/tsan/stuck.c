/* SPDX-License-Identifier: BSD-3-Clause */
/* A callback that waits for other threads' waits on its own worker: one of them
 * drives it meanwhile. */
#include <unistd.h>

#include "support/blocked_callback.h"

int main(void)
{
    alarm(290);
    for (unsigned i = 0; i < 3; i++) {
        for (stuck_place_t place = 0; place < STUCK_PLACES; place++) {
            stuck_run(place, DRIVE_POLLING);
            stuck_run(place, DRIVE_THREAD);
        }
    }
    return 0;
}
