/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes by a lane: parts, each behind a header.
 *
 *      0     1     2     3     4     5     6     7
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 0 |  channel  |     0     |       sequence        |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 * 8 |    number of the part |           0           |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 *16 |                    its bytes                  |
 *   +-----+-----+-----+-----+-----+-----+-----+-----+
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fragments.h"
#include "am/path/lane_ring.h"
#include "am/path/lane_user.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/probe.h"

/* Bytes that a turn moves in each direction: what else has come waits while the
 * kernel copies them. Few, while small messages pass by the same endpoint. */
#define TURN_BYTES ((size_t)128 * 1024)
#define RING_TURN_BYTES ((size_t)64 * 1024) /* by shared memory */
#define LONE_TURN_BYTES ((size_t)1024 * 1024)
#define LOW_MOST ((size_t)256 * 1024) /* that are waited for, to be read */
#define LOW_LEAST ((size_t)64 * 1024)
#define PLACES_MOST (IOV_MAX - 1) /* by one call; of a header is one more */

static void begin_bytes(tmsg_lane_bytes_t *bytes, const void *data,
                        size_t count, uint64_t length)
{
    bytes->one = (ucp_dt_iov_t){(void *)(uintptr_t)data, length};
    bytes->at = count > 1 ? data : &bytes->one;
    bytes->done = 0;
    bytes->left = length;
}

/* The next of them, `most` at most; gives the number of places. */
static size_t list_bytes(const tmsg_lane_bytes_t *bytes, size_t most,
                         struct iovec *places, size_t room)
{
    const ucp_dt_iov_t *at = bytes->at;
    size_t done = bytes->done, count = 0;
    uint64_t left = bytes->left < most ? bytes->left : most;

    for (; left > 0 && count < room; at++) {
        size_t length = at->length - done;

        if (length > left) {
            length = (size_t)left;
        }
        if (length > 0) {
            places[count++] =
                (struct iovec){(uint8_t *)at->buffer + done, length};
        }
        left -= length;
        done = 0;
    }
    return count;
}

static void pass_bytes(tmsg_lane_bytes_t *bytes, size_t moved)
{
    bytes->left -= moved;
    bytes->done += moved;
    while (bytes->left > 0 && bytes->done >= bytes->at->length) {
        bytes->done -= bytes->at->length;
        bytes->at++;
    }
}

/* Bytes that a call moved; 0: none can be, for now or for ever. */
static size_t judge(tmsg_lane_t *lane, ssize_t moved)
{
    if (moved > 0) {
        lane->used = true;
        return (size_t)moved;
    }
    if (moved == 0) {
        tmsg_lane_lose(lane, TMSG_ERR_PEER_LOST, "the peer closed it");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
               errno != ENOBUFS) {
        tmsg_error_errno(TMSG_ERR_PEER_LOST, "it broke");
        tmsg_lane_lose(lane, TMSG_ERR_PEER_LOST, tmsg_error_message());
    }
    return 0;
}

size_t tmsg_lane_turn_bytes(tmsg_lane_t *lane)
{
    return tmsg_endpoint_is_alone(lane->endpoint, &lane->others)
               ? LONE_TURN_BYTES
           : lane->fd < 0 ? RING_TURN_BYTES
                          : TURN_BYTES;
}

static size_t segment_bytes(int fd)
{
    int segment = 0;
    socklen_t bytes = sizeof(segment);

    return getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &bytes) == 0
               ? (size_t)segment
               : 0;
}

bool tmsg_lane_has_output(const tmsg_lane_t *lane)
{
    return !lane->out.waits &&
           (lane->out.busy || lane->endpoint->pulled.count > 0);
}

static bool begin_piece(tmsg_lane_t *lane)
{
    tmsg_lane_out_t *out = &lane->out;
    const tmsg_parts_piece_t *piece = &out->piece;

    if (!tmsg_lane_user.next(lane->endpoint, &out->piece)) {
        return false;
    }
    memset(out->header, 0, sizeof(out->header));
    tmsg_put_le(out->header, piece->channel, 2);
    tmsg_put_le(out->header + 4, piece->sequence, 4);
    tmsg_put_le(out->header + 8, piece->number, 4);
    tmsg_put_le(out->header + 16, piece->bytes, 8);
    out->header_left = sizeof(out->header);
    begin_bytes(&out->bytes, piece->data, piece->count, piece->bytes);
    out->segment = lane->fd < 0 ? 0 : segment_bytes(lane->fd);
    out->busy = true;
    return true;
}

static void end_piece(tmsg_lane_t *lane, ucs_status_t ucs)
{
    bool fills = lane->out.fills;

    lane->out.busy = false;
    lane->out.fills = false;
    lane->out.waits = false;
    if (!fills) {
        tmsg_lane_user.handed(&lane->out.piece, ucs);
    }
}

/* Where the kernel stopped: at what it cannot read, or there was a reason that
 * is gone. */
static const void *find_unreadable(const struct iovec *places, size_t count)
{
    const void *found = NULL;

    for (size_t i = 0; i < count && found == NULL; i++) {
        found = tmsg_probe(places[i].iov_base, places[i].iov_len);
    }
    return found != NULL || count == 0 ? found : places[0].iov_base;
}

/* The memory of a part is gone: its message fails, and nothing else. What the
 * peer has of the part makes it wait for the rest, which would make a message
 * whole that is not, were it there before the ABORT. */
static void fill_up(tmsg_lane_t *lane, const struct iovec *places, size_t count)
{
    tmsg_lane_out_t *out = &lane->out;
    const tmsg_endpoint_t *endpoint = lane->endpoint;
    size_t heads = out->header_left > 0;
    bool begun = out->header_left < sizeof(out->header);
    tmsg_parts_piece_t piece = out->piece;
    const void *at = find_unreadable(places + heads, count - heads);

    out->busy = begun;
    out->fills = begun;
    out->waits = begun;
    out->asked = false;
    begin_bytes(&out->bytes, NULL, 0, out->bytes.left);
    tmsg_lane_user.unreadable(&piece, at);
    if (begun && !tmsg_ping_is_known(endpoint)) {
        tmsg_lane_lose(lane, TMSG_ERR_IO,
                       "memory of a message that was being sent cannot be "
                       "read, which this peer could not be told");
    }
}

/* Whether the peer has the ABORT: it has answered a ping that was behind it. */
static bool may_fill(tmsg_lane_t *lane)
{
    tmsg_lane_out_t *out = &lane->out;
    tmsg_endpoint_t *endpoint = lane->endpoint;

    if (out->asked &&
        (endpoint->ping_id != out->ping || endpoint->ping_ns == 0)) {
        out->waits = false;
    } else if (!out->asked && endpoint->ping_ns == 0 &&
               endpoint->controls.count == 0) {
        if (tmsg_ping_send(endpoint) != TMSG_OK) {
            tmsg_lane_lose(lane, TMSG_ERR_PEER_LOST, tmsg_error_message());
            return false;
        }
        out->ping = endpoint->ping_id;
        out->asked = true;
    }
    return !out->waits;
}

/* So many of `most` that the call ends where a segment does, which would go by
 * itself if it were not full; 0: none, but for the first call of a turn. */
static size_t whole_segments(const tmsg_lane_t *lane, size_t most, bool first)
{
    const tmsg_lane_out_t *out = &lane->out;
    size_t beyond;

    if (out->segment == 0 || out->header_left + out->bytes.left <= most) {
        return most;
    }
    beyond = (size_t)((lane->written + most) % out->segment);
    if (beyond < most) {
        return most - beyond;
    }
    return first ? most : 0;
}

static size_t list_zeros(const tmsg_lane_bytes_t *bytes, size_t most,
                         struct iovec *places)
{
    static uint8_t zeros[4096];
    uint64_t left = bytes->left < most ? bytes->left : most;
    size_t count = 0;

    for (; left > 0 && count < PLACES_MOST; count++) {
        size_t some = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);

        places[count] = (struct iovec){zeros, some};
        left -= some;
    }
    return count;
}

/* What one call is to write: the rest of a header, and bytes behind it, of
 * `most` together. Gives the number of places. */
static size_t list_out(tmsg_lane_out_t *out, size_t most, struct iovec *places)
{
    size_t heads = out->header_left > 0;
    size_t left = most > out->header_left ? most - out->header_left : 0;

    places[0] = (struct iovec){
        out->header + sizeof(out->header) - out->header_left, out->header_left};
    return heads + (out->fills ? list_zeros(&out->bytes, left, places + heads)
                               : list_bytes(&out->bytes, left, places + heads,
                                            PLACES_MOST));
}

static void note_written(tmsg_lane_t *lane, size_t moved)
{
    tmsg_lane_out_t *out = &lane->out;
    size_t of_header = moved < out->header_left ? moved : out->header_left;

    lane->written += moved;
    out->header_left -= of_header;
    pass_bytes(&out->bytes, moved - of_header);
    if (out->header_left == 0 && out->bytes.left == 0) {
        end_piece(lane, UCS_OK);
    }
}

static size_t send_places(tmsg_lane_t *lane, const struct msghdr *call)
{
    ssize_t moved = sendmsg(lane->fd, call, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (moved < 0 && errno == EFAULT && !lane->out.fills) {
        fill_up(lane, call->msg_iov, call->msg_iovlen);
        return 0;
    }
    return judge(lane, moved);
}

size_t tmsg_lane_write(tmsg_lane_t *lane, size_t most)
{
    struct iovec places[PLACES_MOST + 1];
    struct msghdr call = {.msg_iov = places};
    size_t all = 0;

    while (all < most && (lane->out.busy || begin_piece(lane))) {
        size_t some = whole_segments(lane, most - all, all == 0);
        size_t moved;

        if (some == 0 || (lane->out.waits && !may_fill(lane))) {
            break;
        }
        call.msg_iovlen = list_out(&lane->out, some, places);
        moved = lane->fd < 0
                    ? tmsg_lane_ring_write(lane, places, call.msg_iovlen)
                    : send_places(lane, &call);
        if (moved == 0) {
            break;
        }
        all += moved;
        note_written(lane, moved);
    }
    return all;
}

static void begin_part(tmsg_lane_t *lane)
{
    const uint8_t *header = lane->in.header;
    const tmsg_lane_head_t head = {
        .channel = (uint16_t)tmsg_get_le(header, 2),
        .sequence = (uint32_t)tmsg_get_le(header + 4, 4),
        .number = (uint32_t)tmsg_get_le(header + 8, 4),
        .bytes = tmsg_get_le(header + 16, 8),
    };
    tmsg_lane_place_t *place = &lane->in.place;
    const char *wrong;

    *place = (tmsg_lane_place_t){.message = NULL};
    if (head.bytes == 0 ||
        head.bytes > lane->endpoint->worker->context->limits.message_bytes) {
        wrong = "a part of a length that cannot be";
    } else {
        wrong = tmsg_lane_user.place(lane->endpoint, &head, place);
    }
    begin_bytes(&lane->in.bytes, place->data, place->count, head.bytes);
    if (wrong != NULL) {
        tmsg_lane_lose(lane, TMSG_ERR_MALFORMED, wrong);
    }
}

static void end_part(tmsg_lane_t *lane, ucs_status_t ucs)
{
    tmsg_message_t *message = lane->in.place.message;

    free(lane->in.place.list);
    lane->in.place = (tmsg_lane_place_t){.message = NULL};
    lane->in.header_read = 0;
    if (message != NULL) {
        tmsg_lane_user.landed(message, ucs);
    }
}

/* Read a segment at a time, as they come, each would be acknowledged by itself,
 * which the sender's processor pays for. */
static void set_low(tmsg_lane_t *lane, size_t most)
{
    tmsg_lane_in_t *in = &lane->in;
    bool heads = in->header_read < sizeof(in->header);
    uint64_t low = in->bytes.left < most ? in->bytes.left : most;
    int wanted;

    low = low < LOW_MOST ? low : LOW_MOST;
    wanted = heads || low < LOW_LEAST ? 1 : (int)low;
    if (lane->fd >= 0 && wanted != in->low) {
        in->low = wanted;
        setsockopt(lane->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
    }
}

static bool is_readable(const tmsg_lane_t *lane)
{
    struct pollfd socket = {lane->fd, POLLIN, 0};

    return lane->in.low <= 1 || poll(&socket, 1, 0) != 0;
}

/* Where the next bytes go, `most` at most; gives the number of places. 0: they
 * are thrown away. */
static size_t list_in(tmsg_lane_in_t *in, size_t most, struct iovec *places)
{
    if (in->header_read < sizeof(in->header)) {
        places[0] = (struct iovec){in->header + in->header_read,
                                   sizeof(in->header) - in->header_read};
        return 1;
    }
    return in->place.message == NULL
               ? 0
               : list_bytes(&in->bytes, most, places, PLACES_MOST);
}

static size_t receive(tmsg_lane_t *lane, size_t most)
{
    struct iovec places[PLACES_MOST];
    struct msghdr call = {.msg_iov = places};
    uint64_t left = lane->in.bytes.left;

    call.msg_iovlen = list_in(&lane->in, most, places);
    if (call.msg_iovlen == 0) {
        most = left < most ? (size_t)left : most;
    }
    if (lane->fd < 0) {
        return tmsg_lane_ring_read(lane, places, call.msg_iovlen, most);
    }
    return judge(lane,
                 call.msg_iovlen == 0
                     ? recv(lane->fd, NULL, most, MSG_DONTWAIT | MSG_TRUNC)
                     : recvmsg(lane->fd, &call, MSG_DONTWAIT));
}

size_t tmsg_lane_read(tmsg_lane_t *lane, size_t most)
{
    tmsg_lane_in_t *in = &lane->in;
    size_t all = 0;

    while (all < most && !lane->lost) {
        bool heads = in->header_read < sizeof(in->header);
        size_t moved;

        set_low(lane, most);
        if (!is_readable(lane)) {
            break;
        }
        moved = receive(lane, most - all);
        if (moved == 0) {
            break;
        }
        all += moved;
        if (heads) {
            in->header_read += moved;
            if (in->header_read == sizeof(in->header)) {
                begin_part(lane);
            }
            continue;
        }
        pass_bytes(&in->bytes, moved);
        if (in->bytes.left == 0) {
            end_part(lane, UCS_OK);
        }
    }
    if (!lane->lost) {
        set_low(lane, most); /* what is left is to wake who sleeps now */
    }
    return all;
}

void tmsg_lane_drop(tmsg_lane_t *lane)
{
    if (lane->out.busy) {
        end_piece(lane, UCS_ERR_CANCELED);
    }
    end_part(lane, UCS_ERR_CANCELED);
}
