/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/metrics.h - how many calls there were, how they ended, and how
 * long they took.
 *
 * A worker counts its calls and streams, by method and side, once it is asked
 * to.
 *
 *     tmsg_metrics_start(worker);
 *     tmsg_metrics_read(worker, TMSG_SIDE_SERVER, "infer", &metrics);
 *     tmsg_metrics_latency(worker, TMSG_SIDE_SERVER, "infer", 990000, &p99_ns);
 *     tmsg_metrics_text(worker, &written); // for Prometheus
 *     tmsg_string_free(written);
 */
#ifndef TENSORMSG_METRICS_H
#define TENSORMSG_METRICS_H

#include <stdint.h>

#include <tensormsg/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The calls and streams of a worker are counted for each method and side: those
 * that the worker made, and those that its server was asked for, rejected ones
 * included. Nothing is counted before tmsg_metrics_start(), and counts are
 * never reset. See docs/reference/calls.md.
 *
 * Names come only from this program: those that it registered and those that it
 * called. The first 256 have their own counts. The others share the counts of
 * the name "". At a server, so do all names that peers ask for and nobody
 * registered.
 *
 * Latencies are kept in a log-linear histogram of 8.5 KiB. It has steps of 32
 * ns from 0 to 2,048 ns, and then 32 equal steps for each power of 2, up to
 * 4,398 s, where the last step takes everything beyond. A value that is read
 * from it is the middle of its step: from 1 us on it is off by at most 1.6 %.
 *
 * Threads: any, if the worker is shared; else the worker's own. */
typedef enum {
    TMSG_SIDE_CALLER = 1, /* from the call to its end, retries included */
    TMSG_SIDE_SERVER = 2  /* from the head's arrival to the answer */
} tmsg_side_t;

enum { TMSG_METRICS_STATUSES = 64 };

typedef struct tmsg_call_metrics {
    uint64_t ended;          /* calls that have ended */
    uint64_t in_flight;      /* calls that have not ended */
    uint64_t rejected;       /* at a server: calls that were refused as they
                              * began to come; not among those above */
    uint64_t retried;        /* at a caller: attempts after the first */
    uint64_t sent_bytes;     /* of tensors: requests; at a server replies */
    uint64_t received_bytes; /* in the other direction */
    uint64_t latency_sum_ns; /* of calls that have ended */
    uint64_t latency_most_ns;
    /* Calls that ended with OK at 0, with a failure at -status. At a server as
     * the call was answered, whether the answer was sent or not. */
    uint64_t by_status[TMSG_METRICS_STATUSES];
    uint64_t rejected_by_status[TMSG_METRICS_STATUSES]; /* `rejected`, at
                                                         * -status */
    /* At a server: as in its tmsg_health_report_t at this moment, whether other
     * things are counted or not. */
    uint64_t running, waiting, held, stalls;
    uint64_t long_handlers; /* at a server: how often a handler held the thread
                             * that drives the worker for a second or more,
                             * which the log tells the first time, and those of
                             * tmsg_metrics_note_long() */
    uint64_t reserved[4];   /* 0; later versions have further fields there */
} tmsg_call_metrics_t;

/* Counts from now on. A second call changes nothing.
 * Errors:
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_metrics_start(tmsg_worker_t *worker);

/* Gives the counts of a method.
 * Errors:
 *   NOT_FOUND - nothing was counted
 *   INVALID_PARAM - a pointer is NULL, or the side */
TMSG_API tmsg_status_t tmsg_metrics_read(tmsg_worker_t *worker,
                                         tmsg_side_t side, const char *method,
                                         tmsg_call_metrics_t *metrics_p);

/* Gives the latency that this many millionths of the ended calls did not exceed
 * (500000: the median, 999000: p99.9; 1000000: the longest); 0 if none has
 * ended.
 * Errors: those of tmsg_metrics_read(), and:
 *   INVALID_PARAM - more than 1000000 */
TMSG_API tmsg_status_t tmsg_metrics_latency(tmsg_worker_t *worker,
                                            tmsg_side_t side,
                                            const char *method,
                                            uint32_t millionths,
                                            uint64_t *latency_ns_p);

/* Counts replies that came when nobody waited for them any more, because the
 * call had been canceled or its time was up. They were dropped. It counts those
 * of this worker's calls, since its first, whether other things are counted or
 * not.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_metrics_late_replies(tmsg_worker_t *worker,
                                                 uint64_t *count_p);

/* Adds one to `long_handlers` of a method of the worker's server. It is for a
 * program that runs its handlers elsewhere than on the thread that drives the
 * worker, in an event loop, and notices there that one delays the others.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL
 *   NOT_FOUND - no such method
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_metrics_note_long(tmsg_worker_t *worker,
                                              const char *method);

/* Writes everything as Prometheus reads it (text exposition format 0.0.4),
 * ended by a newline; "" if nothing was counted. The families are:
 *  - tensormsg_calls_total {side, method, status}
 *  - tensormsg_calls_in_flight and tensormsg_call_retries_total {side, method}
 *  - tensormsg_call_bytes_total {side, method, direction}
 *  - tensormsg_call_duration_seconds {side, method}: a histogram, from 10 us to
 *    100 s
 *  - tensormsg_late_replies_total, without labels
 *  - of servers, tensormsg_calls_rejected_total {side, method, status}
 *  - of servers, tensormsg_calls_running, tensormsg_calls_waiting,
 *    tensormsg_calls_held, tensormsg_call_stalls_total and
 *    tensormsg_long_handlers_total {side, method}
 *
 * The caller frees *text_p with tmsg_string_free().
 * Errors:
 *   CLOSED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_metrics_text(tmsg_worker_t *worker, char **text_p);

#ifdef __cplusplus
}
#endif

#endif
