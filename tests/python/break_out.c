/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded into the command by LD_PRELOAD: at SIGUSR1 the thread that gets it
 * does what a sandbox must forbid, and says on standard error what came of it.
 * TMSG_LANDLOCK is the version of Landlock that the command sees; 0: none. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define LANDLOCK_CREATE SYS_landlock_create_ruleset

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    long (*next)(long, ...) = (__typeof__(next))dlsym(RTLD_NEXT, "syscall");
    const char *version = getenv("TMSG_LANDLOCK");
    long words[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++) {
        words[i] = va_arg(args, long);
    }
    va_end(args);
    if (number == LANDLOCK_CREATE && words[1] == 0 && version != NULL) {
        errno = ENOSYS;
        return *version == '0' ? -1 : strtol(version, NULL, 10);
    }
    return next(number, words[0], words[1], words[2], words[3], words[4],
                words[5]);
}

static char said[2048];
static size_t used;

static void say(const char *what, long result)
{
    used += (size_t)snprintf(said + used, sizeof(said) - used, " %s=%d", what,
                             result < 0 ? errno : 0);
}

static const char *in(const char *folder, const char *name)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s", getenv(folder), name);
    return path;
}

/* A child ends at once. */
static long try_fork(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    return pid;
}

static struct sockaddr_in address(void)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(getenv("TMSG_PORT"))),
        .sin_addr = {htonl(INADDR_LOOPBACK)},
    };
}

static long try_connect(bool fast)
{
    const struct sockaddr_in to = address();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd < 0 ? -1
           : fast
               ? sendto(fd, "", 1, MSG_FASTOPEN, (const void *)&to, sizeof(to))
               : connect(fd, (const void *)&to, sizeof(to));
}

static long try_bind(void)
{
    struct sockaddr_in here = address();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    here.sin_port = htons(1);
    return fd < 0 ? -1 : bind(fd, (const void *)&here, sizeof(here));
}

/* As that of a service that runs programs for whoever connects. */
static long try_unix(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof(to.sun_path), "%s", getenv("TMSG_UNIX"));
    return fd < 0 ? -1 : connect(fd, (const void *)&to, sizeof(to));
}

static long try_read_parent(void)
{
    char byte, *there = &byte;
    const struct iovec mine = {&byte, 1}, theirs = {there, 1};

    return process_vm_readv(getppid(), &mine, 1, &theirs, 1, 0);
}

static void break_out(int number)
{
    static char *const nothing[] = {NULL};
    char parent[64];

    (void)number;
    used = 0;
    snprintf(parent, sizeof(parent), "/proc/%d/environ", (int)getppid());
    say("inside", open(in("TMSG_INSIDE", "new"), O_CREAT | O_RDWR, 0600));
    say("create", open(in("TMSG_OUTSIDE", "new"), O_CREAT | O_RDWR, 0600));
    say("write", open(in("TMSG_OUTSIDE", "old"), O_WRONLY));
    say("read", open(in("TMSG_OUTSIDE", "old"), O_RDONLY));
    say("cut", truncate(in("TMSG_OUTSIDE", "old"), 0));
    say("mode", chmod(in("TMSG_OUTSIDE", "old"), 0777));
    say("unlink", unlink(in("TMSG_OUTSIDE", "old")));
    say("folder", mkdir(in("TMSG_OUTSIDE", "folder"), 0700));
    say("environ", open(parent, O_RDONLY));
    say("memory", try_read_parent());
    say("signal", kill(getppid(), 0));
    say("ptrace", ptrace(PTRACE_SEIZE, getppid(), 0, 0));
    say("fork", try_fork());
    say("namespace", unshare(CLONE_NEWNS));
    say("packets", socket(AF_PACKET, SOCK_RAW, 0));
    say("connect", try_connect(false));
    say("fastopen", try_connect(true));
    say("unix", try_unix());
    say("bind", try_bind());
    say("mptcp", socket(AF_INET, SOCK_STREAM, 262));
    say("unnamed", fexecve(memfd_create("program", 0), nothing, nothing));
    say("program", execve("/bin/true", nothing, nothing));
    dprintf(STDERR_FILENO, "tried:%s\n", said);
}

__attribute__((constructor)) static void be_ready(void)
{
    signal(SIGUSR1, break_out);
}
