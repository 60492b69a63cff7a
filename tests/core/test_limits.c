/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    uint64_t bit;
    size_t offset;
    uint64_t most;
    uint64_t usual; /* 0: the machine's */
} fields[] = {
    {"tensors", TMSG_LIMIT_TENSORS, offsetof(tmsg_limits_t, tensors),
     UINT32_MAX, 1ULL << 20},
    {"ndim", TMSG_LIMIT_NDIM, offsetof(tmsg_limits_t, ndim), 64, 64},
    {"name_bytes", TMSG_LIMIT_NAME_BYTES, offsetof(tmsg_limits_t, name_bytes),
     4096, 4096},
    {"metadata_bytes", TMSG_LIMIT_METADATA_BYTES,
     offsetof(tmsg_limits_t, metadata_bytes), UINT32_MAX, 64ULL << 20},
    {"header_bytes", TMSG_LIMIT_HEADER_BYTES,
     offsetof(tmsg_limits_t, header_bytes), UINT32_MAX, 512ULL << 20},
    {"message_bytes", TMSG_LIMIT_MESSAGE_BYTES,
     offsetof(tmsg_limits_t, message_bytes), INT64_MAX, 1ULL << 40},
    {"held_bytes", TMSG_LIMIT_HELD_BYTES, offsetof(tmsg_limits_t, held_bytes),
     INT64_MAX, 0},
    {"metadata_keys", TMSG_LIMIT_METADATA_KEYS,
     offsetof(tmsg_limits_t, metadata_keys), UINT32_MAX, 65536},
    {"lent_bytes", TMSG_LIMIT_LENT_BYTES, offsetof(tmsg_limits_t, lent_bytes),
     INT64_MAX, INT64_MAX},
};

static uint64_t *field_of(tmsg_limits_t *limits, size_t i)
{
    return (uint64_t *)(void *)((char *)limits + fields[i].offset);
}

Test(limits, defaults_are_those_of_the_header)
{
    uint64_t memory =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t all = 0;
    tmsg_limits_t limits;

    memset(&limits, 0xa5, sizeof(limits));
    limits.field_mask = TMSG_LIMIT_ALL;
    cr_assert_eq(tmsg_limits_default(&limits), TMSG_OK);
    for (size_t i = 0; i < COUNT(fields); i++) {
        uint64_t usual = fields[i].usual ? fields[i].usual : memory / 4;

        all |= fields[i].bit;
        cr_expect_eq(*field_of(&limits, i), usual, "%s: %lu, not %lu",
                     fields[i].name, *field_of(&limits, i), usual);
    }
    cr_expect_eq(limits.field_mask, all, "mask %lx, not %lx", limits.field_mask,
                 all);
}

/* A newer library than the caller's headers knows more fields than there are:
 * it writes none that was not asked for. */
Test(limits, default_writes_the_fields_whose_bits_are_set)
{
    for (size_t i = 0; i < COUNT(fields); i++) {
        tmsg_limits_t limits, before;

        memset(&limits, 0xa5, sizeof(limits));
        limits.field_mask = fields[i].bit;
        before = limits;
        cr_assert_eq(tmsg_limits_default(&limits), TMSG_OK);
        cr_expect_neq(*field_of(&limits, i), *field_of(&before, i), "%s",
                      fields[i].name);
        *field_of(&limits, i) = *field_of(&before, i);
        cr_expect_eq(memcmp(&limits, &before, sizeof(limits)), 0, "%s",
                     fields[i].name);
    }
}

Test(limits, default_refuses_what_it_does_not_know)
{
    tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_ALL | 1ULL << 40};

    cr_expect_eq(tmsg_limits_default(&limits), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(limits.tensors, 0, "%lu", limits.tensors);
    cr_expect_eq(tmsg_limits_default(NULL), TMSG_ERR_INVALID_PARAM);
}

/* For every set of fields: those given change, the others do not. */
Test(limits, merge_takes_the_fields_whose_bits_are_set)
{
    for (uint64_t mask = 0; mask < 1u << COUNT(fields); mask++) {
        tmsg_limits_t given = {.field_mask = mask}, merged, usual;
        tmsg_status_t status;

        usual = tmsg_limits_usual();
        merged = tmsg_limits_usual();
        for (size_t i = 0; i < COUNT(fields); i++) {
            /* what is not set may be out of its range */
            *field_of(&given, i) = mask & fields[i].bit ? i + 1 : UINT64_MAX;
        }
        status = tmsg_limits_merge(&given, &merged);
        cr_expect_eq(status, TMSG_OK, "mask %lx: %s", mask,
                     tmsg_error_message());
        for (size_t i = 0; i < COUNT(fields); i++) {
            uint64_t expected =
                mask & fields[i].bit ? i + 1 : *field_of(&usual, i);

            cr_expect_eq(*field_of(&merged, i), expected,
                         "mask %lx, %s: %lu, not %lu", mask, fields[i].name,
                         *field_of(&merged, i), expected);
        }
    }
}

Test(limits, merge_keeps_every_field_in_its_range)
{
    for (size_t i = 0; i < COUNT(fields); i++) {
        const struct {
            uint64_t value;
            tmsg_status_t status;
        } rows[] = {{0, TMSG_ERR_INVALID_PARAM},
                    {1, TMSG_OK},
                    {fields[i].most, TMSG_OK},
                    {fields[i].most + 1, TMSG_ERR_INVALID_PARAM},
                    {UINT64_MAX, TMSG_ERR_INVALID_PARAM}};

        for (size_t j = 0; j < COUNT(rows); j++) {
            tmsg_limits_t given = {.field_mask = fields[i].bit}, merged, before;
            tmsg_status_t status;
            bool failed = rows[j].status != TMSG_OK;

            merged = tmsg_limits_usual();
            /* a good field before a bad one does not slip through */
            given.field_mask |= TMSG_LIMIT_TENSORS | TMSG_LIMIT_HELD_BYTES;
            given.tensors = given.held_bytes = 5;
            *field_of(&given, i) = rows[j].value;
            before = merged;
            status = tmsg_limits_merge(&given, &merged);
            cr_expect_eq(status, rows[j].status, "%s %lu: %s, not %s",
                         fields[i].name, rows[j].value,
                         tmsg_status_name(status),
                         tmsg_status_name(rows[j].status));
            cr_expect_eq(memcmp(&before, &merged, sizeof(merged)) == 0, failed,
                         "%s %lu: the limits changed or did not",
                         fields[i].name, rows[j].value);
            cr_expect(!failed || strstr(tmsg_error_message(), fields[i].name),
                      "%s: '%s'", fields[i].name, tmsg_error_message());
        }
    }
}

Test(limits, merge_refuses_unknown_bits)
{
    for (int bit = COUNT(fields); bit < 64; bit++) {
        tmsg_limits_t given = {.field_mask = 1ULL << bit | TMSG_LIMIT_NDIM,
                               .ndim = 3};
        tmsg_limits_t merged;
        tmsg_status_t status;

        merged = tmsg_limits_usual();
        status = tmsg_limits_merge(&given, &merged);
        cr_expect_eq(status, TMSG_ERR_INVALID_PARAM, "bit %d: %s", bit,
                     tmsg_status_name(status));
        cr_expect_eq(merged.ndim, 64, "bit %d: ndim %lu", bit, merged.ndim);
    }
}
