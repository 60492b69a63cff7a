/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/retained.h - how payloads that UCX has lent go back to it. */
#ifndef TMSG_AM_UCX_RETAINED_H
#define TMSG_AM_UCX_RETAINED_H

#include "am/ucx/ucx.h"

/* Marks an eager payload in UCX's memory, which nobody looks at any more, as to
 * be given back to UCX. Returns whether it is the first since the last release.
 * May be called by any thread. */
bool tmsg_ucx_lift(tmsg_ucx_t *ucx, void *data);

/* Gives the marked payloads back to UCX. Lock held, outside UCX. */
void tmsg_ucx_release_lifted(tmsg_ucx_t *ucx);

#endif
