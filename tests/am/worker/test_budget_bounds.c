/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: twice in soak */
/* What a receiver may come to take, whatever its peers send, where its
 * application takes nothing (docs/reference/receiving.md, "Memory
 * bounds"): by the library's counters and by the memory of the process. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/worker/budget.h"
#include "support/channels.h"
#include "support/seeded_maps.h"

#define KIB 1024u
#define BUDGET (8 * MIB)
#define LARGE_BUDGET (32 * MIB)

enum {
    PEERS = 8,
    /* One of UCX's segments over shared memory; over TCP a record of 1 KiB,
     * and where the header does not fit, pages of one of 64 KiB. */
    SEGMENT_BYTES = 8448,
    RECORD_BYTES = 1280,
    PAGES_BYTES = 8192,
    /* What waits for its turn, and the answer that waits for UCX. */
    REFUSED_BYTES = 1024,
    /* Of each peer over shared memory, where such messages come. */
    FASTBOX_BYTES = (4 + 160) * 1024,
    RING_BYTES = (4 + 1024) * 1024,
    /* UCX's pools, of which 2.4 MiB were seen; and what heaps and pools have
     * beside what they were asked for, one part in so many. */
    OTHER_BYTES = 4 * 1024 * 1024,
    BESIDE_PART = 16,
};

typedef struct {
    const char *name;
    link_t link;
    size_t bytes;
    unsigned channels, each; /* messages */
    size_t metadata_bytes;
    bool ucx_alone;
    bool refuses;    /* it comes to that */
    uint64_t budget; /* 0: BUDGET */
} row_t;

static const row_t rows[] = {
    {"tcp, eager and small", LINK_TCP, 64, 64, 6, 0, false, false, 0},
    {"tcp, eager", LINK_TCP, 100 * KIB, 16, 30, 0, false, false, 0},
    {"tcp, by the bulk stream", LINK_TCP, 2 * MIB, 16, 10, 0, false, false, 0},
    {"tcp, by rendezvous", LINK_TCP, 2 * MIB, 16, 10, 0, true, false, 0},
    {"tcp, one that is large", LINK_TCP, 6 * MIB, 1, 3, 0, false, false, 0},
    {"tcp, headers", LINK_TCP, 4 * KIB, 16, 120, 6000, false, true, 0},
    /* Of which one is held: the others' headers have memory left to take. */
    {"tcp, headers alone", LINK_TCP, 17 * MIB, 16, 60, 7900, false, true,
     LARGE_BUDGET},
    {"shm, by fast boxes", LINK_SHM, 64, 64, 6, 0, false, false, 0},
    {"shm, eager", LINK_SHM, 30 * KIB, 16, 60, 0, false, false, 0},
    {"shm, one piece", LINK_SHM, 100 * KIB, 16, 30, 0, true, false, 0},
    {"shm, by rings", LINK_SHM, 2 * MIB, 16, 10, 0, false, false, 0},
    {"shm, by rendezvous", LINK_SHM, 2 * MIB, 16, 10, 0, true, false, 0},
    {"shm, headers", LINK_SHM, 4 * KIB, 16, 120, 6000, false, true, 0},
};

static uint64_t budget_of(const row_t *row)
{
    return row->budget == 0 ? BUDGET : row->budget;
}

static tmsg_map_t *map_of(const row_t *row)
{
    tmsg_map_t *map = sample_bytes(1, row->bytes);
    char text[8000] = "";

    memset(text, 'x', row->metadata_bytes);
    if (row->metadata_bytes > 0) {
        must(tmsg_map_set_string(map, "text", text));
    }
    return map;
}

static void send_flood(tmsg_endpoint_t *const *endpoints, const row_t *row)
{
    tmsg_map_t *map = map_of(row);

    for (unsigned i = 0; i < row->each * row->channels; i++) {
        const tmsg_send_params_t params = on_channel(i % row->channels, 0);

        for (unsigned j = 0; j < PEERS; j++) {
            must(tmsg_endpoint_send(endpoints[j], map, &params, NULL));
        }
    }
    tmsg_map_destroy(map);
}

/* Until it is killed. */
static void flood(pipes_t *pipes, void *arg)
{
    const row_t *row = arg;
    const side_options_t options = {.ucx_config = link_config(row->link)};
    tmsg_endpoint_t *endpoints[PEERS];
    char line[256];
    side_t side;

    line_get(pipes->in, line, sizeof(line));
    if (row->ucx_alone) {
        setenv("TENSORMSG_THRESHOLDS",
               "shm.fastbox_bytes=0,shm.bulk_bytes=never,tcp.bulk_bytes=never",
               1);
    }
    side_open(&side, &options);
    for (unsigned i = 0; i < PEERS; i++) {
        endpoints[i] = side_connect(&side, line);
        send_bytes(endpoints[i], 0, i, 10, 0);
    }
    line_put(pipes->out, "connected");
    line_get(pipes->in, line, sizeof(line));
    send_flood(endpoints, row);
    for (;;) {
        tmsg_worker_wait(side.worker, 1000);
    }
}

static uint64_t memory_of(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    must_true(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            must_true(sscanf(line + strlen(key), ": %llu", &kib) == 1);
        }
    }
    fclose(file);
    return kib * KIB;
}

/* The most that is resident counts from here; where the kernel counts from the
 * process's beginning (no CONFIG_PROC_PAGE_MONITOR), from there. */
static uint64_t begin_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    if (file == NULL) {
        return memory_of("VmHWM");
    }
    must_true(fputs("5", file) >= 0 && fclose(file) == 0);
    return memory_of("VmRSS");
}

typedef struct {
    uint64_t held, headers, ahead, ready, unfetched, refused, open;
} counters_t;

static uint64_t number(const char *json, const char *key)
{
    const char *at = strstr(json, key);

    must_true(at != NULL);
    return strtoull(at + strlen(key) + strlen("\":\t"), NULL, 10);
}

static counters_t count(side_t *side)
{
    counters_t counters;
    char *json;

    must(tmsg_worker_describe(side->worker, &json));
    counters = (counters_t){number(json, "\"held_bytes"),
                            number(json, "\"header_bytes"),
                            number(json, "\"ahead_bytes"),
                            number(json, "\"ready_messages"),
                            number(json, "\"unfetched_messages"),
                            number(json, "\"refused_messages"),
                            number(json, "\"open_endpoints")};
    tmsg_string_free(json);
    return counters;
}

/* Of one message that waits, in UCX's memory. */
static uint64_t in_ucx(const row_t *row)
{
    return row->link == LINK_SHM       ? SEGMENT_BYTES
           : row->metadata_bytes < 500 ? RECORD_BYTES
                                       : row->metadata_bytes + PAGES_BYTES;
}

static uint64_t of_peer(const row_t *row)
{
    if (row->link != LINK_SHM || row->ucx_alone) {
        return 0;
    }
    return FASTBOX_BYTES + (row->bytes < MIB ? 0 : RING_BYTES);
}

static void judge(const row_t *row, const counters_t *now, uint64_t grown)
{
    /* UCX keeps what it had for those that waited, and do not any more. */
    uint64_t waited = now->unfetched + (row->bytes < KIB ? 0 : now->ready);
    uint64_t counted = now->held + now->headers + now->ahead +
                       waited * in_ucx(row) + now->refused * REFUSED_BYTES +
                       PEERS * of_peer(row);
    uint64_t most = counted + counted / BESIDE_PART + OTHER_BYTES;
    uint64_t budget = budget_of(row);

    fprintf(stderr,
            "%-24s grown %6llu KiB of %6llu; held %6llu, headers %6llu, "
            "ahead %llu KiB, %llu unfetched, %llu refused\n",
            row->name, (unsigned long long)grown / KIB,
            (unsigned long long)most / KIB, (unsigned long long)now->held / KIB,
            (unsigned long long)now->headers / KIB,
            (unsigned long long)now->ahead / KIB,
            (unsigned long long)now->unfetched,
            (unsigned long long)now->refused);
    must_true(now->ahead <= budget / 4);
    must_true(now->held <= budget + TMSG_BUDGET_SLACK);
    must_true(now->headers <= budget / 4 + TMSG_BUDGET_SLACK + MIB);
    must_true(now->held + now->headers <=
              budget + budget / 4 + TMSG_BUDGET_SLACK + MIB);
    must_true((now->refused > 0) == row->refuses);
    must_true(now->unfetched > 0 || row->bytes < KIB);
#ifndef __SANITIZE_ADDRESS__
    must_true(grown <= most);
#endif
}

static bool is_left(void *arg) { return count(arg).open == 0; }

/* Nothing of it is counted any more. */
static void let_go(side_t *side)
{
    tmsg_message_t *message;
    counters_t now;

    side_await(side, is_left, side, "the ends of all connections");
    while (tmsg_worker_recv(side->worker, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
    tmsg_worker_progress(side->worker);
    now = count(side);
    must_eq(now.held + now.headers + now.ahead + now.unfetched, 0);
}

typedef struct {
    side_t *side;
    const row_t *row;
} full_flood_t;

/* Each has come, as no channel lacks credit, and waits or was refused. */
static bool is_full(void *arg)
{
    const full_flood_t *full = arg;
    counters_t now = count(full->side);

    return now.ready + now.unfetched + now.refused ==
           (uint64_t)PEERS * full->row->channels * full->row->each;
}

static void receive(pipes_t *pipes, void *arg)
{
    const row_t *row = arg;
    const side_options_t options = {
        .ucx_config = link_config(row->link),
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = budget_of(row)}};
    uint64_t before;
    counters_t now;
    child_t child;
    side_t side;
    full_flood_t full = {&side, row};
    char line[64];

    (void)pipes;
    child_start(&child, flood, arg);
    side_open(&side, &options);
    side_listen_link(&side, row->link);
    line_put(child.out, tmsg_listener_url(side.listener));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    for (unsigned i = 0; i < PEERS; i++) {
        tmsg_message_destroy(side_take(&side));
    }
    before = begin_peak();
    line_put(child.out, "go");
    side_await(&side, is_full, &full, "all messages");
    now = count(&side);
    judge(row, &now, memory_of("VmHWM") - before);
    child_kill(&child);
    let_go(&side);
    side_close(&side);
}

static void flood_over(link_t link)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        row_t row = rows[i];
        child_t child;

        if (row.link == link) { /* each in a process that was not full yet */
            child_start(&child, receive, &row);
            child_join(&child);
        }
    }
}

Test(budget, nobody_reads_and_memory_stays_within_it_over_tcp)
{
    flood_over(LINK_TCP);
}

Test(budget, nobody_reads_and_memory_stays_within_it_over_shared_memory)
{
    flood_over(LINK_SHM);
}
