/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of a file's tests run. $TMSG_TESTS is a pattern of their names, with
 * what the shell's extended ones have; Criterion's own --filter calls the
 * others skipped. And with $TMSG_TURNS, where a file runs twice, each time with
 * another UCX, and has not divided its own work (support/test_scale.h), one run
 * has its first test, its third and so on, the other the rest; `make soak` has
 * all with both. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

#include <fnmatch.h>
#include <stdlib.h>

#include "support/test_scale.h"

typedef struct criterion_ordered_set_node node_t;

static node_t *left_out; /* Criterion frees what it knows: no leak, these */

/* `turn` goes on with each that has a name that may run; NULL: all have theirs.
 */
static bool runs(const struct criterion_test *test, size_t *turn)
{
    const char *pattern = getenv("TMSG_TESTS");

    if (pattern != NULL && fnmatch(pattern, test->name, FNM_EXTMATCH) != 0) {
        return false;
    }
    return turn == NULL || is_due((*turn)++);
}

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    bool by_turns = getenv("TMSG_TURNS") != NULL && set->tests > 1;
    size_t turn = 0;

    FOREACH_SET(struct criterion_suite_set * suite, set->suites)
    {
        node_t **link = suite->tests == NULL ? NULL : &suite->tests->first;

        while (link != NULL && *link != NULL) {
            if (runs((const struct criterion_test *)(*link + 1),
                     by_turns ? &turn : NULL)) {
                link = &(*link)->next;
            } else { /* and with it goes what Criterion would say of it */
                node_t *rest = *link;

                *link = rest->next;
                rest->next = left_out;
                left_out = rest;
                suite->tests->size--;
                set->tests--;
            }
        }
    }
}
