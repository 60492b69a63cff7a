/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/admit_blob.h - whether a peer that comes by blob has a key, and
 * whether a blob is of a side that has one. docs/wire/bootstrap.md has the
 * bytes. */
#ifndef TMSG_AM_CONNECT_ADMIT_BLOB_H
#define TMSG_AM_CONNECT_ADMIT_BLOB_H

#include "am/boot/blob.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"

/* The bytes behind the ids in the body of CONNECT_REPLY, and in those of WIREUP
 * and WIREUP_REPLY. */
#define TMSG_ANSWER_EXTRA_BYTES (TMSG_NONCE_BYTES + TMSG_PROOF_BYTES)
#define TMSG_JOIN_EXTRA_BYTES TMSG_PROOF_BYTES

/* A listener's blob with the proofs of its keys, in its latest and in all
 * earlier versions. */
typedef struct tmsg_proved tmsg_proved_t;

/* Copies `blob`, which is without proofs yet. Errors: NO_MEMORY. */
tmsg_status_t tmsg_proved_create(const void *blob, size_t bytes,
                                 tmsg_proved_t **proved_p);

/* Returns the blob with proofs of the keys that the keyring has now. The bytes
 * stay valid until tmsg_proved_free(). Lock held. Errors: NO_MEMORY. */
tmsg_status_t tmsg_proved_now(tmsg_proved_t *proved, tmsg_keyring_t *keyring,
                              const void **blob_p, size_t *bytes_p);
void tmsg_proved_free(tmsg_proved_t *proved);

/* Returns whether this endpoint's peer comes by blob and has to prove a key. */
bool tmsg_admit_by_blob(const tmsg_endpoint_t *endpoint);

/* Checks, on the dialling side, that a key of its keyring has proved the
 * listener's blob, before anything in it is believed. Errors: REFUSED (only the
 * listener asks for a key), INSECURE. */
tmsg_status_t tmsg_admit_blob_expect(tmsg_endpoint_t *endpoint,
                                     const tmsg_blob_t *theirs,
                                     const void *data);

/* Adds proofs to our own blob, which goes with the connect request that has
 * this body. Errors: INSECURE (no keys), NO_MEMORY. */
tmsg_status_t tmsg_admit_blob_prove(tmsg_endpoint_t *endpoint, const void *body,
                                    size_t bytes);

/* Describes the peer that sent a connect request to a listener, by the key that
 * it proved. The owner wipes it. */
typedef struct {
    tmsg_turned_t turned; /* why it may not come in */
    tmsg_key_t key;
    uint8_t bound[TMSG_HASH_BYTES];
} tmsg_requester_t;

/* Judges, for the listener, what a CONNECT_REQUEST proves. It may be replayed
 * by somebody else; only a proved WIREUP shows that it is not. Errors: REFUSED.
 */
tmsg_status_t tmsg_admit_blob_judge(tmsg_keyring_t *keyring,
                                    const tmsg_proved_t *proved,
                                    const tmsg_blob_t *theirs, const void *data,
                                    const void *body, size_t bytes,
                                    tmsg_requester_t *requester);

/* Makes nonce and proof of the CONNECT_REPLY whose body begins with `body`.
 * Errors: IO. */
tmsg_status_t tmsg_admit_blob_answer(tmsg_endpoint_t *endpoint,
                                     const tmsg_requester_t *requester,
                                     const void *body, size_t bytes);

/* Returns whether a CONNECT_REPLY is the peer's; nonce and proof are behind its
 * first `bytes`. If so, the peer is admitted. */
bool tmsg_admit_blob_answered(tmsg_endpoint_t *endpoint, const void *body,
                              size_t bytes);

/* Makes the proof of WIREUP or WIREUP_REPLY. `said` is what is between the ids
 * and the proof. */
void tmsg_admit_blob_join(const tmsg_endpoint_t *endpoint, const void *said,
                          size_t bytes, uint8_t *proof);

/* Returns whether a WIREUP or WIREUP_REPLY is the peer's. `said` is what is
 * behind the ids; the proof follows its `bytes`. A proved WIREUP admits the
 * peer. */
bool tmsg_admit_blob_joined(tmsg_endpoint_t *endpoint, const uint8_t *said,
                            size_t bytes);

#endif
