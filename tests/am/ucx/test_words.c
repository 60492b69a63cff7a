/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX says goes to standard error: standard output is the program's. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/peers.h"

typedef struct {
    int fd;    /* standard output or error */
    int saved; /* what it was */
    FILE *file;
} stream_t;

static void redirect(stream_t *stream, int fd)
{
    fflush(NULL);
    stream->fd = fd;
    stream->saved = dup(fd);
    stream->file = tmpfile();
    must_true(stream->saved >= 0 && stream->file != NULL);
    must_eq(dup2(fileno(stream->file), fd), fd);
}

static void restore(stream_t *stream, char *text, size_t bytes)
{
    size_t got;

    fflush(NULL);
    must_eq(dup2(stream->saved, stream->fd), stream->fd);
    close(stream->saved);
    rewind(stream->file);
    got = fread(text, 1, bytes - 1, stream->file);
    text[got] = '\0';
    fclose(stream->file);
}

/* CMakeLists.txt sets UCX_NO_SUCH_SETTING, of which UCX warns. */
Test(words, go_to_standard_error)
{
    char printed[4096], said[4096];
    stream_t output, errors;
    side_t side;

    redirect(&output, STDOUT_FILENO);
    redirect(&errors, STDERR_FILENO);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    side_close(&side);
    restore(&errors, said, sizeof(said));
    restore(&output, printed, sizeof(printed));
    must_say(said, "UCX_NO_SUCH_SETTING");
    must_say(said, "UCX WARN");
    must_eq(printed[0], '\0');
}

/* UCX's own function for its lines; 2 is a warning. */
typedef void (*dispatch_fn)(const char *file, unsigned line,
                            const char *function, int level,
                            const void *component, const char *format, ...);

/* A peer can have UCX complain with each connection. */
Test(words, are_counted_if_there_are_many)
{
    char said[8192];
    unsigned lines = 0;
    dispatch_fn dispatch;
    stream_t errors;
    side_t side;

    *(void **)&dispatch = dlsym(RTLD_DEFAULT, "ucs_log_dispatch");
    must_true(dispatch != NULL);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    redirect(&errors, STDERR_FILENO);
    for (int i = 0; i < 50; i++) {
        dispatch("/a/file.c", 7, "f", 2, NULL, "line %d", i);
    }
    side_close(&side);
    restore(&errors, said, sizeof(said));
    for (const char *at = said; (at = strstr(at, "UCX WARN")) != NULL; at++) {
        lines++;
    }
    must_true(lines <= 10);
    must_say(said, " lines of UCX's file.c got left out in the last ");
}

static char passed[8192];

static void pass(void *arg, tmsg_log_level_t level, const char *line)
{
    size_t length = strlen(passed);

    must_eq(arg, &passed);
    snprintf(passed + length, sizeof(passed) - length, "%d %s\n", (int)level,
             line);
}

/* With all that UCX says, and the count of what it said too often. */
Test(words, go_to_the_applications_function)
{
    dispatch_fn dispatch;
    char said[4096];
    stream_t errors;
    side_t side;

    *(void **)&dispatch = dlsym(RTLD_DEFAULT, "ucs_log_dispatch");
    must_true(dispatch != NULL);
    redirect(&errors, STDERR_FILENO);
    tmsg_log_set_ucx(pass, &passed);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    must_say(passed, "2 parser.c:");
    must_say(passed, "UCX_NO_SUCH_SETTING");
    for (int i = 0; i < 20; i++) {
        dispatch("/a/file.c", 7, "f", 1, NULL, "line %d", i);
    }
    dispatch("/a/file.c", 7, "f", 5, NULL, "of a debugger");
    side_close(&side);
    must_say(passed, "1 file.c:7 line 1\n");
    must_say(passed, "4 file.c:7 of a debugger\n");
    must_say(passed, " lines of UCX's file.c got left out in the last ");
    tmsg_log_set_ucx(NULL, NULL);
    dispatch("/a/other.c", 7, "f", 5, NULL, "to standard error");
    restore(&errors, said, sizeof(said));
    must_say(said, "other.c:7 UCX DEBUG to standard error");
    must_eq(strstr(said, "file.c"), NULL);
}

static unsigned taken;

static int take_line(const char *file, unsigned line, const char *function,
                     int level, const void *component, const char *format,
                     va_list arguments)
{
    (void)file;
    (void)line;
    (void)function;
    (void)level;
    (void)component;
    (void)format;
    (void)arguments;
    taken++;
    return 0; /* nobody else gets it */
}

/* Another library in the process may want UCX's lines. */
Test(words, stay_with_who_asked_for_them_before)
{
    void (*push)(int (*handler)(const char *, unsigned, const char *, int,
                                const void *, const char *, va_list));
    dispatch_fn dispatch;
    side_t side;

    *(void **)&push = dlsym(RTLD_DEFAULT, "ucs_log_push_handler");
    *(void **)&dispatch = dlsym(RTLD_DEFAULT, "ucs_log_dispatch");
    must_true(push != NULL && dispatch != NULL);
    push(take_line);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    taken = 0;
    dispatch("/a/file.c", 7, "f", 2, NULL, "line");
    must_eq(taken, 1);
    side_close(&side);
}
