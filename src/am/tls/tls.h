/* SPDX-License-Identifier: BSD-3-Clause */
/* am/tls/tls.h - TLS 1.3 on a connection, by OpenSSL, which this room alone
 * sees. docs/reference/tls.md has the rules. */
#ifndef TMSG_AM_TLS_TLS_H
#define TMSG_AM_TLS_TLS_H

#include <tensormsg/key.h>
#include <tensormsg/tls.h>

#include "am/boot/frame.h"

/* What moves the bytes of a connection that is encrypted: the `io_arg` of its
 * frames. */
typedef struct tmsg_secure tmsg_secure_t;

/* Holds credentials. tmsg_tls_destroy() gives them back. */
void tmsg_tls_hold(tmsg_tls_t *tls);

/* Returns whether both are the same credentials, or of the same keyring: then a
 * name means the same. NULL is allowed. */
bool tmsg_tls_is_same(const tmsg_tls_t *a, const tmsg_tls_t *b);

/* Creates credentials of which a key of the ring is proved. The keyring is
 * held. Errors: NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_tls_of_keyring(tmsg_keyring_t *keyring, tmsg_tls_t **tls_p);

/* Has the frames of a connection encrypted, before there are any. `host` is
 * that of the URL, for the dialling side; NULL for the other. Without
 * credentials (NULL) nothing is done. The handshake goes on as the frames are
 * read and written. Errors: NO_MEMORY. */
tmsg_status_t tmsg_secure_frames(tmsg_tls_t *tls, const char *host,
                                 tmsg_frame_stream_t *stream);

/* Returns who has proved to be the peer of such frames; NULL: nobody yet, or
 * they are not encrypted. */
const char *tmsg_secure_peer(const tmsg_frame_stream_t *stream);

/* Returns the cipher of such frames, as "TLS_AES_128_GCM_SHA256"; NULL: none
 * yet, or they are not encrypted. */
const char *tmsg_secure_cipher(const tmsg_frame_stream_t *stream);

/* Returns the version of OpenSSL, or says that there is none. */
const char *tmsg_tls_version(void);

/* Readies a connection for large amounts. */
void tmsg_secure_widen(tmsg_secure_t *secure);

#endif
