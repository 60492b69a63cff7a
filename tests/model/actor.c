/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that does what it is told through the public interface, and says
 * what comes of it; the model (model.py) knows what may. `cut` alone reaches
 * into an endpoint, for its socket.
 *
 *   actor TIMEOUT_MS MESSAGE_BYTES HELD_BYTES QUEUE_DEPTH    (0: the default)
 *
 * Lines in, N being the number of a connection, the same at both ends:
 *
 *   listen URL RESUME_MS       says "url URL"
 *   connect N URL GIVE_UP_MS   says "connected N STATUS", by its value; 0: it
 *                              does not come back by itself
 *   send N NUMBER BYTES FLAGS CHANNEL TIMEOUT_MS
 *                              says "done N NUMBER STATUS" at its end
 *   cancel N NUMBER            of a send
 *   queue N MESSAGES POLICY    bounds N's send queue
 *   subscribe N                to what is published here
 *   publish NUMBER BYTES       says "said NUMBER STATUS" at its end
 *   take N 0|1                 no more messages of N are pulled, or all are
 *   into N 0|1                 they are received into a map, where they fit
 *   cut N                      breaks its connection, which both sides see
 *   close N                    says "closed N STATUS"
 *   destroy N
 *   hold                       says "held DESCRIPTORS THREADS SEGMENTS BYTES"
 *                              that are there and were not at first
 *   quit                       ends all and says "left", and the same
 *
 * and of itself it says
 *
 *   bound N                    a peer has dialled
 *   got N NUMBER BYTES         a message, its contents compared
 *   heard N NUMBER BYTES       a publication, likewise
 *   torn N NUMBER BYTES AT     one whose byte AT is wrong
 *   ended N STATUS             by on_closed
 *   refused N STATUS           by on_refused
 *
 * One line is one write(): whoever is killed has said all that it did, but for
 * the last. Buffers are overwritten as soon as their send has ended. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "am/endpoint/endpoint.h"
#include "lines.h"
#include "support/held_resources.h"
#include "support/must.h"
#include "support/own_code_alloc.h"
#include "support/seeded_maps.h"

enum {
    CONNECTIONS = 4096,
    REST_MS = 20,
    LIFE_S = 600,
    INTO_BYTES = 20000, /* of the map that is received into */
    PUBLISHED = -1      /* for a connection, where a publication is meant */
};

/* A connection's end here. The first message of the side that dials says its
 * number to the other. */
typedef struct {
    tmsg_endpoint_t *endpoint; /* NULL: none, or destroyed */
    tmsg_request_t *ready, *closed;
    bool dials, takes;
    tmsg_map_t *into;      /* NULL: messages are pulled */
    struct sending *sends; /* that have not ended, newest first */
} end_t;

static struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    end_t ends[CONNECTIONS];
    int most; /* numbers in use are below */
    tmsg_endpoint_t *strangers[CONNECTIONS];
    int stranger_count;
    tmsg_publisher_t *publisher;
    left_t before;
    bool quits;
} self;

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

static void refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                    uint32_t sequence, tmsg_status_t status, const char *error)
{
    (void)channel;
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
    self.ends[n] = (end_t){.endpoint = endpoint, .dials = dials, .takes = true};
    self.most = n >= self.most ? n + 1 : self.most;
    tmsg_endpoint_set_user(endpoint, (void *)(intptr_t)(n + 1));
    tmsg_endpoint_on_closed(endpoint, ended, NULL);
}

/* A message under way, with the buffer that it was lent. */
typedef struct sending {
    struct sending *next;
    int n;
    int64_t number;
    size_t bytes;
    uint8_t *data;
    tmsg_request_t *request; /* NULL: there is none yet */
} sending_t;

static void forget(const sending_t *sending)
{
    sending_t **place = &self.ends[sending->n].sends;

    while (*place != NULL && *place != sending) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = sending->next;
    }
}

static void sent(void *arg, tmsg_status_t status, const char *error)
{
    sending_t *sending = arg;

    if (sending->n == PUBLISHED) {
        say("said %" PRId64 " %d %s", sending->number, status, error);
    } else {
        forget(sending);
    }
    if (sending->number >= 0 && sending->n >= 0) {
        say("done %d %" PRId64 " %d %s", sending->n, sending->number, status,
            error);
    }
    tmsg_request_destroy(sending->request);
    memset(sending->data, 0xee, sending->bytes);
    free(sending->data);
    free(sending);
}

static sending_t *sending_of(int n, int64_t number, size_t bytes, uint64_t seed)
{
    sending_t *sending = calloc(1, sizeof(*sending));

    must_true(sending != NULL);
    sending->n = n;
    sending->number = number;
    sending->bytes = bytes;
    sending->data = malloc(bytes + 1);
    must_true(sending->data != NULL);
    sample_fill(seed, sending->data, bytes);
    return sending;
}

/* Borrows the data. */
static tmsg_map_t *map_of(const sending_t *sending)
{
    const int64_t shape[] = {(int64_t)sending->bytes};
    const tmsg_tensor_t tensor = {
        sending->data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "connection", sending->n));
    must(tmsg_map_set_i64(map, "number", sending->number));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

typedef struct {
    unsigned flags, channel;
    int timeout_ms; /* 0: none */
} how_t;

static void send_one(int n, int64_t number, size_t bytes, const how_t *how)
{
    end_t *end = &self.ends[n];
    sending_t *sending =
        sending_of(n, number, bytes, seed_of(n, end->dials, number));
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE |
                      TMSG_SEND_PARAM_CHANNEL | TMSG_SEND_PARAM_TIMEOUT,
        .flags = how->flags,
        .channel = (uint16_t)how->channel,
        .timeout_ms = how->timeout_ms > 0 ? how->timeout_ms : -1,
        .on_done = sent,
        .on_done_arg = sending};
    tmsg_map_t *map = map_of(sending);
    tmsg_status_t status = TMSG_ERR_CLOSED;

    sending->next = end->sends;
    end->sends = sending;
    if (end->endpoint != NULL) {
        status =
            tmsg_endpoint_send(end->endpoint, map, &params, &sending->request);
    }
    tmsg_map_destroy(map);
    if (status != TMSG_OK) {
        sent(sending, status, "at once");
    }
}

static void cancel(int n, int64_t number)
{
    sending_t *sending = self.ends[n].sends;

    while (sending != NULL && sending->number != number) {
        sending = sending->next;
    }
    if (sending != NULL) {
        tmsg_request_cancel(sending->request);
    }
}

static void bound_queue(int n, unsigned messages, int32_t policy)
{
    const tmsg_queue_params_t params = {
        .field_mask = TMSG_QUEUE_PARAM_MESSAGES | TMSG_QUEUE_PARAM_POLICY,
        .messages = messages,
        .policy = policy};

    if (self.ends[n].endpoint != NULL) {
        must(tmsg_endpoint_set_queue(self.ends[n].endpoint, &params));
    }
}

static void publish(int64_t number, size_t bytes)
{
    sending_t *sending =
        sending_of(PUBLISHED, number, bytes, (uint64_t)number * 7919);
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = sent,
                                       .on_done_arg = sending};
    tmsg_map_t *map = map_of(sending);

    must(tmsg_publisher_publish(self.publisher, map, &params, NULL));
    tmsg_map_destroy(map);
}

static void subscribe(int n)
{
    const tmsg_subscriber_params_t all = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES, .messages = UINT32_MAX};

    if (self.ends[n].endpoint != NULL) { /* it may have ended */
        (void)tmsg_publisher_add(self.publisher, self.ends[n].endpoint, &all);
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
    bool published = integer(map, "connection") == PUBLISHED;
    uint64_t seed = published ? (uint64_t)number * 7919
                              : seed_of(n, !self.ends[n].dials, number);
    tmsg_tensor_t tensor;
    size_t bytes, same;

    must_true(published || integer(map, "connection") == n);
    must(tmsg_map_find(map, "data", &tensor));
    bytes = (size_t)tensor.shape[0];
    same = sample_compare(seed, tensor.data, bytes);
    if (same != bytes) {
        say("torn %d %" PRId64 " %zu %zu", n, number, bytes, same);
    } else {
        say("%s %d %" PRId64 " %zu", published ? "heard" : "got", n, number,
            bytes);
    }
}

/* A message that does not fit the map is pulled. */
static tmsg_status_t receive(const end_t *end, tmsg_message_t **message_p)
{
    tmsg_status_t status =
        end->into == NULL
            ? TMSG_ERR_INVALID_PARAM
            : tmsg_endpoint_recv_into(end->endpoint, end->into, 0, message_p);

    return status == TMSG_ERR_INVALID_PARAM
               ? tmsg_endpoint_recv(end->endpoint, 0, message_p)
               : status;
}

static bool take_from(int n)
{
    tmsg_message_t *message;

    if (self.ends[n].endpoint == NULL || !self.ends[n].takes ||
        receive(&self.ends[n], &message) != TMSG_OK) {
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

static void listen_at(const char *url, int32_t resume_ms)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED |
                      TMSG_LISTENER_PARAM_RESUME,
        .on_accept = accepted,
        .resume_ms = resume_ms,
        .allow_unauthenticated = 1};

    must(tmsg_listener_create(self.worker, url, &params, &self.listener));
    say("url %s", tmsg_listener_url(self.listener));
}

static void connect_to(int n, const char *url, int32_t give_up_ms)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = {.first_backoff_ms = 1,
                      .most_backoff_ms = 50,
                      .give_up_ms = give_up_ms},
        .flags = TMSG_ENDPOINT_SAME_PROCESS};
    const how_t how = {0};
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_connect(self.worker, url,
                               give_up_ms > 0 ? &params : NULL, &endpoint));
    bind_end(n, endpoint, true);
    must(tmsg_endpoint_ready(endpoint, &self.ends[n].ready));
    send_one(n, -1, 0, &how);
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

static void set_into(int n, bool wanted)
{
    end_t *end = &self.ends[n];
    const int64_t shape[] = {INTO_BYTES};
    tmsg_map_add_params_t owned = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                   .release = free};
    tmsg_tensor_t tensor = {
        NULL, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};

    tmsg_map_destroy(end->into);
    end->into = NULL;
    if (wanted) {
        tensor.data = owned.release_arg = malloc(INTO_BYTES);
        must(tmsg_map_create(&end->into));
        must(tmsg_map_add(end->into, "data", &tensor, &owned));
    }
}

/* The one thing that no public function does. */
static void cut(int n)
{
    const tmsg_endpoint_t *endpoint = self.ends[n].endpoint;

    if (endpoint != NULL && endpoint->link.fd >= 0) {
        shutdown(endpoint->link.fd, SHUT_RDWR);
    }
}

static void say_left(const left_t *now, const char *word)
{
    char text[128];

    left_text(&self.before, now, word, text, sizeof(text));
    say("%s", text);
}

static void say_held(void)
{
    size_t pool = left_pool_bytes(self.worker);
    left_t now = left_look(watched_alloc_bytes);

    now.bytes -= pool;
    say_left(&now, "held");
}

static bool obey_about_an_end(const char *line)
{
    int n, value;
    int64_t number;
    unsigned messages;

    if (sscanf(line, "take %d %d", &n, &value) == 2) {
        self.ends[n].takes = value != 0;
    } else if (sscanf(line, "into %d %d", &n, &value) == 2) {
        set_into(n, value != 0);
    } else if (sscanf(line, "cancel %d %" SCNd64, &n, &number) == 2) {
        cancel(n, number);
    } else if (sscanf(line, "queue %d %u %d", &n, &messages, &value) == 3) {
        bound_queue(n, messages, value);
    } else if (sscanf(line, "subscribe %d", &n) == 1) {
        subscribe(n);
    } else if (sscanf(line, "cut %d", &n) == 1) {
        cut(n);
    } else if (sscanf(line, "close %d", &n) == 1) {
        close_end(n);
    } else if (sscanf(line, "destroy %d", &n) == 1) {
        destroy_end(n);
    } else {
        return false;
    }
    return true;
}

static void obey(const char *line)
{
    int n, ms;
    int64_t number;
    size_t bytes;
    how_t how;
    char url[512];

    if (obey_about_an_end(line)) {
        return;
    }
    if (sscanf(line, "listen %511s %d", url, &ms) == 2) {
        listen_at(url, ms);
    } else if (sscanf(line, "connect %d %511s %d", &n, url, &ms) == 3) {
        connect_to(n, url, ms);
    } else if (sscanf(line, "send %d %" SCNd64 " %zu %u %u %d", &n, &number,
                      &bytes, &how.flags, &how.channel, &how.timeout_ms) == 6) {
        send_one(n, number, bytes, &how);
    } else if (sscanf(line, "publish %" SCNd64 " %zu", &number, &bytes) == 2) {
        publish(number, bytes);
    } else if (strcmp(line, "hold") == 0) {
        say_held();
    } else if (strcmp(line, "quit") == 0) {
        self.quits = true;
    } else {
        die("no such command: %s", line);
    }
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
    tmsg_context_params_t context = {
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

    self.before = left_look(watched_alloc_bytes);
    if (getenv("TMSG_MODEL_KEY") != NULL) {
        context.field_mask |= TMSG_CONTEXT_PARAM_KEYRING;
        must(tmsg_keyring_create(&context.keyring));
        must(tmsg_keyring_load(context.keyring, getenv("TMSG_MODEL_KEY")));
    }
    must(tmsg_context_create(&context, &self.context));
    tmsg_keyring_destroy(context.keyring);
    must(tmsg_worker_create(self.context, &worker, &self.worker));
    must(tmsg_publisher_create(self.worker, NULL, &self.publisher));
}

static void close_self(void)
{
    left_t now;

    for (int n = 0; n < self.most; n++) {
        tmsg_request_destroy(self.ends[n].ready);
        tmsg_request_destroy(self.ends[n].closed);
    }
    tmsg_publisher_destroy(self.publisher);
    tmsg_worker_destroy(self.worker);
    tmsg_context_destroy(self.context);
    for (int n = 0; n < self.most; n++) {
        tmsg_map_destroy(self.ends[n].into);
    }
    now = left_await(&self.before, watched_alloc_bytes, NULL, NULL);
    if (now.bytes > self.before.bytes) {
        watched_alloc_report();
    }
    say_left(&now, "left");
}

int main(int count, char **words)
{
    if (count != 5) {
        return 2;
    }
    watched_alloc_start();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LIFE_S);
    open_self(words + 1);
    while (!self.quits) {
        bool busy = look_around();

        busy |= lines_hear(obey);
        if (!busy) {
            rest();
        }
    }
    close_self();
    return 0;
}
