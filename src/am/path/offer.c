/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/offer.h"

#include <string.h>

#include "am/endpoint/link_ops.h"
#include "am/net/unwanted.h"
#include "am/path/bulk_ring.h"
#include "am/path/fastboxes.h"
#include "core/bytes.h"

#define FRAME_BYTES (1 + TMSG_SEGMENT_MARK_BYTES) /* u8 word, mark */

bool tmsg_offer_send(tmsg_endpoint_t *endpoint, uint8_t word,
                     const tmsg_segment_t *segment)
{
    uint8_t frame[FRAME_BYTES] = {word};

    memcpy(frame + 1, segment->memory, TMSG_SEGMENT_MARK_BYTES);
    if (tmsg_link_ops.put_fd(endpoint, TMSG_FRAME_RING, frame, sizeof(frame),
                             segment->fd) != TMSG_OK) {
        return tmsg_control_offer(endpoint, word, segment);
    }
    tmsg_control_ring(endpoint, TMSG_RING_WORD_LOOK);
    return true;
}

bool tmsg_offer_is_word(uint8_t word)
{
    return word == TMSG_RING_WORD_OFFER || word == TMSG_RING_WORD_FASTBOX;
}

bool tmsg_offer_is_there(const tmsg_endpoint_t *endpoint,
                         const tmsg_segment_offer_t *offer)
{
    const char *why;

    if (!offer->passed) {
        return true;
    }
    if (!tmsg_link_ops.passes(endpoint, &why)) {
        tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", why);
        return false;
    }
    if (offer->fd < 0) {
        tmsg_error_set(TMSG_ERR_IO, "%s", tmsg_frame_fd_words(offer->fd));
        return false;
    }
    return true;
}

static void take_offer(tmsg_endpoint_t *endpoint, uint8_t word,
                       const tmsg_segment_offer_t *offer)
{
    if (word == TMSG_RING_WORD_OFFER) {
        tmsg_ring_offered(endpoint, offer);
    } else {
        tmsg_fastboxes_offered(endpoint, offer);
    }
}

void tmsg_offer_arrived(tmsg_endpoint_t *endpoint, const uint8_t *body)
{
    const tmsg_segment_offer_t offer = {
        .pid = (pid_t)endpoint->peer_hello.pid,
        .fd = (int)tmsg_get_le(body + 1, 4),
        .mark = body + 1 + 4,
    };

    take_offer(endpoint, body[0], &offer);
}

tmsg_status_t tmsg_offer_frame(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes, int fd)
{
    const tmsg_segment_offer_t offer = {
        .passed = true, .fd = fd, .mark = data + 1};
    tmsg_status_t status = TMSG_OK;

    if (bytes != FRAME_BYTES || !tmsg_offer_is_word(data[0])) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "a malformed offer of shared memory");
    } else {
        take_offer(endpoint, data[0], &offer);
    }
    tmsg_unwanted_close(fd);
    return status;
}
