/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX says goes to standard error: standard output is the program's. */
#include <criterion/criterion.h>
#include <stdio.h>
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
