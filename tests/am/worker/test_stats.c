/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What an endpoint and a worker count, and how it spreads. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

Test(stats, buckets_are_a_quarter_of_a_power_of_two)
{
    for (unsigned i = 1; i < TMSG_HISTOGRAM_BUCKETS; i++) {
        uint64_t from = tmsg_histogram_from(i);
        tmsg_histogram_t histogram = {0};

        cr_expect(ge(u64, from, tmsg_histogram_from(i - 1) + 1));
        tmsg_histogram_note(&histogram, from);
        tmsg_histogram_note(&histogram, from - 1);
        cr_expect(eq(u64, histogram.buckets[i], 1), "%u", i);
        cr_expect(eq(u64, histogram.buckets[i - 1], 1), "%u", i);
    }
}

Test(stats, the_largest_value_has_a_bucket)
{
    tmsg_histogram_t histogram = {0};

    tmsg_histogram_note(&histogram, UINT64_MAX);
    tmsg_histogram_note(&histogram, 0);
    cr_expect(eq(u64, histogram.buckets[TMSG_HISTOGRAM_BUCKETS - 1], 1));
    cr_expect(eq(u64, tmsg_histogram_quantile(&histogram, 1), UINT64_MAX));
    cr_expect(eq(u64, tmsg_histogram_quantile(&histogram, 0.5), 0));
}

Test(stats, quantiles_are_known_within_a_quarter)
{
    tmsg_histogram_t histogram = {0};

    cr_expect(eq(u64, tmsg_histogram_quantile(&histogram, 0.5), 0));
    for (uint64_t i = 1; i <= 10000; i++) {
        tmsg_histogram_note(&histogram, i);
    }
    for (unsigned percent = 1; percent <= 100; percent++) {
        uint64_t found = tmsg_histogram_quantile(&histogram, percent / 100.0);

        cr_expect(ge(u64, found, percent * 100));
        cr_expect(le(u64, found, percent * 125));
        cr_expect(le(u64, found, 10000));
    }
}

/* A number of a description, by the path to it. */
static double number(const char *json, const char *key, const char *inner)
{
    cJSON *object = cJSON_Parse(json);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    double value;

    if (inner != NULL) {
        item = cJSON_GetObjectItemCaseSensitive(item, inner);
    }
    must_true(cJSON_IsNumber(item));
    value = item->valuedouble;
    cJSON_Delete(object);
    return value;
}

static void pass(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_request_t *request =
        send_map(pair->to_a, sample_bytes(seed, bytes), TMSG_SEND_ACKED);

    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, request));
}

static void describes_its_messages(link_t link)
{
    pair_t pair;
    char *json;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 100; i++) {
        pass(&pair, i, i < 90 ? 1000 : 100000);
    }
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_eq(number(json, "sent_messages", NULL), 100);
    must_eq(number(json, "sent_sizes", "count"), 100);
    must_eq(number(json, "sent_sizes", "mean"), 10900);
    must_eq(number(json, "sent_sizes", "most"), 100000);
    must_eq(number(json, "sent_sizes", "p50") >= 1000, 1);
    must_eq(number(json, "sent_sizes", "p50") <= 1250, 1);
    must_eq(number(json, "sent_sizes", "p99"), 100000);
    must_eq(number(json, "received_sizes", "count"), 0);
    /* One of 16 of the 90 small ones, and the ten large ones. */
    must_eq(number(json, "send_ns", "count"), 16);
    must_true(number(json, "ack_ns", "count") ==
              number(json, "send_ns", "count"));
    must_true(number(json, "ack_ns", "p50") >= number(json, "send_ns", "p50"));
    must_true(number(json, "ack_ns", "most") < 1e10);
    tmsg_string_free(json);
    must(tmsg_endpoint_describe(pair.to_b, &json));
    must_eq(number(json, "received_sizes", "count"), 100);
    must_eq(number(json, "received_sizes", "mean"), 10900);
    tmsg_string_free(json);
    pair_close(&pair);
}

Test(stats, describe_an_endpoints_messages_tcp)
{
    describes_its_messages(LINK_TCP);
}

Test(stats, describe_an_endpoints_messages_unix)
{
    describes_its_messages(LINK_UNIX);
}

static bool has_ended(void *arg) { return tmsg_endpoint_status(arg) < 0; }

/* Also of endpoints that are long gone. */
Test(stats, are_summed_for_a_worker)
{
    pair_t pair;
    char *json;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        pass(&pair, i, 1000);
        tmsg_endpoint_destroy(pair.to_a);
        pair_await(&pair, has_ended, pair.to_b, "an end");
        tmsg_endpoint_destroy(pair.to_b);
        pair.to_a = side_dial(&pair.b, &pair.a);
        while (tmsg_endpoint_status(pair.to_a) != TMSG_OK ||
               pair.a.accepts < i + 2) {
            tmsg_worker_progress(pair.a.worker);
            tmsg_worker_progress(pair.b.worker);
        }
        pair.to_b = pair.a.accepted;
    }
    must(tmsg_worker_describe(pair.a.worker, &json));
    must_eq(number(json, "open_endpoints", NULL), 1);
    must_eq(number(json, "ended_endpoints", NULL), 3);
    must_eq(number(json, "connecting_endpoints", NULL), 0);
    must_eq(number(json, "received_messages", NULL), 3);
    must_eq(number(json, "received_bytes", NULL), 3000);
    must_eq(number(json, "received_sizes", "count"), 3);
    tmsg_string_free(json);
    must(tmsg_worker_describe(pair.b.worker, &json));
    must_eq(number(json, "sent_messages", NULL), 3);
    must_eq(number(json, "ack_ns", "count"), 3);
    tmsg_string_free(json);
    pair_close(&pair);
}

static void pings(link_t link)
{
    pair_t pair;
    tmsg_request_t *first, *second;
    char *json;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 10; i++) {
        must(tmsg_endpoint_ping(pair.to_a, &first));
        must(tmsg_endpoint_ping(pair.to_a, &second)); /* the same one */
        must(tmsg_endpoint_ping(pair.to_b, NULL));
        must(pair_finish(&pair, second));
        must(pair_finish(&pair, first));
    }
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_eq(number(json, "round_trip_ns", "count"), 10);
    must_true(number(json, "round_trip_ns", "p50") > 0);
    must_eq(number(json, "sent_messages", NULL), 0);
    tmsg_string_free(json);
    pair_close(&pair);
}

Test(stats, ping_measures_a_round_trip_tcp) { pings(LINK_TCP); }
Test(stats, ping_measures_a_round_trip_unix) { pings(LINK_UNIX); }
Test(stats, ping_measures_a_round_trip_blob) { pings(LINK_BLOB); }

/* It goes past what nobody takes. */
Test(stats, ping_needs_no_credit)
{
    const side_options_t deaf = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    pair_t pair;
    tmsg_request_t *request, *sends[5];

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &deaf, NULL);
    for (uint64_t i = 0; i < 5; i++) {
        sends[i] = send_map(pair.to_a, sample_bytes(i, 100), 0);
    }
    must(tmsg_endpoint_ping(pair.to_a, &request));
    must(pair_finish(&pair, request));
    must_be(tmsg_request_test(sends[4]), TMSG_IN_PROGRESS);
    for (uint64_t i = 0; i < 5; i++) {
        tmsg_request_destroy(sends[i]);
    }
    pair_drop(&pair);
}

/* Nor does it wait behind payload, there or back. */
static void passes_bulk(link_t link)
{
    enum { BULK = 48 << 20 };
    tmsg_request_t *there, *back, *sends[2];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sends[0] = send_map(pair.to_a, sample_bytes(1, BULK), 0);
    sends[1] = send_map(pair.to_b, sample_bytes(2, BULK), 0);
    must(tmsg_endpoint_ping(pair.to_a, &there));
    must(tmsg_endpoint_ping(pair.to_b, &back));
    must(pair_finish(&pair, there));
    must(pair_finish(&pair, back));
    must_eq(pair.to_b->ready.count, 0);
    must_eq(pair.to_a->ready.count, 0);
    must_be(tmsg_request_test(sends[0]), TMSG_IN_PROGRESS);
    must_be(tmsg_request_test(sends[1]), TMSG_IN_PROGRESS);
    tmsg_request_destroy(sends[0]);
    tmsg_request_destroy(sends[1]);
    pair_drop(&pair);
}

Test(stats, ping_passes_bulk_tcp) { passes_bulk(LINK_TCP); }
Test(stats, ping_passes_bulk_shm) { passes_bulk(LINK_SHM); }

Test(stats, ping_ends_with_its_endpoint)
{
    pair_t pair;
    tmsg_request_t *request;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_ping(pair.to_a, &request));
    tmsg_endpoint_destroy(pair.to_a);
    must_be(pair_finish(&pair, request), TMSG_ERR_CANCELED);
    pair_await(&pair, has_ended, pair.to_b, "the end");
    must_be(tmsg_endpoint_ping(pair.to_b, &request), TMSG_ERR_PEER_LOST);
    pair_drop(&pair);
}

Test(stats, ping_says_what_it_cannot)
{
    pair_t pair;
    tmsg_request_t *request;
    tmsg_endpoint_t *connecting;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.features = 0; /* as an older peer's */
    must_be(tmsg_endpoint_ping(pair.to_a, &request), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "answers no ping");
    connecting = side_dial(&pair.b, &pair.a);
    must_be(tmsg_endpoint_ping(connecting, &request), TMSG_ERR_BUSY);
    tmsg_endpoint_destroy(connecting);
    pair_drop(&pair);
}
