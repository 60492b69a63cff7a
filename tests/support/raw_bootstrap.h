/* SPDX-License-Identifier: BSD-3-Clause */
/* support/raw_bootstrap.h - a peer that is none: it speaks to the bootstrap
 * socket by hand, right or wrong. */
#ifndef TMSG_TESTS_RAW_BOOTSTRAP_H
#define TMSG_TESTS_RAW_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/boot/hello.h"

/* Connects to "tcp://127.0.0.1:port" or "unix:///path". */
int raw_dial(const char *url);

/* The same; -1: nobody listens there. */
int raw_try_dial(const char *url);

/* Listens on a free port of 127.0.0.1 and writes the URL. */
int raw_listen(char *url, size_t bytes);

void raw_send(int fd, const void *data, size_t bytes);
void raw_send_magic(int fd);
void raw_send_frame(int fd, uint8_t type, const void *data, size_t bytes);

/* A hello as this process would say it, with UCX 1.2.3 for its UCX. */
void raw_hello(tmsg_hello_t *hello);
void raw_send_hello(int fd, const tmsg_hello_t *hello);

/* Reads what is there; true once the other end has closed or reset. What came
 * is appended to `data`, up to its capacity. */
typedef struct {
    int fd;
    uint8_t data[4096];
    size_t bytes;
} raw_reader_t;
bool raw_closed(void *reader);

/* What the peer wrote in its frame of that type, behind `skip` bytes, as text;
 * NULL without such a frame. Valid until the next call. */
const char *raw_find_frame(const raw_reader_t *reader, uint8_t type,
                           size_t skip);

/* How many bytes that frame has; 0 without such a frame. */
size_t raw_frame_bytes(const raw_reader_t *reader, uint8_t type);

#endif
