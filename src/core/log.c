/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/shown.h"

#define NS_PER_S UINT64_C(1000000000)
#define INTERVAL_NS (TMSG_LOG_INTERVAL_S * NS_PER_S)
#define LINE_BYTES 1024

typedef struct {
    const char *what, *preposition, *happened;
} words_t;

/* Holds how many events that have no line were about somebody. */
typedef struct {
    char whom[TMSG_LOG_WHOM_BYTES];
    uint64_t count;
} tally_t;

/* Holds the current interval of a kind. The last tally is of all others. */
typedef struct {
    uint64_t since_ns;
    uint64_t counts_ns; /* from when on the tallies count */
    unsigned lines;
    unsigned tallies; /* those in use, without the last */
    uint64_t counted; /* sum of the tallies */
    tmsg_log_level_t level;
    bool apart; /* the lines are not the library's: see tmsg_log_may() */
    tally_t tally[TMSG_LOG_WHOM_MOST + 1];
} interval_t;

/* The application's function for lines. */
typedef struct {
    tmsg_log_fn fn; /* NULL: standard error */
    void *arg;
} sink_t;

static const char *const level_names[] = {"none", "error", "warn", "info",
                                          "debug"};

#define KIND_WORDS(NAME, what, preposition, happened)                          \
    {what, preposition, happened},
static const words_t kind_words[] = {TMSG_LOG_KINDS(KIND_WORDS)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threshold = TMSG_LOG_NONE;
static atomic_bool takes_ucx; /* ucx_sink has a function */
/* The next fields are protected by the lock. */
static sink_t own_sink, ucx_sink;
static interval_t intervals[TMSG_LOG_KIND_COUNT];
static pid_t counter; /* the process whose events are counted */
static uint64_t (*clock_fn)(void);
/* When the next count is to be written; 0: there is none. */
static _Atomic uint64_t due_ns;
static _Thread_local bool holding; /* the lock */
/* The lines of this thread are not for the application's function. */
static _Thread_local bool outlives;

/* The thread that held the lock is not in the child. */
static void in_child(void)
{
    if (!holding) {
        pthread_mutex_init(&lock, NULL);
    }
}

static void set_up(void)
{
    const char *wanted = getenv("TENSORMSG_LOG");

    for (int i = 0; wanted != NULL && i <= TMSG_LOG_DEBUG; i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            atomic_store(&threshold, i);
        }
    }
    pthread_atfork(NULL, NULL, in_child);
}

static void enter(void)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    holding = true;
}

static void leave(void)
{
    holding = false;
    pthread_mutex_unlock(&lock);
}

static uint64_t read_clock(void)
{
    struct timespec now;

    if (clock_fn != NULL) {
        return clock_fn();
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int tmsg_log_wanted(tmsg_log_level_t level)
{
    pthread_once(&once, set_up);
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

/* `sink` NULL: to standard error. */
static void write_line(tmsg_log_level_t level, const char *line,
                       const sink_t *sink)
{
    if (sink != NULL && sink->fn != NULL && !outlives) {
        sink->fn(sink->arg, level, line);
    } else {
        fprintf(stderr, "tensormsg %s: %s\n", level_names[level], line);
    }
}

static void write_tally(const words_t *words, const interval_t *interval,
                        const tally_t *tally, uint64_t seconds,
                        const sink_t *sink)
{
    char line[256];

    snprintf(line, sizeof(line),
             "%" PRIu64 " %s%s %s %s %s in the last %" PRIu64 " s",
             tally->count, words->what, tally->count == 1 ? "" : "s",
             words->preposition, tally->whom, words->happened, seconds);
    write_line(interval->level, line, sink);
}

/* Writes what was counted of a kind, and begins to count anew. */
static void write_counts(size_t kind, uint64_t now_ns, bool by_sink)
{
    interval_t *interval = &intervals[kind];
    const sink_t *sink = interval->apart ? &ucx_sink : &own_sink;
    uint64_t seconds = (now_ns - interval->counts_ns + NS_PER_S / 2) / NS_PER_S;

    seconds = seconds == 0 ? 1 : seconds;
    for (size_t i = 0; i <= TMSG_LOG_WHOM_MOST; i++) {
        if (interval->tally[i].count > 0) {
            write_tally(&kind_words[kind], interval, &interval->tally[i],
                        seconds, by_sink ? sink : NULL);
        }
    }
    memset(interval->tally, 0, sizeof(interval->tally));
    interval->tallies = 0;
    interval->counted = 0;
    interval->counts_ns = now_ns;
}

static bool is_over(const interval_t *interval, uint64_t now_ns)
{
    return now_ns - interval->since_ns >= INTERVAL_NS;
}

/* Writes the counts of all kinds, or of those whose interval is over. */
static void write_all_counts(bool over_only, bool by_sink)
{
    uint64_t now_ns = read_clock(), next_ns = 0;

    for (size_t i = 0; i < TMSG_LOG_KIND_COUNT; i++) {
        interval_t *interval = &intervals[i];

        if (interval->counted == 0) {
            continue;
        }
        if (!over_only || is_over(interval, now_ns)) {
            write_counts(i, now_ns, by_sink);
        } else if (next_ns == 0 || interval->since_ns + INTERVAL_NS < next_ns) {
            next_ns = interval->since_ns + INTERVAL_NS;
        }
    }
    atomic_store(&due_ns, next_ns);
}

/* A process that was forked does not tell what its parent has counted. */
static void check_process(void)
{
    pid_t pid = getpid();

    if (counter != pid) {
        memset(intervals, 0, sizeof(intervals));
        atomic_store(&due_ns, 0);
        counter = pid;
    }
}

void tmsg_log_set(tmsg_log_level_t level, tmsg_log_fn fn, void *arg)
{
    enter();
    check_process();
    write_all_counts(false, true);
    memset(intervals, 0, sizeof(intervals));
    own_sink = (sink_t){fn, arg};
    atomic_store(&threshold, (int)level);
    leave();
}

void tmsg_log_set_ucx(tmsg_log_fn fn, void *arg)
{
    enter();
    check_process();
    write_all_counts(false, true);
    ucx_sink = (sink_t){fn, arg};
    atomic_store(&takes_ucx, fn != NULL);
    leave();
}

bool tmsg_log_pass_ucx(tmsg_log_level_t level, const char *line)
{
    bool passes;

    if (!atomic_load(&takes_ucx) || holding) {
        return false;
    }
    enter();
    passes = ucx_sink.fn != NULL && !outlives;
    if (passes) {
        ucx_sink.fn(ucx_sink.arg, level, line);
    }
    leave();
    return passes;
}

static void format_line(char line[LINE_BYTES], const char *format, va_list args)
{
    int length = vsnprintf(line, LINE_BYTES, format, args);

    if (length < 0) {
        line[0] = '\0';
        return;
    }
    (void)tmsg_shown_fit(line, LINE_BYTES, (size_t)length >= LINE_BYTES);
}

void tmsg_log(tmsg_log_level_t level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (!tmsg_log_wanted(level)) {
        return;
    }
    va_start(args, format);
    format_line(line, format, args);
    va_end(args);
    enter();
    write_line(level, line, &own_sink);
    leave();
}

/* Counts an event that has no line. */
static void count_event(interval_t *interval, const char *whom,
                        tmsg_log_level_t level)
{
    char name[TMSG_LOG_WHOM_BYTES];
    unsigned i = 0;

    tmsg_shown_format(name, sizeof(name), "%s", whom);
    while (i < interval->tallies &&
           strcmp(interval->tally[i].whom, name) != 0) {
        i++;
    }
    if (i == TMSG_LOG_WHOM_MOST) {
        snprintf(name, sizeof(name), "others");
    }
    interval->tallies += i == interval->tallies && i < TMSG_LOG_WHOM_MOST;
    memcpy(interval->tally[i].whom, name, sizeof(name));
    if (interval->counted == 0 || level < interval->level) {
        interval->level = level;
    }
    interval->tally[i].count++;
    interval->counted++;
}

/* Returns whether an event of a kind may have a line. If not, it is counted. */
static bool may_have_line(tmsg_log_kind_t kind, const char *whom,
                          tmsg_log_level_t level)
{
    interval_t *interval = &intervals[kind];
    uint64_t now_ns = read_clock(), end_ns;

    check_process();
    if (atomic_load_explicit(&due_ns, memory_order_relaxed) != 0) {
        write_all_counts(true, true);
    }
    if (interval->lines == 0 || is_over(interval, now_ns)) {
        interval->since_ns = now_ns;
        interval->counts_ns = now_ns;
        interval->lines = 0;
    }
    if (interval->lines < TMSG_LOG_LINES) {
        interval->lines++;
        return true;
    }
    count_event(interval, whom, level);
    end_ns = interval->since_ns + INTERVAL_NS;
    if (due_ns == 0 || end_ns < due_ns) {
        atomic_store(&due_ns, end_ns);
    }
    return false;
}

void tmsg_log_of(tmsg_log_kind_t kind, const char *whom, tmsg_log_level_t level,
                 const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (!tmsg_log_wanted(level)) {
        return;
    }
    enter();
    if (level == TMSG_LOG_DEBUG || may_have_line(kind, whom, level)) {
        va_start(args, format);
        format_line(line, format, args);
        va_end(args);
        write_line(level, line, &own_sink);
    }
    leave();
}

int tmsg_log_may(tmsg_log_kind_t kind, const char *whom, tmsg_log_level_t level)
{
    bool may;

    if (holding) { /* an application's function, which does not run in itself */
        return true;
    }
    enter();
    may = may_have_line(kind, whom, level);
    intervals[kind].apart = true;
    leave();
    return may;
}

uint64_t tmsg_log_due_ns(void)
{
    return atomic_load_explicit(&due_ns, memory_order_relaxed);
}

void tmsg_log_tell(void)
{
    enter();
    check_process();
    write_all_counts(true, true);
    leave();
}

void tmsg_log_flush(void)
{
    if (tmsg_log_due_ns() == 0) {
        return;
    }
    enter();
    check_process();
    write_all_counts(false, true);
    leave();
}

/* What is still counted when the process ends goes to standard error: main()
 * has returned, and what the application's function was to use may be gone.
 * Another thread that holds the lock may never let go of it. */
__attribute__((destructor)) static void process_ends(void)
{
    if (tmsg_log_due_ns() != 0 && pthread_mutex_trylock(&lock) == 0) {
        holding = true;
        check_process();
        write_all_counts(false, false);
        leave();
    }
}

void tmsg_log_outlives(void) { outlives = true; }

void tmsg_log_set_clock(uint64_t (*clock_ns)(void))
{
    enter();
    clock_fn = clock_ns;
    leave();
}
