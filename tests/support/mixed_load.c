/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/mixed_load.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MESSAGES 400
#define CHANNELS 3
#define WINDOW 20 /* sent, and not known to be over */
#define TIMEOUT_MS 3
#define QUEUE_DEPTH 8
#define QUEUE 6
#define INTO_BYTES 400000 /* of the map that some are received into */
#define HELD (6u << 20)

typedef enum { ASKED_NOTHING, ASKED_CANCEL, ASKED_TIMEOUT } asked_t;

typedef struct {
    unsigned channel;
    uint32_t flags;
    size_t bytes;
    asked_t asked;
    bool begun;           /* the call succeeded */
    tmsg_status_t status; /* IN_PROGRESS: not over */
    bool came;
    char why[160]; /* the request's words */
    tmsg_request_t *request;
} sent_t;

/* One direction. */
typedef struct {
    tmsg_endpoint_t *from, *to;
    unsigned n; /* which direction */
    int32_t policy;
    unsigned sent, over;
    sent_t messages[MESSAGES];
    int64_t latest[CHANNELS];
    unsigned came;
    atomic_uint refused; /* by on_refused */
} way_t;

typedef struct {
    joined_t *joined;
    uint64_t seed;
    way_t ways[2];
    unsigned next_cut, cuts;
    /* Who reads its peer's memory itself has to hear that the peer gave up. */
    bool may_lose;
    bool eager;       /* to take what has come, for else nobody is woken */
    tmsg_map_t *into; /* at a; NULL: pulled as they come */
} run_t;

static uint64_t seed_of(const way_t *way, unsigned i)
{
    return way->n * UINT64_C(1000000) + i;
}

static size_t choose_size(uint64_t *seed)
{
    switch (sample_random(seed) % 8) {
    case 0:
        return 0;
    case 1:
        return sample_random(seed) % 2 == 0
                   ? INTO_BYTES
                   : 300000 + sample_random(seed) % 300000;
    case 2:
        return sample_random(seed) % 60000;
    default:
        return sample_random(seed) % 3000;
    }
}

static uint32_t choose_flags(uint64_t *seed)
{
    static const uint32_t flags[] = {TMSG_SEND_ACKED,
                                     TMSG_SEND_ACKED,
                                     TMSG_SEND_ACKED | TMSG_SEND_UNORDERED,
                                     TMSG_SEND_VERIFY,
                                     0,
                                     TMSG_SEND_UNORDERED};

    return flags[sample_random(seed) % 6];
}

static tmsg_map_t *make_map(uint64_t seed, size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                    .release = free,
                                    .release_arg = malloc(bytes + 1)};
    const tmsg_tensor_t tensor = {params.release_arg,
                                  {TMSG_DEVICE_CPU, 0},
                                  {TMSG_DTYPE_UINT, 8, 1},
                                  1,
                                  shape,
                                  NULL};
    tmsg_map_t *map;

    must_true(tensor.data != NULL);
    sample_fill(seed, tensor.data, bytes);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, &params));
    return map;
}

static tmsg_map_t *map_of(const way_t *way, unsigned i)
{
    tmsg_map_t *map = make_map(seed_of(way, i), way->messages[i].bytes);

    must(tmsg_map_set_i64(map, "i", i));
    return map;
}

/* At once, or BUSY where the queue is full and rejects. */
static void begin(way_t *way, unsigned i, uint64_t *seed)
{
    sent_t *message = &way->messages[i];
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                               TMSG_SEND_PARAM_CHANNEL |
                                               TMSG_SEND_PARAM_TIMEOUT,
                                 .timeout_ms = -1};
    tmsg_map_t *map;

    *message = (sent_t){.channel = (unsigned)(sample_random(seed) % CHANNELS),
                        .flags = choose_flags(seed),
                        .bytes = choose_size(seed),
                        .status = TMSG_IN_PROGRESS};
    switch (sample_random(seed) % 8) {
    case 0:
        message->asked = ASKED_CANCEL;
        break;
    case 1:
        message->asked = ASKED_TIMEOUT;
        params.timeout_ms = TIMEOUT_MS;
        break;
    default:
        break;
    }
    if (way->policy == TMSG_QUEUE_BLOCK && way->sent - way->over > QUEUE) {
        message->asked = ASKED_TIMEOUT; /* who would take blocks as well */
        params.timeout_ms = TIMEOUT_MS;
    }
    params.flags = message->flags;
    params.channel = (uint16_t)message->channel;
    map = map_of(way, i);
    message->status =
        tmsg_endpoint_send(way->from, map, &params, &message->request);
    tmsg_map_destroy(map);
    message->begun = message->status == TMSG_OK;
    if (message->begun) {
        message->status = TMSG_IN_PROGRESS;
    } else if (message->asked == ASKED_TIMEOUT) {
        must_true(message->status == TMSG_ERR_TIMED_OUT ||
                  message->status == TMSG_ERR_BUSY);
    } else {
        must_be(message->status, TMSG_ERR_BUSY);
    }
}

/* Few while it is away: they would all be rejected, or drop one another. */
static bool may_send(run_t *run, const way_t *way)
{
    return way->sent < MESSAGES && way->sent < way->over + WINDOW &&
           (tmsg_endpoint_status(way->from) == TMSG_OK ||
            sample_random(&run->seed) % 512 == 0);
}

static void send_some(run_t *run, way_t *way)
{
    for (int i = 0; i < WINDOW && may_send(run, way); i++) {
        begin(way, way->sent++, &run->seed);
    }
}

/* What has ended, and what is to be canceled some time. */
static void look_at(run_t *run, way_t *way)
{
    bool first = true;

    for (unsigned i = way->over; i < way->sent; i++) {
        sent_t *message = &way->messages[i];

        if (message->status == TMSG_IN_PROGRESS &&
            message->asked == ASKED_CANCEL &&
            sample_random(&run->seed) % 16 == 0) {
            tmsg_request_cancel(message->request);
        }
        if (message->status == TMSG_IN_PROGRESS) {
            tmsg_status_t status = tmsg_request_test(message->request);

            if (status <= 0) {
                message->status = status;
                snprintf(message->why, sizeof(message->why), "%s",
                         tmsg_request_error(message->request));
                tmsg_request_destroy(message->request);
            }
        }
        first = first && message->status != TMSG_IN_PROGRESS;
        way->over += first;
    }
}

static void check_data(uint64_t seed, size_t bytes, const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(map, "data", &tensor));
    must_eq(tensor.shape[0], bytes);
    must_eq(sample_compare(seed, tensor.data, bytes), bytes);
}

static void note(way_t *way, const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    sent_t *sent;
    int64_t i;

    must(tmsg_map_get_i64(map, "i", &i));
    must_true(i >= 0 && i < way->sent);
    sent = &way->messages[i];
    must_eq(tmsg_message_channel(message), sent->channel);
    if (i <= way->latest[sent->channel]) {
        die("way %u, channel %u: message %d behind %d", way->n, sent->channel,
            (int)i, (int)way->latest[sent->channel]);
    }
    way->latest[sent->channel] = i;
    check_data(seed_of(way, (unsigned)i), sent->bytes, map);
    must_true(!sent->came);
    sent->came = true;
    way->came++;
}

static tmsg_status_t take(run_t *run, way_t *way, tmsg_message_t **message_p)
{
    return run->into != NULL && way->n == 0
               ? tmsg_endpoint_recv_into(way->to, run->into, 0, message_p)
               : tmsg_endpoint_recv(way->to, 0, message_p);
}

/* One that is of another shape than the map to receive into is taken without
 * it. */
static void take_some(run_t *run, way_t *way)
{
    tmsg_message_t *message;

    for (int i = 0; i < 4; i++) {
        tmsg_status_t status = take(run, way, &message);

        if (status == TMSG_ERR_INVALID_PARAM) {
            status = tmsg_endpoint_recv(way->to, 0, &message);
        }
        if (status != TMSG_OK) {
            must_true(status == TMSG_ERR_TIMED_OUT ||
                      status == TMSG_CANCEL_PENDING);
            return;
        }
        note(way, message);
        tmsg_message_destroy(message);
    }
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    way_t *way = arg;

    (void)endpoint;
    (void)channel;
    (void)sequence;
    if (status != TMSG_ERR_PEER_LOST && status != TMSG_ERR_CANCELED &&
        status != TMSG_ERR_TIMED_OUT) {
        die("way %u: refused by %d: %s", way->n, status, error);
    }
    way->refused++;
}

static void break_some(run_t *run)
{
    unsigned over = run->ways[0].over + run->ways[1].over;

    if (over < run->next_cut || over > 2 * MESSAGES - 20) {
        return;
    }
    if (run->may_lose && sample_random(&run->seed) % 3 == 0 && run->cuts < 12) {
        relay_lose(run->joined->relay);
    } else {
        relay_cut(run->joined->relay);
    }
    run->cuts++;
    run->next_cut = over + 10 + (unsigned)(sample_random(&run->seed) % 30);
}

/* What has a number is delivered or refused, in the end. */
static bool is_accounted_for(const way_t *way)
{
    return way->came + way->refused ==
           (unsigned)described(way->from, "sent_messages");
}

static bool is_over(void *arg)
{
    run_t *run = arg;
    bool over = true;

    break_some(run);
    for (int i = 0; i < 2; i++) {
        way_t *way = &run->ways[i];

        send_some(run, way);
        if (run->eager || sample_random(&run->seed) % 4 == 0) {
            take_some(run, way);
        }
        look_at(run, way);
        over = over && way->over == MESSAGES && is_accounted_for(way);
    }
    return over;
}

static bool may_be(const way_t *way, const sent_t *message)
{
    switch (message->status) {
    case TMSG_OK:
        return message->came ||
               !(message->flags & (TMSG_SEND_ACKED | TMSG_SEND_VERIFY));
    case TMSG_ERR_CANCELED:
        return message->asked == ASKED_CANCEL;
    case TMSG_ERR_TIMED_OUT:
        return message->asked == ASKED_TIMEOUT &&
               (message->begun || !message->came);
    case TMSG_ERR_BUSY:
        return !message->begun && !message->came &&
               way->policy == TMSG_QUEUE_REJECT;
    case TMSG_ERR_DROPPED:
        return !message->came && (way->policy == TMSG_QUEUE_DROP_OLDEST ||
                                  way->policy == TMSG_QUEUE_DROP_NEWEST);
    default:
        return false;
    }
}

static void check_way(const way_t *way)
{
    unsigned outcomes[32] = {0};

    for (unsigned i = 0; i < MESSAGES; i++) {
        const sent_t *message = &way->messages[i];

        if (!may_be(way, message)) {
            die("way %u: message %u on channel %u, %zu bytes, flags %u, asked "
                "%d: status %d, came %d: %s",
                way->n, i, message->channel, message->bytes, message->flags,
                message->asked, message->status, message->came, message->why);
        }
        outcomes[-message->status]++;
    }
    must_true(outcomes[0] > 0);
}

static void set_queue(way_t *way, int32_t policy)
{
    const tmsg_queue_params_t queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                     TMSG_QUEUE_PARAM_POLICY,
                                       .messages = QUEUE,
                                       .policy = policy};

    way->policy = policy;
    must(tmsg_endpoint_set_queue(way->from, &queue));
}

/* In two runs out of three the longer messages travel in fragments. */
static void choose_fragments(uint64_t seed)
{
    if (seed % 3 == 0) {
        unsetenv("TENSORMSG_THRESHOLDS");
        return;
    }
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=50000,shm.chunk_bytes=65536,"
           "tcp.fragment_bytes=50000,tcp.chunk_bytes=65536,"
           "other.fragment_bytes=50000,other.chunk_bytes=65536",
           1);
}

static void open_run(run_t *run, joined_t *joined, link_t link, drive_t drive,
                     int32_t policy)
{
    how_t how = {.link = link, .drive = drive};

    how.a.limits = how.b.limits = (tmsg_limits_t){
        .field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD};
    how.a.worker =
        (tmsg_worker_params_t){.field_mask = TMSG_WORKER_PARAM_ON_REFUSED |
                                             TMSG_WORKER_PARAM_QUEUE_DEPTH,
                               .queue_depth = QUEUE_DEPTH,
                               .on_refused = on_refused,
                               .on_refused_arg = &run->ways[0]};
    how.b.worker = how.a.worker;
    how.b.worker.on_refused_arg = &run->ways[1];
    joined_open(joined, &how);
    run->joined = joined;
    run->ways[0].from = run->ways[1].to = joined->pair.to_a;
    run->ways[0].to = run->ways[1].from = joined->pair.to_b;
    run->ways[1].n = 1;
    run->next_cut = 10;
    run->may_lose = link == LINK_TCP;
    run->eager = drive == DRIVE_FD;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < CHANNELS; k++) {
            run->ways[i].latest[k] = -1;
        }
        set_queue(&run->ways[i], policy);
    }
}

void mixed_run(link_t link, drive_t drive, int32_t policy, uint64_t seed)
{
    run_t *run = calloc(1, sizeof(*run));
    joined_t joined;

    must_true(run != NULL);
    printf("%s %s, policy %d, seed %llu\n", link_names[link],
           drive_names[drive], policy, (unsigned long long)seed);
    fflush(stdout);
    run->seed = seed;
    choose_fragments(seed);
    open_run(run, &joined, link, drive, policy);
    run->into = seed % 2 == 0 ? make_map(0, INTO_BYTES) : NULL;
    pair_await(&joined.pair, is_over, run, "all messages");
    check_way(&run->ways[0]);
    check_way(&run->ways[1]);
    must_true(described(joined.pair.to_a, "reconnected") > 0);
    joined_close(&joined);
    tmsg_map_destroy(run->into);
    free(run);
}
