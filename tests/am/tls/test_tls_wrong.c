/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Who is refused at tls://, and in which words, on both sides: peers of ours,
 * openssl's client and server, and those who speak something else. The same
 * table is in docs/understand/security.md. */
#include <criterion/criterion.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/tls/secured.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"
#include "support/still_serves.h"

#define OUTPUT_BYTES ((size_t)64 * 1024)

static bool is_in_log(void *words) { return secured_log_has(words); }

static void log_says(pair_t *pair, const char *words)
{
    if (words != NULL) {
        pair_await(pair, is_in_log, (void *)(uintptr_t)words, words);
    }
}

/* b dials a, and is refused so. */
static void refuses(proof_t at_a, proof_t at_b, const char *scheme,
                    tmsg_status_t status, const char *told, const char *logged)
{
    char url[64], words[512];
    pair_t pair;

    secured_sides(&pair, DRIVE_POLLING);
    if (at_a.tls == NULL && at_a.keyring == NULL) {
        side_listen(&pair.a, "tcp://127.0.0.1:0");
    } else {
        secured_listen(&pair.a, SECURED_URL, at_a, 0);
    }
    snprintf(url, sizeof(url), "%s%s", scheme,
             tmsg_listener_url(pair.a.listener) + 3);
    secured_log();
    must_be(secured_try(&pair, url, at_b, words, sizeof(words)), status);
    must_say(words, told);
    log_says(&pair, logged);
    must_eq(pair.a.accepts, 0);
    pair_drop(&pair);
}

/* A certificate that is bad in this way, at either side. */
static void is_refused_at_each(const cert_says_t *says, const char *words,
                               const char *alert)
{
    secured_t secured;
    cert_t bad;
    proof_t by;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make(&bad, "bad", &secured.ca, says);
    by = (proof_t){.tls = cert_tls(&secured.ca, &bad)};
    refuses(secured.by[0], by, "tls", TMSG_ERR_REFUSED, alert, words);
    refuses(by, secured.by[1], "tls", TMSG_ERR_INSECURE, words, alert);
    tmsg_tls_destroy(by.tls);
    cert_free(&bad);
    secured_drop(&secured);
}

Test(tls_wrong, a_certificate_that_has_expired)
{
    is_refused_at_each(&(cert_says_t){.from_s = -7200, .to_s = -3600},
                       "CN = bad has expired at 20",
                       "this side's certificate has expired");
}

Test(tls_wrong, a_certificate_that_is_not_yet_valid)
{
    is_refused_at_each(&(cert_says_t){.from_s = 3600, .to_s = 7200},
                       "CN = bad is not yet valid, but from 20",
                       "this side's certificate is not one that it takes");
}

/* Each is for the other side only. */
Test(tls_wrong, a_certificate_for_another_use)
{
    secured_t secured;
    cert_t dials, listens;
    proof_t by_dials, by_listens;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make(&dials, "dials", &secured.ca,
              &(cert_says_t){.usage = "clientAuth"});
    cert_make(&listens, "listens", &secured.ca,
              &(cert_says_t){.usage = "serverAuth"});
    by_dials = (proof_t){.tls = cert_tls(&secured.ca, &dials)};
    by_listens = (proof_t){.tls = cert_tls(&secured.ca, &listens)};
    refuses(secured.by[0], by_listens, "tls", TMSG_ERR_REFUSED,
            "is not for this side (its extended key usage)",
            "CN = listens is not for a side that dials (its extended key");
    refuses(by_dials, secured.by[1], "tls", TMSG_ERR_INSECURE,
            "CN = dials is not for a side that listens (its extended key",
            "is not for this side (its extended key usage)");
    tmsg_tls_destroy(by_dials.tls);
    tmsg_tls_destroy(by_listens.tls);
    cert_free(&dials);
    cert_free(&listens);
    secured_drop(&secured);
}

Test(tls_wrong, a_certificate_of_another_name)
{
    static const cert_says_t says[] = {
        {.names = "DNS:example.org"}, {.names = ""}, {.names = "IP:10.0.0.1"}};
    static const char *const words[] = {
        "is not for '127.0.0.1', but for example.org",
        "is not for '127.0.0.1', but for nobody",
        "is not for '127.0.0.1', but for 10.0.0.1"};
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    for (size_t i = 0; i < 3; i++) {
        cert_t bad;
        proof_t by;

        cert_make(&bad, "bad", &secured.ca, &says[i]);
        by = (proof_t){.tls = cert_tls(&secured.ca, &bad)};
        refuses(by, secured.by[1], "tls", TMSG_ERR_INSECURE, words[i],
                "this side's certificate is not one that it takes");
        tmsg_tls_destroy(by.tls);
        cert_free(&bad);
    }
    secured_drop(&secured);
}

/* Who has no name that can be a principal's. */
Test(tls_wrong, a_certificate_that_names_nobody)
{
    secured_t secured;
    cert_t bad;
    proof_t by;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make(&bad, "bad", &secured.ca, &(cert_says_t){.cn = "two words"});
    by = (proof_t){.tls = cert_tls(&secured.ca, &bad)};
    refuses(secured.by[0], by, "tls", TMSG_ERR_REFUSED,
            "this side's certificate is not one that it takes",
            "the peer's certificate names nobody");
    tmsg_tls_destroy(by.tls);
    cert_free(&bad);
    secured_drop(&secured);
}

Test(tls_wrong, a_certificate_of_another_authority)
{
    secured_t secured;
    cert_t other, bad, lonely;
    proof_t by, by_lonely;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make_ca(&other, "other-ca");
    cert_make(&bad, "bad", &other, NULL);
    cert_make(&lonely, "lonely", NULL, NULL);
    by = (proof_t){.tls = cert_tls(&secured.ca, &bad)};
    by_lonely = (proof_t){.tls = cert_tls(&secured.ca, &lonely)};
    refuses(
        secured.by[0], by, "tls", TMSG_ERR_REFUSED,
        "this side's certificate is not signed by one of its authorities (ca)",
        "CN = other-ca, which is not an authority (ca) of this side");
    refuses(
        by, secured.by[1], "tls", TMSG_ERR_INSECURE,
        "CN = other-ca, which is not an authority (ca) of this side",
        "this side's certificate is not signed by one of its authorities (ca)");
    refuses(
        secured.by[0], by_lonely, "tls", TMSG_ERR_REFUSED,
        "this side's certificate is not signed by one of its authorities (ca)",
        "CN = lonely, which is not an authority (ca) of this side");
    tmsg_tls_destroy(by.tls);
    tmsg_tls_destroy(by_lonely.tls);
    cert_free(&other);
    cert_free(&bad);
    cert_free(&lonely);
    secured_drop(&secured);
}

/* b shows the client's certificate, and a asks this list. */
static void asks_list(secured_t *secured, const char *crl, tmsg_status_t status,
                      const char *told, const char *logged)
{
    const tmsg_tls_params_t params = {
        .field_mask = TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT |
                      TMSG_TLS_PARAM_KEY | TMSG_TLS_PARAM_CRL,
        .ca = secured->ca.path,
        .cert = secured->certs[0].path,
        .key = secured->certs[0].key_path,
        .crl = crl};
    proof_t by = {.tls = NULL};

    must(tmsg_tls_create(&params, &by.tls));
    refuses(by, secured->by[1], "tls", status, told, logged);
    tmsg_tls_destroy(by.tls);
}

Test(tls_wrong, a_certificate_that_was_revoked)
{
    secured_t secured;
    cert_t other;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make_ca(&other, "other-ca");
    asks_list(&secured, cert_write_crl(&secured.ca, &secured.certs[1], 3600),
              TMSG_ERR_REFUSED, "this side's certificate was revoked",
              "CN = client was revoked");
    asks_list(&secured, cert_write_crl(&secured.ca, NULL, -60),
              TMSG_ERR_REFUSED, "the peer refuses",
              "list of revoked certificates is out of date");
    asks_list(&secured, cert_write_crl(&other, NULL, 3600), TMSG_ERR_REFUSED,
              "the peer refuses",
              "list of revoked certificates is not in the crl file");
    cert_free(&other);
    secured_drop(&secured);
}

/* A list that was renewed counts from the reload on; who is in stays. */
Test(tls_wrong, a_certificate_that_is_revoked_later)
{
    secured_t secured;
    tmsg_tls_params_t params = {.field_mask =
                                    TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT |
                                    TMSG_TLS_PARAM_KEY | TMSG_TLS_PARAM_CRL};
    char words[512];

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    params.ca = secured.ca.path;
    params.cert = secured.certs[0].path;
    params.key = secured.certs[0].key_path;
    params.crl = cert_write_crl(&secured.ca, NULL, 3600);
    tmsg_tls_destroy(secured.by[0].tls);
    must(tmsg_tls_create(&params, &secured.by[0].tls));
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    secured_connect(&secured, tmsg_listener_url(secured.pair.a.listener), NULL);
    cert_write_crl(&secured.ca, &secured.certs[1], 3600);
    must(tmsg_tls_reload(secured.by[0].tls));
    must_be(secured_try(&secured.pair,
                        tmsg_listener_url(secured.pair.a.listener),
                        secured.by[1], words, sizeof(words)),
            TMSG_ERR_REFUSED);
    must_say(words, "this side's certificate was revoked");
    secured_close(&secured);
}

Test(tls_wrong, another_key_or_none_of_its_kind)
{
    const proof_t other = {.keyring = ring("server", 2)};
    secured_t keys, certs;

    secured_prepare(&keys, BY_KEYS, DRIVE_POLLING);
    secured_prepare(&certs, BY_CERTS, DRIVE_POLLING);
    refuses(keys.by[0], other, "tls", TMSG_ERR_REFUSED, "the peer refuses",
            "the peer proves no key that is in this side's keyring");
    refuses(keys.by[0], certs.by[1], "tls", TMSG_ERR_REFUSED,
            "the peer refuses",
            "the peer proves no key that is in this side's keyring");
    refuses(certs.by[0], keys.by[1], "tls", TMSG_ERR_INSECURE,
            "the peer shows a certificate, and has proved no key",
            "the peer refuses");
    tmsg_keyring_destroy(other.keyring);
    secured_drop(&keys);
    secured_drop(&certs);
}

Test(tls_wrong, one_side_in_the_clear)
{
    static const char clear[] = "the peer speaks in the clear: it uses tcp://";
    const proof_t none = {.tls = NULL};
    secured_t secured;

    for (by_t by = BY_CERTS; by < PROOFS; by++) {
        secured_prepare(&secured, by, DRIVE_POLLING);
        refuses(secured.by[0], none, "tcp", TMSG_ERR_INCOMPATIBLE,
                "refused by the peer: this side uses tls://", clear);
        refuses(none, secured.by[1], "tls", TMSG_ERR_INCOMPATIBLE, clear,
                "the peer begins with TLS: it uses tls://");
        secured_drop(&secured);
    }
}

/* What a stranger says who speaks no TLS, and what the listener says of it. */
Test(tls_wrong, other_protocols)
{
    static const struct {
        const char *said;
        size_t bytes;
        const char *logged;
    } strangers[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27,
         "the peer does not speak TLS: it began with 'GET / HT'"},
        {"SSH-2.0-OpenSSH_9.2\r\n", 21,
         "the peer does not speak TLS: it began with 'SSH-2.0-'"},
        {"\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, /* as UCX's TCP */
         "the peer does not speak TLS: it began with '"},
        {"\x16\x03\x01\x7f\xff" /* a record that is too long */ "aaaaaaaaaaaaaa"
         "a",
         20, "TLS: "},
        {"\x16\x03\x01\0\x05\x01\0\0\x01\0", 10, "TLS: "},
        {"\x17\x03\x03\0\x05" /* data to begin with */ "aaaaa", 10, "TLS: "},
    };
    secured_t secured;
    raw_reader_t reader;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        secured_log();
        memset(&reader, 0, sizeof(reader));
        reader.fd = raw_dial(tmsg_listener_url(secured.pair.a.listener));
        raw_send(reader.fd, strangers[i].said, strangers[i].bytes);
        log_says(&secured.pair, strangers[i].logged);
        pair_await(&secured.pair, raw_closed, &reader, "the end");
        close(reader.fd);
    }
    secured_connect(&secured, tmsg_listener_url(secured.pair.a.listener), NULL);
    secured_close(&secured);
}

/* Runs `openssl s_client` at a's listener, which a thread drives, and returns
 * all that it says. */
static const char *run_client(const secured_t *secured, const char *options)
{
    static char output[OUTPUT_BYTES];
    const char *url = tmsg_listener_url(secured->pair.a.listener);
    char command[1024];
    size_t used = 0, got;
    FILE *client;

    snprintf(
        command, sizeof(command),
        "echo junk | timeout 30 openssl s_client -connect %s -CAfile %s %s "
        "-ign_eof 2>&1",
        url + strlen("tls://"), secured->ca.path, options);
    client = popen(command, "r");
    must_true(client != NULL);
    while ((got = fread(output + used, 1, sizeof(output) - 1 - used, client)) >
           0) {
        used += got;
    }
    output[used] = '\0';
    pclose(client);
    return output;
}

/* A client of openssl's with these options is told that, and the listener says
 * so. */
typedef struct {
    const char *options;
    const char *told;
    const char *logged;
} client_t;

static void meet(secured_t *secured, const char *shown, const client_t *client)
{
    char options[512];

    secured_log();
    snprintf(options, sizeof(options), "%s %s", shown, client->options);
    must_say(run_client(secured, options), client->told);
    log_says(&secured->pair, client->logged);
    must_eq(secured->pair.a.accepts, 0);
}

/* The options by which openssl's client shows a certificate. */
static const char *showing(const cert_t *cert)
{
    static char options[512];

    snprintf(options, sizeof(options), "-cert %s -key %s", cert->path,
             cert->key_path);
    return options;
}

#define ALPN "-alpn tensormsg/1 "

Test(tls_wrong, clients_of_openssl)
{
    static const client_t clients[] = {
        {ALPN "-tls1_2", "alert protocol version",
         "the peer does not speak TLS 1.3"},
        /* By 8192 bits it would take 200 times as long as by X25519. */
        {ALPN "-groups ffdhe8192", "alert handshake failure",
         "have no group for the exchange of keys in common"},
        {ALPN "-ciphersuites TLS_AES_128_CCM_SHA256", "alert handshake failure",
         "the two sides have no cipher in common"},
        {"", "alert no application protocol",
         "the peer speaks TLS, but not tensormsg"},
        {"-alpn http/1.1", "alert no application protocol",
         "the peer speaks TLS, but not tensormsg"},
    };
    static const client_t bare = {ALPN, "alert certificate required",
                                  "the peer has shown no certificate"};
    static const client_t psk = {
        ALPN "-psk_identity me -psk 0102030405060708090a0b0c0d0e0f10",
        "alert certificate required", "the peer has shown no certificate"};
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        meet(&secured, showing(&secured.certs[1]), &clients[i]);
    }
    meet(&secured, "", &bare);
    meet(&secured, "", &psk);
    secured_drop(&secured);
}

Test(tls_wrong, clients_of_openssl_with_bad_certificates)
{
    static const struct {
        cert_says_t says;
        client_t client;
    } rows[] = {
        {{.from_s = -7200, .to_s = -3600},
         {ALPN, "alert certificate expired", "CN = bad has expired at"}},
        {{.from_s = 3600, .to_s = 7200},
         {ALPN, "alert bad certificate", "CN = bad is not yet valid"}},
        {{.usage = "serverAuth"},
         {ALPN, "alert unsupported certificate",
          "CN = bad is not for a side that dials"}},
    };
    static const client_t unknown = {
        ALPN, "alert unknown ca",
        "which is not an authority (ca) of this side"};
    cert_t bad, other;
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cert_make(&bad, "bad", &secured.ca, &rows[i].says);
        meet(&secured, showing(&bad), &rows[i].client);
        cert_free(&bad);
    }
    cert_make_ca(&other, "other-ca");
    cert_make(&bad, "bad", &other, NULL);
    meet(&secured, showing(&bad), &unknown);
    cert_free(&bad);
    cert_free(&other);
    secured_drop(&secured);
}

Test(tls_wrong, clients_of_openssl_with_keys)
{
    static const char no_key[] =
        "the peer proves no key that is in this side's keyring";
    static const client_t clients[] = {
        {ALPN "-psk_identity me -psk 0102030405060708090a0b0c0d0e0f10",
         "alert handshake failure", no_key},
        /* The right identity, which everybody on the way sees. */
        {ALPN, "alert handshake failure", no_key},
    };
    secured_t secured;

    secured_prepare(&secured, BY_KEYS, DRIVE_THREAD);
    cert_make_ca(&secured.ca, "ca");
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        meet(&secured, "", &clients[i]);
    }
    secured_drop(&secured);
}

/* Neither a ticket to come back by, nor early data. */
Test(tls_wrong, a_client_that_asks_for_tickets_gets_none)
{
    char options[512];
    const char *said;
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    snprintf(options, sizeof(options), "-msg -state " ALPN "%s",
             showing(&secured.certs[1]));
    secured_log();
    said = run_client(&secured, options);
    must_say(said, "Verification: OK");
    must_say(said, "ALPN protocol: tensormsg/1");
    must_say(said, "Early data was not sent");
    log_says(&secured.pair, "junk"); /* it was let in, and spoke no frames */
    must_true(strstr(said, "NewSessionTicket") == NULL);
    must_true(strstr(said, "Session-ID:") == NULL);
    secured_drop(&secured);
}

/* A server of OpenSSL's, which is dialled once. */
typedef struct {
    SSL_CTX *context;
    int fd;
    const char *says; /* what it writes instead of TLS; NULL: nothing */
    char url[64];
    char error[256]; /* OpenSSL's words, in the end */
    pthread_t thread;
} server_t;

static void *serve(void *arg)
{
    server_t *server = arg;
    int fd = accept(server->fd, NULL, NULL);
    SSL *ssl = SSL_new(server->context);
    char junk[1024];

    if (server->says != NULL) {
        send(fd, server->says, strlen(server->says), MSG_NOSIGNAL);
        while (recv(fd, junk, sizeof(junk), 0) > 0) {
        }
    } else {
        SSL_set_fd(ssl, fd);
        if (SSL_accept(ssl) == 1) {
            while (SSL_read(ssl, junk, sizeof(junk)) > 0) {
            }
        }
        ERR_error_string_n(ERR_peek_last_error(), server->error,
                           sizeof(server->error));
    }
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static int choose(SSL *ssl, const unsigned char **chosen_p,
                  unsigned char *bytes_p, const unsigned char *offered,
                  unsigned offered_bytes, void *arg)
{
    const char *protocol = arg;

    (void)ssl;
    (void)offered_bytes;
    if (protocol == NULL) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *chosen_p = offered + 1;
    *bytes_p = offered[0];
    return SSL_TLSEXT_ERR_OK;
}

static void begin_server(server_t *server, const secured_t *secured)
{
    memset(server, 0, sizeof(*server));
    server->context = SSL_CTX_new(TLS_server_method());
    must_eq(SSL_CTX_use_certificate_chain_file(server->context,
                                               secured->certs[0].path),
            1);
    must_eq(SSL_CTX_use_PrivateKey_file(
                server->context, secured->certs[0].key_path, SSL_FILETYPE_PEM),
            1);
    server->fd = raw_listen(server->url, sizeof(server->url));
    memcpy(server->url, "tls", 3);
}

/* b dials that, and is told so; the server hears so much. */
static void dials(secured_t *secured, server_t *server, tmsg_status_t status,
                  const char *told, const char *heard)
{
    char words[512];

    must_eq(pthread_create(&server->thread, NULL, serve, server), 0);
    must_be(secured_try(&secured->pair, server->url, secured->by[1], words,
                        sizeof(words)),
            status);
    must_say(words, told);
    pthread_join(server->thread, NULL);
    must_say(server->error, heard);
    SSL_CTX_free(server->context);
    close(server->fd);
}

Test(tls_wrong, servers_of_openssl)
{
    secured_t secured;
    server_t server;

    signal(SIGPIPE, SIG_IGN);
    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    begin_server(&server, &secured);
    SSL_CTX_set_max_proto_version(server.context, TLS1_2_VERSION);
    dials(&secured, &server, TMSG_ERR_INCOMPATIBLE, "it does not speak TLS 1.3",
          "unsupported protocol");

    begin_server(&server, &secured);
    SSL_CTX_set_ciphersuites(server.context, "TLS_AES_128_CCM_SHA256");
    dials(&secured, &server, TMSG_ERR_REFUSED,
          "the two have no cipher in common", "no shared cipher");

    begin_server(&server, &secured); /* chooses no protocol */
    dials(&secured, &server, TMSG_ERR_INCOMPATIBLE,
          "the peer speaks TLS, but not tensormsg", "");

    begin_server(&server, &secured);
    SSL_CTX_set_alpn_select_cb(server.context, choose, NULL);
    dials(&secured, &server, TMSG_ERR_INCOMPATIBLE,
          "it speaks TLS, but not tensormsg", "no application protocol");

    begin_server(&server, &secured);
    server.says = "HTTP/1.1 400 Bad Request\r\n\r\n";
    dials(&secured, &server, TMSG_ERR_MALFORMED,
          "the peer does not speak TLS: it began with 'HTTP/1.1'", "");
    secured_drop(&secured);
}
