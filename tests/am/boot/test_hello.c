/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/boot/hello.h"
#include "serialize/header.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define CAP(name) (UINT64_C(1) << CAP_##name)

static const uint8_t instance[TMSG_INSTANCE_BYTES] = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static const struct {
    unsigned type;
    bool required;
    const char *name;
    size_t bytes; /* 0: text */
} known[] = {
    {1, true, "wire_version", 1},
    {2, true, "ucx_major", 2},
    {3, true, "ucx_minor", 2},
    {4, true, "ucx_patch", 2},
    {5, true, "instance_id", 16},
    {6, true, "uid", 4},
    {7, true, "pid", 4},
    {8, false, "host", 0},
    {9, false, "boot_id", 0},
    {10, false, "ns_pid", 8},
    {11, false, "ns_ipc", 8},
    {12, false, "ns_mnt", 8},
    {13, false, "ns_user", 8},
    {14, false, "ns_net", 8},
    {15, true, "max_am_header", 4},
    {16, true, "queue_depth", 4},
    {17, false, "features", 4},
    {18, false, "tcp_tx_seg", 8},
    {19, false, "tcp_rx_seg", 8},
    {20, false, "posix_seg", 8},
    {21, true, "max_tensors", 8},
    {22, true, "max_ndim", 8},
    {23, true, "max_name_bytes", 8},
    {24, true, "max_metadata_bytes", 8},
    {25, true, "max_header_bytes", 8},
    {26, true, "max_message_bytes", 8},
    {27, true, "ucx_id", 8},
    {28, false, "schema_slots", 2},
    {29, false, "schema_bytes", 4},
    {30, false, "checksums", 4},
    {31, false, "max_metadata_keys", 8},
    {32, false, "heartbeat_ms", 4},
    {33, false, "fragments", 2},
    {34, false, "aborts", 1},
    {35, false, "channels", 2},
    {36, false, "eager_bytes", 8},
    {37, false, "resume_ms", 4},
    {38, false, "resumes", 1},
    {40, false, "subscribe", 4},
    {41, false, "admission", 1},
    {42, false, "nonce", 32},
    {43, false, "near_end", 0},
    {44, false, "far_end", 0},
    {45, false, "devices", 0},
    {46, false, "memory", 1},
    {47, false, "gid", 4},
    {48, false, "caps", 8},
    {49, false, "caps_used", 8},
    {50, false, "descriptor", 4},
    {51, false, "carrier", 1},
};

#define LAST_REQUIRED 27
#define LAST_FIELD (known[COUNT(known) - 1].type)

/* Every field set, no two alike. */
static tmsg_hello_t sample(void)
{
    tmsg_hello_t hello;

    memset(&hello, 0, sizeof(hello));
    hello.wire_version = TMSG_WIRE_VERSION;
    hello.ucx_major = 1;
    hello.ucx_minor = 13;
    hello.ucx_patch = 0x102;
    memcpy(hello.instance_id, instance, sizeof(instance));
    hello.uid = 1000;
    hello.pid = 0x01020304;
    hello.max_am_header = 8100;
    hello.queue_depth = 256;
    hello.features = 0x80000001;
    strcpy(hello.host, "node7");
    strcpy(hello.boot_id, "0f8fad5b-d9cb-469f-a165-70867728950e");
    hello.ns_pid = 0xf0000001;
    hello.ns_ipc = 0xf0000002;
    hello.ns_mnt = 0xf0000003;
    hello.ns_user = 0xf0000004;
    hello.ns_net = 0x1f0000005;
    hello.tcp_tx_seg = 61440;
    hello.tcp_rx_seg = 65536;
    hello.posix_seg = 32768;
    hello.max_tensors = 1u << 20;
    hello.max_ndim = 64;
    hello.max_name_bytes = 4096;
    hello.max_metadata_bytes = 1u << 26;
    hello.max_header_bytes = 1u << 29;
    hello.max_message_bytes = 1ULL << 40;
    hello.schema_slots = 0x120;
    hello.schema_bytes = 1u << 20;
    hello.checksums = 1 << 1;
    hello.max_metadata_keys = 1000;
    hello.heartbeat_ms = 1250;
    hello.fragments = 9;
    hello.aborts = 1;
    hello.channels = 0x140;
    hello.eager_bytes = 1u << 22;
    hello.resume_ms = 30000;
    hello.resumes = 1;
    hello.subscribe = 1;
    hello.admission = 1;
    memset(hello.nonce, 0xaa, sizeof(hello.nonce));
    strcpy(hello.near_end, "tcp://10.0.0.7:4000");
    strcpy(hello.far_end, "tcp://10.0.0.8:5000");
    strcpy(hello.devices, "0=2:1,7=2:0");
    hello.memory = TMSG_HELLO_MEMORY_OPEN;
    hello.gid = 100;
    hello.caps = CAP(SYS_NICE) | CAP(IPC_LOCK);
    hello.caps_used = hello.caps;
    hello.descriptor = 8;
    hello.carrier = 2;
    return hello;
}

/* Not memcmp() of the structs: their padding is nobody's. */
static bool equal(const tmsg_hello_t *a, const tmsg_hello_t *b)
{
    uint8_t bytes[2][TMSG_HELLO_BYTES_MAX];
    size_t length[2];

    return tmsg_hello_encode(a, bytes[0], sizeof(bytes[0]), &length[0]) ==
               TMSG_OK &&
           tmsg_hello_encode(b, bytes[1], sizeof(bytes[1]), &length[1]) ==
               TMSG_OK &&
           length[0] == length[1] && memcmp(bytes[0], bytes[1], length[0]) == 0;
}

Test(hello, comes_back_as_it_was)
{
    tmsg_hello_t hello = sample(), back;
    uint8_t bytes[TMSG_HELLO_BYTES_MAX];
    size_t length;

    cr_assert(eq(int, tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    cr_assert(eq(int, tmsg_hello_decode(bytes, length, &back), TMSG_OK), "%s",
              tmsg_error_message());
    cr_assert(equal(&back, &hello));
    cr_expect(eq(u64, back.ns_net, hello.ns_net));
    cr_expect_str_eq(back.host, hello.host);
}

Test(hello, always_fits_in_its_bound)
{
    tmsg_hello_t hello, back;
    uint8_t bytes[TMSG_HELLO_BYTES_MAX];
    size_t length;

    memset(&hello, 0xff, sizeof(hello));
    hello.wire_version = TMSG_WIRE_VERSION;
    hello.queue_depth = INT32_MAX;
    memset(hello.host, 'h', sizeof(hello.host)); /* no NUL at the end */
    memset(hello.boot_id, 'b', sizeof(hello.boot_id));
    memset(hello.near_end, 'n', sizeof(hello.near_end));
    memset(hello.far_end, 'f', sizeof(hello.far_end));
    memset(hello.devices, '7', sizeof(hello.devices));
    cr_assert(eq(int, tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    cr_assert(eq(int, tmsg_hello_decode(bytes, length, &back), TMSG_OK), "%s",
              tmsg_error_message());
    cr_expect(eq(sz, strlen(back.host), 63));
    cr_expect(eq(sz, strlen(back.boot_id), 36));
    cr_expect(eq(u64, back.max_message_bytes, UINT64_MAX));
}

Test(hello, says_when_the_buffer_is_too_small)
{
    tmsg_hello_t hello = sample();
    uint8_t bytes[TMSG_HELLO_BYTES_MAX];
    size_t length, untouched = 77;

    cr_assert(eq(int, tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    for (size_t capacity = 0; capacity < length; capacity++) {
        uint8_t *exact = malloc(capacity + !capacity);

        cr_expect(eq(int,
                     tmsg_hello_encode(&hello, exact, capacity, &untouched),
                     TMSG_ERR_LIMIT_EXCEEDED));
        free(exact);
    }
    cr_expect(eq(sz, untouched, 77));
}

/* The encoding may not change by accident: docs/wire/bootstrap.md promises it.
 */
Test(hello, begins_with_the_documented_bytes)
{
    static const uint8_t head[] = {1,   0, 1, 0, TMSG_WIRE_VERSION, /* wire */
                                   2,   0, 2, 0, 1,
                                   0, /* major */
                                   3,   0, 2, 0, 13,
                                   0, /* minor */
                                   4,   0, 2, 0, 0x02,
                                   0x01}; /* patch */
    tmsg_hello_t hello = sample();
    uint8_t bytes[TMSG_HELLO_BYTES_MAX];
    size_t length;

    cr_assert(eq(int, tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    cr_expect(memcmp(bytes, head, sizeof(head)) == 0);
    /* 50 field headers; the scalars; a nonce; 5 letters of host, 36 of boot id,
     * 19 of either end, 11 of devices */
    cr_expect(eq(sz, length,
                 50 * 4 + 9 + 3 * 2 + 16 + 12 * 4 + 19 * 8 + 8 + 36 + 32 +
                     2 * 19 + 11));
}

/* Whether the first `cut` bytes are all that is required, and whole fields. */
static bool lacks_only_optional(const uint8_t *bytes, size_t cut)
{
    unsigned last = 0;
    size_t at = 0;

    while (at < cut) {
        last = bytes[at];
        at += 4u + bytes[at + 2];
    }
    return at == cut && last >= LAST_REQUIRED;
}

Test(hello, refuses_every_truncation)
{
    tmsg_hello_t hello = sample(), back;
    uint8_t bytes[TMSG_HELLO_BYTES_MAX];
    size_t length;

    memset(&back, 0xee, sizeof(back));
    cr_assert(eq(int, tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                 TMSG_OK));
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *exact = malloc(cut + !cut);

        memcpy(exact, bytes, cut);
        if (!lacks_only_optional(bytes, cut)) {
            cr_expect(eq(int, tmsg_hello_decode(exact, cut, &back),
                         TMSG_ERR_MALFORMED),
                      "of %zu bytes the first %zu were taken", length, cut);
        }
        free(exact);
    }
    cr_expect(eq(uint, back.host[0], (char)0xee), "the output was touched");
}

/* A hello to which a test does something. */
typedef struct {
    uint8_t bytes[2 * TMSG_HELLO_BYTES_MAX];
    size_t length;
} wire_t;

static wire_t encoded(void)
{
    tmsg_hello_t hello = sample();
    wire_t wire;

    cr_assert(eq(
        int,
        tmsg_hello_encode(&hello, wire.bytes, sizeof(wire.bytes), &wire.length),
        TMSG_OK));
    return wire;
}

static size_t find(const wire_t *wire, unsigned type)
{
    size_t at = 0;

    while (wire->bytes[at] != type) {
        at += 4u + wire->bytes[at + 2];
        cr_assert(at < wire->length);
    }
    return at;
}

/* Replaces field `type` by one with another value, or takes it out (NULL). */
static void replace(wire_t *wire, unsigned type, const void *value,
                    size_t bytes)
{
    size_t at = find(wire, type), old = 4u + wire->bytes[at + 2];
    size_t new = value != NULL ? 4 + bytes : 0;
    uint8_t *field = wire->bytes + at;

    memmove(field + new, field + old, wire->length - at - old);
    wire->length += new - old;
    if (value != NULL) {
        field[0] = (uint8_t)type;
        field[1] = 0;
        field[2] = (uint8_t)bytes;
        field[3] = 0;
        memcpy(field + 4, value, bytes);
    }
}

static void append(wire_t *wire, unsigned type, size_t bytes)
{
    uint8_t *field = wire->bytes + wire->length;

    memset(field, 0x5a, 4 + bytes);
    field[0] = (uint8_t)type;
    field[1] = (uint8_t)(type >> 8);
    field[2] = (uint8_t)bytes;
    field[3] = (uint8_t)(bytes >> 8);
    wire->length += 4 + bytes;
}

static tmsg_status_t decode(const wire_t *wire, tmsg_hello_t *back)
{
    uint8_t *exact = malloc(wire->length);
    tmsg_status_t status;

    memcpy(exact, wire->bytes, wire->length);
    status = tmsg_hello_decode(exact, wire->length, back);
    free(exact);
    return status;
}

static void expect_malformed(const wire_t *wire, const char *message)
{
    tmsg_hello_t back;

    cr_expect(eq(int, decode(wire, &back), TMSG_ERR_MALFORMED), "not '%s'",
              message);
    cr_expect(strstr(tmsg_error_message(), message) != NULL,
              "'%s' is not in '%s'", message, tmsg_error_message());
}

Test(hello, skips_unknown_fields)
{
    wire_t wire = encoded();
    tmsg_hello_t hello = sample(), back;

    append(&wire, LAST_FIELD + 1, 0);
    append(&wire, 300, 17);
    append(&wire, 65535, 300);
    cr_assert(eq(int, decode(&wire, &back), TMSG_OK), "%s",
              tmsg_error_message());
    cr_expect(equal(&back, &hello));
}

Test(hello, refuses_duplicates_and_disorder)
{
    for (unsigned type = 0; type <= LAST_FIELD; type++) {
        char message[64];
        wire_t wire = encoded();

        append(&wire, type, 4);
        snprintf(message, sizeof(message), "field %u comes after field %u",
                 type, LAST_FIELD);
        expect_malformed(&wire, message);
    }
    {
        wire_t wire = encoded();

        append(&wire, 1000, 4);
        append(&wire, 1000, 4);
        expect_malformed(&wire, "field 1000 comes after field 1000");
    }
}

Test(hello, begins_with_the_wire_version_or_is_refused)
{
    wire_t wire = encoded();

    replace(&wire, 1, NULL, 0);
    expect_malformed(&wire, "not with the wire version");
}

Test(hello, of_an_older_peer_has_defaults)
{
    wire_t wire = encoded();
    tmsg_hello_t back;

    wire.length = find(&wire, 30);
    cr_assert(eq(int, decode(&wire, &back), TMSG_OK));
    cr_expect(eq(u32, back.checksums, 0));
    cr_expect(eq(u64, back.max_metadata_keys, 65536));
    cr_expect(eq(u16, back.channels, 1));
    cr_expect(eq(u64, back.eager_bytes, UINT64_MAX));
    cr_expect(eq(u8, back.admission, TMSG_HELLO_NO_ADMISSION));
}

Test(hello, counts_channels_that_can_be)
{
    static const struct {
        uint16_t said, meant;
    } rows[] = {{0, 1}, {1, 1}, {1024, 1024}, {1025, 1024}, {65535, 1024}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_hello_t hello = sample(), back;
        uint8_t bytes[TMSG_HELLO_BYTES_MAX];
        size_t length;

        hello.channels = rows[i].said;
        cr_assert(eq(int,
                     tmsg_hello_encode(&hello, bytes, sizeof(bytes), &length),
                     TMSG_OK));
        cr_assert(eq(int, tmsg_hello_decode(bytes, length, &back), TMSG_OK));
        cr_expect(eq(u16, back.channels, rows[i].meant));
    }
}

Test(hello, misses_what_is_required_and_nothing_else)
{
    for (size_t i = 1; i < COUNT(known); i++) {
        char message[64];
        wire_t wire = encoded();
        tmsg_hello_t back;

        replace(&wire, known[i].type, NULL, 0);
        if (known[i].required) {
            snprintf(message, sizeof(message), "no %s", known[i].name);
            expect_malformed(&wire, message);
        } else {
            cr_expect(eq(int, decode(&wire, &back), TMSG_OK), "%s",
                      known[i].name);
        }
    }
}

Test(hello, refuses_wrong_lengths_by_name)
{
    static const uint8_t zeros[100];

    for (size_t i = 0; i < COUNT(known); i++) {
        for (size_t bytes = 0; bytes <= 17; bytes++) {
            wire_t wire = encoded();

            if (known[i].bytes != 0 && bytes != known[i].bytes) {
                replace(&wire, known[i].type, zeros, bytes);
                expect_malformed(&wire, known[i].name);
            }
        }
    }
}

Test(hello, refuses_text_that_is_too_long_or_not_printable)
{
    static const struct {
        unsigned type;
        const char *text;
        size_t bytes;
    } rows[] = {{8, "a\0b", 3}, {8, "a\nb", 3},      {8, "\x1b[2J", 4},
                {8, "a b", 3},  {8, "h\xc3\xb6", 3}, {8, "\x7f", 1},
                {9, "a\0", 2}};
    char longest[100];
    wire_t wire;

    for (size_t i = 0; i < COUNT(rows); i++) {
        wire = encoded();
        replace(&wire, rows[i].type, rows[i].text, rows[i].bytes);
        expect_malformed(&wire, rows[i].type == 8 ? "host" : "boot_id");
    }
    memset(longest, 'a', sizeof(longest));
    wire = encoded();
    replace(&wire, 8, longest, 64);
    expect_malformed(&wire, "host");
    wire = encoded();
    replace(&wire, 9, longest, 37);
    expect_malformed(&wire, "boot_id");
}

Test(hello, refuses_a_queue_depth_that_cannot_be)
{
    static const struct {
        uint8_t depth[4];
        bool good;
    } rows[] = {{{0, 0, 0, 0}, false},
                {{1, 0, 0, 0}, true},
                {{0xff, 0xff, 0xff, 0x7f}, true},
                {{0, 0, 0, 0x80}, false},
                {{0xff, 0xff, 0xff, 0xff}, false}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        wire_t wire = encoded();
        tmsg_hello_t hello;

        replace(&wire, 16, rows[i].depth, 4);
        if (rows[i].good) {
            cr_expect(
                zero(int, tmsg_hello_decode(wire.bytes, wire.length, &hello)));
        } else {
            expect_malformed(&wire, "queue_depth");
        }
    }
}

/* So that a future version can be refused by its number. */
Test(hello, reads_what_it_can_of_another_wire_version)
{
    static const uint8_t other = TMSG_WIRE_VERSION + 1;
    tmsg_hello_t mine = sample(), back;
    wire_t wire = encoded();

    replace(&wire, 1, &other, 1);
    replace(&wire, 7, "pid?", 3);
    replace(&wire, 8, "\n", 1);
    replace(&wire, 26, NULL, 0);
    cr_assert(eq(int, decode(&wire, &back), TMSG_OK), "%s",
              tmsg_error_message());
    cr_expect(eq(uint, back.wire_version, other));
    cr_expect(eq(uint, back.uid, 1000));
    cr_expect(eq(uint, back.pid, 0));
    cr_expect_str_eq(back.host, "");
    cr_expect(
        eq(int, tmsg_hello_check(&mine, &back, false), TMSG_ERR_INCOMPATIBLE));
}

Test(hello, fills_in_what_the_machine_says)
{
    tmsg_hello_t first, second;
    char why[128];

    memset(&first, 0xee, sizeof(first));
    tmsg_hello_fill_local(instance, &first);
    tmsg_hello_fill_local(instance, &second);
    cr_expect(eq(uint, first.wire_version, TMSG_WIRE_VERSION));
    cr_expect(memcmp(first.instance_id, instance, sizeof(instance)) == 0);
    cr_expect(eq(uint, first.uid, geteuid()));
    cr_expect(eq(uint, first.pid, (unsigned)getpid()));
    cr_expect(eq(sz, strlen(first.boot_id), 36));
    cr_expect(ne(u64, first.ns_pid, 0));
    cr_expect(ne(u64, first.ns_net, 0));
    cr_expect(eq(u8, first.memory, TMSG_HELLO_MEMORY_OPEN));
    cr_expect(eq(u32, first.gid, getegid()));
    cr_expect(eq(u64, first.max_tensors, 0));
    cr_expect(tmsg_hello_same_machine(&first, &second, why, sizeof(why)), "%s",
              why);
}

typedef void (*change_fn)(tmsg_hello_t *hello);

static void other_wire(tmsg_hello_t *hello) { hello->wire_version = 1; }

static void other_minor(tmsg_hello_t *hello)
{
    hello->ucx_minor = 22;
    hello->ucx_patch = 0;
}

static void other_major(tmsg_hello_t *hello) { hello->ucx_major = 2; }

static void other_patch(tmsg_hello_t *hello) { hello->ucx_patch = 9; }

static void other_posix(tmsg_hello_t *hello) { hello->posix_seg = 8256; }

static void unknown_posix(tmsg_hello_t *hello) { hello->posix_seg = 0; }

static void other_posix_and_host(tmsg_hello_t *hello)
{
    hello->posix_seg = 8256;
    hello->boot_id[0] = 'e';
}

static void small_rx(tmsg_hello_t *hello) { hello->tcp_rx_seg = 8192; }

static void large_tx(tmsg_hello_t *hello) { hello->tcp_tx_seg = 131072; }

static void equal_tx(tmsg_hello_t *hello) { hello->tcp_tx_seg = 65536; }

static void unknown_tcp(tmsg_hello_t *hello)
{
    hello->tcp_tx_seg = 0;
    hello->tcp_rx_seg = 0;
}

static void other_user(tmsg_hello_t *hello) { hello->uid = 0; }

static void same(tmsg_hello_t *hello) { (void)hello; }

/* `mine` is sample() with UCX 1.13.1; `theirs` is that with a change. */
static const struct {
    change_fn change;
    bool shm_only;
    const char *error; /* NULL: they can work together */
} pairs[] = {
    {same, false, NULL},
    {same, true, NULL},
    {other_wire, false, "peer speaks wire version 1, this side 0"},
    {other_minor, false,
     "peer runs UCX 1.22.0, this side UCX 1.13.1: this pair cannot work "
     "together"},
    {other_major, false,
     "peer runs UCX 2.13.1, this side UCX 1.13.1: this pair cannot work "
     "together"},
    {other_patch, false, NULL},
    {other_posix, false,
     "peer has UCX_POSIX_SEG_SIZE=8256, this side 32768: shared memory needs "
     "the same"},
    {other_posix, true,
     "peer has UCX_POSIX_SEG_SIZE=8256, this side 32768: shared memory needs "
     "the same"},
    {other_posix_and_host, false, NULL},
    {unknown_posix, true, NULL},
    {small_rx, false,
     "peer has UCX_TCP_RX_SEG_SIZE=8192, less than UCX_TCP_TX_SEG_SIZE=61440 "
     "of this side"},
    {small_rx, true, NULL},
    {large_tx, false,
     "peer has UCX_TCP_TX_SEG_SIZE=131072, more than UCX_TCP_RX_SEG_SIZE="
     "65536 of this side"},
    {large_tx, true, NULL},
    {equal_tx, false, NULL},
    {unknown_tcp, false, NULL},
    {other_user, false, NULL},
    {other_user, true,
     "unix:// needs memory shared with the peer, which is ruled out: other "
     "user (uid 0, here 1000)"},
};

Test(hello, checks_whether_two_can_work_together)
{
    for (size_t i = 0; i < COUNT(pairs); i++) {
        tmsg_hello_t mine = sample(), theirs;
        tmsg_status_t status;

        mine.ucx_patch = 1;
        theirs = mine;
        pairs[i].change(&theirs);
        status = tmsg_hello_check(&mine, &theirs, pairs[i].shm_only);
        if (pairs[i].error == NULL) {
            cr_expect(eq(int, status, TMSG_OK), "row %zu: %s", i,
                      tmsg_error_message());
        } else {
            cr_expect(eq(int, status, TMSG_ERR_INCOMPATIBLE), "row %zu", i);
            cr_expect_str_eq(tmsg_error_message(), pairs[i].error);
            cr_expect(eq(int,
                         tmsg_hello_check(&theirs, &mine, pairs[i].shm_only),
                         TMSG_ERR_INCOMPATIBLE),
                      "row %zu: the other side accepts", i);
        }
    }
}

static void other_boot(tmsg_hello_t *hello) { hello->boot_id[35] = '0'; }

static void no_boot(tmsg_hello_t *hello) { hello->boot_id[0] = '\0'; }

static void other_pid_space(tmsg_hello_t *hello) { hello->ns_pid++; }

static void other_ipc_space(tmsg_hello_t *hello) { hello->ns_ipc++; }

static void other_mount_space(tmsg_hello_t *hello) { hello->ns_mnt++; }

static void other_user_space(tmsg_hello_t *hello) { hello->ns_user++; }

static void other_net_space(tmsg_hello_t *hello) { hello->ns_net++; }

static void unknown_space(tmsg_hello_t *hello) { hello->ns_ipc = 0; }

static void other_group(tmsg_hello_t *hello) { hello->gid = 1000; }

static void shut(tmsg_hello_t *hello)
{
    hello->memory = TMSG_HELLO_MEMORY_SHUT;
}

static void more_capable(tmsg_hello_t *hello) { hello->caps |= CAP(SYS_TIME); }

static void less_capable(tmsg_hello_t *hello)
{
    hello->caps = CAP(IPC_LOCK);
    hello->caps_used = hello->caps;
}

/* What is permitted and not in use lets nobody read. */
static void less_used(tmsg_hello_t *hello) { hello->caps_used = 0; }

/* It may read any, but is not read. */
static void one_tracer(tmsg_hello_t *hello)
{
    hello->caps |= CAP(SYS_PTRACE);
    hello->caps_used = hello->caps;
}

/* More than one reason: the same one on both sides. */
static void shut_and_more_capable(tmsg_hello_t *hello)
{
    shut(hello);
    less_capable(hello);
}

/* An older version: as if nothing kept them apart. */
static void untold(tmsg_hello_t *hello) { tmsg_hello_untell_memory(hello); }

#define SHUT                                                                   \
    "one cannot read the other's memory (PR_SET_DUMPABLE, or privileges that " \
    "changed)"
#define LACKING "capabilities of one that are not effective in the other"

static const struct {
    change_fn change;
    bool shared;
    const char *why;
} machines[] = {
    {same, true, "same machine, user and namespaces"},
    {other_boot, false, "other host"},
    {no_boot, false,
     "other host, or the peer rules out shared memory: it sent no boot id"},
    {other_user, false, "other user (uid 0, here 1000)"},
    {other_pid_space, false, "other pid namespace"},
    {other_ipc_space, false, "other ipc namespace"},
    {other_mount_space, false, "other mount namespace"},
    {other_user_space, false, "other user namespace"},
    {other_net_space, false, "other network namespace"},
    {unknown_space, false, "other ipc namespace"},
    {other_group, false, "other group"},
    {shut, false, SHUT},
    {more_capable, false, LACKING},
    {less_capable, false, LACKING},
    {less_used, false, LACKING},
    {one_tracer, false, LACKING},
    {shut_and_more_capable, false, SHUT},
    {untold, true, "same machine, user and namespaces"},
};

Test(hello, tells_whether_memory_can_be_shared_and_why)
{
    for (size_t i = 0; i < COUNT(machines); i++) {
        tmsg_hello_t mine = sample(), theirs = sample();
        char why[128];

        theirs.pid++;
        machines[i].change(&theirs);
        cr_expect(eq(int,
                     tmsg_hello_same_machine(&mine, &theirs, why, sizeof(why)),
                     machines[i].shared),
                  "row %zu", i);
        cr_expect_str_eq(why, machines[i].why);
        cr_expect(eq(int,
                     tmsg_hello_same_machine(&theirs, &mine, why, sizeof(why)),
                     machines[i].shared),
                  "row %zu", i);
        cr_expect(machines[i].change != no_boot ||
                      strstr(why, "perhaps another host: ") == why,
                  "row %zu: %s", i, why);
    }
}

/* As root's processes are but in containers. */
static void tracing_root_of_a_space(tmsg_hello_t *hello)
{
    one_tracer(hello);
    hello->uid = 0;
}

static void tracing_root(tmsg_hello_t *hello)
{
    tracing_root_of_a_space(hello);
    hello->ns_user = 4026531837; /* as of every machine since Linux 3.8 */
}

static void tracing_and_searching(tmsg_hello_t *hello)
{
    one_tracer(hello);
    hello->ns_user = 4026531837;
    hello->caps_used |= CAP(DAC_READ_SEARCH);
    hello->caps |= CAP(DAC_READ_SEARCH);
}

Test(hello, tells_that_tracers_share_whatever_else_is_so)
{
    static const struct {
        change_fn both, theirs;
        bool shared;
    } rows[] = {
        {tracing_root, other_group, true}, {tracing_root, more_capable, true},
        {tracing_root, shut, true},        {tracing_and_searching, shut, true},
        {one_tracer, more_capable, true},  {one_tracer, shut, false}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_hello_t mine = sample(), theirs;
        char why[128];

        rows[i].both(&mine);
        theirs = mine;
        theirs.pid++;
        rows[i].theirs(&theirs);
        cr_expect(eq(int,
                     tmsg_hello_same_machine(&mine, &theirs, why, sizeof(why)),
                     rows[i].shared),
                  "row %zu: %s", i, why);
    }
}

Test(hello, tells_that_a_process_opens_its_own_memory)
{
    tmsg_hello_t mine = sample();
    char why[128];

    shut(&mine);
    less_used(&mine);
    cr_expect(tmsg_hello_same_machine(&mine, &mine, why, sizeof(why)), "%s",
              why);
}

Test(hello, never_takes_two_unknown_machines_for_one)
{
    tmsg_hello_t mine = sample(), theirs;
    char why[128], cut[8];

    no_boot(&mine);
    theirs = mine;
    cr_expect(not(tmsg_hello_same_machine(&mine, &theirs, why, sizeof(why))));
    mine = sample();
    unknown_space(&mine);
    theirs = mine;
    cr_expect(not(tmsg_hello_same_machine(&mine, &theirs, cut, sizeof(cut))));
    cr_expect_str_eq(cut, "other i");
}
