/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What somebody between two peers of tls:// can do. */
#include <criterion/criterion.h>

#include "am/tls/secured.h"
#include "support/breaking_relay.h"
#include "support/large_messages.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

static bool is_away(void *arg)
{
    const pair_t *pair = arg;

    return joined_is_away(pair->to_a) && joined_is_away(pair->to_b);
}

/* A session whose connection broke comes back by three connections: the link,
 * the stream, and the one for large payloads. Each of them meets somebody else
 * once. */
Test(tls_middle, who_proves_nothing_cannot_end_a_session)
{
    static const struct {
        const char *data;
        size_t bytes;
    } said[] = {{"HTTP/1.1 200 OK\r\n\r\n", 19},
                {"\x15\x03\x03\0\x02\x02\x31", 7}, /* no access, says TLS */
                {"TMSGBOOT", 8}};
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .most_backoff_ms = 20};
    secured_t secured;
    pair_t *pair = &secured.pair;
    relay_t *relay;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&pair->a, SECURED_URL, secured.by[0], -1);
    relay = relay_open(tmsg_listener_url(pair->a.listener));
    secured_connect(&secured, relay_url(relay), &reconnect);
    for (unsigned i = 0; i < 9; i++) {
        tmsg_request_t *sent;

        relay_shut(relay, true);
        pair_await(pair, is_away, pair, "the cut");
        relay_forge(relay, i % 3, said[i / 3].data, said[i / 3].bytes);
        sent = send_map(pair->to_a, sample_bytes(i, 300000), TMSG_SEND_ACKED);
        relay_shut(relay, false);
        large_take(pair, &pair->a, i, 300000);
        must(pair_finish(pair, sent));
    }
    must_eq(pair->a.accepts, 1);
    secured_close(&secured);
    relay_close(relay);
}
