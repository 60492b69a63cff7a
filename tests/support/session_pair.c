/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/session_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    side_t *side = arg;

    side->accepted = endpoint;
    side->accepts++;
}

void joined_listen(side_t *side, const char *url, int32_t resume_ms)
{
    const tmsg_listener_params_t params = {
        .field_mask =
            TMSG_LISTENER_PARAM_ON_ACCEPT | TMSG_LISTENER_PARAM_RESUME,
        .on_accept = accepted,
        .on_accept_arg = side,
        .resume_ms = resume_ms,
    };

    must(tmsg_listener_create(side->worker, url, &params, &side->listener));
}

tmsg_endpoint_t *joined_dial(side_t *side, const char *url,
                             tmsg_reconnect_t reconnect)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = reconnect,
        .flags = TMSG_ENDPOINT_SAME_PROCESS};
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    return endpoint;
}

bool joined_is_open(void *arg)
{
    joined_t *joined = arg;

    return joined->pair.a.accepts > 0 &&
           tmsg_endpoint_status(joined->pair.to_a) == TMSG_OK;
}

void joined_open(joined_t *joined, const how_t *how)
{
    pair_t *pair = &joined->pair;
    side_options_t a = how->a, b = how->b;
    tmsg_reconnect_t reconnect = how->reconnect;
    char url[256];

    if (reconnect.first_backoff_ms == 0) {
        reconnect.first_backoff_ms = 1;
        reconnect.most_backoff_ms = 20;
    }
    a.drive = b.drive = how->drive;
    a.ucx_config = b.ucx_config = link_config(how->link);
    memset(pair, 0, sizeof(*pair));
    side_open(&pair->a, &a);
    side_open(&pair->b, &b);
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    snprintf(url, sizeof(url), "%s", peers_tcp_url());
    if (how->link == LINK_UNIX) {
        snprintf(url, sizeof(url), "unix://%s", scratch_path("kept"));
    }
    joined_listen(&pair->a, url, how->resume_ms == 0 ? -1 : how->resume_ms);
    joined->relay =
        how->direct ? NULL : relay_open(tmsg_listener_url(pair->a.listener));
    pair->to_a = joined_dial(&pair->b,
                             how->direct ? tmsg_listener_url(pair->a.listener)
                                         : relay_url(joined->relay),
                             reconnect);
    pair_await(pair, joined_is_open, joined, "a connection");
    pair->to_b = pair->a.accepted;
}

static void close_relay(joined_t *joined)
{
    if (joined->relay != NULL) {
        relay_close(joined->relay);
    }
}

void joined_close(joined_t *joined)
{
    pair_close(&joined->pair);
    close_relay(joined);
}

void joined_drop(joined_t *joined)
{
    pair_drop(&joined->pair);
    close_relay(joined);
}

long described(const tmsg_endpoint_t *endpoint, const char *name)
{
    char *json, key[64];
    const char *at;
    long value;

    snprintf(key, sizeof(key), "\"%s\":", name);
    must(tmsg_endpoint_describe(endpoint, &json));
    at = strstr(json, key);
    if (at == NULL) {
        die("no %s in %s", key, json);
    }
    at += strlen(key);
    at += strspn(at, " \t");
    value = strncmp(at, "true", 4) == 0 ? 1 : strtol(at, NULL, 10);
    tmsg_string_free(json);
    return value;
}

bool joined_is_away(void *arg)
{
    return tmsg_endpoint_status(arg) == TMSG_IN_PROGRESS;
}

static bool is_back(void *arg) { return tmsg_endpoint_status(arg) == TMSG_OK; }

void joined_break(joined_t *joined)
{
    relay_shut(joined->relay, true);
    pair_await(&joined->pair, joined_is_away, joined->pair.to_a,
               "the dialling side");
    pair_await(&joined->pair, joined_is_away, joined->pair.to_b,
               "the dialled side");
}

void joined_mend(joined_t *joined)
{
    relay_shut(joined->relay, false);
    pair_await(&joined->pair, is_back, joined->pair.to_a, "the dialling side");
    pair_await(&joined->pair, is_back, joined->pair.to_b, "the dialled side");
}
