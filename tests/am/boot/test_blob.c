/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "am/boot/blob.h"
#include "am/boot/proof.h"
#include "core/bytes.h"
#include "support/failing_alloc.h"

static const uint8_t address[] = "a worker address, as opaque as UCX's";

static tmsg_blob_t sample(void)
{
    static const uint8_t instance[TMSG_INSTANCE_BYTES] = {7};
    tmsg_blob_t blob;

    memset(&blob, 0, sizeof(blob));
    tmsg_hello_fill_local(instance, &blob.hello);
    blob.hello.queue_depth = 99;
    memset(blob.whole.token, 0xab, TMSG_TOKEN_BYTES);
    blob.whole.address = address;
    blob.whole.address_bytes = sizeof(address);
    blob.net = blob.whole;
    blob.net.address = "net";
    blob.net.address_bytes = 3;
    return blob;
}

static void expect_sealed(const tmsg_sealed_t *sealed)
{
    tmsg_blob_t blob = sample();

    cr_expect(memcmp(sealed->token, blob.whole.token, TMSG_TOKEN_BYTES) == 0);
    cr_assert(eq(sz, sealed->address_bytes, sizeof(address)));
    cr_expect(memcmp(sealed->address, address, sizeof(address)) == 0);
}

Test(sealed, comes_back_as_it_was)
{
    tmsg_blob_t blob = sample();
    uint8_t bytes[sizeof(address) + TMSG_SEALED_EXTRA_BYTES];
    tmsg_sealed_t back;
    size_t length;

    cr_assert(eq(int,
                 tmsg_sealed_encode(&blob.whole, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    cr_assert(eq(sz, length, sizeof(bytes)));
    cr_assert(eq(int, tmsg_sealed_decode(bytes, length, &back), TMSG_OK));
    expect_sealed(&back);
}

Test(sealed, has_the_documented_layout)
{
    tmsg_blob_t blob = sample();
    uint8_t bytes[sizeof(address) + TMSG_SEALED_EXTRA_BYTES];
    size_t length;

    cr_assert(eq(int,
                 tmsg_sealed_encode(&blob.whole, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    cr_expect(memcmp(bytes, blob.whole.token, 16) == 0);
    cr_expect(eq(u64, tmsg_get_le(bytes + 16, 4), sizeof(address)));
    cr_expect(memcmp(bytes + 20, address, sizeof(address)) == 0);
    cr_expect(eq(u64, tmsg_get_le(bytes + length - 8, 8),
                 XXH3_64bits(bytes, length - 8)));
}

Test(sealed, refuses_to_write_what_cannot_be_read)
{
    tmsg_blob_t blob = sample();
    uint8_t *big = calloc(1, TMSG_ADDRESS_BYTES_MAX + 100);
    size_t length = 77;

    cr_expect(eq(int, tmsg_sealed_encode(&blob.whole, big, 30, &length),
                 TMSG_ERR_LIMIT_EXCEEDED));
    blob.whole.address_bytes = 0;
    cr_expect(eq(int, tmsg_sealed_encode(&blob.whole, big, 1000, &length),
                 TMSG_ERR_INVALID_PARAM));
    blob.whole.address = big;
    blob.whole.address_bytes = TMSG_ADDRESS_BYTES_MAX + 1;
    cr_expect(eq(int,
                 tmsg_sealed_encode(&blob.whole, big,
                                    TMSG_ADDRESS_BYTES_MAX + 100, &length),
                 TMSG_ERR_LIMIT_EXCEEDED));
    cr_expect(eq(sz, length, 77));
    free(big);
}

Test(sealed, takes_the_largest_address_and_no_larger)
{
    size_t capacity = TMSG_ADDRESS_BYTES_MAX + TMSG_SEALED_EXTRA_BYTES;
    uint8_t *data = calloc(1, capacity + 1);
    uint8_t *largest = calloc(1, TMSG_ADDRESS_BYTES_MAX);
    tmsg_sealed_t sealed = {.address = largest,
                            .address_bytes = TMSG_ADDRESS_BYTES_MAX};
    size_t length;

    cr_assert(
        eq(int, tmsg_sealed_encode(&sealed, data, capacity, &length), TMSG_OK));
    cr_expect(eq(int, tmsg_sealed_decode(data, length, &sealed), TMSG_OK));
    cr_expect(eq(int, tmsg_sealed_decode(data, length + 1, &sealed),
                 TMSG_ERR_MALFORMED));
    free(data);
    free(largest);
}

typedef tmsg_status_t (*decode_fn)(const void *data, size_t bytes, void *out);

static tmsg_status_t decode_sealed(const void *data, size_t bytes, void *out)
{
    return tmsg_sealed_decode(data, bytes, out);
}

static tmsg_status_t decode_blob(const void *data, size_t bytes, void *out)
{
    return tmsg_blob_decode(data, bytes, out);
}

/* Every prefix, every single bit: nothing but the whole passes. */
static void expect_refused_if_damaged(const void *data, size_t bytes,
                                      decode_fn decode)
{
    tmsg_blob_t out, before;

    memset(&out, 0xee, sizeof(out));
    before = out;
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *exact = malloc(cut + !cut);

        memcpy(exact, data, cut);
        cr_expect(eq(int, decode(exact, cut, &out), TMSG_ERR_MALFORMED),
                  "%zu of %zu bytes", cut, bytes);
        free(exact);
    }
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        uint8_t *changed = malloc(bytes);

        memcpy(changed, data, bytes);
        changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect(eq(int, decode(changed, bytes, &out), TMSG_ERR_MALFORMED),
                  "bit %zu", bit);
        free(changed);
    }
    cr_expect(memcmp(&out, &before, sizeof(out)) == 0,
              "the output was touched");
}

Test(sealed, refuses_all_damage)
{
    tmsg_blob_t blob = sample();
    uint8_t bytes[sizeof(address) + TMSG_SEALED_EXTRA_BYTES];
    size_t length;

    cr_assert(eq(int,
                 tmsg_sealed_encode(&blob.whole, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    expect_refused_if_damaged(bytes, length, decode_sealed);
}

/* Makes the checksum right again, as a liar would. */
static void reseal(uint8_t *data, size_t bytes)
{
    tmsg_put_le(data + bytes - 8, XXH3_64bits(data, bytes - 8), 8);
}

Test(sealed, refuses_a_lying_length)
{
    static const uint32_t lengths[] = {
        0, 1, sizeof(address) - 1, sizeof(address) + 1, 0x7fffffff, 0xffffffff};
    tmsg_blob_t blob = sample();
    uint8_t bytes[sizeof(address) + TMSG_SEALED_EXTRA_BYTES];
    size_t length;

    cr_assert(eq(int,
                 tmsg_sealed_encode(&blob.whole, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        tmsg_sealed_t back;

        tmsg_put_le(bytes + 16, lengths[i], 4);
        reseal(bytes, length);
        cr_expect(eq(int, tmsg_sealed_decode(bytes, length, &back),
                     TMSG_ERR_MALFORMED),
                  "%u", lengths[i]);
    }
}

static void encode(uint8_t **data_p, size_t *bytes_p)
{
    tmsg_blob_t blob = sample();
    void *data;

    cr_assert(eq(int, tmsg_blob_encode(&blob, &data, bytes_p), TMSG_OK));
    *data_p = data;
}

Test(blob, comes_back_as_it_was)
{
    tmsg_blob_t blob = sample(), back;
    uint8_t *data;
    size_t bytes;

    encode(&data, &bytes);
    cr_assert(eq(int, tmsg_blob_decode(data, bytes, &back), TMSG_OK), "%s",
              tmsg_error_message());
    cr_expect(eq(u64, back.hello.ns_pid, blob.hello.ns_pid));
    cr_expect(eq(uint, back.hello.queue_depth, 99));
    cr_expect_str_eq(back.hello.boot_id, blob.hello.boot_id);
    expect_sealed(&back.whole);
    cr_expect(eq(sz, back.net.address_bytes, 3));
    cr_expect(memcmp(back.net.address, "net", 3) == 0);
    cr_expect(tmsg_blob_address(&back, true) == &back.net);
    cr_expect(tmsg_blob_address(&back, false) == &back.whole);
    free(data);
}

Test(blob, refuses_all_damage)
{
    uint8_t *data;
    size_t bytes;

    encode(&data, &bytes);
    expect_refused_if_damaged(data, bytes, decode_blob);
    free(data);
}

Test(blob, refuses_what_is_something_else)
{
    tmsg_blob_t back;

    cr_expect(eq(int, tmsg_blob_decode(NULL, 0, &back), TMSG_ERR_MALFORMED));
    cr_expect(eq(
        int, tmsg_blob_decode("tcp://127.0.0.1:4000, for example", 33, &back),
        TMSG_ERR_MALFORMED));
    cr_expect_str_eq(tmsg_error_message(),
                     "these 33 bytes are not a worker blob");
}

Test(blob, names_another_version)
{
    tmsg_blob_t back;
    uint8_t *data;
    size_t bytes;

    encode(&data, &bytes);
    data[8] = 3;
    reseal(data, bytes);
    cr_expect(
        eq(int, tmsg_blob_decode(data, bytes, &back), TMSG_ERR_INCOMPATIBLE));
    cr_expect_str_eq(tmsg_error_message(),
                     "worker blob of version 3: this side reads 0 and 1");
    free(data);
}

Test(blob, refuses_lying_lengths)
{
    tmsg_blob_t back;
    uint8_t *data;
    size_t bytes;
    uint64_t right;

    encode(&data, &bytes);
    right = tmsg_get_le(data + 10, 4);
    for (uint64_t lie = 0; lie <= bytes + 1; lie++) {
        if (lie != right) {
            tmsg_put_le(data + 10, lie, 4);
            reseal(data, bytes);
            cr_expect(eq(int, tmsg_blob_decode(data, bytes, &back),
                         TMSG_ERR_MALFORMED),
                      "%llu", (unsigned long long)lie);
        }
    }
    tmsg_put_le(data + 10, 0xffffffff, 4);
    reseal(data, bytes);
    cr_expect(
        eq(int, tmsg_blob_decode(data, bytes, &back), TMSG_ERR_MALFORMED));
    cr_expect(strstr(tmsg_error_message(), "its hello says 4294967295") != NULL,
              "%s", tmsg_error_message());
    free(data);
}

Test(blob, refuses_two_tokens_and_one_address)
{
    tmsg_blob_t blob = sample(), back;
    void *data;
    uint8_t *bytes;
    size_t length;

    blob.net.token[3] ^= 1;
    cr_assert(eq(int, tmsg_blob_encode(&blob, &data, &length), TMSG_OK));
    cr_expect(
        eq(int, tmsg_blob_decode(data, length, &back), TMSG_ERR_MALFORMED));
    cr_expect_str_eq(tmsg_error_message(),
                     "worker blob: its addresses have two tokens");
    free(data);
    encode(&bytes, &length);
    length -= 3 + TMSG_SEALED_EXTRA_BYTES; /* the second address */
    reseal(bytes, length);
    cr_expect(
        eq(int, tmsg_blob_decode(bytes, length, &back), TMSG_ERR_MALFORMED));
    free(bytes);
}

Test(blob, encodes_nothing_without_an_address)
{
    tmsg_blob_t blob = sample();
    void *data = NULL;
    size_t bytes;

    blob.whole.address_bytes = 0;
    cr_expect(eq(int, tmsg_blob_encode(&blob, &data, &bytes),
                 TMSG_ERR_INVALID_PARAM));
    cr_expect(data == NULL);
}

Test(blob, says_when_there_is_no_memory)
{
    tmsg_blob_t blob = sample();
    void *data = NULL;
    size_t bytes;

    failing_alloc_arm(1);
    cr_expect(
        eq(int, tmsg_blob_encode(&blob, &data, &bytes), TMSG_ERR_NO_MEMORY));
    cr_expect(failing_alloc_disarm());
    cr_expect(data == NULL);
}

Test(blob, keeps_its_proofs)
{
    static const uint8_t proofs[65 * TMSG_PROOF_BYTES] = {7};
    static const struct {
        size_t bytes;
        tmsg_status_t status;
    } rows[] = {{0, TMSG_OK},
                {TMSG_PROOF_BYTES, TMSG_OK},
                {64 * TMSG_PROOF_BYTES, TMSG_OK},
                {1, TMSG_ERR_MALFORMED},
                {TMSG_PROOF_BYTES + 1, TMSG_ERR_MALFORMED},
                {sizeof(proofs), TMSG_ERR_MALFORMED}};
    tmsg_blob_t blob = sample(), back;
    void *data, *proved;
    size_t bytes, proved_bytes;

    blob.asks_for_key = true;
    blob.hello.admission = 1;
    blob.hello.nonce[0] = 1;
    cr_assert(eq(int, tmsg_blob_encode(&blob, &data, &bytes), TMSG_OK));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert(eq(int,
                     tmsg_blob_prove(data, bytes - TMSG_BLOB_SEAL_BYTES, proofs,
                                     rows[i].bytes, &proved, &proved_bytes),
                     TMSG_OK));
        cr_expect(eq(int, tmsg_blob_decode(proved, proved_bytes, &back),
                     rows[i].status),
                  "%zu: %s", i, tmsg_error_message());
        if (rows[i].status == TMSG_OK) {
            cr_expect(back.asks_for_key);
            cr_expect(eq(sz, back.proof_bytes, rows[i].bytes));
            cr_expect(eq(sz, back.proved_bytes, bytes - TMSG_BLOB_SEAL_BYTES));
            cr_expect(memcmp(back.proofs, proofs, rows[i].bytes) == 0);
        }
        free(proved);
    }
    failing_alloc_arm(1);
    cr_expect(eq(int,
                 tmsg_blob_prove(data, bytes - TMSG_BLOB_SEAL_BYTES, proofs, 32,
                                 &proved, &proved_bytes),
                 TMSG_ERR_NO_MEMORY));
    cr_expect(failing_alloc_disarm());
    free(data);
}

Test(blob, has_room_for_proofs_only_with_a_nonce_in_its_hello)
{
    tmsg_blob_t blob = sample(), back;
    void *data;
    size_t bytes;

    blob.asks_for_key = true;
    blob.hello.admission = 0;
    cr_assert(eq(int, tmsg_blob_encode(&blob, &data, &bytes), TMSG_OK));
    cr_expect(
        eq(int, tmsg_blob_decode(data, bytes, &back), TMSG_ERR_MALFORMED));
    free(data);
}

Test(blob, is_not_hashed_where_it_is_too_long)
{
    uint8_t *data;
    tmsg_blob_t back;
    size_t bytes;

    encode(&data, &bytes);
    data = realloc(data, 192 * 1024 + 1);
    memset(data + bytes, 0, 192 * 1024 + 1 - bytes);
    cr_expect(eq(int, tmsg_blob_decode(data, 192 * 1024 + 1, &back),
                 TMSG_ERR_MALFORMED));
    cr_expect(strstr(tmsg_error_message(), "at most") != NULL);
    free(data);
}
