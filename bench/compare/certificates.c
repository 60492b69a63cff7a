/* SPDX-License-Identifier: BSD-3-Clause */
/* A CA of one run, and what it signs: a certificate for the listening side, of
 * 127.0.0.1 and localhost, and one for the dialling side. ECDSA, P-256. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "way.h"

#define SECONDS_BEFORE 3600 /* for a clock that is a little off */
#define SECONDS_AFTER 86400

typedef struct {
    X509 *certificate;
    EVP_PKEY *key;
} signed_t;

static void must(bool right, const char *what)
{
    if (!right) {
        bench_die("a certificate: %s: %s", what,
                  ERR_error_string(ERR_get_error(), NULL));
    }
}

static void extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    must(extension != NULL && X509_add_ext(certificate, extension, -1) == 1,
         value);
    X509_EXTENSION_free(extension);
}

/* By the CA, or, if that is NULL, by itself. */
static signed_t make(const char *name, int serial, const char *names,
                     const signed_t *ca)
{
    signed_t made = {X509_new(), EVP_EC_gen("P-256")};
    const signed_t *by = ca == NULL ? &made : ca;
    X509_NAME *subject;

    must(made.certificate != NULL && made.key != NULL, "a key");
    subject = X509_get_subject_name(made.certificate);
    must(
        X509_set_version(made.certificate, 2) == 1 && /* X.509 v3 */
            ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), serial) ==
                1 &&
            X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                       (const unsigned char *)name, -1, -1,
                                       0) == 1 &&
            X509_set_issuer_name(made.certificate,
                                 X509_get_subject_name(by->certificate)) == 1 &&
            X509_gmtime_adj(X509_getm_notBefore(made.certificate),
                            -SECONDS_BEFORE) != NULL &&
            X509_gmtime_adj(X509_getm_notAfter(made.certificate),
                            SECONDS_AFTER) != NULL &&
            X509_set_pubkey(made.certificate, made.key) == 1,
        name);
    extend(made.certificate, by->certificate, NID_basic_constraints,
           ca == NULL ? "critical,CA:TRUE" : "critical,CA:FALSE");
    extend(made.certificate, by->certificate, NID_key_usage,
           ca == NULL ? "critical,keyCertSign,cRLSign"
                      : "critical,digitalSignature");
    extend(made.certificate, by->certificate, NID_subject_key_identifier,
           "hash");
    extend(made.certificate, by->certificate, NID_authority_key_identifier,
           "keyid");
    if (ca != NULL) {
        extend(made.certificate, by->certificate, NID_ext_key_usage,
               "serverAuth,clientAuth");
        extend(made.certificate, by->certificate, NID_subject_alt_name, names);
    }
    must(X509_sign(made.certificate, by->key, EVP_sha256()) > 0, "a signature");
    return made;
}

static void settings_path(const char *folder, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/openssl.cnf", folder);
}

/* Nobody else may read it. */
static FILE *open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
    return fdopen(fd, "w");
}

static void write_certificate(const signed_t *made, const char *path)
{
    FILE *file = open_file(path);
    bool written = PEM_write_X509(file, made->certificate) == 1;

    must(fclose(file) == 0 && written, path);
}

static void write_key(const signed_t *made, const char *path)
{
    FILE *file = open_file(path);
    bool written =
        PEM_write_PrivateKey(file, made->key, NULL, NULL, 0, NULL, NULL) == 1;

    must(fclose(file) == 0 && written, path);
}

static void free_signed(signed_t *made)
{
    X509_free(made->certificate);
    EVP_PKEY_free(made->key);
}

/* A file of settings is the one way to choose a cipher of TLS 1.3 for gRPC. */
static void choose_cipher(const char *folder)
{
    char path[64];
    FILE *file;

    settings_path(folder, path, sizeof(path));
    file = open_file(path);
    fputs("openssl_conf = all\n[all]\nssl_conf = ssl\n"
          "[ssl]\nsystem_default = cipher\n"
          "[cipher]\nCiphersuites = " COMPARE_CIPHER "\n",
          file);
    must(fclose(file) == 0 && setenv("OPENSSL_CONF", path, 1) == 0, path);
}

void compare_certificates_make(const char *folder)
{
    signed_t ca;

    choose_cipher(folder);
    ca = make("tensormsg-compare", 1, NULL, NULL);
    for (int dialling = 0; dialling < 2; dialling++) {
        signed_t made =
            dialling ? make("client", 3, "DNS:client", &ca)
                     : make("server", 2, "IP:127.0.0.1,DNS:localhost", &ca);
        bench_certificates_t paths;

        bench_certificates(folder, dialling, &paths);
        write_certificate(&made, paths.certificate);
        write_key(&made, paths.key);
        if (dialling) { /* it is one file for both */
            write_certificate(&ca, paths.ca);
        }
        free_signed(&made);
    }
    free_signed(&ca);
}

void compare_certificates_remove(const char *folder)
{
    char path[64];

    for (int dialling = 0; dialling < 2; dialling++) {
        bench_certificates_t paths;

        bench_certificates(folder, dialling, &paths);
        unlink(paths.ca);
        unlink(paths.certificate);
        unlink(paths.key);
    }
    settings_path(folder, path, sizeof(path));
    unlink(path);
}
