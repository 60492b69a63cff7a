/* SPDX-License-Identifier: BSD-3-Clause */
/* key.h - what the commands do with --key FILE. */
#ifndef TMSG_TOOLS_KEY_H
#define TMSG_TOOLS_KEY_H

#include "tool.h"

/* Of every command that has it. */
#define KEY_HELP                                                               \
    "Prove a key of FILE, and have peers prove one (see tensormsg key)"

/* Creates a context with the keys of a file (NULL: with none), and else as
 * `params` say (NULL: as usual). Errors: those of tmsg_keyring_load() and
 * tmsg_context_create(). */
tmsg_status_t create_context(const char *key_path,
                             const tmsg_context_params_t *params,
                             tmsg_context_t **context_p);

#endif
