/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of a connection, through OpenSSL. Its reads and writes of the
 * socket are ours: what the socket does not take is kept here, so that a write
 * which has begun to encrypt never has to be repeated with the same bytes. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "am/tls/secure.h"
#include "core/error.h"
#include "core/probe.h"

#define WIDE_BYTES ((size_t)128 * 1024) /* that one call reads */
/* Records without data, one behind the other: a peer that sends more of them
 * only wants to keep this side busy. */
#define EMPTY_MOST 32
/* Bytes of them, more than any record and what is read ahead with it. A call of
 * OpenSSL takes them one after the other, as long as there are more. */
#define VOID_MOST (WIDE_BYTES + 2 * TMSG_TLS_RECORD_BYTES)
/* Encrypted bytes that a peer may leave unread: it can ask for answers of TLS's
 * own without end. */
#define OUT_MOST ((size_t)1024 * 1024)
#define OUT_LEAST ((size_t)1024) /* of the buffer */
#define OUT_USUAL                                                              \
    ((size_t)128 * 1024) /* encrypted, before the kernel has them */

static const char no_data[] = "the peer sends TLS records without data";
static BIO_METHOD *method;

/* Makes room for more encrypted bytes. Returns whether there is. */
static bool make_room(tmsg_secure_t *secure, size_t bytes)
{
    size_t kept = secure->out_end - secure->out_begin;
    size_t room = secure->out_room > 0 ? secure->out_room : OUT_LEAST;
    uint8_t *grown;

    if (secure->out_begin > 0) {
        memmove(secure->out, secure->out + secure->out_begin, kept);
        secure->out_begin = 0;
        secure->out_end = kept;
    }
    while (room < kept + bytes) {
        room *= 2;
    }
    if (room == secure->out_room) {
        return true;
    }
    grown = realloc(secure->out, room);
    if (grown == NULL) {
        return false;
    }
    secure->out = grown;
    secure->out_room = room;
    return true;
}

void tmsg_secure_say(tmsg_secure_t *secure, const void *data, size_t bytes)
{
    if (secure->write_error != 0) {
        return;
    }
    if (secure->out_room - secure->out_end < bytes &&
        !make_room(secure, bytes)) {
        secure->write_error = ENOMEM;
        tmsg_secure_fail(secure, TMSG_ERR_NO_MEMORY,
                         "no memory for what TLS says");
        return;
    }
    memcpy(secure->out + secure->out_end, data, bytes);
    secure->out_end += bytes;
}

/* Keeps encrypted bytes for flush(): one call of the kernel takes several
 * records. It takes everything: an error is told by write_secure(), and OpenSSL
 * can still read what the peer has said before. */
static int write_out(BIO *bio, const char *data, size_t bytes, size_t *done_p)
{
    tmsg_secure_say(BIO_get_data(bio), data, bytes);
    *done_p = bytes;
    return 1;
}

static int read_in(BIO *bio, char *data, size_t room, size_t *done_p)
{
    tmsg_secure_t *secure = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    *done_p = 0;
    if (secure->void_bytes > VOID_MOST) {
        tmsg_secure_fail(secure, TMSG_ERR_MALFORMED, no_data);
        BIO_set_retry_read(bio);
        return 0;
    }
    if (secure->drained) { /* the loop tells of what has come since */
        secure->read_all = true;
        BIO_set_retry_read(bio);
        return 0;
    }
    do {
        n = recv(secure->fd, data, room, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        size_t more = sizeof(secure->begin) - secure->begin_bytes;

        if (more > 0) {
            more = (size_t)n < more ? (size_t)n : more;
            memcpy(secure->begin + secure->begin_bytes, data, more);
            secure->begin_bytes += (unsigned)more;
        }
        secure->drained = (size_t)n < room;
        secure->void_bytes += (size_t)n;
        *done_p = (size_t)n;
        return 1;
    }
    if (n == 0) {
        secure->ended = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        secure->read_all = true;
        BIO_set_retry_read(bio);
    } else {
        secure->read_error = errno;
    }
    return 0;
}

static long control(BIO *bio, int what, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    if (what == BIO_CTRL_EOF) {
        return ((tmsg_secure_t *)BIO_get_data(bio))->ended;
    }
    return what == BIO_CTRL_FLUSH;
}

static void make_method(void)
{
    method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tensormsg");
    if (method != NULL && (!BIO_meth_set_write_ex(method, write_out) ||
                           !BIO_meth_set_read_ex(method, read_in) ||
                           !BIO_meth_set_ctrl(method, control))) {
        BIO_meth_free(method);
        method = NULL;
    }
}

static bool attach(tmsg_secure_t *secure)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pthread_once(&once, make_method);
    bio = method == NULL ? NULL : BIO_new(method);
    if (bio == NULL) {
        return false;
    }
    BIO_set_data(bio, secure);
    BIO_set_init(bio, 1);
    SSL_set_bio(secure->ssl, bio, bio);
    return SSL_set_app_data(secure->ssl, secure) == 1;
}

tmsg_secure_t *tmsg_secure_of(const SSL *ssl) { return SSL_get_app_data(ssl); }

/* Says which listener is meant, and whose certificate it has to show. */
static bool expect_host(tmsg_secure_t *secure, const char *host)
{
    const tmsg_tls_settings_t *settings = tmsg_tls_settings(secure->tls);
    X509_VERIFY_PARAM *param = SSL_get0_param(secure->ssl);
    const char *name = settings->name != NULL ? settings->name : host;
    size_t length;

    snprintf(secure->host, sizeof(secure->host), "%s",
             name[0] == '\0' ? "localhost" : name);
    secure->host[strcspn(secure->host, "%")] = '\0'; /* [fe80::1%eth0] */
    length = strlen(secure->host);
    if (length > 1 && secure->host[length - 1] == '.') { /* example.org. */
        secure->host[length - 1] = '\0';
    }
    if (X509_VERIFY_PARAM_set1_ip_asc(param, secure->host) == 1) {
        return true;
    }
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                        X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, secure->host, 0) == 1 &&
           SSL_set_tlsext_host_name(secure->ssl, secure->host) == 1;
}

/* Begins TLS on a socket, which stays the caller's. */
static tmsg_status_t begin_tls(tmsg_tls_t *tls, int fd, const char *host,
                               tmsg_secure_t **secure_p)
{
    tmsg_secure_t *secure = calloc(1, sizeof(*secure));
    SSL_CTX *context = tmsg_tls_context(tls);

    if (secure == NULL || context == NULL) {
        goto err;
    }
    secure->fd = fd;
    secure->tls = tls;
    secure->dialling = host != NULL;
    secure->ssl = SSL_new(context);
    if (secure->ssl == NULL || !attach(secure)) {
        goto err;
    }
    if (secure->dialling) {
        SSL_set_connect_state(secure->ssl);
        if (!tmsg_tls_has_keys(tls) && !expect_host(secure, host)) {
            goto err;
        }
    } else {
        SSL_set_accept_state(secure->ssl);
    }
    SSL_CTX_free(context);
    tmsg_tls_hold(tls);
    *secure_p = secure;
    return TMSG_OK;

err:
    ERR_clear_error();
    if (secure != NULL) {
        SSL_free(secure->ssl);
        free(secure);
    }
    SSL_CTX_free(context);
    return tmsg_error_memory("a TLS connection");
}

/* There is no goodbye of TLS: the socket may be closed, and the orderly end is
 * said by frames (docs/wire/connection.md). */
static void free_secure(void *io)
{
    tmsg_secure_t *secure = io;

    if (!tmsg_gate_enter()) {
        return;
    }
    SSL_free(secure->ssl);
    ERR_clear_error();
    tmsg_tls_destroy(secure->tls);
    free(secure->out);
    free(secure);
    tmsg_gate_leave();
}

void tmsg_secure_widen(tmsg_secure_t *secure)
{
    SSL_clear_mode(secure->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_set_default_read_buffer_len(secure->ssl, WIDE_BYTES);
}

static bool waits(const tmsg_secure_t *secure)
{
    return secure->out_begin < secure->out_end && secure->write_error == 0;
}

void tmsg_secure_fail(tmsg_secure_t *secure, tmsg_status_t status,
                      const char *format, ...)
{
    va_list args;

    if (secure->failed == TMSG_OK) {
        secure->failed = status;
        va_start(args, format);
        vsnprintf(secure->why, sizeof(secure->why), format, args);
        va_end(args);
    }
}

static tmsg_status_t failed(void *io)
{
    const tmsg_secure_t *secure = io;

    return tmsg_error_set(secure->failed, "%s", secure->why);
}

static ssize_t fail_with(int error)
{
    errno = error;
    return -1;
}

/* Tries to write what the socket did not take. */
static bool flush(void *io)
{
    tmsg_secure_t *secure = io;

    while (waits(secure)) {
        ssize_t n = send(secure->fd, secure->out + secure->out_begin,
                         secure->out_end - secure->out_begin,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            secure->out_begin += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return false;
        } else if (errno != EINTR) {
            secure->write_error = errno;
        }
    }
    secure->out_begin = secure->out_end = 0;
    return true;
}

static bool speaks_our_protocol(const tmsg_secure_t *secure)
{
    const unsigned char *name;
    unsigned bytes;

    SSL_get0_alpn_selected(secure->ssl, &name, &bytes);
    return bytes == sizeof(TMSG_TLS_ALPN) - 2 &&
           memcmp(name, TMSG_TLS_ALPN + 1, bytes) == 0;
}

/* Checks who the peer is, when OpenSSL is content. */
static bool judge_peer(tmsg_secure_t *secure)
{
    if (!speaks_our_protocol(secure)) {
        tmsg_secure_fail(secure, TMSG_ERR_INCOMPATIBLE,
                         "the peer speaks TLS, but not tensormsg (it names no "
                         "protocol tensormsg/1)");
    } else if (tmsg_tls_has_keys(secure->tls)) {
        if (!SSL_session_reused(secure->ssl) || secure->principal[0] == '\0') {
            tmsg_secure_fail(secure, tmsg_secure_refusal(secure),
                             "not admitted: the peer has proved no key");
        }
    }
    secure->void_bytes = 0;
    secure->up = secure->failed == TMSG_OK;
    return secure->up;
}

/* Goes on with the handshake. Returns 0 when it is over. */
static int shake_hands(tmsg_secure_t *secure)
{
    int rc, empty = 0;

    if (secure->failed != TMSG_OK) {
        return EPROTO;
    }
    secure->drained = false;
    do {
        ERR_clear_error();
        secure->read_all = false;
        rc = SSL_do_handshake(secure->ssl);
        if (rc != 1 && SSL_get_error(secure->ssl, rc) != SSL_ERROR_WANT_READ) {
            tmsg_secure_explain(secure);
        }
        flush(secure); /* an alert, too: who fails is not asked again */
        if (secure->failed != TMSG_OK) {
            return EPROTO;
        }
    } while (rc != 1 && !secure->read_all && ++empty < EMPTY_MOST);
    if (rc != 1) {
        return EAGAIN;
    }
    return judge_peer(secure) ? 0 : EPROTO;
}

/* Begins the handshake for a side that has something to write, and leaves the
 * rest to reading: what comes behind the handshake would be read ahead here,
 * and nobody would be told of it. Returns 0 when it is over. */
static int begin_hands(tmsg_secure_t *secure)
{
    if (secure->failed == TMSG_OK && (!secure->dialling || secure->begun)) {
        return EAGAIN;
    }
    secure->begun = true;
    return shake_hands(secure);
}

/* Takes a new key for what is sent, when this one has encrypted enough. */
static void count_record(tmsg_secure_t *secure)
{
    if (++secure->records >= tmsg_tls_settings(secure->tls)->records &&
        SSL_key_update(secure->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
        secure->records = 0;
    }
}

/* Gathers places that are small into one record. Returns its length; less than
 * there is if memory cannot be read. */
static size_t gather(const struct iovec *from, size_t count, size_t skip,
                     uint8_t *record)
{
    size_t all = 0;

    for (size_t i = 0; i < count && all < TMSG_TLS_RECORD_BYTES; i++) {
        const uint8_t *data = (const uint8_t *)from[i].iov_base + skip;
        size_t bytes = from[i].iov_len - skip;
        size_t room = TMSG_TLS_RECORD_BYTES - all;

        bytes = bytes < room ? bytes : room;
        if (tmsg_probe(data, bytes) != NULL) {
            break;
        }
        memcpy(record + all, data, bytes);
        all += bytes;
        skip = 0;
    }
    return all;
}

/* Writes a record. Returns the bytes in it; 0: it cannot be, because TLS has
 * failed or memory cannot be read. */
static size_t write_record(tmsg_secure_t *secure, const struct iovec *from,
                           size_t count, size_t skip)
{
    uint8_t record[TMSG_TLS_RECORD_BYTES];
    const uint8_t *data = (const uint8_t *)from->iov_base + skip;
    size_t bytes = from->iov_len - skip, done;

    if (bytes >= TMSG_TLS_RECORD_BYTES) {
        bytes = tmsg_probe(data, TMSG_TLS_RECORD_BYTES) == NULL
                    ? TMSG_TLS_RECORD_BYTES
                    : 0;
    } else {
        bytes = gather(from, count, skip, record);
        data = record;
    }
    ERR_clear_error();
    if (bytes == 0 || SSL_write_ex(secure->ssl, data, bytes, &done) != 1) {
        if (bytes > 0) {
            tmsg_secure_explain(secure);
        }
        return 0;
    }
    count_record(secure);
    return bytes;
}

static ssize_t write_secure(void *io, const struct iovec *from, size_t count)
{
    tmsg_secure_t *secure = io;
    size_t all = 0, skip = 0;

    if (!secure->up) {
        int error = begin_hands(secure);

        if (error != 0) {
            return fail_with(error);
        }
    }
    if (!flush(secure)) {
        return fail_with(EAGAIN);
    }
    if (secure->write_error != 0) {
        return fail_with(secure->write_error);
    }
    while (count > 0 && secure->failed == TMSG_OK &&
           (secure->out_end < OUT_USUAL || flush(secure))) {
        size_t bytes;

        if (from->iov_len == skip) {
            from++;
            count--;
            skip = 0;
            continue;
        }
        bytes = write_record(secure, from, count, skip);
        if (bytes == 0) {
            break;
        }
        all += bytes;
        for (skip += bytes; count > 0 && skip >= from->iov_len; count--) {
            skip -= from->iov_len;
            from++;
        }
    }
    flush(secure);
    if (all == 0 && count > 0) {
        return fail_with(secure->failed != TMSG_OK ? EPROTO : EFAULT);
    }
    return (ssize_t)all;
}

/* Reads into one place. Returns how much; 0: no more for now, or ever. */
static size_t read_place(tmsg_secure_t *secure, void *into, size_t room)
{
    size_t all = 0;
    int empty = 0;

    while (all < room && !secure->read_all && secure->failed == TMSG_OK) {
        size_t bytes = 0;
        int rc;

        ERR_clear_error();
        rc =
            SSL_read_ex(secure->ssl, (uint8_t *)into + all, room - all, &bytes);
        if (rc == 1) {
            all += bytes;
            empty = 0;
            secure->void_bytes = 0;
            continue;
        }
        rc = SSL_get_error(secure->ssl, rc);
        if (rc == SSL_ERROR_ZERO_RETURN) {
            secure->ended = true;
            break;
        }
        if (rc != SSL_ERROR_WANT_READ) {
            if (secure->ended) {
                ERR_clear_error();
                break;
            }
            tmsg_secure_explain(secure);
        } else if (!secure->read_all && ++empty > EMPTY_MOST) {
            tmsg_secure_fail(secure, TMSG_ERR_MALFORMED, no_data);
        }
    }
    return all;
}

static ssize_t read_secure(void *io, const struct iovec *into, size_t count)
{
    tmsg_secure_t *secure = io;
    size_t all = 0;

    if (!secure->up) {
        int error = shake_hands(secure);

        if (error != 0) {
            return fail_with(error);
        }
    }
    secure->read_all = false;
    secure->drained = false;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = read_place(secure, into[i].iov_base, into[i].iov_len);

        all += bytes;
        if (bytes < into[i].iov_len) {
            break;
        }
    }
    flush(secure); /* reading may have made an answer of TLS's own */
    if (secure->out_end - secure->out_begin > OUT_MOST) {
        tmsg_secure_fail(secure, TMSG_ERR_MALFORMED,
                         "the peer asks for answers of TLS, and does not read "
                         "them");
    }
    if (all > 0) {
        secure->heard = true;
        return (ssize_t)all;
    }
    if (tmsg_secure_is_cut(secure)) {
        tmsg_secure_tell_cut(secure);
    }
    if (secure->failed != TMSG_OK) {
        return fail_with(EPROTO);
    }
    return secure->ended ? 0 : fail_with(EAGAIN);
}

static ssize_t read_gated(void *io, const struct iovec *into, size_t count)
{
    ssize_t moved;

    if (!tmsg_gate_enter()) {
        return fail_with(EAGAIN);
    }
    moved = read_secure(io, into, count);
    tmsg_gate_leave();
    return moved;
}

static ssize_t write_gated(void *io, const struct iovec *from, size_t count)
{
    ssize_t moved;

    if (!tmsg_gate_enter()) {
        return fail_with(EAGAIN);
    }
    moved = write_secure(io, from, count);
    tmsg_gate_leave();
    return moved;
}

/* The handshake goes on inside of read() and write(), which return EAGAIN until
 * it is over. */
static const tmsg_io_t secure_io = {
    .read = read_gated,
    .write = write_gated,
    .flush = flush,
    .failed = failed,
    .free = free_secure,
};

tmsg_status_t tmsg_secure_frames(tmsg_tls_t *tls, const char *host,
                                 tmsg_frame_stream_t *stream)
{
    tmsg_secure_t *secure = NULL;
    tmsg_status_t status;

    if (tls == NULL) {
        return TMSG_OK;
    }
    if (!tmsg_gate_enter()) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "this process exits");
    }
    status = begin_tls(tls, stream->socket, host, &secure);
    tmsg_gate_leave();
    if (status == TMSG_OK) {
        tmsg_frame_use_io(stream, &secure_io, secure);
    }
    return status;
}

/* Returns what encrypts the frames; NULL: nothing does yet. */
static const tmsg_secure_t *secure_of(const tmsg_frame_stream_t *stream)
{
    const tmsg_secure_t *secure =
        stream->io == &secure_io ? stream->io_arg : NULL;

    return secure != NULL && secure->up ? secure : NULL;
}

const char *tmsg_secure_peer(const tmsg_frame_stream_t *stream)
{
    const tmsg_secure_t *secure = secure_of(stream);

    return secure != NULL ? secure->principal : NULL;
}

const char *tmsg_secure_cipher(const tmsg_frame_stream_t *stream)
{
    const tmsg_secure_t *secure = secure_of(stream);

    return secure != NULL ? SSL_get_cipher_name(secure->ssl) : NULL;
}
