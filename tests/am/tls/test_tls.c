/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What goes over tls://, by certificates and by keys: all that goes over
 * tcp://, and by TLS alone. */
#include <criterion/criterion.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/tls/secured.h"
#include "core/refs.h"
#include "support/breaking_relay.h"
#include "support/held_resources.h"
#include "support/large_messages.h"
#include "support/numbered_keys.h"
#include "support/offers.h"
#include "support/own_ports.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/stream_flow.h"

static const drive_t drives[PROOFS] = {DRIVE_FD, DRIVE_THREAD};

static void passes(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_request_t *there =
        send_map(pair->to_a, sample_bytes(seed, bytes), TMSG_SEND_ACKED);
    tmsg_request_t *back =
        send_map(pair->to_b, sample_bytes(seed + 1, bytes), TMSG_SEND_ACKED);

    large_take(pair, &pair->a, seed, bytes);
    large_take(pair, &pair->b, seed + 1, bytes);
    must(pair_finish(pair, there));
    must(pair_finish(pair, back));
}

static void is_called(const tmsg_endpoint_t *endpoint, const char *name)
{
    const char *principal = tmsg_endpoint_principal(endpoint);

    must_true(principal != NULL);
    must_true(strcmp(principal, name) == 0);
}

static void describes(const tmsg_endpoint_t *endpoint, const char *words)
{
    char *json;

    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, words);
    tmsg_string_free(json);
}

/* By certificates and by keys. */
static void by_each(void (*play)(secured_t *secured))
{
    for (by_t by = BY_CERTS; by < PROOFS; by++) {
        secured_t secured;

        secured_open(&secured, by, drives[by]);
        play(&secured);
        secured_close(&secured);
    }
}

static void know_each_other(secured_t *secured)
{
    pair_t *pair = &secured->pair;

    is_called(pair->to_a, "server");
    is_called(pair->to_b, "client");
    must_say(tmsg_endpoint_peer(pair->to_a), "tls://127.0.0.1:");
    must_say(tmsg_endpoint_peer(pair->to_b), "tls://127.0.0.1:");
    describes(pair->to_a, "\"carrier\":\t\"stream\"");
    describes(pair->to_b, "\"carrier\":\t\"stream\"");
    passes(pair, 1, 1000);
}

Test(tls, both_sides_know_each_other) { by_each(know_each_other); }

static void exchange(secured_t *secured) { large_exchange(&secured->pair); }

Test(tls, carries_small_and_large_maps) { by_each(exchange); }

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must_true(strcmp(tmsg_task_principal(task), "client") == 0);
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void call(pair_t *pair, size_t bytes)
{
    tmsg_map_t *map = sample_bytes(7, bytes);
    tmsg_call_t *made;

    must(tmsg_endpoint_call(pair->to_a, "echo", map, NULL, &made));
    tmsg_map_destroy(map);
    pair_await(pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), TMSG_OK);
    sample_check_bytes(7, bytes, tmsg_call_reply(made));
    tmsg_call_destroy(made);
}

static void stream(pair_t *pair, flow_t *here, flow_t *there)
{
    tmsg_map_t *map = sample_bytes(3, 300);
    tmsg_call_stream_t *opened;

    must(tmsg_endpoint_open_stream(pair->to_a, "flow", map, NULL, &opened));
    tmsg_map_destroy(map);
    flow_start(here, opened);
    pair_await(pair, flow_is_over, here, "the end of a stream");
    must_be(here->status, TMSG_OK);
    must_eq(here->got, there->sends);
    must_eq(there->got, here->sends);
    flow_drop(here);
    flow_drop(there);
}

static void call_and_stream(secured_t *secured)
{
    pair_t *pair = &secured->pair;
    tmsg_server_t *server;
    flow_t here, there;

    flow_init(&here, 1000, 5000000, 120);
    flow_init(&there, 5000000, 1000, 120);
    here.bytes = there.bytes = 300000;
    there.serves = true;
    must(tmsg_server_create(pair->a.worker, NULL, &server));
    must(tmsg_server_register(server, "echo", echo, NULL, NULL));
    must(tmsg_server_register_stream(server, "flow", flow_handler, &there,
                                     NULL));
    call(pair, 100);
    call(pair, 3000000);
    stream(pair, &here, &there);
    tmsg_server_destroy(server);
}

Test(tls, carries_calls_and_streams) { by_each(call_and_stream); }

static void fetch_and_publish(secured_t *secured)
{
    pair_t *pair = &secured->pair;
    tmsg_publisher_t *publisher;
    tmsg_request_t *published;
    tmsg_offer_key_t key;
    tmsg_map_t *map;
    heard_t heard;

    offer(pair, &heard, sample_bytes(5, 2000000), NULL);
    key = key_of(&heard);
    brings(pair, start(pair, &key, NULL), 5, 2000000);
    withdraw(&heard);

    must(tmsg_publisher_create(pair->a.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, pair->to_b, NULL));
    map = sample_bytes(6, 2000000);
    must(tmsg_publisher_publish(publisher, map, NULL, &published));
    tmsg_map_destroy(map);
    large_take(pair, &pair->b, 6, 2000000);
    must(pair_finish(pair, published));
    tmsg_publisher_destroy(publisher);
}

Test(tls, carries_fetches_and_publications) { by_each(fetch_and_publish); }

/* Not even local peers share memory, and UCX is not opened. */
Test(tls, opens_no_port_but_the_listeners_and_shares_no_memory)
{
    for (by_t by = BY_CERTS; by < PROOFS; by++) {
        int segments = left_look(NULL).segments;
        secured_t secured;

        secured_open(&secured, by, DRIVE_FD);
        must_eq(count_ports(), 1);
        passes(&secured.pair, 1, 3000000);
        must_eq(count_ports(), 1);
        must_eq(left_look(NULL).segments, segments);
        describes(secured.pair.to_a, "\"transports\":\t\"stream/tls\"");
        secured_close(&secured);
    }
}

Test(tls, cannot_be_carried_by_ucx)
{
    secured_t secured;
    tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_CARRIER | TMSG_LISTENER_PARAM_KEYRING,
        .carrier = TMSG_CARRIER_UCX};
    tmsg_endpoint_params_t dialling = {
        .field_mask = TMSG_ENDPOINT_PARAM_CARRIER | TMSG_ENDPOINT_PARAM_KEYRING,
        .carrier = TMSG_CARRIER_UCX};
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;

    secured_prepare(&secured, BY_KEYS, DRIVE_POLLING);
    listening.keyring = dialling.keyring = secured.by[0].keyring;
    must_be(tmsg_listener_create(secured.pair.a.worker, SECURED_URL, &listening,
                                 &listener),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "UCX does not encrypt");
    must_be(tmsg_endpoint_connect(secured.pair.a.worker, "tls://127.0.0.1:9",
                                  &dialling, &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "UCX does not encrypt");
    secured_drop(&secured);
}

/* Neither side goes on without proofs. */
Test(tls, needs_something_that_proves)
{
    tmsg_listener_params_t listening = {.field_mask = TMSG_LISTENER_PARAM_TLS};
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    must_be(tmsg_listener_create(secured.pair.a.worker, SECURED_URL, NULL,
                                 &listener),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "needs certificates (tls) or a keyring");
    must_be(tmsg_endpoint_connect(secured.pair.a.worker, "tls://127.0.0.1:9",
                                  NULL, &endpoint),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "needs certificates (tls) or a keyring");
    listening.tls = secured.by[0].tls;
    must_be(tmsg_listener_create(secured.pair.a.worker, "tcp://127.0.0.1:0",
                                 &listening, &listener),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "tls is for tls://");
    secured_drop(&secured);
}

/* Who is dialled while the credentials are given back still has them. */
Test(tls, credentials_may_be_destroyed_while_they_are_used)
{
    secured_t secured;
    char words[256];

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    tmsg_tls_destroy(secured.by[0].tls);
    secured.by[0].tls = NULL;
    secured.pair.to_a = secured_dial(&secured.pair.b,
                                     tmsg_listener_url(secured.pair.a.listener),
                                     secured.by[1], NULL);
    tmsg_tls_destroy(secured.by[1].tls);
    secured.by[1].tls = cert_tls(&secured.ca, &secured.certs[1]);
    must(secured_try(&secured.pair, tmsg_listener_url(secured.pair.a.listener),
                     secured.by[1], words, sizeof(words)));
    must_be(tmsg_endpoint_status(secured.pair.to_a), TMSG_OK);
    secured_drop(&secured);
}

static tmsg_status_t dial_again(secured_t *secured, char *words, size_t bytes)
{
    return secured_try(&secured->pair,
                       tmsg_listener_url(secured->pair.a.listener),
                       secured->by[1], words, bytes);
}

static bool has_other_principal(void *arg)
{
    const side_t *side = arg;

    return side->accepts > 1 &&
           strcmp(tmsg_endpoint_principal(side->accepted), "client-2") == 0;
}

Test(tls, a_reload_is_for_connections_to_come)
{
    secured_t secured;
    cert_t other;
    char words[512];

    secured_open(&secured, BY_CERTS, DRIVE_FD);
    cert_make(&other, "other", &secured.ca, &(cert_says_t){.cn = "client-2"});
    cert_replace(&secured.certs[1], &other);
    must(tmsg_tls_reload(secured.by[1].tls));
    must(dial_again(&secured, words, sizeof(words)));
    pair_await(&secured.pair, has_other_principal, &secured.pair.a,
               "the new certificate");
    passes(&secured.pair, 1, 100000);
    is_called(secured.pair.to_b, "client");
    cert_free(&other);
    secured_close(&secured);
}

static void spoil(const char *path)
{
    FILE *file = fopen(path, "w");

    must_true(file != NULL);
    fputs("-----BEGIN CERTIFICATE-----\nnonsense\n", file);
    fclose(file);
}

Test(tls, a_broken_file_leaves_what_was)
{
    secured_t secured;
    char words[512];

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    spoil(secured.certs[1].path);
    must_be(tmsg_tls_reload(secured.by[1].tls), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), secured.certs[1].path);
    must(dial_again(&secured, words, sizeof(words)));
    spoil(secured.ca.path);
    must_be(tmsg_tls_reload(secured.by[0].tls), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), secured.ca.path);
    unlink(secured.certs[0].key_path);
    must_be(tmsg_tls_reload(secured.by[0].tls), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), secured.certs[0].key_path);
    must(dial_again(&secured, words, sizeof(words)));
    secured_drop(&secured);
}

/* As cert_tls(), and what `more` says. */
static tmsg_status_t create(const secured_t *secured, int of,
                            tmsg_tls_params_t more, tmsg_tls_t **tls_p)
{
    more.field_mask |= TMSG_TLS_PARAM_CERT | TMSG_TLS_PARAM_KEY;
    more.cert = secured->certs[of].path;
    more.key = secured->certs[of].key_path;
    if ((more.field_mask & TMSG_TLS_PARAM_CA) == 0 && more.pin == NULL) {
        more.field_mask |= TMSG_TLS_PARAM_CA;
        more.ca = secured->ca.path;
    }
    return tmsg_tls_create(&more, tls_p);
}

/* What b is told that dials with what `more` says. */
static tmsg_status_t dial_with(secured_t *secured, tmsg_tls_params_t more,
                               char *words, size_t bytes)
{
    proof_t by = {.tls = NULL};
    tmsg_status_t status;

    must(create(secured, 1, more, &by.tls));
    status =
        secured_try(&secured->pair, tmsg_listener_url(secured->pair.a.listener),
                    by, words, bytes);
    tmsg_tls_destroy(by.tls);
    return status;
}

Test(tls, a_pin_stands_for_an_authority_or_beside_it)
{
    tmsg_tls_params_t pinned = {.field_mask = TMSG_TLS_PARAM_PIN};
    char right[65], wrong[65], two[130], words[512];
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    cert_pin(&secured.certs[0], right);
    cert_pin(&secured.certs[1], wrong);
    snprintf(two, sizeof(two), "%s,%s", wrong, right);
    for (int with_ca = 0; with_ca < 2; with_ca++) {
        pinned.pin = right;
        must(dial_with(&secured, pinned, words, sizeof(words)));
        pinned.pin = two;
        must(dial_with(&secured, pinned, words, sizeof(words)));
        pinned.pin = wrong;
        must_be(dial_with(&secured, pinned, words, sizeof(words)),
                TMSG_ERR_INSECURE);
        must_say(words, "public key is not pinned");
        pinned.field_mask |= TMSG_TLS_PARAM_CA;
        pinned.ca = secured.ca.path;
    }
    secured_drop(&secured);
}

/* Whatever the certificate says, which the peer may have written itself. */
Test(tls, a_pinned_peer_has_the_name_of_its_pin)
{
    static const char *const names[] = {"", "server=", "alice="};

    for (int i = 0; i < 3; i++) {
        char digits[65], pin[96], name[64];
        tmsg_tls_params_t pinned = {.field_mask = TMSG_TLS_PARAM_PIN,
                                    .pin = pin};
        secured_t secured;

        secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
        cert_pin(&secured.certs[0], digits);
        snprintf(pin, sizeof(pin), "%s%s", names[i], digits);
        snprintf(name, sizeof(name), i == 0 ? "sha256:%.32s" : "%s",
                 i == 0 ? digits : names[i]);
        name[strcspn(name, "=")] = '\0';
        tmsg_tls_destroy(secured.by[1].tls);
        must(create(&secured, 1, pinned, &secured.by[1].tls));
        secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
        secured_connect(&secured, tmsg_listener_url(secured.pair.a.listener),
                        NULL);
        is_called(secured.pair.to_a, name);
        secured_close(&secured);
    }
}

Test(tls, a_pin_is_64_digits)
{
    static const char *const bad[] = {"12", "zz", ",", "12,34"};
    secured_t secured;
    tmsg_tls_t *tls;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        must_be(create(&secured, 1,
                       (tmsg_tls_params_t){.field_mask = TMSG_TLS_PARAM_PIN,
                                           .pin = bad[i]},
                       &tls),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "64 hexadecimal digits");
    }
    secured_drop(&secured);
}

/* The name that is asked for is one of the certificate, whatever the URL. */
Test(tls, a_name_may_be_given)
{
    tmsg_tls_params_t named = {.field_mask = TMSG_TLS_PARAM_NAME};
    char words[512];
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    named.name = "localhost";
    must(dial_with(&secured, named, words, sizeof(words)));
    named.name = "localhost."; /* as the resolver takes a whole name */
    must(dial_with(&secured, named, words, sizeof(words)));
    named.name = "::1";
    must(dial_with(&secured, named, words, sizeof(words)));
    named.name = "example.org";
    must_be(dial_with(&secured, named, words, sizeof(words)),
            TMSG_ERR_INSECURE);
    must_say(words, "is not for 'example.org', but for localhost, 127.0.0.1");
    named.name = "server"; /* its common name */
    must_be(dial_with(&secured, named, words, sizeof(words)),
            TMSG_ERR_INSECURE);
    secured_drop(&secured);
}

/* Two authorities between the listener and the one that is known. */
Test(tls, a_chain_is_no_longer_than_its_depth)
{
    tmsg_tls_params_t deep = {.field_mask = TMSG_TLS_PARAM_DEPTH, .depth = 1};
    cert_t middle, leaf;
    char words[512];
    secured_t secured;
    proof_t by;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make(&middle, "middle", &secured.ca, &(cert_says_t){.is_ca = true});
    cert_make(&leaf, "leaf", &middle, NULL);
    by.keyring = NULL;
    by.tls = cert_tls(&secured.ca, &leaf);
    secured_listen(&secured.pair.a, SECURED_URL, by, 0);
    must(dial_with(&secured, deep, words, sizeof(words)));
    deep.depth = 0;
    must_be(dial_with(&secured, deep, words, sizeof(words)), TMSG_ERR_INSECURE);
    must_say(words,
             "chain of certificates is longer than this side's depth, 0");
    tmsg_tls_destroy(by.tls);
    cert_free(&middle);
    cert_free(&leaf);
    secured_drop(&secured);
}

Test(tls, a_key_file_may_be_encrypted)
{
    tmsg_tls_params_t params = {.field_mask = TMSG_TLS_PARAM_PASSWORD,
                                .password = "right"};
    secured_t secured;
    cert_t plain;
    tmsg_tls_t *tls;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    plain = secured.certs[1];
    cert_make(&secured.certs[1], "encrypted", &secured.ca,
              &(cert_says_t){.password = "right"});
    must(create(&secured, 1, params, &tls));
    must(tmsg_tls_reload(tls));
    tmsg_tls_destroy(tls);
    params.password = "wrong";
    must_be(create(&secured, 1, params, &tls), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), secured.certs[1].key_path);
    must_say(tmsg_error_message(), "password is wrong");
    params.field_mask = 0;
    must_be(create(&secured, 1, params, &tls), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "is encrypted: it needs its password");
    must_eq(chmod(secured.certs[1].key_path, 0644), 0);
    must_be(create(&secured, 1, params, &tls), TMSG_ERR_INSECURE);
    must_say(tmsg_error_message(), "chmod 600");
    cert_free(&plain);
    secured_drop(&secured);
}

/* Nobody ever writes to it. */
static void refuses_fifos(const tmsg_tls_params_t *from)
{
    static const char *const words[] = {"tls: ca ", "tls: certificate ",
                                        "tls: key ", "tls: crl "};
    char fifo[256], words_of[300];
    tmsg_tls_t *tls;

    snprintf(fifo, sizeof(fifo), "%s", scratch_path("fifo"));
    must_eq(mkfifo(fifo, 0600), 0);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        tmsg_tls_params_t params = *from;

        params.field_mask |= i == 3 ? TMSG_TLS_PARAM_CRL : 0;
        *(i == 0   ? &params.ca
          : i == 1 ? &params.cert
          : i == 2 ? &params.key
                   : &params.crl) = fifo;
        must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_IO);
        snprintf(words_of, sizeof(words_of), "%s%s is a FIFO", words[i], fifo);
        must_say(tmsg_error_message(), words_of);
    }
}

/* OpenSSL's time grows with the square of their number. */
Test(tls, a_file_of_too_many_certificates_is_refused)
{
    secured_t secured;
    tmsg_tls_params_t params = {.field_mask = TMSG_TLS_PARAM_CA |
                                              TMSG_TLS_PARAM_CERT |
                                              TMSG_TLS_PARAM_KEY};
    tmsg_tls_t *tls;
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s", scratch_path("many.pem"));
    file = fopen(path, "w");
    must_true(file != NULL);
    for (int i = 0; i < 2001; i++) {
        fputs("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
              file);
    }
    fclose(file);
    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    params.ca = path;
    params.cert = secured.certs[0].path;
    params.key = secured.certs[0].key_path;
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "many.pem: it has more than 2000 parts");
    secured_drop(&secured);
}

Test(tls, what_is_missing_is_named)
{
    tmsg_tls_params_t params = {.field_mask = TMSG_TLS_PARAM_CERT};
    secured_t secured;
    tmsg_tls_t *tls;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    params.cert = secured.certs[0].path;
    must_be(tmsg_tls_create(NULL, &tls), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "the private key (key)");
    params.field_mask |= TMSG_TLS_PARAM_KEY;
    params.key = secured.certs[1].key_path;
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "(ca) is missing");
    params.field_mask |= TMSG_TLS_PARAM_CA;
    params.ca = secured.ca.path;
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "is not that of certificate");
    params.key = secured.certs[0].key_path;
    params.field_mask |= TMSG_TLS_PARAM_DEPTH;
    params.depth = 17;
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "depth 17");
    params.field_mask ^= TMSG_TLS_PARAM_DEPTH | TMSG_TLS_PARAM_REKEY_BYTES;
    params.rekey_bytes = 16383;
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "rekey_bytes 16383");
    params.field_mask ^= TMSG_TLS_PARAM_REKEY_BYTES;
    params.ca = "/nowhere/ca.pem";
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "/nowhere/ca.pem");
    params.ca = "/";
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "ca / is a directory");
    params.ca = secured.ca.path;
    refuses_fifos(&params);
    params.field_mask |= TMSG_TLS_PARAM_CRL;
    params.crl = "";
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "crl is empty");
    params.field_mask ^= TMSG_TLS_PARAM_CRL | TMSG_TLS_PARAM_PIN;
    params.pin = "";
    must_be(tmsg_tls_create(&params, &tls), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "pin is empty");
    secured_drop(&secured);
}

static void encrypt_cert(const cert_t *cert, const char *password)
{
    FILE *file = fopen(cert->path, "w");

    must_true(file != NULL);
    must_eq(PEM_ASN1_write((i2d_of_void *)i2d_X509, PEM_STRING_X509, file,
                           cert->cert, EVP_aes_256_cbc(),
                           (const unsigned char *)password,
                           (int)strlen(password), NULL, NULL),
            1);
    fclose(file);
}

/* OpenSSL would ask at the terminal. */
Test(tls, an_encrypted_certificate_takes_the_password)
{
    static const char *const passwords[] = {NULL, "wrong", "right"};
    secured_t secured;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    encrypt_cert(&secured.certs[1], "right");
    for (int i = 0; i < 3; i++) {
        tmsg_tls_params_t more = {.field_mask =
                                      i == 0 ? 0 : TMSG_TLS_PARAM_PASSWORD,
                                  .password = passwords[i]};
        tmsg_tls_t *tls;

        must_be(create(&secured, 1, more, &tls),
                i == 2 ? TMSG_OK : TMSG_ERR_MALFORMED);
        if (i == 2) {
            tmsg_tls_destroy(tls);
        } else {
            must_say(tmsg_error_message(), secured.certs[1].path);
        }
    }
    secured_drop(&secured);
}

/* OpenSSL would tell the peer alone, and of another reason. */
Test(tls, a_key_that_tls_cannot_sign_by_is_named)
{
    secured_t secured;
    cert_t bitcoin;
    tmsg_tls_t *tls;

    secured_prepare(&secured, BY_CERTS, DRIVE_POLLING);
    cert_make(&bitcoin, "bitcoin", &secured.ca,
              &(cert_says_t){.curve = "secp256k1"});
    cert_replace(&secured.certs[1], &bitcoin);
    must_be(create(&secured, 1, (tmsg_tls_params_t){.field_mask = 0}, &tls),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "is of the curve secp256k1");
    cert_free(&bitcoin);
    secured_drop(&secured);
}

/* The configuration is read when OpenSSL is used first. */
Test(tls, a_configuration_of_openssl_without_tls_is_named)
{
    const char *path = scratch_path("openssl.cnf");
    FILE *file = fopen(path, "w");
    tmsg_listener_params_t params = {.field_mask = TMSG_LISTENER_PARAM_KEYRING};
    tmsg_listener_t *listener;
    secured_t secured;

    must_true(file != NULL);
    fputs("openssl_conf = a\n[a]\nproviders = b\n[b]\nnull = c\n[c]\n"
          "activate = 1\n",
          file);
    fclose(file);
    setenv("OPENSSL_CONF", path, 1);
    secured_prepare(&secured, BY_KEYS, DRIVE_POLLING);
    params.keyring = secured.by[0].keyring;
    must_be(tmsg_listener_create(secured.pair.a.worker, SECURED_URL, &params,
                                 &listener),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "OpenSSL, as it is configured");
    secured_drop(&secured);
}

Test(tls, a_key_of_several_is_found_and_a_removed_one_is_refused)
{
    secured_t secured;
    proof_t other = {.keyring = ring("server", 2)};
    char words[512];

    secured_prepare(&secured, BY_KEYS, DRIVE_POLLING);
    add_key(secured.by[0].keyring, "client-2", 2);
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    must(dial_again(&secured, words, sizeof(words)));
    must(secured_try(&secured.pair, tmsg_listener_url(secured.pair.a.listener),
                     other, words, sizeof(words)));
    pair_await(&secured.pair, has_other_principal, &secured.pair.a,
               "the second key");
    must(tmsg_keyring_remove(secured.by[0].keyring, "client"));
    must_be(dial_again(&secured, words, sizeof(words)), TMSG_ERR_REFUSED);
    must(secured_try(&secured.pair, tmsg_listener_url(secured.pair.a.listener),
                     other, words, sizeof(words)));
    must(tmsg_keyring_remove(other.keyring, "server"));
    must_be(secured_try(&secured.pair,
                        tmsg_listener_url(secured.pair.a.listener), other,
                        words, sizeof(words)),
            TMSG_ERR_INSECURE);
    must_say(words, "this side's keyring is empty");
    tmsg_keyring_destroy(other.keyring);
    secured_drop(&secured);
}

static bool is_away(void *arg)
{
    const pair_t *pair = arg;

    return joined_is_away(pair->to_a) && joined_is_away(pair->to_b);
}

static bool is_back(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_endpoint_status(pair->to_a) == TMSG_OK &&
           tmsg_endpoint_status(pair->to_b) == TMSG_OK;
}

/* What was sent while the connection was cut comes by the next one. */
static void survive(by_t by)
{
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .most_backoff_ms = 20};
    tmsg_request_t *sent;
    secured_t secured;
    pair_t *pair = &secured.pair;
    relay_t *relay;

    secured_prepare(&secured, by, drives[by]);
    secured_listen(&pair->a, SECURED_URL, secured.by[0], -1);
    relay = relay_open(tmsg_listener_url(pair->a.listener));
    secured_connect(&secured, relay_url(relay), &reconnect);
    for (int i = 0; i < 2; i++) {
        relay_shut(relay, true);
        pair_await(pair, is_away, pair, "the cut");
        if (i == 1) { /* it comes back at another listener */
            secured_listen(&pair->a, SECURED_URL, secured.by[0], -1);
            relay_turn(relay, tmsg_listener_url(pair->a.listener));
        }
        sent = send_map(pair->to_a, sample_bytes(9, 3000000), TMSG_SEND_ACKED);
        relay_shut(relay, false);
        pair_await(pair, is_back, pair, "the session");
        large_take(pair, &pair->a, 9, 3000000);
        must(pair_finish(pair, sent));
    }
    must_eq(pair->a.accepts, 1);
    secured_close(&secured);
    relay_close(relay);
}

Test(tls, a_session_survives_a_cut)
{
    survive(BY_CERTS);
    survive(BY_KEYS);
}

static bool is_deceived(void *arg)
{
    return strstr(tmsg_endpoint_error(arg), "that it is 'impostor'") != NULL;
}

/* Another one answers where the peer was, whom this side would admit. It gets
 * nothing, and cannot end the session. */
Test(tls, a_session_is_not_given_to_another_principal)
{
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .most_backoff_ms = 20};
    secured_t secured;
    pair_t *pair = &secured.pair;
    tmsg_request_t *sent;
    cert_t impostor;
    proof_t by;
    relay_t *relay;
    side_t other;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    cert_make(&impostor, "impostor", &secured.ca, NULL);
    by = (proof_t){.tls = cert_tls(&secured.ca, &impostor)};
    side_open(&other, &(side_options_t){.drive = DRIVE_THREAD});
    secured_listen(&other, SECURED_URL, by, -1);
    secured_listen(&pair->a, SECURED_URL, secured.by[0], -1);
    relay = relay_open(tmsg_listener_url(pair->a.listener));
    secured_connect(&secured, relay_url(relay), &reconnect);
    relay_turn(relay, tmsg_listener_url(other.listener));
    relay_cut(relay);
    sent = send_map(pair->to_a, sample_bytes(9, 1000), TMSG_SEND_ACKED);
    pair_await(pair, is_deceived, pair->to_a, "words about the impostor");
    relay_turn(relay, tmsg_listener_url(pair->a.listener));
    large_take(pair, &pair->a, 9, 1000);
    must(pair_finish(pair, sent));
    is_called(pair->to_a, "server");
    must_eq(other.accepts, 0);
    side_close(&other);
    tmsg_tls_destroy(by.tls);
    cert_free(&impostor);
    secured_close(&secured);
    relay_close(relay);
}

static bool has_begun(void *arg)
{
    return ((const tmsg_endpoint_t *)arg)->link.fd >= 0;
}

/* Where the kernel hears at once that nobody listens there was nothing to be
 * left: here it dials for a while. */
Test(tls, a_dial_that_fails_leaves_nothing)
{
    char url[64];
    int fd = raw_listen(url, sizeof(url)), first;
    tmsg_endpoint_t *endpoint;
    secured_t secured;

    must_eq(listen(fd, 0), 0);
    first = raw_dial(url); /* there is no place for a second one */
    memcpy(url, "tls", 3);
    secured_prepare(&secured, BY_KEYS, DRIVE_POLLING);
    endpoint = secured_dial(&secured.pair.b, url, secured.by[1], NULL);
    pair_await(&secured.pair, has_begun, endpoint, "a dial");
    must_true(!endpoint->link.connected);
    shutdown(endpoint->link.fd, SHUT_RDWR);
    must_true(pair_end_of(&secured.pair, endpoint) < 0);
    tmsg_endpoint_destroy(endpoint);
    tmsg_worker_destroy(secured.pair.b.worker);
    secured.pair.b.worker = NULL;
    /* A keyring begins with its references. */
    must_true(tmsg_refs_are((const tmsg_refs_t *)secured.by[1].keyring, 1));
    secured_drop(&secured);
    close(first);
    close(fd);
}
