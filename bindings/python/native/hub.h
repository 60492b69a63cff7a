/* SPDX-License-Identifier: BSD-3-Clause */
/* hub.h - a worker as Python holds it. Declarations only: cffi reads them. */
#ifndef TENSORMSG_PYTHON_HUB_H
#define TENSORMSG_PYTHON_HUB_H

#include <stdint.h>

#include <tensormsg/domain.h>
#include <tensormsg/interceptor.h>
#include <tensormsg/key.h>
#include <tensormsg/publisher.h>
#include <tensormsg/reflect.h>
#include <tensormsg/server.h>
#include <tensormsg/stream.h>
#include <tensormsg/worker.h>

/* A worker and what happened on it that Python has not seen yet. The worker is
 * SHARED: any thread may call, without the interpreter's lock. Nothing here
 * takes that lock, so that callbacks of the library never wait for it. */
typedef struct tmsgpy_hub tmsgpy_hub_t;

/* One without a worker, for the callbacks of that. NULL: no memory. */
tmsgpy_hub_t *tmsgpy_hub_create(void);

/* How many forks there were from the first process with a hub to this one. What
 * was made before the last of them is left alone: to give it back would take
 * locks of threads that are not here, and speak over the parent's connections.
 */
unsigned tmsgpy_forks(void);

/* Takes the worker over, before anything else is done with the hub. */
void tmsgpy_hub_own(tmsgpy_hub_t *hub, tmsg_worker_t *worker);

/* For as long as it is open. */
tmsg_worker_t *tmsgpy_hub_worker(const tmsgpy_hub_t *hub);

/* Whether something has come that a receive may wait for, since this was asked
 * last, by whichever call. Inside of the hub, by one thread at a time. */
int tmsgpy_hub_came(tmsgpy_hub_t *hub);

/* The same, and it may be asked again. */
int tmsgpy_hub_has_come(tmsgpy_hub_t *hub);

/* Around each use of the worker or of what is on it. enter() answers 0 when it
 * was closed, and then leave() must not follow. */
int tmsgpy_hub_enter(tmsgpy_hub_t *hub);
void tmsgpy_hub_leave(tmsgpy_hub_t *hub);

/* Lets nobody in any more, waits until all have left (those that wait look
 * every so often) and destroys the worker. Once; again only waits. In an
 * allocator, or a hook, that was called inside of this hub nothing is waited
 * for: the last to leave destroys the worker. 0: one did so in the worker's own
 * thread: it goes by itself later, and what its callbacks use is never freed.
 */
int tmsgpy_hub_close(tmsgpy_hub_t *hub);
int tmsgpy_hub_is_closed(tmsgpy_hub_t *hub);

/* Frees a closed hub, when no handle on a stream holds it any more. No thread
 * uses it. */
void tmsgpy_hub_free(tmsgpy_hub_t *hub);

typedef struct tmsgpy_event {
    int accepted; /* 1: a peer came in; 0: one has ended */
    tmsg_endpoint_t *endpoint;
} tmsgpy_event_t;

/* Takes the oldest event: 1, or 0 if there is none. */
int tmsgpy_hub_event(tmsgpy_hub_t *hub, tmsgpy_event_t *event_p);

/* How many there have been, where it can be looked at without a call. */
const unsigned *tmsgpy_hub_events(const tmsgpy_hub_t *hub);

/* Something that became of the session of a dialled endpoint. */
typedef struct tmsgpy_session {
    int event; /* tmsg_session_event_t */
    char words[512];
} tmsgpy_session_t;

/* Notes what becomes of the session of that endpoint, from now on; each counts
 * as an event, too. Inside of the hub. */
void tmsgpy_hub_note_sessions(tmsgpy_hub_t *hub, tmsg_endpoint_t *endpoint);

/* Takes the oldest of these: 1, or 0 if there is none. If it `waits`, it drives
 * nothing, and 0 says that the hub is closed. */
int tmsgpy_hub_session(tmsgpy_hub_t *hub, int waits,
                       tmsgpy_session_t *session_p);

/* Waits until there were other than `seen`, or the hub is closed, for
 * timeout_ms at most (-1: no limit). Drives nothing. Outside of the hub, whose
 * memory the caller holds. Returns how many there were. */
unsigned tmsgpy_hub_await_events(tmsgpy_hub_t *hub, unsigned seen,
                                 int timeout_ms);

/* Has those who wait look, as if there had been an event. */
void tmsgpy_hub_nudge(tmsgpy_hub_t *hub);

/* A descriptor that is readable when a call has ended or come in, a task is
 * over, or there was an event, since tmsgpy_hub_calm(), whichever thread saw
 * it; -1: there is none. For the hub's life. */
int tmsgpy_hub_wake_fd(tmsgpy_hub_t *hub);
void tmsgpy_hub_calm(tmsgpy_hub_t *hub);

/* Serves from now on, and until tmsgpy_hub_unserve() or the hub's end.
 * `threads` and the like are Python's business: handlers only put their task in
 * a queue. Inside of the hub. */
tmsg_status_t tmsgpy_hub_serve(tmsgpy_hub_t *hub,
                               const tmsg_server_params_t *params);
tmsg_status_t tmsgpy_hub_offer(tmsgpy_hub_t *hub, const char *method, int index,
                               int is_stream,
                               const tmsg_method_params_t *params);

/* How its server is; a server that is over is NOT_FOUND. Inside of the hub. */
void tmsgpy_hub_report(tmsgpy_hub_t *hub, tmsg_health_report_t *report_p);

/* Not while another thread calls unserve(), unless with 0, which also ends a
 * drain that waits. */
tmsg_status_t tmsgpy_hub_drain(tmsgpy_hub_t *hub, int timeout_ms);
void tmsgpy_hub_unserve(tmsgpy_hub_t *hub);

/* What the server says of itself from now on (tensormsg/reflect.h). Inside of
 * the hub. */
tmsg_status_t tmsgpy_hub_set_health(tmsgpy_hub_t *hub, tmsg_health_t health);

/* What came in: a call's task or a stream, either a handle of the taker's, and
 * the index that its method was offered with. */
typedef struct tmsgpy_work {
    tmsg_task_t *task;
    tmsg_call_stream_t *stream;
    int index;
} tmsgpy_work_t;

/* Inside of the hub: waits up to timeout_ms for work, driving the worker. 1, or
 * 0: there is none. */
int tmsgpy_hub_task(tmsgpy_hub_t *hub, int timeout_ms, int spin_us,
                    tmsgpy_work_t *work_p);

/* How many tasks nobody waits for any more, and streams that were watched are
 * over, so far. */
unsigned tmsgpy_hub_overs(tmsgpy_hub_t *hub);

/* A handle on a stream, which holds the memory of the hub. */
typedef struct tmsgpy_stream tmsgpy_stream_t;

/* Takes the stream's handle over. NULL: no memory; it is then the caller's. */
tmsgpy_stream_t *tmsgpy_stream_make(tmsgpy_hub_t *hub,
                                    tmsg_call_stream_t *stream);
tmsg_call_stream_t *tmsgpy_stream_of(const tmsgpy_stream_t *handle);
tmsgpy_hub_t *tmsgpy_stream_hub(const tmsgpy_stream_t *handle);

/* From any thread; nothing in the child of a fork. */
void tmsgpy_stream_drop(tmsgpy_stream_t *handle);

/* Has the hub stirred and told where the stream can be read or is over. Inside
 * of the hub. */
void tmsgpy_stream_watch(tmsgpy_stream_t *handle);

/* Takes the stream that something was told of first: 1, or 0: nothing was.
 * NULL: of one that nobody knows, for there was no memory. */
int tmsgpy_hub_told(tmsgpy_hub_t *hub, const tmsg_call_stream_t **stream_p);

/* The arg of an allocator, a Python object, of memory of the host (0) or of
 * devices (1): it lives as long as the hub or its worker. */
void *tmsgpy_hub_asker(tmsgpy_hub_t *hub, int of_devices, void *allocator);

/* Allocators for the library: the object of their arg is called with the bytes,
 * the alignment and the device's number, and answers (address, owner) or
 * (status, words): the owner is kept until the memory comes back, and dropped
 * by a thread that may take the interpreter's lock. To ask for memory takes
 * that lock. */
tmsg_status_t tmsgpy_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p);
tmsg_status_t tmsgpy_device_alloc(void *arg, tmsg_device_t device,
                                  uint64_t bytes, uint64_t alignment,
                                  tmsg_stream_t stream, void **data_p,
                                  void **token_p);
void tmsgpy_dealloc(void *arg, void *data, uint64_t bytes, void *token);
void tmsgpy_device_dealloc(void *arg, tmsg_device_t device, void *data,
                           uint64_t bytes, tmsg_stream_t stream, void *token);

/* A line of the library's log, or of UCX's. */
typedef struct tmsgpy_line {
    int of_ucx;
    int level;         /* tmsg_log_level_t */
    unsigned left_out; /* lines before it */
    char text[1024];
} tmsgpy_line_t;

/* Keeps UCX's lines from now on, and those of the library of own_level and
 * graver; -1: these go where they went. */
void tmsgpy_log_take(int own_level);

/* Takes the oldest: 1, or 0: there is none, and it does not wait. */
int tmsgpy_log_next(int waits, tmsgpy_line_t *line_p);

/* Has calls and streams of that side seen by `hooks`, an object of Python's
 * that lives as long as the hub or its worker: by its methods of those names
 * that `mask` has (TMSG_INTERCEPTOR_*), with the numbers (tmsg_intercepted_t *,
 * sent, map). Inside of the hub. Errors: those of tmsg_worker_intercept(). */
tmsg_status_t tmsgpy_hub_intercept(tmsgpy_hub_t *hub, tmsg_side_t side,
                                   uint64_t mask, void *hooks);

/* Whether a receive of that endpoint has something to tell, a refusal, too.
 * Inside of the hub. */
int tmsgpy_hub_readable(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint);

/* The same, and its end is nothing. */
int tmsgpy_hub_waits(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint);

/* A message that was refused because an allocator gave it no memory. */
typedef struct tmsgpy_refused {
    tmsg_endpoint_t *endpoint; /* it may be gone: a number */
    tmsg_status_t status;
    char words[512];
} tmsgpy_refused_t;

/* Callback for the library, with the hub as its arg: takes note of those. */
void tmsgpy_on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error);

/* Takes the first of that endpoint, or of any (NULL): 1, or 0: there is none.
 */
int tmsgpy_hub_refused(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint,
                       tmsgpy_refused_t *refused_p);

/* Keys, each with its principal, one behind the other. */
typedef struct tmsgpy_keys {
    size_t count;
    char **principals;
    const uint8_t *keys;
} tmsgpy_keys_t;

/* For tmsg_keyring_fill(), with a tmsgpy_keys_t as its arg. */
tmsg_status_t tmsgpy_give_keys(void *arg, tmsg_keyring_t *keyring);

/* From now on those who come in are added to that publisher of the worker's,
 * which goes with that. Before the hub has a listener. */
void tmsgpy_hub_publish_by(tmsgpy_hub_t *hub, tmsg_publisher_t *publisher);

/* Callback for the library, with the hub as its arg. */
void tmsgpy_on_done(void *arg, tmsg_call_t *call);

/* Callbacks for the library, with the hub as their arg. */
void tmsgpy_on_accept(void *arg, tmsg_endpoint_t *endpoint);
void tmsgpy_on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error);

#endif
