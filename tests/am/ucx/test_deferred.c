/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that are given up and do not hang up, because they compute, cost nobody
 * time: who destroys workers goes on at once. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "am/ucx/deferred.h"
#include "am/ucx/linger.h"
#include "support/few_descriptors.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum {
    PEERS = 12,
    EACH_MS = 250,                    /* a peer has this long to hang up */
    AT_ONCE_MS = PEERS * EACH_MS / 2, /* far less than one after another */
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[1024];
static unsigned lines;

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "do not hang up") != NULL) {
        pthread_mutex_lock(&lock);
        snprintf(heard, sizeof(heard), "%s", line);
        lines++;
        pthread_mutex_unlock(&lock);
    }
}

static unsigned count_lines(void)
{
    unsigned count;

    pthread_mutex_lock(&lock);
    count = lines;
    pthread_mutex_unlock(&lock);
    return count;
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 2000000};

    nanosleep(&time, NULL);
}

/* Connects to the URL that comes, with a worker for each, and says so. */
static void connect_all(pipes_t *pipes, side_t *sides, size_t count,
                        const side_options_t *options)
{
    char url[256];

    line_get(pipes->in, url, sizeof(url));
    for (size_t i = 0; i < count; i++) {
        side_open(&sides[i], options);
        side_connect(&sides[i], url);
    }
    line_put(pipes->out, "connected");
    line_get(pipes->in, url, sizeof(url));
}

static void close_all(side_t *sides, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        side_close(&sides[i]);
    }
}

/* What they keep comes back soon: nobody waits for it with a locked worker. */
static void open_without_descriptors(void)
{
    tmsg_listener_t *listener = NULL;
    side_t side;

    side_open(&side, NULL);
    spare_leave(4);
    if (tmsg_deferred_is_waiting()) { /* else this machine is too busy */
        must_be(tmsg_listener_create(side.worker, "blob://", NULL, &listener),
                TMSG_ERR_LIMIT_EXCEEDED);
        if (tmsg_deferred_is_waiting()) {
            must_say(tmsg_error_message(), "try again");
        }
    }
    spare_leave_all();
    side_close(&side);
}

/* Nobody drives the parent's worker meanwhile. */
static void give_up_many(pipes_t *pipes, void *arg)
{
    side_t sides[PEERS];
    uint64_t begun;

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    connect_all(pipes, sides, PEERS, NULL);
    begun = now_ms();
    close_all(sides, PEERS);
    must_true(now_ms() - begun < AT_ONCE_MS);
    must_eq(count_lines(), 0);
    open_without_descriptors();
    while (count_lines() == 0) {
        must_true(now_ms() - begun < PEERS_BOUND_MS);
        tmsg_deferred_sweep(); /* takes no line away */
        nap();
    }
    must_say(heard, "(12 connections)");
    must_say(heard, "tcp://127.0.0.1:");
    must_eq(count_lines(), 1);
    line_put(pipes->out, "told");
    line_get(pipes->in, heard, sizeof(heard));
    /* The parent has hung up: this is seen when the next is opened. */
    for (int before = count_descriptors(); count_descriptors() > before / 2;) {
        must_true(now_ms() - begun < PEERS_BOUND_MS);
        side_open(&sides[0], NULL);
        side_listen_link(&sides[0], LINK_SHM);
        side_close(&sides[0]);
        nap();
    }
}

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

/* The library's thread cannot be started. */
static void give_up_for_sweeps(pipes_t *pipes, void *arg)
{
    side_t sides[2];
    uint64_t begun;

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    connect_all(pipes, sides, 2, NULL);
    no_threads = true;
    close_all(sides, 2);
    begun = now_ms();
    while (count_lines() == 0) {
        must_true(now_ms() - begun < PEERS_BOUND_MS);
        tmsg_deferred_sweep();
        nap();
    }
}

static int told_in; /* what comes there is read once main() has returned */

static void hear_no_more(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)level;
    (void)line;
    must_true(!*(const bool *)arg);
}

static void check_told(void)
{
    char text[1024];
    ssize_t got = read(told_in, text, sizeof(text) - 1);

    text[got < 0 ? 0 : got] = '\0';
    if (strstr(text, "do not hang up") == NULL) {
        _exit(1);
    }
    _exit(0); /* the other handlers are the parent's */
}

/* The line comes when the program's function is not to be called any more. */
static void give_up_and_exit(pipes_t *pipes, void *arg)
{
    static bool exits;
    int ends[2];
    side_t side;

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear_no_more, &exits);
    must_eq(pipe2(ends, O_NONBLOCK), 0);
    told_in = ends[0];
    atexit(check_told); /* runs after the library's own handler */
    connect_all(pipes, &side, 1, NULL);
    close_all(&side, 1);
    exits = true;
    must_true(dup2(ends[1], STDERR_FILENO) >= 0);
    exit(2);
}

static void begin(child_t *child, side_t *side,
                  void (*body)(pipes_t *pipes, void *arg),
                  const side_options_t *options, size_t peers)
{
    child_start(child, body, NULL);
    side_open(side, options);
    side_listen_link(side, LINK_SHM);
    line_put(child->out, tmsg_listener_url(side->listener));
    child_await(side, child);
    must_eq(atomic_load(&side->accepts), peers);
}

static void hear_from(child_t *child, const char *wanted)
{
    char line[32];

    line_get(child->in, line, sizeof(line));
    must_true(strcmp(line, wanted) == 0);
}

Test(deferred, peers_that_compute_cost_no_time_and_one_line)
{
    child_t child;
    side_t side;

    begin(&child, &side, give_up_many, NULL, PEERS);
    hear_from(&child, "connected");
    line_put(child.out, "give up");
    hear_from(&child, "told");
    side_close(&side);
    line_put(child.out, "hung up");
    child_join(&child);
}

static void are_told(void (*body)(pipes_t *pipes, void *arg), size_t peers)
{
    child_t child;
    side_t side;

    begin(&child, &side, body, NULL, peers);
    hear_from(&child, "connected");
    line_put(child.out, "give up");
    child_join(&child);
    side_close(&side);
}

Test(deferred, sweeps_tell_where_there_is_no_thread)
{
    are_told(give_up_for_sweeps, 2);
}

Test(deferred, at_exit_the_program_is_not_told)
{
    are_told(give_up_and_exit, 1);
}

/* A child that listens. */
static int fork_one(void)
{
    side_t side;
    int status;
    pid_t pid = fork();

    must_true(pid >= 0);
    if (pid == 0) {
        must_eq(tmsg_linger_count_late(), 0);
        side_open(&side, NULL);
        side_listen_link(&side, LINK_SHM);
        side_close(&side);
        _exit(0);
    }
    must_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* The peers hang up only once all of them were given up. */
static void give_up_and_fork(pipes_t *pipes, void *arg)
{
    side_t sides[3];

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    connect_all(pipes, sides, 3, NULL);
    close_all(sides, 3);
    line_put(pipes->out, "given up");
    if (count_lines() == 0) { /* else this machine is too busy for that */
        must_eq(fork_one(), 0);
    }
}

static bool has_none(void *arg)
{
    return tmsg_endpoint_status(((side_t *)arg)->accepted) < 0;
}

Test(deferred, fork_waits_for_peers_that_hang_up)
{
    child_t child;
    side_t side;

    begin(&child, &side, give_up_and_fork, NULL, 3);
    hear_from(&child, "connected");
    line_put(child.out, "give up");
    hear_from(&child, "given up");
    side_await(&side, has_none, &side, "the end");
    child_join(&child);
    side_close(&side);
}

static bool are_late(void *arg)
{
    return tmsg_linger_count_late() == *(const unsigned *)arg;
}

/* One peer has had its time when its worker is destroyed, and the other one's
 * worker lives on. They hang up, and who opens UCX next finds out. */
static void give_up_late_and_fork(pipes_t *pipes, void *arg)
{
    side_t sides[2];
    tmsg_endpoint_t *endpoints[2];
    char line[256];

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    line_get(pipes->in, line, sizeof(line));
    for (unsigned i = 0; i < 2; i++) {
        side_open(&sides[i], NULL);
        endpoints[i] = side_connect(&sides[i], line);
    }
    line_put(pipes->out, "connected");
    line_get(pipes->in, line, sizeof(line));
    for (unsigned i = 0; i < 2; i++) {
        unsigned late = i + 1;

        tmsg_endpoint_destroy(endpoints[i]);
        side_await(&sides[i], are_late, &late, "a peer that stays");
    }
    side_close(&sides[0]);
    line_put(pipes->out, "given up");
    line_get(pipes->in, line, sizeof(line));
    must_eq(fork_one(), 0);
    side_close(&sides[1]);
}

Test(deferred, the_child_of_a_fork_does_not_close_what_is_its_parents)
{
    child_t child;
    side_t side;

    begin(&child, &side, give_up_late_and_fork, NULL, 2);
    hear_from(&child, "connected");
    line_put(child.out, "give up");
    hear_from(&child, "given up");
    side_close(&side);
    line_put(child.out, "hung up");
    child_join(&child);
}

static void give_up_without_thread(pipes_t *pipes, void *arg)
{
    const side_options_t options = {.flags = TMSG_CONTEXT_NO_THREAD};
    uint64_t begun;
    side_t side;
    int threads;

    (void)arg;
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    connect_all(pipes, &side, 1, &options);
    threads = count_threads();
    begun = now_ms();
    side_close(&side);
    must_true(now_ms() - begun >= EACH_MS - 10);
    must_true(count_threads() <= threads);
    must_eq(count_lines(), 1);
}

Test(deferred, without_a_thread_who_gives_up_waits)
{
    are_told(give_up_without_thread, 1);
}
