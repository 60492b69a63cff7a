/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/lent.h - memory that a peer lends to this process, by a descriptor.
 * Files that are no memory are asked nothing: their file system may be the
 * peer's own. It is looked at before it is mapped, so that no peer, whatever it
 * does afterwards, can end this process by a signal where the memory is read:
 *
 *   - a file of memory (tmpfs), neither of huge pages nor of a disk;
 *   - as long as was said, and sealed so that it stays so (SHRINK, GROW);
 *   - no page of it is missing, and none can be given back (FUTURE_WRITE or
 *     WRITE);
 *   - the seals were all that there will be (SEAL).
 *
 * The number of blocks does not show that no page is missing: a file may have
 * pages behind its end, which count. So holes are looked for. A page that was
 * taken and never touched counts as one. */
#ifndef TMSG_AM_SHM_LENT_H
#define TMSG_AM_SHM_LENT_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

typedef struct {
    const uint8_t *memory; /* read-only; NULL: none */
    size_t bytes;
    uint64_t inode; /* of the file: another descriptor of it has the same */
} tmsg_borrowed_t;

/* Returns the inode of a file of memory; 0: the descriptor is of none. */
uint64_t tmsg_lent_inode(int fd);

/* Maps what the peer lends. To search 1 GiB for holes takes 15 ms. The
 * descriptor is taken over, also on an error; < 0 means that none came. On an
 * error *lent has no memory, and the message names what is wrong. The child of
 * a fork() keeps the mapping, and so the arrays that lie in it. Errors:
 * MALFORMED (it is not such memory), IO (no descriptor came), NO_MEMORY (it
 * cannot be mapped here). */
tmsg_status_t tmsg_lent_open(tmsg_borrowed_t *lent, int fd, size_t bytes);

/* Unmaps it. */
void tmsg_lent_close(tmsg_borrowed_t *lent);

#endif
