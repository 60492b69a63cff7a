/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/admit_blob.h - whether a peer that comes by blob has a key, and
 * whether a blob is of who has one. docs/bootstrap.md has the bytes. */
#ifndef TMSG_AM_CONNECT_ADMIT_BLOB_H
#define TMSG_AM_CONNECT_ADMIT_BLOB_H

#include "am/boot/blob.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"

/* What is behind the ids in the body of KNOCKED, and of ATTACH and ATTACHED. */
#define TMSG_ANSWER_EXTRA_BYTES (TMSG_NONCE_BYTES + TMSG_PROOF_BYTES)
#define TMSG_JOIN_EXTRA_BYTES TMSG_PROOF_BYTES

/* A listener's blob with the proofs of its keys, and all that it ever was. */
typedef struct tmsg_proved tmsg_proved_t;

/* `blob` is without proofs yet, and copied. Errors: NO_MEMORY. */
tmsg_status_t tmsg_proved_create(const void *blob, size_t bytes,
                                 tmsg_proved_t **proved_p);

/* As the keyring's keys prove it now. Lock held. Errors: NO_MEMORY. */
tmsg_status_t tmsg_proved_now(tmsg_proved_t *proved, tmsg_keyring_t *keyring,
                              const void **blob_p, size_t *bytes_p);
void tmsg_proved_free(tmsg_proved_t *proved);

/* Whether this endpoint's peer comes by blob and has to prove a key. */
bool tmsg_admit_by_blob(const tmsg_endpoint_t *endpoint);

/* The dialling side: whether a key of its keyring has proved the listener's
 * blob, before anything in it is believed. Errors: REFUSED (only the listener
 * asks for a key), INSECURE. */
tmsg_status_t tmsg_admit_blob_expect(tmsg_endpoint_t *endpoint,
                                     const tmsg_blob_t *theirs,
                                     const void *data);

/* Has our own blob, which goes with the KNOCK of that body, proved. Errors:
 * INSECURE (no keys), NO_MEMORY. */
tmsg_status_t tmsg_admit_blob_knock(tmsg_endpoint_t *endpoint, const void *body,
                                    size_t bytes);

/* Who has knocked at a listener, to be wiped. */
typedef struct {
    tmsg_turned_t turned; /* why it may not come in */
    tmsg_key_t key;
    uint8_t bound[TMSG_HASH_BYTES];
} tmsg_knocker_t;

/* The listener: takes what a KNOCK proves. It may be a repeated one: that it is
 * not is proved by ATTACH. Errors: REFUSED. */
tmsg_status_t tmsg_admit_blob_judge(tmsg_keyring_t *keyring,
                                    const tmsg_proved_t *proved,
                                    const tmsg_blob_t *theirs, const void *data,
                                    const void *body, size_t bytes,
                                    tmsg_knocker_t *knocker);

/* Makes what goes with the KNOCKED whose body begins so. Errors: IO. */
tmsg_status_t tmsg_admit_blob_answer(tmsg_endpoint_t *endpoint,
                                     const tmsg_knocker_t *knocker,
                                     const void *body, size_t bytes);

/* Whether that is the peer's KNOCKED: it is admitted. */
bool tmsg_admit_blob_answered(tmsg_endpoint_t *endpoint, const void *body,
                              size_t bytes);

/* Makes the proof of ATTACH or ATTACHED, with what is between its ids and the
 * proof. */
void tmsg_admit_blob_join(const tmsg_endpoint_t *endpoint, const void *said,
                          size_t bytes, uint8_t *proof);

/* Whether that is the peer's ATTACH, which admits it, or its ATTACHED: what is
 * behind the ids, of so many bytes, and the proof. */
bool tmsg_admit_blob_joined(tmsg_endpoint_t *endpoint, const uint8_t *said,
                            size_t bytes);

#endif
