/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that can be lent: what it is, how it is found, what is said where it
 * cannot be had, and what a child of this process has of it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/shareable.h>

#include "fakes/old_kernel.h"
#include "memory/available.h"
#include "memory/memfd.h"
#include "memory/shareable.h"
#include "support/failing_alloc.h"
#include "support/few_descriptors.h"
#include "support/must.h"

#define PAGE ((size_t)4096)
#define MB ((size_t)1 << 20)
#define MOST (256 * MB) /* of pages that any of these tests takes */

static bool promises_few;   /* the machine, which has vm.overcommit_memory=2 */
static uint64_t cgroup_has; /* 0: what it has */

int __real_fallocate(int fd, int mode, off_t from, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t from, off_t bytes);
bool __wrap_tmsg_available_is_strict(const char *root);
tmsg_available_t __real_tmsg_available_look(const char *root);
tmsg_available_t __wrap_tmsg_available_look(const char *root);

/* A test that asks for more than there is must not get it where the library has
 * a fault: the kernel would kill whatever runs on the machine. */
int __wrap_fallocate(int fd, int mode, off_t from, off_t bytes)
{
    struct stat about;

    must_eq(fstat(fd, &about), 0);
    if (about.st_size > (off_t)MOST || from + bytes > (off_t)MOST) {
        die("pages of %lld bytes were to be taken", (long long)about.st_size);
    }
    if (promises_few) {
        errno = ENOSPC;
        return -1;
    }
    return __real_fallocate(fd, mode, from, bytes);
}

bool __wrap_tmsg_available_is_strict(const char *root)
{
    (void)root;
    return promises_few;
}

tmsg_available_t __wrap_tmsg_available_look(const char *root)
{
    return cgroup_has == 0
               ? __real_tmsg_available_look(root)
               : (tmsg_available_t){cgroup_has, "the process's cgroup"};
}

static uint8_t *allocate(size_t bytes)
{
    void *memory;

    must(tmsg_shareable_alloc(bytes, NULL, &memory));
    return memory;
}

static void refuses(size_t bytes, tmsg_status_t status, const char *words)
{
    void *memory = &memory;

    cr_expect(eq(int, tmsg_shareable_alloc(bytes, NULL, &memory), status));
    must_say(tmsg_error_message(), words);
    must_true(memory == &memory);
}

static size_t count_descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static bool is_mapped(const void *memory)
{
    unsigned char there;

    return mincore((void *)(uintptr_t)memory, PAGE, &there) == 0;
}

Test(shareable, has_all_its_pages_and_seals)
{
    size_t bytes = 5 * MB + 1;
    uint8_t *memory = allocate(bytes);
    tmsg_shareable_t *segment = tmsg_shareable_find(memory, bytes);
    struct stat about;
    int fd;

    must_true(segment != NULL && tmsg_shareable_memory(segment) == memory);
    must_eq(tmsg_shareable_bytes(segment), bytes);
    fd = tmsg_shareable_fd(segment);
    must_eq(fcntl(fd, F_GET_SEALS) & TMSG_MEMFD_SEALS, TMSG_MEMFD_SEALS);
    must_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    must_eq(fstat(fd, &about), 0);
    must_eq(about.st_size, bytes);
    must_true((size_t)about.st_blocks * 512 >= bytes);
    must_eq(lseek(fd, 0, SEEK_HOLE), bytes);
    must_eq((uintptr_t)memory % PAGE, 0);
    for (size_t i = 0; i < bytes; i++) {
        must_eq(memory[i], 0);
    }
    memset(memory, 1, bytes);
    tmsg_shareable_drop(segment);
    must(tmsg_shareable_free(memory));
}

Test(shareable, is_found_by_what_lies_in_it)
{
    enum { MANY = 100 };
    uint8_t *blocks[MANY], on_stack = 0;

    must_true(tmsg_shareable_find(&on_stack, 1) == NULL);
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = allocate(2 * PAGE);
    }
    for (size_t i = 0; i < MANY; i += 2) {
        must(tmsg_shareable_free(blocks[i]));
    }
    for (size_t i = 1; i < MANY; i += 2) {
        tmsg_shareable_t *segment = tmsg_shareable_find(blocks[i] + PAGE, PAGE);

        must_true(segment != NULL);
        must_true(tmsg_shareable_memory(segment) == blocks[i]);
        must_true(tmsg_shareable_find(blocks[i] + PAGE, PAGE + 1) == NULL);
        must_true(tmsg_shareable_find(blocks[i], SIZE_MAX) == NULL);
        must_true(tmsg_shareable_find(&on_stack, 1) == NULL);
        must_eq(tmsg_shareable_is_lent(blocks[i] + 1), 0);
        tmsg_shareable_drop(segment);
    }
    for (size_t i = 0; i < MANY; i++) {
        if (i % 2 == 0) {
            must_be(tmsg_shareable_free(blocks[i]), TMSG_ERR_INVALID_PARAM);
        } else {
            must(tmsg_shareable_free(blocks[i]));
        }
        must_true(tmsg_shareable_find(blocks[i], 1) == NULL);
    }
}

Test(shareable, ends_where_its_bytes_end)
{
    uint8_t *memory = allocate(100);
    tmsg_shareable_t *segment = tmsg_shareable_find(memory + 99, 1);

    must_true(segment != NULL);
    must_true(tmsg_shareable_find(memory + 100, 0) == NULL);
    must_true(tmsg_shareable_find(memory, 101) == NULL);
    tmsg_shareable_drop(segment);
    must(tmsg_shareable_free(memory));
}

Test(shareable, of_the_librarys_own_is_not_found)
{
    tmsg_shareable_t *segment;
    uint8_t *memory;

    must(tmsg_shareable_create(PAGE, &segment));
    memory = tmsg_shareable_memory(segment);
    must_true(tmsg_shareable_find(memory, 1) == NULL);
    must_be(tmsg_shareable_free(memory), TMSG_ERR_INVALID_PARAM);
    tmsg_shareable_drop(segment);
    must_true(!is_mapped(memory));
}

Test(shareable, is_freed_once_and_from_its_beginning)
{
    uint8_t *memory = allocate(2 * PAGE);

    must(tmsg_shareable_free(NULL));
    must_be(tmsg_shareable_free(memory + PAGE), TMSG_ERR_INVALID_PARAM);
    must(tmsg_shareable_free(memory));
    must_be(tmsg_shareable_free(memory), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "freed already");
}

Test(shareable, is_lent_until_each_loan_came_back)
{
    uint8_t *memory = allocate(PAGE);
    tmsg_shareable_t *segment = tmsg_shareable_find(memory, PAGE);

    must_eq(tmsg_shareable_is_lent(memory), 0);
    tmsg_shareable_lend(segment);
    tmsg_shareable_lend(segment);
    tmsg_shareable_return(segment);
    must_eq(tmsg_shareable_is_lent(memory + PAGE - 1), 1);
    must_eq(tmsg_shareable_is_lent(memory + PAGE), 0);
    tmsg_shareable_return(segment);
    must_eq(tmsg_shareable_is_lent(memory), 0);
    tmsg_shareable_drop(segment);
    must(tmsg_shareable_free(memory));
}

Test(shareable, is_read_by_peers_after_it_was_freed)
{
    size_t before = count_descriptors();
    uint8_t *memory = allocate(PAGE);
    tmsg_shareable_t *segment = tmsg_shareable_find(memory, PAGE);
    const uint8_t *theirs =
        mmap(NULL, PAGE, PROT_READ, MAP_SHARED, tmsg_shareable_fd(segment), 0);

    must_true(theirs != MAP_FAILED);
    tmsg_shareable_hold(segment);
    tmsg_shareable_lend(segment);
    memory[7] = 7;
    must(tmsg_shareable_free(memory));
    must_true(tmsg_shareable_is_freed(segment) && !is_mapped(memory));
    must_eq(count_descriptors(), before + 1);
    must_eq(theirs[7], 7);
    tmsg_shareable_return(segment);
    tmsg_shareable_drop(segment);
    tmsg_shareable_drop(segment);
    must_eq(count_descriptors(), before);
    must_eq(theirs[7], 7);
}

Test(shareable, of_odd_sizes_is_refused)
{
    const tmsg_shareable_params_t none = {0}, unknown = {.field_mask = 2};
    void *memory;

    refuses(0, TMSG_ERR_INVALID_PARAM, "0 bytes");
    refuses(SIZE_MAX, TMSG_ERR_NO_MEMORY, "more than any machine has");
    must_be(tmsg_shareable_alloc(1, NULL, NULL), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_shareable_alloc(1, &unknown, &memory), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown");
    must(tmsg_shareable_alloc(1, &none, &memory));
    must(tmsg_shareable_free(memory));
}

/* The kernel would take page after page, and then kill. */
Test(shareable, of_more_than_the_machine_has_is_refused_at_once)
{
    refuses((size_t)1 << 40, TMSG_ERR_NO_MEMORY, " left");
}

Test(shareable, of_more_than_a_cgroup_has_is_refused_by_name)
{
    cgroup_has = 3 * MB;
    refuses(4 * MB, TMSG_ERR_NO_MEMORY, "the process's cgroup has 3145728");
}

Test(shareable, says_that_no_more_is_promised)
{
    promises_few = true;
    refuses(MB, TMSG_ERR_NO_MEMORY, "vm.overcommit_memory is 2");
}

Test(shareable, says_that_files_may_not_be_that_long)
{
    struct rlimit few = {MB, MB};

    must_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
    refuses(MB + 1, TMSG_ERR_LIMIT_EXCEEDED, "RLIMIT_FSIZE");
    must(tmsg_shareable_free(allocate(MB)));
}

Test(shareable, says_that_descriptors_have_run_out)
{
    spare_leave(1);
    allocate(1);
    refuses(1, TMSG_ERR_LIMIT_EXCEEDED, "descriptors");
    spare_leave_all();
}

Test(shareable, says_that_there_is_no_address_space)
{
    struct rlimit few = {0, RLIM_INFINITY};
    unsigned long long pages;
    FILE *file = fopen("/proc/self/statm", "r");

    must_true(file != NULL && fscanf(file, "%llu", &pages) == 1);
    fclose(file);
    few.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + 4 * MB;
    must_eq(setrlimit(RLIMIT_AS, &few), 0);
    refuses(64 * MB, TMSG_ERR_NO_MEMORY, "RLIMIT_AS");
    few.rlim_cur = RLIM_INFINITY;
    must_eq(setrlimit(RLIMIT_AS, &few), 0);
}

Test(shareable, says_that_the_kernel_is_old)
{
    kernel_is_old = true;
    refuses(1, TMSG_ERR_UNSUPPORTED, "before Linux 5.1");
}

Test(shareable, says_that_memfd_create_is_barred)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(lines) / sizeof(lines[0]), lines};

    must_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    must_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
    refuses(1, TMSG_ERR_UNSUPPORTED, "memfd_create() (seccomp?)");
}

Test(shareable, leaves_nothing_behind_where_an_allocation_fails)
{
    size_t before = count_descriptors();
    void *memory = NULL;
    unsigned long n = 0;
    tmsg_status_t status;

    do {
        failing_alloc_arm(++n);
        status = tmsg_shareable_alloc(PAGE, NULL, &memory);
        if (failing_alloc_disarm()) {
            must_be(status, TMSG_ERR_NO_MEMORY);
            must_eq(count_descriptors(), before);
        }
    } while (status != TMSG_OK);
    must_true(n > 2); /* the segment and the list */
    must(tmsg_shareable_free(memory));
    must_eq(count_descriptors(), before);
}

static void ignore(int number) { (void)number; }

/* The signal of a profiler, which comes more often than the kernel takes all
 * the pages. */
Test(shareable, is_had_by_a_process_that_is_profiled)
{
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    uint8_t *memory;

    must_eq(sigaction(SIGPROF, &action, NULL), 0);
    must_eq(setitimer(ITIMER_PROF, &often, NULL), 0);
    memory = allocate(128 * MB);
    must_eq(setitimer(ITIMER_PROF, &never, NULL), 0);
    must(tmsg_shareable_free(memory));
}

static void await_child(pid_t child)
{
    int how;

    must_eq(waitpid(child, &how, 0), child);
    must_eq(how, 0);
}

Test(shareable, of_the_parent_is_not_the_childs_to_lend)
{
    uint8_t *memory = allocate(PAGE);
    pid_t child;

    memory[0] = 1;
    child = fork();
    if (child == 0) {
        uint8_t *own = allocate(PAGE);
        tmsg_shareable_t *segment = tmsg_shareable_find(own, PAGE);

        must_true(segment != NULL);
        must_true(tmsg_shareable_find(memory, PAGE) == NULL);
        must_eq(tmsg_shareable_is_lent(memory), 1);
        must_eq(tmsg_shareable_is_lent(own), 0);
        must_eq(memory[0], 1);
        must(tmsg_shareable_free(memory));
        must_true(!is_mapped(memory));
        tmsg_shareable_drop(segment);
        must(tmsg_shareable_free(own));
        _exit(0);
    }
    await_child(child);
    must_eq(memory[0], 1);
    must_eq(tmsg_shareable_is_lent(memory), 0);
    must(tmsg_shareable_free(memory));
}

static atomic_bool stop;

static void *churn(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        must(tmsg_shareable_free(allocate(1)));
    }
    return NULL;
}

/* Whoever holds a lock of the parent's is not in the child. */
Test(shareable, is_had_in_a_child_of_a_busy_parent)
{
    pthread_t threads[2];

    must(tmsg_shareable_free(allocate(1)));
    for (size_t i = 0; i < 2; i++) {
        must_eq(pthread_create(&threads[i], NULL, churn, NULL), 0);
    }
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        if (child == 0) {
            must(tmsg_shareable_free(allocate(1)));
            _exit(0);
        }
        await_child(child);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}
