/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/ipc_wire.h"

#include <string.h>

#include "core/bytes.h"
#include "core/error.h"

#define HEAD_BYTES (1 + 4) /* word, number */

static size_t encode_offer(const tmsg_ipc_name_t *name, uint8_t *to)
{
    size_t uuid_bytes = strlen(name->uuid);

    tmsg_put_le(to, name->bytes, 8);
    memcpy(to + 8, name->id, sizeof(name->id));
    memcpy(to + 8 + sizeof(name->id), name->handle, sizeof(name->handle));
    memcpy(to + TMSG_IPC_OFFER_BYTES - HEAD_BYTES, name->uuid, uuid_bytes);
    return TMSG_IPC_OFFER_BYTES - HEAD_BYTES + uuid_bytes;
}

size_t tmsg_ipc_frame_encode(const tmsg_ipc_frame_t *frame, uint8_t *to)
{
    size_t bytes = 0;

    to[0] = (uint8_t)frame->word;
    tmsg_put_le(to + 1, frame->number, 4);
    if (frame->word == TMSG_IPC_OFFER) {
        bytes = encode_offer(&frame->name, to + HEAD_BYTES);
    } else if (frame->word == TMSG_IPC_REFUSED) {
        bytes = frame->why_bytes < TMSG_IPC_WORDS_BYTES ? frame->why_bytes
                                                        : TMSG_IPC_WORDS_BYTES;
        memcpy(to + HEAD_BYTES, frame->why, bytes);
    }
    return HEAD_BYTES + bytes;
}

static tmsg_status_t decode_offer(const uint8_t *data, size_t bytes,
                                  tmsg_ipc_name_t *name)
{
    size_t fixed = TMSG_IPC_OFFER_BYTES - HEAD_BYTES;
    size_t uuid_bytes = bytes - fixed;

    if (bytes <= fixed || uuid_bytes >= TMSG_IPC_UUID_BYTES ||
        memchr(data + fixed, '\0', uuid_bytes) != NULL ||
        tmsg_get_le(data, 8) == 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a malformed offer of device memory");
    }
    name->bytes = tmsg_get_le(data, 8);
    memcpy(name->id, data + 8, sizeof(name->id));
    memcpy(name->handle, data + 8 + sizeof(name->id), sizeof(name->handle));
    memcpy(name->uuid, data + fixed, uuid_bytes);
    name->uuid[uuid_bytes] = '\0';
    return TMSG_OK;
}

tmsg_status_t tmsg_ipc_frame_decode(const uint8_t *data, size_t bytes,
                                    tmsg_ipc_frame_t *frame_p)
{
    tmsg_ipc_frame_t frame = {.number = 0};
    size_t left = bytes - HEAD_BYTES;

    if (bytes < HEAD_BYTES || data[0] > TMSG_IPC_CLOSED ||
        tmsg_get_le(data + 1, 4) == 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a malformed frame about device memory");
    }
    frame.word = (tmsg_ipc_word_t)data[0];
    frame.number = (uint32_t)tmsg_get_le(data + 1, 4);
    if (frame.word == TMSG_IPC_OFFER) {
        tmsg_status_t status =
            decode_offer(data + HEAD_BYTES, left, &frame.name);

        if (status != TMSG_OK) {
            return status;
        }
    } else if (frame.word == TMSG_IPC_REFUSED) {
        frame.why = (const char *)data + HEAD_BYTES;
        frame.why_bytes =
            left < TMSG_IPC_WORDS_BYTES ? left : TMSG_IPC_WORDS_BYTES;
    }
    *frame_p = frame;
    return TMSG_OK;
}
