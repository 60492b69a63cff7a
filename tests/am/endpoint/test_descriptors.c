/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A process that runs out of descriptors at every step there is, one after the
 * other: each ends with an error that names the limit, keeps nothing, and works
 * when there are descriptors again. What UCX takes is in test_connect.c, and
 * with many connections in test_many.c. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "support/few_descriptors.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum {
    LEFT_MOST = SPARE_MOST,
    ENOUGH = 70,
    SMALL = 100,
    LARGE = 3 << 20,
    PATIENCE_MS = 300
};

/* The objects that one side has made so far. */
typedef struct {
    side_t side;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    char why[TMSG_ERROR_BYTES];
} user_t;

static tmsg_status_t say(user_t *user, tmsg_status_t status, const char *why)
{
    snprintf(user->why, sizeof(user->why), "%s", why);
    return status;
}

static void take(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

static tmsg_status_t open_worker(user_t *user, const char *config)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG, .ucx_config = config};
    const tmsg_worker_params_t takes = {
        .field_mask = TMSG_WORKER_PARAM_HANDLER | TMSG_WORKER_PARAM_FLAGS,
        .handler = take,
        .flags = user->side.drive == DRIVE_THREAD ? TMSG_WORKER_THREAD : 0};
    tmsg_status_t status = TMSG_OK;

    if (user->side.context == NULL) {
        status = tmsg_context_create(&params, &user->side.context);
    }
    if (status == TMSG_OK && user->side.worker == NULL) {
        status =
            tmsg_worker_create(user->side.context, &takes, &user->side.worker);
    }
    return say(user, status, tmsg_error_message());
}

static tmsg_status_t finish(user_t *user, tmsg_request_t *request)
{
    tmsg_status_t status = side_wait(&user->side, request);

    say(user, status, tmsg_request_error(request));
    tmsg_request_destroy(request);
    return status;
}

static tmsg_status_t send_bytes(user_t *user, size_t bytes)
{
    tmsg_map_t *map = sample_bytes(1, bytes);
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    tmsg_request_t *sent;
    tmsg_status_t status =
        tmsg_endpoint_send(user->endpoint, map, &params, &sent);

    tmsg_map_destroy(map);
    return status == TMSG_OK ? finish(user, sent)
                             : say(user, status, tmsg_error_message());
}

/* The address of a listener. */
typedef struct {
    char url[256];
    uint8_t blob[4096];
    size_t blob_bytes; /* 0: by URL */
} place_t;

static tmsg_status_t dial(user_t *user, const place_t *place)
{
    tmsg_status_t status =
        place->blob_bytes > 0
            ? tmsg_endpoint_connect_blob(user->side.worker, place->blob,
                                         place->blob_bytes, NULL,
                                         &user->endpoint)
            : tmsg_endpoint_connect(user->side.worker, place->url, NULL,
                                    &user->endpoint);

    return say(user, status, tmsg_error_message());
}

/* Makes the objects that are missing, and sends until two messages have come.
 */
static tmsg_status_t play(user_t *user, const char *config,
                          const place_t *place)
{
    tmsg_request_t *ready;
    tmsg_status_t status = open_worker(user, config);

    if (status == TMSG_OK) {
        status = dial(user, place);
    }
    if (status == TMSG_OK) {
        must(tmsg_endpoint_ready(user->endpoint, &ready));
        status = finish(user, ready);
    }
    if (status == TMSG_OK) {
        status = send_bytes(user, SMALL);
    }
    return status == TMSG_OK ? send_bytes(user, LARGE) : status;
}

static void drop(user_t *user)
{
    tmsg_endpoint_destroy(user->endpoint);
    user->endpoint = NULL;
}

static const side_options_t by_itself = {
    .drive = DRIVE_THREAD,
    .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = take}};

static void listen_for_ever(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    side_options_t options = by_itself;
    char line[16];
    side_t side;

    options.ucx_config = link_config(*link);
    side_open(&side, &options);
    side_listen_link(&side, *link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    if (*link == LINK_BLOB) {
        blob_put(pipes->out, side.listener);
    }
    line_get(pipes->in, line, sizeof(line));
    side_close(&side);
}

static void check_words(unsigned left, tmsg_status_t status, const char *why)
{
    if (status != TMSG_ERR_LIMIT_EXCEEDED ||
        strstr(why, "RLIMIT_NOFILE") == NULL) {
        fprintf(stderr, "%u left: %s, %s\n", left, tmsg_status_name(status),
                why);
    }
    must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
    must_say(why, "RLIMIT_NOFILE");
}

static void read_place(int fd, link_t link, place_t *place)
{
    char line[16];

    line_get(fd, place->url, sizeof(place->url));
    place->blob_bytes = 0;
    if (link == LINK_BLOB) {
        line_get(fd, line, sizeof(line));
        place->blob_bytes = strtoul(line, NULL, 10);
        must_true(place->blob_bytes <= sizeof(place->blob));
        must_eq(read(fd, place->blob, place->blob_bytes), place->blob_bytes);
    }
}

/* The objects that were made under the limit work without it. Checked whenever
 * another step fails than with one descriptor less. */
static void dials(link_t link, drive_t drive)
{
    tmsg_status_t status = TMSG_ERR_LIMIT_EXCEEDED;
    char latest[TMSG_ERROR_BYTES] = "";
    place_t place;
    child_t child;
    unsigned left;

    child_start(&child, listen_for_ever, &link);
    read_place(child.in, link, &place);
    for (left = 0; left < LEFT_MOST && status != TMSG_OK; left++) {
        user_t user = {.side = {.drive = drive}};
        int count = count_descriptors();

        spare_leave(left);
        status = play(&user, link_config(link), &place);
        spare_leave_all();
        if (status != TMSG_OK) {
            check_words(left, status, user.why);
            drop(&user);
        }
        if (status != TMSG_OK && strcmp(user.why, latest) != 0) {
            snprintf(latest, sizeof(latest), "%s", user.why);
            must_be(play(&user, link_config(link), &place), TMSG_OK);
        }
        drop(&user);
        side_close(&user.side);
        await_descriptors(count); /* peers may hang up later */
    }
    must_true(left > 3 && status == TMSG_OK);
    printf("%s, %s: %u descriptors do\n", link_names[link], drive_names[drive],
           left - 1);
    line_put(child.out, "end");
    child_join(&child);
}

Test(descriptors, that_run_out_while_it_dials_are_said_tcp)
{
    dials(LINK_TCP, DRIVE_POLLING);
}

Test(descriptors, that_run_out_while_it_dials_are_said_shm)
{
    dials(LINK_SHM, DRIVE_POLLING);
}

Test(descriptors, that_run_out_while_it_dials_are_said_unix)
{
    dials(LINK_UNIX, DRIVE_POLLING);
}

Test(descriptors, that_run_out_while_it_dials_are_said_blob)
{
    dials(LINK_BLOB, DRIVE_POLLING);
}

Test(descriptors, that_run_out_while_its_thread_dials_are_said)
{
    dials(LINK_UNIX, DRIVE_THREAD);
}

/* A child that dials where it is told to, again and again, and tells the
 * result. */
static void dial_for_ever(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    char words[TMSG_ERROR_BYTES + 16];
    place_t place = {.blob_bytes = 0};

    for (line_get(pipes->in, place.url, sizeof(place.url));
         strcmp(place.url, "end") != 0;
         line_get(pipes->in, place.url, sizeof(place.url))) {
        user_t user = {.endpoint = NULL};
        tmsg_status_t status = play(&user, link_config(*link), &place);

        snprintf(words, sizeof(words), "%d %.1000s", status,
                 status == TMSG_OK ? "" : user.why);
        line_put(pipes->out, words);
        drop(&user);
        side_close(&user.side);
    }
}

static tmsg_status_t listen_at(user_t *user, const char *config,
                               const char *url)
{
    tmsg_status_t status = open_worker(user, config);

    if (status == TMSG_OK) {
        status = tmsg_listener_create(user->side.worker, url, NULL,
                                      &user->side.listener);
        say(user, status, tmsg_error_message());
    }
    return status;
}

/* Returns whether the child has told its result. */
static bool has_answer(const child_t *child, int timeout_ms)
{
    struct pollfd answer = {child->in, POLLIN, 0};

    return poll(&answer, 1, timeout_ms) > 0;
}

static void drive(user_t *user, const child_t *child, int ms)
{
    for (int i = 0; i < ms && !has_answer(child, 1); i++) {
        for (int j = 0; j < 100; j++) {
            tmsg_worker_progress(user->side.worker);
        }
    }
}

/* Returns the result of a child that dials. If it has to wait, this side gets
 * all descriptors back. */
static tmsg_status_t serve(user_t *user, child_t *child, char *why,
                           size_t bytes, int patience_ms, bool *waited_p)
{
    char line[TMSG_ERROR_BYTES + 16];
    int status;

    line_put(child->out, tmsg_listener_url(user->side.listener));
    drive(user, child, patience_ms);
    *waited_p = !has_answer(child, 0);
    spare_leave_all();
    drive(user, child, PEERS_BOUND_MS);
    line_get(child->in, line, sizeof(line));
    must_eq(sscanf(line, "%d", &status), 1);
    snprintf(why, bytes, "%s", strchr(line, ' ') + 1);
    return (tmsg_status_t)status;
}

/* The dialling side hears what its peer lacks, or waits for it. */
static void listens(link_t link)
{
    const char *config = link_config(link);
    bool waited = true, served = false;
    child_t child;
    char url[256] = "tcp://127.0.0.1:0", why[TMSG_ERROR_BYTES + 16];
    unsigned left;

    if (link == LINK_UNIX) {
        snprintf(url, sizeof(url), "unix://%s", scratch_path("descriptors"));
    }
    child_start(&child, dial_for_ever, &link);
    for (left = 0; left < LEFT_MOST && !served; left++) {
        int patience_ms = left < ENOUGH ? PATIENCE_MS : PEERS_BOUND_MS;
        user_t user = {.endpoint = NULL};
        int count = count_descriptors();
        tmsg_status_t status;

        spare_leave(left);
        status = listen_at(&user, config, url);
        if (status != TMSG_OK) {
            spare_leave_all();
            check_words(left, status, user.why);
            must_be(listen_at(&user, config, url), TMSG_OK);
        } else if (serve(&user, &child, why, sizeof(why), patience_ms,
                         &waited) == TMSG_OK) {
            served = !waited;
        } else {
            must_say(why, "by the peer");
            must_say(why, "RLIMIT_NOFILE");
        }
        side_close(&user.side);
        await_descriptors(count);
    }
    must_true(served);
    printf("%s: %u descriptors do\n", link_names[link], left - 1);
    line_put(child.out, "end");
    child_join(&child);
}

Test(descriptors, that_run_out_while_it_listens_are_said_tcp)
{
    listens(LINK_TCP);
}

Test(descriptors, that_run_out_while_it_listens_are_said_shm)
{
    listens(LINK_SHM);
}

Test(descriptors, that_run_out_while_it_listens_are_said_unix)
{
    listens(LINK_UNIX);
}

/* The description, which a user asks for first when something fails, works with
 * few descriptors. */
Test(descriptors, that_run_out_are_said_by_the_description)
{
    tmsg_context_t *context;
    bool looked = false;
    unsigned left;

    must(tmsg_context_create(NULL, &context));
    for (left = 0; left < LEFT_MOST && !looked; left++) {
        int count = count_descriptors();
        char *json = NULL;

        spare_leave(left);
        must_be(tmsg_context_describe(context, &json), TMSG_OK);
        spare_leave_all();
        looked = strstr(json, "\"ucx_error\"") == NULL;
        if (!looked) {
            must_say(json, "RLIMIT_NOFILE");
            must_say(json, "\"transports\":\t[]");
            must_eq(count_descriptors(), count);
        }
        tmsg_string_free(json);
    }
    must_true(looked);
    printf("to describe: %u descriptors do\n", left - 1);
    tmsg_context_destroy(context);
}
