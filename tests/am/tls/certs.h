/* SPDX-License-Identifier: BSD-3-Clause */
/* am/tls/certs.h - certificates, good ones and bad, made as a test wants them.
 * Their files are in the scratch folder. */
#ifndef TMSG_TESTS_CERTS_H
#define TMSG_TESTS_CERTS_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>

#include <tensormsg/tls.h>

/* What a certificate says. All zero: of a peer, for 127.0.0.1 and localhost,
 * for both sides, from an hour ago until in an hour. */
typedef struct {
    const char *cn;    /* NULL: the file's name; "": none */
    const char *names; /* "DNS:a,IP:1.2.3.4"; NULL: as above; "": none */
    const char *usage; /* "serverAuth,clientAuth"; NULL: both; "": none */
    const char *curve; /* of its key; NULL: P-256 */
    long from_s, to_s; /* from now on; both 0: as above */
    bool is_ca;
    const char *password; /* of the key file; NULL: it is not encrypted */
} cert_says_t;

typedef struct {
    X509 *cert;
    EVP_PKEY *key;
    char path[128];     /* the certificate, and those that lead to its root */
    char key_path[128]; /* mode 0600 */
} cert_t;

/* Makes one that `issuer` signs; NULL: it signs itself. `says` may be NULL. */
void cert_make(cert_t *cert, const char *name, const cert_t *issuer,
               const cert_says_t *says);

/* An authority. */
void cert_make_ca(cert_t *cert, const char *name);

/* Writes what `from` is where `cert` was: it takes its place. */
void cert_replace(cert_t *cert, const cert_t *from);

void cert_free(cert_t *cert);

/* Writes an authority's list of revoked certificates, and returns its path.
 * `revoked` may be NULL. It holds until `to_s` from now. */
const char *cert_write_crl(const cert_t *ca, const cert_t *revoked, long to_s);

/* SHA-256 of the public key in hexadecimal digits. */
void cert_pin(const cert_t *cert, char pin[65]);

/* Credentials by files; NULL for what there is none of. */
tmsg_tls_t *cert_tls(const cert_t *ca, const cert_t *cert);

#endif
