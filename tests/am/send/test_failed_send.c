/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX ends a send with an error, of whatever kind, before the peer has read it.
 * The buffer must not be free before the peer has said that it has the message,
 * or the lease is withdrawn. Here UCX is made to report the error, and to go on
 * with the send all the same. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/session_pair.h"

enum {
    LONG = 60000,
    ONE_TENSOR = 300000,
    IN_FRAGMENTS = 8 << 20,
    ROUNDS = 200
};

static void have_ucx_move_it(void)
{
    by_ucx_alone();
    without_reading();
}

TestSuite(failed_send, .init = have_ucx_move_it);

/* The next long send of this UCX worker ends with `status`. */
static struct {
    ucp_worker_h worker;
    ucs_status_t status; /* UCS_OK: no send does */
    ucp_send_nbx_callback_t over;
    void *arg;
    void *request;
} lie;

static void *next_of(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    must_true(symbol != NULL);
    return symbol;
}

static void keep_silent(void *request, ucs_status_t ucs, void *arg)
{
    (void)request;
    (void)ucs;
    (void)arg;
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_bytes, const void *buffer,
                                 size_t count, const ucp_request_param_t *param)
{
    ucs_status_ptr_t (*real)(ucp_ep_h, unsigned, const void *, size_t,
                             const void *, size_t, const ucp_request_param_t *);
    ucp_request_param_t silent = *param;
    ucs_status_ptr_t request;

    *(void **)&real = next_of("ucp_am_send_nbx");
    if (lie.status == UCS_OK || lie.over != NULL || count < LONG) {
        return real(ep, id, header, header_bytes, buffer, count, param);
    }
    silent.cb.send = keep_silent;
    request = real(ep, id, header, header_bytes, buffer, count, &silent);
    must_true(UCS_PTR_IS_PTR(request));
    lie.over = param->cb.send;
    lie.arg = param->user_data;
    lie.request = request;
    return request;
}

unsigned ucp_worker_progress(ucp_worker_h worker)
{
    unsigned (*real)(ucp_worker_h);
    ucp_send_nbx_callback_t over = lie.over;

    *(void **)&real = next_of("ucp_worker_progress");
    if (worker == lie.worker && over != NULL) {
        ucs_status_t status = lie.status;

        lie.status = UCS_OK;
        lie.over = NULL;
        over(lie.request, status, lie.arg);
    }
    return real(worker);
}

static bool fails_to_read; /* the next of all receivers */

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data,
                                      void *buffer, size_t count,
                                      const ucp_request_param_t *param)
{
    ucs_status_ptr_t (*real)(ucp_worker_h, void *, void *, size_t,
                             const ucp_request_param_t *);

    *(void **)&real = next_of("ucp_am_recv_data_nbx");
    if (fails_to_read) {
        fails_to_read = false;
        return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    }
    return real(worker, data, buffer, count, param);
}

/* The application uses a buffer that it got back for something else. */
typedef struct {
    uint8_t *data;
    size_t bytes;
    bool free;
} buffer_t;

static void use_again(void *arg)
{
    buffer_t *buffer = arg;

    memset(buffer->data, 2, buffer->bytes);
    buffer->free = true;
}

/* Several large tensors travel in fragments. */
static tmsg_request_t *send_buffer(tmsg_endpoint_t *endpoint, buffer_t *buffer,
                                   size_t tensors, unsigned flags)
{
    static const char *const names[] = {"data", "more", "most"};
    const int64_t shape[] = {(int64_t)buffer->bytes};
    const tmsg_tensor_t tensor = {
        buffer->data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_RELEASE |
                      TMSG_SEND_PARAM_WAY,
        .flags = flags,
        .protocol = TMSG_PROTOCOL_RNDV, /* else it may be over at once */
        .on_release = use_again,
        .on_release_arg = buffer};
    tmsg_request_t *request;
    tmsg_map_t *map;

    memset(buffer->data, 1, buffer->bytes);
    buffer->free = false;
    must(tmsg_map_create(&map));
    for (size_t i = 0; i < tensors; i++) {
        must(tmsg_map_add(map, names[i], &tensor, NULL));
    }
    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* Every byte must be as it was when it was sent. */
static void take_untorn(tmsg_message_t *message)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    bytes = tensor.data;
    for (int64_t i = 0; i < tensor.shape[0]; i++) {
        must_eq(bytes[i], 1);
    }
    tmsg_message_destroy(message);
}

static bool is_standing(const tmsg_endpoint_t *endpoint)
{
    static const uint8_t none[TMSG_LEASE_WORD_BYTES];

    return memcmp(endpoint->lease.word, none, sizeof(none)) != 0;
}

static void begin_lie(const tmsg_endpoint_t *endpoint, ucs_status_t status)
{
    lie.worker = endpoint->ucx->ucp;
    lie.status = status;
    lie.over = NULL;
}

static bool was_told(void *arg)
{
    (void)arg;
    return lie.status == UCS_OK && lie.over == NULL;
}

static bool is_over(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_endpoint_status(pair->to_b) == TMSG_ERR_PEER_LOST;
}

/* All of UCX's statuses are errors except the peer's own refusal. */
static bool is_error(ucs_status_t status)
{
    return status != UCS_ERR_REJECTED &&
           strncmp(ucs_status_string(status), "Unknown", 7) != 0;
}

/* The sender ends the connection by itself, with the reason. */
static bool is_forfeited(void *arg)
{
    tmsg_endpoint_t *endpoint = arg;

    if (tmsg_endpoint_status(endpoint) == TMSG_OK) {
        return false;
    }
    must_be(tmsg_endpoint_status(endpoint), TMSG_ERR_PEER_LOST);
    must_true(strstr(tmsg_endpoint_error(endpoint),
                     "UCX failed at a message") != NULL);
    return true;
}

static void drive_one(side_t *side)
{
    for (int i = 0; i < ROUNDS; i++) {
        tmsg_worker_progress(side->worker);
    }
}

/* The peer hears nothing of the failure, and reads when the sender knows
 * already: it gets the whole message or nothing at all. */
static void fail(pair_t *pair, buffer_t *buffer, ucs_status_t status)
{
    tmsg_request_t *sent;
    tmsg_message_t *message;

    begin_lie(pair->to_a, status);
    sent = send_buffer(pair->to_a, buffer, 1, TMSG_SEND_ACKED);
    side_await(&pair->b, was_told, NULL, "the error");
    drive_one(&pair->b);
    must_true(!buffer->free || !is_standing(pair->to_a));
    if (is_standing(pair->to_a)) {
        take_untorn(pair_take(pair, &pair->a));
        must(pair_finish(pair, sent));
    } else {
        pair_await(pair, is_over, pair, "the end of a lease's reader");
        must_true(tmsg_endpoint_recv(pair->to_b, 0, &message) != TMSG_OK);
        must_be(pair_finish(pair, sent), TMSG_ERR_PEER_LOST);
    }
    must_true(buffer->free);
}

Test(failed_send, is_free_when_its_lease_is_withdrawn_or_the_peer_has_it)
{
    buffer_t buffer = {malloc(ONE_TENSOR), ONE_TENSOR, false};
    unsigned kept = 0, ended = 0;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (ucs_status_t status = -1; status > -100; status--) {
        if (!is_error(status)) {
            continue;
        }
        fail(&pair, &buffer, status);
        if (tmsg_endpoint_status(pair.to_a) == TMSG_OK) {
            kept++;
        } else {
            ended++;
            pair_drop(&pair);
            pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        }
    }
    must_true(kept + ended > 20 && ended >= 4);
    pair_drop(&pair);
    free(buffer.data);
}

Test(failed_send, of_a_fragment_withdraws_the_lease)
{
    static const ucs_status_t statuses[] = {UCS_ERR_IO_ERROR, UCS_ERR_TIMED_OUT,
                                            UCS_ERR_CONNECTION_RESET};
    buffer_t buffer = {malloc(IN_FRAGMENTS), IN_FRAGMENTS, false};

    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        tmsg_request_t *sent;
        tmsg_message_t *message;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        begin_lie(pair.to_a, statuses[i]);
        sent = send_buffer(pair.to_a, &buffer, 3, TMSG_SEND_ACKED);
        side_await(&pair.b, was_told, NULL, "the error");
        must_true(!is_standing(pair.to_a));
        if (statuses[i] != UCS_ERR_CONNECTION_RESET) {
            side_await(&pair.b, is_forfeited, pair.to_a, "the sender's end");
            must_be(side_wait(&pair.b, sent), TMSG_ERR_PEER_LOST);
        }
        drive_one(&pair.a);
        must_true(tmsg_endpoint_recv(pair.to_b, 0, &message) != TMSG_OK);
        tmsg_request_destroy(sent);
        pair_drop(&pair);
        must_true(buffer.free);
    }
    free(buffer.data);
}

/* Nobody waits for the peer's answer any more. */
Test(failed_send, that_is_given_up_withdraws_the_lease)
{
    buffer_t buffer = {malloc(ONE_TENSOR), ONE_TENSOR, false};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    begin_lie(pair.to_a, UCS_ERR_IO_ERROR);
    sent = send_buffer(pair.to_a, &buffer, 1, 0);
    side_await(&pair.b, was_told, NULL, "the error");
    must_true(!buffer.free && is_standing(pair.to_a));
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    must_be(side_finish(&pair.b, sent), TMSG_ERR_CANCELED);
    drive_one(&pair.b);
    must_true(buffer.free && !is_standing(pair.to_a));
    side_await(&pair.b, is_forfeited, pair.to_a, "the sender's end");
    drive_one(&pair.a);
    must_true(tmsg_endpoint_recv(pair.to_b, 0, &message) != TMSG_OK);
    pair_drop(&pair);
    free(buffer.data);
}

/* No answer comes if the peer is not driven, or UCX never told it of the
 * message: only the bound ends the wait here. */
Test(failed_send, waits_for_its_peers_word_no_longer_than_for_its_peer)
{
    const side_options_t options = {.quiet = true};
    buffer_t buffer = {malloc(ONE_TENSOR), ONE_TENSOR, false};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    pair.b.context->peer_timeout_ms = 300;
    begin_lie(pair.to_a, UCS_ERR_IO_ERROR);
    sent = send_buffer(pair.to_a, &buffer, 1, 0);
    side_await(&pair.b, was_told, NULL, "the error");
    side_await(&pair.b, is_forfeited, pair.to_a, "the sender's end");
    must_be(side_finish(&pair.b, sent), TMSG_ERR_PEER_LOST);
    drive_one(&pair.b);
    must_true(buffer.free);
    drive_one(&pair.a);
    must_true(tmsg_endpoint_recv(pair.to_b, 0, &message) != TMSG_OK);
    pair_drop(&pair);
    free(buffer.data);
}

/* The failure alone breaks the connection; it comes back, and the message is
 * sent again. */
Test(failed_send, is_sent_again_where_the_connection_comes_back)
{
    buffer_t buffer = {malloc(IN_FRAGMENTS), IN_FRAGMENTS, false};
    const how_t how = {.link = LINK_SHM};
    joined_t joined;

    joined_open(&joined, &how);
    for (size_t tensors = 1; tensors <= 3; tensors += 2) {
        tmsg_request_t *sent;

        buffer.bytes = tensors == 1 ? ONE_TENSOR : IN_FRAGMENTS;
        begin_lie(joined.pair.to_a, UCS_ERR_IO_ERROR);
        sent = send_buffer(joined.pair.to_a, &buffer, tensors, TMSG_SEND_ACKED);
        side_await(&joined.pair.b, was_told, NULL, "the error");
        side_await(&joined.pair.b, joined_is_away, joined.pair.to_a,
                   "the sender's break");
        take_untorn(pair_take(&joined.pair, &joined.pair.a));
        must(pair_finish(&joined.pair, sent));
        must_true(buffer.free);
    }
    joined_drop(&joined);
    free(buffer.data);
}

/* The peer's answer frees the buffer, and the connection goes on. */
Test(failed_send, that_its_peer_failed_to_read_is_told_and_the_connection_lives)
{
    buffer_t buffer = {malloc(ONE_TENSOR), ONE_TENSOR, false};
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    begin_lie(pair.to_a, UCS_ERR_IO_ERROR);
    sent = send_buffer(pair.to_a, &buffer, 1, 0);
    side_await(&pair.b, was_told, NULL, "the error");
    fails_to_read = true;
    must_be(pair_finish(&pair, sent), TMSG_ERR_PEER_LOST);
    must_true(!fails_to_read && buffer.free && is_standing(pair.to_a));
    sent = send_buffer(pair.to_a, &buffer, 1, TMSG_SEND_ACKED);
    take_untorn(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
    free(buffer.data);
}
