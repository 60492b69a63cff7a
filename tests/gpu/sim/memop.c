/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream memory operations of the simulated driver. "All memory pointers passed
 * as parameters to these operations are device pointers. None of the operations
 * accepts pointers to managed memory buffers." */
#include "gpu/sim/inside.h"

#define FLUSH (1u << 30) /* CU_STREAM_WAIT_VALUE_FLUSH */

/* The CPU's view of the word, which is to be of memory that CUDA knows. */
static int give(void *handle, op_t *op, address_t address)
{
    stream_t *stream;
    block_t *block;
    char *view;
    bool node;
    int result;

    if (address % op->bytes != 0 ||
        !sim_reach(address, op->bytes, &view, &block) || block == NULL ||
        block->kind == MANAGED) {
        return INVALID_VALUE;
    }
    op->to = (address_t)(uintptr_t)view;
    result = sim_stream_for_work(handle, &stream, &node);
    if (result == OK) {
        sim_give_work(stream, node, op);
    }
    return result;
}

/* "Blocks until remote writes are visible to the specified scope." */
API int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    IN_CONTEXT;
    if (target != 0 || (scope != 100 && scope != 200)) {
        return INVALID_VALUE;
    }
    COUNT(flushes);
    return OK;
}

/* "Enqueues a synchronization of the stream on the given memory location. Work
 * ordered after the operation will block until the given condition on the
 * memory is satisfied." CU_STREAM_WAIT_VALUE_FLUSH is refused where
 * CAN_FLUSH_REMOTE_WRITES is 0, as it is here. */
API int cuStreamWaitValue64_v2(void *stream, address_t address, uint64_t value,
                               unsigned flags)
{
    IN_CONTEXT;
    if ((flags & FLUSH) != 0) {
        return NOT_SUPPORTED;
    }
    if (flags > 3) {
        return INVALID_VALUE;
    }
    return give(stream,
                &(op_t){.work = AWAIT_VALUE,
                        .word = value,
                        .flags = flags,
                        .bytes = sizeof(value)},
                address);
}

/* "Write a value to memory." */
API int cuStreamWriteValue32_v2(void *stream, address_t address, uint32_t value,
                                unsigned flags)
{
    IN_CONTEXT;
    if (flags > 1) {
        return INVALID_VALUE;
    }
    return give(
        stream,
        &(op_t){.work = WRITE_VALUE, .word = value, .bytes = sizeof(value)},
        address);
}

API int cuStreamWriteValue64_v2(void *stream, address_t address, uint64_t value,
                                unsigned flags)
{
    IN_CONTEXT;
    if (flags > 1) {
        return INVALID_VALUE;
    }
    return give(
        stream,
        &(op_t){.work = WRITE_VALUE, .word = value, .bytes = sizeof(value)},
        address);
}
