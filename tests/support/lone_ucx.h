/* SPDX-License-Identifier: BSD-3-Clause */
/* support/lone_ucx.h - a UCX worker of the library's on the loopback, without
 * the rest of it. It ignores what comes. */
#ifndef TMSG_TESTS_LONE_UCX_H
#define TMSG_TESTS_LONE_UCX_H

#include "am/ucx/ucx_ep.h"

/* `config` is that of a context. The hello is that of a process with the
 * instance `name`. */
tmsg_ucx_t *lone_ucx_open(tmsg_loop_t *loop, const char *config,
                          const char *name);

#endif
