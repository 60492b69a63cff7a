/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/peers.h"
#include "support/device_maps.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIDES_MAX 4
#define QUIET_MS 3000  /* a descriptor that stays silent for so long */
#define IDLE_TURNS 500 /* of polling in vain, about 0.2 ms, before it naps */

const char *const drive_names[DRIVES] = {"polling", "fd", "thread"};
const char *const link_names[LINKS] = {"tcp", "shm", "unix", "blob", "stream"};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void by_ucx_alone(void)
{
    setenv("TENSORMSG_THRESHOLDS", "tcp.bulk_bytes=never,shm.bulk_bytes=never",
           1);
}

bool peers_by_tls(void) { return getenv("PEERS_TLS") != NULL; }

const char *peers_tcp_url(void)
{
    return peers_by_tls() ? "tls://127.0.0.1:0" : "tcp://127.0.0.1:0";
}

/* A keyring for a side that has none of its own. */
static tmsg_keyring_t *usual_keyring(void)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {7};
    tmsg_keyring_t *keyring;

    must(tmsg_keyring_create(&keyring));
    must(tmsg_keyring_add(keyring, "peer", key));
    return keyring;
}

void without_reading(void) { setenv("UCX_TLS", "posix,self,tcp", 1); }

const char *link_config(link_t link)
{
    return link == LINK_TCP ? "TLS=tcp" : NULL;
}

/* Regular wake-ups would hide one that was lost. */
static void make_quiet(tmsg_context_params_t *context, char *text, size_t bytes)
{
    const char *config = context->ucx_config;

    snprintf(text, bytes, "%s%sKEEPALIVE_INTERVAL=10m",
             config == NULL ? "" : config, config == NULL ? "" : ";");
    context->field_mask |=
        TMSG_CONTEXT_PARAM_UCX_CONFIG | TMSG_CONTEXT_PARAM_PEER_TIMEOUT;
    context->ucx_config = text;
    context->peer_timeout_ms = 0;
}

static void set_context(tmsg_context_params_t *context,
                        const side_options_t *options)
{
    context->field_mask =
        TMSG_CONTEXT_PARAM_LIMITS | TMSG_CONTEXT_PARAM_UCX_CONFIG;
    context->limits = &options->limits;
    context->ucx_config = options->ucx_config;
    if (options->keyring != NULL) {
        context->field_mask |= TMSG_CONTEXT_PARAM_KEYRING;
        context->keyring = options->keyring;
    }
    if (options->flags != 0) {
        context->field_mask |= TMSG_CONTEXT_PARAM_FLAGS;
        context->flags = options->flags;
    }
    if (options->peer_timeout_ms != 0) {
        context->field_mask |= TMSG_CONTEXT_PARAM_PEER_TIMEOUT;
        context->peer_timeout_ms = options->peer_timeout_ms;
    }
}

void side_open(side_t *side, const side_options_t *options)
{
    char config[256];
    tmsg_keyring_t *keyring = NULL;
    tmsg_context_params_t context = {.field_mask = 0};
    tmsg_worker_params_t worker = {.field_mask = 0};

    memset(side, 0, sizeof(*side));
    if (getenv("SAMPLE_DEVICES") != NULL) {
        device_maps_begin();
    }
    if (options != NULL) {
        worker = options->worker;
        side->drive = options->drive;
        set_context(&context, options);
        if (options->quiet || options->drive == DRIVE_FD) {
            make_quiet(&context, config, sizeof(config));
        }
    }
    if (peers_by_tls() && context.keyring == NULL) {
        keyring = usual_keyring();
        context.field_mask |= TMSG_CONTEXT_PARAM_KEYRING;
        context.keyring = keyring;
    }
    if (side->drive == DRIVE_THREAD) {
        worker.field_mask |= TMSG_WORKER_PARAM_FLAGS;
        worker.flags |= TMSG_WORKER_THREAD;
    }
    must(tmsg_context_create(&context, &side->context));
    tmsg_keyring_destroy(keyring);
    must(tmsg_worker_create(side->context, &worker, &side->worker));
}

void side_close(side_t *side)
{
    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
    side->worker = NULL;
    side->context = NULL;
    side->listener = NULL;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    side_t *side = arg;

    side->accepted = endpoint;
    side->accepts++;
}

static void listen_by(side_t *side, const char *url, tmsg_carrier_t carrier)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |
                      TMSG_LISTENER_PARAM_CARRIER,
        .on_accept = accepted,
        .on_accept_arg = side,
        .handshake_timeout_ms = PEERS_CONNECT_MS,
        .carrier = carrier,
    };

    must(tmsg_listener_create(side->worker, url, &params, &side->listener));
}

void side_listen(side_t *side, const char *url)
{
    listen_by(side, url, TMSG_CARRIER_AUTO);
}

void side_listen_link(side_t *side, link_t link)
{
    static unsigned count;
    char url[256], name[32];

    switch (link) {
    case LINK_UNIX:
        snprintf(name, sizeof(name), "link%u", count++);
        snprintf(url, sizeof(url), "unix://%s", scratch_path(name));
        side_listen(side, url);
        return;
    case LINK_BLOB:
        side_listen(side, "blob://");
        return;
    case LINK_STREAM:
        listen_by(side, peers_tcp_url(), TMSG_CARRIER_STREAM);
        return;
    default:
        side_listen(side, peers_tcp_url());
    }
}

static const tmsg_endpoint_params_t patient = {
    .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
    .connect_timeout_ms = PEERS_CONNECT_MS,
};

tmsg_endpoint_t *side_dial(side_t *side, const side_t *to)
{
    const char *url = tmsg_listener_url(to->listener);
    tmsg_endpoint_t *endpoint;
    const void *blob;
    size_t bytes;

    if (strncmp(url, "blob:", 5) == 0) {
        must(tmsg_listener_blob(to->listener, &blob, &bytes));
        must(tmsg_endpoint_connect_blob(side->worker, blob, bytes, &patient,
                                        &endpoint));
    } else {
        must(tmsg_endpoint_connect(side->worker, url, &patient, &endpoint));
    }
    return endpoint;
}

/* Sleeps on the descriptors of the sides that are driven by them. */
static void sleep_on_fds(side_t *const *sides, size_t count, const char *what)
{
    struct pollfd fds[SIDES_MAX];
    nfds_t used = 0;

    for (size_t i = 0; i < count; i++) {
        if (sides[i]->drive == DRIVE_FD) {
            tmsg_status_t status = tmsg_worker_arm(sides[i]->worker);

            if (status == TMSG_ERR_BUSY) {
                return;
            }
            must(status);
            fds[used++] =
                (struct pollfd){tmsg_worker_fd(sides[i]->worker), POLLIN, 0};
        }
    }
    if (poll(fds, used, QUIET_MS) != 0 || poll(fds, used, 0) != 0) {
        return; /* the second: what came just now */
    }
    for (size_t i = 0; i < count; i++) {
        if (sides[i]->drive == DRIVE_FD &&
            tmsg_worker_progress(sides[i]->worker) > 0) {
            die("the descriptor was silent, yet there was work (%s)", what);
        }
    }
}

/* Whoever polls for long in vain leaves the processor to other tests. */
static void nap(unsigned *idle, bool busy)
{
    static const struct timespec brief = {0, 50000};

    *idle = busy ? 0 : *idle + 1;
    if (*idle > IDLE_TURNS) {
        nanosleep(&brief, NULL);
    }
}

static void drive_once(side_t *const *sides, size_t count, const char *what,
                       unsigned *idle)
{
    unsigned events = 0, threads = 0;
    bool polling = false;

    for (size_t i = 0; i < count; i++) {
        if (sides[i]->drive == DRIVE_THREAD) {
            threads++;
        } else {
            events += tmsg_worker_progress(sides[i]->worker);
            polling |= sides[i]->drive == DRIVE_POLLING;
        }
    }
    if (count > 0 && threads == count) {
        tmsg_worker_wait(sides[0]->worker, 1);
    } else if (count > 0 && events == 0 && threads == 0 && !polling) {
        sleep_on_fds(sides, count, what);
    } else {
        nap(idle, events > 0);
    }
}

void await(side_t *const *sides, size_t count, done_fn done, void *arg,
           const char *what)
{
    uint64_t deadline = now_ms() + PEERS_BOUND_MS;
    unsigned idle = 0;

    while (!done(arg)) {
        drive_once(sides, count, what, &idle);
        if (now_ms() > deadline) {
            die("%s: not within %d ms", what, PEERS_BOUND_MS);
        }
    }
}

void pair_await(pair_t *pair, done_fn done, void *arg, const char *what)
{
    await(pair->sides, 2, done, arg, what);
}

void side_await(side_t *side, done_fn done, void *arg, const char *what)
{
    await(&side, 1, done, arg, what);
}

static bool has_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

tmsg_status_t pair_wait(pair_t *pair, tmsg_request_t *request)
{
    pair_await(pair, has_ended, request, "a request");
    return tmsg_request_test(request);
}

tmsg_status_t side_wait(side_t *side, tmsg_request_t *request)
{
    side_await(side, has_ended, request, "a request");
    return tmsg_request_test(request);
}

/* What it ended with, in words where must() finds them. */
static tmsg_status_t finish(tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_wait(request, 0);

    tmsg_request_destroy(request);
    return status;
}

tmsg_status_t pair_finish(pair_t *pair, tmsg_request_t *request)
{
    pair_wait(pair, request);
    return finish(request);
}

tmsg_status_t side_finish(side_t *side, tmsg_request_t *request)
{
    side_wait(side, request);
    return finish(request);
}

typedef struct {
    side_t *side;
    tmsg_message_t *message;
} taking_t;

static bool has_taken(void *arg)
{
    taking_t *taking = arg;
    tmsg_status_t status =
        tmsg_worker_recv(taking->side->worker, 0, &taking->message);

    must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
    return status == TMSG_OK;
}

tmsg_message_t *pair_take(pair_t *pair, side_t *side)
{
    taking_t taking = {side, NULL};

    pair_await(pair, has_taken, &taking, "a message");
    return taking.message;
}

tmsg_message_t *side_take(side_t *side)
{
    taking_t taking = {side, NULL};

    side_await(side, has_taken, &taking, "a message");
    return taking.message;
}

static bool is_over(void *arg) { return tmsg_endpoint_status(arg) < 0; }

tmsg_status_t pair_end_of(pair_t *pair, tmsg_endpoint_t *endpoint)
{
    pair_await(pair, is_over, endpoint, "the end of an endpoint");
    return tmsg_endpoint_status(endpoint);
}

tmsg_status_t side_end_of(side_t *side, tmsg_endpoint_t *endpoint)
{
    side_await(side, is_over, endpoint, "the end of an endpoint");
    return tmsg_endpoint_status(endpoint);
}

static bool has_accepted(void *arg)
{
    const side_t *side = arg;

    return side->accepts > side->taken;
}

tmsg_endpoint_t *side_accept(side_t *side)
{
    side_await(side, has_accepted, side, "an accepted endpoint");
    side->taken = side->accepts;
    return side->accepted;
}

tmsg_endpoint_t *side_connect(side_t *side, const char *url)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;

    must(tmsg_endpoint_connect(side->worker, url, &patient, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(side, ready));
    return endpoint;
}

void pair_open(pair_t *pair, link_t link, drive_t drive,
               const side_options_t *a, const side_options_t *b)
{
    side_options_t options_a = {.drive = drive}, options_b = options_a;
    tmsg_request_t *ready;

    if (a != NULL) {
        options_a = *a;
        options_a.drive = drive;
    }
    if (b != NULL) {
        options_b = *b;
        options_b.drive = drive;
    }
    if (link == LINK_TCP) {
        options_a.ucx_config = link_config(link);
        options_b.ucx_config = link_config(link);
    }
    memset(pair, 0, sizeof(*pair));
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_open(&pair->a, &options_a);
    side_open(&pair->b, &options_b);
    side_listen_link(&pair->a, link);
    pair->to_a = side_dial(&pair->b, &pair->a);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    must(pair_finish(pair, ready));
    pair_await(pair, has_accepted, &pair->a, "an accepted endpoint");
    pair->to_b = pair->a.accepted;
}

void pair_close(pair_t *pair)
{
    tmsg_request_t *closed;

    must(tmsg_endpoint_close(pair->to_a, &closed));
    must(pair_finish(pair, closed));
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_CLOSED);
    pair_drop(pair);
}

void pair_drop(pair_t *pair)
{
    side_close(&pair->b);
    side_close(&pair->a);
}

tmsg_request_t *send_map(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                         unsigned flags)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

bool receiving_has_ended(void *arg)
{
    receiving_t *receiving = arg;

    receiving->status = tmsg_endpoint_recv_into(
        receiving->pair->to_b, receiving->map, 0,
        receiving->unwanted ? NULL : &receiving->message);
    return receiving->status != TMSG_ERR_TIMED_OUT &&
           receiving->status != TMSG_CANCEL_PENDING;
}

bool endpoint_uses(const tmsg_endpoint_t *endpoint, const char *transport)
{
    char *json, *from, *to;
    bool found;

    must(tmsg_endpoint_describe(endpoint, &json));
    from = strstr(json, "\"transports\"");
    must_true(from != NULL);
    to = strchr(from, '\n');
    if (to != NULL) {
        *to = '\0';
    }
    found = strstr(from, transport) != NULL;
    tmsg_string_free(json);
    return found;
}

bool endpoint_is_read(void *endpoint) { return endpoint_uses(endpoint, "cma"); }

bool endpoint_has_bulk(void *endpoint)
{
    char *json;
    bool stands;

    must(tmsg_endpoint_describe(endpoint, &json));
    stands = strstr(json, "\"bulk\":\t\"stands\"") != NULL;
    tmsg_string_free(json);
    return stands;
}

static char scratch[64];
static pid_t scratch_owner;

static void remove_scratch(void)
{
    DIR *folder;
    struct dirent *entry;
    char path[512];

    if (scratch_owner != getpid() || (folder = opendir(scratch)) == NULL) {
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", scratch, entry->d_name);
        unlink(path);
    }
    closedir(folder);
    rmdir(scratch);
}

const char *scratch_path(const char *name)
{
    static _Thread_local char path[128];

    if (scratch_owner != getpid()) {
        scratch_owner = getpid();
        snprintf(scratch, sizeof(scratch), "/tmp/tmsg-test-XXXXXX");
        must_true(mkdtemp(scratch) != NULL);
        atexit(remove_scratch);
    }
    snprintf(path, sizeof(path), "%s/%s", scratch, name);
    return path;
}

static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    must_true(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 2; /* "." and ".." */
}

int count_descriptors(void)
{
    return count_entries("/proc/self/fd") - 1; /* the folder's own */
}

void await_descriptors(int most)
{
    for (int i = 0; i < PEERS_BOUND_MS && count_descriptors() > most; i++) {
        poll(NULL, 0, 1);
    }
    must_true(count_descriptors() <= most);
}

int count_threads(void) { return count_entries("/proc/self/task"); }

static void be_child(const int *down, const int *up,
                     void (*body)(pipes_t *pipes, void *arg), void *arg)
{
    pipes_t pipes = {down[0], up[1]};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(down[1]);
    close(up[0]);
    body(&pipes, arg);
    remove_scratch();
    _exit(0); /* not exit(): the handlers are the parent's */
}

void child_start(child_t *child, void (*body)(pipes_t *pipes, void *arg),
                 void *arg)
{
    int down[2], up[2];

    must_true(pipe(down) == 0 && pipe(up) == 0);
    child->pid = fork();
    must_true(child->pid >= 0);
    if (child->pid == 0) {
        be_child(down, up, body, arg);
    }
    close(down[0]);
    close(up[1]);
    child->in = up[0];
    child->out = down[1];
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    must_true(child->pidfd >= 0);
}

static int reap(child_t *child)
{
    struct pollfd fd = {child->pidfd, POLLIN, 0};
    int status;

    if (poll(&fd, 1, PEERS_BOUND_MS) != 1) {
        kill(child->pid, SIGKILL);
        die("the child does not end");
    }
    must_eq(waitpid(child->pid, &status, 0), child->pid);
    close(child->pidfd);
    close(child->in);
    close(child->out);
    return status;
}

bool child_is_stopped(void *arg)
{
    char path[64], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)((child_t *)arg)->pid);
    file = fopen(path, "r");
    must_true(file != NULL);
    must_eq(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
    fclose(file);
    return state == 'T';
}

void child_join(child_t *child)
{
    int status = reap(child);

    if (status != 0) {
        die("the child ended by %s %d",
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static bool has_spoken(void *arg)
{
    const child_t *child = arg;
    struct pollfd fd = {child->in, POLLIN, 0};

    return poll(&fd, 1, 0) > 0;
}

void child_await(side_t *side, child_t *child)
{
    side_await(side, has_spoken, child, "a child");
}

void child_kill(child_t *child)
{
    kill(child->pid, SIGKILL);
    reap(child);
}

void line_put(int fd, const char *line)
{
    must_eq(dprintf(fd, "%s\n", line), strlen(line) + 1);
}

void line_get(int fd, char *line, size_t bytes)
{
    struct pollfd poller = {fd, POLLIN, 0};
    size_t used = 0;

    for (;;) {
        char c;

        if (poll(&poller, 1, PEERS_BOUND_MS) != 1 || read(fd, &c, 1) != 1) {
            die("the other process says no more");
        }
        if (c == '\n') {
            line[used] = '\0';
            return;
        }
        must_true(used + 1 < bytes);
        line[used++] = c;
    }
}

void blob_put(int fd, const tmsg_listener_t *listener)
{
    char line[16];
    const void *blob;
    size_t bytes;

    must(tmsg_listener_blob(listener, &blob, &bytes));
    snprintf(line, sizeof(line), "%zu", bytes);
    line_put(fd, line);
    must_eq(write(fd, blob, bytes), bytes);
}

tmsg_endpoint_t *blob_connect(side_t *side, int fd)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    uint8_t blob[8192];
    char line[16];
    size_t bytes;

    line_get(fd, line, sizeof(line));
    bytes = strtoul(line, NULL, 10);
    must_true(bytes <= sizeof(blob));
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, blob + got, bytes - got);

        must_true(n > 0);
        got += (size_t)n;
    }
    must(
        tmsg_endpoint_connect_blob(side->worker, blob, bytes, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(side, ready));
    return endpoint;
}
