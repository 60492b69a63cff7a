/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/stream.h - streams of maps between a caller and a method.
 *
 * A stream is a call with many messages in both directions. See
 * docs/reference/streams.md.
 *
 *     tmsg_endpoint_open_stream(endpoint, "tokens", map, NULL, &call_stream);
 *     tmsg_call_stream_send(call_stream, map, NULL, NULL);
 *     tmsg_call_stream_finish(call_stream);
 *     tmsg_call_stream_recv(call_stream, 1000, &message); // NULL at the end
 *     tmsg_call_stream_destroy(call_stream);
 */
#ifndef TENSORMSG_STREAM_H
#define TENSORMSG_STREAM_H

#include <stdint.h>

#include <tensormsg/message.h>
#include <tensormsg/server.h>
#include <tensormsg/signature.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream is a call with many messages. Its opener names a method of the
 * peer's server. Either side sends maps, in order, until it finishes, and the
 * server says how the stream ended. If only one side sends, the other finishes
 * at once.
 *
 * Each stream has its own channel. A side that does not read stops the sender
 * of that stream after queue_depth messages (tensormsg/worker.h), and nobody
 * else. tmsg_stream_t is another thing, of CUDA. See docs/reference/streams.md.
 *
 * Both sides have the same object. It is *over* once, on each side. At the
 * opener that is when the server's end has come, at the server when it has
 * ended the stream. A cancel, a deadline, or the end of the connection or the
 * server makes it over on both sides at once. After an orderly end, messages
 * that had come can still be read. After another end, messages that were not
 * read are dropped.
 *
 * Threads: on a shared worker any thread may call these functions, else the
 * worker's own. They may be called in any callback, unless it says otherwise.
 * tmsg_call_stream_destroy() may be called from any thread after the worker is
 * gone, which ends the stream with CANCELED. At the opener it may also be
 * called from any thread if the stream is over and has nothing left to be
 * read. */
typedef struct tmsg_call_stream tmsg_call_stream_t;

/* Streams that one side of an endpoint may have open at once. A stream that is
 * over counts until what came has been read, or its last handle is given
 * back. */
enum { TMSG_STREAMS_OPEN_MOST = 512 };

enum {
    TMSG_CALL_STREAM_PARAM_TIMEOUT = 1 << 0,
    TMSG_CALL_STREAM_PARAM_QUEUE = 1 << 1,
    TMSG_CALL_STREAM_PARAM_ON_RELEASE = 1 << 2,
    TMSG_CALL_STREAM_PARAM_SIGNATURE = 1 << 3
};

typedef struct tmsg_call_stream_params {
    uint64_t field_mask; /* TMSG_CALL_STREAM_PARAM_*; unset: defaults */
    int32_t timeout_ms;  /* above 0: limit for the whole stream from now on,
                          * connecting included; the server is told what is
                          * left. -1, the default: no limit */
    uint32_t queue;      /* messages of this side that may wait for the other to
                          * read; 1 or more, default 64 */
    tmsg_release_fn on_release; /* default none: called once, when no byte of
                                 * what `map` borrows can be read any more */
    void *on_release_arg;
    /* The signature of the method, if the opener knows it
     * (tensormsg/signature.h). The stream keeps it: the caller may destroy its
     * handle at any time, and changes return BUSY while the stream has it.
     * The library checks messages of this side before it sends them, and
     * messages of the server before this side can read them. If one does not
     * fit, the stream is over with INTERNAL. Default, or NULL: only the server
     * checks, if it has a signature. */
    const tmsg_signature_t *signature;
} tmsg_call_stream_params_t;

/* Opens a stream to `method` of the peer and returns at once. Sends may follow
 * at once. `method` is UTF-8, 1 to 128 bytes, and is copied. The handler sees
 * `map` (NULL: an empty one), whose memory is lent until on_release. `params`
 * may be NULL. *stream_p is the caller's, freed with
 * tmsg_call_stream_destroy().
 * Errors here: the endpoint's own if it has failed, and:
 *   INVALID_PARAM
 *   UNSUPPORTED - an older peer; ucx://; as for tmsg_endpoint_send()
 *   RESOURCE_EXHAUSTED - this side has TMSG_STREAMS_OPEN_MOST on the endpoint
 *   LIMIT_EXCEEDED - the map is beyond the peer's limits
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_endpoint_open_stream(
    tmsg_endpoint_t *endpoint, const char *method, const tmsg_map_t *map,
    const tmsg_call_stream_params_t *params, tmsg_call_stream_t **stream_p);

/* Serves a stream. The handle is the handler's until the handler returns;
 * tmsg_call_stream_keep() gives another one. If the last handle is gone and the
 * stream was not ended, it ends with INTERNAL at its opener. If its last
 * message could not be sent (LIMIT_EXCEEDED, UNSUPPORTED, NO_MEMORY), it ends
 * with that status and its words.
 *
 * It runs on the thread that drives the worker, with no lock held, and may do
 * what a message handler may. Or it runs on a thread of the server
 * (TMSG_SERVER_PARAM_THREADS), and may also wait, and so read and send in a
 * loop. */
typedef void (*tmsg_stream_handler_fn)(void *arg, tmsg_call_stream_t *stream);

/* Offers a method that is a stream, as tmsg_server_register() offers one that
 * is called. It counts against concurrency and queue of the server and the
 * method, until its handler has returned and it was ended, or its last handle
 * is gone. A call to a stream's method ends with NOT_FOUND, and so does a
 * stream to a called method. Errors: those of tmsg_server_register(). */
TMSG_API tmsg_status_t tmsg_server_register_stream(
    tmsg_server_t *server, const char *method, tmsg_stream_handler_fn handler,
    void *arg, const tmsg_method_params_t *params);

enum {
    TMSG_CALL_STREAM_EVENT_READABLE = 1 << 0,
    TMSG_CALL_STREAM_EVENT_OVER = 1 << 1
};

/* Functions that a stream calls, each on the thread that drives the worker,
 * with no lock held, one at a time. They may call everything here except the
 * waits, destroy included. A function that field_mask does not name, or that is
 * NULL, is not called. */
typedef struct tmsg_call_stream_events {
    uint64_t field_mask; /* TMSG_CALL_STREAM_EVENT_*: those that are set */
    /* Something can be read that was not there when a read last returned
     * IN_PROGRESS: a message, the end of what the other side sends, or the
     * failure of the stream. Read until a read returns IN_PROGRESS again. */
    void (*on_readable)(void *arg, tmsg_call_stream_t *stream);
    /* The stream is over, with the status of tmsg_call_stream_status(). Called
     * once, and not on a side that ended or destroyed it itself. Messages that
     * came before an orderly end may still wait to be read. */
    void (*on_over)(void *arg, tmsg_call_stream_t *stream,
                    tmsg_status_t status);
    /* Passed to both. It must live as long as a handle is kept. If another
     * thread is just about to call one of them while the last handle is given
     * back, it must live until that call returns; nobody waits for it. To know
     * when it is free, cancel the stream, wait for on_over, and then give the
     * last handle back. on_over comes once if this side has not ended the
     * stream. on_over may give a handle back, too. A thread that cancels then
     * has a handle of its own (tmsg_call_stream_keep()), for the stream may end
     * by itself at that moment. */
    void *arg;
} tmsg_call_stream_events_t;

/* Sets these functions from now on; *events is copied. They are soon called for
 * what has happened already. NULL: none.
 * Errors:
 *   INVALID_PARAM - an unknown bit */
TMSG_API tmsg_status_t tmsg_call_stream_set_events(
    tmsg_call_stream_t *stream, const tmsg_call_stream_events_t *events);

/* Sends a map after those that were sent before. `params` (NULL: defaults) and
 * request_p (NULL: nobody waits) are as for tmsg_endpoint_send(), except for
 * the channel, TMSG_SEND_UNORDERED and the effect of `way` on the order, which
 * are the stream's. A send that is canceled or times out leaves that message
 * out. A send that fails otherwise ends the stream on both sides with its
 * status.
 *
 * If as many messages wait as the stream's queue takes, this drives the worker
 * until there is room, for at most timeout_ms of `params`. With TMSG_SEND_TRY,
 * and in a callback, it returns WOULD_BLOCK instead: there is room at the
 * latest when a send of this stream completes.
 * Errors: what the stream failed with, and:
 *   WOULD_BLOCK - the queue is full
 *   TIMED_OUT - there was no room in time
 *   CLOSED - this side has finished, or the stream is over and did not fail
 *   INVALID_PARAM - also if the map is not what the signature says
 *   LIMIT_EXCEEDED - the error names the limit of the receiver, its value, and
 *     what the map has
 * and the others of tmsg_endpoint_send(). INVALID_PARAM and all that follows
 * leave the stream as it was. */
TMSG_API tmsg_status_t tmsg_call_stream_send(tmsg_call_stream_t *stream,
                                             const tmsg_map_t *map,
                                             const tmsg_send_params_t *params,
                                             tmsg_request_t **request_p);

/* Says that this side sends no more. The other side reads to the end. A server
 * still has to end the stream. Never waits.
 * Errors: what the stream failed with, and:
 *   CLOSED - this side has finished before, or the stream is over and did not
 *     fail
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_call_stream_finish(tmsg_call_stream_t *stream);

/* Gives the next message, which is the caller's, freed with
 * tmsg_message_destroy(). With OK, NULL means that the other side has finished,
 * or ended the stream with OK, and everything has been read.
 * Errors: what the stream failed with, whose words are also in
 * tmsg_error_message(), and:
 *   IN_PROGRESS - nothing is here yet */
TMSG_API tmsg_status_t tmsg_call_stream_try_recv(tmsg_call_stream_t *stream,
                                                 tmsg_message_t **message_p);

/* Gives the next message, as tmsg_call_stream_try_recv() does, and drives the
 * worker until there is one or timeout_ms has passed (0: looks once; -1: no
 * limit).
 * Errors: what the stream failed with, and:
 *   TIMED_OUT
 *   WOULD_BLOCK - in a callback */
TMSG_API tmsg_status_t tmsg_call_stream_recv(tmsg_call_stream_t *stream,
                                             int timeout_ms,
                                             tmsg_message_t **message_p);

/* Ends a stream at its server, after the messages that it has sent. It ends
 * with OK, or with a failure as tmsg_task_fail() gives one: a status, a number
 * of the application (or 0), words (UTF-8, cut at 199 bytes; NULL: none), and
 * details (NULL: none). The details are lent until they are sent. What has not
 * been read is dropped. Never waits.
 * Errors: what tmsg_call_stream_status() says, if the stream was over, and:
 *   ALREADY_EXISTS - the stream was ended before
 *   INVALID_PARAM - a positive status, or this is the opening side
 * and those of tmsg_endpoint_send(), with which the stream then ends at its
 * opener. */
TMSG_API tmsg_status_t tmsg_call_stream_end(tmsg_call_stream_t *stream,
                                            tmsg_status_t status, int32_t code,
                                            const char *words,
                                            const tmsg_map_t *details);

/* Gives a stream up, from either side. It is over with CANCELED here now, and
 * soon at the other side. Messages that have not left are not sent. A stream
 * that is over stays as it was. */
TMSG_API void tmsg_call_stream_cancel(tmsg_call_stream_t *stream);

/* Drives the worker until the stream is over or timeout_ms has passed (0: looks
 * once; -1: no limit). Returns how the stream ended. Messages stay to be read.
 * If more messages wait than the window has, the end comes only after they are
 * read.
 * Errors: all that a stream may end with, and:
 *   TIMED_OUT
 *   WOULD_BLOCK - in a callback */
TMSG_API tmsg_status_t tmsg_call_stream_wait(tmsg_call_stream_t *stream,
                                             int timeout_ms);

/* Returns IN_PROGRESS, or how the stream ended. At the opener it is as
 * tmsg_call_status(). At the server it is what the server ended it with, or:
 *   CANCELED - by the opener, or with the endpoint
 *   TIMED_OUT - the opener's time is up
 *   PEER_LOST, CLOSED - the connection ended first
 *   UNAVAILABLE - the server was drained */
TMSG_API tmsg_status_t
tmsg_call_stream_status(const tmsg_call_stream_t *stream);

/* Returns why the stream failed, in one line; "" while it goes on or if it did
 * not fail. Valid until the stream is destroyed. */
TMSG_API const char *tmsg_call_stream_error(const tmsg_call_stream_t *stream);

/* At the opener, returns the number that the server ended the stream with; else
 * 0. */
TMSG_API int32_t tmsg_call_stream_code(const tmsg_call_stream_t *stream);

/* At the opener, returns the details that the server ended the stream with,
 * which may be an empty map; NULL if it ended otherwise. Valid until the stream
 * is destroyed. */
TMSG_API const tmsg_map_t *
tmsg_call_stream_details(const tmsg_call_stream_t *stream);

/* At the opener of a stream that failed: returns 0 if it is certain that no
 * handler saw the stream; else 1. */
TMSG_API int tmsg_call_stream_may_have_run(const tmsg_call_stream_t *stream);

/* At the server, returns the map that the stream was opened with; NULL at the
 * opener. Valid as long as the stream. */
TMSG_API const tmsg_map_t *
tmsg_call_stream_map(const tmsg_call_stream_t *stream);

/* Return the method's name, and the endpoint of the other side. Valid as long
 * as the stream. */
TMSG_API const char *tmsg_call_stream_method(const tmsg_call_stream_t *stream);
TMSG_API tmsg_endpoint_t *
tmsg_call_stream_endpoint(const tmsg_call_stream_t *stream);

/* Returns the milliseconds that are left of the opener's time, 0 when it is up;
 * -1 if the opener set no limit. */
TMSG_API int tmsg_call_stream_remaining_ms(const tmsg_call_stream_t *stream);

typedef struct tmsg_call_stream_stats {
    uint64_t sent;        /* maps that tmsg_call_stream_send() accepted */
    uint64_t received;    /* maps that have come */
    uint64_t unread;      /* of these, maps that wait to be read */
    uint64_t dropped;     /* maps that had come and that nobody will read */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_call_stream_stats_t;

/* Counts the messages so far, without the map that opened the stream and the
 * details of its end. */
TMSG_API void tmsg_call_stream_stats(const tmsg_call_stream_t *stream,
                                     tmsg_call_stream_stats_t *stats_p);

/* Returns `stream`, as one more handle that is given back with
 * tmsg_call_stream_destroy(). */
TMSG_API tmsg_call_stream_t *tmsg_call_stream_keep(tmsg_call_stream_t *stream);

/* Do what tmsg_task_put_off() and tmsg_task_begin() do, for a stream at its
 * server. At its opener they do nothing, and the second returns OK. */
TMSG_API void tmsg_call_stream_put_off(tmsg_call_stream_t *stream);
TMSG_API tmsg_status_t tmsg_call_stream_begin(tmsg_call_stream_t *stream);

/* Gives a handle back. With the last one a stream that goes on is canceled at
 * its opener, and ends with INTERNAL at its server. Its functions are not
 * called any more, and unread messages are dropped. NULL is allowed. */
TMSG_API void tmsg_call_stream_destroy(tmsg_call_stream_t *stream);

#ifdef __cplusplus
}
#endif

#endif
