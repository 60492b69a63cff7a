/* SPDX-License-Identifier: BSD-3-Clause */
#include "authority.h"

#include "tool.h"

#ifndef TMSG_HAS_OPENSSL

int make_certificate(const char *folder, const char *principal,
                     const char *const *hosts, size_t count)
{
    (void)folder;
    (void)principal;
    (void)hosts;
    (void)count;
    complain("--ca: this build has no tls:// (OpenSSL was missing)");
    return EXIT_FAILED;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_S (24L * 60 * 60)
#define DAYS 30
#define CA_DAYS 3650
#define EARLIER_S 300 /* a peer's clock may be behind */
#define NAME_MOST 63
#define HOST_MOST 253
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

typedef struct {
    X509 *cert;
    EVP_PKEY *key;
} identity_t;

typedef struct {
    char cert[PATH_MAX], key[PATH_MAX];
} paths_t;

static bool fail_file(const char *path)
{
    complain("%s: %s", path, strerror(errno));
    return false;
}

static bool fail_openssl(const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());

    complain("%s: %s", what, why == NULL ? "OpenSSL fails" : why);
    return false;
}

static void free_identity(identity_t *identity)
{
    X509_free(identity->cert);
    EVP_PKEY_free(identity->key);
}

static bool name_files(const char *folder, const char *name, paths_t *paths)
{
    int length =
        snprintf(paths->cert, sizeof(paths->cert), "%s/%s.pem", folder, name);

    snprintf(paths->key, sizeof(paths->key), "%s/%s.key", folder, name);
    errno = ENAMETOOLONG;
    return length < (int)sizeof(paths->cert) || fail_file(folder);
}

/* Writes a new file. Who finds one there leaves it. */
static bool write_file(const char *path, mode_t mode,
                       const identity_t *identity, bool is_key)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    bool written;

    if (file == NULL) {
        return fail_file(path);
    }
    written = (is_key ? PEM_write_PKCS8PrivateKey(file, identity->key, NULL,
                                                  NULL, 0, NULL, NULL)
                      : PEM_write_X509(file, identity->cert)) == 1;
    written = fclose(file) == 0 && written;
    if (!written) {
        fail_file(path);
        unlink(path);
    }
    return written;
}

static bool write_identity(const paths_t *paths, const identity_t *identity)
{
    if (!write_file(paths->key, 0600, identity, true)) {
        return false;
    }
    if (!write_file(paths->cert, 0644, identity, false)) {
        unlink(paths->key);
        return false;
    }
    return true;
}

static FILE *open_file(const char *path)
{
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        fail_file(path);
    }
    return file;
}

static bool read_identity(const paths_t *paths, identity_t *identity)
{
    FILE *cert = open_file(paths->cert);
    FILE *key = cert == NULL ? NULL : open_file(paths->key);
    bool done = key != NULL;

    if (done) {
        identity->cert = PEM_read_X509(cert, NULL, NULL, NULL);
        identity->key = PEM_read_PrivateKey(key, NULL, NULL, NULL);
        done =
            identity->cert == NULL ? fail_openssl(paths->cert)
            : identity->key == NULL ||
                    X509_check_private_key(identity->cert, identity->key) != 1
                ? fail_openssl(paths->key)
                : true;
    }
    if (cert != NULL) {
        fclose(cert);
    }
    if (key != NULL) {
        fclose(key);
    }
    return done;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool added;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509V3_set_ctx_nodb(&context);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    added = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool add_host(GENERAL_NAMES *names, const char *host)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    ASN1_IA5STRING *dns = address == NULL ? ASN1_IA5STRING_new() : NULL;

    if (name == NULL || (address == NULL && dns == NULL) ||
        (dns != NULL && ASN1_STRING_set(dns, host, -1) != 1)) {
        GENERAL_NAME_free(name);
        ASN1_OCTET_STRING_free(address);
        ASN1_IA5STRING_free(dns);
        return false;
    }
    GENERAL_NAME_set0_value(name, address != NULL ? GEN_IPADD : GEN_DNS,
                            address != NULL ? address : dns);
    if (sk_GENERAL_NAME_push(names, name) == 0) {
        GENERAL_NAME_free(name);
        return false;
    }
    return true;
}

static bool add_hosts(X509 *cert, const char *const *hosts, size_t count)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    bool added = names != NULL;

    for (size_t i = 0; added && i < count; i++) {
        added = add_host(names, hosts[i]);
    }
    added = added && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0,
                                       X509V3_ADD_DEFAULT) == 1;
    GENERAL_NAMES_free(names);
    return added;
}

/* Begins a certificate: all but its extensions and its signature. */
static bool begin_identity(const char *name, long days, X509 *issuer,
                           identity_t *identity)
{
    X509 *cert = identity->cert = X509_new();
    X509_NAME *subject;
    unsigned char serial[8];
    BIGNUM *number;
    bool begun;

    identity->key = EVP_EC_gen("P-256");
    if (cert == NULL || identity->key == NULL ||
        RAND_bytes(serial, sizeof(serial)) != 1) {
        return false;
    }
    number = BN_bin2bn(serial, sizeof(serial), NULL);
    subject = X509_get_subject_name(cert);
    begun =
        number != NULL && X509_set_version(cert, X509_VERSION_3) == 1 &&
        BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -EARLIER_S) != NULL &&
        X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S) != NULL &&
        X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC,
                                   (const unsigned char *)name, -1, -1,
                                   0) == 1 &&
        X509_set_issuer_name(
            cert, X509_get_subject_name(issuer == NULL ? cert : issuer)) == 1 &&
        X509_set_pubkey(cert, identity->key) == 1;
    BN_free(number);
    return begun;
}

static void put_files(const paths_t *paths)
{
    put_text(stdout, paths->cert);
    fputs(", ", stdout);
    put_text(stdout, paths->key);
    fputs(": ", stdout);
}

static bool create_authority(const paths_t *paths, identity_t *authority)
{
    unsigned char tag[4];
    char name[NAME_MOST + 1];

    /* Authorities have different names, by which a peer tells them apart. */
    if (RAND_bytes(tag, sizeof(tag)) != 1) {
        return fail_openssl(paths->cert);
    }
    snprintf(name, sizeof(name), "tensormsg test CA %02x%02x%02x%02x", tag[0],
             tag[1], tag[2], tag[3]);
    if (!begin_identity(name, CA_DAYS, NULL, authority) ||
        !add_extension(authority->cert, authority->cert, NID_basic_constraints,
                       "critical,CA:TRUE,pathlen:0") ||
        !add_extension(authority->cert, authority->cert, NID_key_usage,
                       "critical,keyCertSign,cRLSign") ||
        !add_extension(authority->cert, authority->cert,
                       NID_subject_key_identifier, "hash") ||
        X509_sign(authority->cert, authority->key, EVP_sha256()) == 0) {
        return fail_openssl(paths->cert);
    }
    if (!write_identity(paths, authority)) {
        return false;
    }
    put_files(paths);
    puts("a new authority, for tests and small sites: keep its key secret, it "
         "can sign a certificate for any name");
    return true;
}

/* The authority of a folder, which is created where there is none. */
static bool open_authority(const char *folder, identity_t *authority)
{
    paths_t paths;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return fail_file(folder);
    }
    if (!name_files(folder, "ca", &paths)) {
        return false;
    }
    if (access(paths.cert, F_OK) != 0 && access(paths.key, F_OK) != 0) {
        return create_authority(&paths, authority);
    }
    return read_identity(&paths, authority);
}

static bool issue(const identity_t *authority, const char *principal,
                  const char *const *hosts, size_t count, identity_t *made)
{
    X509 *issuer = authority->cert;

    return begin_identity(principal, DAYS, issuer, made) &&
           add_extension(made->cert, issuer, NID_basic_constraints,
                         "critical,CA:FALSE") &&
           add_extension(made->cert, issuer, NID_key_usage,
                         "critical,digitalSignature") &&
           add_extension(made->cert, issuer, NID_ext_key_usage,
                         "serverAuth,clientAuth") &&
           add_extension(made->cert, issuer, NID_subject_key_identifier,
                         "hash") &&
           add_extension(made->cert, issuer, NID_authority_key_identifier,
                         "keyid") &&
           add_hosts(made->cert, hosts, count) &&
           X509_sign(made->cert, authority->key, EVP_sha256()) != 0;
}

/* A principal becomes the name of a file, too. */
static bool check_principal(const char *principal)
{
    size_t length = strlen(principal);

    if (length == 0 || length > NAME_MOST || principal[0] == '.' ||
        principal[0] == '-' || strcmp(principal, "ca") == 0 ||
        strspn(principal, LETTERS DIGITS "-._@") != length) {
        complain("--principal %s: with --ca it is 1 to %d letters, digits and "
                 "any of -._@, begins with no point and no hyphen, and is not "
                 "\"ca\"",
                 principal, NAME_MOST);
        return false;
    }
    return true;
}

static bool check_host(const char *host)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    size_t length = strlen(host);
    bool good =
        address != NULL || (length > 0 && length <= HOST_MOST &&
                            strspn(host, LETTERS DIGITS "-.*_") == length);

    ASN1_OCTET_STRING_free(address);
    if (!good) {
        complain("--host %s: it is a DNS name or an IP address, without "
                 "brackets and port",
                 host);
    }
    return good;
}

static bool create_files(const char *folder, const char *principal,
                         const char *const *hosts, size_t count)
{
    identity_t authority = {NULL, NULL}, made = {NULL, NULL};
    paths_t paths;
    bool done = name_files(folder, principal, &paths) &&
                open_authority(folder, &authority);

    if (done) {
        done = issue(&authority, principal, hosts, count, &made)
                   ? write_identity(&paths, &made)
                   : fail_openssl(paths.cert);
    }
    if (done) {
        put_files(&paths);
        printf("valid for %d days, for", DAYS);
        for (size_t i = 0; i < count; i++) {
            printf("%s %s", i == 0 ? "" : ",", hosts[i]);
        }
        putchar('\n');
    }
    free_identity(&made);
    free_identity(&authority);
    return done;
}

int make_certificate(const char *folder, const char *principal,
                     const char *const *hosts, size_t count)
{
    static const char *const own[] = {"localhost", "127.0.0.1", "::1"};

    if (!check_principal(principal)) {
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!check_host(hosts[i])) {
            return EXIT_USAGE;
        }
    }
    if (count == 0) {
        hosts = own;
        count = sizeof(own) / sizeof(own[0]);
    }
    return create_files(folder, principal, hosts, count) ? EXIT_DONE
                                                         : EXIT_FAILED;
}

#endif
