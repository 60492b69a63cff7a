/* SPDX-License-Identifier: BSD-3-Clause */
#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

static sigset_t ending_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

int signals_open(void)
{
    sigset_t set = ending_signals();

    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool signals_came(int fd)
{
    struct signalfd_siginfo info;
    sigset_t set = ending_signals();

    if (read(fd, &info, sizeof(info)) != sizeof(info)) {
        return false;
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return true;
}
