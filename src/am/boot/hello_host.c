/* SPDX-License-Identifier: BSD-3-Clause */
/* This file finds what the machine says of this process, and whether two
 * processes share a machine. */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "am/boot/hello.h"
#include "serialize/header.h"

static void fill_host(tmsg_hello_t *hello)
{
    if (gethostname(hello->host, sizeof(hello->host)) != 0) {
        hello->host[0] = '\0';
    }
    hello->host[sizeof(hello->host) - 1] = '\0';
    for (char *c = hello->host; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            *c = '?';
        }
    }
}

static void fill_boot_id(tmsg_hello_t *hello)
{
    size_t wanted = sizeof(hello->boot_id) - 1;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return;
    }
    if (read(fd, hello->boot_id, wanted) != (ssize_t)wanted) {
        memset(hello->boot_id, 0, sizeof(hello->boot_id));
    }
    close(fd);
}

/* Of this thread: /proc/self shows nothing once the first thread has ended. */
static uint64_t namespace_inode(const char *path)
{
    struct stat file;

    return stat(path, &file) == 0 ? (uint64_t)file.st_ino : 0;
}

static bool get_caps(pid_t thread, uint64_t *permitted_p, uint64_t *effective_p)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3,
                                            thread};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    if (syscall(SYS_capget, &head, data) != 0) {
        return false;
    }
    *permitted_p = data[0].permitted | (uint64_t)data[1].permitted << 32;
    *effective_p = data[0].effective | (uint64_t)data[1].effective << 32;
    return true;
}

/* Returns whether Linux lets other processes of this user open this process's
 * memory at all. */
static bool is_memory_open(void)
{
    uid_t real, effective, saved;
    gid_t real_group, group, saved_group;

    return prctl(PR_GET_DUMPABLE) == 1 &&
           getresuid(&real, &effective, &saved) == 0 && real == effective &&
           saved == effective &&
           (uid_t)setfsuid((uid_t)-1) == effective && /* only asks */
           getresgid(&real_group, &group, &saved_group) == 0 &&
           real_group == group && saved_group == group &&
           (gid_t)setfsgid((gid_t)-1) == group;
}

/* Fills in who may open the memory. Linux judges a process that is opened by
 * its first thread, and one that opens another by the thread that does so. */
static void fill_memory(tmsg_hello_t *hello)
{
    uint64_t other;

    if (!get_caps(getpid(), &hello->caps, &other) ||
        !get_caps(0, &other, &hello->caps_used)) {
        tmsg_hello_untell_memory(hello);
        return;
    }
    hello->memory =
        is_memory_open() ? TMSG_HELLO_MEMORY_OPEN : TMSG_HELLO_MEMORY_SHUT;
    hello->gid = (uint32_t)getegid();
}

void tmsg_hello_untell_memory(tmsg_hello_t *hello)
{
    hello->memory = TMSG_HELLO_MEMORY_UNKNOWN;
    hello->gid = 0;
    hello->caps = 0;
    hello->caps_used = 0;
}

void tmsg_hello_fill_local(const uint8_t instance_id[TMSG_INSTANCE_BYTES],
                           tmsg_hello_t *hello)
{
    memset(hello, 0, sizeof(*hello));
    hello->wire_version = TMSG_WIRE_VERSION;
    memcpy(hello->instance_id, instance_id, TMSG_INSTANCE_BYTES);
    hello->uid = (uint32_t)geteuid();
    hello->pid = (uint32_t)getpid();
    fill_host(hello);
    fill_boot_id(hello);
    hello->ns_pid = namespace_inode("/proc/thread-self/ns/pid");
    hello->ns_ipc = namespace_inode("/proc/thread-self/ns/ipc");
    hello->ns_mnt = namespace_inode("/proc/thread-self/ns/mnt");
    hello->ns_user = namespace_inode("/proc/thread-self/ns/user");
    hello->ns_net = namespace_inode("/proc/thread-self/ns/net");
    fill_memory(hello);
}

#define SPACES 5

/* Writes which namespaces keep the two apart, all of them: a container is given
 * one after another otherwise. Returns false if none does. The network
 * namespace counts because UCX wakes a peer of shared memory by an abstract
 * Unix socket. */
static bool name_other_namespaces(const tmsg_hello_t *mine,
                                  const tmsg_hello_t *theirs, char *text,
                                  size_t bytes)
{
    const struct {
        const char *name;
        uint64_t mine, theirs;
    } pairs[SPACES] = {{"user", mine->ns_user, theirs->ns_user},
                       {"pid", mine->ns_pid, theirs->ns_pid},
                       {"ipc", mine->ns_ipc, theirs->ns_ipc},
                       {"mount", mine->ns_mnt, theirs->ns_mnt},
                       {"network", mine->ns_net, theirs->ns_net}};
    const char *names[SPACES];
    size_t count = 0, used;

    for (size_t i = 0; i < SPACES; i++) {
        if (pairs[i].mine == 0 || pairs[i].mine != pairs[i].theirs) {
            names[count++] = pairs[i].name;
        }
    }
    used = (size_t)snprintf(text, bytes, "other");
    for (size_t i = 0; i < count && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s %s",
                                 i == 0           ? ""
                                 : i == count - 1 ? " and"
                                                  : ",",
                                 names[i]);
    }
    if (used < bytes) {
        snprintf(text + used, bytes - used, " namespace%s",
                 count == 1 ? "" : "s");
    }
    return count > 0;
}

/* The reasons that keep one process of a user from another's memory. The first
 * of several is told. */
typedef enum { APART_GROUP, APART_SHUT, APART_CAPABILITIES, TOGETHER } apart_t;

static const char *const apart_words[] = {
    [APART_GROUP] = "other group",
    [APART_SHUT] = "one cannot read the other's memory (PR_SET_DUMPABLE, or "
                   "privileges that changed)",
    [APART_CAPABILITIES] =
        "capabilities of one that are not effective in the other",
};

#define CAP(name) (UINT64_C(1) << CAP_##name)

/* The inode of the user namespace that a machine begins with. */
#define INITIAL_USER_SPACE UINT64_C(0xeffffffd)

/* Returns whether a reader may open an owner's memory, as Linux judges it. If
 * the memory is shut, the owner's files in /proc belong to root of the initial
 * user namespace, which other user namespaces may not know. */
static apart_t judge_opening(const tmsg_hello_t *reader,
                             const tmsg_hello_t *owner)
{
    bool traces = reader->caps_used & CAP(SYS_PTRACE);
    bool searches =
        reader->ns_user == INITIAL_USER_SPACE &&
        (reader->uid == 0 || reader->caps_used & CAP(DAC_OVERRIDE) ||
         reader->caps_used & CAP(DAC_READ_SEARCH));

    if (!traces && reader->gid != owner->gid) {
        return APART_GROUP;
    }
    if (owner->memory == TMSG_HELLO_MEMORY_SHUT && !(traces && searches)) {
        return APART_SHUT;
    }
    if (!traces && (owner->caps & ~reader->caps_used) != 0) {
        return APART_CAPABILITIES;
    }
    return TOGETHER;
}

/* Returns what keeps the two from each other's memory. Both directions are
 * judged, so that both sides say the same. NULL: nothing does, it is one and
 * the same process, or one side is of an older version and tells nothing. */
static const char *shut_memory(const tmsg_hello_t *mine,
                               const tmsg_hello_t *theirs)
{
    apart_t one = judge_opening(mine, theirs);
    apart_t other = judge_opening(theirs, mine);
    apart_t first = one < other ? one : other;

    return mine->pid == theirs->pid ||
                   mine->memory == TMSG_HELLO_MEMORY_UNKNOWN ||
                   theirs->memory == TMSG_HELLO_MEMORY_UNKNOWN ||
                   first == TOGETHER
               ? NULL
               : apart_words[first];
}

bool tmsg_hello_same_machine(const tmsg_hello_t *mine,
                             const tmsg_hello_t *theirs, char *why,
                             size_t why_bytes)
{
    char spaces[80];
    bool elsewhere =
        name_other_namespaces(mine, theirs, spaces, sizeof(spaces));
    const char *shut = shut_memory(mine, theirs);

    if (mine->boot_id[0] == '\0') {
        snprintf(why, why_bytes,
                 "perhaps another host: /proc/sys/kernel/random/boot_id cannot "
                 "be read");
    } else if (theirs->boot_id[0] == '\0') {
        snprintf(why, why_bytes,
                 "other host, or the peer rules out shared memory: it sent no "
                 "boot id");
    } else if (strcmp(mine->boot_id, theirs->boot_id) != 0) {
        snprintf(why, why_bytes, "other host");
    } else if (mine->uid != theirs->uid) {
        snprintf(why, why_bytes, "other user (uid %u, here %u)", theirs->uid,
                 mine->uid);
    } else if (elsewhere) {
        snprintf(why, why_bytes, "%s", spaces);
    } else if (shut != NULL) {
        snprintf(why, why_bytes, "%s", shut);
    } else {
        snprintf(why, why_bytes, "same machine, user and namespaces");
        return true;
    }
    return false;
}
