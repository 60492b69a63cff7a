/* SPDX-License-Identifier: BSD-3-Clause */
/* core/pieces.h - bytes in one piece or in a list of pieces, which are moved a
 * part at a time. */
#ifndef TMSG_CORE_PIECES_H
#define TMSG_CORE_PIECES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Describes bytes of which some may have been moved. It is never copied: `at`
 * may point to `one`. */
typedef struct {
    struct iovec one;
    const struct iovec *at;
    size_t done; /* bytes of *at */
    uint64_t left;
} tmsg_pieces_t;

/* Begins with `length` bytes. With count > 1 `data` is a list of struct iovec,
 * which stays as long as the pieces are used. */
static inline void tmsg_pieces_begin(tmsg_pieces_t *pieces, const void *data,
                                     size_t count, uint64_t length)
{
    pieces->one = (struct iovec){(void *)(uintptr_t)data, length};
    pieces->at = count > 1 ? data : &pieces->one;
    pieces->done = 0;
    pieces->left = length;
}

/* Lists the next bytes, `most` at most. Returns the number of places. */
static inline size_t tmsg_pieces_list(const tmsg_pieces_t *pieces, size_t most,
                                      struct iovec *places, size_t room)
{
    const struct iovec *at = pieces->at;
    size_t done = pieces->done, count = 0;
    uint64_t left = pieces->left < most ? pieces->left : most;

    for (; left > 0 && count < room; at++) {
        size_t length = at->iov_len - done;

        if (length > left) {
            length = (size_t)left;
        }
        if (length > 0) {
            places[count++] =
                (struct iovec){(uint8_t *)at->iov_base + done, length};
        }
        left -= length;
        done = 0;
    }
    return count;
}

/* Lists zeros to be written: so many, or as many as there is room for. Returns
 * the number of places. */
size_t tmsg_pieces_list_zeros(uint64_t bytes, struct iovec *places,
                              size_t room);

static inline void tmsg_pieces_pass(tmsg_pieces_t *pieces, size_t moved)
{
    pieces->left -= moved;
    pieces->done += moved;
    while (pieces->left > 0 && pieces->done >= pieces->at->iov_len) {
        pieces->done -= pieces->at->iov_len;
        pieces->at++;
    }
}

#endif
