/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes metrics in the text format that Prometheus reads. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "rpc/metrics.h"

/* The buckets of the histogram have these upper bounds, in microseconds. */
static const uint64_t bounds[] = {
    10,      25,      50,       100,      250,      500,      1000,   2500,
    5000,    10000,   25000,    50000,    100000,   250000,   500000, 1000000,
    2500000, 5000000, 10000000, 25000000, 50000000, 100000000};

static const char *const sides[] = {"", "caller", "server"};

typedef struct {
    FILE *file;
    const tmsg_meter_t *meters;
    size_t count;
    uint64_t late_replies;
} text_t;

/* Writes the labels of a meter, with the escapes that the format wants. A
 * caller's methods may have names that a peer gave. */
static void put_labels(FILE *file, const tmsg_meter_t *meter)
{
    const char *at = meter->name;

    fprintf(file, "side=\"%s\",method=\"", sides[meter->side]);
    for (size_t left = strlen(at); left > 0;) {
        uint32_t code;
        size_t length = tmsg_shown_read(at, left, &code);

        if (code == '\\' || code == '"') {
            fputc('\\', file);
        }
        if (code == '\n') {
            fputs("\\n", file);
        } else if (tmsg_shown_hides(code)) {
            char escape[TMSG_SHOWN_ESCAPE];

            (void)tmsg_shown_escape(escape, code);
            fprintf(file, "\\%s", escape); /* a backslash is two of them */
        } else {
            fwrite(at, 1, length, file);
        }
        at += length;
        left -= length;
    }
    fputc('"', file);
}

/* Writes the two lines in front of a metric's values. */
static void put_family(FILE *file, const char *name, const char *type,
                       const char *help)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_value(FILE *file, const char *name, const tmsg_meter_t *meter,
                      const char *label, const char *value, uint64_t number)
{
    fprintf(file, "%s{", name);
    put_labels(file, meter);
    if (label != NULL) {
        fprintf(file, ",%s=\"%s\"", label, value);
    }
    fprintf(file, "} %" PRIu64 "\n", number);
}

/* Writes the counts that are not 0, and the count of the status `always` in any
 * case. */
static void put_statuses(FILE *file, const char *name,
                         const tmsg_meter_t *meter, const uint64_t *by_status,
                         tmsg_status_t always)
{
    for (int i = 0; i < TMSG_METRICS_STATUSES; i++) {
        if (by_status[i] > 0 || -i == (int)always) {
            put_value(file, name, meter, "status",
                      tmsg_status_name((tmsg_status_t)-i), by_status[i]);
        }
    }
}

static void put_calls(const text_t *text)
{
    const char *name = "tensormsg_calls_total";

    put_family(text->file, name, "counter", "Calls that have ended.");
    for (size_t i = 0; i < text->count; i++) {
        put_statuses(text->file, name, &text->meters[i],
                     text->meters[i].counts.by_status, TMSG_OK);
    }
    name = "tensormsg_calls_rejected_total";
    put_family(text->file, name, "counter",
               "Calls that the server did not take.");
    for (size_t i = 0; i < text->count; i++) {
        if (text->meters[i].side == TMSG_SIDE_SERVER) {
            put_statuses(text->file, name, &text->meters[i],
                         text->meters[i].counts.rejected_by_status,
                         TMSG_ERR_RESOURCE_EXHAUSTED);
        }
    }
}

/* Writes the metrics that have one number for each meter. */
static void put_numbers(const text_t *text)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;    /* of the number in tmsg_call_metrics_t */
        bool servers_own; /* callers have none */
    } families[] = {
        {"tensormsg_calls_in_flight", "gauge", "Calls that have not ended.",
         offsetof(tmsg_call_metrics_t, in_flight), false},
        {"tensormsg_call_retries_total", "counter",
         "Attempts beyond a call's first.",
         offsetof(tmsg_call_metrics_t, retried), false},
        {"tensormsg_calls_running", "gauge",
         "Calls whose handlers run, or are still to answer.",
         offsetof(tmsg_call_metrics_t, running), true},
        {"tensormsg_calls_waiting", "gauge",
         "Calls whose handlers have not begun.",
         offsetof(tmsg_call_metrics_t, waiting), true},
        {"tensormsg_calls_held", "gauge",
         "Calls that were answered and are kept.",
         offsetof(tmsg_call_metrics_t, held), true},
        {"tensormsg_call_stalls_total", "counter",
         "Times that no waiting call has begun for a second.",
         offsetof(tmsg_call_metrics_t, stalls), true},
        {"tensormsg_long_handlers_total", "counter",
         "Times that a handler held the thread that progresses for a second.",
         offsetof(tmsg_call_metrics_t, long_handlers), true}};

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        put_family(text->file, families[i].name, families[i].type,
                   families[i].help);
        for (size_t j = 0; j < text->count; j++) {
            const tmsg_meter_t *meter = &text->meters[j];
            uint64_t number;

            memcpy(&number, (const char *)&meter->counts + families[i].offset,
                   sizeof(number));
            if (!families[i].servers_own || meter->side == TMSG_SIDE_SERVER) {
                put_value(text->file, families[i].name, meter, NULL, NULL,
                          number);
            }
        }
    }
}

static void put_bytes(const text_t *text)
{
    const char *name = "tensormsg_call_bytes_total";

    put_family(text->file, name, "counter", "Bytes of tensors.");
    for (size_t i = 0; i < text->count; i++) {
        const tmsg_meter_t *meter = &text->meters[i];

        put_value(text->file, name, meter, "direction", "sent",
                  meter->counts.sent_bytes);
        put_value(text->file, name, meter, "direction", "received",
                  meter->counts.received_bytes);
    }
}

/* Writes a number with `digits` digits behind a point. printf() would use the
 * decimal separator of the locale. */
static void put_decimal(FILE *file, uint64_t whole, uint64_t part, int digits)
{
    fprintf(file, "%" PRIu64 ".%0*" PRIu64, whole, digits, part);
}

static void put_histogram(FILE *file, const tmsg_meter_t *meter)
{
    const char *name = "tensormsg_call_duration_seconds";
    uint64_t below = 0;
    size_t step = 0;

    for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++) {
        while (step < TMSG_METER_STEPS &&
               tmsg_meter_from(step + 1) <= bounds[i] * 1000 + 1) {
            below += meter->steps[step++];
        }
        fprintf(file, "%s_bucket{", name);
        put_labels(file, meter);
        fputs(",le=\"", file);
        put_decimal(file, bounds[i] / 1000000, bounds[i] % 1000000, 6);
        fprintf(file, "\"} %" PRIu64 "\n", below);
    }
    fprintf(file, "%s_bucket{", name);
    put_labels(file, meter);
    fprintf(file, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum{", meter->counts.ended,
            name);
    put_labels(file, meter);
    fputs("} ", file);
    put_decimal(file, meter->counts.latency_sum_ns / 1000000000,
                meter->counts.latency_sum_ns % 1000000000, 9);
    fprintf(file, "\n%s_count{", name);
    put_labels(file, meter);
    fprintf(file, "} %" PRIu64 "\n", meter->counts.ended);
}

static void put_all(const text_t *text)
{
    if (text->count == 0) {
        return;
    }
    put_calls(text);
    put_numbers(text);
    put_bytes(text);
    put_family(text->file, "tensormsg_call_duration_seconds", "histogram",
               "From a call to its end.");
    for (size_t i = 0; i < text->count; i++) {
        put_histogram(text->file, &text->meters[i]);
    }
    put_family(text->file, "tensormsg_late_replies_total", "counter",
               "Replies that nobody waited for any more.");
    fprintf(text->file, "tensormsg_late_replies_total %" PRIu64 "\n",
            text->late_replies);
}

/* Copies all meters with the lock held once, so that they are of one moment.
 * The caller frees *meters_p. Takes the lock. Errors: NO_MEMORY. */
static tmsg_status_t copy_meters(tmsg_hub_t *hub, tmsg_meter_t **meters_p,
                                 text_t *text)
{
    tmsg_meter_t *meters;
    size_t count = 0;

    tmsg_hub_lock(hub);
    meters = calloc(hub->meters.count + 1, sizeof(*meters));
    for (tmsg_node_t *node = hub->meters.head; meters != NULL && node != NULL;
         node = node->next) {
        meters[count] = *TMSG_CONTAINER_OF(node, tmsg_meter_t, node);
        tmsg_meter_add_load(hub, &meters[count], &meters[count].counts);
        count++;
    }
    text->late_replies = hub->late_replies;
    tmsg_hub_unlock(hub);
    *meters_p = meters;
    text->count = count;
    return meters != NULL ? TMSG_OK : tmsg_error_memory("metrics");
}

tmsg_status_t tmsg_metrics_text(tmsg_worker_t *worker, char **text_p)
{
    tmsg_meter_t *meters = NULL;
    text_t text = {0};
    char *made = NULL;
    size_t bytes;
    void *start;
    bool written = false;
    tmsg_status_t status = tmsg_calls_start(worker, &tmsg_hub_ops, &start);

    if (status == TMSG_OK) {
        status = copy_meters(start, &meters, &text);
    }
    if (status != TMSG_OK) {
        return status;
    }
    text.meters = meters;
    text.file = open_memstream(&made, &bytes);
    if (text.file != NULL) {
        put_all(&text);
        written = ferror(text.file) == 0;
        written = fclose(text.file) == 0 && written;
    }
    free(meters);
    if (!written) {
        free(made);
        return tmsg_error_memory("the text of metrics");
    }
    *text_p = made;
    return TMSG_OK;
}
