/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/message_mutator.h"

#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/kinds.h"
#include "core/bytes.h"
#include "serialize/header.h"
#include "support/must.h"
#include "support/seeded_maps.h"

#define PAYLOAD_MOST ((size_t)4 << 20)
#define KEPT_BYTES 70000 /* longer payloads do not come again */
#define KIND_AT 4        /* in the preamble */
#define ENDPOINT_AT 12
#define SLOT_MASK 0xfffffu

static uint64_t pick(mutator_t *mutator, uint64_t below)
{
    return sample_random(&mutator->state) % below;
}

void mutant_copy(mutant_t *mutant, const mutant_t *of)
{
    *mutant = *of;
    mutant->header = malloc(of->header_bytes + 1);
    mutant->payload = malloc(of->payload_bytes + 1);
    must_true(mutant->header != NULL && mutant->payload != NULL);
    memcpy(mutant->header, of->header, of->header_bytes);
    if (of->payload_bytes > 0) {
        memcpy(mutant->payload, of->payload, of->payload_bytes);
    }
}

void mutant_free(mutant_t *mutant)
{
    free(mutant->header);
    free(mutant->payload);
    *mutant = (mutant_t){0};
}

void mutator_free(mutator_t *mutator)
{
    for (unsigned i = 0; i < MUTATOR_KEPT; i++) {
        mutant_free(&mutator->kept[i]);
    }
    mutant_free(&mutator->late);
}

static void keep(mutator_t *mutator, const mutant_t *message)
{
    mutant_t *place = &mutator->kept[mutator->kept_count++ % MUTATOR_KEPT];

    mutant_free(place);
    if (message->payload_bytes <= KEPT_BYTES) {
        mutant_copy(place, message);
    }
}

/* One of those that were sent before; NULL: it was too long. */
static const mutant_t *recall(mutator_t *mutator)
{
    const mutant_t *kept = &mutator->kept[pick(mutator, MUTATOR_KEPT)];

    return kept->header == NULL ? NULL : kept;
}

static void flip(mutator_t *mutator, uint8_t *data, size_t bytes)
{
    uint64_t count = 1 + pick(mutator, 8);

    for (uint64_t i = 0; i < count && bytes > 0; i++) {
        data[pick(mutator, bytes)] ^= (uint8_t)(1u << pick(mutator, 8));
    }
}

/* Cut, or grown by noise, zeros or what is there. */
static void resize(mutator_t *mutator, uint8_t **data, size_t *bytes,
                   size_t most)
{
    size_t more = 1 + pick(mutator, pick(mutator, 4) == 0 ? most : 80);
    uint8_t *grown;

    if (pick(mutator, 2) == 0 || *bytes + more > most) {
        *bytes = *bytes == 0 ? 0 : pick(mutator, *bytes);
        return;
    }
    grown = realloc(*data, *bytes + more + 1);
    must_true(grown != NULL);
    if (pick(mutator, 2) == 0) {
        memset(grown + *bytes, 0, more);
    } else {
        sample_fill(mutator->state, grown + *bytes, more);
    }
    *data = grown;
    *bytes += more;
}

/* Numbers at which something ends. */
static uint64_t limit(mutator_t *mutator, uint64_t now)
{
    static const uint64_t limits[] = {0,
                                      1,
                                      31,
                                      32,
                                      33,
                                      127,
                                      128,
                                      255,
                                      256,
                                      1024,
                                      1025,
                                      65535,
                                      65536,
                                      1u << 20,
                                      (1u << 20) + 1,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      1ull << 32,
                                      INT64_MAX,
                                      1ull << 63,
                                      UINT64_MAX,
                                      UINT64_MAX - 63};
    const uint64_t count = sizeof(limits) / sizeof(limits[0]);
    uint64_t n = pick(mutator, count + 5);

    switch (n - (n < count ? n : count)) {
    case 1:
        return now + 1;
    case 2:
        return now - 1;
    case 3:
        return now * 2;
    case 4:
        return now + pick(mutator, 1000);
    default:
        return limits[n % count];
    }
}

/* A field of the preamble, or of what is said of a call, at one of those. */
static void set_field(mutator_t *mutator, mutant_t *mutant)
{
    static const struct {
        uint8_t at, bytes;
    } fields[] = {{2, 1},  {3, 1},  {4, 1},  {5, 1},  {6, 2},  {8, 4},
                  {12, 4}, {16, 4}, {20, 4}, {24, 8}, {32, 1}, {33, 1},
                  {34, 1}, {35, 1}, {36, 4}, {40, 8}, {48, 8}};
    size_t i = pick(mutator, sizeof(fields) / sizeof(fields[0]));
    uint8_t *at = mutant->header + fields[i].at;

    if ((size_t)fields[i].at + fields[i].bytes <= mutant->header_bytes) {
        uint64_t now = tmsg_get_le(at, fields[i].bytes);

        tmsg_put_le(at, limit(mutator, now), fields[i].bytes);
    }
}

/* The same for a number in a body, wherever it is. */
static void set_number(mutator_t *mutator, mutant_t *mutant)
{
    size_t bytes = (size_t)1 << pick(mutator, 4);
    uint8_t *at;

    if (mutant->header_bytes < TMSG_PREAMBLE_BYTES + bytes) {
        return;
    }
    at = mutant->header + TMSG_PREAMBLE_BYTES +
         pick(mutator, mutant->header_bytes - TMSG_PREAMBLE_BYTES - bytes + 1);
    tmsg_put_le(at, limit(mutator, tmsg_get_le(at, bytes)), bytes);
}

/* What is said in one message with what follows in another. */
static void join(mutator_t *mutator, mutant_t *mutant, bool by_payload)
{
    const mutant_t *other = recall(mutator);
    mutant_t both = *mutant, joined;
    size_t bytes = TMSG_PREAMBLE_BYTES;

    if (other == NULL) {
        return;
    }
    if (by_payload) {
        both.payload = other->payload;
        both.payload_bytes = other->payload_bytes;
        mutant_copy(&joined, &both);
    } else {
        mutant_copy(&joined, other);
        bytes = bytes < mutant->header_bytes ? bytes : mutant->header_bytes;
        bytes = bytes < joined.header_bytes ? bytes : joined.header_bytes;
        memcpy(joined.header, mutant->header, bytes);
    }
    mutant_free(mutant);
    *mutant = joined;
}

static void make_noise(mutator_t *mutator, mutant_t *mutant)
{
    size_t from = pick(mutator, 3) == 0 ? TMSG_PREAMBLE_BYTES : ENDPOINT_AT + 4;

    if (mutant->header_bytes > from) {
        sample_fill(mutator->state, mutant->header + from,
                    mutant->header_bytes - from);
    }
}

/* Bits of what is behind the preamble. */
static void flip_body(mutator_t *mutator, mutant_t *mutant)
{
    if (mutant->header_bytes > TMSG_PREAMBLE_BYTES) {
        flip(mutator, mutant->header + TMSG_PREAMBLE_BYTES,
             mutant->header_bytes - TMSG_PREAMBLE_BYTES);
    }
}

static void change_kind(mutator_t *mutator, mutant_t *mutant)
{
    if (mutant->header_bytes > KIND_AT) {
        mutant->header[KIND_AT] = (uint8_t)pick(mutator, TMSG_KIND_COUNT + 2);
    }
}

static void change_head(mutator_t *mutator, mutant_t *mutant)
{
    switch (pick(mutator, 4)) {
    case 0:
        flip(mutator, mutant->header,
             mutant->header_bytes < 56 ? mutant->header_bytes : 56);
        break;
    case 1:
        change_kind(mutator, mutant);
        break;
    default:
        set_field(mutator, mutant);
    }
}

static void change_size(mutator_t *mutator, mutant_t *mutant)
{
    if (pick(mutator, 2) == 0) {
        resize(mutator, &mutant->header, &mutant->header_bytes,
               mutator->header_most);
    } else {
        resize(mutator, &mutant->payload, &mutant->payload_bytes, PAYLOAD_MOST);
    }
}

/* What spoils the head mostly costs the connection, and a body its message. */
static void change(mutator_t *mutator, mutant_t *mutant)
{
    switch (pick(mutator, 12)) {
    case 0:
    case 1:
        change_head(mutator, mutant);
        break;
    case 2:
        change_size(mutator, mutant);
        break;
    case 3:
        join(mutator, mutant, pick(mutator, 2) == 0);
        break;
    case 4:
        mutant->flags ^= UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV;
        break;
    case 5:
        make_noise(mutator, mutant);
        break;
    case 6:
    case 7:
        flip(mutator, mutant->payload, mutant->payload_bytes);
        break;
    case 8:
    case 9:
        flip_body(mutator, mutant);
        break;
    default:
        set_number(mutator, mutant);
    }
}

/* Peers that share a worker can speak for each other
 * (docs/understand/security.md), which is no finding: a wrong id is of the same
 * place in the receiver's table. */
static void spare_others(const mutator_t *mutator, mutant_t *mutant)
{
    uint8_t *at = mutant->header + ENDPOINT_AT;
    uint32_t id;

    if (mutant->header_bytes >= ENDPOINT_AT + 4) {
        id = (uint32_t)tmsg_get_le(at, 4);
        id = (id & ~SLOT_MASK) | (mutator->endpoint_id & SLOT_MASK);
        tmsg_put_le(at, id, 4);
    }
}

/* UCX aborts on what a flag cannot be, on the sender's side. */
static void be_possible(const mutator_t *mutator, mutant_t *mutant)
{
    const unsigned either = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV;

    if ((mutant->flags & either) == either) {
        mutant->flags &= ~(unsigned)UCP_AM_SEND_FLAG_RNDV;
    }
    if (mutant->header_bytes > mutator->header_most) {
        mutant->header_bytes = mutator->header_most;
    }
    spare_others(mutator, mutant);
}

bool mutator_spares(mutator_t *mutator, const mutant_t *message)
{
    keep(mutator, message);
    return mutator->late.header == NULL &&
           (mutator->one_in == 0 || pick(mutator, mutator->one_in) > 0);
}

size_t mutator_run(mutator_t *mutator, const mutant_t *message,
                   mutant_t out[MUTATOR_MOST])
{
    const mutant_t *again = pick(mutator, 6) == 0 ? recall(mutator) : NULL;
    size_t count = 0;

    mutator->changed++;
    mutant_copy(&out[count++], message);
    if (mutator->late.header != NULL) { /* the two have changed places */
        out[count++] = mutator->late;
        mutator->late = (mutant_t){0};
    } else if (again != NULL) {
        mutant_copy(&out[count++], again);
    } else if (pick(mutator, 8) == 0) {
        mutator->late = out[--count];
    } else {
        for (uint64_t n = 1 + pick(mutator, 3); n > 0; n--) {
            change(mutator, &out[0]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        be_possible(mutator, &out[i]);
    }
    return count;
}

size_t mutator_bytes(mutator_t *mutator, uint8_t *data, size_t bytes)
{
    mutator->changed++;
    switch (pick(mutator, 4)) {
    case 0:
        return pick(mutator, bytes + 1);
    case 1:
        sample_fill(mutator->state, data + bytes, 64);
        return bytes + pick(mutator, 65);
    default:
        flip(mutator, data, bytes);
        return bytes;
    }
}

size_t mutator_frame(mutator_t *mutator, uint8_t *type_p, uint8_t *data,
                     size_t bound)
{
    size_t bytes =
        pick(mutator, 3) == 0 ? pick(mutator, bound) : pick(mutator, 64);

    mutator->changed++;
    *type_p = (uint8_t)pick(mutator, pick(mutator, 8) == 0 ? 256 : 12);
    sample_fill(mutator->state, data, bytes);
    for (size_t at = 0; at + 8 <= bytes && at < 64; at += 4) {
        if (pick(mutator, 2) == 0) {
            tmsg_put_le(data + at, limit(mutator, at), 4);
        }
    }
    return bytes;
}
