/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include "memory/device_pool.h"
#include "support/must.h"
#include "support/simulated_device.h"

#define KIB 1024u

static tmsg_device_block_t take(tmsg_device_pool_t *pool, int32_t device)
{
    tmsg_device_block_t block = {.domain = &accelerator,
                                 .device = accelerator_device(device)};

    must(tmsg_device_pool_take(pool, KIB, &block));
    return block;
}

static int32_t device_of(const void *data)
{
    tmsg_memory_t memory;

    must(accelerator.classify(accelerator.arg, data, &memory));
    return memory.device.id;
}

Test(device_pool, gives_a_block_again_for_its_own_device_alone)
{
    tmsg_device_pool_t pool;
    tmsg_device_block_t first, other, again;

    tmsg_device_pool_init(&pool, 4 * KIB);
    first = take(&pool, 0);
    tmsg_device_pool_give(&pool, first);
    other = take(&pool, 1);
    cr_expect_eq(device_of(other.data), 1);
    again = take(&pool, 0);
    cr_expect_eq(again.data, first.data);
    tmsg_device_pool_give(&pool, other);
    tmsg_device_pool_give(&pool, again);
    tmsg_device_pool_free(&pool);
    cr_expect_eq(fake_blocks(), 0);
    cr_expect_null(fake_fault());
}
