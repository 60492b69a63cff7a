/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/stats.h"

#include "serialize/json.h"

static unsigned bucket_of(uint64_t value)
{
    unsigned power, bucket;

    if (value < 4) {
        return (unsigned)value;
    }
    power = 63u - (unsigned)__builtin_clzll(value);
    bucket = 4 * (power - 1) + (unsigned)(value >> (power - 2) & 3);
    return bucket < TMSG_HISTOGRAM_BUCKETS ? bucket
                                           : TMSG_HISTOGRAM_BUCKETS - 1;
}

uint64_t tmsg_histogram_from(unsigned bucket)
{
    return bucket < 4 ? bucket : (uint64_t)(4 + bucket % 4) << (bucket / 4 - 1);
}

void tmsg_histogram_note(tmsg_histogram_t *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += value;
    histogram->buckets[bucket_of(value)]++;
    if (value > histogram->most) {
        histogram->most = value;
    }
}

void tmsg_histogram_forget(tmsg_histogram_t *histogram, uint64_t value)
{
    histogram->count--;
    histogram->sum -= value;
    histogram->buckets[bucket_of(value)]--;
}

uint64_t tmsg_histogram_quantile(const tmsg_histogram_t *histogram,
                                 double share)
{
    double wanted = share * (double)histogram->count;
    uint64_t seen = 0;

    for (unsigned i = 0; i + 1 < TMSG_HISTOGRAM_BUCKETS; i++) {
        uint64_t end = tmsg_histogram_from(i + 1) - 1;

        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted) {
            return end < histogram->most ? end : histogram->most;
        }
    }
    return histogram->most;
}

static void add_histogram(tmsg_histogram_t *sum, const tmsg_histogram_t *more)
{
    sum->count += more->count;
    sum->sum += more->sum;
    sum->most = more->most > sum->most ? more->most : sum->most;
    for (unsigned i = 0; i < TMSG_HISTOGRAM_BUCKETS; i++) {
        sum->buckets[i] += more->buckets[i];
    }
}

void tmsg_stats_add(tmsg_stats_t *sum, const tmsg_stats_t *more)
{
    sum->sent_messages += more->sent_messages;
    sum->sent_bytes += more->sent_bytes;
    sum->sent_by_schema += more->sent_by_schema;
    sum->sent_by_bulk += more->sent_by_bulk;
    sum->sent_fragment_bytes += more->sent_fragment_bytes;
    sum->received_fragment_bytes += more->received_fragment_bytes;
    sum->sent_by_fastbox += more->sent_by_fastbox;
    sum->sent_by_loan += more->sent_by_loan;
    sum->received_by_loan += more->received_by_loan;
    sum->sent_loan_bytes += more->sent_loan_bytes;
    sum->received_loan_bytes += more->received_loan_bytes;
    sum->sent_by_template += more->sent_by_template;
    sum->received_by_bulk += more->received_by_bulk;
    sum->received_by_fastbox += more->received_by_fastbox;
    sum->received_by_template += more->received_by_template;
    sum->received_messages += more->received_messages;
    sum->received_bytes += more->received_bytes;
    sum->received_in_place += more->received_in_place;
    sum->refused_messages += more->refused_messages;
    sum->starved_messages += more->starved_messages;
    sum->lost_messages += more->lost_messages;
    sum->aborted_messages += more->aborted_messages;
    sum->canceled_messages += more->canceled_messages;
    sum->timed_out_messages += more->timed_out_messages;
    sum->sent_direct += more->sent_direct;
    sum->sent_copied += more->sent_copied;
    sum->sent_copied_bytes += more->sent_copied_bytes;
    sum->sent_ipc += more->sent_ipc;
    sum->sent_gathered += more->sent_gathered;
    sum->received_gathered += more->received_gathered;
    sum->sent_staged += more->sent_staged;
    sum->sent_staged_bytes += more->sent_staged_bytes;
    sum->received_direct += more->received_direct;
    sum->received_ipc += more->received_ipc;
    sum->received_staged += more->received_staged;
    sum->received_staged_bytes += more->received_staged_bytes;
    sum->received_on_host += more->received_on_host;
    add_histogram(&sum->sent_sizes, &more->sent_sizes);
    add_histogram(&sum->received_sizes, &more->received_sizes);
    add_histogram(&sum->send_ns, &more->send_ns);
    add_histogram(&sum->ack_ns, &more->ack_ns);
    add_histogram(&sum->round_trip_ns, &more->round_trip_ns);
}

static bool add_counter(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

static bool describe_buckets(cJSON *object, const tmsg_histogram_t *histogram)
{
    cJSON *array = cJSON_AddArrayToObject(object, "buckets");
    bool ok = array != NULL;

    for (unsigned i = 0; i < TMSG_HISTOGRAM_BUCKETS && ok; i++) {
        cJSON *pair;

        if (histogram->buckets[i] == 0) {
            continue;
        }
        pair = cJSON_CreateArray();
        ok = tmsg_json_add(array, NULL, pair) &&
             tmsg_json_add(pair, NULL,
                           tmsg_json_unsigned(tmsg_histogram_from(i))) &&
             tmsg_json_add(pair, NULL,
                           tmsg_json_unsigned(histogram->buckets[i]));
    }
    return ok;
}

static bool describe_histogram(cJSON *parent, const char *key,
                               const tmsg_histogram_t *histogram)
{
    cJSON *object = cJSON_AddObjectToObject(parent, key);

    if (object == NULL || !add_counter(object, "count", histogram->count)) {
        return false;
    }
    return histogram->count == 0 ||
           (add_counter(object, "mean", histogram->sum / histogram->count) &&
            add_counter(object, "p50",
                        tmsg_histogram_quantile(histogram, 0.5)) &&
            add_counter(object, "p90",
                        tmsg_histogram_quantile(histogram, 0.9)) &&
            add_counter(object, "p99",
                        tmsg_histogram_quantile(histogram, 0.99)) &&
            add_counter(object, "most", histogram->most) &&
            describe_buckets(object, histogram));
}

static bool describe_devices(cJSON *parent, const tmsg_stats_t *stats)
{
    cJSON *object = cJSON_AddObjectToObject(parent, "device_tensors");

    return object != NULL &&
           add_counter(object, "sent_direct", stats->sent_direct) &&
           add_counter(object, "sent_copied", stats->sent_copied) &&
           add_counter(object, "sent_copied_bytes", stats->sent_copied_bytes) &&
           add_counter(object, "sent_ipc", stats->sent_ipc) &&
           add_counter(object, "sent_gathered", stats->sent_gathered) &&
           add_counter(object, "sent_staged", stats->sent_staged) &&
           add_counter(object, "sent_staged_bytes", stats->sent_staged_bytes) &&
           add_counter(object, "received_direct", stats->received_direct) &&
           add_counter(object, "received_ipc", stats->received_ipc) &&
           add_counter(object, "received_gathered", stats->received_gathered) &&
           add_counter(object, "received_staged", stats->received_staged) &&
           add_counter(object, "received_staged_bytes",
                       stats->received_staged_bytes) &&
           add_counter(object, "received_on_host", stats->received_on_host);
}

bool tmsg_stats_describe(cJSON *object, const tmsg_stats_t *stats)
{
    return add_counter(object, "sent_messages", stats->sent_messages) &&
           add_counter(object, "sent_by_schema", stats->sent_by_schema) &&
           add_counter(object, "sent_by_template", stats->sent_by_template) &&
           add_counter(object, "sent_by_bulk", stats->sent_by_bulk) &&
           add_counter(object, "sent_fragment_bytes",
                       stats->sent_fragment_bytes) &&
           add_counter(object, "received_fragment_bytes",
                       stats->received_fragment_bytes) &&
           add_counter(object, "sent_by_fastbox", stats->sent_by_fastbox) &&
           add_counter(object, "sent_by_loan", stats->sent_by_loan) &&
           add_counter(object, "sent_loan_bytes", stats->sent_loan_bytes) &&
           add_counter(object, "sent_bytes", stats->sent_bytes) &&
           add_counter(object, "received_messages", stats->received_messages) &&
           add_counter(object, "received_bytes", stats->received_bytes) &&
           add_counter(object, "received_in_place", stats->received_in_place) &&
           add_counter(object, "received_by_bulk", stats->received_by_bulk) &&
           add_counter(object, "received_by_fastbox",
                       stats->received_by_fastbox) &&
           add_counter(object, "received_by_loan", stats->received_by_loan) &&
           add_counter(object, "received_loan_bytes",
                       stats->received_loan_bytes) &&
           add_counter(object, "received_by_template",
                       stats->received_by_template) &&
           add_counter(object, "refused_messages", stats->refused_messages) &&
           add_counter(object, "starved_messages", stats->starved_messages) &&
           add_counter(object, "lost_messages", stats->lost_messages) &&
           add_counter(object, "aborted_messages", stats->aborted_messages) &&
           add_counter(object, "canceled_messages", stats->canceled_messages) &&
           add_counter(object, "timed_out_messages",
                       stats->timed_out_messages) &&
           describe_devices(object, stats) &&
           describe_histogram(object, "sent_sizes", &stats->sent_sizes) &&
           describe_histogram(object, "received_sizes",
                              &stats->received_sizes) &&
           describe_histogram(object, "send_ns", &stats->send_ns) &&
           describe_histogram(object, "ack_ns", &stats->ack_ns) &&
           describe_histogram(object, "round_trip_ns", &stats->round_trip_ns);
}
