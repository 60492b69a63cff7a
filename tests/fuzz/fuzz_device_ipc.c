/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames about device memory that a peer opens. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "am/path/ipc_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t again[TMSG_IPC_FRAME_BYTES + TMSG_IPC_WORDS_BYTES];
    tmsg_ipc_frame_t frame = {.word = TMSG_IPC_CLOSED};
    size_t bytes;

    if (tmsg_ipc_frame_decode(data, size, &frame) != TMSG_OK) {
        assert(frame.word == TMSG_IPC_CLOSED && frame.number == 0);
        return 0;
    }
    assert(frame.word <= TMSG_IPC_CLOSED && frame.number != 0);
    assert(memchr(frame.name.uuid, '\0', sizeof(frame.name.uuid)) != NULL);
    assert(frame.word != TMSG_IPC_OFFER || frame.name.bytes > 0);
    /* What is understood says the same when it is written. */
    bytes = tmsg_ipc_frame_encode(&frame, again);
    assert(bytes <= size && memcmp(again, data, bytes) == 0);
    return 0;
}
