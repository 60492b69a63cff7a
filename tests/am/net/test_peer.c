/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Which process the kernel names at the other end of a socket. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/net/peer.h"
#include "support/must.h"
#include "support/peers.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

typedef struct {
    int dialled, accepted;
} ends_t;

static ends_t connect_to(struct sockaddr *address, socklen_t bytes)
{
    int listener = socket(address->sa_family, SOCK_STREAM, 0);
    ends_t ends = {socket(address->sa_family, SOCK_STREAM, 0), -1};

    must_eq(bind(listener, address, bytes), 0);
    must_eq(getsockname(listener, address, &bytes), 0);
    must_eq(listen(listener, 1), 0);
    must_eq(connect(ends.dialled, address, bytes), 0);
    ends.accepted = accept(listener, NULL, NULL);
    must_true(ends.accepted >= 0);
    close(listener);
    return ends;
}

static ends_t connect_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    return connect_to((struct sockaddr *)&address, sizeof(address));
}

static void end(ends_t ends)
{
    close(ends.dialled);
    close(ends.accepted);
}

static tmsg_peer_claim_t claim_of(int descriptor)
{
    return (tmsg_peer_claim_t){.pid = (uint32_t)getpid(),
                               .uid = geteuid(),
                               .descriptor = (uint32_t)descriptor + 1};
}

static void is_confirmed(int fd, tmsg_peer_claim_t claim)
{
    const char *doubt = tmsg_peer_doubt(fd, &claim);

    must_true(doubt == NULL);
}

static void is_doubted(int fd, tmsg_peer_claim_t claim, const char *words)
{
    const char *doubt = tmsg_peer_doubt(fd, &claim);

    must_true(doubt != NULL);
    must_say(doubt, words);
}

static void confirms_both(ends_t ends)
{
    is_confirmed(ends.accepted, claim_of(ends.dialled));
    is_confirmed(ends.dialled, claim_of(ends.accepted));
    end(ends);
}

Test(peer, of_tcp_is_confirmed) { confirms_both(connect_tcp()); }

Test(peer, of_ipv6_is_confirmed)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        cr_skip_test("no IPv6 here");
    }
    close(fd);
    confirms_both(connect_to((struct sockaddr *)&address, sizeof(address)));
}

Test(peer, that_names_another_process_or_descriptor_is_doubted)
{
    ends_t ends = connect_tcp(), others = connect_tcp();
    tmsg_peer_claim_t claim = claim_of(ends.dialled);

    claim.pid = (uint32_t)getppid();
    is_doubted(ends.accepted, claim, "names another process");
    claim.pid = 0;
    is_doubted(ends.accepted, claim, "names another process");
    claim = claim_of(ends.dialled);
    claim.uid++;
    is_doubted(ends.accepted, claim, "names another process");
    is_doubted(ends.accepted, claim_of(others.dialled), "another process");
    is_doubted(ends.accepted, claim_of(ends.accepted), "another process");
    is_doubted(ends.accepted, claim_of(-1), "of an older version");
    is_doubted(ends.accepted, claim_of(-2), "another process");
    end(others);
    shutdown(ends.dialled, SHUT_RDWR);
    close(ends.dialled);
    is_doubted(ends.accepted, claim_of(ends.dialled), "");
    close(ends.accepted);
}

/* The kernel, asked for a socket that is not there, answers with one that
 * listens at its port. */
Test(peer, is_not_who_listens_at_its_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends_t ends = {socket(AF_INET, SOCK_STREAM, 0), -1};
    int repair = 1;

    must_eq(bind(listener, (struct sockaddr *)&address, bytes), 0);
    must_eq(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    must_eq(listen(listener, 1), 0);
    must_eq(connect(ends.dialled, (struct sockaddr *)&address, bytes), 0);
    ends.accepted = accept(listener, NULL, NULL);
    must_true(ends.accepted >= 0);
    is_confirmed(ends.dialled, claim_of(ends.accepted));
    is_doubted(ends.dialled, claim_of(listener), "another process");
    /* So it goes without a word to the other end. */
    if (setsockopt(ends.accepted, IPPROTO_TCP, TCP_REPAIR, &repair,
                   sizeof(repair)) != 0) {
        cr_skip_test("only an administrator may do this");
    }
    close(ends.accepted);
    is_doubted(ends.dialled, claim_of(listener), "does not tell");
    close(ends.dialled);
    close(listener);
}

/* A pid that another process may have by now. */
Test(peer, of_unix_is_of_its_user_alone)
{
    int pair[2];

    must_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    must_true(tmsg_peer_is_user(pair[0], geteuid()));
    must_true(!tmsg_peer_is_user(pair[0], geteuid() + 1));
    must_true(!tmsg_peer_is_user(-1, geteuid()));
    close(pair[0]);
    close(pair[1]);
}

Test(peer, of_unix_that_has_ended_is_doubted)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    int accepted, pidfd, through[2];
    socklen_t bytes = sizeof(pidfd);
    tmsg_peer_claim_t claim = claim_of(0);
    pid_t keeper, pid;
    bool knows; /* the kernel, since Linux 6.5 */

    snprintf(address.sun_path, sizeof(address.sun_path), "%s",
             scratch_path("peer"));
    must_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    must_eq(listen(listener, 1), 0);
    must_eq(pipe(through), 0);
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) { /* dials, and leaves the socket to a child of its own */
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        must_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        keeper = fork();
        if (keeper == 0) {
            alarm(20);
            pause();
            _exit(0);
        }
        must_eq(write(through[1], &keeper, sizeof(keeper)), sizeof(keeper));
        pause();
        _exit(0);
    }
    accepted = accept(listener, NULL, NULL);
    must_eq(read(through[0], &keeper, sizeof(keeper)), sizeof(keeper));
    claim.pid = (uint32_t)getpid();
    is_doubted(accepted, claim, "names another process");
    claim.pid = (uint32_t)keeper;
    is_doubted(accepted, claim, "names another process");
    claim.pid = (uint32_t)pid;
    is_confirmed(accepted, claim);
    must_eq(kill(pid, SIGKILL), 0);
    must_eq(waitpid(pid, NULL, 0), pid);
    knows =
        getsockopt(accepted, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0 ||
        errno != ENOPROTOOPT;
    if (knows) {
        is_doubted(accepted, claim, "has ended");
    }
    must_eq(kill(keeper, SIGKILL), 0);
    close(accepted);
    close(listener);
}
