/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/proof.h - what two peers compute from a key. docs/wire/bootstrap.md
 * has the bytes, and the names T, T2, T3 used here. */
#ifndef TMSG_AM_BOOT_PROOF_H
#define TMSG_AM_BOOT_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/key.h>

#define TMSG_ADMISSION_VERSION 1
#define TMSG_HASH_BYTES 32
#define TMSG_PROOF_BYTES 32
#define TMSG_MAC_BYTES 16

/* The role in which a key is proved. Only the first two roles have keys for
 * frames. */
typedef enum {
    TMSG_ROLE_DIALLING = 0, /* over a socket */
    TMSG_ROLE_DIALLED = 1,
    TMSG_ROLE_LISTENING = 2,       /* by blob: in the listener's blob */
    TMSG_ROLE_CONNECT_REQUEST = 3, /* by blob: in the dialling side's blob */
    TMSG_ROLE_ANSWERING = 4,       /* by blob: in CONNECT_REPLY */
    TMSG_ROLE_WIREUP = 5,          /* by blob: in WIREUP */
    TMSG_ROLE_WIREUP_REPLY = 6,    /* by blob: in WIREUP_REPLY */
    TMSG_ROLE_COUNT = 7
} tmsg_role_t;

/* Hashes something as it was sent: a hello, or a list of proofs. */
void tmsg_proof_hash(const void *data, size_t bytes,
                     uint8_t hash[TMSG_HASH_BYTES]);

/* Computes T from the hashes of both hellos, and so of their nonces, versions,
 * limits and addresses. The transcript makes a handshake different from any
 * other. */
void tmsg_proof_transcript(const uint8_t dialling[TMSG_HASH_BYTES],
                           const uint8_t dialled[TMSG_HASH_BYTES],
                           uint8_t transcript[TMSG_HASH_BYTES]);

/* Computes T2 from T and all proofs of the dialling side, as it sent them, so
 * that nobody can leave one out. Later proofs are of T2. */
void tmsg_proof_bind(const uint8_t transcript[TMSG_HASH_BYTES],
                     const void *list, size_t bytes,
                     uint8_t bound[TMSG_HASH_BYTES]);

/* Computes the proof that the side in this role has the key. The transcript is
 * T for the dialling side, T2 for the dialled side; by blob as
 * docs/wire/bootstrap.md says. */
void tmsg_proof_make(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                     const uint8_t transcript[TMSG_HASH_BYTES],
                     uint8_t proof[TMSG_PROOF_BYTES]);

/* Computes the key of the frames that the role sends from then on. */
void tmsg_proof_frame_key(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                          const uint8_t transcript[TMSG_HASH_BYTES],
                          uint8_t frame_key[TMSG_KEY_BYTES]);

/* Computes T by blob, from the hashes of what is proved of the listener's blob
 * and of the dialling side's, and from the body of CONNECT_REQUEST. */
void tmsg_proof_connect_request(const uint8_t dialled[TMSG_HASH_BYTES],
                                const uint8_t dialling[TMSG_HASH_BYTES],
                                const void *body, size_t bytes,
                                uint8_t transcript[TMSG_HASH_BYTES]);

/* Computes T3 from T2, the body of CONNECT_REPLY up to its nonce, and the
 * nonce. */
void tmsg_proof_answer(const uint8_t bound[TMSG_HASH_BYTES], const void *body,
                       size_t bytes, const uint8_t nonce[TMSG_HASH_BYTES],
                       uint8_t transcript[TMSG_HASH_BYTES]);

/* Computes the proof of `bytes` of what was said. The key is `unsent`, a proof
 * that was never sent and that only the two sides can compute. */
void tmsg_proof_said(const uint8_t unsent[TMSG_PROOF_BYTES], const void *said,
                     size_t bytes, uint8_t proof[TMSG_PROOF_BYTES]);

/* What a further connection is claimed for. */
typedef enum {
    TMSG_CLAIMS_BULK = 0,
    TMSG_CLAIMS_CARRIER = 1,
} tmsg_claims_t;

/* Computes the proof of what the side that dials a further connection says.
 * `frame_key` is NULL without keys. */
void tmsg_proof_claim(tmsg_claims_t claims, const uint8_t *frame_key,
                      const void *said, size_t bytes,
                      uint8_t proof[TMSG_PROOF_BYTES]);

/* Computes the MAC of the frame of that number, from 0. */
void tmsg_proof_mac(const uint8_t frame_key[TMSG_KEY_BYTES], uint64_t number,
                    uint8_t type, const void *payload, size_t bytes,
                    uint8_t mac[TMSG_MAC_BYTES]);

#endif
