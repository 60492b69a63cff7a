/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that are admitted and then lie: processes whose active messages and
 * frames are changed at random on their way out, or that change the memory
 * which they share with their peer while both work. It costs each its
 * connection, at most; the process that they lie to neither crashes, hangs,
 * leaks nor takes more memory than it may, and an honest peer beside them loses
 * nothing. $TMSG_HOSTILE "small": some of it; "memory": shared memory alone,
 * and "memory small". Each slice is a process of its own. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "liar.h"
#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"

enum {
    SLICES = 400,
    LIARS = 8,           /* of a slice, one after the other */
    LIARS_IN_MEMORY = 3, /* where a part is done */
    AT_ONCE = 8,         /* requests of the honest one */
    A_VISIT = 40,        /* its messages */
    HELD = 32 << 20,
    HEADERS = 64 << 20, /* beyond that; see limits.h */
    LONGEST = 16 << 20
};

static tmsg_map_t *honest_map(uint64_t n)
{
    static const size_t sizes[] = {8, 700, 20000, 300000};
    tmsg_map_t *map = sample_bytes(n, sizes[n % 4]);

    must(tmsg_map_set_i64(map, "n", (int64_t)n));
    return map;
}

static void honest_visit(side_t *side, const door_t *door, uint64_t *n)
{
    tmsg_endpoint_t *endpoint = door_enter(door, side, NULL);
    tmsg_request_t *sent[AT_ONCE] = {NULL}, *closed;

    for (unsigned i = 0; i < A_VISIT + AT_ONCE; i++) {
        tmsg_request_t **place = &sent[i % AT_ONCE];

        if (*place != NULL) {
            must(side_finish(side, *place));
            *place = NULL;
        }
        if (i < A_VISIT) {
            *place = send_map(endpoint, honest_map((*n)++), TMSG_SEND_ACKED);
        }
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(side, closed));
    tmsg_endpoint_destroy(endpoint);
}

/* Until it is told to stop. */
static void honest(pipes_t *pipes, void *arg)
{
    const liar_role_t *role = arg;
    struct pollfd told = {pipes->in, POLLIN, 0};
    char line[32];
    uint64_t n = 0;
    door_t door;
    side_t side;

    door_get(pipes->in, &door);
    liar_open_side(&side, role, NULL);
    while (poll(&told, 1, 0) == 0) {
        honest_visit(&side, &door, &n);
    }
    side_close(&side);
    snprintf(line, sizeof(line), "%" PRIu64, n);
    line_put(pipes->out, line);
}

#define GUESTS_MOST 256 /* at once */

/* UCX's memory that a liar does not hang up on is left behind, and said so. */
static atomic_uint left_behind;

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    left_behind += strstr(line, "left behind") != NULL;
    if (getenv("TENSORMSG_LOG") != NULL) {
        fprintf(stderr, "%s\n", line);
    }
}

typedef struct {
    side_t side;
    pid_t honest;
    uint64_t got;    /* of its messages */
    uint64_t wanted; /* for has_more() */
    child_t *liar;
    tmsg_endpoint_t *guests[GUESTS_MOST]; /* NULL: gone */
    unsigned count;
    size_t bytes, most_bytes; /* that the library has; at first, and most */
    uint64_t messages, calls, streams; /* of liars */
    tmsg_publisher_t *publisher;       /* which liars alone subscribe to */
    uint64_t looks, published;
    uint64_t ends[64]; /* by -status */
} host_t;

static void welcome(void *arg, tmsg_endpoint_t *endpoint)
{
    host_t *host = arg;
    unsigned place = 0;

    while (place < host->count && host->guests[place] != NULL) {
        place++;
    }
    must_true(place < GUESTS_MOST);
    host->guests[place] = endpoint;
    host->count += place == host->count;
    if (endpoint->peer_hello.pid != (uint32_t)host->honest) {
        tmsg_publisher_add(host->publisher, endpoint, NULL); /* or it is gone */
    }
}

static void echo(void *arg, tmsg_task_t *task)
{
    host_t *host = arg;

    host->calls++;
    tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void read_stream(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_message_t *message;
    tmsg_status_t status;

    (void)arg;
    while ((status = tmsg_call_stream_try_recv(stream, &message)) == TMSG_OK &&
           message != NULL) {
        tmsg_call_stream_send(stream, tmsg_message_map(message), &params, NULL);
        tmsg_message_destroy(message);
    }
    if (status == TMSG_OK) {
        tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
        tmsg_call_stream_destroy(stream);
    }
}

static void stream_over(void *arg, tmsg_call_stream_t *stream,
                        tmsg_status_t status)
{
    (void)arg;
    (void)status;
    tmsg_call_stream_destroy(stream);
}

static void talk(void *arg, tmsg_call_stream_t *stream)
{
    host_t *host = arg;
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = read_stream,
        .on_over = stream_over,
        .arg = host};

    host->streams++;
    tmsg_call_stream_keep(stream);
    must(tmsg_call_stream_set_events(stream, &events));
}

/* Every byte is there. */
static void read_all(const tmsg_map_t *map)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const char *name;
        tmsg_tensor_t tensor;
        uint64_t bytes;

        must(tmsg_map_at(map, i, &name, &tensor));
        must(tmsg_tensor_bytes(&tensor, &bytes));
        for (uint64_t j = 0; tensor.strides == NULL && j < bytes; j++) {
            sum ^= ((const uint8_t *)tensor.data)[j];
        }
    }
    (void)sum;
}

static void take_honest(host_t *host, const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_map_t *wanted = honest_map(host->got);
    tmsg_tensor_t got, made;
    int64_t n;

    must(tmsg_map_get_i64(map, "n", &n));
    must_eq(n, host->got);
    must(tmsg_map_at(map, 0, NULL, &got));
    must(tmsg_map_at(wanted, 0, NULL, &made));
    must_eq(got.shape[0], made.shape[0]);
    must_true(memcmp(got.data, made.data, (size_t)got.shape[0]) == 0);
    tmsg_map_destroy(wanted);
    host->got++;
}

static void take(host_t *host, tmsg_message_t *message)
{
    tmsg_endpoint_t *from = tmsg_message_endpoint(message);
    tmsg_request_t *sent;

    if (from->peer_hello.pid == (uint32_t)host->honest) {
        take_honest(host, message);
    } else {
        read_all(tmsg_message_map(message));
        if (host->messages++ % 4 == 0 &&
            tmsg_endpoint_send(from, tmsg_message_map(message), NULL, &sent) ==
                TMSG_OK) {
            tmsg_request_destroy(sent);
        }
    }
    tmsg_message_destroy(message);
}

/* An honest one's connection ends in order and is let go of at once, a liar's
 * only when its process has gone: what it says may still be under way. */
static void look(host_t *host, bool all)
{
    for (unsigned i = 0; i < host->count; i++) {
        tmsg_endpoint_t *guest = host->guests[i];
        bool fair =
            guest != NULL && guest->peer_hello.pid == (uint32_t)host->honest;
        tmsg_status_t status =
            guest == NULL ? TMSG_OK : tmsg_endpoint_status(guest);

        if (status >= 0 || !(all || fair)) {
            continue;
        }
        if (fair && status != TMSG_ERR_CLOSED) {
            die("the honest one: %s", tmsg_endpoint_error(guest));
        }
        if (!fair) {
            must_true(strlen(tmsg_endpoint_error(guest)) > 10);
            host->ends[-status % 64]++;
        }
        tmsg_endpoint_destroy(guest);
        host->guests[i] = NULL;
    }
}

/* Now and then, for those who may or may not say that they took it. */
static void publish(host_t *host)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    tmsg_map_t *map;

    if (host->looks++ % 40 == 0) {
        map = sample_bytes(host->published, 100 + host->published % 3000);
        must(tmsg_publisher_publish(host->publisher, map, &params, NULL));
        host->published++;
        tmsg_map_destroy(map);
    }
}

static void tend(host_t *host)
{
    tmsg_message_t *message;
    size_t bytes, now;

    while (tmsg_worker_recv(host->side.worker, 0, &message) == TMSG_OK) {
        take(host, message);
    }
    look(host, false);
    publish(host);
    now = watched_alloc_bytes();
    bytes = now > host->bytes ? now - host->bytes : 0;
    host->most_bytes = bytes > host->most_bytes ? bytes : host->most_bytes;
    must_true(bytes < (size_t)HELD + HELD / 4 + HEADERS + LONGEST);
}

static bool has_spoken(void *arg)
{
    host_t *host = arg;
    struct pollfd fd = {host->liar->in, POLLIN, 0};

    tend(host);
    return poll(&fd, 1, 0) > 0;
}

static bool has_none(void *arg)
{
    host_t *host = arg;
    unsigned there = 0;

    tend(host);
    look(host, true);
    for (unsigned i = 0; i < host->count; i++) {
        there += host->guests[i] != NULL &&
                 host->guests[i]->peer_hello.pid != (uint32_t)host->honest;
    }
    return there == 0;
}

static bool has_more(void *arg)
{
    host_t *host = arg;

    tend(host);
    return host->got >= host->wanted;
}

static bool honest_has_gone(void *arg)
{
    host_t *host = arg;
    bool gone = has_spoken(host);

    for (unsigned i = 0; i < host->count; i++) {
        gone &= host->guests[i] == NULL;
    }
    return gone;
}

static uint64_t said_number(child_t *child)
{
    char line[64];

    line_get(child->in, line, sizeof(line));
    return strtoull(line, NULL, 10);
}

static const char *socket_url(void)
{
    static char url[256];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("hostile"));
    return url;
}

static void open_host(host_t *host, const liar_role_t *role,
                      tmsg_server_t **server_p)
{
    const tmsg_listener_params_t listener = {.field_mask =
                                                 TMSG_LISTENER_PARAM_ON_ACCEPT,
                                             .on_accept = welcome,
                                             .on_accept_arg = host};
    const side_options_t options = {
        .limits = {.field_mask =
                       TMSG_LIMIT_HELD_BYTES | TMSG_LIMIT_MESSAGE_BYTES,
                   .held_bytes = HELD,
                   .message_bytes = LONGEST}};

    liar_open_side(&host->side, role, &options);
    must(tmsg_publisher_create(host->side.worker, NULL, &host->publisher));
    must(tmsg_server_create(host->side.worker, NULL, server_p));
    must(tmsg_server_register(*server_p, "echo", echo, host, NULL));
    must(tmsg_server_register_stream(*server_p, "talk", talk, host, NULL));
    must(tmsg_listener_create(host->side.worker,
                              role->link == LINK_BLOB   ? "blob://"
                              : role->link == LINK_UNIX ? socket_url()
                                                        : "tcp://127.0.0.1:0",
                              &listener, &host->side.listener));
}

static uint64_t meet(host_t *host, child_t *liar)
{
    uint64_t changed;

    host->liar = liar;
    door_put(liar->out, host->side.listener);
    side_await(&host->side, has_spoken, host, "the end of a liar");
    changed = said_number(liar);
    child_join(liar);
    side_await(&host->side, has_none, host, "the ends of its connections");
    host->wanted = host->got + A_VISIT;
    side_await(&host->side, has_more, host, "the honest one's messages");
    return changed;
}

static void report(const host_t *host, const liar_role_t *role,
                   uint64_t changed)
{
    printf("%s%s%s, seed %" PRIu64 ": %" PRIu64 " changed; %" PRIu64
           " maps, %" PRIu64 " calls, %" PRIu64 " streams of theirs, %" PRIu64
           " published, %" PRIu64 " honest maps, %zu KiB at most; ends:",
           link_names[role->link], role->keyed ? " with a key" : "",
           role->in_memory ? " in memory" : "", role->seed, changed,
           host->messages, host->calls, host->streams, host->published,
           host->got, host->most_bytes / 1024);
    for (int i = 0; i < 64; i++) {
        if (host->ends[i] > 0) {
            printf(" %s %" PRIu64, tmsg_status_name(-i), host->ends[i]);
        }
    }
    printf("\n");
}

/* Children come first: none may be made once UCX is open here. */
static void run_slice(const liar_role_t *role, unsigned count)
{
    static host_t host;
    static liar_role_t roles[LIARS];
    static child_t liars[LIARS];
    child_t fair;
    tmsg_server_t *server;
    uint64_t changed = 0;

    for (unsigned i = 0; i < count; i++) {
        roles[i] = *role;
        roles[i].seed = role->seed * LIARS + i;
        child_start(&liars[i], liar_run, &roles[i]);
    }
    child_start(&fair, honest, &roles[0]);
    host.honest = fair.pid;
    watched_alloc_start();
    tmsg_log_set(TMSG_LOG_WARN, hear, NULL);
    open_host(&host, role, &server);
    host.bytes = watched_alloc_bytes();
    door_put(fair.out, host.side.listener);
    for (unsigned i = 0; i < count; i++) {
        changed += meet(&host, &liars[i]);
    }
    line_put(fair.out, "enough");
    host.liar = &fair;
    side_await(&host.side, honest_has_gone, &host, "the honest one's end");
    must_eq(said_number(&fair), host.got);
    child_join(&fair);
    tmsg_server_destroy(server);
    tmsg_publisher_destroy(host.publisher);
    side_close(&host.side);
    report(&host, role, changed);
    for (int i = 0; left_behind == 0 && i < 2000 && watched_alloc_live() > 0;
         i++) {
        poll(NULL, 0, 1); /* UCX workers are closed by another thread */
    }
    if (left_behind == 0) {
        watched_alloc_expect(0, 0);
    }
}

static void start_slice(const char *self, const liar_role_t *role,
                        unsigned count)
{
    char words[5][32];
    pid_t child;
    int status;

    snprintf(words[0], sizeof(words[0]), "%d", (int)role->link);
    snprintf(words[1], sizeof(words[1]), "%d", role->keyed);
    snprintf(words[2], sizeof(words[2]), "%" PRIu64, role->seed);
    snprintf(words[3], sizeof(words[3]), "%u", count);
    snprintf(words[4], sizeof(words[4]), "%d", role->in_memory);
    child = fork();
    must_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", self, words[0], words[1], words[2], words[3],
              words[4], NULL);
        _exit(127);
    }
    must_eq(waitpid(child, &status, 0), child);
    if (status != 0) {
        die("%s %s %s %s %s %s: status %#x", self, words[0], words[1], words[2],
            words[3], words[4], status);
    }
}

static const liar_role_t turns[] = {
    {.link = LINK_SHM},
    {.link = LINK_TCP},
    {.link = LINK_BLOB},
    {.link = LINK_SHM, .keyed = true},
    {.link = LINK_TCP, .keyed = true},
    {.link = LINK_BLOB, .keyed = true},
};

static const liar_role_t turns_in_memory[] = {
    {.link = LINK_SHM, .in_memory = true},
    {.link = LINK_UNIX, .in_memory = true},
};

#define TURNS (sizeof(turns) / sizeof(turns[0]))
#define TURNS_IN_MEMORY (sizeof(turns_in_memory) / sizeof(turns_in_memory[0]))

static liar_role_t role_of(uint64_t slice, bool in_memory)
{
    return in_memory ? turns_in_memory[slice % TURNS_IN_MEMORY]
                     : turns[slice % TURNS];
}

int main(int argc, char **argv)
{
    const char *size = getenv("TMSG_HOSTILE");
    bool small = size != NULL && strstr(size, "small") != NULL;
    bool in_memory = size != NULL && strstr(size, "memory") != NULL;
    const char *name = in_memory ? "mutated" : "hostile";
    uint64_t slices = !small ? SLICES : in_memory ? TURNS_IN_MEMORY : TURNS;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 6) {
        const liar_role_t role = {(link_t)atoi(argv[1]), atoi(argv[2]) != 0,
                                  strtoull(argv[3], NULL, 10),
                                  atoi(argv[5]) != 0};

        run_slice(&role, (unsigned)atoi(argv[4]));
        return 0;
    }
    for (uint64_t slice = small ? 0 : soak_place(name); slice < slices;
         slice++) {
        liar_role_t role = role_of(slice, in_memory);

        role.seed = small ? 20261123 : soak_seed() + slice;
        start_slice(argv[0], &role,
                    !small      ? LIARS
                    : in_memory ? LIARS_IN_MEMORY
                                : 1);
        if (!small) {
            soak_keep(name, slice + 1);
        }
    }
    if (!small) {
        soak_keep(name, 0);
    }
    return 0;
}
