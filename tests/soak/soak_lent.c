/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders and receivers that are killed or stopped while payloads are lent: a
 * receiver may read them later than its sender believes, who uses its memory
 * for something else by then. It never delivers a byte that was not sent.
 * $TMSG_LENT "small": some of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"
#include "support/struck_processes.h"

enum {
    ROUNDS = 400, /* of each link: a process is killed or stopped */
    SMALL = 16,
    SENDERS = 2,
    LEAST = 8192, /* of a payload */
    MOST = 16 << 20,
    LENT = 3, /* payloads at a time */
    TIMEOUT_MS = 300
};

/* What all of them share. */
typedef struct {
    link_t link;
    uint64_t seed;
    char path[64]; /* where the receiver writes its URL */
    struct counts {
        _Atomic uint64_t messages, bytes, wrong, failed;
    } * counts;
} task_t;

static void take(void *arg, tmsg_message_t *message)
{
    struct counts *counts = arg;
    tmsg_tensor_t tensor;
    const uint8_t *bytes;
    int64_t fill;
    size_t count, same = 0;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    must(tmsg_map_get_i64(tmsg_message_map(message), "fill", &fill));
    bytes = tensor.data;
    count = (size_t)tensor.shape[0];
    while (same < count && bytes[same] == fill) {
        same++;
    }
    if (same < count) {
        fprintf(stderr, "byte %zu of %zu is %u, not %u\n", same, count,
                bytes[same], (unsigned)fill);
    }
    counts->messages++;
    counts->bytes += count;
    counts->wrong += same < count;
    tmsg_message_destroy(message);
}

static void receive(void *arg)
{
    const task_t *task = arg;
    const side_options_t options = {
        .drive = DRIVE_THREAD,
        .ucx_config = link_config(task->link),
        .peer_timeout_ms = TIMEOUT_MS,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = take,
                   .handler_arg = task->counts}};
    side_t side;

    side_open(&side, &options);
    side_listen_link(&side, task->link);
    url_write(task->path, tmsg_listener_url(side.listener));
    for (;;) {
        pause();
    }
}

/* A payload, whose memory is another's when it is given back. */
typedef struct {
    uint8_t *bytes;
    size_t count;
    tmsg_request_t *sent;
    _Atomic bool released;
} loan_t;

static void released(void *arg)
{
    loan_t *loan = arg;

    memset(loan->bytes, 0xff, loan->count);
    loan->released = true;
}

static tmsg_status_t lend(tmsg_endpoint_t *endpoint, loan_t *loan,
                          uint64_t *dice)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_WAY |
                      TMSG_SEND_PARAM_ON_RELEASE,
        .flags = sample_random(dice) % 2 == 0 ? TMSG_SEND_ACKED : 0,
        .way = sample_random(dice) % 4 == 0 ? TMSG_WAY_FRAGMENTS
                                            : TMSG_WAY_SCATTER,
        .on_release = released,
        .on_release_arg = loan};
    uint8_t fill = (uint8_t)(1 + sample_random(dice) % 250);
    size_t room = (size_t)LEAST << sample_random(dice) % 12;
    size_t count = room / 2 + (size_t)(sample_random(dice) % (room / 2));
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        loan->bytes, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    tmsg_status_t status;
    tmsg_map_t *map;

    loan->count = count;
    loan->sent = NULL;
    loan->released = false;
    memset(loan->bytes, fill, count);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_map_set_i64(map, "fill", fill));
    status = tmsg_endpoint_send(endpoint, map, &params, &loan->sent);
    tmsg_map_destroy(map);
    return status;
}

static bool is_released(void *loan) { return ((loan_t *)loan)->released; }

/* False: the connection is gone. */
static bool lend_some(side_t *side, tmsg_endpoint_t *endpoint, loan_t *loans,
                      uint64_t *dice, struct counts *counts)
{
    tmsg_status_t first = TMSG_OK;

    for (int i = 0; i < LENT; i++) {
        tmsg_status_t status = lend(endpoint, &loans[i], dice);

        first = first == TMSG_OK ? status : first;
    }
    for (int i = 0; i < LENT; i++) {
        tmsg_status_t status;

        if (loans[i].sent == NULL) {
            continue;
        }
        status = side_finish(side, loans[i].sent);
        counts->failed += status != TMSG_OK;
        first = first == TMSG_OK ? status : first;
    }
    if (first != TMSG_OK) {
        tmsg_endpoint_destroy(endpoint);
    }
    for (int i = 0; i < LENT; i++) {
        if (loans[i].sent != NULL) {
            side_await(side, is_released, &loans[i], "memory given back");
        }
    }
    return first == TMSG_OK;
}

static void send_on(void *arg)
{
    const task_t *task = arg;
    const side_options_t options = {.ucx_config = link_config(task->link),
                                    .peer_timeout_ms = TIMEOUT_MS};
    const tmsg_endpoint_params_t resumed = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = {1, 20, 400},
        .flags = TMSG_ENDPOINT_SAME_PROCESS};
    uint64_t dice = task->seed;
    loan_t loans[LENT];
    char url[256];
    side_t side;

    side_open(&side, &options);
    for (int i = 0; i < LENT; i++) {
        loans[i].bytes = malloc(MOST);
        must_true(loans[i].bytes != NULL);
    }
    for (;;) {
        tmsg_endpoint_t *endpoint;

        if (!url_read(task->path, url, sizeof(url)) ||
            tmsg_endpoint_connect(side.worker, url,
                                  sample_random(&dice) % 2 == 0 ? &resumed
                                                                : NULL,
                                  &endpoint) != TMSG_OK) {
            pause_us(1000);
            continue;
        }
        while (lend_some(&side, endpoint, loans, &dice, task->counts)) {
        }
    }
}

/* Kills or stops one, at a random moment. A stopped one goes on when its peers
 * have given it up, or before. */
static void strike(pid_t *pid, void (*run)(void *), task_t *task,
                   uint64_t *dice)
{
    pause_us(sample_random(dice) % 30000);
    if (process_strike(pid, dice, 2 * TIMEOUT_MS)) {
        task->seed++;
        *pid = process_start(run, task);
    }
}

static void run(task_t *task, unsigned rounds)
{
    uint64_t dice = task->seed;
    pid_t receiver, senders[SENDERS];

    receiver = process_start(receive, task);
    for (int i = 0; i < SENDERS; i++) {
        task->seed += 1000;
        senders[i] = process_start(send_on, task);
    }
    pause_us(300000);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t who = sample_random(&dice) % 4;

        if (who == 0) {
            strike(&receiver, receive, task, &dice);
        } else {
            strike(&senders[who % SENDERS], send_on, task, &dice);
        }
        must_eq(task->counts->wrong, 0);
        must_eq(waitpid(-1, NULL, WNOHANG), 0); /* nobody died by himself */
    }
    for (int i = 0; i < SENDERS; i++) {
        process_kill(&senders[i]);
    }
    process_kill(&receiver);
    printf("%s: %u rounds, %" PRIu64 " messages of %" PRIu64 " bytes, %" PRIu64
           " of them wrong; %" PRIu64 " sends failed\n",
           link_names[task->link], rounds, task->counts->messages,
           task->counts->bytes, task->counts->wrong, task->counts->failed);
    must_true(task->counts->messages > 0);
}

int main(void)
{
    static const link_t links[] = {LINK_SHM, LINK_UNIX};
    const char *small = getenv("TMSG_LENT"), *name = "lent";
    task_t task = {.seed = soak_seed()};

    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(task.path, sizeof(task.path), "/tmp/soak-lent-%d", getpid());
    for (uint64_t slice = soak_place(name);
         slice < sizeof(links) / sizeof(links[0]); slice++) {
        task.link = links[slice];
        task.counts = mmap(NULL, sizeof(*task.counts), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must_true(task.counts != MAP_FAILED);
        run(&task, small != NULL ? SMALL : ROUNDS);
        unlink(task.path);
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0);
    return 0;
}
