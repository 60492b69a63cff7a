/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory that only its own process can map, sent by a UCX that knows
 * CUDA, on the simulated driver: it is copied on its device first. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/staging.h"
#include "gpu/sim_driver.h"
#include "support/must.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define MIB ((size_t)1 << 20)

static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};
static const tmsg_device_t managed_gpu = {TMSG_DEVICE_CUDA_MANAGED, 0};
static const sim_cuda_t *sim;

/* The driver, as an application has it. */
static struct {
    int (*plain)(uint64_t *address, size_t bytes);
    int (*pool)(uint64_t *address, size_t bytes, void *stream);
    int (*wait)(void *stream);
    int (*managed)(uint64_t *address, size_t bytes, unsigned flags);
    int (*create)(uint64_t *handle, size_t bytes, const void *made,
                  unsigned long long flags);
    int (*reserve)(uint64_t *address, size_t bytes, size_t alignment,
                   uint64_t at, unsigned long long flags);
    int (*map)(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
               unsigned long long flags);
    int (*allow)(uint64_t address, size_t bytes, const void *who, size_t count);
} driver;

/* Called by each process of a test. */
static void begin(void)
{
    const sim_symbol_t symbols[] = {{"cuMemAlloc_v2", &driver.plain},
                                    {"cuMemAllocAsync", &driver.pool},
                                    {"cuStreamSynchronize", &driver.wait},
                                    {"cuMemAllocManaged", &driver.managed},
                                    {"cuMemCreate", &driver.create},
                                    {"cuMemAddressReserve", &driver.reserve},
                                    {"cuMemMap", &driver.map},
                                    {"cuMemSetAccess", &driver.allow},
                                    {NULL, NULL}};

    sim = sim_open(symbols);
    must(tmsg_domain_use(gpu));
    sim_enter();
}

static void end(void)
{
    if (sim->complaint() != NULL) {
        die("%s", sim->complaint());
    }
    must_eq(sim->counts->undefined, 0);
}

/* CUmemAllocationProp and CUmemAccessDesc. */
static uint64_t map_by_pieces(size_t bytes)
{
    static const struct {
        int type, handles, place, device;
        void *security;
        unsigned char flags[8];
    } made = {.type = 1, .place = 1};
    static const int who[] = {1, 0, 3};
    uint64_t address, handle;

    must_eq(driver.create(&handle, bytes, &made, 0), 0);
    must_eq(driver.reserve(&address, bytes, 0, 0, 0), 0);
    must_eq(driver.map(address, bytes, 0, handle, 0), 0);
    must_eq(driver.allow(address, bytes, who, 1), 0);
    return address;
}

typedef struct {
    int32_t kind; /* tmsg_memory_kind_t */
    size_t bytes;
} piece_t;

static uint64_t new_data(const piece_t *piece, uint64_t seed)
{
    uint8_t *host = malloc(piece->bytes);
    tmsg_memory_t memory;
    uint64_t address = 0;

    must_true(host != NULL);
    sample_fill(seed, host, piece->bytes);
    if (piece->kind == TMSG_MEMORY_MAPPED) {
        address = map_by_pieces(piece->bytes);
    } else if (piece->kind == TMSG_MEMORY_MANAGED) {
        must_eq(driver.managed(&address, piece->bytes, 1), 0);
    } else if (piece->kind == TMSG_MEMORY_POOL) {
        must_eq(driver.pool(&address, piece->bytes, (void *)2), 0);
        must_eq(driver.wait((void *)2), 0); /* other streams may use it now */
    } else {
        must_eq(driver.plain(&address, piece->bytes), 0);
    }
    must(tmsg_memory_query((void *)address, &memory));
    must_eq(memory.kind, piece->kind);
    must_eq(sim->poke(address, host, piece->bytes), 0);
    free(host);
    return address;
}

static tmsg_map_t *new_map(uint64_t seed, const piece_t *pieces, size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const int64_t shape = (int64_t)pieces[i].bytes;
        const char name[] = {(char)('a' + i), '\0'};
        const tmsg_tensor_t tensor = {
            (void *)new_data(&pieces[i], seed + i),
            pieces[i].kind == TMSG_MEMORY_MANAGED ? managed_gpu : gpu,
            {TMSG_DTYPE_UINT, 8, 1},
            1,
            &shape,
            NULL};

        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static void check_tensor(const tmsg_tensor_t *tensor, uint64_t seed,
                         size_t bytes, bool on_host)
{
    uint8_t *host = malloc(bytes);
    tmsg_memory_t memory;

    must_true(host != NULL);
    must_eq(tensor->device.type, on_host ? TMSG_DEVICE_CPU : TMSG_DEVICE_CUDA);
    if (on_host) {
        memcpy(host, tensor->data, bytes);
    } else {
        must(tmsg_memory_query(tensor->data, &memory));
        must_eq(memory.kind, TMSG_MEMORY_DEVICE); /* it can be passed on */
        must_eq(sim->peek(host, (uint64_t)(uintptr_t)tensor->data, bytes), 0);
    }
    must_eq(sample_compare(seed, host, bytes), bytes);
    free(host);
}

/* What the child of a test does: receives maps. */
typedef struct {
    const piece_t *pieces;
    size_t count;
    unsigned maps;
    bool on_host;
    uint64_t reads;      /* copies that it is to have made */
    uint64_t most_bytes; /* of the device, at a time */
    unsigned others;     /* connections beside the first */
} receives_t;

static void receive(pipes_t *pipes, void *arg)
{
    const receives_t *as = arg;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = as->on_host ? TMSG_WORKER_HOST_ONLY : 0}};
    tmsg_endpoint_t *endpoint;
    side_t side;

    begin();
    side_open(&side, &options);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (unsigned i = 0; i < as->others; i++) {
        (void)side_accept(&side);
    }
    for (unsigned i = 0; i < as->maps; i++) {
        uint64_t seed = as->others > 0 ? 0 : 100 * i;
        tmsg_message_t *message = side_take(&side);
        tmsg_tensor_t tensor;

        must_eq(tmsg_map_size(tmsg_message_map(message)), as->count);
        for (size_t j = 0; j < as->count; j++) {
            must(tmsg_map_at(tmsg_message_map(message), j, NULL, &tensor));
            check_tensor(&tensor, seed + j, as->pieces[j].bytes, as->on_host);
        }
        tmsg_message_destroy(message);
    }
    if (as->reads > 0) {
        must_eq(sim->counts->copies_dtod, as->reads);
        must_eq(sim->counts->copies_dtoh + sim->counts->copies_htod, 0);
    }
    must_true(as->most_bytes == 0 || sim->counts->peak_bytes <= as->most_bytes);
    (void)side_end_of(&side, endpoint);
    side_close(&side);
    end();
}

typedef struct {
    child_t child;
    side_t side;
    tmsg_endpoint_t *endpoint;
    char url[300];
} run_t;

/* `mib` of the sender's device; 0: plenty. */
static void start(run_t *run, const receives_t *as, const char *mib)
{
    child_start(&run->child, receive, (void *)(uintptr_t)as);
    line_get(run->child.in, run->url, sizeof(run->url));
    if (mib != NULL) {
        setenv("SIM_CUDA_MEMORY_MIB", mib, 1);
    }
    begin();
    side_open(&run->side, NULL);
    run->endpoint = side_connect(&run->side, run->url);
}

static void stop(run_t *run)
{
    tmsg_endpoint_destroy(run->endpoint);
    child_join(&run->child);
    side_close(&run->side);
    end();
}

static const piece_t mixed[] = {{TMSG_MEMORY_POOL, 40 * MIB},
                                {TMSG_MEMORY_DEVICE, 2 * MIB},
                                {TMSG_MEMORY_MAPPED, 4 * MIB}};
static const piece_t pool[] = {{TMSG_MEMORY_POOL, 17 * MIB}};

Test(unshared, is_copied_once_on_its_device)
{
    /* 40 MiB are three blocks, and the last has room for 4 MiB more. */
    const receives_t as = {
        .pieces = mixed, .count = 3, .maps = 1, .reads = 3 + 1 + 1};
    const tmsg_stats_t *stats;
    run_t run;

    setenv("TENSORMSG_REQUIRE_PATH", "1", 1); /* none of it by the host */
    start(&run, &as, NULL);
    must(side_finish(&run.side, send_map(run.endpoint, new_map(0, mixed, 3),
                                         TMSG_SEND_ACKED)));
    stats = &run.endpoint->stats;
    must_eq(stats->sent_copied, 2);
    must_eq(stats->sent_copied_bytes, 44 * MIB);
    must_eq(stats->sent_direct, 1);
    must_eq(stats->sent_staged, 0);
    must_eq(sim->counts->copies_dtod, 3 + 1);
    must_eq(sim->counts->copies_dtoh + sim->counts->copies_htod, 0);
    stop(&run);
}

/* A worker has four blocks, and one more for a message that others wait for. */
Test(unshared, takes_few_blocks_for_many_messages)
{
    const receives_t as = {.pieces = pool, .count = 1, .maps = 6};
    tmsg_request_t *sent[6];
    run_t run;

    start(&run, &as, NULL);
    for (unsigned i = 0; i < 6; i++) {
        sent[i] =
            send_map(run.endpoint, new_map(100 * i, pool, 1), TMSG_SEND_ACKED);
    }
    for (unsigned i = 0; i < 6; i++) {
        must(side_finish(&run.side, sent[i]));
    }
    must_true(sim->counts->peak_bytes <=
              6 * 18 * MIB + TMSG_BLOCKS_BYTES + TMSG_BLOCK_BYTES);
    must_true(run.side.worker->stage.blocks.bytes <= TMSG_BLOCKS_BYTES);
    must_eq(run.endpoint->stats.sent_copied, 6);
    stop(&run);
}

Test(unshared, goes_by_the_host_where_the_device_is_full)
{
    const receives_t as = {.pieces = pool, .count = 1, .maps = 1};
    run_t run;

    start(&run, &as, "32");
    must(side_finish(&run.side, send_map(run.endpoint, new_map(0, pool, 1),
                                         TMSG_SEND_ACKED)));
    must_eq(run.endpoint->stats.sent_staged_bytes, 17 * MIB);
    stop(&run);
}

Test(unshared, is_not_sent_where_the_device_is_full_and_a_path_is_required)
{
    const receives_t as = {.pieces = pool, .count = 1, .maps = 0};
    tmsg_request_t *sent;
    run_t run;

    setenv("TENSORMSG_REQUIRE_PATH", "1", 1);
    start(&run, &as, "32");
    sent = send_map(run.endpoint, new_map(0, pool, 1), TMSG_SEND_ACKED);
    must_be(side_wait(&run.side, sent), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_request_error(sent), "tensor 'a': there is no device memory");
    must_say(tmsg_request_error(sent), "cuMemAlloc: out of memory");
    tmsg_request_destroy(sent);
    stop(&run);
}

/* UCX bounces what comes from a device to the host through the device, and
 * keeps the memory that it took for that: no more than two chunks of 32 MiB. */
Test(unshared, has_ucx_take_little_of_the_device_of_a_receiver_on_the_host)
{
    static const piece_t plain[] = {{TMSG_MEMORY_DEVICE, 40 * MIB}};
    const receives_t as = {.pieces = plain,
                           .count = 1,
                           .maps = 3,
                           .on_host = true,
                           .most_bytes = 70 * MIB,
                           .others = 2};
    tmsg_endpoint_t *others[2];
    tmsg_request_t *sent[3];
    tmsg_map_t *map;
    run_t run;

    start(&run, &as, NULL);
    map = new_map(0, plain, 1);
    for (int i = 0; i < 2; i++) {
        others[i] = side_connect(&run.side, run.url);
    }
    for (int i = 0; i < 3; i++) {
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                           .flags = TMSG_SEND_ACKED};

        must(tmsg_endpoint_send(i < 2 ? others[i] : run.endpoint, map, &params,
                                &sent[i]));
    }
    for (int i = 0; i < 3; i++) {
        must(side_finish(&run.side, sent[i]));
    }
    must_eq(run.endpoint->stats.sent_direct, 1);
    tmsg_map_destroy(map);
    for (int i = 0; i < 2; i++) {
        tmsg_endpoint_destroy(others[i]);
    }
    stop(&run);
}

/* UCX would pass it through the host by 8 KB. */
Test(unshared, is_copied_if_it_is_managed)
{
    static const piece_t managed[] = {{TMSG_MEMORY_MANAGED, 3 * MIB}};
    const receives_t as = {
        .pieces = managed, .count = 1, .maps = 1, .on_host = true};
    run_t run;

    start(&run, &as, NULL);
    must(side_finish(&run.side, send_map(run.endpoint, new_map(0, managed, 1),
                                         TMSG_SEND_ACKED)));
    must_eq(run.endpoint->stats.sent_copied, 1);
    must_eq(sim->counts->copies_dtoh, 0);
    stop(&run);
}

/* It would be copied on its device, which a waiting kernel may occupy. */
Test(unshared, is_refused_by_bells)
{
    static const piece_t plain[] = {{TMSG_MEMORY_DEVICE, MIB}};
    const piece_t *const refused[] = {&mixed[0], &mixed[2]};
    tmsg_bell_t *bell;
    tmsg_map_t *map;
    pair_t pair;

    begin();
    pair_open(&pair, LINK_UNIX, DRIVE_THREAD, NULL, NULL);
    for (size_t i = 0; i < 2; i++) {
        map = new_map(0, refused[i], 1);
        must_be(tmsg_bell_create(pair.to_a, map, NULL, &bell),
                TMSG_ERR_UNSUPPORTED);
        must_say(tmsg_error_message(), "tensor 'a': memory of a pool");
        must_be(tmsg_bell_receive(pair.to_b, map, &bell), TMSG_ERR_UNSUPPORTED);
        tmsg_map_destroy(map);
    }
    map = new_map(0, plain, 1);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
    end();
}
