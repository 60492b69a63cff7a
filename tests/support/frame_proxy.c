/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/frame_proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/frame.h"
#include "core/bytes.h"
#include "support/must.h"
#include "support/raw_bootstrap.h"

typedef struct {
    uint8_t data[MIDDLE_BYTES];
    size_t bytes, used; /* passed on up to there */
    unsigned frames;
} stream_t;

struct middle {
    char to[256];
    char url[256];
    middle_fn edit;
    void *arg;
    int fd;
    int wake;
    pthread_t thread;
    pthread_mutex_t lock; /* of the streams */
    stream_t streams[2];
};

static void pass(int to, const void *data, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n =
            send(to, (const uint8_t *)data + done, bytes - done, MSG_NOSIGNAL);

        if (n <= 0) {
            return; /* that end is gone; so is this one soon */
        }
        done += (size_t)n;
    }
}

static void pass_frame(middle_t *middle, middle_way_t way, int to,
                       const uint8_t *header, size_t bytes)
{
    stream_t *stream = &middle->streams[way];
    uint8_t *copy = malloc(TMSG_FRAME_HEADER_BYTES + MIDDLE_BYTES);
    middle_frame_t frame = {.way = way,
                            .index = stream->frames++,
                            .type = header[4],
                            .payload = copy + TMSG_FRAME_HEADER_BYTES,
                            .bytes = bytes,
                            .copies = 1};

    must_true(copy != NULL);
    memcpy(frame.payload, header + TMSG_FRAME_HEADER_BYTES, bytes);
    if (middle->edit != NULL) {
        middle->edit(middle->arg, &frame);
    }
    *tmsg_put_le(copy, frame.says != 0 ? frame.says : frame.bytes, 4) =
        frame.type;
    for (unsigned i = 0; i < frame.copies; i++) {
        pass(to, copy, TMSG_FRAME_HEADER_BYTES + frame.bytes);
    }
    free(copy);
}

/* Whatever is whole. */
static void pass_on(middle_t *middle, middle_way_t way, int to)
{
    stream_t *stream = &middle->streams[way];

    if (stream->used == 0 && stream->bytes >= TMSG_FRAME_MAGIC_BYTES) {
        pass(to, stream->data, TMSG_FRAME_MAGIC_BYTES);
        stream->used = TMSG_FRAME_MAGIC_BYTES;
    }
    while (stream->used > 0 &&
           stream->bytes - stream->used >= TMSG_FRAME_HEADER_BYTES) {
        const uint8_t *header = stream->data + stream->used;
        size_t bytes = (size_t)tmsg_get_le(header, 4);

        if (stream->bytes - stream->used < TMSG_FRAME_HEADER_BYTES + bytes) {
            break;
        }
        stream->used += TMSG_FRAME_HEADER_BYTES + bytes;
        pass_frame(middle, way, to, header, bytes);
    }
}

/* False: that end has said its last. */
static bool take(middle_t *middle, middle_way_t way, int from, int to)
{
    stream_t *stream = &middle->streams[way];
    ssize_t n;

    pthread_mutex_lock(&middle->lock);
    n = recv(from, stream->data + stream->bytes,
             sizeof(stream->data) - stream->bytes, MSG_DONTWAIT);
    stream->bytes += n > 0 ? (size_t)n : 0;
    pass_on(middle, way, to);
    pthread_mutex_unlock(&middle->lock);
    return n > 0;
}

/* False: the middle is to close. */
static bool serve(middle_t *middle, int from)
{
    int to = raw_dial(middle->to);
    bool stands = true, ending = false;

    pthread_mutex_lock(&middle->lock);
    memset(middle->streams, 0, sizeof(middle->streams));
    pthread_mutex_unlock(&middle->lock);
    while (stands && !ending) {
        struct pollfd fds[] = {
            {from, POLLIN, 0}, {to, POLLIN, 0}, {middle->wake, POLLIN, 0}};

        poll(fds, 3, -1);
        ending = fds[2].revents != 0;
        if (fds[0].revents != 0) {
            stands &= take(middle, MIDDLE_THERE, from, to);
        }
        if (fds[1].revents != 0) {
            stands &= take(middle, MIDDLE_BACK, to, from);
        }
    }
    close(from);
    close(to);
    return !ending;
}

static void *run(void *arg)
{
    middle_t *middle = arg;
    bool on = true;

    while (on) {
        struct pollfd fds[] = {{middle->fd, POLLIN, 0},
                               {middle->wake, POLLIN, 0}};

        poll(fds, 2, -1);
        if (fds[1].revents != 0) {
            on = false;
        } else if (fds[0].revents != 0) {
            on = serve(middle, accept4(middle->fd, NULL, NULL, SOCK_CLOEXEC));
        }
    }
    return NULL;
}

middle_t *middle_open(const char *to, middle_fn edit, void *arg)
{
    middle_t *middle = calloc(1, sizeof(*middle));

    must_true(middle != NULL);
    snprintf(middle->to, sizeof(middle->to), "%s", to);
    middle->edit = edit;
    middle->arg = arg;
    middle->fd = raw_listen(middle->url, sizeof(middle->url));
    middle->wake = eventfd(0, EFD_CLOEXEC);
    must_true(middle->wake >= 0);
    pthread_mutex_init(&middle->lock, NULL);
    must_eq(pthread_create(&middle->thread, NULL, run, middle), 0);
    return middle;
}

void middle_close(middle_t *middle)
{
    eventfd_write(middle->wake, 1);
    pthread_join(middle->thread, NULL);
    close(middle->fd);
    close(middle->wake);
    pthread_mutex_destroy(&middle->lock);
    free(middle);
}

const char *middle_url(const middle_t *middle) { return middle->url; }

size_t middle_heard(middle_t *middle, middle_way_t way, const uint8_t **data_p)
{
    size_t bytes;

    pthread_mutex_lock(&middle->lock);
    *data_p = middle->streams[way].data;
    bytes = middle->streams[way].bytes;
    pthread_mutex_unlock(&middle->lock);
    return bytes;
}
