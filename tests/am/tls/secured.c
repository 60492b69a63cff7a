/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/tls/secured.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/numbered_keys.h"

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    side_t *side = arg;

    side->accepted = endpoint;
    side->accepts++;
}

void secured_listen(side_t *side, const char *url, proof_t by,
                    int32_t resume_ms)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT | TMSG_LISTENER_PARAM_TLS |
                      TMSG_LISTENER_PARAM_KEYRING | TMSG_LISTENER_PARAM_RESUME |
                      TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT,
        .on_accept = accepted,
        .on_accept_arg = side,
        .tls = by.tls,
        .keyring = by.keyring,
        .resume_ms = resume_ms,
        .handshake_timeout_ms = PEERS_CONNECT_MS,
    };

    must(tmsg_listener_create(side->worker, url, &params, &side->listener));
}

tmsg_endpoint_t *secured_dial(side_t *side, const char *url, proof_t by,
                              const tmsg_reconnect_t *reconnect)
{
    tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT |
                      TMSG_ENDPOINT_PARAM_TLS | TMSG_ENDPOINT_PARAM_KEYRING,
        .connect_timeout_ms = PEERS_CONNECT_MS,
        .tls = by.tls,
        .keyring = by.keyring,
    };
    tmsg_endpoint_t *endpoint;

    if (reconnect != NULL) {
        params.field_mask |= TMSG_ENDPOINT_PARAM_RECONNECT;
        params.reconnect = *reconnect;
    }
    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    return endpoint;
}

void secured_sides(pair_t *pair, drive_t drive)
{
    const side_options_t options = {.drive = drive};

    memset(pair, 0, sizeof(*pair));
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_open(&pair->a, &options);
    side_open(&pair->b, &options);
}

tmsg_status_t secured_try(pair_t *pair, const char *url, proof_t by,
                          char *words, size_t bytes)
{
    tmsg_endpoint_t *endpoint = secured_dial(&pair->b, url, by, NULL);
    tmsg_request_t *ready;
    tmsg_status_t status;

    must(tmsg_endpoint_ready(endpoint, &ready));
    status = pair_wait(pair, ready);
    snprintf(words, bytes, "%s", tmsg_request_error(ready));
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(endpoint);
    return status;
}

void secured_prepare(secured_t *secured, by_t by, drive_t drive)
{
    memset(secured, 0, sizeof(*secured));
    secured_sides(&secured->pair, drive);
    if (by == BY_KEYS) {
        secured->by[0].keyring = ring("client", 1);
        secured->by[1].keyring = ring("server", 1);
        return;
    }
    cert_make_ca(&secured->ca, "ca");
    cert_make(&secured->certs[0], "server", &secured->ca, NULL);
    cert_make(&secured->certs[1], "client", &secured->ca, NULL);
    for (int i = 0; i < 2; i++) {
        secured->by[i].tls = cert_tls(&secured->ca, &secured->certs[i]);
    }
}

static bool has_accepted(void *arg) { return ((side_t *)arg)->accepts > 0; }

void secured_connect(secured_t *secured, const char *url,
                     const tmsg_reconnect_t *reconnect)
{
    pair_t *pair = &secured->pair;
    tmsg_request_t *ready;

    pair->to_a = secured_dial(&pair->b, url, secured->by[1], reconnect);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    must(pair_finish(pair, ready));
    pair_await(pair, has_accepted, &pair->a, "an accepted endpoint");
    pair->to_b = pair->a.accepted;
}

void secured_open(secured_t *secured, by_t by, drive_t drive)
{
    secured_prepare(secured, by, drive);
    secured_listen(&secured->pair.a, SECURED_URL, secured->by[0], 0);
    secured_connect(secured, tmsg_listener_url(secured->pair.a.listener), NULL);
}

static void let_go(secured_t *secured)
{
    cert_free(&secured->ca);
    for (int i = 0; i < 2; i++) {
        tmsg_tls_destroy(secured->by[i].tls);
        tmsg_keyring_destroy(secured->by[i].keyring);
        cert_free(&secured->certs[i]);
    }
}

void secured_close(secured_t *secured)
{
    pair_close(&secured->pair);
    let_go(secured);
}

void secured_drop(secured_t *secured)
{
    pair_drop(&secured->pair);
    let_go(secured);
}

static char log_text[16384];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_line(void *arg, tmsg_log_level_t level, const char *line)
{
    size_t used;

    (void)arg;
    (void)level;
    pthread_mutex_lock(&log_lock);
    used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
    pthread_mutex_unlock(&log_lock);
}

void secured_log(void)
{
    pthread_mutex_lock(&log_lock);
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_lock);
    tmsg_log_set(TMSG_LOG_WARN, log_line, NULL);
}

bool secured_log_has(const char *words)
{
    bool has;

    pthread_mutex_lock(&log_lock);
    has = strstr(log_text, words) != NULL;
    pthread_mutex_unlock(&log_lock);
    return has;
}

const char *secured_log_text(void) { return log_text; }
