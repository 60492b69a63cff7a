/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What somebody between two peers of tls:// can do, or a stranger by its first
 * words. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "am/tls/secured.h"
#include "support/breaking_relay.h"
#include "support/large_messages.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

static bool is_away(void *arg)
{
    const pair_t *pair = arg;

    return joined_is_away(pair->to_a) && joined_is_away(pair->to_b);
}

/* A session whose connection broke comes back by three connections: the link,
 * the stream, and the one for large payloads. Each of them meets somebody else
 * once. */
Test(tls_middle, who_proves_nothing_cannot_end_a_session)
{
    static const struct {
        const char *data;
        size_t bytes;
    } said[] = {{"HTTP/1.1 200 OK\r\n\r\n", 19},
                {"\x15\x03\x03\0\x02\x02\x31", 7}, /* no access, says TLS */
                {"TMSGBOOT", 8}};
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .most_backoff_ms = 20};
    secured_t secured;
    pair_t *pair = &secured.pair;
    relay_t *relay;

    secured_prepare(&secured, BY_CERTS, DRIVE_THREAD);
    secured_listen(&pair->a, SECURED_URL, secured.by[0], -1);
    relay = relay_open(tmsg_listener_url(pair->a.listener));
    secured_connect(&secured, relay_url(relay), &reconnect);
    for (unsigned i = 0; i < 9; i++) {
        tmsg_request_t *sent;

        relay_shut(relay, true);
        pair_await(pair, is_away, pair, "the cut");
        relay_forge(relay, i % 3, said[i / 3].data, said[i / 3].bytes);
        sent = send_map(pair->to_a, sample_bytes(i, 300000), TMSG_SEND_ACKED);
        relay_shut(relay, false);
        large_take(pair, &pair->a, i, 300000);
        must(pair_finish(pair, sent));
    }
    must_eq(pair->a.accepts, 1);
    secured_close(&secured);
    relay_close(relay);
}

/* Appends to a ClientHello. */
typedef struct {
    uint8_t data[1024];
    size_t bytes;
} words_t;

static void say(words_t *words, const void *data, size_t bytes)
{
    must_true(words->bytes + bytes <= sizeof(words->data));
    memcpy(words->data + words->bytes, data, bytes);
    words->bytes += bytes;
}

static void say_number(words_t *words, size_t number, size_t bytes)
{
    for (size_t i = bytes; i > 0; i--) {
        say(words, &(uint8_t){(uint8_t)(number >> (8 * (i - 1)))}, 1);
    }
}

static void say_all(words_t *words, const words_t *part, size_t length_bytes)
{
    say_number(words, part->bytes, length_bytes);
    say(words, part->data, part->bytes);
}

static void say_extension(words_t *words, size_t type, const words_t *part)
{
    say_number(words, type, 2);
    say_all(words, part, 2);
}

/* Offers as many keys, the last of them one that the listener has. */
static void offer_keys(words_t *words, unsigned count)
{
    static const char known[] = "tensormsg-1:b8d37837cd84a2e2b1e663f08b69351b";
    static const char other[] = "tensormsg-1:00000000000000000000000000000000";
    words_t ids = {.bytes = 0}, binders = {.bytes = 0}, part = {.bytes = 0};

    for (unsigned i = 1; i <= count; i++) {
        say_number(&ids, sizeof(known) - 1, 2);
        say(&ids, i == count ? known : other, sizeof(known) - 1);
        say_number(&ids, 0, 4);
        say_number(&binders, 32, 1);
        say(&binders, (uint8_t[32]){0}, 32);
    }
    say_all(&part, &ids, 2);
    say_all(&part, &binders, 2);
    say_extension(words, 41, &part);
}

/* Says a ClientHello, and returns the alert by which it is answered. */
static int say_hello(side_t *side, unsigned keys)
{
    const words_t versions = {"\x02\x03\x04", 3}, groups = {"\0\2\0\x1d", 4};
    const words_t modes = {"\x01\x01", 2}, ciphers = {"\x13\x01", 2};
    const words_t signatures = {"\0\2\4\3", 4};
    const words_t protocols = {"\0\x0c\x0btensormsg/1", 14};
    words_t share = {"\0\x24\0\x1d\0\x20\x09", 38}, extensions = {.bytes = 0};
    words_t hello = {.bytes = 0}, message = {.bytes = 0}, record = {.bytes = 0};
    raw_reader_t reader = {.fd = raw_dial(tmsg_listener_url(side->listener))};

    say_extension(&extensions, 43, &versions);
    say_extension(&extensions, 10, &groups);
    say_extension(&extensions, 13, &signatures);
    say_extension(&extensions, 51, &share);
    say_extension(&extensions, 45, &modes);
    say_extension(&extensions, 16, &protocols);
    offer_keys(&extensions, keys);
    say_number(&hello, 0x0303, 2);
    say(&hello, (uint8_t[32]){1}, 32);
    say_number(&hello, 0, 1);
    say_all(&hello, &ciphers, 2);
    say(&hello, "\x01\0", 2);
    say_all(&hello, &extensions, 2);
    say_number(&message, 1, 1);
    say_all(&message, &hello, 3);
    say_number(&record, 0x160301, 3);
    say_all(&record, &message, 2);
    raw_send(reader.fd, record.data, record.bytes);
    side_await(side, raw_closed, &reader, "an alert");
    close(reader.fd);
    must_eq(reader.bytes, 7u);
    must_eq(reader.data[0], 21);
    return reader.data[6];
}

/* To look for a key costs the listener time, and a ClientHello can name a
 * thousand. */
Test(tls_middle, a_listener_looks_for_four_keys_of_a_stranger)
{
    uint8_t key[TMSG_KEY_BYTES];
    secured_t secured;

    for (uint8_t i = 0; i < sizeof(key); i++) {
        key[i] = i;
    }
    secured_prepare(&secured, BY_KEYS, DRIVE_POLLING);
    must(tmsg_keyring_add(secured.by[0].keyring, "known", key));
    secured_listen(&secured.pair.a, SECURED_URL, secured.by[0], 0);
    must_eq(say_hello(&secured.pair.a, 1), 47); /* found, and not proved */
    must_eq(say_hello(&secured.pair.a, 4), 47);
    must_eq(say_hello(&secured.pair.a, 5), 40); /* none in common */
    secured_drop(&secured);
}
