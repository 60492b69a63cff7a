/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that the application names, and addresses that it advertises. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

static tmsg_status_t listen_on(side_t *side, const char *url,
                               tmsg_listener_params_t params)
{
    tmsg_listener_t *listener = NULL;
    tmsg_status_t status =
        tmsg_listener_create(side->worker, url, &params, &listener);

    must_true((status == TMSG_OK) == (listener != NULL));
    if (status == TMSG_OK) {
        side->listener = listener;
    }
    return status;
}

#define DEVICES(names)                                                         \
    ((tmsg_listener_params_t){.field_mask = TMSG_LISTENER_PARAM_DEVICES,       \
                              .devices = (names)})

#define ADVERTISE(url)                                                         \
    ((tmsg_listener_params_t){.field_mask = TMSG_LISTENER_PARAM_ADVERTISE,     \
                              .advertise = (url)})

Test(devices, an_unknown_one_is_an_error_that_lists_those_here)
{
    tmsg_endpoint_params_t params = {.field_mask = TMSG_ENDPOINT_PARAM_DEVICES,
                                     .devices = "lo,none7"};
    tmsg_endpoint_t *endpoint = NULL;
    side_t side;

    side_open(&side, NULL);
    must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:1", &params,
                                  &endpoint),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "'none7'; there are: ");
    must_say(tmsg_error_message(), "lo");
    params.devices = "lo,";
    must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:1", &params,
                                  &endpoint),
            TMSG_ERR_INVALID_PARAM);
    params.devices = "lo";
    must_be(tmsg_endpoint_connect(side.worker, "unix:///nowhere", &params,
                                  &endpoint),
            TMSG_ERR_INVALID_PARAM);
    must_true(endpoint == NULL);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", DEVICES("../lo")),
            TMSG_ERR_NOT_FOUND);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", DEVICES("")),
            TMSG_ERR_INVALID_PARAM);
    must_be(listen_on(&side, "unix:///tmp/devices", DEVICES("lo")),
            TMSG_ERR_INVALID_PARAM);
    must_be(listen_on(&side, "tcp://127.0.0.1:0",
                      DEVICES("lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,"
                              "lo,lo,lo,lo,lo,lo,lo")),
            TMSG_ERR_INVALID_PARAM);
    side_close(&side);
}

/* More than loopback is to be asked for, whatever the address. */
Test(devices, more_than_loopback_needs_leave)
{
    side_t side;

    side_open(&side, NULL);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", DEVICES("lo,lo")),
            TMSG_ERR_INSECURE);
    must(listen_on(&side, "tcp://127.0.0.1:0", DEVICES("lo")));
    side_close(&side);
}

/* They outrank a variable, and are told with their origin. */
static void carry(const char *url)
{
    const side_options_t options = {.ucx_config = "TLS=tcp"};
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_DEVICES, .devices = "lo"};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    const void *blob;
    size_t bytes;
    pair_t pair = {0};
    char *json;

    setenv("UCX_NET_DEVICES", "none7", 1);
    side_open(&pair.a, &options);
    side_open(&pair.b, &options);
    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    must(listen_on(&pair.a, url, DEVICES("lo")));
    if (strncmp(url, "blob", 4) == 0) {
        must(tmsg_listener_blob(pair.a.listener, &blob, &bytes));
        must(tmsg_endpoint_connect_blob(pair.b.worker, blob, bytes, &params,
                                        &endpoint));
    } else {
        must(tmsg_endpoint_connect(pair.b.worker,
                                   tmsg_listener_url(pair.a.listener), &params,
                                   &endpoint));
    }
    request = send_map(endpoint, sample_bytes(3, 100000), TMSG_SEND_ACKED);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, request));
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, "\"UCX_NET_DEVICES\",\n");
    must_say(json, "the application named the devices");
    must_true(strstr(json, "none7") == NULL);
    tmsg_string_free(json);
    pair_drop(&pair);
}

Test(devices, carry_a_connection_tcp) { carry("tcp://127.0.0.1:0"); }
Test(devices, carry_a_connection_blob) { carry("blob://"); }

Test(devices, the_advertised_url_is_what_peers_are_told)
{
    side_t side;
    char wanted[64];
    unsigned port = 0;

    side_open(&side, NULL);
    must(listen_on(&side, "tcp://127.0.0.1:0",
                   ADVERTISE("tcp://camera.example:4000")));
    must_eq(
        strcmp(tmsg_listener_url(side.listener), "tcp://camera.example:4000"),
        0);
    tmsg_listener_destroy(side.listener);
    must(listen_on(&side, "tcp://127.0.0.1:0", ADVERTISE("tcp://localhost:0")));
    must_eq(
        sscanf(tmsg_listener_url(side.listener), "tcp://localhost:%u", &port),
        1);
    must_true(port > 0);
    snprintf(wanted, sizeof(wanted), "tcp://localhost:%u", port);
    {
        tmsg_endpoint_t *endpoint = side_connect(&side, wanted);

        tmsg_endpoint_destroy(endpoint);
    }
    side_close(&side);
}

Test(devices, what_cannot_be_advertised_is_an_error)
{
    side_t side;

    side_open(&side, NULL);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", ADVERTISE("unix:///tmp/x")),
            TMSG_ERR_INVALID_PARAM);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", ADVERTISE("tcp://:1")),
            TMSG_ERR_INVALID_PARAM);
    must_be(listen_on(&side, "tcp://127.0.0.1:0", ADVERTISE("what")),
            TMSG_ERR_INVALID_PARAM);
    must_be(listen_on(&side, "blob://", ADVERTISE("tcp://here:1")),
            TMSG_ERR_INVALID_PARAM);
    must(listen_on(&side, "tcp://127.0.0.1:0", ADVERTISE(NULL)));
    side_close(&side);
}
