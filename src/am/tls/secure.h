/* SPDX-License-Identifier: BSD-3-Clause */
/* am/tls/secure.h - what the files of this room share. */
#ifndef TMSG_AM_TLS_SECURE_H
#define TMSG_AM_TLS_SECURE_H

#include <openssl/ssl.h>
#include <stdint.h>

#include "am/boot/key.h"
#include "am/tls/tls.h"

#define TMSG_TLS_RECORD_BYTES ((size_t)16 * 1024)
/* What both sides say that they speak (ALPN), its length before it. */
#define TMSG_TLS_ALPN "\x0btensormsg/1"
#define TMSG_TLS_PIN_BYTES 32
#define TMSG_TLS_PINS_MOST 16
#define TMSG_SECURE_WORDS 256

/* A public key that a peer may have. */
typedef struct {
    uint8_t hash[TMSG_TLS_PIN_BYTES];
    char name[TMSG_PRINCIPAL_BYTES]; /* whose it is; "": not said */
} tmsg_tls_pin_t;

/* The texts of a tmsg_tls_params_t, owned. */
typedef struct {
    char *ca, *cert, *key, *password, *crl, *name;
    unsigned pin_count;
    tmsg_tls_pin_t pins[TMSG_TLS_PINS_MOST];
    uint32_t depth;
    uint64_t records; /* that one key encrypts */
} tmsg_tls_settings_t;

struct tmsg_secure {
    SSL *ssl;
    tmsg_tls_t *tls;
    int fd;
    bool dialling;
    bool begun;        /* the dialling side has said the first word */
    bool up;           /* the handshake is over, and the peer proved */
    bool read_all;     /* the socket had no more */
    bool drained;      /* it gave less than there was room for */
    bool heard;        /* the peer has said something by TLS */
    bool ended;        /* the peer closed the connection */
    size_t void_bytes; /* that were read since there was data in them */
    int read_error;    /* errno of the socket; 0: none */
    int write_error;
    uint64_t records; /* that this key has encrypted */
    uint8_t *out;     /* encrypted bytes that the socket has not taken */
    size_t out_begin, out_end, out_room;
    uint8_t begin[8]; /* of what the peer said */
    unsigned begin_bytes;
    unsigned ids;         /* of keys that the peer has offered */
    tmsg_status_t failed; /* OK: not yet */
    char why[TMSG_SECURE_WORDS];
    char principal[TMSG_PRINCIPAL_BYTES]; /* "": not known, or no key is that of
                                           * this ring */
    char host[256]; /* that the peer's certificate is to be for; with keys, the
                     * identity of the one that is offered */
};

/* Returns the status of a peer that is not admitted. */
static inline tmsg_status_t tmsg_secure_refusal(const tmsg_secure_t *secure)
{
    return secure->dialling ? TMSG_ERR_INSECURE : TMSG_ERR_REFUSED;
}

/* Returns a hold of the credentials' present context, or NULL. */
SSL_CTX *tmsg_tls_context(tmsg_tls_t *tls);
const tmsg_tls_settings_t *tmsg_tls_settings(const tmsg_tls_t *tls);
tmsg_keyring_t *tmsg_tls_keyring(const tmsg_tls_t *tls);
bool tmsg_tls_has_keys(const tmsg_tls_t *tls);

/* Returns the connection that an SSL object belongs to. */
tmsg_secure_t *tmsg_secure_of(const SSL *ssl);

/* Has the contexts prove keys of a ring (psk.c). */
void tmsg_psk_begin(SSL_CTX *context);

/* Has the contexts judge certificates, and name what is wrong with them. */
void tmsg_verify_begin(SSL_CTX *context);

/* Puts bytes behind those that the socket has not taken. */
void tmsg_secure_say(tmsg_secure_t *secure, const void *data, size_t bytes);

/* Returns whether a listener has closed the connection before it said anything
 * by it. So it does where it has no place (listener.h): it cannot say so while
 * it has not ended the handshake. tmsg_secure_tell_cut() notes that. */
bool tmsg_secure_is_cut(const tmsg_secure_t *secure);
void tmsg_secure_tell_cut(tmsg_secure_t *secure);

/* Notes why a connection ends, from what OpenSSL and the peer have said. */
void tmsg_secure_explain(tmsg_secure_t *secure);

/* Notes that. */
void tmsg_secure_fail(tmsg_secure_t *secure, tmsg_status_t status,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What threads of the library's own do with OpenSSL lies between enter() and
 * leave(). enter() returns false from exit() on: nothing is to be done any
 * more. begin() comes after OpenSSL was begun, whose end has to be later. */
void tmsg_gate_begin(void);
bool tmsg_gate_enter(void);
void tmsg_gate_leave(void);

/* Writes in words what OpenSSL has in its queue of errors, and empties that. */
const char *tmsg_tls_last_words(char *words, size_t bytes);

#endif
