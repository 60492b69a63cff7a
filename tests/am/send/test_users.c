/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of one machine whose memory Linux does not open to each other, so
 * that UCX's shared memory fails. By a tcp:// URL or a blob they are connected
 * over TCP; a unix:// URL refuses them, and the error says why. Processes of
 * other namespaces are in test_namespaces.c. */
#include <criterion/criterion.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/breaking_relay.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/unshared_peer.h"

#define LARGE ((size_t)1 << 20)
#define SHUT_MESSAGES 64
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static void other_user(pipes_t *pipes, void *arg)
{
    char url[256];
    tmsg_endpoint_t *endpoint;
    side_t side;

    (void)arg;
    stranger_change_user();
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    stranger_send(&side, side_connect(&side, url));
    line_get(pipes->in, url, sizeof(url));
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must_be(side_end_of(&side, endpoint), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_endpoint_error(endpoint), "other user");
    side_close(&side);
    line_put(pipes->out, "done");
}

Test(users, another_user_is_met_by_tcp_or_refused_by_name)
{
    char url[256];
    child_t child;
    side_t side;

    if (geteuid() != 0) {
        cr_skip_test("only root can become another user");
    }
    child_start(&child, other_user, NULL);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    line_put(child.out, tmsg_listener_url(side.listener));
    stranger_take(&side);
    snprintf(url, sizeof(url), "/tmp/tmsg-test-user-%d", (int)getpid());
    unlink(url);
    snprintf(url, sizeof(url), "unix:///tmp/tmsg-test-user-%d", (int)getpid());
    side_listen(&side, url);
    must_eq(chmod(url + 7, 0666), 0);
    line_put(child.out, url);
    child_await(&side, &child);
    side_close(&side);
    child_join(&child);
}

static void other_user_by_blob(pipes_t *pipes, void *arg)
{
    side_t side;

    (void)arg;
    stranger_change_user();
    side_open(&side, NULL);
    stranger_send(&side, blob_connect(&side, pipes->in));
    side_close(&side);
}

/* A blob has an address without shared memory, too. */
Test(users, another_user_is_met_by_tcp_by_blob)
{
    child_t child;
    side_t side;

    if (geteuid() != 0) {
        cr_skip_test("only root can become another user");
    }
    child_start(&child, other_user_by_blob, NULL);
    side_open(&side, NULL);
    side_listen(&side, "blob://");
    blob_put(child.out, side.listener);
    stranger_take(&side);
    child_join(&child);
    side_close(&side);
}

/* Linux opens the memory of a user's process to others as ptrace(2) says; to a
 * process that may trace everything, always. */
static bool drop(uint64_t caps)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    bool held = false;

    must_eq(syscall(SYS_capget, &head, data), 0);
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        held = held || data[i].permitted & (uint32_t)(caps >> 32 * i);
        data[i].effective &= ~(uint32_t)(caps >> 32 * i);
        data[i].permitted &= ~(uint32_t)(caps >> 32 * i);
    }
    must_eq(syscall(SYS_capset, &head, data), 0);
    return held;
}

static void be_less_capable(void)
{
    must_true(drop(UINT64_C(1) << CAP_CHOWN)); /* root's in containers, too */
}

static void be_shut(void) { must_eq(prctl(PR_SET_DUMPABLE, 0), 0); }

static void be_of_another_group(void) { must_eq(setgid(65534), 0); }

/* The process stays dumpable, and Linux compares all three group ids. */
static void be_of_two_groups(void) { must_eq(setresgid(65534, -1, -1), 0); }

static const struct {
    void (*become)(void);
    bool by_root;
    const char *why;
} strangers[] = {
    {be_less_capable, true,
     "capabilities of one that are not effective in the other"},
    {be_shut, false, "one cannot read the other's memory"},
    {be_of_another_group, true, "other group"},
    {be_of_two_groups, true, "one cannot read the other's memory"}};

static void stranger_of_same_user(pipes_t *pipes, void *arg)
{
    size_t i = *(size_t *)arg;
    char url[256], *json;
    tmsg_endpoint_t *endpoint;
    side_t side;

    strangers[i].become();
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, strangers[i].why);
    tmsg_string_free(json);
    stranger_send(&side, endpoint);
    stranger_send(&side, blob_connect(&side, pipes->in));
    line_get(pipes->in, url, sizeof(url));
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must_be(side_end_of(&side, endpoint), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_endpoint_error(endpoint), strangers[i].why);
    side_close(&side);
    line_put(pipes->out, "done");
}

static void meet_stranger(size_t i)
{
    char url[256];
    child_t child;
    side_t side;

    child_start(&child, stranger_of_same_user, &i);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    line_put(child.out, tmsg_listener_url(side.listener));
    stranger_take(&side);
    side_listen(&side, "blob://");
    blob_put(child.out, side.listener);
    stranger_take(&side);
    snprintf(url, sizeof(url), "unix:///tmp/tmsg-test-memory-%d",
             (int)getpid());
    side_listen(&side, url);
    line_put(child.out, url);
    child_await(&side, &child);
    side_close(&side);
    child_join(&child);
}

Test(users, who_may_not_open_its_memory_is_met_by_tcp_or_refused_by_name)
{
    drop(UINT64_C(1) << CAP_SYS_PTRACE);
    for (size_t i = 0; i < COUNT(strangers); i++) {
        if (!strangers[i].by_root || geteuid() == 0) {
            meet_stranger(i);
        }
    }
}

/* A process can always open its own memory. */
Test(users, a_process_that_is_shut_shares_memory_with_itself)
{
    static const link_t links[] = {LINK_SHM, LINK_UNIX};
    pair_t pair;

    drop(UINT64_C(1) << CAP_SYS_PTRACE);
    be_shut();
    for (size_t i = 0; i < COUNT(links); i++) {
        pair_open(&pair, links[i], DRIVE_POLLING, NULL, NULL);
        must_true(endpoint_uses(pair.to_a, "posix/"));
        pair_close(&pair);
    }
}

/* UCX meets it by System V's memory, which needs no /proc. */
static void be_shut_to_all(void)
{
    be_shut();
    setenv("UCX_TLS", "sysv,self", 1);
    setenv("UCX_SYSV_ERROR_HANDLING", "y", 1);
}

/* In a Landlock domain of its own a process opens no /proc of others. UCX opens
 * memory by its name instead. */
static void be_in_domain(void)
{
    const struct landlock_ruleset_attr rules = {
        .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_BLOCK};
    int fd =
        (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);

    setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
    if (fd < 0) {
        return; /* the kernel has no such thing */
    }
    must_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    must_eq(syscall(SYS_landlock_restrict_self, fd, 0), 0);
    close(fd);
}

/* By rings and fast boxes. */
static void send_by_shared_memory(side_t *side, tmsg_endpoint_t *endpoint)
{
    char *json;

    for (uint64_t i = 0; i < SHUT_MESSAGES; i++) {
        must(side_finish(
            side, send_map(endpoint, sample_bytes(i, i % 8 == 0 ? LARGE : 64),
                           TMSG_SEND_ACKED)));
    }
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, "\"bulk\":\t\"ring\"");
    must_say(json, "\"fastbox\":\t\"stands\"");
    must_true(strstr(json, "\"sent_by_bulk\":\t0,") == NULL);
    must_true(strstr(json, "\"sent_by_fastbox\":\t0,") == NULL);
    tmsg_string_free(json);
}

static void take_those(side_t *side)
{
    for (uint64_t i = 0; i < SHUT_MESSAGES; i++) {
        tmsg_message_t *message = side_take(side);

        sample_check_bytes(i, i % 8 == 0 ? LARGE : 64,
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void send_from_shut(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    drop(UINT64_C(1) << CAP_SYS_PTRACE);
    (*(void (**)(void))arg)();
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    send_by_shared_memory(&side, endpoint);
    side_close(&side);
    line_put(pipes->out, "done");
}

static void take_behind_proxy(pipes_t *pipes, void *arg)
{
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    take_those(&side);
    side_close(&side);
}

/* A proxy passes no descriptors on, and must get none. So the memory is opened
 * by its number, as of old. */
Test(users, who_is_behind_a_proxy_has_rings_and_fast_boxes)
{
    char url[256];
    relay_t *relay;
    child_t child;
    side_t side;

    child_start(&child, take_behind_proxy, NULL);
    line_get(child.in, url, sizeof(url));
    side_open(&side, NULL);
    relay = relay_open(url);
    send_by_shared_memory(&side, side_connect(&side, relay_url(relay)));
    side_close(&side);
    child_join(&child);
    relay_close(relay);
}

/* Rings and fast boxes come by the socket. */
static void meet_shut(void (*become)(void))
{
    char line[16];
    child_t child;
    side_t side;

    child_start(&child, send_from_shut, &become);
    drop(UINT64_C(1) << CAP_SYS_PTRACE);
    become();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(child.out, tmsg_listener_url(side.listener));
    take_those(&side);
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    side_close(&side);
    child_join(&child);
}

Test(users, who_may_not_open_its_memory_has_rings_and_fast_boxes)
{
    meet_shut(be_shut_to_all);
}

Test(users, who_is_in_another_domain_has_rings_and_fast_boxes)
{
    meet_shut(be_in_domain);
}
