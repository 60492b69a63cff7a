/* SPDX-License-Identifier: BSD-3-Clause */
/* reply.h - prints and saves the reply of a call for `tensormsg call`. */
#ifndef TMSG_REPLY_H
#define TMSG_REPLY_H

#include "tool.h"

/* `tensormsg call`, and `health` too, have these exit codes in addition to
 * those of tool.h. */
enum {
    EXIT_APPLICATION = 3, /* the method reported a failure */
    EXIT_NO_METHOD = 4,
    EXIT_OTHER_MAP = 5, /* the method takes another map */
    EXIT_TIMED_OUT = 6,
    EXIT_UNAVAILABLE = 7, /* the call may succeed later */
};

int exit_code_of(tmsg_status_t status);

typedef struct {
    const char *out; /* folder or file for the reply, or NULL */
    bool force;
    bool json;
} reply_options_t;

/* Tells whether the reply can be saved at `out`, and creates the folder.
 * Returns false after a complaint. */
bool reply_check(const reply_options_t *options);

/* Prints a call that has ended, and saves its reply. Returns false after a
 * complaint if the reply could not be saved. */
bool reply_take(const reply_options_t *options, const tmsg_call_t *call);

/* Asks how a method is (NULL: the whole server), prints the word for it, and
 * returns the exit code. A failure is a complaint. */
int reply_health(tmsg_endpoint_t *endpoint, const char *method, int timeout_ms);

void reply_list(const reply_options_t *options, const tmsg_methods_t *methods);

#endif
