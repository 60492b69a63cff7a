/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a program need git2.c itself, so that it is loaded before Criterion's
 * own library looks for libgit2. */
int git_libgit2_init(void);

int (*tmsg_wants_git2)(void) = git_libgit2_init;
