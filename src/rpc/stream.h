/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/stream.h - a stream: what it is beyond a call, or beyond a task.
 *
 * At its opener it is a call, which ends when the server's END has come, or
 * otherwise as calls do. At its server it is a task, which is answered by END.
 * Its references are those of the one or the other.
 *
 * Its place on its channel is free for another stream when both sides are done,
 * and its opener has read, or dropped, what came: the server says so with END
 * or OVER, one of which each OPEN gets that was not refused; the opener, where
 * it was first, with CANCEL. */
#ifndef TMSG_RPC_STREAM_H
#define TMSG_RPC_STREAM_H

#include "rpc/caller.h"
#include "rpc/server.h"

struct tmsg_call_stream {
    tmsg_call_t *call; /* at its opener; else */
    tmsg_task_t *task; /* at its server */
    tmsg_hub_t *hub;
    tmsg_rpc_peer_t *peer;
    tmsg_endpoint_t *endpoint;
    tmsg_stream_key_t key;
    uint16_t channel;
    uint64_t id;
    uint32_t queue;              /* messages of ours that may wait */
    tmsg_signature_t *signature; /* of its messages, held; NULL: any map */
    /* With the hub's lock: */
    unsigned handles;   /* at its opener */
    bool listed;        /* it has its place */
    bool finished;      /* we send no more */
    bool peer_finished; /* nor does the peer */
    bool peer_done;     /* the server has let go of it, and we know */
    bool told;          /* we have told the peer that we have */
    bool orderly;       /* it is over, and what has come can be read */
    bool settled;       /* it is over, and on_over may say so */
    bool over_told;
    bool hungry; /* a read found nothing */
    bool news;   /* for on_readable */
    bool noted;  /* `notice` is on its way, and has a reference */
    tmsg_rpc_event_t notice;
    tmsg_call_stream_events_t events;
    tmsg_list_t inbox;
    atomic_int outcome; /* what its server ends it with */
    uint64_t sent, received, dropped;
    char error[TMSG_CALL_TEXT_MOST + 1]; /* at its server */
    tmsg_status_t unsent; /* at its server: why its last message did not leave;
                           * OK: it did */
    char *unsent_words;   /* with that; NULL: no memory */
    bool end_unsent;      /* it is the END that did not */
};

void tmsg_stream_hold(tmsg_call_stream_t *stream);
void tmsg_stream_drop(tmsg_call_stream_t *stream); /* without a lock */

/* IN_PROGRESS, or how it ended. */
tmsg_status_t tmsg_stream_status(const tmsg_call_stream_t *stream);

/* Whether a message that is sent, or has come, is what the method takes, or
 * gives. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_stream_check(const tmsg_call_stream_t *stream, bool sent,
                                const tmsg_map_t *map);

/* NULL: nobody intercepts it. */
static inline struct tmsg_hooks *
tmsg_stream_hooks(const tmsg_call_stream_t *stream)
{
    return stream->call != NULL ? stream->call->hooks : stream->task->hooks;
}

/* The event of its call, or its task, that is over. Without a lock. */
void tmsg_stream_fire(tmsg_call_stream_t *stream);

/* Drops what nobody will read. Without a lock. */
void tmsg_stream_empty(tmsg_call_stream_t *stream);

/* Lock held: has its events told, soon, or at once by the second, which is
 * without a lock. */
void tmsg_stream_note(tmsg_call_stream_t *stream);
void tmsg_stream_tell(tmsg_call_stream_t *stream);

/* Lock held: something can be read. */
void tmsg_stream_fed(tmsg_call_stream_t *stream);

/* Lock held: whether one of ours needs its place no more: its server has let
 * go of it, and all that came is read, whose credits the next one there needs.
 */
bool tmsg_stream_is_free(const tmsg_call_stream_t *stream);

/* Frees the place of one of ours that is over, if it may. Without a lock. */
void tmsg_stream_retire(tmsg_call_stream_t *stream);

/* Lock held: its place is free. True: so was its reference, which is the
 * caller's now. */
bool tmsg_stream_unlist(tmsg_call_stream_t *stream);

/* The server has nothing to say to the peer but that it is over. Without a
 * lock, both. */
void tmsg_stream_let_go(tmsg_call_stream_t *stream);
void tmsg_stream_say_over(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                          uint64_t id, tmsg_status_t status, const char *words);

/* The END of a claimed task; the second with all. Without a lock. */
void tmsg_stream_say_end(tmsg_call_stream_t *stream, tmsg_status_t status,
                         const char *words);
tmsg_status_t tmsg_stream_send_end(tmsg_call_stream_t *stream, int32_t code,
                                   const char *words, size_t bytes,
                                   const tmsg_map_t *details);

/* Lock held: the one that is there, whatever its state; NULL: none. */
tmsg_call_stream_t *tmsg_stream_at(const tmsg_rpc_peer_t *peer,
                                   tmsg_stream_key_t key);

/* Lock held: the OPEN of one (NULL: of a call) was refused. */
void tmsg_stream_refused(tmsg_call_stream_t *stream);

/* Lock held: the same by its message id, of those that are over. */
bool tmsg_stream_bounces(tmsg_rpc_peer_t *peer, uint32_t message_id);

/* The peer's endpoint has ended: no place is anybody's. Without a lock. */
void tmsg_streams_let_go(tmsg_rpc_peer_t *peer);

/* Lock held: it is that task from now on. */
void tmsg_stream_serve(tmsg_call_stream_t *stream, tmsg_task_t *task);

/* Whether a message is too much, or of the wrong kind, for its receiver, or
 * there is no memory for it: not this side's own use of the stream. */
bool tmsg_stream_is_unsendable(tmsg_status_t status);

/* Lock held: a message did not leave, behind which a handler may let go of its
 * stream, or did (OK), or the END did not. */
void tmsg_stream_note_unsent(tmsg_call_stream_t *stream, tmsg_status_t status,
                             const char *why);

/* Lock held: what a task ends with that its handler let go of without an end:
 * why its last message did not leave, if it did not. */
tmsg_status_t tmsg_stream_unended(const tmsg_call_stream_t *stream,
                                  const char **words_p);

/* Frees one that nobody refers to any more. NULL is allowed. */
void tmsg_stream_free(tmsg_call_stream_t *stream);

/* A new one of that peer's, of neither side yet; NULL: no memory. */
tmsg_call_stream_t *tmsg_stream_make(tmsg_rpc_peer_t *peer,
                                     tmsg_stream_key_t key);

/* tmsg_calls_ops_t's `streamed` and `stuck`. */
void tmsg_stream_came(void *peer, tmsg_stream_key_t key,
                      tmsg_message_t *message, const tmsg_call_head_t *head,
                      tmsg_status_t status, const char *why);
void tmsg_stream_stuck(void *peer, tmsg_stream_key_t key, uint64_t id,
                       tmsg_status_t status, const char *error);

#endif
