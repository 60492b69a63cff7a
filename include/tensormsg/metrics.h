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

/* Calls and streams of a worker are counted for each method and side: those
 * that it made, and those that its server was asked for, which either began to
 * come or were rejected. Nothing is counted before tmsg_metrics_start(), and
 * never taken back. Names come from this program alone: those it registered,
 * and those it called, of which the first 256 have counts of their own and the
 * others share those of the name "". So do, at a server, all that peers ask for
 * and nobody has registered. See docs/reference/calls.md.
 *
 * Latencies are kept in a log-linear histogram of 8.5 KiB: from 0 to 2,048 ns
 * in steps of 32 ns, and from there on 32 steps of equal width to each power of
 * 2, up to 4,398 s, where the last takes all beyond. A value read from it is
 * the middle of its step: from 1 us on it is off by at most 1.6 %.
 *
 * Thread: any, on a worker that is shared; else the worker's own. */
typedef enum {
    TMSG_SIDE_CALLER = 1, /* from the call to its end, retries included */
    TMSG_SIDE_SERVER = 2  /* from the head's arrival to the answer */
} tmsg_side_t;

enum { TMSG_METRICS_STATUSES = 64 };

typedef struct tmsg_call_metrics {
    uint64_t ended;          /* calls that have */
    uint64_t in_flight;      /* that have not */
    uint64_t rejected;       /* a server's: refused as they began to come; not
                              * among those above */
    uint64_t retried;        /* a caller's: attempts beyond the first */
    uint64_t sent_bytes;     /* of tensors: requests, a server's replies */
    uint64_t received_bytes; /* the other way */
    uint64_t latency_sum_ns; /* of those that ended */
    uint64_t latency_most_ns;
    uint64_t by_status[TMSG_METRICS_STATUSES]; /* ended with TMSG_OK at 0, with
                                                * a failure at -status; at a
                                                * server as it was answered,
                                                * sent or not */
    uint64_t rejected_by_status[TMSG_METRICS_STATUSES]; /* of `rejected`, with
                                                         * what at -status */
    uint64_t running, waiting, held, stalls;            /* a server's: as of its
                                                         * tmsg_health_report_t, at the
                                                         * moment; whether others are
                                                         * counted or not */
    uint64_t long_handlers; /* a server's: times that a handler has held the
                             * thread that progresses for a second or more,
                             * which the log says the first time, and those of
                             * tmsg_metrics_note_long() */
    uint64_t reserved[4];   /* 0; later versions have further fields there */
} tmsg_call_metrics_t;

/* Counts from now on. Again: nothing changes. Errors: CLOSED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_metrics_start(tmsg_worker_t *worker);

/* What was counted of a method. Errors: NOT_FOUND (nothing), INVALID_PARAM. */
TMSG_API tmsg_status_t tmsg_metrics_read(tmsg_worker_t *worker,
                                         tmsg_side_t side, const char *method,
                                         tmsg_call_metrics_t *metrics_p);

/* The latency that so many millionths of the calls that ended did not exceed
 * (500000: the median, 999000: p99.9; 1000000: the longest). 0 where none has
 * ended. Errors: as above; INVALID_PARAM (above 1000000). */
TMSG_API tmsg_status_t tmsg_metrics_latency(tmsg_worker_t *worker,
                                            tmsg_side_t side,
                                            const char *method,
                                            uint32_t millionths,
                                            uint64_t *latency_ns_p);

/* Replies that came when nobody waited for them any more, as the call had been
 * canceled, or its time was up, and were dropped: of this worker's calls, since
 * its first, whether others are counted or not. Errors: INVALID_PARAM (a NULL),
 * CLOSED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_metrics_late_replies(tmsg_worker_t *worker,
                                                 uint64_t *count_p);

/* Counts one of `long_handlers` of a method of the worker's server. For a
 * program that runs its handlers elsewhere than on the thread that progresses,
 * in an event loop, and sees there that one holds up the others. Errors:
 * INVALID_PARAM (a NULL), NOT_FOUND (no such method), CLOSED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_metrics_note_long(tmsg_worker_t *worker,
                                              const char *method);

/* All of it as Prometheus reads it (text exposition format 0.0.4), ended by a
 * newline; "" where nothing was counted. Families: tensormsg_calls_total and,
 * of servers, tensormsg_calls_rejected_total {side, method, status},
 * tensormsg_calls_in_flight and tensormsg_call_retries_total {side, method}; of
 * servers tensormsg_calls_running, tensormsg_calls_waiting,
 * tensormsg_calls_held, tensormsg_call_stalls_total and
 * tensormsg_long_handlers_total {side, method};
 * tensormsg_call_bytes_total {side, method, direction}, the histogram
 * tensormsg_call_duration_seconds {side, method}, from 10 us to 100 s, and
 * tensormsg_late_replies_total, without labels. The caller frees *text_p with
 * tmsg_string_free(). Errors: CLOSED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_metrics_text(tmsg_worker_t *worker, char **text_p);

#ifdef __cplusplus
}
#endif

#endif
