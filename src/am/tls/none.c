/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands for this room in a library without OpenSSL. */
#ifdef TMSG_WITHOUT_TLS
#include "am/tls/tls.h"
#include "core/error.h"

static tmsg_status_t refuse(void)
{
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "tls:// needs OpenSSL, and this library was built "
                          "without it (TMSG_TLS)");
}

tmsg_status_t tmsg_tls_create(const tmsg_tls_params_t *params,
                              tmsg_tls_t **tls_p)
{
    (void)params;
    (void)tls_p;
    return refuse();
}

tmsg_status_t tmsg_tls_of_keyring(tmsg_keyring_t *keyring, tmsg_tls_t **tls_p)
{
    (void)keyring;
    (void)tls_p;
    return refuse();
}

tmsg_status_t tmsg_tls_reload(tmsg_tls_t *tls)
{
    (void)tls;
    return refuse();
}

bool tmsg_tls_is_same(const tmsg_tls_t *a, const tmsg_tls_t *b)
{
    return a == b;
}

void tmsg_tls_hold(tmsg_tls_t *tls) { (void)tls; }

void tmsg_tls_destroy(tmsg_tls_t *tls) { (void)tls; }

tmsg_status_t tmsg_secure_frames(tmsg_tls_t *tls, const char *host,
                                 tmsg_frame_stream_t *stream)
{
    (void)host;
    (void)stream;
    return tls == NULL ? TMSG_OK : refuse();
}

void tmsg_secure_widen(tmsg_secure_t *secure) { (void)secure; }

const char *tmsg_secure_peer(const tmsg_frame_stream_t *stream)
{
    (void)stream;
    return NULL;
}

const char *tmsg_secure_cipher(const tmsg_frame_stream_t *stream)
{
    (void)stream;
    return NULL;
}

const char *tmsg_tls_version(void)
{
    return "none: this library was built without OpenSSL, and has no tls://";
}
#else
typedef int tmsg_tls_is_there_t; /* a file has to declare something */
#endif
