/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads play kernels that ring bells, while the workers' own threads send and
 * receive what they write and read. With an argument ("send", "receive") in one
 * direction alone, by a kernel that does not order what it does: that is a
 * race. */
#include <stdio.h>
#include <string.h>

#include "support/peers.h"
#include "support/played_kernels.h"

enum { BYTES = 200, LARGE = 100000, ROUNDS = 60, FEW = 6 };

static uint8_t out[LARGE], in[LARGE];

static void run(link_t link, size_t bytes, uint64_t rounds)
{
    tmsg_map_t *from = played_map(out, bytes), *into = played_map(in, bytes);
    tmsg_bell_t *sends, *receives;
    played_t sender, receiver;
    pair_t pair;

    pair_open(&pair, link, DRIVE_THREAD, NULL, NULL);
    must(tmsg_bell_create(pair.to_a, from, NULL, &sends));
    must(tmsg_bell_receive(pair.to_b, into, &receives));
    played_send(&sender, sends, out, bytes, rounds);
    played_receive(&receiver, receives, in, bytes, rounds);
    must_eq(played_join(&sender), 0);
    must_eq(played_join(&receiver), 0);
    tmsg_bell_destroy(receives);
    tmsg_bell_destroy(sends);
    tmsg_map_destroy(from);
    tmsg_map_destroy(into);
    pair_drop(&pair);
}

/* The other side is no kernel: every order is what the library makes it. */
static void run_sender(void)
{
    tmsg_map_t *map = played_map(out, BYTES);
    tmsg_bell_t *bell;
    played_t kernel;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    played_send(&kernel, bell, out, BYTES, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    must_eq(played_join(&kernel), 0);
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

static void run_receiver(void)
{
    tmsg_map_t *map = played_map(in, BYTES);
    played_t kernel, as = {.data = out, .bytes = BYTES};
    tmsg_bell_t *bell;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must(tmsg_bell_receive(pair.to_b, map, &bell));
    played_receive(&kernel, bell, in, BYTES, ROUNDS);
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        tmsg_map_t *sent = played_map(out, BYTES);

        played_fill(&as, n);
        must(pair_finish(&pair, send_map(pair.to_a, sent, TMSG_SEND_ACKED)));
    }
    must_eq(played_join(&kernel), 0);
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        played_weakly();
        if (strcmp(argv[1], "send") == 0) {
            run_sender();
        } else {
            run_receiver();
        }
        return 0;
    }
    for (int link = 0; link < LINKS; link++) {
        run((link_t)link, BYTES, ROUNDS);
        run((link_t)link, LARGE, FEW);
    }
    return 0;
}
