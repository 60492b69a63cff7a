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

/* A stream is a call with many messages: its opener names a method of the
 * peer's server, either side sends maps, in order, until it finishes, and the
 * server says how it ended. One that only the server sends on, or only the
 * opener, is the same with one side that finishes at once.
 *
 * Each has a channel of its own: a side that does not read stops the other one
 * of that stream after a queue_depth of messages (tensormsg/worker.h), and
 * nobody else. tmsg_stream_t is another thing, of CUDA's. See
 * docs/reference/streams.md.
 *
 * Both sides have the same object. It is *over* once, on each side: at the
 * opener when the server's end has come; at the server when it has ended it; or
 * at once, on both, by a cancel, a deadline, the end of the connection or of
 * the server. What was received before an orderly end can still be read; what a
 * side has not read when a stream is over otherwise is dropped.
 *
 * Threads: all of these may be called from any thread where the worker is
 * shared, else from the worker's own; in any callback, too, but where it says
 * else. tmsg_call_stream_destroy() may be called from any thread after the
 * worker is gone, which ends the stream with CANCELED, and before that at the
 * opener of a stream that is over and has nothing left to be read. */
typedef struct tmsg_call_stream tmsg_call_stream_t;

/* By one side of an endpoint, at once. A stream that is over counts until what
 * came has been read, or its last handle is given back. */
enum { TMSG_STREAMS_OPEN_MOST = 512 };

enum {
    TMSG_CALL_STREAM_PARAM_TIMEOUT = 1 << 0,
    TMSG_CALL_STREAM_PARAM_QUEUE = 1 << 1,
    TMSG_CALL_STREAM_PARAM_ON_RELEASE = 1 << 2,
    TMSG_CALL_STREAM_PARAM_SIGNATURE = 1 << 3
};

typedef struct tmsg_call_stream_params {
    uint64_t field_mask; /* TMSG_CALL_STREAM_PARAM_*; unset: defaults */
    int32_t timeout_ms;  /* above 0: how long the whole stream may take, from
                          * here on, connecting included; the server is told
                          * what is left. -1, the default: no limit */
    uint32_t queue;      /* messages of this side that may wait for the other
                          * to read; 1 or more, default 64 */
    tmsg_release_fn on_release; /* default none: called once, when no byte of
                                 * what `map` borrows can be read any more */
    void *on_release_arg;
    /* What the method takes and gives, where the opener knows that
     * (tensormsg/signature.h). The stream keeps it: the caller may destroy its
     * handle at any time, and changes answer BUSY until the stream was let go
     * of. What this side sends is held against it before it leaves, and what
     * comes before it can be read: other than that, the stream is over with
     * INTERNAL. Default, or NULL: the server alone looks, if it has one. */
    const tmsg_signature_t *signature;
} tmsg_call_stream_params_t;

/* Opens a stream to `method` of the peer's and returns at once; it can be sent
 * on from here on. `method` is UTF-8, 1 to 128 bytes, and is copied. The
 * handler sees `map` (NULL: an empty one), whose memory is lent until
 * on_release. `params` may be NULL. *stream_p is the caller's, freed with
 * tmsg_call_stream_destroy(). Errors here: INVALID_PARAM, UNSUPPORTED (an older
 * peer; ucx://; as tmsg_endpoint_send()), RESOURCE_EXHAUSTED (this side has
 * TMSG_STREAMS_OPEN_MOST on the endpoint), LIMIT_EXCEEDED, CLOSED, NO_MEMORY,
 * and the endpoint's own where it has failed. */
TMSG_API tmsg_status_t tmsg_endpoint_open_stream(
    tmsg_endpoint_t *endpoint, const char *method, const tmsg_map_t *map,
    const tmsg_call_stream_params_t *params, tmsg_call_stream_t **stream_p);

/* Serves a stream. The handle is the handler's until that returns, and
 * whoever's who asked for it with tmsg_call_stream_keep(). Where the last one
 * is gone and the stream was not ended it ends with INTERNAL at its opener; or,
 * if its last message could not be sent (LIMIT_EXCEEDED, UNSUPPORTED,
 * NO_MEMORY), with that status and its words.
 * Thread: that which progresses, with no lock held, where it may do what a
 * message's handler may; or one of the server's own
 * (TMSG_SERVER_PARAM_THREADS), where it may also wait, and so read and send in
 * a loop. */
typedef void (*tmsg_stream_handler_fn)(void *arg, tmsg_call_stream_t *stream);

/* Offers a method that is a stream, as tmsg_server_register() does one that is
 * not. It counts against concurrency and queue of the server, and its own,
 * until its handler has returned and it was ended, or its last handle is gone.
 * A call to it, or a stream to a method that is
 * none, ends with NOT_FOUND. Errors: as tmsg_server_register(). */
TMSG_API tmsg_status_t tmsg_server_register_stream(
    tmsg_server_t *server, const char *method, tmsg_stream_handler_fn handler,
    void *arg, const tmsg_method_params_t *params);

enum {
    TMSG_CALL_STREAM_EVENT_READABLE = 1 << 0,
    TMSG_CALL_STREAM_EVENT_OVER = 1 << 1
};

/* What a stream tells, each on the thread that progresses, with no lock held,
 * one at a time. It may call everything here but the waits, destroy included.
 * What field_mask does not name, and what is NULL, is not told. */
typedef struct tmsg_call_stream_events {
    uint64_t field_mask; /* TMSG_CALL_STREAM_EVENT_*: those that are set */
    /* Something can be read that was not there when a read last said
     * IN_PROGRESS: a message, the end of what the other side writes, or the
     * failure of the stream. Read until it says so again. */
    void (*on_readable)(void *arg, tmsg_call_stream_t *stream);
    /* It is over, with the status of tmsg_call_stream_status(); once, and not
     * on a side that ended or destroyed it itself. Messages that came before an
     * orderly end may still be there to be read. */
    void (*on_over)(void *arg, tmsg_call_stream_t *stream,
                    tmsg_status_t status);
    void *arg; /* passed to both; must be there as long as a handle is kept, and
                * until an event returns that another thread is just about to
                * call when the last one is given back, which does not wait.
                * Who has to know when it is free cancels the stream, waits
                * until on_over has come, which it does once where this side
                * has not ended it, and then gives the last handle back. In
                * on_over a handle may be given back, too: another thread that
                * cancels has one of its own (tmsg_call_stream_keep()), for the
                * stream may end by itself just then */
} tmsg_call_stream_events_t;

/* Asks for these from now on; *events is copied. What has happened already is
 * told soon. NULL: for none. Errors: INVALID_PARAM (an unknown bit). */
TMSG_API tmsg_status_t tmsg_call_stream_set_events(
    tmsg_call_stream_t *stream, const tmsg_call_stream_events_t *events);

/* Sends a map behind those that were sent before. `params` (NULL: defaults) and
 * request_p (NULL: nobody waits) are as of tmsg_endpoint_send(), but for the
 * channel, TMSG_SEND_UNORDERED and `way`'s effect on order: it is the stream's.
 * A request that is canceled, or times out, leaves that message out, no more;
 * one that fails otherwise ends the stream on both sides with that.
 *
 * Where as many wait for the other side as the stream's queue takes, it drives
 * the worker until there is room, at most timeout_ms of `params`; with
 * TMSG_SEND_TRY, and in a callback, it returns WOULD_BLOCK instead: room comes
 * no later than a send of this stream completes. Errors: WOULD_BLOCK,
 * TIMED_OUT, CLOSED (this side has finished, or the stream is over and did not
 * fail), what it failed with; INVALID_PARAM (also where the map is not what the
 * signature says) and the others of tmsg_endpoint_send(), which leave the
 * stream as it was: LIMIT_EXCEEDED names the limit of the receiver, its value
 * and what the map has. */
TMSG_API tmsg_status_t tmsg_call_stream_send(tmsg_call_stream_t *stream,
                                             const tmsg_map_t *map,
                                             const tmsg_send_params_t *params,
                                             tmsg_request_t **request_p);

/* Says that this side sends no more: the other reads to the end. A server still
 * has to end the stream. Never waits. Errors: CLOSED (it was said before, or
 * the stream is over and did not fail), what it failed with, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_call_stream_finish(tmsg_call_stream_t *stream);

/* The next message, which is the caller's, freed with tmsg_message_destroy();
 * NULL with OK: the other side has finished, or ended the stream with OK, and
 * all has been read. Errors: IN_PROGRESS (nothing is there yet), what the
 * stream failed with, which is also put in tmsg_error_message(). */
TMSG_API tmsg_status_t tmsg_call_stream_try_recv(tmsg_call_stream_t *stream,
                                                 tmsg_message_t **message_p);

/* The same, but drives the worker until there is an answer or timeout_ms passed
 * (0: look once; -1: no limit). Errors: TIMED_OUT, WOULD_BLOCK (in a callback),
 * what the stream failed with. */
TMSG_API tmsg_status_t tmsg_call_stream_recv(tmsg_call_stream_t *stream,
                                             int timeout_ms,
                                             tmsg_message_t **message_p);

/* Ends a stream at its server, behind what it has sent: with OK, or a failure
 * as tmsg_task_fail(): its status, a number of the application's own (or 0),
 * words (UTF-8, cut at 199 bytes; NULL: none), details (NULL: none), lent until
 * they are sent. What has not been read is dropped. Never waits. Errors: what
 * tmsg_call_stream_status() says, where it was over, ALREADY_EXISTS where it
 * was ended, and that harms nobody; INVALID_PARAM (a positive status, on the
 * opening side); those of tmsg_endpoint_send(), with which the stream then ends
 * at its opener. */
TMSG_API tmsg_status_t tmsg_call_stream_end(tmsg_call_stream_t *stream,
                                            tmsg_status_t status, int32_t code,
                                            const char *words,
                                            const tmsg_map_t *details);

/* Gives a stream up, from either side: it is over with CANCELED now, here, and
 * soon there; what has not left is not sent. What is over stays as it was. */
TMSG_API void tmsg_call_stream_cancel(tmsg_call_stream_t *stream);

/* Drives the worker until the stream is over or timeout_ms passed (0: look
 * once; -1: no limit). Returns how it ended; messages stay to be read, and
 * where they are more than the window the end does not come before they are.
 * Errors: TIMED_OUT, WOULD_BLOCK (in a callback), and all that a stream may end
 * with. */
TMSG_API tmsg_status_t tmsg_call_stream_wait(tmsg_call_stream_t *stream,
                                             int timeout_ms);

/* IN_PROGRESS, or how it ended. At the opener as tmsg_call_status(); at the
 * server what it ended it with, or CANCELED (by the opener, or with the
 * endpoint), TIMED_OUT, PEER_LOST, CLOSED, UNAVAILABLE (drained). */
TMSG_API tmsg_status_t
tmsg_call_stream_status(const tmsg_call_stream_t *stream);

/* Why it failed, in one line; "" while it goes on or when it did not. Valid
 * until it is destroyed. */
TMSG_API const char *tmsg_call_stream_error(const tmsg_call_stream_t *stream);

/* At the opener, the number that the server ended it with; else 0. */
TMSG_API int32_t tmsg_call_stream_code(const tmsg_call_stream_t *stream);

/* At the opener, the details that the server ended it with (it may be an empty
 * map); NULL where it ended otherwise. Valid until it is destroyed. */
TMSG_API const tmsg_map_t *
tmsg_call_stream_details(const tmsg_call_stream_t *stream);

/* At the opener, of one that failed: 0 where it is certain that no handler saw
 * it; else 1. */
TMSG_API int tmsg_call_stream_may_have_run(const tmsg_call_stream_t *stream);

/* At the server, the map that it was opened with; NULL at the opener. As long
 * as the stream. */
TMSG_API const tmsg_map_t *
tmsg_call_stream_map(const tmsg_call_stream_t *stream);

/* The method's name, and the other side; as long as the stream. */
TMSG_API const char *tmsg_call_stream_method(const tmsg_call_stream_t *stream);
TMSG_API tmsg_endpoint_t *
tmsg_call_stream_endpoint(const tmsg_call_stream_t *stream);

/* Milliseconds that are left of the opener's time, 0 when it is up; -1 where it
 * set no limit. */
TMSG_API int tmsg_call_stream_remaining_ms(const tmsg_call_stream_t *stream);

typedef struct tmsg_call_stream_stats {
    uint64_t sent;        /* maps that tmsg_call_stream_send() took */
    uint64_t received;    /* that have come, */
    uint64_t unread;      /* and of these, to be read */
    uint64_t dropped;     /* that had come and nobody will read */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_call_stream_stats_t;

/* What has passed so far; the map it was opened with and the details not
 * counted. */
TMSG_API void tmsg_call_stream_stats(const tmsg_call_stream_t *stream,
                                     tmsg_call_stream_stats_t *stats_p);

/* One more handle, given back with tmsg_call_stream_destroy(). Returns
 * `stream`.
 */
TMSG_API tmsg_call_stream_t *tmsg_call_stream_keep(tmsg_call_stream_t *stream);

/* tmsg_task_put_off() and tmsg_task_begin() of a stream, for its server; at its
 * opener they do nothing, and the latter returns OK. */
TMSG_API void tmsg_call_stream_put_off(tmsg_call_stream_t *stream);
TMSG_API tmsg_status_t tmsg_call_stream_begin(tmsg_call_stream_t *stream);

/* Gives a handle back. With the last one a stream that goes on is canceled at
 * its opener, and ends with INTERNAL at its server; nothing is told of any
 * more; what was not read is dropped. NULL is allowed. */
TMSG_API void tmsg_call_stream_destroy(tmsg_call_stream_t *stream);

#ifdef __cplusplus
}
#endif

#endif
