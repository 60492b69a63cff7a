/* SPDX-License-Identifier: BSD-3-Clause */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>

#include "measure/figures.h"

#define SAME_NS 100000000ULL /* a signal so soon after is the same */
#define GRACE_NS (SIGNALS_GRACE_MS * 1000000ULL)

static const int numbers[] = {SIGINT, SIGTERM};
static int fd = -1;
static atomic_uint_fast64_t came_ns; /* time of the first signal, or 0 */

/* The handler may run in any thread. */
static void note_signal(int number)
{
    int before = errno;
    uint_fast64_t first = 0;

    if (atomic_compare_exchange_strong(&came_ns, &first, now_ns())) {
        eventfd_write(fd, 1);
    } else if (now_ns() - first >= SAME_NS) {
        /* The signal is blocked until the handler returns, and then ends the
         * process. */
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = before;
}

/* The handler interrupts system calls, so that a write that waits ends. */
int signals_open(bool also_ignored)
{
    struct sigaction action = {.sa_handler = note_signal};

    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sigaddset(&action.sa_mask, numbers[i]);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction before;

        if (sigaction(numbers[i], NULL, &before) == 0 &&
            (also_ignored || before.sa_handler != SIG_IGN)) {
            sigaction(numbers[i], &action, NULL);
        }
    }
    return fd;
}

int signals_fd(void) { return fd; }

bool signals_came(void)
{
    return atomic_load_explicit(&came_ns, memory_order_relaxed) != 0;
}

bool signals_grace_is_over(void)
{
    uint_fast64_t since = atomic_load_explicit(&came_ns, memory_order_relaxed);

    return since != 0 && now_ns() - since >= GRACE_NS;
}
