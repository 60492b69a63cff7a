/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX believes that all processes on a machine can share memory. Those in other
 * namespaces cannot: they are met by TCP, or told why they are not. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/unshared_peer.h"

typedef struct {
    int flags;       /* of unshare() */
    const char *why; /* they cannot share memory */
} space_t;

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    must_true(fd >= 0);
    must_eq(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* In a user namespace of its own it would be nobody, which is another user. */
static bool move(const space_t *space)
{
    char map[64];

    snprintf(map, sizeof(map), "%u %u 1", geteuid(), geteuid());
    if (unshare(space->flags) != 0) {
        return false;
    }
    if (space->flags & CLONE_NEWUSER) {
        write_file("/proc/self/uid_map", map);
    }
    return true;
}

static void visit(pipes_t *pipes, const space_t *space)
{
    tmsg_endpoint_t *endpoint;
    char url[256], *json;
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    if (space->flags & CLONE_NEWNET) {
        must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
        must_be(side_end_of(&side, endpoint), TMSG_ERR_INCOMPATIBLE);
        must_say(tmsg_endpoint_error(endpoint), space->why);
    } else {
        endpoint = side_connect(&side, url);
        must(tmsg_endpoint_describe(endpoint, &json));
        must_say(json, space->why);
        tmsg_string_free(json);
        stranger_send(&side, endpoint);
    }
    side_close(&side);
    line_put(pipes->out, "done");
}

/* Only a child is in the pid namespace that was made. */
static void visit_from_there(pipes_t *pipes, void *arg)
{
    int status;
    pid_t pid;

    if (!move(arg)) {
        line_put(pipes->out, "forbidden");
        return;
    }
    line_put(pipes->out, "moved");
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        visit(pipes, arg);
        _exit(0);
    }
    must_eq(waitpid(pid, &status, 0), pid);
    must_eq(status, 0);
}

static void meet(int flags, const char *why, const char *url)
{
    space_t space = {flags, why};
    child_t child;
    char line[16];
    side_t side;

    child_start(&child, visit_from_there, &space);
    line_get(child.in, line, sizeof(line));
    if (strcmp(line, "moved") != 0) {
        child_join(&child);
        cr_skip_test("this machine lets nobody make such a namespace");
    }
    side_open(&side, NULL);
    side_listen(&side, url);
    line_put(child.out, tmsg_listener_url(side.listener));
    if (flags & CLONE_NEWNET) {
        child_await(&side, &child);
        must_eq(side.accepts, 0);
    } else {
        stranger_take(&side);
    }
    child_join(&child);
    side_close(&side);
}

static void meet_by_tcp(int flags, const char *why)
{
    meet(flags, why, "tcp://127.0.0.1:0");
}

Test(namespaces, another_pid_namespace_is_met_by_tcp)
{
    meet_by_tcp(CLONE_NEWPID, "other pid namespace");
}

Test(namespaces, another_ipc_namespace_is_met_by_tcp)
{
    meet_by_tcp(CLONE_NEWIPC, "other ipc namespace");
}

Test(namespaces, another_mount_namespace_is_met_by_tcp)
{
    meet_by_tcp(CLONE_NEWNS, "other mount namespace");
}

Test(namespaces, another_user_namespace_is_met_by_tcp)
{
    meet_by_tcp(CLONE_NEWUSER, "other user namespace");
}

Test(namespaces, a_container_of_the_same_network_is_met_by_tcp)
{
    meet_by_tcp(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS |
                    CLONE_NEWUTS,
                "other user, pid, ipc and mount namespaces");
}

/* No network leads there, and a Unix socket needs shared memory. */
Test(namespaces, another_network_namespace_is_refused_by_name)
{
    char url[64];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("network"));
    meet(CLONE_NEWNET, "other network namespace", url);
}
