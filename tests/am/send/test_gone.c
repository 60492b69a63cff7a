/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a message becomes unreadable while it is sent over TCP: the
 * message fails with an error that names the tensor, and the connection goes
 * on. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/template.h"
#include "am/path/bulk_tcp.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define KIB ((size_t)1024)
#define TENSORS 3

/* Tensors "t0", "t1", ..., each in pages of its own. */
typedef struct {
    pair_t pair;
    size_t bytes;
    unsigned char *data[TENSORS];
    tmsg_request_t *sent;
} scene_t;

static unsigned char *map_pages(size_t bytes)
{
    unsigned char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must_true(data != MAP_FAILED);
    memset(data, 1, bytes);
    return data;
}

/* Makes the last pages of a tensor unreadable, from byte `from` on. */
static void take_away(const scene_t *scene, unsigned tensor, size_t from)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skipped = (from + page - 1) / page * page;

    must_true(mprotect(scene->data[tensor] + skipped, scene->bytes - skipped,
                       PROT_NONE) == 0);
}

static tmsg_map_t *make_map(scene_t *scene, unsigned tensors)
{
    const int64_t shape[] = {(int64_t)scene->bytes};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (unsigned i = 0; i < tensors; i++) {
        const char name[] = {'t', (char)('0' + i), '\0'};
        const tmsg_tensor_t tensor = {scene->data[i],
                                      {TMSG_DEVICE_CPU, 0},
                                      {TMSG_DTYPE_UINT, 8, 1},
                                      1,
                                      shape,
                                      NULL};

        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static void open_scene(scene_t *scene, size_t bytes)
{
    *scene = (scene_t){.bytes = bytes};
    for (unsigned i = 0; i < TENSORS; i++) {
        scene->data[i] = map_pages(bytes);
    }
    pair_open(&scene->pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
}

static bool both_stand(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_bulk_sends(pair->to_a) && tmsg_bulk_sends(pair->to_b);
}

/* Gives the bulk stream small socket buffers: it takes little before its
 * receiver reads. */
static void await_narrow_bulk(scene_t *scene)
{
    static const int little = 32 * 1024;
    pair_t *pair = &scene->pair;

    pair_await(pair, both_stand, pair, "a bulk stream");
    must_true(setsockopt(tmsg_bulk_tcp_of(pair->to_a->paths.bulk)->claim.fd,
                         SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)) == 0 &&
              setsockopt(tmsg_bulk_tcp_of(pair->to_b->paths.bulk)->claim.fd,
                         SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)) == 0);
}

static void send_tensors(scene_t *scene, unsigned tensors)
{
    scene->sent = send_map(scene->pair.to_a, make_map(scene, tensors), 0);
}

static void step(const scene_t *scene)
{
    tmsg_worker_progress(scene->pair.a.worker);
    tmsg_worker_progress(scene->pair.b.worker);
}

/* Writes `bytes` bytes to the bulk stream, and then what fits while nobody
 * reads there. */
static void write_some(const scene_t *scene, size_t bytes)
{
    const tmsg_bulk_t *bulk = scene->pair.to_a->paths.bulk;
    uint64_t before = 0;

    while (bulk->written < bytes) {
        step(scene);
    }
    while (bulk->written > before) {
        before = bulk->written;
        for (unsigned i = 0; i < 100; i++) {
            tmsg_worker_progress(scene->pair.b.worker);
        }
    }
}

static bool has_ended(void *request)
{
    tmsg_status_t status = tmsg_request_test(request);

    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

/* The message fails for that tensor, and nothing of it arrives. The messages
 * behind it arrive, by the bulk stream and by UCX. */
static void must_fail(scene_t *scene, const char *name)
{
    pair_t *pair = &scene->pair;
    char words[64];

    snprintf(words, sizeof(words), "tensor '%s': its memory cannot be read",
             name);
    pair_await(pair, has_ended, scene->sent, "a send's end");
    must_be(tmsg_request_test(scene->sent), TMSG_ERR_IO);
    must_say(tmsg_request_error(scene->sent), words);
    tmsg_request_destroy(scene->sent);
    for (size_t bytes = 3000; bytes < 4000 * KIB; bytes *= 30) {
        tmsg_request_t *next =
            send_map(pair->to_a, sample_bytes(bytes, bytes), TMSG_SEND_ACKED);

        large_take(pair, &pair->a, bytes, bytes);
        must(pair_finish(pair, next));
    }
}

/* The peer, which takes no ABORT, would wait for the rest. */
static void must_end(scene_t *scene, const char *words)
{
    pair_await(&scene->pair, has_ended, scene->sent, "a send's end");
    must_be(pair_finish(&scene->pair, scene->sent), TMSG_ERR_IO);
    must_be(pair_end_of(&scene->pair, scene->pair.to_a), TMSG_ERR_IO);
    must_say(tmsg_endpoint_error(scene->pair.to_a), words);
    pair_end_of(&scene->pair, scene->pair.to_b);
    cr_expect(eq(u64, scene->pair.to_b->stats.received_messages, 0));
    pair_drop(&scene->pair);
}

static void close_scene(scene_t *scene) { pair_close(&scene->pair); }

typedef struct {
    unsigned tensors;
    size_t bytes;  /* of each */
    size_t before; /* were written to the bulk stream, when it */
    unsigned tensor;
    size_t from; /* is gone */
} row_t;

/* A fragment has 1 MiB. */
static const row_t rows[] = {
    {1, 1024 * KIB, 0, 0, 0},          {1, 1024 * KIB, 1, 0, 1020 * KIB},
    {1, 4096 * KIB, 1, 0, 2048 * KIB}, {1, 4096 * KIB, 3 << 20, 0, 4088 * KIB},
    {3, 1024 * KIB, 1, 1, 512 * KIB},  {3, 1024 * KIB, 2 << 20, 2, 1000 * KIB},
    {3, 130 * KIB, 0, 1, 64 * KIB},    {3, 130 * KIB, 0, 2, 128 * KIB},
    {2, 1024 * KIB, 1 << 20, 1, 0},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void run_by_bulk(const row_t *row)
{
    const char name[] = {'t', (char)('0' + row->tensor), '\0'};
    scene_t scene;

    open_scene(&scene, row->bytes);
    await_narrow_bulk(&scene);
    send_tensors(&scene, row->tensors);
    write_some(&scene, row->before);
    take_away(&scene, row->tensor, row->from);
    must_fail(&scene, name);
    cr_expect(ge(u64, scene.pair.to_a->stats.sent_by_bulk, 1));
    cr_expect(eq(int, (int)scene.pair.to_a->paths.bulk->lost, 0));
    close_scene(&scene);
}

Test(gone, by_the_bulk_stream)
{
    for (size_t i = 0; i < ROWS; i++) {
        run_by_bulk(&rows[i]);
    }
}

/* What was canceled before ends as that. */
Test(gone, by_the_bulk_stream_after_a_cancel)
{
    scene_t scene;

    open_scene(&scene, 4096 * KIB);
    await_narrow_bulk(&scene);
    send_tensors(&scene, 1);
    write_some(&scene, 1);
    tmsg_request_cancel(scene.sent);
    cr_expect(eq(int, tmsg_request_test(scene.sent), TMSG_CANCEL_PENDING));
    take_away(&scene, 0, 0);
    pair_await(&scene.pair, has_ended, scene.sent, "a send's end");
    cr_expect(eq(int, tmsg_request_test(scene.sent), TMSG_ERR_CANCELED));
    cr_expect(eq(u64, scene.pair.to_a->stats.canceled_messages, 1));
    tmsg_request_destroy(scene.sent);
    close_scene(&scene);
}

/* The peer cannot be told, and still nothing of the message is delivered. */
Test(gone, by_the_bulk_stream_to_a_peer_that_answers_no_ping)
{
    scene_t scene;

    open_scene(&scene, 1024 * KIB);
    await_narrow_bulk(&scene);
    scene.pair.to_a->peer_hello.features &= ~(uint32_t)TMSG_FEATURE_PING;
    send_tensors(&scene, 1);
    write_some(&scene, 1);
    take_away(&scene, 0, 1020 * KIB);
    must_end(&scene, "cannot be read");
}

Test(gone, by_the_bulk_stream_to_a_peer_that_takes_no_aborts)
{
    scene_t scene;

    open_scene(&scene, 1024 * KIB);
    await_narrow_bulk(&scene);
    scene.pair.to_a->peer_hello.aborts = 0;
    send_tensors(&scene, 1);
    write_some(&scene, 1);
    take_away(&scene, 0, 1020 * KIB);
    must_end(&scene, "could not be told");
}

/* An application's own ping is under way meanwhile. */
Test(gone, by_the_bulk_stream_behind_a_ping)
{
    tmsg_request_t *ping;
    scene_t scene;

    open_scene(&scene, 1024 * KIB);
    await_narrow_bulk(&scene);
    send_tensors(&scene, 1);
    write_some(&scene, 1);
    must(tmsg_endpoint_ping(scene.pair.to_a, &ping));
    take_away(&scene, 0, 1020 * KIB);
    must_fail(&scene, "t0");
    must(pair_finish(&scene.pair, ping));
    close_scene(&scene);
}

/* Sends a large map once, and a small one until the next can go by a template
 * (am/endpoint/template.h). */
static void send_well(scene_t *scene, const tmsg_map_t *map)
{
    const tmsg_stats_t *stats = &scene->pair.to_a->stats;
    unsigned sends = 0;

    do {
        must(tmsg_endpoint_send(scene->pair.to_a, map, NULL, NULL));
        tmsg_message_destroy(pair_take(&scene->pair, &scene->pair.a));
        must_true(++sends < 1000);
    } while (scene->bytes <= TMSG_TEMPLATE_BYTES &&
             stats->sent_by_template == 0);
}

/* A send that goes at once fails at once; one that waits fails in its turn. */
Test(gone, by_ucx_without_fragments)
{
    static const size_t sizes[] = {5000, 33000, 200 * 1024};

    by_ucx_alone();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned tensors = 1; tensors <= TENSORS; tensors += 2) {
            tmsg_map_t *map;
            scene_t scene;

            if (tensors > 1 && sizes[i] < 16 * KIB) {
                continue; /* gathered: read by the processor */
            }
            open_scene(&scene, sizes[i]);
            map = make_map(&scene, tensors);
            send_well(&scene, map);
            take_away(&scene, tensors / 2, sizes[i] / 2);
            must_be(tmsg_endpoint_send(scene.pair.to_a, map, NULL, NULL),
                    TMSG_ERR_IO);
            must_say(tmsg_error_message(), tensors == 1
                                               ? "tensor 't0': its memory"
                                               : "tensor 't1': its memory");
            tmsg_map_destroy(map);
            scene.sent = send_map(scene.pair.to_a, sample_bytes(7, 100), 0);
            large_take(&scene.pair, &scene.pair.a, 7, 100);
            must(pair_finish(&scene.pair, scene.sent));
            close_scene(&scene);
        }
    }
}

/* Memory that UCX is not to be given. */
static struct {
    const unsigned char *data;
    size_t bytes;
    unsigned sends, lent; /* how often it was, all the same */
} watched;

static void watch(const void *at, size_t bytes)
{
    const unsigned char *data = at;

    watched.lent += bytes > 0 && data < watched.data + watched.bytes &&
                    data + bytes > watched.data;
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_bytes, const void *buffer,
                                 size_t count, const ucp_request_param_t *param)
{
    ucs_status_ptr_t (*real)(ucp_ep_h, unsigned, const void *, size_t,
                             const void *, size_t, const ucp_request_param_t *);
    bool listed = param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE &&
                  param->datatype == ucp_dt_make_iov();
    const ucp_dt_iov_t *list = buffer;

    watched.sends++;
    for (size_t i = 0; listed && i < count; i++) {
        watch(list[i].buffer, list[i].length);
    }
    if (!listed) {
        watch(buffer, count);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "ucp_am_send_nbx");
    must_true(real != NULL);
    return real(ep, id, header, header_bytes, buffer, count, param);
}

/* UCX is lent not even a single byte, which it would have the kernel read. The
 * last sends go by a template, if they can (am/endpoint/template.h). */
Test(gone, by_ucx_nothing_is_lent)
{
    static const size_t sizes[] = {1, 64, 512, 513, 577, 5000, 33000};
    unsigned by_template = 0;

    by_ucx_alone();
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned tensors = 1 + i % 2;
        tmsg_map_t *map;
        scene_t scene;

        open_scene(&scene, sizes[i / 2]);
        map = make_map(&scene, tensors);
        for (unsigned sends = 0;
             sends < 400 && scene.pair.to_a->stats.sent_by_template < 10;
             sends++) {
            watched.data = scene.data[sends % tensors];
            watched.bytes = scene.bytes;
            must(tmsg_endpoint_send(scene.pair.to_a, map, NULL, NULL));
            tmsg_message_destroy(pair_take(&scene.pair, &scene.pair.a));
        }
        cr_expect(eq(uint, watched.lent, 0), "%zu bytes", scene.bytes);
        by_template += scene.pair.to_a->stats.sent_by_template > 0;
        tmsg_map_destroy(map);
        close_scene(&scene);
    }
    cr_expect(ge(uint, watched.sends, 100));
    cr_expect(eq(uint, by_template, 11));
}

static bool some_went(void *arg)
{
    const scene_t *scene = arg;

    return scene->pair.to_a->tx.fragments_handed >= 3;
}

/* The tensor is missed before UCX gets its fragments. */
/* All others have gone, and are with the peer, before it fails. */
Test(gone, by_ucx_one_fragment_of_many)
{
    for (unsigned tensor = 0; tensor < TENSORS; tensor++) {
        const char name[] = {'t', (char)('0' + tensor), '\0'};
        scene_t scene;

        by_ucx_alone();
        setenv(
            "TENSORMSG_THRESHOLDS",
            "tcp.bulk_bytes=never,tcp.fragment_bytes=1000,tcp.chunk_bytes=4096",
            1);
        open_scene(&scene, 20 * KIB);
        take_away(&scene, tensor, 16 * KIB);
        send_tensors(&scene, TENSORS);
        for (unsigned i = 0; i < 1000; i++) { /* asks for all there is */
            tmsg_worker_progress(scene.pair.a.worker);
        }
        must_fail(&scene, name);
        cr_expect(eq(u64, scene.pair.to_b->stats.received_messages, 3));
        close_scene(&scene);
    }
}

static void run_in_fragments(bool aborts)
{
    scene_t scene;

    by_ucx_alone();
    open_scene(&scene, 12 << 20);
    scene.pair.to_a->peer_hello.aborts = aborts;
    send_tensors(&scene, 2);
    pair_await(&scene.pair, some_went, &scene, "some fragments");
    take_away(&scene, 1, 6 << 20);
    if (!aborts) {
        must_end(&scene, "could not be told");
        return;
    }
    must_fail(&scene, "t1");
    close_scene(&scene);
}

Test(gone, by_ucx_in_fragments) { run_in_fragments(true); }
Test(gone, by_ucx_in_fragments_to_a_peer_that_takes_no_aborts)
{
    run_in_fragments(false);
}
