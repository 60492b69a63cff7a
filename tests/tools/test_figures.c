/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The figures and workloads of figures.json by the engine of the benches in C;
 * check_figures.py has those in Python do the same. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "measure/figures.h"
#include "measure/workload.h"

#define VALUES_MOST 200
#define PATH_BYTES 512

static cJSON *examples(const char *name)
{
    static char text[16384];
    char path[PATH_BYTES];
    FILE *file;
    cJSON *list, *root;

    snprintf(path, sizeof(path), "%s/tests/tools/figures.json",
             getenv("TMSG_SOURCE_DIR"));
    file = fopen(path, "re");
    cr_assert(file != NULL, "%s cannot be opened", path);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    root = cJSON_Parse(text);
    list = cJSON_DetachItemFromObjectCaseSensitive(root, name);
    cJSON_Delete(root);
    cr_assert(cJSON_GetArraySize(list) > 0, "%s has no %s", path, name);
    return list;
}

static double number(const cJSON *example, const char *name)
{
    return cJSON_GetNumberValue(
        cJSON_GetObjectItemCaseSensitive(example, name));
}

Test(figures, are_those_of_the_examples)
{
    cJSON *list = examples("figures");
    const cJSON *example, *value;

    cJSON_ArrayForEach(example, list)
    {
        double values[VALUES_MOST];
        size_t count = 0;

        cJSON_ArrayForEach(value,
                           cJSON_GetObjectItemCaseSensitive(example, "values"))
        {
            values[count++] = cJSON_GetNumberValue(value);
        }
        figures_sort(values, count);
        cr_assert(
            eq(dbl, figures_median(values, count), number(example, "median")));
        cr_assert(eq(dbl, figures_quantile(values, count, 0.75),
                     number(example, "p75")));
        cr_assert(eq(dbl, figures_quantile(values, count, 0.99),
                     number(example, "p99")));
    }
    cJSON_Delete(list);
}

Test(figures, workloads_are_those_of_the_examples)
{
    cJSON *list = examples("workloads");
    const cJSON *example;

    cJSON_ArrayForEach(example, list)
    {
        char path[PATH_BYTES], why[WORKLOAD_WHY_BYTES];
        workload_t workload;

        snprintf(path, sizeof(path), "%s/bench/workloads/%s.json",
                 getenv("TMSG_SOURCE_DIR"),
                 cJSON_GetStringValue(
                     cJSON_GetObjectItemCaseSensitive(example, "name")));
        cr_assert(workload_read(path, &workload, why), "%s", why);
        cr_assert(eq(dbl, (double)workload.maps[0].count,
                     number(example, "tensors")));
        cr_assert(
            eq(dbl, (double)workload.maps[0].bytes, number(example, "bytes")));
        workload_free(&workload);
    }
    cJSON_Delete(list);
}
