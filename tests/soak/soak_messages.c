/* SPDX-License-Identifier: BSD-3-Clause */
/* 100,000 maps of random sizes and shapes over each link, both ways, every one
 * checked; then a map of more than 4 GiB. The place is kept after each link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/soak_progress.h"

enum { MESSAGES = 100000, AHEAD = 50 };

/* The n-th message of a run: mostly small, now and then large. */
static sample_t message_of(uint64_t seed, uint64_t n)
{
    uint64_t state = seed + n;
    uint64_t dice = sample_random(&state);
    sample_t sample = {.seed = state, .tensors = 1 + dice % 20};

    if (dice % 50 == 0) {
        sample.name_bytes = 300 + dice % 3000;
    }
    if (dice % 20 == 1) {
        sample.shape = SAMPLE_VECTOR;
        sample.tensors = 1 + dice % 4;
        sample.elements = 1 + dice % 30000;
    }
    return sample;
}

static void run_link(link_t link, uint64_t seed)
{
    uint64_t sent = 0;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        sample_t sample;
        tmsg_message_t *message;

        for (; sent < MESSAGES && sent < n + AHEAD; sent++) {
            sample = message_of(seed, sent);
            tmsg_request_destroy(send_map(sent % 2 ? pair.to_b : pair.to_a,
                                          sample_make(&sample),
                                          sent % 3 ? 0 : TMSG_SEND_ACKED));
        }
        sample = message_of(seed, n);
        message = pair_take(&pair, n % 2 ? &pair.b : &pair.a);
        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    printf("%s: %d maps, seed %llu\n", link_names[link], MESSAGES,
           (unsigned long long)seed);
}

/* One tensor of 4 GiB and a bit, and two beside it. */
static void run_huge(link_t link)
{
    const size_t bytes = ((size_t)4 << 30) + 12345;
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, sample_bytes(5, bytes), TMSG_SEND_ACKED);
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(5, bytes, tmsg_message_map(message));
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair_close(&pair);
    printf("%s: a map of %zu bytes\n", link_names[link], bytes);
}

int main(void)
{
    uint64_t seed = soak_seed();
    const char *name = "messages";

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t slice = soak_place(name); slice < 2 * LINKS; slice++) {
        if (slice < LINKS) {
            run_link((link_t)slice, seed);
        } else {
            run_huge((link_t)(slice - LINKS));
        }
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0); /* the next soak begins anew */
    return 0;
}
