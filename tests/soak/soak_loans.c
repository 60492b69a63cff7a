/* SPDX-License-Identifier: BSD-3-Clause */
/* Loans whose owner or borrowers are killed at random moments. What the
 * borrowers hold never changes, what the dead held is free again, and no file
 * is left. `soak_loans`, or `ctest -C soak -R soak/loans`, shows all of it in
 * 15 slices:
 *
 * 0 to 9: an owner and 4 borrowers, of which 10 owners and 10 borrowers are
 * killed, 100 of each in all. A new one comes each time. Borrowers also hang
 * up, and keep what they hold. 10 to 14: 10 borrowers each are killed while
 * they hold up to 40 messages, 50 in all, beside two that keep what they hold
 * and two that give it back by and by. After each death 1,000 more loans
 * arrive, and the owner has no more memory than before.
 *
 * Each slice has a /dev/shm and a /tmp of its own, in which no file is left.
 * $TMSG_LOANS "small": some of it, about a second. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"
#include "support/struck_processes.h"
#include "support/test_scale.h"

enum {
    STRIKE_SLICES = 10,
    STRIKES = 10, /* of a slice, of owners and of borrowers each */
    KEEP_SLICES = 5,
    VICTIMS = 10, /* of a slice */
    MORE = 1000,  /* loans after each of them */
    BORROWERS = 4,
    HELD = 8,    /* messages at a time, by who gives back */
    STAYS = 400, /* messages, about, until he hangs up and keeps some */
    HANGS_UP = 1,
    KEPT = 12,
    VICTIM_KEEPS = 40,
    LEAST = 65536, /* bytes: fewer are no loan */
    MOST = 1 << 19,
    BLOCKS = 24, /* of the owner, to be lent; as many others it copies from */
    PEERS = 16,
    UNDER_WAY = 4,                          /* sends to a peer */
    COPIES_BYTES = 64 * (2 * MOST + LEAST), /* by the library's own bound */
    GROWTH = 48 << 20 /* of resident memory: what malloc() keeps */
};

typedef enum { LENDS, RESTS, ENDS } phase_t;

/* What all processes share. */
typedef struct {
    _Atomic int phase;
    _Atomic uint64_t lent, others, checks, outlived, hung_up, released, unsent,
        resting;
    _Atomic uint64_t victim_holds;
    /* What the owner says of itself. */
    _Atomic uint64_t loans, copies, most_loans, most_copies;
} shared_t;

/* A process of the soak. */
typedef struct {
    shared_t *shared;
    char url[64]; /* where the owner listens */
    uint64_t seed;
    unsigned most; /* messages that a borrower holds */
    bool keeps;    /* it gives none of them back */
    bool is_victim;
    bool hangs_up;   /* at times, and keeps what it holds */
    bool is_patient; /* the owner waits until idle copies have gone */
} task_t;

/* A message that a borrower holds. Each 8 bytes of it are `word`. */
typedef struct {
    tmsg_message_t *message;
    const uint8_t *bytes;
    size_t count;
    uint64_t word;
} view_t;

typedef struct {
    const task_t *task;
    side_t side;
    uint64_t dice;
    unsigned held;
    unsigned hung_up; /* how often */
    view_t views[VICTIM_KEEPS];
} borrower_t;

static void check_view(const borrower_t *borrower, const view_t *view)
{
    if (memcmp(view->bytes, &view->word, sizeof(view->word)) != 0 ||
        memcmp(view->bytes, view->bytes + sizeof(view->word),
               view->count - sizeof(view->word)) != 0) {
        die("%zu bytes at %p have changed", view->count,
            (const void *)view->bytes);
    }
    borrower->task->shared->checks++;
}

static void check_views(const borrower_t *borrower)
{
    for (unsigned i = 0; i < borrower->held; i++) {
        check_view(borrower, &borrower->views[i]);
    }
}

static void drop_view(borrower_t *borrower, unsigned i)
{
    check_view(borrower, &borrower->views[i]);
    tmsg_message_destroy(borrower->views[i].message);
    borrower->views[i] = borrower->views[--borrower->held];
}

static void take(borrower_t *borrower, tmsg_message_t *message)
{
    const task_t *task = borrower->task;
    const tmsg_map_t *map = tmsg_message_map(message);
    view_t view = {.message = message};
    tmsg_tensor_t tensor;
    int64_t word;

    must(tmsg_map_find(map, "data", &tensor));
    must(tmsg_map_get_i64(map, "word", &word));
    view.bytes = tensor.data;
    view.count = (size_t)tensor.shape[0];
    view.word = (uint64_t)word;
    check_view(borrower, &view);
    if (!tmsg_message_is_lent(message)) {
        task->shared->others++;
        tmsg_message_destroy(message);
        return;
    }
    task->shared->lent++;
    if (borrower->held == task->most && task->keeps) {
        tmsg_message_destroy(message);
        return;
    }
    if (borrower->held == task->most) {
        drop_view(borrower,
                  (unsigned)(sample_random(&borrower->dice) % borrower->held));
    }
    borrower->views[borrower->held++] = view;
    if (task->is_victim) {
        task->shared->victim_holds = borrower->held;
    }
}

/* Counts the files that peers lend and this process has mapped. */
static unsigned count_borrowed(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long inode, seen[512];
    char line[4608], mode[8];
    unsigned count = 0;

    must_true(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned i = 0;

        if (strstr(line, "/memfd:tensormsg") == NULL ||
            sscanf(line, "%*s %7s %*s %*s %llu", mode, &inode) != 2 ||
            strcmp(mode, "r--s") != 0) {
            continue;
        }
        while (i < count && seen[i] != inode) {
            i++;
        }
        if (i == count) {
            must_true(count < sizeof(seen) / sizeof(*seen));
            seen[count++] = inode;
        }
    }
    fclose(maps);
    return count;
}

static bool has_no_others(void *arg)
{
    const borrower_t *borrower = arg;

    return count_borrowed() <= borrower->held;
}

static bool is_gone(const tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = tmsg_endpoint_status(endpoint);

    return status != TMSG_OK && status != TMSG_IN_PROGRESS;
}

/* Takes what comes until the connection is over, or for some time. What it
 * holds when it hangs up is lent until it dies: if it did so again and again,
 * in the end the owner would have nothing left to lend. */
static void borrow_from(borrower_t *borrower, const tmsg_endpoint_t *endpoint)
{
    shared_t *shared = borrower->task->shared;
    tmsg_message_t *message;

    for (;;) {
        if (tmsg_worker_recv(borrower->side.worker, 5, &message) == TMSG_OK) {
            take(borrower, message);
            if (borrower->task->hangs_up && borrower->hung_up < HANGS_UP &&
                sample_random(&borrower->dice) % STAYS == 0) {
                borrower->hung_up++;
                shared->hung_up++;
                return;
            }
        } else if (is_gone(endpoint)) {
            shared->outlived += borrower->held; /* the owner is dead */
            return;
        }
        if (shared->phase != LENDS) {
            check_views(borrower);
            shared->resting++;
            for (;;) { /* until it is killed */
                pause();
            }
        }
    }
}

static void borrow(void *arg)
{
    const task_t *task = arg;
    const side_options_t borrows = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    borrower_t borrower = {.task = task, .dice = task->seed};

    side_open(&borrower.side, &borrows);
    for (;;) {
        tmsg_endpoint_t *endpoint;

        if (tmsg_endpoint_connect(borrower.side.worker, task->url, NULL,
                                  &endpoint) != TMSG_OK) {
            pause_us(1000);
            continue;
        }
        borrow_from(&borrower, endpoint);
        tmsg_endpoint_destroy(endpoint);
        check_views(&borrower);
        while (borrower.held > 0 && !task->keeps &&
               sample_random(&borrower.dice) % 8 != 0) {
            drop_view(&borrower, 0);
        }
        side_await(&borrower.side, has_no_others, &borrower,
                   "what it does not hold to be gone");
        pause_us(1000);
    }
}

/* Memory of the owner's, which it overwrites when nobody reads it any more. */
typedef struct {
    uint8_t *bytes;
    size_t room;
    tmsg_request_t *sent; /* NULL: ended */
    unsigned peer;
    bool is_block, is_free;
    shared_t *shared;
} lent_t;

typedef struct {
    const task_t *task;
    side_t side;
    uint64_t dice;
    lent_t lent[2 * BLOCKS];
    tmsg_endpoint_t *peers[PEERS];
    unsigned under_way[PEERS];
} owner_t;

static void take_peer(void *arg, tmsg_endpoint_t *endpoint)
{
    owner_t *owner = arg;
    unsigned i = 0;

    while (i < PEERS && owner->peers[i] != NULL) {
        i++;
    }
    must_true(i < PEERS);
    owner->peers[i] = endpoint;
}

static void released(void *arg)
{
    lent_t *lent = arg;

    must_true(!lent->is_block || !tmsg_shareable_is_lent(lent->bytes));
    memset(lent->bytes, 0xff, lent->room);
    lent->is_free = true;
    lent->shared->released++;
}

static void own_memory(owner_t *owner)
{
    for (unsigned i = 0; i < 2 * BLOCKS; i++) {
        lent_t *lent = &owner->lent[i];
        void *block;

        *lent = (lent_t){.is_block = i < BLOCKS,
                         .is_free = true,
                         .shared = owner->task->shared,
                         .room = i < BLOCKS ? LEAST << i % 4 : MOST};
        if (lent->is_block) {
            must(tmsg_shareable_alloc(lent->room, NULL, &block));
            lent->bytes = block;
        } else {
            lent->bytes = malloc(lent->room);
            must_true(lent->bytes != NULL);
        }
    }
}

static void lend(owner_t *owner, lent_t *lent, unsigned peer)
{
    uint64_t word = sample_random(&owner->dice);
    size_t count = lent->is_block
                       ? lent->room
                       : LEAST + (size_t)(sample_random(&owner->dice) %
                                          ((MOST - LEAST) / 8)) *
                                     8;
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        lent->bytes, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = TMSG_SEND_LEND,
                                       .on_release = released,
                                       .on_release_arg = lent};
    tmsg_map_t *map;

    for (size_t i = 0; i < count; i += sizeof(word)) {
        memcpy(lent->bytes + i, &word, sizeof(word));
    }
    lent->is_free = false;
    lent->peer = peer;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_map_set_i64(map, "word", (int64_t)word));
    if (tmsg_endpoint_send(owner->peers[peer], map, &params, &lent->sent) ==
        TMSG_OK) {
        owner->under_way[peer]++;
    } else {
        lent->sent = NULL;
        lent->is_free = true;
        owner->task->shared->unsent++;
    }
    tmsg_map_destroy(map);
}

static void end_sends(owner_t *owner)
{
    for (unsigned i = 0; i < 2 * BLOCKS; i++) {
        lent_t *lent = &owner->lent[i];
        tmsg_status_t status = lent->sent == NULL
                                   ? TMSG_IN_PROGRESS
                                   : tmsg_request_test(lent->sent);

        if (status == TMSG_IN_PROGRESS) {
            continue;
        }
        owner->task->shared->unsent += status != TMSG_OK;
        tmsg_request_destroy(lent->sent);
        lent->sent = NULL;
        owner->under_way[lent->peer]--;
    }
    for (unsigned i = 0; i < PEERS; i++) {
        if (owner->peers[i] != NULL && is_gone(owner->peers[i])) {
            tmsg_endpoint_destroy(owner->peers[i]);
            owner->peers[i] = NULL;
        }
    }
}

static uint64_t figure(const char *json, const char *key)
{
    const char *at = strstr(json, key);

    must_true(at != NULL);
    return strtoull(at + strlen(key), NULL, 10);
}

static void tell_counts(owner_t *owner)
{
    shared_t *shared = owner->task->shared;
    char *json;

    must(tmsg_worker_describe(owner->side.worker, &json));
    shared->loans = figure(json, "\"loans\":");
    shared->copies = figure(json, "\"loan_copies\":");
    tmsg_string_free(json);
    if (shared->most_loans < shared->loans) {
        shared->most_loans = shared->loans;
    }
    if (shared->most_copies < shared->copies) {
        shared->most_copies = shared->copies;
    }
}

/* Lends something to one of the peers. False: nothing can be lent now. */
static bool lend_once(owner_t *owner)
{
    unsigned peer = (unsigned)(sample_random(&owner->dice) % PEERS);
    unsigned first = (unsigned)(sample_random(&owner->dice) % (2 * BLOCKS));

    for (unsigned i = 0; i < PEERS; i++, peer = (peer + 1) % PEERS) {
        if (owner->peers[peer] == NULL || is_gone(owner->peers[peer]) ||
            owner->under_way[peer] >= UNDER_WAY) {
            continue;
        }
        for (unsigned j = 0; j < 2 * BLOCKS; j++) {
            lent_t *lent = &owner->lent[(first + j) % (2 * BLOCKS)];

            if (lent->is_free && lent->sent == NULL) {
                lend(owner, lent, peer);
                return true;
            }
        }
        return false;
    }
    return false;
}

static bool has_all_back(void *arg)
{
    owner_t *owner = arg;

    end_sends(owner);
    tell_counts(owner);
    for (unsigned i = 0; i < 2 * BLOCKS; i++) {
        if (!owner->lent[i].is_free || owner->lent[i].sent != NULL) {
            return false;
        }
    }
    return owner->task->shared->loans == 0 &&
           (!owner->task->is_patient || owner->task->shared->copies == 0);
}

/* The bytes of the files without a name that a process has open. */
static uint64_t memory_files(pid_t pid, unsigned *count_p)
{
    uint64_t bytes = 0;
    char path[300], to[64];
    struct dirent *entry;
    struct stat file;
    DIR *folder;

    *count_p = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    folder = opendir(path);
    must_true(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, entry->d_name);
        length = readlink(path, to, sizeof(to));
        if (length > 16 && strncmp(to, "/memfd:tensormsg", 16) == 0 &&
            stat(path, &file) == 0) {
            bytes += (uint64_t)file.st_size;
            ++*count_p;
        }
    }
    closedir(folder);
    return bytes;
}

static void own(void *arg)
{
    const task_t *task = arg;
    owner_t owner = {.task = task, .dice = task->seed};
    const tmsg_listener_params_t door = {.field_mask =
                                             TMSG_LISTENER_PARAM_ON_ACCEPT,
                                         .on_accept = take_peer,
                                         .on_accept_arg = &owner};
    unsigned turns = 0, files;

    own_memory(&owner);
    side_open(&owner.side, NULL);
    must(tmsg_listener_create(owner.side.worker, task->url, &door,
                              &owner.side.listener));
    while (task->shared->phase != ENDS) {
        end_sends(&owner);
        if (task->shared->phase != LENDS || !lend_once(&owner)) {
            (void)tmsg_worker_wait(owner.side.worker, 1);
        } else {
            (void)tmsg_worker_progress(owner.side.worker);
        }
        if (turns++ % 64 == 0) {
            tell_counts(&owner);
        }
    }
    side_await(&owner.side, has_all_back, &owner, "all loans to come back");
    side_close(&owner.side);
    (void)memory_files(getpid(), &files);
    must_eq(files, BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++) {
        must(tmsg_shareable_free(owner.lent[i].bytes));
    }
    (void)memory_files(getpid(), &files);
    must_eq(files, 0);
}

/* The bytes of a process that are in memory, all and those of files. */
static uint64_t resident(pid_t pid)
{
    char path[64], line[256];
    uint64_t kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    file = fopen(path, "r");
    must_true(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmRSS: %" SCNu64, &kib);
    }
    fclose(file);
    return kib * 1024;
}

/* A slice of the soak: its processes. */
typedef struct {
    task_t task;
    uint64_t dice;
    bool small;
    pid_t owner;
    task_t borrower_tasks[BORROWERS];
    pid_t borrowers[BORROWERS];
} slice_t;

static uint64_t next_seed(slice_t *slice) { return ++slice->task.seed; }

static void start_owner(slice_t *slice)
{
    task_t task = slice->task;

    task.seed = next_seed(slice);
    task.is_patient = !slice->small;
    slice->owner = process_start(own, &task);
}

static void start_borrower(slice_t *slice, unsigned i)
{
    slice->borrower_tasks[i].seed = next_seed(slice);
    slice->borrowers[i] = process_start(borrow, &slice->borrower_tasks[i]);
}

/* Waits until a number is that large. */
static void await_number(const _Atomic uint64_t *number, uint64_t least,
                         const char *what)
{
    const uint64_t end = now_ms() + 2 * PEERS_BOUND_MS;

    while (*number < least) {
        must_eq(waitpid(-1, NULL, WNOHANG), 0); /* nobody died by himself */
        if (now_ms() > end) {
            die("waited too long for %s: %" PRIu64 " of %" PRIu64, what,
                (uint64_t)*number, least);
        }
        pause_us(1000);
    }
}

/* Looks for files in a folder, which are none but those that UCX leaves of a
 * process that is killed just while it connects
 * (docs/how-to/nothing-arrives.md). Returns the number of these. */
static unsigned must_be_empty(const char *path)
{
    static const char left_by_ucx[] = "ucx_shm_posix_";
    DIR *folder = opendir(path);
    struct dirent *entry;
    unsigned count = 0;

    must_true(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, left_by_ucx, strlen(left_by_ucx)) == 0) {
            count++;
        } else if (entry->d_name[0] != '.') {
            die("%s/%s is left", path, entry->d_name);
        }
    }
    closedir(folder);
    return count;
}

/* All borrowers look at what they hold, and die. The owner gets everything
 * back, and ends in order. */
static void end_slice(slice_t *slice, const char *what)
{
    shared_t *shared = slice->task.shared;
    int status;

    shared->phase = RESTS;
    await_number(&shared->resting, BORROWERS, "borrowers at rest");
    for (int i = 0; i < BORROWERS; i++) {
        process_kill(&slice->borrowers[i]);
    }
    shared->phase = ENDS;
    must_eq(waitpid(slice->owner, &status, 0), slice->owner);
    must_eq(status, 0);
    printf("%s; %" PRIu64 " loans and %" PRIu64 " other messages came, %" PRIu64
           " sends failed; views were checked %" PRIu64 " times, %" PRIu64
           " after the owner's death; a borrower hung up %" PRIu64
           " times; memory came back %" PRIu64 " times; at most %" PRIu64
           " loans and %" PRIu64 " copies were out\n",
           what, shared->lent, shared->others, shared->unsent, shared->checks,
           shared->outlived, shared->hung_up, shared->released,
           shared->most_loans, shared->most_copies);
    must_true(shared->lent > 0);
    must_eq(shared->copies * (uint64_t)!slice->small, 0);
}

static void start_all(slice_t *slice, unsigned keepers)
{
    start_owner(slice);
    for (unsigned i = 0; i < BORROWERS; i++) {
        slice->borrower_tasks[i] = slice->task;
        slice->borrower_tasks[i].most = i < keepers ? KEPT : HELD;
        slice->borrower_tasks[i].keeps = i < keepers;
        slice->borrower_tasks[i].hangs_up = keepers == 0;
        start_borrower(slice, i);
    }
}

/* Owners and borrowers die by turns. */
static void strike(slice_t *slice)
{
    shared_t *shared = slice->task.shared;
    unsigned strikes = slice->small ? 2 : STRIKES;
    char what[64];

    start_all(slice, 0);
    for (unsigned i = 0; i < 2 * strikes; i++) {
        unsigned who = (unsigned)(sample_random(&slice->dice) % BORROWERS);

        await_number(&shared->lent, shared->lent + 1, "loans");
        pause_us(sample_random(&slice->dice) % 60000);
        if (i % 2 == 0) {
            process_kill(&slice->owner);
            start_owner(slice);
        } else {
            process_kill(&slice->borrowers[who]);
            start_borrower(slice, who);
        }
    }
    await_number(&shared->lent, shared->lent + 100, "loans");
    snprintf(what, sizeof(what), "%u owners and %u borrowers killed", strikes,
             strikes);
    end_slice(slice, what);
    must_true(shared->outlived > 0);
}

static void kill_one_that_holds(slice_t *slice)
{
    shared_t *shared = slice->task.shared;
    task_t task = slice->task;
    pid_t victim;

    task.seed = next_seed(slice);
    task.most = VICTIM_KEEPS;
    task.keeps = task.is_victim = true;
    shared->victim_holds = 0;
    victim = process_start(borrow, &task);
    await_number(&shared->victim_holds,
                 1 + sample_random(&slice->dice) % (VICTIM_KEEPS / 2),
                 "what a victim holds");
    process_kill(&victim);
}

/* Borrowers die while they hold, beside some that live. */
static void keep(slice_t *slice)
{
    shared_t *shared = slice->task.shared;
    unsigned victims = slice->small ? 2 : VICTIMS, files, most_files = 0;
    uint64_t more = slice->small ? MORE / 10 : MORE;
    uint64_t most_bytes = 0, first = 0, last = 0;
    char what[256];

    start_all(slice, 2);
    for (unsigned i = 0; i < victims; i++) {
        uint64_t bytes;

        kill_one_that_holds(slice);
        await_number(&shared->lent, shared->lent + more, "more loans");
        bytes = memory_files(slice->owner, &files);
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
        most_files = files > most_files ? files : most_files;
        must_true(bytes <= BLOCKS * MOST + COPIES_BYTES);
        last = resident(slice->owner);
        first = i == 1 ? last : first;
    }
    snprintf(what, sizeof(what),
             "%u borrowers killed while they held: the owner had %u files of "
             "%" PRIu64 " MiB at most, and in memory %" PRIu64 " MiB and then "
             "%" PRIu64,
             victims, most_files, most_bytes >> 20, first >> 20, last >> 20);
    if (!is_slow()) { /* a sanitizer keeps what is freed */
        must_true(last <= first + GROWTH);
    }
    end_slice(slice, what);
}

static void put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);

    if (fd >= 0) { /* not in all kernels */
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

/* Gives this process folders of its own. False: that is barred here, or the
 * program and what it loads may lie in one of them. */
static bool part_folders(void)
{
    unsigned user = getuid(), group = getgid();
    char text[64] = "";

    if (readlink("/proc/self/exe", text, sizeof(text)) < 0 ||
        strncmp(text, "/tmp/", 5) == 0 ||
        unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    put_text("/proc/self/setgroups", "deny");
    snprintf(text, sizeof(text), "%u %u 1", user, user);
    put_text("/proc/self/uid_map", text);
    snprintf(text, sizeof(text), "%u %u 1", group, group);
    put_text("/proc/self/gid_map", text);
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0 &&
           mount("none", "/tmp", "tmpfs", 0, NULL) == 0;
}

typedef struct {
    uint64_t number, seed;
    bool small;
} order_t;

static void run_slice(void *arg)
{
    const order_t *order = arg;
    bool parted = part_folders();
    slice_t slice = {.dice = order->seed + order->number * 100000,
                     .small = order->small};

    slice.task.seed = slice.dice;
    snprintf(slice.task.url, sizeof(slice.task.url), "unix:///tmp/loans-%d",
             getpid());
    slice.task.shared =
        mmap(NULL, sizeof(*slice.task.shared), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must_true(slice.task.shared != MAP_FAILED);
    if (order->number < STRIKE_SLICES) {
        strike(&slice);
    } else {
        keep(&slice);
    }
    if (!parted) {
        printf("no folders of its own: what is left was not looked for\n");
        return;
    }
    printf("no file is left, but %u of UCX's\n",
           must_be_empty("/dev/shm") + must_be_empty("/tmp"));
}

int main(void)
{
    const char *name = "loans";
    order_t order = {.seed = soak_seed(),
                     .small = getenv("TMSG_LOANS") != NULL};

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (order.number = order.small ? 0 : soak_place(name);
         order.number < STRIKE_SLICES + KEEP_SLICES;
         order.number += order.small ? STRIKE_SLICES : 1) {
        int status;

        must_true(waitpid(process_start(run_slice, &order), &status, 0) > 0);
        must_eq(status, 0);
        if (!order.small) {
            soak_keep(name, order.number + 1);
        }
    }
    if (!order.small) {
        soak_keep(name, 0);
    }
    return 0;
}
