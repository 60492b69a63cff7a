/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/numbered_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"

const char turned_away[] =
    "not admitted: a key is asked for here, and none that is known was proved";

void keys_of(uint8_t number, uint8_t key[TMSG_KEY_BYTES])
{
    memset(key, number, TMSG_KEY_BYTES);
}

void add_key(tmsg_keyring_t *keyring, const char *name, uint8_t number)
{
    uint8_t key[TMSG_KEY_BYTES];

    keys_of(number, key);
    must(tmsg_keyring_add(keyring, name, key));
}

tmsg_keyring_t *ring(const char *name, uint8_t number)
{
    tmsg_keyring_t *keyring;

    must(tmsg_keyring_create(&keyring));
    if (name != NULL) {
        add_key(keyring, name, number);
    }
    return keyring;
}

void open_side(side_t *side, tmsg_keyring_t *keyring)
{
    const side_options_t options = {.keyring = keyring};

    side_open(side, &options);
    tmsg_keyring_destroy(keyring);
}

void open_listening(side_t *side, tmsg_keyring_t *keyring)
{
    open_side(side, keyring);
    side_listen(side, "tcp://127.0.0.1:0");
}

tmsg_status_t dial_beside(side_t *server, side_t *client, const char *url,
                          char *words, size_t bytes)
{
    pair_t pair = {.sides = {server, client}};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    tmsg_status_t status;

    must(tmsg_endpoint_connect(client->worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    status = pair_wait(&pair, ready);
    snprintf(words, bytes, "%s", tmsg_request_error(ready));
    must_true(status == TMSG_OK || tmsg_endpoint_principal(endpoint) == NULL);
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(endpoint);
    return status;
}

void expect_serves_key(side_t *server, uint8_t number, const char *name)
{
    unsigned before = server->accepts;
    pair_t pair = {.sides = {server, &pair.b}};
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    tmsg_request_t *closed;

    open_side(&pair.b, ring("server", number));
    endpoint = side_dial(&pair.b, server);
    tmsg_request_destroy(send_map(endpoint, sample_bytes(7, 1000), 0));
    message = pair_take(&pair, server);
    sample_check_bytes(7, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_eq(server->accepts, before + 1);
    must_true(strcmp(tmsg_endpoint_principal(server->accepted), name) == 0);
    must_true(strcmp(tmsg_endpoint_principal(endpoint), "server") == 0);
    must(tmsg_endpoint_close(endpoint, &closed));
    must(pair_finish(&pair, closed));
    must_be(pair_end_of(&pair, server->accepted), TMSG_ERR_CLOSED);
    tmsg_endpoint_destroy(server->accepted);
    side_close(&pair.b);
}

unsigned counted(const side_t *side, const char *name)
{
    char *json, *at, quoted[32];
    unsigned count;

    must(tmsg_listener_describe(side->listener, &json));
    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    at = strstr(json, quoted);
    must_true(at != NULL);
    count = (unsigned)strtoul(at + strlen(quoted), NULL, 10);
    tmsg_string_free(json);
    return count;
}
