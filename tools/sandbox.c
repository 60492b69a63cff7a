/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies to UCX can write to the process
 * (docs/understand/security.md). In a sandbox it gains little by that: a folder
 * to write into, and nothing to run.
 *
 * UCX has threads by the time that a listener stands. Landlock is of a thread,
 * so each is made to restrict itself, by a signal. */
#include "sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#ifndef TMSG_HAS_SECCOMP

bool sandbox_prepare(const char *url)
{
    (void)url;
    complain("--sandbox: this build has none (libseccomp was missing)");
    return false;
}

bool sandbox_enter(const char *const dirs[SANDBOX_DIRS])
{
    (void)dirs;
    return false;
}

#else

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker.h"
#include "measure/figures.h"

#define THREADS_NS 2000000000ULL /* for a thread to restrict itself */
#define THREADS_MOST 256
#define ROUNDS_MOST 16
#define PORTS_MOST 65535

/* What headers of Linux 6.1 do not have yet. */
#define FS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define NET_BIND_TCP 1ULL         /* ABI 4 */
#define NET_CONNECT_TCP 2ULL
#define SCOPE_ABSTRACT_UNIX 1ULL /* ABI 6 */
#define SCOPE_SIGNAL 2ULL
#define RULE_NET_PORT 2

typedef struct {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
} ruleset_attr_t;

typedef struct {
    uint64_t allowed_access;
    uint64_t port;
} port_attr_t;

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define OF_A_FILE                                                              \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE)
#define KEEPS                                                                  \
    (READS | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE |                     \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE |            \
     LANDLOCK_ACCESS_FS_REFER)

/* What the libraries read: UCX when it opens once more, the C library when it
 * looks up hosts, users and time. What is not there is left out. */
static const char *const read_paths[] = {
    "/etc/ld.so.cache",
    "/etc/ucx",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/localtime",
    "/etc/libnl",
    "/etc/libibverbs.d",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/proc/self",
    "/proc/sys/kernel",
    "/proc/sys/net",
    "/proc/sys/vm",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/class",
    "/sys/devices",
    "/sys/bus",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/dev/null",
    "/dev/urandom",
};

/* Calls that a command which listens does not make, and that lead out of a
 * sandbox or to the kernel's more dangerous parts. Landlock knows nothing of
 * modes, owners and times of files, nor of who connects to a Unix socket. */
static const char *const denied[] = {
    "execve",
    "execveat",
    "fork",
    "vfork",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "pidfd_open",
    "pidfd_getfd",
    "mount",
    "umount",
    "umount2",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "add_key",
    "request_key",
    "keyctl",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "quotactl",
    "quotactl_fd",
    "acct",
    "swapon",
    "swapoff",
    "reboot",
    "syslog",
    "vhangup",
    "personality",
    "iopl",
    "ioperm",
    "modify_ldt",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    "nfsservctl",
    "lookup_dcookie",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "capset",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "connect",
    "mq_open",
    "mq_unlink",
};
static const char *const shared_calls[] = {"shmget", "shmat", "shmctl"};

static const struct {
    int abi; /* from which on Landlock forbids it */
    const char *what;
} later[] = {
    {3, "cut files that it is not allowed to write"},
    {4, "bind TCP ports of its choice"},
    {5, "control devices that it may open"},
    {6, "signal other processes and reach their abstract sockets"},
};

static int abi;
static bool shares; /* UCX is to have shared memory */
static char memory_dir[] = "/dev/shm/tensormsg-XXXXXX";

static int landlock_abi(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, (size_t)0,
                        LANDLOCK_CREATE_RULESET_VERSION);
}

static void say_what_is_missing(void)
{
    char text[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        if (abi < later[i].abi && used < sizeof(text)) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                     used > 0 ? "; " : "", later[i].what);
        }
    }
    if (used > 0) {
        complain("--sandbox: this kernel has version %d of Landlock, with "
                 "which the process may still %s",
                 abi, text);
    }
}

/* Over unix:// UCX has shared memory alone. It makes its own in a folder of
 * this process, and has that of its peers opened by a broker. */
static bool prepare_memory(const char *url)
{
    const char *path = url + strlen("unix://");
    const char *folder = NULL;

    if (getenv("UCX_POSIX_DIR") == NULL) {
        folder = mkdtemp(memory_dir);
        if (folder == NULL) {
            complain("--sandbox: %s: %s", memory_dir, strerror(errno));
            return false;
        }
        setenv("UCX_POSIX_DIR", folder, 1);
    }
    if (!broker_start(folder, path)) {
        complain("--sandbox: no broker: %s", strerror(errno));
        rmdir(folder);
        return false;
    }
    return true;
}

/* Over TCP UCX is to use no shared memory: what this side does not offer no
 * peer uses. */
static bool prepare_transports(const char *url)
{
    shares = strncmp(url, "unix://", 7) == 0;
    if (shares) {
        return prepare_memory(url);
    }
    setenv("UCX_TLS", "tcp,self", 0);
    return true;
}

bool sandbox_prepare(const char *url)
{
    abi = landlock_abi();
    if (abi < 1) {
        complain("--sandbox: this kernel has no Landlock, or it is switched "
                 "off (lsm=): %s",
                 strerror(errno));
        return false;
    }
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
        complain("--sandbox: this kernel has no seccomp: %s", strerror(errno));
        return false;
    }
    say_what_is_missing();
    return prepare_transports(url);
}

static uint64_t handled_fs(void)
{
    uint64_t all =
        LANDLOCK_ACCESS_FS_EXECUTE | READS | LANDLOCK_ACCESS_FS_WRITE_FILE |
        LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
        LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
        LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
        LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
        LANDLOCK_ACCESS_FS_MAKE_SYM;

    all |= abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
    all |= abi >= 3 ? FS_TRUNCATE : 0;
    return all | (abi >= 5 ? FS_IOCTL_DEV : 0);
}

/* A path that is not there needs no rule. */
static bool allow(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {0};
    struct stat about;
    bool allowed;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) {
        return errno == ENOENT || errno == EACCES || errno == ENOTDIR;
    }
    rule.allowed_access = access & handled_fs();
    if (fstat(rule.parent_fd, &about) == 0 && !S_ISDIR(about.st_mode)) {
        rule.allowed_access &= OF_A_FILE;
    }
    allowed = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
                      &rule, 0) == 0;
    if (!allowed) {
        complain("--sandbox: %s: %s", path, strerror(errno));
    }
    if (strcmp(path, "/proc/self") != 0 || !allowed) {
        close(rule.parent_fd);
    }
    /* Else it stays open: procfs would make another inode of it some day,
     * which the rule is not for. */
    return allowed;
}

/* The folders of the libraries that are loaded, among them UCX's. */
static int allow_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    char folder[PATH_MAX];

    (void)bytes;
    if (slash == NULL || slash == info->dlpi_name) {
        return 0;
    }
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - info->dlpi_name),
             info->dlpi_name);
    return allow(*(int *)arg, folder, READS) ? 0 : 1;
}

static bool allow_port(int rules, uint64_t port)
{
    const port_attr_t rule = {NET_BIND_TCP, port};

    return syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) == 0;
}

/* UCX binds a port when it opens once more: a free one, or one of a range. */
static bool allow_ports(int rules)
{
    const char *range = getenv("UCX_TCP_PORT_RANGE");
    unsigned first = 0, last = 0;

    if (abi < 4) {
        return true;
    }
    if (range != NULL && sscanf(range, "%u-%u", &first, &last) == 2 &&
        last <= PORTS_MOST) {
        for (; first <= last; first++) {
            if (!allow_port(rules, first)) {
                return false;
            }
        }
        return true;
    }
    return allow_port(rules, 0);
}

static bool allow_all(int rules, const char *const dirs[SANDBOX_DIRS])
{
    const char *modules = getenv("UCX_MODULE_DIR");
    const char *memory = getenv("UCX_POSIX_DIR");

    for (size_t i = 0; i < SANDBOX_DIRS; i++) {
        if (dirs[i] != NULL && !allow(rules, dirs[i], KEEPS)) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof(read_paths) / sizeof(read_paths[0]); i++) {
        if (!allow(rules, read_paths[i], READS)) {
            return false;
        }
    }
    if (shares && !allow(rules, memory == NULL ? "/dev/shm" : memory, KEEPS)) {
        return false;
    }
    return (modules == NULL || allow(rules, modules, READS)) &&
           dl_iterate_phdr(allow_library, &rules) == 0 && allow_ports(rules);
}

static int make_rules(const char *const dirs[SANDBOX_DIRS])
{
    const ruleset_attr_t attr = {
        .handled_access_fs = handled_fs(),
        .handled_access_net = abi < 4 ? 0 : NET_BIND_TCP | NET_CONNECT_TCP,
        /* UCX's shared memory wakes its peers by abstract sockets. */
        .scoped = abi < 6  ? 0
                  : shares ? SCOPE_SIGNAL
                           : SCOPE_SIGNAL | SCOPE_ABSTRACT_UNIX,
    };
    size_t bytes = abi < 4   ? offsetof(ruleset_attr_t, handled_access_net)
                   : abi < 6 ? offsetof(ruleset_attr_t, scoped)
                             : sizeof(attr);
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, bytes, 0);

    if (rules < 0 || !allow_all(rules, dirs)) {
        complain("--sandbox: no rules for Landlock: %s", strerror(errno));
        if (rules >= 0) {
            close(rules);
        }
        return -1;
    }
    return rules;
}

static int rules_fd = -1;
static atomic_int restricted; /* threads */
static atomic_int failed_by;  /* errno of one that could not */

/* Makes system calls alone: it runs as a handler of a signal. */
static void restrict_thread(int number)
{
    int before = errno;

    (void)number;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, rules_fd, 0) != 0) {
        atomic_store(&failed_by, errno);
    }
    atomic_fetch_add(&restricted, 1);
    errno = before;
}

static bool has(const pid_t *list, size_t count, pid_t thread)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == thread) {
            return true;
        }
    }
    return false;
}

static bool await_thread(pid_t thread, int count)
{
    uint64_t end = now_ns() + THREADS_NS;

    while (atomic_load(&restricted) < count) {
        if (tgkill(getpid(), thread, 0) != 0) {
            return true; /* it has ended */
        }
        if (now_ns() > end) {
            return false;
        }
        usleep(100);
    }
    return true;
}

/* Has each other thread restrict itself. What these start meanwhile shows in
 * the next round; what they start afterwards is restricted. */
static bool restrict_others(void)
{
    pid_t done[THREADS_MOST], self = gettid();
    size_t count = 0;

    for (int round = 0; round < ROUNDS_MOST; round++) {
        DIR *folder = opendir("/proc/self/task");
        struct dirent *entry;
        size_t before = count;

        if (folder == NULL) {
            return false;
        }
        while ((entry = readdir(folder)) != NULL) {
            pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
            int so_far = atomic_load(&restricted);

            if (thread <= 0 || thread == self || has(done, count, thread)) {
                continue;
            }
            if (count == THREADS_MOST ||
                (tgkill(getpid(), thread, SIGRTMIN) == 0 &&
                 !await_thread(thread, so_far + 1))) {
                closedir(folder);
                errno = ETIMEDOUT;
                return false;
            }
            done[count++] = thread;
        }
        closedir(folder);
        if (count == before) {
            return true;
        }
    }
    errno = EAGAIN;
    return false;
}

static bool restrict_threads(int rules)
{
    const struct sigaction action = {.sa_handler = restrict_thread,
                                     .sa_flags = SA_RESTART};
    struct sigaction old;
    bool done;

    rules_fd = rules;
    sigaction(SIGRTMIN, &action, &old);
    done = restrict_others();
    restrict_thread(0);
    sigaction(SIGRTMIN, &old, NULL);
    if (done && atomic_load(&failed_by) != 0) {
        errno = atomic_load(&failed_by);
        done = false;
    }
    if (!done) {
        complain("--sandbox: a thread stays outside: %s", strerror(errno));
    }
    return done;
}

/* A call that this kernel or this libseccomp does not know is left out. */
static int deny(scmp_filter_ctx filter, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int error =
            number == __NR_SCMP_ERROR
                ? 0
                : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);

        if (error != 0 && error != -EDOM) {
            return error;
        }
    }
    return 0;
}

/* Only sockets of the families that the command uses, no raw ones, and none of
 * protocols that Landlock does not take for TCP, such as MPTCP. */
static int deny_sockets(scmp_filter_ctx filter)
{
    const uint32_t no = SCMP_ACT_ERRNO(EPERM);
    int error = seccomp_rule_add(filter, no, SCMP_SYS(socket), 1,
                                 SCMP_A0(SCMP_CMP_GT, AF_NETLINK));

    for (unsigned family = 0; error == 0 && family < AF_NETLINK; family++) {
        if (family == AF_INET || family == AF_INET6) {
            error = seccomp_rule_add(
                filter, no, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, family),
                SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW));
            if (error == 0) {
                error = seccomp_rule_add(filter, no, SCMP_SYS(socket), 2,
                                         SCMP_A0(SCMP_CMP_EQ, family),
                                         SCMP_A2(SCMP_CMP_GT, IPPROTO_UDP));
            }
        } else if (family != AF_UNIX) {
            error = seccomp_rule_add(filter, no, SCMP_SYS(socket), 1,
                                     SCMP_A0(SCMP_CMP_EQ, family));
        }
    }
    return error;
}

/* To send with MSG_FASTOPEN is to connect. */
static int deny_fast_open(scmp_filter_ctx filter)
{
    static const struct {
        int call;
        unsigned flags; /* which argument */
    } calls[] = {
        {SCMP_SYS(sendto), 3}, {SCMP_SYS(sendmsg), 2}, {SCMP_SYS(sendmmsg), 3}};
    int error = 0;

    for (size_t i = 0; error == 0 && i < 3; i++) {
        error =
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), calls[i].call, 1,
                             SCMP_CMP(calls[i].flags, SCMP_CMP_MASKED_EQ,
                                      MSG_FASTOPEN, MSG_FASTOPEN));
    }
    return error;
}

/* A thread is the only thing that may be cloned. The flags of clone3() cannot
 * be looked at; where there is none the C library calls clone(). */
static int deny_the_rest(scmp_filter_ctx filter)
{
    static const unsigned long on_terminals[] = {TIOCSTI, TIOCLINUX};
    const uint32_t no = SCMP_ACT_ERRNO(EPERM);
    int error = seccomp_rule_add(filter, no, SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));

    if (error == 0) {
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS),
                                 SCMP_SYS(clone3), 0);
    }
    for (size_t i = 0; error == 0 && i < 2; i++) {
        error = seccomp_rule_add(
            filter, no, SCMP_SYS(ioctl), 1,
            SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, on_terminals[i]));
    }
    if (error == 0) {
        error = deny_sockets(filter);
    }
    return error == 0 ? deny_fast_open(filter) : error;
}

static bool uses_sysv(void)
{
    const char *tls = getenv("UCX_TLS");

    return tls != NULL && strstr(tls, "sysv") != NULL;
}

static bool filter_calls(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int error = filter == NULL ? -ENOMEM : 0;

    if (error == 0) {
        error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    }
    if (error == 0) {
        error = deny(filter, denied, sizeof(denied) / sizeof(denied[0]));
    }
    if (error == 0 && !uses_sysv()) {
        error = deny(filter, shared_calls,
                     sizeof(shared_calls) / sizeof(shared_calls[0]));
    }
    if (error == 0) {
        error = deny_the_rest(filter);
    }
    if (error == 0) {
        error = seccomp_load(filter);
    }
    seccomp_release(filter);
    if (error != 0) {
        complain("--sandbox: no filter of system calls: %s", strerror(-error));
    }
    return error == 0;
}

bool sandbox_enter(const char *const dirs[SANDBOX_DIRS])
{
    int rules = make_rules(dirs);
    bool inside = rules >= 0 && restrict_threads(rules) && filter_calls();

    broker_use();
    if (rules >= 0) {
        close(rules);
    }
    return inside;
}

#endif
