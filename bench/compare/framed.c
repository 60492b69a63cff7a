/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "way.h"

void compare_framed_load(compare_framed_t *framed, const bench_run_t *run)
{
    bench_side_t *side = &framed->side;

    bench_side_load(side, run, false);
    framed->outs = bench_memory(side->payload_count * sizeof(*framed->outs));
    for (size_t i = 0; i < side->payload_count; i++) {
        framing_out_create(&side->payloads[i], &framed->outs[i]);
    }
}

void compare_framed_unload(compare_framed_t *framed)
{
    for (size_t i = 0; i < framed->side.payload_count; i++) {
        framing_out_free(&framed->outs[i]);
    }
    free(framed->outs);
    framing_in_free(&framed->in);
    bench_side_unload(&framed->side);
}

const framing_out_t *compare_framed_next(compare_framed_t *framed)
{
    const framing_out_t *out = &framed->outs[framed->side.turn];

    (void)bench_side_next(&framed->side);
    return out;
}

void compare_framed_arrived(compare_framed_t *framed)
{
    bench_side_t *side = &framed->side;

    if (side->check) {
        framing_check(&framed->in, bench_side_expected(side));
        side->checked++;
    }
    side->received++;
}

void compare_framed_answered(compare_framed_t *framed)
{
    framed->side.received++;
}
