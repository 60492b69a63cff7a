/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/stall.h - says why calls wait for their handlers, and why those do not
 * begin.
 *
 * A task *waits* from when it stands for its turn until its handler begins. Of
 * the tasks that had their turn some are *put off*: they wait for a thread. A
 * method is *stalled* if tasks of it wait and none has begun for a second. */
#ifndef TMSG_RPC_STALL_H
#define TMSG_RPC_STALL_H

#include "rpc/server.h"

#define TMSG_STALL_WORDS 160

/* tmsg_stall_begin() counts the task as one that waits, tmsg_stall_end() ends
 * that; `begins` means that its handler begins. tmsg_stall_put_off() counts a
 * waiting task that has its turn. Lock held. */
void tmsg_stall_begin(tmsg_task_t *task);
void tmsg_stall_put_off(tmsg_task_t *task);
void tmsg_stall_end(tmsg_task_t *task, bool begins);

/* Begins to watch a server of which tasks wait, if nothing does yet. Returns
 * the time that tmsg_calls_alarm() is to be asked for; 0: none. Lock held. */
uint64_t tmsg_stall_watch(tmsg_server_t *server);

/* Ends the watch. Lock held. */
void tmsg_stall_forget(tmsg_server_t *server);

/* Notes that a handler of the method ran on the thread that progresses, and has
 * returned, where that took a second or more. `ticks` is tmsg_ticks() of when
 * it began. Lock not held. */
void tmsg_stall_held(tmsg_method_t *method, uint64_t ticks);

/* Writes why tasks of the method wait, as a peer may read it. Lock held. */
void tmsg_stall_why(const tmsg_method_t *method, char *words, size_t room);

/* Writes why the task's handler had not begun when its time was up. Lock
 * held. */
void tmsg_stall_late(const tmsg_task_t *task, char *words, size_t room);

/* Returns a stalled method of the server; NULL: there is none. Lock held. */
const tmsg_method_t *tmsg_stall_find(const tmsg_server_t *server);

/* Returns whether what comes has waited for memory for a second, which stalls
 * all methods, and writes so in words. Lock not held. */
bool tmsg_stall_starves(const tmsg_server_t *server, char *words, size_t room);

/* Stores the figures of a method; NULL stands for the whole server. Lock held.
 */
void tmsg_stall_report(const tmsg_server_t *server, const tmsg_method_t *method,
                       tmsg_health_report_t *report);

/* Adds what tmsg_worker_describe() tells of calls. Takes the lock. */
void tmsg_stall_count(tmsg_hub_t *hub, tmsg_calls_counts_t *counts);

#endif
