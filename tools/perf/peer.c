/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the measured connection, and starts the process at its other end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "control.h"
#include "show.h"
#include "signals.h"

#define CLOSE_MS 10000
#define SINK_ENDS_MS 2000
#define THRESHOLDS "TENSORMSG_THRESHOLDS"

/* Turns the child process into a sink. It ends with its parent. It ignores
 * SIGINT, because the parent reports a Ctrl-C. */
static void become_sink(pid_t parent, int out, const char *tls)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_IGN);
    if (getppid() != parent) {
        _exit(EXIT_FAILED);
    }
    if (tls != NULL) {
        setenv("UCX_TLS", tls, 1);
    }
    dup2(out, STDOUT_FILENO);
    execl("/proc/self/exe", "tensormsg", "perf", "--listen",
          "tcp://127.0.0.1:0", (char *)NULL);
    complain("/proc/self/exe: %s", strerror(errno));
    _exit(EXIT_FAILED);
}

/* Waits until the sink says something or has ended. Returns false after a
 * complaint, or if a signal came. */
static bool await_sink(const perf_peer_t *peer, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                           {.fd = signals_fd(), .events = POLLIN}};
    int ms = peer->options->connection.timeout_ms;
    int ready = poll(fds, 2, ms);

    if (ready < 0 && errno != EINTR) {
        complain("the process to measure with: %s", strerror(errno));
    } else if (ready == 0) {
        complain("the process to measure with did not start in %g s "
                 "(--timeout)",
                 ms / 1e3);
    }
    return fds[0].revents != 0;
}

/* Reads the first line of the sink's output, which is its URL. */
static bool read_url(perf_peer_t *peer, int fd)
{
    FILE *stream = await_sink(peer, fd) ? fdopen(fd, "r") : NULL;
    bool ok;

    if (stream == NULL) {
        close(fd);
        return false;
    }
    ok = fgets(peer->url, sizeof(peer->url), stream) != NULL;
    peer->url[strcspn(peer->url, "\n")] = '\0';
    fclose(stream);
    return ok;
}

static bool start_sink(perf_peer_t *peer, const char *tls)
{
    pid_t parent = getpid();
    int fds[2];

    if (pipe(fds) != 0) {
        complain("a pipe: %s", strerror(errno));
        return false;
    }
    peer->child = fork();
    if (peer->child == 0) {
        close(fds[0]);
        become_sink(parent, fds[1], tls);
    }
    close(fds[1]);
    if (peer->child < 0) {
        complain("a process to measure with: %s", strerror(errno));
        peer->child = 0;
        close(fds[0]);
        return false;
    }
    /* If there is no URL, the sink has printed why. */
    return read_url(peer, fds[0]);
}

/* Describes the connection once it has a bulk stream or will have none, so that
 * all measurements use the same path. */
static bool read_description(perf_peer_t *peer)
{
    static const struct {
        const char *key;
        size_t offset, bytes;
    } fields[] = {
        {"transport", offsetof(perf_peer_t, transport),
         sizeof(peer->transport)},
        {"transports", offsetof(perf_peer_t, transports),
         sizeof(peer->transports)},
        {"why", offsetof(perf_peer_t, why), sizeof(peer->why)},
        {"bulk", offsetof(perf_peer_t, bulk), sizeof(peer->bulk)},
    };
    cJSON *object;
    char *json;

    await_bulk(peer->worker, peer->endpoint);
    if (tmsg_endpoint_describe(peer->endpoint, &json) != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return false;
    }
    object = cJSON_Parse(json);
    tmsg_string_free(json);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const cJSON *item =
            cJSON_GetObjectItemCaseSensitive(object, fields[i].key);

        if (cJSON_IsString(item)) {
            snprintf((char *)peer + fields[i].offset, fields[i].bytes, "%s",
                     item->valuestring);
        }
    }
    cJSON_Delete(object);
    return true;
}

static bool dial_sink(perf_peer_t *peer)
{
    tmsg_status_t status =
        tmsg_worker_create(peer->context, NULL, &peer->worker);

    peer->code = status == TMSG_OK
                     ? connect_to(&peer->options->connection, peer->url,
                                  peer->worker, &peer->endpoint)
                     : fail_by(status);
    if (peer->code != EXIT_DONE) {
        return false;
    }
    /* EXIT_FAILED is the exit code if anything below fails. */
    peer->code = EXIT_FAILED;
    /* UCX has chosen its transports once a call has gone there and back. */
    return perf_say_hello(peer) && read_description(peer);
}

/* Creates a context with the thresholds of the file that is to be updated, if
 * it exists. Thresholds that are not measured then stay as the file has
 * them. */
static bool create_peer_context(perf_peer_t *peer, const char *tls)
{
    const perf_options_t *options = peer->options;
    char ucx[64];
    tmsg_context_params_t params = {.config_file = options->out,
                                    .ucx_config = ucx};

    if (options->update && access(options->out, F_OK) == 0) {
        params.field_mask |= TMSG_CONTEXT_PARAM_CONFIG_FILE;
    }
    if (tls != NULL) {
        snprintf(ucx, sizeof(ucx), "TLS=%s", tls);
        params.field_mask |= TMSG_CONTEXT_PARAM_UCX_CONFIG;
    }
    peer->code = open_context(&options->connection, &params, &peer->context);
    return peer->code == EXIT_DONE;
}

bool perf_peer_open(perf_peer_t *peer, const perf_options_t *options,
                    const char *tls)
{
    const char *url = options->connection.url;

    *peer = (perf_peer_t){.options = options};
    if (!create_peer_context(peer, tls)) {
        return false;
    }
    peer->code = EXIT_FAILED;
    if (url == NULL && !start_sink(peer, tls)) {
        return false;
    }
    if (url != NULL) {
        snprintf(peer->url, sizeof(peer->url), "%s", url);
    }
    return dial_sink(peer);
}

bool perf_peer_again(perf_peer_t *peer, const perf_peer_t *first,
                     const char *thresholds)
{
    const char *before = getenv(THRESHOLDS);
    const char *tls = strcmp(first->transport, "tcp") == 0 ? "tcp" : NULL;
    char *kept = before == NULL ? NULL : strdup(before);
    char *text = NULL;
    bool ok;

    *peer = (perf_peer_t){.options = first->options};
    memcpy(peer->url, first->url, sizeof(peer->url));
    ok = (before == NULL || kept != NULL) &&
         asprintf(&text, "%s%s%s", kept == NULL ? "" : kept,
                  kept == NULL || *kept == '\0' ? "" : ",", thresholds) >= 0 &&
         setenv(THRESHOLDS, text, 1) == 0;
    if (!ok) {
        complain("out of memory");
    }
    ok = ok && create_peer_context(peer, tls) && dial_sink(peer);
    if (kept != NULL) {
        setenv(THRESHOLDS, kept, 1);
    } else {
        unsetenv(THRESHOLDS);
    }
    free(kept);
    free(text);
    return ok;
}

void perf_peer_drop(perf_peer_t *peer)
{
    tmsg_worker_destroy(peer->worker);
    peer->worker = NULL;
    peer->endpoint = NULL;
}

/* Ends the sink, if need be by force: it may hang, or be stopped. */
static void end_sink(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t deadline = now_ns() + SINK_ENDS_MS * 1000000ULL;

    kill(child, SIGTERM);
    kill(child, SIGCONT);
    while (waitpid(child, NULL, WNOHANG) == 0) {
        if (ms_until(deadline) == 0) {
            kill(child, SIGKILL);
        }
        nanosleep(&pause, NULL);
    }
}

void perf_peer_close(perf_peer_t *peer)
{
    int ms = peer->options == NULL ? 0 : peer->options->connection.timeout_ms;

    if (peer->endpoint != NULL) {
        close_in_order(peer->endpoint, ms < CLOSE_MS ? ms : CLOSE_MS);
    }
    tmsg_endpoint_destroy(peer->endpoint);
    tmsg_worker_destroy(peer->worker);
    tmsg_context_destroy(peer->context);
    if (peer->child > 0) {
        end_sink(peer->child);
    }
}
