/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients in processes of their own, of which some are killed at a random
 * moment, call a server that runs handlers on threads. One that was killed is
 * started again where it was. Every call of one that lives is answered with
 * what it sent; the server has nothing left of any of them. 100 clients make
 * 10,000 calls each; with TMSG_CALL_CLIENTS=small, as in `make test`, it is a
 * hundredth of that. By TCP: one that is killed while it writes into shared
 * memory may take those down that write there, too. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/server.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"

enum { CLIENTS_MOST = 100, BATCH = 100, IN_FLIGHT = 16, BOUND_MS = 300000 };

extern char **environ;

typedef struct {
    pid_t pid;
    int from;        /* a byte for each batch that is done */
    unsigned done;   /* batches */
    unsigned starts; /* of the process */
    bool doomed;     /* it was killed, and not reaped yet */
} client_t;

typedef struct {
    side_t side;
    tmsg_server_t *server;
    client_t clients[CLIENTS_MOST];
    unsigned count, batches;
    atomic_ulong runs;
    unsigned kills;
    uint64_t seed;
    const char *program;
} scene_t;

static size_t bytes_of(int64_t number) { return 40 + (size_t)number % 5 * 900; }

/* One client's process. */
static void call_one(tmsg_endpoint_t *endpoint, int64_t number,
                     tmsg_call_t **call_p)
{
    tmsg_map_t *map = sample_bytes((uint64_t)number, bytes_of(number));

    must(tmsg_map_set_i64(map, "number", number));
    must(tmsg_endpoint_call(endpoint, "echo", map, NULL, call_p));
    tmsg_map_destroy(map);
}

static void finish_one(tmsg_call_t *call, int64_t number)
{
    tmsg_tensor_t tensor;
    int64_t back;

    must(tmsg_call_wait(call, BOUND_MS));
    must(tmsg_map_get_i64(tmsg_call_reply(call), "number", &back));
    must_eq(back, number);
    must(tmsg_map_at(tmsg_call_reply(call), 0, NULL, &tensor));
    must_eq(tensor.shape[0], bytes_of(number));
    must_eq(sample_compare((uint64_t)number, tensor.data, bytes_of(number)),
            bytes_of(number));
    tmsg_call_destroy(call);
}

static void play_batch(tmsg_endpoint_t *endpoint, int64_t first)
{
    tmsg_call_t *calls[BATCH];

    for (int i = 0; i < BATCH + IN_FLIGHT; i++) {
        if (i >= IN_FLIGHT) {
            finish_one(calls[i - IN_FLIGHT], first + i - IN_FLIGHT);
        }
        if (i < BATCH) {
            call_one(endpoint, first + i, &calls[i]);
        }
    }
}

static int be_client(const char *url, unsigned from, unsigned to)
{
    const side_options_t options = {.ucx_config = link_config(LINK_TCP),
                                    .peer_timeout_ms = BOUND_MS};
    const tmsg_endpoint_params_t patient = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = BOUND_MS};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    side_t side;

    side_open(&side, &options);
    must(tmsg_endpoint_connect(side.worker, url, &patient, &endpoint));
    for (unsigned i = from; i < to; i++) {
        play_batch(endpoint, (int64_t)i * BATCH);
        must_eq(write(STDOUT_FILENO, "+", 1), 1);
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(tmsg_request_wait(closed, BOUND_MS));
    tmsg_request_destroy(closed);
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
    return 0;
}

/* The server. */
static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    atomic_fetch_add(&scene->runs, 1);
    /* Its caller may be dead by now. */
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void start_client(scene_t *scene, client_t *client)
{
    char from[16], to[16];
    char *const args[] = {
        (char *)(uintptr_t)scene->program,
        (char *)(uintptr_t)tmsg_listener_url(scene->side.listener), from, to,
        NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];

    snprintf(from, sizeof(from), "%u", client->done);
    snprintf(to, sizeof(to), "%u", scene->batches);
    must_eq(pipe2(ends, O_CLOEXEC), 0);
    must_eq(posix_spawn_file_actions_init(&actions), 0);
    must_eq(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO),
            0);
    must_eq(posix_spawn(&client->pid, scene->program, &actions, NULL, args,
                        environ),
            0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    client->from = ends[0];
    client->starts++;
    client->doomed = false;
}

/* Its pipe has ended. True: there is more for it to do. */
static bool reap(client_t *client)
{
    int status;

    close(client->from);
    client->from = -1;
    must_eq(waitpid(client->pid, &status, 0), client->pid);
    if (client->doomed && WIFSIGNALED(status)) {
        must_eq(WTERMSIG(status), SIGKILL);
        return true;
    }
    must_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

static void hear(scene_t *scene, client_t *client)
{
    char bytes[64];
    ssize_t got = read(client->from, bytes, sizeof(bytes));

    must_true(got >= 0);
    client->done += (unsigned)got;
    if (got == 0) {
        if (reap(client)) {
            start_client(scene, client);
        } else {
            must_eq(client->done, scene->batches);
        }
    } else if (!client->doomed &&
               sample_random(&scene->seed) % scene->batches == 0) {
        client->doomed = true; /* wherever it is in its next batch */
        scene->kills++;
        must_eq(kill(client->pid, SIGKILL), 0);
    }
}

static void play(scene_t *scene)
{
    struct pollfd fds[CLIENTS_MOST];
    client_t *who[CLIENTS_MOST];

    for (;;) {
        nfds_t count = 0;

        for (unsigned i = 0; i < scene->count; i++) {
            if (scene->clients[i].from >= 0) {
                who[count] = &scene->clients[i];
                fds[count++] = (struct pollfd){.fd = scene->clients[i].from,
                                               .events = POLLIN};
            }
        }
        if (count == 0) {
            return;
        }
        if (poll(fds, count, BOUND_MS) <= 0) {
            die("no client does anything any more");
        }
        for (nfds_t i = 0; i < count; i++) {
            if (fds[i].revents != 0) {
                hear(scene, who[i]);
            }
        }
    }
}

static bool is_empty(void *arg)
{
    scene_t *scene = arg;
    const tmsg_hub_t *hub = scene->server->hub;
    bool empty;

    tmsg_hub_lock(scene->server->hub);
    empty = scene->server->load.inside == 0 &&
            scene->server->load.running == 0 && scene->server->all.count == 0 &&
            scene->server->ready.count == 0 && hub->events.count == 0 &&
            hub->deadlines.count == 0;
    tmsg_hub_unlock(scene->server->hub);
    return empty;
}

static void check(scene_t *scene)
{
    unsigned long wanted = (unsigned long)scene->count * scene->batches * BATCH;
    unsigned long most = wanted + (unsigned long)scene->kills * BATCH;

    side_await(&scene->side, is_empty, scene, "the end of all tasks");
    must_true(scene->runs >= wanted && scene->runs <= most);
    printf("%u clients: %lu calls answered, %lu run, %u clients killed\n",
           scene->count, wanted, (unsigned long)scene->runs, scene->kills);
}

static void run(const char *program, unsigned count, unsigned batches,
                uint64_t seed)
{
    const side_options_t options = {.drive = DRIVE_THREAD,
                                    .ucx_config = link_config(LINK_TCP),
                                    .peer_timeout_ms = BOUND_MS};
    /* A hundred connect at once, on a machine that may be busy with others. */
    const tmsg_listener_params_t patient = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT,
        .handshake_timeout_ms = BOUND_MS};
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS | TMSG_SERVER_PARAM_QUEUE,
        .threads = 4,
        .queue = 10000};
    scene_t scene = {
        .program = program, .count = count, .batches = batches, .seed = seed};

    side_open(&scene.side, &options);
    must(tmsg_server_create(scene.side.worker, &params, &scene.server));
    must(tmsg_server_register(scene.server, "echo", echo, &scene, NULL));
    must(tmsg_listener_create(scene.side.worker, "tcp://127.0.0.1:0", &patient,
                              &scene.side.listener));
    for (unsigned i = 0; i < count; i++) {
        start_client(&scene, &scene.clients[i]);
    }
    play(&scene);
    check(&scene);
    tmsg_server_destroy(scene.server);
    side_close(&scene.side);
}

int main(int argc, char **argv)
{
    const char *size = getenv("TMSG_CALL_CLIENTS");
    uint64_t seed;

    if (argc == 4) {
        return be_client(argv[1], (unsigned)strtoul(argv[2], NULL, 10),
                         (unsigned)strtoul(argv[3], NULL, 10));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    seed = soak_seed();
    if (size != NULL && strcmp(size, "small") == 0) {
        run(argv[0], 5, 20, seed);
        return 0;
    }
    if (soak_place("call_clients") == 0) {
        run(argv[0], CLIENTS_MOST, 100, seed);
    }
    soak_keep("call_clients", 0);
    return 0;
}
