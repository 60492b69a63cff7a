/* SPDX-License-Identifier: BSD-3-Clause */
/* The golden bytes were computed by Python's hashlib, from
 * docs/wire/bootstrap.md. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/boot/proof.h"

static uint8_t key[TMSG_KEY_BYTES];
static uint8_t transcript[TMSG_HASH_BYTES], bound[TMSG_HASH_BYTES];

static void begin(void)
{
    static const char dialling[] = "hello of the dialling side";
    static const char dialled[] = "hello of the dialled side";
    uint8_t a[TMSG_HASH_BYTES], b[TMSG_HASH_BYTES];
    uint8_t list[2 * TMSG_PROOF_BYTES] = {0}; /* of another key, and of ours */

    for (uint8_t i = 0; i < TMSG_KEY_BYTES; i++) {
        key[i] = i;
    }
    tmsg_proof_hash(dialling, sizeof(dialling) - 1, a);
    tmsg_proof_hash(dialled, sizeof(dialled) - 1, b);
    tmsg_proof_transcript(a, b, transcript);
    tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript,
                    list + TMSG_PROOF_BYTES);
    tmsg_proof_bind(transcript, list, sizeof(list), bound);
}

TestSuite(proof, .init = begin);

static void expect_bytes(const uint8_t *bytes, size_t count, const char *wanted)
{
    char text[2 * TMSG_HASH_BYTES + 1];

    for (size_t i = 0; i < count; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    cr_expect_str_eq(text, wanted);
}

Test(proof, of_a_transcript_is_the_documented_one)
{
    uint8_t proof[TMSG_PROOF_BYTES];

    expect_bytes(
        transcript, sizeof(transcript),
        "50fb01952255704a5576d9c7c1ae109b92a595607870d4ecad99a40adb4392aa");
    tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript, proof);
    expect_bytes(
        proof, sizeof(proof),
        "06c35d3c455873812e8cf723a7da630e61a128432a6c95f1c856a9445fd58345");
    expect_bytes(
        bound, sizeof(bound),
        "f0041396d1885d6d908c71e4ce8cddc9d269047bf61b0d4ba4c77029676c4750");
    tmsg_proof_make(key, TMSG_ROLE_DIALLED, bound, proof);
    expect_bytes(
        proof, sizeof(proof),
        "a659f952dc64f356976a8d1738eddb2bbecf30602afb482467e6e0465e5bcb2b");
}

Test(proof, frames_have_the_documented_mac)
{
    uint8_t frame_key[TMSG_KEY_BYTES], mac[TMSG_MAC_BYTES];

    tmsg_proof_frame_key(key, TMSG_ROLE_DIALLED, bound, frame_key);
    expect_bytes(
        frame_key, sizeof(frame_key),
        "fb197188ec143ec24bdb7c11618b1c64a7df04946a20456434f4373ae9bcf872");
    tmsg_proof_frame_key(key, TMSG_ROLE_DIALLING, bound, frame_key);
    expect_bytes(
        frame_key, sizeof(frame_key),
        "f5fe542766c0ce787601e7a72fa409714a42b28eab5e29c1e66fe361e65f0e4b");
    tmsg_proof_mac(frame_key, 5, 3, "payload", 7, mac);
    expect_bytes(mac, sizeof(mac), "6960d30da2ef9e8ba8cb72e99cb15a77");
}

/* Whatever goes in shows in what comes out. */
Test(proof, changes_with_all_that_it_is_of)
{
    uint8_t proof[2][TMSG_PROOF_BYTES], mac[4][TMSG_MAC_BYTES];

    tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript, proof[0]);
    key[31] ^= 1;
    tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript, proof[1]);
    cr_expect(memcmp(proof[0], proof[1], TMSG_PROOF_BYTES) != 0);
    key[31] ^= 1;
    transcript[0] ^= 1;
    tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript, proof[1]);
    cr_expect(memcmp(proof[0], proof[1], TMSG_PROOF_BYTES) != 0);
    tmsg_proof_mac(key, 0, 3, "ab", 2, mac[0]);
    tmsg_proof_mac(key, 1, 3, "ab", 2, mac[1]);
    tmsg_proof_mac(key, 0, 4, "ab", 2, mac[2]);
    tmsg_proof_mac(key, 0, 3, "a", 1, mac[3]);
    for (int i = 1; i < 4; i++) {
        cr_expect(memcmp(mac[0], mac[i], TMSG_MAC_BYTES) != 0, "%d", i);
    }
}

Test(proof, by_blob_are_the_documented_ones)
{
    static const char l[] = "the listener's blob";
    static const char k[] = "the dialling side's blob";
    static const char connect_request[] = "ids of the knock",
                      answer[] = "ids of the answer";
    static const struct {
        tmsg_role_t role;
        const char *wanted;
    } rows[] = {
        {TMSG_ROLE_ANSWERING,
         "46225a5fa72f376e4b53171c3a9fd72ea51ceb2f2b8a281ddfb6babdb8547b91"},
        {TMSG_ROLE_WIREUP,
         "b9e281761ad95e47589829fffe167d31abf3e859099fa4cb48399bcf913f370e"},
        {TMSG_ROLE_WIREUP_REPLY,
         "d4bc74ab14c5e5e4963d4be43bf464988faada255bac895e084127b7ec40fe75"}};
    uint8_t a[TMSG_HASH_BYTES], b[TMSG_HASH_BYTES], nonce[TMSG_HASH_BYTES];
    uint8_t proof[TMSG_PROOF_BYTES];

    for (uint8_t i = 0; i < sizeof(nonce); i++) {
        nonce[i] = (uint8_t)(32 + i);
    }
    tmsg_proof_hash(l, sizeof(l) - 1, a);
    tmsg_proof_hash(k, sizeof(k) - 1, b);
    tmsg_proof_make(key, TMSG_ROLE_LISTENING, a, proof);
    expect_bytes(
        proof, sizeof(proof),
        "a72f6d10ff9d0ccc33570d3f2ed5d2b8451c9ea5d56f9cd3554a6c0cb7608b13");
    tmsg_proof_connect_request(a, b, connect_request,
                               sizeof(connect_request) - 1, transcript);
    tmsg_proof_make(key, TMSG_ROLE_CONNECT_REQUEST, transcript, proof);
    expect_bytes(
        proof, sizeof(proof),
        "ec01ca7c647a3cbaa10e976a023adda4b304d82f6a18673b1a662fcc1d28e357");
    tmsg_proof_bind(transcript, proof, sizeof(proof), bound);
    tmsg_proof_answer(bound, answer, sizeof(answer) - 1, nonce, transcript);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_proof_make(key, rows[i].role, transcript, proof);
        expect_bytes(proof, sizeof(proof), rows[i].wanted);
    }
}
