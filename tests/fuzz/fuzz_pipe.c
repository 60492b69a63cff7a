/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer writes into a pipe, who may be anybody: the first byte says how
 * many bytes come at a time, the rest are frames. This side has offers of its
 * own, keeps some of the peer's and fetches others. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/pipe/pipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEPT_MOST 64
#define FETCHED_MOST ((size_t)1 << 20)

typedef struct {
    const uint8_t *data;
    size_t left, most;
    tmsg_pipe_offer_t *kept[KEPT_MOST];
    size_t kept_count;
    void *fetched[KEPT_MOST];
    size_t fetched_count;
    unsigned fetches, sends;
    bool over;
} peer_t;

static ssize_t read_input(void *io, const struct iovec *into, size_t count)
{
    peer_t *peer = io;
    size_t some = count == 0 ? 0 : into->iov_len;

    if (some > peer->most) {
        some = peer->most;
    }
    if (some > peer->left) {
        some = peer->left;
    }
    memcpy(into->iov_base, peer->data, some);
    peer->data += some;
    peer->left -= some;
    return (ssize_t)some;
}

static ssize_t write_nowhere(void *io, const struct iovec *from, size_t count)
{
    size_t bytes = 0;

    (void)io;
    for (size_t i = 0; i < count; i++) {
        bytes += from[i].iov_len;
    }
    return (ssize_t)bytes;
}

static const tmsg_io_t input_io = {.read = read_input, .write = write_nowhere};

static tmsg_pipe_status_t take(void *arg, const tmsg_pipe_message_t *message)
{
    peer_t *peer = arg;
    const uint8_t *header = message->header;
    uint8_t sum = 0;

    assert(message->header_bytes > 0 &&
           message->header_bytes <= TMSG_PIPE_HEADER_MOST);
    for (size_t i = 0; i < message->header_bytes; i++) {
        sum ^= header[i];
    }
    if (message->offer != NULL) {
        if (peer->kept_count == KEPT_MOST || sum % 4 == 0) {
            return sum % 8 == 0 ? TMSG_PIPE_OK : TMSG_PIPE_REJECTED;
        }
        peer->kept[peer->kept_count++] = message->offer;
        return TMSG_PIPE_IN_PROGRESS;
    }
    for (size_t i = 0; i < message->bytes; i++) {
        sum ^= ((const uint8_t *)message->data)[i];
    }
    if (!message->fleeting && sum % 2 == 0) {
        free(message->data);
        return TMSG_PIPE_IN_PROGRESS;
    }
    return TMSG_PIPE_OK;
}

static void note_end(void *arg, tmsg_pipe_t *pipe, tmsg_status_t status,
                     const char *why)
{
    peer_t *peer = arg;

    (void)pipe;
    assert(status == TMSG_ERR_MALFORMED || status == TMSG_ERR_PEER_LOST);
    assert(why != NULL && !peer->over);
    peer->over = true;
}

static void note_sent(void *request, tmsg_pipe_status_t status, void *arg)
{
    (void)request;
    (void)status;
    ((peer_t *)arg)->sends--;
}

static void note_received(void *request, tmsg_pipe_status_t status,
                          size_t bytes, void *arg)
{
    (void)request;
    (void)status;
    (void)bytes;
    ((peer_t *)arg)->fetches--;
}

/* Fetches what was kept last, if it can be, else gives it back. */
static void fetch_kept(peer_t *peer)
{
    tmsg_pipe_offer_t *offer = peer->kept[--peer->kept_count];
    void *into = malloc(FETCHED_MOST);

    assert(into != NULL);
    peer->fetched[peer->fetched_count++] = into;
    if (tmsg_pipe_fetch(offer, into, FETCHED_MOST, 0, note_received, peer) ==
        TMSG_PIPE_IN_PROGRESS) {
        peer->fetches++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t own[1000];
    const tmsg_pipe_send_t send = {.header = own,
                                   .header_bytes = 9,
                                   .data = own,
                                   .bytes = sizeof(own),
                                   .flags = TMSG_PIPE_OFFERED};
    peer_t peer = {.data = data + 1, .left = size - 1};
    tmsg_pipes_t pipes = {.arrived = take, .ended = note_end, .arg = &peer};
    tmsg_pipe_t *pipe;
    int fd;

    if (size < 2) {
        return 0;
    }
    peer.most = data[0] == 0 ? SIZE_MAX : data[0];
    fd = eventfd(1, EFD_CLOEXEC); /* always readable */
    if (fd < 0 || tmsg_pipes_init(&pipes) != TMSG_OK ||
        tmsg_pipe_open(&pipes, fd, &input_io, &peer, NULL, 0, &pipe) !=
            TMSG_OK) {
        abort();
    }
    for (int i = 0; i < 3; i++) {
        peer.sends += tmsg_pipe_send(pipe, &send, note_sent, &peer) ==
                      TMSG_PIPE_IN_PROGRESS;
    }
    while (!peer.over) {
        tmsg_pipes_progress(&pipes);
        if (peer.kept_count % 2 == 1 && peer.fetched_count < KEPT_MOST) {
            fetch_kept(&peer);
        }
    }
    tmsg_pipe_close(pipe);
    assert(peer.fetches == 0 && peer.sends == 0);
    while (peer.kept_count > 0) {
        tmsg_pipe_drop(peer.kept[--peer.kept_count]);
    }
    while (peer.fetched_count > 0) {
        free(peer.fetched[--peer.fetched_count]);
    }
    tmsg_pipes_free(&pipes);
    return 0;
}
