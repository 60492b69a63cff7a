/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that does what it is told through the public interface, and says
 * what comes of it; the model (model.py) knows what may.
 *
 *   actor TIMEOUT_MS MESSAGE_BYTES HELD_BYTES QUEUE_DEPTH    (0: the default)
 *
 * Lines in, N being the number of a connection, the same at both ends:
 *
 *   listen URL                 says "url URL"
 *   connect N URL              says "connected N STATUS", by its value
 *   send N NUMBER BYTES FLAGS  says "done N NUMBER STATUS" at its end
 *   take N 0|1                 no more messages of N are pulled, or all are
 *   close N                    says "closed N STATUS"
 *   destroy N
 *   quit                       ends all and says "left DESCRIPTORS THREADS"
 *                              that are there and were not at first
 *
 * and of itself it says
 *
 *   bound N                    a peer has dialled
 *   got N NUMBER BYTES         a message, its contents compared
 *   torn N NUMBER BYTES AT     one whose byte AT is wrong
 *   ended N STATUS             by on_closed
 *   refused N STATUS           by on_refused
 *
 * One line is one write(): whoever is killed has said all that it did, but for
 * the last. Buffers are overwritten as soon as their send has ended. */
#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"
#include "support/sample.h"

enum { CONNECTIONS = 4096, REST_MS = 20, LIFE_S = 600 };

/* A connection's end here. The first message of the side that dials says its
 * number to the other. */
typedef struct {
    tmsg_endpoint_t *endpoint; /* NULL: none, or destroyed */
    tmsg_request_t *ready, *closed;
    bool dials, takes;
} end_t;

static struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    end_t ends[CONNECTIONS];
    int most; /* numbers in use are below */
    tmsg_endpoint_t *strangers[CONNECTIONS];
    int stranger_count;
    int descriptors, threads;
    bool quits;
} self;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    line[bytes++] = '\n';
    must_eq(write(STDOUT_FILENO, line, (size_t)bytes), bytes);
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
    return count;
}

/* What a message holds follows from where and which it is. */
static uint64_t seed_of(int n, bool by_dialler, int64_t number)
{
    return ((uint64_t)n * 2 + by_dialler) * 1000003 + (uint64_t)number;
}

static int number_of(const tmsg_endpoint_t *endpoint)
{
    return (int)(intptr_t)tmsg_endpoint_user(endpoint) - 1;
}

static void ended(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                  const char *error)
{
    (void)arg;
    say("ended %d %d %s", number_of(endpoint), status, error);
}

static void refused(void *arg, tmsg_endpoint_t *endpoint, uint32_t sequence,
                    tmsg_status_t status, const char *error)
{
    (void)arg;
    (void)sequence;
    say("refused %d %d %s", number_of(endpoint), status, error);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)arg;
    must_true(self.stranger_count < CONNECTIONS);
    self.strangers[self.stranger_count++] = endpoint;
}

static void bind_end(int n, tmsg_endpoint_t *endpoint, bool dials)
{
    must_true(n >= 0 && n < CONNECTIONS && self.ends[n].endpoint == NULL);
    self.ends[n] = (end_t){endpoint, NULL, NULL, dials, true};
    self.most = n >= self.most ? n + 1 : self.most;
    tmsg_endpoint_set_user(endpoint, (void *)(intptr_t)(n + 1));
    tmsg_endpoint_on_closed(endpoint, ended, NULL);
}

/* A message under way, with the buffer that it was lent. */
typedef struct {
    int n;
    int64_t number;
    size_t bytes;
    uint8_t *data;
} sending_t;

static void sent(void *arg, tmsg_status_t status, const char *error)
{
    sending_t *sending = arg;

    if (sending->number >= 0) {
        say("done %d %" PRId64 " %d %s", sending->n, sending->number, status,
            error);
    }
    memset(sending->data, 0xee, sending->bytes);
    free(sending->data);
    free(sending);
}

static void send_one(int n, int64_t number, size_t bytes, unsigned flags)
{
    const end_t *end = &self.ends[n];
    sending_t *sending = malloc(sizeof(*sending));
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_DONE,
                                       .flags = flags,
                                       .on_done = sent,
                                       .on_done_arg = sending};
    const int64_t shape[] = {(int64_t)bytes};
    tmsg_tensor_t tensor = {
        NULL, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_map_t *map;

    *sending = (sending_t){n, number, bytes, malloc(bytes + 1)};
    sample_fill(seed_of(n, end->dials, number), sending->data, bytes);
    tensor.data = sending->data;
    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "connection", n));
    must(tmsg_map_set_i64(map, "number", number));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    if (end->endpoint != NULL) {
        status = tmsg_endpoint_send(end->endpoint, map, &params, NULL);
    }
    tmsg_map_destroy(map);
    if (status != TMSG_OK) {
        sent(sending, status, "at once");
    }
}

static int64_t integer(const tmsg_map_t *map, const char *key)
{
    int64_t value;

    must(tmsg_map_get_i64(map, key, &value));
    return value;
}

static void check(int n, const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    int64_t number = integer(map, "number");
    tmsg_tensor_t tensor;
    size_t bytes, same;

    must_eq(integer(map, "connection"), n);
    must(tmsg_map_find(map, "data", &tensor));
    bytes = (size_t)tensor.shape[0];
    same = sample_compare(seed_of(n, !self.ends[n].dials, number), tensor.data,
                          bytes);
    if (same != bytes) {
        say("torn %d %" PRId64 " %zu %zu", n, number, bytes, same);
    } else {
        say("got %d %" PRId64 " %zu", n, number, bytes);
    }
}

static bool take_from(int n)
{
    tmsg_message_t *message;

    if (self.ends[n].endpoint == NULL || !self.ends[n].takes ||
        tmsg_endpoint_recv(self.ends[n].endpoint, 0, &message) != TMSG_OK) {
        return false;
    }
    check(n, message);
    tmsg_message_destroy(message);
    return true;
}

/* One whose number has come is known from then on; one that ends before is
 * forgotten. */
static bool greet(int i)
{
    tmsg_endpoint_t *endpoint = self.strangers[i];
    tmsg_message_t *message;
    tmsg_status_t status = tmsg_endpoint_recv(endpoint, 0, &message);
    int n;

    if (status == TMSG_ERR_TIMED_OUT) {
        return false;
    }
    self.strangers[i] = self.strangers[--self.stranger_count];
    if (status != TMSG_OK) {
        tmsg_endpoint_destroy(endpoint);
        return true;
    }
    n = (int)integer(tmsg_message_map(message), "connection");
    tmsg_message_destroy(message);
    say("bound %d", n);
    bind_end(n, endpoint, false);
    return true;
}

static void settle(tmsg_request_t **request, const char *what, int n)
{
    tmsg_status_t status;

    if (*request == NULL) {
        return;
    }
    status = tmsg_request_test(*request);
    if (status != TMSG_IN_PROGRESS) {
        say("%s %d %d %s", what, n, status, tmsg_request_error(*request));
        tmsg_request_destroy(*request);
        *request = NULL;
    }
}

static bool look_around(void)
{
    bool busy = tmsg_worker_progress(self.worker) > 0;

    for (int i = 0; i < self.stranger_count; i++) {
        busy |= greet(i);
    }
    for (int n = 0; n < self.most; n++) {
        settle(&self.ends[n].ready, "connected", n);
        settle(&self.ends[n].closed, "closed", n);
        busy |= take_from(n);
    }
    return busy;
}

static void listen_at(const char *url)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .on_accept = accepted,
        .allow_unauthenticated = 1};

    must(tmsg_listener_create(self.worker, url, &params, &self.listener));
    say("url %s", tmsg_listener_url(self.listener));
}

static void connect_to(int n, const char *url)
{
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_connect(self.worker, url, NULL, &endpoint));
    bind_end(n, endpoint, true);
    must(tmsg_endpoint_ready(endpoint, &self.ends[n].ready));
    send_one(n, -1, 0, 0);
}

static void close_end(int n)
{
    end_t *end = &self.ends[n];

    if (end->endpoint == NULL) {
        say("closed %d %d no such end", n, TMSG_ERR_CLOSED);
    } else {
        tmsg_request_destroy(end->closed);
        must(tmsg_endpoint_close(end->endpoint, &end->closed));
    }
}

static void destroy_end(int n)
{
    end_t *end = &self.ends[n];

    tmsg_endpoint_destroy(end->endpoint);
    end->endpoint = NULL;
}

static void obey(const char *line)
{
    int n;
    int64_t number;
    size_t bytes;
    unsigned flags;
    char url[512];

    if (sscanf(line, "listen %511s", url) == 1) {
        listen_at(url);
    } else if (sscanf(line, "connect %d %511s", &n, url) == 2) {
        connect_to(n, url);
    } else if (sscanf(line, "send %d %" SCNd64 " %zu %u", &n, &number, &bytes,
                      &flags) == 4) {
        send_one(n, number, bytes, flags);
    } else if (sscanf(line, "take %d %u", &n, &flags) == 2) {
        self.ends[n].takes = flags != 0;
    } else if (sscanf(line, "close %d", &n) == 1) {
        close_end(n);
    } else if (sscanf(line, "destroy %d", &n) == 1) {
        destroy_end(n);
    } else if (strcmp(line, "quit") == 0) {
        self.quits = true;
    } else {
        die("no such command: %s", line);
    }
}

/* Obeys what has come; the driver's end is ours. */
static bool hear(void)
{
    static char text[65536];
    static size_t used;
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    char *line = text, *end;
    ssize_t bytes;

    if (poll(&fd, 1, 0) == 0) {
        return false;
    }
    bytes = read(STDIN_FILENO, text + used, sizeof(text) - used);
    if (bytes <= 0) {
        _exit(0);
    }
    used += (size_t)bytes;
    while ((end = memchr(line, '\n', used - (size_t)(line - text))) != NULL) {
        *end = '\0';
        obey(line);
        line = end + 1;
    }
    used -= (size_t)(line - text);
    memmove(text, line, used);
    return true;
}

static void rest(void)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0},
                           {tmsg_worker_fd(self.worker), POLLIN, 0}};

    if (tmsg_worker_arm(self.worker) == TMSG_OK) {
        poll(fds, 2, REST_MS);
    }
}

static void open_self(char **words)
{
    const tmsg_limits_t limits = {
        .field_mask =
            (atoll(words[1]) > 0 ? (uint64_t)TMSG_LIMIT_MESSAGE_BYTES : 0) |
            (atoll(words[2]) > 0 ? (uint64_t)TMSG_LIMIT_HELD_BYTES : 0),
        .message_bytes = strtoull(words[1], NULL, 10),
        .held_bytes = strtoull(words[2], NULL, 10)};
    const tmsg_context_params_t context = {
        .field_mask =
            TMSG_CONTEXT_PARAM_LIMITS |
            (atoi(words[0]) > 0 ? (uint64_t)TMSG_CONTEXT_PARAM_PEER_TIMEOUT
                                : 0),
        .limits = &limits,
        .peer_timeout_ms = (uint32_t)atoi(words[0])};
    const tmsg_worker_params_t worker = {
        .field_mask =
            TMSG_WORKER_PARAM_ON_REFUSED |
            (atoi(words[3]) > 0 ? (uint64_t)TMSG_WORKER_PARAM_QUEUE_DEPTH : 0),
        .queue_depth = (uint32_t)atoi(words[3]),
        .on_refused = refused};

    self.descriptors = count_entries("/proc/self/fd");
    self.threads = count_entries("/proc/self/task");
    must(tmsg_context_create(&context, &self.context));
    must(tmsg_worker_create(self.context, &worker, &self.worker));
}

static void close_self(void)
{
    for (int n = 0; n < self.most; n++) {
        tmsg_request_destroy(self.ends[n].ready);
        tmsg_request_destroy(self.ends[n].closed);
    }
    tmsg_worker_destroy(self.worker);
    tmsg_context_destroy(self.context);
    say("left %d %d", count_entries("/proc/self/fd") - self.descriptors,
        count_entries("/proc/self/task") - self.threads);
}

int main(int count, char **words)
{
    if (count != 5) {
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIFE_S);
    open_self(words + 1);
    while (!self.quits) {
        bool busy = look_around();

        busy |= hear();
        if (!busy) {
            rest();
        }
    }
    close_self();
    return 0;
}
