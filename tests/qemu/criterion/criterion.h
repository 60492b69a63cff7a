/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of core and serialize use of Criterion, for an emulator of
 * another processor: Criterion executes its program anew for each test, which
 * qemu's user mode cannot. Here each test is a fork (main.c). */
#ifndef TMSG_QEMU_CRITERION_H
#define TMSG_QEMU_CRITERION_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct case_of {
    const char *suite_;
    const char *name_; /* NULL: it is the suite's own */
    void (*run_)(void);
    void (*init)(void);
    void (*fini)(void);
    double timeout;
    int signal;
    struct case_of *next_;
} case_of;

void case_add(case_of *one);
void case_failed(const char *file, int line, const char *what, bool ends);
_Noreturn void case_skip(void);

#define CASE_ADD(id, ...)                                                      \
    __attribute__((constructor)) static void id##_add(void)                    \
    {                                                                          \
        static case_of one = {__VA_ARGS__};                                    \
        case_add(&one);                                                        \
    }
#define Test(suite, name, ...)                                                 \
    static void suite##_##name##_run(void);                                    \
    CASE_ADD(suite##_##name, .suite_ = #suite, .name_ = #name,                 \
             .run_ = suite##_##name##_run, __VA_ARGS__)                        \
    static void suite##_##name##_run(void)
#define TestSuite(suite, ...)                                                  \
    CASE_ADD(suite##_all, .suite_ = #suite, __VA_ARGS__)

#define CASE_CHECK(holds, what, ends)                                          \
    ((holds) ? (void)0 : case_failed(__FILE__, __LINE__, what, ends))

#define cr_skip_test(...) case_skip()
#define cr_assert(holds, ...) CASE_CHECK(holds, #holds, true)
#define cr_assert_not(holds, ...) CASE_CHECK(!(holds), "not " #holds, true)
#define cr_assert_eq(a, b, ...) CASE_CHECK((a) == (b), #a " == " #b, true)
#define cr_assert_neq(a, b, ...) CASE_CHECK((a) != (b), #a " != " #b, true)
#define cr_assert_gt(a, b, ...) CASE_CHECK((a) > (b), #a " > " #b, true)
#define cr_assert_lt(a, b, ...) CASE_CHECK((a) < (b), #a " < " #b, true)
#define cr_assert_geq(a, b, ...) CASE_CHECK((a) >= (b), #a " >= " #b, true)
#define cr_assert_leq(a, b, ...) CASE_CHECK((a) <= (b), #a " <= " #b, true)
#define cr_assert_not_null(a, ...) CASE_CHECK((a) != NULL, #a, true)
#define cr_assert_null(a, ...) CASE_CHECK((a) == NULL, "no " #a, true)
#define cr_assert_str_eq(a, b, ...)                                            \
    CASE_CHECK(strcmp(a, b) == 0, #a " is " #b, true)
#define cr_assert_arr_eq(a, b, size, ...)                                      \
    CASE_CHECK(memcmp(a, b, size) == 0, #a " is " #b, true)
#define cr_expect(holds, ...) CASE_CHECK(holds, #holds, false)
#define cr_expect_not(holds, ...) CASE_CHECK(!(holds), "not " #holds, false)
#define cr_expect_eq(a, b, ...) CASE_CHECK((a) == (b), #a " == " #b, false)
#define cr_expect_neq(a, b, ...) CASE_CHECK((a) != (b), #a " != " #b, false)
#define cr_expect_gt(a, b, ...) CASE_CHECK((a) > (b), #a " > " #b, false)
#define cr_expect_lt(a, b, ...) CASE_CHECK((a) < (b), #a " < " #b, false)
#define cr_expect_geq(a, b, ...) CASE_CHECK((a) >= (b), #a " >= " #b, false)
#define cr_expect_leq(a, b, ...) CASE_CHECK((a) <= (b), #a " <= " #b, false)
#define cr_expect_not_null(a, ...) CASE_CHECK((a) != NULL, #a, false)
#define cr_expect_null(a, ...) CASE_CHECK((a) == NULL, "no " #a, false)
#define cr_expect_str_empty(a, ...)                                            \
    CASE_CHECK(*(a) == '\0', #a " is empty", false)
#define cr_expect_str_eq(a, b, ...)                                            \
    CASE_CHECK(strcmp(a, b) == 0, #a " is " #b, false)
#define cr_expect_arr_eq(a, b, size, ...)                                      \
    CASE_CHECK(memcmp(a, b, size) == 0, #a " is " #b, false)

#endif
