/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection by blob has no socket to prove a key on. The proofs go with the
 * messages that join UCX's endpoints, and with the blobs.
 *
 *   dialling                      dialled
 *                      <- - - -            its blob, proved by all its keys
 *   CONNECT_REQUEST    ------->            our blob, proved by all our keys
 *           <------- CONNECT_REPLY         its nonce, proved by a key of both
 *   WIREUP             ------->            proved by the same key
 *           <------- WIREUP_REPLY          proved by the same key
 *
 * So neither side gives UCX an address that no key has proved. UCX itself
 * accepts anybody who reaches its port. What comes without a proof may be
 * anybody's, and is ignored. */
#include "am/connect/admit_blob.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/connect/admit.h"
#include "am/endpoint/conn.h"
#include "core/error.h"

/* Holds the blob with the proofs of the keys that the keyring had at one time.
 */
typedef struct version {
    struct version *before;
    void *data;
    size_t bytes;
} version_t;

struct tmsg_proved {
    version_t *latest;
    /* Length of what is proved, the same in all versions. */
    size_t proved_bytes;
    uint8_t digest[TMSG_HASH_BYTES];
};

static tmsg_status_t add_version(tmsg_proved_t *proved, const void *blob,
                                 const void *proofs, size_t proof_bytes)
{
    version_t *version = calloc(1, sizeof(*version));
    tmsg_status_t status;

    if (version == NULL) {
        return tmsg_error_memory("a worker blob");
    }
    status = tmsg_blob_prove(blob, proved->proved_bytes, proofs, proof_bytes,
                             &version->data, &version->bytes);
    if (status != TMSG_OK) {
        free(version);
        return status;
    }
    version->before = proved->latest;
    proved->latest = version;
    return TMSG_OK;
}

tmsg_status_t tmsg_proved_create(const void *blob, size_t bytes,
                                 tmsg_proved_t **proved_p)
{
    tmsg_proved_t *proved = calloc(1, sizeof(*proved));
    tmsg_status_t status;

    if (proved == NULL) {
        return tmsg_error_memory("a worker blob");
    }
    proved->proved_bytes = bytes - TMSG_BLOB_SEAL_BYTES;
    tmsg_proof_hash(blob, proved->proved_bytes, proved->digest);
    status = add_version(proved, blob, "", 0);
    if (status != TMSG_OK) {
        free(proved);
        return status;
    }
    *proved_p = proved;
    return TMSG_OK;
}

tmsg_status_t tmsg_proved_now(tmsg_proved_t *proved, tmsg_keyring_t *keyring,
                              const void **blob_p, size_t *bytes_p)
{
    uint8_t proofs[TMSG_KEYS_MOST * TMSG_PROOF_BYTES];
    const uint8_t *data = proved->latest->data;
    size_t at = proved->proved_bytes;
    size_t had = proved->latest->bytes - at - TMSG_BLOB_SEAL_BYTES;
    size_t bytes = tmsg_admit_prove_all(
        keyring, TMSG_KEYS_MOST, TMSG_ROLE_LISTENING, proved->digest, proofs);
    tmsg_status_t status = TMSG_OK;

    if (bytes != had || memcmp(proofs, data + at, bytes) != 0) {
        status = add_version(proved, data, proofs, bytes);
    }
    if (status == TMSG_OK) {
        *blob_p = proved->latest->data;
        *bytes_p = proved->latest->bytes;
    }
    return status;
}

void tmsg_proved_free(tmsg_proved_t *proved)
{
    while (proved != NULL && proved->latest != NULL) {
        version_t *version = proved->latest;

        proved->latest = version->before;
        free(version->data);
        free(version);
    }
    free(proved);
}

bool tmsg_admit_by_blob(const tmsg_endpoint_t *endpoint)
{
    return endpoint->admit.keyring != NULL &&
           endpoint->link.url.kind == TMSG_URL_BLOB;
}

/* Copies the key that one of the proofs is of. False: none is. */
static bool find_proving_key(tmsg_keyring_t *keyring, tmsg_role_t role,
                             const uint8_t *transcript, const void *proofs,
                             size_t bytes, tmsg_key_t *key)
{
    const tmsg_key_t *found;
    tmsg_keys_t keys;

    tmsg_keyring_copy(keyring, &keys);
    found = tmsg_admit_find(&keys, role, transcript, proofs, bytes);
    if (found != NULL) {
        *key = *found;
    }
    tmsg_keys_wipe(&keys);
    return found != NULL;
}

tmsg_status_t tmsg_admit_blob_expect(tmsg_endpoint_t *endpoint,
                                     const tmsg_blob_t *theirs,
                                     const void *data)
{
    tmsg_admit_t *admit = &endpoint->admit;
    tmsg_key_t key;
    bool found;

    if (admit->keyring == NULL) {
        return !theirs->asks_for_key
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_REFUSED,
                                    "not admitted: the blob's listener asks "
                                    "for a key, and this side has none set");
    }
    if (!theirs->asks_for_key) {
        return tmsg_error_set(TMSG_ERR_INSECURE,
                              "not admitted: the blob's listener has no key "
                              "set, and this side asks for one");
    }
    tmsg_proof_hash(data, theirs->proved_bytes, admit->theirs);
    found = find_proving_key(admit->keyring, TMSG_ROLE_LISTENING, admit->theirs,
                             theirs->proofs, theirs->proof_bytes, &key);
    sodium_memzero(&key, sizeof(key));
    return found ? TMSG_OK
                 : tmsg_error_set(TMSG_ERR_INSECURE,
                                  "not admitted: no key that is in this side's "
                                  "keyring has proved the blob");
}

tmsg_status_t tmsg_admit_blob_prove(tmsg_endpoint_t *endpoint, const void *body,
                                    size_t bytes)
{
    tmsg_admit_t *admit = &endpoint->admit;
    tmsg_connect_request_t *connect_request = &endpoint->conn.connect_request;
    uint8_t transcript[TMSG_HASH_BYTES];
    uint8_t proofs[TMSG_PROOFS_MOST * TMSG_PROOF_BYTES];
    size_t proved_bytes = connect_request->blob_bytes - TMSG_BLOB_SEAL_BYTES;
    size_t proof_bytes;
    void *blob;
    tmsg_status_t status;

    tmsg_proof_hash(connect_request->blob, proved_bytes, admit->mine);
    tmsg_proof_connect_request(admit->theirs, admit->mine, body, bytes,
                               transcript);
    proof_bytes =
        tmsg_admit_prove_all(admit->keyring, TMSG_PROOFS_MOST,
                             TMSG_ROLE_CONNECT_REQUEST, transcript, proofs);
    if (proof_bytes == 0) {
        return tmsg_error_set(TMSG_ERR_INSECURE,
                              "not admitted: this side's keyring is empty");
    }
    tmsg_proof_bind(transcript, proofs, proof_bytes, admit->bound);
    status = tmsg_blob_prove(connect_request->blob, proved_bytes, proofs,
                             proof_bytes, &blob, &connect_request->blob_bytes);
    if (status == TMSG_OK) {
        free(connect_request->blob);
        connect_request->blob = blob;
    }
    return status;
}

static tmsg_status_t turn_requester_away(tmsg_requester_t *requester,
                                         tmsg_turned_t turned, const char *why)
{
    requester->turned = turned;
    return tmsg_error_set(TMSG_ERR_REFUSED, "not admitted: %s", why);
}

tmsg_status_t tmsg_admit_blob_judge(tmsg_keyring_t *keyring,
                                    const tmsg_proved_t *proved,
                                    const tmsg_blob_t *theirs, const void *data,
                                    const void *body, size_t bytes,
                                    tmsg_requester_t *requester)
{
    uint8_t transcript[TMSG_HASH_BYTES], digest[TMSG_HASH_BYTES];

    if (keyring == NULL) {
        return !theirs->asks_for_key
                   ? TMSG_OK
                   : turn_requester_away(
                         requester, TMSG_TURNED_OTHERWISE,
                         "the peer asks for a key, and this side has "
                         "none set");
    }
    if (!theirs->asks_for_key) {
        return turn_requester_away(
            requester, TMSG_TURNED_NO_KEY,
            "the peer has no key set, and this side asks for one");
    }
    if (theirs->proof_bytes > (size_t)TMSG_PROOFS_MOST * TMSG_PROOF_BYTES) {
        return turn_requester_away(requester, TMSG_TURNED_OTHERWISE,
                                   "the peer proves more keys than it may");
    }
    tmsg_proof_hash(data, theirs->proved_bytes, digest);
    tmsg_proof_connect_request(proved->digest, digest, body, bytes, transcript);
    if (!find_proving_key(keyring, TMSG_ROLE_CONNECT_REQUEST, transcript,
                          theirs->proofs, theirs->proof_bytes,
                          &requester->key)) {
        return turn_requester_away(
            requester, TMSG_TURNED_WRONG_KEY,
            "the peer has proved no key that is in this side's "
            "keyring");
    }
    tmsg_proof_bind(transcript, theirs->proofs, theirs->proof_bytes,
                    requester->bound);
    return TMSG_OK;
}

/* Makes the keys of the two proofs that are left. */
static void prepare_to_join(tmsg_endpoint_t *endpoint, const tmsg_key_t *key,
                            const uint8_t *transcript)
{
    tmsg_admit_t *admit = &endpoint->admit;
    bool dialling = endpoint->dialling;

    tmsg_proof_make(key->bytes, TMSG_ROLE_WIREUP, transcript,
                    dialling ? admit->mine : admit->theirs);
    tmsg_proof_make(key->bytes, TMSG_ROLE_WIREUP_REPLY, transcript,
                    dialling ? admit->theirs : admit->mine);
    memcpy(admit->name, key->principal, sizeof(admit->name));
    admit->proved = true;
}

static void admit_peer(tmsg_endpoint_t *endpoint)
{
    endpoint->admit.principal = endpoint->admit.name;
    endpoint->admit.admitted = true;
}

tmsg_status_t tmsg_admit_blob_answer(tmsg_endpoint_t *endpoint,
                                     const tmsg_requester_t *requester,
                                     const void *body, size_t bytes)
{
    uint8_t *nonce = endpoint->conn.connect_request.proof;
    uint8_t transcript[TMSG_HASH_BYTES];

    if (getrandom(nonce, TMSG_NONCE_BYTES, 0) != TMSG_NONCE_BYTES) {
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    tmsg_proof_answer(requester->bound, body, bytes, nonce, transcript);
    tmsg_proof_make(requester->key.bytes, TMSG_ROLE_ANSWERING, transcript,
                    nonce + TMSG_NONCE_BYTES);
    endpoint->conn.connect_request.proof_bytes = TMSG_ANSWER_EXTRA_BYTES;
    prepare_to_join(endpoint, &requester->key, transcript);
    return TMSG_OK;
}

bool tmsg_admit_blob_answered(tmsg_endpoint_t *endpoint, const void *body,
                              size_t bytes)
{
    const uint8_t *nonce = (const uint8_t *)body + bytes;
    uint8_t transcript[TMSG_HASH_BYTES];
    tmsg_key_t key;

    tmsg_proof_answer(endpoint->admit.bound, body, bytes, nonce, transcript);
    if (!find_proving_key(endpoint->admit.keyring, TMSG_ROLE_ANSWERING,
                          transcript, nonce + TMSG_NONCE_BYTES,
                          TMSG_PROOF_BYTES, &key)) {
        return false;
    }
    prepare_to_join(endpoint, &key, transcript);
    sodium_memzero(&key, sizeof(key));
    admit_peer(endpoint);
    return true;
}

void tmsg_admit_blob_join(const tmsg_endpoint_t *endpoint, const void *said,
                          size_t bytes, uint8_t *proof)
{
    tmsg_proof_said(endpoint->admit.mine, said, bytes, proof);
}

bool tmsg_admit_blob_joined(tmsg_endpoint_t *endpoint, const uint8_t *said,
                            size_t bytes)
{
    uint8_t proof[TMSG_PROOF_BYTES];

    if (!endpoint->admit.proved) {
        return false;
    }
    tmsg_proof_said(endpoint->admit.theirs, said, bytes, proof);
    if (sodium_memcmp(proof, said + bytes, TMSG_PROOF_BYTES) != 0) {
        return false;
    }
    if (!endpoint->dialling) {
        admit_peer(endpoint);
    }
    return true;
}
