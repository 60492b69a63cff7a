/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX answers a connect request whenever it comes to it, into shared memory
 * that it finds by the asker's pid and descriptors. An asker that has given the
 * connection up, and opened other files under the same descriptors, must find
 * those files unchanged. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/worker.h"
#include "support/peers.h"

#define FILES 64
#define FILE_BYTES (8 << 20)
#define BUSY_MS 20         /* how long the server does not answer */
#define STAYS_NS 200000000 /* and how long the client stays, at least */

typedef struct {
    char url[160];
    char path[200]; /* of the client's own file */
} scene_t;

static bool has_asked(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->conn.began_wireup;
}

static void expect_zeros(int fd)
{
    static uint8_t found[FILE_BYTES], zeros[FILE_BYTES];

    must_eq(pread(fd, found, FILE_BYTES, 0), FILE_BYTES);
    must_eq(memcmp(found, zeros, FILE_BYTES), 0);
}

static void client(pipes_t *pipes, void *arg)
{
    const scene_t *scene = arg;
    tmsg_endpoint_t *endpoint;
    side_t side;
    char line[16];
    int fds[FILES];

    line_get(pipes->in, line, sizeof(line)); /* the server listens */
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, scene->url, NULL, &endpoint));
    side_await(&side, has_asked, endpoint, "the dial");
    for (int i = 0; i < 10000; i++) {
        tmsg_worker_progress(side.worker); /* the request goes */
    }
    line_put(pipes->out, "dialled");
    line_get(pipes->in, line, sizeof(line)); /* the server gave up */
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    side_close(&side);
    for (int i = 0; i < FILES; i++) {
        fds[i] = open(scene->path, O_RDWR);
        must_true(fds[i] >= 0);
    }
    line_put(pipes->out, "closed");
    line_get(pipes->in, line, sizeof(line)); /* and came to it */
    if (strcmp(line, "too late") != 0) {
        expect_zeros(fds[0]);
    }
}

static tmsg_endpoint_t *only_endpoint(const tmsg_worker_t *worker)
{
    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        if (worker->endpoints[i] != NULL) {
            return worker->endpoints[i];
        }
    }
    return NULL;
}

static bool has_answered_a_connect_request(void *arg)
{
    const tmsg_endpoint_t *endpoint = only_endpoint(arg);

    return endpoint != NULL && endpoint->ep != NULL;
}

Test(late_answer, finds_the_asker_and_nobody_else)
{
    static scene_t scene;
    child_t child;
    side_t side;
    char line[16];
    uint64_t given_up_ns;
    bool in_time;
    int fd;

    snprintf(scene.url, sizeof(scene.url), "unix://%s", scratch_path("late"));
    snprintf(scene.path, sizeof(scene.path), "%s", scratch_path("file"));
    fd = open(scene.path, O_RDWR | O_CREAT, 0600);
    must_true(fd >= 0);
    must_eq(ftruncate(fd, FILE_BYTES), 0);
    child_start(&child, client, &scene);
    side_open(&side, NULL);
    side_listen(&side, scene.url);
    line_put(child.out, "listening");
    side_await(&side, has_answered_a_connect_request, side.worker, "a dial");
    line_get(child.in, line, sizeof(line)); /* "dialled", and we stand still */
    given_up_ns = tmsg_now_ns();
    must(tmsg_endpoint_abort(only_endpoint(side.worker), TMSG_ERR_PEER_LOST,
                             "enough"));
    line_put(child.out, "over");
    poll(NULL, 0, BUSY_MS);
    tmsg_worker_progress(side.worker);
    in_time = tmsg_now_ns() - given_up_ns < STAYS_NS;
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line)); /* "closed" */
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(side.worker);
    }
    line_put(child.out, in_time ? "looked" : "too late");
    child_join(&child);
    side_close(&side);
    close(fd);
}
