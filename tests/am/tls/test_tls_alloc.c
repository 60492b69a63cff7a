/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Fails allocations of a connection by tls://, on both sides, OpenSSL's
 * included: it stands all the same or ends at once, and others get in. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "am/tls/secured.h"
#include "support/test_scale.h"

#define FAILING_ALLOC_LEAKS "leak:libcrypto\nleak:libssl\n"
#include "support/failing_alloc.h"

/* Every so many-th, of 16,000 with certificates and 3,000 with keys. */
enum { STEP = 97, WHOLE_STEP = 7 };

static bool is_over(void *arg)
{
    return tmsg_endpoint_status(arg) != TMSG_IN_PROGRESS;
}

/* Dials while the n-th allocation fails. Returns whether there are as many. */
static bool dial_failing(secured_t *secured, unsigned long n)
{
    const char *url = tmsg_listener_url(secured->pair.a.listener);
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT |
                      TMSG_ENDPOINT_PARAM_TLS | TMSG_ENDPOINT_PARAM_KEYRING,
        .connect_timeout_ms = PEERS_CONNECT_MS,
        .tls = secured->by[1].tls,
        .keyring = secured->by[1].keyring};
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    bool failed;

    failing_alloc_arm(n);
    status =
        tmsg_endpoint_connect(secured->pair.b.worker, url, &params, &endpoint);
    if (status == TMSG_OK) {
        pair_await(&secured->pair, is_over, endpoint, "the end of a dial");
    }
    failed = failing_alloc_disarm();
    if (status == TMSG_OK) {
        must_true(failed || tmsg_endpoint_status(endpoint) == TMSG_OK);
        must_true(tmsg_endpoint_status(endpoint) != TMSG_ERR_TIMED_OUT);
        tmsg_endpoint_destroy(endpoint);
    } else {
        must_be(status, TMSG_ERR_NO_MEMORY);
    }
    return failed;
}

static void fail_some(by_t by)
{
    unsigned long step = !whole_run() ? STEP : by == BY_KEYS ? 1 : WHOLE_STEP;
    unsigned long n = 1;
    secured_t secured;
    char words[512];

    secured_prepare(&secured, by, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    dial_failing(&secured, 0); /* what is made once and kept for ever */
    while (dial_failing(&secured, n)) {
        must(secured_try(&secured.pair,
                         tmsg_listener_url(secured.pair.a.listener),
                         secured.by[1], words, sizeof(words)));
        n += step;
    }
    printf("%lu allocations\n", n);
    secured_drop(&secured);
}

Test(tls_alloc, may_fail_with_certificates) { fail_some(BY_CERTS); }
Test(tls_alloc, may_fail_with_keys) { fail_some(BY_KEYS); }

/* Credentials are read again and again, and leave what was. */
Test(tls_alloc, may_fail_in_a_reload)
{
    unsigned long n = 1, step = whole_run() ? WHOLE_STEP : STEP;
    secured_t secured;
    char words[512];
    bool failed;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    do {
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = tmsg_tls_reload(secured.by[0].tls);
        failed = failing_alloc_disarm();
        must_true(failed || status == TMSG_OK);
        n += step;
    } while (failed);
    must(secured_try(&secured.pair, tmsg_listener_url(secured.pair.a.listener),
                     secured.by[1], words, sizeof(words)));
    secured_drop(&secured);
}
