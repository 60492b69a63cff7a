/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include "memory/pool.h"
#include "support/must.h"

#define MIB (1ull << 20)

static tmsg_pool_t pool;

static void open_pool(void) { tmsg_pool_init(&pool, 4 * MIB, 2 * MIB); }
static void close_pool(void) { tmsg_pool_free(&pool); }

TestSuite(pool, .init = open_pool, .fini = close_pool);

static tmsg_pool_block_t take(uint64_t bytes)
{
    tmsg_pool_block_t block;

    must(tmsg_pool_take(&pool, bytes, &block));
    cr_assert(block.capacity >= bytes);
    cr_assert_eq((uintptr_t)block.data % TMSG_POOL_ALIGNMENT, 0);
    return block;
}

Test(pool, gives_the_same_block_again)
{
    tmsg_pool_block_t first = take(MIB);
    void *data = first.data;

    tmsg_pool_give(&pool, first);
    first = take(MIB - 100);
    cr_expect_eq(first.data, data);
    cr_expect_eq(first.capacity, MIB);
    cr_expect_eq(pool.kept, 0);
    tmsg_pool_give(&pool, first);
}

Test(pool, gives_the_newest_that_fits)
{
    tmsg_pool_block_t older = take(MIB), newer = take(MIB), small = take(10);

    tmsg_pool_give(&pool, older);
    tmsg_pool_give(&pool, newer);
    tmsg_pool_give(&pool, small);
    cr_expect_eq(take(MIB).data, newer.data);
    cr_expect_eq(take(MIB).data, older.data);
    cr_expect_eq(take(10).data, small.data);
    tmsg_pool_give(&pool, older);
    tmsg_pool_give(&pool, newer);
    tmsg_pool_give(&pool, small);
}

Test(pool, gives_the_liked_block_where_that_fits)
{
    tmsg_pool_block_t older = take(MIB), newer = take(MIB), small = take(10);
    tmsg_pool_block_t got;

    tmsg_pool_give(&pool, older);
    tmsg_pool_give(&pool, newer);
    tmsg_pool_give(&pool, small);
    must(tmsg_pool_take_at(&pool, older.data, MIB, &got));
    cr_expect_eq(got.data, older.data);
    must(tmsg_pool_take_at(&pool, small.data, MIB, &got));
    cr_expect_eq(got.data, newer.data);
    must(tmsg_pool_take_at(&pool, newer.data, 10, &got)); /* not here */
    cr_expect_eq(got.data, small.data);
    tmsg_pool_give(&pool, older);
    tmsg_pool_give(&pool, newer);
    tmsg_pool_give(&pool, small);
}

Test(pool, does_not_waste_a_large_block_on_a_small_need)
{
    tmsg_pool_block_t large = take(MIB), small;

    tmsg_pool_give(&pool, large);
    small = take(1000);
    cr_expect_neq(small.data, large.data);
    cr_expect_eq(pool.kept, MIB);
    tmsg_pool_give(&pool, small);
    small = take(MIB / 2);
    cr_expect_eq(small.data, large.data);
    tmsg_pool_give(&pool, small);
}

Test(pool, keeps_no_more_than_it_may)
{
    tmsg_pool_block_t blocks[5], huge = take(5 * MIB);

    for (size_t i = 0; i < 5; i++) {
        blocks[i] = take(MIB);
    }
    for (size_t i = 0; i < 5; i++) {
        tmsg_pool_give(&pool, blocks[i]);
    }
    cr_expect_eq(pool.kept, 4 * MIB);
    tmsg_pool_give(&pool, huge);
    cr_expect_eq(pool.kept, 4 * MIB);
    huge = take(4 * MIB);
    tmsg_pool_give(&pool, huge); /* in place of all the others */
    cr_expect_eq(pool.kept, 4 * MIB);
    cr_expect_eq(pool.count, 1);
}

Test(pool, keeps_few_blocks_however_small)
{
    tmsg_pool_block_t blocks[TMSG_POOL_BLOCKS + 3];

    for (size_t i = 0; i < TMSG_POOL_BLOCKS + 3; i++) {
        blocks[i] = take(64);
    }
    for (size_t i = 0; i < TMSG_POOL_BLOCKS + 3; i++) {
        tmsg_pool_give(&pool, blocks[i]);
    }
    cr_expect_eq(pool.count, TMSG_POOL_BLOCKS);
    tmsg_pool_give(&pool, (tmsg_pool_block_t){NULL, 0});
    cr_expect_eq(pool.count, TMSG_POOL_BLOCKS);
}

Test(pool, frees_what_nobody_takes_beyond_what_may_last)
{
    tmsg_pool_block_t large = take(3 * MIB), small = take(MIB);

    tmsg_pool_give(&pool, small);
    cr_expect(!tmsg_pool_hoards(&pool));
    tmsg_pool_give(&pool, large);
    cr_expect(tmsg_pool_hoards(&pool));
    tmsg_pool_trim(&pool); /* it may be used again */
    cr_expect_eq(pool.kept, 4 * MIB);
    tmsg_pool_give(&pool, take(3 * MIB));
    tmsg_pool_trim(&pool); /* the small one was not, and is older */
    cr_expect_eq(pool.kept, 3 * MIB);
    cr_expect(tmsg_pool_hoards(&pool));
    tmsg_pool_trim(&pool);
    cr_expect_eq(pool.kept, 0);
    cr_expect(!tmsg_pool_hoards(&pool));
}

Test(pool, what_may_last_stays)
{
    tmsg_pool_give(&pool, take(2 * MIB));
    for (int i = 0; i < 3; i++) {
        tmsg_pool_trim(&pool);
    }
    tmsg_pool_shrink(&pool, 0);
    cr_expect_eq(pool.kept, 2 * MIB);
}

Test(pool, shrinks_at_once_by_the_oldest)
{
    tmsg_pool_block_t blocks[4];

    for (size_t i = 0; i < 4; i++) {
        blocks[i] = take(MIB);
    }
    for (size_t i = 0; i < 4; i++) {
        tmsg_pool_give(&pool, blocks[i]);
    }
    tmsg_pool_shrink(&pool, 3 * MIB);
    cr_expect_eq(pool.kept, 3 * MIB);
    cr_expect_eq(take(MIB).data, blocks[3].data);
    tmsg_pool_give(&pool, blocks[3]);
}
