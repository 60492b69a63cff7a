/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg send: sends files to a receiver, one after the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "fault.h"
#include "output.h"
#include "progress.h"
#include "show.h"
#include "transfer.h"

#define SLICE_MS 100
#define SLICE_NS (SLICE_MS * UINT64_C(1000000))
#define REPLIES_MOST 64             /* replies that are taken in at a time */
#define PATIENT_BYTES (32ULL << 20) /* these add a second to the timeout */

enum { KEY_JSON = 1000, KEY_VERIFY };

static const struct argp_option option_list[] = {
    {"verify", KEY_VERIFY, NULL, 0,
     "Have the receiver compare a checksum of each tensor before it takes the "
     "file",
     0},
    {"verbose", 'v', NULL, 0, "List the tensors, the time and the transport",
     0},
    {"json", KEY_JSON, NULL, 0, "A line of JSON a file", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    char **files;
    int file_count;
    bool verify;
    bool verbose;
    bool json;
} options_t;

typedef struct {
    const options_t *options;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    uint64_t started_ns;
    uint64_t total_bytes; /* bytes of all files */
    uint64_t done_bytes;
    /* The following fields are about the file under way. */
    const char *path;
    int64_t number;
    tmsg_map_t *map;
    digest_t digest;
    char note[400]; /* what loading changed in the file, or "" */
    uint64_t sent_ns, arrived_ns, kept_ns;
    char kept_as[300];
    bool waits; /* the receiver waits for the verdict */
    bool told;  /* the receiver has said DONE or FAILED */
    bool lost;  /* the receiver does not answer any more */
} sender_t;

static error_t parse_send_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    (void)arg;
    switch (key) {
    case 'v':
        options->verbose = true;
        return 0;
    case KEY_VERIFY:
        options->verify = true;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARGS:
        options->files = state->argv + state->next;
        options->file_count = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (options->file_count == 0) {
            argp_error(state, "the FILE to send is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_send_option,
    .args_doc = "URL FILE...",
    .doc = "Send .safetensors, .npz and .npy files to `tensormsg recv`. URL is "
           "tcp://HOST:PORT, HOST:PORT or unix:///PATH. Ends with 0 when the "
           "receiver has said of each file that it is whole. --timeout grows "
           "by one second for every 32 MiB of a file.",
};

/* Notes the first line that loading logs, as a tmsg_log_fn. The receiver gets
 * this note, so the sender's path is removed from it. */
static void note_load_line(void *arg, tmsg_log_level_t level, const char *line)
{
    sender_t *sender = arg;
    size_t bytes = strlen(sender->path);

    (void)level;
    if (strncmp(line, sender->path, bytes) == 0 && line[bytes] == ':') {
        line += bytes + 2;
    }
    if (sender->note[0] == '\0') {
        snprintf(sender->note, sizeof(sender->note), "%s", line);
    }
}

static bool load_sent_file(sender_t *sender)
{
    bool listens = getenv("TENSORMSG_LOG") == NULL;
    tmsg_status_t status;

    sender->note[0] = '\0';
    fault_forget();
    fault_watch(sender->path);
    if (listens) {
        tmsg_log_set(TMSG_LOG_INFO, note_load_line, sender);
    }
    status = tmsg_file_load(sender->path, NULL, &sender->map);
    if (listens) {
        tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    }
    if (status != TMSG_OK) {
        sender->map = NULL;
        complain("%s", tmsg_error_message());
        return false;
    }
    return true;
}

/* Loads all files once, so that bad files are found before anything is sent. */
static bool check_files(sender_t *sender)
{
    for (int i = 0; i < sender->options->file_count; i++) {
        digest_t digest;

        sender->path = sender->options->files[i];
        if (!load_sent_file(sender)) {
            return false;
        }
        digest_map(sender->map, false, &digest);
        sender->total_bytes += digest.bytes;
        if (sender->options->file_count > 1) {
            tmsg_map_destroy(sender->map);
            sender->map = NULL;
        }
    }
    return true;
}

static int open_sender(sender_t *sender)
{
    const options_t *options = sender->options;
    int code = open_worker(&options->connection, NULL, &sender->context,
                           &sender->worker);

    return code == EXIT_DONE
               ? connect_to(&options->connection, options->connection.url,
                            sender->worker, &sender->endpoint)
               : code;
}

static uint64_t patience_ms(const sender_t *sender)
{
    uint64_t more_ms = sender->digest.bytes / PATIENT_BYTES * 1000;

    return (uint64_t)sender->options->connection.timeout_ms + more_ms;
}

static bool fail_file(const sender_t *sender, const char *why)
{
    complain("%s: %s", sender->path, why);
    if (sender->options->json) {
        cJSON *event = event_new("failed");

        event_text(event, "file", sender->path);
        event_text(event, "error", why);
        event_print(event);
    }
    return false;
}

/* Receives the next reply about this file, and passes over other messages.
 * *message_p is NULL if none came in time. Returns false if no reply will
 * come. */
static bool next_reply(sender_t *sender, int timeout_ms,
                       tmsg_message_t **message_p, transfer_reply_t *reply,
                       char *why, size_t why_bytes)
{
    uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;
    tmsg_status_t status;

    do {
        tmsg_message_t *message;

        status = tmsg_endpoint_recv(sender->endpoint, ms_until(end), &message);
        if (status != TMSG_OK) {
            break;
        }
        if (transfer_read_reply(tmsg_message_map(message), reply) &&
            reply->number == sender->number) {
            *message_p = message;
            return true;
        }
        tmsg_message_destroy(message);
    } while (ms_until(end) > 0);
    if (status == TMSG_OK || status == TMSG_ERR_TIMED_OUT) {
        *message_p = NULL;
        return true;
    }
    snprintf(why, why_bytes, "%s%s",
             status == TMSG_ERR_CLOSED ? "the receiver ended first: " : "",
             tmsg_error_message());
    return false;
}

/* Notes that the receiver has the map, as a tmsg_done_fn. The receiver may not
 * have written the file yet. */
static void note_arrival(void *arg, tmsg_status_t status, const char *error)
{
    sender_t *sender = arg;

    (void)status;
    (void)error;
    sender->arrived_ns = now_ns();
}

/* Takes a reply in. Returns false if the receiver does not want the file. */
static bool take_in_reply(sender_t *sender, const transfer_reply_t *reply,
                          char *why, size_t why_bytes)
{
    switch (reply->state) {
    case TRANSFER_GO:
        sender->waits = reply->checked;
        break;
    case TRANSFER_DONE:
        sender->told = true;
        snprintf(sender->kept_as, sizeof(sender->kept_as), "%s", reply->file);
        break;
    case TRANSFER_FAILED:
        sender->told = true;
        snprintf(why, why_bytes, "refused by %s: %s",
                 tmsg_endpoint_peer(sender->endpoint), reply->error);
        return false;
    default:
        break;
    }
    return true;
}

static bool give_up_receiver(sender_t *sender, char *why, size_t why_bytes)
{
    sender->lost = true;
    snprintf(why, why_bytes,
             "%s: the receiver did not answer in time; is it 'tensormsg recv'?",
             tmsg_endpoint_peer(sender->endpoint));
    return false;
}

/* Counts the time since `before` as silence, but a slice at most: over tcp UCX
 * may write a whole file in one call, and receives nothing before that call
 * returns. */
static void count_silence(uint64_t *silent_ns, uint64_t before)
{
    uint64_t ns = now_ns() - before;

    *silent_ns += ns < SLICE_NS ? ns : SLICE_NS;
}

/* Tells whether the receiver was silent for too long. */
static bool is_silent(const sender_t *sender, uint64_t silent_ns)
{
    return silent_ns / 1000000 >= patience_ms(sender);
}

/* Waits for the reply `wanted`. Only ALIVE prolongs the wait, and only when the
 * receiver may be at work on the file. */
static bool await_reply_state(sender_t *sender, transfer_state_t wanted,
                              char *why, size_t why_bytes)
{
    uint64_t silent_ns = 0;

    while (!is_silent(sender, silent_ns)) {
        uint64_t before = now_ns();
        tmsg_message_t *message;
        transfer_reply_t reply;
        bool good;

        if (!next_reply(sender, SLICE_MS, &message, &reply, why, why_bytes)) {
            return false;
        }
        count_silence(&silent_ns, before);
        if (message == NULL) {
            progress_show(sender->path, sender->done_bytes, sender->total_bytes,
                          sender->started_ns);
            continue;
        }
        if (reply.state == TRANSFER_ALIVE && wanted != TRANSFER_GO) {
            silent_ns = 0;
        }
        good = take_in_reply(sender, &reply, why, why_bytes);
        tmsg_message_destroy(message);
        if (!good || reply.state == wanted) {
            return good;
        }
    }
    return give_up_receiver(sender, why, why_bytes);
}

/* Takes in the replies that have come. Returns false if waiting is no use any
 * more. */
static bool take_in_replies(sender_t *sender, uint64_t *silent_ns, char *why,
                            size_t why_bytes)
{
    for (unsigned i = 0; i < REPLIES_MOST; i++) {
        tmsg_message_t *message;
        transfer_reply_t reply;
        bool good;

        if (!next_reply(sender, 0, &message, &reply, why, why_bytes)) {
            return false;
        }
        if (message == NULL) {
            return true;
        }
        if (reply.state == TRANSFER_ALIVE) {
            *silent_ns = 0;
        }
        good = take_in_reply(sender, &reply, why, why_bytes);
        tmsg_message_destroy(message);
        if (!good) {
            return false;
        }
    }
    return true;
}

/* Waits until the receiver has taken the map. */
static bool await_taken(sender_t *sender, tmsg_request_t *request, char *why,
                        size_t why_bytes)
{
    uint64_t silent_ns = 0;

    while (!is_silent(sender, silent_ns)) {
        uint64_t before = now_ns();
        tmsg_status_t status;

        tmsg_request_wait_released(request, SLICE_MS);
        status = tmsg_request_test(request);
        if (status == TMSG_OK) {
            return true;
        }
        if (status < 0) {
            snprintf(why, why_bytes, "%s", tmsg_request_error(request));
            return false;
        }
        count_silence(&silent_ns, before);
        progress_show(sender->path, sender->done_bytes, sender->total_bytes,
                      sender->started_ns);
        if (!take_in_replies(sender, &silent_ns, why, why_bytes)) {
            return false;
        }
    }
    return give_up_receiver(sender, why, why_bytes);
}

static bool offer_file(sender_t *sender, char *why, size_t why_bytes)
{
    const transfer_offer_t words = {
        .number = sender->number,
        .bytes = sender->digest.bytes,
        .name = transfer_text(sender->map, TMSG_META_FILE_NAME),
        .format = transfer_text(sender->map, TMSG_META_FILE_FORMAT),
        .note = sender->note[0] == '\0' ? NULL : sender->note,
        .checked = true,
    };
    tmsg_status_t status = transfer_send_offer(sender->endpoint, &words);

    if (status != TMSG_OK) {
        snprintf(why, why_bytes, "%s", tmsg_error_message());
        return false;
    }
    return await_reply_state(sender, TRANSFER_GO, why, why_bytes);
}

/* Tells the receiver, after the last byte was read, whether the file has
 * changed. The receiver keeps the file only if it has not. */
static bool give_verdict(sender_t *sender, char *why, size_t why_bytes)
{
    const transfer_verdict_t verdict = {.number = sender->number,
                                        .changed = fault_changed(NULL)};
    tmsg_status_t status = TMSG_OK;

    if (sender->waits) {
        status = transfer_send_verdict(sender->endpoint, &verdict);
    }
    if (status != TMSG_OK) {
        snprintf(why, why_bytes, "%s", tmsg_error_message());
        return false;
    }
    if (verdict.changed != NULL && !sender->waits) {
        snprintf(why, why_bytes,
                 "%s; this receiver keeps files unasked, and may have this one",
                 verdict.changed);
        return false;
    }
    return sender->told ||
           await_reply_state(sender, TRANSFER_DONE, why, why_bytes);
}

static bool send_map(sender_t *sender, char *why, size_t why_bytes)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE,
        .flags = sender->options->verify ? TMSG_SEND_VERIFY : TMSG_SEND_ACKED,
        .on_done = note_arrival,
        .on_done_arg = sender,
    };
    tmsg_request_t *request;
    tmsg_status_t status;
    bool done;

    await_bulk(sender->worker, sender->endpoint);
    sender->sent_ns = now_ns();
    sender->arrived_ns = 0;
    status =
        tmsg_endpoint_send(sender->endpoint, sender->map, &params, &request);
    if (status != TMSG_OK) {
        snprintf(why, why_bytes, "%s", tmsg_error_message());
        return false;
    }
    done = await_taken(sender, request, why, why_bytes) &&
           give_verdict(sender, why, why_bytes);
    sender->kept_ns = now_ns();
    if (sender->arrived_ns == 0) {
        sender->arrived_ns = sender->kept_ns;
    }
    tmsg_request_destroy(request);
    return done;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return (double)(to_ns - from_ns) / 1e9;
}

static void report_json(const sender_t *sender, const route_t *route)
{
    cJSON *event = event_new("sent");

    event_text(event, "file", sender->path);
    event_text(event, "peer", tmsg_endpoint_peer(sender->endpoint));
    event_text(event, "kept_as", sender->kept_as);
    event_seconds(event, "seconds_moved",
                  seconds_between(sender->sent_ns, sender->arrived_ns));
    event_seconds(event, "seconds_kept",
                  seconds_between(sender->sent_ns, sender->kept_ns));
    event_text(event, "transports", route->transports);
    event_text(event, "why", route->why);
    event_map(event, sender->map, &sender->digest);
    event_print(event);
}

static void report_text(FILE *stream, const sender_t *sender,
                        const route_t *route)
{
    double moved = seconds_between(sender->sent_ns, sender->arrived_ns);
    char bytes[BYTES_TEXT];

    put_text(stream, sender->path);
    fprintf(stream, ": %zu tensor%s, %s, moved in %.4f s (%.3g GB/s)",
            sender->digest.tensors, plural(sender->digest.tensors),
            format_bytes(sender->digest.bytes, bytes), moved,
            (double)sender->digest.bytes / 1e9 / moved);
    if (*sender->kept_as != '\0') {
        fprintf(stream, ", kept after %.4f s as ",
                seconds_between(sender->sent_ns, sender->kept_ns));
        put_text(stream, sender->kept_as);
    }
    fputs("\n  by ", stream);
    put_transports(stream, route);
    fputs(": ", stream);
    put_text(stream, route->why);
    putc('\n', stream);
}

static void report_sent(const sender_t *sender)
{
    route_t route;

    progress_clear();
    look_up_route(sender->endpoint, &route);
    if (sender->options->json) {
        report_json(sender, &route);
    } else if (sender->options->verbose) {
        report_text(stdout, sender, &route);
        if (sender->note[0] != '\0') {
            fputs("  note: ", stdout);
            put_text(stdout, sender->note);
            putchar('\n');
        }
        show_table(stdout, sender->map, &sender->digest);
        output_flush();
    } else if (progress_wanted()) {
        report_text(stderr, sender, &route);
    }
}

static bool send_file(sender_t *sender)
{
    bool sums = sender->options->verbose || sender->options->json;
    char why[1200] = "";
    const char *changed;
    bool done;

    sender->waits = false;
    sender->told = false;
    if (digest_map(sender->map, sums, &sender->digest) != TMSG_OK) {
        digest_map(sender->map, false, &sender->digest);
    }
    done = offer_file(sender, why, sizeof(why)) &&
           send_map(sender, why, sizeof(why));
    progress_clear();
    changed = done ? NULL : fault_changed(NULL);
    if (changed != NULL && strncmp(why, changed, strlen(changed)) != 0) {
        snprintf(why, sizeof(why), "%s", changed);
    }
    if (done) {
        report_sent(sender);
        sender->done_bytes += sender->digest.bytes;
    } else {
        fail_file(sender, why);
    }
    free(sender->digest.sums);
    sender->digest = (digest_t){0};
    return done;
}

/* Sends all files that can be sent. A refused file does not stop the next
 * one. */
static int send_files(sender_t *sender)
{
    int code = EXIT_DONE;

    sender->started_ns = now_ns();
    for (int i = 0; i < sender->options->file_count; i++) {
        sender->path = sender->options->files[i];
        sender->number = i + 1;
        if (sender->map == NULL && !load_sent_file(sender)) {
            /* The file loaded well a moment ago, in check_files(). */
            return EXIT_USAGE;
        }
        if (!send_file(sender)) {
            code = EXIT_FAILED;
        }
        tmsg_map_destroy(sender->map);
        sender->map = NULL;
        if (sender->lost || tmsg_endpoint_status(sender->endpoint) != TMSG_OK) {
            return EXIT_FAILED;
        }
    }
    /* All files are kept by now, even if the peer does not close in order. */
    close_in_order(sender->endpoint, sender->options->connection.timeout_ms);
    return code;
}

int send_main(int argc, char **argv)
{
    options_t options = {.verify = false};
    sender_t sender = {.options = &options};
    int code = EXIT_USAGE;

    parse_command(&parser, CONNECTS | NEEDS_URL, argc, argv, &options,
                  &options.connection);
    if (check_files(&sender)) {
        code = open_sender(&sender);
        if (code == EXIT_DONE) {
            code = send_files(&sender);
        }
    }
    tmsg_map_destroy(sender.map);
    tmsg_endpoint_destroy(sender.endpoint);
    tmsg_worker_destroy(sender.worker);
    tmsg_context_destroy(sender.context);
    return code;
}
