/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/pieces.h"

size_t tmsg_pieces_list_zeros(uint64_t bytes, struct iovec *places, size_t room)
{
    static uint8_t zeros[4096];
    size_t count = 0;

    for (; bytes > 0 && count < room; count++) {
        size_t some = bytes < sizeof(zeros) ? (size_t)bytes : sizeof(zeros);

        places[count] = (struct iovec){zeros, some};
        bytes -= some;
    }
    return count;
}
