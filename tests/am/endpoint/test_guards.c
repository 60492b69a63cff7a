/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways to make UCX crash, corrupt memory or hang, and a test for each that the
 * library does not let it come to that. Peers that lie are in test_lies.c,
 * segment sizes and ports in test_unlike.c. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

/* A header longer than max_am_header aborts UCX or corrupts its heap. */
Test(guards, no_header_is_longer_than_max_am_header)
{
    const side_options_t capture = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_CAPTURE}};

    for (link_t link = 0; link < LINKS; link++) {
        unsigned spilled = 0, plain = 0;
        size_t most;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, &capture, NULL);
        most = pair.to_a->ucx->max_am_header;
        for (size_t bytes = most - 400; bytes < most + 100; bytes += 3) {
            size_t tensors = bytes / 4000 + 1;
            const sample_t sample = {.tensors = tensors,
                                     .shape = SAMPLE_SCALAR,
                                     .name_bytes = bytes / tensors - 20};
            tmsg_request_t *sent = send_map(pair.to_a, sample_make(&sample), 0);
            tmsg_message_t *message = pair_take(&pair, &pair.a);
            tmsg_preamble_t head;
            const void *header;
            size_t header_bytes;

            must(tmsg_message_header(message, &header, &header_bytes));
            must(tmsg_preamble_decode(header, header_bytes, &head));
            if (head.flags & TMSG_HEADER_SPILLED) {
                must_true(header_bytes > most);
                spilled++;
            } else {
                must_true(header_bytes <= most);
                plain++;
            }
            sample_check(&sample, tmsg_message_map(message));
            tmsg_message_destroy(message);
            must(pair_finish(&pair, sent));
        }
        cr_expect(ge(uint, spilled, 1));
        cr_expect(ge(uint, plain, 1));
        pair_close(&pair);
    }
}

/* NO_IMM_CMPL with a datatype sends the array of pointers itself. */
Test(guards, scatter_lists_send_what_they_point_to)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t tensors = 2; tensors < 40; tensors++) {
        const sample_t sample = {.tensors = tensors,
                                 .shape = SAMPLE_VECTOR,
                                 .dtype = 11,
                                 .elements = 70000 / tensors + 20000};
        tmsg_request_t *sent = send_map(pair.to_a, sample_make(&sample), 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

/* An error from an eager callback aborts; a rendezvous that is released
 * unreceived tells the sender Success. */
Test(guards, a_refusal_neither_aborts_nor_looks_like_success)
{
    static const size_t bytes[] = {5000, 7000000};
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 4000}};

    for (link_t link = 0; link < LINKS; link++) {
        for (size_t i = 0; i < 2; i++) {
            tmsg_request_t *sent;
            pair_t pair;

            pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
            sent =
                send_map(pair.to_a, sample_bytes(1, bytes[i]), TMSG_SEND_ACKED);
            must_be(pair_finish(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
            sent = send_map(pair.to_a, sample_bytes(1, 7000000), 0);
            must_be(pair_finish(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
            sent = send_map(pair.to_a, sample_bytes(2, 3000), 0);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
            must(pair_finish(&pair, sent));
            pair_close(&pair);
        }
    }
}

/* PEER error handling drops shared memory, unless UCX is told; its CMA, which
 * believes a read that ended early, is replaced by ours (am/path/cma.h). */
Test(guards, shared_memory_and_cma_stay_in_use)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, 1000000), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    cr_expect(endpoint_uses(pair.to_a, "posix/"));
    cr_expect(not(endpoint_uses(pair.to_a, "cma/")));
    pair_await(&pair, endpoint_is_read, pair.to_a, "a peer that reads");
    cr_expect(not(endpoint_uses(pair.to_a, "tcp/")));
    pair_close(&pair);
}

static void connect_and_wait(pipes_t *pipes, void *arg)
{
    char url[256];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    tmsg_request_destroy(
        send_map(side_connect(&side, url), sample_bytes(1, 10), 0));
    line_put(pipes->out, "connected");
    for (;;) {
        pause();
    }
    (void)arg;
}

/* UCX never notices a peer that dies before the endpoint ids were exchanged,
 * and sends to it hang. */
Test(guards, a_peer_that_dies_right_after_connecting_is_noticed)
{
    static const link_t links[] = {LINK_SHM, LINK_UNIX, LINK_TCP};
    child_t children[3];

    for (size_t i = 0; i < 3; i++) {
        child_start(&children[i], connect_and_wait, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        tmsg_request_t *sent;
        tmsg_status_t status;
        side_t side;

        side_open(&side, NULL);
        side_listen_link(&side, links[i]);
        line_put(children[i].out, tmsg_listener_url(side.listener));
        side_accept(&side);
        sent = send_map(side.accepted, sample_bytes(1, 9000000), 0);
        child_kill(&children[i]);
        must_be(side_end_of(&side, side.accepted), TMSG_ERR_PEER_LOST);
        status = side_wait(&side, sent);
        must_true(status == TMSG_ERR_PEER_LOST || status == TMSG_OK);
        tmsg_request_destroy(sent);
        side_close(&side);
    }
}

/* UCX's own cancel does nothing for active messages. */
Test(guards, pending_sends_end_when_their_endpoint_does)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_request_t *sent[8];
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        for (uint64_t i = 0; i < 8; i++) {
            sent[i] = send_map(pair.to_a, sample_bytes(i, 6000000), 0);
        }
        tmsg_endpoint_destroy(pair.to_a);
        for (uint64_t i = 0; i < 8; i++) {
            must_be(side_finish(&pair.b, sent[i]), TMSG_ERR_CANCELED);
        }
        pair_drop(&pair);
    }
}

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void expect_no_handler_of_ucx(void)
{
    for (size_t i = 0; i < 4; i++) {
        struct sigaction action;
        Dl_info info;

        must_eq(sigaction(crash_signals[i], NULL, &action), 0);
        if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
            dladdr(*(void **)&action.sa_sigaction, &info) != 0) {
            must_true(strstr(info.dli_fname, "libuc") == NULL);
        }
    }
}

static void own_handler(int number) { _exit(number); }

/* UCX 1.13 sets its signal handlers when it is loaded, before main(). */
Test(guards, the_programs_signal_handlers_stay_its_own)
{
    struct sigaction own = {.sa_handler = own_handler}, before[4], after;
    pair_t pair;

    expect_no_handler_of_ucx();
    for (size_t i = 0; i < 4; i++) {
        must_eq(sigaction(crash_signals[i], &own, &before[i]), 0);
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < 4; i++) {
        must_eq(sigaction(crash_signals[i], NULL, &after), 0);
        must_true(after.sa_handler == own_handler);
    }
    pair_close(&pair);
    for (size_t i = 0; i < 4; i++) {
        must_eq(sigaction(crash_signals[i], &before[i], &after), 0);
        must_true(after.sa_handler == own_handler);
    }
}

/* The header's most follows the segment size, so it tells what is in force. */
static size_t header_most(const char *config)
{
    const side_options_t options = {.ucx_config = config};
    size_t most;
    tmsg_request_t *ready;
    side_t side;

    side_open(&side, &options);
    side_listen(&side, "tcp://127.0.0.1:0");
    must(tmsg_endpoint_ready(side_dial(&side, &side), &ready));
    must(side_finish(&side, ready));
    side_accept(&side);
    most = side.accepted->ucx->max_am_header;
    side_close(&side);
    return most;
}

static void expect_origin(const char *config, const char *value,
                          const char *origin)
{
    const side_options_t options = {.ucx_config = config};
    char *json, *at, *end;
    side_t side;

    side_open(&side, &options);
    must(tmsg_context_describe(side.context, &json));
    at = strstr(json, "\"UCX_TCP_TX_SEG_SIZE\"");
    must_true(at != NULL);
    end = strchr(at, '}');
    must_true(end != NULL);
    *end = '\0';
    must_say(at, value);
    must_say(at, origin);
    tmsg_string_free(json);
    side_close(&side);
}

Test(guards, code_outranks_the_environment_which_outranks_our_defaults)
{
    const char *tcp = "TLS=tcp", *code = "TLS=tcp;TCP_TX_SEG_SIZE=16k";
    const char *plain = "TLS=tcp;TX_SEG_SIZE=16k";

    unsetenv("UCX_TCP_TX_SEG_SIZE");
    unsetenv("UCX_TX_SEG_SIZE");
    must_true(header_most(tcp) > 60000);
    expect_origin(tcp, "60k", "default");
    must_true(header_most(code) < 16500 && header_most(code) > 15000);
    expect_origin(code, "16k", "code");
    must_true(header_most(plain) < 16500 && header_most(plain) > 15000);
    setenv("UCX_TCP_TX_SEG_SIZE", "32k", 1);
    must_true(header_most(tcp) < 33000 && header_most(tcp) > 32000);
    expect_origin(tcp, "32k", "environment");
    must_true(header_most(code) < 16500 && header_most(code) > 15000);
    expect_origin(code, "16k", "code");
}

static void expect_refused(const char *config, const char *words)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG, .ucx_config = config};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_status_t status = tmsg_context_create(&params, &context);

    if (status == TMSG_OK) { /* UCX up to 1.20 */
        must(tmsg_worker_create(context, NULL, &worker));
        status = tmsg_listener_create(worker, "tcp://:0", NULL, &listener);
        must_say(tmsg_error_message(), words);
        tmsg_worker_destroy(worker);
        tmsg_context_destroy(context);
    } else {
        must_say(tmsg_error_message(), words);
    }
    must_be(status, TMSG_ERR_INVALID_PARAM);
}

/* Old versions of UCX take any key without a word. */
Test(guards, keys_that_ucx_has_not_are_refused_by_name)
{
    static const struct {
        const char *config, *name;
    } bad[] = {
        {"NOSUCHKEY=1;TLS=tcp", "NOSUCHKEY=1"},
        {"TLSS=tcp", "TLSS=tcp"},
        {"RNDV_THRESH=much", "RNDV_THRESH=much"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        expect_refused(bad[i].config, bad[i].name);
    }
}

/* UCX up to 1.16 takes such keys, and they have no effect. */
Test(guards, keys_of_transports_with_their_prefix_work_or_are_refused_by_name)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    if (version.minor >= 17) {
        must_true(header_most("TLS=tcp;TCP_PUT_ENABLE=n") > 0);
    } else {
        must_true(header_most("TLS=tcp;PUT_ENABLE=n") > 0);
        expect_refused("TLS=tcp;TCP_PUT_ENABLE=n", "TCP_PUT_ENABLE=n");
        expect_refused("POSIX_FIFO_SIZE=128", "without the transport's name");
        must_true(header_most("TLS=tcp;LOG_LEVEL=error") > 0);
    }
}

Test(guards, keys_of_transports_are_known)
{
    must_true(header_most("TX_SEG_SIZE=16k;MM_ERROR_HANDLING=y") > 0);
    must_true(header_most("MM_FIFO_SIZE=128;RNDV_THRESH=64k") > 0);
}

/* ucp_ep_create() trusts what it is given. */
Test(guards, a_damaged_blob_never_reaches_ucx)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    const void *blob;
    uint8_t *copy;
    size_t bytes;
    pair_t pair;

    pair_open(&pair, LINK_BLOB, DRIVE_POLLING, NULL, NULL);
    must(tmsg_listener_blob(pair.a.listener, &blob, &bytes));
    for (size_t i = 0; i < bytes; i++) {
        copy = malloc(bytes);
        memcpy(copy, blob, bytes);
        copy[i] ^= (uint8_t)(1 + i % 255);
        must_true(tmsg_endpoint_connect_blob(pair.b.worker, copy, bytes, NULL,
                                             &endpoint) == TMSG_ERR_MALFORMED);
        free(copy);
        copy = malloc(i + 1); /* its end, too early */
        memcpy(copy, blob, i);
        must_be(
            tmsg_endpoint_connect_blob(pair.b.worker, copy, i, NULL, &endpoint),
            TMSG_ERR_MALFORMED);
        free(copy);
    }
    must(tmsg_endpoint_connect_blob(pair.b.worker, blob, bytes, NULL,
                                    &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(pair_finish(&pair, ready));
    pair_drop(&pair);
}

/* A message that its sender gave up must not arrive with later contents of the
 * buffer: it arrives as it was, or not at all. */
static void give_up(link_t link, bool destroy_worker)
{
    enum { BYTES = 20000000 };
    const int64_t shape[] = {BYTES};
    uint8_t *buffer = malloc(BYTES);
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    memset(buffer, 1, BYTES);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
    tmsg_map_destroy(map);
    if (destroy_worker) {
        side_close(&pair.b);
    } else {
        tmsg_endpoint_destroy(pair.to_a);
        must_be(side_wait(&pair.b, sent), TMSG_ERR_CANCELED);
    }
    tmsg_request_destroy(sent);
    memset(buffer, 2, BYTES); /* ours again */
    must_be(side_end_of(&pair.a, pair.to_b), TMSG_ERR_PEER_LOST);
    while (tmsg_endpoint_recv(pair.to_b, 0, &message) == TMSG_OK) {
        tmsg_tensor_t arrived;

        must(tmsg_map_find(tmsg_message_map(message), "data", &arrived));
        for (size_t i = 0; i < BYTES; i++) {
            must_eq(((uint8_t *)arrived.data)[i], 1);
        }
        tmsg_message_destroy(message);
    }
    pair_drop(&pair);
    free(buffer);
}

Test(guards, what_its_sender_gave_up_is_not_delivered_changed)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_UNIX};

    for (size_t i = 0; i < 3; i++) {
        give_up(links[i], false);
        give_up(links[i], true);
    }
}

/* A held message of 64 B may pin a whole segment of UCX's. */
Test(guards, held_small_messages_do_not_stop_the_traffic)
{
    enum { HELD = 20000 };
    static tmsg_message_t *held[HELD];

    for (link_t link = 0; link <= LINK_SHM; link++) {
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        for (size_t i = 0; i < HELD; i++) {
            tmsg_request_destroy(send_map(pair.to_a, sample_bytes(i, 64), 0));
            held[i] = pair_take(&pair, &pair.a);
        }
        pair_close(&pair);
        for (size_t i = 0; i < HELD; i++) {
            sample_check_bytes(i, 64, tmsg_message_map(held[i]));
            tmsg_message_destroy(held[i]);
        }
    }
}

/* The headers and lists that UCX reads live as long as the send. */
Test(guards, nothing_of_a_send_need_outlive_the_call_but_its_data)
{
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 30; i++) {
        const sample_t sample = {.seed = i,
                                 .tensors = 40,
                                 .name_bytes = 4000,
                                 .shape = SAMPLE_VECTOR,
                                 .elements = 5000};

        tmsg_request_destroy(send_map(pair.to_a, sample_make(&sample), 0));
    }
    for (uint64_t i = 0; i < 30; i++) {
        const sample_t sample = {.seed = i,
                                 .tensors = 40,
                                 .name_bytes = 4000,
                                 .shape = SAMPLE_VECTOR,
                                 .elements = 5000};
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}
