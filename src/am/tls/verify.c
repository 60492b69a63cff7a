/* SPDX-License-Identifier: BSD-3-Clause */
/* Judges the peer's certificate, and says what is wrong with it. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "am/tls/secure.h"
#include "core/error.h"

#define NAMES_BYTES 120
#define PIN_PREFIX "sha256:"
#define PIN_SHOWN 16 /* bytes of it, in a principal's name */

/* Returns a time as "2026-11-29 12:00:00Z". */
static const char *time_words(const ASN1_TIME *time, char *words, size_t bytes)
{
    struct tm tm;

    if (ASN1_TIME_to_tm(time, &tm) != 1 ||
        strftime(words, bytes, "%Y-%m-%d %H:%M:%SZ", &tm) == 0) {
        snprintf(words, bytes, "?");
    }
    return words;
}

static const char *name_words(const X509_NAME *name, char *words, size_t bytes)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data;
    long length = 0;

    if (bio != NULL &&
        X509_NAME_print_ex(bio, name, 0,
                           XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB) >= 0) {
        length = BIO_get_mem_data(bio, &data);
    }
    snprintf(words, bytes, "%.*s", length > 0 ? (int)length : 1,
             length > 0 ? data : "?");
    BIO_free(bio);
    return words;
}

/* Calls `take` for each name that a certificate is for. */
static void each_name(X509 *cert,
                      void (*take)(int type, const ASN1_STRING *, void *),
                      void *arg)
{
    GENERAL_NAMES *names =
        X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        int type;
        const ASN1_STRING *text =
            GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);

        if (type == GEN_DNS || type == GEN_URI || type == GEN_IPADD) {
            take(type, text, arg);
        }
    }
    GENERAL_NAMES_free(names);
}

typedef struct {
    char text[NAMES_BYTES];
    size_t bytes;
} names_t;

static void list_name(int type, const ASN1_STRING *text, void *arg)
{
    names_t *names = arg;
    const unsigned char *data = ASN1_STRING_get0_data(text);
    int length = ASN1_STRING_length(text), n;
    size_t room = sizeof(names->text) - names->bytes;
    char *at = names->text + names->bytes;
    const char *comma = names->bytes > 0 ? ", " : "";

    if (type == GEN_IPADD && length == 4) {
        n = snprintf(at, room, "%s%u.%u.%u.%u", comma, data[0], data[1],
                     data[2], data[3]);
    } else if (type == GEN_IPADD) {
        n = snprintf(at, room, "%san IPv6 address", comma);
    } else {
        n = snprintf(at, room, "%s%s", comma,
                     tmsg_error_name((const char *)data, (size_t)length).text);
    }
    if (n > 0 && (size_t)n < room) {
        names->bytes += (size_t)n;
    } else {
        at[0] = '\0';
    }
}

/* Returns what follows the name of a certificate, where no more is to be said
 * of it; else NULL. */
static const char *plain_words(int error, bool dialling)
{
    switch (error) {
    case X509_V_ERR_CERT_REVOKED:
        return " was revoked";
    case X509_V_ERR_UNABLE_TO_GET_CRL:
        return ": its authority's list of revoked certificates is not in the "
               "crl file";
    case X509_V_ERR_CRL_HAS_EXPIRED:
        return ": its authority's list of revoked certificates is out of date";
    case X509_V_ERR_INVALID_PURPOSE:
        return dialling ? " is not for a side that listens (its extended key "
                          "usage)"
                        : " is not for a side that dials (its extended key "
                          "usage)";
    default:
        return NULL;
    }
}

/* Says what is wrong with a certificate of the chain that a peer has shown. */
static void explain(tmsg_secure_t *secure, int error, X509 *cert)
{
    tmsg_status_t status = tmsg_secure_refusal(secure);
    const char *words = plain_words(error, secure->dialling);
    char who[NAMES_BYTES], when[32];
    names_t names = {.text = ""};

    name_words(X509_get_subject_name(cert), who, sizeof(who));
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        tmsg_secure_fail(
            secure, status,
            "not admitted: the certificate of %s has expired at %s", who,
            time_words(X509_get0_notAfter(cert), when, sizeof(when)));
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        tmsg_secure_fail(
            secure, status,
            "not admitted: the certificate of %s is not yet valid, but from %s "
            "on (is the clock of this side right?)",
            who, time_words(X509_get0_notBefore(cert), when, sizeof(when)));
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        each_name(cert, list_name, &names);
        tmsg_secure_fail(secure, status,
                         "not admitted: the certificate of %s is not for '%s', "
                         "but for %s",
                         who, secure->host,
                         names.bytes > 0 ? names.text
                                         : "nobody (it has no "
                                           "alternative name)");
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        name_words(X509_get_issuer_name(cert), names.text, sizeof(names.text));
        tmsg_secure_fail(secure, status,
                         "not admitted: the certificate of %s is signed by %s, "
                         "which is not an authority (ca) of this side",
                         who, names.text);
        break;
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
        tmsg_secure_fail(secure, status,
                         "not admitted: the peer's chain of certificates is "
                         "longer than this side's depth, %u",
                         tmsg_tls_settings(secure->tls)->depth);
        break;
    default:
        tmsg_secure_fail(
            secure, status, "not admitted: the certificate of %s%s%s", who,
            words != NULL ? "" : ": ",
            words != NULL ? words : X509_verify_cert_error_string(error));
        break;
    }
}

static tmsg_secure_t *secure_of(X509_STORE_CTX *chain)
{
    return tmsg_secure_of(X509_STORE_CTX_get_ex_data(
        chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
}

static int judge_certificate(int ok, X509_STORE_CTX *chain)
{
    X509 *cert = X509_STORE_CTX_get_current_cert(chain);

    if (!ok && cert != NULL) {
        explain(secure_of(chain), X509_STORE_CTX_get_error(chain), cert);
    }
    return ok;
}

/* Returns the pin that the certificate's public key is, or NULL. */
static const tmsg_tls_pin_t *find_pin(const tmsg_tls_settings_t *settings,
                                      X509 *cert)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned char *key = NULL;
    unsigned bytes = 0;
    int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &key);
    const tmsg_tls_pin_t *found = NULL;

    if (length > 0 && EVP_Digest(key, (size_t)length, hash, &bytes,
                                 EVP_sha256(), NULL) == 1) {
        for (unsigned i = 0; i < settings->pin_count && found == NULL; i++) {
            const tmsg_tls_pin_t *pin = &settings->pins[i];

            found =
                memcmp(hash, pin->hash, TMSG_TLS_PIN_BYTES) == 0 ? pin : NULL;
        }
    }
    OPENSSL_free(key);
    return found;
}

static int refuse_chain(X509_STORE_CTX *chain, int error)
{
    X509_STORE_CTX_set_error(chain, error);
    return 0;
}

/* Takes a name if it can be a principal's and there is none yet. */
static void take_name(tmsg_secure_t *secure, const unsigned char *text,
                      int length)
{
    if (secure->principal[0] == '\0' && length > 0 &&
        length <= TMSG_PRINCIPAL_MOST &&
        memchr(text, '\0', (size_t)length) == NULL) {
        memcpy(secure->principal, text, (size_t)length);
        secure->principal[length] = '\0';
        if (tmsg_principal_check(secure->principal) != TMSG_OK) {
            secure->principal[0] = '\0';
        }
    }
}

static void take_alternative(int type, const ASN1_STRING *text, void *arg)
{
    if (type == GEN_DNS || type == GEN_URI) {
        take_name(arg, ASN1_STRING_get0_data(text), ASN1_STRING_length(text));
    }
}

/* Takes the common name. Returns whether the certificate has one. */
static bool take_common_name(tmsg_secure_t *secure, X509 *cert)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    unsigned char *text = NULL;
    int length;

    if (at < 0) {
        return false;
    }
    length = ASN1_STRING_to_UTF8(
        &text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0) {
        take_name(secure, text, length);
    }
    OPENSSL_free(text);
    return true;
}

/* Names the peer by its pin. Without an authority the peer has written its
 * certificate itself, and any name into it. */
static void take_pin_name(tmsg_secure_t *secure, const tmsg_tls_pin_t *pin)
{
    if (pin->name[0] != '\0') {
        snprintf(secure->principal, sizeof(secure->principal), "%s", pin->name);
    } else if (tmsg_tls_settings(secure->tls)->ca == NULL) {
        memcpy(secure->principal, PIN_PREFIX, sizeof(PIN_PREFIX));
        sodium_bin2hex(secure->principal + sizeof(PIN_PREFIX) - 1,
                       (size_t)2 * PIN_SHOWN + 1, pin->hash, PIN_SHOWN);
    }
}

/* Finds out who the peer is. Returns whether it has a name. */
static bool name_peer(tmsg_secure_t *secure, X509 *cert,
                      const tmsg_tls_pin_t *pin)
{
    if (pin != NULL) {
        take_pin_name(secure, pin);
    }
    if (secure->principal[0] == '\0' && !take_common_name(secure, cert)) {
        each_name(cert, take_alternative, secure);
    }
    if (secure->principal[0] == '\0' && secure->dialling) {
        take_name(secure, (const unsigned char *)secure->host,
                  (int)strlen(secure->host));
    }
    return secure->principal[0] != '\0';
}

/* Judges a certificate whose key is pinned, and that nobody has to sign. */
static int judge_time(tmsg_secure_t *secure, X509_STORE_CTX *chain, X509 *cert)
{
    int error = X509_V_OK;

    if (X509_cmp_current_time(X509_get0_notBefore(cert)) >= 0) {
        error = X509_V_ERR_CERT_NOT_YET_VALID;
    } else if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0) {
        error = X509_V_ERR_CERT_HAS_EXPIRED;
    }
    X509_STORE_CTX_set_error(chain, error);
    if (error != X509_V_OK) {
        explain(secure, error, cert);
    }
    return error == X509_V_OK;
}

/* Judges a peer's chain of certificates: by its pin, by its authority, or by
 * both. */
static int judge_chain(X509_STORE_CTX *chain, void *arg)
{
    tmsg_secure_t *secure = secure_of(chain);
    const tmsg_tls_settings_t *settings = tmsg_tls_settings(secure->tls);
    tmsg_status_t status = tmsg_secure_refusal(secure);
    X509 *cert = X509_STORE_CTX_get0_cert(chain);
    const tmsg_tls_pin_t *pin = find_pin(settings, cert);

    (void)arg;
    if (settings->pin_count > 0 && pin == NULL) {
        tmsg_secure_fail(secure, status,
                         "not admitted: the peer's public key is not pinned");
        return refuse_chain(chain, X509_V_ERR_CERT_REJECTED);
    }
    if (settings->ca != NULL ? X509_verify_cert(chain) != 1
                             : !judge_time(secure, chain, cert)) {
        return 0;
    }
    if (!name_peer(secure, cert, pin)) {
        tmsg_secure_fail(secure, status,
                         "not admitted: the peer's certificate names nobody: "
                         "it needs one common name (CN), or a DNS name or URI, "
                         "of 1 to 63 bytes of ASCII without spaces");
        return refuse_chain(chain, X509_V_ERR_CERT_REJECTED);
    }
    return 1;
}

void tmsg_verify_begin(SSL_CTX *context)
{
    SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       judge_certificate);
    SSL_CTX_set_cert_verify_callback(context, judge_chain, NULL);
}
