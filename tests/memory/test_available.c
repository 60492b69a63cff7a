/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory is left, from made-up /proc and /sys. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/available.h"
#include "support/must.h"

#define MB ((uint64_t)1 << 20)

static char root[64];

static void put(const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(whole, 0700);
            *at = '/';
        }
    }
    file = fopen(whole, "w");
    must_true(file != NULL && fputs(text, file) >= 0);
    must_eq(fclose(file), 0);
}

static void begin(const char *cgroup)
{
    snprintf(root, sizeof(root), "/tmp/available.XXXXXX");
    must_true(mkdtemp(root) != NULL);
    put("/proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    900 kB\n"
                         "SwapTotal: 7 kB\nSwapFree:       124 kB\n");
    put("/proc/self/cgroup", cgroup);
}

static void is_left(uint64_t bytes, const char *what)
{
    tmsg_available_t available = tmsg_available_look(root);

    cr_expect(eq(u64, available.bytes, bytes));
    cr_expect(eq(str, (char *)available.what, (char *)what));
}

static void end(void)
{
    char command[80];

    snprintf(command, sizeof(command), "rm -r %s", root);
    must_eq(system(command), 0);
}

Test(available, is_what_the_machine_has)
{
    begin("0::/\n");
    is_left(MB, "the machine");
    end();
}

Test(available, is_at_most_all_memory_where_proc_is_hidden)
{
    uint64_t all =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    tmsg_available_t available = tmsg_available_look("/nowhere");

    cr_expect(ge(u64, available.bytes, all));
    cr_expect(ne(u64, available.bytes, UINT64_MAX));
}

Test(available, is_what_any_cgroup_above_has)
{
    begin("1:name=systemd:/else\n0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "7\n");
    put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    put("/sys/fs/cgroup/a/memory.current", "900000\n");
    is_left(100000, "the process's cgroup");
    put("/sys/fs/cgroup/a/memory.stat",
        "anon 5\ninactive_file 300\nactive_file 20\nworkingset_x 9\n");
    is_left(100320, "the process's cgroup");
    put("/sys/fs/cgroup/a/memory.current", "1000400\n");
    is_left(0, "the process's cgroup");
    end();
}

/* The container sees its own cgroup where others see the root. */
Test(available, is_what_the_cgroup_of_a_container_has)
{
    begin("9:memory:/docker/0123\n8:pids:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\n"
                                             "total_inactive_file 1000\n"
                                             "total_active_file 200\n");
    is_left(101200, "the process's cgroup");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    is_left(MB, "the machine");
    end();
}

Test(available, knows_a_machine_that_promises_no_more_than_it_has)
{
    begin("");
    must_true(!tmsg_available_is_strict(root));
    put("/proc/sys/vm/overcommit_memory", "1\n");
    must_true(!tmsg_available_is_strict(root));
    put("/proc/sys/vm/overcommit_memory", "2\n");
    must_true(tmsg_available_is_strict(root));
    end();
}

Test(available, is_found_on_this_machine)
{
    tmsg_available_t available = tmsg_available_look("");

    cr_expect(ge(u64, available.bytes, MB));
    cr_expect(ne(u64, available.bytes, UINT64_MAX));
}
