/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs in two processes of their own: forked before UCX is touched, and new
 * for every run, so that nothing of one run is left for the next. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"

#define RUN_SECONDS_MAX 60 /* a run that hangs is killed */

static void write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);

        if (n < 0 && errno != EINTR) {
            bench_die("the other process is gone: %s", strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

static bool read_all(int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)data + done, bytes - done);

        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

void bench_tell(int socket, const void *data, size_t bytes)
{
    write_all(socket, &bytes, sizeof(bytes));
    write_all(socket, data, bytes);
}

size_t bench_hear(int socket, void *data, size_t most)
{
    size_t bytes;

    if (!read_all(socket, &bytes, sizeof(bytes)) || bytes > most ||
        !read_all(socket, data, bytes)) {
        bench_die("the other process is gone");
    }
    return bytes;
}

void bench_meet(int socket)
{
    char byte = 0;

    bench_tell(socket, &byte, 1);
    bench_hear(socket, &byte, 1);
}

static bench_side_t *open_side(const bench_run_t *run, bool dialling,
                               int socket)
{
    if (run->open != NULL) {
        return run->open(run, dialling, socket);
    }
    switch (run->way.layout) {
    case BENCH_MAP:
        return bench_map_open(run, dialling, socket);
    case BENCH_LINES:
        return bench_lines_open(run, dialling, socket);
    default:
        return bench_raw_open(run, socket);
    }
}

static void bind_side(const bench_run_t *run, bool first)
{
    if (run->place != BENCH_ANY_CORE) {
        bench_bind_core(first || run->place == BENCH_ONE_CORE ? 0 : 1);
    }
}

__attribute__((noreturn)) static void child(const bench_run_t *run, bool first,
                                            int socket, int result)
{
    bench_sample_t sample = {0};
    bench_side_t *side;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    alarm(RUN_SECONDS_MAX);
    bench_part(run, first);
    if (!run->has_threads || run->place == BENCH_ONE_CORE) {
        bind_side(run, first);
    }
    side = open_side(run, first, socket);
    if (run->has_threads) { /* made by now, and not to inherit that */
        bind_side(run, first);
    }
    bench_play(side, run, first, socket, &sample);
    side->close(side);
    if (first) {
        write_all(result, &sample, sizeof(sample));
    }
    _exit(0);
}

static pid_t start(const bench_run_t *run, bool first, const int sockets[2],
                   const int result[2])
{
    pid_t pid = fork();

    if (pid < 0) {
        bench_die("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        close(sockets[first ? 1 : 0]);
        close(result[0]);
        if (!first) {
            close(result[1]); /* ends with who has the result */
        }
        child(run, first, sockets[first ? 0 : 1], result[1]);
    }
    return pid;
}

static bool ended_well(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid) {
        return false;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM) {
        fprintf(stderr, "tensormsg-bench: a process died: %s\n",
                strsignal(WTERMSIG(status)));
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void bench_pair_start(const bench_run_t *run, bench_pair_t *pair_p)
{
    int sockets[2], result[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 ||
        pipe(result) != 0) {
        bench_die("a socket pair: %s", strerror(errno));
    }
    pair_p->pids[0] = start(run, true, sockets, result);
    pair_p->pids[1] = start(run, false, sockets, result);
    pair_p->result = result[0];
    close(sockets[0]);
    close(sockets[1]);
    close(result[1]);
}

bool bench_pair_end(bench_pair_t *pair, bench_sample_t *sample_p)
{
    bool ok = read_all(pair->result, sample_p, sizeof(*sample_p));

    close(pair->result);
    if (!ok) {
        kill(pair->pids[0], SIGTERM); /* whichever still spins */
        kill(pair->pids[1], SIGTERM);
    }
    ok = ended_well(pair->pids[0]) && ok;
    return ended_well(pair->pids[1]) && ok;
}

bool bench_pair_run(const bench_run_t *run, bench_sample_t *sample_p)
{
    bench_pair_t pair;

    if (run->way.layout == BENCH_GRPC) {
        return bench_grpc_run(run, sample_p);
    }
    if (run->metric == BENCH_SHARED) {
        return bench_shared_run(run, sample_p);
    }
    bench_pair_start(run, &pair);
    return bench_pair_end(&pair, sample_p);
}
