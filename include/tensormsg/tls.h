/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/tls.h - the certificates by which peers of tls:// prove who they
 * are.
 *
 * Certificates are given to listeners and endpoints of tls:// URLs. See
 * docs/reference/tls.md.
 *
 *     tmsg_tls_create(&tls_params, &tls); // with ca, cert and key
 *     endpoint_params.tls = tls;          // with TMSG_ENDPOINT_PARAM_TLS
 *     tmsg_endpoint_connect(worker, url, &endpoint_params, &endpoint);
 *     tmsg_tls_reload(tls); // when the files have changed
 *     tmsg_tls_destroy(tls);
 */
#ifndef TENSORMSG_TLS_H
#define TENSORMSG_TLS_H

#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TMSG_TLS_PARAM_CA = 1 << 0,
    TMSG_TLS_PARAM_CERT = 1 << 1,
    TMSG_TLS_PARAM_KEY = 1 << 2,
    TMSG_TLS_PARAM_PASSWORD = 1 << 3,
    TMSG_TLS_PARAM_CRL = 1 << 4,
    TMSG_TLS_PARAM_NAME = 1 << 5,
    TMSG_TLS_PARAM_PIN = 1 << 6,
    TMSG_TLS_PARAM_DEPTH = 1 << 7,
    TMSG_TLS_PARAM_REKEY_BYTES = 1 << 8
};

/* Names of files in the PEM format. A text that is given is not empty. */
typedef struct tmsg_tls_params {
    uint64_t field_mask;  /* TMSG_TLS_PARAM_*; unset: defaults */
    const char *ca;       /* certificates of the authorities (CAs), one of which
                           * has signed a peer's certificate. Required, unless
                           * `pin` is given */
    const char *cert;     /* this side's certificate, and behind it those that
                           * lead to the CA. Required */
    const char *key;      /* its private key. Required. Only this user may have
                           * the file, or root and a group that may not write
                           * it */
    const char *password; /* of that file, if it is encrypted */
    const char *crl;      /* lists of revoked certificates, of every CA of the
                           * chain. Default NULL: none is checked */
    const char *name;     /* that a listener's certificate has to be for: a DNS
                           * name or an IP address among its subject alternative
                           * names. Default NULL: the host of the URL */
    const char *pin;      /* SHA-256 of the public keys (SubjectPublicKeyInfo)
                           * that a peer may have, 64 hexadecimal digits each,
                           * with commas between. "NAME=DIGITS" says whose it
                           * is. In place of a CA and a name, or in addition.
                           * Default NULL: any key */
    uint32_t depth;       /* most certificates between the peer's and its CA's;
                           * default 4 */
    uint64_t rekey_bytes; /* how much is encrypted with one key: after this many
                           * bytes, with each TLS record counted as 16 KiB, the
                           * sending side takes a new key. 16 KiB to 64 GiB,
                           * default 64 GiB */
} tmsg_tls_params_t;

/* Certificates: what a side proves, and what it asks of its peers. They are
 * given to any number of listeners and endpoints of tls://
 * (TMSG_LISTENER_PARAM_TLS, TMSG_ENDPOINT_PARAM_TLS), which hold them: the
 * handle may be destroyed at any time. Any thread may call these functions.
 *
 * Both sides prove themselves, by TLS 1.3. A side then knows its peer by a
 * name, tmsg_endpoint_principal():
 *  - the common name (CN) of the peer's certificate; without one its first DNS
 *    name or URI
 *  - of a pinned peer, the name of its pin
 *  - without that name and without a CA, which alone vouches for what is in a
 *    certificate: "sha256:" and the first 32 digits
 * The name is 1 to 63 bytes of printable ASCII without spaces. A listener
 * refuses any other.
 *
 * Without certificates the peers of tls:// prove a key of a keyring, by TLS
 * itself (tensormsg/key.h). See "tls://" in docs/understand/security.md. */
typedef struct tmsg_tls tmsg_tls_t;

/* Reads the files. The caller frees *tls_p with tmsg_tls_destroy().
 * Errors:
 *   INVALID_PARAM - something that is required is missing or empty; a pin; or
 *     the key belongs to another certificate, or to a curve that TLS 1.3 does
 *     not have
 *   LIMIT_EXCEEDED - more than 16 pins, or 2000 certificates or lists in a file
 *   NOT_FOUND - no such file
 *   MALFORMED - a file holds something else, or the password is wrong
 *   INSECURE - others may read the key
 *   UNSUPPORTED - the library was built without OpenSSL, or OpenSSL is
 *     configured without TLS 1.3
 *   NO_MEMORY
 *   IO - also for what is no regular file */
TMSG_API tmsg_status_t tmsg_tls_create(const tmsg_tls_params_t *params,
                                       tmsg_tls_t **tls_p);

/* Reads all files again, for connections that begin from now on. Connections
 * that exist stay. On an error everything stays as it was. Errors: those of
 * tmsg_tls_create(). */
TMSG_API tmsg_status_t tmsg_tls_reload(tmsg_tls_t *tls);

/* Gives the caller's hold back. NULL is allowed. */
TMSG_API void tmsg_tls_destroy(tmsg_tls_t *tls);

#ifdef __cplusplus
}
#endif

#endif
