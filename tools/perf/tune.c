/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the sizes at which one way of sending becomes better than another. For
 * each threshold messages of growing size are sent by the way below it and by
 * the way above it, in turns, several times. The best threshold is the one that
 * would have cost least. It is taken only if its lead over the one in force is
 * more than noise. The lead is measured a second time, because the best of many
 * measurements may be so by chance. Messages that use a bulk stream or a ring
 * use none of these ways, and are not measured. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf.h"

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define NEVER 9007199254740992ULL /* 2^53: the largest number in the file */

#define MEMORY_BYTES (16 * MIB)
#define SIZES_MOST 12
#define RUNS 5
#define RUNS_QUICK 4
#define BLOCK_NS 4000000ULL
#define BLOCK_QUICK_NS 2000000ULL
#define SIZE_QUICK_MOST MIB
#define STEP_QUICK 4
#define TRANSPORT_NS 25000000000ULL /* after this, fewer runs suffice */
#define RUNS_LEAST 3
#define LEAD_LEAST 0.05 /* smaller leads may be noise */

typedef struct {
    const char *name;
    perf_way_t below, above;
    bool from;       /* threshold is the first size above, not the last below */
    uint64_t first;  /* first measured size; each next one is twice as large */
    uint64_t last;   /* last measured size */
    uint64_t least;  /* threshold if `above` wins at all sizes */
    uint64_t beyond; /* threshold if `below` wins; 0: the last size */
    size_t tensors;  /* 0: computed from each_bytes or total_bytes */
    bool lists;      /* only for messages that are too long to be gathered */
    bool pieces;     /* only if the peer's kernel reads tensors in place */
    uint64_t each_bytes;
    uint64_t total_bytes;
    bool size_is_each; /* sizes are those of one tensor, not of all */
} threshold_t;

#define GATHER                                                                 \
    {                                                                          \
        TMSG_WAY_GATHER, TMSG_PROTOCOL_AUTO                                    \
    }
#define LIST                                                                   \
    {                                                                          \
        TMSG_WAY_SCATTER, TMSG_PROTOCOL_AUTO                                   \
    }
#define PARTS                                                                  \
    {                                                                          \
        TMSG_WAY_FRAGMENTS, TMSG_PROTOCOL_AUTO                                 \
    }
#define EAGER                                                                  \
    {                                                                          \
        TMSG_WAY_SCATTER, TMSG_PROTOCOL_EAGER                                  \
    }
#define RNDV                                                                   \
    {                                                                          \
        TMSG_WAY_SCATTER, TMSG_PROTOCOL_RNDV                                   \
    }

/* Fragments begin at 8 MiB at the latest, so that other messages do not wait
 * long behind one. */
static const threshold_t thresholds[] = {
    {.name = "gather_bytes",
     .below = GATHER,
     .above = LIST,
     .first = 4 * KIB,
     .last = MIB,
     .least = 2 * KIB,
     .tensors = 4},
    {.name = "gather_mean_bytes",
     .below = GATHER,
     .above = LIST,
     .from = true,
     .first = KIB,
     .last = 128 * KIB,
     .least = KIB,
     .beyond = 256 * KIB,
     .lists = true,
     .total_bytes = MIB,
     .size_is_each = true},
    {.name = "gather_most_bytes",
     .below = GATHER,
     .above = LIST,
     .first = 256 * KIB,
     .last = 16 * MIB,
     .least = 128 * KIB,
     .lists = true,
     .each_bytes = 8 * KIB},
    {.name = "fragment_bytes",
     .below = LIST,
     .above = PARTS,
     .from = true,
     .first = 256 * KIB,
     .last = 4 * MIB,
     .least = 256 * KIB,
     .beyond = 8 * MIB,
     .tensors = 4,
     .size_is_each = true},
    {.name = "eager_bytes",
     .below = {TMSG_WAY_GATHER, TMSG_PROTOCOL_EAGER},
     .above = GATHER,
     .first = 4 * KIB,
     .last = 4 * MIB,
     .tensors = 4},
    {.name = "eager_single_bytes",
     .below = EAGER,
     .above = LIST,
     .first = 4 * KIB,
     .last = 4 * MIB,
     .tensors = 1,
     .pieces = true},
    {.name = "rndv_bytes",
     .below = LIST,
     .above = RNDV,
     .from = true,
     .first = 64 * KIB,
     .last = 4 * MIB,
     .least = 64 * KIB,
     .beyond = NEVER,
     .tensors = 1},
    {.name = "eager_list_bytes",
     .below = EAGER,
     .above = LIST,
     .first = 16 * KIB,
     .last = 4 * MIB,
     .tensors = 4,
     .lists = true},
    {.name = "rndv_list_bytes",
     .below = LIST,
     .above = RNDV,
     .from = true,
     .first = 64 * KIB,
     .last = 4 * MIB,
     .least = 64 * KIB,
     .beyond = NEVER,
     .tensors = 4,
     .lists = true},
};

/* Holds the measurements of one threshold. */
typedef struct {
    const perf_peer_t *peer;
    const threshold_t *threshold;
    size_t sizes;
    uint64_t size[SIZES_MOST];
    tmsg_map_t *map[SIZES_MOST];
    /* The lead is ln of the time by the way below, minus ln of the time by the
     * way above. */
    double lead[PERF_RUNS_MOST][SIZES_MOST];
    size_t runs;
} series_t;

typedef struct {
    const perf_peer_t *peer;
    perf_peer_t plain; /* connection on which UCX chooses the protocol */
    const cJSON *in_force;
    cJSON *out;
    FILE *report;
    void *memory;
    uint64_t deadline_ns;
} tuner_t;

static uint64_t block_ns_of(const perf_peer_t *peer)
{
    return peer->options->quick ? BLOCK_QUICK_NS : BLOCK_NS;
}

static size_t runs_of(const perf_peer_t *peer)
{
    return peer->options->quick ? RUNS_QUICK : RUNS;
}

/* Chooses the tensors of a map: *tensors_p tensors of *each_p bytes, less than
 * `beyond` bytes together. Returns false if there is no such map. */
static bool shape_map(const threshold_t *threshold, uint64_t size,
                      uint64_t beyond, size_t *tensors_p, uint64_t *each_p)
{
    uint64_t each = threshold->size_is_each ? size : threshold->each_bytes;
    uint64_t total = threshold->size_is_each ? threshold->total_bytes : size;

    if (threshold->size_is_each && total >= beyond) {
        total = beyond / 2;
    }
    *tensors_p = threshold->tensors > 0 ? threshold->tensors : total / each;
    *each_p = each > 0 ? each : total / *tensors_p;
    return *tensors_p > 0 && *tensors_p * *each_p < beyond;
}

static bool make_maps(series_t *series, void *memory, uint64_t beyond)
{
    const threshold_t *threshold = series->threshold;
    uint64_t last = threshold->last, step = 2, each;
    size_t tensors;

    if (series->peer->options->quick) {
        last = last < SIZE_QUICK_MOST ? last : SIZE_QUICK_MOST;
        step = STEP_QUICK;
    }
    for (uint64_t size = threshold->first;
         size <= last && shape_map(threshold, size, beyond, &tensors, &each);
         size *= step) {
        tmsg_map_t *map = perf_map(memory, tensors, each);

        if (map == NULL) {
            return false;
        }
        series->map[series->sizes] = map;
        series->size[series->sizes++] = size;
    }
    return true;
}

/* Measures one size by both ways. The way that goes first changes from run to
 * run. */
static bool compare_ways(series_t *series, size_t i, double *lead_p)
{
    const threshold_t *threshold = series->threshold;
    uint64_t block_ns = block_ns_of(series->peer);
    double ns[2] = {1, 1};

    for (size_t j = 0; j < 2; j++) {
        size_t above = (j + series->runs) % 2;

        ns[above] =
            perf_stream(series->peer, series->map[i],
                        above ? threshold->above : threshold->below, block_ns);
        if (ns[above] <= 0) {
            return false;
        }
    }
    *lead_p = log(ns[0] / ns[1]);
    return true;
}

static bool warm_up_series(series_t *series)
{
    double lead;

    for (size_t i = 0; i < series->sizes; i++) {
        if (!series->peer->options->quick && !compare_ways(series, i, &lead)) {
            return false;
        }
    }
    return true;
}

/* Measures the sizes with indices from `from` to `to` - 1. Earlier measurements
 * are forgotten. */
static bool measure_series(series_t *series, size_t from, size_t to,
                           uint64_t deadline_ns)
{
    series->runs = 0;
    while (series->runs < runs_of(series->peer) &&
           (series->runs < RUNS_LEAST || now_ns() < deadline_ns)) {
        for (size_t i = from; i < to; i++) {
            if (!compare_ways(series, i, &series->lead[series->runs][i])) {
                return false;
            }
        }
        series->runs++;
    }
    return true;
}

/* Returns how many sizes are below the threshold. */
static size_t threshold_place(const series_t *series, uint64_t value)
{
    size_t place = 0;

    while (place < series->sizes &&
           (series->threshold->from ? series->size[place] < value
                                    : series->size[place] <= value)) {
        place++;
    }
    return place;
}

static uint64_t threshold_at(const series_t *series, size_t place)
{
    const threshold_t *threshold = series->threshold;

    if (place == 0) {
        return threshold->least;
    }
    if (place == series->sizes) {
        return threshold->beyond > 0 ? threshold->beyond
                                     : series->size[place - 1];
    }
    return series->size[threshold->from ? place : place - 1];
}

/* Returns how many sizes are below the best threshold. The best threshold has
 * the least total cost: smaller sizes go by the way below, the others by the
 * way above. */
static size_t best_place(const series_t *series)
{
    double least = 0, cost = 0;
    size_t best = 0;

    for (size_t i = 0; i < series->sizes; i++) {
        double leads[PERF_RUNS_MOST];

        for (size_t run = 0; run < series->runs; run++) {
            leads[run] = series->lead[run][i];
        }
        cost += perf_median(leads, series->runs);
        if (cost < least) {
            least = cost;
            best = i + 1;
        }
    }
    return best;
}

/* Tells whether the gain is more than noise: it must be large enough, and be
 * there in every run. *gain_p is its median. */
static bool is_clear(double *gains, size_t runs, double *gain_p)
{
    size_t against = 0;

    for (size_t i = 0; i < runs; i++) {
        against += gains[i] <= 0;
    }
    *gain_p = perf_median(gains, runs);
    return *gain_p >= LEAD_LEAST && against == 0;
}

/* Tells whether the way above (or else the way below) has a clear gain over the
 * other one, for the sizes from `from` to `to` - 1. *gain_p is the gain per
 * size. */
static bool way_leads(const series_t *series, size_t from, size_t to,
                      bool above, double *gain_p)
{
    double gains[PERF_RUNS_MOST];

    for (size_t run = 0; run < series->runs; run++) {
        double sum = 0;

        for (size_t i = from; i < to; i++) {
            sum += series->lead[run][i];
        }
        gains[run] = (above ? sum : -sum) / (double)(to - from);
    }
    return is_clear(gains, series->runs, gain_p);
}

static uint64_t in_force(const tuner_t *tuner, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tuner->in_force, name);

    return cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : NEVER;
}

static const char *format_value(uint64_t value, char text[24])
{
    if (value >= NEVER) {
        return "never";
    }
    snprintf(text, 24, "%llu", (unsigned long long)value);
    return text;
}

/* Writes a threshold to the file. "never" need not be written if the threshold
 * is so already. */
static bool note_threshold(const tuner_t *tuner, const char *name,
                           uint64_t before, uint64_t value)
{
    if (value >= NEVER && before >= NEVER) {
        return true;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(tuner->out, name);
    return cJSON_AddNumberToObject(tuner->out, name, (double)value) != NULL;
}

static bool report_threshold(const tuner_t *tuner, const char *name,
                             uint64_t before, uint64_t best, bool clear,
                             double gain)
{
    uint64_t value = clear ? best : before;
    char texts[3][24];

    fprintf(tuner->report, "  %-18s %10s %10s %10s  ", name,
            format_value(before, texts[0]), format_value(best, texts[1]),
            format_value(value, texts[2]));
    if (clear) {
        fprintf(tuner->report, "%.0f %% faster\n", expm1(gain) * 100);
    } else {
        fprintf(tuner->report, "%s\n", before == best ? "as it was" : "noise");
    }
    return note_threshold(tuner, name, before, value);
}

static bool decide_threshold(const tuner_t *tuner, series_t *series)
{
    const char *name = series->threshold->name;
    uint64_t before = in_force(tuner, name);
    size_t place = best_place(series), other = threshold_place(series, before);
    bool lower = place < other, clear;
    size_t from = lower ? place : other, to = lower ? other : place;
    double gain = 0;

    if (place == other) {
        return report_threshold(tuner, name, before, before, false, 0);
    }
    clear = way_leads(series, from, to, lower, &gain);
    if (clear) {
        if (!measure_series(series, from, to, UINT64_MAX)) {
            return false;
        }
        clear = way_leads(series, from, to, lower, &gain);
    }
    return report_threshold(tuner, name, before, threshold_at(series, place),
                            clear, gain);
}

/* Keeps a threshold as it is. The messages that it is for use the bulk stream
 * or a ring. */
static bool leave_threshold(const tuner_t *tuner, const char *name)
{
    uint64_t before = in_force(tuner, name);
    char text[24];
    const char *value = format_value(before, text);

    fprintf(tuner->report,
            "  %-18s %10s %10s %10s  for none but the bulk stream\n", name,
            value, "-", value);
    return note_threshold(tuner, name, before, before);
}

/* Tells whether the peer's kernel copies a tensor directly from this process
 * (UCX's cma). */
static bool peer_reads_memory(const tuner_t *tuner)
{
    return strstr(tuner->peer->transports, "cma") != NULL;
}

/* Returns the size from which maps of so many tensors use the bulk stream. */
static uint64_t bulk_of(const tuner_t *tuner, size_t tensors)
{
    uint64_t any = in_force(tuner, "bulk_bytes");
    uint64_t piece = in_force(tuner, "bulk_single_bytes");

    return tensors == 1 && peer_reads_memory(tuner) && piece > any ? piece
                                                                   : any;
}

static bool tune_threshold(const tuner_t *tuner, const threshold_t *threshold,
                           uint64_t deadline_ns)
{
    bool protocols = threshold->below.protocol != TMSG_PROTOCOL_AUTO ||
                     threshold->above.protocol != TMSG_PROTOCOL_AUTO;
    series_t series = {.peer = protocols ? &tuner->plain : tuner->peer,
                       .threshold = threshold};
    uint64_t beyond = bulk_of(tuner, threshold->tensors);
    bool ok;

    if (threshold->pieces && !peer_reads_memory(tuner)) {
        return true;
    }
    if (threshold->lists && beyond <= in_force(tuner, "gather_bytes")) {
        return leave_threshold(tuner, threshold->name);
    }
    ok = make_maps(&series, tuner->memory, beyond);
    if (ok && series.sizes == 0) {
        return leave_threshold(tuner, threshold->name);
    }
    ok = ok && warm_up_series(&series) &&
         measure_series(&series, 0, series.sizes, deadline_ns) &&
         decide_threshold(tuner, &series);
    for (size_t i = 0; i < series.sizes; i++) {
        tmsg_map_destroy(series.map[i]);
    }
    return ok;
}

/* A message cannot choose the size of its chunks, so each size has a connection
 * of its own. If chunk_bytes is small, other messages do not wait long behind a
 * chunk. Then only the chunks of a channel that is alone (lone_chunk_bytes) are
 * tuned. */
#define CHUNKS 3
#define CHUNK_MOST (4 * MIB)
#define CHUNKED_BYTES (16 * MIB)
#define CHUNKED_QUICK_BYTES (8 * MIB)

typedef struct {
    const char *name; /* name of the threshold */
    uint64_t bytes[CHUNKS + 1];
    perf_peer_t peer[CHUNKS + 1]; /* element 0 is unused */
    double ln_ns[CHUNKS + 1][PERF_RUNS_MOST];
    size_t count;
} chunks_t;

static bool open_chunks(const tuner_t *tuner, chunks_t *chunks)
{
    char text[64];

    chunks->bytes[0] = in_force(tuner, chunks->name);
    chunks->count = 1;
    for (uint64_t bytes = MIB; bytes <= CHUNK_MOST; bytes *= 2) {
        if (bytes == chunks->bytes[0]) {
            continue;
        }
        snprintf(text, sizeof(text), "%s.chunk_bytes=%llu",
                 tuner->peer->transport, (unsigned long long)bytes);
        chunks->bytes[chunks->count] = bytes;
        if (!perf_peer_again(&chunks->peer[chunks->count++], tuner->peer,
                             text)) {
            return false;
        }
    }
    return true;
}

/* Measures one size beside the one in force, or all sizes if `one` is 0. Run 0
 * is a warm-up. */
static bool measure_chunks(const tuner_t *tuner, chunks_t *chunks, size_t one,
                           const tmsg_map_t *map)
{
    const perf_way_t parts = PARTS;

    for (size_t run = 0; run <= runs_of(tuner->peer); run++) {
        for (size_t i = 0; i < chunks->count; i++) {
            double ns;

            if (one != 0 && i != 0 && i != one) {
                continue;
            }
            ns = perf_stream(i == 0 ? tuner->peer : &chunks->peer[i], map,
                             parts, block_ns_of(tuner->peer));
            if (ns <= 0) {
                return false;
            }
            chunks->ln_ns[i][run == 0 ? 0 : run - 1] = log(ns);
        }
    }
    return true;
}

static bool chunk_leads(const chunks_t *chunks, size_t runs, size_t i,
                        double *gain_p)
{
    double gains[PERF_RUNS_MOST];

    for (size_t run = 0; run < runs; run++) {
        gains[run] = chunks->ln_ns[0][run] - chunks->ln_ns[i][run];
    }
    return is_clear(gains, runs, gain_p);
}

static bool decide_chunks(const tuner_t *tuner, chunks_t *chunks,
                          const tmsg_map_t *map)
{
    size_t best = 0, runs = runs_of(tuner->peer);
    double best_gain = 0;
    bool best_clear = false;

    for (size_t i = 1; i < chunks->count; i++) {
        double gain;
        bool clear = chunk_leads(chunks, runs, i, &gain);

        if (gain > best_gain) {
            best = i;
            best_gain = gain;
            best_clear = clear;
        }
    }
    if (best_clear) {
        if (!measure_chunks(tuner, chunks, best, map)) {
            return false;
        }
        best_clear = chunk_leads(chunks, runs, best, &best_gain);
    }
    return report_threshold(tuner, chunks->name, chunks->bytes[0],
                            chunks->bytes[best], best_clear, best_gain);
}

static bool tune_chunks(const tuner_t *tuner)
{
    chunks_t chunks = {.name = in_force(tuner, "chunk_bytes") > MIB
                                   ? "chunk_bytes"
                                   : "lone_chunk_bytes"};
    uint64_t bytes =
        tuner->peer->options->quick ? CHUNKED_QUICK_BYTES : CHUNKED_BYTES;
    tmsg_map_t *map;
    bool ok;

    if (bytes >= bulk_of(tuner, 1)) {
        return leave_threshold(tuner, chunks.name);
    }
    map = perf_map(tuner->memory, 1, bytes);
    ok = map != NULL && open_chunks(tuner, &chunks) &&
         measure_chunks(tuner, &chunks, 0, map) &&
         decide_chunks(tuner, &chunks, map);

    for (size_t i = 1; i < chunks.count; i++) {
        if (!ok) {
            perf_peer_drop(&chunks.peer[i]);
        }
        perf_peer_close(&chunks.peer[i]);
    }
    tmsg_map_destroy(map);
    return ok;
}

static cJSON *describe_context(const perf_peer_t *peer)
{
    cJSON *object;
    char *json;

    if (tmsg_context_describe(peer->context, &json) != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return NULL;
    }
    object = cJSON_Parse(json);
    tmsg_string_free(json);
    return object;
}

/* Opens a connection for comparing a protocol with UCX's own choice. No
 * threshold may choose the protocol there. */
static bool open_plain(tuner_t *tuner)
{
    const char *of = tuner->peer->transport;
    char text[256];

    snprintf(text, sizeof(text),
             "%s.eager_bytes=0,%s.eager_list_bytes=0,%s.rndv_bytes=%llu,"
             "%s.rndv_list_bytes=%llu,%s.slice_bytes=%llu",
             of, of, of, NEVER, of, NEVER, of, NEVER);
    return perf_peer_again(&tuner->plain, tuner->peer, text);
}

static bool tune_all(const tuner_t *tuner)
{
    size_t count = sizeof(thresholds) / sizeof(thresholds[0]);
    uint64_t start = now_ns();
    bool ok = true;

    fprintf(tuner->report, "%s: ", tuner->peer->transport);
    put_text(tuner->report, tuner->peer->transports);
    fprintf(tuner->report, " (");
    put_text(tuner->report, tuner->peer->why);
    fprintf(tuner->report, ")\n  %-18s %10s %10s %10s\n", "bytes", "in force",
            "measured", "taken");
    for (size_t i = 0; i < count && ok; i++) {
        ok = tune_threshold(tuner, &thresholds[i],
                            start + TRANSPORT_NS / (count + 1) * (i + 1));
    }
    ok = ok && tune_chunks(tuner);
    fflush(tuner->report);
    return ok;
}

bool perf_tune(perf_peer_t *peer, cJSON *out, FILE *report)
{
    cJSON *described = describe_context(peer);
    tuner_t tuner = {
        .peer = peer,
        .in_force = cJSON_GetObjectItemCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(described, "thresholds"),
            peer->transport),
        .out = out,
        .report = report,
        .memory = described == NULL ? NULL : perf_memory(MEMORY_BYTES),
    };
    bool ok = tuner.memory != NULL && open_plain(&tuner) && tune_all(&tuner);

    if (!ok) {
        /* Messages under way may still be read from the memory. */
        perf_peer_drop(&tuner.plain);
        perf_peer_drop(peer);
    }
    perf_peer_close(&tuner.plain);
    if (tuner.memory != NULL) {
        munmap(tuner.memory, MEMORY_BYTES);
    }
    cJSON_Delete(described);
    return ok;
}
