/* SPDX-License-Identifier: BSD-3-Clause */
/* A /dev/shm without room: UCX's shared memory is left out, or an error that
 * names the place, at every size, before and after it opens. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "am/ucx/backing.h"
#include "am/ucx/ucx.h"
#include "am/worker/worker.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define SHM "/dev/shm"
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* A /dev/shm of this process's own. */
static void mount_shm(const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("shm", SHM, "tmpfs", 0, options) != 0) {
        cr_skip_test("no leave to mount a small file system");
    }
}

static void take_shm(unsigned kib)
{
    char size[32];

    snprintf(size, sizeof(size), "size=%uk", kib);
    mount_shm(size);
}

static void resize_shm(unsigned kib)
{
    char size[32];

    snprintf(size, sizeof(size), "size=%uk", kib);
    must_eq(mount("shm", SHM, "tmpfs", MS_REMOUNT, size), 0);
}

static unsigned free_kib(void)
{
    struct statvfs room;

    must_eq(statvfs(SHM, &room), 0);
    return (unsigned)(room.f_bavail * room.f_bsize / 1024);
}

/* As another program does. */
static void fill_shm(unsigned leave_kib)
{
    static const char block[4096];
    int fd = open(SHM "/fill", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    must_true(fd >= 0);
    while (free_kib() > leave_kib) {
        must_eq(write(fd, block, sizeof(block)), sizeof(block));
    }
    close(fd);
}

static void converse(pair_t *pair, size_t bytes)
{
    tmsg_request_t *sent = send_map(pair->to_a, sample_bytes(1, bytes), 0);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(1, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

static void must_tell(const tmsg_endpoint_t *endpoint, const char *word)
{
    char *json;

    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, word);
    tmsg_string_free(json);
}

/* About where UCX 1.22 gives its memory up, about where one worker's fits, and
 * two. */
static const unsigned sizes[] = {4,     64,    4224,  4288,  4352,  8448,
                                 8576,  16376, 16384, 16392, 16400, 16408,
                                 16416, 16424, 16432, 16440, 16448, 20480};

Test(backing, tcp_works_at_every_size)
{
    take_shm(64);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        pair_t pair;

        resize_shm(sizes[i]);
        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        converse(&pair, 100000);
        if (sizes[i] < 8576) {
            must_true(endpoint_uses(pair.to_a, "tcp"));
            must_true(!endpoint_uses(pair.to_a, "posix"));
        } else {
            must_true(endpoint_uses(pair.to_a, "posix"));
        }
        if (sizes[i] < 4224) {
            must_tell(pair.to_a, SHM);
            must_tell(pair.to_b, SHM);
        }
        pair_close(&pair);
    }
}

Test(backing, what_needs_it_names_the_place)
{
    char url[256];
    tmsg_listener_t *listener;
    side_t side;

    take_shm(64);
    snprintf(url, sizeof(url), "unix://%s", scratch_path("backing"));
    side_open(&side, NULL);
    must_be(tmsg_listener_create(side.worker, url, NULL, &listener),
            TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), "no room");
    must_say(tmsg_error_message(), SHM ": 64 KiB are free");
    side_close(&side);
}

Test(backing, only_shared_memory_is_an_error_that_names_the_place)
{
    const side_options_t options = {.ucx_config = "TLS=posix,self"};
    tmsg_listener_t *listener;
    side_t side;

    take_shm(16384);
    side_open(&side, &options);
    fill_shm(64);
    must_be(
        tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL, &listener),
        TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), SHM);
    must_say(tmsg_error_message(), "UCX_TLS=posix,self");
    side_close(&side);
}

/* What System V's shared memory is short of is no file system. */
Test(backing, system_v_has_limits_of_its_own)
{
    const side_options_t options = {.ucx_config = "TLS=sysv,self"};
    tmsg_listener_t *listener;
    side_t side;
    int fd;

    if (unshare(CLONE_NEWIPC) != 0) {
        cr_skip_test("no leave to make a namespace");
    }
    fd = open("/proc/sys/kernel/shmmni", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1", 1) != 1) {
        cr_skip_test("no leave to set the limits of a namespace");
    }
    close(fd);
    side_open(&side, &options);
    must_be(
        tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL, &listener),
        TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), "kernel.shmmni");
    side_close(&side);
}

/* By any name that UCX takes it by; up to 1.13 there is no danger. */
Test(backing, an_allocation_that_crashes_is_refused)
{
    unsigned major, minor, patch;
    tmsg_listener_t *listener;
    side_t side;

    setenv("UCX_SM_ALLOC", "md,mmap,heap", 1);
    ucp_get_version(&major, &minor, &patch);
    side_open(&side, NULL);
    if (minor < 17) {
        must(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL,
                                  &listener));
    } else {
        must_be(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL,
                                     &listener),
                TMSG_ERR_UNSUPPORTED);
        must_say(tmsg_error_message(), "UCX_POSIX_ALLOC=md,mmap,heap");
    }
    side_close(&side);
}

static tmsg_ucx_keys_t keys_of(const char *config)
{
    const tmsg_ucx_given_t given = {.code = config};
    const tmsg_ucx_scope_t loopback = {.device = "lo"};
    tmsg_ucx_keys_t keys;

    must(tmsg_ucx_config_resolve(&given, &loopback, &keys));
    return keys;
}

/* Numbers whose sums and products would be more than 64 bits hold. */
Test(backing, no_number_is_too_large_to_reckon_with)
{
    static const char *const queues[] = {
        "POSIX_FIFO_SIZE=16777216", "POSIX_FIFO_SIZE=18446744073709551615",
        "POSIX_FIFO_SIZE=9223372036854775808", "MM_FIFO_SIZE=-1",
        "POSIX_FIFO_SIZE=18446744073709551615;"
        "POSIX_RX_BUFS_GROW=18446744073709551615"};
    static const char *const pools[] = {"POSIX_RX_BUFS_GROW=16777216",
                                        "MM_RX_BUFS_GROW=18446744073709551615",
                                        "POSIX_RX_BUFS_GROW=2199023255552"};
    const uint64_t most = UINT64_C(1) << 24, least = most * 8256;

    for (size_t i = 0; i < COUNT(queues); i++) {
        const tmsg_ucx_keys_t keys = keys_of(queues[i]);

        must_eq(tmsg_backing_pool(&keys).queued, 1 + most);
        must_true(tmsg_backing_needs(&keys) > least);
        must_true(tmsg_backing_needs(&keys) < 4 * least);
    }
    for (size_t i = 0; i < COUNT(pools); i++) {
        const tmsg_ucx_keys_t keys = keys_of(pools[i]);

        must_eq(tmsg_backing_pool(&keys).grows, most);
        must_true(tmsg_backing_needs(&keys) > least);
        must_true(tmsg_backing_needs(&keys) < 4 * least);
    }
}

/* Room that is there again is used by the next connection. */
Test(backing, shared_memory_comes_back_with_room)
{
    tmsg_endpoint_t *again;
    pair_t pair;

    take_shm(64);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(!endpoint_uses(pair.to_a, "posix"));
    resize_shm(32768);
    again = side_dial(&pair.b, &pair.a);
    while (tmsg_endpoint_status(again) == TMSG_IN_PROGRESS) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must(tmsg_endpoint_status(again));
    must_true(endpoint_uses(again, "posix"));
    converse(&pair, 1000);
    tmsg_endpoint_destroy(again);
    pair_drop(&pair);
}

static bool is_open(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) != TMSG_IN_PROGRESS;
}

static void hang_up(pair_t *pair, tmsg_endpoint_t *dialled,
                    tmsg_endpoint_t *accepted)
{
    tmsg_request_t *closed;

    must(tmsg_endpoint_close(dialled, &closed));
    must(pair_finish(pair, closed));
    must_be(pair_end_of(pair, accepted), TMSG_ERR_CLOSED);
    tmsg_endpoint_destroy(dialled);
    tmsg_endpoint_destroy(accepted);
}

static void redial(pair_t *pair, const char *transport)
{
    tmsg_endpoint_t *again = side_dial(&pair->b, &pair->a);
    unsigned accepts = pair->a.accepts;

    pair_await(pair, is_open, again, "another connection");
    must(tmsg_endpoint_status(again));
    must_true(endpoint_uses(again, transport));
    if (strcmp(transport, "posix") != 0) {
        must_true(!endpoint_uses(again, "posix"));
    }
    while (pair->a.accepts == accepts) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    hang_up(pair, again, pair->a.accepted);
}

static unsigned count_ucx(const side_t *side)
{
    unsigned count = 0;

    for (const tmsg_ucx_t *ucx = side->worker->ucx; ucx; ucx = ucx->next) {
        count++;
    }
    return count;
}

/* As if nobody had tried for long. */
static void let_try(const side_t *side)
{
    for (tmsg_ucx_t *ucx = side->worker->ucx; ucx; ucx = ucx->next) {
        ucx->apart_ns = 0;
    }
}

static bool has_one_ucx(void *side) { return count_ucx(side) == 1; }

static void close_first(pair_t *pair)
{
    hang_up(pair, pair->to_a, pair->to_b);
    pair_await(pair, has_one_ucx, &pair->a, "the end of what is superseded");
    pair_await(pair, has_one_ucx, &pair->b, "the end of what is superseded");
}

/* Bytes are free, and UCX gets none all the same. */
Test(backing, without_inodes_connections_share_a_ucx_worker)
{
    int descriptors;
    pair_t pair;

    mount_shm("size=65536k,nr_inodes=1");
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(!endpoint_uses(pair.to_a, "posix"));
    must_tell(pair.to_a, "inodes");
    must_tell(pair.to_b, "inodes");
    redial(&pair, "tcp");
    descriptors = count_descriptors();
    for (int i = 0; i < 10; i++) {
        if (i % 5 == 4) {
            let_try(&pair.a);
            let_try(&pair.b);
        }
        redial(&pair, "tcp");
        must_eq(count_ucx(&pair.a), 1);
        must_eq(count_ucx(&pair.b), 1);
    }
    must_true(count_descriptors() <= descriptors);
    must_eq(mount("shm", SHM, "tmpfs", MS_REMOUNT, "nr_inodes=1000"), 0);
    redial(&pair, "tcp"); /* it was tried just now */
    let_try(&pair.a);
    let_try(&pair.b);
    redial(&pair, "posix");
    must_eq(count_ucx(&pair.a), 2);
    close_first(&pair);
    redial(&pair, "posix");
    must_eq(count_ucx(&pair.a), 1);
    pair_drop(&pair);
}

/* What takes the place of one without room leaves none behind. */
Test(backing, what_had_no_room_is_closed_without_users)
{
    pair_t pair;

    take_shm(64);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    resize_shm(65536);
    redial(&pair, "posix");
    must_eq(count_ucx(&pair.a), 2);
    must_eq(count_ucx(&pair.b), 2);
    close_first(&pair);
    pair_drop(&pair);
}

static const char *const alloc_names[] = {"UCX_ALLOC", "UCX_SM_ALLOC",
                                          "UCX_MM_ALLOC", "UCX_POSIX_ALLOC"};

/* A variable that has UCX take its memory elsewhere is to blame, not what there
 * is enough of. */
Test(backing, a_variable_that_has_memory_taken_elsewhere_is_named)
{
    const tmsg_ucx_keys_t keys = keys_of("");
    char text[TMSG_BACKING_BYTES], named[32];

    take_shm(65536);
    for (size_t i = 0; i < COUNT(alloc_names); i++) {
        setenv(alloc_names[i], "heap", 1);
        snprintf(named, sizeof(named), "with %s=heap", alloc_names[i]);
        must_say(tmsg_backing_text(&keys, text, sizeof(text)), named);
        must_eq(tmsg_backing_lack(&keys), TMSG_LACK_ALLOC);
    }
    setenv("UCX_POSIX_ALLOC", "md,mmap", 1);
    must_say(tmsg_backing_text(&keys, text, sizeof(text)), "kernel.shmmni");
    resize_shm(64);
    setenv("UCX_POSIX_ALLOC", "heap", 1);
    must_say(tmsg_backing_text(&keys, text, sizeof(text)), "64 KiB are free");
}

/* UCX 1.17 and later are not given them. */
Test(backing, up_to_1_16_such_a_variable_leaves_tcp)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (minor >= 17) {
        return;
    }
    take_shm(65536);
    for (size_t i = 0; i < COUNT(alloc_names); i++) {
        pair_t pair;

        setenv(alloc_names[i], "heap", 1);
        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        must_tell(pair.to_a, "UCX_*ALLOC");
        redial(&pair, "tcp");
        must_eq(count_ucx(&pair.a), 1);
        pair_drop(&pair);
        unsetenv(alloc_names[i]);
    }
}

static char posix[] = "posix", tcp[] = "tcp";

static void visit(pipes_t *pipes, void *arg)
{
    const char *transport = arg;
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must_true(endpoint_uses(endpoint, transport));
    must(side_finish(&side, send_map(endpoint, sample_bytes(1, 100), 0)));
    line_put(pipes->out, "sent");
    line_get(pipes->in, url, sizeof(url));
    side_close(&side);
}

static void take_visit(side_t *side, child_t *child)
{
    tmsg_message_t *message;
    char line[16];

    line_put(child->out, tmsg_listener_url(side->listener));
    message = side_take(side);
    sample_check_bytes(1, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    line_get(child->in, line, sizeof(line));
}

/* One of its peers is killed, so that the next gets another UCX worker, when
 * other programs have taken the room for it. */
static void outlive(unsigned free, char *transport)
{
    child_t first, second;
    side_t side;

    take_shm(65536);
    child_start(&first, visit, posix);
    child_start(&second, visit, transport);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    take_visit(&side, &first);
    child_kill(&first);
    must_be(side_end_of(&side, side_accept(&side)), TMSG_ERR_PEER_LOST);
    fill_shm(free);
    take_visit(&side, &second);
    line_put(second.out, "leave");
    child_await(&side, &second);
    child_join(&second);
    side_close(&side);
}

Test(backing, a_server_outlives_newcomers_without_room) { outlive(0, tcp); }

/* What is more than UCX 1.22 asks for, and less when it has some of it. */
Test(backing, a_server_outlives_newcomers_with_little_room)
{
    outlive(16392, posix);
}

typedef struct {
    pair_t *pair;
    tmsg_request_t **requests;
    size_t count;
} sends_t;

static bool are_sent(void *arg)
{
    sends_t *sends = arg;

    for (size_t i = 0; i < sends->count; i++) {
        if (tmsg_request_test(sends->requests[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

static size_t size_of(unsigned i)
{
    return 1 + i * 61 % (i % 10 == 0 ? 90000 : 8000);
}

/* UCX's pool of segments is to grow while messages come, and cannot: each
 * arrives, or its sender is told why it does not. Returns how many were
 * refused. */
static unsigned pile_up(const char *thresholds, unsigned count)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 2 * count}};
    tmsg_request_t **requests = calloc(count, sizeof(*requests));
    sends_t sends = {.requests = requests, .count = count};
    unsigned refused = 0;
    pair_t pair;

    setenv("TENSORMSG_THRESHOLDS", thresholds, 1);
    take_shm(16384);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    must_true(endpoint_uses(pair.to_a, "posix"));
    converse(&pair, 10);
    fill_shm(0);
    for (unsigned i = 0; i < count; i++) {
        requests[i] = send_map(pair.to_a, sample_bytes(i, size_of(i)), 0);
    }
    pair_await(&pair, are_sent, &sends, "that all is sent");
    for (unsigned i = 0; i < count; i++) {
        tmsg_message_t *message;

        if (tmsg_request_test(requests[i]) != TMSG_OK) {
            must_be(tmsg_request_test(requests[i]), TMSG_ERR_NO_MEMORY);
            must_say(tmsg_request_error(requests[i]), SHM);
            refused++;
        } else {
            message = pair_take(&pair, &pair.a);
            sample_check_bytes(i, size_of(i), tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        tmsg_request_destroy(requests[i]);
    }
    converse(&pair, 100000);
    pair_close(&pair);
    free(requests);
    return refused;
}

Test(backing, messages_that_pile_up_arrive_or_are_refused)
{
    must_true(pile_up("", 1500) < 1500);
}

/* A rendezvous cannot be copied. */
Test(backing, rendezvous_that_pile_up_arrive_or_are_refused)
{
    must_true(
        pile_up("shm.fastbox_bytes=0,shm.bulk_bytes=never,shm.eager_bytes=0,"
                "shm.eager_single_bytes=0,shm.rndv_bytes=1,"
                "shm.gather_bytes=0",
                600) < 600);
}
