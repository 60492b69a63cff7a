/* SPDX-License-Identifier: BSD-3-Clause */
/* core/log.h - writes log lines.
 *
 * A peer, or a stranger, can cause some lines as often as it likes. Such a line
 * belongs to a *kind*, and of a kind only the first lines of an interval are
 * written. The others are counted by whom they are about, and one line says the
 * count when the interval ends: "412 connections from 127.0.0.1 did not speak
 * tensormsg in the last 10 s". Lines and counts add up to what happened.
 *
 * A count is written by the first that comes after the interval: another line
 * of that kind, a worker's timer (tmsg_log_due_ns()), or tmsg_log_flush() at
 * the end of a worker. Lines of level DEBUG are not limited. */
#ifndef TMSG_CORE_LOG_H
#define TMSG_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/log.h>

#define TMSG_LOG_LINES 10      /* of a kind, in an interval */
#define TMSG_LOG_INTERVAL_S 10 /* the interval */
#define TMSG_LOG_WHOM_MOST 4   /* of whom a count is written by name */
#define TMSG_LOG_WHOM_BYTES 80

/* Lists the kinds: the name, what is counted, the words before whom, and what
 * happened, which holds for one and for many. */
#define TMSG_LOG_KINDS(KIND)                                                   \
    KIND(FOREIGN, "connection", "from", "did not speak tensormsg")             \
    KIND(UNFINISHED, "connection", "from",                                     \
         "did not finish the handshake in time")                               \
    KIND(GAVE_WAY, "connection", "from", "gave way to others")                 \
    KIND(NO_KEY, "connection", "from", "had no key")                           \
    KIND(WRONG_KEY, "connection", "from", "proved no key of this side")        \
    KIND(OLDER, "connection", "from", "came without admission")                \
    KIND(TOO_LONG, "connection", "from", "said too much in the handshake")     \
    KIND(HUNG_UP, "connection", "from", "broke in the handshake")              \
    KIND(TURNED_AWAY, "connection", "from", "did not get in")                  \
    KIND(NOT_ACCEPTED, "attempt", "to accept a peer at", "failed")             \
    KIND(REQUEST, "connect request", "at", "got ignored")                      \
    KIND(DIALLED, "connection", "to", "failed")                                \
    KIND(CONNECTED, "connection", "with", "began")                             \
    KIND(CLOSED, "connection", "with", "ended")                                \
    KIND(BROKEN, "connection", "with", "ended with an error")                  \
    KIND(AWAY, "connection", "with", "broke, and may come back")               \
    KIND(ATTEMPT, "attempt", "to reach", "failed")                             \
    KIND(WITHOUT, "connection", "with", "lacked something")                    \
    KIND(IGNORED, "active message", "from", "got ignored")                     \
    KIND(REFUSED, "message", "from", "got refused")                            \
    KIND(NOT_ARRIVED, "message", "from", "did not arrive")                     \
    KIND(FAILED, "message", "to", "failed")                                    \
    KIND(UNPUBLISHED, "published map", "to", "got lost")                       \
    KIND(UCX, "UCX worker", "for", "opened with a warning")                    \
    KIND(LEFT, "UCX worker", "of", "left memory behind")                       \
    KIND(UCX_SAID, "line", "of UCX's", "got left out")

#define TMSG_LOG_KIND(NAME, what, preposition, happened) TMSG_LOG_##NAME##_KIND,
typedef enum {
    TMSG_LOG_KINDS(TMSG_LOG_KIND) TMSG_LOG_KIND_COUNT
} tmsg_log_kind_t;
#undef TMSG_LOG_KIND

/* Writes a line that no peer can cause at will. */
void tmsg_log(tmsg_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes a line of a kind, or counts it. `whom` says whom it is about, in a few
 * words that do not differ from one event to the next. */
void tmsg_log_of(tmsg_log_kind_t kind, const char *whom, tmsg_log_level_t level,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Returns whether a line of UCX's, of a kind, may be written. If not, it is
 * counted, and so will be the count, whatever lines are wanted. */
int tmsg_log_may(tmsg_log_kind_t kind, const char *whom,
                 tmsg_log_level_t level);

/* Passes a line of UCX's to the application's function for them. Returns false
 * if there is none. */
bool tmsg_log_pass_ucx(tmsg_log_level_t level, const char *line);

/* Returns whether a line of that level would be seen. Call this before costly
 * formatting. */
int tmsg_log_wanted(tmsg_log_level_t level);

/* tmsg_log_due_ns() returns when the next count is to be written, on the clock
 * of tmsg_now_ns(); 0: there is none. It costs a load. tmsg_log_tell() writes
 * the counts whose interval is over, tmsg_log_flush() all of them. */
uint64_t tmsg_log_due_ns(void);
void tmsg_log_tell(void);
void tmsg_log_flush(void);

/* From now on the lines of the calling thread, which is one of the library's,
 * go to standard error: the program ends, and what the application's function
 * uses may be gone. */
void tmsg_log_outlives(void);

/* For tests: sets the clock, in nanoseconds; NULL: the kernel's. */
void tmsg_log_set_clock(uint64_t (*clock_ns)(void));

#endif
