/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/peer.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "am/net/sock.h"

/* Linux 6.5 has it; the number is that of most architectures. */
#if !defined(SO_PEERPIDFD) && !defined(__sparc__) && !defined(__hppa__)
#define SO_PEERPIDFD 77
#endif

#define ANSWER_BYTES 1024

static const char other_process[] =
    "the kernel names another process at the other end of the socket than the "
    "peer does, as behind a proxy, or where one process listens for another";

/* Returns whether the process that the kernel named has ended, so that its
 * number may be another's by now. Older kernels cannot tell. */
static bool has_ended(int fd)
{
    bool ended = false;
#ifdef SO_PEERPIDFD
    struct pollfd process = {.fd = -1, .events = POLLIN};
    socklen_t bytes = sizeof(process.fd);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process.fd, &bytes) == 0) {
        ended = poll(&process, 1, 0) > 0 && process.revents != 0;
        close(process.fd);
    } else { /* before Linux 6.16 there is none of one that is gone */
        ended = errno == ESRCH || errno == EINVAL;
    }
#else
    (void)fd;
#endif
    return ended;
}

/* Asks the kernel who opened the other end of a Unix socket. */
static bool get_opener(int fd, struct ucred *peer_p)
{
    socklen_t bytes = sizeof(*peer_p);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer_p, &bytes) == 0;
}

bool tmsg_peer_is_user(int fd, uint32_t uid)
{
    struct ucred peer;

    return get_opener(fd, &peer) && peer.uid == uid;
}

int tmsg_peer_process(int fd, uint32_t *pid_p)
{
    struct ucred peer;
#ifdef SO_PEERPIDFD
    int process = -1;
    socklen_t bytes = sizeof(process);
#endif

    if (!get_opener(fd, &peer)) {
        return -1;
    }
    *pid_p = (uint32_t)peer.pid;
#ifdef SO_PEERPIDFD
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &bytes) == 0) {
        return process;
    }
#endif
    if (peer.pid <= 0) {
        errno = ESRCH;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

static const char *doubt_unix(int fd, const tmsg_peer_claim_t *claim)
{
    struct ucred peer;

    if (!get_opener(fd, &peer) || peer.pid <= 0) {
        return "the kernel names no process at the other end of the socket, as "
               "from another pid namespace";
    }
    if ((uint32_t)peer.pid != claim->pid || peer.uid != claim->uid) {
        return other_process;
    }
    return has_ended(fd) ? "the process that opened the other end of the "
                           "socket has ended"
                         : NULL;
}

typedef struct {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
} question_t;

static void set_end(const tmsg_address_t *address, __be32 *ip, __be16 *port)
{
    if (address->sa.any.sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 =
            (const struct sockaddr_in6 *)&address->sa.storage;

        memcpy(ip, &in6->sin6_addr, sizeof(in6->sin6_addr));
        *port = in6->sin6_port;
    } else {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)&address->sa.storage;

        memcpy(ip, &in->sin_addr, sizeof(in->sin_addr));
        *port = in->sin_port;
    }
}

/* Writes the question for the socket whose own end is the peer's. False: it is
 * no TCP socket. */
static bool ask_for(int fd, question_t *question)
{
    struct inet_diag_sockid *id = &question->body.id;
    tmsg_address_t local, peer;

    if (tmsg_sock_local(fd, &local) != TMSG_OK ||
        tmsg_sock_peer(fd, &peer) != TMSG_OK ||
        local.sa.any.sa_family != peer.sa.any.sa_family ||
        (peer.sa.any.sa_family != AF_INET &&
         peer.sa.any.sa_family != AF_INET6)) {
        return false;
    }
    *question = (question_t){
        .head = {.nlmsg_len = sizeof(*question),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)peer.sa.any.sa_family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    set_end(&peer, id->idiag_src, &id->idiag_sport);
    set_end(&local, id->idiag_dst, &id->idiag_dport);
    if (peer.sa.any.sa_family == AF_INET6) {
        id->idiag_if =
            ((const struct sockaddr_in6 *)&peer.sa.storage)->sin6_scope_id;
    }
    return true;
}

/* Returns whether what was found is connected to this end. Where there is no
 * such socket, the kernel answers with one that listens at that port. */
static bool is_connected_to(const struct inet_diag_msg *found,
                            const question_t *question)
{
    const struct inet_diag_sockid *wanted = &question->body.id;

    return found->idiag_state != TCP_LISTEN &&
           found->id.idiag_sport == wanted->idiag_sport &&
           found->id.idiag_dport == wanted->idiag_dport;
}

/* Asks the kernel for the socket at the other end, which answers at once.
 * False: it does not tell, as without the module tcp_diag. */
static bool find_other_end(int fd, struct inet_diag_msg *found_p)
{
    _Alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
    const struct nlmsghdr *head = (const void *)answer;
    question_t question;
    ssize_t bytes = -1;
    int diag;

    if (!ask_for(fd, &question)) {
        return false;
    }
    diag = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (diag < 0) {
        return false;
    }
    if (send(diag, &question, sizeof(question), 0) ==
        (ssize_t)sizeof(question)) {
        bytes = recv(diag, answer, sizeof(answer), MSG_DONTWAIT);
    }
    close(diag);
    if (bytes < (ssize_t)NLMSG_LENGTH(sizeof(*found_p)) ||
        head->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
        return false;
    }
    memcpy(found_p, NLMSG_DATA(head), sizeof(*found_p));
    return found_p->idiag_inode != 0 && is_connected_to(found_p, &question);
}

static bool holds_socket(const tmsg_peer_claim_t *claim, uint32_t inode)
{
    char path[64], wanted[64], found[64];
    ssize_t bytes;

    snprintf(path, sizeof(path), "/proc/%u/fd/%u", claim->pid,
             claim->descriptor - 1);
    snprintf(wanted, sizeof(wanted), "socket:[%u]", inode);
    bytes = readlink(path, found, sizeof(found));
    return bytes == (ssize_t)strlen(wanted) &&
           memcmp(found, wanted, (size_t)bytes) == 0;
}

static const char *doubt_tcp(int fd, const tmsg_peer_claim_t *claim)
{
    struct inet_diag_msg other;

    if (claim->descriptor == 0) {
        return "the peer is of an older version, and does not tell its "
               "descriptor of the socket";
    }
    if (!find_other_end(fd, &other)) {
        return "the kernel does not tell whose the other end of the socket is";
    }
    return other.idiag_uid == claim->uid &&
                   holds_socket(claim, other.idiag_inode)
               ? NULL
               : other_process;
}

const char *tmsg_peer_doubt(int fd, const tmsg_peer_claim_t *claim)
{
    int family = 0;
    socklen_t bytes = sizeof(family);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 &&
                   family == AF_UNIX
               ? doubt_unix(fd, claim)
               : doubt_tcp(fd, claim);
}
