/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/reads.h - whether one process of this machine may read the memory of
 * another. */
#ifndef TMSG_AM_UCX_READS_H
#define TMSG_AM_UCX_READS_H

#include <stdbool.h>

#include "am/ucx/config.h"

/* Returns whether this side's user lets memory be read: UCX_TLS does not rule
 * it out. */
bool tmsg_cma_is_wanted(const tmsg_ucx_keys_t *keys);

/* Returns whether the system lets this process call process_vm_readv(). */
bool tmsg_cma_is_possible(void);

/* Lets other processes of this user read this one's memory, if Yama
 * (kernel.yama.ptrace_scope 1) lets only a parent do so. UCX's cma does the
 * same. */
void tmsg_cma_let_in(void);

#endif
