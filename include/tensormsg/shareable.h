/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/shareable.h - memory that can be lent to peers instead of being
 * copied.
 *
 * A peer on the same machine reads tensors in shareable memory where they lie.
 * See docs/reference/loans.md.
 *
 *     tmsg_shareable_alloc(bytes, NULL, &memory_block);
 *     tmsg_map_add_array(map, "image", memory_block, "uint8", 3, shape);
 *     send_params.flags = TMSG_SEND_LEND; // with TMSG_SEND_PARAM_FLAGS
 *     tmsg_endpoint_send(endpoint, map, &send_params, &request);
 *     tmsg_shareable_free(memory_block);
 */
#ifndef TENSORMSG_SHAREABLE_H
#define TENSORMSG_SHAREABLE_H

#include <stdint.h>

#include <tensormsg/status.h>
#include <tensormsg/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A peer on the same machine reads shareable memory where it lies: a message
 * whose tensors lie in it need not be copied (docs/reference/loans.md). Each
 * block is lent as a whole. A block is a file without a name: it has no path,
 * and is gone when no process has it any more, however these end. Any thread
 * may call these functions.
 *
 * A block takes whole pages of memory and one descriptor (RLIMIT_NOFILE).
 * Allocating one costs as much as touching all its pages. So take few large
 * blocks rather than many small ones. When a block is no longer lent, write to
 * it again rather than allocate the next.
 *
 * A peer that was once lent a block can go on reading it, and what is written
 * there later: lend a block only to peers that may see all of that.
 *
 * The child of a fork() shares the blocks of its parent, for writing too: the
 * parent and its peers see what it writes there. The child must not write to
 * them, and cannot lend them. It may free them, which
 * does not free them in the parent. */

enum { TMSG_SHAREABLE_PARAM_DEVICE = 1 << 0 };

/* How a block is allocated. */
typedef struct tmsg_shareable_params {
    uint64_t field_mask; /* TMSG_SHAREABLE_PARAM_* */
    /* The device whose memory it is; the host without this field. CUDA devices
     * have such blocks. The rules here for pages, descriptors, zeros and loans
     * do not hold for them. A process on the same machine and GPU copies
     * tensors out of such a block, and the sender makes no copy
     * (docs/reference/domains.md). The block may be written to again when the
     * send has ended. */
    tmsg_device_t device;
} tmsg_shareable_params_t;

/* Allocates a block of `bytes`, all zeros, which begins at a page. All its
 * pages are there when this returns, so that no later read or write ends the
 * process by a signal because memory has run out. The caller frees it with
 * tmsg_shareable_free(). On an error *memory_p is untouched, and the error says
 * what was short or not allowed. `params` may be NULL.
 * Errors:
 *   INVALID_PARAM - 0 bytes, an unknown field, or memory_p is NULL
 *   NO_MEMORY - the machine, a cgroup of the process, vm.overcommit_memory or
 *     RLIMIT_AS
 *   LIMIT_EXCEEDED - RLIMIT_FSIZE or RLIMIT_NOFILE
 *   UNSUPPORTED - the process may not call memfd_create() (seccomp), or the
 *     kernel is older than 5.1; the device has no such memory, or is not in use
 *   NOT_FOUND - there is no such device
 *   IO - another call failed */
TMSG_API tmsg_status_t tmsg_shareable_alloc(
    uint64_t bytes, const tmsg_shareable_params_t *params, void **memory_p);

/* Frees a block: it is unmapped here. `memory` is where the block begins; NULL
 * does nothing. As for other memory, nothing that was begun with the block may
 * still go on here: its sends have ended. Peers that were lent the block keep
 * reading it, and its pages are freed with the last of them.
 * Errors:
 *   INVALID_PARAM - no block begins there, or it was freed already */
TMSG_API tmsg_status_t tmsg_shareable_free(void *memory);

/* Returns 1 while a peer may read the block in which this address lies, else 0.
 * A block that is lent must not be written to: the peer would see it. Without a
 * send that goes on, a block that is not lent stays so. Memory of another kind
 * is never lent: 0. In the child of a fork() the blocks of the parent always
 * count as lent, for nobody can tell. */
TMSG_API int tmsg_shareable_is_lent(const void *memory);

/* Returns 1 if the address lies in memory that a peer lends this process, which
 * must not be written to (tmsg_message_is_lent()); else 0. */
TMSG_API int tmsg_shareable_is_borrowed(const void *memory);

/* Maps `bytes` that a peer lends a second time, so that this process can write
 * to them. A page is the peer's until it is written to; then it is a copy. If
 * peers lend more than 128 blocks, all pages of the later ones are copied. This
 * is for libraries that know no read-only memory. The caller unmaps it with
 * tmsg_shareable_unmap_copy(), before the loan is given back: after that a page
 * may have other bytes.
 * Errors:
 *   INVALID_PARAM - 0 bytes, copy_p is NULL, or no peer lends all of them
 *   NO_MEMORY - it cannot be mapped */
TMSG_API tmsg_status_t tmsg_shareable_map_copy(const void *memory,
                                               uint64_t bytes, void **copy_p);

/* Unmaps such a copy. Pages that were written to are gone. On Linux 6.7 and
 * newer the library keeps a large mapping that nobody wrote to for the next
 * call with the same bytes, as long as the peer lends them. It has no memory of
 * its own. */
TMSG_API void tmsg_shareable_unmap_copy(void *copy, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
