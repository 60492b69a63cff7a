/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "core/pieces.h"

static size_t sum(const struct iovec *places, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = places[i].iov_base;

        for (size_t j = 0; j < places[i].iov_len; j++) {
            cr_assert(zero(u8, at[j]));
        }
        bytes += places[i].iov_len;
    }
    return bytes;
}

Test(pieces, zeros_are_listed_as_far_as_there_is_room)
{
    struct iovec places[8];

    cr_expect(eq(sz, tmsg_pieces_list_zeros(0, places, 8), 0));
    cr_expect(eq(sz, tmsg_pieces_list_zeros(1, places, 8), 1));
    cr_expect(eq(sz, sum(places, 1), 1));
    cr_expect(eq(sz, tmsg_pieces_list_zeros(10000, places, 8), 3));
    cr_expect(eq(sz, sum(places, 3), 10000));
    cr_expect(eq(sz, tmsg_pieces_list_zeros(UINT64_MAX, places, 2), 2));
    cr_expect(eq(sz, sum(places, 2), 8192));
}
