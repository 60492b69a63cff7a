/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/index.h"
#include "support/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST 2000

typedef struct {
    const char *name;
    size_t name_bytes;
    int tail; /* the stride is not the names' own */
} item_t;

typedef struct {
    tmsg_index_t index;
    item_t items[MOST];
    size_t count;
} list_t;

static char texts[MOST][24];

static void make_texts(void)
{
    for (int i = 0; i < MOST; i++) {
        snprintf(texts[i], sizeof(texts[i]), "name-%d", i);
    }
}

TestSuite(index, .init = make_texts);

static tmsg_names_t names_of(const list_t *list)
{
    return (tmsg_names_t){list->items, sizeof(item_t), list->count};
}

static tmsg_status_t add(list_t *list, const char *text)
{
    tmsg_names_t names;
    tmsg_status_t status;

    list->items[list->count++] = (item_t){text, strlen(text), 0};
    names = names_of(list);
    status = tmsg_index_add(&list->index, &names);
    list->count -= status != TMSG_OK;
    return status;
}

static void take_out(list_t *list, size_t position)
{
    tmsg_names_t names;

    list->count--;
    memmove(list->items + position, list->items + position + 1,
            (list->count - position) * sizeof(item_t));
    names = names_of(list);
    tmsg_index_remove(&list->index, &names, position);
}

static size_t look_up(const list_t *list, const char *text)
{
    tmsg_names_t names = names_of(list);

    return tmsg_index_find(&list->index, &names, text, strlen(text));
}

/* All that are in are found where they are, and no other. */
static void expect_consistent(const list_t *list, const char *when, size_t step)
{
    static bool in[MOST];

    memset(in, 0, sizeof(in));
    for (size_t i = 0; i < list->count; i++) {
        size_t found = look_up(list, list->items[i].name);

        in[(list->items[i].name - texts[0]) / (long)sizeof(texts[0])] = true;
        cr_assert_eq(found, i, "%s %zu: '%s' is at %zu, not %zu", when, step,
                     list->items[i].name, found, i);
    }
    for (size_t i = 0; i < MOST; i++) {
        size_t found = in[i] ? TMSG_INDEX_NONE : look_up(list, texts[i]);

        cr_assert_eq(found, TMSG_INDEX_NONE, "%s %zu: '%s' is at %zu", when,
                     step, texts[i], found);
    }
}

Test(index, finds_nothing_in_an_empty_list)
{
    list_t list = {.count = 0};

    cr_expect_eq(look_up(&list, "name-0"), TMSG_INDEX_NONE);
    cr_expect_eq(look_up(&list, ""), TMSG_INDEX_NONE);
    tmsg_index_free(&list.index);
}

Test(index, finds_every_name_at_every_size)
{
    static list_t list;

    for (size_t i = 0; i < 600; i++) {
        cr_assert_eq(add(&list, texts[i]), TMSG_OK);
        if (i < 40 || i % 97 == 0) {
            expect_consistent(&list, "size", i + 1);
        }
    }
    tmsg_index_free(&list.index);
}

/* A name is its bytes: prefixes, suffixes and NULs tell names apart. */
Test(index, tells_similar_names_apart)
{
    static const struct {
        const char *text;
        size_t bytes;
    } names[] = {{"a", 1},        {"aa", 2}, {"aaa", 3},  {"b", 1},
                 {"ab", 2},       {"ba", 2}, {"a\0", 2},  {"a\0b", 3},
                 {"a\0c", 3},     {"\0", 1}, {"\0\0", 2}, {"A", 1},
                 {"a/b", 3},      {"a/", 2}, {"/a", 2},   {"\xc3\xa4", 2},
                 {"a\xcc\x88", 3}};
    static list_t list;

    for (size_t i = 0; i < COUNT(names); i++) {
        tmsg_names_t all;

        list.items[list.count++] = (item_t){names[i].text, names[i].bytes, 0};
        all = names_of(&list);
        cr_assert_eq(tmsg_index_add(&list.index, &all), TMSG_OK);
        for (size_t j = 0; j < COUNT(names); j++) {
            size_t expected = j <= i ? j : TMSG_INDEX_NONE;
            size_t found = tmsg_index_find(&list.index, &all, names[j].text,
                                           names[j].bytes);

            cr_expect_eq(found, expected, "name %zu of %zu is at %zu", j, i + 1,
                         found);
        }
    }
    tmsg_index_free(&list.index);
}

Test(index, follows_random_removals)
{
    static list_t list;
    unsigned short state[3] = {1, 2, 3};
    size_t next = 0;

    for (size_t step = 0; step < 4000; step++) {
        /* tides: the list grows beyond and shrinks below what is hashed */
        bool grow = nrand48(state) % 100 < (step / 400 % 2 ? 20 : 80);

        if (grow && list.count < 300) {
            while (look_up(&list, texts[next]) != TMSG_INDEX_NONE) {
                next = (next + 1) % MOST;
            }
            cr_assert_eq(add(&list, texts[next]), TMSG_OK);
            next = (next + 1) % MOST;
        } else if (list.count > 0) {
            take_out(&list, (size_t)nrand48(state) % list.count);
        }
        if (step % 16 == 0 || list.count < 12) {
            expect_consistent(&list, "step", step);
        }
    }
    tmsg_index_free(&list.index);
}

Test(index, starts_over_with_the_memory_there_is)
{
    static list_t list;
    bool allocated;

    for (size_t i = 0; i < 1000; i++) {
        cr_assert_eq(add(&list, texts[i]), TMSG_OK);
    }
    for (size_t round = 0; round < 3; round++) {
        list.count = 0;
        failing_alloc_arm(1);
        for (size_t i = 0; i < 1000; i++) {
            add(&list, texts[(i + round * 500) % MOST]);
        }
        allocated = failing_alloc_disarm();
        cr_expect(!allocated, "round %zu allocated", round);
        cr_assert_eq(list.count, 1000);
        expect_consistent(&list, "round", round);
    }
    tmsg_index_free(&list.index);
}

Test(index, survives_every_failed_allocation)
{
    static list_t list;
    bool failed = true;
    unsigned long failures = 0;

    for (unsigned long n = 1; failed; n++) {
        tmsg_index_free(&list.index);
        list.count = 0;
        failing_alloc_arm(n);
        for (size_t i = 0; i < 1000; i++) {
            if (add(&list, texts[i]) != TMSG_OK) {
                add(&list, texts[i]);
            }
        }
        failed = failing_alloc_disarm();
        failures += failed;
        cr_expect_eq(list.count, 1000, "allocation %lu: %zu names", n,
                     list.count);
        expect_consistent(&list, "allocation", n);
    }
    cr_expect_eq(failures, 7, "%lu allocations for 32 to 2048 slots", failures);
    tmsg_index_free(&list.index);
}

/* Compared by eight: a letter in any place makes another name. */
Test(index, names_differ_by_any_letter)
{
    char name[41], other[41];
    item_t item = {name, 0, 0};
    tmsg_names_t names = {&item, sizeof(item), 1};
    tmsg_index_t index = {0};

    for (size_t bytes = 1; bytes < sizeof(name); bytes++) {
        memset(name, 'a', sizeof(name));
        memset(other, 'a', sizeof(other));
        item.name_bytes = bytes;
        for (size_t at = 0; at < bytes; at++) {
            other[at] = 'b';
            cr_expect_eq(tmsg_index_find(&index, &names, other, bytes),
                         TMSG_INDEX_NONE, "at %zu of %zu", at, bytes);
            other[at] = 'a';
        }
        if (bytes + 1 < sizeof(other)) {
            other[bytes] = 'b'; /* no longer part of it */
        }
        cr_expect_eq(tmsg_index_find(&index, &names, other, bytes), 0);
    }
}
