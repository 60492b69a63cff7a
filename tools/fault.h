/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - notices input files that change, or are cut short, while they are
 * mapped. */
#ifndef TMSG_FAULT_H
#define TMSG_FAULT_H

/* Notes the size, the times and the identity of a file. The caller opens the
 * file afterwards. From then on the program ends with exit code 1 if it reads
 * mapped bytes that the file no longer has, or that the disk cannot read. A
 * line names the file. `path` is not copied, and must stay valid. The call
 * takes some milliseconds if the file was written a moment ago, because a later
 * write could have the same time. */
void fault_watch(const char *path);

/* Forgets all watched files. */
void fault_forget(void);

/* Returns text that tells how a watched file has changed, such as "the file was
 * cut short while it was in use". Stores its path in *path_p unless path_p is
 * NULL. Returns NULL if no file has changed. Stores through a shared mapping
 * may leave no trace. */
const char *fault_changed(const char **path_p);

#endif
