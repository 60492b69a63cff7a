/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "core/arena.h"
#include "support/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const size_t pieces[] = {0,
                                1,
                                7,
                                8,
                                9,
                                63,
                                64,
                                500,
                                513,
                                4096,
                                1,
                                1u << 20,
                                3,
                                0,
                                16,
                                2000,
                                9,
                                3 << 20,
                                (1u << 20) + 1,
                                24};

/* Fills the arena with the pieces, each with its own byte. */
static void fill(tmsg_arena_t *arena, unsigned char **given)
{
    for (size_t i = 0; i < COUNT(pieces); i++) {
        given[i] = tmsg_arena_alloc(arena, pieces[i]);
        if (given[i] != NULL) {
            memset(given[i], (int)i + 1, pieces[i]);
        }
    }
}

/* How many allocations that takes. */
static unsigned long count_allocations(tmsg_arena_t *arena)
{
    unsigned char *given[COUNT(pieces)];
    unsigned long count;

    failing_alloc_arm(ULONG_MAX);
    fill(arena, given);
    count = ULONG_MAX - failing_alloc_left;
    failing_alloc_disarm();
    return count;
}

Test(arena, gives_aligned_pieces_that_do_not_overlap)
{
    tmsg_arena_t arena = {0};
    unsigned char *given[COUNT(pieces)];
    size_t used = 0;

    fill(&arena, given);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        cr_assert(given[i] != NULL, "piece %zu", i);
        cr_expect_eq((uintptr_t)given[i] % 8, 0, "piece %zu at %p", i,
                     (void *)given[i]);
        for (size_t j = 0; j < pieces[i]; j++) {
            cr_assert_eq(given[i][j], i + 1, "piece %zu, byte %zu: %u", i, j,
                         given[i][j]);
        }
        used += tmsg_arena_size(pieces[i]);
    }
    cr_expect_eq(arena.used, used, "%zu bytes used, not %zu", arena.used, used);
    tmsg_arena_free(&arena);
    cr_expect(arena.chunks == NULL && arena.used == 0);
}

Test(arena, gives_the_same_pieces_again_without_an_allocation)
{
    tmsg_arena_t arena = {0};

    cr_expect_gt(count_allocations(&arena), 0);
    for (int round = 0; round < 3; round++) {
        unsigned long count;

        tmsg_arena_reset(&arena);
        tmsg_arena_reset(&arena); /* once more is no harm */
        cr_expect_eq(arena.used, 0, "%zu", arena.used);
        count = count_allocations(&arena);
        cr_expect_eq(count, 0, "round %d: %lu allocations", round, count);
    }
    tmsg_arena_free(&arena);
}

Test(arena, lets_go_of_what_the_last_round_did_not_use)
{
    tmsg_arena_t arena = {0};
    unsigned long count;

    count_allocations(&arena);
    tmsg_arena_reset(&arena);
    cr_assert(tmsg_arena_alloc(&arena, 8) != NULL);
    tmsg_arena_reset(&arena);
    count = count_allocations(&arena);
    cr_expect_gt(count, 0, "%lu", count);
    tmsg_arena_free(&arena);
}

Test(arena, refuses_more_than_there_can_be)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX / 2 + 1};
    tmsg_arena_t arena = {0};

    for (size_t i = 0; i < COUNT(sizes); i++) {
        cr_expect(tmsg_arena_alloc(&arena, sizes[i]) == NULL, "%zu bytes",
                  sizes[i]);
    }
    cr_expect_eq(arena.used, 0);
    tmsg_arena_free(&arena);
}

Test(arena, survives_every_failed_allocation)
{
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        tmsg_arena_t arena = {0};
        unsigned char *given[COUNT(pieces)];
        size_t missing = 0;

        failing_alloc_arm(n);
        fill(&arena, given);
        failed = failing_alloc_disarm();
        for (size_t i = 0; i < COUNT(pieces); i++) {
            missing += given[i] == NULL;
            cr_expect(given[i] == NULL || pieces[i] == 0 ||
                          given[i][pieces[i] - 1] == i + 1,
                      "allocation %lu, piece %zu", n, i);
        }
        cr_expect_eq(missing, failed, "allocation %lu: %zu pieces missing", n,
                     missing);
        tmsg_arena_free(&arena);
    }
}
