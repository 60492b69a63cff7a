/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer proves of its keys: the list of a frame, those behind the blob of
 * a CONNECT_REQUEST, and those of a listener's blob. An input is what is
 * proved, how the proofs were made, and what was changed of them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "am/connect/admit.h"
#include "am/connect/admit_blob.h"
#include "core/bytes.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"

enum { LIST_MOST = 40, BODY_BYTES = TMSG_TOKEN_BYTES + 8 };

static tmsg_keyring_t *keyring;
static tmsg_proved_t *proved;

static void say_hello(tmsg_hello_t *hello)
{
    raw_hello(hello);
    hello->admission = TMSG_ADMISSION_VERSION;
    memset(hello->nonce, 9, sizeof(hello->nonce));
}

static void begin(void)
{
    static const char address[] = "an address";
    tmsg_blob_t blob = {.asks_for_key = true};
    void *data;
    size_t bytes;

    keyring = ring("alice", 1);
    add_key(keyring, "bob", 2);
    say_hello(&blob.hello);
    blob.whole.address = blob.net.address = address;
    blob.whole.address_bytes = blob.net.address_bytes = sizeof(address);
    must(tmsg_blob_encode(&blob, &data, &bytes));
    must(tmsg_proved_create(data, bytes, &proved));
    free(data);
}

/* Proofs by the keys that the bytes name, bit 7: with that one spoilt. Whether
 * any is of a key of ours, and right. */
static bool prove(const uint8_t *data, size_t count, tmsg_role_t role,
                  const uint8_t *transcript, uint8_t *list)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        uint8_t *proof = list + i * TMSG_PROOF_BYTES;
        uint8_t key[TMSG_KEY_BYTES];

        keys_of((uint8_t)(data[i] % 8), key);
        tmsg_proof_make(key, role, transcript, proof);
        if (data[i] & 128) {
            proof[data[i] % TMSG_PROOF_BYTES] ^= 1;
        }
        any |= !(data[i] & 128) && (data[i] % 8 == 1 || data[i] % 8 == 2);
    }
    return any;
}

static void try_list(const uint8_t *data, size_t count)
{
    uint8_t transcript[TMSG_HASH_BYTES];
    uint8_t list[LIST_MOST * TMSG_PROOF_BYTES];
    const tmsg_key_t *found;
    tmsg_keys_t keys;
    bool any;

    tmsg_proof_hash(data, count, transcript);
    any = prove(data, count, TMSG_ROLE_DIALLING, transcript, list);
    tmsg_keyring_copy(keyring, &keys);
    found = tmsg_admit_find(&keys, TMSG_ROLE_DIALLING, transcript, list,
                            count * TMSG_PROOF_BYTES);
    must_true((found != NULL) == any);
    found = tmsg_admit_find(&keys, TMSG_ROLE_DIALLED, transcript, list,
                            count * TMSG_PROOF_BYTES);
    must_true(found == NULL);
    tmsg_keys_wipe(&keys);
}

/* A blob with its proofs, in memory of just its length. */
typedef struct {
    uint8_t *data;
    size_t bytes, proved_bytes;
    bool any;       /* of its proofs is right */
    bool false_one; /* what is proved is another by now */
    bool touched;   /* so are its proofs */
} proven_t;

/* By the keys that `data` names; `body` NULL: a listener's. */
static void make(const tmsg_blob_t *blob, const uint8_t *data, size_t count,
                 const uint8_t *body, proven_t *made)
{
    uint8_t transcript[TMSG_HASH_BYTES], digest[TMSG_HASH_BYTES];
    uint8_t list[LIST_MOST * TMSG_PROOF_BYTES], ours[TMSG_HASH_BYTES];
    const void *mine;
    void *plain, *whole;
    tmsg_blob_t read;
    size_t bytes;

    must(tmsg_proved_now(proved, keyring, &mine, &bytes));
    must(tmsg_blob_decode(mine, bytes, &read));
    tmsg_proof_hash(mine, read.proved_bytes, ours);
    must(tmsg_blob_encode(blob, &plain, &bytes));
    made->proved_bytes = bytes - TMSG_BLOB_SEAL_BYTES;
    tmsg_proof_hash(plain, made->proved_bytes, digest);
    if (body != NULL) {
        tmsg_proof_connect_request(ours, digest, body, BODY_BYTES, transcript);
    }
    made->any =
        prove(data, count,
              body == NULL ? TMSG_ROLE_LISTENING : TMSG_ROLE_CONNECT_REQUEST,
              body == NULL ? digest : transcript, list);
    must(tmsg_blob_prove(plain, made->proved_bytes, list,
                         count * TMSG_PROOF_BYTES, &whole, &made->bytes));
    made->data = whole;
    free(plain);
}

/* [where u16][what] each; the checksum is right all the same. */
static void change(proven_t *made, const uint8_t *more, size_t bytes)
{
    size_t most = made->bytes - TMSG_BLOB_SEAL_BYTES;
    uint8_t *before = malloc(most);

    must_true(before != NULL);
    memcpy(before, made->data, most);
    for (size_t i = 0; i + 3 <= bytes; i += 3) {
        made->data[tmsg_get_le(more + i, 2) % most] = more[i + 2];
    }
    made->false_one = memcmp(before, made->data, made->proved_bytes) != 0;
    made->touched = memcmp(before, made->data, most) != 0;
    free(before);
    tmsg_put_le(made->data + most, XXH3_64bits(made->data, most),
                TMSG_BLOB_SEAL_BYTES);
}

static void judge_connect_request(const proven_t *made, const tmsg_blob_t *read,
                                  uint8_t *body, size_t count)
{
    tmsg_requester_t requester = {.turned = TMSG_TURNED_OTHERWISE};
    tmsg_status_t status = tmsg_admit_blob_judge(
        keyring, proved, read, made->data, body, BODY_BYTES, &requester);

    must_true(status == TMSG_OK || status == TMSG_ERR_REFUSED);
    must_true(status != TMSG_OK || !made->false_one);
    must_true(made->touched ||
              (status == TMSG_OK) == (made->any && count <= TMSG_PROOFS_MOST));
    body[0] ^= 1; /* that of another CONNECT_REQUEST */
    must_true(tmsg_admit_blob_judge(keyring, proved, read, made->data, body,
                                    BODY_BYTES, &requester) != TMSG_OK);
}

static void judge_listener(const proven_t *made, const tmsg_blob_t *read)
{
    static tmsg_endpoint_t endpoint;
    tmsg_status_t status;

    endpoint.admit.keyring = keyring;
    status = tmsg_admit_blob_expect(&endpoint, read, made->data);
    must_true(status == TMSG_OK || status == TMSG_ERR_INSECURE);
    must_true(status != TMSG_OK || !made->false_one);
    must_true(made->touched || (status == TMSG_OK) == made->any);
}

static void try_blob(const uint8_t *data, size_t count, const uint8_t *more,
                     size_t more_bytes, bool backlog)
{
    uint8_t body[BODY_BYTES] = {0};
    tmsg_blob_t blob = {.asks_for_key = true}, read;
    size_t own = more_bytes < BODY_BYTES ? more_bytes : BODY_BYTES;
    proven_t made = {.false_one = false};

    if (own > 0) {
        memcpy(body, more, own);
    }
    say_hello(&blob.hello);
    blob.whole.address = blob.net.address = body;
    blob.whole.address_bytes = 1 + own % BODY_BYTES;
    blob.net.address_bytes = 1;
    make(&blob, data, count, backlog ? body : NULL, &made);
    change(&made, more + own, more_bytes - own);
    if (tmsg_blob_decode(made.data, made.bytes, &read) != TMSG_OK) {
        must_true(made.touched);
    } else if (backlog) {
        judge_connect_request(&made, &read, body, count);
    } else {
        judge_listener(&made, &read);
    }
    free(made.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = size > 0 ? data[0] % LIST_MOST : 0;

    if (keyring == NULL) {
        begin();
    }
    if (size >= 1 + count) {
        const uint8_t *more = data + 1 + count;
        size_t more_bytes = size - 1 - count;

        try_list(data + 1, count);
        try_blob(data + 1, count, more, more_bytes, false);
        try_blob(data + 1, count, more, more_bytes, true);
    }
    return 0;
}
