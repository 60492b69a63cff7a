/* SPDX-License-Identifier: BSD-3-Clause */
/* Two programs with several connections between them, of which a firewall is to
 * silence one path each (test_paths.py):
 *
 *   paths serve ADDRESS TIMEOUT_MS
 *   paths dial URL PUBLISHED BLOB TIMEOUT_MS
 *
 * TIMEOUT_MS is how long a peer may be silent. The server says its URL, that of
 * its publisher, and its blob, in hexadecimal; and of each connection to the
 * first that ends "closed STATUS WORDS". It answers calls and streams with what
 * they bring, takes all messages, and publishes without end; "compute MS" on
 * its standard input keeps it from calling the library for so long.
 *
 * The dialling side is told
 *
 *   open NAME KEEP_MS    connects; KEEP_MS, if it is not 0, keeps its session
 *   follow NAME KEEP_MS  the same to the publisher
 *   meet NAME 0          the same by blob
 *   do NAME KIND         begins something, see `kinds`
 *
 * and says "open NAME BOOTSTRAP UCX BULK", the ports of both ends of the three
 * TCP connections, "0.0" for none, and "done NAME STATUS SECONDS WORDS" of what
 * has ended. */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"
#include "support/seeded_maps.h"

enum {
    BOUND_MS = 60000,
    MOST = 96,
    FDS = 512,
    SMALL = 10,
    LARGE = 8 << 20,
    MEDIUM = 50000, /* of a flood, which fills the window of UCX's connection */
    FLOOD = 60,
    PUBLISH_MS = 50
};

typedef struct {
    char name[32];
    char kind[32];
    tmsg_endpoint_t *endpoint;
    bool busy;
    double began;
    tmsg_request_t *request;
    tmsg_call_t *call;
    tmsg_call_stream_t *stream;
    bool follows;
    uint64_t received; /* of the publisher's, */
    uint64_t before;   /* and when it began */
} line_t;

static tmsg_context_t *context;
static tmsg_worker_t *worker;
static tmsg_publisher_t *publisher;
static line_t lines[MOST];
static unsigned line_count;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void open_worker(const char *timeout_ms)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_PEER_TIMEOUT,
        .peer_timeout_ms = (uint32_t)atoi(timeout_ms)};

    must(tmsg_context_create(&params, &context));
    must(tmsg_worker_create(context, NULL, &worker));
}

/* The server. */

static void closed(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *words)
{
    (void)arg;
    printf("closed %s %s\n", tmsg_status_name(status), words);
    tmsg_endpoint_destroy(endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)arg;
    tmsg_endpoint_on_closed(endpoint, closed, NULL);
}

static void take(void)
{
    tmsg_message_t *message;

    while (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void send_back(void *arg, tmsg_call_stream_t *stream)
{
    tmsg_message_t *message = NULL;

    (void)arg;
    while (tmsg_call_stream_try_recv(stream, &message) == TMSG_OK &&
           message != NULL) {
        (void)tmsg_call_stream_send(stream, tmsg_message_map(message), NULL,
                                    NULL);
        tmsg_message_destroy(message);
        message = NULL;
    }
}

static void let_go(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    (void)arg;
    (void)status;
    tmsg_call_stream_destroy(stream);
}

static void serve_stream(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = send_back,
        .on_over = let_go};

    (void)arg;
    must(tmsg_call_stream_set_events(tmsg_call_stream_keep(stream), &events));
}

static tmsg_listener_t *listen_at(const char *scheme, const char *address,
                                  tmsg_accept_fn on_accept, void *arg)
{
    bool is_blob = strcmp(scheme, "blob") == 0;
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED |
                      (is_blob ? 0 : TMSG_LISTENER_PARAM_RESUME),
        .on_accept = on_accept,
        .on_accept_arg = arg,
        .allow_unauthenticated = 1,
        .resume_ms = BOUND_MS};
    tmsg_listener_t *listener;
    char url[128];

    snprintf(url, sizeof(url), "%s://%s%s", scheme, address,
             is_blob ? "" : ":0");
    must(tmsg_listener_create(worker, url, &params, &listener));
    return listener;
}

static void say_blob(const tmsg_listener_t *listener)
{
    const void *blob;
    size_t bytes;

    must(tmsg_listener_blob(listener, &blob, &bytes));
    for (size_t i = 0; i < bytes; i++) {
        printf("%02x", ((const uint8_t *)blob)[i]);
    }
    printf("\n");
}

/* Until there is something to do, or the driver says something, or for so long;
 * what it says. False: it lets go. */
static bool hear(char *text, int bytes, int timeout_ms)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0},
                           {tmsg_worker_fd(worker), POLLIN, 0}};

    text[0] = '\0';
    while (tmsg_worker_progress(worker) > 0) {
    }
    poll(fds, 2, tmsg_worker_arm(worker) == TMSG_OK ? timeout_ms : 0);
    return fds[0].revents == 0 || fgets(text, bytes, stdin);
}

static int serve(char **words)
{
    char text[128];
    tmsg_server_t *server;
    double published = 0;
    int ms;

    open_worker(words[1]);
    must(tmsg_server_create(worker, NULL, &server));
    must(tmsg_server_register(server, "echo", echo, NULL, NULL));
    must(tmsg_server_register_stream(server, "stream", serve_stream, NULL,
                                     NULL));
    must(tmsg_publisher_create(worker, NULL, &publisher));
    printf("%s\n",
           tmsg_listener_url(listen_at("tcp", words[0], accepted, NULL)));
    printf("%s\n", tmsg_listener_url(listen_at(
                       "tcp", words[0], tmsg_publisher_accept, publisher)));
    say_blob(listen_at("blob", words[0], accepted, NULL));
    while (hear(text, sizeof(text), PUBLISH_MS)) {
        if (sscanf(text, "compute %d", &ms) == 1) {
            poll(NULL, 0, ms);
        }
        if (now() - published > PUBLISH_MS / 1e3) {
            tmsg_map_t *map = sample_bytes(1, SMALL);

            must(tmsg_publisher_publish(publisher, map, NULL, NULL));
            tmsg_map_destroy(map);
            published = now();
        }
        take();
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}

/* The dialling side. */

static int port_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET
               ? ntohs(((const struct sockaddr_in *)(const void *)address)
                           ->sin_port)
               : 0;
}

typedef struct {
    int own, peers; /* 0: no TCP connection */
} ports_t;

static ports_t ports_at(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);

    if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0) {
        return (ports_t){0, 0};
    }
    return (ports_t){port_of(&own), port_of(&peer)};
}

/* The new connections to the URL's port, in their order, and UCX's. */
static void say_ports(const line_t *line, const ports_t *before, int url_port)
{
    ports_t to_url[2] = {{0, 0}, {0, 0}}, ucx = {0, 0};
    int count = 0;

    for (int fd = 0; fd < FDS; fd++) {
        ports_t there = ports_at(fd);

        if (there.peers == 0 ||
            (there.own == before[fd].own && there.peers == before[fd].peers)) {
            continue;
        }
        if (there.peers != url_port) {
            must_eq(ucx.own, 0);
            ucx = there;
        } else {
            must_true(count < 2);
            to_url[count++] = there;
        }
    }
    printf("open %s %d.%d %d.%d %d.%d\n", line->name, to_url[0].own,
           to_url[0].peers, ucx.own, ucx.peers, to_url[1].own, to_url[1].peers);
}

static bool has_bulk(const tmsg_endpoint_t *endpoint)
{
    char *json;
    bool has;

    must(tmsg_endpoint_describe(endpoint, &json));
    has = strstr(json, "\"bulk\":\t\"stands\"") != NULL ||
          strstr(json, "\"bulk\": \"stands\"") != NULL;
    tmsg_string_free(json);
    return has;
}

static tmsg_request_t *send_bytes(tmsg_endpoint_t *endpoint, size_t bytes,
                                  unsigned flags)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};
    tmsg_map_t *map = sample_bytes(1, bytes);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static void connect_blob(const char *text, tmsg_endpoint_t **endpoint_p)
{
    static uint8_t blob[8192];
    size_t bytes = 0;
    unsigned byte;

    while (sscanf(text + 2 * bytes, "%2x", &byte) == 1) {
        must_true(bytes < sizeof(blob));
        blob[bytes++] = (uint8_t)byte;
    }
    must(tmsg_endpoint_connect_blob(worker, blob, bytes, NULL, endpoint_p));
}

static void open_line(const char *url, const char *name, int keep_ms)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = keep_ms > 0 ? TMSG_ENDPOINT_PARAM_RECONNECT : 0,
        .reconnect = {.most_backoff_ms = 200, .give_up_ms = keep_ms}};
    bool by_url = strchr(url, ':') != NULL;
    line_t *line = &lines[line_count++];
    ports_t before[FDS];
    tmsg_request_t *first;

    must_true(line_count <= MOST);
    snprintf(line->name, sizeof(line->name), "%s", name);
    for (int fd = 0; fd < FDS; fd++) {
        before[fd] = ports_at(fd);
    }
    if (by_url) {
        must(tmsg_endpoint_connect(worker, url, &params, &line->endpoint));
    } else {
        connect_blob(url, &line->endpoint);
    }
    must(tmsg_endpoint_ready(line->endpoint, &first));
    must(tmsg_request_wait(first, BOUND_MS));
    tmsg_request_destroy(first);
    while (by_url && !has_bulk(line->endpoint)) {
        tmsg_worker_wait(worker, 10);
    }
    say_ports(line, before, by_url ? atoi(strrchr(url, ':') + 1) : 0);
}

static void take_all(line_t *line)
{
    tmsg_message_t *message;

    while (tmsg_endpoint_recv(line->endpoint, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
        line->received++;
    }
}

/* What may be under way on a connection. */
static void begin(line_t *line, const char *kind)
{
    tmsg_map_t *map = sample_bytes(1, SMALL);

    snprintf(line->kind, sizeof(line->kind), "%s", kind);
    line->busy = true;
    line->began = now();
    if (strcmp(kind, "plain") == 0) { /* done at once: then until it is lost */
        tmsg_request_destroy(send_bytes(line->endpoint, SMALL, 0));
    } else if (strcmp(kind, "acked") == 0) {
        line->request = send_bytes(line->endpoint, SMALL, TMSG_SEND_ACKED);
    } else if (strcmp(kind, "large") == 0) {
        line->request = send_bytes(line->endpoint, LARGE, TMSG_SEND_ACKED);
    } else if (strcmp(kind, "flood") == 0) {
        for (int i = 1; i < FLOOD; i++) {
            tmsg_request_destroy(send_bytes(line->endpoint, MEDIUM, 0));
        }
        line->request = send_bytes(line->endpoint, MEDIUM, TMSG_SEND_ACKED);
    } else if (strcmp(kind, "call") == 0) {
        must(
            tmsg_endpoint_call(line->endpoint, "echo", map, NULL, &line->call));
    } else if (strcmp(kind, "stream") == 0) {
        must(tmsg_endpoint_open_stream(line->endpoint, "stream", NULL, NULL,
                                       &line->stream));
        must(tmsg_call_stream_send(line->stream, map, NULL, NULL));
    } else if (strcmp(kind, "follow") != 0 && strcmp(kind, "wait") != 0) {
        die("unknown: %s", kind);
    }
    line->before = line->received;
    tmsg_map_destroy(map);
}

static void say_done(line_t *line, tmsg_status_t status, const char *words)
{
    printf("done %s %s %.3f %s\n", line->name, tmsg_status_name(status),
           now() - line->began, words);
    line->busy = false;
}

static void look(line_t *line)
{
    tmsg_status_t status = tmsg_endpoint_status(line->endpoint);
    tmsg_message_t *message = NULL;

    if (line->request != NULL) {
        status = tmsg_request_test(line->request);
        if (status != TMSG_IN_PROGRESS) {
            say_done(line, status, tmsg_request_error(line->request));
            tmsg_request_destroy(line->request);
            line->request = NULL;
        }
    } else if (line->call != NULL) {
        status = tmsg_call_status(line->call);
        if (status != TMSG_IN_PROGRESS) {
            say_done(line, status, tmsg_call_error(line->call));
            tmsg_call_destroy(line->call);
            line->call = NULL;
        }
    } else if (line->stream != NULL) {
        status = tmsg_call_stream_try_recv(line->stream, &message);
        if (status != TMSG_IN_PROGRESS) {
            say_done(line, status, tmsg_call_stream_error(line->stream));
            tmsg_message_destroy(message);
            tmsg_call_stream_destroy(line->stream);
            line->stream = NULL;
        }
    } else if (status < 0) {
        say_done(line, status, tmsg_endpoint_error(line->endpoint));
    } else if (strcmp(line->kind, "follow") == 0 &&
               line->received > line->before) {
        say_done(line, TMSG_OK, "");
    }
}

static void obey(char *text, char **words)
{
    char what[16], name[32], more[32];

    if (sscanf(text, "%15s %31s %31s", what, name, more) != 3) {
        return;
    }
    if (strcmp(what, "open") == 0) {
        open_line(words[0], name, atoi(more));
    } else if (strcmp(what, "follow") == 0) {
        lines[line_count].follows = true;
        open_line(words[1], name, atoi(more));
    }
    if (strcmp(what, "meet") == 0) {
        open_line(words[2], name, 0);
    }
    for (unsigned i = 0; strcmp(what, "do") == 0 && i < line_count; i++) {
        if (strcmp(lines[i].name, name) == 0) {
            begin(&lines[i], more);
        }
    }
}

static int dial(char **words)
{
    char text[128];

    open_worker(words[3]);
    while (hear(text, sizeof(text), BOUND_MS)) {
        obey(text, words);
        for (unsigned i = 0; i < line_count; i++) {
            if (lines[i].follows) {
                take_all(&lines[i]);
            }
            if (lines[i].busy) {
                look(&lines[i]);
            }
        }
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* what was read is not polled for */
    alarm(300);
    if (count == 4 && strcmp(words[1], "serve") == 0) {
        return serve(words + 2);
    }
    if (count == 6 && strcmp(words[1], "dial") == 0) {
        return dial(words + 2);
    }
    return 2;
}
