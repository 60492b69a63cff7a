/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps by SSL_write() and SSL_read() on one connection of TLS 1.3, with both
 * sides' certificates, and nothing else: what TLS costs at least. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "pump.h"

#define RECORD_BYTES SSL3_RT_MAX_PLAIN_LENGTH
#define READ_BYTES (128 << 10) /* what is read from the socket at once */

typedef struct {
    compare_pump_t pump;
    BIO_METHOD *method;
    SSL_CTX *context;
    SSL *ssl;
    uint8_t record[RECORD_BYTES]; /* what is gathered for one */
} openssl_side_t;

static void must(bool right, const char *what)
{
    if (!right) {
        bench_die("OpenSSL: %s: %s", what,
                  ERR_error_string(ERR_get_error(), NULL));
    }
}

static void write_bytes(openssl_side_t *self, const void *data, size_t bytes)
{
    size_t written;

    must(bytes == 0 || SSL_write_ex(self->ssl, data, bytes, &written) == 1,
         "SSL_write");
}

/* What is short goes together in a record, what is longer as it lies. */
static void write_pieces(compare_pump_t *pump, struct iovec *iov, size_t count)
{
    openssl_side_t *self = (openssl_side_t *)pump;
    size_t gathered = 0;

    for (size_t i = 0; i < count; i++) {
        if (iov[i].iov_len > RECORD_BYTES - gathered) {
            write_bytes(self, self->record, gathered);
            gathered = 0;
        }
        if (iov[i].iov_len > RECORD_BYTES) {
            write_bytes(self, iov[i].iov_base, iov[i].iov_len);
        } else if (iov[i].iov_len > 0) {
            memcpy(self->record + gathered, iov[i].iov_base, iov[i].iov_len);
            gathered += iov[i].iov_len;
        }
    }
    write_bytes(self, self->record, gathered);
}

static void read_whole(compare_pump_t *pump, void *data, size_t bytes)
{
    openssl_side_t *self = (openssl_side_t *)pump;

    for (size_t done = 0, n; done < bytes; done += n) {
        must(SSL_read_ex(self->ssl, (uint8_t *)data + done, bytes - done, &n) ==
                 1,
             "SSL_read");
    }
}

/* The socket as OpenSSL sees it: it blocks, but a reader spins first. */
static int bio_read(BIO *bio, char *data, int bytes)
{
    return (int)compare_pump_recv(BIO_get_data(bio), data, (size_t)bytes);
}

static int bio_write(BIO *bio, const char *data, int bytes)
{
    const compare_pump_t *pump = BIO_get_data(bio);
    ssize_t n = send(pump->fd, data, (size_t)bytes, 0);

    if (n < 0) {
        bench_die("OpenSSL: send: %s", strerror(errno));
    }
    return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *arg)
{
    (void)bio;
    (void)number;
    (void)arg;
    return command == BIO_CTRL_FLUSH;
}

static BIO *make_bio(openssl_side_t *self)
{
    BIO *bio;

    self->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "a spinning socket");
    must(self->method != NULL, "a BIO's method");
    BIO_meth_set_read(self->method, bio_read);
    BIO_meth_set_write(self->method, bio_write);
    BIO_meth_set_ctrl(self->method, bio_ctrl);
    bio = BIO_new(self->method);
    must(bio != NULL, "a BIO");
    BIO_set_data(bio, &self->pump);
    BIO_set_init(bio, 1);
    return bio;
}

static void configure(openssl_side_t *self, const char *folder, bool dialling)
{
    SSL_CTX *context =
        SSL_CTX_new(dialling ? TLS_client_method() : TLS_server_method());
    bench_certificates_t paths;

    bench_certificates(folder, dialling, &paths);
    must(context != NULL &&
             SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
             SSL_CTX_set_num_tickets(context, 0) == 1,
         "a context");
    must(SSL_CTX_load_verify_file(context, paths.ca) == 1, paths.ca);
    must(SSL_CTX_use_certificate_file(context, paths.certificate,
                                      SSL_FILETYPE_PEM) == 1,
         paths.certificate);
    must(SSL_CTX_use_PrivateKey_file(context, paths.key, SSL_FILETYPE_PEM) == 1,
         paths.key);
    SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_BYTES);
    self->context = context;
}

static void shake_hands(openssl_side_t *self, bool dialling)
{
    BIO *bio = make_bio(self);

    self->ssl = SSL_new(self->context);
    must(self->ssl != NULL, "SSL_new");
    SSL_set_bio(self->ssl, bio, bio);
    if (dialling) {
        must(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(self->ssl),
                                           "127.0.0.1") == 1,
             "the name");
    }
    must((dialling ? SSL_connect(self->ssl) : SSL_accept(self->ssl)) == 1,
         "a handshake");
    if (strcmp(SSL_get_cipher_name(self->ssl), COMPARE_CIPHER) != 0) {
        bench_die("OpenSSL: the cipher is %s", SSL_get_cipher_name(self->ssl));
    }
}

static void close_side(bench_side_t *side)
{
    openssl_side_t *self = (openssl_side_t *)side;

    SSL_free(self->ssl);
    SSL_CTX_free(self->context);
    BIO_meth_free(self->method);
    compare_pump_close(&self->pump);
    free(self);
}

bench_side_t *compare_openssl_open(const bench_run_t *run, bool dialling,
                                   int socket)
{
    openssl_side_t *self = bench_memory(sizeof(*self));

    self->pump.write = write_pieces;
    self->pump.read = read_whole;
    configure(self, run->folder, dialling);
    compare_pump_open(&self->pump, run, dialling, socket);
    self->pump.framed.side.close = close_side;
    shake_hands(self, dialling);
    return &self->pump.framed.side;
}

const char *compare_openssl_version(void)
{
    return OpenSSL_version(OPENSSL_VERSION_STRING);
}
