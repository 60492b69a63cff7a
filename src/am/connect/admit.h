/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/admit.h - whether a peer has a key. Nothing else that the peer
 * says is believed before. */
#ifndef TMSG_AM_CONNECT_ADMIT_H
#define TMSG_AM_CONNECT_ADMIT_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/boot/hello.h"
#include "am/boot/key.h"
#include "am/boot/proof.h"
#include "am/net/url.h"

/* tmsg_admit_begin() makes the endpoint hold a keyring or credentials of TLS.
 * Both may be NULL. tmsg_admit_end() gives them back. */
void tmsg_admit_begin(tmsg_endpoint_t *endpoint, tmsg_keyring_t *keyring,
                      tmsg_tls_t *tls);
void tmsg_admit_end(tmsg_endpoint_t *endpoint);

/* Chooses by what both sides prove who they are where the URL is of that kind.
 * `tls` is what the application gave, or NULL. *keyring_p is held, and becomes
 * NULL if TLS proves its keys; *tls_p is then, or if `tls` counts, the
 * caller's. `what` names it for errors. Errors: INVALID_PARAM (tls:// with
 * neither), UNSUPPORTED (`tls` for another scheme), NO_MEMORY. */
tmsg_status_t tmsg_admit_choose(const char *what, tmsg_url_kind_t kind,
                                tmsg_tls_t *tls, tmsg_keyring_t **keyring_p,
                                tmsg_tls_t **tls_p);

/* Forgets what belongs to one connection. */
void tmsg_admit_forget(tmsg_endpoint_t *endpoint);

/* Fills in what our hello says of admission. Errors: IO. */
tmsg_status_t tmsg_admit_hello(tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);

/* Makes a new nonce. Errors: IO. */
tmsg_status_t tmsg_admit_nonce(tmsg_hello_t *hello);

/* Note the hash of a hello as it was sent: tmsg_admit_said() of our own,
 * tmsg_admit_heard() of the peer's. */
void tmsg_admit_said(tmsg_endpoint_t *endpoint, const void *hello,
                     size_t bytes);
void tmsg_admit_heard(tmsg_endpoint_t *endpoint, const void *hello,
                      size_t bytes);

/* Takes who the peer is from TLS, if that proves it. Errors: REFUSED, INSECURE
 * (another one than before). */
tmsg_status_t tmsg_admit_by_tls(tmsg_endpoint_t *endpoint);

/* Checks that the peer's hello promises a proof if one is asked for. A peer
 * that is refused for lack of one has been told. Errors: REFUSED, INSECURE,
 * INCOMPATIBLE (another wire version: what the peer promises cannot be
 * read). */
tmsg_status_t tmsg_admit_expect(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs);

/* Sends the proofs of the dialling side. Errors: INSECURE (the keyring is
 * empty), and those of sending. */
tmsg_status_t tmsg_admit_prove(tmsg_endpoint_t *endpoint);

/* Judges the peer's proofs; the dialled side answers them. OK: the peer is
 * admitted, and every frame from here on has its MAC. Errors: MALFORMED,
 * REFUSED, INSECURE, and those of sending. A peer that is refused has been
 * told. */
tmsg_status_t tmsg_admit_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes);

/* tmsg_admit_prove_all() proves the first `most` keys in a role, and returns
 * the length of all proofs in bytes. tmsg_admit_find() returns the first key
 * that any of these proofs is of, or NULL. It always compares all keys with all
 * proofs. */
size_t tmsg_admit_prove_all(tmsg_keyring_t *keyring, unsigned most,
                            tmsg_role_t role, const uint8_t *transcript,
                            uint8_t *proofs);
const tmsg_key_t *tmsg_admit_find(const tmsg_keys_t *keys, tmsg_role_t role,
                                  const uint8_t *transcript,
                                  const uint8_t *proofs, size_t bytes);

/* Returns whether both endpoints' peers are the same principal of one keyring
 * or of the same credentials, or have none. A name means nothing in others. */
bool tmsg_admit_same(const tmsg_endpoint_t *a, const tmsg_endpoint_t *b);

#endif
