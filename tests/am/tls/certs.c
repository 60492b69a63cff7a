/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/tls/certs.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/must.h"
#include "support/peers.h"

#define HOUR_S 3600L

static FILE *open_file(const char *path, int mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

    must_true(file != NULL);
    return file;
}

static void close_file(FILE *file) { must_eq(fclose(file), 0); }

static void write_key(const cert_t *cert, const char *password)
{
    FILE *file = open_file(cert->key_path, 0600);

    must_eq(PEM_write_PrivateKey(
                file, cert->key, password == NULL ? NULL : EVP_aes_128_cbc(),
                (const unsigned char *)password,
                password == NULL ? 0 : (int)strlen(password), NULL, NULL),
            1);
    close_file(file);
}

/* The certificate, and those that have signed it but the root. */
static void write_chain(const cert_t *cert, const cert_t *issuer)
{
    FILE *file = open_file(cert->path, 0644);

    must_eq(PEM_write_X509(file, cert->cert), 1);
    if (issuer != NULL && X509_self_signed(issuer->cert, 0) == 0) {
        must_eq(PEM_write_X509(file, issuer->cert), 1);
    }
    close_file(file);
}

static void add(X509 *cert, X509V3_CTX *context, int what, const char *value)
{
    X509_EXTENSION *extension;

    if (value[0] == '\0') {
        return;
    }
    extension = X509V3_EXT_conf_nid(NULL, context, what, value);
    must_true(extension != NULL);
    must_eq(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void say(X509 *cert, X509 *issuer, const cert_says_t *says)
{
    X509V3_CTX context;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    add(cert, &context, NID_basic_constraints,
        says->is_ca ? "critical,CA:TRUE" : "CA:FALSE");
    add(cert, &context, NID_key_usage,
        says->is_ca ? "critical,keyCertSign,cRLSign" : "digitalSignature");
    add(cert, &context, NID_subject_key_identifier, "hash");
    if (says->is_ca) {
        return;
    }
    add(cert, &context, NID_ext_key_usage,
        says->usage == NULL ? "serverAuth,clientAuth" : says->usage);
    add(cert, &context, NID_subject_alt_name,
        says->names == NULL ? "DNS:localhost,IP:127.0.0.1,IP:::1"
                            : says->names);
}

void cert_make(cert_t *cert, const char *name, const cert_t *issuer,
               const cert_says_t *says)
{
    static const cert_says_t usual = {.cn = NULL};
    static long serial = 100;
    X509_NAME *subject;
    const char *cn;
    bool times;

    says = says == NULL ? &usual : says;
    cn = says->cn == NULL ? name : says->cn;
    times = says->from_s != 0 || says->to_s != 0;
    snprintf(cert->path, sizeof(cert->path), "%s", scratch_path(name));
    snprintf(cert->key_path, sizeof(cert->key_path), "%s.key",
             scratch_path(name));
    cert->key = EVP_EC_gen(says->curve == NULL ? "P-256" : says->curve);
    cert->cert = X509_new();
    must_true(cert->key != NULL && cert->cert != NULL);
    must_eq(X509_set_version(cert->cert, X509_VERSION_3), 1);
    ASN1_INTEGER_set(X509_get_serialNumber(cert->cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(cert->cert),
                    times ? says->from_s : -HOUR_S);
    X509_gmtime_adj(X509_getm_notAfter(cert->cert),
                    times ? says->to_s : HOUR_S);
    subject = X509_get_subject_name(cert->cert);
    X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC,
                               (const unsigned char *)"tests", -1, -1, 0);
    if (cn[0] != '\0') {
        must_eq(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                           (const unsigned char *)cn, -1, -1,
                                           0),
                1);
    }
    must_eq(X509_set_issuer_name(
                cert->cert,
                issuer == NULL ? subject : X509_get_subject_name(issuer->cert)),
            1);
    must_eq(X509_set_pubkey(cert->cert, cert->key), 1);
    say(cert->cert, issuer == NULL ? cert->cert : issuer->cert, says);
    must_true(X509_sign(cert->cert, issuer == NULL ? cert->key : issuer->key,
                        EVP_sha256()) > 0);
    write_key(cert, says->password);
    write_chain(cert, issuer);
}

void cert_make_ca(cert_t *cert, const char *name)
{
    cert_make(cert, name, NULL, &(cert_says_t){.is_ca = true});
}

void cert_replace(cert_t *cert, const cert_t *from)
{
    must_eq(rename(from->path, cert->path), 0);
    must_eq(rename(from->key_path, cert->key_path), 0);
}

void cert_free(cert_t *cert)
{
    X509_free(cert->cert);
    EVP_PKEY_free(cert->key);
}

const char *cert_write_crl(const cert_t *ca, const cert_t *revoked, long to_s)
{
    static char path[128];
    X509_CRL *crl = X509_CRL_new();
    ASN1_TIME *time = X509_gmtime_adj(NULL, -HOUR_S);
    FILE *file;

    must_true(crl != NULL && time != NULL);
    X509_CRL_set_version(crl, X509_CRL_VERSION_2);
    X509_CRL_set_issuer_name(crl, X509_get_subject_name(ca->cert));
    X509_CRL_set1_lastUpdate(crl, time);
    if (revoked != NULL) {
        X509_REVOKED *entry = X509_REVOKED_new();

        X509_REVOKED_set_serialNumber(entry,
                                      X509_get_serialNumber(revoked->cert));
        X509_REVOKED_set_revocationDate(entry, time);
        must_eq(X509_CRL_add0_revoked(crl, entry), 1);
    }
    X509_gmtime_adj(time, to_s);
    X509_CRL_set1_nextUpdate(crl, time);
    ASN1_TIME_free(time);
    X509_CRL_sort(crl);
    must_true(X509_CRL_sign(crl, ca->key, EVP_sha256()) > 0);
    snprintf(path, sizeof(path), "%s", scratch_path("crl"));
    file = open_file(path, 0644);
    must_eq(PEM_write_X509_CRL(file, crl), 1);
    close_file(file);
    X509_CRL_free(crl);
    return path;
}

void cert_pin(const cert_t *cert, char pin[65])
{
    unsigned char hash[EVP_MAX_MD_SIZE], *key = NULL;
    int bytes = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert->cert), &key);

    must_true(bytes > 0);
    must_eq(EVP_Digest(key, (size_t)bytes, hash, NULL, EVP_sha256(), NULL), 1);
    OPENSSL_free(key);
    for (int i = 0; i < 32; i++) {
        snprintf(pin + 2 * i, 3, "%02x", hash[i]);
    }
}

tmsg_tls_t *cert_tls(const cert_t *ca, const cert_t *cert)
{
    const tmsg_tls_params_t params = {
        .field_mask =
            TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT | TMSG_TLS_PARAM_KEY,
        .ca = ca == NULL ? NULL : ca->path,
        .cert = cert == NULL ? NULL : cert->path,
        .key = cert == NULL ? NULL : cert->key_path};
    tmsg_tls_t *tls;

    must(tmsg_tls_create(&params, &tls));
    return tls;
}
