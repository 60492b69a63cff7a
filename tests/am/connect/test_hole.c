/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that is killed after it took a place in our shared-memory queue and
 * before it filled the place leaves a hole, at which UCX waits for ever. The
 * other peers of that queue must learn of it; without a hole they must notice
 * nothing. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/listen/listener.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

/* While this is set, the probe never finds room in the queue. */
static bool is_full;

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_bytes, const void *buffer,
                                 size_t count, const ucp_request_param_t *param)
{
    ucs_status_ptr_t (*real)(ucp_ep_h, unsigned, const void *, size_t,
                             const void *, size_t, const ucp_request_param_t *);
    tmsg_preamble_t head;

    if (is_full &&
        tmsg_preamble_decode(header, header_bytes, &head) == TMSG_OK &&
        head.kind == TMSG_KIND_PROBE) {
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "ucp_am_send_nbx");
    return real(ep, id, header, header_bytes, buffer, count, param);
}

/* Sends a map as often as it is told to, and connects again when it has lost
 * the connection. */
static void peer(pipes_t *pipes, void *arg)
{
    char url[256], line[8];
    tmsg_endpoint_t *endpoint;
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    for (line_get(pipes->in, line, sizeof(line)); strcmp(line, "end") != 0;
         line_get(pipes->in, line, sizeof(line))) {
        if (strcmp(line, "again") == 0) {
            must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
            must_say(tmsg_endpoint_error(endpoint), "which blocks it for this");
            tmsg_endpoint_destroy(endpoint);
            endpoint = side_connect(&side, url);
        }
        must(side_finish(
            &side, send_map(endpoint, sample_bytes(1, 3000), TMSG_SEND_ACKED)));
    }
    side_close(&side);
}

static tmsg_endpoint_t *take_peer(side_t *side, child_t *child)
{
    line_put(child->out, tmsg_listener_url(side->listener));
    return side_accept(side);
}

static void take_map(side_t *side, child_t *child, const char *order)
{
    tmsg_message_t *message;

    line_put(child->out, order);
    message = side_take(side);
    sample_check_bytes(1, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* Returns how many segments of shared memory UCX holds open here, and the
 * smallest of them; -1: there is none. */
static unsigned count_segments(int *least_p)
{
    DIR *folder = opendir("/proc/self/fd");
    off_t least = 0;
    unsigned count = 0;
    struct dirent *entry;

    *least_p = -1;
    must_true(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        char link[64], path[64] = "";
        struct stat file;
        int fd;

        snprintf(link, sizeof(link), "/proc/self/fd/%.16s", entry->d_name);
        if (readlink(link, path, sizeof(path) - 1) < 0 ||
            strstr(path, "/ucx_shm_posix") == NULL ||
            sscanf(entry->d_name, "%d", &fd) != 1 || fstat(fd, &file) != 0) {
            continue;
        }
        count++;
        if (*least_p < 0 || file.st_size < least) {
            least = file.st_size;
            *least_p = fd;
        }
    }
    closedir(folder);
    return count;
}

/* The smallest segment of shared memory that UCX holds open here is our queue;
 * its first word counts the places taken. */
static void punch_hole(void)
{
    atomic_uint_fast64_t *taken;
    int queue;

    must_true(count_segments(&queue) > 0);
    taken = mmap(NULL, sizeof(*taken), PROT_READ | PROT_WRITE, MAP_SHARED,
                 queue, 0);
    must_true(taken != MAP_FAILED);
    atomic_fetch_add(taken, 1);
    munmap(taken, sizeof(*taken));
}

/* Two peers of one queue. */
typedef struct {
    side_t side;
    child_t killed, other;
    tmsg_endpoint_t *to_killed, *to_other;
} crowd_t;

/* A peer may stand still for this long while it writes. */
static const side_options_t impatient = {.peer_timeout_ms = 2000};

static void gather(crowd_t *crowd)
{
    child_start(&crowd->killed, peer, NULL);
    child_start(&crowd->other, peer, NULL);
    side_open(&crowd->side, &impatient);
    side_listen(&crowd->side, "tcp://127.0.0.1:0");
    crowd->to_killed = take_peer(&crowd->side, &crowd->killed);
    crowd->to_other = take_peer(&crowd->side, &crowd->other);
    take_map(&crowd->side, &crowd->killed, "send");
}

static void dismiss(crowd_t *crowd, tmsg_endpoint_t *to_other)
{
    line_put(crowd->other.out, "end");
    must_be(side_end_of(&crowd->side, to_other), TMSG_ERR_PEER_LOST);
    child_join(&crowd->other);
    side_close(&crowd->side);
}

Test(hole, ends_the_others_on_that_queue_which_may_connect_again)
{
    crowd_t crowd;
    side_t *side = &crowd.side;

    gather(&crowd);
    take_map(side, &crowd.other, "send");
    punch_hole();
    child_kill(&crowd.killed);
    must_be(side_end_of(side, crowd.to_killed), TMSG_ERR_PEER_LOST);
    must_be(side_end_of(side, crowd.to_other), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(crowd.to_other), "another peer was killed");
    tmsg_endpoint_destroy(crowd.to_killed);
    tmsg_endpoint_destroy(crowd.to_other);
    line_put(crowd.other.out, "again");
    side_accept(side);
    take_map(side, &crowd.other, "send");
    tmsg_message_destroy(side_take(side)); /* "again" sends one, too */
    dismiss(&crowd, side->accepted);
}

Test(hole, a_killed_peer_that_left_none_costs_the_others_nothing)
{
    crowd_t crowd;
    time_t until;

    gather(&crowd);
    child_kill(&crowd.killed);
    must_be(side_end_of(&crowd.side, crowd.to_killed), TMSG_ERR_PEER_LOST);
    for (until = time(NULL) + 3; time(NULL) < until;) {
        take_map(&crowd.side, &crowd.other, "send");
    }
    must(tmsg_endpoint_status(crowd.to_other));
    dismiss(&crowd, crowd.to_other);
}

/* Not only the probe shows that there is no hole: other peers' messages come
 * through. */
Test(hole, one_that_leaves_no_room_to_look_is_not_blocked)
{
    crowd_t crowd;
    time_t until;

    gather(&crowd);
    is_full = true;
    child_kill(&crowd.killed);
    must_be(side_end_of(&crowd.side, crowd.to_killed), TMSG_ERR_PEER_LOST);
    for (until = time(NULL) + 4; time(NULL) < until;) {
        take_map(&crowd.side, &crowd.other, "send");
    }
    must(tmsg_endpoint_status(crowd.to_other));
    dismiss(&crowd, crowd.to_other);
}

/* A child that connects by a blob, tells the parent, and waits to be killed or
 * told to end. */
static void peer_by_blob(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    char line[16];
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    endpoint = blob_connect(&side, pipes->in);
    must(side_finish(
        &side, send_map(endpoint, sample_bytes(1, 3000), TMSG_SEND_ACKED)));
    line_get(pipes->in, line, sizeof(line));
    side_close(&side);
}

static tmsg_endpoint_t *take_peer_by_blob(side_t *side, const child_t *child)
{
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;

    blob_put(child->out, side->listener);
    endpoint = side_accept(side);
    message = side_take(side);
    sample_check_bytes(1, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    return endpoint;
}

static bool blob_is_over(void *arg)
{
    const void *blob;
    size_t bytes;

    return tmsg_listener_blob(arg, &blob, &bytes) == TMSG_ERR_CLOSED;
}

Test(hole, ends_a_blob_by_which_nobody_could_come)
{
    tmsg_endpoint_t *lost;
    child_t killed;
    side_t side;

    child_start(&killed, peer_by_blob, NULL);
    side_open(&side, &impatient);
    side_listen(&side, "blob://");
    lost = take_peer_by_blob(&side, &killed);
    punch_hole();
    child_kill(&killed);
    must_be(side_end_of(&side, lost), TMSG_ERR_PEER_LOST);
    side_await(&side, blob_is_over, side.listener, "the end of a blob");
    must_say(tmsg_error_message(), "make another");
    tmsg_listener_destroy(side.listener);
    side_listen(&side, "blob://");
    must_true(!blob_is_over(side.listener));
    side_close(&side);
}

static bool is_left_alone(void *arg)
{
    const tmsg_ucx_t *ucx = arg;

    return ucx->retired && !ucx->suspect && ucx->watch.deadline_ns == 0;
}

/* Without a hole the blob stays valid, and the looks end. */
Test(hole, a_killed_peer_that_left_none_costs_its_blob_nothing)
{
    tmsg_endpoint_t *lost, *kept;
    child_t killed, other;
    tmsg_ucx_t *ucx;
    side_t side;

    child_start(&killed, peer_by_blob, NULL);
    child_start(&other, peer_by_blob, NULL);
    side_open(&side, NULL);
    side_listen(&side, "blob://");
    ucx = side.listener->ucx;
    lost = take_peer_by_blob(&side, &killed);
    child_kill(&killed);
    must_be(side_end_of(&side, lost), TMSG_ERR_PEER_LOST);
    side_await(&side, is_left_alone, ucx, "the end of looking");
    kept = take_peer_by_blob(&side, &other);
    must(tmsg_endpoint_status(kept));
    line_put(other.out, "end");
    child_join(&other);
    must_be(side_end_of(&side, kept), TMSG_ERR_PEER_LOST);
    side_await(&side, is_left_alone, ucx, "the end of looking");
    must_true(!blob_is_over(side.listener));
    side_close(&side);
}

/* A peer that has hung up may still answer what UCX asked it, and opens the
 * queue by the number of its descriptor for that. Another file must not have
 * that number yet. */
Test(hole, a_queue_stays_for_a_while_after_its_last_peer)
{
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;
    unsigned count;
    time_t until;
    int queue;

    child_start(&child, peer, NULL);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    endpoint = take_peer(&side, &child);
    count = count_segments(&queue);
    must_true(count > 0);
    line_put(child.out, "end");
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    tmsg_endpoint_destroy(endpoint);
    child_join(&child);
    for (int i = 0; i < 20; i++) {
        tmsg_worker_progress(side.worker);
    }
    must_be(count_segments(&queue), count);
    for (until = time(NULL) + 10;
         count_segments(&queue) > 0 && time(NULL) < until;) {
        tmsg_worker_wait(side.worker, 100);
        tmsg_worker_progress(side.worker);
    }
    must_be(count_segments(&queue), 0);
    side_close(&side);
}
