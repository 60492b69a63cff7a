/* SPDX-License-Identifier: BSD-3-Clause */
/* Whatever a map may hold arrives as it was sent: over every link, driven in
 * every way, between workers of one process and of two. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

static const size_t counts[] = {1, 7, 64, 1000};

#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* Returns whether some tensors are of a device's memory. Beside those, the rest
 * must fit what the peer takes at once, which by blob is a header
 * (docs/reference/domains.md). */
static bool with_devices(void) { return getenv("SAMPLE_DEVICES") != NULL; }

/* Returns how many of the largest elements take as many bytes as these. */
static size_t as_many(const sample_t *sample)
{
    const tmsg_dtype_t *dtype = &sample_dtypes[sample->dtype - 1];

    return with_devices() && dtype->bits * dtype->lanes >= 512 &&
                   sample->tensors > 100
               ? 100
               : sample->tensors;
}

/* Makes the n-th sample of the matrix that is due. Returns false behind the
 * last. */
static bool matrix(size_t n, sample_t *sample)
{
    size_t pair = n / (COUNTS / 2);

    /* Of each dtype and shape every other count. */
    if (!whole_run()) {
        n = 2 * n + (is_slow() ? pair % 2 : !is_due(pair));
    }
    memset(sample, 0, sizeof(*sample));
    sample->seed = n;
    sample->tensors = counts[n % COUNTS];
    n /= COUNTS;
    sample->shape = 1 + (sample_shape_t)(n % (SAMPLE_SHAPES - 1));
    n /= SAMPLE_SHAPES - 1;
    sample->dtype = 1 + n;
    if (n >= sample_dtype_count) {
        return false;
    }
    sample->tensors = as_many(sample);
    return true;
}

static void expect_transport(const tmsg_endpoint_t *endpoint, link_t link)
{
    if (peers_by_tls()) {
        cr_expect(endpoint_uses(endpoint, "stream/tls"));
        return;
    }
    cr_expect(endpoint_uses(endpoint, link == LINK_TCP ? "tcp/" : "posix/"));
    cr_expect(not(endpoint_uses(endpoint, link == LINK_TCP ? "posix" : "tcp")));
}

static void here(link_t link, drive_t drive)
{
    sample_t sample;
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t n = 0; matrix(n, &sample); n++) {
        tmsg_request_t *sent =
            send_map(pair.to_a, sample_make(&sample), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        must(pair_finish(&pair, sent));
        tmsg_message_destroy(message);
    }
    expect_transport(pair.to_a, link);
    expect_transport(pair.to_b, link);
    pair_close(&pair);
}

Test(conformance, every_dtype_and_shape_tcp_polling)
{
    here(LINK_TCP, DRIVE_POLLING);
}

Test(conformance, every_dtype_and_shape_tcp_fd) { here(LINK_TCP, DRIVE_FD); }

Test(conformance, every_dtype_and_shape_tcp_thread)
{
    here(LINK_TCP, DRIVE_THREAD);
}

Test(conformance, every_dtype_and_shape_shm_polling)
{
    here(LINK_SHM, DRIVE_POLLING);
}

Test(conformance, every_dtype_and_shape_shm_fd) { here(LINK_SHM, DRIVE_FD); }

Test(conformance, every_dtype_and_shape_shm_thread)
{
    here(LINK_SHM, DRIVE_THREAD);
}

Test(conformance, every_dtype_and_shape_unix_polling)
{
    here(LINK_UNIX, DRIVE_POLLING);
}

Test(conformance, every_dtype_and_shape_blob_fd) { here(LINK_BLOB, DRIVE_FD); }

/* Sends the whole matrix to the URL of the first line, the sends following
 * each other closely. */
typedef struct {
    link_t link;
    drive_t drive;
} how_t;

static void send_matrix(pipes_t *pipes, void *arg)
{
    const how_t *how = arg;
    const side_options_t options = {.drive = how->drive,
                                    .ucx_config = link_config(how->link)};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    sample_t sample;
    char url[256];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    endpoint = side_connect(&side, url);
    for (size_t n = 0; matrix(n, &sample); n++) {
        tmsg_map_t *map = sample_make(&sample);

        must(tmsg_endpoint_send(endpoint, map, NULL, NULL));
        tmsg_map_destroy(map);
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(&side, closed));
    side_close(&side);
}

static void apart(link_t link, drive_t drive)
{
    how_t how = {link, drive};
    const side_options_t options = {.drive = drive,
                                    .ucx_config = link_config(link)};
    sample_t sample;
    child_t child;
    side_t side;

    child_start(&child, send_matrix, &how);
    side_open(&side, &options);
    side_listen_link(&side, link);
    line_put(child.out, tmsg_listener_url(side.listener));
    for (size_t n = 0; matrix(n, &sample); n++) {
        tmsg_message_t *message = side_take(&side);

        sample_check(&sample, tmsg_message_map(message));
        if (n == 0) {
            expect_transport(tmsg_message_endpoint(message), link);
        }
        tmsg_message_destroy(message);
    }
    must_be(side_end_of(&side, side.accepted), TMSG_ERR_CLOSED);
    side_close(&side);
    child_join(&child);
}

enum { TURNS = 300 };

static void answer_each(pipes_t *pipes, void *arg)
{
    const how_t *how = arg;
    const side_options_t options = {.drive = how->drive,
                                    .ucx_config = link_config(how->link)};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    char url[256];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    endpoint = side_connect(&side, url);
    for (size_t i = 0; i < TURNS; i++) {
        tmsg_message_destroy(side_take(&side));
        tmsg_request_destroy(send_map(endpoint, sample_bytes(i, 100), 0));
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(&side, closed));
    side_close(&side);
}

/* Each sleeps on its descriptor while the other has its turn. */
static void take_turns(link_t link)
{
    how_t how = {link, DRIVE_FD};
    const side_options_t options = {.drive = DRIVE_FD,
                                    .ucx_config = link_config(link)};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    child_start(&child, answer_each, &how);
    side_open(&side, &options);
    side_listen_link(&side, link);
    line_put(child.out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (size_t i = 0; i < TURNS; i++) {
        tmsg_message_t *message;

        tmsg_request_destroy(send_map(endpoint, sample_bytes(i, 100), 0));
        message = side_take(&side);
        sample_check_bytes(i, 100, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must_be(side_end_of(&side, endpoint), TMSG_ERR_CLOSED);
    side_close(&side);
    child_join(&child);
}

Test(conformance, sides_that_sleep_are_woken_tcp) { take_turns(LINK_TCP); }
Test(conformance, sides_that_sleep_are_woken_shm) { take_turns(LINK_SHM); }
Test(conformance, sides_that_sleep_are_woken_unix) { take_turns(LINK_UNIX); }

Test(conformance, two_processes_tcp_polling) { apart(LINK_TCP, DRIVE_POLLING); }
Test(conformance, two_processes_tcp_fd) { apart(LINK_TCP, DRIVE_FD); }
Test(conformance, two_processes_tcp_thread) { apart(LINK_TCP, DRIVE_THREAD); }
Test(conformance, two_processes_shm_polling) { apart(LINK_SHM, DRIVE_POLLING); }
Test(conformance, two_processes_shm_fd) { apart(LINK_SHM, DRIVE_FD); }
Test(conformance, two_processes_shm_thread) { apart(LINK_SHM, DRIVE_THREAD); }
Test(conformance, two_processes_unix_fd) { apart(LINK_UNIX, DRIVE_FD); }

/* Runs body with a pair on each link, driven in each way or, with each UCX, in
 * another. */
static void on_links(link_t links, void (*body)(pair_t *pair))
{
    for (unsigned i = 0; i < links * DRIVES; i++) {
        link_t link = i / DRIVES;
        drive_t drive = i % DRIVES;
        pair_t pair;

        if (whole_run() || (drive_t)((link + is_due(1)) % DRIVES) == drive) {
            pair_open(&pair, link, drive, NULL, NULL);
            body(&pair);
            pair_close(&pair);
        }
    }
}

static void on_each_link(void (*body)(pair_t *pair)) { on_links(LINKS, body); }

/* unix:// and blobs are only two more ways to connect over the same transports.
 */
static void on_each_transport(void (*body)(pair_t *pair))
{
    link_t all = with_devices() ? LINK_BLOB : LINKS;

    on_links(whole_run() ? all : LINK_UNIX, body);
}

/* Sends a sample there and back, and checks it on arrival. */
static void round_trip(pair_t *pair, const sample_t *sample)
{
    tmsg_request_t *there =
        send_map(pair->to_a, sample_make(sample), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    tmsg_request_t *back;

    sample_check(sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, there));
    back = send_map(pair->to_b, sample_make(sample), 0);
    message = pair_take(pair, &pair->b);
    sample_check(sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, back));
}

static void empty_map(pair_t *pair)
{
    const sample_t sample = {.seed = 3};

    round_trip(pair, &sample);
}

Test(conformance, a_map_without_tensors_arrives) { on_each_link(empty_map); }

/* Sizes around every threshold of ours and UCX's: segments, rendezvous,
 * gathering. */
static void sizes(pair_t *pair)
{
    static const size_t around[] = {
        1,        64,       4096,      8000,    8192,    8256,    16384,
        60 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};

    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
        for (size_t tensors = 1; tensors <= 5; tensors += 4) {
            for (int d = -1; d <= 1; d++) {
                const sample_t sample = {
                    .seed = i,
                    .tensors = tensors,
                    .shape = SAMPLE_VECTOR,
                    .dtype = 11, /* uint8 */
                    .elements = around[i] / tensors + 2 + (size_t)d,
                };

                round_trip(pair, &sample);
            }
        }
    }
}

Test(conformance, eager_and_rendezvous_sizes_arrive)
{
    on_each_transport(sizes);
}

static void large(pair_t *pair)
{
    const sample_t sample = {.seed = 5,
                             .tensors = 8,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 11,
                             .elements = (64 << 20) / 8 + 13};

    round_trip(pair, &sample);
}

Test(conformance, sixty_four_mebibytes_arrive) { on_each_transport(large); }

/* Names of 4 KiB make a header of 4 MiB: it is spilled into the payload. */
static void long_names(pair_t *pair)
{
    size_t most = with_devices() ? 100 : 1000;

    for (size_t tensors = 1; tensors <= most; tensors *= 10) {
        const sample_t sample = {
            .seed = 6, .tensors = tensors, .name_bytes = 4096};

        round_trip(pair, &sample);
    }
}

Test(conformance, headers_beyond_one_segment_arrive)
{
    on_each_link(long_names);
}

/* Every header length around max_am_header, the policy being what is spilled
 * and what is not. */
static void header_edge(pair_t *pair)
{
    static const size_t edges[] = {8060, 8100, 8140, 8179, 61388};

    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        for (size_t bytes = edges[i] - 60; bytes < edges[i] + 60; bytes += 7) {
            size_t tensors = bytes / 4100 + 1;
            const sample_t sample = {.seed = bytes,
                                     .tensors = tensors,
                                     .shape = SAMPLE_SCALAR,
                                     .name_bytes =
                                         bytes / tensors - 160 / tensors};

            round_trip(pair, &sample);
        }
    }
}

Test(conformance, headers_around_max_am_header_arrive)
{
    on_each_transport(header_edge);
}

static void many_tensors(pair_t *pair)
{
    const sample_t sample = {.seed = 7,
                             .tensors = with_devices() ? 12000 : 100000,
                             .name_bytes = 200,
                             .dtype = 16};

    round_trip(pair, &sample);
}

Test(conformance, a_hundred_thousand_tensors_arrive)
{
    on_each_transport(many_tensors);
}

/* Too many bytes to be gathered: a scatter list with an entry a tensor. */
static void many_pieces(pair_t *pair)
{
    const sample_t sample = {.seed = 8,
                             .tensors = with_devices() ? 5000 : 20000,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 11,
                             .elements = 1021};

    round_trip(pair, &sample);
}

Test(conformance, a_long_scatter_list_arrives)
{
    on_each_transport(many_pieces);
}

/* A 3-d view into a buffer of int32, every element its own index. */
typedef struct {
    const char *name;
    int64_t first; /* element of the buffer */
    int64_t shape[3];
    int64_t strides[3];
    bool kept; /* its strides arrive as they are */
} view_t;

static const view_t views[] = {
    {"c order", 0, {4, 5, 6}, {30, 6, 1}, true},
    {"fortran", 0, {4, 5, 6}, {1, 4, 20}, true},
    {"permuted", 0, {4, 5, 6}, {6, 24, 1}, true},
    {"sliced", 7, {2, 3, 3}, {60, 12, 2}, false},
    {"reversed", 119, {4, 5, 6}, {-30, -6, -1}, false},
    {"one reversed", 5, {4, 5, 6}, {30, 6, -1}, false},
    {"broadcast", 3, {4, 5, 6}, {0, 6, 1}, true},
    {"all one", 9, {4, 5, 6}, {0, 0, 0}, true},
    {"empty", 9, {4, 0, 6}, {-7, 0, 99}, false},
    {"single", 9, {1, 1, 1}, {-7, 0, 99}, false},
    {"rows", 0, {4, 5, 3}, {30, 6, 1}, false},
};

#define VIEWS (sizeof(views) / sizeof(views[0]))
#define ELEMENTS 2048

static void check_view(const view_t *view, const tmsg_map_t *map)
{
    const int64_t *n = view->shape;
    size_t count = (size_t)(n[0] * n[1] * n[2]), at = 0;
    int32_t *packed = calloc(count + 1, sizeof(*packed));
    tmsg_tensor_t tensor;

    must(tmsg_map_find(map, view->name, &tensor));
    must_true(memcmp(tensor.shape, n, sizeof(view->shape)) == 0);
    if (view->kept) {
        must_true(tensor.strides == NULL ? strcmp(view->name, "c order") == 0
                                         : memcmp(tensor.strides, view->strides,
                                                  sizeof(view->strides)) == 0);
    } else {
        must_true(tmsg_tensor_is_contiguous(&tensor));
    }
    must(tmsg_tensor_pack(&tensor, packed));
    for (int64_t i = 0; i < n[0]; i++) {
        for (int64_t j = 0; j < n[1]; j++) {
            for (int64_t k = 0; k < n[2]; k++) {
                int64_t element = view->first + i * view->strides[0] +
                                  j * view->strides[1] + k * view->strides[2];

                if (packed[at++] != (int32_t)element) {
                    die("'%s'[%d,%d,%d] is %d, not %d", view->name, (int)i,
                        (int)j, (int)k, packed[at - 1], (int)element);
                }
            }
        }
    }
    free(packed);
}

static void strided(pair_t *pair)
{
    int32_t *buffer = malloc(ELEMENTS * sizeof(*buffer));
    tmsg_request_t *sent;
    tmsg_message_t *message;
    tmsg_map_t *map;

    for (int i = 0; i < ELEMENTS; i++) {
        buffer[i] = i;
    }
    must(tmsg_map_create(&map));
    for (size_t i = 0; i < VIEWS; i++) {
        const tmsg_tensor_t tensor = {
            buffer + views[i].first, {TMSG_DEVICE_CPU, 0},
            {TMSG_DTYPE_INT, 32, 1}, 3,
            views[i].shape,          views[i].strides};

        must(tmsg_map_add(map, views[i].name, &tensor, NULL));
    }
    sent = send_map(pair->to_a, map, 0);
    message = pair_take(pair, &pair->a);
    for (size_t i = 0; i < VIEWS; i++) {
        check_view(&views[i], tmsg_message_map(message));
    }
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    free(buffer);
}

Test(conformance, strides_arrive_kept_or_packed) { on_each_link(strided); }

/* Large enough for rendezvous; the scatter list mixes memory of the map with
 * what was packed. */
static void strided_large(pair_t *pair)
{
    enum { ROWS = 1500, COLUMNS = 1024 };
    const int64_t shape[2] = {ROWS, COLUMNS};
    const int64_t every_other[2] = {2 * COLUMNS, 2};
    const int64_t fortran[2] = {1, ROWS};
    uint16_t *buffer = malloc(sizeof(*buffer) * 2 * ROWS * COLUMNS * 2);
    tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 16, 1}, 2,
        shape,  every_other};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    tmsg_map_t *map;

    for (size_t i = 0; i < (size_t)2 * ROWS * COLUMNS * 2; i++) {
        buffer[i] = (uint16_t)(i * 40503);
    }
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "sliced", &tensor, NULL));
    tensor.strides = fortran;
    must(tmsg_map_add(map, "fortran", &tensor, NULL));
    sent = send_map(pair->to_a, map, 0);
    message = pair_take(pair, &pair->a);
    must(tmsg_map_find(tmsg_message_map(message), "sliced", &tensor));
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        must_eq(((uint16_t *)tensor.data)[i],
                buffer[i / COLUMNS * 2 * COLUMNS + i % COLUMNS * 2]);
    }
    must(tmsg_map_find(tmsg_message_map(message), "fortran", &tensor));
    must_true(tensor.strides != NULL && tensor.strides[0] == 1 &&
              tensor.strides[1] == ROWS);
    must_true(memcmp(tensor.data, buffer, sizeof(*buffer) * ROWS * COLUMNS) ==
              0);
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    free(buffer);
}

Test(conformance, large_strided_tensors_arrive)
{
    on_each_transport(strided_large);
}

/* Small and large by turns, many under way at once, both ways. */
static void in_order(pair_t *pair)
{
    uint64_t messages = with_devices() ? 100 : 300; /* as it has memory for */
    static const size_t bytes[] = {10, 100000, 1, 3000000, 9000, 300};

    for (uint64_t i = 1; i <= messages; i++) {
        size_t size = bytes[i % 6];

        tmsg_request_destroy(send_map(pair->to_a, sample_bytes(i, size), 0));
        tmsg_request_destroy(send_map(pair->to_b, sample_bytes(~i, size), 0));
    }
    for (uint64_t i = 1; i <= messages; i++) {
        tmsg_message_t *at_a = pair_take(pair, &pair->a);
        tmsg_message_t *at_b = pair_take(pair, &pair->b);

        sample_check_bytes(i, bytes[i % 6], tmsg_message_map(at_a));
        sample_check_bytes(~i, bytes[i % 6], tmsg_message_map(at_b));
        tmsg_message_destroy(at_a);
        tmsg_message_destroy(at_b);
    }
}

Test(conformance, messages_arrive_in_the_order_sent)
{
    on_each_transport(in_order);
}

/* The same map several times at once, read meanwhile. */
static void same_map(pair_t *pair)
{
    const sample_t sample = {.seed = 9, .tensors = 50};
    tmsg_map_t *map = sample_make(&sample);

    for (int i = 0; i < 20; i++) {
        must(tmsg_endpoint_send(pair->to_a, map, NULL, NULL));
    }
    sample_check(&sample, map);
    tmsg_map_destroy(map);
    for (int i = 0; i < 20; i++) {
        tmsg_message_t *message = pair_take(pair, &pair->a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

Test(conformance, one_map_may_be_sent_many_times_at_once)
{
    on_each_link(same_map);
}

/* The received map is sent on from where it lies. */
static void forwarded(pair_t *pair)
{
    const sample_t sample = {.seed = 10, .tensors = 64};
    tmsg_request_t *sent = send_map(pair->to_a, sample_make(&sample), 0);
    tmsg_message_t *first = pair_take(pair, &pair->a), *second;
    tmsg_request_t *on;

    must(tmsg_endpoint_send(tmsg_message_endpoint(first),
                            (tmsg_map_t *)(uintptr_t)tmsg_message_map(first),
                            NULL, &on));
    second = pair_take(pair, &pair->b);
    sample_check(&sample, tmsg_message_map(second));
    must(pair_finish(pair, on));
    must(pair_finish(pair, sent));
    tmsg_message_destroy(first);
    tmsg_message_destroy(second);
}

Test(conformance, a_received_map_may_be_sent_on) { on_each_link(forwarded); }
