/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/async_thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucs/async/async_fwd.h>
#include <unistd.h>

#include "core/error.h"
#include "core/thread.h"

#define EVENTS_MOST 16
#define NUMBERS_MOST 65536 /* numbers of descriptors that are tried */

/* Functions that libucs exports, and no installed header declares. */
typedef void (*init_fn)(void);
typedef ucs_status_t (*dispatch_fn)(int *ids, size_t count,
                                    ucs_event_set_types_t events);

static int set = -1;    /* of UCX's thread; -1: not found */
static int member = -1; /* a descriptor in it that is ours */
static ino_t inode;     /* of `member`: it has not been closed and reused */
static bool running;    /* our thread is there */
static dispatch_fn dispatch;

static void ignore(int id, ucs_event_set_types_t events, void *arg)
{
    (void)id;
    (void)events;
    (void)arg;
}

/* Makes a socket that nothing ever comes to. Unlike an eventfd, it has an inode
 * of its own. */
static void make_member(void)
{
    struct stat made;

    member = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    inode = member >= 0 && fstat(member, &made) == 0 ? made.st_ino : 0;
}

static bool is_ours(void)
{
    struct stat now;

    return fstat(member, &now) == 0 && S_ISSOCK(now.st_mode) &&
           now.st_ino == inode;
}

/* Asks whether `member` is in a set, by setting there what is set anyway. The
 * number may be any descriptor's, of which other threads make use meanwhile.
 * That does them no harm, so ThreadSanitizer is not told of the call. */
static bool has_member(int number)
{
    struct epoll_event event = {.events = EPOLLIN,
                                .data.ptr = (void *)(uintptr_t)member};

    return number >= 0 && number != member && is_ours() &&
           syscall(SYS_epoll_ctl, number, EPOLL_CTL_MOD, member, &event) == 0;
}

static int find_set(void)
{
    int number = 0;

    if (has_member(set)) {
        return set;
    }
    while (number < NUMBERS_MOST && !has_member(number)) {
        number++;
    }
    return number < NUMBERS_MOST ? number : -1;
}

void tmsg_async_thread_hold(void)
{
    make_member();
    if (member >= 0 &&
        ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD_SPINLOCK, member,
                                    UCS_EVENT_SET_EVREAD, ignore, NULL,
                                    NULL) != UCS_OK) {
        close(member);
        member = -1;
    }
    set = member >= 0 ? find_set() : -1;
}

void tmsg_async_thread_drop(void)
{
    if (member >= 0) {
        ucs_async_remove_handler(member, 1);
        close(member);
        member = -1;
    }
}

static void *symbol_of(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* Returns whether `set` is a new one, with a new member. The number stays. */
static bool renew_set(void)
{
    int fresh = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    bool done = fresh >= 0 && dup3(fresh, set, O_CLOEXEC) == set;

    if (fresh >= 0) {
        close(fresh);
    }
    close(member);
    make_member();
    event.data.ptr = (void *)(uintptr_t)member;
    return done && member >= 0 &&
           epoll_ctl(set, EPOLL_CTL_ADD, member, &event) == 0;
}

const char *tmsg_async_thread_renew(void)
{
    void *init = symbol_of("ucs_async_global_init");
    void *dispatcher = symbol_of("ucs_async_dispatch_handlers");
    init_fn make_table;

    running = false;
    if (set >= 0 && !has_member(set)) { /* the numbers may be in use again */
        return "it has closed descriptors of UCX";
    }
    if (set < 0 || init == NULL || dispatcher == NULL || !renew_set()) {
        return "this UCX cannot replace it";
    }
    memcpy(&make_table, &init, sizeof(init));
    memcpy(&dispatch, &dispatcher, sizeof(dispatcher));
    make_table();
    return NULL;
}

static ucs_event_set_types_t types_of(uint32_t events)
{
    return (
        ucs_event_set_types_t)((events & EPOLLIN ? UCS_EVENT_SET_EVREAD : 0) |
                               (events & EPOLLOUT ? UCS_EVENT_SET_EVWRITE : 0) |
                               (events & EPOLLERR ? UCS_EVENT_SET_EVERR : 0));
}

/* Does what UCX's thread does, except for timers, which only transports by RDMA
 * set (UD, DC). It ends when the program closes the set. */
static void *serve(void *arg)
{
    struct epoll_event events[EVENTS_MOST];
    int count;

    do {
        bool missed = false;

        count = epoll_wait(set, events, EVENTS_MOST, -1);
        for (int i = 0; i < count; i++) {
            int id = (int)(uintptr_t)events[i].data.ptr;

            missed |= dispatch(&id, 1, types_of(events[i].events)) ==
                      UCS_ERR_NO_PROGRESS;
        }
        if (missed) { /* another thread has the worker */
            sched_yield();
        }
    } while (count >= 0 || errno == EINTR);
    return arg;
}

tmsg_status_t tmsg_async_thread_start(void)
{
    int error;

    if (!has_member(set)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "this process, which was forked, has closed "
                              "descriptors of UCX");
    }
    if (running) {
        return TMSG_OK;
    }
    error = tmsg_thread_detach(serve, NULL);
    if (error != 0) {
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO, "a thread for UCX");
    }
    running = true;
    return TMSG_OK;
}
