/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of a keyring as external pre-shared keys of TLS 1.3 (RFC 8446, section
 * 4.2.11), with an exchange of Diffie-Hellman, so that who gets a key later
 * cannot read what was said before. The key itself is never used: what TLS gets
 * is derived from it, and so is the identity by which a listener finds it.
 * Everybody on the way sees that identity. */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "am/tls/secure.h"

#define SECRET_BYTES 32
#define ID_BYTES 16
#define ID_PREFIX "tensormsg-1:"
/* Identities of a peer that are looked for: each costs a derivation for every
 * key of the ring, and a first word has room for a thousand. */
#define IDS_MOST 4
#define ID_TEXT_BYTES (sizeof(ID_PREFIX) + (size_t)2 * ID_BYTES)

/* OpenSSL takes a session only where it was made. */
static const unsigned char scope[] = "tensormsg";
static const char secret_label[] = "tensormsg 1 tls psk";
static const char id_label[] = "tensormsg 1 tls identity";

/* Derives bytes from a key (HKDF, RFC 5869, with SHA-256). */
static bool derive(const uint8_t key[TMSG_KEY_BYTES], const char *label,
                   uint8_t *out, size_t bytes)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST,
                                         (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key, TMSG_KEY_BYTES),
        OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)label, strlen(label)),
        OSSL_PARAM_construct_end()};
    bool done =
        context != NULL && EVP_KDF_derive(context, out, bytes, params) == 1;

    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done;
}

/* Writes the identity of a key as text. */
static bool identify(const tmsg_key_t *key, char text[ID_TEXT_BYTES])
{
    uint8_t id[ID_BYTES];

    if (!derive(key->bytes, id_label, id, sizeof(id))) {
        return false;
    }
    memcpy(text, ID_PREFIX, sizeof(ID_PREFIX));
    sodium_bin2hex(text + sizeof(ID_PREFIX) - 1, (size_t)2 * ID_BYTES + 1, id,
                   sizeof(id));
    return true;
}

/* Makes of a key what TLS takes for a session. */
static SSL_SESSION *make_session(SSL *ssl, const tmsg_key_t *key)
{
    static const unsigned char suite[] = {0x13, 0x01}; /* AES_128_GCM_SHA256 */
    uint8_t secret[SECRET_BYTES];
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();
    bool done =
        session != NULL && cipher != NULL &&
        derive(key->bytes, secret_label, secret, sizeof(secret)) &&
        SSL_SESSION_set1_master_key(session, secret, sizeof(secret)) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1 &&
        SSL_SESSION_set1_id_context(session, scope, sizeof(scope) - 1);

    sodium_memzero(secret, sizeof(secret));
    if (!done) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static void take_principal(tmsg_secure_t *secure, const tmsg_key_t *key)
{
    snprintf(secure->principal, sizeof(secure->principal), "%s",
             key->principal);
}

/* Offers the first key of the ring. */
static int offer_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id_p,
                     size_t *id_bytes_p, SSL_SESSION **session_p)
{
    tmsg_secure_t *secure = tmsg_secure_of(ssl);
    tmsg_keys_t keys;
    int done = 0;

    *session_p = NULL;
    tmsg_keyring_copy(tmsg_tls_keyring(secure->tls), &keys);
    if (keys.count == 0) {
        tmsg_secure_fail(secure, TMSG_ERR_INSECURE,
                         "this side's keyring is empty");
    } else if (digest != NULL && !EVP_MD_is_a(digest, "SHA256")) {
        done = 1; /* of another hash there is none to offer */
    } else if (identify(&keys.keys[0], secure->host)) {
        *session_p = make_session(ssl, &keys.keys[0]);
        *id_p = (const unsigned char *)secure->host;
        *id_bytes_p = strlen(secure->host);
        take_principal(secure, &keys.keys[0]);
        done = *session_p != NULL;
    }
    tmsg_keys_wipe(&keys);
    return done;
}

/* Finds the key that a peer offers. */
static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes,
                    SSL_SESSION **session_p)
{
    tmsg_secure_t *secure = tmsg_secure_of(ssl);
    tmsg_keys_t keys;

    *session_p = NULL;
    if (id_bytes != ID_TEXT_BYTES - 1 || secure->ids++ >= IDS_MOST) {
        return 1;
    }
    tmsg_keyring_copy(tmsg_tls_keyring(secure->tls), &keys);
    for (unsigned i = 0; i < keys.count && *session_p == NULL; i++) {
        char known[ID_TEXT_BYTES];

        if (identify(&keys.keys[i], known) &&
            memcmp(known, id, id_bytes) == 0) {
            *session_p = make_session(ssl, &keys.keys[i]);
            take_principal(secure, &keys.keys[i]);
        }
    }
    tmsg_keys_wipe(&keys);
    return 1;
}

/* No certificate counts here: none is there that could have signed it. */
static int refuse_certificate(X509_STORE_CTX *chain, void *arg)
{
    tmsg_secure_t *secure = tmsg_secure_of(X509_STORE_CTX_get_ex_data(
        chain, SSL_get_ex_data_X509_STORE_CTX_idx()));

    (void)arg;
    tmsg_secure_fail(
        secure, tmsg_secure_refusal(secure),
        "not admitted: the peer shows a certificate, and has proved "
        "no key of this side's keyring");
    X509_STORE_CTX_set_error(chain, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

void tmsg_psk_begin(SSL_CTX *context)
{
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(context, refuse_certificate, NULL);
    SSL_CTX_set_session_id_context(context, scope, sizeof(scope) - 1);
}
