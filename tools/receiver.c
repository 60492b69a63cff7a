/* SPDX-License-Identifier: BSD-3-Clause */
#include "receiver.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "progress.h"
#include "transfer.h"

#define CLOSE_MS 3000 /* limit for closing all connections in order */
#define REDRAW_MS 200
#define NS_PER_MS UINT64_C(1000000)
#define SLOWEST_BYTES (64ULL << 10) /* these have a second to arrive */
#define LONGEST_S 1000000000ULL

void receiver_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    receiver_t *receiver = arg;
    peer_t *peer = calloc(1, sizeof(*peer));

    if (peer == NULL) {
        complain("%s: out of memory", tmsg_endpoint_peer(endpoint));
        tmsg_endpoint_destroy(endpoint);
        return;
    }
    peer->endpoint = endpoint;
    peer->number = ++receiver->accepted;
    peer->next = receiver->peers;
    receiver->peers = peer;
}

/* Notes that a sender has failed. One that connects later makes up for it when
 * it has sent a map. */
static void note_failure(receiver_t *receiver)
{
    receiver->failed = true;
    receiver->failed_at = receiver->accepted;
    receiver->deadline_ns = 0;
}

static void end_offer(peer_t *peer)
{
    peer->offer = 0;
    peer->due_ns = 0;
    peer->checked = false;
    tmsg_message_destroy(peer->held);
    peer->held = NULL;
    free(peer->name);
    peer->name = NULL;
    tmsg_request_destroy(peer->last_alive);
    peer->last_alive = NULL;
}

static void free_peer(peer_t *peer)
{
    end_offer(peer);
    free(peer->note);
    tmsg_endpoint_destroy(peer->endpoint);
    free(peer);
}

/* The function ignores errors: the receiver notices later that the peer is
 * gone. */
static void reply_to_peer(peer_t *peer, int64_t number, transfer_state_t state,
                          const char *text)
{
    const transfer_reply_t words = {.number = number,
                                    .state = state,
                                    .file = text,
                                    .error = text,
                                    .checked =
                                        state == TRANSFER_GO && peer->checked};

    transfer_send_reply(peer->endpoint, &words, NULL);
    peer->spoken_ns = now_ns();
    if (state == TRANSFER_DONE || state == TRANSFER_FAILED) {
        end_offer(peer);
    }
}

void receiver_hold(void *arg, tmsg_log_level_t level, const char *line)
{
    receiver_t *receiver = arg;

    (void)level;
    if (!pthread_equal(receiver->thread, pthread_self())) {
        /* A line of a job's thread has nothing to wait for. */
        complain("%s", line);
        return;
    }
    receiver_say_held(receiver);
    snprintf(receiver->held, sizeof(receiver->held), "%s", line);
}

void receiver_say_rest(receiver_t *receiver)
{
    receiver_say_held(receiver);
    flood_tell(&receiver->refused, true);
    flood_tell(&receiver->lost, true);
}

void receiver_say_held(receiver_t *receiver)
{
    if (receiver->held[0] != '\0') {
        flood_complain(&receiver->lost, "%s", receiver->held);
        receiver->held[0] = '\0';
    }
}

static const char *name_of(const peer_t *peer)
{
    return peer->name == NULL ? "a map" : peer->name;
}

static void complain_missing(receiver_t *receiver, const peer_t *peer)
{
    flood_complain(&receiver->lost, "%s: '%s' did not arrive",
                   tmsg_endpoint_peer(peer->endpoint), name_of(peer));
    note_failure(receiver);
}

/* Removes a peer from the list, and frees it. When the last one has gone after
 * a failure, the wait for another begins. */
static void remove_peer(receiver_t *receiver, peer_t *peer)
{
    const recv_options_t *options = receiver->options;
    peer_t **place = &receiver->peers;

    while (*place != peer) {
        place = &(*place)->next;
    }
    *place = peer->next;
    free_peer(peer);
    if (options->count == 0 || !receiver->failed || receiver->peers != NULL ||
        receiver->deadline_ns != 0) {
        return;
    }
    receiver->deadline_ns =
        now_ns() + (uint64_t)options->timeout_ms * NS_PER_MS;
    flood_complain(&receiver->lost,
                   "%u of %u maps came; another sender may come within %g s "
                   "(--timeout)",
                   receiver->done, options->count, options->timeout_ms / 1e3);
}

/* Removes a peer whose endpoint has ended and has no more messages. */
static void reap_peer(receiver_t *receiver, peer_t *peer, tmsg_status_t status)
{
    if (peer->offer != 0 || status != TMSG_ERR_CLOSED) {
        note_failure(receiver);
    }
    if (peer->offer != 0 && *receiver->held != '\0' &&
        strcmp(receiver->held, tmsg_endpoint_error(peer->endpoint)) == 0) {
        flood_complain(&receiver->lost, "%s; '%s' did not arrive",
                       receiver->held, name_of(peer));
        receiver->held[0] = '\0';
    } else if (peer->offer != 0) {
        complain_missing(receiver, peer);
    }
    receiver_say_held(receiver);
    remove_peer(receiver, peer);
}

static void save_captured_header(receiver_t *receiver,
                                 const tmsg_message_t *message)
{
    const char *dir = receiver->options->capture;
    const void *header;
    size_t bytes;
    char *path;
    FILE *file;
    bool whole;

    if (dir == NULL ||
        tmsg_message_header(message, &header, &bytes) != TMSG_OK) {
        return;
    }
    path = store_numbered(dir, "header", "tmsg", receiver->store.force,
                          &receiver->captured);
    if (path != NULL && receiver->store.force) {
        /* The name may be a link, so the file must not be written through
         * it. */
        unlink(path);
    }
    file = path == NULL ? NULL : fopen(path, "wbxe");
    whole = file != NULL && fwrite(header, 1, bytes, file) == bytes;
    if (file == NULL || fclose(file) != 0 || !whole) {
        complain("%s: %s", path == NULL ? dir : path, strerror(errno));
        if (file != NULL) {
            unlink(path);
        }
    }
    free(path);
}

/* Sets the time by which a file of so many bytes is due. Only with --count is
 * there one: without, nobody waits for the end. */
static void set_due(const receiver_t *receiver, peer_t *peer, uint64_t bytes)
{
    uint64_t seconds = bytes / SLOWEST_BYTES;

    if (receiver->options->count > 0) {
        seconds = seconds > LONGEST_S ? LONGEST_S : seconds;
        peer->due_ns = now_ns() + seconds * 1000 * NS_PER_MS +
                       (uint64_t)receiver->options->timeout_ms * NS_PER_MS;
    }
}

static void answer_offer(receiver_t *receiver, peer_t *peer,
                         const transfer_offer_t *offer)
{
    char why[640];

    /* If an offer is still open, its file was refused on its way, or its sender
     * gave it up. */
    if (peer->offer != 0) {
        complain_missing(receiver, peer);
        end_offer(peer);
    }
    if (!store_would_take(&receiver->store, offer->name, offer->format,
                          offer->bytes, why, sizeof(why))) {
        flood_complain(&receiver->refused, "%s: refused: %s",
                       tmsg_endpoint_peer(peer->endpoint), why);
        note_failure(receiver);
        reply_to_peer(peer, offer->number, TRANSFER_FAILED, why);
        return;
    }
    end_offer(peer);
    peer->offer = offer->number;
    peer->offered_ns = now_ns();
    peer->bytes = offer->bytes;
    peer->name = offer->name == NULL ? NULL : strdup(offer->name);
    free(peer->note);
    peer->note = offer->note == NULL ? NULL : strdup(offer->note);
    peer->checked = offer->checked;
    set_due(receiver, peer, offer->bytes);
    reply_to_peer(peer, offer->number, TRANSFER_GO, NULL);
}

static const char *file_of(const char *path)
{
    return path == NULL ? "" : strrchr(path, '/') + 1;
}

static void print_received_event(const receiver_t *receiver,
                                 const route_t *route)
{
    const job_t *job = &receiver->job;
    cJSON *event = event_new(job->ok ? "received" : "failed");

    event_number(event, "number", receiver->received);
    event_text(event, "peer",
               tmsg_endpoint_peer(tmsg_message_endpoint(receiver->message)));
    if (job->path != NULL) {
        event_text(event, "path", job->path);
    }
    if (!job->ok) {
        event_text(event, "error", job->error);
    }
    event_text(event, "transports", route->transports);
    event_text(event, "why", route->why);
    event_map(event, job->map, &job->digest);
    event_print(event);
}

static void print_received(const receiver_t *receiver, const route_t *route)
{
    const job_t *job = &receiver->job;
    const char *name = transfer_text(job->map, TMSG_META_FILE_NAME);
    char bytes[BYTES_TEXT];

    printf("map %u: ", receiver->received);
    put_text(stdout, name == NULL ? "without a file name" : name);
    printf(", %zu tensor%s, %s, by ", job->digest.tensors,
           plural(job->digest.tensors), format_bytes(job->digest.bytes, bytes));
    put_transports(stdout, route);
    if (job->path != NULL) {
        fputs(" -> ", stdout);
        put_text(stdout, job->path);
    }
    putchar('\n');
    if (name != NULL && receiver->sender->note != NULL) {
        fputs("  note: ", stdout);
        put_text(stdout, receiver->sender->note);
        putchar('\n');
    }
    if (job->sums) {
        show_table(stdout, job->map, &job->digest);
    }
}

static void report_job(receiver_t *receiver)
{
    const job_t *job = &receiver->job;
    tmsg_endpoint_t *endpoint = tmsg_message_endpoint(receiver->message);
    route_t route;

    progress_clear();
    if (!job->ok) {
        flood_complain(&receiver->lost, "%s: map %u is lost: %s",
                       tmsg_endpoint_peer(endpoint), receiver->received,
                       job->error);
    }
    look_up_route(endpoint, &route);
    if (receiver->options->json) {
        print_received_event(receiver, &route);
    } else if (job->ok) {
        print_received(receiver, &route);
    }
    receiver->output_lost = !output_flush();
}

/* Ends the job: the map was kept, or could not be kept. The sender is told
 * before the user. */
static void settle_job(receiver_t *receiver)
{
    job_t *job = &receiver->job;
    peer_t *peer = receiver->sender;

    if (peer->offer != 0) {
        reply_to_peer(peer, peer->offer,
                      job->ok ? TRANSFER_DONE : TRANSFER_FAILED,
                      job->ok ? file_of(job->path) : job->error);
    }
    report_job(receiver);
    if (!job->ok) {
        note_failure(receiver);
    } else {
        receiver->done++;
        receiver->failed =
            receiver->failed && peer->number <= receiver->failed_at;
    }
    /* What the others sent meanwhile was not looked at. */
    for (peer = receiver->peers; peer != NULL; peer = peer->next) {
        peer->due_ns += peer->due_ns == 0 ? 0 : now_ns() - receiver->job_ns;
    }
    job_clear(job);
    tmsg_message_destroy(receiver->message);
    receiver->message = NULL;
}

/* Starts a job for the message. `changed` is the reason for not keeping the
 * map, or NULL. */
static void begin_job(receiver_t *receiver, peer_t *peer,
                      tmsg_message_t *message, const char *changed)
{
    job_t *job = &receiver->job;

    receiver->received++;
    save_captured_header(receiver, message);
    receiver->message = message;
    receiver->sender = peer;
    receiver->job_ns = now_ns();
    job->map = tmsg_message_map(message);
    job->ok = false;
    if (changed != NULL) {
        snprintf(job->error, sizeof(job->error), "%s", changed);
        settle_job(receiver);
    } else if (!job_start(job)) {
        settle_job(receiver);
    }
}

/* Takes a verdict. A verdict on any other file than the held one is ignored. */
static void take_verdict(receiver_t *receiver, peer_t *peer,
                         const transfer_verdict_t *verdict)
{
    tmsg_message_t *held = peer->held;

    if (held != NULL && verdict->number == peer->offer) {
        peer->held = NULL;
        begin_job(receiver, peer, held, verdict->changed);
    }
}

static void take_message(receiver_t *receiver, peer_t *peer,
                         tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    transfer_offer_t offer;
    transfer_verdict_t verdict;

    if (transfer_read_offer(map, &offer)) {
        answer_offer(receiver, peer, &offer);
    } else if (transfer_read_verdict(map, &verdict)) {
        take_verdict(receiver, peer, &verdict);
    } else if (peer->checked && peer->held == NULL) {
        peer->held = message;
        set_due(receiver, peer, 0);
        return;
    } else {
        /* A map that comes while a verdict is due was not offered. It ends that
         * offer. */
        if (peer->held != NULL) {
            complain_missing(receiver, peer);
            end_offer(peer);
        }
        begin_job(receiver, peer, message, NULL);
        return;
    }
    tmsg_message_destroy(message);
}

bool receiver_is_done(const receiver_t *receiver)
{
    unsigned count = receiver->options->count;

    return count > 0 && receiver->done >= count;
}

/* The others have their turns before this peer is looked at again. */
static void move_to_end(receiver_t *receiver, peer_t *peer)
{
    peer_t **place = &receiver->peers;

    while (*place != peer) {
        place = &(*place)->next;
    }
    *place = peer->next;
    while (*place != NULL) {
        place = &(*place)->next;
    }
    *place = peer;
    peer->next = NULL;
}

bool receiver_step(receiver_t *receiver)
{
    struct pollfd job = {.fd = receiver->job.done_fd, .events = POLLIN};

    if (receiver->message != NULL) {
        if (poll(&job, 1, 0) != 1) {
            return false;
        }
        job_finish(&receiver->job);
        settle_job(receiver);
        return true;
    }
    if (receiver->stopping || receiver_is_done(receiver)) {
        return false;
    }
    for (peer_t *peer = receiver->peers; peer != NULL; peer = peer->next) {
        tmsg_message_t *message;
        tmsg_status_t status = tmsg_endpoint_recv(peer->endpoint, 0, &message);

        if (status == TMSG_ERR_TIMED_OUT) {
            continue;
        }
        if (status == TMSG_OK) {
            move_to_end(receiver, peer);
            take_message(receiver, peer, message);
        } else {
            reap_peer(receiver, peer, status);
        }
        return true;
    }
    return false;
}

static void say_alive_to_peer(peer_t *peer)
{
    const transfer_reply_t words = {.number = peer->offer,
                                    .state = TRANSFER_ALIVE};

    peer->spoken_ns = now_ns();
    if (peer->last_alive != NULL &&
        tmsg_request_test(peer->last_alive) == TMSG_IN_PROGRESS) {
        /* The peer has not even received the previous ALIVE. */
        return;
    }
    tmsg_request_destroy(peer->last_alive);
    peer->last_alive = NULL;
    transfer_send_reply(peer->endpoint, &words, &peer->last_alive);
}

/* Gives up a sender whose file, or the verdict on it, has not come in time. */
static void give_up_peer(receiver_t *receiver, peer_t *peer)
{
    flood_complain(&receiver->lost, "%s: '%s' did not come in time (--timeout)",
                   tmsg_endpoint_peer(peer->endpoint), name_of(peer));
    note_failure(receiver);
    reply_to_peer(peer, peer->offer, TRANSFER_FAILED,
                  "it did not come in time");
    remove_peer(receiver, peer);
}

/* Returns the sooner of two waits, of which -1 is none. */
static int sooner(int one, int other)
{
    return one < 0 || (other >= 0 && other < one) ? other : one;
}

static int do_due_of_peer(receiver_t *receiver, peer_t *peer)
{
    uint64_t due = peer->spoken_ns + TRANSFER_ALIVE_MS * NS_PER_MS;

    if (peer->due_ns != 0 && receiver->message == NULL &&
        ms_until(peer->due_ns) == 0) {
        give_up_peer(receiver, peer);
        return 0;
    }
    if (ms_until(due) == 0) {
        say_alive_to_peer(peer);
        due = peer->spoken_ns + TRANSFER_ALIVE_MS * NS_PER_MS;
    }
    if (progress_wanted()) {
        progress_show(name_of(peer), 0, peer->bytes, peer->offered_ns);
        due = now_ns() + REDRAW_MS * NS_PER_MS;
    }
    if (peer->due_ns != 0 && receiver->message == NULL && peer->due_ns < due) {
        due = peer->due_ns;
    }
    return ms_until(due);
}

int receiver_do_due(receiver_t *receiver)
{
    int wanted = sooner(flood_tell(&receiver->refused, false),
                        flood_tell(&receiver->lost, false));

    for (peer_t *next, *peer = receiver->peers; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->offer != 0) {
            wanted = sooner(wanted, do_due_of_peer(receiver, peer));
        }
    }
    if (receiver->deadline_ns != 0 && receiver->peers == NULL &&
        receiver->message == NULL) {
        wanted = sooner(wanted, ms_until(receiver->deadline_ns));
    }
    return wanted;
}

bool receiver_is_left_alone(const receiver_t *receiver)
{
    return receiver->failed && receiver->peers == NULL &&
           receiver->deadline_ns != 0 && ms_until(receiver->deadline_ns) == 0;
}

static bool all_ended(const receiver_t *receiver)
{
    for (const peer_t *peer = receiver->peers; peer != NULL;
         peer = peer->next) {
        if (tmsg_endpoint_status(peer->endpoint) >= 0) {
            return false;
        }
    }
    return true;
}

void receiver_close(receiver_t *receiver, const char *why)
{
    uint64_t deadline = now_ns() + CLOSE_MS * NS_PER_MS;

    for (peer_t *peer = receiver->peers; peer != NULL; peer = peer->next) {
        if (peer->offer != 0) {
            reply_to_peer(peer, peer->offer, TRANSFER_FAILED, why);
        }
        tmsg_endpoint_close(peer->endpoint, NULL);
    }
    while (!all_ended(receiver) && ms_until(deadline) > 0) {
        tmsg_message_t *message;

        while (ms_until(deadline) > 0 &&
               tmsg_worker_recv(receiver->worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
        tmsg_worker_wait(receiver->worker, ms_until(deadline));
    }
    while (receiver->peers != NULL) {
        peer_t *peer = receiver->peers;

        receiver->peers = peer->next;
        free_peer(peer);
    }
}
