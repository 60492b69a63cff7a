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

/* Names files in the PEM format. A text that is given is not empty. */
typedef struct tmsg_tls_params {
    uint64_t field_mask; /* TMSG_TLS_PARAM_*; unset: defaults */
    const char *ca;      /* certificates of the authorities (CAs) by which a
                          * peer's certificate has to be signed. Needed, unless
                          * `pin` is given */
    const char *cert;    /* this side's certificate, and behind it those that
                          * lead to the CA. Needed */
    const char *key;     /* its private key. Needed. Only this user, or root and
                          * a group that may not write it, may have the file */
    const char *password; /* of that file, if it is encrypted */
    const char *crl;      /* lists of revoked certificates, of every CA of the
                           * chain. Default NULL: none is asked */
    const char *name;     /* that a listener's certificate has to be for: a DNS
                           * name or an IP address among its subject alternative
                           * names. Default NULL: the host of the URL */
    const char *pin;      /* SHA-256 of the public keys (SubjectPublicKeyInfo)
                           * that a peer may have, 64 hexadecimal digits each,
                           * with commas between; "NAME=DIGITS" says whose it
                           * is. Instead of a CA and a name, or besides. Default
                           * NULL: any */
    uint32_t depth;       /* most certificates between the peer's and its CA's;
                           * default 4 */
    uint64_t rekey_bytes; /* how much is encrypted with one key: after that many
                           * bytes, counting each TLS record as 16 KiB, the side
                           * that sends takes a new one; 16 KiB to 64 GiB,
                           * default 64 GiB */
} tmsg_tls_params_t;

/* Holds what a side proves by its certificate, and what it asks of peers'. It
 * is given to listeners and endpoints of tls:// (TMSG_LISTENER_PARAM_TLS,
 * TMSG_ENDPOINT_PARAM_TLS), to any number of them. They hold it: it may be
 * destroyed at any time. The functions may be called from any thread.
 *
 * Both sides prove themselves, by TLS 1.3. What a side then knows of its peer,
 * tmsg_endpoint_principal(), is the common name (CN) of its certificate; where
 * that has none, its first DNS name or URI. A peer that is pinned has the name
 * of its pin; without a name and without a CA, which alone vouches for what is
 * in a certificate, it is "sha256:" and the first 32 digits. It is 1 to 63
 * bytes of printable ASCII without spaces: a listener refuses any other.
 *
 * Without certificates a keyring does: the peers of tls:// then prove a key of
 * it by TLS itself (tensormsg/key.h). See docs/understand/security.md,
 * "tls://". */
typedef struct tmsg_tls tmsg_tls_t;

/* Reads the files. The caller frees *tls_p with tmsg_tls_destroy(). Errors:
 * INVALID_PARAM (something that is needed is missing or empty, a pin, the key
 * of another certificate or of a curve that TLS 1.3 has not), LIMIT_EXCEEDED
 * (more than 16 pins, or 2000 certificates or lists in a file), NOT_FOUND (a
 * file), MALFORMED (a file holds something else, or the password is wrong),
 * INSECURE (others may read the key), UNSUPPORTED (the library was built
 * without OpenSSL, or OpenSSL is configured without TLS 1.3), NO_MEMORY, IO
 * (also for what is no regular file). */
TMSG_API tmsg_status_t tmsg_tls_create(const tmsg_tls_params_t *params,
                                       tmsg_tls_t **tls_p);

/* Reads all files again, for connections that begin from now on; those that
 * stand stay. On an error what was there before holds. Errors: as above. */
TMSG_API tmsg_status_t tmsg_tls_reload(tmsg_tls_t *tls);

/* Gives the caller's hold back. NULL is allowed. */
TMSG_API void tmsg_tls_destroy(tmsg_tls_t *tls);

#ifdef __cplusplus
}
#endif

#endif
