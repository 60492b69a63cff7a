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

/* A head whose body is spilled goes eagerly if it has parts, for its receiver
 * is to know them before it finds memory. Up to here. */
#define SPILLED_HEAD_MOST (4 * MIB)

/* See bench/NOTES.md for where they come from, and docs/model.md for those of
 * RDMA, which nobody has measured: a part costs 20 KB of a wire of 400 Gb/s,
 * and a list a copy at each end. On tcp a list is sent at most 5
 * entries a fragment. */
static const tmsg_tuning_t usual = {{
    [TMSG_CARRIER_UNKNOWN] = {.gather_bytes = 64 * KIB,
                              .gather_mean_bytes = 16 * KIB,
                              .gather_most_bytes = 16 * MIB,
                              .part_bytes = 1 * MIB,
                              .chunk_bytes = 4 * MIB,
                              .eager_bytes = 0,
                              .eager_piece_bytes = 0,
                              .rndv_bytes = NEVER,
                              .eager_list_bytes = 0,
                              .rndv_list_bytes = NEVER,
                              .slice_bytes = 16 * MIB,
                              .lone_chunk_bytes = 4 * MIB,
                              .lane_bytes = NEVER,
                              .lane_piece_bytes = NEVER,
                              .box_bytes = 0},
    [TMSG_CARRIER_SHM] = {.gather_bytes = 64 * KIB,
                          .gather_mean_bytes = 16 * KIB,
                          .gather_most_bytes = 16 * MIB,
                          .part_bytes = 8 * MIB,
                          .chunk_bytes = 256 * KIB,
                          .eager_bytes = 64 * KIB,
                          .eager_piece_bytes = 32 * KIB,
                          .rndv_bytes = NEVER,
                          .eager_list_bytes = 0,
                          .rndv_list_bytes = NEVER,
                          .slice_bytes = 16 * MIB,
                          .lone_chunk_bytes = 256 * KIB,
                          .lane_bytes = 64 * KIB,
                          .lane_piece_bytes = 512 * KIB,
                          .box_bytes = 2 * KIB},
    [TMSG_CARRIER_TCP] = {.gather_bytes = 64 * KIB,
                          .gather_mean_bytes = 16 * KIB,
                          .gather_most_bytes = 16 * MIB,
                          .part_bytes = 1 * MIB,
                          .chunk_bytes = 128 * KIB,
                          .eager_bytes = 1 * MIB,
                          .eager_piece_bytes = 1 * MIB,
                          .rndv_bytes = NEVER,
                          .eager_list_bytes = 0,
                          .rndv_list_bytes = NEVER,
                          .slice_bytes = 16 * MIB,
                          .lone_chunk_bytes = 1 * MIB,
                          .lane_bytes = 256 * KIB,
                          .lane_piece_bytes = 256 * KIB,
                          .box_bytes = 0},
    [TMSG_CARRIER_RDMA] = {.gather_bytes = 64 * KIB,
                           .gather_mean_bytes = 16 * KIB,
                           .gather_most_bytes = 16 * MIB,
                           .part_bytes = 128 * KIB,
                           .chunk_bytes = 4 * MIB,
                           .eager_bytes = 0,
                           .eager_piece_bytes = 0,
                           .rndv_bytes = NEVER,
                           .eager_list_bytes = 0,
                           .rndv_list_bytes = NEVER,
                           .slice_bytes = 16 * MIB,
                           .lone_chunk_bytes = 4 * MIB,
                           .lane_bytes = NEVER,
                           .lane_piece_bytes = NEVER,
                           .box_bytes = 0},
}};

tmsg_tuning_t tmsg_tuning_usual(void) { return usual; }

/* The least is what keeps a part worth its message, and a mean from being
 * divided by. */
static const struct {
    const char *name;
    size_t offset;
    uint64_t least;
} fields[] = {
    {"gather_bytes", offsetof(tmsg_thresholds_t, gather_bytes), 0},
    {"gather_mean_bytes", offsetof(tmsg_thresholds_t, gather_mean_bytes), 1},
    {"gather_most_bytes", offsetof(tmsg_thresholds_t, gather_most_bytes), 0},
    {"part_bytes", offsetof(tmsg_thresholds_t, part_bytes), 1},
    {"chunk_bytes", offsetof(tmsg_thresholds_t, chunk_bytes),
     TMSG_CHUNK_BYTES_LEAST},
    {"eager_bytes", offsetof(tmsg_thresholds_t, eager_bytes), 0},
    {"eager_piece_bytes", offsetof(tmsg_thresholds_t, eager_piece_bytes), 0},
    {"rndv_bytes", offsetof(tmsg_thresholds_t, rndv_bytes), 0},
    {"eager_list_bytes", offsetof(tmsg_thresholds_t, eager_list_bytes), 0},
    {"rndv_list_bytes", offsetof(tmsg_thresholds_t, rndv_list_bytes), 0},
    {"slice_bytes", offsetof(tmsg_thresholds_t, slice_bytes), 0},
    {"lone_chunk_bytes", offsetof(tmsg_thresholds_t, lone_chunk_bytes), 0},
    {"lane_bytes", offsetof(tmsg_thresholds_t, lane_bytes), 0},
    {"lane_piece_bytes", offsetof(tmsg_thresholds_t, lane_piece_bytes), 0},
    {"box_bytes", offsetof(tmsg_thresholds_t, box_bytes), 0},
};

static const char *const carriers[TMSG_CARRIER_COUNT] = {"other", "shm", "tcp",
                                                         "rdma"};

const char *tmsg_carrier_name(tmsg_carrier_t carrier)
{
    return carriers[carrier];
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

/* The threshold that "carrier.name" is, or NULL, and the least it may be. */
static uint64_t *find_threshold(const char *text, size_t bytes,
                                tmsg_tuning_t *tuning, uint64_t *least_p)
{
    const char *dot = memchr(text, '.', bytes);
    size_t head = dot == NULL ? bytes : (size_t)(dot - text);
    tmsg_thresholds_t *of = NULL;

    for (size_t i = 0; i < TMSG_CARRIER_COUNT; i++) {
        if (is_word(text, head, carriers[i])) {
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

/* Who says how long pieces are, or what goes eagerly or by the lane, means all
 * of them. */
static void set_special(tmsg_tuning_t *tuning, const uint64_t *threshold)
{
    for (size_t i = 0; i < TMSG_CARRIER_COUNT; i++) {
        tmsg_thresholds_t *of = &tuning->of[i];

        if (threshold == &of->chunk_bytes) {
            of->lone_chunk_bytes = *threshold;
        } else if (threshold == &of->eager_bytes) {
            of->eager_piece_bytes = *threshold;
        } else if (threshold == &of->lane_bytes) {
            of->lane_piece_bytes = *threshold;
        }
    }
}

/* A number of bytes, or "never". */
static bool read_bytes(const char *text, size_t bytes, uint64_t *value_p)
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

/* One "carrier.name=bytes". */
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
        !read_bytes(equals + 1, (size_t)(text + bytes - (equals + 1)),
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

static tmsg_status_t read_all(const char *text, tmsg_tuning_t *tuning,
                              bool again)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, ",");

        if (!read_threshold(text, bytes, tuning, again)) {
            return tmsg_error_set(
                TMSG_ERR_INVALID_PARAM,
                "'%s' is no threshold: it is written carrier.name=bytes, like "
                "tcp.part_bytes=1048576",
                tmsg_error_name(text, bytes).text);
        }
        text += bytes + (text[bytes] == ',');
    }
    return TMSG_OK;
}

/* Twice, so that a special one counts on either side of the general. */
tmsg_status_t tmsg_tuning_read(const char *text, tmsg_tuning_t *tuning_p)
{
    tmsg_tuning_t tuning = *tuning_p;
    tmsg_status_t status = read_all(text, &tuning, false);

    if (status == TMSG_OK) {
        status = read_all(text, &tuning, true);
    }
    if (status == TMSG_OK) {
        *tuning_p = tuning;
    }
    return status;
}

bool tmsg_others_silent(tmsg_others_t *others, uint64_t messages,
                        uint64_t now_ns, uint64_t silence_ns)
{
    if (messages != others->messages) {
        others->messages = messages;
        others->heard_ns = now_ns;
    }
    return others->heard_ns == 0 || now_ns - others->heard_ns >= silence_ns;
}

uint64_t tmsg_way_chunk(const tmsg_thresholds_t *thresholds, bool alone)
{
    return alone && thresholds->lone_chunk_bytes > thresholds->chunk_bytes
               ? thresholds->lone_chunk_bytes
               : thresholds->chunk_bytes;
}

uint64_t tmsg_way_large(const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (!wish.parts) {
        return TMSG_WAY_NO_PARTS;
    }
    switch (wish.way) {
    case TMSG_WAY_AUTO:
        return thresholds->part_bytes;
    case TMSG_WAY_PARTS:
        return 1;
    default:
        return TMSG_WAY_NO_PARTS;
    }
}

static bool may_slice(uint64_t left, uint64_t spill,
                      const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    return wish.slices && wish.way == TMSG_WAY_AUTO &&
           left > thresholds->slice_bytes && spill <= SPILLED_HEAD_MOST;
}

/* One tensor that lies in one piece needs no other message to be that, but for
 * one so large that small messages would wait longer behind it than behind all
 * of its pieces that may be under way. */
static bool is_split(const tmsg_measures_t *measures, uint64_t spill,
                     const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (measures->parts == 0 || !wish.parts) {
        return false;
    }
    if (measures->foreign == 0 && spill > 0 &&
        measures->head_bytes + spill > SPILLED_HEAD_MOST &&
        !may_slice(measures->head_bytes, spill, thresholds, wish)) {
        return false;
    }
    return wish.way == TMSG_WAY_PARTS || measures->foreign > 0 ||
           measures->tensors > 1 || measures->packed > 0 || spill > 0 ||
           (measures->bytes - 1) / TMSG_PARTS_SENT >= thresholds->chunk_bytes;
}

/* Whether it is one tensor as it lies, all of it, which the peer's kernel
 * copies from there. */
static bool is_read(const tmsg_measures_t *measures, uint64_t spill,
                    tmsg_wish_t wish)
{
    return wish.reads && spill == 0 && measures->tensors == 1 &&
           measures->packed == 0;
}

/* What is asked for goes as it is asked for, and a device's memory by UCX. */
static bool is_by_lane(const tmsg_measures_t *measures, uint64_t spill,
                       const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    uint64_t least = thresholds->lane_bytes;

    if (is_read(measures, spill, wish) &&
        thresholds->lane_piece_bytes > least) {
        least = thresholds->lane_piece_bytes;
    }
    return wish.lane && wish.parts && wish.slices &&
           wish.way == TMSG_WAY_AUTO && wish.protocol == TMSG_PROTOCOL_AUTO &&
           measures->foreign == 0 && measures->bytes > 0 &&
           measures->bytes >= least && spill <= SPILLED_HEAD_MOST;
}

static bool is_gathered(size_t pieces, uint64_t bytes, uint64_t packed,
                        const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (pieces < 2 && packed == 0) {
        return false; /* it lies in one piece already */
    }
    if (wish.way == TMSG_WAY_GATHER || wish.way == TMSG_WAY_SCATTER) {
        return wish.way == TMSG_WAY_GATHER;
    }
    return bytes <= thresholds->gather_bytes ||
           (bytes / thresholds->gather_mean_bytes < pieces &&
            bytes <= thresholds->gather_most_bytes);
}

/* A list is walked, by the kernel or into a ring, as fast as a copy of ours
 * would make one piece, but for tensors that are smaller than this on
 * average. */
#define WALKED_BYTES 512

static bool is_gathered_for_lane(size_t pieces, uint64_t bytes,
                                 const tmsg_thresholds_t *thresholds)
{
    return pieces > 1 && bytes / WALKED_BYTES < pieces &&
           bytes <= thresholds->gather_most_bytes;
}

static int32_t protocol_of(uint64_t bytes, uint64_t eager, uint64_t rndv)
{
    if (bytes <= eager) {
        return TMSG_PROTOCOL_EAGER;
    }
    return bytes >= rndv ? TMSG_PROTOCOL_RNDV : TMSG_PROTOCOL_AUTO;
}

tmsg_way_t tmsg_way_choose(const tmsg_measures_t *measures, uint64_t spill,
                           const tmsg_thresholds_t *thresholds,
                           tmsg_wish_t wish)
{
    bool by_lane = is_by_lane(measures, spill, thresholds, wish);
    tmsg_way_t way = {.parts = is_split(measures, spill, thresholds, wish)};
    size_t pieces = measures->tensors + (spill > 0);
    uint64_t bytes = measures->bytes + spill;
    uint64_t packed = measures->packed;
    uint64_t eager = thresholds->eager_bytes;
    bool one;

    way.lane = by_lane;
    way.parts |= by_lane && measures->parts > 0;
    if (way.parts) {
        pieces -= measures->parts;
        bytes = measures->head_bytes + spill;
        packed -= measures->parts_packed;
    }
    way.gather = is_gathered(pieces, bytes, packed, thresholds, wish);
    way.slices = may_slice(bytes - spill, spill, thresholds, wish);
    if (by_lane) {
        way.slices = !way.parts || bytes - spill > thresholds->gather_bytes;
        way.gather = way.slices
                         ? is_gathered_for_lane(pieces, bytes, thresholds)
                         : way.gather;
    }
    if (way.slices) {
        way.protocol =
            spill > 0 ? TMSG_PROTOCOL_EAGER : (int32_t)TMSG_PROTOCOL_AUTO;
        return way;
    }
    one = way.gather || pieces < 2;
    way.protocol = bytes == 0 ? TMSG_PROTOCOL_AUTO : wish.protocol;
    if (way.parts && spill > 0) {
        way.protocol = TMSG_PROTOCOL_EAGER;
        return way;
    }
    if (is_read(measures, spill, wish) &&
        thresholds->eager_piece_bytes < eager) {
        eager = thresholds->eager_piece_bytes;
    }
    if (bytes > 0 && wish.protocol == TMSG_PROTOCOL_AUTO) {
        way.protocol = protocol_of(
            bytes, one ? eager : thresholds->eager_list_bytes,
            one ? thresholds->rndv_bytes : thresholds->rndv_list_bytes);
    }
    return way;
}
