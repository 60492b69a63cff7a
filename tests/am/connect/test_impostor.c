/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: twice in soak */
/* Peers that say they are another process, and that a word of theirs lies where
 * that process has something else. Nothing is read there, for by what became of
 * it a peer would learn what stands there: the connection works without. Each
 * liar is a child that knows what stands in its parent's memory, so that what
 * it says would be found. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "am/endpoint/lease.h"
#include "am/path/cma.h"
#include "core/bytes.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define LARGE ((size_t)1 << 20)
#define MIDDLE ((size_t)300 << 10) /* which is read where that is possible */

static const uint8_t secret[TMSG_LEASE_WORD_BYTES] = "what stands here";

/* What this process lies about. */
static struct {
    uint32_t pid;      /* 0: nothing */
    bool of_secret;    /* its word is the secret, and lies there */
    uint8_t wrong_bit; /* of what it says of the secret */
} lie;

/* What the kernel says of the other end of Unix sockets; 0: the truth. */
static pid_t kernel_says;
static bool kernel_says_nothing;

/* Reads of memory of this process, or of another's, by this process. */
static unsigned reads;

tmsg_status_t __real_tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told);
tmsg_status_t __wrap_tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told);

tmsg_status_t __wrap_tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told)
{
    tmsg_status_t status = __real_tmsg_lease_grant(endpoint, told);

    if (lie.of_secret) {
        tmsg_put_le(told, (uintptr_t)secret, 8);
        memcpy(told + 8, secret, sizeof(secret));
        told[8] ^= lie.wrong_bit;
    }
    return status;
}

tmsg_status_t __real_tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                       size_t capacity, size_t *bytes_p);
tmsg_status_t __wrap_tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                       size_t capacity, size_t *bytes_p);

tmsg_status_t __wrap_tmsg_hello_encode(const tmsg_hello_t *hello, void *buffer,
                                       size_t capacity, size_t *bytes_p)
{
    tmsg_hello_t told = *hello;

    told.pid = lie.pid != 0 ? lie.pid : told.pid;
    return __real_tmsg_hello_encode(&told, buffer, capacity, bytes_p);
}

int __real_getsockopt(int fd, int level, int name, void *value,
                      socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value,
                      socklen_t *bytes);

int __wrap_getsockopt(int fd, int level, int name, void *value,
                      socklen_t *bytes)
{
    int rc = __real_getsockopt(fd, level, name, value, bytes);

    if (rc == 0 && level == SOL_SOCKET && name == SO_PEERCRED &&
        (kernel_says != 0 || kernel_says_nothing)) {
        ((struct ucred *)value)->pid = kernel_says;
    }
    return rc;
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here,
                                unsigned long count, const struct iovec *there,
                                unsigned long there_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here,
                                unsigned long count, const struct iovec *there,
                                unsigned long there_count, unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here,
                                unsigned long count, const struct iovec *there,
                                unsigned long there_count, unsigned long flags)
{
    reads++;
    return __real_process_vm_readv(pid, here, count, there, there_count, flags);
}

static void send_one(side_t *side, tmsg_endpoint_t *endpoint, size_t bytes)
{
    must(side_finish(
        side, send_map(endpoint, sample_bytes(bytes, bytes), TMSG_SEND_ACKED)));
}

static void take_one(side_t *side, size_t bytes)
{
    tmsg_message_t *message = side_take(side);

    sample_check_bytes(bytes, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void expect_reads(const tmsg_endpoint_t *endpoint, const char *words)
{
    char *json, wanted[128];

    snprintf(wanted, sizeof(wanted), "\"reads\":\t\"%s", words);
    must(tmsg_endpoint_describe(endpoint, &json));
    if (strstr(json, wanted) == NULL) {
        snprintf(wanted, sizeof(wanted), "\"reads\":\"%s", words);
    }
    must_say(json, wanted);
    tmsg_string_free(json);
}

typedef struct {
    link_t link;
    bool lies;    /* of who it is */
    bool guesses; /* of what stands in the secret's place; and not rightly */
} visit_t;

static void visit(pipes_t *pipes, void *arg)
{
    const visit_t *how = arg;
    const side_options_t options = {.ucx_config = link_config(how->link)};
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    lie.of_secret = how->lies || how->guesses;
    lie.wrong_bit = how->guesses ? 1 : 0;
    lie.pid = how->lies ? (uint32_t)getppid() : 0;
    if (how->lies) { /* else UCX's address tells the process, too */
        setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
    }
    side_open(&side, &options);
    if (how->link == LINK_BLOB) {
        tmsg_request_t *ready;

        endpoint = blob_connect(&side, pipes->in);
        must(tmsg_endpoint_ready(endpoint, &ready));
        must(side_finish(&side, ready));
    } else {
        line_get(pipes->in, url, sizeof(url));
        endpoint = side_connect(&side, url);
    }
    if (how->guesses) {
        if (how->link != LINK_BLOB) { /* by which nobody is told */
            must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
        }
        line_get(pipes->in, url, sizeof(url));
        side_close(&side);
        return;
    }
    send_one(&side, endpoint, 10);
    send_one(&side, endpoint, MIDDLE);
    send_one(&side, endpoint, LARGE);
    take_one(&side, MIDDLE);
    take_one(&side, LARGE);
    line_put(pipes->out, "done");
    line_get(pipes->in, url, sizeof(url));
    side_close(&side);
}

/* Takes the visitor's messages, and sends it some. */
static void exchange(side_t *side, tmsg_endpoint_t *endpoint)
{
    take_one(side, 10);
    take_one(side, MIDDLE);
    take_one(side, LARGE);
    send_one(side, endpoint, MIDDLE);
    send_one(side, endpoint, LARGE);
}

static void meet(visit_t how, const char *words)
{
    const side_options_t options = {.ucx_config = link_config(how.link)};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    child_start(&child, visit, &how);
    side_open(&side, &options);
    side_listen_link(&side, how.link);
    if (how.link == LINK_BLOB) {
        blob_put(child.out, side.listener);
    } else {
        line_put(child.out, tmsg_listener_url(side.listener));
    }
    endpoint = side_accept(&side);
    if (how.guesses) {
        must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
        must_say(tmsg_endpoint_error(endpoint), words);
        must_eq(reads, 1);
        line_put(child.out, "end");
    } else {
        exchange(&side, endpoint);
        child_await(&side, &child);
        expect_reads(endpoint, words);
        cr_expect(eq(int, reads > 0, strcmp(words, "yes") == 0));
        line_put(child.out, "end");
    }
    child_join(&child);
    side_close(&side);
}

#define OTHER "none: the kernel names another process"

Test(impostor, none_is_who_tells_the_truth)
{
    meet((visit_t){.link = LINK_SHM}, "yes");
}

Test(impostor, none_is_who_tells_the_truth_unix)
{
    meet((visit_t){.link = LINK_UNIX}, "yes");
}

Test(impostor, none_is_who_tells_the_truth_by_blob)
{
    meet((visit_t){.link = LINK_BLOB}, "yes");
}

Test(impostor, has_nothing_read_over_tcp)
{
    meet((visit_t){.link = LINK_SHM, .lies = true}, OTHER);
}

Test(impostor, has_nothing_read_over_unix)
{
    meet((visit_t){.link = LINK_UNIX, .lies = true}, OTHER);
}

Test(impostor, has_nothing_read_by_blob)
{
    meet((visit_t){.link = LINK_BLOB, .lies = true},
         "none: the peer says that it is in this process");
}

/* A peer that says who it is, and what does not stand in its memory. */
Test(impostor, loses_its_connection_by_a_wrong_guess)
{
    meet((visit_t){.link = LINK_SHM, .guesses = true}, "lease is not where");
}

Test(impostor, loses_its_connection_by_a_wrong_guess_by_blob)
{
    meet((visit_t){.link = LINK_BLOB, .guesses = true}, "lease is not where");
}

/* As from another pid namespace. */
Test(impostor, may_be_who_the_kernel_does_not_name)
{
    kernel_says_nothing = true;
    meet((visit_t){.link = LINK_UNIX}, "none: the kernel names no process");
}

/* As where one process listens for another, or passes a connection on. */
Test(impostor, may_be_whose_socket_is_of_another)
{
    kernel_says = 1;
    meet((visit_t){.link = LINK_UNIX}, OTHER);
}

/* Two sides of one process read each other's memory, however they meet. */
static void meets_itself(link_t link)
{
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    pair_await(&pair, endpoint_is_read, pair.to_a, "a peer that reads");
    pair_await(&pair, endpoint_is_read, pair.to_b, "a peer that reads");
    expect_reads(pair.to_a, "yes");
    pair_close(&pair);
}

Test(impostor, is_not_a_process_itself) { meets_itself(LINK_SHM); }
Test(impostor, is_not_a_process_itself_unix) { meets_itself(LINK_UNIX); }
Test(impostor, is_not_a_process_itself_by_blob) { meets_itself(LINK_BLOB); }
