/* SPDX-License-Identifier: BSD-3-Clause */
/* core/crew.h - a few threads that help the caller with work that can be
 * divided. They sleep when there is none. */
#ifndef TMSG_CORE_CREW_H
#define TMSG_CORE_CREW_H

#include <stddef.h>

typedef struct tmsg_crew tmsg_crew_t;

/* Starts up to `count` threads, which block all signals. Returns NULL if there
 * is not even one. */
tmsg_crew_t *tmsg_crew_create(unsigned count);

/* Calls work(jobs + i * bytes) for each of the `count` jobs, some of them on
 * the crew's threads, and returns when all are done. One call at a time. With a
 * crew of NULL, or of a parent process, the caller does them all. */
void tmsg_crew_run(tmsg_crew_t *crew, void (*work)(void *job), void *jobs,
                   size_t bytes, size_t count);

/* Ends the threads, and waits until they have. NULL is allowed. */
void tmsg_crew_destroy(tmsg_crew_t *crew);

#endif
