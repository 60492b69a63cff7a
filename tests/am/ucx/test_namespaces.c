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

#include "am/endpoint/endpoint.h"
#include "support/seeded_maps.h"
#include "support/unshared_peer.h"

typedef struct {
    int flags;       /* of unshare() */
    const char *why; /* they cannot share memory */
    bool by_ucx;     /* the visitor insists on UCX, and is refused */
    bool share;      /* by a Unix socket, which passes descriptors */
} space_t;

static const tmsg_endpoint_params_t by_ucx = {
    .field_mask = TMSG_ENDPOINT_PARAM_CARRIER, .carrier = TMSG_CARRIER_UCX};

enum { SMALL = 100, LARGE = 3 << 20, SMALLS = 40, LARGES = 3 };

static void send_acked(side_t *side, tmsg_endpoint_t *endpoint, size_t bytes,
                       unsigned flags)
{
    tmsg_request_t *sent =
        send_map(endpoint, sample_bytes(1, bytes), TMSG_SEND_ACKED | flags);

    must(side_finish(side, sent));
}

/* The memory of fast boxes, rings and loans goes by descriptors, so that other
 * namespaces do not keep them apart. */
static void share_send(side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_request_t *closed;
    char *json;

    must_true(endpoint_uses(endpoint, "stream/unix"));
    for (int i = 0; i < SMALLS; i++) {
        send_acked(side, endpoint, SMALL, 0);
    }
    for (int i = 0; i < LARGES; i++) {
        send_acked(side, endpoint, LARGE, 0);
    }
    send_acked(side, endpoint, LARGE, TMSG_SEND_LEND);
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, "\"fastbox\":\t\"stands\"");
    must_say(json, "\"carrier\":\t\"stream\"");
    must_say(json, "\"sent_by_loan\":\t1");
    tmsg_string_free(json);
    must_true(endpoint->stats.sent_by_fastbox > 0);
    must_true(endpoint->stats.sent_by_bulk > 0);
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(side, closed));
}

static void share_take(side_t *side)
{
    for (int i = 0; i < SMALLS + LARGES + 1; i++) {
        tmsg_message_t *message = side_take(side);

        sample_check_bytes(1, i < SMALLS ? SMALL : LARGE,
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must_be(side_end_of(side, side->accepted), TMSG_ERR_CLOSED);
}

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
    if (space->by_ucx) {
        must(tmsg_endpoint_connect(side.worker, url, &by_ucx, &endpoint));
        must_be(side_end_of(&side, endpoint), TMSG_ERR_INCOMPATIBLE);
        must_say(tmsg_endpoint_error(endpoint), space->why);
    } else {
        endpoint = side_connect(&side, url);
        must(tmsg_endpoint_describe(endpoint, &json));
        must_say(json, space->why);
        tmsg_string_free(json);
        if (space->share) {
            share_send(&side, endpoint);
        } else {
            stranger_send(&side, endpoint);
        }
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

static void meet(space_t space, const char *url)
{
    const side_options_t borrows = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    child_t child;
    char line[16];
    side_t side;

    child_start(&child, visit_from_there, &space);
    line_get(child.in, line, sizeof(line));
    if (strcmp(line, "moved") != 0) {
        child_join(&child);
        cr_skip_test("this machine lets nobody make such a namespace");
    }
    side_open(&side, space.share ? &borrows : NULL);
    side_listen(&side, url);
    line_put(child.out, tmsg_listener_url(side.listener));
    if (space.by_ucx) {
        child_await(&side, &child);
        must_eq(side.accepts, 0);
    } else if (space.share) {
        share_take(&side);
    } else {
        stranger_take(&side);
    }
    child_join(&child);
    side_close(&side);
}

static void meet_by_tcp(int flags, const char *why)
{
    const space_t space = {.flags = flags, .why = why};

    meet(space, "tcp://127.0.0.1:0");
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

static void meet_by_unix(space_t space)
{
    char url[64];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("apart"));
    meet(space, url);
}

/* No network leads there, and UCX by a Unix socket needs shared memory. */
Test(namespaces, who_insists_on_ucx_is_refused_by_name)
{
    const space_t space = {.flags = CLONE_NEWNET,
                           .why = "other network namespace",
                           .by_ucx = true};

    meet_by_unix(space);
}

Test(namespaces, a_container_is_met_by_a_unix_socket)
{
    const space_t space = {.flags = CLONE_NEWUSER | CLONE_NEWPID |
                                    CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWNET,
                           .why = "a stream carries",
                           .share = true};

    meet_by_unix(space);
}
