/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and reads what goes by a bulk stream: fragments, each behind a header.
 *
 *      0     1     2     3     4     5     6     7
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 0 |  channel  |     0     |       sequence        |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 8 | number of the fragment|           0           |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 *16 |                    its bytes                  |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fragments.h"
#include "am/path/bulk.h"
#include "am/path/bulk_user.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/probe.h"

/* A turn moves this many bytes in each direction. While small messages pass by
 * the same endpoint it moves fewer, which the mover says. */
#define LONE_TURN_BYTES ((size_t)1024 * 1024)
#define PLACES_MOST (IOV_MAX - 1) /* by one call; a header takes one more */

size_t tmsg_bulk_turn_bytes(tmsg_bulk_t *bulk)
{
    return tmsg_endpoint_is_alone(bulk->endpoint, &bulk->others)
               ? LONE_TURN_BYTES
               : bulk->mover->turn_bytes;
}

bool tmsg_bulk_has_output(const tmsg_bulk_t *bulk)
{
    return !bulk->out.waits &&
           (bulk->out.busy || bulk->endpoint->pulled.count > 0);
}

static bool begin_out(tmsg_bulk_t *bulk)
{
    tmsg_bulk_out_t *out = &bulk->out;
    const tmsg_fragment_t *fragment = &out->fragment;

    if (!tmsg_bulk_user.next(bulk->endpoint, &out->fragment)) {
        return false;
    }
    memset(out->header, 0, sizeof(out->header));
    tmsg_put_le(out->header, fragment->channel, 2);
    tmsg_put_le(out->header + 4, fragment->sequence, 4);
    tmsg_put_le(out->header + 8, fragment->number, 4);
    tmsg_put_le(out->header + 16, fragment->bytes, 8);
    out->header_left = sizeof(out->header);
    tmsg_pieces_begin(&out->bytes, fragment->data, fragment->count,
                      fragment->bytes);
    out->busy = true;
    return true;
}

static void end_out(tmsg_bulk_t *bulk, tmsg_ucx_status_t ucs)
{
    bool fills = bulk->out.fills;

    bulk->out.busy = false;
    bulk->out.fills = false;
    bulk->out.waits = false;
    if (!fills) {
        tmsg_bulk_user.handed(&bulk->out.fragment, ucs);
    }
}

/* Returns where the kernel stopped: at memory that it cannot read, or at the
 * first place, if the reason is gone by now. */
static const void *find_unreadable(const struct iovec *places, size_t count)
{
    const void *found = NULL;

    for (size_t i = 0; i < count && found == NULL; i++) {
        found = tmsg_probe(places[i].iov_base, places[i].iov_len);
    }
    return found != NULL || count == 0 ? found : places[0].iov_base;
}

/* Fails the message of a fragment whose memory is gone, and nothing else. A
 * peer that has some of the fragment waits for its rest, which is filled with
 * zeros. They must not come before the ABORT: the peer would deliver them. */
static void fill_up(tmsg_bulk_t *bulk, const struct iovec *places, size_t count)
{
    tmsg_bulk_out_t *out = &bulk->out;
    const tmsg_endpoint_t *endpoint = bulk->endpoint;
    size_t heads = out->header_left > 0;
    bool begun = out->header_left < sizeof(out->header);
    tmsg_fragment_t fragment = out->fragment;
    const void *at = find_unreadable(places + heads, count - heads);

    out->busy = begun;
    out->fills = begun;
    out->waits = begun;
    out->asked = false;
    tmsg_pieces_begin(&out->bytes, NULL, 0, out->bytes.left);
    tmsg_bulk_user.unreadable(&fragment, at);
    if (begun && !tmsg_ping_is_known(endpoint)) {
        tmsg_bulk_lose(bulk, TMSG_ERR_IO,
                       "memory of a message that was being sent cannot be "
                       "read, and the peer could not be told");
    }
}

static void give_up_out(tmsg_bulk_t *bulk, const struct iovec *places,
                        size_t count)
{
    if (bulk->out.fills) {
        tmsg_bulk_lose(bulk, TMSG_ERR_PEER_LOST, "its own memory was unmapped");
    } else {
        fill_up(bulk, places, count);
    }
}

/* Returns whether the peer has the ABORT: it has answered a ping that was sent
 * behind it. */
static bool may_fill(tmsg_bulk_t *bulk)
{
    tmsg_bulk_out_t *out = &bulk->out;
    tmsg_endpoint_t *endpoint = bulk->endpoint;

    if (out->asked &&
        (endpoint->ping_id != out->ping || endpoint->ping_ns == 0)) {
        out->waits = false;
    } else if (!out->asked && endpoint->ping_ns == 0 &&
               !tmsg_control_waits(endpoint)) {
        if (tmsg_ping_send(endpoint) != TMSG_OK) {
            tmsg_bulk_lose(bulk, TMSG_ERR_PEER_LOST, tmsg_error_message());
            return false;
        }
        out->ping = endpoint->ping_id;
        out->asked = true;
    }
    return !out->waits;
}

/* Lists what one call is to write: the rest of a header, and bytes behind it,
 * `most` together. Returns the number of places, which is not above `room`. */
static size_t list_out(tmsg_bulk_out_t *out, size_t most, struct iovec *places,
                       size_t room)
{
    size_t heads = out->header_left > 0;
    size_t left = most > out->header_left ? most - out->header_left : 0;
    uint64_t zeros = out->bytes.left < left ? out->bytes.left : left;

    places[0] = (struct iovec){
        out->header + sizeof(out->header) - out->header_left, out->header_left};
    return heads +
           (out->fills
                ? tmsg_pieces_list_zeros(zeros, places + heads, room - heads)
                : tmsg_pieces_list(&out->bytes, left, places + heads,
                                   room - heads));
}

static void note_written(tmsg_bulk_t *bulk, size_t moved)
{
    tmsg_bulk_out_t *out = &bulk->out;
    size_t of_header = moved < out->header_left ? moved : out->header_left;

    bulk->written += moved;
    out->header_left -= of_header;
    tmsg_pieces_pass(&out->bytes, moved - of_header);
    if (out->header_left == 0 && out->bytes.left == 0) {
        end_out(bulk, TMSG_UCX_OK);
    }
}

size_t tmsg_bulk_begin_write(tmsg_bulk_t *bulk, size_t most, bool first,
                             struct iovec *places, size_t room)
{
    const tmsg_mover_t *mover = bulk->mover;
    size_t some;

    if (most == 0 || bulk->lost || (!bulk->out.busy && !begin_out(bulk))) {
        return 0;
    }
    some = mover->trim == NULL ? most : mover->trim(bulk, most, first);
    if (some == 0 || (bulk->out.waits && !may_fill(bulk))) {
        return 0;
    }
    return list_out(&bulk->out, some, places, room);
}

/* Judges what the mover returned. Returns the bytes that were moved; 0: none
 * can be, for now or for ever. */
static size_t judge(tmsg_bulk_t *bulk, ssize_t moved)
{
    if (moved > 0) {
        bulk->used = true;
        return (size_t)moved;
    }
    if (moved != -EAGAIN && moved != -EWOULDBLOCK && moved != -EINTR &&
        moved != -ENOBUFS) {
        tmsg_status_t status = bulk->mover->explain(bulk, (int)-moved);

        tmsg_bulk_lose(bulk, status, tmsg_error_message());
    }
    return 0;
}

size_t tmsg_bulk_end_write(tmsg_bulk_t *bulk, const struct iovec *places,
                           size_t count, ssize_t moved)
{
    size_t bytes;

    if (moved == -EFAULT) {
        give_up_out(bulk, places, count);
        return 0;
    }
    bytes = judge(bulk, moved);
    if (bytes > 0) {
        note_written(bulk, bytes);
    }
    return bytes;
}

size_t tmsg_bulk_write(tmsg_bulk_t *bulk, size_t most)
{
    struct iovec places[PLACES_MOST + 1];
    size_t all = 0, some, count;

    do {
        count = tmsg_bulk_begin_write(bulk, most - all, all == 0, places,
                                      PLACES_MOST + 1);
        some =
            count == 0
                ? 0
                : tmsg_bulk_end_write(bulk, places, count,
                                      bulk->mover->write(bulk, places, count));
        all += some;
    } while (some > 0);
    return all;
}

static void begin_in(tmsg_bulk_t *bulk)
{
    const uint8_t *header = bulk->in.header;
    const tmsg_bulk_head_t head = {
        .channel = (uint16_t)tmsg_get_le(header, 2),
        .sequence = (uint32_t)tmsg_get_le(header + 4, 4),
        .number = (uint32_t)tmsg_get_le(header + 8, 4),
        .bytes = tmsg_get_le(header + 16, 8),
    };
    tmsg_bulk_place_t *place = &bulk->in.place;
    const char *wrong;

    *place = (tmsg_bulk_place_t){.message = NULL};
    if (head.bytes == 0 ||
        head.bytes > bulk->endpoint->worker->context->limits.message_bytes) {
        wrong = "a fragment of an impossible length";
    } else {
        wrong = tmsg_bulk_user.place(bulk->endpoint, &head, place);
    }
    tmsg_pieces_begin(&bulk->in.bytes, place->data, place->count, head.bytes);
    if (wrong != NULL) {
        tmsg_bulk_lose(bulk, TMSG_ERR_MALFORMED, wrong);
    }
}

static void end_in(tmsg_bulk_t *bulk, tmsg_ucx_status_t ucs)
{
    tmsg_message_t *message = bulk->in.place.message;

    free(bulk->in.place.list);
    bulk->in.place = (tmsg_bulk_place_t){.message = NULL};
    bulk->in.header_read = 0;
    if (message != NULL) {
        tmsg_bulk_user.landed(message, ucs);
    }
}

static bool awaits_header(const tmsg_bulk_in_t *in)
{
    return in->header_read < sizeof(in->header);
}

void tmsg_bulk_expect(tmsg_bulk_t *bulk, size_t most)
{
    const tmsg_bulk_in_t *in = &bulk->in;
    uint64_t left = in->bytes.left < most ? in->bytes.left : most;

    if (!bulk->lost && bulk->mover->expect != NULL) {
        bulk->mover->expect(bulk, awaits_header(in) ? 0 : left);
    }
}

/* Lists where the next bytes go, `most` at most. Returns the number of places;
 * 0: the bytes are thrown away. */
static size_t list_in(tmsg_bulk_in_t *in, size_t most, struct iovec *places,
                      size_t room)
{
    if (awaits_header(in)) {
        places[0] = (struct iovec){in->header + in->header_read,
                                   sizeof(in->header) - in->header_read};
        return 1;
    }
    return in->place.message == NULL
               ? 0
               : tmsg_pieces_list(&in->bytes, most, places, room);
}

size_t tmsg_bulk_end_read(tmsg_bulk_t *bulk, ssize_t moved)
{
    tmsg_bulk_in_t *in = &bulk->in;
    size_t bytes = judge(bulk, moved);

    if (bytes == 0) {
        return 0;
    }
    bulk->read += bytes;
    if (awaits_header(in)) {
        in->header_read += bytes;
        if (!awaits_header(in)) {
            begin_in(bulk);
        }
        return bytes;
    }
    tmsg_pieces_pass(&in->bytes, bytes);
    if (in->bytes.left == 0) {
        end_in(bulk, TMSG_UCX_OK);
    }
    return bytes;
}

/* Reads once, and returns as tmsg_bulk_end_read(). */
static size_t read_some(tmsg_bulk_t *bulk, size_t most)
{
    struct iovec places[PLACES_MOST];
    uint64_t left = bulk->in.bytes.left;
    size_t count;

    tmsg_bulk_expect(bulk, most);
    count = list_in(&bulk->in, most, places, PLACES_MOST);
    if (count == 0 && left < most) {
        most = (size_t)left;
    }
    return tmsg_bulk_end_read(bulk,
                              bulk->mover->read(bulk, places, count, most));
}

size_t tmsg_bulk_begin_read(tmsg_bulk_t *bulk, size_t most,
                            struct iovec *places, size_t room, size_t *read_p)
{
    const tmsg_bulk_in_t *in = &bulk->in;
    size_t all = 0, some = 1;

    while (some > 0 && all < most && !bulk->lost &&
           (awaits_header(in) || in->place.message == NULL)) {
        some = read_some(bulk, most - all);
        all += some;
    }
    *read_p = all;
    return some > 0 && all < most && !bulk->lost
               ? list_in(&bulk->in, most - all, places, room)
               : 0;
}

size_t tmsg_bulk_read(tmsg_bulk_t *bulk, size_t most)
{
    size_t all = 0, some = 1;

    while (some > 0 && all < most && !bulk->lost) {
        some = read_some(bulk, most - all);
        all += some;
    }
    tmsg_bulk_expect(bulk, most);
    return all;
}

void tmsg_bulk_drop(tmsg_bulk_t *bulk)
{
    if (bulk->out.busy) {
        end_out(bulk, TMSG_UCX_CANCELED);
    }
    end_in(bulk, TMSG_UCX_CANCELED);
}
