/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process tells peers that ask what goes on there, and whom it tells. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/offers.h"
#include "support/seeded_maps.h"

/* Asks the peer, and waits for the end. */
static tmsg_call_t *ask_by(pair_t *pair, tmsg_endpoint_t *endpoint)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(endpoint, TMSG_METHOD_DESCRIBE, NULL, NULL, &call));
    return finish(pair, call);
}

static tmsg_call_t *ask(pair_t *pair) { return ask_by(pair, pair->to_a); }

/* Returns one of the two texts of a reply. */
static char *text_of(const tmsg_call_t *call, const char *name)
{
    tmsg_tensor_t tensor;
    char *text;

    must_be(tmsg_call_status(call), TMSG_OK);
    must(tmsg_map_find(tmsg_call_reply(call), name, &tensor));
    text = calloc(1, (size_t)tensor.shape[0] + 1);
    memcpy(text, tensor.data, (size_t)tensor.shape[0]);
    return text;
}

static char *told_of(pair_t *pair, const char *name)
{
    tmsg_call_t *call = ask(pair);
    char *text = text_of(call, name);

    tmsg_call_destroy(call);
    return text;
}

static void says_what_there_is(pair_t *pair)
{
    tmsg_publisher_t *publisher;
    tmsg_map_t *map = sample_bytes(1, 100);
    const char *health;
    tmsg_call_t *call;
    char *text;

    must(tmsg_publisher_create(pair->a.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, pair->to_b, NULL));
    must(tmsg_publisher_publish(publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
    tmsg_message_destroy(pair_take(pair, &pair->b));
    call = ask(pair);
    must_be(tmsg_map_get_string(tmsg_call_reply(call), "health", &health),
            TMSG_ERR_NOT_FOUND); /* nobody serves */
    text = text_of(call, "process");
    tmsg_call_destroy(call);
    must_say(text, "\"open_endpoints\":\t1");
    must_say(text, "\"state\":\t\"connected\"");
    must_say(text, "\"sent_bytes\":\t100");
    must_say(text, "\"received_messages\":");
    must_say(text, "\"published\":\t1");
    must_say(text, tmsg_endpoint_peer(pair->to_b));
    free(text);
    tmsg_publisher_destroy(publisher);
}

Test(describe, says_what_there_is_without_a_server)
{
    play_on_each(says_what_there_is, NULL);
}

static void answer(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, NULL, NULL));
}

/* Nobody counts calls before the first one who asks. */
Test(describe, counts_calls_from_the_first_time_on)
{
    tmsg_server_t *server;
    const char *health;
    tmsg_call_t *call;
    pair_t pair;
    char *text;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "infer", answer, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        call = ask(&pair);
        must(tmsg_map_get_string(tmsg_call_reply(call), "health", &health));
        must_say(health, "SERVING");
        text = text_of(call, "metrics");
        tmsg_call_destroy(call);
        must_true((strstr(text, "method=\"infer\",status=\"ok\"} 1\n") !=
                   NULL) == (i == 1));
        free(text);
        must(tmsg_endpoint_call(pair.to_a, "infer", NULL, NULL, &call));
        must_be(tmsg_call_status(finish(&pair, call)), TMSG_OK);
        tmsg_call_destroy(call);
    }
    tmsg_server_destroy(server);
    pair_close(&pair);
}

/* Who has proved the key of alice, or none, is told where these are the
 * observers. */
static const struct {
    const char *observers;
    bool has_key, told;
} rows[] = {{NULL, false, true},   {NULL, true, false},
            {"", true, false},     {"", false, true},
            {"alice", true, true}, {"bob alice", true, true},
            {"bob", true, false},  {"*", true, true},
            {"*", false, false},   {"alice", false, false}};

Test(describe, is_told_to_those_who_may_hear_it)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        side_options_t options = {.keyring = NULL};
        tmsg_call_t *call;
        pair_t pair;

        if (rows[i].has_key) {
            must(tmsg_keyring_create(&options.keyring));
            must(tmsg_keyring_add(options.keyring, "alice", key));
        }
        if (rows[i].observers == NULL) {
            unsetenv("TENSORMSG_OBSERVERS");
        } else {
            setenv("TENSORMSG_OBSERVERS", rows[i].observers, 1);
        }
        pair_open(&pair, LINK_SHM, DRIVE_THREAD, &options, &options);
        call = ask(&pair);
        must_be(tmsg_call_status(call),
                rows[i].told ? TMSG_OK : TMSG_ERR_REFUSED);
        if (!rows[i].told) {
            must_say(tmsg_call_error(call), "TENSORMSG_OBSERVERS");
        }
        tmsg_call_destroy(call);
        pair_close(&pair);
        tmsg_keyring_destroy(options.keyring);
    }
}

/* Its own listeners may ask for keys. */
Test(describe, is_not_told_to_one_that_was_dialled)
{
    tmsg_call_t *call;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    call = ask_by(&pair, pair.to_b);
    must_be(tmsg_call_status(call), TMSG_ERR_REFUSED);
    tmsg_call_destroy(call);
    pair_close(&pair);
}

static int count_words(const char *text, const char *words)
{
    int count = 0;

    while ((text = strstr(text, words)) != NULL) {
        text += strlen(words);
        count++;
    }
    return count;
}

Test(describe, lists_a_bounded_number_of_what_is_there)
{
    enum { MANY = 260 };
    const tmsg_endpoint_params_t waits = {
        .field_mask =
            TMSG_ENDPOINT_PARAM_FLAGS | TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .flags = TMSG_ENDPOINT_WAIT,
        .connect_timeout_ms = -1};
    tmsg_endpoint_t *more[MANY];
    tmsg_publisher_t *publishers[MANY];
    char url[200], *text, *all;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    snprintf(url, sizeof(url), "unix://%s", scratch_path("nobody"));
    for (int i = 0; i < MANY; i++) {
        must(tmsg_endpoint_connect(pair.a.worker, url, &waits, &more[i]));
        must(tmsg_publisher_create(pair.a.worker, NULL, &publishers[i]));
        must(tmsg_publisher_add(publishers[i % 2], more[i], NULL));
    }
    text = told_of(&pair, "process");
    must_say(text, "\"more_endpoints\":\t5");
    must_say(text, "\"more_publishers\":\t4");
    free(text);
    for (int i = 2; i < MANY; i++) { /* two are left, of 130 subscribers each */
        tmsg_publisher_destroy(publishers[i]);
    }
    text = told_of(&pair, "process");
    must_eq(count_words(text, "\"under_way\""), 256);
    must_eq(count_words(text, "\"more_subscribers\":\t4"), 1);
    must_eq(count_words(text, "\"more_subscribers\":\t0"), 1);
    free(text);
    must(tmsg_publisher_describe(publishers[0], &all));
    must_eq(count_words(all, "\"under_way\""), MANY / 2);
    tmsg_string_free(all);
    for (int i = 0; i < 2; i++) {
        tmsg_publisher_destroy(publishers[i]);
    }
    for (int i = 0; i < MANY; i++) {
        tmsg_endpoint_destroy(more[i]);
    }
    pair_drop(&pair);
}
