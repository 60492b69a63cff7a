/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/words.h - what UCX says of itself. UCX writes its warnings and errors
 * to standard output, which belongs to the program. */
#ifndef TMSG_AM_UCX_WORDS_H
#define TMSG_AM_UCX_WORDS_H

#include <stdbool.h>

/* From now on UCX's lines go to standard error, or to the function of
 * tmsg_log_set_ucx(), for the whole process and whoever uses UCX in it. Of its
 * warnings and errors ten are told in 10 s, and then how many more there were.
 * Nothing changes if UCX_LOG_FILE says where they go, or if somebody in the
 * process has given UCX a function for them before. LOG_FILE in a configuration
 * file of UCX's is not seen. Called before UCX is asked for anything; any
 * thread, any number of times. */
void tmsg_ucx_words_begin(void);

/* Set while UCX serves peers on this thread. A UCX that knows CUDA says then in
 * vain that no transport leads to a peer: the peer has asked whether an
 * endpoint lives that is closed here, and UCX finds none to answer by. Such
 * lines are of level DEBUG, and not written to standard error. */
extern _Thread_local bool tmsg_ucx_words_serving;

#endif
