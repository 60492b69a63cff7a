/* SPDX-License-Identifier: BSD-3-Clause */
/* reply.h - what `tensormsg call` does with an answer. */
#ifndef TMSG_REPLY_H
#define TMSG_REPLY_H

#include "tool.h"

/* Of `tensormsg call`, beside those of tool.h. */
enum {
    EXIT_APPLICATION = 3, /* the method says that it failed */
    EXIT_NO_METHOD = 4,
    EXIT_OTHER_MAP = 5, /* than the method takes */
    EXIT_TIMED_OUT = 6,
    EXIT_UNAVAILABLE = 7, /* try again later */
};

int exit_code_of(tmsg_status_t status);

typedef struct {
    const char *out; /* a folder or file, or NULL */
    bool force;
    bool json;
} reply_options_t;

/* Whether a reply can be kept there; makes the folder. False after a
 * complaint. */
bool reply_check(const reply_options_t *options);

/* Prints a call that has ended, and keeps its reply. False after a complaint
 * that it could not be. */
bool reply_take(const reply_options_t *options, const tmsg_call_t *call);

void reply_list(const reply_options_t *options, const tmsg_methods_t *methods);

#endif
