/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA IPC of the library's own (am/path/ipc.h), on the simulated driver, with
 * a UCX that knows nothing of CUDA. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/sim_driver.h"
#include "memory/cuda.h"
#include "memory/device_ipc.h"
#include "support/forged_messages.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MIB (1u << 20)
#define ON_HOST (-1)
#define WAIT_MS 20000

static const tmsg_stream_t none;
static const sim_cuda_t *sim;
static const tmsg_domain_t *cuda;

static tmsg_device_t gpu(int32_t id)
{
    return (tmsg_device_t){TMSG_DEVICE_CUDA, id};
}

/* Called by each process of a test. */
static void begin(void)
{
    /* Small tensors go by CUDA IPC, too, and not in the message. */
    setenv("TENSORMSG_THRESHOLDS", "shm.device_gather_bytes=0", 0);
    sim = sim_open(&(sim_symbol_t){NULL, NULL});
    must(tmsg_domain_use(gpu(0)));
    must(tmsg_domain_find(gpu(0), &cuda));
}

/* The driver misses the end of a process, so each one closes all before. */
static void end(void)
{
    must_true(tmsg_ipc_settle(WAIT_MS));
    if (sim->complaint() != NULL) {
        die("%s", sim->complaint());
    }
    must_eq(sim->counts->undefined, 0);
    must_eq(sim->counts->freed_while_open, 0);
}

typedef struct {
    int32_t device;
    size_t bytes;
} piece_t;

static const piece_t mixed[] = {{0, 17 * MIB + 17}, {ON_HOST, 70000},
                                {0, 300},           {0, 0},
                                {0, MIB},           {ON_HOST, 9 * MIB}};
static const piece_t large[] = {{0, 17 * MIB + 17}, {0, 300}, {0, MIB}};
static const piece_t modest[] = {{0, 200000}, {0, 300}};
static const piece_t small[] = {{0, 300}, {0, 4000}};
#define COUNT(pieces) (sizeof(pieces) / sizeof((pieces)[0]))

typedef struct {
    const piece_t *piece;
    void *data;
    bool shareable;
} owned_t;

/* Whether memory of devices is tmsg_shareable_alloc()'s. */
static bool shareable;

static void alloc_on(int32_t device, size_t bytes, void **data_p)
{
    const tmsg_shareable_params_t params = {
        .field_mask = TMSG_SHAREABLE_PARAM_DEVICE, .device = gpu(device)};

    if (shareable && bytes > 0) {
        must(tmsg_shareable_alloc(bytes, &params, data_p));
    } else {
        must(cuda->alloc(cuda->arg, gpu(device), bytes, 64, none, data_p));
    }
}

static void free_piece(void *arg)
{
    owned_t *owned = arg;

    if (owned->piece->device == ON_HOST) {
        free(owned->data);
    } else if (owned->shareable) {
        must(tmsg_shareable_free(owned->data));
    } else {
        cuda->free(cuda->arg, gpu(owned->piece->device), owned->data,
                   owned->piece->bytes, none);
    }
    free(owned);
}

static tmsg_map_t *make_map(uint64_t seed, const piece_t *pieces, size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        int64_t shape[] = {(int64_t)pieces[i].bytes};
        char name[] = {(char)('a' + i), '\0'};
        uint8_t *bytes = malloc(pieces[i].bytes + 1);
        owned_t *owned = malloc(sizeof(*owned));
        tmsg_tensor_t tensor = {.ndim = 1,
                                .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                .device = {TMSG_DEVICE_CPU, 0},
                                .shape = shape};
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = free_piece,
                                              .release_arg = owned};

        *owned = (owned_t){&pieces[i], bytes, shareable && pieces[i].bytes > 0};
        sample_fill(seed + i, bytes, pieces[i].bytes);
        if (pieces[i].device != ON_HOST) {
            tensor.device = gpu(pieces[i].device);
            alloc_on(pieces[i].device, pieces[i].bytes, &owned->data);
            must(cuda->copy_in(cuda->arg, tensor.device, owned->data, bytes,
                               pieces[i].bytes, none));
            free(bytes);
        }
        tensor.data = owned->data;
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static void check_map(uint64_t seed, const piece_t *pieces, size_t count,
                      const tmsg_map_t *map, bool on_host)
{
    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        uint8_t *bytes = malloc(pieces[i].bytes + 1);
        tmsg_tensor_t tensor;

        must(tmsg_map_at(map, i, NULL, &tensor));
        must_eq(tensor.device.type, pieces[i].device == ON_HOST || on_host
                                        ? TMSG_DEVICE_CPU
                                        : TMSG_DEVICE_CUDA);
        if (tensor.device.type == TMSG_DEVICE_CPU) {
            memcpy(bytes, tensor.data, pieces[i].bytes);
        } else {
            must(cuda->copy_out(cuda->arg, tensor.device, bytes, tensor.data,
                                pieces[i].bytes, none));
        }
        must_eq(sample_compare(seed + i, bytes, pieces[i].bytes),
                pieces[i].bytes);
        free(bytes);
    }
}

static void says(const tmsg_endpoint_t *endpoint, const char *part)
{
    char *json;

    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, part);
    tmsg_string_free(json);
}

/* What the child of a test does. */
typedef struct {
    link_t link;
    const piece_t *pieces;
    size_t count;
    unsigned maps;
    uint32_t flags; /* of the worker */
    bool on_host;   /* the tensors are expected there */
    const char *says;
    bool barred; /* its driver opens no handles */
} echo_t;

static void echo(pipes_t *pipes, void *arg)
{
    const echo_t *as = arg;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS, .flags = as->flags}};
    tmsg_endpoint_t *endpoint;
    side_t side;

    if (as->barred) {
        setenv("SIM_CUDA_NO_IPC", "open", 1);
    }
    begin();
    side_open(&side, &options);
    side_listen_link(&side, as->link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (unsigned i = 0; i < as->maps; i++) {
        tmsg_message_t *message = side_take(&side);
        tmsg_request_t *sent;

        check_map(100 * i, as->pieces, as->count, tmsg_message_map(message),
                  as->on_host);
        must(tmsg_endpoint_send(endpoint, tmsg_message_map(message), NULL,
                                &sent));
        tmsg_message_destroy(message);
        must(side_finish(&side, sent));
    }
    if (as->says != NULL) {
        says(endpoint, as->says);
    }
    (void)side_end_of(&side, endpoint);
    side_close(&side);
    end();
}

/* Sends maps to a child and takes them back. The connection is the caller's to
 * end, by close_echo(). */
static tmsg_endpoint_t *run_echo(const echo_t *as, child_t *child, side_t *side)
{
    tmsg_endpoint_t *endpoint;
    char url[300];

    child_start(child, echo, (void *)(uintptr_t)as);
    line_get(child->in, url, sizeof(url));
    begin();
    side_open(side, NULL);
    endpoint = side_connect(side, url);
    for (unsigned i = 0; i < as->maps; i++) {
        tmsg_request_t *sent =
            send_map(endpoint, make_map(100 * i, as->pieces, as->count),
                     TMSG_SEND_ACKED);
        tmsg_message_t *message = side_take(side);

        check_map(100 * i, as->pieces, as->count, tmsg_message_map(message),
                  as->on_host);
        tmsg_message_destroy(message);
        must(side_finish(side, sent));
    }
    return endpoint;
}

/* In order, so that each side hears that its blocks are closed. */
static void close_echo(tmsg_endpoint_t *endpoint, child_t *child, side_t *side)
{
    tmsg_request_t *over;

    must(tmsg_endpoint_close(endpoint, &over));
    must(side_finish(side, over));
    tmsg_endpoint_destroy(endpoint);
    must_eq(tmsg_ipc_count().views, 0);
    child_join(child);
    side_close(side);
    end();
}

static void there_and_back(link_t link)
{
    const echo_t as = {.link = link,
                       .pieces = large,
                       .count = COUNT(large),
                       .maps = 2,
                       .says = "\"received_ipc\":\t6,"};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = run_echo(&as, &child, &side);
    says(endpoint, "\"device_ipc\":\t\"yes\"");
    says(endpoint, "\"sent_ipc\":\t6,");
    says(endpoint, "\"sent_staged\":\t0,");
    says(endpoint, "\"received_staged\":\t0,");
    must_eq(sim->counts->ipc_opened, 1); /* by two maps of three tensors */
    close_echo(endpoint, &child, &side);
    must_eq(tmsg_ipc_count().memories, 0);
    must_eq(tmsg_ipc_count().views, 0);
}

Test(ipc, goes_there_and_back_by_unix) { there_and_back(LINK_UNIX); }
Test(ipc, goes_there_and_back_by_shm) { there_and_back(LINK_SHM); }

Test(ipc, takes_host_tensors_of_the_same_map)
{
    const echo_t as = {
        .link = LINK_UNIX, .pieces = mixed, .count = COUNT(mixed), .maps = 2};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = run_echo(&as, &child, &side);
    says(endpoint, "\"sent_ipc\":\t6,");
    close_echo(endpoint, &child, &side);
}

Test(ipc, leaves_small_maps_alone)
{
    const echo_t as = {
        .link = LINK_UNIX, .pieces = small, .count = COUNT(small), .maps = 1};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = run_echo(&as, &child, &side);
    says(endpoint, "\"device_ipc\":\t\"none\"");
    says(endpoint, "\"sent_staged\":\t2,");
    must_eq(sim->counts->ipc_exported, 0);
    close_echo(endpoint, &child, &side);
}

/* The maps arrive all the same, staged, and describe() says why. */
static void falls_back(const echo_t *as, const char *variable,
                       const char *value, const char *why)
{
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    setenv(variable, value, 1);
    endpoint = run_echo(as, &child, &side);
    says(endpoint, why);
    says(endpoint, "\"sent_ipc\":\t0,");
    close_echo(endpoint, &child, &side);
}

static const echo_t two_modest = {
    .link = LINK_UNIX, .pieces = modest, .count = COUNT(modest), .maps = 2};

Test(ipc, falls_back_where_no_handle_is_made)
{
    falls_back(&two_modest, "SIM_CUDA_NO_IPC", "1",
               "\"device_ipc\":\t\"none: cuIpcGetMemHandle: ");
}

Test(ipc, falls_back_where_no_handle_is_opened)
{
    echo_t as = two_modest;

    as.barred = true;
    falls_back(&as, "SIM_UNUSED", "",
               "\"device_ipc\":\t\"none: the peer does not open device memory: "
               "cuIpcOpenMemHandle: ");
}

Test(ipc, falls_back_with_a_driver_without_handles)
{
    falls_back(&two_modest, "SIM_CUDA_MISSING", "cuIpcOpenMemHandle",
               "\"device_ipc\":\t\"none: the CUDA driver shares no memory with "
               "other processes\"");
}

Test(ipc, falls_back_where_it_is_switched_off)
{
    falls_back(&two_modest, "TENSORMSG_THRESHOLDS",
               "shm.device_ipc_bytes=never", "\"device_ipc\":\t\"none\"");
}

Test(ipc, falls_back_with_a_stream)
{
    echo_t as = two_modest;

    as.link = LINK_STREAM;
    falls_back(&as, "SIM_UNUSED", "", "\"device_ipc\":\t\"none\"");
}

Test(ipc, falls_back_to_the_host_where_the_receiver_wants_that)
{
    echo_t as = two_modest;
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    as.flags = TMSG_WORKER_HOST_ONLY;
    as.on_host = true;
    endpoint = run_echo(&as, &child, &side);
    says(endpoint, "\"device_ipc\":\t\"none: the peer does not open device "
                   "memory: it takes memory of the host alone\"");
    close_echo(endpoint, &child, &side);
}

/* Sends a map from b to a, and checks it there. */
static void pass_map(pair_t *pair, const piece_t *pieces, size_t count)
{
    tmsg_request_t *sent =
        send_map(pair->to_a, make_map(1, pieces, count), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    check_map(1, pieces, count, tmsg_message_map(message), false);
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

/* Memory of the same process is not opened: CUDA refuses that. */
Test(ipc, takes_the_pointer_in_the_same_process)
{
    pair_t pair;

    begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pass_map(&pair, large, COUNT(large));
    says(pair.to_a, "\"sent_ipc\":\t3,");
    must_eq(sim->counts->ipc_opened, 0);
    pair_close(&pair);
    must_eq(tmsg_ipc_count().memories, 0);
    end();
}

/* A session that comes back offers its device memory anew, and copies again
 * what had not arrived. */
static void comes_back(bool own)
{
    const how_t how = {.link = LINK_SHM, .direct = true};
    tmsg_request_t *sent[12];
    joined_t joined;

    shareable = own;
    begin();
    sim->set_delay(300);
    joined_open(&joined, &how);
    for (unsigned i = 0; i < COUNT(sent); i++) {
        sent[i] =
            send_map(joined.pair.to_a, make_map(100 * i, modest, COUNT(modest)),
                     TMSG_SEND_ACKED);
    }
    for (unsigned i = 0; i < COUNT(sent); i++) {
        tmsg_message_t *message = pair_take(&joined.pair, &joined.pair.a);

        check_map(100 * i, modest, COUNT(modest), tmsg_message_map(message),
                  false);
        tmsg_message_destroy(message);
        if (i % 4 == 1 && joined_is_open(&joined)) {
            must_eq(shutdown(joined.pair.to_a->link.fd, SHUT_RDWR), 0);
        }
    }
    for (unsigned i = 0; i < COUNT(sent); i++) {
        must(pair_finish(&joined.pair, sent[i]));
    }
    must_true(described(joined.pair.to_a, "sent_ipc") >=
              (long)(2 * COUNT(sent)));
    joined_close(&joined);
    must_eq(tmsg_ipc_count().memories, 0);
    end();
}

Test(ipc, comes_back_with_a_session) { comes_back(false); }
Test(ipc, comes_back_with_a_session_and_shareable_memory) { comes_back(true); }

/* Where a path is required this is one, for small maps, too. */
Test(ipc, is_a_path)
{
    const side_options_t options = {.flags = TMSG_CONTEXT_REQUIRE_PATH};
    pair_t pair;

    begin();
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &options, &options);
    pass_map(&pair, small, COUNT(small));
    pass_map(&pair, large, COUNT(large));
    says(pair.to_a, "\"sent_ipc\":\t5,");
    pair_close(&pair);
    end();
}

/* A receiver's map may lie on the host, or on a device behind what a stream
 * does. */
Test(ipc, writes_into_maps_of_the_receiver)
{
    static const piece_t there[] = {
        {ON_HOST, 17 * MIB + 17}, {0, 300}, {ON_HOST, MIB}};
    tmsg_map_t *into;
    tmsg_request_t *sent;
    receiving_t receiving;
    pair_t pair;

    begin();
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    into = make_map(50, there, COUNT(there));
    receiving = (receiving_t){.pair = &pair, .map = into};
    sent =
        send_map(pair.to_a, make_map(1, large, COUNT(large)), TMSG_SEND_ACKED);
    pair_await(&pair, receiving_has_ended, &receiving, "the map");
    must(receiving.status);
    check_map(1, there, COUNT(there), into, false);
    tmsg_message_destroy(receiving.message);
    must(pair_finish(&pair, sent));
    says(pair.to_a, "\"sent_ipc\":\t3,");
    pair_close(&pair);
    tmsg_map_destroy(into);
    end();
}

static bool has_begun_to_copy(void *arg)
{
    (void)arg;
    return sim->counts->copies_ipc > 0;
}

static void send_for_ever(pipes_t *pipes, void *arg)
{
    char url[300];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    begin();
    side_open(&side, NULL);
    must(side_finish(&side, send_map(side_connect(&side, url),
                                     make_map(1, modest, COUNT(modest)),
                                     TMSG_SEND_ACKED)));
    die("it was to be killed");
}

/* The receiver's copy of what is left of the sender ends, and so does the
 * connection; no stream waits for the sender. */
Test(ipc, outlives_a_sender_that_is_killed_while_its_memory_is_copied)
{
    const tmsg_stream_t *no_stream = &none;
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;
    void *data;

    child_start(&child, send_for_ever, NULL);
    begin();
    sim->set_delay(100000);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(child.out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    side_await(&side, has_begun_to_copy, NULL, "a copy");
    child_kill(&child);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    sim->set_delay(0);
    must(cuda->alloc(cuda->arg, gpu(0), 4096, 64, *no_stream, &data));
    must(cuda->copy_within(cuda->arg, gpu(0), data, (uint8_t *)data + 2048,
                           2048, *no_stream));
    cuda->free(cuda->arg, gpu(0), data, 4096, *no_stream);
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
    must_eq(tmsg_ipc_count().views, 0);
    end();
}

static void take_for_ever(pipes_t *pipes, void *arg)
{
    side_t side;

    (void)arg;
    begin();
    sim->set_delay(100000);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    (void)side_accept(&side);
    side_await(&side, has_begun_to_copy, NULL, "a copy");
    line_put(pipes->out, "it copies");
    pause();
}

/* Its memory is kept until the receiver has ended, and then freed. */
Test(ipc, frees_its_memory_when_a_receiver_was_killed)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, take_for_ever, NULL);
    line_get(child.in, url, sizeof(url));
    begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    sent =
        send_map(endpoint, make_map(1, modest, COUNT(modest)), TMSG_SEND_ACKED);
    child_await(&side, &child);
    tmsg_endpoint_destroy(endpoint);
    must_eq(tmsg_ipc_count().memories, 1);
    child_kill(&child);
    must_true(side_finish(&side, sent) != TMSG_OK);
    side_close(&side);
    must_eq(tmsg_ipc_count().memories, 0);
    must_eq(sim->counts->undefined, 0); /* the driver misses a process's end */
}

static bool is_freed(void *arg)
{
    (void)arg;
    return tmsg_ipc_count().memories == 0;
}

/* The connection ends without a word of the receiver, which is killed later.
 * The application has freed its memory before. */
Test(ipc, frees_memory_when_a_receiver_is_killed_that_said_nothing)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, take_for_ever, NULL);
    line_get(child.in, url, sizeof(url));
    shareable = true;
    begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    sent =
        send_map(endpoint, make_map(1, modest, COUNT(modest)), TMSG_SEND_ACKED);
    child_await(&side, &child);
    tmsg_endpoint_destroy(endpoint);
    must_true(side_finish(&side, sent) != TMSG_OK);
    must_eq(tmsg_ipc_count().kept, COUNT(modest));
    child_kill(&child);
    side_await(&side, is_freed, NULL, "memory of a process that has ended");
    side_close(&side);
    must_eq(sim->counts->undefined, 0); /* the driver misses a process's end */
}

/* A peer may have ended before it is offered anything. */
Test(ipc, lends_nothing_to_a_process_that_has_ended)
{
    tmsg_ipc_memory_t *memory;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    must_eq(waitpid(pid, NULL, 0), pid);
    begin();
    must(tmsg_ipc_alloc(cuda, gpu(0), MIB, "", &memory));
    must_be(tmsg_ipc_lend(memory, pid), TMSG_ERR_UNSUPPORTED);
    tmsg_ipc_free(memory);
    must_eq(tmsg_ipc_count().memories, 0);
    end();
}

static void take_with_a_fault(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    side_t side;

    (void)arg;
    setenv("SIM_CUDA_FAULT_AT", "1", 1);
    begin();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    (void)side_end_of(&side, endpoint);
    side_close(&side);
}

/* The device of the receiver fails while it copies. */
Test(ipc, tells_the_sender_why_the_receiver_could_not_copy)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, take_with_a_fault, NULL);
    line_get(child.in, url, sizeof(url));
    begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    sent =
        send_map(endpoint, make_map(1, modest, COUNT(modest)), TMSG_SEND_ACKED);
    must_true(side_wait(&side, sent) != TMSG_OK);
    must_say(tmsg_request_error(sent), "illegal memory access");
    tmsg_request_destroy(sent);
    tmsg_endpoint_destroy(endpoint);
    child_join(&child);
    side_close(&side);
}

/* A block that a peer keeps is used again by the next worker. */
Test(ipc, uses_memory_again_that_a_receiver_keeps)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, take_for_ever, NULL);
    line_get(child.in, url, sizeof(url));
    begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    sent = send_map(endpoint, make_map(1, modest, COUNT(modest)), 0);
    child_await(&side, &child);
    tmsg_endpoint_destroy(endpoint);
    tmsg_request_destroy(sent);
    side_close(&side);
    must_eq(tmsg_ipc_count().kept, 1);
    for (int i = 0; i < 2; i++) {
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        pass_map(&pair, modest, COUNT(modest));
        must_eq(tmsg_ipc_count().kept, 0);
        pair_close(&pair);
        must_eq(tmsg_ipc_count().memories, 1);
    }
    child_kill(&child);
    end();
}

/* Memory that is allocated for that is not copied by its sender, which reads
 * nothing of it, and is freed while the connection goes on. */
Test(ipc, copies_once_out_of_shareable_memory)
{
    const echo_t as = {
        .link = LINK_UNIX, .pieces = large, .count = COUNT(large), .maps = 2};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    shareable = true;
    endpoint = run_echo(&as, &child, &side);
    says(endpoint, "\"sent_ipc\":\t6,");
    must_eq(sim->counts->ipc_exported, 6);
    must_eq(sim->counts->copies_ipc, 8); /* what came back, of two fragments */
    must_eq(sim->counts->copies_dtod, 8);
    side_await(&side, is_freed, NULL, "memory that both have let go of");
    must_eq(sim->counts->freed_while_open, 0);
    close_echo(endpoint, &child, &side);
}

static bool is_let_go(void *arg)
{
    (void)arg;
    return tmsg_ipc_count().views == 0;
}

/* Exchanges maps with the other side until the connection ends. */
static void exchange(side_t *side, tmsg_endpoint_t *endpoint)
{
    while (tmsg_endpoint_status(endpoint) == TMSG_OK) {
        tmsg_map_t *map = make_map(1, modest, COUNT(modest));
        tmsg_request_t *sent;
        tmsg_message_t *message;

        if (tmsg_endpoint_send(endpoint, map, NULL, &sent) == TMSG_OK) {
            (void)side_finish(side, sent);
        }
        tmsg_map_destroy(map);
        while (tmsg_worker_recv(side->worker, 0, &message) == TMSG_OK) {
            check_map(1, modest, COUNT(modest), tmsg_message_map(message),
                      false);
            tmsg_message_destroy(message);
        }
    }
}

typedef struct {
    bool shareable;
    unsigned after_us;
} killed_t;

static void *kill_late(void *arg)
{
    usleep(((const killed_t *)arg)->after_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void exchange_until_killed(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    pthread_t thread;
    char url[300];
    side_t side;

    shareable = ((const killed_t *)arg)->shareable;
    line_get(pipes->in, url, sizeof(url));
    begin();
    sim->set_delay(500);
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must_eq(pthread_create(&thread, NULL, kill_late, arg), 0);
    exchange(&side, endpoint);
    pause();
}

#define KILLED 10

typedef struct {
    side_t *side;
    child_t *child;
} coming_t;

static bool is_accepted_or_gone(void *arg)
{
    const coming_t *coming = arg;
    struct pollfd end = {coming->child->pidfd, POLLIN, 0};

    return coming->side->accepted != NULL || poll(&end, 1, 0) > 0;
}

/* A process is killed at any time: its connection ends, what it had open is
 * freed, and what it shared is closed. The next one finds all well. */
Test(ipc, outlives_processes_that_are_killed_at_any_time)
{
    child_t children[KILLED];
    killed_t killed;
    side_t side;

    for (unsigned i = 0; i < KILLED; i++) {
        killed = (killed_t){i % 2 == 1, i * 2000};
        child_start(&children[i], exchange_until_killed, &killed);
    }
    begin();
    sim->set_delay(500);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    for (unsigned i = 0; i < KILLED; i++) {
        tmsg_endpoint_t *endpoint;

        shareable = i % 4 < 2;
        side.accepted = NULL;
        line_put(children[i].out, tmsg_listener_url(side.listener));
        side_await(&side, is_accepted_or_gone, &(coming_t){&side, &children[i]},
                   "a child, or its end");
        endpoint = side.accepted;
        if (endpoint != NULL) {
            exchange(&side, endpoint);
            tmsg_endpoint_destroy(endpoint);
        }
        child_kill(&children[i]);
        side_await(&side, is_let_go, NULL, "memory of a killed process");
    }
    side_close(&side);
    must_true(tmsg_ipc_settle(WAIT_MS));
    must_eq(tmsg_ipc_count().memories, 0);
    must_eq(sim->counts->undefined, 0); /* the driver misses a process's end */
}

/* Starts a kernel that runs until *go is not 0. */
static void hold(const volatile int *go)
{
    tmsg_cuda_scope_t scope;

    must(tmsg_cuda_enter(gpu(0), none, TMSG_CUDA_ALLOCATIONS, &scope));
    scope.own = false;
    must(tmsg_cuda_leave(&scope, sim->hold(go, NULL), "hold"));
}

/* A kernel holds up the driver when it is to close the peer's memory. */
static void close_late(pipes_t *pipes, void *arg)
{
    static volatile int go;
    tmsg_endpoint_t *endpoint;
    char line[8];
    side_t side;

    (void)arg;
    begin();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    tmsg_message_destroy(side_take(&side));
    hold(&go);
    line_put(pipes->out, "it holds");
    side_await(&side, is_let_go, NULL, "memory that is to be closed");
    must_true(!tmsg_ipc_settle(30));
    go = 1;
    (void)side_end_of(&side, endpoint);
    side_close(&side);
    line_get(pipes->in, line, sizeof(line));
    end();
}

/* The owner hears all the same that it is closed, and frees it before the
 * peer's process has ended. */
static void closed_late(bool own)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *over;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, close_late, NULL);
    line_get(child.in, url, sizeof(url));
    shareable = own;
    begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(side_finish(&side,
                     send_map(endpoint, make_map(1, modest, COUNT(modest)),
                              TMSG_SEND_ACKED)));
    child_await(&side, &child);
    if (own) {
        side_await(&side, is_freed, NULL, "memory that both have let go of");
    }
    must(tmsg_endpoint_close(endpoint, &over));
    must(side_finish(&side, over));
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
    must_eq(tmsg_ipc_count().memories, 0);
    line_put(child.out, "end");
    child_join(&child);
    end();
}

Test(ipc, frees_memory_that_a_kernel_of_the_receiver_holds_up)
{
    closed_late(true);
}

Test(ipc, ends_when_memory_is_closed_that_a_kernel_of_the_receiver_holds_up)
{
    closed_late(false);
}

/* Where the peer does not open it, such memory is any other. */
Test(ipc, stages_shareable_memory_that_is_not_opened)
{
    echo_t as = two_modest;

    shareable = true;
    as.barred = true;
    falls_back(&as, "SIM_UNUSED", "",
               "\"device_ipc\":\t\"none: the peer does not open device memory: "
               "cuIpcOpenMemHandle: ");
}

Test(ipc, tells_what_is_wrong_with_shareable_memory)
{
    const tmsg_shareable_params_t none_such = {
        .field_mask = TMSG_SHAREABLE_PARAM_DEVICE, .device = gpu(77)};
    const tmsg_shareable_params_t here = {
        .field_mask = TMSG_SHAREABLE_PARAM_DEVICE, .device = gpu(0)};
    const tmsg_shareable_params_t unknown = {.field_mask = 6};
    void *data = NULL;

    begin();
    must_be(tmsg_shareable_alloc(1, &unknown, &data), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_shareable_alloc(0, &here, &data), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_shareable_alloc(1, &none_such, &data), TMSG_ERR_NOT_FOUND);
    must_be(tmsg_shareable_alloc(UINT64_MAX / 2, &here, &data),
            TMSG_ERR_NO_MEMORY);
    must_true(data == NULL);
    must(tmsg_shareable_alloc(1000, &here, &data));
    must_be(tmsg_shareable_free((uint8_t *)data + 1), TMSG_ERR_INVALID_PARAM);
    must(tmsg_shareable_free(data));
    must_be(tmsg_shareable_free(data), TMSG_ERR_INVALID_PARAM);
    must_eq(tmsg_ipc_count().memories, 0);
    end();
}

/* What goes to one principal lies in no memory that another one opens. */
Test(ipc, has_a_block_for_each_principal)
{
    static const char *const names[] = {"alice", "bob", "alice"};
    static const unsigned memories[] = {1, 2, 2};
    tmsg_keyring_t *all = ring("alice", 1);
    const side_options_t server = {.drive = DRIVE_THREAD, .keyring = all};
    side_t owner, peers[3];

    add_key(all, "bob", 2);
    begin();
    side_open(&owner, &server);
    side_listen_link(&owner, LINK_UNIX);
    for (unsigned i = 0; i < 3; i++) {
        tmsg_keyring_t *own = ring(names[i], names[i][0] == 'a' ? 1 : 2);
        const side_options_t options = {.drive = DRIVE_THREAD, .keyring = own};
        tmsg_message_t *message;
        tmsg_request_t *sent;

        side_open(&peers[i], &options);
        (void)side_dial(&peers[i], &owner);
        sent = send_map(side_accept(&owner), make_map(1, modest, COUNT(modest)),
                        TMSG_SEND_ACKED);
        message = side_take(&peers[i]);
        check_map(1, modest, COUNT(modest), tmsg_message_map(message), false);
        tmsg_message_destroy(message);
        must(side_finish(&owner, sent));
        says(owner.accepted, names[i]);
        must_eq(tmsg_ipc_count().memories, memories[i]);
        tmsg_keyring_destroy(own);
    }
    for (unsigned i = 0; i < 3; i++) {
        side_close(&peers[i]);
    }
    side_close(&owner);
    tmsg_keyring_destroy(all);
    end();
}

/* Nobody else than the kernel tells whose process a peer is: memory that is
 * lent to the wrong one would never be freed, or too early. */
Test(ipc, offers_nothing_to_a_peer_that_the_kernel_does_not_confirm)
{
    pair_t pair;

    begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_a->lease.doubt = "the kernel names another";
    pass_map(&pair, modest, COUNT(modest));
    says(pair.to_a, "\"device_ipc\":\t\"none: the kernel names another\"");
    must_eq(sim->counts->ipc_exported, 0);
    pair_close(&pair);
    end();
}

#define NAMES 2

static void tell_names(pipes_t *pipes, void *arg)
{
    tmsg_ipc_memory_t *memories[NAMES];
    char line[8];

    (void)arg;
    begin();
    for (int i = 0; i < NAMES; i++) {
        const tmsg_ipc_name_t *name;

        must(tmsg_ipc_alloc(cuda, gpu(0), MIB, "", &memories[i]));
        name = tmsg_ipc_name(memories[i]);
        must_eq(write(pipes->out, name, sizeof(*name)), sizeof(*name));
    }
    line_get(pipes->in, line, sizeof(line));
    for (int i = 0; i < NAMES; i++) {
        tmsg_ipc_free(memories[i]);
    }
    end();
}

/* A peer that gives its memory the id of another's, which can be guessed, does
 * not come into the place of that. */
Test(ipc, takes_no_memory_for_another_of_the_same_id)
{
    tmsg_ipc_name_t names[NAMES], name;
    tmsg_ipc_view_t *views[NAMES], *same;
    tmsg_ipc_memory_t *own;
    child_t child;

    child_start(&child, tell_names, NULL);
    must_eq(read(child.in, &names[0], sizeof(name)), sizeof(name));
    must_eq(read(child.in, &names[1], sizeof(name)), sizeof(name));
    begin();
    memcpy(names[0].id, names[1].id, sizeof(name.id));
    for (int i = 0; i < NAMES; i++) {
        must(tmsg_ipc_open(&names[i], &views[i]));
    }
    must_true(views[0]->data != views[1]->data);
    must(tmsg_ipc_open(&names[1], &same));
    must_true(same == views[1]);
    must(tmsg_ipc_alloc(cuda, gpu(0), MIB, "", &own));
    name = *tmsg_ipc_name(own);
    name.handle[0] ^= 1;
    must_be(tmsg_ipc_open(&name, &same), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "has another handle");
    tmsg_ipc_free(own);
    tmsg_ipc_close(views[0]);
    tmsg_ipc_close(views[1]);
    tmsg_ipc_close(views[1]);
    must_true(tmsg_ipc_settle(WAIT_MS));
    line_put(child.out, "end");
    child_join(&child);
    end();
}

/* A fragment, said to lie in a block of b's. */
static void a_place(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = TMSG_KIND_FRAGMENT,
                                  .message_id = 77,
                                  .flags = TMSG_HEADER_READ,
                                  .sequence =
                                      pair->to_a->channels.zero.tx_sequence,
                                  .payload_bytes = 40000};
    uint8_t body[4] = {0};

    forged_make(pair, head, body, sizeof(body), forged);
    forged->payload_bytes = 24;
    memset(forged->payload, 0, 24);
    forged->payload[0] = (uint8_t)number;
    forged->way = BY_EAGER;
}

/* An offer with the number of one that was taken. */
static void an_offer(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = TMSG_FRAME_DEVICE,
                                  .payload_bytes = 106};

    forged_make(pair, head, NULL, 0, forged);
    memset(forged->payload, 0, 101);
    forged->payload[1] = (uint8_t)number;
    forged->payload[5] = 1;
    memcpy(forged->payload + 101, "GPU-1", 5);
    forged->way = BY_FRAME;
}

static void open_block(pair_t *pair) { pass_map(pair, modest, COUNT(modest)); }

/* The number of a block is where an address is otherwise. */
static const lie_t lies[] = {
    LIE("no block", ENDS("that is not there"), SAY_NTH(a_place, 0)),
    LIE("a block that was not offered", ENDS("that is not there"),
        SAY_NTH(a_place, 2)),
    LIE("a block of a large number", ENDS("that is not there"),
        SAY(a_place, {SAID_ADDRESS, (INT64_C(1) << 32) + 1})),
    LIE("more than the block", ENDS("that is not there"),
        SAY_NTH(a_place, 1, {SAID_PAYLOAD, (64 << 20) + 1})),
    LIE("nothing", ENDS("that is not there"),
        SAY_NTH(a_place, 1, {SAID_PAYLOAD, 0})),
    LIE("a number that is taken", ENDS("without a number of its own"),
        SAY_NTH(an_offer, 1)),
    LIE("a message that is no fragment", ENDS("that is not there"),
        SAY_NTH(a_place, 1, {SAID_KIND, TMSG_KIND_MAP})),
};

Test(ipc, is_lied_to_in_vain)
{
    const telling_t telling = {.link = LINK_SHM, .prepare = open_block};

    begin();
    tell_lies(&telling, lies, COUNT(lies));
    end();
}
