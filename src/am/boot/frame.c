/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/frame.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "am/net/loop.h"
#include "core/bytes.h"
#include "core/error.h"

#define READ_BYTES ((size_t)16 * 1024) /* most bytes that one call reads */
#define FIRST_BYTES ((size_t)1024)     /* smallest capacity of a buffer */
#define LISTEN_FRAMES 16 /* most frames that one look throws away */
#define LISTEN_LOOKS 16  /* most looks in one call */

void tmsg_frame_init(tmsg_frame_stream_t *stream, int fd, size_t max_bytes)
{
    memset(stream, 0, sizeof(*stream));
    pthread_mutex_init(&stream->lock, NULL);
    stream->socket = fd;
    stream->max_bytes = max_bytes;
    tmsg_passing_init(&stream->passing);
}

void tmsg_frame_free(tmsg_frame_stream_t *stream)
{
    if (stream->io != NULL && stream->io->free != NULL) {
        stream->io->free(stream->io_arg);
    }
    stream->io = NULL;
    tmsg_passing_close(&stream->passing);
    free(stream->in.data);
    free(stream->out.data);
    sodium_memzero(&stream->tx, sizeof(stream->tx));
    sodium_memzero(&stream->rx, sizeof(stream->rx));
    memset(&stream->in, 0, sizeof(stream->in));
    memset(&stream->out, 0, sizeof(stream->out));
    pthread_mutex_destroy(&stream->lock);
}

void tmsg_frame_move(tmsg_frame_stream_t *to, tmsg_frame_stream_t *from)
{
    tmsg_frame_init(to, from->socket, from->max_bytes);
    to->heard_ns = from->heard_ns;
    to->introduced = from->introduced;
    to->greeted = from->greeted;
    to->exact = from->exact;
    to->read_error = from->read_error;
    to->write_error = from->write_error;
    to->in = from->in;
    to->out = from->out;
    to->tx = from->tx;
    to->rx = from->rx;
    to->io = from->io;
    to->io_arg = from->io_arg;
    to->seen = from->seen;
    from->io = NULL;
    tmsg_passing_move(&to->passing, &from->passing);
    memset(&from->in, 0, sizeof(from->in));
    memset(&from->out, 0, sizeof(from->out));
    tmsg_frame_free(from);
}

void tmsg_frame_use_io(tmsg_frame_stream_t *stream, const tmsg_io_t *io,
                       void *io_arg)
{
    stream->io = io;
    stream->io_arg = io_arg;
}

void *tmsg_frame_take_io(tmsg_frame_stream_t *stream)
{
    void *io_arg = stream->io_arg;

    stream->io = NULL;
    stream->io_arg = NULL;
    return io_arg;
}

static void begin_macs(tmsg_frame_macs_t *macs, const uint8_t *key)
{
    memcpy(macs->key, key, TMSG_KEY_BYTES);
    macs->number = 0;
    macs->on = true;
}

void tmsg_frame_protect(tmsg_frame_stream_t *stream,
                        const uint8_t tx_key[TMSG_KEY_BYTES],
                        const uint8_t rx_key[TMSG_KEY_BYTES], size_t max_bytes)
{
    pthread_mutex_lock(&stream->lock);
    begin_macs(&stream->tx, tx_key);
    begin_macs(&stream->rx, rx_key);
    /* No MAC is of descriptors: it may be somebody between the peers. */
    stream->passing.wrong = TMSG_ERR_CORRUPT;
    stream->max_bytes = max_bytes;
    pthread_mutex_unlock(&stream->lock);
}

void tmsg_frame_allow(tmsg_frame_stream_t *stream, size_t max_bytes)
{
    pthread_mutex_lock(&stream->lock);
    stream->max_bytes = max_bytes;
    pthread_mutex_unlock(&stream->lock);
}

void tmsg_frame_read_exactly(tmsg_frame_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->exact = true;
    pthread_mutex_unlock(&stream->lock);
}

void tmsg_frame_take_fds(tmsg_frame_stream_t *stream, uint64_t types)
{
    pthread_mutex_lock(&stream->lock);
    stream->passing.takes = types;
    pthread_mutex_unlock(&stream->lock);
}

static size_t mac_bytes(const tmsg_frame_macs_t *macs)
{
    return macs->on ? TMSG_MAC_BYTES : 0;
}

#define BEAT_BYTES_MOST (TMSG_FRAME_HEADER_BYTES + TMSG_MAC_BYTES)

/* Writes the frame without payload of that number. Returns its length. */
static size_t put_beat(const tmsg_frame_macs_t *macs, uint64_t number,
                       uint8_t type, uint8_t *frame)
{
    size_t bytes = mac_bytes(macs);

    *tmsg_put_le(frame, bytes, 4) = type;
    if (macs->on) {
        tmsg_proof_mac(macs->key, number, type, NULL, 0,
                       frame + TMSG_FRAME_HEADER_BYTES);
    }
    return TMSG_FRAME_HEADER_BYTES + bytes;
}

static size_t used_bytes(const tmsg_frame_buffer_t *buffer)
{
    return buffer->end - buffer->begin;
}

static void use_bytes(tmsg_frame_buffer_t *buffer, size_t bytes)
{
    buffer->begin += bytes;
    buffer->used += bytes;
}

/* Makes room for `bytes` behind what is used, which it may move. */
static tmsg_status_t grow_buffer(tmsg_frame_buffer_t *buffer, size_t bytes)
{
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : FIRST_BYTES;
    uint8_t *data;

    if (buffer->begin > 0) {
        memmove(buffer->data, buffer->data + buffer->begin, used_bytes(buffer));
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    if (buffer->capacity - buffer->end >= bytes) {
        return TMSG_OK;
    }
    while (capacity - buffer->end < bytes) {
        capacity *= 2;
    }
    data = realloc(buffer->data, capacity);
    if (data == NULL) {
        return tmsg_error_memory("a connection's buffer");
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return TMSG_OK;
}

static tmsg_status_t has_ended(tmsg_status_t status)
{
    return tmsg_error_set(status, "the connection has ended before");
}

static tmsg_status_t socket_failed(const tmsg_frame_stream_t *stream,
                                   const char *what)
{
    if (errno == EPROTO && stream->io != NULL) {
        return stream->io->failed(stream->io_arg);
    }
    if (errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT ||
        errno == EHOSTUNREACH || errno == ENETUNREACH) {
        return tmsg_error_errno(TMSG_ERR_PEER_LOST, "%s the peer", what);
    }
    return tmsg_error_errno(TMSG_ERR_IO, "%s the peer", what);
}

/* Empties a buffer. An idle connection keeps no more than a small one. */
static void reset_buffer(tmsg_frame_buffer_t *buffer)
{
    buffer->begin = 0;
    buffer->end = 0;
    if (buffer->capacity > FIRST_BYTES) {
        free(buffer->data);
        buffer->data = NULL;
        buffer->capacity = 0;
    }
}

static void append_to_buffer(tmsg_frame_buffer_t *buffer, const void *data,
                             size_t bytes)
{
    if (bytes > 0) {
        memcpy(buffer->data + buffer->end, data, bytes);
        buffer->end += bytes;
    }
}

/* Queues our magic before anything else, and makes room for what follows. */
static tmsg_status_t queue_magic(tmsg_frame_stream_t *stream, size_t bytes)
{
    size_t magic_bytes = stream->introduced ? 0 : TMSG_FRAME_MAGIC_BYTES;
    tmsg_status_t status = grow_buffer(&stream->out, magic_bytes + bytes);

    if (status == TMSG_OK) {
        append_to_buffer(&stream->out, TMSG_FRAME_MAGIC, magic_bytes);
        stream->introduced = true;
    }
    return status;
}

static ssize_t write_bytes(tmsg_frame_stream_t *stream, uint8_t *data,
                           size_t bytes, uint64_t first)
{
    const struct iovec from = {data, bytes};

    return stream->io != NULL
               ? stream->io->write(stream->io_arg, &from, 1)
               : tmsg_passing_write(&stream->passing, stream->socket, data,
                                    bytes, first);
}

static ssize_t read_bytes(tmsg_frame_stream_t *stream, uint8_t *data,
                          size_t bytes, uint64_t first, tmsg_status_t *status_p)
{
    const struct iovec into = {data, bytes};

    if (stream->io != NULL) {
        *status_p = TMSG_OK;
        return stream->io->read(stream->io_arg, &into, 1);
    }
    return tmsg_passing_read(&stream->passing, stream->socket, data, bytes,
                             first, status_p);
}

/* Returns whether the socket has all that was written. */
static bool is_settled(const tmsg_frame_stream_t *stream)
{
    return stream->io == NULL || stream->io->flush == NULL ||
           stream->io->flush(stream->io_arg);
}

static tmsg_status_t flush_stream(tmsg_frame_stream_t *stream)
{
    tmsg_frame_buffer_t *out = &stream->out;
    tmsg_status_t status = TMSG_OK;

    if (stream->write_error != TMSG_OK) {
        return has_ended(stream->write_error);
    }
    if (!stream->introduced) {
        status = queue_magic(stream, 0);
    }
    while (status == TMSG_OK && used_bytes(out) > 0) {
        ssize_t n = write_bytes(stream, out->data + out->begin, used_bytes(out),
                                out->used);

        if (n >= 0) {
            use_bytes(out, (size_t)n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return TMSG_IN_PROGRESS;
        } else if (errno != EINTR) {
            status = stream->write_error = socket_failed(stream, "writing to");
        }
    }
    if (status != TMSG_ERR_NO_MEMORY) {
        reset_buffer(out);
    }
    return status == TMSG_OK && !is_settled(stream) ? TMSG_IN_PROGRESS : status;
}

static tmsg_status_t queue_frame(tmsg_frame_stream_t *stream, uint8_t type,
                                 const void *data, size_t bytes, int fd)
{
    uint8_t header[TMSG_FRAME_HEADER_BYTES];
    uint8_t mac[TMSG_MAC_BYTES];
    size_t extra = mac_bytes(&stream->tx);
    tmsg_status_t status;

    if (bytes > stream->max_bytes || bytes > UINT32_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a frame of %zu bytes, of type %u, exceeds %zu",
                              bytes, type, stream->max_bytes);
    }
    if (used_bytes(&stream->out) > stream->max_bytes) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the peer does not read: %zu bytes wait for it",
                              used_bytes(&stream->out));
    }
    status = queue_magic(stream, sizeof(header) + bytes + extra);
    if (status == TMSG_OK && fd >= 0) {
        status = tmsg_passing_keep(&stream->passing, fd,
                                   stream->out.used + used_bytes(&stream->out),
                                   sizeof(header) + bytes + extra);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (extra > 0) {
        tmsg_proof_mac(stream->tx.key, stream->tx.number++, type, data, bytes,
                       mac);
    }
    *tmsg_put_le(header, bytes + extra, 4) = type;
    append_to_buffer(&stream->out, header, sizeof(header));
    append_to_buffer(&stream->out, data, bytes);
    append_to_buffer(&stream->out, mac, extra);
    status = flush_stream(stream);
    return status == TMSG_IN_PROGRESS ? TMSG_OK : status;
}

tmsg_status_t tmsg_frame_queue_fd(tmsg_frame_stream_t *stream, uint8_t type,
                                  const void *data, size_t bytes, int fd)
{
    tmsg_status_t status;

    pthread_mutex_lock(&stream->lock);
    status = queue_frame(stream, type, data, bytes, fd);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

tmsg_status_t tmsg_frame_queue(tmsg_frame_stream_t *stream, uint8_t type,
                               const void *data, size_t bytes)
{
    return tmsg_frame_queue_fd(stream, type, data, bytes, -1);
}

tmsg_status_t tmsg_frame_flush(tmsg_frame_stream_t *stream)
{
    tmsg_status_t status;

    pthread_mutex_lock(&stream->lock);
    status = flush_stream(stream);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static size_t pending_bytes(const tmsg_frame_stream_t *stream)
{
    return used_bytes(&stream->out) +
           (stream->introduced ? 0 : TMSG_FRAME_MAGIC_BYTES);
}

size_t tmsg_frame_pending(tmsg_frame_stream_t *stream)
{
    size_t pending;

    pthread_mutex_lock(&stream->lock);
    pending = pending_bytes(stream);
    pthread_mutex_unlock(&stream->lock);
    return pending;
}

bool tmsg_frame_wants_writing(tmsg_frame_stream_t *stream)
{
    bool wants;

    pthread_mutex_lock(&stream->lock);
    if (stream->io != NULL && used_bytes(&stream->out) > 0) {
        flush_stream(stream); /* the socket may have taken the rest since */
    }
    wants =
        stream->io != NULL ? !is_settled(stream) : pending_bytes(stream) > 0;
    pthread_mutex_unlock(&stream->lock);
    return wants;
}

/* Compares as much of the magic as has come, so that garbage shows at once. */
static tmsg_status_t check_magic(tmsg_frame_stream_t *stream)
{
    const uint8_t *came = stream->in.data + stream->in.begin;
    char shown[TMSG_FRAME_MAGIC_BYTES + 1] = "";
    size_t bytes = used_bytes(&stream->in);

    if (bytes > TMSG_FRAME_MAGIC_BYTES) {
        bytes = TMSG_FRAME_MAGIC_BYTES;
    }
    if (bytes > 1 && came[0] == 0x16 && came[1] == 3) { /* a TLS record */
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "the peer begins with TLS: it uses tls://, and "
                              "this side does not");
    }
    if (memcmp(came, TMSG_FRAME_MAGIC, bytes) != 0) {
        for (size_t i = 0; i < bytes; i++) {
            shown[i] = came[i] >= ' ' && came[i] <= '~' ? (char)came[i] : '.';
        }
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the peer does not speak tensormsg: it began "
                              "with '%s'",
                              shown);
    }
    if (bytes < TMSG_FRAME_MAGIC_BYTES) {
        return TMSG_IN_PROGRESS;
    }
    use_bytes(&stream->in, bytes);
    stream->greeted = true;
    return TMSG_OK;
}

/* Checks that a frame is the next one that the peer made. */
static tmsg_status_t check_mac(tmsg_frame_macs_t *macs, uint8_t type,
                               const uint8_t *data, size_t bytes)
{
    uint8_t mac[TMSG_MAC_BYTES];

    if (bytes < TMSG_MAC_BYTES) {
        return tmsg_error_set(
            TMSG_ERR_CORRUPT,
            "a frame of type %u came without its MAC: somebody between the "
            "peers changes what they send",
            type);
    }
    bytes -= TMSG_MAC_BYTES;
    tmsg_proof_mac(macs->key, macs->number, type, data, bytes, mac);
    if (sodium_memcmp(mac, data + bytes, TMSG_MAC_BYTES) != 0) {
        return tmsg_error_set(
            TMSG_ERR_CORRUPT,
            "a frame of type %u is not the next one that the peer sent: "
            "somebody changed, dropped or repeated it on its way",
            type);
    }
    macs->number++;
    return TMSG_OK;
}

/* Sets the error of a frame that is too long. CORRUPT with MACs: an admitted
 * peer sends no such frame, so somebody between the peers changed its
 * length. */
static tmsg_status_t frame_too_long(const tmsg_frame_stream_t *stream,
                                    size_t bytes, uint8_t type)
{
    return tmsg_error_set(stream->rx.on ? TMSG_ERR_CORRUPT
                                        : TMSG_ERR_LIMIT_EXCEEDED,
                          "the peer announces a frame of %zu bytes, of type "
                          "%u: at most %zu are allowed",
                          bytes, type, stream->max_bytes);
}

/* Takes a frame out of what has come. */
static tmsg_status_t take_frame(tmsg_frame_stream_t *stream, uint8_t *type_p,
                                const uint8_t **data_p, size_t *bytes_p)
{
    tmsg_status_t status = TMSG_OK;
    const uint8_t *header;
    size_t bytes;

    if (used_bytes(&stream->in) == 0) {
        return TMSG_IN_PROGRESS;
    }
    if (!stream->greeted) {
        status = check_magic(stream);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (used_bytes(&stream->in) < TMSG_FRAME_HEADER_BYTES) {
        return TMSG_IN_PROGRESS;
    }
    header = stream->in.data + stream->in.begin;
    bytes = (size_t)tmsg_get_le(header, 4);
    if (bytes > stream->max_bytes + mac_bytes(&stream->rx)) {
        return frame_too_long(stream, bytes, header[4]);
    }
    if (used_bytes(&stream->in) - TMSG_FRAME_HEADER_BYTES < bytes) {
        return TMSG_IN_PROGRESS;
    }
    if (stream->rx.on) {
        status = check_mac(&stream->rx, header[4],
                           header + TMSG_FRAME_HEADER_BYTES, bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_passing_give(&stream->passing, header[4],
                                   stream->in.used + TMSG_FRAME_HEADER_BYTES +
                                       bytes);
    }
    if (status != TMSG_OK) {
        return status;
    }
    use_bytes(&stream->in, TMSG_FRAME_HEADER_BYTES + bytes);
    *type_p = header[4];
    *data_p = header + TMSG_FRAME_HEADER_BYTES;
    *bytes_p = bytes - mac_bytes(&stream->rx);
    return TMSG_OK;
}

static tmsg_status_t peer_closed(const tmsg_frame_stream_t *stream)
{
    if (used_bytes(&stream->in) > 0) {
        return tmsg_error_set(TMSG_ERR_CLOSED,
                              "the peer closed the connection inside a frame");
    }
    return tmsg_error_set(TMSG_ERR_CLOSED, stream->greeted
                                               ? "the peer closed the "
                                                 "connection"
                                               : "the peer closed the "
                                                 "connection without a word");
}

/* Returns how many bytes the frame still lacks whose beginning is there, as far
 * as that tells. */
static size_t lacking_bytes(const tmsg_frame_stream_t *stream)
{
    const tmsg_frame_buffer_t *in = &stream->in;
    size_t bytes = TMSG_FRAME_HEADER_BYTES;

    if (!stream->greeted) {
        bytes += TMSG_FRAME_MAGIC_BYTES;
    } else if (used_bytes(in) >= bytes) {
        bytes += (size_t)tmsg_get_le(in->data + in->begin, 4);
    }
    return bytes - used_bytes(in);
}

/* Reads once. OK: something came. */
static tmsg_status_t receive_bytes(tmsg_frame_stream_t *stream)
{
    tmsg_frame_buffer_t *in = &stream->in;
    tmsg_status_t status;
    size_t room;
    ssize_t n;

    if (used_bytes(in) == 0) {
        reset_buffer(in);
    }
    status = grow_buffer(in, 1);
    if (status != TMSG_OK) {
        return status;
    }
    room = in->capacity - in->end;
    room = room < READ_BYTES ? room : READ_BYTES;
    if (stream->exact && lacking_bytes(stream) < room) {
        room = lacking_bytes(stream);
    }
    do {
        n = read_bytes(stream, in->data + in->end, room,
                       in->used + used_bytes(in), &status);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        in->end += (size_t)n;
        stream->heard_ns = tmsg_now_ns();
        return status;
    }
    if (n == 0) {
        return peer_closed(stream);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return TMSG_IN_PROGRESS;
    }
    return socket_failed(stream, "reading from");
}

/* Reads, and takes a frame if it is whole. Of what an `io` has read already the
 * socket does not tell: it goes on until there is nothing more. */
static tmsg_status_t receive_frame(tmsg_frame_stream_t *stream, uint8_t *type_p,
                                   const uint8_t **data_p, size_t *bytes_p)
{
    tmsg_status_t status;
    bool more;

    do {
        status = receive_bytes(stream);
        more = status == TMSG_OK && stream->io != NULL;
        if (status == TMSG_OK) {
            status = take_frame(stream, type_p, data_p, bytes_p);
        }
    } while (more && status == TMSG_IN_PROGRESS);
    if (stream->io != NULL && status >= 0 && used_bytes(&stream->out) > 0) {
        flush_stream(stream); /* it may have waited for the peer */
    }
    return status;
}

static tmsg_status_t read_one(tmsg_frame_stream_t *stream, uint8_t *type_p,
                              const uint8_t **data_p, size_t *bytes_p)
{
    tmsg_status_t status;

    if (stream->read_error != TMSG_OK) {
        return has_ended(stream->read_error);
    }
    tmsg_passing_close_fd(&stream->passing);
    status = take_frame(stream, type_p, data_p, bytes_p);
    if (status == TMSG_IN_PROGRESS) {
        status = receive_frame(stream, type_p, data_p, bytes_p);
    }
    if (status < 0 && status != TMSG_ERR_NO_MEMORY) {
        stream->read_error = status;
        tmsg_passing_close_came(&stream->passing);
    }
    return status;
}

int tmsg_frame_fd(tmsg_frame_stream_t *stream)
{
    int fd;

    pthread_mutex_lock(&stream->lock);
    fd = stream->passing.fd;
    stream->passing.fd = TMSG_FRAME_FD_NONE;
    pthread_mutex_unlock(&stream->lock);
    return fd;
}

void tmsg_frame_drop_unread(tmsg_frame_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    tmsg_passing_drain(&stream->passing, stream->socket);
    pthread_mutex_unlock(&stream->lock);
}

const char *tmsg_frame_fd_words(int fd)
{
    return fd == TMSG_FRAME_FD_LOST
               ? "the peer's descriptor could not be taken: this process has "
                 "as many as it may have (RLIMIT_NOFILE), or is not allowed to "
                 "take it"
               : "no descriptor came: its sender has too many on their way, or "
                 "is not allowed to pass it";
}

tmsg_status_t tmsg_frame_read(tmsg_frame_stream_t *stream, uint8_t *type_p,
                              const uint8_t **data_p, size_t *bytes_p)
{
    tmsg_status_t status;

    pthread_mutex_lock(&stream->lock);
    status = read_one(stream, type_p, data_p, bytes_p);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* Keeps what the socket did not take of a frame: without it the stream would be
 * torn. */
static void keep_rest(tmsg_frame_stream_t *stream, const uint8_t *rest,
                      size_t bytes)
{
    if (grow_buffer(&stream->out, bytes) == TMSG_OK) {
        append_to_buffer(&stream->out, rest, bytes);
    } else {
        stream->write_error = TMSG_ERR_NO_MEMORY;
    }
}

void tmsg_frame_beat(tmsg_frame_stream_t *stream, uint8_t type)
{
    uint8_t frame[BEAT_BYTES_MOST];
    size_t bytes;
    ssize_t n;

    pthread_mutex_lock(&stream->lock);
    if (!stream->introduced || used_bytes(&stream->out) > 0) {
        flush_stream(stream);
    } else if (stream->write_error == TMSG_OK) {
        bytes = put_beat(&stream->tx, stream->tx.number, type, frame);
        n = stream->io != NULL ? write_bytes(stream, frame, bytes, 0)
                               : send(stream->socket, frame, bytes,
                                      MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            stream->tx.number++;
        }
        if (n > 0 && n < (ssize_t)bytes) {
            keep_rest(stream, frame + n, bytes - (size_t)n);
        }
    }
    pthread_mutex_unlock(&stream->lock);
}

/* Looks once. Returns whether there may be more to throw away. */
static bool listen_once(tmsg_frame_stream_t *stream, uint8_t type)
{
    uint8_t frame[BEAT_BYTES_MOST];
    size_t each = put_beat(&stream->rx, stream->rx.number, type, frame);
    uint8_t bytes[LISTEN_FRAMES * sizeof(frame)];
    struct iovec room = {bytes, LISTEN_FRAMES * each};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    size_t known = 0, count = 0, came;
    ssize_t n = recvmsg(stream->socket, &message, MSG_PEEK | MSG_DONTWAIT);

    if (n <= 0) {
        return false;
    }
    stream->heard_ns = tmsg_now_ns();
    came = (size_t)n;
    if (!stream->greeted || used_bytes(&stream->in) > 0 ||
        (message.msg_flags & MSG_CTRUNC) != 0) {
        return false; /* a frame has begun, or one has a descriptor */
    }
    while (came - known >= each &&
           sodium_memcmp(bytes + known, frame, each) == 0) {
        known += each;
        put_beat(&stream->rx, stream->rx.number + ++count, type, frame);
    }
    if (known == 0 || recv(stream->socket, bytes, known, MSG_DONTWAIT) <= 0) {
        return false;
    }
    stream->rx.number += count;
    return true;
}

/* Notices whether bytes have come since the last time. What they are cannot be
 * told without reading them. */
static void notice(tmsg_frame_stream_t *stream)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    if (getsockopt(stream->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
        info.tcpi_bytes_received != stream->seen) {
        stream->seen = info.tcpi_bytes_received;
        stream->heard_ns = tmsg_now_ns();
    }
}

void tmsg_frame_listen(tmsg_frame_stream_t *stream, uint8_t type)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->io != NULL) {
        notice(stream);
    }
    for (int i = 0;
         stream->io == NULL && i < LISTEN_LOOKS && listen_once(stream, type);
         i++) {
    }
    pthread_mutex_unlock(&stream->lock);
}
