/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A peer that proves who it is, by OpenSSL itself, and then lies: it loses its
 * connection, and nobody else does. */
#include <criterion/criterion.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "am/boot/proof.h"
#include "am/endpoint/endpoint.h"
#include "am/tls/secured.h"
#include "am/ucx/ucx_pipe.h"
#include "core/bytes.h"
#include "support/large_messages.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

#define CLAIM_BYTES 36
#define FLOOD 40000

/* The peer, by hand. What it heard is in `heard`. */
typedef struct {
    SSL_CTX *context;
    SSL *ssl;
    raw_reader_t heard;
} liar_t;

static void connect_as(liar_t *liar, const secured_t *secured,
                       const cert_t *cert)
{
    const struct timeval patience = {.tv_sec = PEERS_BOUND_MS / 1000};

    memset(liar, 0, sizeof(*liar));
    liar->context = SSL_CTX_new(TLS_client_method());
    must_eq(SSL_CTX_use_certificate_chain_file(liar->context, cert->path), 1);
    must_eq(SSL_CTX_use_PrivateKey_file(liar->context, cert->key_path,
                                        SSL_FILETYPE_PEM),
            1);
    SSL_CTX_set_alpn_protos(liar->context,
                            (const unsigned char *)"\x0btensormsg/1", 12);
    liar->ssl = SSL_new(liar->context);
    liar->heard.fd = raw_dial(tmsg_listener_url(secured->pair.a.listener));
    setsockopt(liar->heard.fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
               sizeof(patience));
    SSL_set_fd(liar->ssl, liar->heard.fd);
    must_eq(SSL_connect(liar->ssl), 1);
}

static void leave(liar_t *liar)
{
    SSL_free(liar->ssl);
    SSL_CTX_free(liar->context);
    close(liar->heard.fd);
}

static void say(liar_t *liar, const void *data, size_t bytes)
{
    must_eq(SSL_write(liar->ssl, data, (int)bytes), bytes);
}

static void say_magic(liar_t *liar)
{
    say(liar, TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
}

static void say_frame(liar_t *liar, uint8_t type, const void *data,
                      size_t bytes)
{
    uint8_t frame[TMSG_FRAME_HEADER_BYTES + TMSG_HELLO_BYTES_MAX];

    *tmsg_put_le(frame, bytes, 4) = type;
    memcpy(frame + TMSG_FRAME_HEADER_BYTES, data, bytes);
    say(liar, frame, TMSG_FRAME_HEADER_BYTES + bytes);
}

/* Returns whether more was heard; not: the connection has ended. */
static bool hear(liar_t *liar)
{
    raw_reader_t *heard = &liar->heard;
    int got = SSL_read(liar->ssl, heard->data + heard->bytes,
                       (int)(sizeof(heard->data) - heard->bytes));

    heard->bytes += got > 0 ? (size_t)got : 0;
    return got > 0;
}

static void is_ended(liar_t *liar)
{
    while (hear(liar)) {
    }
    leave(liar);
}

/* An honest peer still gets in. */
static void still_serves(secured_t *secured)
{
    char words[512];

    must(secured_try(&secured->pair,
                     tmsg_listener_url(secured->pair.a.listener),
                     secured->by[1], words, sizeof(words)));
}

static void prepare(secured_t *secured)
{
    signal(SIGPIPE, SIG_IGN);
    secured_prepare(secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&secured->pair.a, SECURED_URL, secured->by[0], 0);
    secured_log();
}

static size_t good_hello(uint8_t *data, size_t room)
{
    tmsg_hello_t hello;
    size_t bytes;

    raw_hello(&hello);
    hello.features |= TMSG_FEATURE_CARRIERS | TMSG_FEATURE_REPLIES;
    must(tmsg_hello_encode(&hello, data, room, &bytes));
    return bytes;
}

Test(tls_lies, a_bad_hello_ends_a_connection)
{
    static const uint8_t junk[64] = {0xff, 0xff, 0xff, 0xff};
    static const uint8_t types[] = {
        TMSG_FRAME_HELLO, TMSG_FRAME_PROOF,   TMSG_FRAME_ADDRESS,
        TMSG_FRAME_BYE,   TMSG_FRAME_RESUME,  TMSG_FRAME_CARRIER,
        TMSG_FRAME_BULK,  TMSG_FRAME_SEGMENT, 99};
    uint8_t hello[TMSG_HELLO_BYTES_MAX];
    size_t bytes = good_hello(hello, sizeof(hello));
    secured_t secured;
    liar_t liar;

    prepare(&secured);
    for (size_t i = 0; i < sizeof(types); i++) {
        connect_as(&liar, &secured, &secured.certs[1]);
        say_magic(&liar);
        say_frame(&liar, types[i], junk, i % 2 == 0 ? sizeof(junk) : 0);
        is_ended(&liar);
    }
    for (size_t cut = 1; cut < bytes; cut += bytes / 7) {
        connect_as(&liar, &secured, &secured.certs[1]);
        say_magic(&liar);
        say_frame(&liar, TMSG_FRAME_HELLO, hello, bytes - cut);
        is_ended(&liar);
    }
    connect_as(&liar, &secured, &secured.certs[1]); /* a frame of 4 GiB */
    say_magic(&liar);
    say(&liar, junk, sizeof(junk));
    is_ended(&liar);
    connect_as(&liar, &secured, &secured.certs[1]);
    say(&liar, junk, sizeof(junk)); /* no magic */
    is_ended(&liar);
    still_serves(&secured);
    must_true(secured.pair.a.accepts <= 1);
    secured_drop(&secured);
}

/* Dials, up to the address, and makes of it what claims its stream. */
static void await_stream(liar_t *liar, const secured_t *secured,
                         const cert_t *cert, uint8_t claim[CLAIM_BYTES])
{
    uint8_t hello[TMSG_HELLO_BYTES_MAX], address[4 + TMSG_TOKEN_BYTES];
    size_t bytes = good_hello(hello, sizeof(hello));
    const char *said;

    connect_as(liar, secured, cert);
    say_magic(liar);
    say_frame(liar, TMSG_FRAME_HELLO, hello, bytes);
    while ((said = raw_find_frame(&liar->heard, TMSG_FRAME_ADDRESS, 0)) ==
           NULL) {
        must_true(hear(liar));
    }
    must_eq(raw_frame_bytes(&liar->heard, TMSG_FRAME_ADDRESS), sizeof(address));
    memcpy(claim, said, 4);
    tmsg_proof_claim(TMSG_CLAIMS_CARRIER, NULL, said, sizeof(address),
                     claim + 4);
    memcpy(address, said, sizeof(address));
    tmsg_put_le(address, 7, 4);
    say_frame(liar, TMSG_FRAME_ADDRESS, address, sizeof(address));
}

static void claim_as(liar_t *liar, const secured_t *secured, const cert_t *cert,
                     const uint8_t claim[CLAIM_BYTES])
{
    connect_as(liar, secured, cert);
    say_magic(liar);
    say_frame(liar, TMSG_FRAME_CARRIER, claim, CLAIM_BYTES);
}

/* Whoever knows all that was said of a connection, and is somebody else. */
Test(tls_lies, a_stream_of_another_principal_cannot_be_claimed)
{
    uint8_t claim[CLAIM_BYTES];
    liar_t honest, liar;
    secured_t secured;
    cert_t mallory;

    prepare(&secured);
    cert_make(&mallory, "mallory", &secured.ca, NULL);
    await_stream(&honest, &secured, &secured.certs[1], claim);
    claim_as(&liar, &secured, &mallory, claim);
    is_ended(&liar);
    must_eq(secured.pair.a.accepts, 0);
    claim_as(&liar, &secured, &secured.certs[1], claim); /* the control */
    while (raw_find_frame(&liar.heard, TMSG_FRAME_CARRIER, 0) == NULL) {
        must_true(hear(&liar));
    }
    leave(&liar);
    leave(&honest);
    still_serves(&secured);
    cert_free(&mallory);
    secured_drop(&secured);
}

static bool is_in_log(void *words) { return secured_log_has(words); }

static void log_says(secured_t *secured, const char *words)
{
    pair_await(&secured->pair, is_in_log, (void *)(uintptr_t)words, words);
}

/* One behind the other, and each asks for an answer that is not read. */
Test(tls_lies, a_flood_of_new_keys_ends_a_connection)
{
    BIO *flood = BIO_new(BIO_s_mem());
    secured_t secured;
    liar_t liar;
    char *data;
    long bytes;

    prepare(&secured);
    connect_as(&liar, &secured, &secured.certs[1]);
    SSL_set0_wbio(liar.ssl, flood);
    for (int i = 0; i < FLOOD; i++) {
        must_eq(SSL_key_update(liar.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        must_eq(SSL_do_handshake(liar.ssl), 1);
    }
    bytes = BIO_get_mem_data(flood, &data);
    send(liar.heard.fd, data, (size_t)bytes, MSG_NOSIGNAL);
    is_ended(&liar);
    log_says(&secured, "the peer sends TLS records without data");
    still_serves(&secured);
    secured_drop(&secured);
}

/* A record whose second half never comes keeps a place no longer than any
 * other handshake. */
Test(tls_lies, half_a_record_and_silence_time_out)
{
    static const uint8_t half[] = {0x17, 3, 3, 0x40, 0, 1, 2, 3};
    const tmsg_listener_params_t params = {
        .field_mask =
            TMSG_LISTENER_PARAM_TLS | TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT,
        .handshake_timeout_ms = 300};
    tmsg_listener_params_t here = params;
    secured_t secured;
    liar_t liar;
    int silent;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    here.tls = secured.by[0].tls;
    must(tmsg_listener_create(secured.pair.a.worker, SECURED_URL, &here,
                              &secured.pair.a.listener));
    secured_log();
    silent = raw_dial(tmsg_listener_url(secured.pair.a.listener));
    raw_send(silent, half, 5);
    close(silent);
    connect_as(&liar, &secured, &secured.certs[1]);
    raw_send(liar.heard.fd, half, sizeof(half));
    is_ended(&liar);
    log_says(&secured, "the handshake was not finished in time");
    secured_drop(&secured);
}

Test(tls_lies, a_record_of_garbage_ends_a_connection)
{
    uint8_t record[5 + 64] = {0x17, 3, 3, 0, 64, 1, 2, 3};
    secured_t secured;
    liar_t liar;

    prepare(&secured);
    connect_as(&liar, &secured, &secured.certs[1]);
    raw_send(liar.heard.fd, record, sizeof(record));
    is_ended(&liar);
    log_says(&secured, "a TLS record was changed");
    still_serves(&secured);
    secured_drop(&secured);
}

static bool has_second(void *arg) { return ((side_t *)arg)->accepts > 1; }

/* Amid the messages of one that stands: both sides know, and the other
 * connection of the same sides goes on. */
Test(tls_lies, a_record_of_garbage_ends_a_stream)
{
    uint8_t record[5 + 64] = {0x17, 3, 3, 0, 64, 1, 2, 3};
    tmsg_endpoint_t *other;
    tmsg_request_t *sent;
    secured_t secured;
    pair_t *pair = &secured.pair;

    secured_open(&secured, BY_CERTS, DRIVE_POLLING);
    other = pair->to_a;
    secured_connect(&secured, tmsg_listener_url(pair->a.listener), NULL);
    pair_await(pair, has_second, &pair->a, "the second connection");
    pair->to_b = pair->a.accepted;
    must_eq(send(tmsg_pipe_fd(tmsg_ucx_pipe_of(pair->to_a->ep)), record,
                 sizeof(record), 0),
            sizeof(record));
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair->to_b), "a TLS record was changed");
    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST);
    sent = send_map(other, sample_bytes(1, 100), TMSG_SEND_ACKED);
    large_take(pair, &pair->a, 1, 100);
    must(pair_finish(pair, sent));
    secured_drop(&secured);
}
