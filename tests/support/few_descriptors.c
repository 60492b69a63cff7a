/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/few_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/must.h"

#define OPEN_MOST 512 /* by a test, and what it takes here */

static struct rlimit before;
static int taken[OPEN_MOST];
static unsigned count;

/* One more than the highest that is open. */
static unsigned end_of_open(void)
{
    unsigned end = 0;

    for (int fd = 0; fd < OPEN_MOST; fd++) {
        end = fcntl(fd, F_GETFD) >= 0 ? (unsigned)fd + 1 : end;
    }
    return end;
}

void spare_leave(unsigned left)
{
    struct rlimit limit;
    int fd = 0;

    must_true(left <= SPARE_MOST);
    must_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = end_of_open() + left;
    must_true(limit.rlim_cur <= OPEN_MOST);
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (count = 0; fd >= 0; count++) {
        fd = taken[count] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    }
    count--;
    must_true(count >= left);
    while (left-- > 0) {
        close(taken[--count]);
    }
}

void spare_leave_all(void)
{
    while (count > 0) {
        close(taken[--count]);
    }
    must_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}
