/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/admit.h - whether a peer has a key, before anything is believed of
 * it. */
#ifndef TMSG_AM_CONNECT_ADMIT_H
#define TMSG_AM_CONNECT_ADMIT_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/boot/hello.h"
#include "am/boot/key.h"
#include "am/boot/proof.h"

/* A keyring, which may be NULL, becomes the endpoint's, and stops being it. */
void tmsg_admit_begin(tmsg_endpoint_t *endpoint, tmsg_keyring_t *keyring);
void tmsg_admit_end(tmsg_endpoint_t *endpoint);

/* Forgets what is of one connection. */
void tmsg_admit_forget(tmsg_endpoint_t *endpoint);

/* Fills in what our hello says of it. Errors: IO. */
tmsg_status_t tmsg_admit_hello(tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);

/* A new nonce. Errors: IO. */
tmsg_status_t tmsg_admit_nonce(tmsg_hello_t *hello);

/* The hello that this side sent, or the peer did, as it was. */
void tmsg_admit_said(tmsg_endpoint_t *endpoint, const void *hello,
                     size_t bytes);
void tmsg_admit_heard(tmsg_endpoint_t *endpoint, const void *hello,
                      size_t bytes);

/* Whether the peer's hello promises a proof where one is asked for. A peer that
 * is refused for want of one has been told. Errors: REFUSED, INSECURE,
 * INCOMPATIBLE (of another wire version: what it promises cannot be read). */
tmsg_status_t tmsg_admit_expect(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs);

/* The dialling side sends its proofs. Errors: those of sending. */
tmsg_status_t tmsg_admit_prove(tmsg_endpoint_t *endpoint);

/* Takes the peer's: the dialled side answers it. OK: it is admitted, and every
 * frame from here on has its MAC. Errors: MALFORMED, REFUSED, INSECURE, and
 * those of sending; a peer that is refused has been told. */
tmsg_status_t tmsg_admit_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes);

/* Proves the first so many keys in a role, which gives the bytes of all proofs;
 * and the first key that any of so many bytes of proofs is of (NULL: none),
 * having looked at all of them. */
size_t tmsg_admit_prove_all(tmsg_keyring_t *keyring, unsigned most,
                            tmsg_role_t role, const uint8_t *transcript,
                            uint8_t *proofs);
const tmsg_key_t *tmsg_admit_find(const tmsg_keys_t *keys, tmsg_role_t role,
                                  const uint8_t *transcript,
                                  const uint8_t *proofs, size_t bytes);

/* Whether both endpoints' peers are the same principal of one keyring, or none.
 * A name means nothing in another. */
bool tmsg_admit_same(const tmsg_endpoint_t *a, const tmsg_endpoint_t *b);

#endif
