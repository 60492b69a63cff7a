/* SPDX-License-Identifier: BSD-3-Clause */
/* peer LINK WIRE_VERSION: the other side of test_peers.c, built with another
 * codec. The first line of its input is "listen", upon which it writes its
 * URL, or the URL to dial. It writes "refused: " and why, or goes through the
 * whole exchange. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "older/codec.h"
#include "older/exchange.h"

enum { INPUT = 0, OUTPUT = 1 };

uint8_t codec_wire_version;

void __wrap_tmsg_hello_fill_local(const uint8_t *instance_id,
                                  tmsg_hello_t *hello)
{
    __real_tmsg_hello_fill_local(instance_id, hello);
    hello->wire_version = codec_wire_version;
}

static void finish(side_t *side, tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                   tmsg_status_t wanted)
{
    /* The minimal dialect sets no flag. */
    unsigned flags = codec_is_minimal() ? 0 : TMSG_SEND_ACKED;

    must_be(side_finish(side, send_map(endpoint, map, flags)), wanted);
}

static void answer_samples(side_t *side, tmsg_endpoint_t *endpoint)
{
    for (size_t i = 0; i < exchange_count; i++) {
        const sample_t *sample = &exchange_samples[i];
        sample_t answer = exchange_answer(sample, codec_is_minimal());
        tmsg_message_t *message = side_take(side);

        sample_check(sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        finish(side, endpoint, sample_make(&answer), TMSG_OK);
    }
}

static void answer_burst(side_t *side, tmsg_endpoint_t *endpoint)
{
    for (uint64_t i = 0; i < EXCHANGE_BURST; i++) {
        tmsg_message_t *message = side_take(side);
        sample_t answer = {
            .seed = i, .tensors = 2, .without_metadata = codec_is_minimal()};

        sample_check_bytes(i, EXCHANGE_BURST_BYTES, tmsg_message_map(message));
        tmsg_message_destroy(message);
        tmsg_request_destroy(send_map(endpoint, sample_make(&answer), 0));
    }
}

static void exchange(side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message;
    codec_counts_t counts;

    answer_samples(side, endpoint);
    message = side_take(side);
    exchange_check_strided(tmsg_message_map(message));
    tmsg_message_destroy(message);
    answer_burst(side, endpoint);
    if (!codec_is_minimal()) {
        finish(side, endpoint, exchange_critical(), TMSG_ERR_UNSUPPORTED);
        finish(side, endpoint, exchange_strided(), TMSG_OK);
    }
    must_be(side_end_of(side, endpoint), TMSG_ERR_CLOSED);
    counts = codec_counts();
    must_eq(counts.read, exchange_count + 1 + EXCHANGE_BURST);
    must_eq(counts.written,
            exchange_count + EXCHANGE_BURST + (codec_is_minimal() ? 0 : 2));
}

/* NULL: refused, which it has said. */
static tmsg_endpoint_t *dial(side_t *side, const char *url)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    char line[512];

    must(tmsg_endpoint_connect(side->worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    if (side_wait(side, ready) == TMSG_OK) {
        tmsg_request_destroy(ready);
        return endpoint;
    }
    snprintf(line, sizeof(line), "refused: %s", tmsg_request_error(ready));
    line_put(OUTPUT, line);
    tmsg_request_destroy(ready);
    return NULL;
}

static link_t link_of(const char *name)
{
    link_t link = 0;

    while (link < LINKS && strcmp(link_names[link], name) != 0) {
        link++;
    }
    must_true(link < LINKS);
    return link;
}

int main(int argc, char **argv)
{
    tmsg_endpoint_t *endpoint;
    char line[256];
    link_t link;
    side_t side;

    must_eq(argc, 3);
    link = link_of(argv[1]);
    codec_wire_version = (uint8_t)atoi(argv[2]);
    line_get(INPUT, line, sizeof(line));
    exchange_open(&side, link);
    if (strcmp(line, "listen") == 0) {
        side_listen_link(&side, link);
        line_put(OUTPUT, tmsg_listener_url(side.listener));
        endpoint = side_accept(&side);
    } else {
        endpoint = dial(&side, line);
    }
    if (endpoint != NULL) {
        exchange(&side, endpoint);
    }
    side_close(&side);
    return 0;
}
