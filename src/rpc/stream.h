/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/stream.h - what a stream has beyond a call or a task.
 *
 * At its opener a stream is a call, which ends when the server's END has come,
 * or as other calls do. At its server a stream is a task, which END answers.
 * References to the stream are references to that call or task.
 *
 * A stream's place on its channel is free for another when both sides are done
 * and the opener has read or dropped all that came. The server says so with END
 * or OVER; each OPEN that was not refused gets one of them. An opener that ends
 * first says so with CANCEL. The lock below is the hub's. */
#ifndef TMSG_RPC_STREAM_H
#define TMSG_RPC_STREAM_H

#include "rpc/caller.h"
#include "rpc/server.h"

struct tmsg_call_stream {
    tmsg_call_t *call; /* at the opener; NULL at the server */
    tmsg_task_t *task; /* at the server; NULL at the opener */
    tmsg_hub_t *hub;
    tmsg_rpc_peer_t *peer;
    tmsg_endpoint_t *endpoint;
    tmsg_stream_key_t key;
    uint16_t channel;
    uint64_t id;
    uint32_t queue; /* how many of this side's messages may wait */
    /* signature of the messages, held; NULL: any map */
    tmsg_signature_t *signature;
    /* The fields below need the hub's lock. */
    unsigned handles;   /* number of handles, at the opener */
    bool listed;        /* the stream has its place */
    bool finished;      /* this side sends no more */
    bool peer_finished; /* the peer sends no more */
    bool peer_done; /* the server has let go of the stream, as the opener knows
                     */
    bool told;      /* this side has told the peer that it has let go */
    bool orderly;   /* the stream is over, and what came can be read */
    bool settled;   /* the stream is over, and on_over may say so */
    bool over_told;
    bool reader_waits; /* a read found nothing */
    bool news;         /* on_readable is to be called */
    bool noted;        /* `notice` is queued, and has a reference */
    tmsg_rpc_event_t notice;
    tmsg_call_stream_events_t events;
    tmsg_list_t inbox;
    atomic_int outcome; /* status that the server ends the stream with */
    uint64_t sent, received, dropped;
    char error[TMSG_CALL_TEXT_MOST + 1]; /* at the server */
    tmsg_status_t unsent; /* at the server: why the last message did not leave;
                             OK: it did */
    char *unsent_words;   /* the words to `unsent`; NULL: no memory */
    bool end_unsent;      /* the message that did not leave is the END */
};

void tmsg_stream_hold(tmsg_call_stream_t *stream);
void tmsg_stream_drop(tmsg_call_stream_t *stream); /* lock not held */

/* Returns IN_PROGRESS, or how the stream ended. */
tmsg_status_t tmsg_stream_status(const tmsg_call_stream_t *stream);

/* Checks whether a message, sent or received, has the signature of the method's
 * stream. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_stream_check(const tmsg_call_stream_t *stream, bool sent,
                                const tmsg_map_t *map);

/* Returns the hooks of the stream's call or task; NULL: no interceptor sees it.
 */
static inline struct tmsg_hooks *
tmsg_stream_hooks(const tmsg_call_stream_t *stream)
{
    return stream->call != NULL ? stream->call->hooks : stream->task->hooks;
}

/* Handles the event of the stream's call or task that is over. Lock not held.
 */
void tmsg_stream_fire(tmsg_call_stream_t *stream);

/* Drops the messages that nobody will read. Lock not held. */
void tmsg_stream_empty(tmsg_call_stream_t *stream);

/* tmsg_stream_note() has the stream's events told soon. Lock held.
 * tmsg_stream_tell() tells them at once. Lock not held. */
void tmsg_stream_note(tmsg_call_stream_t *stream);
void tmsg_stream_tell(tmsg_call_stream_t *stream);

/* Notes that something can be read. Lock held. */
void tmsg_stream_fed(tmsg_call_stream_t *stream);

/* Returns whether a stream that this side opened no longer needs its place. Its
 * server has let go of it, and all that came is read: the next stream there
 * needs those credits. Lock held. */
bool tmsg_stream_is_free(const tmsg_call_stream_t *stream);

/* Frees the place of a stream that this side opened and that is over, if it
 * may. Lock not held. */
void tmsg_stream_retire(tmsg_call_stream_t *stream);

/* Frees the stream's place. Returns true if the place held a reference, which
 * is the caller's now. Lock held. */
bool tmsg_stream_unlist(tmsg_call_stream_t *stream);

/* These functions tell the peer that the stream is over and nothing else
 * follows: tmsg_stream_let_go() for a stream that has a record,
 * tmsg_stream_say_over() for one by its id. Lock not held. */
void tmsg_stream_let_go(tmsg_call_stream_t *stream);
void tmsg_stream_say_over(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                          uint64_t id, tmsg_status_t status, const char *words);

/* These functions send the END of a claimed task; tmsg_stream_send_end() sends
 * all that END carries. Lock not held. */
void tmsg_stream_say_end(tmsg_call_stream_t *stream, tmsg_status_t status,
                         const char *words);
tmsg_status_t tmsg_stream_send_end(tmsg_call_stream_t *stream, int32_t code,
                                   const char *words, size_t bytes,
                                   const tmsg_map_t *details);

/* Returns the stream at that place, in any state; NULL: none. Lock held. */
tmsg_call_stream_t *tmsg_stream_at(const tmsg_rpc_peer_t *peer,
                                   tmsg_stream_key_t key);

/* Notes that the OPEN of a stream was refused. NULL (a call without stream) is
 * allowed. Lock held. */
void tmsg_stream_refused(tmsg_call_stream_t *stream);

/* Notes that the OPEN with that message id was refused, for a stream whose call
 * has ended. Returns false if there is none. Lock held. */
bool tmsg_stream_bounces(tmsg_rpc_peer_t *peer, uint32_t message_id);

/* Frees all places of a peer whose endpoint has ended. Lock not held. */
void tmsg_streams_let_go(tmsg_rpc_peer_t *peer);

/* Makes the task the server's side of the stream. Lock held. */
void tmsg_stream_serve(tmsg_call_stream_t *stream, tmsg_task_t *task);

/* Returns whether a status means that a message cannot be sent: it is too large
 * or of the wrong kind for its receiver, or there is no memory. Wrong use of
 * the stream by this side is another status. */
bool tmsg_stream_is_unsendable(tmsg_status_t status);

/* Notes whether a message left, in case the handler lets go of the stream
 * behind it: OK if it did. Also notes an END that did not leave. Lock held. */
void tmsg_stream_note_unsent(tmsg_call_stream_t *stream, tmsg_status_t status,
                             const char *why);

/* Returns the status for a task whose handler let go of the stream without an
 * end: why the last message did not leave, if it did not. Lock held. */
tmsg_status_t tmsg_stream_unended(const tmsg_call_stream_t *stream,
                                  const char **words_p);

/* Frees a stream that nobody refers to any more. NULL is allowed. */
void tmsg_stream_free(tmsg_call_stream_t *stream);

/* Makes a stream of that peer, which has no call or task yet; NULL: no memory.
 */
tmsg_call_stream_t *tmsg_stream_make(tmsg_rpc_peer_t *peer,
                                     tmsg_stream_key_t key);

/* These functions serve as `streamed` and `stuck` of tmsg_calls_ops_t. */
void tmsg_stream_came(void *peer, tmsg_stream_key_t key,
                      tmsg_message_t *message, const tmsg_call_head_t *head,
                      tmsg_status_t status, const char *why);
void tmsg_stream_stuck(void *peer, tmsg_stream_key_t key, uint64_t id,
                       tmsg_status_t status, const char *error);

#endif
