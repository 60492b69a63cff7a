/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker that connects to its own listener: what is sent arrives, driven in
 * every way. UCX's transport "self" tells of no failed peer and does not carry
 * our endpoints; shared memory or tcp does. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

typedef struct {
    side_t side;
    tmsg_endpoint_t *there; /* dialled */
    tmsg_endpoint_t *here;  /* accepted */
} loop_t;

static bool has_come(void *arg)
{
    const side_t *side = arg;

    return side->accepts > 0;
}

static void open_loop(loop_t *loop, link_t link, drive_t drive,
                      const char *config)
{
    const side_options_t options = {
        .drive = drive,
        .ucx_config = config != NULL ? config : link_config(link)};
    tmsg_request_t *ready;

    side_open(&loop->side, &options);
    side_listen_link(&loop->side, link);
    loop->there = side_dial(&loop->side, &loop->side);
    must(tmsg_endpoint_ready(loop->there, &ready));
    must(side_finish(&loop->side, ready));
    side_await(&loop->side, has_come, &loop->side, "its own connection");
    loop->here = loop->side.accepted;
}

static void close_loop(loop_t *loop)
{
    tmsg_request_t *closed;

    must(tmsg_endpoint_close(loop->there, &closed));
    must(side_finish(&loop->side, closed));
    must_be(side_end_of(&loop->side, loop->here), TMSG_ERR_CLOSED);
    side_close(&loop->side);
}

/* Sends a sample from one of the two ends to the other. */
static void check_one(loop_t *loop, const sample_t *sample, bool back)
{
    static const unsigned flags[] = {0, TMSG_SEND_ACKED, TMSG_SEND_VERIFY};
    tmsg_request_t *sent =
        send_map(back ? loop->here : loop->there, sample_make(sample),
                 flags[sample->seed % 3]);
    tmsg_message_t *message = side_take(&loop->side);

    cr_assert(eq(ptr, tmsg_message_endpoint(message),
                 back ? loop->there : loop->here));
    sample_check(sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(side_finish(&loop->side, sent));
}

static void check_all(loop_t *loop)
{
    static const size_t sizes[] = {0,        1,        64,        8000,   8256,
                                   60 << 10, 64 << 10, 256 << 10, 4 << 20};

    for (size_t i = 0; i < sample_dtype_count * (SAMPLE_SHAPES - 1); i++) {
        const sample_t sample = {
            .seed = i,
            .tensors = 1 + i % 9,
            .shape = 1 + (sample_shape_t)(i / sample_dtype_count),
            .dtype = 1 + i % sample_dtype_count};

        check_one(loop, &sample, i % 2 != 0);
    }
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const sample_t sample = {.seed = i,
                                 .tensors = 3,
                                 .shape = SAMPLE_VECTOR,
                                 .dtype = 11,
                                 .elements = sizes[i / 2] / 3 + 1};

        check_one(loop, &sample, i % 2 != 0);
    }
}

static void run(link_t link, drive_t drive, const char *config,
                const char *transport)
{
    loop_t loop;

    open_loop(&loop, link, drive, config);
    check_all(&loop);
    cr_expect(endpoint_uses(loop.there, transport));
    cr_expect(endpoint_uses(loop.here, transport));
    close_loop(&loop);
}

Test(self, a_worker_reaches_itself_polling)
{
    run(LINK_SHM, DRIVE_POLLING, NULL, "posix/");
}

Test(self, a_worker_reaches_itself_fd)
{
    run(LINK_SHM, DRIVE_FD, NULL, "posix/");
}

Test(self, a_worker_reaches_itself_thread)
{
    run(LINK_SHM, DRIVE_THREAD, NULL, "posix/");
}

Test(self, a_worker_reaches_itself_unix)
{
    run(LINK_UNIX, DRIVE_POLLING, NULL, "posix/");
}

Test(self, a_worker_reaches_itself_by_tcp)
{
    run(LINK_TCP, DRIVE_FD, NULL, "tcp/");
}

Test(self, the_transport_self_alone_is_too_little_and_said)
{
    const side_options_t options = {.ucx_config = "TLS=self"};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    side_t side;

    side_open(&side, &options);
    side_listen(&side, "tcp://127.0.0.1:0");
    endpoint = side_dial(&side, &side);
    must(tmsg_endpoint_ready(endpoint, &ready));
    must_be(side_finish(&side, ready), TMSG_ERR_UNREACHABLE);
    must_say(tmsg_error_message(), "no transport of UCX's leads there");
    must_be(tmsg_endpoint_status(endpoint), TMSG_ERR_UNREACHABLE);
    side_close(&side);
}

/* One process, many sends under way on its own worker: in order, and no end of
 * one message waits for that of another. */
Test(self, what_a_worker_sends_itself_stays_in_order)
{
    enum { COUNT = 300 };
    tmsg_request_t *sent[COUNT];
    loop_t loop;

    open_loop(&loop, LINK_SHM, DRIVE_POLLING, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        sent[i] = send_map(loop.there, sample_bytes(i, 1 + i * i * 7),
                           TMSG_SEND_ACKED);
    }
    for (size_t i = 0; i < COUNT; i++) {
        tmsg_message_t *message = side_take(&loop.side);

        sample_check_bytes(i, 1 + i * i * 7, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (size_t i = 0; i < COUNT; i++) {
        must(side_finish(&loop.side, sent[i]));
    }
    close_loop(&loop);
}
