/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/segment_check.h - the segments of shared memory that an address names,
 * looked at before UCX maps them.
 *
 * UCX maps what an address names, and reads and writes there as far as its own
 * settings say: the end of a smaller segment kills the process, and any file
 * that can be opened would be written to. Peers share memory only with
 * processes of the same user (hello.h), so a segment of another user is none of
 * the peer's. */
#ifndef TMSG_AM_UCX_SEGMENT_CHECK_H
#define TMSG_AM_UCX_SEGMENT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* UCX's number of a POSIX segment, read. */
typedef struct {
    bool in_proc;       /* a descriptor of a process, in /proc */
    bool in_shm;        /* a file of /dev/shm, or was, before it was unlinked */
    bool has_namespace; /* a pid namespace follows in the address */
    uint64_t id;        /* in its file's name, if not in_proc */
    uint32_t pid;       /* if in_proc */
    uint32_t fd;
    const char *folder; /* of the file; NULL: /dev/shm */
} tmsg_posix_segment_t;

/* Reads the number; the folder is NULL. */
void tmsg_posix_segment_read(uint64_t number, tmsg_posix_segment_t *segment);

/* Returns its size. 0: it is not there, or is no file of UCX's, or of another
 * user. */
uint64_t tmsg_posix_segment_bytes(const tmsg_posix_segment_t *segment);

/* Returns whether it is a file of UCX's, of this user and of at least `bytes`.
 * A link is none. `or_gone`: the answer is yes if there is none. It is yes,
 * too, for a descriptor that cannot be looked at: UCX cannot open it, and its
 * error says so. */
bool tmsg_posix_segment_holds(const tmsg_posix_segment_t *segment,
                              uint64_t bytes, bool or_gone);

/* The same of a segment of System V, which the process `pid` of this user is to
 * have made. */
uint64_t tmsg_sysv_segment_bytes(int id);
bool tmsg_sysv_segment_holds(int id, uint32_t pid, uint64_t bytes,
                             bool or_gone);

/* Returns how large a peer's segment is at least, where that of this side has
 * `bytes`. UCX may have got huge pages for the one and none for the other. */
uint64_t tmsg_segment_least(uint64_t bytes);

#endif
