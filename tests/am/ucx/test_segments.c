/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX's segment sizes can do to us: headers that outgrow its buffers,
 * sizes that it takes and ignores, sizes too small to speak at all. What two
 * sides that differ say to each other is in test_unlike.c. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/listen/listener.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

enum { AT_ONCE_MOST = 200, AT_ONCE = 60 };

static const uint64_t payloads[] = {10, 3000, 20000, 60000};

/* Names of so many bytes in all, for a header just as long. */
static sample_t with_header(size_t bytes, size_t i)
{
    return (sample_t){.seed = i,
                      .tensors = 16,
                      .shape = SAMPLE_VECTOR,
                      .dtype = 11,
                      .name_bytes = bytes / 16,
                      .elements = payloads[i % 4]};
}

static void many_at_once(pair_t *pair, size_t header_bytes)
{
    const size_t at_once = whole_run() ? AT_ONCE_MOST : AT_ONCE;
    tmsg_request_t *sent[AT_ONCE_MOST];

    for (size_t i = 0; i < at_once; i++) {
        const sample_t sample = with_header(header_bytes, i);

        sent[i] = send_map(pair->to_a, sample_make(&sample), 0);
    }
    for (size_t i = 0; i < at_once; i++) {
        const sample_t sample = with_header(header_bytes, i);
        tmsg_message_t *message = pair_take(pair, &pair->a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (size_t i = 0; i < at_once; i++) {
        must(pair_finish(pair, sent[i]));
    }
}

/* A header that goes with a payload by zero copy is first copied to a buffer
 * of UCX_SEG_SIZE, 8 KiB, whatever max_am_header says: beyond that it overran
 * the next one's, or the heap. */
static void expect_headers_fit(const char *config, link_t link)
{
    static const size_t headers[] = {5000, 7900, 8100, 9000, 20000, 50000};
    const side_options_t options = {.ucx_config = config};

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, &options, &options);
        many_at_once(&pair, headers[i]);
        pair_close(&pair);
    }
}

Test(segments, headers_do_not_outgrow_ucxs_buffers)
{
    expect_headers_fit(NULL, LINK_TCP);
    expect_headers_fit(NULL, LINK_SHM);
}

Test(segments, headers_do_not_outgrow_small_buffers_either)
{
    expect_headers_fit("TLS=tcp,self;SEG_SIZE=1k", LINK_SHM);
    setenv("UCX_SEG_SIZE", "2k", 1);
    expect_headers_fit(NULL, LINK_TCP);
}

static size_t header_most(const side_t *side)
{
    return side->worker->ucx->max_am_header;
}

Test(segments, the_longest_header_follows_the_segment_sizes)
{
    const side_options_t small = {.ucx_config = "SEG_SIZE=3k"};
    const side_options_t tcp = {
        .ucx_config = "TLS=tcp;TCP_TX_SEG_SIZE=2k;TCP_RX_SEG_SIZE=64k"};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &small, &small);
    cr_expect(eq(sz, header_most(&pair.a), 3072));
    many_at_once(&pair, 4000);
    pair_close(&pair);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &tcp, &tcp);
    cr_expect(lt(sz, header_most(&pair.a), 2048));
    many_at_once(&pair, 4000);
    pair_close(&pair);
}

/* Connects to nobody: the configuration is judged before. */
static tmsg_status_t start(const char *config, char *words, size_t bytes)
{
    const side_options_t options = {.ucx_config = config};
    tmsg_listener_t *listener;
    tmsg_status_t status;
    side_t side;

    side_open(&side, &options);
    status = tmsg_listener_create(side.worker, "blob://", NULL, &listener);
    snprintf(words, bytes, "%s", tmsg_error_message());
    side_close(&side);
    return status;
}

Test(segments, too_small_to_say_anything_is_refused_by_name)
{
    char words[256];

    must_be(start("SEG_SIZE=256", words, sizeof(words)), TMSG_ERR_UNSUPPORTED);
    must_say(words, "SEG_SIZE");
    must_be(start("TLS=tcp;TCP_TX_SEG_SIZE=400", words, sizeof(words)),
            TMSG_ERR_UNSUPPORTED);
    must_say(words, "SEG_SIZE");
}

/* Before 1.17 ucp_config_modify() says Success to it and does nothing; a peer
 * that believed us would crash. */
Test(segments, a_size_that_this_ucx_would_ignore_is_refused_by_name)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();
    bool takes = version.major > 1 || version.minor >= 17;
    char words[256];

    must_be(start("POSIX_SEG_SIZE=16k", words, sizeof(words)),
            takes ? TMSG_OK : TMSG_ERR_UNSUPPORTED);
    if (!takes) {
        must_say(words, "UCX_POSIX_SEG_SIZE");
        must_say(words, "environment");
    }
}

/* What is said of the shared-memory segment is what is in force. */
Test(segments, ucx_seg_size_is_not_that_of_shared_memory)
{
    pair_t pair;

    setenv("UCX_SEG_SIZE", "32k", 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(u64, pair.to_a->peer_hello.posix_seg, 8256));
    pair_close(&pair);
    unsetenv("UCX_SEG_SIZE");
    setenv("UCX_POSIX_SEG_SIZE", "16k", 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(u64, pair.to_a->peer_hello.posix_seg, 16384));
    pair_close(&pair);
}

/* What UCX itself says of keys in this environment, as text. */
enum { POSIX, TCP_RX, TCP_TX, KEYS };

typedef struct {
    char of[KEYS][64];
} values_t;

static const char *const asked[KEYS] = {
    "UCX_POSIX_SEG_SIZE=", "UCX_TCP_RX_SEG_SIZE=", "UCX_TCP_TX_SEG_SIZE="};

static void ask_ucx(values_t *values)
{
    const char *other = getenv("TMSG_UCX_1_22");
    char command[512], line[256];
    FILE *info;

    if (tmsg_ucx_version().minor == 13 || other == NULL) {
        snprintf(command, sizeof(command), "ucx_info -c 2>/dev/null");
    } else {
        snprintf(command, sizeof(command), "%s/../bin/ucx_info -c 2>/dev/null",
                 other);
    }
    memset(values, 0, sizeof(*values));
    info = popen(command, "r");
    must_true(info != NULL);
    while (fgets(line, sizeof(line), info) != NULL) {
        for (size_t i = 0; i < KEYS; i++) {
            size_t bytes = strlen(asked[i]);

            if (strncmp(line, asked[i], bytes) == 0) {
                snprintf(values->of[i], sizeof(values->of[i]), "%.*s",
                         (int)strcspn(line + bytes, "\n"), line + bytes);
            }
        }
    }
    pclose(info);
}

static uint64_t in_bytes(const char *name, const char *value)
{
    tmsg_ucx_keys_t keys = {.count = 1};

    snprintf(keys.keys[0].name, sizeof(keys.keys[0].name), "%s", name);
    snprintf(keys.keys[0].value, sizeof(keys.keys[0].value), "%s", value);
    return tmsg_ucx_config_bytes(&keys, name);
}

/* Whatever variable a user sets, we say what UCX makes of it. */
Test(segments, the_hello_says_what_ucx_does_by_every_spelling)
{
    static const char *const spellings[] = {
        "UCX_POSIX_SEG_SIZE",   "UCX_MM_SEG_SIZE", "UCX_SM_SEG_SIZE",
        "UCX_SHM_SEG_SIZE",     "UCX_SEG_SIZE",    "UCX_SYSV_SEG_SIZE",
        "UCX_TCP_TX_SEG_SIZE",  "UCX_TX_SEG_SIZE", "UCX_TCP_SEG_SIZE",
        "UCX_TCP_RX_SEG_SIZE",  "UCX_RX_SEG_SIZE", "UCX_CMA_SEG_SIZE",
        "UCX_MM_POSIX_SEG_SIZE"};
    values_t values;

    ask_ucx(&values);
    if (values.of[POSIX][0] == '\0') {
        cr_skip_test("no ucx_info of this UCX");
    }
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        const tmsg_hello_t *hello;
        uint64_t tx;
        side_t side;

        setenv(spellings[i], "20k", 1);
        side_open(&side, NULL);
        side_listen(&side, "blob://");
        hello = &side.listener->ucx->hello;
        ask_ucx(&values);
        if (hello->posix_seg != in_bytes("posix", values.of[POSIX])) {
            die("%s=20k: %llu for UCX_POSIX_SEG_SIZE=%s", spellings[i],
                (unsigned long long)hello->posix_seg, values.of[POSIX]);
        }
        if (hello->tcp_rx_seg != in_bytes("rx", values.of[TCP_RX])) {
            die("%s=20k: %llu for UCX_TCP_RX_SEG_SIZE=%s", spellings[i],
                (unsigned long long)hello->tcp_rx_seg, values.of[TCP_RX]);
        }
        tx = in_bytes("tx", values.of[TCP_TX]);
        if (tx == 8192 && hello->tcp_rx_seg >= 61440) {
            tx = 61440; /* our default, not UCX's */
        }
        if (hello->tcp_tx_seg != tx) {
            die("%s=20k: %llu for UCX_TCP_TX_SEG_SIZE=%s", spellings[i],
                (unsigned long long)hello->tcp_tx_seg, values.of[TCP_TX]);
        }
        side_close(&side);
        unsetenv(spellings[i]);
    }
}

Test(segments, sizes_are_read_as_ucx_reads_them)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {{"0", 0},
                {"8256", 8256},
                {"100b", 100},
                {"20k", 20480},
                {" 20K", 20480},
                {"20kb", 20480},
                {"20KB", 20480},
                {"3m", 3ULL << 20},
                {"3MB", 3ULL << 20},
                {"2g", 2ULL << 30},
                {"1t", 1ULL << 40},
                {"1TB", 1ULL << 40},
                {"inf", UINT64_MAX},
                {"INF", UINT64_MAX},
                {"auto", UINT64_MAX},
                {"-1", UINT64_MAX},
                {"20000000t", UINT64_MAX},
                {"17179869184g", UINT64_MAX},
                {"99999999999999999999k", UINT64_MAX},
                {"", 0},
                {"k", 0},
                {"32k1", 0},
                {"32kib", 0},
                {"100bb", 0},
                {"1.5k", 0},
                {"0x100", 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (in_bytes("UCX_KEY", rows[i].text) != rows[i].bytes) {
            die("'%s': %llu, not %llu", rows[i].text,
                (unsigned long long)in_bytes("UCX_KEY", rows[i].text),
                (unsigned long long)rows[i].bytes);
        }
    }
}
