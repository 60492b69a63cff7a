/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - input files that change, or are cut short, while they are mapped.
 */
#ifndef TMSG_FAULT_H
#define TMSG_FAULT_H

/* Before a file is opened: notes its size, its times and which file it is.
 * From here on, to read of a mapping bytes that its file has no more, or that
 * its disk cannot give, ends the program with 1 and a line that names the file.
 * `path` is kept, not copied. Takes some milliseconds where the file was
 * written a moment ago: a later write could have the same time. */
void fault_watch(const char *path);

/* Forgets all that is watched. */
void fault_forget(void);

/* How a watched file differs from what it was, in words ("the file was cut
 * short while it was in use"), and which it is; NULL: none does. path_p may be
 * NULL. Stores through a shared mapping may leave no trace. */
const char *fault_changed(const char **path_p);

#endif
