/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/struck_processes.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/must.h"
#include "support/seeded_maps.h"

void pause_us(uint64_t us)
{
    const struct timespec wait = {(time_t)(us / 1000000),
                                  (long)(us % 1000000) * 1000};

    nanosleep(&wait, NULL);
}

uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

pid_t process_start(void (*run)(void *arg), void *arg)
{
    pid_t launcher = getpid(), pid;

    fflush(NULL);
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == launcher) {
            run(arg);
        }
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

void process_kill(pid_t *pid)
{
    kill(*pid, SIGKILL);
    must_eq(waitpid(*pid, NULL, 0), *pid);
    *pid = 0;
}

bool process_strike(pid_t *pid, uint64_t *dice, uint32_t most_ms)
{
    if (sample_random(dice) % 2 == 0) {
        kill(*pid, SIGSTOP);
        pause_us(sample_random(dice) % ((uint64_t)most_ms * 1000));
        kill(*pid, SIGCONT);
        return false;
    }
    process_kill(pid);
    return true;
}

void url_write(const char *path, const char *url)
{
    char made[256];
    FILE *file;

    must_true(snprintf(made, sizeof(made), "%s.new", path) < (int)sizeof(made));
    file = fopen(made, "w");
    must_true(file != NULL);
    fputs(url, file);
    fclose(file);
    must_eq(rename(made, path), 0);
}

bool url_read(const char *path, char *url, int bytes)
{
    FILE *file = fopen(path, "r");
    bool found = file != NULL && fgets(url, bytes, file) != NULL;

    if (file != NULL) {
        fclose(file);
    }
    return found;
}
