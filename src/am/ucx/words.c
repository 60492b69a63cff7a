/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/words.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
/* UCX 1.18 writes GNU C here; in C11 the word is __asm__. */
#define asm __asm__
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include "core/log.h"

#define LINE_BYTES 1024

_Thread_local bool tmsg_ucx_words_serving;

static const char *name_of(ucs_log_level_t level)
{
    static const char *const names[] = {
        [UCS_LOG_LEVEL_FATAL] = "FATAL", [UCS_LOG_LEVEL_ERROR] = "ERROR",
        [UCS_LOG_LEVEL_WARN] = "WARN",   [UCS_LOG_LEVEL_DIAG] = "DIAG",
        [UCS_LOG_LEVEL_INFO] = "INFO",   [UCS_LOG_LEVEL_DEBUG] = "DEBUG"};

    return (size_t)level < sizeof(names) / sizeof(names[0]) ? names[level]
                                                            : "TRACE";
}

static tmsg_log_level_t level_of(ucs_log_level_t level)
{
    return level <= UCS_LOG_LEVEL_ERROR  ? TMSG_LOG_ERROR
           : level == UCS_LOG_LEVEL_WARN ? TMSG_LOG_WARN
           : level <= UCS_LOG_LEVEL_INFO ? TMSG_LOG_INFO
                                         : TMSG_LOG_DEBUG;
}

/* Returns whether a line of UCX's is to be left out, and counts it if so. Peers
 * can have UCX warn and complain, but nothing more that is told unasked. */
static bool is_left_out(ucs_log_level_t level, const char *file)
{
    return level <= UCS_LOG_LEVEL_WARN &&
           !tmsg_log_may(TMSG_LOG_UCX_SAID_KIND, file, level_of(level));
}

static bool is_in_vain(ucs_log_level_t level, const char *function)
{
    return tmsg_ucx_words_serving && level == UCS_LOG_LEVEL_ERROR &&
           strcmp(function, "ucp_wireup_select_transport") == 0;
}

/* UCX writes what is fatal to standard error itself, and ends the process. It
 * prints what its settings ask for, such as statistics, where they say. */
static ucs_log_func_rc_t say(const char *file, unsigned line,
                             const char *function, ucs_log_level_t level,
                             const ucs_log_component_config_t *component,
                             const char *format, va_list arguments)
{
    const char *slash = strrchr(file, '/');
    char text[LINE_BYTES], passed[LINE_BYTES + 64];
    struct timeval now;

    bool in_vain = is_in_vain(level, function);

    (void)component;
    if (level == UCS_LOG_LEVEL_FATAL || level == UCS_LOG_LEVEL_PRINT) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    file = slash == NULL ? file : slash + 1;
    level = in_vain ? UCS_LOG_LEVEL_DEBUG : level;
    if (is_left_out(level, file)) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    vsnprintf(text, sizeof(text), format, arguments);
    snprintf(passed, sizeof(passed), "%.40s:%u %s", file, line, text);
    if (tmsg_log_pass_ucx(level_of(level), passed) || in_vain) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    gettimeofday(&now, NULL);
    fprintf(stderr, "[%lld.%06lld] [pid %d] %s:%u UCX %s %s\n",
            (long long)now.tv_sec, (long long)now.tv_usec, (int)getpid(), file,
            line, name_of(level), text);
    return UCS_LOG_FUNC_RC_STOP;
}

/* LOG_LEVEL_TRIGGER says at which lines UCX ends the process, which UCX's own
 * function does. It may be in a file of UCX's. UCX does not tell its LOG_FILE:
 * asked for it, it answers with LOG_FILE_FILTER. */
static bool has_other_settings(void)
{
    char trigger[64] = "";

    return getenv("UCX_LOG_FILE") != NULL ||
           ucs_global_opts_get_value("LOG_LEVEL_TRIGGER", trigger,
                                     sizeof(trigger)) != UCS_OK ||
           strcasecmp(trigger, "fatal") != 0;
}

/* UCX has one function for its lines; any other is of somebody else in the
 * process, who wants them. */
static void begin(void)
{
    if (ucs_log_num_handlers() <= 1 && !has_other_settings()) {
        ucs_log_push_handler(say);
    }
}

void tmsg_ucx_words_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, begin);
}
