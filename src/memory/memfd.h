/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/memfd.h - memory as a file without a name, which other processes can
 * map. A page of it that is missing may be a signal where the memory is
 * touched: the page must be taken anew, and there may be none left. So pages
 * are taken at once, and seals keep them. */
#ifndef TMSG_MEMORY_MEMFD_H
#define TMSG_MEMORY_MEMFD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x10
#endif

/* These seals keep the length, and with it the mapping. */
#define TMSG_MEMFD_LENGTH_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
/* These keep the pages as well: nobody can give one back any more, not even
 * through a mapping that was there before. Writes through such mappings go on.
 */
#define TMSG_MEMFD_SEALS                                                       \
    (TMSG_MEMFD_LENGTH_SEALS | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

/* Makes an empty file that can be sealed. Returns its descriptor, or -1 with
 * errno. */
int tmsg_memfd_make(void);

/* Returns whether a file may have so many bytes (RLIMIT_FSIZE). If not, errno
 * is EFBIG; a file that grew to that length would be a signal. */
bool tmsg_memfd_may_have(size_t bytes);

/* Takes all pages that the file lacks up to `bytes`, and makes a shorter file
 * that long. Returns false with errno (EFBIG, ENOMEM, ENOSPC, ...) if they are
 * not to be had. */
bool tmsg_memfd_take_pages(int fd, size_t bytes);

/* Unmaps memory of a file (NULL: none), and closes the file (< 0: none). The
 * kernel may take back all pages there, 0.2 s a GiB: of many bytes a thread of
 * its own does that, which ends by itself. */
void tmsg_memfd_drop(int fd, void *memory, size_t bytes);

#endif
