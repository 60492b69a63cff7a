/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/way.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define NEVER TMSG_THRESHOLD_NEVER

/* Holds the default thresholds. bench/history says where they come from.
 * Nobody has measured those of RDMA, see docs/understand/untested-networks.md:
 * a fragment costs as much as 20 KB on a wire of 400 Gb/s, and a list costs a
 * copy at each end. On TCP, UCX sends at most 5 entries of a list at a time. */
static const tmsg_tuning_t usual = {{
    [TMSG_TRANSPORT_UNKNOWN] = {.gather_bytes = 64 * KIB,
                                .gather_mean_bytes = 16 * KIB,
                                .gather_most_bytes = 16 * MIB,
                                .fragment_bytes = 1 * MIB,
                                .chunk_bytes = 4 * MIB,
                                .eager_bytes = 0,
                                .eager_single_bytes = 0,
                                .rndv_bytes = NEVER,
                                .eager_list_bytes = 0,
                                .rndv_list_bytes = NEVER,
                                .slice_bytes = 16 * MIB,
                                .lone_chunk_bytes = 4 * MIB,
                                .device_chunk_bytes = 256 * MIB,
                                .device_gather_bytes = 64 * KIB,
                                .bulk_bytes = NEVER,
                                .bulk_single_bytes = NEVER,
                                .lend_bytes = NEVER,
                                .device_ipc_bytes = NEVER,
                                .fastbox_bytes = 0},
    [TMSG_TRANSPORT_SHM] = {.gather_bytes = 64 * KIB,
                            .gather_mean_bytes = 16 * KIB,
                            .gather_most_bytes = 16 * MIB,
                            .fragment_bytes = 8 * MIB,
                            .chunk_bytes = 256 * KIB,
                            .eager_bytes = 64 * KIB,
                            .eager_single_bytes = 32 * KIB,
                            .rndv_bytes = NEVER,
                            .eager_list_bytes = 0,
                            .rndv_list_bytes = NEVER,
                            .slice_bytes = 16 * MIB,
                            .lone_chunk_bytes = 256 * KIB,
                            .device_chunk_bytes = 256 * MIB,
                            .device_gather_bytes = 64 * KIB,
                            .bulk_bytes = 64 * KIB,
                            .bulk_single_bytes = 512 * KIB,
                            .lend_bytes = 64 * KIB,
                            .device_ipc_bytes = 64 * KIB,
                            .fastbox_bytes = 2 * KIB},
    [TMSG_TRANSPORT_TCP] = {.gather_bytes = 64 * KIB,
                            .gather_mean_bytes = 16 * KIB,
                            .gather_most_bytes = 16 * MIB,
                            .fragment_bytes = 1 * MIB,
                            .chunk_bytes = 128 * KIB,
                            .eager_bytes = 1 * MIB,
                            .eager_single_bytes = 1 * MIB,
                            .rndv_bytes = NEVER,
                            .eager_list_bytes = 0,
                            .rndv_list_bytes = NEVER,
                            .slice_bytes = 16 * MIB,
                            .lone_chunk_bytes = 1 * MIB,
                            .device_chunk_bytes = 4 * MIB,
                            .device_gather_bytes = 64 * KIB,
                            .bulk_bytes = 256 * KIB,
                            .bulk_single_bytes = 256 * KIB,
                            .lend_bytes = NEVER,
                            .device_ipc_bytes = NEVER,
                            .fastbox_bytes = 0},
    [TMSG_TRANSPORT_RDMA] = {.gather_bytes = 64 * KIB,
                             .gather_mean_bytes = 16 * KIB,
                             .gather_most_bytes = 16 * MIB,
                             .fragment_bytes = 128 * KIB,
                             .chunk_bytes = 4 * MIB,
                             .eager_bytes = 0,
                             .eager_single_bytes = 0,
                             .rndv_bytes = NEVER,
                             .eager_list_bytes = 0,
                             .rndv_list_bytes = NEVER,
                             .slice_bytes = 16 * MIB,
                             .lone_chunk_bytes = 4 * MIB,
                             .device_chunk_bytes = 256 * MIB,
                             .device_gather_bytes = 64 * KIB,
                             .bulk_bytes = NEVER,
                             .bulk_single_bytes = NEVER,
                             .lend_bytes = NEVER,
                             .device_ipc_bytes = NEVER,
                             .fastbox_bytes = 0},
}};

tmsg_tuning_t tmsg_tuning_usual(void) { return usual; }

/* Lists the thresholds by name. `least` is the smallest value that keeps a
 * fragment worth its message, and that a mean can be divided by. */
static const struct {
    const char *name;
    size_t offset;
    uint64_t least;
} fields[] = {
    {"gather_bytes", offsetof(tmsg_thresholds_t, gather_bytes), 0},
    {"gather_mean_bytes", offsetof(tmsg_thresholds_t, gather_mean_bytes), 1},
    {"gather_most_bytes", offsetof(tmsg_thresholds_t, gather_most_bytes), 0},
    {"fragment_bytes", offsetof(tmsg_thresholds_t, fragment_bytes), 1},
    {"chunk_bytes", offsetof(tmsg_thresholds_t, chunk_bytes),
     TMSG_CHUNK_BYTES_LEAST},
    {"eager_bytes", offsetof(tmsg_thresholds_t, eager_bytes), 0},
    {"eager_single_bytes", offsetof(tmsg_thresholds_t, eager_single_bytes), 0},
    {"rndv_bytes", offsetof(tmsg_thresholds_t, rndv_bytes), 0},
    {"eager_list_bytes", offsetof(tmsg_thresholds_t, eager_list_bytes), 0},
    {"rndv_list_bytes", offsetof(tmsg_thresholds_t, rndv_list_bytes), 0},
    {"slice_bytes", offsetof(tmsg_thresholds_t, slice_bytes), 0},
    {"lone_chunk_bytes", offsetof(tmsg_thresholds_t, lone_chunk_bytes), 0},
    {"device_chunk_bytes", offsetof(tmsg_thresholds_t, device_chunk_bytes),
     TMSG_CHUNK_BYTES_LEAST},
    {"device_gather_bytes", offsetof(tmsg_thresholds_t, device_gather_bytes),
     0},
    {"bulk_bytes", offsetof(tmsg_thresholds_t, bulk_bytes), 0},
    {"bulk_single_bytes", offsetof(tmsg_thresholds_t, bulk_single_bytes), 0},
    {"lend_bytes", offsetof(tmsg_thresholds_t, lend_bytes), 0},
    {"device_ipc_bytes", offsetof(tmsg_thresholds_t, device_ipc_bytes), 0},
    {"fastbox_bytes", offsetof(tmsg_thresholds_t, fastbox_bytes), 0},
};

static const char *const transports[TMSG_TRANSPORT_COUNT] = {"other", "shm",
                                                             "tcp", "rdma"};

const char *tmsg_transport_name(tmsg_transport_t transport)
{
    return transports[transport];
}

const char *tmsg_threshold_at(const tmsg_thresholds_t *thresholds, size_t i,
                              uint64_t *value_p)
{
    if (i >= sizeof(fields) / sizeof(fields[0])) {
        return NULL;
    }
    *value_p = *(const uint64_t *)(const void *)((const char *)thresholds +
                                                 fields[i].offset);
    return fields[i].name;
}

static bool is_word(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* Finds the threshold that "transport.name" names, and the least value that it
 * may have. NULL: there is none. */
static uint64_t *find_threshold(const char *text, size_t bytes,
                                tmsg_tuning_t *tuning, uint64_t *least_p)
{
    const char *dot = memchr(text, '.', bytes);
    size_t head = dot == NULL ? bytes : (size_t)(dot - text);
    tmsg_thresholds_t *of = NULL;

    for (size_t i = 0; i < TMSG_TRANSPORT_COUNT; i++) {
        if (is_word(text, head, transports[i])) {
            of = &tuning->of[i];
        }
    }
    for (size_t i = 0;
         of != NULL && dot != NULL && i < sizeof(fields) / sizeof(fields[0]);
         i++) {
        if (is_word(dot + 1, bytes - head - 1, fields[i].name)) {
            *least_p = fields[i].least;
            return (uint64_t *)(void *)((char *)of + fields[i].offset);
        }
    }
    return NULL;
}

/* Sets the special thresholds that go with a general one: a setting for the
 * length of fragments, for what goes eagerly, or for what goes by the bulk
 * stream means all of them. */
static void set_special(tmsg_tuning_t *tuning, const uint64_t *threshold)
{
    for (size_t i = 0; i < TMSG_TRANSPORT_COUNT; i++) {
        tmsg_thresholds_t *of = &tuning->of[i];

        if (threshold == &of->chunk_bytes) {
            of->lone_chunk_bytes = *threshold;
        } else if (threshold == &of->eager_bytes) {
            of->eager_single_bytes = *threshold;
        } else if (threshold == &of->bulk_bytes) {
            of->bulk_single_bytes = *threshold;
        }
    }
}

/* Reads a number of bytes, or "never". */
static bool read_threshold_bytes(const char *text, size_t bytes,
                                 uint64_t *value_p)
{
    unsigned long long value;
    char *end;

    if (is_word(text, bytes, TMSG_THRESHOLD_NEVER_WORD)) {
        *value_p = NEVER;
        return true;
    }
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    *value_p = value;
    return errno == 0 && end == text + bytes;
}

/* Reads one "transport.name=bytes". `again`: this is the second pass, which
 * sets no special thresholds. */
static bool read_threshold(const char *text, size_t bytes,
                           tmsg_tuning_t *tuning, bool again)
{
    const char *equals = memchr(text, '=', bytes);
    uint64_t *threshold, least, value;

    if (equals == NULL) {
        return false;
    }
    threshold = find_threshold(text, (size_t)(equals - text), tuning, &least);
    if (threshold == NULL ||
        !read_threshold_bytes(equals + 1, (size_t)(text + bytes - (equals + 1)),
                              &value) ||
        value < least) {
        return false;
    }
    *threshold = value;
    if (!again) {
        set_special(tuning, threshold);
    }
    return true;
}

/* Names of thresholds that an older version had; docs/reference/glossary.md
 * lists them.
 */
static const struct {
    const char *former, *now;
} renamed[] = {
    {"part_bytes", "fragment_bytes"},
    {"eager_piece_bytes", "eager_single_bytes"},
    {"lane_bytes", "bulk_bytes"},
    {"lane_piece_bytes", "bulk_single_bytes"},
    {"box_bytes", "fastbox_bytes"},
};

/* Returns the name that replaces a former one in "transport.name=bytes", or
 * NULL. */
static const char *find_new_name(const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    size_t head = equals == NULL ? bytes : (size_t)(equals - text);
    const char *dot = memchr(text, '.', head);

    for (size_t i = 0; dot != NULL && i < sizeof(renamed) / sizeof(renamed[0]);
         i++) {
        if (is_word(dot + 1, (size_t)(text + head - (dot + 1)),
                    renamed[i].former)) {
            return renamed[i].now;
        }
    }
    return NULL;
}

static tmsg_status_t refuse_threshold(const char *text, size_t bytes)
{
    const char *now = find_new_name(text, bytes);

    if (now != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "'%s' is not a threshold: it is now called %s",
                              tmsg_error_name(text, bytes).text, now);
    }
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "'%s' is not a threshold: write transport.name=bytes, like "
        "tcp.fragment_bytes=1048576",
        tmsg_error_name(text, bytes).text);
}

static tmsg_status_t read_threshold_list(const char *text,
                                         tmsg_tuning_t *tuning, bool again)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, ",");

        if (!read_threshold(text, bytes, tuning, again)) {
            return refuse_threshold(text, bytes);
        }
        text += bytes + (text[bytes] == ',');
    }
    return TMSG_OK;
}

/* The text is read twice, so that a special threshold counts on either side of
 * the general one. */
tmsg_status_t tmsg_tuning_read(const char *text, tmsg_tuning_t *tuning_p)
{
    tmsg_tuning_t tuning = *tuning_p;
    tmsg_status_t status = read_threshold_list(text, &tuning, false);

    if (status == TMSG_OK) {
        status = read_threshold_list(text, &tuning, true);
    }
    if (status == TMSG_OK) {
        *tuning_p = tuning;
    }
    return status;
}
