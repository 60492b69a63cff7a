/* SPDX-License-Identifier: BSD-3-Clause */
/* Who forks while UCX is in use has children that use it, too. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/ucx/fork_guard.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

/* What belongs to the parent is refused. */
static void expect_refused(const side_t *of_parent)
{
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;

    must_be(tmsg_listener_create(of_parent->worker, "tcp://127.0.0.1:0", NULL,
                                 &listener),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "forked this one");
    must_be(tmsg_endpoint_connect(of_parent->worker, "tcp://127.0.0.1:1", NULL,
                                  &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "forked this one");
}

typedef struct {
    const side_t *side;
    link_t link;
} of_parent_t;

/* Says where it listens, and takes a message. The first one of a peer is not
 * heard without a thread in the place of UCX's. */
static void be_receiver(pipes_t *pipes, void *arg)
{
    const of_parent_t *of_parent = arg;
    side_t side;

    if (of_parent->side != NULL) {
        expect_refused(of_parent->side);
    }
    side_open(&side, NULL);
    side_listen_link(&side, of_parent->link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    tmsg_message_destroy(side_take(&side));
    side_close(&side);
}

/* Forks such a one of its own, which sends nothing to the parent. */
static void be_parent(pipes_t *pipes, void *arg)
{
    of_parent_t of_parent = *(of_parent_t *)arg;
    char url[256];
    child_t child;
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, of_parent.link);
    of_parent.side = &side;
    child_start(&child, be_receiver, &of_parent);
    line_get(child.in, url, sizeof(url));
    line_put(pipes->out, url);
    child_join(&child);
    side_close(&side);
}

/* Sends to a child. */
static void send_to(child_t *child)
{
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    line_get(child->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(side_finish(&side, send_map(endpoint, sample_bytes(1, 10), 0)));
    child_join(child);
    side_close(&side);
}

static void fork_while_connected(link_t link)
{
    of_parent_t of_parent = {.link = link};
    tmsg_request_t *sent;
    child_t child;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    of_parent.side = &pair.a;
    child_start(&child, be_receiver, &of_parent);
    send_to(&child);
    sent = send_map(pair.to_a, sample_bytes(1, 10), 0);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(forked, a_child_of_one_that_is_connected_listens_tcp)
{
    fork_while_connected(LINK_TCP);
}

Test(forked, a_child_of_one_that_is_connected_listens_unix)
{
    fork_while_connected(LINK_UNIX);
}

Test(forked, a_child_of_a_child_listens)
{
    of_parent_t of_parent = {.link = LINK_UNIX};
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    child_start(&child, be_parent, &of_parent);
    send_to(&child);
    pair_close(&pair);
}

Test(forked, a_child_of_one_that_has_closed_listens)
{
    of_parent_t of_parent = {.link = LINK_UNIX};
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair_close(&pair);
    child_start(&child, be_receiver, &of_parent);
    send_to(&child);
}

static void be_refused(pipes_t *pipes, void *arg)
{
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    (void)pipes;
    must(tmsg_context_create(NULL, &context));
    must_be(tmsg_worker_create(context, NULL, &worker), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), arg);
    must_say(tmsg_error_message(), "multiprocessing_context=\"spawn\"");
    tmsg_context_destroy(context);
}

/* fork() waits a second for the end of that. */
Test(forked, one_that_was_opening_has_children_that_are_told_what_to_do)
{
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    tmsg_fork_guard_begin();
    child_start(&child, be_refused, "opening or closing a connection");
    tmsg_fork_guard_end();
    child_join(&child);
    pair_close(&pair);
}

/* Nothing counts as open yet. */
Test(forked, one_that_was_opening_the_first_has_children_that_are_told)
{
    child_t child;

    tmsg_fork_guard_begin();
    child_start(&child, be_refused, "opening or closing a connection");
    tmsg_fork_guard_end();
    child_join(&child);
}

static pthread_t second;
static atomic_bool second_is_late;

static void *fork_once(void *arg)
{
    pid_t pid = fork();

    must_true(pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    must_eq(waitpid(pid, NULL, 0), pid);
    return arg;
}

/* Comes after the library's own handler: the first fork() lasts until the
 * second has waited for it in vain. */
static void prolong_first(void)
{
    static atomic_bool first_is_here;

    if (atomic_exchange(&first_is_here, true)) {
        atomic_store(&second_is_late, true);
        return;
    }
    must_eq(pthread_create(&second, NULL, fork_once, NULL), 0);
    for (int i = 0; i < PEERS_BOUND_MS && !atomic_load(&second_is_late); i++) {
        poll(NULL, 0, 1);
    }
}

Test(forked, two_forks_at_once_leave_nothing_locked, .timeout = 60)
{
    pthread_t first;

    must_eq(pthread_atfork(prolong_first, NULL, NULL), 0);
    tmsg_fork_guard_begin();
    tmsg_fork_guard_end();
    must_eq(pthread_create(&first, NULL, fork_once, NULL), 0);
    must_eq(pthread_join(first, NULL), 0);
    must_eq(pthread_join(second, NULL), 0);
    must_true(atomic_load(&second_is_late));
    tmsg_fork_guard_begin();
    tmsg_fork_guard_end();
}

/* As daemons do. */
static void close_all(pipes_t *pipes, void *arg)
{
    tmsg_listener_t *listener;
    side_t side;

    (void)arg;
    (void)pipes;
    for (int fd = 3; fd < 1024; fd++) {
        close(fd);
    }
    side_open(&side, NULL);
    must_be(
        tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL, &listener),
        TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "has closed descriptors");
    side_close(&side);
}

Test(forked, one_that_closes_descriptors_of_the_parent_is_told)
{
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    child_start(&child, close_all, NULL);
    child_join(&child);
    pair_close(&pair);
}

enum {
    NUMBERS = 256,  /* more than the descriptors of such a process */
    SET = 0xabcdef, /* what the sets of the application say of an event */
};

static bool is_set(int fd)
{
    char path[32], name[32] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof(name) - 1) > 0 &&
           strstr(name, "[eventpoll]") != NULL;
}

/* Makes own descriptors of the same numbers: a set of each set, and of each
 * other one something that is ready, and in all of the sets. Returns how many
 * those are. */
static int replace_all(bool sets[NUMBERS])
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = SET};
    int count = 0;

    for (int fd = 3; fd < NUMBERS; fd++) {
        sets[fd] = is_set(fd);
    }
    for (int fd = 3; fd < NUMBERS; fd++) {
        close(fd);
        must_eq(sets[fd] ? epoll_create1(0) : eventfd(1, 0), fd);
    }
    for (int fd = 3; fd < NUMBERS; fd++) {
        count += !sets[fd];
        for (int set = 3; set < NUMBERS && !sets[fd]; set++) {
            must_true(!sets[set] ||
                      epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        }
    }
    return count;
}

static void expect_own(const bool sets[NUMBERS], int count)
{
    struct epoll_event events[NUMBERS];
    uint64_t value;

    for (int set = 3; set < NUMBERS; set++) {
        if (sets[set]) {
            must_eq(epoll_wait(set, events, NUMBERS, 0), count);
            for (int i = 0; i < count; i++) {
                must_eq(events[i].data.u64, SET);
            }
        }
    }
    for (int fd = 3; fd < NUMBERS; fd++) {
        must_true(sets[fd] || read(fd, &value, sizeof(value)) > 0);
    }
}

/* Forks a worker that makes no connection, once its own descriptors have the
 * numbers of those that it closed. */
static void close_all_and_fork(pipes_t *pipes, void *arg)
{
    bool sets[NUMBERS];
    int status, count = replace_all(sets);
    pid_t pid = fork();

    (void)arg;
    (void)pipes;
    must_true(pid >= 0);
    if (pid == 0) {
        must_true(count < NUMBERS - 3); /* there was a set */
        expect_own(sets, count);
        _exit(0);
    }
    must_eq(waitpid(pid, &status, 0), pid);
    must_eq(status, 0);
}

Test(forked, descriptors_of_one_that_has_closed_all_are_its_own)
{
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    child_start(&child, close_all_and_fork, NULL);
    child_join(&child);
    pair_close(&pair);
}
