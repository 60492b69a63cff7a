/* SPDX-License-Identifier: BSD-3-Clause */
/* Two sides whose UCX is configured in ways that do not fit. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/still_serves.h"

/* Two sides with different configurations: the connection ends with these words
 * at both. */
static void expect_incompatible(const char *a_config, const char *b_config,
                                link_t link, const char *words)
{
    const side_options_t a = {.ucx_config = a_config};
    const side_options_t b = {.ucx_config = b_config};
    pair_t pair = {.to_a = NULL};
    tmsg_request_t *ready;

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, &a);
    side_open(&pair.b, &b);
    side_listen_link(&pair.a, link);
    pair.to_a = side_dial(&pair.b, &pair.a);
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    must_be(pair_wait(&pair, ready), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_request_error(ready), words);
    tmsg_request_destroy(ready);
    must_eq(pair.a.accepts, 0);
    pair_drop(&pair);
}

static bool is_new_ucx(void)
{
    char *json, *at;
    side_t side;
    bool is_new;

    side_open(&side, NULL);
    must(tmsg_context_describe(side.context, &json));
    at = strstr(json, "\"ucx_version\"");
    must_true(at != NULL);
    is_new = strstr(at, "1.13.") == NULL || strstr(at, "1.13.") > at + 30;
    tmsg_string_free(json);
    side_close(&side);
    return is_new;
}

/* UCX before 1.17 takes this setting from the environment alone: see below. */
Test(unlike, shared_memory_segments_that_differ_are_refused_by_name)
{
    const char *config = "POSIX_SEG_SIZE=32k";

    if (is_new_ucx()) {
        expect_incompatible(config, NULL, LINK_SHM, "UCX_POSIX_SEG_SIZE");
        expect_incompatible(NULL, config, LINK_SHM, "UCX_POSIX_SEG_SIZE");
        expect_incompatible(NULL, config, LINK_UNIX, "UCX_POSIX_SEG_SIZE");
    }
}

Test(unlike, tcp_segments_that_do_not_fit_are_refused_by_name)
{
    expect_incompatible("TLS=tcp;TCP_RX_SEG_SIZE=16k;TCP_TX_SEG_SIZE=8k",
                        "TLS=tcp", LINK_TCP, "UCX_TCP_RX_SEG_SIZE");
    expect_incompatible("TLS=tcp",
                        "TLS=tcp;TCP_RX_SEG_SIZE=16k;TCP_TX_SEG_SIZE=8k",
                        LINK_TCP, "UCX_TCP_RX_SEG_SIZE");
}

/* The same, by the user's environment. */
static void dial_with_environment(pipes_t *pipes, void *arg)
{
    tmsg_request_t *ready;
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    (void)arg;
    setenv("UCX_POSIX_SEG_SIZE", "32k", 1);
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must_be(side_wait(&side, ready), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_request_error(ready), "UCX_POSIX_SEG_SIZE=8256");
    must_say(tmsg_request_error(ready), "this side 32768");
    tmsg_request_destroy(ready);
    side_close(&side);
    line_put(pipes->out, "done");
}

static bool has_line(void *arg)
{
    struct pollfd fd = {*(int *)arg, POLLIN, 0};

    return poll(&fd, 1, 0) == 1;
}

Test(unlike, says_which_setting_keeps_shared_memory_out)
{
    const side_options_t by_code = {.ucx_config = "TLS=tcp,self"};
    char *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &by_code, &by_code);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "same machine, but UCX_TLS=tcp,self (code)");
    tmsg_string_free(json);
    pair_close(&pair);
    setenv("UCX_TLS", "tcp", 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "same machine, but UCX_TLS=tcp (environment)");
    tmsg_string_free(json);
    pair_close(&pair);
}

Test(unlike, a_users_variable_on_one_end_is_enough_to_be_refused)
{
    char line[32];
    child_t child;
    side_t side;

    child_start(&child, dial_with_environment, NULL);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    line_put(child.out, tmsg_listener_url(side.listener));
    side_await(&side, has_line, &child.in, "the other process");
    line_get(child.in, line, sizeof(line));
    child_join(&child);
    must_eq(side.accepts, 0);
    side_serves(&side);
    side_close(&side);
}

/* Values that a UCX aborts on, refused where they would take effect. */
static void expect_dangerous(const char *config, const char *words)
{
    const side_options_t options = {.ucx_config = config};
    tmsg_endpoint_t *endpoint;
    char url[64];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    side_open(&side, &options);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must_be(side_end_of(&side, endpoint), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_endpoint_error(endpoint), words);
    side_close(&side);
    close(fd);
}

Test(unlike, deadly_ucx_values_are_refused_by_name)
{
    expect_dangerous("POSIX_SEG_SIZE=64k", "UCX_POSIX_SEG_SIZE");
    expect_dangerous("POSIX_SEG_SIZE=1m", "UCX_POSIX_SEG_SIZE");
    expect_dangerous("TCP_MAX_IOV=64", "UCX_TCP_MAX_IOV");
    expect_dangerous("MAX_IOV=64", "MAX_IOV");
    expect_dangerous("TCP_TX_SEG_SIZE=65k", "UCX_TCP_TX_SEG_SIZE");
    expect_dangerous("TX_SEG_SIZE=65k", "TX_SEG_SIZE");
    expect_dangerous("TX_SEG_SIZE=1m", "TX_SEG_SIZE");
    if (!is_new_ucx()) {
        expect_dangerous("PROTO_ENABLE=y", "UCX_PROTO_ENABLE");
        expect_dangerous("PROTO_ENABLE=try", "UCX_PROTO_ENABLE");
    }
}
