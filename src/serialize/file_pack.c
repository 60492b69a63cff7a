/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core/tensor.h"
#include "serialize/file.h"

void tmsg_file_pack_begin(tmsg_file_pack_t *pack, const tmsg_tensor_t *tensor,
                          bool as_it_lies)
{
    int64_t run = 1;
    uint64_t bytes = 0;

    tmsg_tensor_bytes(tensor, &bytes); /* checked before: cannot fail */
    *pack = (tmsg_file_pack_t){.at = tensor->data,
                               .left = bytes,
                               .run_bytes = bytes,
                               .element = tmsg_dtype_bytes(tensor->dtype),
                               .shape = tensor->shape,
                               .strides = tensor->strides};
    if (as_it_lies || tmsg_tensor_is_contiguous(tensor)) {
        return;
    }
    pack->outer = tensor->ndim;
    while (pack->outer > 0 && (pack->shape[pack->outer - 1] == 1 ||
                               pack->strides[pack->outer - 1] == run)) {
        run *= pack->shape[--pack->outer];
    }
    pack->run_bytes = (uint64_t)run * pack->element;
}

/* On to the next run: like an odometer, the last dimension turns fastest. */
static void step(tmsg_file_pack_t *pack)
{
    int32_t i = pack->outer - 1;

    pack->run_done = 0;
    while (i >= 0) {
        int64_t stride = pack->strides[i] * (int64_t)pack->element;

        if (++pack->index[i] < pack->shape[i]) {
            pack->at += stride;
            return;
        }
        pack->at -= stride * (pack->shape[i] - 1);
        pack->index[i--] = 0;
    }
}

uint64_t tmsg_file_pack_read(tmsg_file_pack_t *pack, void *buffer,
                             uint64_t bytes)
{
    uint8_t *to = buffer;

    bytes = bytes < pack->left ? bytes : pack->left;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = pack->run_bytes - pack->run_done;

        piece = piece < bytes - done ? piece : bytes - done;
        memcpy(to + done, pack->at + pack->run_done, piece);
        done += piece;
        pack->run_done += piece;
        if (pack->run_done == pack->run_bytes && done < pack->left) {
            step(pack);
        }
    }
    pack->left -= bytes;
    return bytes;
}
