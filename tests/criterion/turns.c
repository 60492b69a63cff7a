/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a file runs twice, each time with another UCX, and has not divided its own
 * work (support/whole.h): one run has its first test, its third and so on, the
 * other the rest. `make soak` has all of them with both. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

#include <stdlib.h>

#include "support/whole.h"

typedef struct criterion_ordered_set_node node_t;

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    size_t turn = 0;

    if (getenv("TMSG_TURNS") == NULL || !does_half()) {
        return;
    }
    FOREACH_SET(struct criterion_suite_set *suite, set->suites) {
        node_t **link = suite->tests == NULL ? NULL : &suite->tests->first;

        while (link != NULL && *link != NULL) {
            if (is_due(turn++)) {
                link = &(*link)->next;
            } else { /* and with it goes what Criterion would say of it */
                *link = (*link)->next;
                suite->tests->size--;
                set->tests--;
            }
        }
    }
}
