/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/fragments_bulk.h"

#include "am/endpoint/channel.h"
#include "am/recv/fetch.h"
#include "am/recv/fragments_layout.h"
#include "am/recv/message.h"
#include "am/recv/receive.h"
#include "core/map.h"

/* Returns the message that a fragment belongs to, if the message awaits
 * fragments, or NULL. */
static tmsg_message_t *find_awaiting(tmsg_endpoint_t *endpoint,
                                     const tmsg_bulk_head_t *head)
{
    const tmsg_channel_t *channel = tmsg_channel_find(endpoint, head->channel);
    tmsg_message_t *message =
        channel == NULL ? NULL : tmsg_message_find(channel, head->sequence);

    return message != NULL && tmsg_message_awaits_fragments(message) ? message
                                                                     : NULL;
}

const char *tmsg_fragments_bulk_place(tmsg_endpoint_t *endpoint,
                                      const tmsg_bulk_head_t *head,
                                      tmsg_bulk_place_t *place)
{
    tmsg_message_t *message = find_awaiting(endpoint, head);
    tmsg_fragment_range_t range;
    const char *wrong;

    if (message == NULL) {
        return NULL;
    }
    wrong =
        tmsg_fragments_layout_claim(message, head->number, head->bytes, &range);
    if (wrong != NULL) {
        return wrong;
    }
    place->data = range.is_slice
                      ? tmsg_fragments_layout_slice(message, &range,
                                                    &place->list, &place->count)
                      : (uint8_t *)tmsg_map_entries(message->map)[range.index]
                                .tensor.data +
                            range.offset;
    message->pending++;
    if (place->data == NULL) {
        tmsg_message_refuse(message, TMSG_ERR_NO_MEMORY,
                            "no memory for a list of a message's tensors");
        tmsg_message_fetched(message, TMSG_UCX_OK);
    } else {
        place->message = message;
    }
    return NULL;
}

void tmsg_fragments_bulk_landed(tmsg_message_t *message, tmsg_ucx_status_t ucs)
{
    if (ucs == TMSG_UCX_OK) {
        tmsg_fragments_layout_landed(message);
    }
    tmsg_message_fetched(message, ucs);
}
