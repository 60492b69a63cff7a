/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Keys are renewed under load, in both directions. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "am/tls/secure.h"
#include "am/tls/secured.h"
#include "support/large_messages.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define EACH ((size_t)16 << 20)
#define RECORD ((size_t)16 * 1024)
enum { MAPS = 6, SEED = 100 };

static atomic_uint sent, received;

/* Counts what is said of new keys. */
static void note(int writes, int version, int type, const void *data,
                 size_t bytes, SSL *ssl, void *arg)
{
    (void)version;
    (void)ssl;
    (void)arg;
    if (type == SSL3_RT_HANDSHAKE && bytes > 0 &&
        *(const unsigned char *)data == SSL3_MT_KEY_UPDATE) {
        (*(writes ? &sent : &received))++;
    }
}

static void renew_often(secured_t *secured, int of)
{
    const tmsg_tls_params_t params = {
        .field_mask = TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT |
                      TMSG_TLS_PARAM_KEY | TMSG_TLS_PARAM_REKEY_BYTES,
        .ca = secured->ca.path,
        .cert = secured->certs[of].path,
        .key = secured->certs[of].key_path,
        .rekey_bytes = RECORD};
    SSL_CTX *context;

    tmsg_tls_destroy(secured->by[of].tls);
    must(tmsg_tls_create(&params, &secured->by[of].tls));
    context = tmsg_tls_context(secured->by[of].tls);
    SSL_CTX_set_msg_callback(context, note);
    SSL_CTX_free(context);
}

/* All at once both ways, so that a new key comes amid what goes there. */
Test(tls_keys, are_renewed_both_ways_under_load)
{
    size_t bytes = is_slow() ? EACH / 8 : EACH;
    tmsg_request_t *there[MAPS], *back[MAPS];
    secured_t secured;
    pair_t *pair = &secured.pair;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    renew_often(&secured, 0);
    renew_often(&secured, 1);
    secured_listen(&pair->a, SECURED_URL, secured.by[0], 0);
    secured_connect(&secured, tmsg_listener_url(pair->a.listener), NULL);
    for (unsigned i = 0; i < MAPS; i++) {
        there[i] = send_map(pair->to_a, sample_bytes(SEED + i, bytes),
                            TMSG_SEND_ACKED);
        back[i] = send_map(pair->to_b, sample_bytes(2 * SEED + i, bytes),
                           TMSG_SEND_ACKED);
    }
    for (unsigned i = 0; i < MAPS; i++) {
        large_take(pair, &pair->a, SEED + i, bytes);
        large_take(pair, &pair->b, 2 * SEED + i, bytes);
    }
    for (unsigned i = 0; i < MAPS; i++) {
        must(pair_finish(pair, there[i]));
        must(pair_finish(pair, back[i]));
    }
    must_true(sent >= 2 * MAPS * bytes / RECORD);
    must_true(received >= 2 * MAPS * bytes / RECORD);
    secured_close(&secured);
}
