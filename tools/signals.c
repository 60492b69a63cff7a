/* SPDX-License-Identifier: BSD-3-Clause */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "measure/figures.h"

#define SAME_NS 100000000ULL /* a signal so soon after is the same */
#define GRACE_NS (SIGNALS_GRACE_MS * 1000000ULL)

static const int numbers[] = {SIGINT, SIGTERM};
static int fd = -1;
static atomic_uint_fast64_t came_ns; /* time of the first signal, or 0 */
static int hangup_fd = -1;
static atomic_bool hung_up;
static bool has_terminal; /* it had one when it took SIGHUP */
static bool outlives_it;  /* SIGHUP was ignored, as by nohup */

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

/* A process whose terminal has hung up has none any more. */
static bool finds_terminal(void)
{
    int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (terminal >= 0) {
        close(terminal);
    }
    return terminal >= 0 || errno != ENXIO;
}

static void note_hangup(int number)
{
    int before = errno;

    (void)number;
    if (!has_terminal || finds_terminal()) {
        atomic_store(&hung_up, true);
        eventfd_write(hangup_fd, 1);
    } else if (!outlives_it) {
        raise(SIGTERM);
    }
    errno = before;
}

int signals_take_hangup(void)
{
    struct sigaction action = {.sa_handler = note_hangup,
                               .sa_flags = SA_RESTART};
    struct sigaction before;

    hangup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hangup_fd < 0 || sigaction(SIGHUP, NULL, &before) != 0) {
        return -1;
    }
    has_terminal = finds_terminal();
    outlives_it = before.sa_handler == SIG_IGN;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGHUP, &action, NULL) == 0 ? hangup_fd : -1;
}

int signals_hangup_fd(void) { return hangup_fd; }

bool signals_hung_up(void)
{
    eventfd_t count;

    if (!atomic_load_explicit(&hung_up, memory_order_relaxed)) {
        return false;
    }
    eventfd_read(hangup_fd, &count);
    return atomic_exchange(&hung_up, false);
}

bool signals_came(void)
{
    return atomic_load_explicit(&came_ns, memory_order_relaxed) != 0;
}

bool signals_grace_is_over(void)
{
    uint_fast64_t since = atomic_load_explicit(&came_ns, memory_order_relaxed);

    return since != 0 && now_ns() - since >= GRACE_NS;
}
