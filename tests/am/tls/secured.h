/* SPDX-License-Identifier: BSD-3-Clause */
/* am/tls/secured.h - two sides of tls://. a listens, b dials. */
#ifndef TMSG_TESTS_SECURED_H
#define TMSG_TESTS_SECURED_H

#include "am/tls/certs.h"
#include "support/peers.h"

#define SECURED_URL "tls://127.0.0.1:0"

/* What a side proves by: one of the two, or none. */
typedef struct {
    tmsg_tls_t *tls;
    tmsg_keyring_t *keyring;
} proof_t;

/* Listens, and accepts every endpoint into side->accepted. A session is kept
 * for `resume_ms`; 0: none is. */
void secured_listen(side_t *side, const char *url, proof_t by,
                    int32_t resume_ms);
tmsg_endpoint_t *secured_dial(side_t *side, const char *url, proof_t by,
                              const tmsg_reconnect_t *reconnect);

/* Opens both sides of a pair, without a connection. */
void secured_sides(pair_t *pair, drive_t drive);

/* Dials a's listener from b, waits until that has failed or stands, and copies
 * what b is told. The endpoint is destroyed. */
tmsg_status_t secured_try(pair_t *pair, const char *url, proof_t by,
                          char *words, size_t bytes);

typedef enum { BY_CERTS, BY_KEYS, PROOFS } by_t;

/* A pair that is connected. a is "server", b "client". */
typedef struct {
    pair_t pair;
    cert_t ca, certs[2];
    proof_t by[2];
} secured_t;

/* Makes what the sides prove by, and opens them. */
void secured_prepare(secured_t *secured, by_t by, drive_t drive);
/* Makes the connection, too. */
void secured_open(secured_t *secured, by_t by, drive_t drive);
void secured_connect(secured_t *secured, const char *url,
                     const tmsg_reconnect_t *reconnect);
/* Closes the connection in order. */
void secured_close(secured_t *secured);
/* Ends both sides at once. */
void secured_drop(secured_t *secured);

/* What the listener says in the log, from secured_log() on. */
void secured_log(void);
bool secured_log_has(const char *words);
const char *secured_log_text(void);

#endif
