/* SPDX-License-Identifier: BSD-3-Clause */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/tls/secure.h"
#include "core/error.h"
#include "core/log.h"
#include "core/params.h"
#include "core/refs.h"
#include "core/regular.h"

#define DEPTH 4
#define DEPTH_MOST 16
#define REKEY_BYTES_MOST ((uint64_t)64 << 30)
/* AES first: processors have instructions for it. */
#define SUITES                                                                 \
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"                           \
    "TLS_CHACHA20_POLY1305_SHA256"
/* A version before 3.5 would also take the large groups of RFC 7919, by which a
 * handshake takes 200 times as long. A later one has hybrid groups besides. */
#define GROUPS "X25519:P-256:P-384"
#define GROUPS_UNTIL 0x30500000UL
#define WORDS_BYTES 160
/* Certificates or lists in a file. OpenSSL sorts those that it has for each
 * further one: 2,000 take 0.7 s, 10,000 take 17 s. */
#define PARTS_MOST 2000
#define PEM_BEGIN "-----BEGIN "

struct tmsg_tls {
    tmsg_refs_t refs;
    tmsg_tls_settings_t settings; /* do not change */
    tmsg_keyring_t *keyring;      /* NULL: by certificates */
    pthread_mutex_t lock;         /* protects `context` */
    SSL_CTX *context;
};

const tmsg_tls_settings_t *tmsg_tls_settings(const tmsg_tls_t *tls)
{
    return &tls->settings;
}

tmsg_keyring_t *tmsg_tls_keyring(const tmsg_tls_t *tls) { return tls->keyring; }

bool tmsg_tls_has_keys(const tmsg_tls_t *tls) { return tls->keyring != NULL; }

bool tmsg_tls_is_same(const tmsg_tls_t *a, const tmsg_tls_t *b)
{
    return a == b || (a != NULL && b != NULL && a->keyring != NULL &&
                      a->keyring == b->keyring);
}

SSL_CTX *tmsg_tls_context(tmsg_tls_t *tls)
{
    SSL_CTX *context;

    pthread_mutex_lock(&tls->lock);
    context = SSL_CTX_up_ref(tls->context) == 1 ? tls->context : NULL;
    pthread_mutex_unlock(&tls->lock);
    return context;
}

const char *tmsg_tls_version(void) { return OpenSSL_version(OPENSSL_VERSION); }

void tmsg_tls_hold(tmsg_tls_t *tls) { tmsg_refs_take(&tls->refs); }

static void free_settings(tmsg_tls_settings_t *settings)
{
    free(settings->ca);
    free(settings->cert);
    free(settings->key);
    if (settings->password != NULL) {
        sodium_memzero(settings->password, strlen(settings->password));
    }
    free(settings->password);
    free(settings->crl);
    free(settings->name);
}

void tmsg_tls_destroy(tmsg_tls_t *tls)
{
    if (tls != NULL && tmsg_refs_drop(&tls->refs)) {
        if (tls->context != NULL) { /* OpenSSL may not even be there */
            SSL_CTX_free(tls->context);
        }
        tmsg_keyring_destroy(tls->keyring);
        free_settings(&tls->settings);
        pthread_mutex_destroy(&tls->lock);
        free(tls);
    }
}

/* Chooses the protocol of a side that is dialled. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen_p,
                           unsigned char *bytes_p, const unsigned char *offered,
                           unsigned offered_bytes, void *arg)
{
    unsigned char *chosen;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, bytes_p,
                              (const unsigned char *)TMSG_TLS_ALPN,
                              sizeof(TMSG_TLS_ALPN) - 1, offered,
                              offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *chosen_p = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Refuses who names no protocol at all, before anything has been computed for
 * him: then choose_protocol() is not called. */
static int look_at_hello(SSL *ssl, int *alert_p, void *arg)
{
    const unsigned char *list;
    size_t bytes;

    (void)arg;
    if (SSL_client_hello_get0_ext(
            ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &list,
            &bytes) == 1) {
        return SSL_CLIENT_HELLO_SUCCESS;
    }
    tmsg_secure_fail(tmsg_secure_of(ssl), TMSG_ERR_INCOMPATIBLE,
                     "the peer speaks TLS, but not tensormsg (it names no "
                     "protocol tensormsg/1)");
    *alert_p = SSL_AD_NO_APPLICATION_PROTOCOL;
    return SSL_CLIENT_HELLO_ERROR;
}

static bool set_groups(SSL_CTX *context)
{
    return OpenSSL_version_num() >= GROUPS_UNTIL ||
           SSL_CTX_set1_groups_list(context, GROUPS) == 1;
}

/* Sets what holds for certificates and keys. There are no tickets and no early
 * data: by a ticket a peer would come back whose certificate was revoked. */
static bool set_protocol(SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* openssl.cnf may have set it */
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_client_hello_cb(context, look_at_hello, NULL);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, SUITES) == 1 &&
           set_groups(context) && SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_set_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_alpn_protos(context,
                                   (const unsigned char *)TMSG_TLS_ALPN,
                                   sizeof(TMSG_TLS_ALPN) - 1) == 0;
}

static tmsg_status_t file_failed(const char *what, const char *path)
{
    char words[WORDS_BYTES];

    return tmsg_error_set(TMSG_ERR_MALFORMED, "tls: %s %s: %s", what, path,
                          tmsg_tls_last_words(words, sizeof(words)));
}

typedef struct {
    const char *password;
    bool asked;
} password_t;

/* Tells OpenSSL the password, which otherwise asks at the terminal. */
static int tell_password(char *into, int room, int writing, void *arg)
{
    password_t *asking = arg;
    const char *password = asking->password;
    size_t bytes = password == NULL ? 0 : strlen(password);

    (void)writing;
    asking->asked = true;
    if (bytes == 0 || bytes > (size_t)room) {
        return -1;
    }
    memcpy(into, password, bytes);
    return (int)bytes;
}

/* Reads a private key, which may be encrypted. */
static tmsg_status_t read_key(const tmsg_tls_settings_t *settings, int fd,
                              EVP_PKEY **key_p)
{
    password_t asking = {.password = settings->password};
    BIO *bio = BIO_new_fd(fd, BIO_NOCLOSE);

    *key_p = bio == NULL
                 ? NULL
                 : PEM_read_bio_PrivateKey(bio, NULL, tell_password, &asking);
    BIO_free(bio);
    if (*key_p != NULL) {
        return TMSG_OK;
    }
    if (!asking.asked) {
        return file_failed("key", settings->key);
    }
    ERR_clear_error();
    return tmsg_error_set(TMSG_ERR_MALFORMED, "tls: key %s is encrypted: %s",
                          settings->key,
                          settings->password == NULL ? "it needs its password"
                                                     : "the password is wrong");
}

/* Checks that TLS 1.3 can sign by a key. OpenSSL tells only the peer. */
static tmsg_status_t check_curve(const EVP_PKEY *key, const char *path)
{
    static const char *const known[] = {SN_X9_62_prime256v1, SN_secp384r1,
                                        SN_secp521r1};
    char curve[64];

    if (!EVP_PKEY_is_a(key, SN_X9_62_id_ecPublicKey) ||
        EVP_PKEY_get_group_name(key, curve, sizeof(curve), NULL) != 1) {
        return TMSG_OK;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(curve, known[i]) == 0) {
            return TMSG_OK;
        }
    }
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "tls: key %s is of the curve %s: TLS 1.3 has only "
                          "P-256, P-384 and P-521",
                          path, curve);
}

static tmsg_status_t load_key(SSL_CTX *context,
                              const tmsg_tls_settings_t *settings)
{
    EVP_PKEY *key = NULL;
    int fd;
    tmsg_status_t status = tmsg_regular_open("tls: key", settings->key, &fd);

    if (status == TMSG_OK) {
        status = tmsg_key_file_check(settings->key, fd);
    }
    if (status == TMSG_OK) {
        status = read_key(settings, fd, &key);
    }
    if (status == TMSG_OK) {
        status = check_curve(key, settings->key);
    }
    if (status == TMSG_OK && (SSL_CTX_use_PrivateKey(context, key) != 1 ||
                              SSL_CTX_check_private_key(context) != 1)) {
        ERR_clear_error();
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "tls: key %s is not that of certificate %s",
                                settings->key, settings->cert);
    }
    EVP_PKEY_free(key);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* Counts what begins in a file of PEM, up to PARTS_MOST + 1. */
static unsigned count_parts(FILE *file)
{
    char line[256];
    bool begins = true;
    unsigned count = 0;

    while (count <= PARTS_MOST && fgets(line, sizeof(line), file) != NULL) {
        count += begins && strncmp(line, PEM_BEGIN, strlen(PEM_BEGIN)) == 0;
        begins = strchr(line, '\n') != NULL;
    }
    return count;
}

/* Checks a file of certificates or lists before OpenSSL reads it. */
static tmsg_status_t check_file(const char *what, const char *path)
{
    char words[64];
    unsigned count;
    FILE *file;
    int fd;
    tmsg_status_t status;

    snprintf(words, sizeof(words), "tls: %s", what);
    status = tmsg_regular_open(words, path, &fd);
    if (status != TMSG_OK) {
        return status;
    }
    file = fdopen(fd, "r");
    if (file == NULL) {
        close(fd);
        return tmsg_error_memory("TLS");
    }
    count = count_parts(file);
    fclose(file);
    return count <= PARTS_MOST
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                "tls: %s %s: it has more than %d parts: leave "
                                "out those that no peer needs",
                                what, path, PARTS_MOST);
}

static tmsg_status_t load_crl(X509_STORE *store, const char *path)
{
    X509_LOOKUP *lookup;
    tmsg_status_t status = check_file("crl", path);

    if (status != TMSG_OK) {
        return status;
    }
    lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
    if (lookup == NULL ||
        X509_load_crl_file(lookup, path, X509_FILETYPE_PEM) < 1) {
        return file_failed("crl", path);
    }
    X509_STORE_set_flags(store,
                         X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return TMSG_OK;
}

/* Warns of a certificate of this side that peers will not take. */
static void check_time(SSL_CTX *context, const char *path)
{
    const X509 *cert = SSL_CTX_get0_certificate(context);

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
        tmsg_log(TMSG_LOG_WARN, "tls: certificate %s has expired", path);
    } else if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
        tmsg_log(TMSG_LOG_WARN, "tls: certificate %s is not yet valid", path);
    }
}

/* Reads the chain of certificates. Where OpenSSL finds one encrypted it would
 * ask for a password at the terminal. */
static tmsg_status_t load_certificate(SSL_CTX *context,
                                      const tmsg_tls_settings_t *settings)
{
    password_t asking = {.password = settings->password};
    tmsg_status_t status = check_file("certificate", settings->cert);

    SSL_CTX_set_default_passwd_cb(context, tell_password);
    SSL_CTX_set_default_passwd_cb_userdata(context, &asking);
    if (status == TMSG_OK &&
        SSL_CTX_use_certificate_chain_file(context, settings->cert) != 1) {
        status = file_failed("certificate", settings->cert);
    }
    SSL_CTX_set_default_passwd_cb(context, NULL);
    SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
    return status;
}

static tmsg_status_t load_files(SSL_CTX *context,
                                const tmsg_tls_settings_t *settings)
{
    tmsg_status_t status = load_certificate(context, settings);

    if (status == TMSG_OK) {
        status = load_key(context, settings);
    }
    if (status == TMSG_OK) {
        check_time(context, settings->cert);
    }
    if (status == TMSG_OK && settings->ca != NULL) {
        status = check_file("ca", settings->ca);
        if (status == TMSG_OK &&
            SSL_CTX_load_verify_file(context, settings->ca) != 1) {
            status = file_failed("ca", settings->ca);
        }
    }
    if (status == TMSG_OK && settings->crl != NULL) {
        status = load_crl(SSL_CTX_get_cert_store(context), settings->crl);
    }
    return status;
}

/* Says why there is no context: for want of memory, or because OpenSSL is
 * configured without what TLS needs. */
static tmsg_status_t context_failed(void)
{
    char words[WORDS_BYTES];
    int reason = ERR_GET_REASON(ERR_peek_error());

    if (reason == 0 || reason == ERR_R_MALLOC_FAILURE) {
        return tmsg_error_memory("TLS");
    }
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "tls: OpenSSL, as it is configured (openssl.cnf), "
                          "has no TLS 1.3: %s",
                          tmsg_tls_last_words(words, sizeof(words)));
}

/* Creates a context, of the files as they are now. */
static tmsg_status_t create_context(const tmsg_tls_t *tls, SSL_CTX **context_p)
{
    tmsg_status_t status = TMSG_OK;
    SSL_CTX *context;

    /* A program may load OpenSSL late, and then begin by asking its version
     * (bindings/python/native/late_ssl.c). */
    if (OpenSSL_version_num() == 0) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "tls:// needs OpenSSL 3, which is not there: %s",
                              OpenSSL_version(OPENSSL_VERSION));
    }
    ERR_clear_error();
    context = SSL_CTX_new(TLS_method());
    tmsg_gate_begin(); /* once OpenSSL has begun */
    if (context == NULL || !set_protocol(context)) {
        status = context_failed();
    } else if (tls->keyring != NULL) {
        tmsg_psk_begin(context);
    } else {
        status = load_files(context, &tls->settings);
        SSL_CTX_set_verify_depth(context, (int)tls->settings.depth);
        tmsg_verify_begin(context);
    }
    if (status == TMSG_OK) {
        *context_p = context;
    } else {
        SSL_CTX_free(context);
    }
    ERR_clear_error();
    return status;
}

static bool copy_text(const char *text, char **copy_p)
{
    *copy_p = text == NULL ? NULL : strdup(text);
    return *copy_p != NULL || text == NULL;
}

/* Takes "HEX" or "NAME=HEX": a pin. */
static tmsg_status_t read_pin(const char *text, size_t length,
                              tmsg_tls_pin_t *pin)
{
    const size_t digits = (size_t)2 * TMSG_TLS_PIN_BYTES;
    size_t name_bytes = strcspn(text, "=,"), bytes;

    if (name_bytes < length) {
        if (name_bytes > TMSG_PRINCIPAL_MOST) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "tls: the name of a pin exceeds %d bytes",
                                  TMSG_PRINCIPAL_MOST);
        }
        memcpy(pin->name, text, name_bytes);
        pin->name[name_bytes] = '\0';
        if (tmsg_principal_check(pin->name) != TMSG_OK) {
            return TMSG_ERR_INVALID_PARAM;
        }
        text += name_bytes + 1;
        length -= name_bytes + 1;
    }
    return length == digits &&
                   sodium_hex2bin(pin->hash, TMSG_TLS_PIN_BYTES, text, digits,
                                  NULL, &bytes, NULL) == 0 &&
                   bytes == TMSG_TLS_PIN_BYTES
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "tls: a pin is 64 hexadecimal digits, not '%s'",
                                tmsg_error_name(text, length).text);
}

static tmsg_status_t read_pins(const char *text, tmsg_tls_settings_t *settings)
{
    tmsg_status_t status = TMSG_OK;

    while (status == TMSG_OK && text != NULL && text[0] != '\0') {
        size_t length = strcspn(text, ",");

        if (settings->pin_count == TMSG_TLS_PINS_MOST) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "tls: more than %d pins", TMSG_TLS_PINS_MOST);
        }
        status = read_pin(text, length, &settings->pins[settings->pin_count++]);
        text += length + (text[length] == ',');
    }
    return status;
}

/* An empty text is not taken for one that is not given: without a list of
 * revoked certificates, or a pin, this side would let in more than was meant.
 */
static tmsg_status_t check_texts(const tmsg_tls_params_t *read)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"ca", read->ca},   {"cert", read->cert}, {"key", read->key},
                 {"crl", read->crl}, {"name", read->name}, {"pin", read->pin}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].text != NULL && texts[i].text[0] == '\0') {
            return tmsg_error_set(
                TMSG_ERR_INVALID_PARAM,
                "tls: %s is empty: leave it out, or give it a value",
                texts[i].name);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_params(const tmsg_tls_params_t *read)
{
    if (read->cert == NULL || read->key == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tls: %s is missing: both sides show a "
                              "certificate",
                              read->cert == NULL ? "the certificate (cert)"
                                                 : "the private key (key)");
    }
    if (read->ca == NULL && read->pin == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tls: the authority that signs peers' "
                              "certificates (ca) is missing, or a pin");
    }
    if (read->crl != NULL && read->ca == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tls: a list of revoked certificates (crl) needs "
                              "their authority (ca)");
    }
    if (read->name != NULL && read->ca == NULL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "tls: name needs an authority (ca): with pins alone leave it out");
    }
    if (read->depth > DEPTH_MOST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tls: depth %u exceeds %d", read->depth,
                              DEPTH_MOST);
    }
    return read->rekey_bytes >= TMSG_TLS_RECORD_BYTES &&
                   read->rekey_bytes <= REKEY_BYTES_MOST
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "tls: rekey_bytes %llu is not within 16 KiB to "
                                "64 GiB",
                                (unsigned long long)read->rekey_bytes);
}

static tmsg_status_t read_params(const tmsg_tls_params_t *params,
                                 tmsg_tls_settings_t *settings)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_CA, ca),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_CERT, cert),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_KEY, key),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_PASSWORD, password),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_CRL, crl),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_NAME, name),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_PIN, pin),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_DEPTH, depth),
        TMSG_PARAM(tmsg_tls_params_t, TMSG_TLS_PARAM_REKEY_BYTES, rekey_bytes)};
    tmsg_tls_params_t read = {.depth = DEPTH, .rekey_bytes = REKEY_BYTES_MOST};
    tmsg_status_t status =
        tmsg_params_read("tls", params, params == NULL ? 0 : params->field_mask,
                         rows, sizeof(rows) / sizeof(rows[0]), &read);

    if (status == TMSG_OK) {
        status = check_texts(&read);
    }
    if (status == TMSG_OK) {
        status = check_params(&read);
    }
    if (status == TMSG_OK) {
        status = read_pins(read.pin, settings);
    }
    settings->depth = read.depth;
    settings->records = read.rekey_bytes / TMSG_TLS_RECORD_BYTES;
    if (status == TMSG_OK && (!copy_text(read.ca, &settings->ca) ||
                              !copy_text(read.cert, &settings->cert) ||
                              !copy_text(read.key, &settings->key) ||
                              !copy_text(read.password, &settings->password) ||
                              !copy_text(read.crl, &settings->crl) ||
                              !copy_text(read.name, &settings->name))) {
        status = tmsg_error_memory("TLS");
    }
    return status;
}

static tmsg_status_t new_tls(tmsg_tls_t **tls_p)
{
    tmsg_tls_t *tls = calloc(1, sizeof(*tls));

    if (tls == NULL) {
        return tmsg_error_memory("TLS");
    }
    tmsg_refs_init(&tls->refs, 1);
    pthread_mutex_init(&tls->lock, NULL);
    tls->settings.records = REKEY_BYTES_MOST / TMSG_TLS_RECORD_BYTES;
    *tls_p = tls;
    return TMSG_OK;
}

static tmsg_status_t finish_tls(tmsg_tls_t *tls, tmsg_status_t status,
                                tmsg_tls_t **tls_p)
{
    if (status == TMSG_OK) {
        status = create_context(tls, &tls->context);
    }
    if (status == TMSG_OK) {
        *tls_p = tls;
    } else {
        tmsg_tls_destroy(tls);
    }
    return status;
}

tmsg_status_t tmsg_tls_create(const tmsg_tls_params_t *params,
                              tmsg_tls_t **tls_p)
{
    tmsg_tls_t *tls = NULL;
    tmsg_status_t status = new_tls(&tls);

    return status == TMSG_OK
               ? finish_tls(tls, read_params(params, &tls->settings), tls_p)
               : status;
}

tmsg_status_t tmsg_tls_of_keyring(tmsg_keyring_t *keyring, tmsg_tls_t **tls_p)
{
    tmsg_tls_t *tls = NULL;
    tmsg_status_t status = new_tls(&tls);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_keyring_hold(keyring);
    tls->keyring = keyring;
    return finish_tls(tls, TMSG_OK, tls_p);
}

tmsg_status_t tmsg_tls_reload(tmsg_tls_t *tls)
{
    SSL_CTX *context, *before;
    tmsg_status_t status = create_context(tls, &context);

    if (status != TMSG_OK) {
        return status;
    }
    pthread_mutex_lock(&tls->lock);
    before = tls->context;
    tls->context = context;
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(before);
    return TMSG_OK;
}
