/* SPDX-License-Identifier: BSD-3-Clause */
/* hub.h - a worker as Go holds it. The library never calls Go: what Go waits
 * for is on a list here, and one call drives the worker and looks at all of
 * it. */
#ifndef TENSORMSG_GO_HUB_H
#define TENSORMSG_GO_HUB_H

#include <tensormsg/tensormsg.h>

typedef struct tmsggo_hub tmsggo_hub_t;
typedef struct tmsggo_door tmsggo_door_t;
typedef struct tmsggo_events tmsggo_events_t;
typedef struct tmsggo_call tmsggo_call_t;
typedef struct tmsggo_task tmsggo_task_t;
typedef struct tmsggo_stream tmsggo_stream_t;

/* A status with its words, which are fetched in the call that failed: the next
 * one may be on another thread. `words` is freed with free(); NULL: none. */
typedef struct tmsggo_result {
    tmsg_status_t status;
    char *words;
} tmsggo_result_t;

/* A tensor without pointers of Go's in it. */
typedef struct tmsggo_tensor {
    uintptr_t data;
    tmsg_device_t device;
    tmsg_stream_t stream;
    tmsg_dtype_t dtype;
    int32_t ndim;
    int32_t strided; /* its strides follow its shape in `dims` */
    uint64_t name;   /* where its name begins in `bytes` */
    uint64_t dims;   /* where its shape begins in `dims` */
} tmsggo_tensor_t;

/* A value of metadata. Key and data lie in `bytes`. */
typedef struct tmsggo_meta {
    int32_t type; /* tmsg_meta_type_t */
    int32_t boolean;
    int64_t i64;
    double f64;
    uint64_t key;
    uint64_t data;
    uint64_t data_bytes;
} tmsggo_meta_t;

/* What a goroutine can wait for. */
enum {
    TMSGGO_REQUEST, /* a request that has ended, its memory free */
    TMSGGO_CALL,    /* a call (tmsggo_call_t) that has ended */
    TMSGGO_RECV,    /* an endpoint that is readable */
    TMSGGO_ACCEPT,  /* a door with an endpoint */
    TMSGGO_LENT,    /* what begins with an atomic_int that is 0: nothing is
                     * lent to it any more, or events, of which there is one */
    TMSGGO_TASKS,   /* a hub with a task */
    TMSGGO_TASK,    /* a task whose answer nobody waits for any more */
    TMSGGO_READ,    /* a stream (tmsggo_stream_t) with something to be read */
    TMSGGO_STREAM,  /* a stream that is over */
    TMSGGO_CROWD,   /* a crowd (tmsggo_crowd_t) that is complete */
    TMSGGO_TOLD     /* a request that tells of its end; a mark */
};

enum { TMSGGO_IDS = 64 }; /* that one look gives at most */

/* The identities of those whose wait is over. */
typedef struct tmsggo_over {
    uint64_t ids[TMSGGO_IDS];
    int32_t count;
} tmsggo_over_t;

/* The words of the call before, which failed on this thread. */
tmsggo_result_t tmsggo_result(tmsg_status_t status);

tmsggo_result_t tmsggo_context(tmsg_context_params_t params,
                               tmsg_context_t **context_p);

tmsggo_result_t tmsggo_hub_create(tmsg_context_t *context,
                                  tmsg_worker_params_t params,
                                  tmsg_server_params_t server_params,
                                  int refusals, tmsggo_hub_t **hub_p);
/* Of messages that were refused, if it was made with `refusals`. */
tmsggo_events_t *tmsggo_hub_refusals(const tmsggo_hub_t *hub);
/* Destroys the worker, too. */
void tmsggo_hub_destroy(tmsggo_hub_t *hub);
int tmsggo_hub_fd(const tmsggo_hub_t *hub);
tmsg_worker_t *tmsggo_worker(tmsggo_hub_t *hub);

/* Puts a wait on the list; 1: it is over already, and not on the list. */
int tmsggo_watch(tmsggo_hub_t *hub, int kind, void *thing, uint64_t id);
void tmsggo_unwatch(tmsggo_hub_t *hub, uint64_t id);
/* Ends the waits for `thing`, which nothing looks at any more. */
void tmsggo_forget(tmsggo_hub_t *hub, const void *thing);

/* How often a thing was asked whether a wait for it is over. */
uint64_t tmsggo_asked(tmsggo_hub_t *hub);

/* The waits for a thing are over, if it is: for callbacks. */
void tmsggo_stir(tmsggo_hub_t *hub, int kind, const void *thing);

/* Who was told that something can be received has not received it: others are
 * asked for. */
void tmsggo_pass_on(tmsggo_hub_t *hub);

/* Takes those that are over off the list. */
void tmsggo_look(tmsggo_hub_t *hub, tmsggo_over_t *over);

/* Drives the worker until somebody's wait is over, or nothing has come for
 * spin_us. */
void tmsggo_drive(tmsggo_hub_t *hub, uint32_t spin_us, tmsggo_over_t *over);

/* Polls until something was handled: 1. 0: somebody's wait is over, or it has
 * polled for spin_us, since *end_p was 0. */
int tmsggo_spin(tmsggo_hub_t *hub, uint64_t *end_p, uint32_t spin_us,
                tmsggo_over_t *over);

/* 1: nothing is to be done, and one may sleep on `fd`. */
int tmsggo_arm(tmsggo_hub_t *hub, int fd, tmsggo_over_t *over);

/* `keep`: the listener keeps its endpoints, and the door has none. `peers`: the
 * door has events of its peers. */
tmsggo_result_t tmsggo_listen(tmsggo_hub_t *hub, const char *url,
                              tmsg_listener_params_t params, int keep,
                              int peers, tmsggo_door_t **door_p);
tmsggo_events_t *tmsggo_door_events(const tmsggo_door_t *door);
/* *blob_p is freed with free(). */
tmsggo_result_t tmsggo_door_blob(const tmsggo_door_t *door, void **blob_p,
                                 size_t *bytes_p);
const char *tmsggo_door_url(const tmsggo_door_t *door);
tmsg_endpoint_t *tmsggo_door_take(tmsggo_door_t *door);
void tmsggo_door_destroy(tmsggo_door_t *door);

/* What happened to a session, a peer of a listener, or a message that was
 * refused. The texts are freed with free(); any may be NULL. */
typedef struct tmsggo_event {
    int32_t kind;   /* tmsg_session_event_t, or 0: a peer came; -1: it ended */
    int32_t status; /* how it ended */
    uint32_t channel;  /* of a message, */
    uint32_t sequence; /* and its number there */
    char *peer;
    char *principal;
    char *words;
} tmsggo_event_t;

/* 0: there is none. The end of a session is given again and again. */
int tmsggo_events_take(tmsggo_events_t *events, tmsggo_event_t *event);

/* `blob`, if not NULL, takes the place of the URL. With `reconnect` the word of
 * the endpoint's user is the events of its session, as of a door with
 * `resume`. */
tmsggo_result_t tmsggo_dial(tmsggo_hub_t *hub, const char *url,
                            const void *blob, size_t blob_bytes,
                            tmsg_endpoint_params_t params,
                            tmsg_endpoint_t **endpoint_p,
                            tmsg_request_t **ready_p);

/* The waits for it are over. */
void tmsggo_endpoint_destroy(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint);
tmsggo_result_t tmsggo_close(tmsg_endpoint_t *endpoint,
                             tmsg_request_t **request_p);

/* A tensor as the library takes it. */
tmsg_tensor_t tmsggo_tensor_of(const tmsggo_tensor_t *from,
                               const int64_t *dims);

char *tmsggo_peer(const tmsg_endpoint_t *endpoint); /* freed with free() */
/* Also of one that connects, or is to come back, with words. */
tmsggo_result_t tmsggo_endpoint_status(const tmsg_endpoint_t *endpoint);
tmsggo_result_t tmsggo_ready(tmsg_endpoint_t *endpoint,
                             tmsg_request_t **request_p);
tmsggo_result_t tmsggo_ping(tmsg_endpoint_t *endpoint,
                            tmsg_request_t **request_p);
tmsggo_result_t tmsggo_set_queue(tmsg_endpoint_t *endpoint,
                                 tmsg_queue_params_t params);
tmsggo_result_t tmsggo_set_retry_budget(tmsg_endpoint_t *endpoint,
                                        uint32_t tokens, uint32_t thousandths);
tmsggo_result_t tmsggo_discard(tmsg_endpoint_t *endpoint);

/* Builds a map. */
tmsggo_result_t tmsggo_map(const tmsggo_tensor_t *tensors, size_t count,
                           const int64_t *dims, const tmsggo_meta_t *metas,
                           size_t meta_count, const char *bytes,
                           tmsg_map_t **map_p);

/* Sends a map. If the send has ended at once, its request is NULL. */
typedef struct tmsggo_sent {
    tmsggo_result_t result;
    tmsg_request_t *request;
} tmsggo_sent_t;
tmsggo_sent_t tmsggo_send(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                          const tmsg_map_t *map, uint32_t flags,
                          uint16_t channel, int timeout_ms);
/* Of a send that returned `status`. */
tmsggo_sent_t tmsggo_sent(tmsg_status_t status, tmsg_request_t *request);
/* The outcome, with which the request is destroyed. */
tmsggo_result_t tmsggo_request_end(tmsg_request_t *request);

/* Receives what comes within spin_us, in which the worker is driven, and takes
 * the waits that are over off the list meanwhile; 0: what is here. */
typedef struct tmsggo_received {
    tmsggo_result_t result;
    tmsg_message_t *message; /* and what it says: */
    const tmsg_map_t *map;
    int32_t is_lent;
    uint16_t channel;
} tmsggo_received_t;
/* With a message; NULL: none. */
tmsggo_received_t tmsggo_received(tmsggo_result_t result,
                                  tmsg_message_t *message);
tmsggo_received_t tmsggo_recv(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                              uint32_t spin_us, tmsggo_over_t *over);

/* A call, and how it ended, with its number. */
tmsggo_result_t tmsggo_call(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                            const char *method, const tmsg_map_t *map,
                            tmsg_call_params_t params, tmsggo_call_t **call_p);
/* One to which nothing is lent. NULL: no memory, and the call is destroyed. */
tmsggo_call_t *tmsggo_call_of(tmsg_call_t *call);
int tmsggo_call_may_have_run(const tmsggo_call_t *call);
void tmsggo_call_cancel(tmsggo_call_t *call);
tmsggo_result_t tmsggo_call_end(const tmsggo_call_t *call, int32_t *code_p,
                                const tmsg_map_t **reply_p, int *lent_p);
/* Once nothing is lent to it any more. */
void tmsggo_call_destroy(tmsggo_call_t *call);

/* Offers a method, or a stream, whose tasks have this index. */
tmsggo_result_t tmsggo_register(tmsggo_hub_t *hub, const char *method,
                                int stream, uint32_t index,
                                tmsg_method_params_t params);
tmsggo_result_t tmsggo_report(tmsggo_hub_t *hub, const char *method,
                              tmsg_health_report_t *report_p);
tmsggo_result_t tmsggo_set_health(tmsggo_hub_t *hub, const char *method,
                                  tmsg_health_t health);
tmsggo_result_t tmsggo_drain(tmsggo_hub_t *hub);
/* NULL: there is none. */
tmsggo_task_t *tmsggo_take(tmsggo_hub_t *hub);
/* The stream that it is, which is the caller's, with nothing left of the task;
 * NULL: a call. */
tmsggo_stream_t *tmsggo_task_stream(tmsggo_task_t *task);
uint32_t tmsggo_task_index(const tmsggo_task_t *task);
int tmsggo_task_remaining_ms(const tmsggo_task_t *task);
const tmsg_map_t *tmsggo_task_map(const tmsggo_task_t *task);
tmsg_endpoint_t *tmsggo_task_endpoint(const tmsggo_task_t *task);
/* An answer, after which the map is lent, if it is OK. */
tmsggo_result_t tmsggo_reply(tmsggo_task_t *task, const tmsg_map_t *map);
/* `details` (NULL: none) have memory of their own. */
void tmsggo_fail(tmsggo_task_t *task, tmsg_status_t status, int32_t code,
                 const char *words, const tmsg_map_t *details);
/* Once nothing is lent to it any more. */
void tmsggo_task_destroy(tmsggo_task_t *task);

/* The same, into a map. CANCEL_PENDING: a message is under way into the map.
 * `posts`: what comes meanwhile is received into it at once, without a copy,
 * for which each look takes longer. */
tmsggo_result_t tmsggo_recv_into(tmsggo_hub_t *hub, tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map, int posts,
                                 uint32_t spin_us, tmsggo_over_t *over);
tmsggo_result_t tmsggo_set(tmsg_map_t *map, size_t index, uintptr_t data,
                           tmsg_stream_t stream);

/* What goes on inside. */
tmsggo_result_t tmsggo_metrics_start(tmsggo_hub_t *hub);
tmsggo_result_t tmsggo_metrics_text(tmsggo_hub_t *hub, char **text_p);
tmsggo_result_t tmsggo_metrics_read(tmsggo_hub_t *hub, tmsg_side_t side,
                                    const char *method,
                                    tmsg_call_metrics_t *metrics_p);
tmsggo_result_t tmsggo_metrics_latency(tmsggo_hub_t *hub, tmsg_side_t side,
                                       const char *method, uint32_t millionths,
                                       uint64_t *ns_p);
tmsggo_result_t tmsggo_methods_read(const tmsg_map_t *reply,
                                    tmsg_methods_t **methods_p);
tmsggo_result_t tmsggo_health_read(const tmsg_map_t *reply,
                                   tmsg_health_report_t *report_p);

/* Files. */
tmsggo_result_t tmsggo_load(const char *path, tmsg_file_load_params_t params,
                            tmsg_map_t **map_p);
tmsggo_result_t tmsggo_save(const tmsg_map_t *map, const char *path,
                            tmsg_file_save_params_t params);

/* The library's lines, and UCX's, go to a descriptor, each behind a letter ('t'
 * or 'u') and the digit of its level; below 0: to standard error. */
void tmsggo_log(int fd, tmsg_log_level_t level);

/* Keys and certificates. */
tmsggo_result_t tmsggo_key_generate(uint8_t *key);
tmsggo_result_t tmsggo_key_save(const char *path, const char *principal,
                                const uint8_t *key);
void tmsggo_wipe(uint8_t *keys, size_t bytes);
tmsggo_result_t tmsggo_keyring(tmsg_keyring_t **ring_p);
tmsggo_result_t tmsggo_keyring_add(tmsg_keyring_t *ring, const char *principal,
                                   const uint8_t *key);
tmsggo_result_t tmsggo_keyring_remove(tmsg_keyring_t *ring,
                                      const char *principal);
tmsggo_result_t tmsggo_keyring_load(tmsg_keyring_t *ring, const char *path);
/* `names`: each with a NUL behind it. */
tmsggo_result_t tmsggo_keyring_replace(tmsg_keyring_t *ring, const char *names,
                                       const uint8_t *keys, size_t count);
tmsggo_result_t tmsggo_tls(tmsg_tls_params_t params, tmsg_tls_t **tls_p);
tmsggo_result_t tmsggo_tls_reload(tmsg_tls_t *tls);

tmsggo_result_t tmsggo_dtype_parse(const char *name, tmsg_dtype_t *dtype_p);

/* Descriptions, which are freed with free(); NULL: no memory. */
char *tmsggo_described(tmsg_status_t status, char *json);
char *tmsggo_describe_context(tmsg_context_t *context);
char *tmsggo_describe_worker(tmsggo_hub_t *hub);
char *tmsggo_describe_door(const tmsggo_door_t *door);
char *tmsggo_overview(tmsggo_hub_t *hub);
char *tmsggo_describe_endpoint(const tmsg_endpoint_t *endpoint);

/* Points tensors of a map of the same layout to their data, but those that are
 * there. */
tmsg_status_t tmsggo_point(tmsg_map_t *map, const tmsggo_tensor_t *tensors,
                           size_t count);

/* The first tensors of a map, up to `room`, from `first` on. Names stay the
 * map's. */
enum { TMSGGO_SHOWN = 16 };
typedef struct tmsggo_shown {
    size_t count; /* of all tensors */
    tmsg_tensor_t tensors[TMSGGO_SHOWN];
    const char *names[TMSGGO_SHOWN];
    size_t name_bytes[TMSGGO_SHOWN];
} tmsggo_shown_t;
void tmsggo_show(const tmsg_map_t *map, size_t first, tmsggo_shown_t *shown);

#endif
