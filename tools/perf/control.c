/* SPDX-License-Identifier: BSD-3-Clause */
#include "control.h"
#include "core/shown.h"
#include "signals.h"

#define SLICE_MS 100

/* The call has a timeout of its own. A signal ends the wait earlier. */
static tmsg_status_t await_reply(tmsg_call_t *call)
{
    while (tmsg_call_status(call) == TMSG_IN_PROGRESS &&
           !signals_grace_is_over()) {
        tmsg_call_wait(call, SLICE_MS);
    }
    return tmsg_call_status(call);
}

/* Calls a method of the sink. Returns NULL after a complaint if there is no
 * reply. */
static tmsg_call_t *call_sink(const perf_peer_t *peer, const char *method,
                              const tmsg_map_t *map)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_TIMEOUT,
        .timeout_ms = peer->options->connection.timeout_ms,
    };
    tmsg_call_t *call;
    tmsg_status_t status =
        tmsg_endpoint_call(peer->endpoint, method, map, &params, &call);
    if (status != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return NULL;
    }
    status = await_reply(call);
    if (status == TMSG_OK) {
        return call;
    }
    if (status == TMSG_IN_PROGRESS) {
        /* A signal came, of which the command tells at its end. */
    } else if (status == TMSG_ERR_UNSUPPORTED ||
               status == TMSG_ERR_UNAVAILABLE || status == TMSG_ERR_NOT_FOUND) {
        complain("%s: the listener there is not a 'tensormsg perf --listen' of "
                 "this version, %s",
                 peer->url, tmsg_version());
    } else {
        complain("%s", tmsg_call_error(call));
    }
    tmsg_call_destroy(call);
    return NULL;
}

static tmsg_map_t *create_map(void)
{
    tmsg_map_t *map = NULL;

    if (tmsg_map_create(&map) != TMSG_OK) {
        complain("%s", tmsg_error_message());
    }
    return map;
}

/* Checks the peer's protocol. A protocol or version that cannot be read as a
 * number or a text counts as missing. */
static bool check_hello(const perf_peer_t *peer, const tmsg_map_t *reply)
{
    const char *version;
    int64_t protocol;

    if (tmsg_map_get_i64(reply, "protocol", &protocol) != TMSG_OK ||
        tmsg_map_get_string(reply, "version", &version) != TMSG_OK) {
        complain("%s: the listener there is not a 'tensormsg perf --listen'",
                 peer->url);
        return false;
    }
    if (protocol != PERF_PROTOCOL) {
        complain("%s: 'tensormsg perf' of version %s there and of %s here "
                 "measure differently (%lld and %d): use one of them on both "
                 "sides",
                 peer->url, tmsg_shown_short(version).text, tmsg_version(),
                 (long long)protocol, PERF_PROTOCOL);
        return false;
    }
    return true;
}

bool perf_say_hello(perf_peer_t *peer)
{
    tmsg_map_t *map = create_map();
    tmsg_call_t *call = NULL;
    bool ok;

    if (map != NULL &&
        tmsg_map_set_i64(map, "protocol", PERF_PROTOCOL) == TMSG_OK &&
        tmsg_map_set_string(map, "version", tmsg_version()) == TMSG_OK) {
        call = call_sink(peer, PERF_HELLO, map);
    }
    tmsg_map_destroy(map);
    ok = call != NULL && check_hello(peer, tmsg_call_reply(call));
    tmsg_call_destroy(call);
    return ok;
}

bool perf_begin(perf_peer_t *peer, bool echo, const perf_memory_t *memory)
{
    tmsg_map_t *map = create_map();
    tmsg_call_t *call = NULL;
    bool ok;

    if (map != NULL && tmsg_map_set_bool(map, "echo", echo) == TMSG_OK &&
        tmsg_map_set_bool(map, "verify", peer->options->plan.verify) ==
            TMSG_OK &&
        tmsg_map_set_bool(map, "poll", !peer->options->plan.sleep) == TMSG_OK &&
        tmsg_map_set_i64(map, "device_type", memory->device.type) == TMSG_OK &&
        tmsg_map_set_i64(map, "device_id", memory->device.id) == TMSG_OK) {
        call = call_sink(peer, PERF_BEGIN, map);
    }
    tmsg_map_destroy(map);
    ok = call != NULL;
    tmsg_call_destroy(call);
    return ok;
}

static bool check_end(const perf_peer_t *peer, const tmsg_map_t *reply,
                      uint64_t sent)
{
    const char *words = "";
    int64_t wrong = -1;

    (void)tmsg_map_get_string(reply, "words", &words);
    if (tmsg_map_get_i64(reply, "wrong", &wrong) == TMSG_OK && wrong == 0) {
        return true;
    }
    complain("--verify: %lld of %llu messages did not arrive at %s as they "
             "were sent: %s",
             (long long)wrong, (unsigned long long)sent, peer->url, words);
    return false;
}

bool perf_end(perf_peer_t *peer, uint64_t sent)
{
    tmsg_map_t *map = create_map();
    tmsg_call_t *call = NULL;
    bool ok;

    if (map != NULL &&
        tmsg_map_set_i64(map, "sent", (int64_t)sent) == TMSG_OK) {
        call = call_sink(peer, PERF_END, map);
    }
    tmsg_map_destroy(map);
    ok = call != NULL && check_end(peer, tmsg_call_reply(call), sent);
    tmsg_call_destroy(call);
    return ok;
}
