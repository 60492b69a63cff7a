/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/proof.h - what two peers compute from a key. docs/bootstrap.md has
 * the bytes. */
#ifndef TMSG_AM_BOOT_PROOF_H
#define TMSG_AM_BOOT_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/key.h>

#define TMSG_ADMISSION_VERSION 1
#define TMSG_HASH_BYTES 32
#define TMSG_PROOF_BYTES 32
#define TMSG_MAC_BYTES 16

/* As what a key is proved. The first two have keys for their frames. */
typedef enum {
    TMSG_ROLE_DIALLING = 0, /* over a socket */
    TMSG_ROLE_DIALLED = 1,
    TMSG_ROLE_LISTENING = 2, /* by blob, and what follows from it: KNOCK, */
    TMSG_ROLE_KNOCKING = 3,
    TMSG_ROLE_ANSWERING = 4, /* KNOCKED, */
    TMSG_ROLE_ATTACHING = 5, /* ATTACH */
    TMSG_ROLE_ATTACHED = 6,  /* and ATTACHED */
    TMSG_ROLE_COUNT = 7
} tmsg_role_t;

/* Of what was sent, as it was: a hello, a list of proofs. */
void tmsg_proof_hash(const void *data, size_t bytes,
                     uint8_t hash[TMSG_HASH_BYTES]);

/* Of both hellos, by their hashes: with them their nonces, versions, limits and
 * addresses. It is what makes a handshake unlike any other. */
void tmsg_proof_transcript(const uint8_t dialling[TMSG_HASH_BYTES],
                           const uint8_t dialled[TMSG_HASH_BYTES],
                           uint8_t transcript[TMSG_HASH_BYTES]);

/* Of that and all the proofs of the dialling side, as it sent them: nobody
 * leaves one out. What comes after them is of this. */
void tmsg_proof_bind(const uint8_t transcript[TMSG_HASH_BYTES],
                     const void *list, size_t bytes,
                     uint8_t bound[TMSG_HASH_BYTES]);

/* That whoever plays the role has the key: of the transcript on the dialling
 * side, of what it is bound to on the dialled side. */
void tmsg_proof_make(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                     const uint8_t transcript[TMSG_HASH_BYTES],
                     uint8_t proof[TMSG_PROOF_BYTES]);

/* The key of the frames that the role sends from there on. */
void tmsg_proof_frame_key(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                          const uint8_t transcript[TMSG_HASH_BYTES],
                          uint8_t frame_key[TMSG_KEY_BYTES]);

/* By blob: of the listener's blob and the dialling side's, by the hashes of
 * what is proved of them, and the body of KNOCK. */
void tmsg_proof_knock(const uint8_t dialled[TMSG_HASH_BYTES],
                      const uint8_t dialling[TMSG_HASH_BYTES], const void *body,
                      size_t bytes, uint8_t transcript[TMSG_HASH_BYTES]);

/* Of that, with its proofs bound to it, the body of KNOCKED up to its nonce,
 * and the nonce. */
void tmsg_proof_answer(const uint8_t bound[TMSG_HASH_BYTES], const void *body,
                       size_t bytes, const uint8_t nonce[TMSG_HASH_BYTES],
                       uint8_t transcript[TMSG_HASH_BYTES]);

/* Of so many bytes, by such a proof that nobody has seen: as whose key. */
void tmsg_proof_said(const uint8_t unsent[TMSG_PROOF_BYTES], const void *said,
                     size_t bytes, uint8_t proof[TMSG_PROOF_BYTES]);

/* Of what who dials a lane says; `frame_key` is NULL without keys. */
void tmsg_proof_lane(const uint8_t *frame_key, const void *said, size_t bytes,
                     uint8_t proof[TMSG_PROOF_BYTES]);

/* Of the frame of that number, from 0. */
void tmsg_proof_mac(const uint8_t frame_key[TMSG_KEY_BYTES], uint64_t number,
                    uint8_t type, const void *payload, size_t bytes,
                    uint8_t mac[TMSG_MAC_BYTES]);

#endif
