/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/call.h"

#include <string.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/utf8.h"
#include "serialize/header.h"

/* These are the offsets of the fields. AT_BYTES is the preamble's own length.
 * All other fields lie behind the preamble of a map. */
enum {
    AT_BYTES = 3,
    AT_TYPE = 33,
    AT_FLAGS = 34,
    AT_TEXT_BYTES = 35,
    AT_STATUS = 36,
    AT_ID = 40,
    AT_MORE = 48,
    AT_STREAM = 52,
    AT_TEXT = TMSG_CALL_BYTES
};

static bool has_time(uint8_t type)
{
    return type == TMSG_CALL_REQUEST || type == TMSG_STREAM_OPEN;
}

size_t tmsg_call_preamble_bytes(const tmsg_call_head_t *head)
{
    return AT_TEXT + head->text_bytes;
}

void tmsg_call_renumber(const tmsg_call_head_t *head, uint8_t *preamble)
{
    uint64_t more = has_time(head->type)
                        ? head->left_us
                        : (uint64_t)head->stream << 32 | (uint32_t)head->code;

    tmsg_put_le(preamble + AT_ID, head->id, 8);
    tmsg_put_le(preamble + AT_MORE, more, 8);
}

void tmsg_call_encode(const tmsg_call_head_t *head, uint8_t *preamble)
{
    preamble[AT_BYTES] = (uint8_t)tmsg_call_preamble_bytes(head);
    preamble[AT_TYPE] = head->type;
    preamble[AT_FLAGS] = head->flags;
    preamble[AT_TEXT_BYTES] = (uint8_t)head->text_bytes;
    tmsg_put_le(preamble + AT_STATUS, (uint32_t)head->status, 4);
    tmsg_call_renumber(head, preamble);
    memcpy(preamble + AT_TEXT, head->text, head->text_bytes);
}

bool tmsg_call_is_like(const uint8_t *preamble, const tmsg_call_head_t *head)
{
    return preamble[AT_TYPE] == head->type &&
           preamble[AT_FLAGS] == head->flags &&
           preamble[AT_TEXT_BYTES] == head->text_bytes &&
           (int32_t)tmsg_get_le(preamble + AT_STATUS, 4) == head->status &&
           tmsg_is_same(preamble + AT_TEXT, head->text, head->text_bytes);
}

/* Returns the fields of a preamble that is long enough to have them. */
static tmsg_call_head_t read_head(const uint8_t *preamble)
{
    tmsg_call_head_t head = {
        .type = preamble[AT_TYPE],
        .flags = preamble[AT_FLAGS],
        .status = (int32_t)tmsg_get_le(preamble + AT_STATUS, 4),
        .id = tmsg_get_le(preamble + AT_ID, 8),
        .text = (const char *)preamble + AT_TEXT,
        .text_bytes = preamble[AT_TEXT_BYTES],
    };

    if (has_time(head.type)) {
        head.left_us = tmsg_get_le(preamble + AT_MORE, 8);
    } else {
        head.code = (int32_t)tmsg_get_le(preamble + AT_MORE, 4);
        head.stream = (uint16_t)tmsg_get_le(preamble + AT_STREAM, 2);
    }
    return head;
}

bool tmsg_call_repeats(const uint8_t *before, const uint8_t *header,
                       size_t bytes, uint32_t *message_id_p,
                       uint32_t *sequence_p, tmsg_call_head_t *head_p)
{
    if (!tmsg_preamble_repeats(before, header, AT_ID, message_id_p,
                               sequence_p) ||
        !tmsg_is_same(header + AT_TEXT, before + AT_TEXT, bytes - AT_TEXT)) {
        return false;
    }
    *head_p = read_head(header);
    return true;
}

tmsg_status_t tmsg_call_decode(const uint8_t *preamble, size_t bytes,
                               tmsg_call_head_t *head_p)
{
    tmsg_call_head_t head;

    if (bytes < AT_TEXT || preamble[AT_TEXT_BYTES] > bytes - AT_TEXT) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "call: its preamble ends after %zu bytes", bytes);
    }
    head = read_head(preamble);
    if (head.type < TMSG_CALL_REQUEST || head.type > TMSG_STREAM_OVER) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "call: type %u is not known here", head.type);
    }
    if (!tmsg_utf8_valid(head.text, head.text_bytes) ||
        memchr(head.text, '\0', head.text_bytes) != NULL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "call: its text is not UTF-8");
    }
    *head_p = head;
    return TMSG_OK;
}
