/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX takes signal handlers when it is loaded: a child that loads the library
 * has those of one that does not. This program is linked to neither. */
#include <assert.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SIGNALS = 32,
    SA_RESTORER = 0x04000000 /* the kernel's: glibc adds it to what it sets */
};

typedef void (*handler_t)(int number);

static void own_handler(int number) { _exit(number); }

static void in_child(const char *library, handler_t handler, int fd)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction actions[SIGNALS] = {0};

    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
        struct sigaction action = {.sa_handler = handler};

        assert(sigaction(crashes[i], &action, NULL) == 0);
    }
    if (library != NULL && dlopen(library, RTLD_NOW) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    for (int i = 1; i < SIGNALS; i++) {
        assert(sigaction(i, NULL, &actions[i]) == 0);
    }
    assert(write(fd, actions, sizeof(actions)) == sizeof(actions));
    _exit(0);
}

/* The handlers of a child, which loads `library` unless that is NULL. */
static void look(const char *library, handler_t handler,
                 struct sigaction actions[SIGNALS])
{
    int ends[2], status;
    pid_t pid;

    assert(pipe(ends) == 0);
    pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        in_child(library, handler, ends[1]);
    }
    assert(waitpid(pid, &status, 0) == pid && status == 0);
    assert(read(ends[0], actions, SIGNALS * sizeof(*actions)) ==
           SIGNALS * sizeof(*actions));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    static const handler_t handlers[] = {SIG_DFL, SIG_IGN, own_handler};
    const char *library = getenv("LIBTENSORMSG");
    struct sigaction without[SIGNALS], with[SIGNALS];
    int changed = 0;

    assert(library != NULL);
    for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        look(NULL, handlers[i], without);
        look(library, handlers[i], with);
        for (int signal = 1; signal < SIGNALS; signal++) {
            if (with[signal].sa_handler != without[signal].sa_handler ||
                ((with[signal].sa_flags ^ without[signal].sa_flags) &
                 ~SA_RESTORER) != 0) {
                fprintf(stderr, "SIG%s is not what it was\n",
                        sigabbrev_np(signal));
                changed++;
            }
        }
    }
    return changed == 0 ? 0 : 1;
}
