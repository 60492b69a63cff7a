/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements how this side opens a stream. */
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "rpc/intercept.h"
#include "rpc/signature.h"
#include "rpc/stream.h"

#define QUEUE_DEFAULT 64 /* messages of this side that may wait */

static tmsg_status_t read_stream_params(const tmsg_call_stream_params_t *params,
                                        tmsg_call_stream_params_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_call_stream_params_t, TMSG_CALL_STREAM_PARAM_TIMEOUT,
                   timeout_ms),
        TMSG_PARAM(tmsg_call_stream_params_t, TMSG_CALL_STREAM_PARAM_QUEUE,
                   queue),
        TMSG_PARAMS(tmsg_call_stream_params_t,
                    TMSG_CALL_STREAM_PARAM_ON_RELEASE, on_release,
                    on_release_arg),
        TMSG_PARAM(tmsg_call_stream_params_t, TMSG_CALL_STREAM_PARAM_SIGNATURE,
                   signature)};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status;

    *read =
        (tmsg_call_stream_params_t){.timeout_ms = -1, .queue = QUEUE_DEFAULT};
    status = tmsg_params_read("stream", params, mask, rows,
                              sizeof(rows) / sizeof(rows[0]), read);
    if (status != TMSG_OK) {
        return status;
    }
    if (read->timeout_ms == 0 || read->timeout_ms < -1 || read->queue == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "stream: timeout_ms %d, queue %u: timeout_ms "
                              "must be above 0 or -1, queue 1 or more",
                              read->timeout_ms, read->queue);
    }
    return TMSG_OK;
}

tmsg_call_stream_t *tmsg_stream_make(tmsg_rpc_peer_t *peer,
                                     tmsg_stream_key_t key)
{
    tmsg_call_stream_t *stream = calloc(1, sizeof(*stream));
    bool dialled = false;

    if (stream == NULL) {
        tmsg_error_memory("a stream");
        return NULL;
    }
    (void)tmsg_stream_side(peer->endpoint, &dialled);
    stream->hub = peer->hub;
    stream->peer = peer;
    stream->endpoint = peer->endpoint;
    stream->key = key;
    stream->channel = tmsg_stream_channel(key, dialled);
    stream->queue = QUEUE_DEFAULT;
    stream->reader_waits = true;
    return stream;
}

void tmsg_stream_free(tmsg_call_stream_t *stream)
{
    if (stream != NULL) {
        tmsg_signature_destroy(stream->signature);
        free(stream->unsent_words);
        free(stream);
    }
}

/* Stores the index of the first free place. Makes the table larger if it is
 * full. Lock held. Errors: RESOURCE_EXHAUSTED (TMSG_STREAMS_MOST streams are
 * open), NO_MEMORY. */
static tmsg_status_t find_place(tmsg_rpc_peer_t *peer, uint16_t *index_p)
{
    uint32_t index = 0, count;
    tmsg_call_stream_t **streams;

    while (index < peer->stream_count && peer->streams[index] != NULL) {
        index++;
    }
    if (index == TMSG_STREAMS_MOST) {
        return tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                              "%s: this side has %u streams open there",
                              tmsg_calls_name(peer->endpoint), index);
    }
    if (index == peer->stream_count) {
        count = index == 0 ? 8 : index * 2;
        streams = reallocarray(peer->streams, count, sizeof(*streams));
        if (streams == NULL) {
            return tmsg_error_memory("the table of streams");
        }
        memset(streams + index, 0, (count - index) * sizeof(*streams));
        peer->streams = streams;
        peer->stream_count = count;
    }
    *index_p = (uint16_t)index;
    return TMSG_OK;
}

/* Gives the stream a place, which holds it. The stream needs the place before
 * anything is sent on it. Takes the lock. Errors: CANCELED (the call has ended
 * meanwhile), those of find_place(). */
static tmsg_status_t place_stream(tmsg_call_t *call, uint32_t queue,
                                  bool dialled)
{
    tmsg_call_stream_t *stream = call->stream;
    tmsg_rpc_peer_t *peer = call->peer;
    tmsg_status_t status;

    tmsg_hub_lock(peer->hub);
    status = tmsg_call_has_ended(call) ? TMSG_ERR_CANCELED
                                       : find_place(peer, &stream->key.index);
    if (status == TMSG_OK) {
        peer->streams[stream->key.index] = stream;
        stream->channel = tmsg_stream_channel(stream->key, dialled);
        stream->queue = queue;
        stream->listed = true;
        tmsg_call_hold(call);
    }
    tmsg_hub_unlock(peer->hub);
    return status;
}

/* Serves as `may` of tmsg_stream_send_t, for OPEN, which needs no room in the
 * queue. */
static tmsg_status_t may_open(void *arg, size_t waiting)
{
    (void)arg;
    (void)waiting;
    return TMSG_OK;
}

static tmsg_status_t send_open(tmsg_call_t *call, const tmsg_map_t *map,
                               const tmsg_call_stream_params_t *params,
                               uint64_t deadline_ns)
{
    const tmsg_call_head_t head = {.type = TMSG_STREAM_OPEN,
                                   .id = call->id,
                                   .text = call->method,
                                   .text_bytes = call->method_bytes};
    const tmsg_stream_send_t how = {
        .call = {.head = &head,
                 .deadline_ns = deadline_ns,
                 .on_release = params->on_release,
                 .on_release_arg = params->on_release_arg,
                 .queues = true,
                 .number_p = &call->number,
                 .began = tmsg_call_began,
                 .began_arg = call,
                 .more = tmsg_hooks_more(call->hooks),
                 .spares_more = tmsg_hooks_spare_more(call->hooks)},
        .channel = call->stream->channel,
        .may = may_open,
    };

    return tmsg_stream_send(call->endpoint, map, &how, NULL);
}

/* Frees the place of a stream whose OPEN was not sent: the peer does not know
 * of the stream. Lock not held. */
static void displace(tmsg_call_stream_t *stream)
{
    bool unlisted;

    tmsg_hub_lock(stream->hub);
    stream->peer_done = true;
    unlisted = tmsg_stream_unlist(stream);
    tmsg_hub_unlock(stream->hub);
    if (unlisted) {
        tmsg_stream_drop(stream);
    }
}

/* Enlists the call, gives the stream a place, and sends OPEN. On an error the
 * caller still has both references of the call. Lock not held. */
static tmsg_status_t launch_stream(tmsg_call_t *call, const tmsg_map_t *map,
                                   const tmsg_call_stream_params_t *params,
                                   bool dialled)
{
    uint64_t deadline_ns = call->deadline_ns;
    tmsg_status_t status = tmsg_call_enlist(call, map);

    if (status != TMSG_OK) {
        return status;
    }
    status = place_stream(call, params->queue, dialled);
    if (status == TMSG_OK) {
        status = send_open(call, map, params, deadline_ns);
        if (status != TMSG_OK) {
            displace(call->stream);
        }
    }
    if (status == TMSG_OK || tmsg_call_delist(call, status)) {
        return status;
    }
    /* The call has ended otherwise meanwhile, and its event tells of that end.
     * OPEN was not sent, so that nothing reads the map any more. */
    if (params->on_release != NULL) {
        params->on_release(params->on_release_arg);
    }
    return TMSG_OK;
}

/* Makes the call of a stream, with two references: the list's and the handle's.
 * Takes over the caller's reference to the peer's endpoint. Errors: those of
 * tmsg_call_make(), NO_MEMORY. */
static tmsg_status_t make_stream_call(tmsg_rpc_peer_t *peer, const char *method,
                                      const tmsg_call_stream_params_t *params,
                                      tmsg_call_t **call_p)
{
    const tmsg_call_params_t of_call = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                        .timeout_ms = params->timeout_ms};
    tmsg_call_t *call;
    tmsg_status_t status = tmsg_call_make(peer, method, &of_call, &call);

    if (status != TMSG_OK) {
        return status;
    }
    call->stream = tmsg_stream_make(peer, (tmsg_stream_key_t){.ours = true});
    if (call->stream == NULL) {
        tmsg_call_drop_own(call, 2);
        return TMSG_ERR_NO_MEMORY;
    }
    call->extras = true;
    call->stream->call = call;
    call->stream->handles = 1;
    call->stream->signature = tmsg_signature_hold(params->signature);
    *call_p = call;
    return TMSG_OK;
}

/* Makes the call, and checks that the peer takes streams. Takes over the
 * caller's reference to the peer's endpoint. */
static tmsg_status_t make_call_beside(tmsg_rpc_peer_t *peer, const char *method,
                                      const tmsg_call_stream_params_t *params,
                                      tmsg_call_t **call_p, bool *dialled_p)
{
    tmsg_status_t status = tmsg_stream_side(peer->endpoint, dialled_p);

    if (status != TMSG_OK) {
        tmsg_calls_drop(peer->endpoint);
        return status;
    }
    return make_stream_call(peer, method, params, call_p);
}

tmsg_status_t tmsg_endpoint_open_stream(tmsg_endpoint_t *endpoint,
                                        const char *method,
                                        const tmsg_map_t *map,
                                        const tmsg_call_stream_params_t *params,
                                        tmsg_call_stream_t **stream_p)
{
    tmsg_call_stream_params_t read;
    tmsg_map_t *empty = NULL;
    tmsg_call_t *call = NULL;
    bool dialled;
    void *peer;
    tmsg_status_t status = read_stream_params(params, &read);

    if (status == TMSG_OK && map == NULL) {
        status = tmsg_map_create(&empty);
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &peer);
    }
    if (status == TMSG_OK) {
        status = make_call_beside(peer, method, &read, &call, &dialled);
    }
    if (status == TMSG_OK) {
        map = map == NULL ? empty : map;
        if (tmsg_is_intercepted(call->peer->hub, TMSG_SIDE_CALLER)) {
            status = tmsg_hooks_begin_call(call, map);
        }
        if (status == TMSG_OK) {
            status = launch_stream(call, map, &read, dialled);
        }
        if (status == TMSG_OK) {
            *stream_p = call->stream;
        } else {
            tmsg_hooks_unsent(call->hooks, status);
            tmsg_call_drop_own(call, 2);
        }
    }
    tmsg_map_destroy(empty);
    return status;
}
