/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/proof.h"

#include <sodium.h>

#include "core/bytes.h"

/* The labels. Each begins what is hashed for one purpose, and for no other.
 * They are bytes of the protocol (docs/wire/bootstrap.md), and keep former
 * words. */
#define LABEL_BYTES 16
static const char hellos[] = "tensormsg hellos";
static const char lists[] = "tensormsg proofs";
static const char requests[] = "tensormsg knocks";
static const char answers[] = "tensormsg answer";
static const char *const claimed[] = {"tensormsg a lane", "tensormsg stream"};
static const char *const proofs[TMSG_ROLE_COUNT] = {
    "tensormsg proof>", "tensormsg proof<", "tensormsg listen",
    "tensormsg knock>", "tensormsg knock<", "tensormsg joins>",
    "tensormsg joins<"};
static const char *const frames[] = {"tensormsg frame>", "tensormsg frame<"};

static void update_hash(crypto_generichash_state *state, const void *data,
                        size_t bytes)
{
    crypto_generichash_update(state, data, bytes);
}

void tmsg_proof_hash(const void *data, size_t bytes,
                     uint8_t hash[TMSG_HASH_BYTES])
{
    crypto_generichash(hash, TMSG_HASH_BYTES, data, bytes, NULL, 0);
}

/* Hashes a label and three things behind it. The last of them may be empty. */
static void hash_three(const char *label, const uint8_t first[TMSG_HASH_BYTES],
                       const void *second, size_t second_bytes,
                       const void *third, size_t third_bytes,
                       uint8_t hash[TMSG_HASH_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, TMSG_HASH_BYTES);
    update_hash(&state, label, LABEL_BYTES);
    update_hash(&state, first, TMSG_HASH_BYTES);
    update_hash(&state, second, second_bytes);
    update_hash(&state, third, third_bytes);
    crypto_generichash_final(&state, hash, TMSG_HASH_BYTES);
}

void tmsg_proof_transcript(const uint8_t dialling[TMSG_HASH_BYTES],
                           const uint8_t dialled[TMSG_HASH_BYTES],
                           uint8_t transcript[TMSG_HASH_BYTES])
{
    hash_three(hellos, dialling, dialled, TMSG_HASH_BYTES, "", 0, transcript);
}

void tmsg_proof_bind(const uint8_t transcript[TMSG_HASH_BYTES],
                     const void *list, size_t bytes,
                     uint8_t bound[TMSG_HASH_BYTES])
{
    uint8_t hash[TMSG_HASH_BYTES];

    tmsg_proof_hash(list, bytes, hash);
    hash_three(lists, transcript, hash, TMSG_HASH_BYTES, "", 0, bound);
}

void tmsg_proof_connect_request(const uint8_t dialled[TMSG_HASH_BYTES],
                                const uint8_t dialling[TMSG_HASH_BYTES],
                                const void *body, size_t bytes,
                                uint8_t transcript[TMSG_HASH_BYTES])
{
    hash_three(requests, dialled, dialling, TMSG_HASH_BYTES, body, bytes,
               transcript);
}

void tmsg_proof_answer(const uint8_t bound[TMSG_HASH_BYTES], const void *body,
                       size_t bytes, const uint8_t nonce[TMSG_HASH_BYTES],
                       uint8_t transcript[TMSG_HASH_BYTES])
{
    hash_three(answers, bound, body, bytes, nonce, TMSG_HASH_BYTES, transcript);
}

static void derive_secret(const uint8_t key[TMSG_KEY_BYTES], const char *label,
                          const uint8_t transcript[TMSG_HASH_BYTES],
                          uint8_t *out)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, TMSG_KEY_BYTES, TMSG_HASH_BYTES);
    update_hash(&state, label, LABEL_BYTES);
    update_hash(&state, transcript, TMSG_HASH_BYTES);
    crypto_generichash_final(&state, out, TMSG_HASH_BYTES);
    sodium_memzero(&state, sizeof(state));
}

void tmsg_proof_make(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                     const uint8_t transcript[TMSG_HASH_BYTES],
                     uint8_t proof[TMSG_PROOF_BYTES])
{
    derive_secret(key, proofs[role], transcript, proof);
}

void tmsg_proof_frame_key(const uint8_t key[TMSG_KEY_BYTES], tmsg_role_t role,
                          const uint8_t transcript[TMSG_HASH_BYTES],
                          uint8_t frame_key[TMSG_KEY_BYTES])
{
    derive_secret(key, frames[role], transcript, frame_key);
}

void tmsg_proof_said(const uint8_t unsent[TMSG_PROOF_BYTES], const void *said,
                     size_t bytes, uint8_t proof[TMSG_PROOF_BYTES])
{
    crypto_generichash(proof, TMSG_PROOF_BYTES, said, bytes, unsent,
                       TMSG_PROOF_BYTES);
}

void tmsg_proof_claim(tmsg_claims_t claims, const uint8_t *frame_key,
                      const void *said, size_t bytes,
                      uint8_t proof[TMSG_PROOF_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, frame_key,
                            frame_key == NULL ? 0 : TMSG_KEY_BYTES,
                            TMSG_PROOF_BYTES);
    update_hash(&state, claimed[claims], LABEL_BYTES);
    update_hash(&state, said, bytes);
    crypto_generichash_final(&state, proof, TMSG_PROOF_BYTES);
    sodium_memzero(&state, sizeof(state));
}

void tmsg_proof_mac(const uint8_t frame_key[TMSG_KEY_BYTES], uint64_t number,
                    uint8_t type, const void *payload, size_t bytes,
                    uint8_t mac[TMSG_MAC_BYTES])
{
    crypto_generichash_state state;
    uint8_t head[9];

    *tmsg_put_le(head, number, 8) = type;
    crypto_generichash_init(&state, frame_key, TMSG_KEY_BYTES, TMSG_MAC_BYTES);
    update_hash(&state, head, sizeof(head));
    update_hash(&state, payload, bytes);
    crypto_generichash_final(&state, mac, TMSG_MAC_BYTES);
    sodium_memzero(&state, sizeof(state));
}
