/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/retained.h - payloads that UCX has lent, on their way back. */
#ifndef TMSG_AM_UCX_RETAINED_H
#define TMSG_AM_UCX_RETAINED_H

#include "am/ucx/ucx.h"

/* From any thread: an eager payload that UCX has laid somewhere for us, and
 * that nobody looks at any more, is to go back to UCX. Whether it is the first
 * such since the last release. */
bool tmsg_ucx_lift(tmsg_ucx_t *ucx, void *data);

/* Lock held, outside UCX: frees what was lifted by others. */
void tmsg_ucx_release_lifted(tmsg_ucx_t *ucx);

#endif
